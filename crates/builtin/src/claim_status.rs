//! The rights to write the status of ResourceClaims: the allocation and the reservations require
//! `resourceclaims/binding`, the devices of a driver `resourceclaims/driver` (feature gate
//! `DRAResourceClaimGranularStatusAuthorization`).

use keelson_auth::{Attributes, AuthorizationReason, forbidden};
use keelson_meta::{
    ErrorList, Failure, Feature, FieldError, GroupVersionResource, Object, Path, Value,
};
use keelson_registry::hooks::Guard;
use keelson_registry::{Registry, Write};
use keelson_store::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};

/// The field of a user that names the node of the Pod whose token it has.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// The guard of ResourceClaims.
pub(crate) struct ClaimStatus;

impl Guard for ClaimStatus {
    fn check<'a>(
        &'a self,
        registry: &'a Registry,
        write: &'a Write<'a>,
        obj: &'a Object,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(check_status(registry, write, obj))
    }
}

async fn check_status(registry: &Registry, write: &Write<'_>, new: &Object) -> Result<(), Failure> {
    let gate = Feature::DRAResourceClaimGranularStatusAuthorization;
    let (Some(old), Some(given)) = (write.old, write.permit.attributes()) else { return Ok(()) };
    if write.subresource != "status" || !registry.options.features.is_on(gate) {
        return Ok(());
    }
    let status = Path::new("status");
    let mut errors = ErrorList::new();
    let same = |field: &str| old.at(&["status", field]) == new.at(&["status", field]);
    if !(same("allocation") && same("reservedFor")) {
        let attributes = Attributes { subresource: "binding".into(), ..of_claims(&given.verb) };
        if let Err(why) = allowed(registry, write, &[attributes]).await {
            let why = format!(
                "changing status.allocation or status.reservedFor requires \
                 resource=\"resourceclaims/binding\", verb=\"{}\" permission: {why}",
                given.verb
            );
            errors.push(FieldError::forbidden(&status.field("allocation"), &why));
        }
    }
    for driver in changed_drivers(old, new) {
        let verbs = driver_verbs(write, old, &given.verb);
        let attributes: Vec<Attributes> = verbs
            .iter()
            .map(|verb| Attributes {
                subresource: "driver".into(),
                namespace: old.namespace().into(),
                name: driver.into(),
                ..of_claims(verb)
            })
            .collect();
        if let Err(why) = allowed(registry, write, &attributes).await {
            let why = format!(
                "changing status.devices requires resource=\"resourceclaims/driver\", \
                 verb=\"[{}]\" permission: {why}",
                verbs.join(" ")
            );
            errors.push(FieldError::forbidden(&status.field("devices"), &why));
        }
    }
    errors.into_result("resource.k8s.io", "ResourceClaim", old.name())
}

fn of_claims(verb: &str) -> Attributes {
    let gvr = GroupVersionResource::new("resource.k8s.io", "*", "resourceclaims");
    Attributes { verb: verb.into(), gvr, ..Attributes::default() }
}

/// Checks that the user has one of some rights. The error is why not the first one.
async fn allowed(
    registry: &Registry,
    write: &Write<'_>,
    any_of: &[Attributes],
) -> Result<(), String> {
    let user = write.permit.user();
    for attributes in any_of {
        if registry.options.authorizer.allows(user, attributes).await {
            return Ok(());
        }
    }
    let refused =
        any_of.first().map(|first| forbidden(user, first, &AuthorizationReason::Empty).message);
    Err(refused.unwrap_or_default())
}

/// Returns the verbs of which a user needs one to write the devices of a driver. For users on the
/// node to which the claim is allocated, such as the driver's Pod there, there is a weaker one.
fn driver_verbs(write: &Write<'_>, old: &Object, verb: &str) -> Vec<String> {
    let user = write.permit.user();
    let nodes = user
        .extra
        .iter()
        .find(|(name, _)| name == NODE_NAME)
        .map(|(_, nodes)| nodes.as_slice())
        .unwrap_or_default();
    let is_associated = user.name.starts_with("system:serviceaccount:")
        && matches!(nodes, [node] if allocated_node(old) == Some(node));
    let associated = is_associated.then(|| format!("associated-node:{verb}"));
    associated.into_iter().chain([format!("arbitrary-node:{verb}")]).collect()
}

/// Returns the only node on which an allocation can be used.
fn allocated_node(claim: &Object) -> Option<&str> {
    let terms = claim.at(&["status", "allocation", "nodeSelector", "nodeSelectorTerms"])?;
    let [term] = terms.as_array()? else { return None };
    let [field] = term.array_at(&["matchFields"]) else { return None };
    let [node] = field.array_at(&["values"]) else { return None };
    let selects_name = field.str_at(&["key"]) == Some("metadata.name")
        && field.str_at(&["operator"]) == Some("In");
    node.as_str().filter(|_| selects_name)
}

/// Returns the drivers of which a device status was added, changed or removed, in order. The end of
/// an allocation removes the devices, too, and requires only the right for that.
fn changed_drivers<'o>(old: &'o Object, new: &'o Object) -> BTreeSet<&'o str> {
    let allocation = |claim: &Object| claim.at(&["status", "allocation"]).is_some();
    if allocation(old) && !allocation(new) {
        return BTreeSet::new();
    }
    let before = devices(old);
    let after = devices(new);
    let ids = before.keys().chain(after.keys());
    let changed = ids.filter(|id| before.get(*id) != after.get(*id));
    changed.map(|id| id[0]).collect()
}

/// Returns the device statuses of a claim by driver, pool, device and share.
fn devices(claim: &Object) -> BTreeMap<[&str; 4], &Value> {
    let devices = claim.array_at(&["status", "devices"]).iter();
    devices
        .map(|device| {
            let names = ["driver", "pool", "device", "shareID"];
            (names.map(|name| device.str_at(&[name]).unwrap_or_default()), device)
        })
        .collect()
}
