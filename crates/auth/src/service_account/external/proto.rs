//! The messages of `externaljwt/v1`: numbers and types of fields as its `api.proto` states them.

use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(super) struct SignJwtRequest {
    /// The middle part of the token.
    #[prost(string, tag = "1")]
    pub claims: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SignJwtResponse {
    /// The first part of the token.
    #[prost(string, tag = "1")]
    pub header: String,
    /// The last part of the token.
    #[prost(string, tag = "2")]
    pub signature: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct FetchKeysRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FetchKeysResponse {
    #[prost(message, repeated, tag = "1")]
    pub keys: Vec<Key>,
    /// When the signer got them.
    #[prost(message, optional, tag = "2")]
    pub data_timestamp: Option<Timestamp>,
    #[prost(int64, tag = "3")]
    pub refresh_hint_seconds: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Key {
    #[prost(string, tag = "1")]
    pub key_id: String,
    /// A SubjectPublicKeyInfo in DER.
    #[prost(bytes = "vec", tag = "2")]
    pub key: Vec<u8>,
    /// The key verifies tokens, and signs no new ones.
    #[prost(bool, tag = "3")]
    pub exclude_from_oidc_discovery: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct MetadataRequest {}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct MetadataResponse {
    #[prost(int64, tag = "1")]
    pub max_token_expiration_seconds: i64,
}

/// `google.protobuf.Timestamp`.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Timestamp {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// The first second of the year 1, and the last of the year 9999.
const SECONDS_MIN: i64 = -62_135_596_800;
const SECONDS_MAX: i64 = 253_402_300_799;

impl FetchKeysResponse {
    /// Returns an error if the timestamp of the data is missing or invalid.
    pub fn check_timestamp(&self) -> Result<(), String> {
        let Some(Timestamp { seconds, nanos }) = self.data_timestamp else {
            return Err("invalid nil Timestamp".to_owned());
        };
        let shown = format!("timestamp (seconds:{seconds} nanos:{nanos})");
        match () {
            () if seconds < SECONDS_MIN => Err(format!("{shown} before 0001-01-01")),
            () if seconds > SECONDS_MAX => Err(format!("{shown} after 9999-12-31")),
            () if !(0..1_000_000_000).contains(&nanos) => {
                Err(format!("{shown} has out-of-range nanos"))
            }
            () => Ok(()),
        }
    }
}
