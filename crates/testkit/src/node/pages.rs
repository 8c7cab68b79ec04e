//! The pages of a kubelet, in small.

use super::State;
use super::http::{Connection, Request};
use serde_json::{Value, json};
use std::io;
use std::time::SystemTime;

const METRICS: &str = "# HELP kubelet_running_pods Number of pods that have a running pod sandbox\n\
    # TYPE kubelet_running_pods gauge\n\
    kubelet_running_pods 1\n";
/// What metrics-server reads, unless a test says otherwise: a node and a pod `default/pod` with a
/// container `main`.
const RESOURCE_METRICS: &str = "# HELP node_cpu_usage_seconds_total Cumulative cpu time\n\
    # TYPE node_cpu_usage_seconds_total counter\n\
    node_cpu_usage_seconds_total 10\n\
    # HELP node_memory_working_set_bytes Current working set of the node in bytes\n\
    # TYPE node_memory_working_set_bytes gauge\n\
    node_memory_working_set_bytes 1.048576e+08\n\
    # HELP container_cpu_usage_seconds_total Cumulative cpu time\n\
    # TYPE container_cpu_usage_seconds_total counter\n\
    container_cpu_usage_seconds_total{container=\"main\",namespace=\"default\",pod=\"pod\"} 1\n\
    # HELP container_memory_working_set_bytes Current working set of the container in bytes\n\
    # TYPE container_memory_working_set_bytes gauge\n\
    container_memory_working_set_bytes{container=\"main\",namespace=\"default\",pod=\"pod\"} 1.048576e+06\n";
const LOG_FOLDER: &str = "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n\
    <pre>\n<a href=\"messages\">messages</a>\n<a href=\"/logs/pods/\">pods/</a>\n</pre>\n";

/// Answers a request for a page; others get 404 as from Go.
pub(super) async fn serve(
    connection: &mut Connection,
    request: &Request,
    state: &State,
) -> io::Result<()> {
    const TEXT: &str = "text/plain; charset=utf-8";
    const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
    let page = match request.path.as_str() {
        "/healthz" => (TEXT, "ok".to_owned()),
        "/metrics" => (METRICS_TYPE, METRICS.to_owned()),
        "/metrics/resource" => (METRICS_TYPE, resource_metrics(state)),
        "/stats/summary" => ("application/json", summary().to_string()),
        "/configz" => {
            let config = json!({"kubeletconfig": {"maxPods": 110, "port": 10250}});
            ("application/json", config.to_string())
        }
        "/logs" => {
            let headers = [("Location", "/logs/"), ("Content-Type", "text/html; charset=utf-8")];
            let body = b"<a href=\"/logs/\">Moved Permanently</a>.\n\n";
            return connection.respond("301 Moved Permanently", &headers, body).await;
        }
        "/logs/" => ("text/html; charset=utf-8", LOG_FOLDER.to_owned()),
        "/logs/messages" => (TEXT, "a message\n".to_owned()),
        path if path.starts_with("/testkit/echo") => return echo(connection, request).await,
        _ => return connection.respond_error("404 Not Found", "404 page not found").await,
    };
    let (media_type, body) = page;
    connection.respond("200 OK", &[("Content-Type", media_type)], body.as_bytes()).await
}

fn resource_metrics(state: &State) -> String {
    let usage = state.usage.lock().ok().and_then(|usage| usage.clone());
    usage.map_or(RESOURCE_METRICS.to_owned(), |usage| usage.page(SystemTime::now()))
}

/// Answers with the request, so that tests see what arrives at a node.
async fn echo(connection: &mut Connection, request: &Request) -> io::Result<()> {
    let body = connection.read_body(request).await?;
    let headers: Vec<Value> =
        request.headers.iter().map(|(name, value)| json!([name, value])).collect();
    let has_certificate = connection.stream.get_ref().1.peer_certificates().is_some();
    let response = json!({
        "hasCertificate": has_certificate,
        "method": request.method, "target": request.target, "headers": headers,
        "body": String::from_utf8_lossy(&body),
    });
    let headers = [("Content-Type", "application/json")];
    connection.respond("200 OK", &headers, response.to_string().as_bytes()).await
}

fn summary() -> Value {
    json!({
        "node": {"nodeName": "node", "startTime": "2026-01-01T00:00:00Z",
            "cpu": {"time": "2026-01-01T00:00:00Z", "usageNanoCores": 1000, "usageCoreNanoSeconds": 1000},
            "memory": {"time": "2026-01-01T00:00:00Z", "workingSetBytes": 104_857_600}},
        "pods": [],
    })
}
