//! [`FakeKms`]: a KMS plug-in with faults.

use crate::grpc::GrpcServer;
use prost::Message;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a plug-in behaves.
#[derive(Clone, Debug)]
pub struct KmsBehaviour {
    /// `Status`: the id of the current key, what its health is, and the version of the API. With
    /// `v1beta1` it has the calls and messages of that version.
    pub key_id: String,
    /// See [`KmsBehaviour::key_id`].
    pub healthz: String,
    /// See [`KmsBehaviour::key_id`].
    pub version: String,
    /// `Encrypt`: another key than the current one.
    pub encrypts_with: Option<String>,
    /// `Encrypt`: the length of the ciphertext.
    pub ciphertext_bytes: Option<usize>,
    /// `Encrypt`: the annotations.
    pub annotations: BTreeMap<String, Vec<u8>>,
    /// `Decrypt`: the length of the plain text.
    pub plaintext_bytes: Option<usize>,
    /// Keys that `Decrypt` does not know any more.
    pub lost_keys: Vec<String>,
    /// Calls that fail.
    pub failing: Vec<&'static str>,
    /// How long each call takes.
    pub delay: Duration,
}

impl Default for KmsBehaviour {
    fn default() -> Self {
        KmsBehaviour {
            key_id: "1".to_owned(),
            healthz: "ok".to_owned(),
            version: "v2".to_owned(),
            encrypts_with: None,
            ciphertext_bytes: None,
            annotations: [("kms.example.com".to_owned(), b"a".to_vec())].into(),
            plaintext_bytes: None,
            lost_keys: vec![],
            failing: vec![],
            delay: Duration::ZERO,
        }
    }
}

/// A running plug-in. Dropping it stops it.
pub struct FakeKms {
    state: Arc<Mutex<State>>,
    socket: PathBuf,
    _server: GrpcServer,
}

#[derive(Debug, Default)]
struct State {
    behaviour: KmsBehaviour,
    calls: BTreeMap<String, usize>,
}

impl FakeKms {
    /// Starts a plug-in at this socket; `@name` is one in the abstract namespace.
    ///
    /// # Panics
    ///
    /// If the socket cannot be opened.
    pub fn start(socket: &Path, behaviour: KmsBehaviour) -> FakeKms {
        let state = Arc::new(Mutex::new(State { behaviour, ..State::default() }));
        let answering = state.clone();
        let answer = move |call: &str, body: &[u8]| {
            let behaviour = {
                let mut state = lock(&answering);
                *state.calls.entry(call.to_owned()).or_default() += 1;
                state.behaviour.clone()
            };
            std::thread::park_timeout(behaviour.delay);
            behaviour.answer(call, body)
        };
        let server = GrpcServer::start(socket, Arc::new(answer));
        FakeKms { state, socket: socket.to_owned(), _server: server }
    }

    /// Changes the behaviour.
    pub fn behave(&self, change: impl FnOnce(&mut KmsBehaviour)) {
        change(&mut lock(&self.state).behaviour);
    }

    /// Returns how often a call was made.
    #[must_use]
    pub fn calls(&self, call: &str) -> usize {
        lock(&self.state).calls.get(call).copied().unwrap_or_default()
    }

    /// Returns the endpoint for a configuration.
    #[must_use]
    pub fn endpoint(&self) -> String {
        let socket = self.socket.display().to_string();
        match socket.starts_with('@') {
            true => format!("unix:///{socket}"),
            false => format!("unix://{socket}"),
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl KmsBehaviour {
    fn answer(&self, call: &str, body: &[u8]) -> Result<Vec<u8>, String> {
        if self.failing.contains(&call) {
            return Err(format!("no {call} today"));
        }
        if self.version == "v1beta1" {
            return self.answer_v1(call, body);
        }
        let failed = |error: prost::DecodeError| error.to_string();
        match call {
            "Status" => Ok(Status {
                version: self.version.clone(),
                healthz: self.healthz.clone(),
                key_id: self.key_id.clone(),
            }
            .encode_to_vec()),
            "Encrypt" => {
                let key_id = self.encrypts_with.as_ref().unwrap_or(&self.key_id).clone();
                let plain = Plain::decode(body).map_err(failed)?.text;
                let mut ciphertext = [mask(&plain).as_slice(), key_id.as_bytes()].concat();
                if let Some(bytes) = self.ciphertext_bytes {
                    ciphertext.resize(bytes, 0);
                }
                let annotations = self.annotations.clone();
                Ok(Encrypted { ciphertext, key_id, annotations }.encode_to_vec())
            }
            "Decrypt" => {
                let sealed = Sealed::decode(body).map_err(failed)?;
                if self.lost_keys.contains(&sealed.key_id) || sealed.annotations != self.annotations
                {
                    return Err(format!("no key {}", sealed.key_id));
                }
                let plain = sealed.ciphertext.strip_suffix(sealed.key_id.as_bytes());
                let mut text = mask(plain.ok_or("the ciphertext has another key")?);
                if let Some(bytes) = self.plaintext_bytes {
                    text.resize(bytes, 0);
                }
                Ok(Plain { text }.encode_to_vec())
            }
            other => Err(format!("no call {other}")),
        }
    }

    /// The ciphertext ends with the key and its length.
    fn answer_v1(&self, call: &str, body: &[u8]) -> Result<Vec<u8>, String> {
        let request = VersionAndText::decode(body).map_err(|error| error.to_string())?;
        if request.version != self.version {
            return Err(format!("no version {}", request.version));
        }
        match call {
            "Version" => Ok(VersionAndText::from_version(&self.version)),
            "Encrypt" => {
                let key_id = self.encrypts_with.as_ref().unwrap_or(&self.key_id).as_bytes();
                let length = u8::try_from(key_id.len()).map_err(|error| error.to_string())?;
                let mut text = [&*mask(&request.text), key_id, &[length]].concat();
                if let Some(bytes) = self.ciphertext_bytes {
                    text.resize(bytes, 0);
                }
                Ok(Plain { text }.encode_to_vec())
            }
            "Decrypt" => {
                let parts = request.text.split_last().and_then(|(length, rest)| {
                    rest.split_at_checked(rest.len().checked_sub(usize::from(*length))?)
                });
                let (masked, key_id) = parts.ok_or("the ciphertext is too short")?;
                let key_id = String::from_utf8_lossy(key_id).into_owned();
                if self.lost_keys.contains(&key_id) {
                    return Err(format!("no key {key_id}"));
                }
                let mut text = mask(masked);
                if let Some(bytes) = self.plaintext_bytes {
                    text.resize(bytes, 0);
                }
                Ok(Plain { text }.encode_to_vec())
            }
            other => Err(format!("no call {other}")),
        }
    }
}

/// The requests of version 1, and `VersionResponse`.
#[derive(Clone, PartialEq, Message)]
struct VersionAndText {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(bytes = "vec", tag = "2")]
    text: Vec<u8>,
}

impl VersionAndText {
    fn from_version(version: &str) -> Vec<u8> {
        VersionAndText { version: version.to_owned(), text: vec![] }.encode_to_vec()
    }
}

/// The cipher of the fake, which only has to change the text.
fn mask(text: &[u8]) -> Vec<u8> {
    text.iter().map(|byte| byte ^ 0x5a).collect()
}

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

/// `EncryptRequest` and `DecryptResponse`; both responses of version 1.
#[derive(Clone, PartialEq, Message)]
struct Plain {
    #[prost(bytes = "vec", tag = "1")]
    text: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Encrypted {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct Sealed {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: BTreeMap<String, Vec<u8>>,
}
