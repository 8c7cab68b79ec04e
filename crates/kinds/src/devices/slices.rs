//! ResourceSlices.

use super::allocation::{binding_conditions, pool};
use super::{driver, identifier, named, not_too_many, unique};
use crate::check::{Field, child, children, default};
use crate::strategy::Strategy;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::status::{quote, show};
use keelson_meta::{ErrorList, FieldError, Object, Path, Quantity, SmallSet, Str, Value, names};

const DEVICES_MAX: usize = 128;
/// The limit for a slice whose devices have taints or consume counters.
const LARGE_DEVICES_MAX: usize = 64;
const ATTRIBUTES_MAX: usize = 32;
const TAINTS_MAX: usize = 16;
const COUNTER_SETS_MAX: usize = 8;
const CONSUMPTIONS_MAX: usize = 2;
const COUNTERS_MAX: usize = 32;
const OPTIONS_MAX: usize = 10;
const TEXT_BYTES_MAX: usize = 64;
const CHOICES: &str = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, \
                       `perDeviceNodeSelection` is required";
const DEVICE_CHOICES: &str = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required \
     when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";

/// ResourceSlices.
pub(crate) const fn slice(base: Strategy) -> Strategy {
    Strategy {
        prepare_create: |slice| {
            let now = slice.creation_timestamp().to_owned();
            set_taint_times(slice, &now);
        },
        record_time: |slice, _, now| set_taint_times(slice, now),
        validate,
        warnings: |slice, _| {
            let name = slice.str_at(&["spec", "driver"]);
            if name == name.to_lowercase() {
                return vec![];
            }
            let shown = quote(name);
            vec![Str::from(format!(
                "spec.driver: driver names should be lowercase; {shown} contains uppercase characters"
            ))]
        },
        ..base
    }
}

/// Sets `timeAdded` of new taints.
fn set_taint_times(slice: &mut Object, now: &str) {
    let Some(spec) = child(&mut slice.root, "spec") else { return };
    for device in children(spec, "devices") {
        for taint in children(device, "taints") {
            default(taint, "timeAdded", now);
        }
    }
}

fn validate(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    source(&spec, &mut errors);
    if let Some(old) = old {
        let before = Field::of(old, "spec");
        let now = spec.field("pool");
        let then = before.field("pool");
        now.field("name").unchanged_value(&mut errors, then.get("name"));
        spec.field("driver").unchanged_value(&mut errors, before.get("driver"));
        // Upstream shows the value as a pointer.
        let node = spec.field("nodeName");
        if node.value != before.get("nodeName") {
            node.invalid(&mut errors, IMMUTABLE);
        }
    }
    nodes(&spec, true, CHOICES, &mut errors);
    contents(&spec, &mut errors);
    errors
}

/// Validates the driver and the pool.
fn source(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    driver(&spec.field("driver"), errors);
    let at = spec.field("pool");
    pool(&at.field("name"), errors);
    let count = at.field("resourceSliceCount");
    if count.number() <= 0 {
        count.invalid_as(errors, count.number(), "must be greater than zero");
    }
    let generation = at.field("generation");
    if generation.number() < 0 {
        generation.invalid(errors, "must be greater than or equal to zero");
    }
}

/// Validates the node selection of a slice or device: exactly one of the fields must be set.
fn nodes(at: &Field<'_, '_>, is_slice: bool, words: &str, errors: &mut ErrorList) {
    let mut set: Vec<&str> = vec![];
    let name = at.field("nodeName");
    if name.is_set() {
        if name.text().is_empty() {
            name.invalid(errors, "must be either unset or set to a non-empty string");
        } else {
            set.push("`nodeName`");
            name.rule(errors, names::is_dns1123_subdomain);
        }
    }
    let selector = at.field("nodeSelector");
    if selector.is_set() {
        set.push("`nodeSelector`");
        crate::core::pod::scheduling::node_selector_with_values(&selector, errors);
        let terms = selector.field("nodeSelectorTerms");
        if terms.array().len() != 1 {
            let shown = Value::Array(terms.array().to_vec());
            terms.invalid_as(errors, shown, "must have exactly one node selector term");
        }
    }
    for (flag, shown) in
        [("allNodes", "`allNodes`"), ("perDeviceNodeSelection", "`perDeviceNodeSelection`")]
    {
        let flag = at.field(flag);
        if !flag.is_set() || (!is_slice && shown == "`perDeviceNodeSelection`") {
            continue;
        }
        if flag.value.as_bool() == Some(true) {
            set.push(shown);
        } else {
            flag.invalid(errors, "must be either unset or set to true");
        }
    }
    match set.len() {
        0 => at.required(errors, words),
        1 => {}
        _ => {
            let more = if is_slice { ", but multiple fields are set" } else { "" };
            let shown = format!("{{{}}}", set.join(", "));
            at.invalid_as(errors, shown, &format!("{words}{more}"));
        }
    }
}

/// Validates the devices or the shared counters.
fn contents(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let devices = spec.field("devices");
    let counters = spec.field("sharedCounters");
    if !devices.array().is_empty() && !counters.array().is_empty() {
        let words = "only one of `sharedCounters` or `devices` is allowed";
        spec.invalid_as(errors, "", words);
    }
    let is_large = |device: &Value| {
        ["taints", "consumesCounters"].iter().any(|list| !device.array_at(&[list]).is_empty())
    };
    let devices_max =
        if devices.array().iter().any(is_large) { LARGE_DEVICES_MAX } else { DEVICES_MAX };
    let is_each = spec.flag("perDeviceNodeSelection");
    if not_too_many(&devices, devices_max, errors) {
        devices.items().for_each(|at| device(&at, is_each, errors));
    }
    unique(&devices, named("name"), errors);
    if not_too_many(&counters, COUNTER_SETS_MAX, errors) {
        for set in counters.items() {
            set.field("name").required_rule(errors, names::is_dns1123_label);
            counter_map(&set.field("counters"), errors);
        }
    }
    unique(&counters, named("name"), errors);
}

fn counter_map(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let count = at.value.as_object().map_or(0, keelson_meta::Map::len);
    if count == 0 {
        return at.required(errors, "");
    }
    if count > COUNTERS_MAX {
        return errors.push(FieldError::too_many(&at.path, count, COUNTERS_MAX));
    }
    for (name, _) in at.entries() {
        for why in names::is_dns1123_label(name) {
            at.invalid_as(errors, name, &why);
        }
    }
}

fn device(at: &Field<'_, '_>, is_each: bool, errors: &mut ErrorList) {
    at.field("name").rule(errors, names::is_dns1123_label);
    let attributes = at.field("attributes");
    let capacity = at.field("capacity");
    for (name, fact) in attributes.entries() {
        attribute_name(&attributes.path, name, errors);
        attribute(&fact, errors);
    }
    for (name, amount) in capacity.entries() {
        attribute_name(&capacity.path, name, errors);
        let policy = amount.field("requestPolicy");
        if policy.is_set() && at.flag("allowMultipleAllocations") {
            request_policy(&policy, &amount.field("value"), errors);
        } else if policy.is_set() {
            policy.forbidden(errors, "allowMultipleAllocations must be true");
        }
    }
    let count = attributes.entries().count() + capacity.entries().count();
    if count > ATTRIBUTES_MAX {
        let words = format!(
            "the total number of attributes and capacities must not exceed {ATTRIBUTES_MAX}"
        );
        at.invalid_as(errors, i64::try_from(count).unwrap_or(i64::MAX), &words);
    }
    let taints = at.field("taints");
    if not_too_many(&taints, TAINTS_MAX, errors) {
        taints.items().for_each(|at| taint(&at, errors));
    }
    let counters = at.field("consumesCounters");
    if not_too_many(&counters, CONSUMPTIONS_MAX, errors) {
        for set in counters.items() {
            set.field("counterSet").required_rule(errors, names::is_dns1123_label);
            counter_map(&set.field("counters"), errors);
        }
    }
    unique(&counters, named("counterSet"), errors);
    if is_each {
        nodes(at, false, DEVICE_CHOICES, errors);
    } else if ["nodeName", "nodeSelector", "allNodes"].iter().any(|name| at.has(name)) {
        let words = "`nodeName`, `nodeSelector` and `allNodes` can only be set if \
                     `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        at.invalid_as(errors, Value::Null, words);
    }
    binding_conditions(at, errors);
}

/// Validates the name of an attribute or capacity: a C identifier with an optional domain. Errors
/// have the path of the map.
fn attribute_name(path: &Path<'_>, name: &str, errors: &mut ErrorList) {
    let parts: Vec<&str> = name.split('/').collect();
    match parts.as_slice() {
        [name] => identifier(path, name, errors),
        [domain, name] => {
            if domain.is_empty() {
                errors.push(FieldError::invalid(path, "", "the domain must not be empty"));
            } else {
                let text = Value::from(*domain);
                driver(&Field { value: &text, path: *path }, errors);
            }
            if name.is_empty() {
                errors.push(FieldError::invalid(path, "", "the name must not be empty"));
            } else {
                identifier(path, name, errors);
            }
        }
        _ => {}
    }
}

const VALUES: [&str; 8] =
    ["bool", "int", "string", "version", "bools", "ints", "strings", "versions"];

/// Validates attributes that are lists.
fn lists(at: &Field<'_, '_>, errors: &mut ErrorList) {
    for name in ["bools", "ints", "strings", "versions"].into_iter().filter(|name| at.has(name)) {
        let list = at.field(name);
        if list.array().is_empty() {
            list.invalid(errors, "must not be empty if specified");
        }
        for item in list.items() {
            if name == "versions" && !keelson_cel::device::is_version(item.text()) {
                item.invalid(errors, "must be a string compatible with semver.org spec 2.0.0");
            }
            item.not_too_long(errors, TEXT_BYTES_MAX);
        }
    }
}

fn attribute(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let text = at.field("string");
    text.not_too_long(errors, TEXT_BYTES_MAX);
    let version = at.field("version");
    if version.is_set() {
        if !keelson_cel::device::is_version(version.text()) {
            version.invalid(errors, "must be a string compatible with semver.org spec 2.0.0");
        }
        version.not_too_long(errors, TEXT_BYTES_MAX);
    }
    lists(at, errors);
    let count = VALUES.iter().filter(|name| at.has(name)).count();
    if count == 0 {
        at.invalid_as(errors, "", "exactly one value must be specified");
    } else if count > 1 {
        at.invalid(errors, "exactly one value must be specified");
    }
}

pub(super) fn taint(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("key").rule(errors, names::is_qualified_name);
    at.field("value").rule(errors, names::is_valid_label_value);
    at.field("effect").required_one_of(errors, &["NoExecute", "NoSchedule", "None"]);
}

/// Validates the request policy of a capacity that claims can share.
fn request_policy(at: &Field<'_, '_>, capacity: &Field<'_, '_>, errors: &mut ErrorList) {
    let options = at.field("validValues");
    let range = at.field("validRange");
    let preset = at.field("default");
    match (!options.array().is_empty(), range.is_set()) {
        (true, true) => {
            let words = "exactly one policy can be specified, cannot specify \"validValues\" and \
                         \"validRange\" at the same time";
            at.forbidden(errors, words);
        }
        (true, false) if !preset.is_set() => {
            preset.required(errors, "required when validValues is defined");
        }
        (false, true) if !preset.is_set() => {
            preset.required(errors, "required when validRange is defined");
        }
        (true, false) => valid_values(&options, &preset, capacity, errors),
        (false, true) => valid_range(&range, &preset, capacity, errors),
        (false, false) => {}
    }
}

fn amount_of(at: &Field<'_, '_>) -> Quantity {
    at.quantity().unwrap_or_default()
}

fn words_of(at: &Field<'_, '_>) -> String {
    show(at.value).trim_matches('"').to_owned()
}

fn valid_values(
    options: &Field<'_, '_>,
    preset: &Field<'_, '_>,
    capacity: &Field<'_, '_>,
    errors: &mut ErrorList,
) {
    let is_short = not_too_many(options, OPTIONS_MAX, errors);
    let mut seen: SmallSet<i64> = SmallSet::new();
    let mut before: Option<Quantity> = None;
    for option in options.items().filter(|_| is_short) {
        let amount = amount_of(&option);
        if amount > amount_of(capacity) {
            let words = format!("option is larger than capacity value: {}", words_of(capacity));
            option.invalid(errors, &words);
        }
        if !seen.insert(amount.value()) {
            errors.push(FieldError::duplicate(&option.path, amount.value().to_string()));
        } else if before.as_ref().is_some_and(|before| *before > amount) {
            option.invalid(errors, "values must be sorted in ascending order");
        }
        before = Some(amount);
    }
    if !options.items().any(|option| amount_of(&option) == amount_of(preset)) {
        let words = "default value is not valid according to the requestPolicy";
        options.invalid_as(errors, preset.value.clone(), words);
    }
}

fn valid_range(
    range: &Field<'_, '_>,
    preset: &Field<'_, '_>,
    capacity: &Field<'_, '_>,
    errors: &mut ErrorList,
) {
    let [min, max, step] = ["min", "max", "step"];
    let min = range.field(min);
    let max = range.field(max);
    let step = range.field(step);
    if !min.is_set() {
        return min.required(errors, "required when validRange is defined");
    }
    if amount_of(preset) < amount_of(&min) {
        let words = format!("default is less than min: {}", words_of(&min));
        min.invalid_as(errors, preset.value.clone(), &words);
    }
    if amount_of(&min) > amount_of(capacity) {
        let words = format!("min is larger than capacity value: {}", words_of(capacity));
        min.invalid(errors, &words);
    }
    if max.is_set() {
        if amount_of(&min) > amount_of(&max) {
            let words = format!("min is larger than max: {}", words_of(&max));
            max.invalid_as(errors, min.value.clone(), &words);
        } else if amount_of(preset) > amount_of(&max) {
            let words = format!("default is more than max: {}", words_of(&max));
            max.invalid_as(errors, preset.value.clone(), &words);
        }
        if amount_of(&max) > amount_of(capacity) {
            let words = format!("max is larger than capacity value: {}", words_of(capacity));
            max.invalid(errors, &words);
        }
    }
    // Upstream divides by the step; skip a step of zero.
    let start = amount_of(&min).value();
    let width = amount_of(&step).value();
    if width > 0 {
        for at in [preset, &max].into_iter().filter(|at| at.is_set()) {
            if amount_of(at).value().saturating_sub(start) % width != 0 {
                let words = format!(
                    "value is not a multiple of a given step ({}) from ({})",
                    words_of(&step),
                    words_of(&min)
                );
                step.invalid_as(errors, at.value.clone(), &words);
            }
        }
    }
}
