//! RBAC escalation check: a user who writes a role or binding must hold the permissions that it
//! grants, or have the permission `escalate` or `bind`. Applies to create, update, patch and apply.

use keelson_auth::rbac::{self, RoleKind, RoleRef, Rule};
use keelson_auth::{Attributes, MASTERS};
use keelson_meta::{Failure, GroupVersionResource, Map, Object, Reason, Status, Str, Value};
use keelson_registry::hooks::Guard;
use keelson_registry::{Registry, Write};
use keelson_store::BoxFuture;

/// The guard of roles and bindings.
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

/// Rejects a write of a role or binding that grants more than the user holds.
async fn check_escalation(
    registry: &Registry,
    write: &Write<'_>,
    obj: &Object,
) -> Result<(), Failure> {
    let user = write.permit.user();
    let is_exempt = write.permit.attributes().is_none() || user.is_in(MASTERS);
    if is_exempt || write.old.is_some_and(|old| changes_only_gc_fields(obj, old)) {
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
    let attributes = write.permit.attributes();
    let name = attributes.map(|attributes| attributes.name.clone()).unwrap_or_default();
    if is_allowed(registry, write, "escalate", &gvr.resource, &name).await {
        return Ok(());
    }
    check_grant(registry, write, role, &rbac::rules_of(role.array_at(&["rules"]))).await?;
    let aggregates = |role: &Object| role.get("aggregationRule").is_some_and(|r| !r.is_null());
    if aggregates(role) || write.old.is_some_and(aggregates) {
        let (held, _) = held_rules(registry, write).await?;
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
    if !resource.is_empty() && is_allowed(registry, write, "bind", resource, &role.name).await {
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

/// Returns 403 unless the user holds all of `rules`.
async fn check_grant(
    registry: &Registry,
    write: &Write<'_>,
    obj: &Object,
    rules: &[Rule],
) -> Result<(), Failure> {
    let (held, errors) = held_rules(registry, write).await?;
    match rbac::escalation_message(write.permit.user(), &held, &errors, rules) {
        None => Ok(()),
        Some(why) => Err(Status::forbidden(write.target.gvr(), obj.name(), &why)),
    }
}

/// Returns the rules that apply to the user in the namespace of the write, and the errors of rules
/// that could not be resolved.
async fn held_rules(
    registry: &Registry,
    write: &Write<'_>,
) -> Result<(Vec<Rule>, Vec<String>), Failure> {
    let rbac = registry.options.authorizer.rbac();
    rbac.current().await?;
    let (rules, errors) = rbac.index().rules_for(write.permit.user(), &write.target.namespace);
    let resource = &write.target.gvr().resource;
    Ok((rules, errors.iter().map(|error| error.message_for_write(resource)).collect()))
}

/// Returns whether the user has the permission `escalate` or `bind` for a role.
async fn is_allowed(
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

/// Returns whether only finalizers and owner references differ (apiserver
/// `IsOnlyMutatingGCFields`).
fn changes_only_gc_fields(new: &Object, old: &Object) -> bool {
    let rest = |obj: &Object| {
        let mut obj = obj.clone();
        for name in ["ownerReferences", "finalizers", "managedFields"] {
            obj.metadata_mut().remove(name);
        }
        remove_empty(&mut obj.root);
        obj
    };
    rest(new) == rest(old)
}

/// Removes fields with empty values, which equal absent ones.
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
