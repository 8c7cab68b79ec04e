//! The default objects of flow control, and the condition of FlowSchemas.

use crate::world::{Options, Server};
use keelson_server::Limits;
use serde_json::json;

const GROUP: &str = "/apis/flowcontrol.apiserver.k8s.io/v1";

#[test]
fn flow_schema_status_reports_a_dangling_priority_level() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    let schemas = format!("{GROUP}/flowschemas");
    let count = |path: &str| client.get(path).body["items"].as_array().map(Vec::len);
    assert_eq!(count(&schemas), Some(11));
    assert_eq!(count(&format!("{GROUP}/prioritylevelconfigurations")), Some(8));
    let told = |name: &str, status: &str, message: &str| {
        let answer = client.poll(&format!("{schemas}/{name}"), |answer| {
            answer.body["status"]["conditions"][0]["status"] == status
        });
        let condition = &answer.body["status"]["conditions"][0];
        assert_eq!(condition["message"], message);
        let owner = &answer.body["metadata"]["managedFields"][0];
        assert_eq!(owner["manager"], "api-priority-and-fairness-config-consumer-v1");
        assert_eq!(
            (&owner["operation"], &owner["subresource"]),
            (&json!("Apply"), &json!("status"))
        );
    };
    let words = "This FlowSchema references the PriorityLevelConfiguration object named";
    told("probes", "False", &format!("{words} \"exempt\" and it exists"));
    let mine = json!({
        "metadata": {"name": "mine"}, "spec": {"priorityLevelConfiguration": {"name": "other"}}
    });
    assert_eq!(client.post(&schemas, &mine).status, 201);
    told("mine", "True", &format!("{words} \"other\" but there is no such object"));
    let level = json!({"metadata": {"name": "other"}, "spec": {
        "type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}
    }});
    assert_eq!(client.post(&format!("{GROUP}/prioritylevelconfigurations"), &level).status, 201);
    told("mine", "False", &format!("{words} \"other\" and it exists"));
    server.stop();
}

/// As upstream, where the controller of conditions does not run then. The author of a FlowSchema is
/// the only one who writes it: none of his updates meets a conflict.
#[test]
fn without_fairness_flow_schemas_have_no_conditions() {
    let limits = Limits { fairness: false, ..Limits::default() };
    let server = Server::start_plain(Options { limits, ..Options::default() });
    let client = server.client();
    let schemas = format!("{GROUP}/flowschemas");
    let mine = json!({
        "metadata": {"name": "mine"}, "spec": {"priorityLevelConfiguration": {"name": "other"}}
    });
    let mut answer = client.post(&schemas, &mine);
    assert_eq!(answer.status, 201);
    for precedence in 1001..1100 {
        answer.body["spec"]["matchingPrecedence"] = precedence.into();
        let path = format!("{schemas}/mine");
        answer = client.call("PUT", &path, "application/json", Some(&answer.body));
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let all = client.get(&schemas).body;
    let all = all["items"].as_array().expect("a list");
    assert_eq!(all.len(), 12);
    for schema in all {
        assert_eq!(schema["status"]["conditions"], serde_json::Value::Null, "{schema}");
    }
    server.stop();
}

#[test]
fn the_mandatory_objects_do_not_change() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    let check = |path: &str, patch: serde_json::Value, last: Option<&str>| {
        let path = format!("{GROUP}/{path}?dryRun=All");
        let answer = client.call("PATCH", &path, "application/merge-patch+json", Some(&patch));
        let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
        let found = causes.last().and_then(|cause| cause["message"].as_str()).unwrap_or_default();
        assert_eq!(answer.status, if last.is_some() { 422 } else { 200 }, "{patch}");
        assert!(found.ends_with(last.unwrap_or_default()), "{patch}: {found}");
    };
    let exempt = "spec of 'exempt' except the 'spec.exempt' field must equal the fixed value";
    let shares = json!({"spec": {"exempt": {"nominalConcurrencyShares": 5}}});
    check("prioritylevelconfigurations/exempt", shares, None);
    let limited = json!({"spec": {"type": "Limited"}});
    check("prioritylevelconfigurations/exempt", limited, Some(exempt));
    let more = json!({"spec": {"limited": {"nominalConcurrencyShares": 7}}});
    let fixed = "spec of 'catch-all' must equal the fixed value";
    check("prioritylevelconfigurations/catch-all", more.clone(), Some(fixed));
    check("prioritylevelconfigurations/system", more, None);
    check("flowschemas/catch-all", json!({"spec": {"rules": null}}), Some(fixed));
    let shown = r#"Invalid value: {"Type":"Limited","Limited":{"NominalConcurrencyShares":9,"#;
    let rest = r#""LimitResponse":{"Type":"Reject","Queuing":null},"LendablePercent":0,"#;
    let end = r#""BorrowingLimitPercent":null},"Exempt":null}: "#;
    let more = json!({"spec": {"limited": {"nominalConcurrencyShares": 9}}});
    let whole = format!("{shown}{rest}{end}{fixed}");
    check("prioritylevelconfigurations/catch-all", more, Some(&whole));
    let shown = r#"Invalid value: {"PriorityLevelConfiguration":{"Name":"exempt"},"#;
    let rest = r#""MatchingPrecedence":1,"DistinguisherMethod":null,"Rules":null}: "#;
    let whole = format!("{shown}{rest}spec of 'exempt' must equal the fixed value");
    check("flowschemas/exempt", json!({"spec": {"rules": null}}), Some(&whole));
    let precedence = json!({"spec": {"matchingPrecedence": 5}});
    check("flowschemas/exempt", precedence, Some("spec of 'exempt' must equal the fixed value"));
    server.stop();
}

#[test]
fn default_flow_schemas_are_created_with_the_condition_of_the_controller() {
    let server = Server::start_plain(Options::default());
    let client = server.client();
    let schemas = format!("{GROUP}/flowschemas");
    let without_times = |object: &serde_json::Value| {
        let mut condition = object["status"]["conditions"][0].clone();
        let mut owner = object["metadata"]["managedFields"][0].clone();
        for (of, time) in [(&mut condition, "lastTransitionTime"), (&mut owner, "time")] {
            assert!(of[time].take().is_string(), "{object}");
        }
        (condition, owner)
    };
    let defaults = client.get(&schemas).body;
    let defaults = defaults["items"].as_array().expect("a list");
    assert_eq!(defaults.len(), 11);
    let probes = defaults
        .iter()
        .find(|schema| schema["metadata"]["name"] == "probes")
        .expect("a default FlowSchema");
    let mine = json!({
        "metadata": {"name": "mine"}, "spec": {"priorityLevelConfiguration": {"name": "exempt"}}
    });
    assert_eq!(client.post(&schemas, &mine).status, 201);
    let mine = client
        .poll(&format!("{schemas}/mine"), |answer| !answer.body["status"]["conditions"].is_null());
    assert_eq!(without_times(probes), without_times(&mine.body));
    for schema in defaults {
        assert_eq!(without_times(schema).1, without_times(probes).1);
        assert_eq!(schema["metadata"]["generation"], 1);
        let name = &schema["metadata"]["name"];
        let now = client.get(&format!("{schemas}/{}", name.as_str().unwrap_or_default()));
        assert_eq!(&now.body, &with_gvk(schema), "{name} is changed by a new server");
    }
    server.stop();
}

/// Returns an item of a list as a get returns it.
fn with_gvk(item: &serde_json::Value) -> serde_json::Value {
    let mut object = item.clone();
    object["apiVersion"] = json!("flowcontrol.apiserver.k8s.io/v1");
    object["kind"] = json!("FlowSchema");
    object
}
