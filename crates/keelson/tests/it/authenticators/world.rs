//! A server with all authenticators, and the issuers of their credentials.

use crate::certificates::{Stream, authority, wait_for};
use crate::front_proxy;
use crate::http::{Server, without_controllers};
use crate::oidc::issuer::{Issuer as OidcIssuer, Key as OidcKey, signed};
use crate::oidc::{BY_SUBJECT, config};
use keelson::{Builder, JwtOptions, ServiceAccountTokenOptions, TokenWebhookOptions};
use keelson_auth::User;
use keelson_auth::service_account::SigningKey;
use keelson_auth::webhook::ReviewVersion;
use keelson_testkit::connection::{authorities, secure, tls_client};
use keelson_testkit::https_peer::HttpsPeer;
use rcgen::{CertificateParams, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use time::OffsetDateTime;

const CORE: &str = "/api/v1/namespaces";
pub const BOOTSTRAP_TOKEN: &str = "abcdef.0123456789abcdef";

/// How a token differs from a valid one.
#[derive(Debug)]
pub enum Claim {
    Text(&'static str, &'static str),
    /// Seconds from now.
    Number(&'static str, i64),
    Without(&'static str),
    /// Signed by one of the server's keys, by name.
    Key(&'static str),
    /// Signed by an unknown key with the id of the right one.
    OtherKey,
    Unsigned,
    /// Signed by HMAC with the public key as the secret.
    Hmac,
}

pub struct World {
    server: Server,
    dir: TempDir,
    authorities: HashMap<&'static str, (String, Issuer<'static, KeyPair>)>,
    account_keys: HashMap<&'static str, KeyPair>,
    /// Signed tokens; signatures are randomized, so a token is signed once.
    signed: RefCell<HashMap<String, String>>,
    issuer: OidcIssuer,
    /// Signing keys; the last one is used.
    issuer_keys: RefCell<Vec<OidcKey>>,
    is_revoked: Arc<AtomicBool>,
    _webhook: HttpsPeer,
    /// The current case.
    place: RefCell<String>,
}

impl World {
    pub fn start() -> World {
        let dir = tempfile::tempdir().expect("a folder");
        let named = ["users", "users' successor", "proxies", "proxies' successor", "strangers"];
        let mut authorities: HashMap<_, _> =
            named.into_iter().map(|name| (name, authority(name))).collect();
        authorities.insert("users' namesake", authority("users"));
        authorities.insert("proxies' namesake", authority("proxies"));
        let keys = ["signer", "old", "new", "other"];
        let key = |name| (name, KeyPair::generate().expect("a key"));
        let account_keys: HashMap<_, _> = keys.into_iter().map(key).collect();
        let issuer_key = OidcKey::p256();
        let issuer = OidcIssuer::start(vec![issuer_key.jwk("k0")]);
        let is_revoked: Arc<AtomicBool> = Arc::default();
        let webhook = webhook(is_revoked.clone());
        let write = |name: &str, text: &str| {
            std::fs::write(dir.path().join(name), text).expect("a file");
        };
        write("users.pem", &authorities["users"].0);
        write("proxies.pem", &authorities["proxies"].0);
        write("signer.pem", &account_keys["signer"].serialize_pem());
        write("verifying.pem", &account_keys["old"].serialize_pem());
        write("authentication.yaml", &config(&issuer, BY_SUBJECT));
        write("hook.pem", &webhook.authority);
        write("hook.kubeconfig", &kubeconfig(&webhook.url()));
        let server = Server::start(builder(dir.path()).token("t", "admin"));
        let world = World {
            server,
            dir,
            authorities,
            account_keys,
            signed: RefCell::default(),
            issuer,
            issuer_keys: RefCell::new(vec![issuer_key]),
            is_revoked,
            _webhook: webhook,
            place: RefCell::default(),
        };
        world.make_account();
        // The keys of an issuer are fetched after the start.
        world.until_token(&world.signed_oidc(&[]), "oidc:alice");
        world
    }

    pub fn stop(self) {
        self.server.stop();
    }

    pub fn enter(&self, place: String) {
        *self.place.borrow_mut() = place;
    }

    fn expect(&self, got: &str, want: &str) {
        assert_eq!(got, want, "{}", self.place.borrow());
    }

    // Connections.

    fn connect(&self, authority: &str, purpose: &str, lasts_seconds: i64, name: &str) -> Stream {
        let mut params = CertificateParams::new(vec![]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![match purpose {
            "client" => ExtendedKeyUsagePurpose::ClientAuth,
            _ => ExtendedKeyUsagePurpose::ServerAuth,
        }];
        params.not_before = OffsetDateTime::now_utc() - Duration::from_secs(3600);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::seconds(lasts_seconds);
        let key = KeyPair::generate().expect("a key");
        let signed = params.signed_by(&key, &self.authorities[authority].1).expect("signed");
        let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
        let config = tls_client(authorities(self.server.keelson.kubeconfig().text()))
            .with_client_auth_cert(vec![signed.der().clone()], key)
            .expect("a client");
        secure(self.server.keelson.address(), &Arc::new(config)).expect("a connection")
    }

    fn anonymous(&self) -> Stream {
        let config = tls_client(authorities(self.server.keelson.kubeconfig().text()));
        let config = Arc::new(config.with_no_client_auth());
        secure(self.server.keelson.address(), &config).expect("a connection")
    }

    /// Sends a request as the administrator. Returns the status code and the body.
    fn admin(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let headers = "Authorization: Bearer t\r\n";
        front_proxy::send(&mut self.anonymous(), method, path, headers, &body.to_string())
    }

    fn make(&self, path: &str, body: &Value) -> Value {
        let (code, made) = self.admin("POST", path, body);
        assert_eq!(code, 201, "{made}");
        made
    }

    /// Deletes an object if it exists.
    pub fn delete(&self, path: &str) {
        let (code, body) = self.admin("DELETE", path, &json!({}));
        assert!(matches!(code, 200 | 404), "{body}");
    }

    // Certificates and proxies.

    fn certificate_user(&self, authority: &str, purpose: &str, lasts_seconds: i64) -> String {
        let mut stream = self.connect(authority, purpose, lasts_seconds, "alice");
        name_of(&front_proxy::who(&mut stream, ""))
    }

    pub fn certificate(&self, authority: &str, purpose: &str, lasts_seconds: i64, want: &str) {
        self.expect(&self.certificate_user(authority, purpose, lasts_seconds), want);
    }

    pub fn until_certificate(&self, authority: &str, want: &str) {
        wait_for(want.to_owned(), || self.certificate_user(authority, "client", 3600));
    }

    fn proxied_user(&self, authority: &str, purpose: &str, lasts_seconds: i64) -> String {
        let name = if authority == "users" { "alice-of-users" } else { "front" };
        let mut stream = self.connect(authority, purpose, lasts_seconds, name);
        name_of(&front_proxy::who(&mut stream, "X-Remote-User: alice\r\n"))
    }

    pub fn proxied(&self, authority: &str, purpose: &str, lasts_seconds: i64, want: &str) {
        self.expect(&self.proxied_user(authority, purpose, lasts_seconds), want);
    }

    pub fn until_proxied(&self, authority: &str, want: &str) {
        wait_for(want.to_owned(), || self.proxied_user(authority, "client", 3600));
    }

    pub fn trust_users(&self, names: &[&str]) {
        self.write_bundle("users.pem", names);
    }

    pub fn trust_proxies(&self, names: &[&str]) {
        self.write_bundle("proxies.pem", names);
    }

    fn write_bundle(&self, file: &str, names: &[&str]) {
        let bundle: String = names.iter().map(|name| self.authorities[name].0.as_str()).collect();
        std::fs::write(self.dir.path().join(file), bundle).expect("a file");
    }

    // Tokens.

    fn token_user(&self, token: &str) -> String {
        let headers = format!("Authorization: Bearer {token}\r\n");
        name_of(&front_proxy::who(&mut self.anonymous(), &headers))
    }

    pub fn no_credentials(&self, want: &str) {
        self.expect(&name_of(&front_proxy::who(&mut self.anonymous(), "")), want);
    }

    pub fn token(&self, token: &str, want: &str) {
        self.expect(&self.token_user(token), want);
    }

    pub fn until_token(&self, token: &str, want: &str) {
        wait_for(want.to_owned(), || self.token_user(token));
    }

    /// Returns the user of a token for an audience; empty if it is not valid.
    pub fn review(&self, token: &str, audience: &str, want: &str) {
        let review = json!({"spec": {"token": token, "audiences": [audience]}});
        let answer = self.make("/apis/authentication.k8s.io/v1/tokenreviews", &review);
        let name = answer["status"]["user"]["username"].as_str();
        self.expect(name.unwrap_or_default(), want);
    }

    /// Creates the Secret of a bootstrap token with changes, and uses the token.
    pub fn bootstrap(&self, changes: Value, namespace: &str, want: &str) {
        for namespace in ["kube-system", "default"] {
            self.delete(&format!("{CORE}/{namespace}/secrets/bootstrap-token-abcdef"));
        }
        let mut data = json!({"token-id": "abcdef", "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true", "expiration": "2999-01-01T00:00:00Z"});
        for (name, value) in changes.as_object().expect("an object") {
            data[name] = value.clone();
        }
        let secret = json!({"metadata": {"name": "bootstrap-token-abcdef"}, "stringData": data,
            "type": "bootstrap.kubernetes.io/token"});
        self.make(&format!("{CORE}/{namespace}/secrets"), &secret);
        self.token(BOOTSTRAP_TOKEN, want);
    }

    // Service accounts.

    /// Creates the service account and the Pod to which tokens are bound, unless they exist.
    pub fn make_account(&self) {
        let account = json!({"metadata": {"name": "robot"}});
        self.admin("POST", &format!("{CORE}/default/serviceaccounts"), &account);
        let pod = json!({"metadata": {"name": "p"}, "spec": {"serviceAccountName": "robot",
            "containers": [{"name": "c", "image": "i"}]}});
        self.admin("POST", &format!("{CORE}/default/pods"), &pod);
        self.signed.borrow_mut().clear();
    }

    fn uid(&self, path: &str) -> Value {
        self.admin("GET", &format!("{CORE}/default/{path}"), &json!({})).1["metadata"]["uid"]
            .clone()
    }

    pub fn set_account_keys(&self, names: &[&str]) {
        let keys = names.iter().map(|name| self.account_keys[name].serialize_pem());
        let file = self.dir.path().join("verifying.pem");
        std::fs::write(file, keys.collect::<String>()).expect("a file");
    }

    pub fn account_token(&self, claims: &[Claim], want: &str) {
        self.token(&self.signed_account_token(claims), want);
    }

    pub fn signed_account_token(&self, claims: &[Claim]) -> String {
        let right = || {
            let account = self.uid("serviceaccounts/robot");
            let pod = self.uid("pods/p");
            json!({"iss": "https://kubernetes.default.svc", "aud": "https://kubernetes.default.svc",
                "exp": now() + 600, "iat": now(), "nbf": now(),
                "sub": "system:serviceaccount:default:robot",
                "kubernetes.io": {"namespace": "default", "pod": {"name": "p", "uid": pod},
                    "serviceaccount": {"name": "robot", "uid": account}}})
        };
        self.signed_by_account_key("bound", claims, right)
    }

    pub fn legacy_token(&self, claims: &[Claim], want: &str) {
        let token = self.signed_legacy_token(claims);
        self.put_legacy_secret(&token);
        self.token(&token, want);
    }

    pub fn signed_legacy_token(&self, claims: &[Claim]) -> String {
        let right = || {
            let of = |name: &str| format!("kubernetes.io/serviceaccount/{name}");
            let mut right = json!({"iss": "kubernetes/serviceaccount",
                "sub": "system:serviceaccount:default:robot"});
            right[of("namespace")] = "default".into();
            right[of("secret.name")] = "legacy".into();
            right[of("service-account.name")] = "robot".into();
            right[of("service-account.uid")] = self.uid("serviceaccounts/robot");
            right
        };
        self.signed_by_account_key("legacy", claims, right)
    }

    pub fn put_legacy_secret(&self, token: &str) {
        let path = format!("{CORE}/default/secrets");
        self.delete(&format!("{path}/legacy"));
        let annotations = json!({"kubernetes.io/service-account.name": "robot"});
        let secret = json!({"metadata": {"name": "legacy", "annotations": annotations},
            "type": "kubernetes.io/service-account-token", "stringData": {"token": token}});
        self.make(&path, &secret);
    }

    fn signed_by_account_key(
        &self,
        sort: &str,
        claims: &[Claim],
        right: impl Fn() -> Value,
    ) -> String {
        let known = format!("{sort} {claims:?}");
        if let Some(token) = self.signed.borrow().get(&known) {
            return token.clone();
        }
        let named = claims
            .iter()
            .find_map(|claim| match claim {
                Claim::Key(name) => Some(*name),
                _ => None,
            })
            .unwrap_or("old");
        let read =
            |name: &str| SigningKey::read(&self.account_keys[name].serialize_pem()).expect("a key");
        let key = read(if has(claims, &Claim::OtherKey) { "other" } else { named });
        let id = read(named).verifying.id;
        let public = self.account_keys[named].public_key_pem();
        let sign = |message: &[u8]| key.sign(message).expect("a signature");
        let token = token(claims, right(), &id, public.as_bytes(), &sign);
        self.signed.borrow_mut().insert(known, token.clone());
        token
    }

    // OpenID Connect.

    pub fn oidc(&self, claims: &[Claim], want: &str) {
        self.token(&self.signed_oidc(claims), want);
    }

    pub fn signed_oidc(&self, claims: &[Claim]) -> String {
        let right = json!({"iss": self.issuer.url(), "aud": "us", "sub": "alice",
            "exp": now() + 600, "iat": now()});
        let keys = self.issuer_keys.borrow();
        let other = OidcKey::p256();
        let right_key = keys.last().expect("a key");
        let id = format!("k{}", keys.len() - 1);
        let public = right_key.jwk(&id).to_string();
        let key = if has(claims, &Claim::OtherKey) { &other } else { right_key };
        token(claims, right, &id, public.as_bytes(), &|message| key.sign("ES256", message))
    }

    pub fn rotate_oidc_key(&self) {
        let key = OidcKey::p256();
        let mut keys = self.issuer_keys.borrow_mut();
        self.issuer.rotate(vec![key.jwk(&format!("k{}", keys.len()))]);
        keys.push(key);
    }

    pub fn write_oidc_config(&self, audience: &str) {
        let text = config(&self.issuer, BY_SUBJECT)
            .replace("audiences: [us]", &format!("audiences: [{audience}]"));
        std::fs::write(self.dir.path().join("authentication.yaml"), text).expect("a file");
    }

    pub fn revoke_at_webhook(&self) {
        self.is_revoked.store(true, Ordering::Relaxed);
    }
}

fn builder(dir: &Path) -> Builder {
    let file = |name: &str| dir.join(name);
    let (jwt, _) = JwtOptions::read(&file("authentication.yaml")).expect("a configuration");
    let mut builder = without_controllers().with(|builder| {
        builder.serving.certificate_check_interval = Duration::from_millis(20);
        builder.authentication.client_ca_file = Some(file("users.pem"));
        builder.authentication.front_proxy = Some(front_proxy::options(&file("proxies.pem"), &[]));
        builder.authentication.service_account_tokens = ServiceAccountTokenOptions {
            signing_key_file: Some(file("signer.pem")),
            key_files: vec![file("verifying.pem")],
            ..ServiceAccountTokenOptions::default()
        };
        builder.authentication.bootstrap_token_auth = true;
        builder.authentication.jwt = Some(jwt);
        builder.authentication.token_webhook = Some(TokenWebhookOptions {
            kubeconfig: file("hook.kubeconfig"),
            version: ReviewVersion::V1,
            cache_ttl: Duration::ZERO,
        });
    });
    builder
        .authentication
        .tokens
        .insert("static", User { name: "alice".into(), ..User::default() });
    builder
}

/// A token webhook. It accepts two tokens: one until it is revoked, one for another audience.
fn webhook(is_revoked: Arc<AtomicBool>) -> HttpsPeer {
    HttpsPeer::start(move |_, asked| {
        let mut review = asked.body;
        let user = json!({"username": "hook"});
        let yes =
            |audiences: Value| json!({"authenticated": true, "user": user, "audiences": audiences});
        review["status"] = match review["spec"]["token"].as_str().unwrap_or_default() {
            "hook-right" if !is_revoked.load(Ordering::Relaxed) => {
                yes(review["spec"]["audiences"].clone())
            }
            "hook-elsewhere" => yes(json!(["elsewhere"])),
            "hook-broken" => return Some((400, yes(review["spec"]["audiences"].clone()))),
            _ => json!({"authenticated": false}),
        };
        Some((200, review))
    })
}

fn kubeconfig(url: &str) -> String {
    format!(
        "current-context: x\nclusters:\n- name: c\n  cluster: {{server: \"{url}/tokens\", \
         certificate-authority: hook.pem}}\nusers:\n- {{name: u, user: {{}}}}\n\
         contexts:\n- {{name: x, context: {{cluster: c, user: u}}}}\n"
    )
}

/// Returns a token with valid claims, except for the given ones.
fn token(
    claims: &[Claim],
    right: Value,
    id: &str,
    public: &[u8],
    sign: &dyn Fn(&[u8]) -> Vec<u8>,
) -> String {
    let mut said = right;
    for claim in claims {
        match claim {
            Claim::Text(name, text) => said[*name] = (*text).into(),
            Claim::Number(name, seconds) => said[*name] = (now() + seconds).into(),
            Claim::Without(name) => {
                said.as_object_mut().expect("claims").remove(*name);
            }
            Claim::Key(_) | Claim::OtherKey | Claim::Unsigned | Claim::Hmac => {}
        }
    }
    if has(claims, &Claim::Unsigned) {
        return signed(&json!({"alg": "none", "kid": id}), &said, |_| vec![]);
    }
    if has(claims, &Claim::Hmac) {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, public);
        let sign = |message: &[u8]| ring::hmac::sign(&key, message).as_ref().to_vec();
        return signed(&json!({"alg": "HS256", "kid": id}), &said, sign);
    }
    signed(&json!({"alg": "ES256", "kid": id}), &said, sign)
}

fn has(claims: &[Claim], wanted: &Claim) -> bool {
    let sort = std::mem::discriminant(wanted);
    claims.iter().any(|claim| std::mem::discriminant(claim) == sort)
}

/// Returns the user name in `NAME GROUPS`, or the status code of a rejection.
fn name_of(who: &str) -> String {
    who.split(' ').next().unwrap_or_default().to_owned()
}

fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}
