//! Flags of authentication and authorization.

use super::{MAPS, create, serve};
use crate::authorization_webhooks::Hook;
use crate::http::POLL_TIMEOUT;
use crate::oidc::issuer::{Issuer, Key};
use crate::oidc::{claims, with};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use keelson_testkit::api::Api;
use serde_json::{Value, json};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
/// The lifetime that the kubelet asks for, which is the only one that is extended.
const KUBELET_SECONDS: i64 = 3607;
const HOUR_SECONDS: i64 = 3600;
const YEAR_SECONDS: i64 = 365 * 24 * HOUR_SECONDS;

/// Returns the user of a token; an object without fields if there is none.
fn user(api: &Api, token: &str) -> Value {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
        "spec": {"token": token}});
    create(api, REVIEWS, &review).body["status"]["user"].clone()
}

/// All flags `--oidc-*`.
#[test]
fn the_flags_of_an_issuer_say_who_has_its_tokens() {
    let dir = tempfile::tempdir().expect("a folder");
    let curve = Key::p256();
    let rsa = Key::rsa();
    let issuer = Issuer::start(vec![curve.jwk("c"), rsa.jwk("r")]);
    let authority = dir.path().join("authority.pem");
    std::fs::write(&authority, &issuer.peer.authority).expect("a file");
    let of_issuer = [
        &format!("--oidc-issuer-url={}", issuer.url()),
        &*format!("--oidc-ca-file={}", authority.display()),
        "--oidc-client-id=us",
    ];
    let more = [
        "--oidc-username-claim=name",
        "--oidc-username-prefix=u:",
        "--oidc-groups-claim=roles",
        "--oidc-groups-prefix=g:",
        "--oidc-required-claim=hd=here",
        "--oidc-signing-algs=ES256",
    ];
    let right = with(&claims(&issuer), "name", json!("b"));
    let right = with(&with(&right, "roles", json!(["x", "y"])), "hd", json!("here"));
    let by_curve = |claims: &Value| curve.token("ES256", "c", claims);
    let (_with_all, api) = serve(&dir.path().join("all"), &[&of_issuer[..], &more].concat());
    let valid = by_curve(&right);
    // The keys of the issuer are fetched after the start.
    let known = keelson_testkit::poll(POLL_TIMEOUT, || {
        Some(user(&api, &valid)).filter(|user| *user != json!({}))
    });
    let groups = ["g:x", "g:y", "system:authenticated"];
    assert_eq!(known, Some(json!({"username": "u:b", "groups": groups})));
    for (fault, token) in [
        ("another value of the claim", by_curve(&with(&right, "hd", json!("there")))),
        ("another audience", by_curve(&with(&right, "aud", json!("them")))),
        ("another algorithm", rsa.token("RS256", "r", &right)),
    ] {
        assert_eq!(user(&api, &token), json!({}), "{fault}");
    }
    // Without the others, the defaults.
    let (_with_few, api) = serve(&dir.path().join("few"), &of_issuer);
    let token = rsa.token("RS256", "r", &right);
    let known = keelson_testkit::poll(POLL_TIMEOUT, || {
        Some(user(&api, &token)).filter(|user| *user != json!({}))
    });
    let name = format!("{}#a", issuer.url());
    assert_eq!(known, Some(json!({"username": name, "groups": ["system:authenticated"]})));
    assert_eq!(user(&api, &valid), json!({}));
}

/// `--authentication-token-webhook-config-file`, `-version` and `-cache-ttl`.
#[test]
fn a_token_webhook_is_asked_in_the_version_of_the_flag_and_no_more_while_the_answer_is_fresh() {
    let dir = tempfile::tempdir().expect("a folder");
    let hook = Hook::start(|_, review| {
        let mut answer = review.clone();
        let user = json!({"username": "w", "groups": ["system:masters"]});
        answer["status"] = json!({"authenticated": true, "user": user});
        Some((201, answer))
    });
    let file = hook.kubeconfig("tokens");
    let file = format!("--authentication-token-webhook-config-file={}", file.display());
    let fresh_never = [
        "--authentication-token-webhook-cache-ttl=0s",
        "--authentication-token-webhook-version=v1",
    ];
    for (name, more, version, asked) in
        [("kept", &[][..], "v1beta1", 1), ("never", &fresh_never[..], "v1", 2)]
    {
        let (server, _) = serve(&dir.path().join(name), &[&[&*file], more].concat());
        let api = Api::unchecked(server.address(), Some(format!("of-{name}"))).expect("a client");
        for _ in 0..2 {
            assert_eq!(api.get(MAPS).expect("an answer").code, 200, "{name}");
        }
        let got: Vec<Value> = hook.take().into_iter().map(|(_, body)| body).collect();
        let versions: Vec<&Value> = got.iter().map(|body| &body["apiVersion"]).collect();
        assert_eq!(versions, vec![&json!(format!("authentication.k8s.io/{version}")); asked]);
        assert!(got.iter().all(|body| body["spec"]["token"] == format!("of-{name}")), "{got:?}");
    }
}

/// `--authorization-webhook-config-file`, `-version`, and both `-cache-*-ttl`.
#[test]
fn an_authorization_webhook_is_asked_again_when_the_time_of_the_flags_is_over() {
    let dir = tempfile::tempdir().expect("a folder");
    let hook = Hook::access(|_, spec| json!({"allowed": spec["user"] == "yes"}));
    let file = format!("--authorization-webhook-config-file={}", hook.kubeconfig("x").display());
    let flags = [&*file, "--authorization-mode=RBAC,Webhook"];
    for (name, more, version, asked) in [
        ("both", &[][..], "v1beta1", [1, 1]),
        ("denied", &["--authorization-webhook-cache-authorized-ttl=0s"], "v1beta1", [2, 1]),
        (
            "allowed",
            &[
                "--authorization-webhook-cache-unauthorized-ttl=0s",
                "--authorization-webhook-version=v1",
            ],
            "v1",
            [1, 2],
        ),
    ] {
        let (_server, api) = serve(&dir.path().join(name), &[&flags[..], more].concat());
        for (user, code, times) in [("yes", 200, asked[0]), ("no", 403, asked[1])] {
            for _ in 0..2 {
                let headers = format!("Impersonate-User: {user}\r\n");
                let answer = api.send_with("GET", MAPS, &headers, "").expect("an answer");
                assert_eq!(answer.code, code, "{name} {user}");
            }
            let got: Vec<Value> =
                hook.take().into_iter().map(|(_, body)| body["apiVersion"].clone()).collect();
            let version = format!("authorization.k8s.io/{version}");
            assert_eq!(got, vec![json!(version); times], "{name} {user}");
        }
    }
}

/// Requests a token of an account, and returns its claims.
fn issued(api: &Api, spec: &Value) -> Value {
    let made = create(api, &format!("{ACCOUNTS}/robot/token"), &json!({"spec": spec}));
    let token = made.body["status"]["token"].as_str().expect("a token");
    let claims = token.split('.').nth(1).and_then(|part| BASE64URL.decode(part).ok());
    serde_json::from_slice(&claims.expect("claims")).expect("JSON")
}

fn lifetime(claims: &Value) -> Option<i64> {
    Some(claims["exp"].as_i64()? - claims["iat"].as_i64()?)
}

/// `--api-audiences`, `--external-hostname` and the flags `--service-account-*` of new tokens.
#[test]
fn issued_tokens_and_the_document_of_their_issuer_are_as_the_flags_say() {
    let dir = tempfile::tempdir().expect("a folder");
    let own = [
        "--service-account-issuer=https://mine.example.com",
        "--service-account-issuer=https://old.example.com",
        "--api-audiences=a,b",
        "--service-account-max-token-expiration=2h",
        "--service-account-extend-token-expiration=false",
        "--service-account-jwks-uri=https://keys.example.com/jwks",
    ];
    let named = [own[0], "--external-hostname=api.example.com:99"];
    let issuer = "https://mine.example.com";
    for (name, flags, audiences, keys, seconds) in [
        (
            "own",
            &own[..],
            json!(["a", "b"]),
            "https://keys.example.com/jwks",
            [2 * HOUR_SECONDS, KUBELET_SECONDS],
        ),
        (
            "named",
            &named[..],
            json!([issuer]),
            "https://api.example.com:99/openid/v1/jwks",
            [24 * HOUR_SECONDS, YEAR_SECONDS],
        ),
    ] {
        let (_server, api) = serve(&dir.path().join(name), flags);
        create(&api, ACCOUNTS, &json!({"metadata": {"name": "robot"}}));
        let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot",
            "containers": [{"name": "c", "image": "i"}]}});
        let pod = create(&api, super::PODS, &pod).body;
        let long = issued(&api, &json!({"expirationSeconds": 24 * HOUR_SECONDS}));
        assert_eq!((&long["iss"], &long["aud"]), (&json!(issuer), &audiences), "{name}");
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "p",
            "uid": pod["metadata"]["uid"]});
        let of_pod = json!({"expirationSeconds": KUBELET_SECONDS, "boundObjectRef": bound});
        let short = issued(&api, &of_pod);
        assert_eq!([lifetime(&long), lifetime(&short)], seconds.map(Some), "{name}");
        let document = api.get("/.well-known/openid-configuration").expect("an answer").body;
        let got = (&document["issuer"], &document["jwks_uri"]);
        assert_eq!(got, (&json!(issuer), &json!(keys)), "{name}");
    }
}

#[test]
fn requests_without_credentials_are_refused_without_anonymous_users() {
    let dir = tempfile::tempdir().expect("a folder");
    for (flag, expected) in [("true", [200, 403]), ("false", [401, 401])] {
        let (server, _) = serve(&dir.path().join(flag), &[&format!("--anonymous-auth={flag}")]);
        let nobody = Api::unchecked(server.address(), None).expect("a client");
        let codes = ["/livez", MAPS].map(|path| nobody.get(path).expect("an answer").code);
        assert_eq!(codes, expected, "--anonymous-auth={flag}");
    }
}
