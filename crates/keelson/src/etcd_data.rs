//! [`EtcdData`]: the objects of an etcd cluster as a whole, for backups. In a backup they are as in
//! a data folder, so that either can be moved to the other.

use crate::backend::folder_name;
use crate::encryption::EncryptionFile;
use crate::etcd::Etcd;
use crate::etcd_stand_in::data_behind;
use crate::stored_values::{EncryptedValues, PREFIX, StoredValues};
use keelson_meta::Features;
use keelson_records::is_unreadable;
use keelson_registry::SystemClock;
use keelson_registry::clock::store_time;
use keelson_resources::EtcdCodec;
use keelson_store::backup::{self, BackupReader, BackupSummary};
use keelson_store::{KeyValue, Lease, Op, Range, Store, Transform, Transformed, Txn};
use keelson_store_etcd::EtcdStore;
use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// Most keys in one transaction of a restore. etcd's own limit is 128.
const TXN_KEYS_MAX: usize = 100;
/// Most bytes in one transaction of a restore. etcd's own limit is 1.5 MiB.
const TXN_BYTES_MAX: usize = 512 << 10;
/// The beginning of a stored value in protobuf: that of a kind that this version does not know.
const PROTOBUF: &[u8] = b"k8s\0";
/// The beginning of an encrypted value.
const ENCRYPTED: &[u8] = b"k8s:enc:";
/// What is about single servers: their addresses, and what they work out again.
const LEFT_OUT: [&[u8]; 3] =
    [b"/registry/masterleases/", b"/registry/peerserverleases/", b"/registry/ranges/"];
/// Keys that expire. Neither a backup nor etcd's key says when, so they begin anew.
const EVENTS: &[u8] = b"/registry/events/";
/// The default of `--event-ttl`.
const EVENT_TTL: Duration = Duration::from_secs(60 * 60);

/// The objects in an etcd cluster.
pub struct EtcdData {
    runtime: Runtime,
    stored: Arc<EtcdStore>,
    /// The values in the cluster, as records.
    store: Arc<Transformed>,
    /// The values in a data folder, and in a backup.
    folder_values: StoredValues,
}

impl EtcdData {
    /// Connects to a cluster. `encryption` is the server's file of `--encryption-provider-config`;
    /// values in a backup are encrypted by it, too.
    pub fn open(etcd: &Etcd, encryption: Option<&Path>) -> Result<EtcdData, String> {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime =
            runtime.worker_threads(1).enable_all().build().map_err(|error| error.to_string())?;
        if let Some(behind) = runtime.block_on(data_behind(&etcd.servers)) {
            let folder = behind.folder.join(folder_name(&etcd.prefix));
            if folder.exists() {
                return Err(format!(
                    "--etcd-servers: the objects of a Keelson beside this etcd are in {}; stop both, and \
                     make it the folder `store` of a --data-dir",
                    folder.display()
                ));
            }
        }
        let stored =
            runtime.block_on(etcd.open_cluster(None)).map_err(|error| error.to_string())?;
        let prefix = etcd.key_prefix().map_err(|error| error.to_string())?;
        let file = encryption.map(EncryptionFile::read_all).transpose()?;
        let encryption = file
            .map(|file| runtime.block_on(file.start()))
            .transpose()
            .map_err(|error| error.to_string())?;
        let encrypted = |prefix: &str| {
            encryption.clone().map(|encryption| EncryptedValues::new(encryption, prefix))
        };
        // Objects of all versions, whatever a server serves.
        let codec = EtcdCodec::new(&[("api/all".to_owned(), true)], Features::default());
        let values = StoredValues { codec: Some(codec), encrypted: encrypted(&prefix) };
        let folder_values = StoredValues { codec: None, encrypted: encrypted(PREFIX) };
        let store = Transformed::new(stored.clone(), Arc::new(values));
        Ok(EtcdData { runtime, stored, store, folder_values })
    }

    /// Writes a backup of all objects at one revision. Holds them all in memory.
    pub fn backup(
        &self,
        out: &mut dyn Write,
        progress: &mut (dyn FnMut(BackupSummary) + Send),
    ) -> Result<BackupSummary, String> {
        let mut keys = vec![];
        let mut so_far = BackupSummary::default();
        let mut sink = |kv: KeyValue| {
            if LEFT_OUT.iter().any(|prefix| kv.key.starts_with(prefix)) {
                return;
            }
            so_far.objects += 1;
            so_far.bytes += (kv.key.len() + kv.value.len()) as u64;
            progress(so_far);
            keys.push(kv);
        };
        let loaded = self.runtime.block_on(self.store.load(PREFIX.as_bytes(), None, &mut sink));
        let revision = loaded.map_err(|error| format!("--etcd-servers: {error}"))?;
        for kv in &mut keys {
            self.check_read(kv)?;
            let sealed = self.runtime.block_on(self.folder_values.encode(&kv.key, &kv.value));
            kv.value = sealed.map_err(|error| error.to_string())?;
        }
        backup::write(out, revision, keys).map_err(|error| format!("write the backup: {error}"))
    }

    /// Fails if the cluster has objects under the prefix.
    pub fn check_empty(&self) -> Result<(), String> {
        let range = Range { limit: 1, ..Range::prefix(PREFIX.as_bytes()) };
        let page = self
            .runtime
            .block_on(self.stored.range(range))
            .map_err(|error| format!("--etcd-servers: {error}"))?;
        match page.items.first() {
            None => Ok(()),
            Some(kv) => Err(format!(
                "--etcd-servers: the cluster has objects ({}); a backup is restored into one without, \
                 or under another --etcd-prefix",
                String::from_utf8_lossy(&kv.key)
            )),
        }
    }

    /// Writes the objects of a backup in the order of their last writes. The cluster gives them new
    /// revisions. Returns what was written; after an error, the error and what was written until
    /// then.
    pub fn restore<R: Read>(
        &self,
        backup: &mut BackupReader<R>,
        progress: &mut dyn FnMut(BackupSummary),
    ) -> Result<BackupSummary, (String, u64)> {
        let mut ops = vec![];
        let mut bytes = 0;
        let mut written = 0;
        loop {
            let failed = |why: String| (why, written);
            let next = backup.next_key().map_err(|error| failed(error.to_string()))?;
            let is_end = next.is_none();
            if let Some(kv) = next {
                let op = self.restored(kv).map_err(failed)?;
                bytes += op.bytes();
                ops.push(op);
            }
            if ops.len() == TXN_KEYS_MAX || bytes >= TXN_BYTES_MAX || is_end {
                let count = ops.len() as u64;
                let txn = Txn { compare: vec![], ops: std::mem::take(&mut ops) };
                let done = self.runtime.block_on(self.store.txn(txn));
                done.map_err(|error| failed(format!("--etcd-servers: {error}")))?;
                (bytes, written) = (0, written + count);
                progress(backup.summary());
            }
            if is_end {
                return Ok(backup.summary());
            }
        }
    }

    /// Returns the write of an object of a backup.
    fn restored(&self, kv: KeyValue) -> Result<Op, String> {
        let value = self.runtime.block_on(self.folder_values.decode(&kv.key, kv.value.clone()));
        let kv = KeyValue { value, ..kv };
        self.check_read(&kv)?;
        let lease =
            kv.key.starts_with(EVENTS).then(|| Lease::new(store_time(&SystemClock), EVENT_TTL));
        Ok(Op::Put { key: kv.key, value: kv.value, lease })
    }

    /// Fails if an object could not be decoded: a backup without it would lose it.
    fn check_read(&self, kv: &KeyValue) -> Result<(), String> {
        let key = String::from_utf8_lossy(&kv.key);
        let hint = match self.folder_values.encrypted {
            Some(_) => "",
            None => "; if it is encrypted, --encryption-provider-config names the server's file",
        };
        if is_unreadable(&kv.value) {
            // The reason follows a byte that marks it.
            let why = String::from_utf8_lossy(&kv.value[1..]);
            return Err(format!("{key}: {why}{hint}"));
        }
        if kv.value.starts_with(ENCRYPTED) {
            return Err(format!("{key}: it is encrypted{hint}"));
        }
        if kv.value.starts_with(PROTOBUF) {
            return Err(format!("{key}: this version of Keelson does not know its kind"));
        }
        Ok(())
    }
}
