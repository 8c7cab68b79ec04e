//! Three servers on three members of an etcd cluster, under one fault after the other: killed
//! servers and members, members that stand still, partitions, a member whose disk is full, the
//! alarm NOSPACE, and clocks that jump. Meanwhile the leader moves every five seconds, and the
//! history is compacted every second.
//!
//! `KEELSON_CLUSTER_SECONDS` sets how long; `cargo xtask nightly` does it for an hour.

use super::clock::MovedClock;
use super::gateway::{Every, Gateway};
use super::links::{Links, Member};
use super::load::{self, Load, Reads};
use super::small_disk::SmallDisk;
use crate::etcd::cluster;
use crate::http::{self, without_controllers};
use crate::kill;
use crate::random::Random;
use keelson::Etcd;
use keelson_store_etcd::testing::EtcdProcess;
use keelson_testkit::connection::{Connect, Connection, plain};
use keelson_testkit::prerequisites::{MOUNT, prerequisite};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const SECONDS: u64 = 120;
const WRITES_BETWEEN: usize = 60;
const MEMBERS: usize = 3;
/// Servers that are processes of their own, and are killed. One more is in this process.
const KILLED: usize = 2;
/// Writes while a disk is full: enough that the member notices it.
const WRITES_OF_FULL_DISK: usize = 2_000;
const REFUSALS: usize = 40;
/// How often a server compacts the history.
const COMPACTION: &str = "30s";
/// How often the test does so, up to the revision of that many times before. A watch goes on within
/// this time.
const OWN_COMPACTION: Duration = Duration::from_secs(1);
const KEPT: usize = 60;
const LEADER_MOVES: Duration = Duration::from_secs(5);
const FAULTS: [&str; 8] = [
    "killed server",
    "killed member",
    "member stands still",
    "partition of a pair",
    "lonely member",
    "clock jump",
    "NOSPACE",
    FULL_DISK,
];
const FULL_DISK: &str = "full disk";
/// The member with a small disk.
const SMALL: usize = 0;
const HOURS: [i64; 5] = [5, -3, 24 * 400, -24 * 800, 0];

/// How clients reach the servers that run, in turns.
#[derive(Clone, Default)]
struct Ways {
    open: Arc<Mutex<[Option<Connect>; KILLED + 1]>>,
    turn: Arc<AtomicUsize>,
}

impl Ways {
    fn set(&self, server: usize, way: Option<Connect>) {
        self.open.lock().expect("the ways")[server] = way;
    }

    fn connect(&self) -> io::Result<Connection> {
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let way = self.open.lock().expect("the ways")[turn % (KILLED + 1)].clone();
        way.ok_or_else(|| io::Error::other("the server does not run"))?()
    }
}

struct Cluster {
    runtime: Runtime,
    // Unmounted before the folder of the member is removed.
    small_disk: Option<SmallDisk>,
    processes: Vec<EtcdProcess>,
    members: Vec<Member>,
    links: Links,
    gateway: Gateway,
    clock: MovedClock,
    dir: tempfile::TempDir,
    servers: [Option<kill::Server>; KILLED],
    own: http::Server,
    ways: Ways,
}

fn urls(processes: &[EtcdProcess]) -> Vec<String> {
    processes.iter().map(EtcdProcess::url).collect()
}

fn start(folder: &Path, processes: &[EtcdProcess]) -> kill::Server {
    let servers = format!("--etcd-servers={}", urls(processes).join(","));
    let compaction = format!("--etcd-compaction-interval={COMPACTION}");
    kill::Server::start_with_flags(folder, &["--controllers=-*", &servers, &compaction])
}

impl Cluster {
    fn start() -> Option<Cluster> {
        let links = Links::default();
        let (runtime, mut processes) = cluster(MEMBERS, |port| links.front(port))?;
        let small = &mut processes[SMALL];
        small.kill();
        let small_disk = prerequisite(MOUNT, SmallDisk::over(small.data_dir()));
        runtime.block_on(small.restart());
        let gateway = Gateway::new(urls(&processes));
        let members = processes.iter().map(Member::of).collect();
        let dir = tempfile::tempdir().expect("a folder");
        let clock = MovedClock::default();
        let builder = without_controllers().etcd(Etcd::new(urls(&processes))).clock(clock.clone());
        let own = http::Server::start_plain(builder);
        let servers = [0, 1].map(|n| Some(start(&dir.path().join(n.to_string()), &processes)));
        let ways = Ways::default();
        for (n, server) in servers.iter().flatten().enumerate() {
            ways.set(n, Some(server.connect_later()));
        }
        let address = own.keelson.address();
        ways.set(KILLED, Some(Arc::new(move || Ok(Connection::over(plain(address)?)))));
        Some(Cluster {
            runtime,
            small_disk,
            processes,
            members,
            links,
            gateway,
            clock,
            dir,
            servers,
            own,
            ways,
        })
    }

    /// Moves the leader until the result is dropped.
    fn move_leaders(&self) -> Every {
        let gateway = self.gateway.clone();
        // A member may be away, or elect another one itself.
        Every::start(LEADER_MOVES, move || drop(gateway.move_leader()))
    }

    /// Compacts the history until the result is dropped.
    fn compact(&self) -> Every {
        let gateway = self.gateway.clone();
        let mut revisions = VecDeque::new();
        Every::start(OWN_COMPACTION, move || {
            let Ok(revision) = gateway.revision() else { return };
            revisions.push_back(revision);
            if revisions.len() > KEPT {
                let old = revisions.pop_front().unwrap_or_default();
                // A server may have compacted further already.
                let _ = gateway.compact(old);
            }
        })
    }

    /// Causes a fault, goes on under it, and ends it.
    fn suffer(&mut self, fault: &str, random: &mut Random, load: &Load) {
        println!("{fault}");
        match fault {
            "killed server" => {
                let n = random.below(KILLED);
                self.ways.set(n, None);
                drop(self.servers[n].take());
                let folder = self.dir.path().join(n.to_string());
                let started = self.servers[n].insert(start(&folder, &self.processes));
                self.ways.set(n, Some(started.connect_later()));
            }
            "killed member" => {
                let n = random.below(MEMBERS);
                self.processes[n].kill();
                load.wait_acknowledged(WRITES_BETWEEN);
                self.runtime.block_on(self.processes[n].restart());
            }
            "member stands still" => {
                let n = random.below(MEMBERS);
                self.processes[n].signal("STOP");
                load.wait_acknowledged(WRITES_BETWEEN);
                self.processes[n].signal("CONT");
            }
            "partition of a pair" => {
                let n = random.below(MEMBERS);
                self.links.cut(&self.members[n], &self.members[(n + 1) % MEMBERS]);
                load.wait_acknowledged(WRITES_BETWEEN);
                self.links.mend();
            }
            "lonely member" => {
                let n = random.below(MEMBERS);
                for other in [1, 2].map(|more| (n + more) % MEMBERS) {
                    self.links.cut(&self.members[n], &self.members[other]);
                }
                load.wait_acknowledged(WRITES_BETWEEN);
                self.links.mend();
            }
            "NOSPACE" => {
                self.gateway.alarm("ACTIVATE").expect("the alarm is raised");
                load.wait_refused(REFUSALS);
                self.gateway.alarm("DEACTIVATE").expect("the alarm is removed");
            }
            FULL_DISK => {
                let Some(disk) = &self.small_disk else { return };
                disk.fill();
                load.wait_acknowledged(WRITES_OF_FULL_DISK);
                disk.empty();
                let member = &mut self.processes[SMALL];
                println!("the member {}", if member.runs() { "goes on" } else { "has ended" });
                self.runtime.block_on(member.restart());
            }
            _ => self.clock.jump(HOURS[random.below(HOURS.len())]),
        }
    }
}

#[test]
fn the_history_of_three_servers_on_three_etcds_is_linearizable() {
    let Some(mut cluster) = Cluster::start() else { return };
    let mut random = Random::seeded("KEELSON_FAULTS_SEED");
    let mut faults = random.split();
    let given = std::env::var("KEELSON_CLUSTER_SECONDS").ok().and_then(|text| text.parse().ok());
    let until = Instant::now() + Duration::from_secs(given.unwrap_or(SECONDS));
    let ways = cluster.ways.clone();
    let _moves = cluster.move_leaders();
    let _compactions = cluster.compact();
    let mut count = 0;
    load::run(&mut random, Reads::MayFail, Arc::new(move || ways.connect()), |load| {
        while Instant::now() < until {
            load.wait_acknowledged(WRITES_BETWEEN);
            cluster.suffer(FAULTS[faults.below(FAULTS.len())], &mut faults, load);
            count += 1;
        }
        load.wait_acknowledged(WRITES_BETWEEN);
    });
    println!("{count} faults");
    cluster.own.stop();
}
