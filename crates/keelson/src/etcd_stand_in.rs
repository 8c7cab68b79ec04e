//! The program in the place of etcd. It speaks etcd's protocol (`keelson-etcd-server`), and its
//! keys are in `member/` of the data folder. A Keelson that is started as kube-apiserver beside it
//! does not use the protocol: it asks for the folder, and opens the embedded store in it itself. So
//! the two sets of data lie in one folder and have nothing to do with each other.

use crate::start_error::{StartError, with_causes};
use keelson_etcd_server::{EtcdOptions, EtcdServer, Listener, TlsFiles};
use keelson_store::Durability;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The path whose answer is the folder of the data.
const FOLDER_PATH: &str = "/keelson";
/// Most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 8 << 10;
/// How long the API server waits for an answer that says where the data is.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdAddress {
    /// Host and port: `127.0.0.1:2379`.
    pub address: String,
    /// Whether clients use TLS.
    pub is_secure: bool,
}

/// A server in the place of etcd.
pub struct EtcdStandIn {
    server: EtcdServer,
    listeners: Vec<Listener>,
}

impl EtcdStandIn {
    /// Opens the data in a folder, and listens, on `pages` for health and metrics alone. Addresses
    /// with TLS need its files.
    pub async fn open(
        folder: &Path,
        options: EtcdOptions,
        clients: &[EtcdAddress],
        pages: &[EtcdAddress],
        tls: Option<&TlsFiles>,
    ) -> Result<EtcdStandIn, StartError> {
        let failed = |why: String| StartError::new(format!("--data-dir: {why}"));
        keelson_store::prepare_directory(folder).map_err(|error| failed(with_causes(&error)))?;
        let folder = folder.canonicalize().map_err(|error| failed(error.to_string()))?;
        let shown = folder.to_str().ok_or_else(|| failed("the path is not UTF-8".to_owned()))?;
        let syncs = options.durability == Durability::Sync;
        let page = serde_json::json!({"dataDir": shown, "sync": syncs}).to_string();
        let options = EtcdOptions {
            pages: vec![(FOLDER_PATH, page)],
            data_dir: Some(folder.clone()),
            ..options
        };
        let mut listeners = vec![];
        for address in clients {
            listeners.push(listen("--listen-client-urls", address, tls).await?);
        }
        for address in pages {
            let listener = listen("--listen-metrics-urls", address, tls).await?;
            listeners.push(listener.for_pages_only());
        }
        let server =
            EtcdServer::open(options).await.map_err(|error| failed(with_causes(&error)))?;
        Ok(EtcdStandIn { server, listeners })
    }

    /// Returns the addresses that it listens on.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(Listener::address).collect()
    }

    /// Serves clients until the future is dropped.
    pub async fn run(self) {
        self.server.run(self.listeners).await;
    }
}

async fn listen(
    flag: &str,
    address: &EtcdAddress,
    tls: Option<&TlsFiles>,
) -> Result<Listener, StartError> {
    let EtcdAddress { address, is_secure } = address;
    let tls = tls.filter(|_| *is_secure).cloned();
    if *is_secure && tls.is_none() {
        let why = format!("https://{address} needs --cert-file and --key-file");
        return Err(StartError::new(format!("{flag}: {why}")));
    }
    let listener = Listener::bind(address, tls).await;
    listener.map_err(|error| StartError::new(format!("{flag}: {}", with_causes(&error))))
}

/// Where the API server beside a stand-in keeps its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DataBehind {
    pub folder: PathBuf,
    /// What an acknowledged write survives, as the stand-in was told.
    pub durability: Durability,
}

/// Returns where the data is if the only server of `--etcd-servers` is such a stand-in. It must be
/// on this host.
pub(crate) async fn data_behind(servers: &[String]) -> Option<DataBehind> {
    let [server] = servers else { return None };
    let address = server.strip_prefix("http://")?.trim_end_matches('/');
    let host = address.rsplit_once(':').map(|(host, _)| host.trim_matches(['[', ']']))?;
    let is_here = host == "localhost" || is_this_host(host);
    if !is_here {
        return None;
    }
    timeout(ANSWER_TIME_MAX, ask_for_data(address)).await.ok()?.ok()?
}

/// Returns whether an address is one that only this host has. A connection to 0.0.0.0 is one to it.
fn is_this_host(address: &str) -> bool {
    address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback() || ip.is_unspecified())
}

/// Asks a server for its data; `None` if it answers that it has none, as etcd does.
async fn ask_for_data(address: &str) -> io::Result<Option<DataBehind>> {
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("GET {FOLDER_PATH} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = vec![];
    (&mut stream).take(ANSWER_BYTES_MAX).read_to_end(&mut response).await?;
    let response = String::from_utf8_lossy(&response);
    let Some((head, body)) = response.split_once("\r\n\r\n") else { return Ok(None) };
    if !head.starts_with("HTTP/1.1 200 ") {
        return Ok(None);
    }
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let durability = match body["sync"].as_bool() {
        Some(false) => Durability::Unsynced,
        _ => Durability::Sync,
    };
    Ok(body["dataDir"].as_str().map(|folder| DataBehind { folder: folder.into(), durability }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_api_server_finds_the_folder() {
        for durability in [Durability::Sync, Durability::Unsynced] {
            let dir = tempfile::tempdir().expect("a folder");
            let folder = dir.path().join("data");
            let address = EtcdAddress { address: "127.0.0.1:0".to_owned(), is_secure: false };
            let options = EtcdOptions { durability, ..EtcdOptions::default() };
            let stand_in = EtcdStandIn::open(&folder, options, &[address], &[], None).await;
            let stand_in = stand_in.expect("a listener");
            let port = stand_in.addresses().expect("addresses")[0].port();
            let running = tokio::spawn(stand_in.run());
            let here = format!("http://127.0.0.1:{port}");
            let folder = folder.canonicalize().expect("a folder");
            let expected = Some(DataBehind { folder, durability });
            let addresses = [here.clone(), format!("{here}/"), format!("http://0.0.0.0:{port}")];
            for address in addresses {
                assert_eq!(
                    data_behind(std::slice::from_ref(&address)).await,
                    expected,
                    "{address}"
                );
            }
            assert_eq!(data_behind(&[here.clone(), here]).await, None, "a cluster of two");
            running.abort();
        }
    }

    #[tokio::test]
    async fn other_servers_have_no_folder() {
        // Nobody listens on port 1.
        for server in ["http://127.0.0.1:1", "http://192.0.2.1:2379", "https://127.0.0.1:2379"] {
            assert_eq!(data_behind(&[server.to_owned()]).await, None, "{server}");
        }
    }
}
