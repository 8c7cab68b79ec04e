//! Three servers on three members of an etcd cluster, under one fault after the other: killed
//! servers and members, members that stand still (which moves the leader), partitions, and clocks
//! that jump. The history is compacted all the time.
//!
//! `KEELSON_CLUSTER_SECONDS` sets how long.

use super::clock::MovedClock;
use super::links::{Links, Member};
use super::load::{self, Load, Reads};
use crate::etcd::cluster;
use crate::http::{self, without_controllers};
use crate::kill;
use crate::random::Random;
use keelson::Etcd;
use keelson_store_etcd::testing::EtcdProcess;
use keelson_testkit::connection::{Connect, Connection, plain};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

const SECONDS: u64 = 60;
const WRITES_BETWEEN: usize = 60;
const MEMBERS: usize = 3;
/// Servers that are processes of their own, and are killed. One more is in this process.
const KILLED: usize = 2;
/// How often the history is compacted. A watch goes on within this time.
const COMPACTION: &str = "30s";
const FAULTS: [&str; 6] = [
    "killed server",
    "killed member",
    "member stands still",
    "partition of a pair",
    "lonely member",
    "clock jump",
];
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
    processes: Vec<EtcdProcess>,
    members: Vec<Member>,
    links: Links,
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
        let (runtime, processes) = cluster(MEMBERS, |port| links.front(port))?;
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
        Some(Cluster { runtime, processes, members, links, clock, dir, servers, own, ways })
    }

    /// Causes a fault, goes on under it, and ends it.
    fn suffer(&mut self, random: &mut Random, load: &Load) {
        let fault = FAULTS[random.below(FAULTS.len())];
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
    let mut count = 0;
    load::run(&mut random, Reads::MayFail, Arc::new(move || ways.connect()), |load| {
        while Instant::now() < until {
            load.wait_acknowledged(WRITES_BETWEEN);
            cluster.suffer(&mut faults, load);
            count += 1;
        }
        load.wait_acknowledged(WRITES_BETWEEN);
    });
    println!("{count} faults");
    cluster.own.stop();
}
