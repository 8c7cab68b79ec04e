//! Records of every kind with labels and selectable fields of every length and number: what is
//! encoded can be read back.

use crate::harness::Harness;
use keelson_meta::{Object, Value};
use keelson_records::Entry;
use keelson_registry::options::{DeleteOptions, Freshness, ListOptions, WatchOptions};
use keelson_registry::{Answer, Deleted};
use keelson_resources::Kind;
use keelson_schema::decode::{self, Format};
use keelson_store::{KeyValue, Revision};

/// Maximum length and number up to which all values are tested.
const MAX: usize = 400;

/// Numbers of labels at which the length of an encoded number changes, and their neighbours.
const EDGES: [usize; 12] = [0, 1, 2, 63, 64, 127, 128, 129, 255, 256, 257, MAX];

/// An object with labels, whose selectable fields have the letter `v` repeated.
fn object(kind: &Kind, labels: &[(String, String)], field_bytes: usize) -> Object {
    let mut obj = Object::new();
    obj.set_gvk(&kind.storage.gvk);
    obj.set_meta("name", "a");
    if kind.namespaced {
        obj.set_meta("namespace", "ns");
    }
    for (key, value) in labels {
        obj.metadata_mut().object_at("labels").insert(key.as_str(), value.as_str());
    }
    for field in kind.strategy.fields {
        let Some((last, outer)) = field.paths[0].split_last() else { continue };
        let mut map = &mut obj.root;
        for name in outer {
            map = map.object_at(name);
        }
        map.insert(*last, "v".repeat(field_bytes));
    }
    obj
}

/// Encodes an object and decodes the entry that the cache makes of it.
fn check(kind: &Kind, labels: &[(String, String)], field_bytes: usize) {
    let mut obj = object(kind, labels, field_bytes);
    let value = kind.record(&mut obj);
    let name = kind.name();
    let count = labels.len();
    kind.check_record(&value).unwrap_or_else(|e| panic!("{name} {count} {field_bytes}: {e:?}"));
    let key = kind.store_key("ns", "a");
    let kv = KeyValue { key, value, created: Revision(7), modified: Revision(7) };
    let entry = Entry::from_store(kind.prefix.len(), &kv)
        .unwrap_or_else(|e| panic!("{name} {count} {field_bytes}: {e}"));
    let mut read: Vec<_> = entry.labels().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let mut wanted = labels.to_vec();
    read.sort();
    wanted.sort();
    assert_eq!(read, wanted, "labels of {name}");
    for (field, value) in kind.strategy.selectable(&obj) {
        assert_eq!(entry.field(field), Some(value.as_str()), "{field} of {name}");
    }
    assert_eq!(kind.decode(&entry).expect("it can be read").name(), "a");
}

#[tokio::test]
async fn labels_and_fields_of_every_length_can_be_read_back_for_every_kind() {
    let harness = Harness::open().await;
    for kind in harness.registry.kinds() {
        for length in 0..=MAX {
            check(&kind, &[("k".repeat(length), "v".repeat(length))], length);
        }
        for count in EDGES {
            let labels: Vec<_> = (0..count).map(|n| (format!("k{n}"), format!("v{n}"))).collect();
            check(&kind, &labels, 1);
        }
    }
    let pods = harness.registry.kind("", "pods").expect("pods");
    for count in 0..=MAX {
        let labels: Vec<_> = (0..count).map(|n| (format!("k{n}"), format!("v{n}"))).collect();
        check(&pods, &labels, 1);
    }
}

/// A ConfigMap whose label values have one letter.
fn config_map(name: &str, labels: impl IntoIterator<Item = String>) -> String {
    let labels: Vec<String> = labels.into_iter().map(|key| format!("{key:?}:\"v\"")).collect();
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"default","labels":{{{}}}}}}}"#,
        labels.join(",")
    )
}

/// Tests all verbs, with and without dry run.
#[tokio::test]
async fn an_object_with_long_or_many_labels_does_not_break_its_kind() {
    let harness = Harness::open().await;
    let registry = &harness.registry;
    let long = format!("{}.example.com/x", "a".repeat(115));
    assert_eq!(long.len(), 129);
    let bodies = [
        ("long", config_map("long", [long])),
        ("many", config_map("many", (0..128).map(|n| format!("k{n}")))),
    ];
    let collection = "/api/v1/namespaces/default/configmaps";
    for (name, body) in &bodies {
        let object = format!("{collection}/{name}");
        let send = async |method, path: &str| {
            let sent = harness.send(method, path, "application/json", body.as_bytes()).await;
            sent.expect("the harness knows the path").0
        };
        assert_eq!(send("POST", &format!("{collection}?dryRun=All")).await, 201);
        assert_eq!(send("POST", collection).await, 201);
        assert_eq!(send("PUT", &object).await, 200);
        assert_eq!(send("GET", &object).await, 200);
    }
    let target = registry.target("", "configmaps", "default", "");
    let list = registry.list(&harness.permit, &target, &ListOptions::default()).await;
    assert_eq!(list.expect("a list").items.len(), 2);
    registry.watch(&harness.permit, &target, &WatchOptions::default()).await.expect("a watch");
    for (name, body) in &bodies {
        let object = format!("{collection}/{name}");
        let sent = harness.send("DELETE", &object, "application/json", body.as_bytes()).await;
        assert_eq!(sent.map(|(code, _)| code), Some(200), "{name}");
    }
}

#[tokio::test]
async fn an_unreadable_object_affects_no_other_and_can_be_deleted() {
    let harness = Harness::open().await;
    harness.put_raw("/registry/configmaps/default/bad", "what?").await;
    let good = config_map("good", []);
    let collection = "/api/v1/namespaces/default/configmaps";
    let send = async |method, path: &str, body: &str| {
        harness.send(method, path, "application/json", body.as_bytes()).await.expect("known path")
    };
    assert_eq!(send("POST", collection, &good).await.0, 201);
    assert_eq!(send("GET", &format!("{collection}/good"), "").await.0, 200);
    assert_eq!(send("POST", collection, &config_map("bad", [])).await.0, 409);
    for method in ["GET", "PUT", "DELETE"] {
        let answer = send(method, &format!("{collection}/bad"), &config_map("bad", [])).await;
        assert_eq!(answer.0, 500, "{method}");
    }
    let registry = &harness.registry;
    let all = registry.target("", "configmaps", "default", "");
    let names = async |freshness: Freshness| {
        let options = ListOptions { freshness, ..ListOptions::default() };
        let list = registry.list(&harness.permit, &all, &options).await;
        list.map(|list| list.items.iter().map(|e| e.name().to_owned()).collect::<Vec<_>>())
    };
    // As upstream: a list of the latest state fails, a list from the cache omits the object.
    assert_eq!(names(Freshness::Latest).await.expect_err("bad is in it").code, 500);
    assert_eq!(names(Freshness::Any).await.expect("a list"), ["good"]);
    let options = DeleteOptions { ignore_read_error: true, ..DeleteOptions::default() };
    let one = |name: &str| registry.target("", "configmaps", "default", name);
    let deleted = registry.delete(&harness.permit, &one("bad"), &options, &mut vec![]).await;
    assert!(matches!(deleted, Ok(Deleted::Unreadable)), "{deleted:?}");
    assert_eq!(names(Freshness::Latest).await.expect("a list"), ["good"]);
    // The option has no effect on a readable object.
    let deleted = registry.delete(&harness.permit, &one("good"), &options, &mut vec![]).await;
    assert!(matches!(deleted, Ok(Deleted::Gone(_))), "{deleted:?}");
    let none = registry.delete(&harness.permit, &one("bad"), &options, &mut vec![]).await;
    assert_eq!(none.expect_err("it is gone").code, 404);
}

/// Every body that the decoder accepts is stored in a form that can be decoded again.
#[tokio::test]
async fn the_deepest_accepted_body_can_be_read_back() {
    let harness = Harness::open().await;
    let target = harness.registry.target("apps", "controllerrevisions", "default", "deep");
    let mut stored = 0;
    for depth in 200..=255 {
        let body = format!(
            r#"{{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{{"name":"deep"}},"revision":1,"data":{}{}}}"#,
            r#"{"a":"#.repeat(depth - 1) + "{",
            "}".repeat(depth)
        );
        let Ok(decoded) = decode::decode(target.schema(), body.as_bytes(), Format::Json, &|_| true)
        else {
            continue;
        };
        let options = Default::default();
        let written = harness.registry.create(&harness.permit, &target, decoded, &options).await;
        let Ok(written) = written else { continue };
        let Answer::Entry(entry) = written.answer else { panic!("not an entry") };
        let data = target.kind.decode(&entry).expect("it can be read");
        assert!(data.get("data").is_some_and(Value::is_map));
        let deleted = harness
            .registry
            .delete(&harness.permit, &target, &Default::default(), &mut vec![])
            .await;
        deleted.expect("it can be deleted");
        stored += 1;
    }
    assert!(stored > 20, "{stored} were stored");
}
