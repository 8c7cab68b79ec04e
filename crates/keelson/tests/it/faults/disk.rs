//! Disks that are full, read-only or broken for some time, and power cuts that tear unsynced
//! writes.

use super::converted;
use super::load::{self, Load, Reads};
use super::rounds;
use crate::http::{Client, POLL_TIMEOUT, without_controllers};
use crate::random::Random;
use keelson::Keelson;
use keelson_store::Embedded;
use keelson_store::conformance::{Fault, PowerDisk, Rng};
use keelson_store::embedded::RedbDisk;
use keelson_testkit::connection::{Connect, Connection, plain};
use keelson_testkit::webhook::Webhook;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::runtime::Runtime;

const CUTS: usize = 5;
const FAULTS: usize = 3;
const WRITES_BETWEEN: usize = 60;
const REFUSALS: usize = 40;

/// A server with a simulated disk.
struct Server {
    runtime: Runtime,
    keelson: Keelson,
}

impl Server {
    fn start(disk: &PowerDisk) -> Server {
        let disk = RedbDisk::with_files(disk.clone()).expect("the disk opens");
        let store = Embedded::with_disk(Arc::new(disk)).expect("the store opens");
        let runtime = Runtime::new().expect("a runtime");
        let builder = without_controllers()
            .token("t", "admin")
            .store(store)
            .with(|builder| builder.serving.tls = false);
        let keelson = runtime.block_on(builder.start()).expect("the server starts");
        Server { runtime, keelson }
    }

    fn connect(&self) -> Connect {
        let address: SocketAddr = self.keelson.address();
        Arc::new(move || Ok(Connection::over(plain(address)?)))
    }

    /// Stops the server at once, with all its connections.
    fn end(self) {
        drop(self.keelson);
        self.runtime.shutdown_timeout(POLL_TIMEOUT);
    }
}

/// Checks lists, a new watch and /readyz while the disk fails or works.
fn check_reads_and_watches(load: &Load, is_well: bool) {
    let mut connection = load.connection();
    let (code, list) = connection.call("GET", load.path(), "", None).expect("a list");
    assert_eq!(code, 200, "{list}");
    if list["items"].as_array().is_some_and(|items| !items.is_empty()) {
        let watch = load.connection().watch(&format!("{}?watch=1", load.path()));
        let event = watch.and_then(|mut watch| watch.next()).expect("an event");
        assert_eq!(event["type"], "ADDED", "{event}");
    }
    let ready = load.connection().status("/readyz").expect("an answer");
    assert_eq!(ready == 200, is_well, "readyz says {ready}");
}

/// Lets the disk fail and work again under load, some times.
fn fail_repeatedly(load: &Load, disk: &PowerDisk, fault: Fault, times: usize) {
    for _ in 0..times {
        load.wait_acknowledged(WRITES_BETWEEN);
        disk.fail(Some(fault));
        load.wait_refused(REFUSALS);
        check_reads_and_watches(load, false);
        disk.fail(None);
        load.wait_acknowledged(WRITES_BETWEEN);
        check_reads_and_watches(load, true);
    }
}

fn fail_and_mend(fault: Fault) {
    let mut random = Random::seeded("KEELSON_FAULTS_SEED");
    let disk = PowerDisk::default();
    let server = Server::start(&disk);
    load::run(&mut random, Reads::GoOn, server.connect(), |load| {
        fail_repeatedly(load, &disk, fault, rounds(FAULTS));
    });
    server.end();
    // The disk holds exactly the acknowledged writes.
    Server::start(&disk).end();
}

#[test]
fn a_full_disk_rejects_writes_until_it_has_space() {
    fail_and_mend(Fault::Writes);
}

#[test]
fn failed_syncs_lose_and_repeat_no_write() {
    fail_and_mend(Fault::Syncs);
}

#[test]
fn a_read_only_disk_rejects_writes_until_it_is_writable() {
    fail_and_mend(Fault::All);
}

/// Custom resources in a version that a webhook converts, whose writes another webhook admits.
#[test]
fn a_read_only_disk_rejects_converted_and_admitted_writes_until_it_is_writable() {
    let mut random = Random::seeded("KEELSON_FAULTS_SEED");
    let disk = PowerDisk::default();
    let server = Server::start(&disk);
    let hook = Webhook::start("h2", &["127.0.0.1"]);
    let client = Client { address: server.keelson.address() };
    converted::define_things(&client, &hook);
    load::run_on(converted::objects(), &mut random, Reads::GoOn, server.connect(), |load| {
        fail_repeatedly(load, &disk, Fault::All, rounds(1));
    });
    server.end();
    Server::start(&disk).end();
}

#[test]
fn unreadable_values_lose_no_other_write() {
    let mut random = Random::seeded("KEELSON_FAULTS_SEED");
    let disk = PowerDisk::default();
    let server = Server::start(&disk);
    load::run(&mut random, Reads::GoOn, server.connect(), |load| {
        for _ in 0..rounds(FAULTS) {
            load.wait_acknowledged(WRITES_BETWEEN);
            disk.fail(Some(Fault::Reads));
            // Pages are cached in memory, so some writes may succeed.
            load.wait_answered(REFUSALS);
            disk.fail(None);
            load.wait_acknowledged(WRITES_BETWEEN);
            check_reads_and_watches(load, true);
        }
    });
    server.end();
}

#[test]
fn a_torn_tail_loses_no_acknowledged_write() {
    let mut random = Random::seeded("KEELSON_FAULTS_SEED");
    let mut rng = Rng(random.below(usize::MAX) as u64);
    let mut disk = PowerDisk::default();
    let mut server = Server::start(&disk);
    load::run(&mut random, Reads::GoOn, server.connect(), |load| {
        for cut in 0..rounds(CUTS) {
            load.wait_acknowledged(WRITES_BETWEEN / 2 + 7 * (cut % CUTS));
            disk = disk.cut(&mut rng);
            load.move_to(None);
            let started = {
                let old = std::mem::replace(&mut server, Server::start(&PowerDisk::default()));
                // No client may read from the old server once the new one accepts writes.
                old.end();
                Server::start(&disk)
            };
            std::mem::replace(&mut server, started).end();
            load.move_to(Some(server.connect()));
        }
        load.wait_acknowledged(WRITES_BETWEEN);
    });
    server.end();
}
