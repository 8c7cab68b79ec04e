//! Roles and bindings: who writes one must hold the permissions that it grants, or be allowed to `escalate`
//! or `bind`. Asked of every way to write one: create, update, patch, apply.

use keelson_auth::rbac::{self, RoleKind, RoleRef, Rule};
use keelson_auth::{Attributes, MASTERS};
use keelson_meta::{Failure, GroupVersionResource, Map, Object, Reason, Status, Str, Value};
use keelson_registry::hooks::Guard;
use keelson_registry::{Registry, Write};
use keelson_store::BoxFuture;

/// Of roles and bindings.
pub(crate) struct Escalation;

impl Guard for Escalation {
    fn check<'a>(
        &'a self,
        registry: &'a Registry,
        write: &'a Write<'a>,
        obj: &'a Object,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(check_escalation(registry, write, obj))
    }
}

/// Refuses a write of a role or binding that grants more than the writer holds.
async fn check_escalation(
    registry: &Registry,
    write: &Write<'_>,
    obj: &Object,
) -> Result<(), Failure> {
    let user = write.permit.user();
    let is_exempt = write.permit.attributes().is_none() || user.is_in(MASTERS);
    if is_exempt || write.old.is_some_and(|old| differs_for_deletion_only(obj, old)) {
        return Ok(());
    }
    match write.target.gvr().resource.as_str() {
        "roles" | "clusterroles" => check_role(registry, write, obj).await,
        "rolebindings" | "clusterrolebindings" => check_binding(registry, write, obj).await,
        _ => Ok(()),
    }
}

async fn check_role(registry: &Registry, write: &Write<'_>, role: &Object) -> Result<(), Failure> {
    let gvr = write.target.gvr();
    let asked = write.permit.attributes();
    let name = asked.map(|asked| asked.name.clone()).unwrap_or_default();
    if may(registry, write, "escalate", &gvr.resource, &name).await {
        return Ok(());
    }
    check_grant(registry, write, role, &rbac::rules_of(role.array_at(&["rules"]))).await?;
    let aggregates = |role: &Object| role.get("aggregationRule").is_some_and(|r| !r.is_null());
    if aggregates(role) || write.old.is_some_and(aggregates) {
        let (held, _) = held(registry, write).await?;
        if !rbac::covers(&held, &rbac::full_authority()) {
            let why = rbac::CLUSTER_ADMIN_NEEDED;
            return Err(Status::forbidden(gvr, role.name(), why));
        }
    }
    Ok(())
}

async fn check_binding(
    registry: &Registry,
    write: &Write<'_>,
    binding: &Object,
) -> Result<(), Failure> {
    let gvr = write.target.gvr();
    let role = RoleRef::of(binding);
    let resource = match role.kind {
        Ok(RoleKind::Role) => "roles",
        Ok(RoleKind::ClusterRole) => "clusterroles",
        Err(_) => "",
    };
    if !resource.is_empty() && may(registry, write, "bind", resource, &role.name).await {
        return Ok(());
    }
    let rbac = registry.options.authorizer.rbac();
    rbac.current().await?;
    let rules = rbac.index().role_rules(&role, &write.target.namespace).map(<[Rule]>::to_vec);
    match rules {
        Ok(rules) => check_grant(registry, write, binding, &rules).await,
        Err(_) if !resource.is_empty() => Err(Status::not_found(gvr, &role.name)),
        Err(error) => Err(Status::new(Reason::Unknown, error.to_string())),
    }
}

/// 403 unless the writer holds all of `rules`.
async fn check_grant(
    registry: &Registry,
    write: &Write<'_>,
    obj: &Object,
    rules: &[Rule],
) -> Result<(), Failure> {
    let (held, errors) = held(registry, write).await?;
    match rbac::escalation_message(write.permit.user(), &held, &errors, rules) {
        None => Ok(()),
        Some(why) => Err(Status::forbidden(write.target.gvr(), obj.name(), &why)),
    }
}

/// The rules that apply to the writer where it writes, and what of them is missing.
async fn held(registry: &Registry, write: &Write<'_>) -> Result<(Vec<Rule>, Vec<String>), Failure> {
    let rbac = registry.options.authorizer.rbac();
    rbac.current().await?;
    let (rules, errors) = rbac.index().rules_for(write.permit.user(), &write.target.namespace);
    let resource = &write.target.gvr().resource;
    Ok((rules, errors.iter().map(|error| error.message_for_write(resource)).collect()))
}

/// Whether the writer may use one of RBAC's own verbs.
async fn may(
    registry: &Registry,
    write: &Write<'_>,
    verb: &str,
    resource: &str,
    name: &str,
) -> bool {
    let attributes = Attributes {
        verb: verb.into(),
        gvr: GroupVersionResource::new(rbac::GROUP, "*", Str::new(resource)),
        namespace: write.target.namespace.clone(),
        name: name.into(),
        ..Attributes::default()
    };
    registry.options.authorizer.allows(write.permit.user(), &attributes).await
}

/// Whether two versions differ only in what garbage collection writes.
fn differs_for_deletion_only(new: &Object, old: &Object) -> bool {
    let bare = |obj: &Object| {
        let mut obj = obj.clone();
        for name in ["ownerReferences", "finalizers", "managedFields"] {
            obj.metadata_mut().remove(name);
        }
        remove_empty(&mut obj.root);
        obj
    };
    bare(new) == bare(old)
}

/// Removes members that say as much as absent ones.
fn remove_empty(map: &mut Map) {
    map.retain(|_, value| {
        remove_empty_inside(value);
        !value.is_empty()
    });
}

fn remove_empty_inside(value: &mut Value) {
    match value {
        Value::Object(map) => remove_empty(map),
        Value::Array(items) => items.iter_mut().for_each(remove_empty_inside),
        _ => {}
    }
}
