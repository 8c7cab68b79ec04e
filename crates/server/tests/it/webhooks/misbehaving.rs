//! Conversion webhooks that misbehave: what they send is bounded, and only requests that need them
//! fail.

use super::conversion::{MERGE, beta, serving};
use crate::world::{Client, Response};
use keelson_testkit::things::{GROUP, path, thing};
use keelson_testkit::webhook::hex;
use serde_json::{Value, json};

/// The longest error: the text of a webhook is cut.
const MESSAGE_BYTES_MAX: usize = 40 << 10;

/// Sends every sort of request for `a` in the version that needs the webhook. Returns the responses
/// with their names.
fn every_request(client: &Client) -> Vec<(&'static str, Response)> {
    let all = path(GROUP, "v1");
    let one = format!("{}/a", path(GROUP, "v1"));
    let patch = json!({"spec": {"port": "7"}});
    let new = thing(GROUP, "v1", "b", json!({"host": "h", "port": "1"}));
    let mut put = client.get(&format!("{}/a", path(GROUP, "v1beta1"))).body;
    put["apiVersion"] = json!(format!("{GROUP}/v1"));
    let applied = thing(GROUP, "v1", "a", json!({"host": "i"}));
    let apply = "application/apply-patch+yaml";
    let json = "application/json";
    vec![
        ("get", client.get(&one)),
        ("list", client.get(&all)),
        ("page", client.get(&format!("{all}?limit=1"))),
        ("watch", client.get(&format!("{all}?watch=true&timeoutSeconds=1"))),
        ("create", client.post(&all, &new)),
        ("update", client.call("PUT", &one, json, Some(&put))),
        ("patch", client.call("PATCH", &one, MERGE, Some(&patch))),
        ("apply", client.call("PATCH", &format!("{one}?fieldManager=m"), apply, Some(&applied))),
        (
            "scale",
            client.call(
                "PATCH",
                &format!("{one}/scale"),
                MERGE,
                Some(&json!({"spec": {"replicas": 2}})),
            ),
        ),
        ("delete", client.delete(&one)),
        ("delete all", client.delete(&all)),
    ]
}

/// Checks that every request fails with a message that contains `want` and is not long, and that
/// the object is as before.
fn check_fails(script: &str, want: &str) {
    let (server, _hook) = serving(script);
    let client = server.client();
    beta(&client, "a");
    let stored = format!("{}/a", path(GROUP, "v1beta1"));
    let before = client.get(&stored).body;
    for (name, response) in every_request(&client) {
        let message = response.body["message"].as_str().unwrap_or_default();
        assert!([429, 500].contains(&response.status), "{script}: {name}: {}", response.status);
        assert!(message.contains(want), "{script}: {name}: {:.300}", message);
        assert!(message.len() < MESSAGE_BYTES_MAX, "{script}: {name}: {} bytes", message.len());
    }
    assert_eq!(client.get(&stored).body, before, "{script}");
    server.stop();
}

#[test]
fn what_a_conversion_webhook_sends_is_bounded() {
    check_fails("endless", "http: response body is larger than 8388608 bytes");
    check_fails("long-message", "failed: eeeeee");
    check_fails("maps", "an object may hold at most 75000 maps");
    check_fails("values", "the response may hold at most 1000000 values");
}

#[test]
fn a_converted_number_that_no_float_can_hold_is_refused() {
    let want = "json: cannot unmarshal number 1e400 into Go value of type float64";
    check_fails(&format!("field={}", hex("[{\"n\":1e400}]")), want);
}

/// kube-apiserver waits three seconds for its watch cache, whatever timeoutSeconds says.
#[test]
fn a_watch_waits_three_seconds_for_conversions() {
    let (server, hook) = serving("hold");
    let client = server.client();
    beta(&client, "a");
    let begun = std::time::Instant::now();
    let watched = client.get(&format!("{}?watch=true&timeoutSeconds=1", path(GROUP, "v1")));
    let taken = begun.elapsed().as_millis();
    assert!((2900..6000).contains(&taken), "{taken} ms");
    assert_eq!((watched.status, &watched.body["type"]), (200, &json!("ERROR")));
    let error = &watched.body["object"];
    let cause =
        json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    assert_eq!((&error["code"], &error["reason"]), (&json!(504), &json!("Timeout")), "{error}");
    assert_eq!(error["details"], json!({"causes": [cause], "retryAfterSeconds": 1}));
    hook.release();
    server.stop();
}

/// A watch that waits for a conversion promises only what it has sent: objects that were written
/// meanwhile follow.
#[test]
fn the_first_bookmark_of_a_converted_watch_is_not_ahead_of_its_events() {
    let (server, hook) = serving("hold");
    let client = server.client();
    beta(&client, "a");
    let address = client.address;
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let url = format!("{}?{query}", path(GROUP, "v1"));
    let watching = std::thread::spawn(move || {
        let mut watch = Client { address }.open_watch(&url);
        let event = |event: Value| {
            let revision = event["object"]["metadata"]["resourceVersion"]
                .as_str()
                .and_then(|text| text.parse::<u64>().ok())
                .expect("a revision");
            (event["type"].as_str().unwrap_or_default().to_owned(), revision)
        };
        (0..3).map(|_| event(watch.next().expect("an event"))).collect::<Vec<_>>()
    });
    let end = std::time::Instant::now() + crate::world::POLL_TIMEOUT;
    while hook.take().is_empty() {
        assert!(std::time::Instant::now() < end, "the webhook is not called");
        std::thread::yield_now();
    }
    beta(&client, "b");
    hook.release();
    hook.release();
    let events = watching.join().expect("three events");
    let types: Vec<&str> = events.iter().map(|(event_type, _)| event_type.as_str()).collect();
    assert_eq!(types.iter().filter(|one| **one == "BOOKMARK").count(), 1, "{events:?}");
    assert!(events.is_sorted_by_key(|(_, revision)| *revision), "{events:?}");
    server.stop();
}
