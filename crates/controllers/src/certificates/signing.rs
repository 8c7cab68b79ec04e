//! The signer: signs approved requests for Kubernetes' own signers.

use super::{
    API_SERVER_CLIENT, GROUP, KUBELET_CLIENT, KUBELET_SERVING, LEGACY_UNKNOWN, RESOURCE,
    add_condition, has_certificate, has_condition, kubelet_client_error, kubelet_serving_error,
    request_of, usages_of,
};
use base64::Engine;
use keelson_auth::x509::Validity;
use keelson_auth::{CertificateAuthority, CertificateRequest};
use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str, value};
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use std::sync::Arc;
use std::time::Duration;

/// How long before now a certificate becomes valid, for clocks that are slow.
const BACKDATED_SECONDS: i64 = 300;
/// Certificates that last shorter than this get their full duration from now on; that of others
/// counts from the backdated begin.
const SHORT_SECONDS: i64 = 8 * 60 * 60;
const DURATION_SECONDS_MIN: i64 = 600;

/// The CA of each signer.
#[derive(Debug)]
pub struct Signing {
    /// `kubernetes.io/kube-apiserver-client`.
    pub api_server_client: Option<Arc<CertificateAuthority>>,
    /// `kubernetes.io/kube-apiserver-client-kubelet`.
    pub kubelet_client: Option<Arc<CertificateAuthority>>,
    /// `kubernetes.io/kubelet-serving`.
    pub kubelet_serving: Option<Arc<CertificateAuthority>>,
    /// `kubernetes.io/legacy-unknown`.
    pub legacy_unknown: Option<Arc<CertificateAuthority>>,
    /// The default and maximum duration of certificates.
    pub duration: Duration,
}

impl Signing {
    fn authority(&self, signer: &str) -> Option<&CertificateAuthority> {
        let authority = match signer {
            API_SERVER_CLIENT => &self.api_server_client,
            KUBELET_CLIENT => &self.kubelet_client,
            KUBELET_SERVING => &self.kubelet_serving,
            LEGACY_UNKNOWN => &self.legacy_unknown,
            _ => return None,
        };
        authority.as_deref()
    }

    /// Returns the validity of a certificate that is signed at `now`, in seconds since 1970.
    fn validity(&self, requested: Option<i64>, now: i64) -> Validity {
        let longest = i64::try_from(self.duration.as_secs()).unwrap_or(i64::MAX);
        let seconds =
            requested.map_or(longest, |requested| requested.max(DURATION_SECONDS_MIN).min(longest));
        let not_before = now.saturating_sub(BACKDATED_SECONDS);
        let from = if seconds < SHORT_SECONDS { now } else { not_before };
        Validity { not_before, not_after: from.saturating_add(seconds) }
    }
}

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>, signing: Arc<Signing>) {
    let client = Client::new(&registry, "certificate-controller");
    control_loop::run(&registry, Signer { client, signing }).await;
}

struct Signer {
    client: Client,
    signing: Arc<Signing>,
}

/// Queues every request that was created or updated.
pub(super) fn observe(events: &[InformerEvent], queue: &mut Queue<Str>) {
    for event in events {
        match event {
            InformerEvent::Listed(_, all) => {
                queue.extend(all.range("", "").map(|entry| entry.name().into()));
            }
            InformerEvent::Put { entry, .. } => queue.add(entry.name().into()),
            InformerEvent::Deleted { .. } | InformerEvent::Withdrawn(_) => {}
        }
    }
}

impl ControlLoop for Signer {
    /// The name of a CertificateSigningRequest.
    type Key = Str;
    const NAME: &'static str = "certificatesigningrequest-signing-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[(GROUP, RESOURCE)]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        observe(&events, queue);
        false
    }

    async fn sync(&self, name: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind(GROUP, RESOURCE) else { return Ok(None) };
        let target = Target::of(&kind, "", &name);
        let known = self.client.registry.cached(&kind, "", &name);
        let Some(entry) = known else { return Ok(None) };
        let mut csr = kind.decode(&entry)?;
        let signer = csr.str_at(&["spec", "signerName"]).to_owned();
        let Some(authority) = self.signing.authority(&signer) else { return Ok(None) };
        let is_approved = has_condition(&csr, "Approved") && !has_condition(&csr, "Denied");
        if !is_approved || has_certificate(&csr) || has_condition(&csr, "Failed") {
            return Ok(None);
        }
        let request = match request_of(&csr) {
            Ok(request) => request,
            Err(error) => {
                tracing::warn!(%name, error, "certificate request cannot be read; not signed");
                return Ok(None);
            }
        };
        if let Some(why) = validation_error(&signer, &request, &usages_of(&csr)) {
            let condition = value!({"type": "Failed", "status": "True",
                "reason": "SignerValidationFailure", "message": why});
            add_condition(&mut csr, condition);
        } else {
            let Some(certificate) = self.certificate(authority, &csr, &request) else {
                tracing::error!(%name, signer, "the authority's certificate cannot be read; not signed");
                return Ok(None);
            };
            csr.object_mut("status").insert("certificate", certificate);
        }
        ignore_terminating(self.client.update(&target, Subresource::Status, csr).await)?;
        Ok(None)
    }
}

impl Signer {
    /// Signs the certificate and encodes it as `status.certificate`: PEM in base64.
    fn certificate(
        &self,
        authority: &CertificateAuthority,
        csr: &Object,
        request: &CertificateRequest,
    ) -> Option<String> {
        let requested = csr.int_at(&["spec", "expirationSeconds"]);
        let validity = self.signing.validity(requested, self.client.now().seconds);
        let serial = self.client.registry.clock.random();
        let pem = authority.sign(request, &usages_of(csr), serial, validity)?;
        Some(base64::engine::general_purpose::STANDARD.encode(pem))
    }
}

/// Returns why a signer refuses a request.
fn validation_error(signer: &str, request: &CertificateRequest, usages: &[&str]) -> Option<String> {
    match signer {
        KUBELET_CLIENT => kubelet_client_error(request, usages).map(str::to_owned),
        KUBELET_SERVING => kubelet_serving_error(request, usages).map(str::to_owned),
        API_SERVER_CLIENT => {
            let is_allowed = |usage: &&&str| {
                matches!(**usage, "digital signature" | "key encipherment" | "client auth")
            };
            match usages.iter().find(|usage| !is_allowed(usage)) {
                Some(usage) => Some(format!("invalid usage for client certificate: {usage}")),
                None if !usages.contains(&"client auth") => {
                    Some("missing required usage for client certificate: client auth".to_owned())
                }
                None => None,
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_last_as_long_as_asked_within_bounds() {
        let signing = Signing {
            api_server_client: None,
            kubelet_client: None,
            kubelet_serving: None,
            legacy_unknown: None,
            duration: Duration::from_secs(100_000),
        };
        let check = |requested: Option<i64>, want: (i64, i64)| {
            let Validity { not_before, not_after } = signing.validity(requested, 1_000_000);
            assert_eq!((not_before, not_after), want, "{requested:?}");
        };
        check(None, (999_700, 1_099_700));
        check(Some(200_000), (999_700, 1_099_700));
        check(Some(50_000), (999_700, 1_049_700));
        // Short certificates get their full duration.
        check(Some(3600), (999_700, 1_003_600));
        check(Some(1), (999_700, 1_000_600));
    }
}
