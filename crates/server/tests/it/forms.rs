//! Media types of objects: partial metadata in protobuf, and CBOR if it is enabled.

use crate::world::{Client, Options, RawResponse, Server};
use keelson_meta::{Feature, GroupVersionKind, Object, Value, value};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Schema, cbor, json, proto};
use std::io::BufRead;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const PARTIAL: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;\
                       g=meta.k8s.io;v=v1";
const PARTIAL_LIST: &str = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;\
                            g=meta.k8s.io;v=v1";

fn server(cbor: bool) -> Server {
    let mut options = Options::default();
    options.features = options.features.with(Feature::CBORServingAndStorage, cbor);
    let server = Server::start_plain(options);
    server.client().poll("/api/v1/namespaces/default", |answer| answer.status == 200);
    server
}

fn schema(group: &str, version: &str, kind: &str) -> Schema {
    let gvk = GroupVersionKind::new(group, version, kind.to_owned());
    Catalogue::shared().schema(&gvk).unwrap_or_else(|| panic!("no schema of {kind}"))
}

/// Decodes a protobuf body, whose kind must be that of the schema.
fn from_protobuf(schema: &Schema, body: &[u8]) -> Object {
    let envelope = proto::decode_envelope(body).expect("an envelope");
    let given = (envelope.api_version.as_ref(), envelope.kind.as_ref());
    assert_eq!(given, (schema.gvk.api_version().as_str(), schema.gvk.kind.as_str()));
    proto::decode_message(schema, envelope.raw).expect("a message")
}

fn to_cbor(value: Value) -> Vec<u8> {
    let mut out = vec![];
    cbor::write_body(&value, &mut out);
    out
}

fn from_cbor(answer: &RawResponse) -> Value {
    assert_eq!(answer.media_type, "application/cbor", "{answer:?}");
    assert!(answer.body.starts_with(&cbor::PREFIX), "{answer:?}");
    cbor::parse(&answer.body).expect("CBOR")
}

fn get(client: &Client, path: &str, accept: &str) -> RawResponse {
    client.raw_response("GET", path, &format!("Accept: {accept}\r\n"), &[])
}

fn send(client: &Client, method: &str, path: &str, body: &[u8], media_type: &str) -> RawResponse {
    let headers = format!("Content-Type: {media_type}\r\nAccept: application/cbor\r\n");
    client.raw_response(method, path, &headers, body)
}

/// Returns status code and message of an error in JSON.
fn refusal(answer: &RawResponse) -> (u16, String) {
    let body = json::parse(&answer.body).map(|parsed| parsed.value).unwrap_or_default();
    let message = body.get("message").and_then(Value::as_str).unwrap_or_default();
    (answer.status, message.to_owned())
}

fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    let found = path.iter().try_fold(value, |value, name| value.get(name));
    found.and_then(Value::as_str).unwrap_or_default()
}

fn config_map(name: &str) -> Value {
    value!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": (name)},
        "data": {"k": "v"}
    })
}

/// Reads the next event of a protobuf watch: its type, and the object's envelope.
fn frame(stream: &mut dyn BufRead) -> (String, Vec<u8>) {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("the length of a frame");
    let mut message = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut message).expect("a frame");
    let event = Catalogue::shared().schema(&GroupVersionKind::new("", "v1", "WatchEvent"));
    // Two fields: the type, and a RawExtension with the object's bytes as its first field.
    let event = event.expect("a schema");
    assert_eq!(event.root().fields.len(), 2);
    let word_end = 2 + usize::from(message[1]);
    let word = String::from_utf8(message[2..word_end].to_vec()).expect("a word");
    let body = message[word_end..].windows(4).position(|four| four == proto::PREFIX);
    (word, message[word_end + body.expect("an envelope")..].to_vec())
}

/// Reads the next event of a CBOR watch.
fn item(stream: &mut dyn BufRead) -> Value {
    let mut taken = vec![];
    loop {
        let got = stream.fill_buf().expect("more of the stream").to_vec();
        assert!(!got.is_empty(), "the stream ended after {taken:?}");
        stream.consume(got.len());
        taken.extend(got);
        if let Ok(event) = cbor::parse(&taken) {
            return event;
        }
    }
}

#[test]
fn partial_metadata_is_served_as_protobuf() {
    let server = server(false);
    let client = server.client();
    let path = format!("{MAPS}/a");
    let (media_type, mut stream) =
        client.stream(&format!("{MAPS}?watch=1"), &format!("Accept: {PARTIAL}\r\n"));
    assert_eq!(media_type, format!("{PROTOBUF};stream=watch"));
    let body = serde_json::json!({"metadata": {"name": "a", "labels": {"l": "m"}},
                                  "data": {"k": "v"}});
    assert_eq!(client.post(MAPS, &body).status, 201);

    let partial = schema("meta.k8s.io", "v1", "PartialObjectMetadata");
    let answer = get(&client, &path, PARTIAL);
    assert_eq!((answer.status, answer.media_type.as_str()), (200, PROTOBUF));
    let obj = from_protobuf(&partial, &answer.body);
    assert_eq!((obj.name(), obj.str_at(&["metadata", "labels", "l"])), ("a", "m"));
    assert!(obj.get("data").is_none());

    let (word, body) = frame(&mut stream);
    assert_eq!((word.as_str(), from_protobuf(&partial, &body)), ("ADDED", obj.clone()));

    let answer = get(&client, MAPS, PARTIAL_LIST);
    let list =
        from_protobuf(&schema("meta.k8s.io", "v1", "PartialObjectMetadataList"), &answer.body);
    let names: Vec<&str> =
        list.array_at(&["items"]).iter().map(|item| text(item, &["metadata", "name"])).collect();
    assert_eq!(names, ["a"]);

    // An older version of PartialObjectMetadata, and a Table, which protobuf does not support.
    let old = get(&client, &path, &PARTIAL.replace("v=v1", "v=v1beta1"));
    from_protobuf(&schema("meta.k8s.io", "v1beta1", "PartialObjectMetadata"), &old.body);
    let table = PARTIAL.replace("PartialObjectMetadata", "Table");
    let want = "only the following media types are accepted: application/json, \
                application/yaml, application/vnd.kubernetes.protobuf";
    assert_eq!(refusal(&get(&client, &path, &table)), (406, want.to_owned()));
    server.stop();
}

/// Both event groups share their objects; their watch events are encoded once per media type.
#[test]
fn watchers_of_each_event_group_get_their_own_type() {
    let server = server(false);
    let client = server.client();
    let paths = ["/api/v1/namespaces/default/events", "/apis/events.k8s.io/v1/events"];
    let accept = format!("Accept: {PROTOBUF}\r\n");
    let watches =
        paths.map(|path| client.stream(&format!("{path}?watch=1&resourceVersion=1"), &accept).1);
    let event = serde_json::json!({
        "metadata": {"name": "e"}, "message": "m", "reason": "R",
        "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "m"},
    });
    assert_eq!(client.post(paths[0], &event).status, 201);
    let kinds = [("", "message"), ("events.k8s.io", "note")];
    for (mut watch, (group, field)) in watches.into_iter().zip(kinds) {
        let (word, body) = frame(&mut watch);
        let obj = from_protobuf(&schema(group, "v1", "Event"), &body);
        assert_eq!((word.as_str(), obj.str_at(&[field])), ("ADDED", "m"), "{group}");
    }
    server.stop();
}

#[test]
fn delete_options_can_be_protobuf() {
    let server = server(false);
    let client = server.client();
    let made = client.post(MAPS, &serde_json::json!({"metadata": {"name": "a"}}));
    let uid = made.body["metadata"]["uid"].as_str().expect("a uid").to_owned();
    let delete = |uid: &str| {
        let schema = schema("", "v1", "DeleteOptions");
        let obj = Object::from_value(value!({"preconditions": {"uid": (uid)}})).expect("a map");
        let mut body = vec![];
        proto::encode(&schema, &obj, &mut body).expect("it fits");
        let headers = format!("Content-Type: {PROTOBUF}\r\n");
        client.raw_response("DELETE", &format!("{MAPS}/a"), &headers, &body).status
    };
    assert_eq!((delete("another"), delete(&uid)), (409, 200));
    server.stop();
}

const WIDGETS: &str = "/apis/test.dev/v1/namespaces/default/widgets";

fn define_widgets(client: &Client) {
    let definition = serde_json::json!({"metadata": {"name": "widgets.test.dev"}, "spec": {
        "group": "test.dev", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
            "type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(client.post(path, &definition).status, 201);
    client.poll(WIDGETS, |answer| answer.status == 200);
}

/// Stock clients accept protobuf and JSON, in this order.
#[test]
fn custom_resources_are_not_served_as_protobuf() {
    let server = server(false);
    let client = server.client();
    define_widgets(&client);
    let widget = br#"{"apiVersion": "test.dev/v1", "kind": "Widget", "metadata": {"name": "a"}}"#;
    let check = |method: &str, path: &str, body: &[u8], code: u16| {
        let only = client.raw_response(method, path, &format!("Accept: {PROTOBUF}\r\n"), body);
        let status = from_protobuf(&schema("", "v1", "Status"), &only.body);
        let why = "only the following media types are accepted: application/json, application/yaml, \
                   application/vnd.kubernetes.protobuf";
        assert_eq!((only.status, status.str_at(&["message"])), (406, why), "{method} {path}");
        let accept = format!("Accept: {PROTOBUF},application/json\r\n");
        let either = client.raw_response(method, path, &accept, body);
        let form = either.media_type.as_str();
        assert_eq!((either.status, form), (code, "application/json"), "{method} {path}");
    };
    let one = format!("{WIDGETS}/a");
    check("POST", WIDGETS, widget, 201);
    check("GET", &one, b"", 200);
    check("GET", WIDGETS, b"", 200);
    check("GET", &format!("{WIDGETS}?watch=1&timeoutSeconds=1"), b"", 200);
    check("DELETE", &one, b"", 200);
    check("DELETE", WIDGETS, b"", 200);
    // Partial metadata and a 404 status do not depend on custom types.
    assert_eq!(get(&client, WIDGETS, PARTIAL_LIST).media_type, PROTOBUF);
    let accept = format!("{PROTOBUF},application/json");
    let missing = get(&client, &one, &accept);
    assert_eq!((missing.status, missing.media_type.as_str()), (404, PROTOBUF));
    // The envelope of an object without fields.
    let empty = b"k8s\0\x0a\x15\x0a\x0btest.dev/v1\x12\x06Widget\x12\0";
    let headers = format!("Content-Type: {PROTOBUF}\r\n");
    assert_eq!(client.raw_response("POST", WIDGETS, &headers, empty).status, 415);
    server.stop();
}

#[test]
fn the_response_to_a_delete_has_the_accepted_media_type() {
    let server = server(false);
    let client = server.client();
    assert_eq!(client.post(MAPS, &serde_json::json!({"metadata": {"name": "a"}})).status, 201);
    let accept = format!("Accept: {PROTOBUF},application/json\r\n");
    let deleted = client.raw_response("DELETE", &format!("{MAPS}/a"), &accept, b"");
    assert_eq!((deleted.status, deleted.media_type.as_str()), (200, PROTOBUF));
    let status = from_protobuf(&schema("", "v1", "Status"), &deleted.body);
    let result = (status.str_at(&["status"]), status.str_at(&["details", "name"]));
    assert_eq!(result, ("Success", "a"));
    server.stop();
}

#[test]
fn cbor_is_rejected_unless_enabled() {
    let server = server(false);
    let client = server.client();
    let known = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
    let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let want = format!("406: Not Acceptable\n\nAvailable representations: {known}, {streams}");
    assert_eq!(refusal(&get(&client, MAPS, "application/cbor")), (406, want));
    let headers = "Content-Type: application/cbor\r\n";
    let answer = client.raw_response("POST", MAPS, headers, &to_cbor(config_map("a")));
    let want = format!(
        "the body of the request was in an unknown format - accepted media types include: {known}"
    );
    assert_eq!(refusal(&answer), (415, want));
    let headers = "Content-Type: application/apply-patch+cbor\r\n";
    let path = format!("{MAPS}/a?fieldManager=m");
    let answer = client.raw_response("PATCH", &path, headers, &to_cbor(config_map("a")));
    assert_eq!(refusal(&answer), (415, "415: Unsupported Media Type".to_owned()));
    server.stop();
}

#[test]
fn cbor_is_read_and_written_when_enabled() {
    let server = server(true);
    let client = server.client();
    let made = send(&client, "POST", MAPS, &to_cbor(config_map("a")), "application/cbor");
    assert_eq!((made.status, text(&from_cbor(&made), &["data", "k"])), (201, "v"));
    let (media_type, mut stream) =
        client.stream(&format!("{MAPS}?watch=1"), "Accept: application/cbor\r\n");
    assert_eq!(media_type, "application/cbor-seq");
    let event = item(&mut stream);
    assert_eq!((text(&event, &["type"]), text(&event, &["object", "data", "k"])), ("ADDED", "v"));

    let mut applied = config_map("a");
    if let Value::Object(map) = &mut applied {
        map.insert("data", value!({"l": "w"}));
    }
    let path = format!("{MAPS}/a?fieldManager=m");
    let answer = send(&client, "PATCH", &path, &to_cbor(applied), "application/apply-patch+cbor");
    assert_eq!((answer.status, text(&from_cbor(&answer), &["data", "l"])), (200, "w"));
    let event = item(&mut stream);
    let got = (text(&event, &["type"]), text(&event, &["object", "data", "l"]));
    assert_eq!(got, ("MODIFIED", "w"));

    let list = from_cbor(&get(&client, MAPS, "application/cbor"));
    assert_eq!(text(&list, &["kind"]), "ConfigMapList");
    let items = list.get("items").and_then(Value::as_array);
    assert_eq!(items.unwrap_or_default().len(), 1);
    let options = value!({"preconditions": {"uid": "another"}});
    let path = format!("{MAPS}/a");
    let answer = send(&client, "DELETE", &path, &to_cbor(options), "application/cbor");
    assert_eq!((answer.status, text(&from_cbor(&answer), &["reason"])), (409, "Conflict"));
    let partial = get(&client, &path, &PARTIAL.replace(PROTOBUF, "application/cbor"));
    assert_eq!(text(&from_cbor(&partial), &["kind"]), "PartialObjectMetadata");
    let table = "application/cbor;as=Table;g=meta.k8s.io;v=v1";
    let want = "only the following media types are accepted: application/json, application/yaml, \
                application/vnd.kubernetes.protobuf, application/cbor";
    assert_eq!(refusal(&get(&client, &path, table)), (406, want.to_owned()));
    let missing = get(&client, &format!("{MAPS}/none"), "application/cbor");
    assert_eq!((missing.status, text(&from_cbor(&missing), &["reason"])), (404, "NotFound"));
    server.stop();
}

#[test]
fn bytes_are_byte_strings_in_cbor() {
    let server = server(true);
    let client = server.client();
    let path = "/api/v1/namespaces/default/secrets";
    let body = serde_json::json!({"metadata": {"name": "s"}, "data": {"k": "AAH/"}});
    assert_eq!(client.post(path, &body).status, 201);
    let answer = get(&client, &format!("{path}/s"), "application/cbor");
    // Tag 22: bytes that are base64 in JSON.
    let bytes = [0xd6, 0x43, 0, 1, 0xff];
    assert!(answer.body.windows(bytes.len()).any(|found| found == bytes), "{answer:?}");
    assert_eq!(text(&from_cbor(&answer), &["data", "k"]), "AAH/");
    server.stop();
}

#[test]
fn a_watch_does_not_support_yaml() {
    let server = server(false);
    let answer = get(&server.client(), &format!("{MAPS}?watch=1"), "application/yaml");
    // The whole answer of kube-apiserver, which breaks long lines.
    let want = "apiVersion: v1\ncode: 406\nkind: Status\n\
                message: 'only the following media types are accepted: application/json;stream=watch,\n  \
                application/vnd.kubernetes.protobuf;stream=watch'\n\
                metadata: {}\nreason: NotAcceptable\nstatus: Failure\n";
    let body = String::from_utf8_lossy(&answer.body).into_owned();
    assert_eq!(answer.status, 406);
    assert_eq!(body, want);
    server.stop();
}

#[test]
fn bodies_are_accepted_up_to_a_nesting_depth() {
    let server = server(false);
    let client = server.client();
    let post = |path: &str, body: String| {
        client
            .raw_response("POST", path, "Content-Type: application/json\r\n", body.as_bytes())
            .status
    };
    let revision = |levels: usize| {
        let open = "[".repeat(levels);
        let close = "]".repeat(levels);
        format!(
            r#"{{"metadata": {{"name": "r{levels}"}}, "revision": 1,
                "data": {{"a": {open}{close}}}}}"#
        )
    };
    let revisions = "/apis/apps/v1/namespaces/default/controllerrevisions";
    let got = [200, 1_000, 500_000].map(|levels| post(revisions, revision(levels)));
    assert_eq!(got, [201, 400, 400]);
    let definition = |levels: usize| {
        let open = r#"{"not":"#.repeat(levels);
        let close = "}".repeat(levels);
        format!(
            r#"{{"metadata": {{"name": "ws.example.org"}}, "spec": {{"group": "example.org",
                "names": {{"kind": "W", "plural": "ws"}}, "scope": "Cluster", "versions": [{{
                "name": "v1", "served": true, "storage": true,
                "schema": {{"openAPIV3Schema": {open}{{}}{close}}}}}]}}}}"#
        )
    };
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let got = [1_000, 240].map(|levels| post(definitions, definition(levels)));
    assert_eq!(got[0], 400);
    assert!(matches!(got[1], 201 | 422), "{got:?}");
    server.stop();
}

/// Returns the items or rows of a list of any media type.
fn items(answer: &RawResponse, list: &str) -> Vec<Value> {
    let value = match answer.media_type.as_str() {
        "application/cbor" => from_cbor(answer),
        PROTOBUF => {
            let group = if list.starts_with("Partial") { "meta.k8s.io" } else { "" };
            from_protobuf(&schema(group, "v1", list), &answer.body).root.into()
        }
        _ => json::parse(&answer.body).expect("JSON").value,
    };
    let items = value.get("items").or_else(|| value.get("rows")).and_then(Value::as_array);
    items.unwrap_or_else(|| panic!("no items in {value:?}")).to_vec()
}

/// Long lists are encoded while they are sent, short ones before: both must be equal.
/// Table rows without the last cell, the age, which changes between two requests.
fn ageless(mut items: Vec<Value>) -> Vec<Value> {
    for row in items.iter_mut().filter_map(Value::as_object_mut) {
        if let Some(cells) = row.get_mut("cells").and_then(Value::as_array_mut) {
            cells.pop();
        }
    }
    items
}

#[test]
fn a_long_list_equals_its_pages_in_every_media_type() {
    let server = server(true);
    let client = server.client();
    let long = "x".repeat(1000);
    for i in 0..160 {
        let map = serde_json::json!({
            "metadata": {"name": format!("m-{i:03}")}, "data": {"k": long},
        });
        assert_eq!(client.post(MAPS, &map).status, 201);
        let event = serde_json::json!({
            "metadata": {"name": format!("e-{i:03}")}, "message": long, "reason": "R",
            "involvedObject": {"kind": "ConfigMap", "namespace": "default", "name": "m"},
        });
        assert_eq!(client.post("/api/v1/namespaces/default/events", &event).status, 201);
    }
    let events = "/api/v1/namespaces/default/events";
    let new_events = "/apis/events.k8s.io/v1/namespaces/default/events";
    let partial = PARTIAL_LIST.replace("vnd.kubernetes.protobuf", "json");
    let forms = [
        (MAPS, PROTOBUF, "ConfigMapList"),
        (MAPS, "application/cbor", ""),
        (MAPS, "application/json;as=Table;g=meta.k8s.io;v=v1", ""),
        (MAPS, PARTIAL_LIST, "PartialObjectMetadataList"),
        (MAPS, &partial, ""),
        (events, "application/json", ""),
        (new_events, "application/json", ""),
        (events, PROTOBUF, "EventList"),
    ];
    for (path, form, list) in forms {
        let got =
            |query: &str| ageless(items(&get(&client, &format!("{path}{query}"), form), list));
        let whole = got("");
        assert_eq!(whole.len(), 160, "{path} {form}");
        // The second time, the encoding cached in the entries is used.
        assert_eq!(got(""), whole, "{path} {form}");
        let page = client.get(&format!("{path}?limit=80")).body;
        let token = page["metadata"]["continue"].as_str().expect("a token");
        let paged = [got("?limit=80"), got(&format!("?limit=80&continue={token}"))].concat();
        assert_eq!(paged, whole, "{path} {form}");
    }
    server.stop();
}

#[test]
fn a_table_of_an_older_version_lists_metrics_as_they_are_stored() {
    let server = server(false);
    let client = server.client();
    let path = |version: &str| {
        format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers")
    };
    let metric = |name: &str, percent: u8| {
        serde_json::json!({"type": "Resource", "resource": {"name": name,
            "target": {"type": "Utilization", "averageUtilization": percent}}})
    };
    let body = serde_json::json!({
        "metadata": {"name": "h"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            "maxReplicas": 3, "minReplicas": 1,
            "metrics": [metric("cpu", 70), metric("memory", 50)]},
    });
    assert_eq!(client.post(&path("v2"), &body).status, 201);
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    for path in [path("v1"), format!("{}/h", path("v1")), path("v2")] {
        let answer: serde_json::Value =
            serde_json::from_slice(&get(&client, &path, table).body).expect("JSON");
        let targets = &answer["rows"][0]["cells"][2];
        assert_eq!(targets, "cpu: <unknown>/70%, memory: <unknown>/50%", "{path}");
    }
    server.stop();
}

#[test]
fn some_subresources_have_no_table() {
    let server = server(false);
    let client = server.client();
    let table = "application/json;as=Table;g=meta.k8s.io;v=v1";
    let pods = "/api/v1/namespaces/default/pods/p";
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c";
    for (path, status) in [
        (format!("{pods}/ephemeralcontainers"), 406),
        (format!("{pods}/resize"), 406),
        (format!("{pods}/status"), 404),
        (format!("{claims}/status"), 406),
        (claims.to_owned(), 404),
        ("/apis/certificates.k8s.io/v1/certificatesigningrequests/c/approval".to_owned(), 406),
    ] {
        assert_eq!(get(&client, &path, table).status, status, "{path}");
        let either = format!("{table},application/json");
        assert_eq!(get(&client, &path, &either).status, 404, "{path}");
    }
    server.stop();
}

/// Recorded from kube-apiserver 1.36.3.
#[test]
fn some_pages_answer_every_method() {
    let server = server(false);
    let client = server.client();
    for (path, status) in [
        ("/", 200),
        ("/index.html", 200),
        ("/apis", 200),
        ("/apis/", 200),
        ("/openapi/v2", 200),
        ("/openapi/v3", 200),
        ("/openapi/v3/api/v1", 200),
        ("/openapi/v3/none", 404),
        ("/openapi", 404),
        ("/api", 405),
        ("/apis/apps", 200),
        ("/apis/apps/v1", 405),
        ("/version", 405),
        ("/version/none", 404),
    ] {
        for method in ["POST", "DELETE"] {
            let answer = client.raw_response(method, path, "", b"{}");
            assert_eq!(answer.status, status, "{method} {path}");
        }
    }
    let unknown = client.raw_response("GET", "/version/none", "", &[]);
    let message = "the server could not find the requested resource".to_owned();
    assert_eq!(refusal(&unknown), (404, message));
    server.stop();
}

/// Recorded from kube-apiserver 1.36.3.
#[test]
fn the_accept_header_may_ask_for_indentation() {
    let server = server(false);
    let client = server.client();
    for (path, accept, is_pretty) in [
        ("/api", "application/json;pretty=1", true),
        ("/api", "application/json;pretty=true", false),
        (MAPS, "application/json;pretty=1", true),
        ("/api/v1/namespaces/default/configmaps/none?pretty=false", "*/*;pretty=1", true),
        ("/api/v1/namespaces/default/configmaps/none", "application/json", false),
    ] {
        let body = get(&client, path, accept).body;
        assert_eq!(body.starts_with(b"{\n  \"kind\""), is_pretty, "{path} {accept}");
    }
    server.stop();
}
