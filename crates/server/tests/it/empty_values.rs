//! Values that say nothing: empty maps and lists, nulls, blanks. And numbers at the edges.

use crate::minimal::{collection, minimal, name, stored_resources};
use crate::world::{Client, Server, without_accounts};
use serde_json::{Value, json};

const MERGE: &str = "application/merge-patch+json";
const JSON: &str = "application/json";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Fields of the metadata that are maps or lists, each empty and null.
fn empty_metadata() -> Vec<Value> {
    vec![
        json!({"annotations": {}, "labels": {}, "finalizers": [], "ownerReferences": []}),
        json!({"annotations": null, "labels": null, "finalizers": null, "ownerReferences": null}),
    ]
}

fn with_metadata(obj: &Value, more: &Value) -> Value {
    let mut obj = obj.clone();
    for (field, value) in more.as_object().expect("a map") {
        let metadata = &mut obj["metadata"];
        // What the server has set stays.
        if metadata.get(field).is_none() {
            metadata[field] = value.clone();
        }
    }
    obj
}

fn version(obj: &Value) -> (String, String) {
    let of = |field: &str| obj["metadata"][field].to_string();
    (of("resourceVersion"), of("generation"))
}

/// An empty or null map or list of the metadata is an absent one, whatever kind is updated or
/// patched.
#[test]
fn empty_metadata_changes_no_kind() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let mut faults = vec![];
    for resource in stored_resources() {
        let path = format!("{}/{}", collection(resource), name(&resource.name));
        let created = client.post(&collection(resource), &minimal(resource));
        // An event of another group is the same object.
        if created.status != 201 || !resource.has_verb("update") {
            continue;
        }
        // Loops of the server write conditions of these kinds.
        let conditions_wanted = match resource.name.as_str() {
            "customresourcedefinitions" => 2,
            "apiservices" | "flowschemas" => 1,
            _ => 0,
        };
        let stored = client.poll(&path, |answer| {
            let conditions = answer.body["status"]["conditions"].as_array().map_or(0, Vec::len);
            conditions >= conditions_wanted
        });
        for empty in empty_metadata() {
            let body = with_metadata(&stored.body, &empty);
            for (method, kind) in [("PUT", JSON), ("PATCH", MERGE)] {
                let answer = client.call(method, &path, kind, Some(&body));
                if answer.status != 200 || version(&answer.body) != version(&stored.body) {
                    faults.push(format!(
                        "{method} {path} {empty}: {} {:?} after {:?}",
                        answer.status,
                        version(&answer.body),
                        version(&stored.body)
                    ));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    server.stop();
}

fn define_things(client: &Client) {
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": {"type": "object",
                    "properties": {"spec": {"type": "object",
                        "x-kubernetes-preserve-unknown-fields": true}}}}}],
        },
    });
    assert_eq!(client.post(DEFINITIONS, &definition).status, 201);
    client.poll("/apis/example.com/v1/namespaces/default/things", |answer| answer.status == 200);
}

/// A number that no float can hold is refused; one that a float holds is stored.
#[test]
fn numbers_beyond_a_float_are_refused() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    define_things(&client);
    let line = "POST /apis/example.com/v1/namespaces/default/things?dryRun=All";
    for (number, expected) in [
        ("1e308", None),
        ("-1e400", Some("-1e400")),
        ("1.7976931348623157e309", Some("1.7976931348623157e309")),
    ] {
        let body = format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Thing","metadata":{{"name":"t"}},
                "spec":{{"a":{number}}}}}"#
        );
        let answer = client.send_bytes(line, "Content-Type: application/json\r\n", body.as_bytes());
        let Some(shown) = expected else {
            assert_eq!((answer.status, &answer.body["spec"]["a"]), (201, &json!(1e308)));
            continue;
        };
        let message = format!(
            "Thing in version \"v1\" cannot be handled as a Thing: json: cannot unmarshal number \
             {shown} into Go value of type float64"
        );
        assert_eq!((answer.status, &answer.body["message"]), (400, &json!(message)));
    }
    server.stop();
}

/// Go's decoder of JSON trims quantities.
#[test]
fn blanks_around_a_quantity_are_dropped() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {"pods": " 5 ", "cpu": "1\t"}}});
    let answer = client.post("/api/v1/namespaces/default/resourcequotas?dryRun=All", &quota);
    assert_eq!(answer.status, 201, "{:?}", answer.body);
    assert_eq!(answer.body["spec"]["hard"], json!({"pods": "5", "cpu": "1"}));
    server.stop();
}
