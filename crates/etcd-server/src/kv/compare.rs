//! Compares of a transaction.

use std::cmp::Ordering;

use keelson_store::{Draft, Revision};

use super::interval::Interval;
use super::reading::Reading;
use crate::error::EtcdError;
use crate::proto::{Compare, CompareResult, CompareTarget, Expected, KeyValue};
use crate::record::to_etcd;

/// Returns whether all compares hold at a revision.
pub(crate) fn all_hold(
    draft: &Draft<'_, '_>,
    compares: &[Compare],
    at: Revision,
    reading: &mut Reading,
) -> Result<bool, EtcdError> {
    for compare in compares {
        if !holds(draft, compare, at, reading)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A range of no key is compared as a key whose numbers are all 0; its value is equal to nothing.
fn holds(
    draft: &Draft<'_, '_>,
    compare: &Compare,
    at: Revision,
    reading: &mut Reading,
) -> Result<bool, EtcdError> {
    let interval = Interval::new(&compare.key, &compare.range_end);
    if interval.is_single() {
        let kv = match value_is_needed(compare) {
            true => reading.get(draft, &compare.key, at)?,
            // Most compares: nothing is read from the disk.
            false => draft.revisions(&compare.key).map(|(created, modified)| KeyValue {
                create_revision: to_etcd(created),
                mod_revision: to_etcd(modified),
                ..KeyValue::default()
            }),
        };
        return Ok(kv.map_or_else(|| holds_without_key(compare), |kv| holds_for(compare, &kv)));
    }
    // Compares are decided before anything is changed.
    let keys = reading.keys(draft, &interval, at, 0)?;
    if keys.is_empty() {
        return Ok(holds_without_key(compare));
    }
    for key in keys {
        let kv = reading.get(draft, &key, at)?;
        if !kv.is_some_and(|kv| holds_for(compare, &kv)) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn target(compare: &Compare) -> Option<CompareTarget> {
    CompareTarget::try_from(compare.target).ok()
}

fn value_is_needed(compare: &Compare) -> bool {
    !matches!(target(compare), Some(CompareTarget::Create | CompareTarget::Mod))
}

fn holds_without_key(compare: &Compare) -> bool {
    target(compare) != Some(CompareTarget::Value) && holds_for(compare, &KeyValue::default())
}

/// A missing expectation, or one of another kind than the target, is 0 or empty.
fn holds_for(compare: &Compare, kv: &KeyValue) -> bool {
    let Some(target) = target(compare) else { return true };
    let expected = compare.target_union.as_ref();
    let number = |found: i64| {
        let expected = match (target, expected) {
            (CompareTarget::Version, Some(Expected::Version(expected)))
            | (CompareTarget::Create, Some(Expected::CreateRevision(expected)))
            | (CompareTarget::Mod, Some(Expected::ModRevision(expected)))
            | (CompareTarget::Lease, Some(Expected::Lease(expected))) => *expected,
            _ => 0,
        };
        found.cmp(&expected)
    };
    let order = match target {
        CompareTarget::Version => number(kv.version),
        CompareTarget::Create => number(kv.create_revision),
        CompareTarget::Mod => number(kv.mod_revision),
        CompareTarget::Lease => number(kv.lease),
        CompareTarget::Value => match expected {
            Some(Expected::Value(expected)) => kv.value.cmp(expected),
            _ => kv.value[..].cmp(b""),
        },
    };
    match CompareResult::try_from(compare.result) {
        Ok(CompareResult::Equal) => order == Ordering::Equal,
        Ok(CompareResult::NotEqual) => order != Ordering::Equal,
        Ok(CompareResult::Greater) => order == Ordering::Greater,
        Ok(CompareResult::Less) => order == Ordering::Less,
        // As etcd has it.
        Err(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_is_compared_with_each_result() {
        let kv = KeyValue {
            key: "k".into(),
            create_revision: 3,
            mod_revision: 5,
            version: 2,
            value: "m".into(),
            lease: 7,
        };
        type Case = (CompareTarget, fn(i64) -> Expected, i64);
        let cases: [Case; 4] = [
            (CompareTarget::Version, Expected::Version, 2),
            (CompareTarget::Create, Expected::CreateRevision, 3),
            (CompareTarget::Mod, Expected::ModRevision, 5),
            (CompareTarget::Lease, Expected::Lease, 7),
        ];
        let check = |target: CompareTarget, expected: Expected, results: [bool; 4]| {
            let all = [
                CompareResult::Equal,
                CompareResult::NotEqual,
                CompareResult::Greater,
                CompareResult::Less,
            ];
            let found = all.map(|result| {
                let compare = Compare {
                    result: result.into(),
                    target: target.into(),
                    target_union: Some(expected.clone()),
                    ..Compare::default()
                };
                holds_for(&compare, &kv)
            });
            assert_eq!(found, results, "{target:?} {expected:?}");
        };
        for (target, expected, number) in cases {
            check(target, expected(number), [true, false, false, false]);
            check(target, expected(number - 1), [false, true, true, false]);
            check(target, expected(number + 1), [false, true, false, true]);
        }
        for (value, results) in [
            ("m", [true, false, false, false]),
            ("l", [false, true, true, false]),
            ("n", [false, true, false, true]),
        ] {
            check(CompareTarget::Value, Expected::Value(value.into()), results);
        }
    }

    #[test]
    fn an_absent_key_has_only_zeros_and_no_value() {
        let compare =
            |target: CompareTarget| Compare { target: target.into(), ..Compare::default() };
        assert!(holds_without_key(&compare(CompareTarget::Version)));
        assert!(holds_without_key(&compare(CompareTarget::Mod)));
        assert!(!holds_without_key(&compare(CompareTarget::Value)));
    }
}
