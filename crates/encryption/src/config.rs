//! [`Config`]: the file of `--encryption-provider-config`, parsed strictly, with kube-apiserver's
//! messages.

mod types;
mod validate;

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use keelson_meta::status::quote;
use keelson_meta::time::GoDuration;
use keelson_meta::{Feature, Features, Value};
use keelson_schema::{decode, yaml};
use std::fmt;
use std::time::Duration;
use thiserror::Error;
use types::{ROOT, TYPES};
use zeroize::Zeroizing;

const GROUP_VERSION: &str = "apiserver.config.k8s.io/v1";
const KIND: &str = "EncryptionConfiguration";
/// The kind as it was called before it had a group.
const OLD_KIND: &str = "EncryptionConfig";
/// The other kinds of the group.
const OTHER_KINDS: [&str; 4] = [
    "AdmissionConfiguration",
    "AuthenticationConfiguration",
    "AuthorizationConfiguration",
    "TracingConfiguration",
];
/// Most data keys of a plug-in that are kept. Each server uses a new one from its start on, and
/// when the plug-in has another key; a migration replaces them.
const KEYS_MAX: usize = 1024;
/// Default of the time limit of a call to a KMS plug-in.
const KMS_TIME_DEFAULT: Duration = Duration::from_secs(3);

/// Why a file is refused, in kube-apiserver's words.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConfigError {
    /// It cannot be parsed, or is invalid.
    #[error("error while parsing file: {0}")]
    Parse(String),
    /// Its entries cannot be used together.
    #[error("error while building transformers: {0}")]
    Build(String),
}

/// A parsed and valid file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The entries, in order.
    pub resources: Vec<ResourceConfig>,
}

/// An entry: resources and how they are encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceConfig {
    /// The resources.
    pub resources: Vec<GroupResource>,
    /// The first one encrypts; all decrypt.
    pub providers: Vec<ProviderConfig>,
}

/// A resource of a group; either may be `*`. The core group is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GroupResource {
    /// The group.
    pub group: String,
    /// The plural name.
    pub resource: String,
}

impl GroupResource {
    /// Parses `resource.group`.
    #[must_use]
    pub fn parse(text: &str) -> GroupResource {
        let (resource, group) = text.split_once('.').unwrap_or((text, ""));
        GroupResource { group: group.to_owned(), resource: resource.to_owned() }
    }
}

impl fmt::Display for GroupResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.group, &*self.resource) {
            ("", "*") => f.write_str("*."),
            ("", resource) => f.write_str(resource),
            (group, resource) => write!(f, "{resource}.{group}"),
        }
    }
}

/// A provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderConfig {
    /// AES-GCM with random nonces.
    AesGcm(Vec<KeyConfig>),
    /// AES-CBC with PKCS#7 padding, which does not notice changed values.
    AesCbc(Vec<KeyConfig>),
    /// XSalsa20 and Poly1305.
    Secretbox(Vec<KeyConfig>),
    /// A plug-in that encrypts the keys.
    Kms(KmsConfig),
    /// No encryption.
    Identity,
}

/// A key with its name, which is stored with each value.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyConfig {
    /// The name.
    pub name: String,
    /// The key.
    pub secret: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for KeyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.name, self.secret.len())
    }
}

/// The version of a KMS plug-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KmsVersion {
    /// It encrypts data keys. Needs the gate `KMSv1`.
    V1,
    /// It encrypts seeds of data keys, and names its own.
    V2,
}

impl fmt::Display for KmsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            KmsVersion::V1 => "v1",
            KmsVersion::V2 => "v2",
        })
    }
}

/// A KMS plug-in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KmsConfig {
    /// Its version.
    pub version: KmsVersion,
    /// Its name, which is stored with each value.
    pub name: String,
    /// The path of its socket, or its name in the abstract namespace (`@name`).
    pub socket: String,
    /// The time limit of a call.
    pub time_max: Duration,
    /// Most data keys that are kept.
    pub keys_max: usize,
}

impl Config {
    /// Parses a file. `name` is its path, for messages.
    pub fn parse(text: &str, name: &str, features: Features) -> Result<Config, ConfigError> {
        if text.is_empty() {
            let name = quote(name);
            let why = format!("encryption provider configuration file {name} is empty");
            return Err(ConfigError::Parse(format!("error while loading file: {why}")));
        }
        let file = decode(text, name).map_err(ConfigError::Parse)?;
        let errors = validate::check(&file);
        if !errors.is_empty() {
            return Err(ConfigError::Parse(errors.aggregate()));
        }
        let entries =
            file.array_at(&["resources"]).iter().map(|entry| resource_config(entry, features));
        let config = Config { resources: entries.collect::<Result<_, _>>()? };
        config.check_masks()?;
        Ok(config)
    }

    /// Whether a plug-in is used.
    #[must_use]
    pub fn has_plug_ins(&self) -> bool {
        let mut providers = self.resources.iter().flat_map(|entry| &entry.providers);
        providers.any(|provider| matches!(provider, ProviderConfig::Kms(_)))
    }

    /// Checks that no entry stands behind a wildcard that already has its resources.
    fn check_masks(&self) -> Result<(), ConfigError> {
        let mut before: Vec<&GroupResource> = vec![];
        for resource in self.resources.iter().flat_map(|entry| &entry.resources) {
            let of_group =
                GroupResource { group: resource.group.clone(), resource: "*".to_owned() };
            for wildcard in [of_group, GroupResource::parse("*.*")] {
                if before.contains(&&wildcard) {
                    let resource = quote(&resource.to_string());
                    let wildcard = quote(&wildcard.to_string());
                    return Err(ConfigError::Build(format!(
                        "resource {resource} is masked by earlier rule {wildcard}"
                    )));
                }
            }
            before.push(resource);
        }
        Ok(())
    }
}

/// Decodes a file to a value in canonical form.
fn decode(text: &str, name: &str) -> Result<Value, String> {
    let failed = |why: String| {
        format!("error decoding encryption provider configuration file {}: {why}", quote(name))
    };
    let parsed = yaml::parse(text).map_err(|error| failed(error.to_string()))?;
    check_kind(&parsed.value, text, failed)?;
    decode::configuration(&TYPES, ROOT, parsed).map_err(failed)
}

fn check_kind(
    file: &Value,
    text: &str,
    failed: impl Fn(String) -> String + Copy,
) -> Result<(), String> {
    if !matches!(file, Value::Object(_)) {
        let why = format!(
            "couldn't get version/kind; json parse error: json: cannot unmarshal {} into Go value \
             of type struct {{ APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \
             \"json:\\\"kind,omitempty\\\"\" }}",
            file.type_name()
        );
        return Err(failed(why));
    }
    let given = |name: &str| file.str_at(&[name]).unwrap_or_default();
    match (given("apiVersion"), given("kind")) {
        (GROUP_VERSION, KIND) | ("v1", OLD_KIND) => Ok(()),
        (_, "") => Err(failed(format!("Object 'Kind' is missing in '{text}'"))),
        ("", _) => Err(failed(format!("Object 'apiVersion' is missing in '{text}'"))),
        (GROUP_VERSION, kind) if OTHER_KINDS.contains(&kind) => {
            Err(format!("got unexpected config type: {GROUP_VERSION}, Kind={kind}"))
        }
        (version, kind) => Err(failed(format!(
            "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
            quote(kind),
            quote(version)
        ))),
    }
}

fn resource_config(entry: &Value, features: Features) -> Result<ResourceConfig, ConfigError> {
    let resources = entry
        .array_at(&["resources"])
        .iter()
        .filter_map(Value::as_str)
        .map(GroupResource::parse)
        .collect();
    let providers = entry.array_at(&["providers"]).iter();
    let providers = providers.map(|provider| provider_config(provider, features));
    Ok(ResourceConfig { resources, providers: providers.collect::<Result<_, _>>()? })
}

fn provider_config(provider: &Value, features: Features) -> Result<ProviderConfig, ConfigError> {
    let of = |name: &str| provider.get(name).filter(|value| !value.is_null());
    if let Some(aesgcm) = of("aesgcm") {
        return Ok(ProviderConfig::AesGcm(keys(aesgcm)));
    }
    if let Some(aescbc) = of("aescbc") {
        return Ok(ProviderConfig::AesCbc(keys(aescbc)));
    }
    if let Some(secretbox) = of("secretbox") {
        return Ok(ProviderConfig::Secretbox(keys(secretbox)));
    }
    let Some(kms) = of("kms") else { return Ok(ProviderConfig::Identity) };
    kms_config(kms, features).map(ProviderConfig::Kms)
}

fn kms_config(kms: &Value, features: Features) -> Result<KmsConfig, ConfigError> {
    let text = |name: &str| kms.str_at(&[name]).unwrap_or_default();
    let version = match text("apiVersion") {
        "" | "v1" if !features.is_on(Feature::KMSv1) => {
            return Err(ConfigError::Build(
                "KMSv1 is deprecated and will only receive security updates going forward. Use \
                 KMSv2 instead.  Set --feature-gates=KMSv1=true to use the deprecated KMSv1 \
                 feature."
                    .to_owned(),
            ));
        }
        "" | "v1" => KmsVersion::V1,
        _ => KmsVersion::V2,
    };
    let socket = validate::socket_path(text("endpoint")).map_err(|why| {
        let name = quote(text("name"));
        ConfigError::Build(format!(
            "could not configure KMS{version}-Plugin's probe {name}, error: {why}"
        ))
    })?;
    // The default of `cachesize` is 1000; without any key in memory no value can be read.
    let cache_size = kms.int_at(&["cachesize"]).and_then(|size| usize::try_from(size).ok());
    Ok(KmsConfig {
        version,
        name: text("name").to_owned(),
        socket,
        time_max: kms_time(kms).map_or(KMS_TIME_DEFAULT, |time| {
            Duration::from_nanos(u64::try_from(time.0).unwrap_or_default())
        }),
        keys_max: cache_size.unwrap_or_default().max(KEYS_MAX),
    })
}

/// Returns the timeout of a KMS plug-in, if it is given. Decoding has checked its form.
fn kms_time(kms: &Value) -> Option<GoDuration> {
    GoDuration::parse(kms.str_at(&["timeout"])?).ok()
}

/// Returns keys that were found to be valid.
fn keys(of: &Value) -> Vec<KeyConfig> {
    let text = |key: &Value, name: &str| key.str_at(&[name]).unwrap_or_default().to_owned();
    let keys = of.array_at(&["keys"]).iter();
    keys.map(|key| KeyConfig {
        name: text(key, "name"),
        secret: decode_secret(&text(key, "secret")).unwrap_or_default(),
    })
    .collect()
}

/// Go's decoder does not look at the bits behind the last byte.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Decodes a secret; `None` if it is not base64. Like Go's decoder, it skips line ends.
fn decode_secret(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    let text: Zeroizing<String> =
        Zeroizing::new(text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect());
    BASE64.decode(text.as_bytes()).ok().map(Zeroizing::new)
}
