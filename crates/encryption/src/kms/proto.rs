//! The messages of plug-ins, and what is stored of them: numbers and types of fields as upstream's
//! `api.proto` files state them.

use prost::Message;
use std::collections::BTreeMap;

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct StatusRequest {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StatusResponse {
    #[prost(string, tag = "1")]
    pub version: String,
    /// `ok`, or what is wrong.
    #[prost(string, tag = "2")]
    pub healthz: String,
    #[prost(string, tag = "3")]
    pub key_id: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub ciphertext: Vec<u8>,
    /// Identifies the call in logs.
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub annotations: BTreeMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct DecryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    pub plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub uid: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EncryptResponse {
    #[prost(bytes = "vec", tag = "1")]
    pub ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    pub key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub annotations: BTreeMap<String, Vec<u8>>,
}

/// The number of [`EncryptedObject::encrypted_data`], the first field of its message.
pub(super) const DATA_TAG: u32 = 1;

/// What is stored of a value.
#[derive(Clone, PartialEq, Message)]
pub(super) struct EncryptedObject {
    #[prost(bytes = "vec", tag = "1")]
    pub encrypted_data: Vec<u8>,
    #[prost(string, tag = "2")]
    pub key_id: String,
    /// The data key or seed, encrypted by the plug-in.
    #[prost(bytes = "vec", tag = "3")]
    pub encrypted_dek_source: Vec<u8>,
    #[prost(btree_map = "string, bytes", tag = "4")]
    pub annotations: BTreeMap<String, Vec<u8>>,
    /// See [`super::envelope::KEY`].
    #[prost(int32, tag = "5")]
    pub encrypted_dek_source_type: i32,
}

/// The messages of version 1 (`v1beta1`).
pub(super) mod v1 {
    use prost::Message;

    #[derive(Clone, PartialEq, Message)]
    pub struct VersionRequest {
        #[prost(string, tag = "1")]
        pub version: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct VersionResponse {
        #[prost(string, tag = "1")]
        pub version: String,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct EncryptRequest {
        #[prost(string, tag = "1")]
        pub version: String,
        #[prost(bytes = "vec", tag = "2")]
        pub plain: Vec<u8>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct EncryptResponse {
        #[prost(bytes = "vec", tag = "1")]
        pub cipher: Vec<u8>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct DecryptRequest {
        #[prost(string, tag = "1")]
        pub version: String,
        #[prost(bytes = "vec", tag = "2")]
        pub cipher: Vec<u8>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub struct DecryptResponse {
        #[prost(bytes = "vec", tag = "1")]
        pub plain: Vec<u8>,
    }
}
