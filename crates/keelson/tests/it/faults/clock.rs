//! Clocks that jump by hours, forwards and backwards: under load, and under a lease.

use super::converted;
use super::load::{self, MAPS, Reads};
use crate::etcd;
use crate::http::{Server, without_controllers};
use crate::random::Random;
use keelson::{Clock, Etcd, Keelson, SystemClock, Timestamp};
use keelson_testkit::connection::{Connection, plain};
use keelson_testkit::webhook::Webhook;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

const HOUR: i64 = 3_600;
const WRITES_BETWEEN: usize = 60;
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const LEASE: &str = "keelson-controllers";

/// The system clock with an offset.
#[derive(Clone, Default)]
pub struct MovedClock {
    seconds: Arc<AtomicI64>,
}

impl MovedClock {
    /// Moves the clock to so many hours from the system's.
    pub fn jump(&self, hours: i64) {
        self.seconds.store(hours * HOUR, Ordering::SeqCst);
    }
}

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        let now = SystemClock.now();
        Timestamp { seconds: now.seconds + self.seconds.load(Ordering::SeqCst), ..now }
    }

    fn random(&self) -> [u8; 16] {
        SystemClock.random()
    }
}

#[test]
fn clock_jumps_change_only_timestamps() {
    let mut random = Random::seeded("KEELSON_FAULTS_SEED");
    let clock = MovedClock::default();
    let history = Duration::from_secs(60);
    let server = Server::start_plain(
        without_controllers()
            .clock(clock.clone())
            .with(|builder| builder.storage.history = history),
    );
    let address = server.keelson.address();
    let connect = move || Ok(Connection::over(plain(address)?));
    let client = server.client();
    let first = client.get(MAPS).body["metadata"]["resourceVersion"]
        .clone()
        .as_str()
        .expect("a revision")
        .to_owned();
    let mut watch = client.open_watch(&format!("{MAPS}?watch=1&timeoutSeconds=600"));
    load::run(&mut random, Reads::GoOn, Arc::new(connect), |load| {
        for (n, hours) in [5, -3, 24 * 400, -24 * 800, 0].into_iter().enumerate() {
            load.wait_acknowledged(WRITES_BETWEEN);
            clock.jump(hours);
            let earliest = clock.now().to_string();
            let map = json!({"metadata": {"name": format!("jump-{n}")}});
            let made = client.post(MAPS, &map);
            assert_eq!(made.status, 201, "{made:?}");
            let created = made.body["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
            let latest = clock.now().to_string();
            assert!(*earliest <= *created && *created <= *latest, "{created} is not {earliest}");
            // Watches and the history do not use that clock.
            let since = format!("{MAPS}?watch=1&resourceVersion={first}&timeoutSeconds=600");
            let event = client.open_watch(&since).next().expect("an event");
            assert_eq!(event["type"], "ADDED", "{event}");
            load.wait_acknowledged(WRITES_BETWEEN);
        }
    });
    while watch.next().expect("the watch goes on")["object"]["metadata"]["name"] != "jump-4" {}
    server.stop();
}

/// The same for custom resources in a version that a webhook converts, whose writes another webhook
/// admits: deadlines of calls do not use that clock.
#[test]
fn clock_jumps_change_nothing_for_webhooks() {
    let mut random = Random::seeded("KEELSON_FAULTS_SEED");
    let clock = MovedClock::default();
    let server = Server::start_plain(without_controllers().clock(clock.clone()));
    let address = server.keelson.address();
    let hook = Webhook::start("h2", &["127.0.0.1"]);
    converted::define_things(&server.client(), &hook);
    let objects = converted::objects();
    let connect = move || Ok(Connection::over(plain(address)?));
    load::run_on(objects, &mut random, Reads::GoOn, Arc::new(connect), |load| {
        for hours in [24 * 400, -24 * 800, 0] {
            load.wait_acknowledged(WRITES_BETWEEN);
            clock.jump(hours);
        }
        load.wait_acknowledged(WRITES_BETWEEN);
    });
    server.stop();
}

#[test]
fn leases_expire_on_time_despite_clock_jumps() {
    let Some((_runtime, process)) = etcd::etcd() else { return };
    let clocks = [(); 2].map(|()| MovedClock::default());
    let servers = clocks.each_ref().map(|clock| {
        let builder = Keelson::builder().etcd(Etcd::new(vec![process.url()]));
        Server::start_plain(builder.clock(clock.clone()))
    });
    let client = servers[0].client();
    let path = format!("{LEASES}/{LEASE}");
    let held = client.poll(&path, |answer| answer.status == 200).body;
    let holder = &held["spec"]["holderIdentity"];
    let began = &held["metadata"]["resourceVersion"];
    let began = began.as_str().expect("a revision");
    let query = format!("fieldSelector=metadata.name={LEASE}&resourceVersion={began}");
    let mut watch = client.open_watch(&format!("{LEASES}?watch=1&timeoutSeconds=600&{query}"));
    for hours in [[5, 0], [5, -3], [-24 * 400, 24 * 400], [24 * 400, -24 * 400]] {
        for (clock, hours) in clocks.iter().zip(hours) {
            clock.jump(hours);
        }
        // The first may have been under way when the clocks jumped.
        for _ in 0..2 {
            let lease = watch.next().expect("the lease is renewed");
            assert_eq!(lease["object"]["spec"]["holderIdentity"], *holder, "{lease}");
        }
    }
    // Of a server that stopped, and whose clock was ahead by centuries.
    let lasts = Duration::from_secs(3);
    let gone = json!({"spec": {"holderIdentity": "gone", "leaseDurationSeconds": lasts.as_secs(),
        "renewTime": "2400-01-01T00:00:00.000000Z"}});
    let given = Instant::now();
    let patched = client.call("PATCH", &path, "application/merge-patch+json", Some(&gone));
    assert_eq!(patched.status, 200, "{patched:?}");
    client.poll(&path, |answer| answer.body["spec"]["holderIdentity"] != "gone");
    assert!(given.elapsed() >= lasts, "taken after {:?}", given.elapsed());
    servers.into_iter().for_each(Server::stop);
}
