//! [`Backend`]: the opened store.

use crate::builder::Builder;
use crate::etcd::{Answering, Etcd};
use crate::etcd_overrides::clusters;
use crate::etcd_stand_in::DataBehind;
use crate::private_files;
use crate::start_error::{StartError, with_causes};
use crate::stored_values::{EncryptedValues, PREFIX, StoredValues};
use bytes::Bytes;
use keelson_encryption::Encryption;
use keelson_registry::StoreSource;
use keelson_resources::EtcdCodec;
use keelson_store::{Durability, Embedded, EmbeddedOptions, OpenError, Store, Transformed};
use keelson_store_etcd::{Calls, EtcdStore};
use std::path::PathBuf;
use std::sync::Arc;

/// The opened store.
pub(crate) struct Backend {
    /// The store of the registry: values are records.
    pub store: Arc<dyn Store>,
    /// The same store with its values as they are stored.
    pub stored: Arc<dyn Store>,
    pub engine: Engine,
    /// How values are encrypted, and the store above that.
    pub encrypted: Option<(Arc<Encryption>, Arc<Transformed>)>,
    /// The stores of single resources.
    pub others: Vec<OtherBackend>,
}

/// The store of single resources, an etcd cluster.
pub(crate) struct OtherBackend {
    /// Values are records.
    pub store: Arc<Transformed>,
    /// The same store with its values as they are stored.
    pub stored: Arc<EtcdStore>,
    /// The prefixes of the keys in it.
    pub prefixes: Vec<Bytes>,
}

impl OtherBackend {
    /// Returns the store and its prefixes for the registry.
    pub fn source(&self) -> StoreSource {
        StoreSource { store: self.store.clone(), prefixes: self.prefixes.clone() }
    }
}

impl Backend {
    /// Returns the calls to each etcd cluster.
    pub fn etcd_calls(&self) -> Vec<Arc<Calls>> {
        let main = match &self.engine {
            Engine::Etcd(store) => Some(store.calls()),
            Engine::Embedded(_) | Engine::Given => None,
        };
        main.into_iter().chain(self.others.iter().map(|other| other.stored.calls())).collect()
    }
}

/// Where the data is.
pub(crate) enum Engine {
    Embedded(Arc<Embedded>),
    Etcd(Arc<EtcdStore>),
    /// In a store of the embedding program.
    Given,
}

impl Builder {
    pub(crate) async fn open_store(&self) -> Result<Backend, StartError> {
        let encryption = match &self.storage.encryption {
            Some(file) => Some(file.start().await?),
            None => None,
        };
        let (stored, engine) = self.open_engine().await?;
        let others = self.open_others(encryption.as_ref()).await?;
        let (codec, prefix) = match (&engine, &self.storage.etcd) {
            (Engine::Etcd(_), Some(etcd)) => (Some(self.etcd_codec()), etcd.key_prefix()?),
            _ => (None, PREFIX.to_owned()),
        };
        let encrypted =
            encryption.clone().map(|encryption| EncryptedValues::new(encryption, &prefix));
        if codec.is_none() && encrypted.is_none() {
            return Ok(Backend { store: stored.clone(), stored, engine, encrypted: None, others });
        }
        let values = Arc::new(StoredValues { codec, encrypted });
        let store = Transformed::new(stored.clone(), values);
        let encrypted = encryption.map(|encryption| (encryption, store.clone()));
        Ok(Backend { store, stored, engine, encrypted, others })
    }

    fn etcd_codec(&self) -> EtcdCodec {
        EtcdCodec::storing(self.storage.media_type, &self.apis.runtime_config, self.apis.features)
    }

    /// Opens the clusters of single resources.
    async fn open_others(
        &self,
        encryption: Option<&Arc<Encryption>>,
    ) -> Result<Vec<OtherBackend>, StartError> {
        let Some(etcd) = &self.storage.etcd else { return Ok(vec![]) };
        let prefix = etcd.key_prefix()?;
        let mut others = vec![];
        for cluster in clusters(&etcd.overrides, &self.apis.runtime_config, self.apis.features) {
            let etcd = Etcd { servers: cluster.servers, ..etcd.clone() };
            let stored = etcd.open_cluster(self.far_side.egress_selector.etcd.as_ref()).await?;
            let encrypted =
                encryption.map(|encryption| EncryptedValues::new(encryption.clone(), &prefix));
            let values = StoredValues { codec: Some(self.etcd_codec()), encrypted };
            let store = Transformed::new(stored.clone(), Arc::new(values));
            let prefixes = cluster.prefixes.into_iter().map(Bytes::from).collect();
            others.push(OtherBackend { store, stored, prefixes });
        }
        Ok(others)
    }

    async fn open_engine(&self) -> Result<(Arc<dyn Store>, Engine), StartError> {
        match (&self.storage.store, &self.storage.etcd, &self.storage.data_dir) {
            (Some(store), ..) => Ok((store.clone(), Engine::Given)),
            (None, Some(etcd), _) => {
                match etcd.open(self.far_side.egress_selector.etcd.as_ref()).await? {
                    Answering::Cluster(store) => Ok((store.clone(), Engine::Etcd(store))),
                    Answering::StandIn(DataBehind { folder, durability }) => {
                        let folder = folder.join(folder_name(&etcd.prefix));
                        open_embedded(folder, durability, "--etcd-servers")
                    }
                }
            }
            (None, None, None) => Ok(embedded(Embedded::in_memory())),
            (None, None, Some(dir)) => {
                open_embedded(dir.join("store"), Durability::Sync, "--data-dir")
            }
        }
    }
}

fn embedded(store: Arc<Embedded>) -> (Arc<dyn Store>, Engine) {
    (store.clone(), Engine::Embedded(store))
}

/// Opens the embedded store in a folder. A damaged object is replaced by a placeholder, so that all
/// others are served.
fn open_embedded(
    folder: PathBuf,
    durability: Durability,
    flag: &str,
) -> Result<(Arc<dyn Store>, Engine), StartError> {
    private_files::ensure_private_folder(&folder)
        .map_err(|error| StartError(format!("{flag}: {error}: {}", error.source)))?;
    let mut options = EmbeddedOptions { durability, ..EmbeddedOptions::new(folder) };
    options.make_placeholder = Some(keelson_records::unreadable);
    let store = Embedded::open(options).map_err(|error| open_error(flag, &error))?;
    Ok(embedded(store))
}

/// Returns the name of the folder that has the data of a prefix in etcd's place.
pub(crate) fn folder_name(prefix: &str) -> String {
    let name = prefix.trim_matches('/').bytes().map(|byte| match byte {
        byte if byte.is_ascii_alphanumeric() => (byte as char).to_string(),
        byte => format!("_{byte:02x}"),
    });
    format!("store-{}", name.collect::<String>())
}

/// Formats an error of opening the store, with a hint what to do about damaged records.
fn open_error(flag: &str, error: &OpenError) -> StartError {
    let mut line = format!("{flag}: {}", with_causes(error));
    if matches!(error, OpenError::Records { .. }) {
        line.push_str("\n`keelson check` names what is damaged; `keelson restore` makes a new folder of a backup");
    }
    StartError(line)
}
