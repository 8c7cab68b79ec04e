//! The server through Keelson's own client of etcd: the suite of the storage contract, the random
//! walk, leases, restarts and limits. What only other clients use is tested from Go
//! (`tests/go/etcd`).
// Helpers of tests may unwrap as tests do.
#![allow(clippy::unwrap_used)]

mod greedy;
mod pages;
mod suite;
mod tls;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keelson_etcd_server::{EtcdOptions, EtcdServer, Listener, StartError};
use keelson_store::OpenError;
use keelson_store_etcd::EtcdStore;
use tokio::task::JoinHandle;

/// A running server. Dropping it stops it.
struct Running {
    url: String,
    task: JoinHandle<()>,
}

impl Running {
    async fn start(options: EtcdOptions) -> Running {
        let listener = Listener::bind("127.0.0.1:0", None).await.unwrap();
        let url = format!("http://{}", listener.address().unwrap());
        let server = open(options).await;
        let task = tokio::spawn(server.run(vec![listener]));
        Running { url, task }
    }

    async fn in_memory() -> Running {
        Self::start(EtcdOptions { txn_ops_max: 1024, ..EtcdOptions::default() }).await
    }

    async fn in_folder(dir: &Path) -> Running {
        let options = EtcdOptions {
            data_dir: Some(dir.to_owned()),
            txn_ops_max: 1024,
            ..EtcdOptions::default()
        };
        Self::start(options).await
    }

    /// A store whose keys lie in a folder of their own.
    async fn store(&self, folder: &str) -> Arc<EtcdStore> {
        let options = keelson_store_etcd::EtcdOptions {
            root: String::new(),
            prefix: format!("/{folder}/"),
            ..keelson_store_etcd::EtcdOptions::new(vec![self.url.clone()])
        };
        EtcdStore::open(options).await.unwrap()
    }
}

/// Opens the data. The connections of a server that was stopped may hold it for a moment.
async fn open(options: EtcdOptions) -> EtcdServer {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match EtcdServer::open(options.clone()).await {
            Ok(server) => return server,
            Err(StartError::Open(OpenError::Locked { .. })) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}
