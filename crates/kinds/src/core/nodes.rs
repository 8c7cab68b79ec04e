//! Nodes.

use crate::check::{Field, child, default, new_cidr};
use crate::strategy::Strategy;
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, FieldError, Object, Path, SmallSet, Str, Value, ip, names, value};
use keelson_schema::json;

/// The annotation of pods that a node avoids.
const AVOIDED_PODS: &str = "scheduler.alpha.kubernetes.io/preferAvoidPods";

/// Nodes.
pub(super) const fn node(base: Strategy) -> Strategy {
    Strategy {
        default: default_node,
        prepare_create: |node| {
            drop_config_source(node, None);
            drop_config_status(node, None);
        },
        prepare_update: |node, old| drop_config_source(node, Some(old)),
        prepare_status: |node, old| drop_config_status(node, Some(old)),
        validate: |new, _| validate(new),
        validate_change,
        validate_status: validate_change,
        warnings: |new, _| {
            let has = |name: &str| new.at(&["spec", name]).is_some_and(|value| !value.is_empty());
            let mut warnings = vec![];
            if has("externalID") {
                let words =
                    "spec.externalID: this field is deprecated, and is unused by Kubernetes";
                warnings.push(Str::new_static(words));
            }
            warnings
        },
        ..base
    }
}

fn default_node(node: &mut Object) {
    if let Some(status) = child(&mut node.root, "status")
        && let Some(capacity) = status.get("capacity").cloned().filter(|list| !list.is_empty())
    {
        default(status, "allocatable", capacity);
    }
    let Some(spec) = child(&mut node.root, "spec") else { return };
    let first = spec.get("podCIDRs").and_then(Value::as_array).and_then(|list| list.first());
    match (first.cloned(), spec.get("podCIDR").filter(|range| !range.is_empty()).cloned()) {
        (Some(first), Some(range)) if first != range => {
            spec.insert("podCIDRs", vec![range]);
        }
        (Some(_), Some(_)) | (None, None) => {}
        (Some(first), None) => {
            spec.insert("podCIDR", first);
        }
        (None, Some(range)) => {
            spec.insert("podCIDRs", vec![range]);
        }
    }
}

/// Drops `spec.configSource` (dynamic kubelet configuration) unless the stored node has it.
fn drop_config_source(node: &mut Object, old: Option<&Object>) {
    let has = |old: &Object| old.at(&["spec", "configSource"]).is_some();
    if !old.is_some_and(has)
        && let Some(spec) = child(&mut node.root, "spec")
    {
        spec.remove("configSource");
    }
}

/// Drops `status.config` unless the stored node has it.
fn drop_config_status(node: &mut Object, old: Option<&Object>) {
    let has = |old: &Object| old.at(&["status", "config"]).is_some();
    if !old.is_some_and(has)
        && let Some(status) = child(&mut node.root, "status")
    {
        status.remove("config");
    }
}

fn validate(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    avoided_pods(new, &mut errors);
    let spec = Field::of(new, "spec");
    taints(&spec.field("taints"), &mut errors);
    let status = Field::of(new, "status");
    for list in ["capacity", "allocatable"] {
        amounts(&status.field(list), &mut errors);
    }
    pod_ranges(&spec.field("podCIDRs"), &mut errors);
    declared_features(&status.field("declaredFeatures"), &mut errors);
    errors
}

/// Validates the annotation with which schedulers once avoided a node.
fn avoided_pods(new: &Object, errors: &mut ErrorList) {
    let text = new.str_at(&["metadata", "annotations", AVOIDED_PODS]);
    if text.is_empty() {
        return;
    }
    let metadata = Path::new("metadata");
    let path = metadata.field("annotations");
    let parsed = match json::parse(text.as_bytes()) {
        Ok(parsed) => parsed.value,
        Err(why) => {
            let path = path.field("AvoidPods");
            errors.push(FieldError::invalid(&path, AVOIDED_PODS, &why.to_string()));
            return;
        }
    };
    let list = Field {
        value: parsed.at(&["preferAvoidPods"]).unwrap_or(&Value::Null),
        path: path.field(AVOIDED_PODS),
    };
    for entry in list.items() {
        let signature = entry.field("PodSignature");
        let controller = entry.get("podSignature").at(&["podController"]);
        let Some(controller) = controller.filter(|controller| controller.as_object().is_some())
        else {
            signature.required(errors, "");
            continue;
        };
        if controller.at(&["controller"]).and_then(Value::as_bool) != Some(true) {
            let of = signature.field("PodController");
            of.field("Controller").invalid_as(errors, false, "must point to a controller");
        }
    }
}

/// Validates declared features: `MyFeature` or `MyFeature/mySubFeature`, sorted.
fn declared_features(list: &Field<'_, '_>, errors: &mut ErrorList) {
    const BYTES_MAX: usize = 253;
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    let mut before: Option<&str> = None;
    for at in list.items() {
        let name = at.text();
        let shown = quote(name);
        match before {
            Some(before) if before == name => at.duplicate(errors),
            Some(before) if before > name => {
                at.invalid_as(errors, name, "list must be sorted alphabetically");
            }
            _ => {}
        }
        before = Some(name);
        if name.len() > BYTES_MAX {
            let words = names::max_length_error(BYTES_MAX);
            at.invalid_as(errors, name, &format!("invalid feature name {shown}: {words}"));
        } else if !name.starts_with(|c: char| c.is_ascii_uppercase())
            || !name.split('/').all(is_plain)
        {
            let words = format!(
                "invalid feature name {shown}: must start with an UpperCamelCase segment, with \
                 subsequent segments separated by '/' (e.g., MyFeature or MyFeature/mySubFeature), \
                 and contain only alphanumeric characters and slashes"
            );
            at.invalid_as(errors, name, &words);
        }
    }
}

/// Validates `podCIDRs`: at most one of each IP family.
fn pod_ranges(list: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut families: Vec<bool> = vec![];
    let mut unread: Option<(usize, &str)> = None;
    for (index, range) in list.items().enumerate() {
        errors.extend(new_cidr(range.text(), &range.path));
        match ip::parse_cidr(range.text()) {
            Some(parsed) => families.push(parsed.address.is_ipv4()),
            None => unread = unread.or(Some((index, range.text()))),
        }
    }
    if list.array().len() < 2 {
        return;
    }
    if let Some((index, text)) = unread {
        let words = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: \
             <nil> (invalid CIDR address: {text})"
        );
        errors.push(FieldError::internal(&list.path, &words));
    }
    let is_dual = families.contains(&true) && families.contains(&false);
    if list.array().len() > 2 || !is_dual {
        list.invalid(errors, "may specify no more than one CIDR for each IP family");
    }
}

fn amounts(list: &Field<'_, '_>, errors: &mut ErrorList) {
    for (name, amount) in list.entries() {
        let at = Field { value: amount.value, path: list.path.field(name) };
        super::pod::resources::positive(name, &at, errors);
    }
}

fn validate_change(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old else { return errors };
    let status = Field::of(new, "status");
    for list in ["capacity", "allocatable"] {
        amounts(&status.field(list), &mut errors);
    }
    let mut seen: SmallSet<(&str, &str)> = SmallSet::new();
    for address in status.field("addresses").items() {
        if !seen.insert((address.str("type"), address.str("address"))) {
            let kind = quote(address.str("type"));
            let text = quote(address.str("address"));
            let shown = format!("{{\"Type\":{kind},\"Address\":{text}}}");
            let error = FieldError::duplicate(&address.path, "");
            errors.push(FieldError { value: Some(shown), ..error });
        }
    }
    declared_features(&status.field("declaredFeatures"), &mut errors);
    update(new, old, &mut errors);
    errors
}

/// Checks that `podCIDRs`, `providerID` and `externalID` do not change once set, and validates the
/// taints.
fn update(new: &Object, old: &Object, errors: &mut ErrorList) {
    let spec = Field::of(new, "spec");
    let stored = Field::of(old, "spec");
    for (name, word) in [("podCIDRs", "podCIDR"), ("providerID", "providerID")] {
        if !stored.get(name).is_empty() && spec.get(name) != stored.get(name) {
            let words = format!("node updates may not change {word} except from \"\" to valid");
            spec.field(name).forbidden(errors, &words);
        }
    }
    taints(&spec.field("taints"), errors);
    if spec.get("externalID") != stored.get("externalID") {
        spec.field("externalID").forbidden(errors, "may not be updated");
    }
}

fn taints(list: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut seen: SmallSet<(&str, &str)> = SmallSet::new();
    // Upstream's path is that of the annotation that held taints before the field existed.
    let metadata = Path::new("metadata");
    let list = Field { value: list.value, path: metadata.field("taints") };
    for taint in list.items() {
        taint.field("key").rule(errors, names::is_qualified_name);
        for why in names::is_valid_label_value(taint.str("value")) {
            taint.field("value").invalid_as(errors, taint.str("value"), &why);
        }
        let effects = &["NoSchedule", "PreferNoSchedule", "NoExecute"];
        taint.field("effect").required_one_of(errors, effects);
        if !seen.insert((taint.str("key"), taint.str("effect"))) {
            let key = taint.str("key");
            let text = taint.str("value");
            let effect = taint.str("effect");
            let added = taint.get("timeAdded").clone();
            let shown = value!({
                "Key": key, "Value": text, "Effect": effect, "TimeAdded": (added)
            });
            let error = FieldError::duplicate(&taint.path, shown);
            let detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(FieldError { detail, ..error });
        }
    }
}
