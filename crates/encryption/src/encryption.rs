//! [`Encryption`]: the configuration in force, which can be replaced while the server runs.

use crate::config::{Config, ConfigError, GroupResource, KmsConfig, ProviderConfig};
use crate::kms::{Plugin, aggregate};
use crate::metrics::{Counted, Direction, Metrics};
use crate::providers::{ENCRYPTED, Fetched, NOT_PLAIN, Opened, Providers, key_name};
use arc_swap::ArcSwap;
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often plug-ins are asked how they are: at most as rarely as by kube-apiserver whose health
/// is checked every few seconds.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);
/// The same while one is not well.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
/// How long the plug-ins of a new configuration may take until they are well.
const RELOAD_TIME_MAX: Duration = Duration::from_secs(10);
const RELOAD_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// Encrypts and decrypts the values of all resources.
#[derive(Debug)]
pub struct Encryption {
    current: ArcSwap<Loaded>,
    /// Why a plug-in is not well.
    health: Mutex<Result<(), String>>,
    metrics: Arc<Metrics>,
}

/// Providers by group and resource. Each value is looked up; the names are the configuration's.
type Resources = ByName<ByName<Arc<Providers>>>;
type ByName<T> = HashMap<String, T, foldhash::fast::RandomState>;

/// A loaded configuration.
#[derive(Debug)]
struct Loaded {
    resources: Resources,
    plugins: Vec<Arc<Plugin>>,
}

impl Loaded {
    fn new(config: &Config, metrics: &Arc<Metrics>) -> Result<Loaded, ConfigError> {
        let mut plugins: HashMap<&KmsConfig, Arc<Plugin>> = HashMap::new();
        let providers = config.resources.iter().flat_map(|entry| &entry.providers);
        let mut ordered = vec![];
        for kms in providers.filter_map(|provider| match provider {
            ProviderConfig::Kms(kms) => Some(kms),
            _ => None,
        }) {
            let plugin = Arc::new(Plugin::new(kms, metrics.clone()).map_err(ConfigError::Build)?);
            ordered.push(plugin.clone());
            plugins.insert(kms, plugin);
        }
        let mut all: HashMap<&GroupResource, Providers> = HashMap::new();
        for entry in &config.resources {
            for resource in &entry.resources {
                let providers = all.entry(resource).or_default();
                let added = providers.extend(&entry.providers, &plugins);
                added.map_err(|error| ConfigError::Build(error.to_string()))?;
            }
        }
        let mut resources = Resources::default();
        for (GroupResource { group, resource }, providers) in all {
            let of_group = resources.entry(group.clone()).or_default();
            of_group.insert(resource.clone(), Arc::new(providers));
        }
        Ok(Loaded { resources, plugins: ordered })
    }

    /// Returns the providers of a resource; `None` if its values are not encrypted.
    fn providers(&self, group: &str, resource: &str) -> Option<&Arc<Providers>> {
        let find = |group: &str, resource: &str| self.resources.get(group)?.get(resource);
        find(group, resource).or_else(|| find(group, "*")).or_else(|| find("*", "*"))
    }

    /// Asks all plug-ins how they are.
    async fn check(&self) -> Result<(), String> {
        let mut faults = vec![];
        for (at, plugin) in self.plugins.iter().enumerate() {
            let checked = plugin.check().await;
            faults.extend(checked.err().map(|why| format!("kms-provider-{at}: {why}")));
        }
        if faults.is_empty() { Ok(()) } else { Err(aggregate(faults)) }
    }
}

impl Encryption {
    /// Uses a configuration. Asks its plug-ins once; one that does not answer yet is an error of
    /// the health check, and of each value that needs it.
    pub async fn start(
        config: &Config,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Encryption>, ConfigError> {
        let loaded = Loaded::new(config, &metrics)?;
        let health = loaded.check().await;
        if let Err(error) = &health {
            tracing::error!(error, "KMS plug-ins not well; they are asked again");
        }
        Ok(Arc::new(Encryption {
            current: ArcSwap::from_pointee(loaded),
            health: Mutex::new(health),
            metrics,
        }))
    }

    /// Replaces the configuration once its plug-ins are well. After an error the one before stays.
    pub async fn replace(&self, config: &Config) -> Result<(), String> {
        let loaded = Loaded::new(config, &self.metrics).map_err(|error| error.to_string())?;
        let until = Instant::now() + RELOAD_TIME_MAX;
        while let Err(why) = loaded.check().await {
            if Instant::now() >= until {
                return Err(format!("health check for new transformers failed: {why}"));
            }
            tokio::time::sleep(RELOAD_RETRY_INTERVAL).await;
        }
        self.current.store(Arc::new(loaded));
        self.set_health(Ok(()));
        Ok(())
    }

    /// Asks the plug-ins how they are until the future is dropped, and passes each result to
    /// `report`.
    pub async fn follow_plugins(&self, report: impl Fn(Result<(), String>)) {
        loop {
            let is_well = self.health().is_ok();
            tokio::time::sleep(if is_well { CHECK_INTERVAL } else { RETRY_INTERVAL }).await;
            self.check_plugins().await;
            report(self.health());
        }
    }

    /// Asks the plug-ins how they are. New values use the key that they have now.
    pub async fn check_plugins(&self) {
        let loaded = self.current.load_full();
        let checked = loaded.check().await;
        let before = self.health();
        match (&checked, before) {
            (Err(error), Ok(())) => tracing::error!(error, "KMS plug-ins not well"),
            (Ok(()), Err(_)) => tracing::info!("KMS plug-ins well again"),
            _ => {}
        }
        // The configuration may have been replaced meanwhile.
        if Arc::ptr_eq(&loaded, &self.current.load()) {
            self.set_health(checked);
        }
    }

    /// Returns whether the plug-ins are well, as of the last time that they were asked.
    pub fn health(&self) -> Result<(), String> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_health(&self, health: Result<(), String>) {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = health;
    }

    /// Encrypts a value of a resource, if the resource is encrypted. `path` is its key in etcd.
    pub fn seal(&self, of: (&str, &str), path: &[u8], value: &Bytes) -> Result<Bytes, String> {
        let (group, resource) = of;
        match self.current.load().providers(group, resource) {
            Some(providers) => {
                let counted = Counted {
                    metrics: &self.metrics,
                    group,
                    resource,
                    direction: Direction::ToStorage,
                };
                providers.seal(value, path, &counted)
            }
            None => Ok(value.clone()),
        }
    }

    /// Decrypts a stored value of a resource, where it is if nobody else holds it. A value that is
    /// not encrypted is not copied.
    pub fn open(&self, of: (&str, &str), path: &[u8], stored: Bytes) -> Result<Opened, String> {
        let (group, resource) = of;
        match self.current.load().providers(group, resource) {
            Some(providers) => {
                providers.open(stored, path, &Fetched::new(), &self.opening(group, resource))
            }
            None => open_plain(stored),
        }
    }

    /// Decrypts a stored value of a resource, and asks plug-ins for its key.
    pub async fn open_waiting(
        &self,
        of: (&str, &str),
        path: &[u8],
        stored: Bytes,
    ) -> Result<Bytes, String> {
        let (group, resource) = of;
        let providers = self.current.load().providers(group, resource).cloned();
        let opened = match providers {
            Some(providers) => {
                let fetched = providers.fetch_keys(&stored).await;
                providers.open(stored, path, &fetched, &self.opening(group, resource))
            }
            None => open_plain(stored),
        };
        match opened? {
            Opened::Plain { value, .. } => Ok(value),
            Opened::Waits { .. } => Err("the key is not known".to_owned()),
        }
    }

    fn opening<'a>(&'a self, group: &'a str, resource: &'a str) -> Counted<'a> {
        Counted { metrics: &self.metrics, group, resource, direction: Direction::FromStorage }
    }

    /// Returns the metrics.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Whether [`Encryption::open`] may say that a plug-in has to be asked.
    pub fn may_wait(&self) -> bool {
        let loaded = self.current.load();
        loaded.resources.values().flat_map(HashMap::values).any(|providers| providers.may_wait())
    }

    /// Returns the name of the key that new values of a resource are encrypted with.
    pub fn write_key(&self, group: &str, resource: &str) -> String {
        let loaded = self.current.load();
        let providers = loaded.providers(group, resource);
        providers
            .map_or_else(|| Providers::default().write_key(), |providers| providers.write_key())
    }
}

/// Returns the name of the key that a stored value was encrypted with, as far as the value says:
/// `aesgcm:NAME`, `kms:PLUG-IN:KEY`, `kms:PLUG-IN` (version 1) or `identity`.
#[must_use]
pub fn key_of(stored: &[u8]) -> String {
    key_name(stored)
}

/// Whether a stored value is encrypted.
#[must_use]
pub fn is_encrypted(stored: &[u8]) -> bool {
    stored.starts_with(ENCRYPTED)
}

fn open_plain(stored: Bytes) -> Result<Opened, String> {
    if is_encrypted(&stored) {
        return Err(NOT_PLAIN.to_owned());
    }
    Ok(Opened::Plain { value: stored, is_stale: false })
}
