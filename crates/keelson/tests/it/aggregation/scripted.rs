//! A server behind this one whose answers come from a table, over HTTPS. It records what it is
//! asked.

use crate::http::Client;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use keelson_testkit::webhook::certificate;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio_rustls::TlsAcceptor;

pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
pub const AGGREGATED_BETA: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";

/// An answer.
#[derive(Clone)]
pub struct Page {
    pub media_type: &'static str,
    pub tag: Option<&'static str>,
    pub body: Value,
}

impl Page {
    /// JSON without an ETag.
    pub fn json(body: Value) -> Page {
        Page { media_type: "application/json", tag: None, body }
    }
}

/// A request that the server received, and the status of its answer.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub accept: String,
    /// `If-None-Match`.
    pub known: String,
    pub user: String,
    pub status: u16,
}

#[derive(Default)]
struct Shared {
    pages: Mutex<HashMap<String, Page>>,
    asked: Mutex<Vec<Asked>>,
}

/// A server; dropping it ends all its connections.
pub struct Scripted {
    pub port: u16,
    /// The value of `caBundle`.
    pub bundle: String,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

impl Scripted {
    /// Starts a server of the service `behind` in the namespace `default`; paths without a page are
    /// 404.
    pub fn start(pages: &[(&str, Page)]) -> Scripted {
        let runtime = Runtime::new().expect("a runtime");
        let (config, bundle) = certificate("http/1.1", &["behind.default.svc"]);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shared = Arc::new(Shared::default());
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let kept = shared.clone();
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let kept = kept.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let answers = service_fn(move |request| {
                        std::future::ready(Ok::<_, Infallible>(answer(&kept, &request)))
                    });
                    let http1 = hyper::server::conn::http1::Builder::new();
                    let _ = http1.serve_connection(TokioIo::new(stream), answers).await;
                });
            }
        });
        let server = Scripted { port, bundle, shared, _runtime: runtime };
        pages.iter().for_each(|(path, page)| server.set(path, page.clone()));
        server
    }

    /// Sets or replaces a page.
    pub fn set(&self, path: &str, page: Page) {
        self.shared.pages.lock().expect("a lock").insert(path.to_owned(), page);
    }

    /// Returns the requests for a path.
    pub fn asked(&self, path: &str) -> Vec<Asked> {
        let asked = self.shared.asked.lock().expect("a lock");
        asked.iter().filter(|asked| asked.path == path).cloned().collect()
    }

    /// Registers a group version of this server.
    pub fn register(&self, client: &Client, of: Registered) {
        let Registered { group, version, priorities } = of;
        let service = json!({"metadata": {"name": format!("{version}.{group}")}, "spec": {
            "group": group, "version": version, "groupPriorityMinimum": priorities.0,
            "versionPriority": priorities.1, "caBundle": self.bundle,
            "service": {"name": "behind", "namespace": "default", "port": self.port}}});
        let made = client.post(super::SERVICES, &service);
        assert_eq!(made.status, 201, "{:?}", made.body);
    }
}

/// A group version, and the priorities of its group and itself.
#[derive(Clone, Copy)]
pub struct Registered {
    pub group: &'static str,
    pub version: &'static str,
    pub priorities: (u32, u32),
}

fn answer(shared: &Shared, request: &Request<Incoming>) -> Response<Full<Bytes>> {
    let header = |name: &str| {
        let value = request.headers().get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let path = request.uri().path().to_owned();
    let known = header("if-none-match");
    let page = shared.pages.lock().expect("a lock").get(&path).cloned();
    let builder = match &page {
        Some(Page { tag: Some(tag), .. }) if known == *tag => Response::builder().status(304),
        Some(_) => Response::builder(),
        None => Response::builder().status(404),
    };
    let tag = page.as_ref().and_then(|page| page.tag);
    let media_type = page.as_ref().map_or("text/plain", |page| page.media_type);
    let builder = builder.header("content-type", media_type);
    let builder = match tag {
        Some(tag) => builder.header("etag", tag),
        None => builder,
    };
    let body = page.map(|page| page.body.to_string()).unwrap_or_default();
    let mut response = builder.body(Full::new(Bytes::from(body))).expect("a response");
    let status = response.status().as_u16();
    if status == 304 {
        *response.body_mut() = Full::default();
    }
    let accept = header("accept");
    let user = header("x-remote-user");
    shared.asked.lock().expect("a lock").push(Asked { path, accept, known, user, status });
    response
}
