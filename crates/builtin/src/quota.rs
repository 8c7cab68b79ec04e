//! ResourceQuotas: charged before an object is stored, and recounted by the resource quota
//! controller.
//!
//! A mutex for each namespace covers charging and storing an object, and recounting. So a recount
//! never misses an object that is charged but not yet stored, and a quota admits exactly its limit.
//! Servers that share a store do not share the mutexes.

use crate::keyed_mutex::{KeyGuard, KeyedMutex};
use keelson_admission::{Amounts, Stored, amounts, quota};
use keelson_auth::Permit;
use keelson_meta::{Failure, Map, Object, Quantity, Str, Value};
use keelson_registry::hooks::{Charge, Quotas};
use keelson_registry::options::WriteOptions;
use keelson_registry::{NewObject, Registry, Subresource, Target, UpdateFn, Write};
use keelson_store::BoxFuture;
use std::sync::{Mutex, PoisonError};

/// Charges and recounts ResourceQuotas.
#[derive(Default)]
pub(crate) struct ResourceQuotas {
    /// Serializes charges and recounts, by namespace.
    namespaces: KeyedMutex,
}

impl Quotas for ResourceQuotas {
    fn may_apply(&self, registry: &Registry, write: &Write<'_>, obj: &Object) -> bool {
        may_use_quota(registry, write, obj)
    }

    fn charge<'a>(
        &'a self,
        registry: &'a Registry,
        write: &'a Write<'a>,
        obj: &'a Object,
    ) -> BoxFuture<'a, Result<Box<dyn Charge>, Failure>> {
        Box::pin(async move {
            let charge = charge(registry, &self.namespaces, write, obj).await?;
            Ok(Box::new(charge) as Box<dyn Charge>)
        })
    }

    fn recalculate<'a>(
        &'a self,
        registry: &'a Registry,
        permit: &'a Permit,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let _guard = self.namespaces.lock(&namespace.into()).await;
            recount(registry, permit, namespace, name).await
        })
    }
}

/// The charge of a write. It holds the mutex of the namespace.
struct QuotaCharge {
    namespace: Str,
    /// Names of quotas with the amounts that were added to their `status.used`.
    added: Vec<(Str, Amounts)>,
    guard: Option<KeyGuard>,
}

impl Charge for QuotaCharge {
    fn refund<'a>(self: Box<Self>, registry: &'a Registry) -> BoxFuture<'a, ()> {
        Box::pin(refund(registry, *self))
    }
}

/// Returns whether a write must be charged or checked. Costs little in namespaces without quotas.
fn may_use_quota(registry: &Registry, write: &Write<'_>, obj: &Object) -> bool {
    if !registry.options.admission.has(quota::NAME)
        || !registry.with_request(write, |req| quota::applies(req, obj))
    {
        return false;
    }
    if registry.with_request(write, quota::is_limited) {
        return true;
    }
    let quotas = registry.target("", "resourcequotas", "", "").kind;
    let objects = registry.objects(&quotas);
    if objects.is_empty() && objects.unreadable_under("").is_none() {
        return false;
    }
    let prefix = format!("{}/", write.target.namespace);
    registry.cache.snapshot(&objects).range(&prefix, "").next().is_some()
        || objects.unreadable_under(&prefix).is_some()
}

/// Charges the quotas of the namespace for an object that is about to be stored, or rejects it. A
/// dry run is checked but not charged.
async fn charge(
    registry: &Registry,
    namespaces: &KeyedMutex,
    write: &Write<'_>,
    obj: &Object,
) -> Result<QuotaCharge, Failure> {
    let namespace = write.target.namespace.clone();
    let guard = match write.dry_run {
        true => None,
        false => Some(namespaces.lock(&namespace).await),
    };
    // The cache must contain the charge of the previous holder of the mutex.
    let kind = registry.target("", "resourcequotas", &namespace, "").kind;
    registry.wait_for_known_of(&kind).await?;
    let quotas = Stored::list(registry, "", "resourcequotas", &namespace)?;
    registry.with_request(write, |req| quota::check(req, obj, &quotas))?;
    let mut changed = vec![];
    for quota in quotas {
        if registry.with_request(write, |req| quota::new_usage(req, obj, &quota))?.is_some() {
            changed.push(Str::new(quota.name()));
        }
    }
    let mut charge = QuotaCharge { namespace, added: vec![], guard };
    if write.dry_run || changed.is_empty() {
        return Ok(charge);
    }
    for name in changed {
        match charge_one(registry, &name, write, obj).await {
            Ok(None) => {}
            Ok(Some(added)) => charge.added.push((name, added)),
            Err(failure) => {
                refund(registry, charge).await;
                return Err(failure);
            }
        }
    }
    Ok(charge)
}

/// Charges one quota; returns the added amounts, or `None` if nothing changes.
async fn charge_one(
    registry: &Registry,
    name: &str,
    write: &Write<'_>,
    obj: &Object,
) -> Result<Option<Amounts>, Failure> {
    let quotas = registry.target("", "resourcequotas", &write.target.namespace, name);
    let added = Mutex::new(None);
    let make = |live: Option<&Object>| {
        let mut object = live.cloned().ok_or_else(|| quotas.not_found())?;
        let new_usage = registry.with_request(write, |req| quota::new_usage(req, obj, &object))?;
        let difference = new_usage.as_ref().map(|used| subtract(used, &used_of(&object)));
        *added.lock().unwrap_or_else(PoisonError::into_inner) = difference;
        if let Some(used) = new_usage {
            object.object_mut("status").insert("used", resource_list(used));
        }
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    match change_quota(registry, &quotas, &make).await {
        // A deleted quota limits nothing.
        Err(status) if status.code == 404 => Ok(None),
        Err(status) => Err(status),
        Ok(()) => Ok(added.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Reverts the charge of an object that was not stored.
async fn refund(registry: &Registry, charge: QuotaCharge) {
    for (name, added) in &charge.added {
        let quotas = registry.target("", "resourcequotas", &charge.namespace, name);
        let make = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| quotas.not_found())?;
            let used = subtract(&used_of(&object), added);
            object.object_mut("status").insert("used", resource_list(used));
            Ok(NewObject { object, managed: false, warnings: vec![] })
        };
        match change_quota(registry, &quotas, &make).await {
            Err(status) if status.code != 404 => {
                tracing::warn!(
                    namespace = %charge.namespace, quota = %name, error = %status,
                    "quota not refunded; it is counted again within five minutes"
                );
            }
            _ => {}
        }
    }
    drop(charge.guard);
}

/// Writes the status of a quota.
async fn change_quota(
    registry: &Registry,
    quotas: &Target,
    make: UpdateFn<'_>,
) -> Result<(), Failure> {
    let permit = Permit::internal("system:apiserver");
    let options =
        WriteOptions { field_manager: "kube-apiserver".into(), ..WriteOptions::default() };
    registry.modify(&permit, quotas, Subresource::Status, make, &options).await.map(drop)
}

/// Recounts the usage of a quota from the objects of its namespace.
async fn recount(
    registry: &Registry,
    permit: &Permit,
    namespace: &str,
    name: &str,
) -> Result<(), Failure> {
    registry.wait_for_latest().await?;
    let quotas = registry.target("", "resourcequotas", namespace, name);
    let make = |live: Option<&Object>| {
        let mut object = live.cloned().ok_or_else(|| quotas.not_found())?;
        let hard = object.at(&["spec", "hard"]).cloned().unwrap_or_default();
        if !hard.is_empty() {
            object.object_mut("status").insert("hard", hard);
            let used = count(registry, &object)?;
            object.object_mut("status").insert("used", resource_list(used));
        }
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    let options =
        WriteOptions { field_manager: "kube-controller-manager".into(), ..WriteOptions::default() };
    registry.modify(permit, &quotas, Subresource::Status, &make, &options).await.map(drop)
}

/// Counts the usage of all resource names in `status.hard` of a quota.
fn count(registry: &Registry, quota: &Object) -> Result<Amounts, Failure> {
    let hard = quota.at(&["status", "hard"]).and_then(Value::as_object);
    let names = hard.into_iter().flat_map(Map::iter).map(|(what, _)| what.to_string());
    let mut used: Amounts = names.map(|what| (what, Quantity::default())).collect();
    for kind in registry.kinds().into_iter().filter(|kind| kind.namespaced) {
        let group = kind.gvr.group.as_str();
        let resource = kind.gvr.resource.as_str();
        if !quota::tracks(quota, group, resource) {
            continue;
        }
        for obj in Stored::list(registry, group, resource, quota.namespace())? {
            if !quota::matches(quota, group, resource, &obj) {
                continue;
            }
            for (what, amount) in quota::usage(group, resource, &obj, registry)? {
                if let Some(sum) = used.get_mut(&what) {
                    *sum = sum.add(&amount);
                }
            }
        }
    }
    Ok(used)
}

fn used_of(quota: &Object) -> Amounts {
    amounts(quota.at(&["status", "used"]))
}

/// Subtracts amounts by name; names that only `other` has are left out.
fn subtract(from: &Amounts, other: &Amounts) -> Amounts {
    let difference = |(name, amount): (&String, &Quantity)| {
        let rest = other.get(name).map_or_else(|| amount.clone(), |other| amount.sub(other));
        (name.clone(), rest)
    };
    from.iter().map(difference).collect()
}

fn resource_list(amounts: Amounts) -> Value {
    let texts = amounts.into_iter().map(|(what, n)| (what.into(), n.to_string().into()));
    Value::Object(Map::from_iter(texts))
}
