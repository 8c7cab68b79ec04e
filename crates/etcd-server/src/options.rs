//! How the server is set up: what etcd's flags say.

use keelson_store::Durability;
use std::path::PathBuf;
use std::time::Duration;

/// What the server does beside its addresses and TLS.
#[derive(Clone, Debug)]
pub struct EtcdOptions {
    /// The folder of the data, as etcd has it: the keys are in `member/kv`, leases and alarms in
    /// `member/state`. `None` keeps everything in memory.
    pub data_dir: Option<PathBuf>,
    /// What an acknowledged write survives (`--unsafe-no-fsync`).
    pub durability: Durability,
    /// Name of the member.
    pub name: String,
    /// URLs that clients are told to use.
    pub client_urls: Vec<String>,
    /// URLs that are shown as those for other members, of which there are none.
    pub peer_urls: Vec<String>,
    /// Most bytes of a request (`--max-request-bytes`).
    pub request_bytes_max: usize,
    /// Most operations of a transaction (`--max-txn-ops`).
    pub txn_ops_max: usize,
    /// Size of the file in bytes from which on writes are refused until the alarm is disarmed
    /// (`--quota-backend-bytes`); `None` is no limit.
    pub quota_bytes: Option<u64>,
    /// Shortest time to live of a lease in seconds: etcd derives it from its election timeout.
    pub lease_seconds_min: i64,
    /// What is compacted without being asked.
    pub auto_compaction: AutoCompaction,
    /// How long a watch that asks for progress is without a response at most.
    pub progress_interval: Duration,
    /// Answers of paths that are not etcd's: path and JSON.
    pub pages: Vec<(&'static str, String)>,
}

/// What `--auto-compaction-mode` and `--auto-compaction-retention` say.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AutoCompaction {
    /// All history is kept until a client compacts it.
    #[default]
    Off,
    /// The history of this time is kept.
    Periodic(Duration),
    /// So many revisions are kept.
    Revisions(u64),
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            data_dir: None,
            durability: Durability::Sync,
            name: "default".to_owned(),
            client_urls: Vec::new(),
            peer_urls: Vec::new(),
            request_bytes_max: 3 << 19,
            txn_ops_max: 128,
            quota_bytes: Some(2 << 30),
            lease_seconds_min: 2,
            auto_compaction: AutoCompaction::Off,
            progress_interval: Duration::from_secs(600),
            pages: Vec::new(),
        }
    }
}
