//! `/metrics`, compared with that of a kube-apiserver 1.36 after the same requests.
//!
//! `files/metrics_requests.txt` has the requests, one per line. `files/metrics.txt` has the
//! `/metrics` of a new kube-apiserver after them, for the metrics that Keelson serves: types, upper
//! bounds of buckets, counters with their values, histograms with the labels of their counts.
//! Omitted are its own requests, and plug-ins that Keelson does not run as separate steps. To
//! record it, send the requests (an APPLY as a PATCH with the media type of apply), and take the
//! same lines of its `/metrics`.
//!
//! `files/metrics_facts.txt` has name, type, labels and buckets of all metrics of a kube-apiserver
//! 1.36.3 after these requests and those of `files/metrics_more_requests.txt`;
//! `testkit/compare/metrics.py` records it. `files/metrics_absent.txt` has those that Keelson does
//! not serve, by reasons.

use crate::http::{Client, POLL_TIMEOUT, Server};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson::{EncryptionFile, Keelson, MetricsSelection};
use keelson_meta::Features;
use keelson_testkit::https_peer::HttpsPeer;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

const REQUESTS: &str = include_str!("files/metrics_requests.txt");
const RECORDED: &str = include_str!("files/metrics.txt");
const MORE_REQUESTS: &str = include_str!("files/metrics_more_requests.txt");
const FACTS: &str = include_str!("files/metrics_facts.txt");
const ABSENT: &str = include_str!("files/metrics_absent.txt");
/// Secrets are encrypted, so that there are metrics of it.
const ENCRYPTION: &str = "apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: a, secret: MDEyMzQ1Njc4OWFiY2RlZg==}]}
";
/// Counted by nobody in these tests: they need requests that wait or are ended early, old
/// revisions, or a webhook that answers.
const UNUSED: [&str; 10] = [
    "apiserver_audit_requests_rejected_total",
    "apiserver_flowcontrol_rejected_requests_total",
    "apiserver_flowcontrol_request_wait_duration_seconds",
    "apiserver_request_terminations_total",
    "apiserver_storage_list_evaluated_objects_total",
    "apiserver_storage_list_fetched_objects_total",
    "apiserver_storage_list_returned_objects_total",
    "apiserver_storage_list_total",
    "pod_security_exemptions_total",
    "rest_client_response_size_bytes",
];

fn send(client: &Client, line: &str) {
    let mut parts = line.splitn(3, ' ');
    let method = parts.next().unwrap_or_default();
    let path = parts.next().unwrap_or_default();
    let body: Option<Value> = parts.next().map(|text| text.parse().expect("a body is JSON"));
    let (method, media_type) = match method {
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        "PATCH" => ("PATCH", "application/merge-patch+json"),
        method => (method, "application/json"),
    };
    client.call(method, path, media_type, body.as_ref());
}

/// Returns the text of `/metrics`.
pub fn text(client: &Client) -> String {
    text_of(client, "/metrics")
}

fn text_of(client: &Client, path: &str) -> String {
    let plain = client.raw_response("GET", path, "", b"");
    assert_eq!(plain.status, 200);
    assert_eq!(plain.media_type, "text/plain; version=0.0.4; charset=utf-8; escaping=underscores");
    String::from_utf8(plain.body).expect("metrics are text")
}

/// Returns lines of `/metrics` in the form of the recording, for the families in the recording.
fn lines(text: &str) -> BTreeSet<String> {
    let recorded: BTreeSet<&str> =
        RECORDED.lines().filter_map(|line| line.split_once('{')).map(|(name, _)| name).collect();
    let typed: BTreeSet<&str> = RECORDED
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, _)| name)
        .collect();
    let mut bounds: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut lines = BTreeSet::new();
    for line in text.lines() {
        if let Some((name, _)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            if typed.contains(name) {
                lines.insert(line.to_owned());
            }
        } else if let Some((name, labels)) = line.split_once('{') {
            if let Some((_, bound)) = labels.split_once("le=\"") {
                let bound = bound.split('"').next().unwrap_or_default();
                let bounds = bounds.entry(name.trim_end_matches("_bucket")).or_default();
                if !bounds.contains(&bound) {
                    bounds.push(bound);
                }
            } else if recorded.contains(name) {
                let series = line.rsplit_once(' ').map_or(line, |(series, _)| series);
                let is_histogram =
                    name.ends_with("_seconds_count") || name.ends_with("_sizes_count");
                lines.insert(if is_histogram { series } else { line }.to_owned());
            }
        }
    }
    let bounds = bounds
        .into_iter()
        .filter(|(name, _)| typed.contains(name))
        .map(|(name, of)| format!("# LE {name} {}", of.join(",")));
    lines.extend(bounds);
    lines
}

#[test]
fn metrics_are_those_of_kube_apiserver() {
    let mut selection = MetricsSelection::default();
    selection.show_hidden();
    // On a disk, because a store in memory has no file.
    let dir = tempfile::tempdir().expect("a folder");
    let builder = Keelson::builder().no_controllers();
    // A loop that writes nothing here.
    let controllers = vec!["-*".to_owned(), "ttl-after-finished-controller".to_owned()];
    let config = dir.path().join("encryption.yaml");
    std::fs::write(&config, ENCRYPTION).expect("a file");
    let encryption =
        EncryptionFile::read(&config, false, Features::default()).expect("a configuration");
    let builder = builder.data_dir(dir.path().join("data")).with(|builder| {
        builder.storage.encryption = Some(encryption);
        builder.recording.metrics = Arc::new(selection);
        builder.controllers.selected = controllers;
    });
    let server = Server::start_plain(builder);
    let client = server.client();
    REQUESTS.lines().filter(|line| *line != "WAIT").for_each(|line| send(&client, line));
    let want: BTreeSet<String> = RECORDED.lines().map(str::to_owned).collect();
    // A request is counted after its last byte was sent, which its client may receive before.
    let deadline = Instant::now() + POLL_TIMEOUT;
    loop {
        let got = lines(&text(&client));
        let missing: Vec<_> = want.difference(&got).collect();
        let others: Vec<_> = got.difference(&want).collect();
        if missing.is_empty() && others.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "missing: {missing:#?}\nnot recorded: {others:#?}");
        std::thread::yield_now();
    }
    MORE_REQUESTS.lines().filter(|line| *line != "WAIT").for_each(|line| send(&client, line));
    client.get("/readyz");
    let secret = json!({"metadata": {"name": "sealed"}, "stringData": {"a": "b"}});
    assert_eq!(client.post("/api/v1/namespaces/mm/secrets", &secret).status, 201);
    let metrics = text(&client);
    let slis = text_of(&client, "/metrics/slis");
    check_facts(&metrics, &slis);
    crate::observe::check(&metrics, &slis);
}

/// Compares the name, type, labels and buckets of each metric with those of kube-apiserver.
fn check_facts(metrics: &str, slis: &str) {
    let served = facts_of(metrics, slis);
    let known: BTreeMap<&str, &str> =
        FACTS.lines().filter_map(|line| Some((line.split(' ').next()?, line))).collect();
    let absent: BTreeSet<&str> = ABSENT.lines().filter(|line| !line.starts_with('#')).collect();
    for (name, line) in &known {
        match served.get(*name) {
            // Where kube-apiserver has no series, its labels are not known.
            Some(own) if line.contains(" ?") => {
                assert_eq!(own.split(' ').nth(1), line.split(' ').nth(1), "{name}");
            }
            Some(own) => assert_eq!(own, line),
            None => {
                let is_expected = absent.contains(name) || UNUSED.contains(name);
                assert!(is_expected, "{line} is not served, and {ABSENT_FILE} does not say why");
            }
        }
    }
    for name in served.keys().filter(|name| !name.starts_with("keelson_")) {
        assert!(known.contains_key(name.as_str()), "{name} is no metric of kube-apiserver");
        assert!(!absent.contains(name.as_str()), "{name} is served; {ABSENT_FILE} says it is not");
    }
    for name in absent {
        assert!(known.contains_key(name), "{name} in {ABSENT_FILE} is no metric of kube-apiserver");
    }
}

/// Compares the type and labels of one metric with those of kube-apiserver.
pub fn check_fact(metrics: &str, name: &str) {
    let recorded = FACTS.lines().find(|line| line.split(' ').next() == Some(name));
    assert_eq!(facts_of(metrics, "").get(name).map(String::as_str), recorded);
}

const ABSENT_FILE: &str = "files/metrics_absent.txt";

/// Returns for each metric of a text the line that `metrics_facts.txt` has for it: name, type,
/// labels (`-`: none) and buckets.
fn facts_of(metrics: &str, slis: &str) -> BTreeMap<String, String> {
    let mut facts: BTreeMap<String, String> = BTreeMap::new();
    let mut current = (String::new(), String::new());
    let mut first_labels = None;
    for line in metrics.lines().chain(slis.lines()) {
        if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            current = (name.to_owned(), kind.to_owned());
            first_labels = None;
            continue;
        }
        if line.starts_with('#') {
            continue;
        }
        let (series, _) = line.rsplit_once(' ').expect("a sample has a value");
        let labels = series.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
        let (name, kind) = &current;
        // Values in these tests have no commas within quotes but those of `le`.
        let pairs: Vec<(&str, &str)> =
            labels.split("\",").filter_map(|pair| pair.split_once("=\"")).collect();
        let is_bucket = series.starts_with(&format!("{name}_bucket"));
        let others: Vec<_> = pairs.iter().filter(|(key, _)| !is_bucket || *key != "le").collect();
        if first_labels.is_none() {
            let keys: Vec<&str> = others.iter().map(|(key, _)| *key).collect();
            let keys = if keys.is_empty() { "-".to_owned() } else { keys.join(",") };
            facts.insert(name.clone(), format!("{name} {kind} {keys}"));
            first_labels = Some(labels.split("le=").next().unwrap_or_default().to_owned());
        }
        if is_bucket && first_labels.as_deref() == labels.split("le=").next() {
            let bound = pairs.last().map_or("", |(_, bound)| bound.trim_end_matches('"'));
            let fact = facts.entry(name.clone()).or_default();
            fact.push(if fact.split(' ').count() == 3 { ' ' } else { ',' });
            fact.push_str(bound);
        }
    }
    facts
}

/// Returns the value of a series.
fn value(text: &str, series: &str) -> Option<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(series))?;
    rest.trim().parse().ok()
}

#[test]
fn client_input_is_not_used_as_a_metric_label() {
    let server = Server::start_plain(Keelson::builder().no_controllers());
    let client = server.client();
    for path in ["/api/v1/widgets", "/apis/evil/v1/namespaces/n/widgets/w", "/api/v1/pods/widgets"]
    {
        client.get(path);
        client.delete(path);
    }
    let agent = "User-Agent: widgets/1\r\n";
    client.request("GET", "/api/v1/namespaces/widgets/configmaps/widgets", agent, None);
    client.request("WIDGETS", "/api/v1/nodes", "", None);
    client.call("POST", "/api/v1/nodes?dryRun=widgets", "application/json", Some(&Value::Null));
    client.send_as("GET /api/v1/nodes", "Authorization: Bearer widgets\r\n", b"");
    let text = text(&client);
    assert!(!text.contains("widgets"), "{text}");
}

#[test]
fn requests_in_progress_and_objects_are_counted() {
    let server = Server::start_plain(Keelson::builder().no_controllers());
    let client = server.client();
    let running = "apiserver_longrunning_requests{component=\"apiserver\",group=\"\",\
                   resource=\"configmaps\",scope=\"cluster\",subresource=\"\",verb=\"WATCH\",\
                   version=\"v1\"}";
    let events = "apiserver_watch_events_total{group=\"\",resource=\"configmaps\",version=\"v1\"}";
    let objects = "apiserver_resource_objects{group=\"\",resource=\"configmaps\"}";
    let count = |series: &str| value(&text(&client), series);
    let before = count(objects).expect("configmaps are counted");
    let mut watch = client.open_watch("/api/v1/configmaps?watch=1&resourceVersion=0");
    assert_eq!(count(running), Some(1.0));
    let body = json!({"metadata": {"name": "one"}});
    client.post("/api/v1/namespaces/default/configmaps", &body);
    while watch.next().expect("an event")["object"]["metadata"]["name"] != "one" {}
    assert!(count(events) >= Some(1.0));
    assert_eq!(count(objects), Some(before + 1.0));
    drop(watch);
    let deadline = Instant::now() + POLL_TIMEOUT;
    while count(running) != Some(0.0) {
        assert!(Instant::now() < deadline, "the watch still counts");
        std::thread::yield_now();
    }
}

#[test]
fn slo_latency_excludes_webhooks() {
    let peer = HttpsPeer::start(|_, asked| {
        let response = json!({"uid": asked.body["request"]["uid"], "allowed": false,
            "status": {"code": 409, "message": "no"}});
        Some((
            200,
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "response": response}),
        ))
    });
    let server = Server::start_plain(Keelson::builder().no_controllers());
    let client = server.client();
    let bundle = STANDARD.encode(&peer.authority);
    let configuration = json!({"metadata": {"name": "refuses"}, "webhooks": [{
        "name": "refuses.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": peer.url(), "caBundle": bundle},
        "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"],
            "resources": ["secrets"]}]
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    assert_eq!(client.post(path, &configuration).status, 201);
    for resource in ["secrets", "configmaps"] {
        let path = format!("/api/v1/namespaces/default/{resource}");
        let status = client.post(&path, &json!({"metadata": {"name": "a"}})).status;
        assert_eq!(status, if resource == "secrets" { 409 } else { 201 });
    }
    let sum = |text: &str, name: &str, dry_run: &str, resource: &str| {
        value(
            text,
            &format!(
                "apiserver_request_{name}_seconds_sum{{component=\"apiserver\",{dry_run}group=\"\",\
                 resource=\"{resource}\",scope=\"resource\",subresource=\"\",verb=\"POST\",\
                 version=\"v1\"}}"
            ),
        )
    };
    let deadline = Instant::now() + POLL_TIMEOUT;
    loop {
        let text = text(&client);
        let of = |resource: &str| {
            let all = sum(&text, "duration", "dry_run=\"\",", resource);
            all.zip(sum(&text, "sli_duration", "", resource))
        };
        if let (Some(secrets), Some(configmaps)) = (of("secrets"), of("configmaps")) {
            assert!(secrets.1 < secrets.0, "{secrets:?}");
            assert_eq!(configmaps.0, configmaps.1);
            let refused = "apiserver_admission_webhook_rejection_count{error_type=\"no_error\",\
                           name=\"refuses.example.com\",operation=\"CREATE\",rejection_code=\"409\",\
                           type=\"validating\"}";
            assert_eq!(value(&text, refused), Some(1.0));
            return;
        }
        assert!(Instant::now() < deadline, "{text}");
        std::thread::yield_now();
    }
}
