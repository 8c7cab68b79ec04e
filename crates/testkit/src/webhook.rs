//! A webhook whose response is determined by the request's path, over HTTPS with HTTP/1.1 or
//! HTTP/2. It records the requests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls_pki_types::PrivateKeyDer;
use serde_json::{Value, json};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

/// A request to the webhook.
#[derive(Clone, Debug)]
pub struct Call {
    /// Path and query.
    pub path: String,
    /// The `AdmissionReview`.
    pub review: Value,
    /// The header `Authorization`, or empty.
    pub authorization: String,
}

/// A webhook.
pub struct Webhook {
    /// The address that it listens on.
    pub address: SocketAddr,
    /// The value of `caBundle`.
    pub bundle: String,
    shared: Arc<Shared>,
    _runtime: Runtime,
}

/// What the webhook and its connections share.
struct Shared {
    calls: Mutex<Vec<Call>>,
    /// A permit for each request of the script `hold` that may be answered.
    gate: Semaphore,
}

impl Webhook {
    /// Starts a webhook for `protocol`, with a certificate for `names`.
    pub fn start(protocol: &str, names: &[&str]) -> Webhook {
        let runtime = Runtime::new().expect("a runtime");
        let (config, bundle) = certificate(protocol, names);
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared { calls: Mutex::default(), gate: Semaphore::new(0) });
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let kept = shared.clone();
        let is_http2 = protocol == "h2";
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                let kept = kept.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let io = TokioIo::new(stream);
                    let answers = service_fn(move |request| answer(request, kept.clone()));
                    if is_http2 {
                        let http2 = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = http2.serve_connection(io, answers).await;
                    } else {
                        let http1 = hyper::server::conn::http1::Builder::new();
                        let _ = http1.serve_connection(io, answers).await;
                    }
                });
            }
        });
        Webhook { address, bundle, shared, _runtime: runtime }
    }

    /// Returns the `clientConfig` for a script.
    pub fn config(&self, script: &str) -> Value {
        json!({"url": format!("https://{}/{script}", self.address), "caBundle": self.bundle})
    }

    /// Returns the requests since the last call.
    pub fn take(&self) -> Vec<Call> {
        std::mem::take(&mut *self.shared.calls.lock().expect("a lock"))
    }

    /// Lets one request of the script `hold` be answered.
    pub fn release(&self) {
        self.shared.gate.add_permits(1);
    }
}

/// Returns a serving certificate for names, and its CA bundle in base64.
pub fn certificate(protocol: &str, names: &[&str]) -> (ServerConfig, String) {
    let mut params = CertificateParams::new(vec![]).expect("no names");
    params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = KeyPair::generate().expect("a key");
    let authority = CertifiedIssuer::self_signed(params, key).expect("a certificate");
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let params = CertificateParams::new(names).expect("names");
    let key = KeyPair::generate().expect("a key");
    let leaf = params.signed_by(&key, &authority).expect("a certificate");
    let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .expect("a certificate");
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    (config, STANDARD.encode(authority.pem()))
}

/// Returns a response; an error closes the connection.
async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<BoxBody<Bytes, std::io::Error>>, std::io::Error> {
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    // The part before the script distinguishes webhooks with the same script.
    let script = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let authorization = request
        .headers()
        .get("authorization")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default()
        .to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let call = Call { path, review: review.clone(), authorization };
    shared.calls.lock().expect("a lock").push(call);
    if script == "slow" {
        std::future::pending::<()>().await;
    }
    if script == "close" {
        return Err(std::io::Error::other("closed"));
    }
    if script == "endless" {
        return Ok(Response::new(Endless.boxed()));
    }
    if script == "hold" {
        shared.gate.acquire().await.expect("an open gate").forget();
    }
    let (status, media, body) = scripted(&script, &review);
    let body = Full::new(Bytes::from(body)).map_err(|never: Infallible| match never {});
    let mut response = Response::new(body.boxed());
    *response.status_mut() = StatusCode::from_u16(status).expect("a status");
    let headers = response.headers_mut();
    headers.insert("content-type", media.parse().expect("a media type"));
    if status / 100 == 3 {
        headers.insert("location", "/allow".parse().expect("a path"));
    }
    Ok(response)
}

/// A body of spaces that does not end.
struct Endless;

impl Body for Endless {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b' '; 0x10000])))))
    }
}

/// Bytes that a webhook sends for nothing: less than a response may have.
const MUCH: usize = 1 << 20;

const JSON: &str = "application/json";

/// Returns status, media type and body for a script. Its words have the form `word=argument`, with
/// the argument as JSON in hexadecimal digits.
fn scripted(script: &str, review: &Value) -> (u16, &'static str, Vec<u8>) {
    let (word, argument) = script.split_once('=').unwrap_or((script, ""));
    let argument = unhex(argument);
    let respond = |members: Value| {
        let mut answer = json!({
            "apiVersion": review["apiVersion"], "kind": review["kind"],
            "response": {"uid": review["request"]["uid"], "allowed": true}
        });
        for (name, value) in members.as_object().into_iter().flatten() {
            answer["response"][name] = value.clone();
        }
        answer
    };
    let patch = |operations: &[u8]| {
        respond(json!({"patchType": "JSONPatch", "patch": STANDARD.encode(operations)}))
    };
    let value = || serde_json::from_slice::<Value>(&argument).unwrap_or_default();
    let review = match word {
        "convert" | "hold" => converted(review, &value()),
        "long-message" | "field" | "maps" | "values" => {
            return (200, JSON, much(word, &argument, review));
        }
        "allow" => respond(json!({})),
        "deny" => respond(json!({"allowed": false})),
        "refuse" => respond(json!({"allowed": false, "status": value()})),
        // Fields of the response.
        "respond" => respond(value()),
        // Fields of the review.
        "review" => {
            let mut answer = respond(json!({}));
            for (name, value) in value().as_object().into_iter().flatten() {
                answer[name] = value.clone();
            }
            answer
        }
        "patch" => patch(&argument),
        "large" => respond(json!({"auditAnnotations": {"a": "x".repeat(3 << 20)}})),
        "yaml" => {
            let uid = review["request"]["uid"].as_str().unwrap_or_default();
            let text = format!(
                "apiVersion: admission.k8s.io/v1\nkind: AdmissionReview\n\
                 response:\n  uid: {uid}\n  allowed: true\n"
            );
            return (200, JSON, text.into_bytes());
        }
        "body" => return (200, JSON, argument),
        // An ImageReview: the first image determines the response.
        "images" => {
            let status = match review["spec"]["containers"][0]["image"].as_str() {
                Some("good") => json!({"allowed": true}),
                Some("bad") => json!({"allowed": false}),
                Some("old") => json!({"allowed": false, "reason": "too old"}),
                _ => return (500, JSON, b"some text".to_vec()),
            };
            let version = &review["apiVersion"];
            let kind = &review["kind"];
            json!({"apiVersion": version, "kind": kind, "status": status})
        }
        "text" => {
            let status = script.rsplit('.').next().and_then(|code| code.parse().ok());
            return (status.unwrap_or(500), "text/plain", b"some text".to_vec());
        }
        code => {
            let status = code.parse().unwrap_or(404);
            return (status, JSON, if status == 204 { vec![] } else { b"some text".to_vec() });
        }
    };
    (200, JSON, review.to_string().into_bytes())
}

/// Responds to a `ConversionReview` with much: a long message of a failure, more maps than an
/// object may hold, more values than a response may hold, or objects with an additional field of
/// the text in `argument`.
fn much(word: &str, argument: &[u8], review: &Value) -> Vec<u8> {
    if word == "long-message" {
        let result = json!({"status": "Failure", "message": "e".repeat(MUCH)});
        return converted(review, &json!({"response": {"result": result}})).to_string().into();
    }
    let changed = converted(review, &json!({"object": {"odd": "ODD"}})).to_string();
    let list = |item: &str, count: usize| {
        let items = format!("[{}]", vec![item; count].join(","));
        changed.replacen("\"ODD\"", &items, 1).into()
    };
    match word {
        "maps" => list("{}", 75_000),
        "values" => list("0", 1_000_000),
        _ => changed.replace("\"ODD\"", &String::from_utf8_lossy(argument)).into(),
    }
}

/// Responds to a `ConversionReview`: `spec.hostPort` of v1beta1 is `spec.host` and `spec.port` of
/// v1. Fields of `changes` are set in the review, the response, each object and its metadata; null
/// removes them.
fn converted(review: &Value, changes: &Value) -> Value {
    let version = &review["request"]["desiredAPIVersion"];
    let convert = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = version.clone();
        let spec = object.get_mut("spec").and_then(Value::as_object_mut);
        if let Some(spec) = spec {
            let text = |value: Value| value.as_str().unwrap_or_default().to_owned();
            if version.as_str().is_some_and(|version| version.ends_with("/v1")) {
                let both = text(spec.remove("hostPort").unwrap_or_default());
                let (host, port) = both.split_once(':').unwrap_or((&both, ""));
                spec.insert("host".to_owned(), host.into());
                spec.insert("port".to_owned(), port.into());
            } else {
                let host = text(spec.remove("host").unwrap_or_default());
                let port = text(spec.remove("port").unwrap_or_default());
                spec.insert("hostPort".to_owned(), format!("{host}:{port}").into());
            }
        }
        change(&mut object, &changes["object"]);
        change(&mut object["metadata"], &changes["metadata"]);
        object
    };
    let objects: Vec<Value> =
        review["request"]["objects"].as_array().into_iter().flatten().map(convert).collect();
    let mut answer = json!({
        "apiVersion": review["apiVersion"], "kind": review["kind"],
        "response": {
            "uid": review["request"]["uid"], "convertedObjects": objects,
            "result": {"status": "Success"}
        }
    });
    change(&mut answer["response"], &changes["response"]);
    change(&mut answer, &changes["review"]);
    answer
}

fn change(value: &mut Value, changes: &Value) {
    let Some(map) = value.as_object_mut() else { return };
    for (name, value) in changes.as_object().into_iter().flatten() {
        match value {
            Value::Null => drop(map.remove(name)),
            value => drop(map.insert(name.clone(), value.clone())),
        }
    }
}

/// Encodes JSON as an argument of a script.
pub fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    digits.chunks(2).filter_map(byte).collect()
}
