//! The admission plug-ins that are asynchronous: those that call webhooks, ask authorizers or
//! evaluate policies.

use crate::attributes::DynamicPlugIn;
use crate::chain::Chain;
use crate::plug_ins::{
    ClusterTrustBundleAttest, ImagePolicyWebhook, MUTATING_POLICIES,
    OwnerReferencesPermissionEnforcement,
};
use crate::policies::{MutatingPolicies, ValidatingPolicies};
use crate::webhooks::{MutatingWebhooks, ValidatingWebhooks};
use keelson_egress::Egress;
use keelson_meta::{Feature, Features};
use std::sync::Arc;

/// Returns the admission functions of the embedding program, then the enabled plug-ins in
/// kube-apiserver's order.
pub fn dynamic_plug_ins(
    chain: &Chain,
    features: Features,
    in_process: &[Arc<dyn DynamicPlugIn>],
    egress: &Arc<Egress>,
) -> Vec<Arc<dyn DynamicPlugIn>> {
    let credentials = |plug_in: &str| chain.config().webhook_credentials(plug_in);
    let images = ImagePolicyWebhook::new(egress.clone(), chain.config().image_policy())
        .map(|plug_in| Arc::new(plug_in) as Arc<dyn DynamicPlugIn>);
    let others: [Arc<dyn DynamicPlugIn>; 5] = [
        Arc::new(OwnerReferencesPermissionEnforcement),
        Arc::new(MutatingPolicies),
        Arc::new(MutatingWebhooks::new(egress.clone(), credentials("MutatingAdmissionWebhook"))),
        Arc::new(ValidatingPolicies),
        Arc::new(ValidatingWebhooks::new(
            egress.clone(),
            credentials("ValidatingAdmissionWebhook"),
        )),
    ];
    let attest = features
        .is_on(Feature::ClusterTrustBundle)
        .then(|| Arc::new(ClusterTrustBundleAttest) as Arc<dyn DynamicPlugIn>);
    let all = images.into_iter().chain(attest).chain(others);
    let mutates_by_policy = features.is_on(Feature::MutatingAdmissionPolicy);
    let enabled = all.filter(|plug_in| {
        chain.has(plug_in.name()) && (mutates_by_policy || plug_in.name() != MUTATING_POLICIES)
    });
    in_process.iter().cloned().chain(enabled).collect()
}
