//! [`ExternalSigner`]: a process behind a Unix domain socket that signs service account tokens, and
//! names the keys that verify them (`--service-account-signing-endpoint`): `ExternalJWTSigner` of
//! `externaljwt/v1`, over gRPC.
//!
//! Calls wait for the process to start, until their deadline. Concurrent callers share one fetch of
//! keys.

mod proto;

use super::VerifyingKey;
use crate::json::kind_of;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use keelson_egress::{GrpcPeer, grpc_error_text};
use keelson_meta::status::quote;
use proto::{
    FetchKeysRequest, FetchKeysResponse, MetadataRequest, MetadataResponse, SignJwtRequest,
    SignJwtResponse,
};
use serde_json::Value;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::Instant;

const FETCH_KEYS: &str = "/v1.ExternalJWTSigner/FetchKeys";
const METADATA: &str = "/v1.ExternalJWTSigner/Metadata";
const SIGN: &str = "/v1.ExternalJWTSigner/Sign";

/// Timeout of a fetch of keys, at the start and at each refresh, and of signing.
pub const CALL_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum time that a request waits for the key of its token.
pub const REQUEST_FETCH_TIME_MAX: Duration = Duration::from_secs(10);
/// Timeout of the call for the signer's metadata.
const METADATA_TIME_MAX: Duration = Duration::from_secs(10);
/// Delay of the next fetch of keys after a failed one.
pub const FETCH_RETRY_DELAY: Duration = Duration::from_secs(10);
/// Maximum refresh interval that is honoured.
const REFRESH_SECONDS_MAX: u64 = 7 * 24 * 60 * 60;
const KEY_ID_BYTES_MAX: usize = 1024;

/// The error of a call, in kube-apiserver's words.
pub type SignerError = String;

/// An external signer.
pub struct ExternalSigner {
    socket: GrpcPeer,
    fetches_begun: AtomicU64,
    last_fetch: Mutex<Fetch>,
}

impl fmt::Debug for ExternalSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ExternalSigner({:?})", self.socket)
    }
}

/// A finished fetch of keys.
struct Fetch {
    /// The sequence number of its start.
    number: u64,
    outcome: Result<(), SignerError>,
}

/// The keys that a signer published.
#[derive(Clone, Debug)]
pub struct ExternalKeys {
    /// The keys with the ids of the signer.
    pub keys: Vec<VerifyingKey>,
    /// When to fetch them again.
    pub refresh_at: Instant,
}

impl ExternalSigner {
    /// Returns a signer at a socket path, or in the abstract namespace (`@name`). Does not connect
    /// yet.
    pub fn new(endpoint: &str) -> Result<ExternalSigner, SignerError> {
        Ok(ExternalSigner {
            socket: GrpcPeer::at_socket(endpoint)?,
            fetches_begun: AtomicU64::new(0),
            last_fetch: Mutex::new(Fetch { number: 0, outcome: Ok(()) }),
        })
    }

    /// Returns the maximum lifetime of a token, in seconds.
    pub async fn expiration_seconds_max(&self) -> Result<i64, SignerError> {
        let until = Instant::now() + METADATA_TIME_MAX;
        let response =
            self.socket.call::<_, MetadataResponse>(METADATA, MetadataRequest {}, until).await;
        Ok(response.map_err(|error| grpc_error_text(&error))?.max_token_expiration_seconds)
    }

    /// Fetches the verification keys.
    pub async fn fetch_keys(&self, time_max: Duration) -> Result<ExternalKeys, SignerError> {
        let until = Instant::now() + time_max;
        let response =
            self.socket.call::<_, FetchKeysResponse>(FETCH_KEYS, FetchKeysRequest {}, until);
        let response = response.await.map_err(|error| {
            let error = grpc_error_text(&error);
            format!("while getting externally supported jwt signing keys: {error}")
        });
        let keys = response.and_then(|response| read_keys(&response));
        keys.map_err(|why| format!("while fetching token verification keys: {why}"))
    }

    /// Fetches keys and passes them to `set`, unless another fetch that began after this call has
    /// done so.
    pub async fn sync(
        &self,
        time_max: Duration,
        set: impl FnOnce(ExternalKeys),
    ) -> Result<(), SignerError> {
        let begun = self.fetches_begun.load(Ordering::Acquire);
        let mut last = self.last_fetch.lock().await;
        if last.number > begun {
            return last.outcome.clone();
        }
        let number = self.fetches_begun.fetch_add(1, Ordering::AcqRel) + 1;
        let outcome = self.fetch_keys(time_max).await.map(set);
        *last = Fetch { number, outcome: outcome.clone() };
        outcome
    }

    /// Signs claims; returns the encoded header and signature of the token.
    pub async fn sign(&self, claims: &str) -> Result<(String, String), SignerError> {
        let until = Instant::now() + CALL_TIME_MAX;
        let request = SignJwtRequest { claims: claims.to_owned() };
        let response = self.socket.call::<_, SignJwtResponse>(SIGN, request, until).await;
        let response =
            response.map_err(|error| format!("while signing jwt: {}", grpc_error_text(&error)))?;
        Ok((response.header, response.signature))
    }
}

fn read_keys(response: &FetchKeysResponse) -> Result<ExternalKeys, SignerError> {
    let hint = response.refresh_hint_seconds;
    let seconds = u64::try_from(hint)
        .ok()
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| format!("found invalid refresh hint ({hint}s)"))?;
    if response.keys.is_empty() {
        return Err("found no keys".to_owned());
    }
    response.check_timestamp().map_err(|why| format!("invalid data timestamp: {why}"))?;
    let keys = response.keys.iter().map(|key| {
        if key.key_id.is_empty() || key.key_id.len() > KEY_ID_BYTES_MAX {
            return Err(format!("found invalid public key id {}", quote(&key.key_id)));
        }
        if key.key.is_empty() {
            return Err("found empty public key".to_owned());
        }
        VerifyingKey::external(&key.key_id, &key.key, key.exclude_from_oidc_discovery)
            .map_err(|error| format!("while parsing external public keys: {error}"))
    });
    let refresh_in = Duration::from_secs(seconds.min(REFRESH_SECONDS_MAX));
    Ok(ExternalKeys {
        keys: keys.collect::<Result<_, _>>()?,
        refresh_at: Instant::now() + refresh_in,
    })
}

/// Checks the header of a signed token and returns its key id.
pub fn check_header(header: &str) -> Result<String, SignerError> {
    let bytes = BASE64URL.decode(header).map_err(|error| {
        use base64::DecodeError::{InvalidByte, InvalidLastSymbol, InvalidLength, InvalidPadding};
        let at = match error {
            InvalidByte(at, _) | InvalidLastSymbol(at, _) => at,
            InvalidLength(_) | InvalidPadding => header.find('=').unwrap_or(header.len()),
        };
        format!("while unwrapping header: illegal base64 data at input byte {at}")
    })?;
    let mut values = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
    let header = match values.next() {
        Some(Ok(header)) => header,
        Some(Err(error)) if !error.is_eof() => {
            return Err(format!("while parsing header JSON: {error}"));
        }
        Some(Err(_)) => return Err("while parsing header JSON: unexpected EOF".to_owned()),
        None => return Err("while parsing header JSON: EOF".to_owned()),
    };
    let parsed = read_header(&header).map_err(|why| format!("while parsing header JSON: {why}"))?;
    let [algorithm, id, kind] = parsed;
    if kind != "JWT" {
        return Err("bad type".to_owned());
    }
    if id.is_empty() {
        return Err("key id missing".to_owned());
    }
    if id.len() > KEY_ID_BYTES_MAX {
        return Err("key id longer than 1 kb".to_owned());
    }
    if !["RS256", "ES256", "ES384", "ES512"].contains(&algorithm) {
        return Err(format!("bad signing algorithm {}", quote(algorithm)));
    }
    Ok(id.to_owned())
}

/// Returns `alg`, `kid` and `typ`; other fields are an error.
fn read_header(header: &Value) -> Result<[&str; 3], String> {
    const NAMES: [&str; 3] = ["alg", "kid", "typ"];
    let mut read = [""; 3];
    let Some(members) = header.as_object() else {
        let is_absent = header.is_null();
        let why = || format!("json: cannot unmarshal {} into Go value", kind_of(header));
        return if is_absent { Ok(read) } else { Err(why()) };
    };
    for (name, value) in members {
        let Some(at) = NAMES.iter().position(|known| known == name) else {
            return Err(format!("json: unknown field {}", quote(name)));
        };
        read[at] = match value {
            Value::String(text) => text,
            Value::Null => "",
            other => {
                let kind = kind_of(other);
                return Err(format!(
                    "json: cannot unmarshal {kind} into Go struct field .{name} of type string"
                ));
            }
        };
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_of_an_external_signer_has_only_type_key_and_algorithm() {
        let check = |header: &str, want: Result<&str, &str>| {
            let checked = check_header(header);
            assert_eq!(checked.as_deref().map_err(String::as_str), want, "{header}");
        };
        let json = |text: &str| BASE64URL.encode(text);
        check(&json(r#"{"alg":"ES256","kid":"k1","typ":"JWT"}"#), Ok("k1"));
        check(&json(r#"{"alg":"none","kid":"k"}"#), Err("bad type"));
        check(&json(r#"{"alg":"ES256","typ":"JWT"}"#), Err("key id missing"));
        let long = format!(r#"{{"alg":"ES256","typ":"JWT","kid":"{}"}}"#, "k".repeat(1025));
        check(&json(&long), Err("key id longer than 1 kb"));
        for algorithm in ["none", "HS256", "PS256", ""] {
            let header = format!(r#"{{"alg":"{algorithm}","typ":"JWT","kid":"k"}}"#);
            let want = format!("bad signing algorithm {algorithm:?}");
            check(&json(&header), Err(&want));
        }
        let parsing = |why: &str| format!("while parsing header JSON: {why}");
        let unknown = json(r#"{"alg":"ES256","kid":"k","typ":"JWT","x5u":"u"}"#);
        check(&unknown, Err(&parsing("json: unknown field \"x5u\"")));
        let number = json(r#"{"alg":1}"#);
        let want = "json: cannot unmarshal number into Go struct field .alg of type string";
        check(&number, Err(&parsing(want)));
        check(&json("{"), Err(&parsing("unexpected EOF")));
        check("", Err(&parsing("EOF")));
        let base64 = "while unwrapping header: illegal base64 data at input byte";
        check("!!", Err(&format!("{base64} 0")));
        check("e30=", Err(&format!("{base64} 3")));
    }
}
