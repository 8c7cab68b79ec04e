//! Admission webhooks over HTTP: scripted webhooks, compared with kube-apiserver's responses.
//!
//! The responses in `files/webhooks.txt` and `files/webhook_cases.txt` were recorded from a
//! kube-apiserver 1.36 (`--disable-admission-plugins=ServiceAccount`, and the token `admintoken` of
//! an administrator `admin` with the uid `admin-uid` in `system:masters`) by these tests
//! themselves, with its URL in `KEELSON_WEBHOOKS_RECORD`.

mod api;
mod cases;
mod conversion;
mod coverage;
mod generated;
mod misbehaving;
mod runner;

use crate::world::{Options, Server, without_accounts};
use api::Api;
use keelson_admission::Chain;
use keelson_testkit::webhook::{Webhook, hex};
use runner::run;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

fn recordings(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/files").join(name)
}

/// Returns the API under test, and whether its responses are recorded.
fn api() -> (Api, bool) {
    match std::env::var("KEELSON_WEBHOOKS_RECORD") {
        Ok(url) => (Api::Recorded(url), true),
        Err(_) => (Api::start(), false),
    }
}

/// Writes a recording, or compares the lines with it.
fn write_or_compare(file: &str, lines: &[String], is_recording: bool) {
    let path = recordings(file);
    if is_recording {
        return std::fs::write(path, lines.join("\n") + "\n").expect("a recording");
    }
    let recording = std::fs::read_to_string(path).expect("a recording");
    let recorded: Vec<&str> = recording.lines().collect();
    assert_eq!(recorded.len(), lines.len(), "cases of {file}");
    let differs = |(have, want): &(&String, &&str)| have.as_str() != **want;
    let faults: Vec<String> = lines
        .iter()
        .zip(&recorded)
        .filter(differs)
        .map(|(have, want)| format!("have {have}\nwant {want}"))
        .collect();
    let count = faults.len();
    let of = lines.len();
    assert!(faults.is_empty(), "{count} of {of} differ:\n{}", faults.join("\n\n"));
}

#[test]
fn webhook_requests_and_results_match_kube_apiserver() {
    let (api, is_recording) = api();
    let hook = Webhook::start("h2", &["127.0.0.1"]);
    let stamp = stamp();
    let mut lines = vec![];
    for (index, case) in cases::all().iter().enumerate() {
        let seen = run(&api, &hook, case, &format!("case-{stamp}-{index}"));
        lines.extend(seen.iter().map(|seen| format!("{}: {seen}", case.name)));
    }
    write_or_compare("webhooks.txt", &lines, is_recording);
    api.stop();
}

/// Number of generated cases.
const GENERATED: u64 = 1_000;

/// Requests to the webhooks are recorded as a checksum; all of them would be megabytes.
/// `KEELSON_WEBHOOKS_CASE` prints all of one case. `KEELSON_WEBHOOKS_FIRST` generates other cases,
/// from that number on, for which there is no recording until one is made with the same number.
#[test]
fn generated_webhook_requests_and_results_match_kube_apiserver() {
    let (api, is_recording) = api();
    let hook = Webhook::start("http/1.1", &["127.0.0.1"]);
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let only = number("KEELSON_WEBHOOKS_CASE");
    let first = number("KEELSON_WEBHOOKS_FIRST").unwrap_or(0);
    let stamp = stamp();
    let numbers = only.map_or(first..first + GENERATED, |number| number..number + 1);
    let lines: Vec<String> = numbers
        .flat_map(|number| {
            let seen = run(&api, &hook, &generated::case(number), &format!("gen-{stamp}-{number}"));
            seen.into_iter().map(without_race).map(move |seen| match only {
                None => digest(number, &seen),
                Some(_) => format!("{number} {seen}"),
            })
        })
        .collect();
    api.stop();
    match only {
        Some(number) => panic!("case {number}: {:?}\n{lines:?}", generated::case(number)),
        None => write_or_compare("webhook_cases.txt", &lines, is_recording),
    }
}

/// If several validating webhooks reject, kube-apiserver returns the first response that arrives,
/// Keelson the first in order, so only the received requests are compared. The same holds for the
/// order of warnings.
fn without_race(mut seen: Value) -> Value {
    let warns = hex("warnings");
    let validating = |warn: bool| {
        let calls = seen["calls"].as_array().into_iter().flatten();
        let paths = calls
            .filter_map(|call| call["path"].as_str())
            .filter(|path| path.starts_with("/v") && !path.contains("/allow"));
        paths.filter(|path| path.contains(&warns) == warn).count()
    };
    let refusing = validating(false);
    let warning = validating(true);
    if refusing > 1 {
        (seen["status"], seen["body"]) = (json!("race"), Value::Null);
    }
    if let Some(warnings) = seen["warnings"].as_array_mut().filter(|_| warning > 1) {
        warnings.sort_by_key(Value::to_string);
    }
    seen
}

/// Returns the result of a request, and a checksum of all that was recorded (FNV-1a).
fn digest(number: u64, seen: &Value) -> String {
    let mut sum: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in seen.to_string().bytes() {
        sum = (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let calls = seen["calls"].as_array().map_or(0, Vec::len);
    let message = seen["body"]["message"].as_str().unwrap_or("-");
    format!("{number} {} calls={calls} {sum:016x} {message}", seen["status"])
}

/// A suffix that makes names unique to this run.
fn stamp() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |time| time.as_secs())
}

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Starts a server with one webhook for ConfigMaps and things. Returns the result of creating a
/// ConfigMap.
fn with_webhook(sort: &str, config: &Value) -> (Server, String, u16) {
    webhook_in(without_accounts(), sort, config)
}

fn webhook_in(options: Options, sort: &str, config: &Value) -> (Server, String, u16) {
    let server = Server::start_plain(options);
    let client = server.client();
    let webhook = json!({
        "name": "a.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": config, "timeoutSeconds": 5,
        "rules": [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"],
            "resources": ["configmaps", "things"]}]
    });
    let body = json!({"metadata": {"name": "a"}, "webhooks": [webhook]});
    let path = format!("/apis/admissionregistration.k8s.io/v1/{sort}webhookconfigurations");
    assert_eq!(client.post(&path, &body).status, 201);
    let answer = client.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}}));
    let message = answer.body["message"].as_str().unwrap_or_default().to_owned();
    (server, message, answer.status)
}

#[test]
fn a_webhook_with_another_certificate_name_is_not_trusted() {
    let hook = Webhook::start("h2", &["other.example.com"]);
    let (server, message, status) = with_webhook("validating", &hook.config("allow"));
    let want = "tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1 \
                because it doesn't contain any IP SANs";
    assert!(status == 500 && message.ends_with(want), "{status} {message}");
    assert!(hook.take().is_empty());
    server.stop();
}

#[test]
fn a_redirect_is_not_followed() {
    let hook = Webhook::start("http/1.1", &["127.0.0.1"]);
    let (server, message, status) = with_webhook("mutating", &hook.config("307"));
    let want = "the server responded with the status code 307 but did not return more information";
    assert!(status == 500 && message.ends_with(want), "{status} {message}");
    assert_eq!(hook.take().len(), 1);
    server.stop();
}

#[test]
fn a_webhook_service_is_verified_by_its_service_name() {
    let hook = Webhook::start("h2", &["hook.default.svc"]);
    let service = |name: &str| {
        json!({"caBundle": hook.bundle, "service": {"namespace": "default", "name": name,
            "port": hook.address.port(), "path": "/deny"}})
    };
    let (server, message, status) = with_webhook("validating", &service("hook"));
    let url = format!("https://hook.default.svc:{}/deny?timeout=5s", hook.address.port());
    let want = format!("failed to call webhook: Post \"{url}\": service \"hook\" not found");
    assert!(status == 500 && message.ends_with(&want), "{status} {message}");
    let client = server.client();
    let external = json!({"metadata": {"name": "hook"},
        "spec": {"type": "ExternalName", "externalName": "localhost"}});
    assert_eq!(client.post("/api/v1/namespaces/default/services", &external).status, 201);
    let answer = client.post(CONFIG_MAPS, &json!({"metadata": {"name": "a"}}));
    assert_eq!((answer.status, hook.take().len()), (400, 1), "{answer:?}");
    server.stop();
}

#[test]
fn a_webhook_configuration_applies_from_its_creation_to_its_deletion() {
    let hook = Webhook::start("h2", &["127.0.0.1"]);
    let (server, _, status) = with_webhook("validating", &hook.config("deny"));
    assert_eq!(status, 400);
    let client = server.client();
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/a";
    let allow = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/url",
        "value": hook.config("allow")["url"]}]);
    let patched = client.call("PATCH", path, "application/json-patch+json", Some(&allow));
    assert_eq!(patched.status, 200, "{patched:?}");
    let make = |name: &str| client.post(CONFIG_MAPS, &json!({"metadata": {"name": name}})).status;
    assert_eq!(make("b"), 201);
    assert_eq!(hook.take().len(), 2);
    assert_eq!(client.delete(path).status, 200);
    assert_eq!((make("c"), hook.take().len()), (201, 0));
    server.stop();
}

/// Proves: R-DEF-11.
#[test]
fn a_custom_resource_is_patched_and_pruned() {
    let hook = Webhook::start("h2", &["127.0.0.1"]);
    let operations = json!([
        {"op": "add", "path": "/spec", "value": {"size": 3, "unknown": 1}},
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}
    ]);
    let script = format!("patch={}", hex(&operations.to_string()));
    let (server, _, _) = with_webhook("mutating", &hook.config(&script));
    let client = server.client();
    let spec = json!({"type": "object", "properties": {"size": {"type": "integer"},
        "color": {"type": "string", "default": "red"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let definition = json!({"metadata": {"name": "things.example.org"}, "spec": {
        "group": "example.org", "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}]}});
    let made = client.post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    assert_eq!(made.status, 201, "{made:?}");
    let path = "/apis/example.org/v1/namespaces/default/things";
    client.poll(path, |answer| answer.status == 200);
    hook.take();
    let thing = json!({"apiVersion": "example.org/v1", "kind": "Thing", "metadata": {"name": "a"}});
    let made = client.post(path, &thing);
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.body["spec"], json!({"size": 3, "color": "red"}));
    assert_eq!(made.body["metadata"]["labels"], json!({"a": "b"}));
    let calls = hook.take();
    let sent = &calls[0].review["request"];
    assert_eq!(sent["object"]["kind"], "Thing");
    assert_eq!(sent["kind"], json!({"group": "example.org", "version": "v1", "kind": "Thing"}));
    server.stop();
}

#[test]
fn a_webhook_gets_the_credentials_of_the_admission_configuration() {
    let hook = Webhook::start("h2", &["127.0.0.1"]);
    let folder = tempfile::tempdir().expect("a folder");
    let users = json!([{"name": hook.address.to_string(), "user": {"token": "secret"}}]);
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, json!({"users": users}).to_string()).expect("a file");
    let own = json!({"apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "WebhookAdmissionConfiguration", "kubeConfigFile": kubeconfig});
    let plug_ins = json!([{"name": "ValidatingAdmissionWebhook", "configuration": own}]);
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration", "plugins": plug_ins});
    let path = folder.path().join("admission.yaml");
    std::fs::write(&path, config.to_string()).expect("a file");
    for (sort, want) in [("validating", "Bearer secret"), ("mutating", "")] {
        let mut options = without_accounts();
        let config = Chain::read_config(&path).expect("a configuration");
        options.chain = options.chain.with_config(config);
        let (server, message, status) = webhook_in(options, sort, &hook.config("allow"));
        assert_eq!(status, 201, "{message}");
        assert_eq!(hook.take()[0].authorization, want, "{sort}");
        server.stop();
    }
}

#[test]
fn image_policy_webhook_decides_on_pod_images() {
    let hook = Webhook::start("h2", &["127.0.0.1"]);
    let server = start_with_image_policy(&hook, false);
    let client = server.client();
    let post = |name: &str, image: &str| {
        let annotations = json!({"b": "1", "my.image-policy.k8s.io/ticket": "2"});
        let containers = json!([{"name": "c", "image": image}]);
        let init = json!([{"name": "i", "image": "init"}]);
        let body = json!({"metadata": {"name": name, "annotations": annotations},
            "spec": {"containers": containers, "initContainers": init}});
        let answer = client.post("/api/v1/namespaces/default/pods", &body);
        (answer.status, answer.body["message"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(post("a", "good").0, 201);
    let calls = hook.take();
    assert_eq!(calls.len(), 1);
    assert_eq!(
        (calls[0].path.as_str(), calls[0].authorization.as_str()),
        ("/images?timeout=30s", "Bearer secret")
    );
    let want = json!({"kind": "ImageReview", "apiVersion": "imagepolicy.k8s.io/v1alpha1",
        "metadata": {}, "status": {"allowed": false}, "spec": {"namespace": "default",
            "containers": [{"image": "good"}, {"image": "init"}],
            "annotations": {"my.image-policy.k8s.io/ticket": "2"}}});
    assert_eq!(calls[0].review, want);
    assert_eq!(post("b", "good").0, 201);
    assert_eq!(hook.take().len(), 0, "the verdict is remembered");
    let check = |image: &str, why: &str, calls: usize| {
        assert_eq!(post("c", image), (403, format!("pods \"c\" is forbidden: {why}")));
        assert_eq!(hook.take().len(), calls, "{image}");
    };
    check("bad", "one or more images rejected by webhook backend", 1);
    check("old", "image policy webhook backend denied one or more images: too old", 1);
    let broken = "an error on the server (\"unknown\") has prevented the request from succeeding";
    check("odd", broken, 5);
    server.stop();
    let server = start_with_image_policy(&hook, true);
    let body = json!({"metadata": {"name": "a"},
        "spec": {"containers": [{"name": "c", "image": "odd"}]}});
    let answer = server.client().post("/api/v1/namespaces/default/pods", &body);
    assert_eq!(answer.status, 201, "a backend that fails lets pods pass with defaultAllow");
}

fn start_with_image_policy(hook: &Webhook, default_allow: bool) -> Server {
    let folder = tempfile::tempdir().expect("a folder");
    let kubeconfig = folder.path().join("kubeconfig");
    let cluster = json!({"server": format!("https://{}/images", hook.address),
        "certificate-authority-data": hook.bundle});
    let text = json!({"current-context": "x", "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}]});
    std::fs::write(&kubeconfig, text.to_string()).expect("a file");
    let own = json!({"imagePolicy": {"kubeConfigFile": kubeconfig, "retryBackoff": 1,
        "defaultAllow": default_allow}});
    let plug_ins = json!([{"name": "ImagePolicyWebhook", "configuration": own}]);
    let config = json!({"apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "AdmissionConfiguration", "plugins": plug_ins});
    let path = folder.path().join("admission.yaml");
    std::fs::write(&path, config.to_string()).expect("a file");
    let on = ["ImagePolicyWebhook".to_owned()];
    let off = ["ServiceAccount".to_owned()];
    let admission = Chain::new(&on, &off).expect("plug-ins");
    let admission = admission.with_config(Chain::read_config(&path).expect("a configuration"));
    Server::start_plain(without_accounts().with(|options| options.chain = admission))
}
