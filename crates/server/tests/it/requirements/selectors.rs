//! R-SEL and R-DISC: selectors, and what discovery tells of resources.

use super::world::{
    DEFINITIONS, PODS, define, everything, made, read, widget_definition, with_widgets,
};
use super::{MERGE_PATCH, names, patch, pod, server};
use crate::world::Client;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Every kind: lists, watches and deletions of collections follow selectors of labels and names.
///
/// Proves: R-SEL-01, R-SEL-02, R-SEL-04.
#[test]
fn lists_and_watches_of_every_kind_follow_selectors() {
    let server = with_widgets();
    let client = server.client();
    for walked in everything() {
        let all = walked.all();
        walked.settled(&client);
        let label = json!({"metadata": {"labels": {"l": "yes"}}});
        let first = patch(&client, &walked.one(), MERGE_PATCH, &label);
        let name = walked.name.as_str();
        for (selector, found) in [
            ("labelSelector=l%3Dyes", true),
            ("labelSelector=l%3Dno", false),
            ("labelSelector=l+in+(no,yes)", true),
            ("labelSelector=!l,x", false),
            ("fieldSelector=metadata.name%3Dother", false),
        ] {
            let list = read(&client, &format!("{all}?{selector}"));
            assert_eq!(names(&list).contains(&name), found, "{all}?{selector}");
        }
        let list = read(&client, &format!("{all}?fieldSelector=metadata.name%3D{name}"));
        assert_eq!(names(&list), [name]);
        // For a watch the object appears and disappears with its label.
        let version = first["metadata"]["resourceVersion"].as_str().unwrap_or_default();
        for value in ["no", "yes"] {
            let change = json!({"metadata": {"labels": {"l": value}}});
            assert_eq!(client.call("PATCH", &walked.one(), MERGE_PATCH, Some(&change)).status, 200);
        }
        let path = format!(
            "{all}?watch=1&labelSelector=l%3Dno&resourceVersion={version}&timeoutSeconds=20"
        );
        let events = client.watch(&path, 2).expect("two events");
        let kinds: Vec<&Value> = events.iter().map(|event| &event["type"]).collect();
        assert_eq!(kinds, ["ADDED", "DELETED"], "{all}");
        assert_eq!(client.delete(&walked.one()).status, 200);
    }
    server.stop();
}

/// Proves: R-SEL-03.
#[test]
fn pods_of_a_controller_are_found_by_its_selector() {
    let server = server();
    let client = server.client();
    let path = "/api/v1/namespaces/default/replicationcontrollers";
    let template = json!({"metadata": {"labels": {"app": "a"}}, "spec": pod("x")["spec"]});
    let controller =
        made(&client, path, &json!({"metadata": {"name": "rc"}, "spec": {"template": template}}));
    for (name, label) in [("one", "a"), ("two", "b"), ("three", "a")] {
        let mut obj = pod(name);
        obj["metadata"]["labels"] = json!({"app": label});
        made(&client, PODS, &obj);
    }
    let selector = &controller["spec"]["selector"];
    assert_eq!(*selector, json!({"app": "a"}));
    let found = read(&client, &format!("{PODS}?labelSelector=app%3Da"));
    assert_eq!(names(&found), ["one", "three"]);
    // The status counts them and does not list them.
    let status = read(&client, &format!("{path}/rc"))["status"].clone();
    assert_eq!(status, json!({"replicas": 0}));
    server.stop();
}

/// Returns short names and categories of all resources, as `GROUP/RESOURCE`.
fn published(client: &Client, member: &str) -> BTreeMap<String, BTreeSet<String>> {
    let groups = read(client, "/apis")["groups"].clone();
    let versions = groups.as_array().expect("groups").iter().flat_map(|group| {
        let versions = group["versions"].as_array().expect("versions").iter();
        versions.map(|version| version["groupVersion"].as_str().unwrap_or_default().to_owned())
    });
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for root in versions.map(|version| format!("/apis/{version}")).chain(["/api/v1".to_owned()]) {
        let group =
            root.split('/').nth(2).filter(|_| root.starts_with("/apis/")).unwrap_or_default();
        for resource in read(client, &root)["resources"].as_array().expect("resources") {
            let name = resource["name"].as_str().unwrap_or_default();
            for value in resource[member].as_array().into_iter().flatten() {
                let value = value.as_str().unwrap_or_default().to_owned();
                found.entry(value).or_default().insert(format!("{group}/{name}"));
            }
        }
    }
    found
}

/// Short names of a kube-apiserver 1.36, with the resources that they stand for.
const SHORT_NAMES: &str = "cj=batch/cronjobs cm=/configmaps crd=apiextensions.k8s.io/customresourcedefinitions \
    crds=apiextensions.k8s.io/customresourcedefinitions cs=/componentstatuses \
    csr=certificates.k8s.io/certificatesigningrequests deploy=apps/deployments ds=apps/daemonsets ep=/endpoints \
    ev=/events,events.k8s.io/events hpa=autoscaling/horizontalpodautoscalers ing=networking.k8s.io/ingresses \
    ip=networking.k8s.io/ipaddresses limits=/limitranges netpol=networking.k8s.io/networkpolicies no=/nodes \
    ns=/namespaces pc=scheduling.k8s.io/priorityclasses pdb=policy/poddisruptionbudgets po=/pods \
    pv=/persistentvolumes pvc=/persistentvolumeclaims quota=/resourcequotas rc=/replicationcontrollers \
    rs=apps/replicasets sa=/serviceaccounts sc=storage.k8s.io/storageclasses sts=apps/statefulsets svc=/services \
    vac=storage.k8s.io/volumeattributesclasses";

/// Proves: R-DISC-01, R-DISC-02, R-DISC-03, R-DISC-04, R-DISC-05, R-DISC-08.
#[test]
fn built_in_resources_have_the_known_short_names_and_categories() {
    let server = server();
    let client = server.client();
    let line = |(name, of): (String, BTreeSet<String>)| {
        format!("{name}={}", of.into_iter().collect::<Vec<_>>().join(","))
    };
    let found: Vec<String> = published(&client, "shortNames").into_iter().map(line).collect();
    assert_eq!(found, SHORT_NAMES.split_whitespace().collect::<Vec<_>>());
    let categories: Vec<String> = published(&client, "categories").into_iter().map(line).collect();
    let all = "all=/pods,/replicationcontrollers,/services,apps/daemonsets,apps/deployments,apps/replicasets,\
               apps/statefulsets,autoscaling/horizontalpodautoscalers,batch/cronjobs,batch/jobs";
    let group = "admissionregistration.k8s.io";
    let extensions = format!(
        "api-extensions={group}/mutatingadmissionpolicies,{group}/mutatingadmissionpolicybindings,\
         {group}/mutatingwebhookconfigurations,{group}/validatingadmissionpolicies,\
         {group}/validatingadmissionpolicybindings,{group}/validatingwebhookconfigurations,\
         apiextensions.k8s.io/customresourcedefinitions,apiregistration.k8s.io/apiservices"
    );
    assert_eq!(categories, [all, &extensions]);
    server.stop();
}

/// Proves: R-DISC-06, R-DISC-07, R-DISC-09.
#[test]
fn names_of_custom_resources_are_those_of_their_definition() {
    let server = with_widgets();
    let client = server.client();
    let names_of = |root: &str, resource: &str| {
        let found = read(&client, root)["resources"].clone();
        let all = found.as_array().expect("resources").iter();
        all.clone().find(|one| one["name"] == resource).cloned().unwrap_or_default()
    };
    let widgets = names_of("/apis/example.com/v1", "widgets");
    let names = (&widgets["shortNames"], &widgets["categories"], &widgets["singularName"]);
    assert_eq!(names, (&json!(["wd"]), &json!(["all", "toys"]), &json!("widget")));
    let scale = names_of("/apis/example.com/v1", "widgets/scale");
    assert_eq!(
        (&scale["kind"], &scale["verbs"]),
        (&json!("Scale"), &json!(["get", "patch", "update"]))
    );
    // A resource may be named like the short name of another.
    let mut definition = widget_definition();
    definition["metadata"]["name"] = json!("sts.example.net");
    definition["spec"]["group"] = json!("example.net");
    definition["spec"]["names"] = json!({"plural": "sts", "kind": "Sts"});
    define(&client, &definition);
    assert_eq!(names_of("/apis/example.net/v1", "sts")["kind"], "Sts");
    assert_eq!(names_of("/apis/apps/v1", "statefulsets")["shortNames"], json!(["sts"]));
    let accepted =
        read(&client, &format!("{DEFINITIONS}/widgets.example.com"))["status"]["acceptedNames"]
            .clone();
    assert_eq!(accepted["shortNames"], json!(["wd"]));
    // OpenAPI has the media types of each verb.
    let path =
        &read(&client, "/openapi/v2")["paths"]["/api/v1/namespaces/{namespace}/pods/{name}/status"];
    let types =
        json!(["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"]);
    assert_eq!(path["get"]["produces"], types);
    server.stop();
}
