//! CustomResourceDefinitions: their creation, and validation, patches, printing and deletion of
//! their objects.

use crate::world::{Client, Server, without_accounts};
use keelson_testkit::api::Response;
use keelson_testkit::transcript::{Request, Responder, Transcript, replay};
use serde_json::{Value, json};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const GADGETS: &str = "/apis/example.com/v1/namespaces/default/gadgets";

fn definition(schema: &Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget", "shortNames": ["gd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "subresources": {"status": {}, "scale": {
                    "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
                "selectableFields": [{"jsonPath": ".spec.color"}],
                "additionalPrinterColumns": [
                    {"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]
            }]
        }
    })
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["color"], "properties": {
            "color": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "integer", "minimum": 1, "default": 3},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}
        }, "x-kubernetes-validations": [
            {"rule": "self.color != 'blue' || self.size < 10", "message": "blue ones are small"},
            {"rule": "self.size >= oldSelf.size", "message": "sizes only grow"}
        ]},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}
    }})
}

fn gadget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": name}, "spec": spec})
}

/// A server that serves the resource of the definition.
fn serving() -> Server {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let made = client.post(DEFINITIONS, &definition(&schema()));
    assert_eq!((made.status, &made.body["status"]["storedVersions"]), (201, &json!(["v1"])));
    assert_eq!(made.body["spec"]["names"]["listKind"], "GadgetList");
    client.poll(GADGETS, |answer| answer.status == 200);
    server
}

fn causes(answer: &Value) -> Vec<String> {
    let causes = answer["details"]["causes"].as_array().into_iter().flatten();
    let text = |cause: &Value, name: &str| cause[name].as_str().unwrap_or_default().to_owned();
    causes.map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect()
}

fn put(client: &Client, path: &str, body: &Value) -> (u16, Value) {
    let answer = client.call("PUT", path, "application/json", Some(body));
    (answer.status, answer.body)
}

/// Recorded from kube-apiserver 1.36.3.
#[test]
fn versions_that_are_not_stored_are_not_listed_as_stored() {
    let server = serving();
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let patch = json!({"spec": {"versions": []}});
    let refused =
        server.client().call("PATCH", &path, "application/merge-patch+json", Some(&patch));
    let causes = causes(&refused.body);
    let stored: Vec<_> =
        causes.iter().filter(|cause| cause.starts_with("status.storedVersions")).collect();
    assert_eq!((refused.status, stored.len()), (422, 1), "{causes:?}");
    assert!(stored[0].starts_with("status.storedVersions[0]: Invalid value: \"v1\""), "{causes:?}");
}

/// As kube-apiserver 1.36.3: a status may name a version that is gone, and each update of the rest
/// is refused then.
#[test]
fn a_definition_whose_stored_version_is_gone_can_be_deleted() {
    let server = serving();
    let client = server.client();
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let merge = |path: &str, patch: Value| {
        client.call("PATCH", path, "application/merge-patch+json", Some(&patch)).status
    };
    let stored = json!({"status": {"storedVersions": ["v0"]}});
    assert_eq!(merge(&format!("{path}/status"), stored), 200);
    assert_eq!(merge(&path, json!({"metadata": {"labels": {"a": "b"}}})), 422);
    assert_eq!(client.delete(&path).status, 200);
    client.poll(&path, |answer| answer.status == 404);
    server.stop();
}

/// Recorded from kube-apiserver 1.36.3.
#[test]
fn columns_without_a_description_say_their_path() {
    let server = serving();
    let table = "Accept: application/json;as=Table;g=meta.k8s.io;v=v1\r\n";
    let answer = server.client().raw_response("GET", GADGETS, table, &[]);
    let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!(
        answer["columnDefinitions"][1]["description"],
        "Custom resource definition column (in JSONPath format): .spec.size"
    );
}

/// Recorded from kube-apiserver 1.36.3.
#[test]
fn the_age_of_a_definition_without_columns_has_the_description_of_its_field() {
    let server = serving();
    let plain = json!({"spec": {"versions": [{
        "name": "v1", "served": true, "storage": true, "deprecated": true,
        "schema": {"openAPIV3Schema": schema()}}]}});
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let client = server.client();
    let changed = client.call("PATCH", &path, "application/merge-patch+json", Some(&plain));
    assert_eq!(changed.status, 200);
    // The change is served a moment later.
    client.poll(GADGETS, |answer| answer.header("warning").is_some());
    let table = "Accept: application/json;as=Table;g=meta.k8s.io;v=v1\r\n";
    let answer = client.raw_response("GET", GADGETS, table, &[]);
    let answer: Value = serde_json::from_slice(&answer.body).expect("JSON");
    let column = &answer["columnDefinitions"][1];
    assert_eq!(column["name"], "Age");
    let text = column["description"].as_str().unwrap_or_default();
    assert!(text.starts_with("CreationTimestamp is a timestamp"), "{text}");
}

/// Recorded from kube-apiserver 1.36.3.
#[test]
fn a_subresource_names_the_verb_that_it_does_not_have_after_the_warning() {
    let server = serving();
    let client = server.client();
    let old = json!({"spec": {"versions": [{
        "name": "v1", "served": true, "storage": true, "deprecated": true,
        "schema": {"openAPIV3Schema": schema()}, "subresources": {"status": {}}}]}});
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let changed = client.call("PATCH", &path, "application/merge-patch+json", Some(&old));
    assert_eq!(changed.status, 200);
    // The change is served a moment later.
    client.poll(GADGETS, |answer| answer.header("warning").is_some());
    let answer = client.delete(&format!("{GADGETS}/a/status"));
    assert_eq!(answer.status, 405);
    assert_eq!(
        answer.body["message"],
        "delete is not supported on resources of kind \"gadgets.example.com\""
    );
    assert_eq!(answer.body["details"], json!({"group": "example.com", "kind": "gadgets"}));
    assert_eq!(answer.header("warning"), Some("299 - \"example.com/v1 Gadget is deprecated\""));
}

/// Recorded from kube-apiserver 1.36.3.
#[test]
fn equal_kinds_are_refused_between_short_names_and_categories() {
    let server = Server::start_plain(without_accounts());
    let mut equal = definition(&schema());
    equal["spec"]["names"]["listKind"] = "Gadget".into();
    equal["spec"]["names"]["shortNames"] = json!(["G"]);
    equal["spec"]["names"]["categories"] = json!(["All"]);
    let refused = server.client().post(DEFINITIONS, &equal);
    let causes = causes(&refused.body);
    let fields: Vec<_> = causes.iter().filter_map(|cause| cause.split(": ").next()).collect();
    let names =
        ["spec.names.shortNames[0]", "spec.names.listKind", "spec.names.categories[0]"].as_slice();
    assert_eq!(fields, names, "{causes:?}");
}

/// Proves: R-CRD-04.
#[test]
fn objects_are_pruned_defaulted_and_validated() {
    let server = serving();
    let client = server.client();
    let made = client.post(GADGETS, &gadget("a", json!({"color": "red", "more": 1})));
    assert_eq!((made.status, &made.body["spec"]), (201, &json!({"color": "red", "size": 3})));
    let check = |spec: Value, wanted: &[&str]| {
        let refused = client.post(GADGETS, &gadget("b", spec.clone()));
        assert_eq!(
            (refused.status, causes(&refused.body)),
            (422, wanted.iter().map(|w| (*w).to_owned()).collect()),
            "{spec}"
        );
    };
    let unchecked = "<nil>: Invalid value: null: some validation rules were not checked because the object \
                     was invalid; correct the existing errors to complete validation";
    check(json!({}), &["spec.color: Required value", unchecked]);
    let words = "spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\"";
    check(json!({"color": "green"}), &[words, unchecked]);
    let words =
        "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1";
    check(json!({"color": "red", "size": 0}), &[words]);
    let words = "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"";
    let scale = ".spec.size: Invalid value: 0: .spec.size accessor error: x is of the type string, \
                 expected int64";
    check(json!({"color": "red", "size": "x"}), &[words, scale, unchecked]);
    check(json!({"color": "red", "tags": ["a", "a"]}), &["spec.tags[1]: Duplicate value: \"a\""]);
    check(json!({"color": "blue", "size": 10}), &["spec: Invalid value: blue ones are small"]);
    let mut smaller = made.body.clone();
    smaller["spec"]["size"] = 2.into();
    let (code, refused) = put(&client, &format!("{GADGETS}/a"), &smaller);
    assert_eq!(
        (code, causes(&refused)),
        (422, vec!["spec: Invalid value: sizes only grow".to_owned()])
    );
}

#[test]
fn scale_columns_and_selectable_fields_follow_the_definition() {
    let server = serving();
    let client = server.client();
    for (name, color) in [("a", "red"), ("b", "blue")] {
        assert_eq!(client.post(GADGETS, &gadget(name, json!({"color": color}))).status, 201);
    }
    let table = client.table(GADGETS).body;
    assert_eq!(table["columnDefinitions"][1]["name"], "Size");
    assert_eq!(table["rows"][1]["cells"], json!(["b", 3]));
    let blue = client.get(&format!("{GADGETS}?fieldSelector=spec.color%3Dblue")).body;
    let names: Vec<_> = blue["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|item| &item["metadata"]["name"])
        .collect();
    assert_eq!(names, ["b"]);
    let path = format!("{GADGETS}/a/scale");
    let mut scale = client.get(&path).body;
    assert_eq!((&scale["kind"], &scale["spec"]["replicas"]), (&json!("Scale"), &json!(3)));
    scale["spec"]["replicas"] = 5.into();
    assert_eq!(put(&client, &path, &scale).0, 200);
    assert_eq!(client.get(&format!("{GADGETS}/a")).body["spec"]["size"], 5);
    let merge = "application/strategic-merge-patch+json";
    let refused = client.call("PATCH", &format!("{GADGETS}/a"), merge, Some(&json!({})));
    assert_eq!(refused.status, 415);
}

#[test]
fn a_deleted_definition_deletes_its_objects() {
    let server = serving();
    let client = server.client();
    assert_eq!(client.post(GADGETS, &gadget("a", json!({"color": "red"}))).status, 201);
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let going = client.delete(&path);
    assert_eq!(going.status, 200);
    client.poll(&path, |answer| answer.status == 404);
    client.poll(GADGETS, |answer| answer.status == 404);
    assert_eq!(client.post(DEFINITIONS, &definition(&schema())).status, 201);
    let list = client.poll(GADGETS, |answer| answer.status == 200).body;
    assert_eq!(list["items"], json!([]));
}

#[test]
fn deleting_a_large_definition_does_not_delay_others() {
    const MANY: usize = 600;
    let server = serving();
    let client = server.client();
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let client = &client;
            scope.spawn(move || {
                for number in 0..MANY / 4 {
                    let name = format!("g{writer}-{number}");
                    let made = client.post(GADGETS, &gadget(&name, json!({"color": "red"})));
                    assert_eq!(made.status, 201);
                }
            });
        }
    });
    let since = client.get(DEFINITIONS).body["metadata"]["resourceVersion"]
        .clone()
        .as_str()
        .expect("a revision")
        .to_owned();
    let watch = format!("{DEFINITIONS}?watch=true&resourceVersion={since}");
    let mut watch = client.open_watch(&watch);
    assert_eq!(client.delete(&format!("{DEFINITIONS}/gadgets.example.com")).status, 200);
    let names = json!({"plural": "doodads", "kind": "Doodad"});
    made_definition(&client, "other.example.com", &names);
    // The first is still being deleted; the other one does not wait for that.
    let is_established = |definition: &Value| {
        let name = &definition["metadata"]["name"];
        name == "doodads.other.example.com"
            && reason_of(definition, "Established") == "InitialNamesAccepted"
    };
    loop {
        let event = watch.next().expect("a further event");
        assert_ne!(event["type"], "DELETED", "it was served after the other one had gone");
        if is_established(&event["object"]) {
            break;
        }
    }
    while watch.next().expect("a further event")["type"] != "DELETED" {}
}

/// Clients wait for the condition, then send objects: they must not meet a 404.
#[test]
fn who_sees_established_can_use_the_resource() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    // Takes longer to read than an event takes to a client.
    let wide: serde_json::Map<_, _> =
        (0..5000).map(|number| (format!("field{number}"), json!({"type": "string"}))).collect();
    let wide = json!({"type": "object", "properties": wide});
    let mut watch = client.open_watch(&format!("{DEFINITIONS}?watch=true"));
    for number in 0..4 {
        let mut made = definition(&wide);
        made["metadata"]["name"] = format!("g{number}s.wide.example.com").into();
        made["spec"]["group"] = "wide.example.com".into();
        made["spec"]["names"] =
            json!({"plural": format!("g{number}s"), "kind": format!("G{number}")});
        made["spec"]["versions"][0]["selectableFields"] = Value::Null;
        assert_eq!(client.post(DEFINITIONS, &made).status, 201);
        while reason_of(&watch.next().expect("a further event")["object"], "Established")
            != "InitialNamesAccepted"
        {}
        let path = format!("/apis/wide.example.com/v1/g{number}s");
        assert_eq!(client.get(&path).status, 200, "{path}");
    }
}

#[test]
fn non_structural_schemas_are_rejected() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let refused = |schema: &Value| {
        let mut definition = definition(schema);
        definition["spec"]["versions"][0]["selectableFields"] = Value::Null;
        let refused = client.post(DEFINITIONS, &definition);
        assert_eq!(refused.status, 422, "{schema}");
        causes(&refused.body)
    };
    let check = |schema: Value, wanted: &str| assert_eq!(refused(&schema), [wanted], "{schema}");
    let of = |spec: Value| json!({"type": "object", "properties": {"spec": spec}});
    let at = "spec.validation.openAPIV3Schema";
    check(json!({}), &format!("{at}.type: Required value: must not be empty at the root"));
    let words = "type: Required value: must not be empty for specified object fields";
    check(of(json!({})), &format!("{at}.properties[spec].{words}"));
    let list =
        json!({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "map"});
    let words = "x-kubernetes-list-map-keys: Required value: must not be empty if x-kubernetes-list-type is map";
    let items = "items.type: Invalid value: \"string\": must be object if parent array's x-kubernetes-list-type is map";
    let both = [words, items].map(|words| format!("{at}.properties[spec].{words}"));
    assert_eq!(refused(&of(list)), both);
    let default = json!({"type": "string", "default": 5});
    let words = "default: Invalid value: \"integer\":  in body must be of type string: \"integer\"";
    check(of(default), &format!("{at}.properties[spec].{words}"));
}

#[test]
fn names_are_accepted_once_and_released() {
    let server = serving();
    let client = server.client();
    let mut other = definition(&schema());
    other["metadata"]["name"] = "doodads.example.com".into();
    other["spec"]["names"] = json!({"plural": "doodads", "kind": "Gadget"});
    assert_eq!(client.post(DEFINITIONS, &other).status, 201);
    let path = format!("{DEFINITIONS}/doodads.example.com");
    let condition = |body: &Value, kind: &str| {
        let all = body["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = all.into_iter().find(|condition| condition["type"] == kind);
        found.map(|condition| (condition["status"].clone(), condition["reason"].clone()))
    };
    let refused =
        client.poll(&path, |answer| condition(&answer.body, "NamesAccepted").is_some()).body;
    let wanted = Some((json!("False"), json!("ListKindConflict")));
    assert_eq!(condition(&refused, "NamesAccepted"), wanted);
    assert_eq!(client.delete(&format!("{DEFINITIONS}/gadgets.example.com")).status, 200);
    client.poll(&path, |answer| {
        condition(&answer.body, "Established").is_some_and(|(status, _)| status == "True")
    });
    client.poll("/apis/example.com/v1/namespaces/default/doodads", |answer| answer.status == 200);
}

/// List kinds count as names of kinds, and singular and short names as names of resources.
#[test]
fn names_of_definitions_are_unique_in_a_group() {
    let server = serving();
    let client = server.client();
    let cases = [
        (json!({"plural": "doodads", "singular": "gadgets", "kind": "Doodad"}), "SingularConflict"),
        (
            json!({"plural": "doodads", "shortNames": ["gd"], "kind": "Doodad"}),
            "ShortNamesConflict",
        ),
        (json!({"plural": "gd", "kind": "Doodad"}), "PluralConflict"),
        (json!({"plural": "doodads", "kind": "GadgetList"}), "KindConflict"),
        (json!({"plural": "doodads", "kind": "Doodad", "listKind": "Gadget"}), "ListKindConflict"),
        (json!({"plural": "doodads", "kind": "Doodad", "categories": ["gd"]}), "NoConflicts"),
    ];
    for (names, reason) in cases {
        let path = made_definition(&client, "example.com", &names);
        client.poll(&path, |answer| reason_of(&answer.body, "NamesAccepted") == reason);
        assert_eq!(client.delete(&path).status, 200);
        client.poll(&path, |answer| answer.status == 404);
    }
    let same = json!({"plural": "gadgets", "shortNames": ["gd"], "kind": "Gadget"});
    let path = made_definition(&client, "other.example.com", &same);
    client.poll(&path, |answer| reason_of(&answer.body, "NamesAccepted") == "NoConflicts");
}

#[test]
fn a_definition_is_served_when_its_conflicting_name_is_released() {
    let server = serving();
    let client = server.client();
    let names = json!({"plural": "doodads", "shortNames": ["gd"], "kind": "Doodad"});
    let path = made_definition(&client, "example.com", &names);
    client.poll(&path, |answer| reason_of(&answer.body, "NamesAccepted") == "ShortNamesConflict");
    let gadgets = format!("{DEFINITIONS}/gadgets.example.com");
    let patch = json!({"spec": {"names": {"shortNames": null}}}).to_string();
    let headers = "Content-Type: application/merge-patch+json\r\n";
    assert_eq!(client.raw_response("PATCH", &gadgets, headers, patch.as_bytes()).status, 200);
    client.poll(&path, |answer| reason_of(&answer.body, "NamesAccepted") == "NoConflicts");
    client.poll("/apis/example.com/v1/namespaces/default/doodads", |answer| answer.status == 200);
}

/// Creates a definition with these names. Returns its path.
fn made_definition(client: &Client, group: &str, names: &Value) -> String {
    let name = format!("{}.{group}", names["plural"].as_str().expect("a plural"));
    let mut made = definition(&schema());
    made["metadata"]["name"] = name.clone().into();
    made["spec"]["group"] = group.into();
    made["spec"]["names"] = names.clone();
    assert_eq!(client.post(DEFINITIONS, &made).status, 201);
    format!("{DEFINITIONS}/{name}")
}

/// Returns the reason of a condition; empty if it is absent.
fn reason_of(definition: &Value, condition: &str) -> String {
    let all = definition["status"]["conditions"].as_array().into_iter().flatten();
    let mut reasons = all.filter(|found| found["type"] == condition).map(|found| &found["reason"]);
    reasons.next().and_then(Value::as_str).unwrap_or_default().to_owned()
}

#[test]
fn custom_resources_survive_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start_plain(without_accounts().data_dir(dir.path()));
    let client = server.client();
    assert_eq!(client.post(DEFINITIONS, &definition(&schema())).status, 201);
    client.poll(GADGETS, |answer| answer.status == 200);
    let made = client.post(GADGETS, &gadget("a", json!({"color": "red"}))).body;
    server.stop();
    let server = Server::start_plain(without_accounts().data_dir(dir.path()));
    assert_eq!(server.client().get(&format!("{GADGETS}/a")).body, made);
    server.stop();
}

#[test]
fn a_cluster_scoped_resource_has_no_namespaced_path() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let mut cluster = definition(&schema());
    cluster["spec"]["scope"] = "Cluster".into();
    assert_eq!(client.post(DEFINITIONS, &cluster).status, 201);
    let all = "/apis/example.com/v1/gadgets";
    client.poll(all, |answer| answer.status == 200);
    assert_eq!(client.post(all, &gadget("a", json!({"color": "red"}))).status, 201);
    for path in [GADGETS.to_owned(), format!("{GADGETS}/a")] {
        assert_eq!(client.get(&path).status, 404, "{path}");
        assert_eq!(client.delete(&path).status, 404, "{path}");
    }
    assert_eq!(client.get(&format!("{all}/a")).status, 200);
}

#[test]
fn custom_resources_in_protobuf_have_only_metadata() {
    let server = serving();
    let client = server.client();
    assert_eq!(client.post(GADGETS, &gadget("a", json!({"color": "red"}))).status, 201);
    let protobuf = "application/vnd.kubernetes.protobuf";
    let metadata = format!("{protobuf};as=PartialObjectMetadata;v=v1;g=meta.k8s.io");
    let both = format!("{protobuf},application/json");
    for (accept, status, answered) in
        [(protobuf, 406, protobuf), (&metadata, 200, protobuf), (&both, 200, "application/json")]
    {
        let headers = format!("Accept: {accept}\r\n");
        let answer = client.raw_response("GET", &format!("{GADGETS}/a"), &headers, b"");
        assert_eq!((answer.status, &*answer.media_type), (status, answered), "{accept}");
    }
}

/// Generated definitions, most of them invalid in several places, from
/// `crates/testkit/compare/definitions.py`.
const GENERATED: &str = include_str!("files/definitions.transcript");

/// Sends the requests of transcripts to a server.
struct Replayed<'a>(&'a Client);

impl Responder for Replayed<'_> {
    fn send(&mut self, request: &Request<'_>) -> Result<Response, String> {
        let headers = format!("Content-Type: {}\r\n", request.media_type);
        let body = serde_json::from_str(request.body).ok();
        let answer = self.0.request(request.method, request.path, &headers, body.as_ref());
        let warnings = answer
            .headers
            .into_iter()
            .filter(|(name, _)| name == "warning")
            .map(|(_, text)| text)
            .collect();
        Ok(Response { code: answer.status, warnings, body: answer.body, ..Response::default() })
    }
}

#[test]
fn responses_to_generated_definitions_match_kube_apiserver() {
    let server = Server::start_plain(without_accounts());
    let transcript = Transcript::parse(GENERATED).expect("a transcript");
    let outcome = replay(&transcript, &mut Replayed(&server.client()));
    let failures: Vec<&str> =
        outcome.failures.iter().map(|failure| failure.text.as_str()).collect();
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(outcome.responses, 313);
}

#[test]
fn unrecognized_formats_cause_one_warning() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let of = |formats: &[&str]| {
        let members =
            formats.iter().map(|f| ((*f).to_owned(), json!({"type": "string", "format": f})));
        let members: serde_json::Map<String, Value> = members.collect();
        let mut made = definition(&json!({"type": "object", "properties": members}));
        made["spec"]["versions"][0]["selectableFields"] = Value::Null;
        made
    };
    let made = client.post(DEFINITIONS, &of(&["odd"]));
    assert_eq!(made.header("warning"), Some("299 - \"unrecognized format \\\"odd\\\"\""));
    let change = json!({"spec": {"versions": of(&["odd", "strange"])["spec"]["versions"]}});
    let path = format!("{DEFINITIONS}/gadgets.example.com");
    let merge = "application/merge-patch+json";
    let changed = client.call("PATCH", &path, merge, Some(&change));
    let wanted = Some("299 - \"unrecognized format \\\"strange\\\"\"");
    assert_eq!(changed.header("warning"), wanted);
    let check = |schema: Value, wanted: Option<&str>| {
        let made = definition(&json!({"type": "object", "properties": {"a": schema}}));
        let mut change = json!({"spec": {"versions": made["spec"]["versions"]}});
        let path = format!("{path}?dryRun=All");
        change["spec"]["versions"][0]["selectableFields"] = Value::Null;
        let changed = client.call("PATCH", &path, merge, Some(&change));
        assert_eq!((changed.status, changed.header("warning")), (200, wanted), "{schema}");
    };
    // Without a type, number formats are ignored.
    let unknown = Some("299 - \"unrecognized format \\\"int64\\\"\"");
    check(json!({"type": "integer", "format": "int64"}), None);
    check(json!({"x-kubernetes-int-or-string": true, "format": "int64"}), unknown);
    check(json!({"type": "integer", "anyOf": [{"format": "int64"}]}), unknown);
    check(json!({"x-kubernetes-int-or-string": true, "format": "date-time"}), None);
}

/// As in kube-apiserver 1.36: a value that cannot be decoded is an error of the patch; then the
/// name is checked before the type.
#[test]
fn patch_type_errors_have_the_order_of_kube_apiserver() {
    let server = serving();
    let client = server.client();
    let path = &format!("{GADGETS}/a");
    let made = client.post(GADGETS, &gadget("a", json!({"color": "red"})));
    assert_eq!(made.status, 201);
    let check = |ops: Value, status: u16, wanted: &str| {
        let answer = client.call("PATCH", path, "application/json-patch+json", Some(&ops));
        let message = answer.body["message"].as_str().unwrap_or_default();
        assert_eq!(answer.status, status, "{ops}: {message}");
        assert!(message.contains(wanted), "{ops}: {message}");
    };
    let set = |name: &str, value: Value| json!({"op": "replace", "path": name, "value": value});
    let gone = |name: &str| json!({"op": "remove", "path": name});
    let unread = "couldn't get version/kind; json parse error: json: cannot unmarshal";
    let of = |given: &str, name: &str| {
        format!("{unread} {given} into Go struct field .{name} of type string")
    };
    check(json!([set("/kind", json!(0))]), 422, &of("number", "kind"));
    check(json!([set("/apiVersion", json!({})), gone("/kind")]), 422, &of("object", "apiVersion"));
    check(
        json!([set("", json!([1]))]),
        422,
        &format!("{unread} array into Go value of type struct"),
    );
    check(json!([set("/kind", json!(""))]), 422, "Object 'Kind' is missing in '{");
    check(
        json!([set("/apiVersion", json!("a/b/c"))]),
        422,
        "unexpected GroupVersion string: a/b/c",
    );
    let nil = ".apiVersion accessor error: <nil> is of the type <nil>, expected string";
    check(json!([set("/apiVersion", json!(null))]), 422, nil);
    let missing = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
    check(json!([gone("/apiVersion")]), 500, &format!("Internal error occurred: {missing}"));
    check(json!([set("/apiVersion", json!(""))]), 500, missing);
    check(
        json!([set("/apiVersion", json!("v9"))]),
        422,
        "apiVersion: Invalid value: \"v9\": must be",
    );
    let other = set("/metadata/name", json!("b"));
    let name = "the name of the object (b) does not match the name on the URL (a)";
    check(json!([gone("/apiVersion"), other]), 400, name);
    check(json!([set("/kind", json!("Other")), other]), 400, name);
    let unnamed =
        "the name of the object (a based on URL) was undeterminable: name must be provided";
    check(json!([set("/apiVersion", json!("v9")), gone("/metadata")]), 400, unnamed);
}

/// As in kube-apiserver 1.36: other writes drop such nulls.
#[test]
fn applied_nulls_and_fractions_are_schema_errors() {
    let server = serving();
    let client = server.client();
    let check = |spec: Value, status: u16, wanted: &[&str]| {
        let path = format!("{GADGETS}/a?fieldManager=m&dryRun=All");
        let media = "application/apply-patch+yaml";
        let answer = client.call("PATCH", &path, media, Some(&gadget("a", spec)));
        let wanted: Vec<String> = wanted.iter().map(|why| (*why).to_owned()).collect();
        assert_eq!((answer.status, causes(&answer.body)), (status, wanted));
    };
    let of_type = |field: &str, wanted: &str, given: &str| {
        let why = format!("{field} in body must be of type {wanted}: \"{given}\"");
        format!("{field}: Invalid value: \"{given}\": {why}")
    };
    let not_checked = "<nil>: Invalid value: null: some validation rules were not checked because the \
         object was invalid; correct the existing errors to complete validation";
    let one_of = "spec.color: Unsupported value: null: supported values: \"red\", \"blue\"";
    let no_color = [&of_type("spec.color", "string", "null"), one_of, not_checked];
    check(json!({"color": null}), 422, &no_color);
    check(
        json!({"color": "red", "tags": null}),
        422,
        &[&of_type("spec.tags", "array", "null"), not_checked],
    );
    check(json!({"color": "red", "size": null}), 201, &[]);
    let path = format!("{GADGETS}/a?fieldManager=m&dryRun=All");
    let fraction = gadget("a", json!({"color": "red", "size": 1.5}));
    let answer = client.call("PATCH", &path, "application/apply-patch+yaml", Some(&fraction));
    let range = "Checked value must be of type integer (default format) in spec.size";
    let found = causes(&answer.body);
    let range = format!("<nil>: Invalid value: \"\": {range}");
    assert_eq!((answer.status, &found[0]), (422, &of_type("spec.size", "integer", "number")));
    assert!(found.contains(&range), "{found:?}");
}

/// As in kube-apiserver 1.36: the message shows a rejected patch with its original escapes.
#[test]
fn patch_errors_show_the_patch_as_sent() {
    let server = serving();
    let client = server.client();
    let made = client.post(GADGETS, &gadget("a", json!({"color": "red"})));
    assert_eq!(made.status, 201);
    let line = format!("PATCH {GADGETS}/a?fieldValidation=Strict");
    let patch = r#"{"spec":{"unknown":"\u00e4"}}"#;
    let media = "Content-Type: application/merge-patch+json\r\n";
    let answer = client.send_bytes(&line, media, patch.as_bytes());
    let message = answer.body["message"].as_str().unwrap_or_default();
    assert_eq!(answer.status, 422, "{message}");
    assert!(message.contains(r#"\"unknown\":\"\\u00e4\""#), "{message}");
}

/// As in kube-apiserver 1.36.
#[test]
fn an_apply_that_creates_may_have_a_deletion_timestamp() {
    let mut two = definition(&schema());
    let mut other = two["spec"]["versions"][0].clone();
    (other["name"], other["storage"]) = ("v2".into(), false.into());
    if let Some(versions) = two["spec"]["versions"].as_array_mut() {
        versions.push(other);
    }
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    assert_eq!(client.post(DEFINITIONS, &two).status, 201);
    client.poll(GADGETS, |answer| answer.status == 200);
    let apply = |version: &str, name: &str, time: Value| {
        let path = format!("/apis/example.com/{version}/namespaces/default/gadgets/{name}");
        let mut body = gadget(name, json!({"color": "red"}));
        body["apiVersion"] = format!("example.com/{version}").into();
        body["metadata"]["deletionTimestamp"] = time;
        let path = format!("{path}?fieldManager=m&dryRun=All");
        client.call("PATCH", &path, "application/apply-patch+yaml", Some(&body))
    };
    let time = "2024-01-01T00:00:00Z";
    let check = |version: &str, time: Value, status: u16, wanted: Value, message: &str| {
        let answer = apply(version, "new", time);
        let got = &answer.body["metadata"]["deletionTimestamp"];
        let said = answer.body["message"].as_str().unwrap_or_default();
        assert_eq!((answer.status, got, said), (status, &wanted, message));
    };
    check("v1", time.into(), 201, time.into(), "");
    check("v2", "2024-01-01T01:00:00.5+01:00".into(), 201, time.into(), "");
    check("v1", "x".into(), 201, Value::Null, "");
    check("v1", 5.into(), 201, Value::Null, "");
    let unread =
        "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"";
    check("v2", "x".into(), 500, Value::Null, unread);
    let unread = "json: cannot unmarshal number into Go struct field ObjectMeta.deletionTimestamp of type string";
    check("v2", 5.into(), 500, Value::Null, unread);
    let path = "/apis/example.com/v2/namespaces/default/gadgets/new?fieldManager=m";
    let unnamed = json!({"apiVersion": "example.com/v2", "kind": "Gadget",
        "metadata": {"deletionTimestamp": "x"}});
    let answer = client.call("PATCH", path, "application/apply-patch+yaml", Some(&unnamed));
    let why = "the name of the object (new based on URL) was undeterminable: name must be provided";
    assert_eq!((answer.status, answer.body["message"].as_str()), (400, Some(why)));
    assert_eq!(client.post(GADGETS, &gadget("old", json!({"color": "red"}))).status, 201);
    let refused = apply("v1", "old", time.into());
    let words =
        format!("metadata.deletionTimestamp: Invalid value: \"{time}\": field is immutable");
    // Upstream reports it twice, too.
    assert_eq!((refused.status, causes(&refused.body)), (422, vec![words.clone(), words]));
}

/// As in kube-apiserver 1.36: an object of another kind is not pruned.
#[test]
fn unknown_fields_of_another_kind_are_not_reported() {
    let server = serving();
    let client = server.client();
    assert_eq!(client.post(GADGETS, &gadget("a", json!({"color": "red"}))).status, 201);
    let path = format!("{GADGETS}/a?dryRun=All");
    let check = |kind: &str, status: u16, warning: Option<&str>| {
        let body = json!({"kind": kind, "spec": {"more": 1}});
        let answer = client.call("PATCH", &path, "application/merge-patch+json", Some(&body));
        assert_eq!((answer.status, answer.header("warning")), (status, warning));
    };
    check("Gadget", 200, Some("299 - \"unknown field \\\"spec.more\\\"\""));
    check("Other", 422, None);
}
