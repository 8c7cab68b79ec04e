//! What stands in the place of etcd beside a Keelson that is started as kube-apiserver, for test
//! environments that start both: it answers health checks and says where the data is. The API server then
//! opens the embedded store in that folder itself, so that it finds its objects after a restart. It does not
//! speak etcd's protocol.

use crate::start_error::StartError;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The path whose answer is the folder of the data.
const FOLDER_PATH: &str = "/keelson";
/// The version that it reports.
const ETCD_VERSION: &str = "3.6.8";
/// Most bytes of a request's head, and of an answer.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// Most connections at once; further ones wait in the backlog.
const CONNECTIONS_MAX: usize = 64;
/// How long a client may take for its request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// How long the API server waits for an answer that says where the data is.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// A listener in the place of etcd.
pub struct EtcdStandIn {
    listener: TcpListener,
    folder: Arc<str>,
}

impl EtcdStandIn {
    /// Listens on an address: `127.0.0.1:2379`. `folder` holds the data.
    pub async fn bind(address: &str, folder: &Path) -> Result<EtcdStandIn, StartError> {
        let failed = |what: &str, error: io::Error| StartError::new(format!("{what}: {error}"));
        std::fs::create_dir_all(folder).map_err(|error| failed("--data-dir", error))?;
        let folder = folder.canonicalize().map_err(|error| failed("--data-dir", error))?;
        let folder = folder.to_str().ok_or_else(|| {
            StartError::new("--data-dir: the path of the folder is not UTF-8".to_owned())
        })?;
        let listener = TcpListener::bind(address).await.map_err(|error| {
            failed(&format!("--listen-client-urls: cannot listen on {address}"), error)
        })?;
        Ok(EtcdStandIn { listener, folder: folder.into() })
    }

    /// Returns the port that it listens on.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.listener.local_addr()?.port())
    }

    /// Answers requests until the future is dropped.
    pub async fn run(self) {
        let mut connections = JoinSet::new();
        loop {
            while connections.len() >= CONNECTIONS_MAX {
                connections.join_next().await;
            }
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let folder = self.folder.clone();
                    connections.spawn(timeout(REQUEST_TIME_MAX, answer(stream, folder)));
                }
                Err(error) => {
                    // Most likely out of file descriptors: wait until other connections close.
                    tracing::warn!(%error, "accept failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }
}

/// Answers the request of a connection, and closes it.
async fn answer(mut stream: TcpStream, folder: Arc<str>) -> io::Result<()> {
    let head = read_head(&mut stream).await?;
    let path = head.split(' ').nth(1).unwrap_or_default();
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let json = "application/json";
    let (status, media, body) = match path {
        "/health" => ("200 OK", json, r#"{"health":"true","reason":""}"#.to_owned()),
        "/livez" | "/readyz" => ("200 OK", "text/plain", "ok\n".to_owned()),
        "/version" => {
            let version = serde_json::json!({
                "etcdserver": ETCD_VERSION, "etcdcluster": ETCD_VERSION, "storage": ETCD_VERSION
            });
            ("200 OK", json, version.to_string())
        }
        FOLDER_PATH => ("200 OK", json, serde_json::json!({"dataDir": &*folder}).to_string()),
        _ => ("404 Not Found", "text/plain", "404 page not found\n".to_owned()),
    };
    let length = body.len();
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media}\r\nContent-Length: {length}\r\nConnection: \
         close\r\n\r\n{body}"
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await
}

async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = vec![];
    let mut piece = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut piece).await?;
        if read == 0 || head.len() > HEAD_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&piece[..read]);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// Returns the folder of the data if the only server of `--etcd-servers` is such a stand-in. It must be on
/// this host.
pub(crate) async fn folder_behind(servers: &[String]) -> Option<PathBuf> {
    let [server] = servers else { return None };
    let address = server.strip_prefix("http://")?.trim_end_matches('/');
    let host = address.rsplit_once(':').map(|(host, _)| host.trim_matches(['[', ']']))?;
    let is_here = host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    if !is_here {
        return None;
    }
    timeout(ANSWER_TIME_MAX, ask_for_folder(address)).await.ok()?.ok()?
}

/// Asks a server for its folder; `None` if it answers that it has none, as etcd does.
async fn ask_for_folder(address: &str) -> io::Result<Option<PathBuf>> {
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("GET {FOLDER_PATH} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = vec![];
    (&mut stream).take(HEAD_BYTES_MAX as u64).read_to_end(&mut response).await?;
    let response = String::from_utf8_lossy(&response);
    let Some((head, body)) = response.split_once("\r\n\r\n") else { return Ok(None) };
    if !head.starts_with("HTTP/1.1 200 ") {
        return Ok(None);
    }
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    Ok(body["dataDir"].as_str().map(PathBuf::from))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_api_server_finds_the_folder() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = dir.path().join("data");
        let stand_in = EtcdStandIn::bind("127.0.0.1:0", &folder).await.expect("a listener");
        let port = stand_in.port().expect("a port");
        let running = tokio::spawn(stand_in.run());
        let here = format!("http://127.0.0.1:{port}");
        let expected = folder.canonicalize().ok();
        assert_eq!(folder_behind(std::slice::from_ref(&here)).await, expected);
        assert_eq!(folder_behind(&[format!("{here}/")]).await, expected);
        assert_eq!(folder_behind(&[here.clone(), here]).await, None, "a cluster of two");
        running.abort();
    }

    #[tokio::test]
    async fn other_servers_have_no_folder() {
        // Nobody listens on port 1.
        for server in ["http://127.0.0.1:1", "http://192.0.2.1:2379", "https://127.0.0.1:2379"] {
            assert_eq!(folder_behind(&[server.to_owned()]).await, None, "{server}");
        }
    }
}
