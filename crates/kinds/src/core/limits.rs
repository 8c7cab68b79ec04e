//! LimitRanges and ResourceQuotas.

mod quota;

pub(super) use quota::resource_quota;

use crate::check::{Field, children};
use crate::core::pod::resources::{container_resource_name, resource_name};
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, Map, Object, SmallSet, Value, names};
use std::collections::BTreeSet;

/// LimitRanges.
pub(super) const fn limit_range(base: Strategy) -> Strategy {
    Strategy {
        default: default_limit_range,
        prepare_create: |range| {
            drop_empty(range);
        },
        prepare_update: |new, _| drop_empty(new),
        validate: |new, _| validate_limit_range(new),
        ..base
    }
}

/// Drops an empty list of limits. Its field manager stays.
fn drop_empty(range: &mut Object) {
    let spec = range.object_mut("spec");
    if spec.get("limits").is_some_and(Value::is_empty) {
        spec.remove("limits");
    }
}

fn default_limit_range(range: &mut Object) {
    let spec = range.object_mut("spec");
    for item in children(spec, "limits") {
        if item.get("type").and_then(Value::as_str) != Some("Container") {
            continue;
        }
        fill_from(item, "default", "max");
        fill_from(item, "defaultRequest", "default");
        fill_from(item, "defaultRequest", "min");
    }
}

/// Copies amounts that a list lacks from another list.
fn fill_from(item: &mut Map, list: &str, source: &str) {
    let Some(amounts) = item.get(source).and_then(Value::as_object).cloned() else { return };
    let target = item.object_at(list);
    target.fill(amounts);
}

fn validate_limit_range(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let limits = spec.field("limits");
    let mut seen: SmallSet<&str> = SmallSet::new();
    for item in limits.items() {
        let kind = item.field("type");
        limit_type(&kind, &mut errors);
        if !seen.insert(kind.text()) {
            kind.duplicate(&mut errors);
        }
        limit_item(&item, &mut errors);
    }
    errors
}

fn limit_type(kind: &Field<'_, '_>, errors: &mut ErrorList) {
    let before = errors.len();
    kind.rule(errors, names::is_qualified_name);
    let standard = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind.text());
    if errors.len() == before && !standard && !kind.text().contains('/') {
        kind.invalid(errors, "must be a standard limit type or fully qualified");
    }
}

fn limit_item(item: &Field<'_, '_>, errors: &mut ErrorList) {
    let kind = item.str("type");
    let names_of = |list: &str, errors: &mut ErrorList| {
        for (name, amount) in item.field(list).entries() {
            let key = Value::from(name);
            let at = Field { value: &key, path: amount.path };
            match kind {
                "Pod" | "Container" => container_resource_name(&at, errors),
                _ => resource_name(&at, errors),
            }
        }
    };
    names_of("max", errors);
    names_of("min", errors);
    for list in ["default", "defaultRequest"] {
        if kind != "Pod" {
            names_of(list, errors);
        } else if !item.get(list).is_empty() {
            item.field(list).forbidden(errors, "may not be specified when `type` is 'Pod'");
        }
    }
    if kind == "PersistentVolumeClaim" {
        let min = item.get("min").get("storage");
        let max = item.get("max").get("storage");
        if min.is_none() && max.is_none() {
            let words =
                "either minimum or maximum storage value is required, but neither was provided";
            item.field("limits").required(errors, words);
        }
    }
    names_of("maxLimitRequestRatio", errors);
    const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
    let keys: BTreeSet<&str> = LISTS
        .iter()
        .filter(|list| kind != "Pod" || !list.starts_with("default"))
        .filter_map(|list| item.get(list).as_object())
        .flat_map(|map| map.iter().map(|(name, _)| name.as_str()))
        .collect();
    keys.iter().for_each(|name| amounts(item, kind, name, errors));
}

/// Checks that the amounts of a resource are consistent.
fn amounts(item: &Field<'_, '_>, kind: &str, name: &str, errors: &mut ErrorList) {
    // (the smaller, the larger, the path of the error, the value shown, the names of both in the
    // message)
    const ORDER: [(&str, &str, &str, &str, &str, &str); 6] = [
        ("min", "max", "min", "min", "min value", "max value"),
        (
            "min",
            "defaultRequest",
            "defaultRequest",
            "defaultRequest",
            "min value",
            "default request value",
        ),
        (
            "defaultRequest",
            "max",
            "defaultRequest",
            "defaultRequest",
            "default request value",
            "max value",
        ),
        (
            "defaultRequest",
            "default",
            "defaultRequest",
            "defaultRequest",
            "default request value",
            "default limit value",
        ),
        ("min", "default", "default", "min", "min value", "default value"),
        ("default", "max", "default", "max", "default value", "max value"),
    ];
    // Skip the defaults of type Pod, which are rejected as a whole.
    let counts = |list: &str| kind != "Pod" || !list.starts_with("default");
    let of = |list: &str| {
        let given = item.get(list).get(name).filter(|_| counts(list));
        given.and_then(crate::check::quantity)
    };
    for (small, large, place, shown, low_words, high_words) in ORDER {
        let (Some(low), Some(high)) = (of(small), of(large)) else { continue };
        if low > high {
            let words = format!("{low_words} {low} is greater than {high_words} {high}");
            let shown = of(shown).unwrap_or_default().to_string();
            item.field(place).field_at(name).invalid_as(errors, shown, &words);
        }
    }
    ratio(item, name, errors);
    let is_shared = !name.contains('/') && !crate::core::pod::resources::is_huge_page(name);
    if let (false, Some(limit), Some(request)) = (is_shared, of("default"), of("defaultRequest"))
        && limit != request
    {
        let words =
            format!("default value {limit} must equal to defaultRequest value {request} in {name}");
        let place = item.field("defaultRequest");
        place.field_at(name).invalid_as(errors, request.to_string(), &words);
    }
}

fn ratio(item: &Field<'_, '_>, name: &str, errors: &mut ErrorList) {
    let of = |list: &str| item.get(list).get(name).and_then(crate::check::quantity);
    let Some(ratio) = of("maxLimitRequestRatio") else { return };
    let list = item.field("maxLimitRequestRatio");
    let at = list.field_at(name);
    if ratio.as_f64() < 1.0 {
        at.invalid_as(errors, ratio.to_string(), &format!("ratio {ratio} is less than 1"));
    }
    let (Some(min), Some(max)) = (of("min"), of("max")) else { return };
    let limit = max.as_f64() / min.as_f64();
    if ratio.as_f64() > limit {
        let words = format!("ratio {ratio} is greater than max/min = {limit:.6}");
        at.invalid_as(errors, ratio.to_string(), &words);
    }
}
