//! OpenID Connect tokens: `--oidc-*` and `--authentication-config`.

pub mod issuer;

use crate::certificates::wait_for;
use crate::http::{Client, Server, without_controllers};
use issuer::{Issuer, Key, signed};
use keelson::JwtOptions;
use keelson_auth::oidc::{AuthenticationConfiguration, validate};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.expect("a time").as_secs()).expect("a time")
}

/// Returns the configuration of an issuer; `more` are further lines.
pub fn config(issuer: &Issuer, more: &str) -> String {
    let authority = issuer.peer.authority.replace('\n', "\n      ");
    format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n\
         - issuer:\n    url: {}\n    audiences: [us]\n    certificateAuthority: |\n      \
         {authority}\n{more}",
        issuer.url()
    )
}

pub const BY_SUBJECT: &str = "  claimMappings: {username: {claim: sub, prefix: \"oidc:\"}}\n";

fn start(file: &Path) -> Server {
    let (jwt, anonymous) = JwtOptions::read(file).expect("a configuration");
    let mut builder = without_controllers().with(|builder| {
        builder.authentication.jwt = Some(jwt);
        builder.serving.certificate_check_interval = Duration::from_millis(20);
    });
    if let Some(anonymous) = anonymous {
        builder.authentication.anonymous = anonymous;
    }
    Server::start_plain(builder)
}

/// Returns the user of a TokenReview, or the error.
fn review(client: &Client, token: &str) -> String {
    let answer = client.post(REVIEWS, &json!({"spec": {"token": token}}));
    let status = &answer.body["status"];
    match status["authenticated"].as_bool() {
        Some(true) => {
            let user = &status["user"];
            format!("{} {} {} {}", user["username"], user["uid"], user["groups"], user["extra"])
        }
        _ => status["error"].as_str().unwrap_or_default().to_owned(),
    }
}

pub fn claims(issuer: &Issuer) -> Value {
    json!({"iss": issuer.url(), "aud": "us", "sub": "a", "exp": now() + 600, "iat": now()})
}

pub fn with(claims: &Value, name: &str, value: Value) -> Value {
    let mut claims = claims.clone();
    claims[name] = value;
    claims
}

const ALICE: &str = "\"oidc:a\" null [\"system:authenticated\"] null";
const UNSIGNED: &str = "[invalid bearer token, oidc: verify token: failed to verify signature: failed to verify id token signature]";

/// Starts a server for an issuer, waits until it has fetched the keys, and checks.
fn check_with(issuer: &Issuer, more: &str, probe: &str, check: impl FnOnce(&Client)) {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("authentication.yaml");
    std::fs::write(&file, config(issuer, more)).expect("a file");
    let server = start(&file);
    let client = server.client();
    wait_for(false, || review(&client, probe).contains("not initialized"));
    check(&client);
    server.stop();
}

#[test]
fn tokens_of_every_asymmetric_algorithm_are_verified() {
    let keys = [
        ("r", Key::rsa(), &["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"][..]),
        ("a", Key::p256(), &["ES256"]),
        ("b", Key::p384(), &["ES384"]),
        ("c", Key::p521(), &["ES512"]),
    ];
    let issuer = Issuer::start(keys.iter().map(|(id, key, _)| key.jwk(id)).collect());
    let right = claims(&issuer);
    let rsa = &keys[0].1;
    let probe = rsa.token("RS256", "r", &right);
    check_with(&issuer, BY_SUBJECT, &probe, |client| {
        let check = |token: &str, want: &str| {
            let got = review(client, token);
            assert!(got.contains(want), "{got}, not {want}");
        };
        for (id, key, algorithms) in &keys {
            for algorithm in *algorithms {
                check(&key.token(algorithm, id, &right), ALICE);
                // Without the id of a key all keys are tried.
                check(&key.token(algorithm, "", &right), ALICE);
            }
        }
        let sign = |claims: &Value| rsa.token("RS256", "r", claims);
        check(&sign(&with(&right, "aud", json!(["x", "us"]))), ALICE);
        // Each of these has exactly one fault.
        check(
            &sign(&with(&right, "exp", json!(now() - 1))),
            "oidc: token is expired (Token Expiry: ",
        );
        let zero = "oidc: token is expired (Token Expiry: 0001-01-01 00:00:00 +0000 UTC)";
        let mut endless = right.clone();
        endless.as_object_mut().expect("claims").remove("exp");
        check(&sign(&endless), zero);
        let null = "claims: strconv.ParseFloat: parsing \"\": invalid syntax";
        check(&sign(&with(&right, "exp", Value::Null)), null);
        check(&sign(&with(&right, "exp", json!((now() + 600).to_string()))), ALICE);
        let early = with(&right, "nbf", json!(now() + 300));
        check(&sign(&early), "before the nbf (not before) time: ");
        let other = with(&right, "aud", json!("x"));
        check(&sign(&other), "oidc: verify token: oidc: expected audience \"us\" got [\"x\"]");
        let stranger = with(&right, "iss", json!("https://stranger"));
        assert_eq!(review(client, &sign(&stranger)), "invalid bearer token");
        check(&Key::p256().token("ES256", "a", &right), UNSIGNED);
        check(&keys[1].1.token("ES256", "unknown", &right), UNSIGNED);
        // The claims of one token with the signature of another.
        let parts: Vec<String> =
            [right.clone(), with(&right, "sub", json!("root"))].iter().map(sign).collect();
        let head = parts[1].rsplit_once('.').expect("a token").0;
        let tail = parts[0].rsplit_once('.').expect("a token").1;
        check(&format!("{head}.{tail}"), UNSIGNED);
        let unsupported = "oidc: id token signed with unsupported algorithm";
        let none = |name: &str| signed(&json!({"alg": name}), &right, |_| vec![]);
        check(&none("none"), unsupported);
        check(&none("None"), unsupported);
        check(&none(""), unsupported);
        // HMAC with the public key as the secret.
        let secret = include_bytes!("../../../auth/src/service_account/testdata/rsa.pub.pem");
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        let hmac = |message: &[u8]| ring::hmac::sign(&key, message).as_ref().to_vec();
        check(&signed(&json!({"alg": "HS256", "kid": "r"}), &right, hmac), unsupported);
        // An algorithm that does not match the key.
        check(&signed(&json!({"alg": "ES256", "kid": "r"}), &right, hmac), UNSIGNED);
    });
}

#[test]
fn extensions_and_claims_of_wrong_types_are_refused() {
    let key = Key::p256();
    let issuer = Issuer::start(vec![key.jwk("k")]);
    let right = claims(&issuer);
    let sign = |claims: &Value| key.token("ES256", "k", claims);
    let more = format!("{BY_SUBJECT}    groups: {{claim: groups, prefix: \"\"}}\n").replace(
        "claimMappings: {username: {claim: sub, prefix: \"oidc:\"}}\n",
        "claimMappings:\n    username: {claim: sub, prefix: \"oidc:\"}\n",
    );
    check_with(&issuer, &more, &sign(&right), |client| {
        let check = |token: &str, want: &str| {
            let got = review(client, token);
            assert!(got.contains(want), "{got}, not {want}");
        };
        // Critical extensions are not supported.
        let extended = |name: &str, value: Value| {
            let mut header = json!({"alg": "ES256", "kid": "k"});
            header[name] = value;
            signed(&header, &right, |message| key.sign("ES256", message))
        };
        check(&extended("typ", json!("JWT")), ALICE);
        check(&extended("crit", json!(["x"])), UNSIGNED);
        check(&extended("b64", json!(false)), UNSIGNED);
        let types = "oidc: failed to unmarshal claims: json: ";
        let number = "cannot unmarshal number into Go struct field idToken";
        let wrong = |name: &str| sign(&with(&right, name, json!(5)));
        check(&wrong("sub"), &format!("{types}{number}.sub of type string"));
        check(&wrong("aud"), &format!("{types}{number}.aud of type []string"));
        let want = "invalid number literal, trying to unmarshal \"\\\"x\\\"\" into Number";
        check(&sign(&with(&right, "exp", json!("x"))), &format!("{types}{want}"));
        let groups = "oidc: parse groups claim \"groups\": json: cannot unmarshal array into Go value of type string";
        check(&sign(&with(&right, "groups", json!(["a", 5]))), groups);
        let bad = format!("{}!", sign(&right));
        check(&bad, "oidc: malformed jwt: illegal base64 data at input byte 86");
    });
}

#[test]
fn rotated_issuer_keys_are_fetched_and_old_ones_rejected() {
    let old = Key::p256();
    let new = Key::p256();
    let issuer = Issuer::start(vec![old.jwk("old")]);
    let sign = |key: &Key, id: &str, subject: &str| {
        key.token("ES256", id, &with(&claims(&issuer), "sub", json!(subject)))
    };
    let probe = sign(&old, "old", "a");
    check_with(&issuer, BY_SUBJECT, &probe, |client| {
        assert_eq!(review(client, &probe), ALICE);
        assert_eq!(review(client, &sign(&new, "new", "a")), UNSIGNED);
        issuer.rotate(vec![new.jwk("new")]);
        assert_eq!(review(client, &sign(&new, "new", "a")), ALICE);
        // Not a cached token.
        assert_eq!(review(client, &sign(&old, "old", "b")), UNSIGNED);
    });
}

#[test]
fn expressions_map_claims_and_validate_users() {
    let key = Key::p256();
    let issuer = Issuer::start(vec![key.jwk("k")]);
    let more = "  claimValidationRules:\n  - {claim: hd, requiredValue: example.com}\n  \
         - {expression: \"claims.email_verified == true\", message: mail is not verified}\n  \
         claimMappings:\n    \
         username: {expression: \"'mail:' + claims.email\"}\n    \
         groups: {expression: \"claims.roles.split(',').map(r, 'role:' + r)\"}\n    \
         uid: {claim: sub}\n    \
         extra:\n    - {key: example.com/team, valueExpression: \"claims.?team.orValue('')\"}\n    \
         - {key: example.com/n, valueExpression: \"['a', 'b']\"}\n  \
         userValidationRules:\n  \
         - {expression: \"!user.username.startsWith('mail:system:')\", message: reserved}\n  \
         - {expression: \"user.groups.all(g, !g.endsWith('masters'))\", message: no masters}\n";
    let mut right = claims(&issuer);
    for (name, value) in [
        ("hd", json!("example.com")),
        ("email", json!("a@example.com")),
        ("email_verified", json!(true)),
        ("roles", json!("x,y")),
    ] {
        right[name] = value;
    }
    let probe = key.token("ES256", "k", &right);
    check_with(&issuer, more, &probe, |client| {
        let check = |claims: &Value, want: &str| {
            let said = review(client, &key.token("ES256", "k", claims));
            let got = said.trim_start_matches("[invalid bearer token, ").trim_end_matches(']');
            assert_eq!(got, want.trim_end_matches(']'));
        };
        check(
            &right,
            "\"mail:a@example.com\" \"a\" [\"role:x\",\"role:y\",\"system:authenticated\"] \
             {\"example.com/n\":[\"a\",\"b\"]}",
        );
        check(
            &with(&right, "team", json!("t")),
            "\"mail:a@example.com\" \"a\" [\"role:x\",\"role:y\",\"system:authenticated\"] \
             {\"example.com/n\":[\"a\",\"b\"],\"example.com/team\":[\"t\"]}",
        );
        check(
            &with(&right, "hd", json!("else")),
            "oidc: required claim hd value does not match. Got = else, want = example.com",
        );
        check(
            &with(&right, "email_verified", json!(false)),
            "oidc: error evaluating claim validation expression: validation expression \
             'claims.email_verified == true' failed: mail is not verified",
        );
        check(
            &with(&right, "email", json!("system:x")),
            "oidc: error evaluating user info validation rule: validation expression \
             '!user.username.startsWith('mail:system:')' failed: reserved",
        );
        check(
            &with(&right, "roles", json!("masters")),
            "oidc: error evaluating user info validation rule: validation expression \
             'user.groups.all(g, !g.endsWith('masters'))' failed: no masters",
        );
        let mut without = right.clone();
        without.as_object_mut().expect("claims").remove("email");
        check(
            &without,
            "oidc: error evaluating username claim expression: expression ''mail:' + \
             claims.email' resulted in error: no such key: email",
        );
    });
}

#[test]
fn a_changed_file_is_reloaded_and_an_invalid_one_ignored() {
    let key = Key::p256();
    let issuer = Issuer::start(vec![key.jwk("k")]);
    let token =
        |subject: &str| key.token("ES256", "k", &with(&claims(&issuer), "sub", json!(subject)));
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("authentication.yaml");
    let write = |text: &str| std::fs::write(&file, text).expect("a file");
    write("apiVersion: apiserver.config.k8s.io/v1beta1\nkind: AuthenticationConfiguration\n");
    let server = start(&file);
    let client = server.client();
    assert_eq!(review(&client, &token("a")), "invalid bearer token");
    write(&config(&issuer, BY_SUBJECT));
    wait_for(ALICE.to_owned(), || review(&client, &token("a")));
    write("kind: Nonsense");
    let moved = "  claimMappings: {username: {claim: sub, prefix: \"new:\"}}\n";
    for number in 0..50 {
        let got = review(&client, &token(&format!("a{number}")));
        assert!(got.starts_with(&format!("\"oidc:a{number}\"")), "{got}");
    }
    let elsewhere = config(&issuer, moved).replace(
        "    audiences:",
        &format!("    discoveryURL: {}/elsewhere\n    audiences:", issuer.url()),
    );
    write(&elsewhere);
    wait_for(ALICE.replace("oidc:", "new:"), || review(&client, &token("a")));
    server.stop();
}

#[test]
fn anonymous_requests_are_served_on_configured_paths() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("authentication.yaml");
    let anonymous = |text: &str| {
        let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";
        std::fs::write(&file, format!("{head}anonymous: {text}\n")).expect("a file");
        let server = start(&file);
        let codes: Vec<u16> = ["/livez", "/readyz", "/livez/ping", "/api/v1/pods"]
            .map(|path| server.client().send_as(&format!("GET {path}"), "", b"").status)
            .into();
        server.stop();
        codes
    };
    assert_eq!(anonymous("{enabled: true, conditions: [{path: /livez}]}"), [200, 401, 401, 401]);
    assert_eq!(anonymous("{enabled: true}"), [200, 200, 403, 403]);
    assert_eq!(anonymous("{enabled: false}"), [401, 401, 401, 401]);
}

#[test]
fn authentication_configuration_errors_match_kube_apiserver() {
    let text = include_str!("files/authentication.yaml");
    let want = include_str!("files/authentication.txt").trim_end();
    let parsed = keelson_schema::yaml::parse(text).expect("YAML");
    let config = AuthenticationConfiguration::read(&parsed.value).expect("a configuration");
    let refused = validate(&config.jwt, config.anonymous.as_ref(), &[]).expect_err("faults");
    assert_eq!(refused.to_string(), want);
    let taken = validate(&config.jwt[..1], None, &["https://b".into(), "https://a".into()]);
    let refused = taken.expect_err("faults").to_string();
    let want = "jwt[0].issuer.url: Invalid value: \"https://a\": URL must not overlap with \
                disallowed issuers: [https://a https://b]";
    assert!(refused.contains(want), "{refused}");
}

#[test]
fn the_configuration_file_is_decoded_strictly() {
    let check = |text: &str, want: &str| {
        let text = format!("apiVersion: apiserver.config.k8s.io/v1\n{text}");
        let parsed = keelson_schema::yaml::parse(&text).expect("YAML");
        let read = AuthenticationConfiguration::read(&parsed.value);
        assert_eq!(read.err().as_deref(), Some(want), "{text}");
    };
    let kind = "kind: AuthenticationConfiguration\n";
    check(&format!("{kind}foo: 1"), "strict decoding error: unknown field \"foo\"");
    check(
        &format!("{kind}jwt: [{{issuer: {{ur: x, url: 1}}}}]"),
        "strict decoding error: unknown field \"jwt[0].issuer.ur\", jwt[0].issuer.url: expected a \
         string, got number",
    );
    check(
        "kind: AuthorizationConfiguration",
        "expected AuthenticationConfiguration, got AuthorizationConfiguration",
    );
}
