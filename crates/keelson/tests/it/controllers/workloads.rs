//! Controllers of endpoints, disruption budgets, finished Jobs, and protection of volumes and
//! claims. Expected objects are those that kube-controller-manager 1.36.2 writes.

use super::{MERGE, create, wait_deleted, wait_until, with_controllers};
use crate::http::Client;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ENDPOINTS: &str = "/api/v1/namespaces/default/endpoints";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";

fn patch(client: &Client, path: &str, patch: &Value) {
    let patched = client.call("PATCH", path, MERGE, Some(patch));
    assert_eq!(patched.status, 200, "{patched:?}");
}

/// Returns a Pod of app `a` on the node `n`.
fn pod(client: &Client, name: &str, ip: &str, ready: bool) {
    let spec = json!({"nodeName": "n", "containers": [
        {"name": "c", "image": "i", "ports": [{"name": "web", "containerPort": 8080}]}]});
    create(
        client,
        PODS,
        &json!({"metadata": {"name": name, "labels": {"app": "a"}}, "spec": spec}),
    );
    let ready = if ready { "True" } else { "False" };
    let status = json!({"status": {"phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
        "conditions": [{"type": "Ready", "status": ready,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    patch(client, &format!("{PODS}/{name}/status"), &status);
}

fn service(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"l": name}}, "spec": spec})
}

/// Returns endpoints and ports of the EndpointSlices of a Service.
fn slices(client: &Client, service: &str) -> Vec<(Value, Value)> {
    let path = format!("{SLICES}?labelSelector=kubernetes.io/service-name={service}");
    let list = client.get(&path).body;
    let slices = list["items"].as_array().into_iter().flatten();
    slices.map(|slice| (slice["endpoints"].clone(), slice["ports"].clone())).collect()
}

/// Proves: R-KIND-30.
#[test]
fn endpoints_and_slices_of_a_service_follow_its_pods() {
    let server = with_controllers();
    let client = server.client();
    let node = json!({"metadata": {"name": "n", "labels": {"topology.kubernetes.io/zone": "z"}}});
    create(&client, "/api/v1/nodes", &node);
    pod(&client, "ready", "10.1.0.1", true);
    pod(&client, "waiting", "10.1.0.2", false);
    let ports = json!([{"name": "http", "port": 80, "targetPort": "web"}]);
    create(&client, SERVICES, &service("s", json!({"selector": {"app": "a"}, "ports": ports})));
    let path = format!("{ENDPOINTS}/s");
    let endpoints = client.poll(&path, |got| got.body["subsets"].is_array()).body;
    let metadata = &endpoints["metadata"];
    let labels = json!({"endpoints.kubernetes.io/managed-by": "endpoint-controller", "l": "s"});
    assert_eq!(metadata["labels"], labels);
    let trigger = "endpoints.kubernetes.io/last-change-trigger-time";
    assert_eq!(metadata["annotations"][trigger], "2026-01-01T00:00:00Z");
    assert_eq!(metadata["managedFields"][0]["manager"], "kube-controller-manager");
    let subset = &endpoints["subsets"][0];
    assert_eq!(subset["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    let ip = |name: &str| subset[name][0]["ip"].clone();
    assert_eq!((ip("addresses"), ip("notReadyAddresses")), ("10.1.0.1".into(), "10.1.0.2".into()));
    let target = &subset["addresses"][0]["targetRef"];
    assert_eq!((&target["kind"], &target["name"]), (&"Pod".into(), &"ready".into()));

    wait_until("the slice is there", || slices(&client, "s").len() == 1);
    let (endpoints, ports) = slices(&client, "s").remove(0);
    assert_eq!(ports, json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    let facts = |at: usize| {
        let one = &endpoints[at];
        json!([one["addresses"][0], one["conditions"], one["nodeName"], one["zone"]])
    };
    let conditions = |is: bool| json!({"ready": is, "serving": is, "terminating": false});
    assert_eq!(facts(0), json!(["10.1.0.1", conditions(true), "n", "z"]));
    assert_eq!(facts(1), json!(["10.1.0.2", conditions(false), "n", "z"]));

    // One Pod becomes ready, the other one is deleted.
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    patch(&client, &format!("{PODS}/waiting/status"), &ready);
    assert_eq!(client.delete(&format!("{PODS}/ready?gracePeriodSeconds=0")).status, 200);
    let is_second = |addresses: &Value| addresses.as_array().is_some_and(|all| all.len() == 1);
    client.poll(&path, |got| {
        let subset = &got.body["subsets"][0];
        is_second(&subset["addresses"]) && subset["addresses"][0]["ip"] == "10.1.0.2"
    });
    wait_until("the slice follows", || {
        let (endpoints, _) = slices(&client, "s").remove(0);
        is_second(&endpoints) && endpoints[0]["conditions"]["ready"] == true
    });
    assert_eq!(client.delete(&format!("{SERVICES}/s")).status, 200);
    wait_deleted(&client, &path);
    wait_until("slices go with their service", || slices(&client, "s").is_empty());
    server.stop();
}

#[test]
fn endpoints_of_a_user_are_mirrored_to_slices() {
    let server = with_controllers();
    let client = server.client();
    create(&client, SERVICES, &service("free", json!({"ports": [{"port": 80}]})));
    let endpoints = json!({"metadata": {"name": "free"}, "subsets": [{
        "addresses": [{"ip": "1.2.3.4"}], "ports": [{"port": 80}]}]});
    create(&client, ENDPOINTS, &endpoints);
    wait_until("there is a slice", || slices(&client, "free").len() == 1);
    let (endpoints, ports) = slices(&client, "free").remove(0);
    assert_eq!(endpoints, json!([{"addresses": ["1.2.3.4"], "conditions": {"ready": true}}]));
    assert_eq!(ports, json!([{"name": "", "port": 80, "protocol": "TCP"}]));
    let skip = json!({"metadata": {"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}});
    patch(&client, &format!("{ENDPOINTS}/free"), &skip);
    wait_until("the slice is gone", || slices(&client, "free").is_empty());
    server.stop();
}

#[test]
fn a_disruption_budget_limits_evictions() {
    let server = with_controllers();
    let client = server.client();
    pod(&client, "one", "10.1.0.1", true);
    pod(&client, "two", "10.1.0.2", true);
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    create(&client, BUDGETS, &budget);
    let path = format!("{BUDGETS}/b");
    let status = client.poll(&path, |got| got.body["status"]["disruptionsAllowed"] == 1).body;
    let counts = ["currentHealthy", "desiredHealthy", "expectedPods", "observedGeneration"];
    assert_eq!(counts.map(|name| status["status"][name].clone()), [2, 1, 2, 1].map(Value::from));
    let condition = &status["status"]["conditions"][0];
    assert_eq!(
        (&condition["status"], &condition["reason"]),
        (&"True".into(), &"SufficientPods".into())
    );
    let evict = |name: &str| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": name}, "deleteOptions": {"gracePeriodSeconds": 0}});
        client.post(&format!("{PODS}/{name}/eviction"), &eviction).status
    };
    assert_eq!(evict("one"), 201);
    client.poll(&path, |got| {
        let status = &got.body["status"];
        status["expectedPods"] == 1 && status["disruptionsAllowed"] == 0
    });
    assert_eq!(evict("two"), 429);
    server.stop();
}

#[test]
fn a_disruption_budget_reports_uncountable_pods() {
    let server = with_controllers();
    let client = server.client();
    let node = create(&client, "/api/v1/nodes", &json!({"metadata": {"name": "n"}}));
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": node,
        "controller": true});
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}]});
    let metadata = json!({"name": "p", "labels": {"app": "a"}, "ownerReferences": [owner]});
    create(&client, PODS, &json!({"metadata": metadata, "spec": spec}));
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    create(&client, BUDGETS, &budget);
    let path = format!("{BUDGETS}/b");
    let got = client.poll(&path, |got| got.body["status"]["conditions"].is_array()).body;
    let condition = &got["status"]["conditions"][0];
    let why = "nodes does not implement the scale subresource";
    assert_eq!((&condition["reason"], &condition["message"]), (&"SyncFailed".into(), &why.into()));
    server.stop();
}

#[test]
fn a_finished_job_is_deleted_with_its_pods_after_its_ttl() {
    let server = with_controllers();
    let client = server.client();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    let template = json!({"spec": {"restartPolicy": "Never",
        "containers": [{"name": "c", "image": "i"}]}});
    for (name, seconds) in [("short", 1), ("long", 3600)] {
        let spec = json!({"ttlSecondsAfterFinished": seconds, "template": template});
        create(&client, jobs, &json!({"metadata": {"name": name}, "spec": spec}));
        let ended = "2026-01-01T00:00:00Z";
        let late = "9999-01-01T00:00:00Z";
        let at = if name == "short" { ended } else { late };
        let condition =
            |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": at});
        let status = json!({"status": {"startTime": ended, "completionTime": ended, "succeeded": 1,
            "conditions": [condition("SuccessCriteriaMet"), condition("Complete")]}});
        patch(&client, &format!("{jobs}/{name}/status"), &status);
    }
    wait_deleted(&client, &format!("{jobs}/short"));
    super::settle(&client);
    assert_eq!(client.get(&format!("{jobs}/long")).status, 200);
    server.stop();
}

#[test]
fn protected_claims_and_volumes_are_deleted_when_unused() {
    let server = with_controllers();
    let client = server.client();
    let spec =
        json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}});
    for name in ["used", "free"] {
        create(&client, CLAIMS, &json!({"metadata": {"name": name}, "spec": spec}));
    }
    let spec = json!({"nodeName": "n", "containers": [{"name": "c", "image": "i"}],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "used"}}]});
    create(&client, PODS, &json!({"metadata": {"name": "p"}, "spec": spec}));
    for name in ["used", "free"] {
        assert_eq!(client.delete(&format!("{CLAIMS}/{name}")).status, 200);
    }
    wait_deleted(&client, &format!("{CLAIMS}/free"));
    super::settle(&client);
    let used = client.get(&format!("{CLAIMS}/used")).body;
    assert_eq!(used["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(client.delete(&format!("{PODS}/p?gracePeriodSeconds=0")).status, 200);
    wait_deleted(&client, &format!("{CLAIMS}/used"));

    let volumes = "/api/v1/persistentvolumes";
    let spec = json!({"capacity": {"storage": "1"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/x"}});
    create(&client, volumes, &json!({"metadata": {"name": "pv"}, "spec": spec}));
    let path = format!("{volumes}/pv");
    patch(&client, &format!("{path}/status"), &json!({"status": {"phase": "Bound"}}));
    assert_eq!(client.delete(&path).status, 200);
    super::settle(&client);
    assert_eq!(client.get(&path).status, 200);
    patch(&client, &format!("{path}/status"), &json!({"status": {"phase": "Released"}}));
    wait_deleted(&client, &path);
    server.stop();
}

#[test]
fn a_protected_attributes_class_is_deleted_when_unused() {
    let server = with_controllers();
    let client = server.client();
    let classes = "/apis/storage.k8s.io/v1/volumeattributesclasses";
    let class = json!({"metadata": {"name": "c"}, "driverName": "d", "parameters": {"a": "b"}});
    create(&client, classes, &class);
    let path = format!("{classes}/c");
    client.poll(&path, |got| got.body["metadata"]["finalizers"].is_array());
    let spec = json!({"accessModes": ["ReadWriteOnce"], "volumeAttributesClassName": "c",
        "resources": {"requests": {"storage": "1"}}});
    create(&client, CLAIMS, &json!({"metadata": {"name": "u"}, "spec": spec}));
    assert_eq!(client.delete(&path).status, 200);
    super::settle(&client);
    assert_eq!(client.get(&path).status, 200);
    assert_eq!(client.delete(&format!("{CLAIMS}/u")).status, 200);
    wait_deleted(&client, &path);
    server.stop();
}

#[test]
fn an_event_says_that_nobody_works_on_a_workload() {
    let clock = keelson::SteppedClock::new(1.0);
    let off = ["ServiceAccount".to_owned()];
    let admission = keelson::AdmissionChain::new(&[], &off).expect("there is such a plug-in");
    let builder = keelson::Keelson::builder()
        .with(|builder| builder.admission.chain = admission)
        .clock(clock.clone());
    let server = crate::http::Server::start_plain(builder);
    let client = server.client();
    let template = json!({"metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    for name in ["alone", "attended"] {
        create(&client, deployments, &json!({"metadata": {"name": name}, "spec": spec}));
    }
    let status = json!({"status": {"observedGeneration": 1}});
    patch(&client, &format!("{deployments}/attended/status"), &status);
    super::settle(&client);
    clock.step(std::time::Duration::from_secs(6));
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason=NoController";
    let found = client.poll(events, |got| got.body["items"] != json!([]));
    let about: Vec<_> = found.body["items"].as_array().into_iter().flatten().collect();
    assert_eq!(about.len(), 1, "{about:#?}");
    assert_eq!(about[0]["involvedObject"]["name"], "alone");
    let message = "Nothing works on this Deployment: neither a kube-controller-manager nor --simulate \
                   runs on this server.";
    assert_eq!(about[0]["message"], message);
    server.stop();
}
