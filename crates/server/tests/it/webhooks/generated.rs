//! Generated cases, equal in every run: webhooks with all their fields, and a request that some of
//! them may match.

use super::runner::{Case, Request};
use keelson_testkit::sorted;
use keelson_testkit::webhook::hex;
use serde_json::{Value, json};

/// A random number generator (xorshift64*) with a seed.
struct Rng(u64);

impl Rng {
    fn new(seed: u64) -> Rng {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        rng.below(2);
        rng
    }

    fn below(&mut self, count: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap_or_default() % count
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())].clone()
    }

    /// Returns a random non-empty part of a list.
    fn some(&mut self, list: &[&str]) -> Vec<String> {
        let mut some: Vec<String> =
            list.iter().filter(|_| self.one_in(2)).map(|&word| word.to_owned()).collect();
        if some.is_empty() {
            some.push(self.of(list).to_owned());
        }
        some
    }
}

/// Returns the case with a number.
pub fn case(number: u64) -> Case {
    let mut rng = Rng::new(number);
    let (subject, before, request) = subject(&mut rng);
    let count = 1 + rng.below(3);
    let mut case =
        Case { name: number.to_string(), before, requests: vec![request], ..Case::default() };
    for index in 0..count {
        let mutates = rng.one_in(2);
        let webhook = webhook(&mut rng, &subject, index, mutates);
        if mutates { case.mutating.push(webhook) } else { case.validating.push(webhook) }
    }
    case
}

/// The object of a request.
struct Subject {
    group: &'static str,
    other_group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    is_namespaced: bool,
}

/// A resource, the objects that must exist, and a request.
fn subject(rng: &mut Rng) -> (Subject, Vec<Request>, Request) {
    let mut subject = Subject {
        group: "",
        other_group: "apps",
        version: "v1",
        resource: "configmaps",
        subresource: "",
        is_namespaced: true,
    };
    let labels = json!({"app": rng.of(&["a", "b"]), "case": "$NS"});
    let metadata = json!({"name": "a", "labels": labels});
    let base = "/api/v1/namespaces/$NS";
    match rng.below(6) {
        0 | 1 => {
            let body = json!({"metadata": metadata, "data": {"k": "v"}});
            let (before, request) = verb(rng, &format!("{base}/configmaps"), &body);
            (subject, before, request)
        }
        2 => {
            subject.resource = "namespaces";
            subject.is_namespaced = false;
            let labels = json!({"name": "$NS-x", "labels": labels});
            let body = json!({"metadata": labels});
            let create = Request::new("POST", "/api/v1/namespaces", body);
            let path = "/api/v1/namespaces/$NS-x";
            if rng.one_in(2) {
                return (subject, vec![], create);
            }
            (subject, vec![create], patched(path, &json!({"metadata": {"labels": {"app": "b"}}})))
        }
        3 => {
            subject.group = "autoscaling";
            subject.resource = "horizontalpodautoscalers";
            subject.version = rng.of(&["v1", "v2"]);
            let body = json!({"metadata": metadata, "spec": {"maxReplicas": 3,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}});
            let version = subject.version;
            let path = format!("/apis/autoscaling/{version}/namespaces/$NS/{}", subject.resource);
            let (before, request) = verb(rng, &path, &body);
            (subject, before, request)
        }
        4 => {
            subject.other_group = "events.k8s.io";
            subject.resource = "events";
            let body = json!({"metadata": metadata, "reason": "R", "message": "m",
                "involvedObject": {"kind": "Pod", "name": "p", "namespace": "$NS"}});
            let request = Request::new("POST", &format!("{base}/events"), body);
            (subject, vec![], request)
        }
        _ => deployment(rng, subject, &metadata),
    }
}

/// A Deployment or a subresource.
fn deployment(
    rng: &mut Rng,
    mut subject: Subject,
    metadata: &Value,
) -> (Subject, Vec<Request>, Request) {
    subject.group = "apps";
    subject.other_group = "";
    subject.resource = "deployments";
    let template = json!({"metadata": {"labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let spec = json!({"selector": {"matchLabels": {"app": "a"}}, "template": template});
    let path = "/apis/apps/v1/namespaces/$NS/deployments";
    let body = json!({"metadata": metadata, "spec": spec});
    let create = Request::new("POST", path, body);
    match rng.below(3) {
        0 => (subject, vec![], create),
        1 => {
            subject.subresource = "status";
            let body = json!({"status": {"replicas": 2}});
            (subject, vec![create], patched(&format!("{path}/a/status"), &body))
        }
        _ => {
            subject.subresource = "scale";
            let body = json!({"spec": {"replicas": 2}});
            (subject, vec![create], patched(&format!("{path}/a/scale"), &body))
        }
    }
}

fn patched(path: &str, body: &Value) -> Request {
    Request { media: "application/merge-patch+json", ..Request::new("PATCH", path, body.clone()) }
}

/// A random verb for an object, sometimes as a dry run.
fn verb(rng: &mut Rng, all: &str, body: &Value) -> (Vec<Request>, Request) {
    let create = Request::new("POST", all, body.clone());
    let one = format!("{all}/a");
    let labels = json!({"metadata": {"labels": {"app": rng.of(&["a", "b", "c"])}}});
    let (before, mut request) = match rng.below(5) {
        0 | 1 => (vec![], create),
        2 => (vec![create], patched(&one, &labels)),
        3 => (vec![create], Request::new("DELETE", &one, Value::Null)),
        _ => {
            let mut body = body.clone();
            body["metadata"]["labels"]["app"] = json!("c");
            (vec![create], Request::new("PUT", &one, body))
        }
    };
    if rng.one_in(5) {
        request.path.push_str("?dryRun=All");
    }
    (before, request)
}

fn webhook(rng: &mut Rng, subject: &Subject, index: usize, mutates: bool) -> Value {
    let namespaces = if subject.is_namespaced && rng.one_in(8) {
        json!({"matchLabels": {"case": "$NS", "none": "x"}})
    } else {
        json!({"matchLabels": {"case": "$NS"}})
    };
    let objects = match rng.below(9) {
        0 => json!({"matchLabels": {"app": "a"}}),
        1 => json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["b"]}]}),
        2 => json!({"matchExpressions": [{"key": "hook0", "operator": "Exists"}]}),
        _ => json!({}),
    };
    let mut webhook = json!({
        "namespaceSelector": namespaces, "objectSelector": objects,
        "rules": (0..=rng.below(2)).map(|_| rule(rng, subject)).collect::<Vec<_>>(),
        "matchPolicy": rng.of(&["Exact", "Equivalent", "Equivalent"]),
        "failurePolicy": rng.of(&["Fail", "Ignore"]),
        "sideEffects": rng.of(&["None", "NoneOnDryRun"]),
        "admissionReviewVersions": rng.of(&[json!(["v1"]), json!(["v1beta1"]),
            json!(["v1beta1", "v1"]), json!(["v9", "v1"])]),
        "script": script(rng, index, mutates)
    });
    if mutates {
        webhook["reinvocationPolicy"] = json!(rng.of(&["Never", "IfNeeded"]));
    }
    if rng.one_in(4) {
        let expression = rng.of(&[
            "request.operation != 'DELETE'",
            "object.metadata.labels.app == 'a'",
            "oldObject == null || object == null",
            "request.dryRun",
            "has(request.subResource)",
            "object.metadata.name == request.name",
            "object.kind == request.kind.kind",
            "size(request.options) > 0",
        ]);
        webhook["matchConditions"] = json!([{"name": "c", "expression": expression}]);
    }
    webhook
}

fn rule(rng: &mut Rng, subject: &Subject) -> Value {
    let star = |rng: &mut Rng| !rng.one_in(3);
    let Subject { group, other_group, version, resource, subresource, .. } = *subject;
    let operations = match star(rng) {
        true => vec!["*".to_owned()],
        false => rng.some(&["CREATE", "UPDATE", "DELETE", "CONNECT"]),
    };
    let groups = match star(rng) {
        true => vec!["*".to_owned()],
        false => rng.some(&[group, other_group]),
    };
    let versions = match star(rng) {
        true => vec!["*".to_owned()],
        false => rng.some(&[version, "v1", "v2beta1"]),
    };
    let part = if subresource.is_empty() { "none" } else { subresource };
    let resources = match rng.below(6) {
        0 => "*".to_owned(),
        1 => "*/*".to_owned(),
        2 => format!("{resource}/*"),
        3 => format!("*/{part}"),
        4 if !subresource.is_empty() => format!("{resource}/{part}"),
        _ => resource.to_owned(),
    };
    json!({"operations": operations, "apiGroups": groups, "apiVersions": versions,
        "resources": [resources], "scope": rng.of(&["*", "*", "Namespaced", "Cluster"])})
}

fn script(rng: &mut Rng, index: usize, mutates: bool) -> String {
    let of = |word: &str, argument: &Value| {
        format!("{word}={}", hex(&sorted(argument.clone()).to_string()))
    };
    let add = |path: &str, value: Value| {
        of("patch", &json!([{"op": "add", "path": path, "value": value}]))
    };
    match rng.below(if mutates { 14 } else { 9 }) {
        0 | 1 => "allow".to_owned(),
        2 => "deny".to_owned(),
        3 => of("refuse", &json!({"message": "no", "code": 403 + index, "reason": "Because"})),
        4 => rng.of(&["500", "404", "204", "text.403"]).to_owned(),
        5 => of("respond", &json!({"warnings": [format!("warning {index}")]})),
        6 => of("respond", &json!({"uid": "other"})),
        7 => of("review", &json!({"response": null})),
        8 => of("refuse", &json!({"reason": "Gone"})),
        9 => add("/metadata/annotations", json!({"hook": index.to_string()})),
        _ => add(&format!("/metadata/labels/hook{index}"), json!("x")),
    }
}
