//! The matrix of service account tokens: which are accepted, and which are refused and why.

use super::*;
use crate::{BoxFuture, Feed};
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use keelson_meta::{Failure, value};
use keelson_metrics::Exposition;
use serde_json::json;
use std::collections::HashMap;
use x509_parser::pem::Pem;

const RSA: &str = include_str!("testdata/rsa.pem");
const RSA_PUBLIC: &str = include_str!("testdata/rsa.pub.pem");
const P256: &str = include_str!("testdata/p256.pem");
const P256_PUBLIC: &str = include_str!("testdata/p256.pub.pem");
const P384: &str = include_str!("testdata/p384.pem");
const P521: &str = include_str!("testdata/p521.pem");
const P521_SEC1: &str = include_str!("testdata/p521.sec1.pem");
const P521_PUBLIC: &str = include_str!("testdata/p521.pub.pem");
const NOW: i64 = 1_000_000;

/// Objects by resource, namespace and name, each with the revision of its last write; and how many
/// writes there were.
#[derive(Clone, Default)]
struct Stored(Arc<Mutex<HashMap<String, (u64, Object)>>>, Arc<AtomicU64>);

impl Stored {
    fn put(&self, place: &str, revision: u64, object: keelson_meta::Value) {
        let object = Object::from_value(object).expect("a map");
        self.0.lock().unwrap().insert(place.to_owned(), (revision, object));
        self.1.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, place: &str) {
        self.0.lock().unwrap().remove(place);
        self.1.fetch_add(1, Ordering::Relaxed);
    }
}

impl Objects for Stored {
    fn revision(&self) -> u64 {
        self.1.load(Ordering::Relaxed)
    }

    fn lag(&self) -> Option<BoxFuture<Result<(), Failure>>> {
        None
    }

    fn latest(&self) -> BoxFuture<Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    fn follow(&self, _: &'static [GroupResource]) -> Box<dyn Feed> {
        panic!("tokens follow nothing")
    }

    fn modified(&self, resource: GroupResource, namespace: &str, name: &str) -> Option<u64> {
        let place = format!("{}/{namespace}/{name}", resource.1);
        self.0.lock().unwrap().get(&place).map(|(revision, _)| *revision)
    }

    fn get(
        &self,
        resource: GroupResource,
        ns: &str,
        name: &str,
    ) -> Result<Option<Object>, Failure> {
        let place = format!("{}/{ns}/{name}", resource.1);
        Ok(self.0.lock().unwrap().get(&place).map(|(_, object)| object.clone()))
    }

    fn labelled(&self, _: GroupResource, _: &str, _: (&str, &str)) -> Result<Vec<Object>, Failure> {
        Ok(vec![])
    }
}

fn tokens(signing: &str, public: &[&str]) -> (ServiceAccountTokens, Stored) {
    let signing_key = SigningKey::read(signing).expect("a key");
    let mut keys = vec![signing_key.verifying.clone()];
    keys.extend(public.iter().flat_map(|pem| VerifyingKey::read_all(pem).expect("a key")));
    let keys = TokenKeys { signing: Some(Arc::new(signing_key)), verifying: keys };
    let options = ServiceAccountOptions {
        issuers: vec!["https://issuer".to_owned(), "https://older".to_owned()],
        audiences: vec!["api".into()],
        expiration_seconds_max: None,
        extends_expiration: true,
        extended_seconds: EXTENDED_SECONDS_DEFAULT,
        lookup: true,
        jwks_uri: None,
    };
    let tokens = ServiceAccountTokens::new(options, keys);
    let stored = Stored::default();
    stored.put("serviceaccounts/ns/a", 1, value!({"metadata": {"name": "a", "uid": "u"}}));
    stored.put("pods/ns/p", 2, value!({"metadata": {"name": "p", "uid": "pu"}}));
    tokens.attach(Arc::new(stored.clone()));
    (tokens, stored)
}

fn claims() -> Claims {
    let pod = Reference { name: "p".into(), uid: "pu".into() };
    Claims {
        audiences: vec!["api".into()],
        expires: Some(NOW + 600),
        not_before: Some(NOW),
        issued: Some(NOW),
        id: "id".into(),
        namespace: "ns".into(),
        account: Reference { name: "a".into(), uid: "u".into() },
        pod: Some(pod),
        ..Claims::default()
    }
}

/// Returns the user name of a token, the error, or that it is not a service account token.
async fn check_at(tokens: &ServiceAccountTokens, token: &str, now: i64, want: &str) {
    let got = match tokens.authenticate(token, &[], Timestamp::new(now, 0)).await {
        Ok(Some(known)) => known.user.name.to_string(),
        Ok(None) => "not ours".to_owned(),
        Err(why) => why,
    };
    assert_eq!(got, want, "{token}");
}

async fn check(tokens: &ServiceAccountTokens, token: &str, want: &str) {
    // Again, with the cached signature.
    check_at(tokens, token, NOW, want).await;
    check_at(tokens, token, NOW, want).await;
}

/// Compares the audit annotations of a request with a token.
async fn check_noted(tokens: &ServiceAccountTokens, token: &str, now: i64, want: &[&str]) {
    let mut notes = CredentialNotes::default();
    let now = Timestamp::new(now, 0);
    let _ = tokens.authenticate_token(&Token::new(token), &[], now, &mut notes).await;
    let noted: Vec<String> =
        notes.annotations.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let want: Vec<String> = want.iter().map(|one| format!("authentication.k8s.io/{one}")).collect();
    assert_eq!(noted, want);
}

const OK: &str = "system:serviceaccount:ns:a";
const BAD_SIGNATURE: &str = "go-jose/go-jose: error in cryptographic primitive";

#[tokio::test]
async fn a_token_of_each_kind_of_key_is_accepted() {
    for signing in [RSA, P256, P384, P521, P521_SEC1] {
        let (tokens, _) = tokens(signing, &[]);
        let token = tokens.issue(&claims()).await.expect("a token");
        check(&tokens, &token, OK).await;
        let AuthenticatedToken { user, audiences, .. } =
            tokens.authenticate(&token, &[], Timestamp::new(NOW, 0)).await.unwrap().unwrap();
        assert_eq!(audiences, ["api"]);
        let groups =
            ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"];
        assert_eq!((user.uid.as_str(), &*user.groups), ("u", &groups.map(Str::from)[..]));
        let extra: Vec<String> = user.extra.iter().map(|(k, v)| format!("{k}={}", v[0])).collect();
        let of = "authentication.kubernetes.io/";
        let want = ["credential-id=JTI=id", "pod-name=p", "pod-uid=pu"].map(|e| format!("{of}{e}"));
        assert_eq!(extra, want);
    }
}

#[tokio::test]
async fn token_times_are_checked_on_each_request() {
    let (tokens, _) = tokens(P256, &[]);
    let token = tokens.issue(&claims()).await.expect("a token");
    check_at(&tokens, &token, NOW, OK).await;
    check_at(&tokens, &token, NOW + 600 + LEEWAY_SECONDS, OK).await;
    let expired = "service account token has expired";
    check_at(&tokens, &token, NOW + 601 + LEEWAY_SECONDS, expired).await;
    check_at(&tokens, &token, NOW - LEEWAY_SECONDS, OK).await;
    let early = "service account token is not valid yet";
    check_at(&tokens, &token, NOW - LEEWAY_SECONDS - 1, early).await;
    let future = Claims { not_before: None, issued: Some(NOW + 1000), ..claims() };
    let future = tokens.issue(&future).await.expect("a token");
    check(&tokens, &future, "service account token is issued in the future").await;
    let endless = tokens.issue(&Claims { expires: None, ..claims() }).await.expect("a token");
    check(&tokens, &endless, "service account token does not expire").await;
}

#[tokio::test]
async fn issuer_and_audience_are_checked() {
    let (tokens, _) = tokens(P256, &[]);
    let keys = tokens.keys();
    let key = keys.signing.as_ref().expect("a key");
    let signed =
        |issuer: &str, claims: &Claims| jwt::sign(key, &claims.to_value(issuer)).expect("a token");
    check(&tokens, &signed("https://older", &claims()), OK).await;
    check(&tokens, &signed("https://evil", &claims()), "not ours").await;
    let vault = Claims { audiences: vec!["vault".into()], ..claims() };
    let vault = signed("https://issuer", &vault);
    let why = "token audiences [\"vault\"] is invalid for the target audiences [\"api\"]";
    check(&tokens, &vault, why).await;
    let requested = ["vault".into(), "other".into()];
    let AuthenticatedToken { audiences, .. } =
        tokens.authenticate(&vault, &requested, Timestamp::new(NOW, 0)).await.unwrap().unwrap();
    assert_eq!(audiences, ["vault"]);
}

#[tokio::test]
async fn the_algorithm_is_that_of_the_key_not_of_the_token() {
    let (tokens, _) = tokens(RSA, &[]);
    let good = tokens.issue(&claims()).await.expect("a token");
    let claims = good.split('.').nth(1).expect("claims");
    let id = &tokens.keys().verifying[0].id;
    let forged = |header: Value, sign: &dyn Fn(&str) -> Vec<u8>| {
        let message = format!("{}.{claims}", URL_SAFE_NO_PAD.encode(header.to_string()));
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(sign(&message)))
    };
    for algorithm in ["none", "None", ""] {
        let unsigned = forged(json!({"alg": algorithm, "kid": id}), &|_| vec![]);
        check(&tokens, &unsigned, BAD_SIGNATURE).await;
    }
    // The public key, in each encoding, as the secret of an HMAC.
    let spki = Pem::iter_from_buffer(RSA_PUBLIC.as_bytes()).next().unwrap().unwrap().contents;
    for secret in [RSA_PUBLIC.as_bytes(), RSA_PUBLIC.trim_end().as_bytes(), &spki] {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret);
        let sign = |message: &str| ring::hmac::sign(&key, message.as_bytes()).as_ref().to_vec();
        check(&tokens, &forged(json!({"alg": "HS256", "kid": id}), &sign), BAD_SIGNATURE).await;
        check(&tokens, &forged(json!({"alg": "RS256", "kid": id}), &sign), BAD_SIGNATURE).await;
    }
    // A right signature under the name of another algorithm, and with an extension to be
    // understood.
    let keys = tokens.keys();
    let key = keys.signing.as_ref().expect("a key");
    let sign = |message: &str| key.sign(message.as_bytes()).expect("a signature");
    check(&tokens, &forged(json!({"alg": "RS512", "kid": id}), &sign), BAD_SIGNATURE).await;
    let critical = json!({"alg": "RS256", "kid": id, "crit": ["x"]});
    check(&tokens, &forged(critical, &sign), BAD_SIGNATURE).await;
    check(&tokens, &forged(json!({"alg": "RS256"}), &sign), OK).await;
}

#[tokio::test]
async fn a_changed_token_or_one_of_another_key_is_rejected() {
    let (tokens, _) = tokens(P256, &[]);
    let good = tokens.issue(&claims()).await.expect("a token");
    check(&tokens, &good, OK).await;
    let parts: Vec<&str> = good.split('.').collect();
    let other = Claims { namespace: "kube-system".into(), ..claims() };
    let other = URL_SAFE_NO_PAD.encode(other.to_value("https://issuer").to_string());
    check(&tokens, &format!("{}.{other}.{}", parts[0], parts[2]), BAD_SIGNATURE).await;
    check(&tokens, &format!("{good}x"), BAD_SIGNATURE).await;
    check(&tokens, &format!("{good}.x"), "not ours").await;
    check(&tokens, "a.b.c", "not ours").await;
    let (others, _) = self::tokens(P384, &[]);
    check(&others, &good, BAD_SIGNATURE).await;
    let mixed = json!({"iss": "https://issuer", "sub": "system:serviceaccount:kube-system:root",
        "exp": NOW + 600, "kubernetes.io":
        {"namespace": "ns", "serviceaccount": {"name": "a", "uid": "u"}}});
    let keys = tokens.keys();
    let key = keys.signing.as_ref().expect("a key");
    let mixed = jwt::sign(key, &mixed).expect("a token");
    check(&tokens, &mixed, "service account token claims are not valid").await;
}

#[tokio::test]
async fn keys_overlap_during_rotation() {
    let (old, _) = tokens(P256, &[]);
    let token = old.issue(&claims()).await.expect("a token");
    let (new, _) = tokens(RSA, &[P256_PUBLIC]);
    check(&new, &token, OK).await;
    check(&new, &new.issue(&claims()).await.expect("a token"), OK).await;
    check(&tokens(RSA, &[]).0, &token, BAD_SIGNATURE).await;
}

#[tokio::test]
async fn a_token_is_valid_while_its_account_and_bound_object_exist() {
    let (tokens, stored) = tokens(P256, &[]);
    let token = tokens.issue(&claims()).await.expect("a token");
    check(&tokens, &token, OK).await;
    stored.put("pods/ns/p", 3, value!({"metadata": {"name": "p", "uid": "other"}}));
    check(&tokens, &token, "pod UID (other) does not match service account claim").await;
    stored.remove("pods/ns/p");
    check(&tokens, &token, "pod \"p\" not found").await;
    let ending = |deleted: i64| {
        let deleted = Timestamp::new(deleted, 0).text();
        value!({"metadata": {"name": "p", "uid": "pu", "deletionTimestamp": (deleted)}})
    };
    stored.put("pods/ns/p", 4, ending(NOW));
    check(&tokens, &token, OK).await;
    let late = NOW + LEEWAY_SECONDS + 1;
    check_at(&tokens, &token, late, "pod \"p\" has been deleted").await;
    stored.put("pods/ns/p", 5, value!({"metadata": {"name": "p", "uid": "pu"}}));
    check(&tokens, &token, OK).await;
    stored.put("serviceaccounts/ns/a", 6, value!({"metadata": {"name": "a", "uid": "new"}}));
    check(&tokens, &token, "serviceaccount UID (new) does not match service account claim").await;
    stored.remove("serviceaccounts/ns/a");
    check(&tokens, &token, "serviceaccount \"a\" not found").await;
}

#[tokio::test]
async fn a_legacy_token_is_valid_while_its_secret_contains_it() {
    let (tokens, stored) = tokens(RSA, &[]);
    let part = |name: &str| format!("kubernetes.io/serviceaccount/{name}");
    let claims = json!({"iss": LEGACY_ISSUER, "sub": OK, (part("namespace")): "ns",
        (part("secret.name")): "s", (part("service-account.name")): "a",
        (part("service-account.uid")): "u"});
    let keys = tokens.keys();
    let token = jwt::sign(keys.signing.as_ref().expect("a key"), &claims).expect("a token");
    check(&tokens, &token, "secret \"s\" not found").await;
    let secret = |token: &str| {
        let data = STANDARD.encode(token);
        value!({"metadata": {"name": "s", "namespace": "ns", "uid": "x"}, "data": {"token": (data)}})
    };
    stored.put("secrets/ns/s", 5, secret(&token));
    check(&tokens, &token, OK).await;
    let legacy = format!("legacy-token={OK}");
    check_noted(&tokens, &token, NOW, &[&legacy, "legacy-token-manual-secret=s"]).await;
    let refers = value!({"metadata": {"name": "a", "uid": "u"}, "secrets": [{"name": "s"}]});
    stored.put("serviceaccounts/ns/a", 8, refers);
    check_noted(&tokens, &token, NOW, &[&legacy, "legacy-token-autogenerated-secret=s"]).await;
    stored.put("secrets/ns/s", 6, secret("another"));
    check(&tokens, &token, "service account token has been invalidated").await;
    check_noted(&tokens, &token, NOW, &[&legacy]).await;
    let mut invalid = secret(&token);
    if let Some(secret) = invalid.as_object_mut() {
        let labels = secret.object_at("metadata").object_at("labels");
        labels.insert("kubernetes.io/legacy-token-invalid-since", "2026-01-01");
    }
    stored.put("secrets/ns/s", 7, invalid);
    let why = "the token in secret ns/s for service account ns/a has been marked invalid. Use tokens \
               from the TokenRequest API or manually created secret-based tokens, or remove the \
               'kubernetes.io/legacy-token-invalid-since' label from the secret to temporarily allow \
               use of this token";
    check(&tokens, &token, why).await;
    check_noted(&tokens, &token, NOW, &[&legacy, "legacy-token-invalidated=s/ns"]).await;
    let mut out = Exposition::default();
    tokens.uses().write(&mut out);
    let text = out.finish();
    for (name, want) in [
        ("legacy_tokens_total", 12),
        ("legacy_auto_token_uses_total", 1),
        ("legacy_manual_token_uses_total", 3),
        ("invalid_legacy_auto_token_uses_total", 3),
        ("valid_tokens_total", 0),
    ] {
        assert!(text.contains(&format!("serviceaccount_{name} {want}\n")), "{name}: {text}");
    }
}

#[tokio::test]
async fn a_token_that_should_have_been_refreshed_is_noted() {
    let (tokens, _) = tokens(RSA, &[]);
    let token = tokens.issue(&claims()).await.expect("a token");
    check_noted(&tokens, &token, NOW, &[]).await;
    let warns = Claims { warn_after: Some(NOW), pod: None, ..claims() };
    let token = tokens.issue(&warns).await.expect("a token");
    check_noted(&tokens, &token, NOW, &[]).await;
    let stale = format!("stale-token=subject: {OK}, seconds after warning threshold: 7");
    check_noted(&tokens, &token, NOW + 7, &[&stale]).await;
}

#[tokio::test]
async fn tokens_of_replaced_keys_become_invalid() {
    let (tokens, _) = tokens(RSA, &[]);
    let old = tokens.issue(&claims()).await.expect("a token");
    check(&tokens, &old, OK).await;
    let signing = SigningKey::read(P256).expect("a key");
    let mut verifying = vec![signing.verifying.clone()];
    verifying.extend(VerifyingKey::read_all(RSA_PUBLIC).expect("a key"));
    tokens.set_keys(TokenKeys { signing: Some(Arc::new(signing)), verifying });
    let new = tokens.issue(&claims()).await.expect("a token");
    for token in [&old, &new] {
        check(&tokens, token, OK).await;
    }
    let signing = SigningKey::read(P256).expect("a key");
    let verifying = vec![signing.verifying.clone()];
    tokens.set_keys(TokenKeys { signing: Some(Arc::new(signing)), verifying });
    check(&tokens, &new, OK).await;
    check(&tokens, &old, BAD_SIGNATURE).await;
}

#[tokio::test]
async fn no_token_is_accepted_before_objects_are_attached() {
    let (tokens, _) = tokens(P256, &[]);
    let token = tokens.issue(&claims()).await.expect("a token");
    let tokens = ServiceAccountTokens { objects: OnceLock::new(), ..tokens };
    check(&tokens, &token, "service accounts are not loaded yet").await;
}

#[tokio::test]
async fn a_cached_signature_does_not_verify_another_token() {
    let (tokens, _) = tokens(P256, &[]);
    let token = tokens.issue(&claims()).await.expect("a token");
    check(&tokens, &token, OK).await;
    let others = Claims { account: Reference { name: "b".into(), uid: "u".into() }, ..claims() };
    let others = tokens.issue(&others).await.expect("a token");
    let (payload, _) = others.rsplit_once('.').expect("three parts");
    let (_, signature) = token.rsplit_once('.').expect("three parts");
    check(&tokens, &format!("{payload}.{signature}"), BAD_SIGNATURE).await;
    check(&tokens, &token, OK).await;
}

#[tokio::test]
async fn verified_tokens_are_bounded() {
    let (tokens, _) = tokens(P256, &[]);
    for i in 0..10 {
        let claims = Claims { id: i.to_string().into(), ..claims() };
        check(&tokens, &tokens.issue(&claims).await.expect("a token"), OK).await;
    }
    let mut cache = tokens.verified_tokens.lock().unwrap();
    let verified = cache.new.values().next().expect("one").clone();
    for i in 0..3 * VERIFIED_TOKENS_MAX {
        let token = format!("{i:032}");
        cache.insert(Token::new(&token).signature_end().expect("long enough"), verified.clone());
    }
    assert!(cache.new.len() <= VERIFIED_TOKENS_MAX && cache.old.len() <= VERIFIED_TOKENS_MAX);
}

/// Ids and JSON Web Keys as `openssl` and kube-apiserver make them.
#[test]
fn public_keys_match_private_keys() {
    let pairs =
        [(RSA, RSA_PUBLIC), (P256, P256_PUBLIC), (P521, P521_PUBLIC), (P521_SEC1, P521_PUBLIC)];
    for (private, spki) in pairs {
        let public = spki;
        let private = SigningKey::read(private).expect("a key").verifying;
        let [public] = VerifyingKey::read_all(public).expect("a key").try_into().expect("one");
        assert_eq!((private.id, private.algorithm), (public.id.clone(), public.algorithm));
        let spki = Pem::iter_from_buffer(spki.as_bytes()).next().unwrap().unwrap().contents;
        let digest = ring::digest::digest(&ring::digest::SHA256, &spki);
        assert_eq!(public.id, URL_SAFE_NO_PAD.encode(digest));
        let jwk = public.to_jwk();
        let member = |name: &str| jwk.str_at(&[name]).unwrap_or_default();
        let (shown, expected) = match public.algorithm {
            Algorithm::RS256 => ((member("kty"), member("e")), ("RSA", "AQAB")),
            Algorithm::ES512 => ((member("crv"), member("alg")), ("P-521", "ES512")),
            _ => ((member("crv"), member("alg")), ("P-256", "ES256")),
        };
        assert_eq!(shown, expected);
    }
    for bad in ["", "garbage", "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n"] {
        assert!(VerifyingKey::read_all(bad).is_err() && SigningKey::read(bad).is_err());
    }
}

#[test]
fn keys_are_not_printed() {
    let key = SigningKey::read(P256).expect("a key");
    let shown = format!("{key:?}");
    let secret: String = P256.lines().skip(1).take(1).collect();
    assert!(!shown.contains(&secret[..20]) && shown.contains(&key.verifying.id));
}
