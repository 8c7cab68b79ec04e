//! Stages of KWOK, from files and as objects.

use super::start;
use crate::controllers::{create, settle};
use crate::http::Client;
use keelson::{Simulation, StageFiles};
use serde_json::{Value, json};
use std::time::Duration;

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const STAGES: &str = "/apis/kwok.x-k8s.io/v1alpha1/stages";

/// A pod starts ten seconds after it has a node.
const READY: &str = r#"
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: ready}
spec:
  resourceRef: {apiGroup: v1, kind: Pod}
  selector:
    matchExpressions:
    - {key: .metadata.deletionTimestamp, operator: DoesNotExist}
    - {key: '.status.conditions.[] | select(.type == "Ready") | .status', operator: NotIn, values: ["True"]}
  delay: {durationMilliseconds: 10000}
  next:
    event: {type: Normal, reason: Staged, message: as the stage says}
    statusTemplate: |
      {{ $now := Now }}
      phase: Running
      hostIP: {{ NodeIPWith .spec.nodeName | Quote }}
      podIP: {{ PodIPWith .spec.nodeName false "" "" "" | Quote }}
      startTime: {{ $now | Quote }}
      conditions:
      - {type: Ready, status: "True", lastTransitionTime: {{ $now | Quote }}}
      containerStatuses:
      {{ range .spec.containers }}
      - name: {{ .name | Quote }}
        image: {{ .image | Quote }}
        ready: true
        restartCount: 0
        state: {running: {startedAt: {{ $now | Quote }}}}
      {{ end }}
"#;

/// It ends at the end of its grace period.
const GONE: &str = r#"
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: gone}
spec:
  resourceRef: {kind: Pod}
  selector:
    matchExpressions:
    - cel: {expression: has(self.metadata.deletionTimestamp)}
  delay: {durationFrom: {jq: {expression: .metadata.deletionTimestamp}}}
  steps:
  - delete: true
"#;

fn pod(client: &Client, name: &str) {
    let containers = json!([{"name": "c", "image": "i"}]);
    let spec = json!({"containers": containers, "terminationGracePeriodSeconds": 30});
    create(client, PODS, &json!({"metadata": {"name": name}, "spec": spec}));
}

fn phase(client: &Client, name: &str, phase: &str) -> Value {
    client.poll(&format!("{PODS}/{name}"), |got| got.body["status"]["phase"] == phase).body
}

#[test]
fn stages_of_files_say_what_pods_do() {
    let mut stages = StageFiles::default();
    for text in [READY, GONE] {
        assert_eq!(stages.add_yaml(text), Ok(true));
    }
    assert_eq!(
        stages.add_yaml("{apiVersion: config.kwok.x-k8s.io/v1alpha1, kind: KwokConfiguration}"),
        Ok(false)
    );
    let wrong = READY.replace("Now }}", "Later }}");
    let why = stages.add_yaml(&wrong).expect_err("an unknown function");
    assert_eq!(why, "Stage \"ready\": template, line 1: function \"Later\" is not known");

    let (server, clock) = start(Simulation { stages, ..Simulation::default() });
    let client = server.client();
    pod(&client, "p");
    client.poll(&format!("{PODS}/p"), |got| got.body["spec"]["nodeName"] == "keelson-node-0");
    settle(&client);
    phase(&client, "p", "Pending");
    clock.step(Duration::from_secs(10));
    let running = phase(&client, "p", "Running");
    assert_eq!(running["status"]["podIP"], "10.128.0.2");
    assert_eq!(running["status"]["hostIP"], "172.16.0.2");
    assert_eq!(running["status"]["containerStatuses"][0]["image"], "i");
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason=Staged";
    client.poll(events, |got| got.body["items"][0]["involvedObject"]["name"] == "p");
    assert_eq!(client.delete(&format!("{PODS}/p")).status, 200);
    settle(&client);
    assert_eq!(client.get(&format!("{PODS}/p")).status, 200);
    clock.step(Duration::from_secs(31));
    client.poll(&format!("{PODS}/p"), |got| got.status == 404);
    server.stop();
}

/// Serves Stages as objects.
fn define(client: &Client) {
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let version = json!({"name": "v1alpha1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "stages", "singular": "stage", "kind": "Stage"});
    let definition = json!({"metadata": {"name": "stages.kwok.x-k8s.io"},
        "spec": {"group": "kwok.x-k8s.io", "scope": "Cluster", "names": names,
            "versions": [version]}});
    create(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    client.poll(STAGES, |got| got.status == 200);
}

fn stage(client: &Client, name: &str, spec: &Value) {
    let object = json!({"apiVersion": "kwok.x-k8s.io/v1alpha1", "kind": "Stage",
        "metadata": {"name": name}, "spec": spec});
    create(client, STAGES, &object);
}

#[test]
fn stages_that_are_objects_decide_while_they_exist() {
    let (server, _) = start(Simulation::default());
    let client = server.client();
    pod(&client, "before");
    phase(&client, "before", "Running");
    define(&client);
    // An object of any kind: a finalizer, a patch of the whole, and an object that is applied.
    let steps = json!([
        {"finalizers": {"add": [{"value": "example.com/held"}]}},
        {"patch": {"type": "merge", "template": "data: {staged: {{ .metadata.name | upper }}}"}},
        {"apply": {"template":
            "{apiVersion: v1, kind: Secret, metadata: {name: 'of-{{ .metadata.name }}'}}"}}
    ]);
    let labels = json!({"matchLabels": {"staged": "yes"}});
    let spec = json!({"resourceRef": {"kind": "ConfigMap"}, "selector": labels, "steps": steps});
    stage(&client, "maps", &spec);
    create(&client, MAPS, &json!({"metadata": {"name": "m", "labels": {"staged": "yes"}}}));
    let staged = client.poll(&format!("{MAPS}/m"), |got| got.body["data"]["staged"] == "M");
    assert_eq!(staged.body["metadata"]["finalizers"], json!(["example.com/held"]));
    client.poll("/api/v1/namespaces/default/secrets/of-m", |got| got.status == 200);

    // A Stage that is not understood says so.
    let next = json!({"statusTemplate": "a: {{ genPrivateKey \"rsa\" }}"});
    let spec = json!({"resourceRef": {"kind": "Pod"}, "selector": {}, "next": next});
    stage(&client, "wrong", &spec);
    let events = "/api/v1/namespaces/default/events?fieldSelector=reason=InvalidStage";
    let told = client.poll(events, |got| got.body["items"][0].is_object()).body;
    let why = "This Stage is not used: template, line 1: function \"genPrivateKey\" is not known";
    assert_eq!(told["items"][0]["message"], why);

    // Stages for pods replace the rules of the simulation until there are none.
    let next = json!({"statusTemplate": "{phase: Failed, reason: Staged}"});
    let labels = json!({"matchLabels": {"none": "none"}});
    let spec = json!({"resourceRef": {"kind": "Pod"}, "selector": labels, "next": next});
    stage(&client, "pods", &spec);
    settle(&client);
    pod(&client, "during");
    settle(&client);
    phase(&client, "during", "Pending");
    assert_eq!(client.delete(&format!("{STAGES}/pods")).status, 200);
    phase(&client, "during", "Running");
    server.stop();
}
