//! A clock that jumps by hours, forwards and backwards, under load.

use super::load::{self, MAPS, Reads};
use crate::connection::{Connection, plain};
use crate::http::{Server, quiet};
use crate::random::Random;
use keelson::{Builder, Clock, SystemClock, Timestamp};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

const HOUR: i64 = 3_600;
const WRITES_BETWEEN: usize = 60;

/// The machine's clock, moved.
#[derive(Clone, Default)]
struct MovedClock {
    seconds: Arc<AtomicI64>,
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
fn jumps_of_the_clock_change_timestamps_and_nothing_else() {
    let mut random = Random::seeded("KEELSON_FAULTS_SEED");
    let clock = MovedClock::default();
    let history = Duration::from_secs(60);
    let server = Server::start_plain(Builder { history, ..quiet().clock(clock.clone()) });
    let address = server.keelson.address();
    let connect = move || Ok(Connection::over(plain(address)?));
    let client = server.client();
    let first = client.get(MAPS).body["metadata"]["resourceVersion"].clone();
    let first = first.as_str().expect("a revision").to_owned();
    let mut watch = client.open_watch(&format!("{MAPS}?watch=1&timeoutSeconds=600"));
    load::run(&mut random, Reads::GoOn, Arc::new(connect), |load| {
        for (n, hours) in [5, -3, 24 * 400, -24 * 800, 0].into_iter().enumerate() {
            load.wait_acknowledged(WRITES_BETWEEN);
            clock.seconds.store(hours * HOUR, Ordering::SeqCst);
            let earliest = clock.now().to_string();
            let map = json!({"metadata": {"name": format!("jump-{n}")}});
            let made = client.post(MAPS, &map);
            assert_eq!(made.status, 201, "{made:?}");
            let created = made.body["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
            let latest = clock.now().to_string();
            assert!(*earliest <= *created && *created <= *latest, "{created} is not {earliest}");
            // Neither watches nor the history are timed by that clock.
            let since = format!("{MAPS}?watch=1&resourceVersion={first}&timeoutSeconds=600");
            let event = client.open_watch(&since).next().expect("an event");
            assert_eq!(event["type"], "ADDED", "{event}");
            load.wait_acknowledged(WRITES_BETWEEN);
        }
    });
    while watch.next().expect("the watch goes on")["object"]["metadata"]["name"] != "jump-4" {}
    server.stop();
}
