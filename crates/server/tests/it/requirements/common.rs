//! R-COMMON: the types that all groups share.

use super::world::{DEPLOYMENTS, deployment, everything, made, namespace, read, with_widgets};
use super::{MAPS, MERGE_PATCH, create, put, server};
use serde_json::{Value, json};

/// List options, delete options, lists, watch events and errors, of every kind.
///
/// Proves: R-COMMON-01.
#[test]
fn options_lists_events_and_errors_are_alike_for_every_kind() {
    let server = with_widgets();
    let client = server.client();
    for walked in everything() {
        let all = walked.all();
        let one = walked.one();
        let invalid = client.get(&format!("{all}?resourceVersionMatch=Exact"));
        assert_eq!((invalid.status, &invalid.body["reason"]), (422, &json!("Invalid")), "{all}");
        assert_eq!(invalid.body["details"]["causes"][0]["field"], "resourceVersionMatch", "{all}");
        let bad = client.get(&format!("{all}?resourceVersion=x"));
        assert_eq!((bad.status, &bad.body["code"]), (400, &json!(400)), "{all}: {bad:?}");
        let version = read(&client, &all)["metadata"]["resourceVersion"].clone();
        let obj = made(&client, &all, &walked.sample);
        let page = read(&client, &format!("{all}?limit=1&labelSelector=none%3Dsuch"));
        assert_eq!(page["items"], json!([]), "{all}");
        let query = format!(
            "watch=1&resourceVersion={}&timeoutSeconds=10",
            version.as_str().unwrap_or_default()
        );
        let event = &client.watch(&format!("{all}?{query}"), 1).expect("an event")[0];
        assert_eq!(
            (&event["type"], event.as_object().map(serde_json::Map::len)),
            (&json!("ADDED"), Some(2))
        );
        assert_eq!(event["object"]["metadata"]["uid"], obj["metadata"]["uid"], "{all}");
        let options =
            json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "x"}});
        let kept = client.call("DELETE", &one, "application/json", Some(&options));
        assert_eq!((kept.status, &kept.body["reason"]), (409, &json!("Conflict")), "{kept:?}");
        let dry = json!({"dryRun": ["All"]});
        assert_eq!(
            client.call("DELETE", &one, "application/json", Some(&dry)).status,
            200,
            "{one}"
        );
        assert_eq!(client.get(&one).status, 200, "{one}");
        let missing = client.get(&format!("{all}/none"));
        assert_eq!(
            (missing.status, &missing.body["details"]["name"]),
            (404, &json!("none")),
            "{all}"
        );
        assert_eq!(client.delete(&one).status, 200, "{one}");
    }
    server.stop();
}

/// Proves: R-COMMON-01, R-COMMON-06.
#[test]
fn a_scale_is_alike_for_every_kind_and_conflicts_like_its_object() {
    let server = with_widgets();
    let client = server.client();
    let mut scaled = 0;
    for walked in everything() {
        let all = walked.all();
        let one = walked.one();
        if !["deployments", "replicasets", "statefulsets", "replicationcontrollers", "widgets"]
            .contains(&&*walked.resource)
        {
            assert_eq!(client.get(&format!("{one}/scale")).status, 404, "{one}");
            continue;
        }
        scaled += 1;
        let obj = made(&client, &all, &walked.sample);
        let scale = read(&client, &format!("{one}/scale"));
        assert_eq!(
            (&scale["kind"], &scale["apiVersion"]),
            (&json!("Scale"), &json!("autoscaling/v1"))
        );
        for member in ["name", "namespace", "uid", "resourceVersion"] {
            assert_eq!(scale["metadata"][member], obj["metadata"][member], "{scale}");
        }
        let mut wanted = scale.clone();
        wanted["spec"]["replicas"] = json!(4);
        let done = put(&client, &format!("{one}/scale"), &wanted);
        assert_eq!(done["spec"]["replicas"], 4);
        let now = read(&client, &one);
        assert_eq!(done["metadata"]["resourceVersion"], now["metadata"]["resourceVersion"]);
        let count = if walked.resource == "widgets" { "size" } else { "replicas" };
        assert_eq!(now["spec"][count], 4, "{now}");
        wanted["spec"]["replicas"] = json!(5);
        let old = client.call("PUT", &format!("{one}/scale"), "application/json", Some(&wanted));
        assert_eq!((old.status, &old.body["reason"]), (409, &json!("Conflict")), "{old:?}");
        assert_eq!(client.delete(&one).status, 200);
    }
    assert_eq!(scaled, 5);
    server.stop();
}

/// Proves: R-COMMON-02, R-COMMON-03.
#[test]
fn delete_options_may_be_of_any_group() {
    let server = with_widgets();
    let client = server.client();
    let groups = read(&client, "/apis")["groups"].clone();
    let versions = groups.as_array().expect("groups").iter().flat_map(|group| {
        group["versions"]
            .as_array()
            .expect("versions")
            .iter()
            .map(|version| version["groupVersion"].clone())
    });
    let mut count = 0;
    for version in versions.chain([json!("v1"), json!("meta.k8s.io/v1")]) {
        create(&client, "a");
        let options =
            json!({"kind": "DeleteOptions", "apiVersion": version, "preconditions": {"uid": "x"}});
        let path = format!("{MAPS}/a");
        let kept = client.call("DELETE", &path, "application/json", Some(&options));
        assert_eq!(kept.status, 409, "{version}: {kept:?}");
        let options = json!({"kind": "DeleteOptions", "apiVersion": version});
        let gone = client.call("DELETE", &path, "application/json", Some(&options));
        assert_eq!(gone.status, 200, "{version}: {gone:?}");
        count += 1;
    }
    assert!(count > 20, "{count}");
    server.stop();
}

/// Proves: R-COMMON-04, R-COMMON-05.
#[test]
fn the_version_of_a_list_is_one_for_its_kind_and_namespace() {
    let server = server();
    let client = server.client();
    namespace(&client, "other");
    let number = |obj: &Value| -> u64 {
        let text = obj["metadata"]["resourceVersion"].as_str().expect("a version");
        text.parse().expect("a number")
    };
    let first = create(&client, "a");
    let list = read(&client, MAPS);
    assert!(number(&list) >= number(&first));
    let patch = json!({"data": {"v": "2"}});
    let changed = client.call("PATCH", &format!("{MAPS}/a"), MERGE_PATCH, Some(&patch)).body;
    // The change is after the list, for a watch of the same kind and namespace.
    let path = format!("{MAPS}?watch=1&resourceVersion={}", number(&list));
    let events = client.watch(&path, 1).expect("an event");
    assert_eq!(events[0]["object"], changed);
    let later = read(&client, MAPS);
    assert!(number(&later) >= number(&changed) && number(&changed) > number(&list));
    assert!(read(&client, MAPS)["items"][0]["metadata"]["resourceVersion"].is_string());
    assert_eq!(read(&client, "/api/v1/namespaces/other/configmaps")["items"], json!([]));
    server.stop();
}

/// Proves: R-COMMON-07.
#[test]
fn statuses_options_and_scales_are_not_stored() {
    let server = server();
    let client = server.client();
    for simple in ["statuses", "deleteoptions", "listoptions", "watchevents", "scales"] {
        for root in
            ["/api/v1", "/api/v1/namespaces/default", "/apis/autoscaling/v1/namespaces/default"]
        {
            let path = format!("{root}/{simple}");
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {"name": "s"}});
            assert_eq!(client.post(&path, &status).status, 404, "{path}");
            assert_eq!(client.get(&path).status, 404, "{path}");
        }
    }
    // A Scale is made of its object.
    let one = format!("{DEPLOYMENTS}/d");
    assert_eq!(client.get(&format!("{one}/scale")).status, 404);
    made(&client, DEPLOYMENTS, &deployment("d"));
    assert_eq!(client.post(&format!("{one}/scale"), &json!({"spec": {"replicas": 1}})).status, 405);
    assert_eq!(client.delete(&format!("{one}/scale")).status, 405);
    assert_eq!(client.delete(&one).status, 200);
    assert_eq!(client.get(&format!("{one}/scale")).status, 404);
    server.stop();
}
