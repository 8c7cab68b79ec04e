//! What is answered over HTTP/1 and HTTP/2 without gRPC: health and version.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, StatusCode};
use http_body_util::Full;
use serde_json::json;
use tonic::body::Body;

use crate::engine::Engine;
use crate::service::ETCD_VERSION;

/// Answers a request for a page.
pub(crate) fn answer(engine: &Engine, method: &Method, path: &str) -> Response<Body> {
    if method != Method::GET && method != Method::HEAD {
        return page(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "Method Not Allowed\n".into());
    }
    let json = "application/json";
    match path {
        "/health" => {
            let reason = unhealthy(engine);
            let status = status_of(reason.is_none());
            let health = if reason.is_none() { "true" } else { "false" };
            let body = json!({"health": health, "reason": reason.unwrap_or_default()});
            page(status, json, body.to_string())
        }
        "/livez" | "/readyz" => match unhealthy(engine) {
            None => page(StatusCode::OK, "text/plain", "ok\n".into()),
            Some(why) => page(status_of(false), "text/plain", format!("{why}\n")),
        },
        "/version" => {
            let body = json!({
                "etcdserver": ETCD_VERSION, "etcdcluster": ETCD_VERSION, "storage": ETCD_VERSION
            });
            page(StatusCode::OK, json, body.to_string())
        }
        "/metrics" => page(StatusCode::OK, "text/plain; version=0.0.4", metrics(engine)),
        _ => match engine.options.pages.iter().find(|(other, _)| *other == path) {
            Some((_, body)) => page(StatusCode::OK, json, body.clone()),
            None => page(StatusCode::NOT_FOUND, "text/plain", "404 page not found\n".into()),
        },
    }
}

/// The metrics of etcd that dashboards and alerts of one member need.
fn metrics(engine: &Engine) -> String {
    let size = engine.size();
    let quota = engine.options.quota_bytes.unwrap_or(0);
    let mut text = String::new();
    for (name, help, value) in [
        ("etcd_server_has_leader", "Whether a leader exists.", 1),
        ("etcd_server_is_leader", "Whether this member is the leader.", 1),
        ("etcd_server_quota_backend_bytes", "Quota of the data in bytes; 0 is none.", quota),
        ("etcd_mvcc_db_total_size_in_bytes", "Size of the file in bytes.", size),
        ("etcd_mvcc_db_total_size_in_use_in_bytes", "Size of the file in bytes.", size),
        (
            "etcd_debugging_mvcc_current_revision",
            "The newest revision.",
            engine.revision().cast_unsigned(),
        ),
        (
            "etcd_debugging_mvcc_compact_revision",
            "The oldest revision that can be read.",
            engine.compacted().max(0).cast_unsigned(),
        ),
    ] {
        text += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {value}\n");
    }
    text
}

fn unhealthy(engine: &Engine) -> Option<String> {
    if engine.is_full() {
        return Some("ALARM NOSPACE".to_owned());
    }
    engine.health().err().map(|error| error.to_string())
}

fn status_of(is_healthy: bool) -> StatusCode {
    if is_healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }
}

fn page(status: StatusCode, media: &'static str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::new(Full::new(Bytes::from(body))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
