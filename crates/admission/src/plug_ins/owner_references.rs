//! OwnerReferencesPermissionEnforcement: setting an owner requires the permission to delete the
//! object; setting `blockOwnerDeletion` requires the permission to update the owner's finalizers.

use crate::attributes::{BoxFuture, Call, DynamicPlugIn, Recorder};
use crate::request::Operation;
use keelson_meta::{Failure, GroupVersion, GroupVersionResource, Object, Status, Str, Value};
use std::collections::HashSet;

/// The plug-in.
pub struct OwnerReferencesPermissionEnforcement;

/// The plug-in's name.
pub(crate) const NAME: &str = "OwnerReferencesPermissionEnforcement";

impl DynamicPlugIn for OwnerReferencesPermissionEnforcement {
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
            let writes = matches!(call.attributes.operation, Operation::Create | Operation::Update);
            match object {
                Some(object) if writes => check(call, object).await,
                _ => Ok(()),
            }
        })
    }
}

async fn check(call: &Call<'_>, object: &Object) -> Result<(), Failure> {
    let attributes = call.attributes;
    let resource = attributes.resource;
    // Kubelets may update the status of pods that they may not delete.
    let is_pod_status = resource.group.is_empty()
        && resource.resource == "pods"
        && attributes.subresource == "status";
    let path = ["metadata", "ownerReferences"];
    let new = object.array_at(&path);
    let old = attributes.old.map_or(&[][..], |o| o.array_at(&path));
    if is_pod_status || new == old {
        return Ok(());
    }
    let forbidden =
        |why: String| Err(Status::forbidden(resource, attributes.name_of(object), &why));
    if attributes.operation != Operation::Create {
        let required = keelson_auth::Attributes {
            verb: Str::new_static("delete"),
            gvr: resource.clone(),
            subresource: attributes.subresource.into(),
            namespace: attributes.namespace.into(),
            name: attributes.name.into(),
            ..keelson_auth::Attributes::default()
        };
        if let Some(why) = denial(call, &required).await {
            return forbidden(format!(
                "cannot set an ownerRef on a resource you can't delete: {why}"
            ));
        }
    }
    let blocked: HashSet<&str> =
        old.iter().filter(|owner| is_blocking(owner)).map(|owner| text(owner, "uid")).collect();
    let newly_blocked: Vec<&Value> = new
        .iter()
        .filter(|owner| is_blocking(owner) && !blocked.contains(text(owner, "uid")))
        .collect();
    // A user who may update all finalizers may refer to owners of unknown kinds.
    if newly_blocked.is_empty() || denial(call, &update_all_finalizers()).await.is_none() {
        return Ok(());
    }
    for owner in newly_blocked {
        let Some(required) = update_finalizers(call, owner) else {
            let version = text(owner, "apiVersion");
            let kind = text(owner, "kind");
            return forbidden(format!(
                "cannot set blockOwnerDeletion in this case because cannot find RESTMapping for \
                 APIVersion {version} Kind {kind}: no matches for kind {kind:?} in version \
                 {version:?}"
            ));
        };
        if let Some(why) = denial(call, &required).await {
            return forbidden(format!(
                "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't \
                 set finalizers on: {why}"
            ));
        }
    }
    Ok(())
}

/// Returns why a user lacks a permission; `None` if it is granted.
async fn denial(call: &Call<'_>, required: &keelson_auth::Attributes) -> Option<String> {
    let decision = call.api.authorizer().decide(call.attributes.user, required).await;
    if decision.is_allowed() {
        return None;
    }
    let error = decision.error.as_ref().map_or("<nil>", |error| error.message.as_str());
    Some(format!("{}, {error}", decision.reason))
}

/// Returns the attributes of the permission to update the finalizers of all objects.
fn update_all_finalizers() -> keelson_auth::Attributes {
    keelson_auth::Attributes {
        verb: Str::new_static("update"),
        gvr: GroupVersionResource::new("*", "*", "*"),
        subresource: Str::new_static("finalizers"),
        name: Str::new_static("*"),
        ..keelson_auth::Attributes::default()
    }
}

/// Returns the attributes of the permission to update the finalizers of an owner; `None` if its
/// kind is not served.
fn update_finalizers(call: &Call<'_>, owner: &Value) -> Option<keelson_auth::Attributes> {
    let version = GroupVersion::parse(text(owner, "apiVersion"))?;
    let (gvr, namespaced): (GroupVersionResource, bool) =
        call.api.resource_of(&version.kind(text(owner, "kind")))?;
    Some(keelson_auth::Attributes {
        verb: Str::new_static("update"),
        gvr,
        subresource: Str::new_static("finalizers"),
        namespace: if namespaced { call.attributes.namespace.into() } else { Str::default() },
        name: text(owner, "name").into(),
        ..keelson_auth::Attributes::default()
    })
}

fn text<'v>(owner: &'v Value, name: &str) -> &'v str {
    owner.str_at(&[name]).unwrap_or_default()
}

fn is_blocking(owner: &Value) -> bool {
    owner.get("blockOwnerDeletion").and_then(Value::as_bool) == Some(true)
}
