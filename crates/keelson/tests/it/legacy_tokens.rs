//! Tokens in Secrets: their use is tracked, and unused ones become invalid. And key files that
//! change while the server runs.

use crate::certificates::wait_for;
use crate::controllers::{MERGE, create};
use crate::http::{Client, Server, without_controllers};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson::{AdmissionChain, Clock, Keelson, ServiceAccountTokenOptions, Timestamp};
use keelson_store::Embedded;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
const TRACKING: &str = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";
const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const DAY_SECONDS: i64 = 86_400;
/// 1 January 2030.
const BEGIN_SECONDS: i64 = 1_893_456_000;

/// Returns a stopped clock, a number of days after the start.
struct DayClock(i64);

impl Clock for DayClock {
    fn now(&self) -> Timestamp {
        Timestamp::new(BEGIN_SECONDS + self.0 * DAY_SECONDS, 0)
    }

    fn random(&self) -> [u8; 16] {
        keelson::SystemClock.random()
    }
}

fn start(store: &Arc<Embedded>, day: i64) -> Server {
    let off = ["ServiceAccount".to_owned()];
    let admission = AdmissionChain::new(&[], &off).expect("there is such a plug-in");
    let builder = Keelson::builder().store(store.clone()).clock(DayClock(day));
    Server::start_plain(builder.with(|builder| builder.admission.chain = admission))
}

fn label<'a>(secret: &'a Value, name: &str) -> Option<&'a str> {
    secret["metadata"]["labels"][format!("kubernetes.io/legacy-token-{name}")].as_str()
}

/// Returns the user name of a token, or the error.
fn review(client: &Client, token: &str) -> String {
    let status = &client.post(REVIEWS, &json!({"spec": {"token": token}})).body["status"];
    let text = status["user"]["username"].as_str().or(status["error"].as_str());
    text.unwrap_or_default().to_owned()
}

/// Creates a Secret for a service account. Returns its token.
fn token(client: &Client, name: &str) -> String {
    let secret = json!({"type": "kubernetes.io/service-account-token", "metadata": {"name": name,
        "annotations": {"kubernetes.io/service-account.name": "robot"}}});
    create(client, SECRETS, &secret);
    let path = format!("{SECRETS}/{name}");
    let filled = client.poll(&path, |got| got.body["data"]["token"].is_string()).body;
    let token = STANDARD.decode(filled["data"]["token"].as_str().expect("text")).expect("base64");
    String::from_utf8(token).expect("text")
}

#[test]
fn legacy_tokens_are_tracked_and_removed_when_unused() {
    let store = Embedded::in_memory();
    let server = start(&store, 0);
    let client = server.client();
    let tracking = client.poll(TRACKING, |got| got.status == 200).body;
    assert_eq!(tracking["data"]["since"], "2030-01-01");
    create(&client, ACCOUNTS, &json!({"metadata": {"name": "robot"}}));
    let auto = token(&client, "auto");
    let manual = token(&client, "manual");
    let refers = json!({"secrets": [{"name": "auto"}]});
    let referred = client.call("PATCH", &format!("{ACCOUNTS}/robot"), MERGE, Some(&refers));
    assert_eq!(referred.status, 200);
    for token in [&auto, &manual] {
        assert_eq!(review(&client, token), "system:serviceaccount:default:robot");
    }
    // Only requests with an auto-generated token get a warning.
    let warning = "299 - \"Use tokens from the TokenRequest API or manually created secret-based tokens \
                   instead of auto-generated secret-based tokens.\"";
    for (token, want, path) in [
        (&auto, Some(warning), SECRETS),
        (&auto, Some(warning), "/version"),
        (&manual, None, SECRETS),
        (&manual, None, "/version"),
    ] {
        let answer =
            client.request("GET", path, &format!("Authorization: Bearer {token}\r\n"), None);
        assert_eq!(answer.header("warning"), want, "{path} {}", answer.status);
    }
    let path = |name: &str| format!("{SECRETS}/{name}");
    for name in ["auto", "manual"] {
        let used = |secret: &Value| label(secret, "last-used") == Some("2030-01-01");
        client.poll(&path(name), |got| used(&got.body));
    }
    server.stop();
    // A year later the auto-generated token is invalid.
    let server = start(&store, 400);
    let client = server.client();
    let ended = client.poll(&path("auto"), |got| label(&got.body, "invalid-since").is_some()).body;
    assert_eq!(label(&ended, "invalid-since"), Some("2031-02-05"));
    server.stop();
    let server = start(&store, 800);
    let client = server.client();
    client.poll(&path("auto"), |got| got.status == 404);
    let kept = client.get(&path("manual"));
    assert_eq!((kept.status, label(&kept.body, "invalid-since")), (200, None));
    server.stop();
}

const RSA: &str = include_str!("../../../auth/src/service_account/testdata/rsa.pem");
const RSA_PUBLIC: &str = include_str!("../../../auth/src/service_account/testdata/rsa.pub.pem");
const P256: &str = include_str!("../../../auth/src/service_account/testdata/p256.pem");

#[test]
fn changed_key_files_are_reloaded() {
    let dir = tempfile::tempdir().expect("a folder");
    let signing = dir.path().join("sa.key");
    let more = dir.path().join("more.pem");
    let write = |file: &std::path::Path, text: &str| std::fs::write(file, text).expect("a file");
    write(&signing, RSA);
    write(&more, RSA_PUBLIC);
    let keys = ServiceAccountTokenOptions {
        signing_key_file: Some(signing.clone()),
        key_files: vec![more.clone()],
        ..ServiceAccountTokenOptions::default()
    };
    let server = Server::start_plain(without_controllers().with(|builder| {
        builder.authentication.service_account_tokens = keys;
        builder.serving.certificate_check_interval = Duration::from_millis(20);
    }));
    let client = server.client();
    create(&client, ACCOUNTS, &json!({"metadata": {"name": "robot"}}));
    let token = || {
        let asked = client.post(&format!("{ACCOUNTS}/robot/token"), &json!({"spec": {}}));
        asked.body["status"]["token"].as_str().expect("a token").to_owned()
    };
    let algorithms = || {
        let set = client.request("GET", "/openid/v1/jwks", "Accept: */*\r\n", None).body;
        let keys = set["keys"].as_array().into_iter().flatten();
        keys.filter_map(|key| key["alg"].as_str().map(str::to_owned)).collect::<Vec<_>>()
    };
    const NAME: &str = "system:serviceaccount:default:robot";
    let old = token();
    assert_eq!(review(&client, &old), NAME);
    // A new key signs, and the old one still verifies.
    write(&signing, P256);
    wait_for(vec!["ES256".to_owned(), "RS256".to_owned()], algorithms);
    let new = token();
    assert_eq!((review(&client, &old), review(&client, &new)), (NAME.into(), NAME.into()));
    // An unreadable file is ignored.
    write(&more, "no key");
    assert_eq!(review(&client, &old), NAME);
    // Without the old key its tokens are rejected, also those that are cached.
    write(&more, P256);
    wait_for(vec!["ES256".to_owned()], algorithms);
    assert_eq!(review(&client, &new), NAME);
    assert!(review(&client, &old).contains("error in cryptographic primitive"));
    server.stop();
}
