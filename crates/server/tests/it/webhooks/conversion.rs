//! Conversion webhooks: the recorded responses of kube-apiserver to the same requests and scripts,
//! and what only Keelson promises: batches, shared conversions, reads while the storage version
//! changes.

use super::api::{Api, Response};
use super::{stamp, write_or_compare};
use crate::world::{Client, POLL_TIMEOUT, Server, without_accounts};
use keelson_testkit::sorted;
use keelson_testkit::things::{DEFINITIONS, GROUP, definition, path, thing};
use keelson_testkit::webhook::{Webhook, hex};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const JSON: &str = "application/json";
pub(super) const MERGE: &str = "application/merge-patch+json";
pub(super) const APPLY: &str = "application/apply-patch+yaml";

const STATUS: &str = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"s"}"#;

/// Returns scripts of conversion webhooks with their names: a correct one, and faulty ones.
fn scripts() -> Vec<(&'static str, String)> {
    let changes = |changes: Value| format!("convert={}", hex(&sorted(changes).to_string()));
    let response = |given: Value| changes(json!({"response": given}));
    let review = |given: Value| changes(json!({"review": given}));
    let object = |given: Value| changes(json!({"object": given}));
    let metadata = |given: Value| changes(json!({"metadata": given}));
    let failure = |given: Value| {
        let mut result = given;
        result["status"] = json!("Failure");
        response(json!({"result": result}))
    };
    let body = |text: &str| format!("body={}", hex(text));
    vec![
        ("converts", "convert".to_owned()),
        ("fails", failure(json!({"message": "no luck", "reason": "Odd", "code": 422}))),
        ("fails without a message", failure(json!({}))),
        ("no result", response(json!({"result": null}))),
        ("odd status", response(json!({"result": {"status": "Weird"}}))),
        ("no uid", response(json!({"uid": null}))),
        ("another uid", response(json!({"uid": "abc"}))),
        ("no response", review(json!({"response": null}))),
        ("no kind of the review", review(json!({"apiVersion": null, "kind": null}))),
        ("v1beta1", review(json!({"apiVersion": "apiextensions.k8s.io/v1beta1"}))),
        ("v9", review(json!({"apiVersion": "apiextensions.k8s.io/v9"}))),
        ("another group", review(json!({"apiVersion": "admission.k8s.io/v1"}))),
        ("another kind", review(json!({"kind": "AdmissionReview"}))),
        ("a status", body(STATUS)),
        ("404", "404".to_owned()),
        ("500 with text", "text.500".to_owned()),
        ("nothing", body("")),
        ("no JSON", body("{nope")),
        ("text", body("hello")),
        ("a list", body("[1]")),
        ("objects that are no list", response(json!({"convertedObjects": "a"}))),
        ("no objects", response(json!({"convertedObjects": []}))),
        ("two objects", response(json!({"convertedObjects": [{}, {}]}))),
        ("null for an object", response(json!({"convertedObjects": [null]}))),
        ("text for an object", response(json!({"convertedObjects": ["a"]}))),
        ("an empty object", response(json!({"convertedObjects": [{}]}))),
        ("another version", object(json!({"apiVersion": "x.example.com/v1"}))),
        ("no version", object(json!({"apiVersion": null}))),
        ("another kind of object", object(json!({"kind": "Other"}))),
        ("another name", metadata(json!({"name": "zzz"}))),
        ("no name", metadata(json!({"name": null}))),
        ("another namespace", metadata(json!({"namespace": "zzz"}))),
        ("another uid of the object", metadata(json!({"uid": "zzz"}))),
        ("no metadata", object(json!({"metadata": null}))),
        ("metadata that are text", object(json!({"metadata": "a"}))),
        (
            "labels and annotations",
            metadata(json!({
            "labels": {"new": "l"}, "annotations": {"an": "x"}})),
        ),
        ("no labels", metadata(json!({"labels": null}))),
        ("wrong labels", metadata(json!({"labels": {"a b": "c"}}))),
        ("wrong annotations", metadata(json!({"annotations": {"a b": "c"}}))),
        ("labels that are text", metadata(json!({"labels": "a"}))),
        ("a label that is a number", metadata(json!({"labels": {"a": 1}}))),
        ("an annotation that is a list", metadata(json!({"annotations": {"a": [1]}}))),
        (
            "other metadata",
            metadata(json!({
            "generation": 99, "finalizers": ["a/b"], "odd": 1, "generateName": "q",
            "resourceVersion": "1", "deletionTimestamp": "2000-01-01T00:00:00Z"})),
        ),
        ("unknown members", object(json!({"odd": 1}))),
    ]
}

/// Replaces values that differ from run to run: names of groups, ports, uids, times and revisions.
fn plain(value: &Value, group: &str, address: &str) -> Value {
    let map = |(name, value): (&String, &Value)| {
        let differs = ["uid", "resourceVersion", "creationTimestamp", "time"];
        let value = match value {
            // The order of managers with the same second is undefined.
            Value::Array(owners) if name == "managedFields" => {
                let mut owners: Vec<Value> =
                    owners.iter().map(|owner| plain(owner, group, address)).collect();
                owners.sort_by_key(Value::to_string);
                Value::Array(owners)
            }
            Value::String(_) if differs.contains(&name.as_str()) => json!("*"),
            value => plain(value, group, address),
        };
        (name.clone(), value)
    };
    match value {
        Value::String(text) => {
            let text = text.replace(group, "GROUP").replace(address, "ADDRESS");
            let words = text.split_inclusive(|c: char| !c.is_ascii_hexdigit() && c != '-');
            let words =
                words.map(|word| match word.matches('-').count() == 4 && word.len() >= 36 {
                    true => format!("UID{}", &word[36..]),
                    false => word.to_owned(),
                });
            Value::String(words.collect())
        }
        Value::Array(items) => items.iter().map(|item| plain(item, group, address)).collect(),
        Value::Object(members) => sorted(Value::Object(members.iter().map(map).collect())),
        other => other.clone(),
    }
}

/// Sends the requests with one script. Returns lines.
fn seen(api: &Api, hook: &Webhook, case: &(&str, String), group: &str) -> Vec<String> {
    let (name, script) = case;
    let address = hook.address.to_string();
    let beta = path(group, "v1beta1");
    let v1 = path(group, "v1");
    api.create(DEFINITIONS, &definition(group, "v1beta1", &hook.config(script)));
    let end = Instant::now() + POLL_TIMEOUT;
    while api.call("GET", &beta, JSON, None).status != 200 {
        assert!(Instant::now() < end, "{beta} is not served");
        std::thread::yield_now();
    }
    let mut a = thing(group, "v1beta1", "a", json!({"hostPort": "h:1", "size": 2}));
    a["metadata"]["labels"] = json!({"l": "1"});
    api.create(&beta, &a);
    let new = |name: &str| thing(group, "v1", name, json!({"host": "g", "port": "2"}));
    let named = |name: &str| format!("{v1}/{name}");
    let as_a = named("a");
    let applied = |spec: Value| Some(thing(group, "v1", "a", spec));
    let requests = [
        ("GET", as_a.clone(), JSON, None),
        ("POST", v1.clone(), JSON, Some(new("b"))),
        ("PUT", named("c"), JSON, Some(new("c"))),
        ("PATCH", as_a.clone(), MERGE, Some(json!({"spec": {"port": "7"}}))),
        ("PATCH", format!("{as_a}?fieldManager=m"), APPLY, applied(json!({"size": 3}))),
        ("PATCH", format!("{as_a}?fieldManager=m&force=true"), APPLY, applied(json!({"size": 3}))),
        ("PATCH", format!("{as_a}?fieldManager=m"), APPLY, applied(json!({"host": "i"}))),
        ("PATCH", format!("{as_a}/status"), MERGE, Some(json!({"status": {"size": 4}}))),
        ("PATCH", format!("{as_a}/scale"), MERGE, Some(json!({"spec": {"replicas": 5}}))),
        ("GET", format!("{as_a}/scale"), JSON, None),
        ("PATCH", format!("{as_a}?dryRun=All"), MERGE, Some(json!({"spec": {"port": "8"}}))),
        ("GET", format!("{beta}/a"), JSON, None),
        ("DELETE", as_a, JSON, None),
    ];
    let mut lines = vec![];
    for (method, path, media, body) in requests {
        let Response { status, body, .. } = api.call(method, &path, media, body.as_ref());
        let path = plain(&json!(path), group, &address);
        let body = plain(&body, group, &address);
        lines.push(format!("{name}: {method} {path} {status} {body}"));
    }
    let gone = api.call("DELETE", &format!("{DEFINITIONS}/things.{group}"), JSON, None);
    assert_eq!(gone.status, 200);
    lines
}

#[test]
fn conversion_webhook_requests_and_results_match_kube_apiserver() {
    let (api, is_recording) = super::api();
    let hook = Webhook::start("h2", &["127.0.0.1"]);
    let mut lines = vec![];
    let stamp = stamp();
    for (index, script) in scripts().iter().enumerate() {
        lines.extend(seen(&api, &hook, script, &format!("c{stamp}x{index}.example.com")));
    }
    write_or_compare("conversion.txt", &lines, is_recording);
    api.stop();
}

/// A server with `things` and a scripted conversion webhook.
pub(super) fn serving(script: &str) -> (Server, Webhook) {
    let hook = Webhook::start("h2", &["127.0.0.1"]);
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let made = client.post(DEFINITIONS, &definition(GROUP, "v1beta1", &hook.config(script)));
    assert_eq!(made.status, 201, "{}", made.body);
    client.poll(&path(GROUP, "v1"), |answer| answer.status == 200);
    (server, hook)
}

pub(super) fn beta(client: &Client, name: &str) {
    let spec = json!({"hostPort": format!("{name}:80")});
    let made = client.post(&path(GROUP, "v1beta1"), &thing(GROUP, "v1beta1", name, spec));
    assert_eq!(made.status, 201, "{}", made.body);
}

fn calls(hook: &Webhook) -> Vec<usize> {
    let count = |review: &Value| review["request"]["objects"].as_array().map_or(0, Vec::len);
    hook.take().iter().map(|call| count(&call.review)).collect()
}

#[test]
fn a_list_is_converted_in_batches_and_each_object_once() {
    let (server, hook) = serving("convert");
    let client = server.client();
    for number in 0..1000 {
        beta(&client, &format!("t{number:04}"));
    }
    assert!(hook.take().is_empty(), "writes of the storage version need no conversion");
    let list = client.get(&path(GROUP, "v1"));
    let items = list.body["items"].as_array().expect("items");
    assert_eq!(items.len(), 1000);
    for (number, item) in items.iter().enumerate() {
        let want = json!({"host": format!("t{number:04}"), "port": "80"});
        let given = (&item["apiVersion"], &item["spec"]);
        assert_eq!(given, (&json!(format!("{GROUP}/v1")), &want));
    }
    assert_eq!(calls(&hook), [500, 500]);
    let again = client.get(&format!("{}?limit=700", path(GROUP, "v1")));
    assert_eq!(again.body["items"].as_array().map(Vec::len), Some(700));
    assert_eq!(calls(&hook), [0; 0]);
    let stored = client.get(&path(GROUP, "v1beta1"));
    assert_eq!(stored.body["items"][7]["spec"]["hostPort"], "t0007:80");
    let table = client.table(&path(GROUP, "v1"));
    assert_eq!(table.body["rows"][999]["cells"][0], "t0999");
    assert_eq!(calls(&hook), [0; 0]);
    server.stop();
}

#[test]
fn an_event_is_converted_once_for_all_watchers() {
    let (server, hook) = serving("convert");
    let client = server.client();
    beta(&client, "a");
    let url = format!("{}?watch=true", path(GROUP, "v1"));
    let mut watches: Vec<_> = (0..3).map(|_| client.open_watch(&url)).collect();
    for watch in &mut watches {
        assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "a".to_owned())]);
    }
    assert_eq!(calls(&hook), [1]);
    beta(&client, "b");
    for watch in &mut watches {
        let event = watch.next().expect("an event");
        assert_eq!(
            (&event["type"], &event["object"]["spec"]["host"]),
            (&json!("ADDED"), &json!("b"))
        );
    }
    assert_eq!(calls(&hook), [1]);
    server.stop();
}

#[test]
fn selectors_match_converted_labels() {
    let changes = json!({"metadata": {"labels": {"made": "here"}}});
    let (server, _hook) = serving(&format!("convert={}", hex(&changes.to_string())));
    let client = server.client();
    beta(&client, "a");
    let count = |version: &str, query: &str| {
        let list = client.get(&format!("{}?{query}", path(GROUP, version)));
        list.body["items"].as_array().map(Vec::len)
    };
    assert_eq!(count("v1", "labelSelector=made%3Dhere"), Some(1));
    assert_eq!(count("v1", "labelSelector=made%3Dthere"), Some(0));
    assert_eq!(count("v1beta1", "labelSelector=made%3Dhere"), Some(0));
    let mut watch =
        client.open_watch(&format!("{}?watch=1&labelSelector=made%3Dhere", path(GROUP, "v1")));
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "a".to_owned())]);
    server.stop();
}

#[test]
fn a_hanging_conversion_webhook_delays_only_requests_that_need_it() {
    let (server, hook) = serving("slow");
    let client = server.client();
    beta(&client, "a");
    let address = client.address;
    std::thread::spawn(move || Client { address }.get(&format!("{}/a", path(GROUP, "v1"))));
    let end = Instant::now() + POLL_TIMEOUT;
    while hook.take().is_empty() {
        assert!(Instant::now() < end, "the webhook is not called");
        std::thread::yield_now();
    }
    let stored = client.get(&format!("{}/a", path(GROUP, "v1beta1")));
    assert_eq!((stored.status, &stored.body["spec"]["hostPort"]), (200, &json!("a:80")));
    // Otherwise the server would wait for the request in flight.
    drop(hook);
    server.stop();
}

#[test]
fn failed_conversions_of_lists_and_watches_recover() {
    let (server, _hook) = serving("text.500");
    let client = server.client();
    beta(&client, "a");
    for query in ["", "?limit=1&labelSelector=!x", "?resourceVersion=0", "?watch=1"] {
        let refused = client.get(&format!("{}{query}", path(GROUP, "v1")));
        assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")), "{query}");
        let message = refused.body["message"].as_str().expect("a message");
        let want = "storage is (re)initializing: failed to list shop.example.com/v1, Kind=Thing: \
                    conversion webhook for shop.example.com/v1beta1, Kind=Thing failed: ";
        assert!(message.starts_with(want), "{query}: {message}");
    }
    // A page without selectors needs no watch cache.
    let refused = client.get(&format!("{}?limit=1", path(GROUP, "v1")));
    let want = "conversion webhook for shop.example.com/v1beta1, Kind=Thing failed: ";
    let message = refused.body["message"].as_str().expect("a message");
    assert!(refused.status == 500 && message.starts_with(want), "{message}");
    server.stop();
}

/// Reads in one version until the flag is set, at least once; objects are always complete and of
/// that version.
fn read_on(client: &Client, version: &str, stop: &AtomicBool) {
    let mut reads = 0;
    while reads == 0 || !stop.load(Ordering::Relaxed) {
        let list = client.get(&path(GROUP, version));
        // Requests may fail while the definition is updated.
        if list.status != 200 {
            assert!([404, 429, 500].contains(&list.status), "{} {}", list.status, list.body);
            continue;
        }
        for item in list.body["items"].as_array().expect("items") {
            assert_whole(item, version);
        }
        reads += 1;
    }
}

/// Checks that an object has a version, and exactly its fields.
fn assert_whole(item: &Value, version: &str) {
    let name = item["metadata"]["name"].as_str().expect("a name");
    let spec = match version {
        "v1" => json!({"host": name, "port": "80"}),
        _ => json!({"hostPort": format!("{name}:80")}),
    };
    let given = (item["apiVersion"].as_str(), &item["spec"]);
    assert_eq!(given, (Some(format!("{GROUP}/{version}").as_str()), &spec));
}

/// Creates objects in both versions in turn. Returns the names of those with status 201.
fn write_on(client: &Client, writer: usize, count: usize) -> Vec<String> {
    let mut made = vec![];
    for number in 0..count {
        let name = format!("w{writer}-{number}");
        let (version, spec) = match number % 2 {
            0 => ("v1", json!({"host": name, "port": "80"})),
            _ => ("v1beta1", json!({"hostPort": format!("{name}:80")})),
        };
        let answer = client.post(&path(GROUP, version), &thing(GROUP, version, &name, spec));
        if answer.status == 201 {
            made.push(name);
        }
    }
    made
}

/// Changes of the storage version while there is load.
const CHANGES_MAX: usize = 100;

/// Watches one version until the flag is set and something was seen, and reopens the watch when it
/// ends; checks every event.
fn watch_on(client: &Client, version: &str, stop: &AtomicBool) {
    let mut events = 0;
    while events == 0 || !stop.load(Ordering::Relaxed) {
        let url = format!("{}?watch=true&timeoutSeconds=1", path(GROUP, version));
        let mut watch = client.open_watch(&url);
        if watch.status != 200 {
            assert!([404, 429, 500].contains(&watch.status), "{}", watch.status);
            continue;
        }
        while let Ok(event) = watch.next() {
            if event["type"] == "ERROR" {
                break;
            }
            assert_whole(&event["object"], version);
            events += 1;
        }
    }
}

#[test]
fn a_storage_version_change_under_load_is_consistent() {
    let (server, hook) = serving("convert");
    let address = server.client().address;
    let stop = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let stop = &stop;
        let readers = ["v1", "v1beta1"]
            .map(|version| scope.spawn(move || read_on(&Client { address }, version, stop)));
        let watchers = ["v1", "v1beta1"]
            .map(|version| scope.spawn(move || watch_on(&Client { address }, version, stop)));
        let writers =
            [0, 1].map(|writer| scope.spawn(move || write_on(&Client { address }, writer, 100)));
        let client = Client { address };
        let url = format!("{DEFINITIONS}/things.{GROUP}");
        // While the writers run, and at least seven times.
        let is_loaded = || !writers.iter().all(|writer| writer.is_finished());
        let mut changes = 0;
        while changes < 7 || is_loaded() && changes < CHANGES_MAX {
            let storage = ["v1", "v1beta1"][changes % 2];
            let spec = definition(GROUP, storage, &hook.config("convert"))["spec"].clone();
            let changed = client.call("PATCH", &url, MERGE, Some(&json!({"spec": spec})));
            assert_eq!(changed.status, 200, "{}", changed.body);
            changes += 1;
        }
        let made: Vec<String> =
            writers.into_iter().flat_map(|writer| writer.join().expect("a writer")).collect();
        stop.store(true, Ordering::Relaxed);
        for reader in readers.into_iter().chain(watchers) {
            reader.join().expect("a reader");
        }
        made
    });
    assert!(made.len() > 150, "{} of 200 were made", made.len());
    for version in ["v1", "v1beta1"] {
        let list = server.client().get(&path(GROUP, version));
        let names: Vec<_> = list.body["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|item| item["metadata"]["name"].as_str())
            .collect();
        let lost: Vec<_> = made.iter().filter(|name| !names.contains(&name.as_str())).collect();
        assert!(lost.is_empty(), "{version}: {lost:?}");
    }
    server.stop();
}
