//! [`EncryptionFile`]: how stored values are encrypted, and the loops that reload its file and ask
//! the plug-ins.

use crate::files::text_changed;
use crate::start_error::StartError;
use crate::supervisor::Loops;
use keelson_encryption::{Config, Encryption, Metrics};
use keelson_meta::{Feature, Features};
use keelson_records::Entry;
use keelson_registry::Registry;
use keelson_server::Health;
use keelson_store::{Store, Transformed};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The health check of the plug-ins.
const CHECK: &str = "kms-providers";
/// Objects that cannot be read and are looked at.
const UNREADABLE_MAX: usize = 100;
/// kube-apiserver's name of the loop that reloads.
const RELOAD_CHECK: &str = "poststarthook/start-encryption-provider-config-automatic-reload";

/// A file of `--encryption-provider-config`.
#[derive(Clone)]
pub struct EncryptionFile {
    path: PathBuf,
    /// The content that was read last.
    text: String,
    config: Config,
    /// Whether the server reloads it when it changes.
    reloads: bool,
    features: Features,
}

impl fmt::Debug for EncryptionFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EncryptionFile({}, {:?})", self.path.display(), self.config)
    }
}

impl EncryptionFile {
    /// Reads a file. With `reloads` the server reloads it when it changes. Plug-ins of version 1
    /// need the feature `KMSv1`.
    pub fn read(path: &Path, reloads: bool, features: Features) -> Result<EncryptionFile, String> {
        let name = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            format!(
                "error while parsing file: error while loading file: error reading encryption \
                 provider configuration file {name:?}: {}",
                crate::files::go_words(path, &error)
            )
        })?;
        let config = Config::parse(&text, &name, features).map_err(|error| error.to_string())?;
        Ok(EncryptionFile { path: path.to_owned(), text, config, reloads, features })
    }

    /// Reads a file for a command, which reads what any server may have written.
    pub(crate) fn read_all(path: &Path) -> Result<EncryptionFile, String> {
        EncryptionFile::read(path, false, Features::default().with(Feature::KMSv1, true))
    }

    /// Starts to encrypt, and asks each plug-in once.
    pub(crate) async fn start(&self) -> Result<Arc<Encryption>, StartError> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let metrics = Arc::new(Metrics::new(&keelson_controllers::server_name(&host)));
        metrics.set_config(&self.text);
        let started = Encryption::start(&self.config, metrics).await;
        started.map_err(|error| StartError::new(format!("--encryption-provider-config: {error}")))
    }

    /// Starts the loops.
    pub(crate) fn start_loops(
        &self,
        encryption: &Arc<Encryption>,
        interval: Duration,
        health: &Arc<Health>,
        loops: &mut Loops,
    ) {
        if self.reloads || self.config.has_plug_ins() {
            health.list(CHECK);
            report(health, encryption.health());
            let encryption = encryption.clone();
            let health = health.clone();
            loops.run("encryption-plug-ins", move || {
                let encryption = encryption.clone();
                let health = health.clone();
                async move { encryption.follow_plugins(|state| report(&health, state)).await }
            });
        }
        if self.reloads {
            health.list(RELOAD_CHECK);
            let file = self.clone();
            let encryption = encryption.clone();
            loops.run("encryption-config", move || {
                reload_when_changed(file.clone(), encryption.clone(), interval)
            });
        }
    }
}

/// Looks at objects that cannot be read in the stores, in the order of the cache's sources, until
/// the future is dropped. When one of them can be read now, because a key was added or a plug-in
/// answers, all values are read again.
pub(crate) async fn reread_when_readable(
    registry: Arc<Registry>,
    stores: Vec<Arc<Transformed>>,
    interval: Duration,
) {
    loop {
        tokio::time::sleep(interval).await;
        for (prefix_bytes, key) in registry.cache.unreadable_keys(UNREADABLE_MAX) {
            let resource = registry.cache.resource(&key[..prefix_bytes]);
            let source = resource.map_or(0, |resource| resource.source());
            let Some(store) = stores.get(source) else { continue };
            let found = store.get(&key).await;
            if let Ok(Some(kv)) = found
                && Entry::from_store(prefix_bytes, &kv).is_ok()
            {
                tracing::info!("encrypted objects can be read again; loading all objects");
                store.reread();
                break;
            }
        }
    }
}

/// Reports how the plug-ins are to the health checks.
fn report(health: &Health, state: Result<(), String>) {
    match state {
        Ok(()) => health.recover(CHECK),
        Err(why) => health.fail(CHECK, why),
    }
}

/// Checks the file for changes until the future is dropped. An invalid file is logged, and the
/// configuration before it stays.
async fn reload_when_changed(
    mut file: EncryptionFile,
    encryption: Arc<Encryption>,
    interval: Duration,
) {
    loop {
        text_changed(&file.path, &mut file.text, interval, "encryption configuration").await;
        let path = file.path.display().to_string();
        let replaced = match Config::parse(&file.text, &path, file.features) {
            Ok(config) => encryption.replace(&config).await,
            Err(error) => Err(error.to_string()),
        };
        encryption.metrics().count_reload(replaced.is_ok());
        match replaced {
            Ok(()) => {
                encryption.metrics().set_config(&file.text);
                tracing::info!(path, "encryption configuration reloaded");
            }
            Err(error) => tracing::error!(
                error,
                path,
                "encryption configuration not reloaded; keeping the one before"
            ),
        }
    }
}
