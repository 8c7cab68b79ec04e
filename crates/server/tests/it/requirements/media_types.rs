//! R-SER: JSON, protobuf and YAML, and how they are asked for.

use super::world::{Walked, everything, made, with_widgets};
use super::{MAPS, create, server};
use crate::world::{Client, RawResponse};
use keelson_meta::time::Timestamp;
use keelson_meta::{GroupVersionKind, Object, value};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Schema, proto};
use serde_json::{Value, json};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const JSON: &str = "application/json";

fn get(client: &Client, path: &str, accept: &str) -> RawResponse {
    client.raw_response("GET", path, &format!("Accept: {accept}\r\n"), &[])
}

fn schema(api_version: &str, kind: &str) -> Schema {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let gvk = GroupVersionKind::new(group, version, kind.to_owned());
    Catalogue::shared().schema(&gvk).unwrap_or_else(|| panic!("no schema of {api_version} {kind}"))
}

/// Checks an answer in protobuf: its media type, its envelope, and that the message is one of this
/// kind. Returns the object.
#[track_caller]
fn from_protobuf(answer: &RawResponse, api_version: &str, kind: &str) -> Object {
    assert_eq!((answer.status, &*answer.media_type), (200, PROTOBUF), "{answer:?}");
    assert_eq!(answer.body[..4], [0x6b, 0x38, 0x73, 0x00]);
    let envelope = proto::decode_envelope(&answer.body).expect("an envelope");
    assert_eq!((&*envelope.api_version, &*envelope.kind), (api_version, kind));
    proto::decode_message(&schema(api_version, kind), envelope.raw).expect("a message")
}

/// Reads and writes an object of a built-in resource in each combination of the two media types.
fn check_protobuf(client: &Client, walked: &Walked) {
    let Walked { api_version, kind, .. } = walked;
    let all = walked.all();
    let one = walked.one();
    let obj = walked.settled(client);
    let read = get(client, &one, PROTOBUF);
    let decoded = from_protobuf(&read, api_version, kind);
    assert_eq!(Some(decoded.name()), obj["metadata"]["name"].as_str());
    assert_eq!(obj["metadata"]["uid"], decoded.str_at(&["metadata", "uid"]), "{one}");
    let list = from_protobuf(&get(client, &all, PROTOBUF), api_version, &format!("{kind}List"));
    let listed = list.array_at(&["items"]).iter().any(|item| {
        item.at(&["metadata", "name"]).and_then(keelson_meta::Value::as_str)
            == Some(walked.name.as_str())
    });
    assert!(listed, "{all}");
    // The body in protobuf, the answer in JSON, and the other way round.
    let headers = format!("Content-Type: {PROTOBUF}\r\nAccept: {JSON}\r\n");
    let latest = get(client, &one, PROTOBUF);
    let put = client.raw_response("PUT", &one, &headers, &latest.body);
    let text = String::from_utf8_lossy(&put.body);
    assert_eq!((put.status, &*put.media_type), (200, JSON), "{one}: {text}");
    let headers = format!("Content-Type: {JSON}\r\nAccept: {PROTOBUF}\r\n");
    let put =
        client.raw_response("PUT", &one, &headers, &client.raw_response("GET", &one, "", &[]).body);
    from_protobuf(&put, api_version, kind);
    assert_eq!(client.delete(&one).status, 200, "{one}");
}

/// Proves: R-SER-03, R-SER-04, R-SER-05, R-SER-09, R-SER-10, R-SER-11, R-SER-12, R-SER-15.
#[test]
fn every_built_in_kind_is_read_and_written_as_protobuf() {
    let server = server();
    let client = server.client();
    for walked in everything().iter().filter(|walked| walked.api_version != "example.com/v1") {
        check_protobuf(&client, walked);
    }
    let statuses = get(&client, "/api/v1/componentstatuses", PROTOBUF);
    from_protobuf(&statuses, "v1", "ComponentStatusList");
    // The envelope leaves out what is usual: its last two fields.
    create(&client, "a");
    let answer = get(&client, &format!("{MAPS}/a"), PROTOBUF);
    assert_eq!(answer.body[4..18], *b"\x0a\x0f\x0a\x02v1\x12\x09Config");
    let raw = proto::decode_envelope(&answer.body).expect("an envelope").raw.len();
    // Behind the message are only the fields 3 and 4, both empty.
    assert_eq!(answer.body[answer.body.len() - 4..], *b"\x1a\x00\x22\x00");
    assert!(answer.body.len() < raw + 40);
    server.stop();
}

/// Proves: R-SER-04, R-SER-13.
#[test]
fn a_body_in_protobuf_needs_its_prefix() {
    let server = server();
    let client = server.client();
    let map = Object::from_value(value!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p"}, "data": {"k": "v"}
    }));
    let mut body = vec![];
    proto::encode(&schema("v1", "ConfigMap"), &map.expect("a map"), &mut body).expect("it fits");
    let post = |body: &[u8]| {
        client.raw_response("POST", MAPS, &format!("Content-Type: {PROTOBUF}\r\n"), body)
    };
    let answer = post(&body[4..]);
    let status: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!((answer.status, &status["reason"]), (400, &json!("BadRequest")), "{status}");
    let message = status["message"].as_str().unwrap_or_default();
    assert!(message.contains("expected prefix [107 56 115 0]"), "{message}");
    let answer = post(&body);
    let stored: Value = serde_json::from_slice(&answer.body).expect("JSON");
    assert_eq!((answer.status, &stored["data"]), (201, &json!({"k": "v"})), "{stored}");
    server.stop();
}

/// Proves: R-SER-01, R-SER-02, R-SER-05, R-SER-06.
#[test]
fn accept_chooses_the_form_or_is_406() {
    let server = server();
    let client = server.client();
    create(&client, "a");
    let one = format!("{MAPS}/a");
    let paths = [
        "/api/v1/componentstatuses",
        "/api",
        "/apis",
        "/apis/apps",
        "/apis/apps/v1",
        "/api/v1",
        MAPS,
        &one,
    ];
    for path in paths {
        for accept in ["", "Accept: */*\r\n", "Accept: application/json\r\n"] {
            let answer = client.raw_response("GET", path, accept, &[]);
            assert_eq!((answer.status, &*answer.media_type), (200, JSON), "{path} {accept}");
            assert!(serde_json::from_slice::<Value>(&answer.body).is_ok(), "{path}");
        }
        let yaml = get(&client, path, "application/yaml");
        assert_eq!((yaml.status, &*yaml.media_type), (200, "application/yaml"), "{path}");
        assert!(!yaml.body.starts_with(b"{") && yaml.body.contains(&b':'), "{path}");
        assert_eq!(get(&client, path, PROTOBUF).media_type, PROTOBUF, "{path}");
        let both = get(&client, path, "application/json;q=0.2,application/yaml;q=0.9");
        assert_eq!(both.media_type, "application/yaml", "{path}");
        for accept in [
            "text/html",
            "image/png",
            "application/cbor",
            "application/json;as=Nothing;v=v1;g=meta.k8s.io",
        ] {
            let answer = get(&client, path, accept);
            let status: Value = serde_json::from_slice(&answer.body).expect("JSON");
            let shown = (answer.status, &status["kind"], &status["reason"]);
            assert_eq!(shown, (406, &json!("Status"), &json!("NotAcceptable")), "{path} {accept}");
        }
    }
    // A document that is not an object of the API has one form.
    let version = get(&client, "/version", PROTOBUF);
    assert_eq!(version.status, 406, "{version:?}");
    server.stop();
}

/// Proves: R-SER-07, R-SER-08, R-CRD-03, R-HTTP-18.
#[test]
fn custom_resources_are_json_unless_nothing_else_is_accepted() {
    let server = with_widgets();
    let client = server.client();
    let walked = everything().pop().expect("widgets are the last");
    made(&client, &walked.all(), &walked.sample);
    for path in [walked.one(), walked.all(), format!("{}/scale", walked.one())] {
        let alone = get(&client, &path, PROTOBUF);
        assert_eq!(alone.status, 406, "{path}");
        let both = get(&client, &path, "application/vnd.kubernetes.protobuf, application/json");
        assert_eq!((both.status, &*both.media_type), (200, JSON), "{path}");
    }
    let headers = format!("Content-Type: {PROTOBUF}\r\n");
    let answer = client.raw_response("POST", &walked.all(), &headers, b"k8s\0");
    assert_eq!(answer.status, 415, "{answer:?}");
    server.stop();
}

/// Proves: R-SER-14.
#[test]
fn times_are_text_as_in_rfc_3339() {
    let server = with_widgets();
    let client = server.client();
    for walked in everything() {
        let obj = made(&client, &walked.all(), &walked.sample);
        let time = obj["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        assert!(time.len() == 20 && time.ends_with('Z') && Timestamp::parse(time).is_ok(), "{obj}");
        assert_eq!(client.delete(&walked.one()).status, 200);
    }
    // No published field for a time has another form.
    let definitions = client.get("/openapi/v2").body["definitions"].clone();
    for name in ["Time", "MicroTime"] {
        let schema = &definitions[format!("io.k8s.apimachinery.pkg.apis.meta.v1.{name}")];
        assert_eq!((&schema["type"], &schema["format"]), (&json!("string"), &json!("date-time")));
    }
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let lease = |time: Value| json!({"metadata": {"name": "l"}, "spec": {"renewTime": time}});
    for time in [
        json!("yesterday"),
        json!(1_700_000_000),
        json!("2024-01-01"),
        json!("2024-13-01T00:00:00Z"),
    ] {
        assert_eq!(client.post(leases, &lease(time.clone())).status, 400, "{time}");
    }
    let stored = made(&client, leases, &lease(json!("2024-01-01T02:00:00.500000+02:00")));
    assert_eq!(stored["spec"]["renewTime"], "2024-01-01T00:00:00.500000Z");
    server.stop();
}
