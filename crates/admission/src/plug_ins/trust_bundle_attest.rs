//! ClusterTrustBundleAttest: writing a signer's ClusterTrustBundle requires the `attest` permission
//! for the signer.

use crate::attributes::{BoxFuture, Call, DynamicPlugIn, Recorder};
use crate::request::Operation;
use keelson_meta::status::quote;
use keelson_meta::{Failure, Object, Status};

/// The plug-in. Only relevant if ClusterTrustBundles are served.
pub struct ClusterTrustBundleAttest;

/// The plug-in's name.
pub(crate) const NAME: &str = "ClusterTrustBundleAttest";

impl DynamicPlugIn for ClusterTrustBundleAttest {
    fn name(&self) -> &'static str {
        NAME
    }

    fn validate<'a>(
        &'a self,
        call: &'a Call<'a>,
        object: Option<&'a Object>,
        _recorder: &'a mut Recorder,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let attributes = call.attributes;
            let resource = attributes.resource;
            let is_bundle = resource.group == "certificates.k8s.io"
                && resource.resource == "clustertrustbundles"
                && matches!(attributes.operation, Operation::Create | Operation::Update);
            match object {
                Some(object) if is_bundle => check(call, object).await,
                _ => Ok(()),
            }
        })
    }
}

async fn check(call: &Call<'_>, object: &Object) -> Result<(), Failure> {
    let attributes = call.attributes;
    let signer = object.str_at(&["spec", "signerName"]);
    let is_gc_update = attributes.old.is_some_and(|old| changes_only_gc_fields(object, old));
    if signer.is_empty()
        || is_gc_update
        || call.api.authorizer().allows_signer(attributes.user, "attest", signer).await
    {
        return Ok(());
    }
    let why = format!("user not permitted to attest for signerName {}", quote(signer));
    Err(Status::forbidden(attributes.resource, attributes.name_of(object), &why))
}

/// Returns whether only finalizers and owner references differ (apiserver
/// `IsOnlyMutatingGCFields`).
fn changes_only_gc_fields(new: &Object, old: &Object) -> bool {
    let rest = |object: &Object| {
        let mut rest = object.clone();
        for field in ["finalizers", "ownerReferences", "managedFields"] {
            rest.metadata_mut().remove(field);
        }
        rest
    };
    rest(new) == rest(old)
}
