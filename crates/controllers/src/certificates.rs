//! The loops for CertificateSigningRequests: approving those of kubelets, signing approved ones,
//! and deleting old ones.

mod approving;
mod cleaning;
mod signing;

pub(crate) use approving::run as approve;
pub(crate) use cleaning::run as clean;
pub use signing::Signing;
pub(crate) use signing::run as sign;

use base64::Engine;
use keelson_auth::CertificateRequest;
use keelson_meta::{Object, Value};

const GROUP: &str = "certificates.k8s.io";
const RESOURCE: &str = "certificatesigningrequests";
const KUBELET_CLIENT: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const KUBELET_SERVING: &str = "kubernetes.io/kubelet-serving";
const API_SERVER_CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const LEGACY_UNKNOWN: &str = "kubernetes.io/legacy-unknown";

/// Parses the PKCS #10 request of a CertificateSigningRequest.
fn request_of(csr: &Object) -> Result<CertificateRequest, String> {
    let text = csr.str_at(&["spec", "request"]);
    let pem = base64::engine::general_purpose::STANDARD.decode(text);
    CertificateRequest::read(&pem.map_err(|error| error.to_string())?)
}

fn usages_of(csr: &Object) -> Vec<&str> {
    csr.array_at(&["spec", "usages"]).iter().filter_map(Value::as_str).collect()
}

fn has_condition(csr: &Object, kind: &str) -> bool {
    let conditions = csr.array_at(&["status", "conditions"]);
    conditions.iter().any(|condition| condition.str_at(&["type"]) == Some(kind))
}

fn has_certificate(csr: &Object) -> bool {
    !csr.str_at(&["status", "certificate"]).is_empty()
}

fn add_condition(csr: &mut Object, condition: Value) {
    let status = csr.object_mut("status");
    if let Value::Array(all) = status.entry_or("conditions", || Value::Array(vec![])) {
        all.push(condition);
    }
}

/// Whether the usages are these, in any order. Key encipherment is optional, because not every type
/// of key supports it.
fn are_usages(usages: &[&str], wanted: &[&str]) -> bool {
    let optional = "key encipherment";
    usages.iter().all(|usage| *usage == optional || wanted.contains(usage))
        && wanted.iter().all(|usage| usages.contains(usage))
}

/// Returns why a request is not that of a kubelet for its client certificate.
fn kubelet_client_error(request: &CertificateRequest, usages: &[&str]) -> Option<&'static str> {
    let names = request.names;
    let checks = [
        (request.organizations != ["system:nodes"], "subject organization is not system:nodes"),
        (names.dns > 0, "DNS subjectAltNames are not allowed"),
        (names.email > 0, "Email subjectAltNames are not allowed"),
        (names.ip > 0, "IP subjectAltNames are not allowed"),
        (names.uri > 0, "URI subjectAltNames are not allowed"),
        (
            !request.common_name.starts_with("system:node:"),
            "subject common name does not begin with system:node:",
        ),
        (
            !are_usages(usages, &["digital signature", "client auth"]),
            "usages did not match [client auth digital signature key encipherment]",
        ),
    ];
    checks.into_iter().find(|(is_violated, _)| *is_violated).map(|(_, why)| why)
}

/// Returns why a request is not that of a kubelet for its serving certificate.
fn kubelet_serving_error(request: &CertificateRequest, usages: &[&str]) -> Option<&'static str> {
    let names = request.names;
    let checks = [
        (request.organizations != ["system:nodes"], "subject organization is not system:nodes"),
        (names.dns + names.ip == 0, "DNS or IP subjectAltName is required"),
        (names.email > 0, "Email subjectAltNames are not allowed"),
        (names.uri > 0, "URI subjectAltNames are not allowed"),
        (
            !request.common_name.starts_with("system:node:"),
            "subject common name does not begin with system:node:",
        ),
        (
            !are_usages(usages, &["digital signature", "server auth"]),
            "usages did not match [digital signature key encipherment server auth]",
        ),
    ];
    checks.into_iter().find(|(is_violated, _)| *is_violated).map(|(_, why)| why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_auth::NameCounts;

    #[test]
    fn a_kubelet_asks_for_what_a_node_needs() {
        let request = |organization: &str, name: &str, names: NameCounts| {
            let mut request = CertificateRequest::default();
            request.organizations = vec![organization.to_owned()];
            request.common_name = name.to_owned();
            request.names = names;
            request
        };
        let none = NameCounts::default();
        let ip = NameCounts { ip: 1, ..none };
        let client = ["client auth", "digital signature"];
        let check = |request: CertificateRequest, usages: &[&str], want: Option<&str>| {
            assert_eq!(kubelet_client_error(&request, usages), want);
        };
        check(request("system:nodes", "system:node:a", none), &client, None);
        let more = ["client auth", "digital signature", "key encipherment"];
        check(request("system:nodes", "system:node:a", none), &more, None);
        let organization = Some("subject organization is not system:nodes");
        check(request("system:masters", "system:node:a", none), &client, organization);
        let name = Some("subject common name does not begin with system:node:");
        check(request("system:nodes", "admin", none), &client, name);
        let ips = Some("IP subjectAltNames are not allowed");
        check(request("system:nodes", "system:node:a", ip), &client, ips);
        let usages = Some("usages did not match [client auth digital signature key encipherment]");
        check(request("system:nodes", "system:node:a", none), &["client auth"], usages);
        let serving = ["server auth", "digital signature"];
        let node = request("system:nodes", "system:node:a", ip);
        assert_eq!(kubelet_serving_error(&node, &serving), None);
        let node = request("system:nodes", "system:node:a", none);
        let want = Some("DNS or IP subjectAltName is required");
        assert_eq!(kubelet_serving_error(&node, &serving), want);
    }
}
