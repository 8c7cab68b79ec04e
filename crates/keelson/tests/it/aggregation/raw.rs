//! A far side over HTTPS whose answers are written byte by byte. It records the heads of its
//! requests.

use keelson_testkit::webhook::certificate;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

/// A far side; dropping it ends all its connections.
pub struct RawServer {
    pub port: u16,
    /// The value of `caBundle`.
    pub bundle: String,
    heads: Arc<Mutex<Vec<String>>>,
    _runtime: Runtime,
}

impl RawServer {
    /// Starts a server of the service `behind` in the namespace `default`. It sends for a path what
    /// `answer` returns, and closes the connection.
    pub fn start(answer: fn(&str) -> Vec<u8>) -> RawServer {
        let runtime = Runtime::new().expect("a runtime");
        let (config, bundle) = certificate("http/1.1", &["behind.default.svc"]);
        let any = (IpAddr::from(Ipv4Addr::UNSPECIFIED), 0);
        let listener = runtime.block_on(TcpListener::bind(any)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let heads = Arc::new(Mutex::new(vec![]));
        let kept = heads.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let kept = kept.clone();
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut received = vec![];
                    while !received.ends_with(b"\r\n\r\n") {
                        match stream.read_buf(&mut received).await {
                            Ok(count) if count > 0 => {}
                            _ => return,
                        }
                    }
                    let head = String::from_utf8_lossy(&received).into_owned();
                    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
                    kept.lock().expect("a lock").push(head);
                    let _ = stream.write_all(&answer(&path)).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        RawServer { port, bundle, heads, _runtime: runtime }
    }

    /// Returns the last head, whose request line contains a text; names of headers in lower case.
    pub fn head(&self, part: &str) -> String {
        let heads = self.heads.lock().expect("a lock");
        let is_it = |head: &&String| head.lines().next().is_some_and(|line| line.contains(part));
        let head = heads.iter().rev().find(is_it).unwrap_or_else(|| panic!("{part}: {heads:?}"));
        head.lines().fold(String::new(), |mut out, line| {
            match line.split_once(": ") {
                Some((name, value)) => out += &format!("{}: {value}\n", name.to_lowercase()),
                None => out += &format!("{line}\n"),
            }
            out
        })
    }
}
