//! The approver: approves kubelets' requests for client certificates if their user is authorized.

use super::{
    GROUP, KUBELET_CLIENT, RESOURCE, add_condition, has_certificate, has_condition,
    kubelet_client_error, request_of, usages_of,
};
use keelson_auth::{Attributes, User};
use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, GroupVersionResource, Object, Str, Value, value};
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use std::sync::Arc;
use std::time::Duration;

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "certificate-controller");
    control_loop::run(&registry, Approver { client }).await;
}

struct Approver {
    client: Client,
}

impl ControlLoop for Approver {
    /// The name of a CertificateSigningRequest.
    type Key = Str;
    const NAME: &'static str = "certificatesigningrequest-approving-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[(GROUP, RESOURCE)]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        super::signing::observe(&events, queue);
        false
    }

    async fn sync(&self, name: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind(GROUP, RESOURCE) else { return Ok(None) };
        let target = Target::of(&kind, "", &name);
        let known = self.client.registry.cached(&kind, "", &name);
        let Some(entry) = known else { return Ok(None) };
        let mut csr = kind.decode(&entry)?;
        if csr.str_at(&["spec", "signerName"]) != KUBELET_CLIENT
            || has_certificate(&csr)
            || has_condition(&csr, "Approved")
            || has_condition(&csr, "Denied")
        {
            return Ok(None);
        }
        let request = match request_of(&csr) {
            Ok(request) => request,
            Err(error) => {
                tracing::debug!(%name, error, "certificate request cannot be read; not approved");
                return Ok(None);
            }
        };
        if kubelet_client_error(&request, &usages_of(&csr)).is_some() {
            return Ok(None);
        }
        let is_own = csr.str_at(&["spec", "username"]) == request.common_name;
        let own = (
            "selfnodeclient",
            "Auto approving self kubelet client certificate after SubjectAccessReview.",
        );
        let any =
            ("nodeclient", "Auto approving kubelet client certificate after SubjectAccessReview.");
        let rules = if is_own { &[own, any][..] } else { &[any] };
        for (permission, message) in rules {
            if self.is_authorized(&csr, permission).await {
                add_condition(
                    &mut csr,
                    value!({"type": "Approved", "status": "True", "reason": "AutoApproved",
                        "message": (*message)}),
                );
                let subresource = Subresource::Other("approval");
                ignore_terminating(self.client.update(&target, subresource, csr).await)?;
                return Ok(None);
            }
        }
        tracing::info!(%name, "kubelet's certificate request not approved: its user is not authorized");
        Ok(None)
    }
}

impl Approver {
    /// Whether the requester is authorized for this subresource of CertificateSigningRequests.
    async fn is_authorized(&self, csr: &Object, permission: &'static str) -> bool {
        let attributes = Attributes {
            verb: Str::new_static("create"),
            gvr: GroupVersionResource::new(GROUP, "v1", RESOURCE),
            subresource: Str::new_static(permission),
            ..Attributes::default()
        };
        self.client.registry.options.authorizer.allows(&requester(csr), &attributes).await
    }
}

/// Returns the user who created a request.
fn requester(csr: &Object) -> User {
    let texts = |values: &[Value]| -> Vec<Str> {
        values.iter().filter_map(Value::as_str).map(Str::new).collect()
    };
    let extra = csr
        .at(&["spec", "extra"])
        .and_then(Value::as_object)
        .into_iter()
        .flat_map(|extra| extra.iter());
    User {
        name: csr.str_at(&["spec", "username"]).into(),
        uid: csr.str_at(&["spec", "uid"]).into(),
        groups: texts(csr.array_at(&["spec", "groups"])).into(),
        extra: extra
            .map(|(name, values)| (name.clone(), texts(values.as_array().unwrap_or_default())))
            .collect(),
    }
}
