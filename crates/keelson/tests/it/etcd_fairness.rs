//! Priority and fairness of several servers on one etcd: each sets default objects back and writes
//! conditions, and they do not fight.

use crate::etcd::{etcd, serve};
use crate::http::{Client, Server};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SCHEMAS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas";
const LEVELS: &str = "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations";
const MERGE: &str = "application/merge-patch+json";

/// Returns the resourceVersions of all FlowSchemas and PriorityLevelConfigurations.
fn versions(client: &Client) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for path in [SCHEMAS, LEVELS] {
        let list = client.get(path).body;
        for object in list["items"].as_array().expect("items") {
            let text = |value: &Value| value.as_str().expect("text").to_owned();
            let name = format!("{path}/{}", text(&object["metadata"]["name"]));
            all.insert(name, text(&object["metadata"]["resourceVersion"]));
        }
    }
    all
}

fn schema(name: &str, level: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"priorityLevelConfiguration": {"name": level}}})
}

/// Waits until a FlowSchema has this status of its condition.
fn wait_for_condition(client: &Client, name: &str, status: &str) -> Value {
    let said = |object: &Value| object["status"]["conditions"][0]["status"] == status;
    client.poll(&format!("{SCHEMAS}/{name}"), |got| said(&got.body)).body
}

#[test]
fn servers_on_one_etcd_do_not_fight_about_flow_schemas_and_levels() {
    let Some((_runtime, process)) = etcd() else { return };
    let one = serve(&process);
    let client = one.client();
    let change = |path: &str, body: &Value| {
        let changed = client.call("PATCH", path, MERGE, Some(body));
        assert_eq!(changed.status, 200, "{changed:?}");
    };
    let kept = format!("{SCHEMAS}/global-default");
    let own = json!({"metadata": {"annotations": {"apf.kubernetes.io/autoupdate-spec": "false"}},
        "spec": {"matchingPrecedence": 9_000}});
    change(&kept, &own);
    let restored = format!("{LEVELS}/workload-low");
    let shares = |object: &Value| object["spec"]["limited"]["nominalConcurrencyShares"].clone();
    let usual = shares(&client.get(&restored).body);
    change(&restored, &json!({"spec": {"limited": {"nominalConcurrencyShares": 7}}}));
    assert_eq!(client.post(SCHEMAS, &schema("waits", "later")).status, 201);
    wait_for_condition(&client, "waits", "True");
    let before = versions(&client);
    // A server sets back what is its own when it starts, and nothing else.
    let two = serve(&process);
    client.poll(&restored, |got| shares(&got.body) == usual);
    let three = serve(&process);
    let mut after = versions(&client);
    let is_changed = after.insert(restored.clone(), before[&restored].clone());
    assert_ne!(is_changed.as_ref(), before.get(&restored));
    assert_eq!(after, before);
    // All of them see the level that was missing, and one of them writes the condition.
    let level = json!({"metadata": {"name": "later"}, "spec": {"type": "Limited",
        "limited": {"limitResponse": {"type": "Reject"}}}});
    assert_eq!(two.client().post(LEVELS, &level).status, 201);
    let found = wait_for_condition(&three.client(), "waits", "False");
    assert_eq!(client.post(SCHEMAS, &schema("last", "none")).status, 201);
    wait_for_condition(&client, "last", "True");
    for server in [&one, &two, &three] {
        assert_eq!(server.client().get(&format!("{SCHEMAS}/waits")).body, found);
        assert_eq!(server.client().get(&kept).body["spec"]["matchingPrecedence"], 9_000);
    }
    let managers = found["metadata"]["managedFields"].as_array().expect("managers");
    let applied = managers.iter().filter(|entry| entry["subresource"] == "status");
    assert_eq!(applied.count(), 1, "{found}");
    [one, two, three].into_iter().for_each(Server::stop);
}
