//! R-ALLOC: addresses and ports of services, and where allocated values stand.

use super::world::{DEFINITIONS, SERVICES, define, invalid, made, read, widget_definition};
use super::{MERGE_PATCH, patch, server};
use serde_json::{Value, json};

fn service(name: &str, spec: Value) -> Value {
    let mut obj =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec});
    obj["spec"]["ports"] = json!([{"port": 80}]);
    obj
}

/// Proves: R-ALLOC-01, R-ALLOC-02, R-ALLOC-09.
#[test]
fn an_address_is_allocated_or_reserved_or_refused() {
    let server = server();
    let client = server.client();
    let first = made(&client, SERVICES, &service("first", json!({})));
    let address = first["spec"]["clusterIP"].as_str().expect("an address").to_owned();
    assert_eq!(read(&client, &format!("{SERVICES}/first"))["spec"]["clusterIP"], *address);
    let given = made(&client, SERVICES, &service("given", json!({"clusterIP": "10.0.0.200"})));
    assert_eq!(given["spec"]["clusterIP"], "10.0.0.200");
    for wrong in ["10.0.0.200", &address, "192.0.2.1", "10.0.0"] {
        let answer = client.post(SERVICES, &service("wrong", json!({"clusterIP": wrong})));
        let causes = answer.body["details"]["causes"].as_array().expect("causes");
        let named = causes.iter().all(|cause| {
            cause["field"].as_str().is_some_and(|field| field.starts_with("spec.clusterIPs"))
        });
        assert!(answer.status == 422 && named, "{wrong}: {answer:?}");
        assert_eq!(client.get(&format!("{SERVICES}/wrong")).status, 404);
    }
    // Freed with its service.
    assert_eq!(client.delete(&format!("{SERVICES}/given")).status, 200);
    made(&client, SERVICES, &service("again", json!({"clusterIP": "10.0.0.200"})));
    // External addresses are taken as they are.
    let external = made(&client, SERVICES, &service("e", json!({"externalIPs": ["198.51.100.7"]})));
    assert_eq!(external["spec"]["externalIPs"], json!(["198.51.100.7"]));
    let own = service("own", json!({"externalIPs": ["127.0.0.1"]}));
    invalid(&client.post(SERVICES, &own), &["spec.externalIPs[0]"]);
    server.stop();
}

/// Proves: R-ALLOC-03, R-ALLOC-04, R-ALLOC-05.
#[test]
fn ports_are_allocated_and_a_change_of_type_frees_what_it_clears() {
    let server = server();
    let client = server.client();
    let with_port = |name: &str, port: i64| {
        let mut obj = service(name, json!({"type": "NodePort"}));
        obj["spec"]["ports"] = json!([{"port": 80, "nodePort": port}]);
        obj
    };
    let first = made(&client, SERVICES, &service("first", json!({"type": "NodePort"})));
    let port = first["spec"]["ports"][0]["nodePort"].as_i64().expect("a port");
    assert!((30000..=32767).contains(&port), "{port}");
    assert_eq!(
        made(&client, SERVICES, &with_port("given", 30123))["spec"]["ports"][0]["nodePort"],
        30123
    );
    for wrong in [port, 30123, 80] {
        invalid(&client.post(SERVICES, &with_port("wrong", wrong)), &["spec.ports[0].nodePort"]);
    }
    // To another type: the port is gone and free.
    let one = format!("{SERVICES}/first");
    let plain = patch(&client, &one, MERGE_PATCH, &json!({"spec": {"type": "ClusterIP"}}));
    assert_eq!(plain["spec"]["ports"][0].get("nodePort"), None);
    made(&client, SERVICES, &with_port("second", port));
    // To an external name: address and ports.
    let address = &read(&client, &format!("{SERVICES}/second"))["spec"]["clusterIP"];
    let outside = json!({"spec": {"type": "ExternalName", "externalName": "example.com"}});
    let done = patch(&client, &format!("{SERVICES}/second"), MERGE_PATCH, &outside)["spec"].clone();
    assert_eq!((done.get("clusterIP"), done.get("clusterIPs")), (None, None), "{done}");
    assert_eq!(done["ports"][0].get("nodePort"), None, "{done}");
    let mut again = with_port("third", port);
    again["spec"]["clusterIP"] = address.clone();
    made(&client, SERVICES, &again);
    server.stop();
}

/// What is asked for stands in spec, the outcome in status, which others write.
///
/// Proves: R-ALLOC-06, R-ALLOC-08.
#[test]
fn outcomes_are_reported_in_status() {
    let server = server();
    let client = server.client();
    let asked = service("lb", json!({"type": "LoadBalancer", "loadBalancerIP": "192.0.2.5"}));
    let stored = made(&client, SERVICES, &asked);
    let outcome = (&stored["spec"]["loadBalancerIP"], &stored["status"]);
    assert_eq!(outcome, (&json!("192.0.2.5"), &json!({"loadBalancer": {}})));
    let given = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}});
    let ignored = patch(&client, &format!("{SERVICES}/lb"), MERGE_PATCH, &given);
    assert_eq!(ignored["status"], json!({"loadBalancer": {}}));
    let done = patch(&client, &format!("{SERVICES}/lb/status"), MERGE_PATCH, &given);
    assert_eq!(done["status"]["loadBalancer"]["ingress"][0]["ip"], "192.0.2.9");
    assert_eq!(done["spec"]["loadBalancerIP"], "192.0.2.5");
    // Snapshots of volumes are custom resources.
    let mut definition = widget_definition();
    definition["metadata"] = json!({"name": "volumesnapshots.snapshot.storage.k8s.io",
        "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-csi/external-snapshotter/pull/814"}});
    let spec = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    definition["spec"] = json!({"group": "snapshot.storage.k8s.io", "scope": "Namespaced",
        "names": {"plural": "volumesnapshots", "kind": "VolumeSnapshot"},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec, "status": spec}}}}]});
    define(&client, &definition);
    let path = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";
    let snapshot = json!({"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": {"name": "s"}, "spec": {"source": {"persistentVolumeClaimName": "c"}},
        "status": {"readyToUse": true}});
    let stored = made(&client, path, &snapshot);
    assert_eq!((&stored["spec"], stored.get("status")), (&snapshot["spec"], None));
    let ready =
        json!({"status": {"readyToUse": true, "restoreSize": "1Gi"}, "spec": {"source": {}}});
    let done = patch(&client, &format!("{path}/s/status"), MERGE_PATCH, &ready);
    assert_eq!((&done["status"], &done["spec"]), (&ready["status"], &snapshot["spec"]));
    assert_eq!(
        client.get(&format!("{DEFINITIONS}/volumesnapshots.snapshot.storage.k8s.io")).status,
        200
    );
    server.stop();
}
