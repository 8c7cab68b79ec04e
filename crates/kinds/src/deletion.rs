//! What a deletion makes of an object that does not go at once: its time, and the finalizers that stand for a
//! propagation policy.

use crate::strategy::{GarbageCollection, GracePeriod, Propagation};
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Object, Value};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// What became of an object that may have time to end.
pub enum Grace {
    /// The kind is deleted at once.
    None,
    /// The object was marked with this many seconds.
    Marked(i64),
    /// It was marked before, with no more time than this deletion asks for.
    Pending,
}

/// Gives an object the time to end that its kind has and the deletion asks for.
pub fn mark_graceful(
    grace: Option<GracePeriod>,
    asked: Option<i64>,
    obj: &mut Object,
    now: Timestamp,
) -> Grace {
    let Some(grace) = grace else {
        return Grace::None;
    };
    // A negative period counts as the shortest one.
    let asked = asked.map(|asked| if asked < 0 { 1 } else { asked });
    if let Some(since) = obj.deletion_timestamp() {
        // One whose time is over, or never was, waits for its finalizers alone.
        let Some(before) = obj.deletion_grace_period_seconds().filter(|before| *before != 0) else {
            return Grace::None;
        };
        let Some(mut asked) = asked.filter(|asked| *asked < before) else {
            return Grace::Pending;
        };
        let since = Timestamp::parse(since).unwrap_or(now);
        let less = GoDuration::wrapping_seconds(before.wrapping_neg());
        let mut until = since.plus(less).plus(GoDuration::wrapping_seconds(asked));
        if until < now {
            (until, asked) = (now, asked.min(1));
        }
        obj.set_meta("deletionTimestamp", &until.text());
        obj.metadata_mut().insert("deletionGracePeriodSeconds", asked);
        return Grace::Marked(asked);
    }
    let seconds = grace(obj, asked);
    let until = now.plus(GoDuration::wrapping_seconds(seconds));
    mark(obj, until, seconds);
    Grace::Marked(seconds)
}

/// Marks an object as one that is deleted, with so many seconds to end.
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

/// Adds or takes off the finalizers that stand for a propagation policy; says whether any changed.
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
