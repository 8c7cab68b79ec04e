//! The requests whose audit events are compared.

use serde_json::{Value, json};

/// A request of one user.
pub struct Request {
    /// The `Audit-ID`.
    pub id: String,
    pub method: &'static str,
    pub path: String,
    /// Header lines.
    pub headers: String,
    pub body: String,
}

/// A builder of the list.
#[derive(Default)]
struct Requests(Vec<Request>);

const ADMIN: &str = "admintoken";
const ALICE: &str = "alicetoken";
const DEFAULT: &str = "/api/v1/namespaces/default";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

impl Requests {
    fn add(&mut self, token: &str, method: &'static str, path: &str, headers: &str, body: &str) {
        let id = format!("r{}", self.0.len());
        let bearer = match token {
            "" => String::new(),
            token => format!("Authorization: Bearer {token}\r\n"),
        };
        let headers = format!("Audit-ID: {id}\r\n{bearer}{headers}");
        self.0.push(Request { id, method, path: path.to_owned(), headers, body: body.to_owned() });
    }

    fn get(&mut self, path: &str) {
        self.add(ADMIN, "GET", path, "", "");
    }

    fn send(&mut self, method: &'static str, path: &str, media: &str, body: &str) {
        self.add(ADMIN, method, path, &format!("Content-Type: {media}\r\n"), body);
    }

    fn json(&mut self, method: &'static str, path: &str, body: &Value) {
        self.send(method, path, JSON, &body.to_string());
    }
}

/// Returns the requests, in the order in which they are sent.
pub fn all() -> Vec<Request> {
    let mut requests = Requests::default();
    objects(&mut requests);
    changes(&mut requests);
    subresources(&mut requests);
    refusals(&mut requests);
    users(&mut requests);
    paths(&mut requests);
    deletions(&mut requests);
    annotated(&mut requests);
    requests.0
}

fn config_map(name: &str, data: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": data}
    })
}

fn deployment(name: &str) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {
            "containers": [{"name": "c", "image": "i"}]}}}})
}

fn objects(requests: &mut Requests) {
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}});
    requests.json("POST", "/api/v1/namespaces", &namespace);
    for namespace in ["default", "other"] {
        let maps = format!("/api/v1/namespaces/{namespace}/configmaps");
        for name in ["a", "b"] {
            requests.json("POST", &maps, &config_map(name, "<1>"));
            requests.json("POST", &maps, &config_map(name, "again"));
            requests.get(&format!("{maps}/{name}"));
        }
        requests.get(&maps);
        requests.get(&format!("{maps}?limit=1&labelSelector=x%3Dy"));
        requests.get(&format!("{maps}?fieldSelector=metadata.name%3Da"));
        requests.get(&format!("{maps}?watch=1&timeoutSeconds=1&resourceVersion=0"));
    }
    requests.get(&format!("{DEFAULT}/configmaps/none"));
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
        "stringData": {"password": "p"}});
    requests.json("POST", &format!("{DEFAULT}/secrets"), &secret);
    requests.json("POST", "/apis/apps/v1/namespaces/default/deployments", &deployment("d"));
    requests.get("/apis/apps/v1/namespaces/default/deployments/d");
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\n";
    requests.send("POST", &format!("{DEFAULT}/configmaps"), "application/yaml", yaml);
    let partial = "Accept: application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io\r\n";
    requests.add(ADMIN, "GET", &format!("{DEFAULT}/configmaps/a"), partial, "");
    let protobuf = "Accept: application/vnd.kubernetes.protobuf\r\n";
    for path in ["/configmaps/a", "/configmaps/none", "/configmaps?limit=500"] {
        requests.add(ADMIN, "GET", &format!("{DEFAULT}{path}"), protobuf, "");
    }
}

fn changes(requests: &mut Requests) {
    let a = format!("{DEFAULT}/configmaps/a");
    requests.json("PUT", &a, &config_map("a", "2"));
    requests.json("PUT", &a, &config_map("b", "2"));
    requests.json("PUT", &format!("{DEFAULT}/configmaps/none"), &config_map("none", "2"));
    let mut stale = config_map("a", "3");
    stale["metadata"]["resourceVersion"] = "1".into();
    requests.json("PUT", &a, &stale);
    requests.send("PATCH", &a, MERGE, "{\"data\": {\"m\": \"<1>\"}}");
    requests.send(
        "PATCH",
        &a,
        "application/json-patch+json",
        "[{\"op\": \"add\", \"path\": \"/data/j\", \"value\": \"1\"}]",
    );
    requests.send(
        "PATCH",
        &a,
        "application/strategic-merge-patch+json",
        "{\"data\":{\"s\":\"1\"}}",
    );
    // Written as JSON, because kube-apiserver loses the event of an apply in YAML.
    let applied = config_map("a", "4").to_string();
    requests.send("PATCH", &format!("{a}?fieldManager=m&force=true"), APPLY, &applied);
    requests.send(
        "PATCH",
        &format!("{a}?fieldManager=n"),
        APPLY,
        &config_map("a", "5").to_string(),
    );
    requests.send("PATCH", &a, APPLY, &applied);
    requests.json("POST", &format!("{DEFAULT}/configmaps?dryRun=All"), &config_map("dry", "1"));
    requests.json("PUT", &format!("{a}?dryRun=All"), &config_map("a", "dry"));
}

fn subresources(requests: &mut Requests) {
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    requests.get(&format!("{deployments}/d/scale"));
    let scale = json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": 2}});
    requests.json("PUT", &format!("{deployments}/d/scale"), &scale);
    requests.send("PATCH", &format!("{deployments}/d/scale"), MERGE, "{\"spec\":{\"replicas\":3}}");
    requests.send("PATCH", &format!("{deployments}/d/status"), MERGE, "{\"status\":{}}");
    requests.get(&format!("{deployments}/none/scale"));
    requests.add(ADMIN, "POST", &format!("{DEFAULT}/pods/p/exec?command=ls&stdout=1"), "", "");
    requests.get(&format!("{DEFAULT}/pods/p/log"));
    requests.get(&format!("{DEFAULT}/services/s/proxy/a/b?x=1"));
    requests.add(ADMIN, "POST", &format!("{DEFAULT}/pods/p/portforward"), "", "");
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"kind": "Node", "name": "n"}});
    requests.json("POST", &format!("{DEFAULT}/pods/p/binding"), &binding);
    let eviction =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    requests.json("POST", &format!("{DEFAULT}/pods/p/eviction"), &eviction);
    let review = json!({"apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    requests.json("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", &review);
    requests.json(
        "PUT",
        "/api/v1/namespaces/other/finalize",
        &json!({
        "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"},
        "spec": {"finalizers": ["kubernetes"]}}),
    );
}

fn refusals(requests: &mut Requests) {
    let maps = format!("{DEFAULT}/configmaps");
    requests.send("POST", &maps, JSON, "{bad");
    requests.send("POST", &maps, "text/bad", "x");
    requests.json("POST", &maps, &json!({"apiVersion": "v1", "kind": "Secret"}));
    let mut wrong = config_map("w", "1");
    wrong["metadata"]["namespace"] = "other".into();
    requests.json("POST", &maps, &wrong);
    let mut unknown = config_map("u", "1");
    unknown["foo"] = 1.into();
    requests.json("POST", &format!("{maps}?fieldValidation=Strict"), &unknown);
    requests.send("PATCH", &format!("{maps}/a"), "text/bad", "x");
    requests.send("PUT", &maps, JSON, "{}");
    requests.add(ADMIN, "OPTIONS", &maps, "", "");
    for query in ["timeout=abc", "labelSelector=%3D%3D", "watch=1&labelSelector=%3D%3D"] {
        requests.get(&format!("{maps}?{query}"));
    }
    requests.add(ADMIN, "GET", &maps, "Accept: application/bad\r\n", "");
    requests.get("/api/v1/none");
    requests.get("/apis/none/v1/x");
    requests.get("/apis/apps/v1/namespaces/default/none/x");
}

fn users(requests: &mut Requests) {
    let maps = format!("{DEFAULT}/configmaps");
    requests.add("wrong", "GET", &maps, "", "");
    // Paths that one binding allows: kube-apiserver names any of several.
    for (token, path) in [(ALICE, "/apis/apps"), ("", "/version")] {
        requests.add(token, "GET", &maps, "", "");
        requests.add(token, "GET", path, "", "");
        requests.add(token, "GET", "/secret", "", "");
        let media = format!("Content-Type: {JSON}\r\n");
        requests.add(token, "POST", &maps, &media, &config_map("no", "1").to_string());
    }
    let bob = "Impersonate-User: bob\r\n";
    requests.add(ADMIN, "GET", &maps, bob, "");
    requests.add(ALICE, "GET", &maps, bob, "");
    let whole = format!("{bob}Impersonate-Group: g\r\nImpersonate-Uid: u\r\n");
    requests.add(ADMIN, "GET", &maps, &format!("{whole}Impersonate-Extra-Dept: x\r\n"), "");
    requests.add(ADMIN, "GET", &maps, "Impersonate-User: bob\r\nImpersonate-Group: g\r\n", "");
    requests.add(ADMIN, "GET", &maps, "Impersonate-Group: g\r\n", "");
}

fn paths(requests: &mut Requests) {
    for path in ["/healthz", "/version", "/apis/apps", "/openapi/v3", "/none", "/", "/metrics"] {
        requests.get(path);
    }
    let forwarded = "X-Forwarded-For: 1.2.3.4, 5.6.7.8\r\nX-Real-Ip: 9.9.9.9\r\n";
    requests.add(ADMIN, "GET", "/healthz", forwarded, "");
    requests.add(ADMIN, "POST", "/healthz", "", "");
}

fn deletions(requests: &mut Requests) {
    let maps = format!("{DEFAULT}/configmaps");
    requests.add(ADMIN, "DELETE", &format!("{maps}/b"), "", "");
    requests.add(ADMIN, "DELETE", &format!("{maps}/b"), "", "");
    let options = |more: Value| {
        let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions"});
        options["propagationPolicy"] = more;
        options
    };
    requests.json("DELETE", &format!("{maps}/a"), &options("Bad".into()));
    requests.json("DELETE", &format!("{maps}/a"), &options("Background".into()));
    requests.send("DELETE", &format!("{maps}/y"), JSON, "{bad");
    requests.add(ADMIN, "DELETE", &format!("{maps}?labelSelector=a%3Db"), "", "");
    requests.add(ADMIN, "DELETE", "/api/v1/namespaces/other", "", "");
    requests.get("/api/v1/namespaces/other");
}

/// Requests with annotations of their own: deprecated versions, a token that is issued.
fn annotated(requests: &mut Requests) {
    requests.get(&format!("{DEFAULT}/endpoints/none"));
    requests.get("/api/v1/componentstatuses/none");
    let accounts = format!("{DEFAULT}/serviceaccounts");
    requests.json("POST", &accounts, &json!({"metadata": {"name": "robot"}}));
    requests.json("POST", &format!("{accounts}/robot/token"), &json!({}));
}
