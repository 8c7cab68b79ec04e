//! The server's CPU time of a call to an admission webhook.

use crate::Bench;
use crate::bodies::{Template, member};
use crate::client::{ApiRequest, Client};
use crate::drive::{Load, drive};
use crate::report::Report;
use crate::start::quantile;
use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls::ServerConfig;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Rounds of creates with and without a call in turn.
const ROUNDS: u32 = 10;
/// Timeout until the server uses a new configuration.
const CONFIGURED_TIME_MAX: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const CONFIGURATIONS: &str =
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

/// Measures the cost of a call.
pub async fn run(bench: &Bench, report: &mut Report) -> Result<()> {
    let workers = bench.run.connections;
    let (cost, load) = cost(bench, workers).await?;
    let name = format!("admission webhook, {workers} connections");
    if let Some(cost) = cost {
        report.add(&name, "server CPU per call", "ms", cost);
    }
    report.add_errors(&name, &load.errors);
    Ok(())
}

/// Returns the server's CPU time per call in milliseconds, and the merged load. The cost is that of
/// dry-run creates (without the store) that match the webhook, less that of creates that do not.
pub async fn cost(bench: &Bench, workers: usize) -> Result<(Option<f64>, Load)> {
    let webhook = Webhook::start().await?;
    webhook.register(bench).await?;
    let costs = costs(bench, workers).await;
    let mut client = Client::connect(&bench.target).await?;
    client
        .require_success(ApiRequest::delete(format!("{CONFIGURATIONS}/{}", bench.namespace)))
        .await?;
    costs
}

async fn costs(bench: &Bench, workers: usize) -> Result<(Option<f64>, Load)> {
    let duration = bench.duration() / ROUNDS;
    let mut costs = vec![];
    let mut all = Load::default();
    for _ in 0..ROUNDS {
        let mut times = [None; 2];
        for (time, label) in times.iter_mut().zip(["yes", "no"]) {
            let path = format!("{}?dryRun=All", bench.config_maps());
            let body = map(label);
            let make = move |_, _, _: &[u8]| Some(ApiRequest::post(&path, body.fill("called", 0)));
            let load = drive(bench, workers, duration, make).await?;
            *time = load.server_cpu_ms();
            all.merge(&load);
        }
        let [Some(with), Some(without)] = times else { return Ok((None, all)) };
        costs.push(with - without);
    }
    Ok((Some(quantile(&costs, 0.5)), all))
}

/// Returns a ConfigMap of 1 KB with the label that decides whether the webhook is called.
fn map(label: &str) -> Template {
    let body = json!({"metadata": {"name": "{name}", "labels": {"called": label}},
        "data": {"payload": "x".repeat(1024)}});
    Template::new(&body.to_string())
}

/// A webhook that allows everything.
struct Webhook {
    port: u16,
    certificate: String,
    calls: Arc<AtomicU64>,
}

impl Webhook {
    async fn start() -> Result<Webhook> {
        let own = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], own.signing_key.into())?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        let calls = Arc::new(AtomicU64::new(0));
        let counted = calls.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // An error also fails the request to the server.
                tokio::spawn(serve(acceptor.clone(), stream, counted.clone()));
            }
        });
        Ok(Webhook { port, certificate: own.cert.pem(), calls })
    }

    /// Registers the webhook for ConfigMaps with a label, and waits until the server calls it.
    async fn register(&self, bench: &Bench) -> Result<()> {
        let mut client = Client::connect(&bench.target).await?;
        let url = format!("https://127.0.0.1:{}/", self.port);
        let rule = json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["configmaps"]});
        let webhook = json!({"name": "called.bench.example.org", "rules": [rule],
            "clientConfig": {"url": url, "caBundle": STANDARD.encode(&self.certificate)},
            "objectSelector": {"matchLabels": {"called": "yes"}},
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": bench.namespace}},
            "sideEffects": "None", "admissionReviewVersions": ["v1"]});
        let configuration = json!({"metadata": {"name": bench.namespace}, "webhooks": [webhook]});
        client.require_success(ApiRequest::post(CONFIGURATIONS, configuration.to_string())).await?;
        let path = format!("{}?dryRun=All", bench.config_maps());
        let began = Instant::now();
        while self.calls.load(Ordering::Relaxed) == 0 {
            anyhow::ensure!(
                began.elapsed() < CONFIGURED_TIME_MAX,
                "the server does not call the webhook"
            );
            client.require_success(ApiRequest::post(&path, map("yes").fill("first", 0))).await?;
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }
}

async fn serve(acceptor: TlsAcceptor, stream: TcpStream, calls: Arc<AtomicU64>) -> Result<()> {
    stream.set_nodelay(true)?;
    let stream = TokioIo::new(acceptor.accept(stream).await?);
    let answer = service_fn(|request: Request<Incoming>| {
        calls.fetch_add(1, Ordering::Relaxed);
        allow(request)
    });
    http1::Builder::new().serve_connection(stream, answer).await.context("webhook")
}

async fn allow(request: Request<Incoming>) -> Result<Response<Full<Bytes>>> {
    let review = request.into_body().collect().await?.to_bytes();
    let uid = member(&review, "uid").context("a review without uid")?;
    let answer = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": uid, "allowed": true}});
    let response = Response::builder().header("content-type", "application/json");
    Ok(response.body(Full::new(Bytes::from(answer.to_string())))?)
}
