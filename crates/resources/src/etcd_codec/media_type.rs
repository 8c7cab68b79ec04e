//! [`StorageMediaType`]: the encoding of stored objects.

use bytes::Bytes;
use keelson_meta::Object;
use keelson_schema::{Schema, json, proto, yaml};
use std::str::FromStr;

/// The encoding of stored objects (`--storage-media-type`). Objects in any of them can be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StorageMediaType {
    /// Protobuf in the envelope of Kubernetes.
    #[default]
    Protobuf,
    /// JSON in one line.
    Json,
    /// YAML.
    Yaml,
}

impl StorageMediaType {
    /// Returns the encoding of a value. What is neither protobuf nor JSON can only be YAML.
    pub(super) fn of(value: &[u8]) -> StorageMediaType {
        if value.starts_with(&proto::PREFIX) {
            StorageMediaType::Protobuf
        } else if value.trim_ascii_start().starts_with(b"{") {
            StorageMediaType::Json
        } else {
            StorageMediaType::Yaml
        }
    }

    /// Encodes an object.
    pub(super) fn encode(self, schema: &Schema, obj: &Object) -> Result<Bytes, String> {
        let mut out = vec![];
        match self {
            StorageMediaType::Protobuf => {
                proto::encode(schema, obj, &mut out).map_err(|error| error.to_string())?;
            }
            StorageMediaType::Json => {
                json::encode(schema, obj, &mut out);
                out.push(b'\n');
            }
            StorageMediaType::Yaml => {
                json::encode(schema, obj, &mut out);
                let parsed = json::parse(&out).map_err(|error| error.to_string())?;
                let mut text = String::with_capacity(out.len());
                yaml::write(&parsed.value, &mut text);
                out = text.into_bytes();
            }
        }
        Ok(out.into())
    }
}

impl FromStr for StorageMediaType {
    type Err = ();

    fn from_str(text: &str) -> Result<StorageMediaType, ()> {
        match text {
            "application/vnd.kubernetes.protobuf" => Ok(StorageMediaType::Protobuf),
            // As upstream, no media type is JSON.
            "application/json" | "" => Ok(StorageMediaType::Json),
            "application/yaml" => Ok(StorageMediaType::Yaml),
            _ => Err(()),
        }
    }
}
