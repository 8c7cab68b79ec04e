//! Marks objects that are not removed at once: the grace period, and the finalizers of a
//! propagation policy.

use crate::strategy::{GarbageCollection, GracePeriod, Propagation};
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Object, Value};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// The result of a graceful deletion.
pub enum Grace {
    /// The object has no grace period, or it is over.
    None,
    /// The object was marked with a grace period in seconds.
    Marked(i64),
    /// The object was marked before with a grace period that is not longer.
    Pending,
}

/// Marks an object with the grace period of its kind, or with the `requested` one in seconds.
pub fn mark_graceful(
    grace_period: Option<GracePeriod>,
    requested: Option<i64>,
    obj: &mut Object,
    now: Timestamp,
) -> Grace {
    let Some(grace_period) = grace_period else {
        return Grace::None;
    };
    // A negative period counts as 1 second.
    let requested = requested.map(|requested| if requested < 0 { 1 } else { requested });
    if let Some(since) = obj.deletion_timestamp() {
        // Without a grace period left, the object waits only for its finalizers.
        let Some(before) = obj.deletion_grace_period_seconds().filter(|before| *before != 0) else {
            return Grace::None;
        };
        let Some(mut requested) = requested.filter(|requested| *requested < before) else {
            return Grace::Pending;
        };
        let since = Timestamp::parse(since).unwrap_or(now);
        let less = GoDuration::wrapping_seconds(before.wrapping_neg());
        let mut until = since.plus(less).plus(GoDuration::wrapping_seconds(requested));
        if until < now {
            (until, requested) = (now, requested.min(1));
        }
        obj.set_meta("deletionTimestamp", &until.text());
        obj.metadata_mut().insert("deletionGracePeriodSeconds", requested);
        return Grace::Marked(requested);
    }
    let seconds = grace_period(obj, requested);
    let until = now.plus(GoDuration::wrapping_seconds(seconds));
    mark(obj, until, seconds);
    Grace::Marked(seconds)
}

/// Sets `deletionTimestamp`, unless it is set, and the grace period in seconds.
pub fn mark(obj: &mut Object, until: Timestamp, seconds: i64) {
    if obj.deletion_timestamp().is_none() {
        obj.set_meta("deletionTimestamp", &until.text());
        let generation = obj.generation();
        if generation > 0 {
            obj.metadata_mut().insert("generation", generation + 1);
        }
    }
    obj.metadata_mut().insert("deletionGracePeriodSeconds", seconds);
}

/// Adds or removes the finalizers of a propagation policy. Returns whether any changed.
pub fn set_propagation(
    obj: &mut Object,
    propagation: Option<Propagation>,
    policy: GarbageCollection,
) -> bool {
    let before: Vec<String> = obj.finalizers().map(str::to_owned).collect();
    let has = |name: &str| before.iter().any(|f| f == name);
    let wanted = match propagation {
        _ if policy == GarbageCollection::Unsupported => None,
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Background) => None,
        None if has(ORPHAN) => Some(ORPHAN),
        None if has(FOREGROUND) => Some(FOREGROUND),
        None => (policy == GarbageCollection::OrphanDependents).then_some(ORPHAN),
    };
    let mut after: Vec<String> =
        before.iter().filter(|f| *f != ORPHAN && *f != FOREGROUND).cloned().collect();
    after.extend(wanted.map(str::to_owned));
    let mut sorted = (before.clone(), after.clone());
    sorted.0.sort();
    sorted.1.sort();
    if sorted.0 == sorted.1 {
        return false;
    }
    if after.is_empty() {
        obj.metadata_mut().remove("finalizers");
    } else {
        let items: Vec<Value> = after.into_iter().map(Value::from).collect();
        obj.metadata_mut().insert("finalizers", items);
    }
    true
}
