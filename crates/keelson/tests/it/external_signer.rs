//! `--service-account-signing-endpoint`: an external signer of service account tokens, which runs
//! in the test. Messages are those of kube-apiserver 1.36 with the same signer.

use crate::controllers::wait_until;
use crate::http::{Client, Server, without_controllers};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use keelson::{Builder, ServiceAccountTokenOptions};
use keelson_auth::service_account::SigningKey;
use keelson_testkit::grpc::GrpcServer;
use prost::Message;
use rcgen::{KeyPair, PublicKeyData};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tokio::runtime::Runtime;

const NAME: &str = "system:serviceaccount:default:a";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

/// The behaviour of the signer.
#[derive(Clone)]
struct Behaviour {
    /// Published keys: id, and whether they only verify earlier tokens (excluded from OIDC
    /// discovery).
    published: Vec<(&'static str, bool)>,
    signing: &'static str,
    /// Replaces the token header.
    header: Option<Value>,
    no_signature: bool,
    /// The call that fails.
    failing: Option<&'static str>,
    expiration_seconds_max: i64,
    refresh_hint_seconds: i64,
}

impl Default for Behaviour {
    fn default() -> Self {
        Behaviour {
            published: vec![("k1", false)],
            signing: "k1",
            header: None,
            no_signature: false,
            failing: None,
            expiration_seconds_max: 7200,
            refresh_hint_seconds: 600,
        }
    }
}

#[derive(Default)]
struct State {
    behaviour: Behaviour,
    keys: HashMap<&'static str, Arc<KeyPair>>,
    fetches: usize,
}

/// A running signer; dropping it stops it.
struct Signer {
    state: Arc<Mutex<State>>,
    socket: PathBuf,
    _dir: tempfile::TempDir,
    _server: GrpcServer,
}

#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(string, tag = "1")]
    first: String,
    #[prost(string, tag = "2")]
    second: String,
}

#[derive(Clone, PartialEq, Message)]
struct Key {
    #[prost(string, tag = "1")]
    id: String,
    #[prost(bytes = "vec", tag = "2")]
    spki: Vec<u8>,
    #[prost(bool, tag = "3")]
    is_old: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(int64, tag = "1")]
    number: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Keys {
    #[prost(message, repeated, tag = "1")]
    keys: Vec<Key>,
    #[prost(message, optional, tag = "2")]
    taken: Option<Number>,
    #[prost(int64, tag = "3")]
    refresh_hint_seconds: i64,
}

impl State {
    fn key(&mut self, id: &'static str) -> Arc<KeyPair> {
        let made = || Arc::new(KeyPair::generate().expect("a key"));
        self.keys.entry(id).or_insert_with(made).clone()
    }

    /// Returns the response to a call, or the message of its error.
    fn answer(&mut self, call: &str, body: &[u8]) -> Result<Vec<u8>, String> {
        let behaviour = self.behaviour.clone();
        if behaviour.failing == Some(call) {
            return Err(format!("no {call} today"));
        }
        Ok(match call {
            "Metadata" => Number { number: behaviour.expiration_seconds_max }.encode_to_vec(),
            "FetchKeys" => {
                self.fetches += 1;
                let key = |(id, is_old): &(&'static str, bool)| Key {
                    id: (*id).to_owned(),
                    spki: self.key(id).subject_public_key_info(),
                    is_old: *is_old,
                };
                let keys = behaviour.published.iter().map(key).collect();
                let taken = Some(Number { number: 1_700_000_000 });
                let refresh_hint_seconds = behaviour.refresh_hint_seconds;
                Keys { keys, taken, refresh_hint_seconds }.encode_to_vec()
            }
            _ => {
                let claims = Pair::decode(body).expect("a request").first;
                let id = behaviour.signing;
                let header = json!({"alg": "ES256", "kid": id, "typ": "JWT"});
                let header = behaviour.header.unwrap_or(header).to_string();
                let header = BASE64URL.encode(header);
                let key = SigningKey::read(&self.key(id).serialize_pem()).expect("a key");
                let message = format!("{header}.{claims}");
                let signature = key.sign(message.as_bytes()).expect("a signature");
                let second = BASE64URL.encode(signature);
                let second = if behaviour.no_signature { String::new() } else { second };
                Pair { first: header, second }.encode_to_vec()
            }
        })
    }
}

impl Signer {
    fn start(behaviour: Behaviour) -> Signer {
        let dir = tempfile::tempdir().expect("a folder");
        let socket = dir.path().join("signer.sock");
        let state = Arc::new(Mutex::new(State { behaviour, ..State::default() }));
        let server = Signer::listen(&socket, &state);
        Signer { state, socket, _dir: dir, _server: server }
    }

    fn listen(socket: &Path, state: &Arc<Mutex<State>>) -> GrpcServer {
        let state = state.clone();
        let answer =
            move |call: &str, body: &[u8]| state.lock().expect("a lock").answer(call, body);
        GrpcServer::start(socket, Arc::new(answer))
    }

    fn behave(&self, change: impl FnOnce(&mut Behaviour)) {
        let mut state = self.state.lock().expect("a lock");
        state.behaviour = Behaviour::default();
        change(&mut state.behaviour);
    }

    fn fetches(&self) -> usize {
        self.state.lock().expect("a lock").fetches
    }

    fn options(&self) -> ServiceAccountTokenOptions {
        let endpoint = self.socket.to_str().expect("UTF-8").to_owned();
        ServiceAccountTokenOptions { signing_endpoint: Some(endpoint), ..Default::default() }
    }

    fn builder(&self) -> Builder {
        without_controllers()
            .with(|builder| builder.authentication.service_account_tokens = self.options())
    }
}

fn account(client: &Client) {
    let account = json!({"metadata": {"name": "a"}});
    assert_eq!(client.post(ACCOUNTS, &account).status, 201);
}

fn token(client: &Client) -> String {
    let answer = client.post(&format!("{ACCOUNTS}/a/token"), &json!({"spec": {}}));
    answer.body["status"]["token"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
}

/// Returns the user of a token, or the error.
fn review(client: &Client, token: &str) -> String {
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let status = client.post(path, &json!({"spec": {"token": token}})).body["status"].clone();
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let name = text(&status["user"]["username"]);
    name.or_else(|| text(&status["error"])).unwrap_or_else(|| status.to_string())
}

fn published(client: &Client) -> Vec<Value> {
    let keys = client.request("GET", "/openid/v1/jwks", "Accept: */*\r\n", None).body;
    let ids = keys["keys"].as_array().expect("keys").iter().map(|key| key["kid"].clone());
    ids.collect()
}

const NOT_FOUND: &str = "[invalid bearer token, invalid signature, no keys found]";

#[test]
fn an_external_signer_signs_tokens_and_provides_the_keys() {
    let signer = Signer::start(Behaviour::default());
    let server = Server::start_plain(signer.builder());
    let client = server.client();
    account(&client);
    let first = token(&client);
    assert_eq!(review(&client, &first), NAME);
    assert_eq!(published(&client), ["k1"]);
    // The signer sets the maximum lifetime of tokens.
    let asked = json!({"spec": {"expirationSeconds": 100_000}});
    let answer = client.post(&format!("{ACCOUNTS}/a/token"), &asked);
    assert_eq!(answer.body["spec"]["expirationSeconds"], 7200);
    assert_eq!(
        answer.header("warning"),
        Some("299 - \"requested expiration of 100000 seconds shortened to 7200 seconds\"")
    );
    // A new key is fetched when a token has its id; excluded keys stay excluded from the list.
    signer.behave(|is| (is.signing, is.published) = ("k2", vec![("k1", true), ("k2", false)]));
    let second = token(&client);
    assert_eq!((review(&client, &second), review(&client, &first)), (NAME.into(), NAME.into()));
    assert_eq!(published(&client), ["k2"]);
    // An unpublished key is rejected, after one fetch each time.
    signer.behave(|is| is.signing = "k3");
    let third = token(&client);
    let fetches = signer.fetches();
    assert_eq!(review(&client, &third), NOT_FOUND);
    assert_eq!(signer.fetches(), fetches + 1);
    // Tokens of a removed key are rejected.
    assert_eq!(review(&client, &second), NOT_FOUND);
    assert_eq!(review(&client, &first), NAME);
    // While keys cannot be fetched, the previous ones are used.
    signer.behave(|is| is.failing = Some("FetchKeys"));
    assert_eq!((review(&client, &first), review(&client, &third)), (NAME.into(), NOT_FOUND.into()));
    server.stop();
}

#[test]
fn keys_of_an_external_signer_are_refreshed_at_its_interval() {
    let signer = Signer::start(Behaviour { refresh_hint_seconds: 1, ..Behaviour::default() });
    let server = Server::start_plain(signer.builder());
    let client = server.client();
    let answer = client.request("GET", "/openid/v1/jwks", "Accept: */*\r\n", None);
    assert_eq!(answer.header("cache-control"), Some("public, max-age=0"));
    signer.behave(|is| is.published = vec![("k1", false), ("k5", false)]);
    wait_until("the keys are fetched again", || published(&client) == ["k1", "k5"]);
    server.stop();
}

#[test]
fn badly_signed_tokens_of_an_external_signer_are_rejected() {
    let signer = Signer::start(Behaviour::default());
    let server = Server::start_plain(signer.builder());
    let client = server.client();
    account(&client);
    let check = |change: &dyn Fn(&mut Behaviour), why: &str| {
        signer.behave(change);
        let answer = client.post(&format!("{ACCOUNTS}/a/token"), &json!({"spec": {}}));
        let message = format!("Internal error occurred: failed to generate token: {why}");
        let got = (answer.status, answer.body["message"].as_str());
        assert_eq!(got, (500, Some(message.as_str())));
    };
    check(
        &|is| is.failing = Some("Sign"),
        "while signing jwt: rpc error: code = Unknown desc = no Sign today",
    );
    check(
        &|is| is.header = Some(json!({"alg": "none", "kid": "k1", "typ": "JWT"})),
        "while validating header: bad signing algorithm \"none\"",
    );
    check(&|is| is.no_signature = true, "empty signature returned");
    check(
        &|is| (is.signing, is.published) = ("k9", vec![("k1", false), ("k9", true)]),
        "while validating header: key used for signing JWT (kid: k9) is excluded from OIDC discovery docs",
    );
    server.stop();
}

#[test]
fn a_server_does_not_start_without_a_valid_external_signer() {
    let signer = Signer::start(Behaviour::default());
    let runtime = Runtime::new().expect("a runtime");
    let check = |options: ServiceAccountTokenOptions, want: &str| {
        let builder = without_controllers()
            .with(|builder| builder.authentication.service_account_tokens = options)
            .plain_http();
        let error = runtime.block_on(builder.start()).err().expect("it does not start");
        assert_eq!(error.to_string(), want);
    };
    let setting_up = "while setting up external-jwt-signer";
    let filling = "while initially filling key cache: while performing initial cache fill";
    let fetching = format!("{setting_up}: {filling}: while fetching token verification keys");
    signer.behave(|is| is.failing = Some("FetchKeys"));
    let why = "while getting externally supported jwt signing keys: rpc error: code = Unknown desc = \
               no FetchKeys today";
    check(signer.options(), &format!("{fetching}: {why}"));
    signer.behave(|is| is.published.clear());
    check(signer.options(), &format!("{fetching}: found no keys"));
    signer.behave(|is| is.refresh_hint_seconds = 0);
    check(signer.options(), &format!("{fetching}: found invalid refresh hint (0s)"));
    signer.behave(|is| is.failing = Some("Metadata"));
    let why = "rpc error: code = Unknown desc = no Metadata today";
    check(signer.options(), &format!("{setting_up}: {why}"));
    signer.behave(|is| is.expiration_seconds_max = 300);
    check(
        signer.options(),
        "max token life supported by external-jwt-signer (300s) is less than acceptable (min 600s)",
    );
    signer.behave(|is| is.expiration_seconds_max = 600);
    check(
        ServiceAccountTokenOptions { expiration_seconds_max: Some(3600), ..signer.options() },
        "service-account-max-token-expiration cannot be set longer than the token expiration \
         supported by service-account-signing-endpoint: 1h0m0s > 10m0s",
    );
    for endpoint in ["abc", "@abc@", "@abc.abc  .ae", "@"] {
        check(
            ServiceAccountTokenOptions {
                signing_endpoint: Some(endpoint.to_owned()),
                ..signer.options()
            },
            &format!(
                "invalid value {endpoint:?} passed for `--service-account-signing-endpoint`, should \
                 be a valid location on the filesystem or must be prefixed with @ to name UDS in \
                 abstract namespace"
            ),
        );
    }
}

#[test]
fn a_server_waits_for_its_external_signer_and_survives_its_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("late.sock");
    let state = Arc::new(Mutex::new(State::default()));
    let endpoint = Some(socket.to_str().expect("UTF-8").to_owned());
    let options = ServiceAccountTokenOptions { signing_endpoint: endpoint, ..Default::default() };
    let starting = std::thread::spawn(move || {
        Server::start_plain(
            without_controllers()
                .with(|builder| builder.authentication.service_account_tokens = options),
        )
    });
    let first = Signer::listen(&socket, &state);
    let server = starting.join().expect("it starts");
    let client = server.client();
    account(&client);
    assert_eq!(review(&client, &token(&client)), NAME);
    drop(first);
    let _second = Signer::listen(&socket, &state);
    assert_eq!(review(&client, &token(&client)), NAME);
    server.stop();
}
