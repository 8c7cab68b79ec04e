//! Defaults of pods and of pod templates.

use crate::check::{child, children, default, default_empty};
use keelson_meta::{Map, Object, Str, Value, value};

/// The lists of containers in a pod.
pub(crate) const CONTAINER_LISTS: [&str; 3] =
    ["initContainers", "containers", "ephemeralContainers"];

/// The default mode of projected files.
const FILE_MODE: i64 = 0o644;
const GRACE_SECONDS: i64 = 30;

/// Sets the defaults of a pod: those of templates, and those that only pods have.
pub(super) fn pod(pod: &mut Object) {
    addresses(pod);
    let spec = pod.object_mut("spec");
    pod_spec(spec);
    default(spec, "enableServiceLinks", true);
    for list in ["initContainers", "containers"] {
        for container in children(spec, list) {
            if let Some(resources) = child(container, "resources") {
                requests_from_limits(resources);
            }
        }
    }
    pod_requests(spec);
    if spec.get("hostNetwork").and_then(Value::as_bool) == Some(true) {
        host_ports(spec);
    }
}

/// Makes `podIP` and the first of `podIPs` equal. `podIP` wins: old kubelets write only that one.
fn addresses(pod: &mut Object) {
    let first = pod.str_at(&["status", "podIP"]);
    let listed = pod
        .array_at(&["status", "podIPs"])
        .first()
        .and_then(|address| address.str_at(&["ip"]))
        .unwrap_or_default();
    if first == listed {
        return;
    }
    if first.is_empty() {
        let listed = Str::new(listed);
        pod.object_mut("status").insert("podIP", Value::String(listed));
    } else {
        let only = value!([{"ip": (first)}]);
        pod.object_mut("status").insert("podIPs", only);
    }
}

/// Sets the defaults of the pod template in a workload's spec.
pub(crate) fn template(spec: &mut Map) {
    pod_spec(spec.object_at("template").object_at("spec"));
}

/// Sets the defaults that pods and templates share.
pub(crate) fn pod_spec(spec: &mut Map) {
    alias(spec);
    default_empty(spec, "dnsPolicy", "ClusterFirst");
    default_empty(spec, "restartPolicy", "Always");
    default(spec, "securityContext", Map::new());
    default(spec, "terminationGracePeriodSeconds", GRACE_SECONDS);
    default_empty(spec, "schedulerName", "default-scheduler");
    children(spec, "volumes").for_each(volume);
    for list in CONTAINER_LISTS {
        children(spec, list).for_each(container);
    }
}

/// Makes `serviceAccount`, the deprecated alias, equal to `serviceAccountName`.
fn alias(spec: &mut Map) {
    default_from(spec, "serviceAccountName", "serviceAccount");
    match spec.get("serviceAccountName").filter(|name| !name.is_empty()).cloned() {
        Some(name) => spec.insert("serviceAccount", name),
        None => spec.remove("serviceAccount"),
    };
}

fn default_from(map: &mut Map, name: &'static str, from: &str) {
    if let Some(value) = map.get(from).filter(|value| !value.is_empty()).cloned() {
        default_empty(map, name, value);
    }
}

fn container(container: &mut Map) {
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let policy = pull_policy(image);
    default_empty(container, "imagePullPolicy", policy);
    default_empty(container, "terminationMessagePath", "/dev/termination-log");
    default_empty(container, "terminationMessagePolicy", "File");
    for variable in children(container, "env") {
        if let Some(source) = child(variable, "valueFrom") {
            value_source(source);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(found) = child(container, name) {
            probe(found);
        }
    }
    if let Some(lifecycle) = child(container, "lifecycle") {
        for name in ["postStart", "preStop"] {
            if let Some(get) = child(lifecycle, name).and_then(|hook| child(hook, "httpGet")) {
                http_get(get);
            }
        }
    }
}

fn value_source(source: &mut Map) {
    if let Some(field) = child(source, "fieldRef") {
        default_empty(field, "apiVersion", "v1");
    }
    if let Some(resource) = child(source, "resourceFieldRef") {
        default(resource, "divisor", "0");
    }
}

fn probe(probe: &mut Map) {
    default_empty(probe, "timeoutSeconds", 1);
    default_empty(probe, "periodSeconds", 10);
    default_empty(probe, "successThreshold", 1);
    default_empty(probe, "failureThreshold", 3);
    if let Some(get) = child(probe, "httpGet") {
        http_get(get);
    }
    if let Some(grpc) = child(probe, "grpc") {
        default(grpc, "service", "");
    }
}

fn http_get(get: &mut Map) {
    default_empty(get, "path", "/");
    default_empty(get, "scheme", "HTTP");
}

/// Returns the default pull policy: `Always` for the tag `latest`.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if image_tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

/// Bytes of an image's name without its registry and tag.
const REPOSITORY_BYTES_MAX: usize = 255;

/// Returns the length of an image name without its registry; a single word gets the prefix
/// `library/`.
fn repository_bytes(name: &str) -> usize {
    match name.split_once('/') {
        None => "library/".len() + name.len(),
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => rest.len(),
        Some(_) => name.len(),
    }
}

/// Returns whether a part of an image path is valid: words separated by a period, one or two
/// underscores, or any number of dashes.
fn is_path_component(part: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let mut separators = part.split(|c: char| c.is_ascii() && is_word(c as u8));
    let ends = [part.bytes().next(), part.bytes().last()];
    ends.iter().all(|end| end.is_some_and(is_word))
        && separators.all(|between| {
            matches!(between, "" | "." | "_" | "__") || between.bytes().all(|b| b == b'-')
        })
}

/// Returns whether the first part of an image name is a registry host, with an optional port.
fn is_registry(part: &str) -> bool {
    let (host, port) = part.rsplit_once(':').unwrap_or((part, "0"));
    let is_word = |word: &str| {
        !word.starts_with('-')
            && !word.ends_with('-')
            && !word.is_empty()
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let is_address = host.starts_with('[')
        && host.ends_with(']')
        && host[1..host.len() - 1].bytes().all(|b| b.is_ascii_hexdigit() || b == b':');
    let is_port = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    is_port && (is_address || host.split('.').all(is_word))
}

/// Returns the tag of an image; `latest` when it has neither a tag nor a digest; `None` when the
/// name is invalid.
fn image_tag(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last = name.rfind('/').map_or(0, |at| at + 1);
    let (name, tag) = match name[last..].split_once(':') {
        Some((base, tag)) => (&name[..last + base.len()], Some(tag)),
        None => (name, None),
    };
    let host = |part: &str| (part.contains(['.', ':']) || part == "localhost") && is_registry(part);
    let mut parts = name.split('/').enumerate();
    let is_fine = parts.all(|(i, part)| {
        !part.is_empty() && ((i == 0 && host(part) && last > 0) || is_path_component(part))
    });
    let is_identifier =
        image.len() == 64 && image.bytes().all(|b| b"0123456789abcdef".contains(&b));
    let is_long = repository_bytes(name) > REPOSITORY_BYTES_MAX;
    if name.is_empty() || !is_fine || is_identifier || is_long {
        return None;
    }
    match (tag, digest) {
        (Some(tag), _) => Some(tag),
        (None, Some(_)) => Some(""),
        (None, None) => Some("latest"),
    }
}

/// Sets the defaults of a volume. One without a source becomes an `emptyDir`.
fn volume(volume: &mut Map) {
    if !volume.iter().any(|(key, value)| key != "name" && !value.is_null()) {
        volume.insert("emptyDir", Map::new());
    }
    for name in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = child(volume, name) {
            default(source, "defaultMode", FILE_MODE);
            children(source, "items").for_each(value_source);
        }
    }
    if let Some(projected) = child(volume, "projected") {
        children(projected, "sources").for_each(projection);
    }
    if let Some(path) = child(volume, "hostPath") {
        default(path, "type", "");
    }
    if let Some(ephemeral) = child(volume, "ephemeral")
        && let Some(claim) = child(ephemeral, "volumeClaimTemplate")
    {
        default(claim.object_at("spec"), "volumeMode", "Filesystem");
    }
    if let Some(image) = child(volume, "image") {
        let reference = image.get("reference").and_then(Value::as_str).unwrap_or_default();
        let policy = pull_policy(reference);
        default_empty(image, "pullPolicy", policy);
    }
}

fn projection(source: &mut Map) {
    if let Some(token) = child(source, "serviceAccountToken") {
        default(token, "expirationSeconds", 3600);
    }
    if let Some(certificate) = child(source, "podCertificate") {
        default(certificate, "maxExpirationSeconds", 86400);
    }
    if let Some(downward) = child(source, "downwardAPI") {
        children(downward, "items").for_each(value_source);
    }
}

/// Sets missing requests to the limits.
fn requests_from_limits(resources: &mut Map) {
    let Some(limits) = resources.get("limits").and_then(Value::as_object).cloned() else {
        return;
    };
    let requests = resources.object_at("requests");
    requests.fill(limits);
    if requests.is_empty() {
        resources.remove("requests");
    }
}

/// Sets the pod-level requests of a pod with limits: the total of its containers, else the limit.
fn pod_requests(spec: &mut Map) {
    let Some(limits) = spec.get("resources").and_then(|v| v.get("limits")).cloned() else {
        return;
    };
    let totals = super::resources::total_requests(spec);
    let Some(resources) = child(spec, "resources") else { return };
    let requests = resources.object_at("requests");
    let is_whole = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    let totals = totals.into_iter().filter(|(name, _)| is_whole(name));
    requests.fill(totals.map(|(name, total)| (name, Value::from(total.to_string()))));
    if let Value::Object(limits) = limits {
        requests.fill(limits.into_iter().filter(|(name, _)| is_whole(name)));
    }
}

fn host_ports(spec: &mut Map) {
    for list in ["initContainers", "containers"] {
        for container in children(spec, list) {
            for port in children(container, "ports") {
                default_from(port, "hostPort", "containerPort");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_whose_tag_moves_is_pulled_always() {
        let check =
            |image: &str, expected: &str| assert_eq!(pull_policy(image), expected, "{image}");
        check("nginx", "Always");
        check("nginx:latest", "Always");
        check("nginx:1.25", "IfNotPresent");
        check("registry.example.com:5000/a/b", "Always");
        check("registry.example.com:5000/a/b:1", "IfNotPresent");
        check("nginx@sha256:0123", "IfNotPresent");
        check("Not An Image", "IfNotPresent");
        check("", "IfNotPresent");
    }
}
