//! Small answers that clients rely on: unusual selectors, media types and paths, the version,
//! ports.

use crate::world::{Client, Server, without_accounts};
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

fn message(body: &Value) -> &str {
    body["message"].as_str().unwrap_or_default()
}

/// Checks the status and the message of a GET.
#[track_caller]
fn check(client: &Client, path: &str, want: (u16, &str)) {
    let answer = client.get(path);
    assert_eq!((answer.status, message(&answer.body)), want, "{path}");
}

/// Each kind has its own set of fields for selectors, and its own text for others.
#[test]
fn field_selectors_are_those_of_the_kind() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let refused = |path: &str, field: &str, why: &str| {
        check(&client, &format!("{path}?fieldSelector={field}%3Dx"), (400, why));
    };
    let accepted = |path: &str, field: &str| {
        check(&client, &format!("{path}?fieldSelector={field}%3Dx"), (200, ""));
    };
    let namespace = "metadata.namespace";
    let requests = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    for path in ["/api/v1/nodes", "/api/v1/namespaces", requests] {
        refused(path, namespace, "field label not supported: metadata.namespace");
    }
    accepted("/api/v1/persistentvolumes", namespace);
    accepted("/api/v1/pods", namespace);
    let slices = "/apis/resource.k8s.io/v1/resourceslices";
    let slice = "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: ";
    refused(slices, namespace, &format!("{slice}metadata.namespace"));
    refused(slices, "spec.x", &format!("{slice}spec.x"));
    accepted(slices, "spec.driver");
    refused("/apis/batch/v1/jobs", "a.b", "field label \"a.b\" not supported for Job");
    let core = "/api/v1/events";
    let new = "/apis/events.k8s.io/v1/events";
    let object = ["apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"];
    for name in object {
        let involved = format!("involvedObject.{name}");
        let regarding = format!("regarding.{name}");
        accepted(core, &involved);
        accepted(new, &regarding);
        refused(core, &regarding, &format!("field label not supported: {regarding}"));
        refused(new, &involved, &format!("field label not supported: {involved}"));
    }
    accepted(core, "source");
    accepted(new, "reportingController");
    refused(new, "source", "field label not supported: source");
    refused(core, "reportingController", "field label not supported: reportingController");
    let other = "fieldSelector metadata.name doesn't match requested name";
    refused("/api/v1/watch/nodes/n", "metadata.name", other);
    server.stop();
}

/// What a review answers has no columns; its metadata can be had alone.
#[test]
fn reviews_are_no_tables() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let post = |path: &str, media: &str, body: &Value| {
        let headers = format!("Accept: {media}\r\nContent-Type: application/json\r\n");
        client.send_bytes(&format!("POST {path}"), &headers, body.to_string().as_bytes())
    };
    let only = "only the following media types are accepted: application/json, application/yaml, \
                application/vnd.kubernetes.protobuf";
    let access = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let rows = [
        ("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &access),
        ("/apis/authentication.k8s.io/v1/selfsubjectreviews", &json!({})),
        ("/api/v1/namespaces/default/serviceaccounts/none/token", &json!({"spec": {}})),
        ("/api/v1/namespaces/default/bindings", &json!({"metadata": {"name": "none"}})),
        ("/api/v1/namespaces/default/pods/none/eviction", &json!({})),
    ];
    for (path, body) in rows {
        let answer = post(path, TABLE, body);
        assert_eq!((answer.status, message(&answer.body)), (406, only), "{path}");
    }
    let (path, body) = rows[1];
    let whole = post(path, &format!("{TABLE},application/json"), body);
    assert_eq!((whole.status, &whole.body["kind"]), (201, &json!("SelfSubjectReview")));
    let partial = post(path, PARTIAL, body);
    assert_eq!((partial.status, &partial.body["kind"]), (201, &json!("PartialObjectMetadata")));
    assert_eq!(partial.body.get("status"), None);
    server.stop();
}

/// Slashes at the end of a discovery path are ignored; a missing name is named.
#[test]
fn superfluous_slashes_and_missing_names() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    for (path, kind) in [
        ("/api//", "APIVersions"),
        ("/api/v1//", "APIResourceList"),
        ("/apis/apps//", "APIGroup"),
        ("/apis/apps/v1//", "APIResourceList"),
        ("/apis/", "APIGroupList"),
    ] {
        let answer = client.get(path);
        assert_eq!((answer.status, &answer.body["kind"]), (200, &json!(kind)), "{path}");
    }
    assert_eq!(client.get("/version//").status, 200);
    for path in ["/apis//", "/apis//apps", "/openapi/v2/", "/openapi/v3/"] {
        assert_eq!(client.get(path).status, 404, "{path}");
    }
    let missing = "name must be provided";
    let no_method = "the server does not allow this method on the requested resource";
    let nowhere = "the server could not find the requested resource";
    let pods = "/api/v1/namespaces/default/pods/";
    for (method, path, want) in [
        ("GET", format!("{pods}/log"), (400, missing)),
        ("GET", format!("{pods}/status"), (400, missing)),
        ("PUT", format!("{pods}/status"), (400, missing)),
        ("POST", format!("{pods}/eviction"), (400, missing)),
        ("POST", format!("{pods}/log"), (405, no_method)),
        ("DELETE", format!("{pods}/status"), (405, no_method)),
        ("GET", "/api/v1/nodes//proxy/x".to_owned(), (400, missing)),
        ("PUT", "/api/v1/namespaces//finalize".to_owned(), (400, missing)),
        ("GET", "/api/v1/pods//log".to_owned(), (404, nowhere)),
        ("GET", "/api//v1".to_owned(), (404, nowhere)),
    ] {
        let answer = client.call(method, &path, "application/json", None);
        assert_eq!((answer.status, message(&answer.body)), want, "{method} {path}");
    }
    server.stop();
}

/// `kubectl --match-server-version` compares these three with those of its own release.
#[test]
fn the_version_is_that_of_a_release() {
    let server = Server::start_plain(without_accounts());
    let version = server.client().get("/version").body;
    assert_eq!(version["gitVersion"], keelson_server::KUBERNETES_VERSION);
    let commit = version["gitCommit"].as_str().unwrap_or_default();
    assert_eq!(commit.len(), 40, "{commit}");
    assert!(commit.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f')), "{commit}");
    assert_eq!(version["gitTreeState"], "clean");
    server.stop();
}

/// Ports that nobody asked for lie above those that manifests name, and are not in a sequence. What
/// a Service gives up in an update can be taken by another of its ports.
#[test]
fn node_ports_are_random_and_can_be_swapped() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let path = "/api/v1/namespaces/default/services";
    let service = |ports: &[(i64, Option<i64>)]| {
        let port = |(port, node): &(i64, Option<i64>)| json!({"name": format!("p{port}"), "port": port, "nodePort": node});
        let ports: Vec<Value> = ports.iter().map(port).collect();
        json!({"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": ports}})
    };
    let taken = |body: &Value| -> Vec<i64> {
        let ports = body["spec"]["ports"].as_array().expect("the ports");
        ports.iter().filter_map(|port| port["nodePort"].as_i64()).collect()
    };
    let any: Vec<_> = (1..=20).map(|port| (port, None)).collect();
    let created = client.post(path, &service(&any));
    let ports = taken(&created.body);
    assert_eq!((created.status, ports.len()), (201, 20));
    assert!(ports.iter().all(|port| (30_086..=32_767).contains(port)), "{ports:?}");
    let steps: std::collections::BTreeSet<i64> =
        ports.windows(2).map(|two| two[1] - two[0]).collect();
    assert!(steps.len() > 2, "they are in a sequence: {ports:?}");
    let put = |ports: &[(i64, Option<i64>)]| {
        let body = service(ports);
        client.call("PUT", &format!("{path}/s"), "application/json", Some(&body))
    };
    let [one, two] = [ports[0], ports[1]];
    let swapped = put(&[(1, Some(two)), (2, Some(one))]);
    assert_eq!((swapped.status, taken(&swapped.body)), (200, vec![two, one]));
    let moved = put(&[(1, None), (2, Some(two))]);
    let [new, kept] = taken(&moved.body)[..] else { panic!("{}", moved.body) };
    assert_eq!((moved.status, kept), (200, two));
    assert!(new != two, "{new}");
    server.stop();
}

/// Bodies and preconditions that do not fit the URL, with the words of the kind.
#[test]
fn what_does_not_fit_the_url_is_refused_in_upstreams_words() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let send = |method: &str, path: &str, body: &Value| {
        let answer = client.call(method, path, "application/json", Some(body));
        (answer.status, message(&answer.body).to_owned())
    };
    // A wrong body is reported before the object is looked up.
    let place = "/apis/apps/v1/namespaces/default/deployments/none/scale";
    for (metadata, code, want) in [
        (
            json!({}),
            400,
            "the name of the object (none based on URL) was undeterminable: name must be provided",
        ),
        (
            json!({"name": "other"}),
            400,
            "the name of the object (other) does not match the name on the URL (none)",
        ),
        (json!({"name": "none"}), 404, "deployments.apps \"none\" not found"),
    ] {
        let scale = json!({"metadata": metadata, "spec": {"replicas": 1}});
        assert_eq!(send("PUT", place, &scale), (code, want.to_owned()), "{scale}");
    }
    let odd = json!({"metadata": {"name": "none"}, "spec": {"x": 1}});
    let warned = client.call("PUT", place, "application/json", Some(&odd));
    assert_eq!(warned.header("warning"), Some("299 - \"unknown field \\\"spec.x\\\"\""));
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let schema = json!({"openAPIV3Schema": {"type": "object"}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    let names = json!({"plural": "as", "singular": "a", "kind": "A"});
    let definition = json!({"metadata": {"name": "as.a.example"}, "spec": {
        "group": "a.example", "scope": "Cluster", "names": names, "versions": [version]}});
    assert_eq!(client.post(definitions, &definition).status, 201);
    let path = format!("{definitions}/as.a.example");
    // Its conditions are written meanwhile.
    client.poll(&path, |definition| {
        let conditions = definition.body["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|condition| condition["type"] == "Established")
    });
    for (member, what) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let metadata = client.get(&path).body["metadata"].clone();
        let stored = metadata[member].as_str().expect("a text");
        let options = json!({"preconditions": {member: "99999"}});
        let want = format!(
            "Operation cannot be fulfilled on customresourcedefinitions.apiextensions.k8s.io \
             \"as.a.example\": Precondition failed: {what} in precondition: 99999, {what} in object \
             meta: {stored}"
        );
        assert_eq!(send("DELETE", &path, &options), (409, want));
    }
    server.stop();
}
