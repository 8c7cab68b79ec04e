//! Resources that are added, changed and removed while the server runs, with only the producer
//! interface of the API table.

use crate::world::{Client, Server, without_accounts};
use keelson_meta::{Feature, GroupVersionKind, Str};
use keelson_resources::producer::{DefinedVersion, Definition};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Field, Presence, Schema, Shape, Struct, cbor};
use serde_json::{Value, json};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

/// Returns a schema with a number of strings in `spec`, and `status.ready`.
fn schema(version: &str, fields: usize) -> Schema {
    let mut root = None;
    let types = Catalogue::shared().types_with_object_meta(|meta, first| {
        let text = |name: String| Field::new(name, Shape::String);
        let spec = Struct::new("spec", (0..fields).map(|n| text(format!("field{n}"))).collect());
        let status = Struct::new("status", vec![Field::new("ready", Shape::Bool)]);
        let id = |n: u32| keelson_schema::StructId(first.0 + n);
        let metadata =
            Field { presence: Presence::Always, ..Field::new("metadata", Shape::Struct(meta)) };
        let widget = vec![
            Field::new("kind", Shape::String),
            Field::new("apiVersion", Shape::String),
            metadata,
            Field::new("spec", Shape::Struct(id(0))),
            Field::new("status", Shape::Struct(id(1))),
        ];
        root = Some(id(2));
        vec![spec, status, Struct::new("Widget", widget)]
    });
    let root = root.expect("the structs were made");
    let gvk = GroupVersionKind::new("example.com", Str::new(version), "Widget");
    Schema { gvk, types: types.into(), root }
}

fn version(name: &str, fields: usize) -> DefinedVersion {
    DefinedVersion {
        name: name.into(),
        is_served: true,
        schema: schema(name, fields),
        structural: None,
        scale: None,
        selectable: vec![],
        columns: Default::default(),
        has_status: true,
        deprecation: None,
        openapi: Default::default(),
    }
}

fn widgets(versions: Vec<DefinedVersion>) -> Definition {
    Definition {
        group: "example.com".into(),
        resource: "widgets".into(),
        singular: "widget".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        short_names: vec!["wd".into()],
        categories: vec![],
        namespaced: true,
        since: None,
        definition: None,
        storage_version: versions[0].name.clone(),
        versions,
    }
}

fn serve(server: &Server, definition: &Definition) {
    server.registry().serve(definition).expect("it can be served");
}

fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

fn read(client: &Client, path: &str, accept: &str) -> (u16, Value) {
    let answer = client.raw_response("GET", path, &format!("Accept: {accept}\r\n"), &[]);
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

fn patched(client: &Client, path: &str, form: &str, patch: &Value) -> (u16, Value) {
    let headers = format!("Content-Type: application/{form}\r\n");
    let answer = client.raw_response("PATCH", path, &headers, patch.to_string().as_bytes());
    (answer.status, serde_json::from_slice(&answer.body).unwrap_or_default())
}

#[test]
fn a_resource_added_at_run_time_has_every_verb_and_media_type() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    assert_eq!(client.get(WIDGETS).status, 404);
    serve(&server, &widgets(vec![version("v1", 2)]));
    let sent = widget("a", json!({"field0": "x", "other": 1}));
    let made = client.post(WIDGETS, &sent);
    assert_eq!((made.status, &made.body["spec"]), (201, &json!({"field0": "x"})));
    assert_eq!(made.body["metadata"]["generation"], 1);
    let revision =
        made.body["metadata"]["resourceVersion"].as_str().expect("a revision").to_owned();
    let one = format!("{WIDGETS}/a");
    let (code, merged) =
        patched(&client, &one, "merge-patch+json", &json!({"spec": {"field1": "y"}}));
    assert_eq!((code, &merged["spec"]), (200, &json!({"field0": "x", "field1": "y"})));
    assert_eq!(merged["metadata"]["generation"], 2);
    let apply = format!("{one}?fieldManager=m&force=true");
    let (code, applied) =
        patched(&client, &apply, "apply-patch+yaml", &widget("a", json!({"field1": "z"})));
    assert_eq!((code, &applied["spec"]["field1"]), (200, &json!("z")));
    assert_eq!(applied["metadata"]["managedFields"][0]["manager"], "m");
    let ready = json!({"status": {"ready": true}, "spec": {"field0": "no"}});
    let (code, status) = patched(&client, &format!("{one}/status"), "merge-patch+json", &ready);
    assert_eq!((code, &status["status"]["ready"]), (200, &json!(true)));
    assert_eq!(
        (&status["spec"]["field0"], &status["metadata"]["generation"]),
        (&json!("x"), &json!(3))
    );
    let seen = client
        .watch(&format!("{WIDGETS}?watch=1&resourceVersion={revision}"), 3)
        .expect("three changes");
    assert!(seen.iter().all(|event| event["type"] == "MODIFIED"), "{seen:?}");

    let list = client.get(WIDGETS).body;
    assert_eq!(
        (&list["kind"], &list["items"][0]["metadata"]["name"]),
        (&json!("WidgetList"), &json!("a"))
    );
    let (_, table) = read(&client, WIDGETS, "application/json;as=Table;g=meta.k8s.io;v=v1");
    assert_eq!(table["rows"][0]["cells"][0], "a");
    let (_, partial) =
        read(&client, WIDGETS, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1");
    assert_eq!(partial["items"][0]["metadata"]["name"], "a");
    assert_eq!(
        client.raw_response("GET", WIDGETS, "Accept: application/yaml\r\n", &[]).status,
        200
    );

    let deleted = client.delete(&one);
    assert_eq!((deleted.status, client.get(&one).status), (200, 404));
}

#[test]
fn a_resource_added_at_run_time_supports_every_encoding() {
    let mut options = without_accounts();
    options.features = options.features.with(Feature::CBORServingAndStorage, true);
    let server = Server::start_plain(options);
    let client = server.client();
    serve(&server, &widgets(vec![version("v1", 2)]));
    let post = |form: &str, body: &[u8]| {
        let headers = format!("Content-Type: {form}\r\nAccept: {form}\r\n");
        let made = client.raw_response("POST", WIDGETS, &headers, body);
        assert_eq!((made.status, made.media_type.as_str()), (201, form), "{made:?}");
    };
    post("application/json", widget("a", json!({"field0": "x"})).to_string().as_bytes());
    post("application/yaml", format!("{}\n", widget("b", json!({"field0": "x"}))).as_bytes());
    let mut sent = vec![];
    let text = widget("c", json!({"field0": "x"})).to_string();
    cbor::write_body(&keelson_schema::json::parse(text.as_bytes()).expect("JSON").value, &mut sent);
    post("application/cbor", &sent);

    let protobuf = "application/vnd.kubernetes.protobuf";
    let partial = format!("{protobuf};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
    for name in ["a", "b", "c"] {
        let read = |accept: &str| {
            let path = format!("{WIDGETS}/{name}");
            let answer = client.raw_response("GET", &path, &format!("Accept: {accept}\r\n"), &[]);
            (answer.status, answer.media_type, answer.body)
        };
        let (code, media_type, body) = read("application/cbor");
        assert_eq!((code, media_type.as_str()), (200, "application/cbor"));
        let found = cbor::parse(&body).expect("CBOR");
        assert_eq!(found.str_at(&["spec", "field0"]), Some("x"), "{found:?}");
        let (code, media_type, body) = read("application/yaml");
        assert_eq!((code, media_type.as_str()), (200, "application/yaml"));
        assert!(String::from_utf8_lossy(&body).contains("field0: x"));
        // Protobuf has no message for a custom resource, but for its metadata.
        assert_eq!(read(protobuf).0, 406);
        assert_eq!(read(&format!("{protobuf},application/json")).1, "application/json");
        let (code, media_type, _) = read(&partial);
        assert_eq!(code, 200);
        assert!(media_type.starts_with(protobuf), "{media_type}");
    }
    server.stop();
}

/// Returns the resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a proc file system");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    let kilobytes = line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number");
    kilobytes << 10
}

#[test]
fn five_thousand_resources_of_twenty_fields_stay_below_250_megabytes() {
    let server = Server::start_plain(without_accounts());
    let before = resident_bytes();
    for number in 0..5_000 {
        let group = format!("g{number}.example.com");
        let mut version = version("v1", 20);
        version.schema.gvk.group = group.as_str().into();
        serve(&server, &Definition { group: group.into(), ..widgets(vec![version]) });
    }
    let path = "/apis/g4999.example.com/v1/namespaces/default/widgets";
    let mut sent = widget("a", json!({"field19": "x"}));
    sent["apiVersion"] = "g4999.example.com/v1".into();
    assert_eq!(server.client().post(path, &sent).status, 201);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 250 << 20, "{} MB", grown >> 20);
    server.stop();
}

#[test]
fn discovery_and_openapi_contain_a_resource_while_it_is_served() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let (_, openapi) = read(&client, "/openapi/v3", "application/json");
    assert!(openapi["paths"].get("apis/example.com/v1").is_none());
    serve(&server, &widgets(vec![version("v1", 2), version("v2beta1", 2), version("v2", 2)]));
    let group = client.get("/apis/example.com").body;
    let names: Vec<_> = group["versions"].as_array().into_iter().flatten().collect();
    let names: Vec<_> = names.iter().map(|version| version["version"].as_str()).collect();
    assert_eq!(names, [Some("v2"), Some("v1"), Some("v2beta1")]);
    let resources = client.get("/apis/example.com/v2").body;
    assert_eq!(resources["resources"][0]["shortNames"], json!(["wd"]));
    assert_eq!(resources["resources"][1]["name"], "widgets/status");
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let (_, all) = read(&client, "/apis", aggregated);
    let last = all["items"].as_array().and_then(|items| items.last()).expect("groups");
    assert_eq!(last["metadata"]["name"], "example.com");
    let (_, openapi) = read(&client, "/openapi/v3", "application/json");
    let url = &openapi["paths"]["apis/example.com/v1"]["serverRelativeURL"];
    let (code, document) = read(&client, url.as_str().expect("a document"), "application/json");
    assert_eq!(code, 200);
    assert!(document["components"]["schemas"].get("com.example.v1.WidgetList").is_some());
    let path = "/apis/example.com/v1/namespaces/{namespace}/widgets/{name}/status";
    assert!(document["paths"].get(path).is_some());
    assert!(server.registry().withdraw("example.com", "widgets"));
    assert_eq!(client.get("/apis/example.com").status, 404);
    let (_, openapi) = read(&client, "/openapi/v3", "application/json");
    assert!(openapi["paths"].get("apis/example.com/v1").is_none());
}

#[test]
fn the_etag_of_the_openapi_index_changes_with_served_resources() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let tag = || client.get("/openapi/v3").header("etag").expect("a tag").to_owned();
    let code = |tag: &str| {
        let known = format!("If-None-Match: {tag}\r\n");
        client.raw_response("GET", "/openapi/v3", &known, &[]).status
    };
    let before = tag();
    assert_eq!((&tag(), code(&before)), (&before, 304));
    serve(&server, &widgets(vec![version("v1", 2)]));
    assert_eq!(code(&before), 200);
    assert_eq!(code(&tag()), 304);
    server.stop();
}

/// Only the changed groups of the API table are rebuilt.
#[test]
fn incremental_discovery_indexes_equal_rebuilt_ones() {
    let followed = Server::start_plain(without_accounts());
    let fresh = Server::start_plain(without_accounts());
    let aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let indexes = |server: &Server| {
        let client = server.client();
        ["/openapi/v3", "/apis", "/api"].map(|path| {
            let accept = format!("Accept: {aggregated}, */*\r\n");
            let found = client.request("GET", path, &accept, None);
            let tag = found.header("etag").expect("a tag").to_owned();
            let known = format!("{accept}If-None-Match: {tag}\r\n");
            assert_eq!(client.raw_response("GET", path, &known, &[]).status, 304, "{path}");
            (path, tag, found.body)
        })
    };
    let others = |resource: &str, group: &str| Definition {
        group: group.into(),
        resource: resource.into(),
        ..widgets(vec![version("v1", 2)])
    };
    let registry = followed.registry();
    let before = indexes(&followed);
    for definition in [
        others("gadgets", "a-b.example.com"),
        others("gadgets", "a.example.com"),
        widgets(vec![version("v1", 2)]),
        others("gizmos", "example.com"),
        widgets(vec![version("v2", 3), version("v1", 2)]),
    ] {
        registry.serve(&definition).expect("it is served");
        indexes(&followed);
    }
    assert!(registry.withdraw("a.example.com", "gadgets"));
    serve(&fresh, &widgets(vec![version("v2", 3), version("v1", 2)]));
    serve(&fresh, &others("gizmos", "example.com"));
    serve(&fresh, &others("gadgets", "a-b.example.com"));
    let after = indexes(&followed);
    assert_eq!(after, indexes(&fresh));
    assert_ne!((&after[0], &after[1]), (&before[0], &before[1]));
    assert_eq!(after[2], before[2], "the core group has not changed");
    followed.stop();
    fresh.stop();
}

#[test]
fn a_changed_resource_uses_its_new_schema_and_only_its_watches_end() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    serve(&server, &widgets(vec![version("v1", 2)]));
    let made = client.post(WIDGETS, &widget("a", json!({"field0": "x", "field1": "y"}))).body;
    let revision = made["metadata"]["resourceVersion"].as_str().expect("a revision");
    let maps = "/api/v1/namespaces/default/configmaps";
    let mut own = client.open_watch(&format!("{WIDGETS}?watch=1&resourceVersion={revision}"));
    let mut other = client.open_watch(&format!("{maps}?watch=1&resourceVersion={revision}"));
    serve(&server, &widgets(vec![version("v2", 2), version("v1", 1)]));
    assert_eq!(own.next(), Err("the watch ended".to_owned()));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    assert_eq!(client.post(maps, &map).status, 201);
    assert_eq!(other.next_types_and_names(1), [("ADDED".to_owned(), "m".to_owned())]);
    let old = client.get(&format!("{WIDGETS}/a")).body;
    assert_eq!(
        (&old["apiVersion"], &old["spec"]),
        (&json!("example.com/v1"), &json!({"field0": "x"}))
    );
    let new = client.get("/apis/example.com/v2/namespaces/default/widgets").body;
    assert_eq!(new["items"][0]["apiVersion"], "example.com/v2");
    assert!(server.registry().withdraw("example.com", "widgets"));
    assert_eq!(client.get(WIDGETS).status, 404);
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}});
    assert_eq!(client.post(maps, &map).status, 201);
    assert_eq!(other.next_types_and_names(1), [("ADDED".to_owned(), "n".to_owned())]);
    serve(&server, &widgets(vec![version("v1", 2)]));
    assert_eq!(client.get(WIDGETS).body["items"][0]["metadata"]["name"], "a");
}

#[test]
fn objects_of_a_disabled_version_are_readable_in_other_versions() {
    let dir = tempfile::tempdir().expect("a folder");
    let start = |config: &[(String, bool)]| {
        let options = without_accounts().data_dir(dir.path());
        Server::start_plain(options.with(|options| options.runtime_config = config.to_vec()))
    };
    let off = [("autoscaling/v2".to_owned(), false)];
    let places = |version: &str| {
        format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers")
    };
    let autoscaler = |version: &str, name: &str, spec: Value| {
        let mut spec = spec;
        spec["scaleTargetRef"] =
            json!({"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"});
        spec["maxReplicas"] = 3.into();
        json!({"apiVersion": format!("autoscaling/{version}"), "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name}, "spec": spec})
    };
    let server = start(&[]);
    let metrics = json!({"metrics": [{"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": 50}}}]});
    let made = server.client().post(&places("v2"), &autoscaler("v2", "a", metrics.clone()));
    assert_eq!(made.status, 201, "{made:?}");
    server.stop();
    let server = start(&off);
    let client = server.client();
    assert_eq!(client.get(&places("v2")).status, 404);
    let old = client.get(&format!("{}/a", places("v1"))).body;
    assert_eq!(old["apiVersion"], "autoscaling/v1");
    assert_eq!(old["spec"]["targetCPUUtilizationPercentage"], 50);
    let v1 = autoscaler("v1", "b", json!({"targetCPUUtilizationPercentage": 70}));
    assert_eq!(client.post(&places("v1"), &v1).status, 201);
    server.stop();
    let server = start(&[]);
    let new = server.client().get(&places("v2")).body;
    let percents =
        new["items"].as_array().into_iter().flatten().map(|item| {
            item["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"].clone()
        });
    assert_eq!(percents.collect::<Vec<_>>(), [json!(50), json!(70)]);
    server.stop();
}
