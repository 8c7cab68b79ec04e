//! Minimal valid objects of all built-in resources.

use base64::Engine;
use keelson_schema::catalogue::{Catalogue, Resource};
use serde_json::{Value, json};

/// Required fields of resources, without metadata. `POD` is replaced by a Pod spec, `RULES` by the
/// resource rules of a policy. Resources that are not listed require nothing.
const MEMBERS: &[(&str, &str)] = &[
    ("/events", r#"{"involvedObject": {"kind": "Pod", "name": "a", "namespace": "default"}}"#),
    ("/limitranges", r#"{"spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}"#),
    (
        "/persistentvolumeclaims",
        r#"{"spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}"#,
    ),
    (
        "/persistentvolumes",
        r#"{"spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/data"}}}"#,
    ),
    ("/pods", r#"{"spec": POD}"#),
    ("/podtemplates", r#"{"template": {"metadata": {"labels": {"a": "b"}}, "spec": POD}}"#),
    (
        "/replicationcontrollers",
        r#"{"spec": {"selector": {"a": "b"},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD}}}"#,
    ),
    ("/resourcequotas", r#"{"spec": {"hard": {"pods": "1"}}}"#),
    ("/services", r#"{"spec": {"ports": [{"port": 80}]}}"#),
    (
        "apiregistration.k8s.io/apiservices",
        r#"{"spec": {"group": "example.org", "version": "v1", "groupPriorityMinimum": 1000,
            "versionPriority": 10, "service": {"name": "s", "namespace": "default"},
            "insecureSkipTLSVerify": true}}"#,
    ),
    ("apps/controllerrevisions", r#"{"revision": 1, "data": {"a": 1}}"#),
    ("apps/daemonsets", SET),
    ("apps/deployments", SET),
    ("apps/replicasets", SET),
    ("apps/statefulsets", SET),
    (
        "events.k8s.io/events",
        r#"{"regarding": {"kind": "Pod", "name": "a", "namespace": "default"},
            "eventTime": "2024-01-01T00:00:00.000000Z", "reportingController": "example.org/c",
            "reportingInstance": "i", "action": "Do", "reason": "Done", "type": "Normal"}"#,
    ),
    (
        "autoscaling/horizontalpodautoscalers",
        r#"{"spec": {"maxReplicas": 3,
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}}"#,
    ),
    (
        "batch/cronjobs",
        r#"{"spec": {"schedule": "* * * * *",
            "jobTemplate": {"spec": {"template": {"spec": ONCE}}}}}"#,
    ),
    ("batch/jobs", r#"{"spec": {"template": {"spec": ONCE}}}"#),
    (
        "certificates.k8s.io/certificatesigningrequests",
        r#"{"spec": {"request": "CSR", "signerName": "example.org/signer",
            "usages": ["digital signature"]}}"#,
    ),
    ("networking.k8s.io/ingressclasses", r#"{"spec": {"controller": "example.org/c"}}"#),
    (
        "networking.k8s.io/ingresses",
        r#"{"spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}}"#,
    ),
    (
        "networking.k8s.io/ipaddresses",
        r#"{"spec": {"parentRef": {"group": "", "resource": "services",
            "namespace": "default", "name": "s"}}}"#,
    ),
    ("networking.k8s.io/networkpolicies", r#"{"spec": {"podSelector": {}}}"#),
    ("networking.k8s.io/servicecidrs", r#"{"spec": {"cidrs": ["10.8.0.0/24"]}}"#),
    (
        "policy/poddisruptionbudgets",
        r#"{"spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}}"#,
    ),
    ("rbac.authorization.k8s.io/clusterrolebindings", BINDING),
    ("rbac.authorization.k8s.io/rolebindings", BINDING),
    ("storage.k8s.io/csidrivers", r#"{"spec": {}}"#),
    ("storage.k8s.io/csinodes", r#"{"spec": {"drivers": []}}"#),
    ("storage.k8s.io/csistoragecapacities", r#"{"storageClassName": "s"}"#),
    ("storage.k8s.io/storageclasses", r#"{"provisioner": "example.org/p"}"#),
    (
        "storage.k8s.io/volumeattachments",
        r#"{"spec": {"attacher": "example.org", "nodeName": "n",
            "source": {"persistentVolumeName": "v"}}}"#,
    ),
    (
        "storage.k8s.io/volumeattributesclasses",
        r#"{"driverName": "example.org", "parameters": {"a": "b"}}"#,
    ),
    (
        "admissionregistration.k8s.io/mutatingadmissionpolicies",
        r#"{"spec": {"reinvocationPolicy": "Never", "matchConstraints": RULES,
            "mutations": [{"patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": "Object{}"}}]}}"#,
    ),
    (
        "admissionregistration.k8s.io/mutatingadmissionpolicybindings",
        r#"{"spec": {"policyName": "p"}}"#,
    ),
    (
        "admissionregistration.k8s.io/validatingadmissionpolicies",
        r#"{"spec": {"matchConstraints": RULES, "validations": [{"expression": "true"}]}}"#,
    ),
    (
        "admissionregistration.k8s.io/validatingadmissionpolicybindings",
        r#"{"spec": {"policyName": "p", "validationActions": ["Deny"]}}"#,
    ),
    (
        "apiextensions.k8s.io/customresourcedefinitions",
        r#"{"spec": {"group": "example.org", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing",
                "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}}"#,
    ),
    ("scheduling.k8s.io/priorityclasses", r#"{"value": 10}"#),
    ("coordination.k8s.io/leases", r#"{"spec": {}}"#),
    ("node.k8s.io/runtimeclasses", r#"{"handler": "h"}"#),
    ("discovery.k8s.io/endpointslices", r#"{"addressType": "IPv4", "endpoints": []}"#),
    ("resource.k8s.io/deviceclasses", r#"{"spec": {}}"#),
    ("resource.k8s.io/resourceclaims", r#"{"spec": CLAIM}"#),
    ("resource.k8s.io/resourceclaimtemplates", r#"{"spec": {"spec": CLAIM}}"#),
    (
        "resource.k8s.io/resourceslices",
        r#"{"spec": {"driver": "example.org", "nodeName": "n",
            "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}}"#,
    ),
    (
        "flowcontrol.apiserver.k8s.io/flowschemas",
        r#"{"spec": {"priorityLevelConfiguration": {"name": "global-default"},
            "matchingPrecedence": 1000}}"#,
    ),
    (
        "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations",
        r#"{"spec": {"type": "Limited", "limited": {"nominalConcurrencyShares": 1,
            "limitResponse": {"type": "Reject"}}}}"#,
    ),
];

const SET: &str = r#"{"spec": {"selector": {"matchLabels": {"a": "b"}},
    "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD}}}"#;
const BINDING: &str = r#"{"roleRef":
    {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin"}}"#;
const SHORT: &[(&str, &str)] = &[
    ("POD", r#"{"containers": [{"name": "c", "image": "i"}]}"#),
    ("ONCE", r#"{"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}"#),
    (
        "RULES",
        r#"{"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
            "operations": ["CREATE"], "resources": ["pods"]}]}"#,
    ),
    ("CLAIM", r#"{"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c"}}]}}"#),
];

/// Names of objects whose kind restricts names.
const NAMES: &[(&str, &str)] = &[
    ("apiservices", "v1.example.org"),
    ("customresourcedefinitions", "things.example.org"),
    ("ipaddresses", "10.9.0.1"),
];

/// Returns a name for an object of the resource.
pub fn name(resource: &str) -> &'static str {
    NAMES.iter().find(|(of, _)| *of == resource).map_or("sample", |(_, name)| name)
}

/// Returns the built-in resources that are enabled by default and stored.
pub fn stored_resources() -> impl Iterator<Item = &'static Resource> {
    let versions = Catalogue::shared().groups.iter().flat_map(|group| &group.versions);
    let resources = versions.filter(|version| version.default_on).flat_map(|v| &v.resources);
    resources.filter(|resource| {
        resource.default_on && resource.has_verb("create") && resource.has_verb("list")
    })
}

/// Returns the collection path of a resource, in the namespace `default` if it is namespaced.
pub fn collection(resource: &Resource) -> String {
    let root = if resource.kind.group.is_empty() { "/api" } else { "/apis" };
    let scope = if resource.namespaced { "/namespaces/default" } else { "" };
    format!("{root}/{}{scope}/{}", resource.kind.api_version(), resource.name)
}

/// Returns a minimal object of a resource.
pub fn minimal(resource: &Resource) -> Value {
    let key = format!("{}/{}", resource.kind.group, resource.name);
    let mut text =
        MEMBERS.iter().find(|(of, _)| *of == key).map_or("{}", |(_, text)| text).to_owned();
    for (short, long) in SHORT {
        text = text.replace(short, long);
    }
    if text.contains("CSR") {
        text = text.replace("CSR", &signing_request());
    }
    let mut obj: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{key}: {e}"));
    obj["apiVersion"] = json!(resource.kind.api_version().as_str());
    obj["kind"] = json!(resource.kind.kind.as_str());
    obj["metadata"] = json!({"name": name(&resource.name)});
    obj
}

/// Returns a certificate signing request, as PEM in base64.
fn signing_request() -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec![]).expect("parameters");
    let request = params.serialize_request(&key).expect("a request");
    let pem = request.pem().expect("PEM");
    base64::engine::general_purpose::STANDARD.encode(pem)
}
