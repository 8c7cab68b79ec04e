//! Killed processes: the server itself, and etcd below it.

use super::load::{self, Reads};
use super::rounds;
use crate::etcd;
use crate::kill::Server;
use crate::random::Random;
use keelson_testkit::connection::{Connection, plain};
use std::sync::Arc;

const KILLS: usize = 5;
const RESTARTS: usize = 2;
const WRITES_BETWEEN: usize = 60;

#[test]
fn the_history_over_kills_of_the_server_is_linearizable() {
    let mut random = Random::seeded("KEELSON_FAULTS_SEED");
    let moments: Vec<usize> =
        (0..rounds(KILLS)).map(|_| 1 + random.below(2 * WRITES_BETWEEN)).collect();
    let dir = tempfile::tempdir().expect("a folder");
    let mut server = Some(Server::start(dir.path()));
    let connect = server.as_ref().expect("a server").connect_later();
    load::run(&mut random, Reads::MayFail, connect, |load| {
        for moment in moments {
            load.wait_acknowledged(moment);
            load.move_to(None);
            drop(server.take());
            let started = server.insert(Server::start(dir.path()));
            load.move_to(Some(started.connect_later()));
        }
        load.wait_acknowledged(WRITES_BETWEEN);
    });
}

#[test]
fn the_history_over_kills_of_etcd_is_linearizable() {
    let Some((runtime, mut etcd)) = etcd::etcd() else { return };
    let mut random = Random::seeded("KEELSON_FAULTS_SEED");
    let server = etcd::serve(&etcd);
    let address = server.keelson.address();
    let connect = move || Ok(Connection::over(plain(address)?));
    load::run(&mut random, Reads::MayFail, Arc::new(connect), |load| {
        for _ in 0..rounds(RESTARTS) {
            load.wait_acknowledged(WRITES_BETWEEN);
            etcd.kill();
            runtime.block_on(etcd.restart());
        }
        load.wait_acknowledged(WRITES_BETWEEN);
    });
    server.stop();
}
