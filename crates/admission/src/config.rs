//! [`PlugInConfig`]: the file of `--admission-control-config-file` (`apiserver.config.k8s.io/v1`
//! AdmissionConfiguration).

mod credentials;
pub(crate) mod event_limits;
mod image_policy;
pub(crate) mod limited_resources;
pub(crate) mod pod_security;
pub(crate) mod pod_security_metrics;

pub use credentials::Credentials;
pub use image_policy::ImagePolicyConfig;

use event_limits::EventLimits;
use keelson_meta::{Map, Value};
use keelson_schema::yaml;
use limited_resources::LimitedResource;
use pod_security::{Defaults, Exemptions};
use pod_security_metrics::PodSecurityMetrics;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::{fmt, fs, io};

/// Default of `--default-not-ready-toleration-seconds` and
/// `--default-unreachable-toleration-seconds`.
const TOLERATION_SECONDS_DEFAULT: i64 = 300;

/// The configuration of plug-ins.
#[derive(Clone, Debug)]
pub struct PlugInConfig {
    /// DefaultTolerationSeconds: how long pods tolerate a node that is not ready.
    pub not_ready_seconds: i64,
    /// The same for a node that is unreachable.
    pub unreachable_seconds: i64,
    pub(crate) event_limits: Option<Arc<EventLimits>>,
    pub(crate) pod_security: (Defaults, Exemptions),
    pub(crate) pod_security_metrics: Arc<PodSecurityMetrics>,
    /// PodNodeSelector: the labels that pods may select, by namespace. `clusterDefaultNodeSelector`
    /// is the selector for namespaces without the annotation.
    pub(crate) node_selectors: BTreeMap<String, String>,
    /// PodTolerationRestriction: default and allowed tolerations in namespaces without annotations.
    pub(crate) default_tolerations: Vec<Value>,
    pub(crate) tolerations_whitelist: Vec<Value>,
    pub(crate) image_policy: Option<ImagePolicyConfig>,
    pub(crate) limited_resources: Vec<LimitedResource>,
    /// Client credentials of MutatingAdmissionWebhook and ValidatingAdmissionWebhook.
    webhook_credentials: BTreeMap<String, Arc<Credentials>>,
    /// The configurations of plug-ins outside of this crate, by name.
    others: BTreeMap<String, Value>,
}

impl Default for PlugInConfig {
    /// Returns the configuration of a server without flags and files.
    fn default() -> Self {
        PlugInConfig {
            not_ready_seconds: TOLERATION_SECONDS_DEFAULT,
            unreachable_seconds: TOLERATION_SECONDS_DEFAULT,
            event_limits: None,
            pod_security: Default::default(),
            pod_security_metrics: Arc::default(),
            node_selectors: BTreeMap::new(),
            default_tolerations: vec![],
            tolerations_whitelist: vec![],
            image_policy: None,
            limited_resources: vec![],
            webhook_credentials: BTreeMap::new(),
            others: BTreeMap::new(),
        }
    }
}

/// An unusable configuration.
#[derive(Debug)]
pub enum ConfigError {
    /// A file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file has invalid content.
    Invalid {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Read { path, .. } => write!(f, "read {}", path.display()),
            ConfigError::Invalid { path, why } => write!(f, "{}: {why}", path.display()),
        }
    }
}

impl std::error::Error for ConfigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConfigError::Read { source, .. } => Some(source),
            ConfigError::Invalid { .. } => None,
        }
    }
}

impl PlugInConfig {
    /// Returns the configuration of a server without a file.
    pub fn none() -> &'static PlugInConfig {
        static NONE: LazyLock<PlugInConfig> = LazyLock::new(PlugInConfig::default);
        &NONE
    }

    /// Reads an AdmissionConfiguration and the files that it refers to.
    pub(crate) fn read(
        path: &Path,
        is_plug_in: fn(&str) -> bool,
    ) -> Result<PlugInConfig, ConfigError> {
        let document = read_yaml(path)?;
        let invalid = |why: String| ConfigError::Invalid { path: path.to_owned(), why };
        let kind = text(&document, "kind");
        let version = text(&document, "apiVersion");
        let versions = ["apiserver.config.k8s.io/v1", "apiserver.k8s.io/v1alpha1"];
        if kind != "AdmissionConfiguration" || !versions.contains(&version) {
            return Err(invalid(format!(
                "is no AdmissionConfiguration of {}, but {kind:?} of {version:?}",
                versions[0]
            )));
        }
        check_fields(&document, &["kind", "apiVersion", "plugins"]).map_err(invalid)?;
        let mut config = PlugInConfig::default();
        for plug_in in document.array_at(&["plugins"]) {
            check_fields(plug_in, &["name", "path", "configuration"]).map_err(invalid)?;
            let name = text(plug_in, "name");
            let file = text(plug_in, "path");
            let (own, from) = match (plug_in.get("configuration"), file) {
                (Some(own), _) if !own.is_null() => (own.clone(), path.to_owned()),
                (_, "") => continue,
                (_, file) => {
                    let folder = path.parent().unwrap_or(Path::new("."));
                    let file = folder.join(file);
                    (read_yaml(&file)?, file)
                }
            };
            let taken = match is_plug_in(name) {
                true => config.take(name, own),
                false => Err("there is no such plug-in".to_owned()),
            };
            taken.map_err(|why| ConfigError::Invalid {
                path: from,
                why: format!("{name}: {why}"),
            })?;
        }
        Ok(config)
    }

    /// Returns the configuration of a plug-in outside of this crate.
    pub fn other(&self, name: &str) -> Option<&Value> {
        self.others.get(name)
    }

    /// Returns the configuration of ImagePolicyWebhook.
    pub fn image_policy(&self) -> Option<&ImagePolicyConfig> {
        self.image_policy.as_ref()
    }

    /// Returns the client credentials for the webhooks of a plug-in.
    pub fn webhook_credentials(&self, plug_in: &str) -> Arc<Credentials> {
        self.webhook_credentials.get(plug_in).cloned().unwrap_or_default()
    }

    fn take(&mut self, name: &str, own: Value) -> Result<(), String> {
        match name {
            "EventRateLimit" => self.event_limits = Some(Arc::new(EventLimits::read(&own)?)),
            "ImagePolicyWebhook" => self.image_policy = Some(ImagePolicyConfig::read(&own)?),
            "PodSecurity" => {
                check_fields(&own, &["kind", "apiVersion", "defaults", "exemptions"])?;
                self.pod_security = (Defaults::read(&own)?, Exemptions::read(&own)?);
            }
            "PodNodeSelector" => {
                check_fields(&own, &["podNodeSelectorPluginConfig"])?;
                let by_name = own.get("podNodeSelectorPluginConfig").and_then(Value::as_object);
                let texts = by_name.into_iter().flat_map(Map::iter).map(|(name, selector)| {
                    (name.to_string(), selector.as_str().unwrap_or_default().to_owned())
                });
                self.node_selectors = texts.collect();
            }
            "PodTolerationRestriction" => {
                check_fields(&own, &["kind", "apiVersion", "default", "whitelist"])?;
                self.default_tolerations = own.array_at(&["default"]).to_vec();
                self.tolerations_whitelist = own.array_at(&["whitelist"]).to_vec();
            }
            "ResourceQuota" => self.limited_resources = LimitedResource::read_all(&own)?,
            "MutatingAdmissionWebhook" | "ValidatingAdmissionWebhook" => {
                let credentials = Arc::new(Credentials::read(&own)?);
                self.webhook_credentials.insert(name.to_owned(), credentials);
            }
            _ => {
                self.others.insert(name.to_owned(), own);
            }
        }
        Ok(())
    }
}

fn read_yaml(path: &Path) -> Result<Value, ConfigError> {
    let read = |source| ConfigError::Read { path: path.to_owned(), source };
    let bytes = fs::read_to_string(path).map_err(read)?;
    let parsed = yaml::parse(&bytes)
        .map_err(|why| ConfigError::Invalid { path: path.to_owned(), why: why.to_string() })?;
    Ok(parsed.value)
}

/// Reads the kubeconfig of a configuration; returns it with its folder.
pub(crate) fn read_kubeconfig(file: &str) -> Result<(Value, &Path), String> {
    let path = Path::new(file);
    let text = fs::read_to_string(path).map_err(|error| format!("{file}: {error}"))?;
    let parsed = yaml::parse(&text).map_err(|error| format!("{file}: {error}"))?;
    Ok((parsed.value, path.parent().unwrap_or(Path::new("/"))))
}

/// Returns a string field, or an empty string.
pub(crate) fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.str_at(&[name]).unwrap_or_default()
}

/// Rejects unknown fields: a misspelt field must not count as absent.
pub(crate) fn check_fields(value: &Value, known: &[&str]) -> Result<(), String> {
    let fields = value.as_object().into_iter().flat_map(Map::iter);
    match fields.map(|(name, _)| name).find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("unknown field {name:?}; known are {}", known.join(", "))),
        None => Ok(()),
    }
}
