//! Webhooks that authenticate tokens and authorize requests, and the file of
//! `--authorization-config`.

use crate::certificates::wait_for;
use crate::http::{Client, POLL_TIMEOUT, Server, without_controllers};
use keelson::{Authorization, TokenWebhookOptions};
use keelson_auth::webhook::{
    AuthorizationConfiguration, FailurePolicy, ReviewVersion, WebhookOptions,
};
use keelson_testkit::https_peer::{HttpsPeer, Reply};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const MINUTE: Duration = Duration::from_secs(60);

/// A webhook with settable answers that records its requests.
pub struct Hook {
    peer: HttpsPeer,
    sent: Arc<Mutex<Vec<(String, Value)>>>,
    dir: TempDir,
}

impl Hook {
    pub fn start(answer: impl Fn(&str, &Value) -> Reply + Send + Sync + 'static) -> Hook {
        let sent: Arc<Mutex<Vec<(String, Value)>>> = Arc::default();
        let kept = sent.clone();
        let peer = HttpsPeer::start(move |_, asked| {
            kept.lock().expect("a lock").push((asked.authorization, asked.body.clone()));
            answer(&asked.path, &asked.body)
        });
        Hook { peer, sent, dir: tempfile::tempdir().expect("a folder") }
    }

    /// A webhook that responds to SubjectAccessReviews with the status that a function returns.
    pub fn access(status: impl Fn(&str, &Value) -> Value + Send + Sync + 'static) -> Hook {
        Hook::start(move |path, review| {
            let mut answer = review.clone();
            answer["status"] = status(path, &review["spec"]);
            Some((201, answer))
        })
    }

    /// Returns a kubeconfig for a path of the webhook.
    pub fn kubeconfig(&self, path: &str) -> PathBuf {
        let ca = self.dir.path().join("ca.pem");
        std::fs::write(&ca, &self.peer.authority).expect("a file");
        let file = self.dir.path().join(format!("kubeconfig-{path}"));
        let url = self.peer.url();
        let text = format!(
            "current-context: x\nclusters:\n- name: c\n  cluster: {{server: \"{url}/{path}\", \
             certificate-authority: ca.pem}}\nusers:\n- {{name: u, user: {{token: hush}}}}\n\
             contexts:\n- {{name: x, context: {{cluster: c, user: u}}}}\n"
        );
        std::fs::write(&file, text).expect("a file");
        file
    }

    pub fn take(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.sent.lock().expect("a lock"))
    }
}

fn get_as(client: &Client, user: &str, path: &str) -> (u16, String) {
    let answer = client.request("GET", path, &format!("Impersonate-User: {user}\r\n"), None);
    (answer.status, answer.body["message"].as_str().unwrap_or_default().to_owned())
}

fn options(failure_policy: FailurePolicy, match_conditions: &[&str]) -> WebhookOptions {
    WebhookOptions {
        version: ReviewVersion::V1,
        timeout: POLL_TIMEOUT,
        authorized_ttl: MINUTE,
        unauthorized_ttl: MINUTE,
        failure_policy,
        match_conditions: match_conditions.iter().map(|text| (*text).to_owned()).collect(),
    }
}

fn start(modes: &[&str], hook: &Hook, options: &WebhookOptions) -> Server {
    let words: Vec<String> = modes.iter().map(|word| (*word).to_owned()).collect();
    let file = hook.kubeconfig("hook").to_str().expect("a path").to_owned();
    let authorization = Authorization::modes(&words).expect("modes").with_webhook(file, options);
    Server::start_plain(without_controllers().authorization(authorization))
}

fn by_user(_: &str, spec: &Value) -> Value {
    match spec["user"].as_str().unwrap_or_default() {
        "yes" => json!({"allowed": true, "reason": "known"}),
        "no" => json!({"allowed": false, "denied": true, "reason": "banned"}),
        "both" => json!({"allowed": true, "denied": true}),
        _ => json!({"allowed": false, "reason": "unknown"}),
    }
}

#[test]
fn a_webhook_gets_all_attributes_and_its_answers_are_cached() {
    let hook = Hook::access(by_user);
    let server = start(&["Webhook", "AlwaysAllow"], &hook, &options(FailurePolicy::NoOpinion, &[]));
    let client = server.client();
    let path = format!("{MAPS}?labelSelector=a%3Db,c&fieldSelector=metadata.name%3Dn");
    assert_eq!(get_as(&client, "yes", &path).0, 200);
    let sent = hook.take();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].0, "Bearer hush");
    let want = json!({
        "kind": "SubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "metadata": {},
        "status": {"allowed": false},
        "spec": {
            "user": "yes", "groups": ["system:authenticated"],
            "resourceAttributes": {
                "verb": "list", "version": "v1", "resource": "configmaps",
                "namespace": "default", "name": "n",
                "fieldSelector": {"requirements": [
                    {"key": "metadata.name", "operator": "In", "values": ["n"]}]},
                "labelSelector": {"requirements": [
                    {"key": "a", "operator": "In", "values": ["b"]},
                    {"key": "c", "operator": "Exists"}]}
            }
        }
    });
    assert_eq!(sent[0].1, want);
    // Responses are cached by attributes.
    assert_eq!(get_as(&client, "yes", &path).0, 200);
    assert_eq!(hook.take().len(), 0);
    assert_eq!(get_as(&client, "yes", MAPS).0, 200);
    assert_eq!(hook.take().len(), 1);
    let extra = "Impersonate-User: yes\r\nImpersonate-Extra-k: v\r\n";
    assert_eq!(client.request("GET", MAPS, extra, None).status, 200);
    let sent = hook.take();
    assert_eq!(sent[0].1["spec"]["extra"], json!({"k": ["v"]}));
    // A denial ends the chain, no opinion does not.
    let (code, message) = get_as(&client, "no", MAPS);
    assert_eq!((code, message.ends_with("in the namespace \"default\": banned")), (403, true));
    assert_eq!(get_as(&client, "who", MAPS).0, 200);
    assert_eq!(get_as(&client, "both", MAPS).0, 500);
    server.stop();
}

#[test]
fn a_failed_webhook_call_denies_and_is_not_cached() {
    let broken = Arc::new(Mutex::new(true));
    let is_broken = broken.clone();
    let hook = Hook::start(move |_, review| {
        if *is_broken.lock().expect("a lock") {
            return Some((400, json!("odd")));
        }
        let mut answer = review.clone();
        answer["status"] = json!({"allowed": true});
        Some((200, answer))
    });
    for (policy, want) in [(FailurePolicy::NoOpinion, 200), (FailurePolicy::Deny, 500)] {
        *broken.lock().expect("a lock") = true;
        let server = start(&["Webhook", "AlwaysAllow"], &hook, &options(policy, &[]));
        let client = server.client();
        assert_eq!(get_as(&client, "bob", MAPS).0, want, "{policy:?}");
        *broken.lock().expect("a lock") = false;
        assert_eq!(get_as(&client, "bob", MAPS).0, 200, "{policy:?}");
        server.stop();
    }
    *broken.lock().expect("a lock") = true;
    let server = start(&["Webhook"], &hook, &options(FailurePolicy::NoOpinion, &[]));
    let (code, message) = get_as(&server.client(), "bob", MAPS);
    assert_eq!((code, message.contains("the server rejected our request")), (500, true));
    server.stop();
}

#[test]
fn match_conditions_select_the_requests_of_a_webhook() {
    let hook = Hook::access(|_, _| json!({"denied": true}));
    let conditions = [
        "has(request.resourceAttributes)",
        "request.resourceAttributes.namespace == 'kube-system'",
    ];
    let options = options(FailurePolicy::Deny, &conditions);
    let server = start(&["Webhook", "AlwaysAllow"], &hook, &options);
    let client = server.client();
    assert_eq!(get_as(&client, "bob", MAPS).0, 200);
    assert_eq!(get_as(&client, "bob", "/version").0, 200);
    assert_eq!(hook.take().len(), 0);
    assert_eq!(get_as(&client, "bob", "/api/v1/namespaces/kube-system/configmaps").0, 403);
    // A condition that cannot be evaluated is an error.
    assert_eq!(get_as(&client, "bob", "/api/v1/configmaps").0, 500);
    server.stop();
}

/// Writes an authorization configuration with webhooks at these paths.
fn config(hook: &Hook, authorizers: &[&str]) -> String {
    let mut text = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n\
                    authorizers:\n"
        .to_owned();
    for name in authorizers {
        text += &match name.chars().next() {
            Some(first) if first.is_uppercase() => {
                format!("- {{type: {name}, name: {}}}\n", name.to_lowercase())
            }
            _ => format!(
                "- type: Webhook\n  name: {name}\n  webhook:\n    timeout: 300ms\n    \
                 authorizedTTL: 1ms\n    unauthorizedTTL: 1ms\n    failurePolicy: NoOpinion\n    \
                 subjectAccessReviewVersion: v1beta1\n    connectionInfo: {{type: KubeConfigFile, \
                 kubeConfigFile: {}}}\n",
                hook.kubeconfig(name).display()
            ),
        };
    }
    text
}

fn start_file(file: &Path) -> Server {
    let authorization = Authorization::file(file).expect("a configuration");
    let look = Duration::from_millis(20);
    Server::start_plain(
        without_controllers()
            .authorization(authorization)
            .with(|builder| builder.serving.certificate_check_interval = look),
    )
}

#[test]
fn authorizers_of_a_file_run_in_order_and_are_reloaded() {
    let hook = Hook::start(|path, review| {
        let mut answer = review.clone();
        let user = review["spec"]["user"].as_str().unwrap_or_default();
        answer["status"] = match path {
            "/slow" => return None,
            "/first" if user == "banned" => json!({"denied": true, "reason": "first"}),
            "/first" => json!({"allowed": false}),
            _ => json!({"allowed": true}),
        };
        Some((200, answer))
    });
    let file = hook.dir.path().join("authorization.yaml");
    let write = |authorizers: &[&str]| {
        std::fs::write(&file, config(&hook, authorizers)).expect("a file");
    };
    write(&["first", "slow", "second", "RBAC"]);
    let server = start_file(&file);
    let client = server.client();
    assert_eq!(get_as(&client, "bob", MAPS).0, 200);
    let sent = hook.take();
    let versions: Vec<&Value> = sent.iter().map(|(_, review)| &review["apiVersion"]).collect();
    assert_eq!(versions, ["authorization.k8s.io/v1beta1"; 3]);
    // v1beta1 has another field name for groups.
    assert_eq!(sent[0].1["spec"]["group"], json!(["system:authenticated"]));
    assert_eq!(get_as(&client, "banned", MAPS).0, 403);
    write(&["RBAC"]);
    wait_for(403, || get_as(&client, "bob", MAPS).0);
    // An invalid configuration is ignored.
    std::fs::write(&file, "authorizers: []").expect("a file");
    let look = Instant::now() + Duration::from_millis(200);
    wait_for(true, || {
        assert_eq!(get_as(&client, "bob", MAPS).0, 403);
        Instant::now() > look
    });
    write(&["second"]);
    wait_for(200, || get_as(&client, "bob", MAPS).0);
    let rules = client.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
        "Impersonate-User: bob\r\nContent-Type: application/json\r\n",
        Some(&json!({"spec": {"namespace": "default"}})),
    );
    assert_eq!(rules.body["status"]["incomplete"], true);
    let why = "webhook authorizer does not support user rule resolution";
    assert_eq!(rules.body["status"]["evaluationError"], why);
    server.stop();
}

#[test]
fn authorization_configuration_errors_match_kube_apiserver() {
    let text = include_str!("files/authorization.yaml");
    let parsed = keelson_schema::yaml::parse(text).expect("YAML");
    let refused = AuthorizationConfiguration::read(&parsed.value).expect_err("faults");
    assert_eq!(refused, include_str!("files/authorization.txt").trim_end());
    let check = |text: &str, want: &str| {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\n";
        let parsed = keelson_schema::yaml::parse(format!("{head}{text}")).expect("YAML");
        let refused = AuthorizationConfiguration::read(&parsed.value).expect_err("faults");
        assert_eq!(refused, want);
    };
    check("", "authorizers: Required value: at least one authorization mode must be defined");
    check(
        "foo: 1\nauthorizers: [{type: RBAC, name: a, bar: 1}]",
        "failed to load AuthorizationConfiguration from file: strict decoding error: unknown \
         field \"foo\", unknown field \"authorizers[0].bar\"",
    );
}

/// Formats the result of a TokenReview: name, groups and audiences, or the error.
fn review(client: &Client, token: &str, audiences: &[&str]) -> String {
    let review = json!({"spec": {"token": token, "audiences": audiences}});
    let answer = client.post("/apis/authentication.k8s.io/v1/tokenreviews", &review);
    let status = &answer.body["status"];
    match status["authenticated"].as_bool() {
        Some(true) => {
            let user = &status["user"];
            format!("{} {} {}", user["username"], user["groups"], status["audiences"])
        }
        _ => status["error"].as_str().unwrap_or_default().to_owned(),
    }
}

fn with_token_webhook(hook: &Hook, cache_ttl: Duration) -> Server {
    let kubeconfig = hook.kubeconfig("tokens");
    let version = ReviewVersion::V1Beta1;
    let webhook = TokenWebhookOptions { kubeconfig, version, cache_ttl };
    Server::start_plain(
        without_controllers().with(|builder| builder.authentication.token_webhook = Some(webhook)),
    )
}

#[test]
fn webhook_tokens_are_accepted_until_they_are_revoked() {
    let revoked = Arc::new(Mutex::new(false));
    let is_revoked = revoked.clone();
    let hook = Hook::start(move |_, review| {
        let mut answer = review.clone();
        let user = json!({"username": "hook", "groups": ["g"]});
        answer["status"] = match review["spec"]["token"].as_str().unwrap_or_default() {
            "known" if !*is_revoked.lock().expect("a lock") => {
                let audiences = &review["spec"]["audiences"];
                json!({"authenticated": true, "user": user, "audiences": audiences})
            }
            "silent" => json!({"authenticated": true, "user": user}),
            "odd" => json!({"authenticated": "true", "user": user}),
            "bad" => json!({"authenticated": false, "error": "boom"}),
            "kind" => {
                return Some((
                    200,
                    json!({"kind": "Foo", "apiVersion": "v1",
                "status": {"authenticated": true, "user": user}}),
                ));
            }
            "broken" => return Some((404, json!({"authenticated": true}))),
            _ => json!({"authenticated": false}),
        };
        Some((200, answer))
    });
    let server = with_token_webhook(&hook, Duration::ZERO);
    let client = server.client();
    let check = |token: &str, audiences: &[&str], want: &str| {
        assert_eq!(review(&client, token, audiences), want, "{token}");
    };
    let own = "\"hook\" [\"g\",\"system:authenticated\"] [\"https://kubernetes.default.svc\"]";
    check("known", &[], own);
    check("known", &["x"], &own.replace("https://kubernetes.default.svc", "x"));
    check("silent", &[], own);
    check("silent", &["x"], "invalid bearer token");
    check("odd", &[], "invalid bearer token");
    check("other", &[], "invalid bearer token");
    check("bad", &[], "[invalid bearer token, boom]");
    let text = "no kind \"Foo\" is registered for version \"v1\"";
    check("kind", &[], &format!("[invalid bearer token, {text}]"));
    let text = "the server could not find the requested resource";
    check("broken", &[], &format!("[invalid bearer token, {text}]"));
    assert_eq!(client.request("GET", MAPS, "Authorization: Bearer known\r\n", None).status, 403);
    *revoked.lock().expect("a lock") = true;
    assert_eq!(client.request("GET", MAPS, "Authorization: Bearer known\r\n", None).status, 401);
    check("known", &[], "invalid bearer token");
    server.stop();
    // It does not receive tokens of other issuers, and its responses are cached for the configured
    // time.
    *revoked.lock().expect("a lock") = false;
    hook.take();
    let server = with_token_webhook(&hook, MINUTE);
    let client = server.client();
    assert_eq!(client.get(MAPS).status, 200);
    assert_eq!(hook.take().len(), 0);
    for _ in 0..3 {
        assert_eq!(review(&client, "known", &[]), own);
        assert_eq!(review(&client, "other", &[]), "invalid bearer token");
    }
    assert_eq!(hook.take().len(), 1 + 3);
    server.stop();
}
