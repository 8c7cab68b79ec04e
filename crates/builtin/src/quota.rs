//! Quotas: charged before an object is stored, and counted again by the resource quota controller.
//!
//! Charging, storing the object and counting take turns, one namespace at a time: a count never misses
//! an object that is charged and not yet stored, so that exactly the limit is admitted. This holds for
//! one server; servers that share a store each have turns of their own.

use crate::turns::{Turn, Turns};
use keelson_admission::{Amounts, Stored, amounts, quota};
use keelson_auth::Permit;
use keelson_meta::{Failure, Map, Object, Quantity, Str, Value};
use keelson_registry::hooks::{Charge, Quotas};
use keelson_registry::options::WriteOptions;
use keelson_registry::{NewObject, Registry, Subresource, Target, UpdateFn, Write};
use keelson_store::BoxFuture;
use std::sync::{Mutex, PoisonError};

/// ResourceQuotas.
#[derive(Default)]
pub(crate) struct ResourceQuotas {
    /// Charging and counting, by namespace.
    turns: Turns,
}

impl Quotas for ResourceQuotas {
    fn may_apply(&self, registry: &Registry, write: &Write<'_>) -> bool {
        may_apply(registry, write)
    }

    fn charge<'a>(
        &'a self,
        registry: &'a Registry,
        write: &'a Write<'a>,
        obj: &'a Object,
    ) -> BoxFuture<'a, Result<Box<dyn Charge>, Failure>> {
        Box::pin(async move {
            let charged = charge(registry, &self.turns, write, obj).await?;
            Ok(Box::new(charged) as Box<dyn Charge>)
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
            let _turn = self.turns.take(&namespace.into()).await;
            recalculate(registry, permit, namespace, name).await
        })
    }
}

/// What a write has taken from the quotas of its namespace. While it is held, nobody else charges or
/// counts them.
struct Charged {
    namespace: Str,
    /// The quotas with what was added to their `status.used`.
    added: Vec<(Str, Amounts)>,
    turn: Option<Turn>,
}

impl Charge for Charged {
    fn refund<'a>(self: Box<Self>, registry: &'a Registry) -> BoxFuture<'a, ()> {
        Box::pin(refund(registry, *self))
    }
}

fn may_apply(registry: &Registry, write: &Write<'_>) -> bool {
    if !registry.options.admission.has(quota::NAME)
        || !registry.with_request(write, quota::concerns)
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

/// Charges the quotas of the namespace for what is about to be stored, or refuses it.
async fn charge(
    registry: &Registry,
    turns: &Turns,
    write: &Write<'_>,
    obj: &Object,
) -> Result<Charged, Failure> {
    let namespace = write.target.namespace.clone();
    let turn = match write.dry_run {
        true => None,
        false => Some(turns.take(&namespace).await),
    };
    // Whoever had the turn before may just have changed what is read now.
    registry.wait_for_known().await?;
    let quotas = Stored::list(registry, "", "resourcequotas", &namespace)?;
    registry.with_request(write, |req| quota::check(req, obj, &quotas))?;
    let mut due = vec![];
    for quota in quotas {
        if registry.with_request(write, |req| quota::charged(req, obj, &quota))?.is_some() {
            due.push(Str::new(quota.name()));
        }
    }
    let mut charge = Charged { namespace, added: vec![], turn };
    if write.dry_run || due.is_empty() {
        return Ok(charge);
    }
    for name in due {
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

/// Charges one quota; what was added to it.
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
        let charged = registry.with_request(write, |req| quota::charged(req, obj, &object))?;
        let difference = charged.as_ref().map(|used| minus(used, &used_of(&object)));
        *added.lock().unwrap_or_else(PoisonError::into_inner) = difference;
        if let Some(used) = charged {
            object.object_mut("status").insert("used", shown(used));
        }
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    match change_quota(registry, &quotas, &make).await {
        // A quota that is gone limits nothing.
        Err(status) if status.code == 404 => Ok(None),
        Err(status) => Err(status),
        Ok(()) => Ok(added.into_inner().unwrap_or_else(PoisonError::into_inner)),
    }
}

/// Gives back what was charged for an object that was not stored.
async fn refund(registry: &Registry, charge: Charged) {
    for (name, added) in &charge.added {
        let quotas = registry.target("", "resourcequotas", &charge.namespace, name);
        let make = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| quotas.not_found())?;
            let used = minus(&used_of(&object), added);
            object.object_mut("status").insert("used", shown(used));
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
    drop(charge.turn);
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

/// Counts again what the objects of a namespace use up of a quota.
async fn recalculate(
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
            object.object_mut("status").insert("used", shown(used));
        }
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    let options =
        WriteOptions { field_manager: "kube-controller-manager".into(), ..WriteOptions::default() };
    registry.modify(permit, &quotas, Subresource::Status, &make, &options).await.map(drop)
}

/// What is used up of a quota, of all that it limits.
fn count(registry: &Registry, quota: &Object) -> Result<Amounts, Failure> {
    let hard = quota.at(&["status", "hard"]).and_then(Value::as_object);
    let names = hard.into_iter().flat_map(Map::iter).map(|(what, _)| what.to_string());
    let mut used: Amounts = names.map(|what| (what, Quantity::default())).collect();
    for kind in registry.kinds().into_iter().filter(|kind| kind.namespaced) {
        let (group, resource) = (kind.gvr.group.as_str(), kind.gvr.resource.as_str());
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

/// `from` without `what`, by name; names that only `what` has are left out.
fn minus(from: &Amounts, what: &Amounts) -> Amounts {
    let left = |(name, amount): (&String, &Quantity)| {
        let less = what.get(name).map_or_else(|| amount.clone(), |less| amount.sub(less));
        (name.clone(), less)
    };
    from.iter().map(left).collect()
}

fn shown(amounts: Amounts) -> Value {
    let texts = amounts.into_iter().map(|(what, n)| (what.into(), n.to_string().into()));
    Value::Object(Map::from_iter(texts))
}
