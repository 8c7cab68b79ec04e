//! ConfigMaps, Secrets, Namespaces, ServiceAccounts, LimitRanges and ResourceQuotas.

use super::check::{At, children, default_empty};
use crate::strategy::{PartRules, SelectableField, Strategy};
use keelson_meta::object_meta::validate_built_in_finalizers;
use keelson_meta::{ErrorList, FieldError, Map, Object, Path, Seen, Str, Value, names};
use keelson_schema::json;

/// Bytes of all values of a ConfigMap or Secret.
const VALUES_BYTES_MAX: usize = 1024 * 1024;
const SEALED: &str = "field is immutable when `immutable` is set";

/// ConfigMaps.
pub(super) fn config_map(base: Strategy) -> Strategy {
    Strategy { validate: validate_config_map, ..base }
}

fn validate_config_map(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    sealed(new, old, &["data", "binaryData"], &mut errors);
    let (plain, binary) = (At::of(new, "data"), At::of(new, "binaryData"));
    let mut bytes = 0;
    for (key, at) in plain.entries() {
        data_key(key, &at, &mut errors);
        if binary.has(key) {
            at.invalid_as(&mut errors, key, "duplicate of key present in binaryData");
        }
        bytes += at.text().len();
    }
    for (key, at) in binary.entries() {
        data_key(key, &at, &mut errors);
        bytes += decoded_len(at.text());
    }
    if bytes > VALUES_BYTES_MAX {
        // Upstream names no field; an unnamed one prints as brackets.
        errors.push(FieldError::too_long(&Path::ROOT.key(""), VALUES_BYTES_MAX));
    }
    errors
}

fn data_key(key: &str, at: &At<'_, '_>, errors: &mut ErrorList) {
    for why in names::is_config_map_key(key) {
        at.invalid_as(errors, key, &why);
    }
}

/// Bytes that base64 text stands for.
fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

/// What is immutable stays so, with its values.
fn sealed(new: &Object, old: Option<&Object>, members: &[&str], errors: &mut ErrorList) {
    let is_sealed = |obj: &Object| obj.get("immutable").and_then(Value::as_bool) == Some(true);
    let Some(old) = old.filter(|old| is_sealed(old)) else { return };
    if !is_sealed(new) {
        At::of(new, "immutable").forbidden(errors, SEALED);
    }
    for name in members {
        let value = |obj: &Object| obj.get(name).filter(|value| !value.is_empty()).cloned();
        if value(new) != value(old) {
            At::of(new, name).forbidden(errors, SEALED);
        }
    }
}

/// Secrets have a type, take plain text, and keep bytes.
pub(super) fn secret(base: Strategy) -> Strategy {
    Strategy { default: default_secret, validate: validate_secret, ..base }
}

fn default_secret(secret: &mut Object) {
    default_empty(&mut secret.root, "type", "Opaque");
    let Some(Value::Object(plain)) = secret.root.remove("stringData") else { return };
    let encoded = |(key, value): (Str, Value)| {
        use base64::Engine;
        let text = value.as_str().unwrap_or_default();
        (key, Value::from(base64::engine::general_purpose::STANDARD.encode(text)))
    };
    let data = secret.object_mut("data");
    *data = std::mem::take(data).into_iter().chain(plain.into_iter().map(encoded)).collect();
    data.sort();
}

fn validate_secret(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(old) = old {
        At::of(new, "type").unchanged(&mut errors, old.get("type").unwrap_or(&Value::Null));
        sealed(new, Some(old), &["data"], &mut errors);
    }
    let data = At::of(new, "data");
    let mut bytes = 0;
    for (key, at) in data.entries() {
        data_key(key, &at, &mut errors);
        bytes += decoded_len(at.text());
    }
    if bytes > VALUES_BYTES_MAX {
        errors.push(FieldError::too_long(&data.path, VALUES_BYTES_MAX));
    }
    secret_type(new, &data, &mut errors);
    errors
}

/// What secrets of the known types must hold.
fn secret_type(secret: &Object, data: &At<'_, '_>, errors: &mut ErrorList) {
    const ACCOUNT: &str = "kubernetes.io/service-account.name";
    let missing = |key: &str, errors: &mut ErrorList| {
        errors.push(FieldError::required(&data.path.key(key), ""));
    };
    match secret.str_at(&["type"]) {
        "kubernetes.io/service-account-token"
            if secret.annotation(ACCOUNT).unwrap_or_default().is_empty() =>
        {
            let metadata = Path::new("metadata");
            let annotations = metadata.field("annotations");
            errors.push(FieldError::required(&annotations.key(ACCOUNT), ""));
        }
        "kubernetes.io/dockercfg" => json_value(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => json_value(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if !data.has("username") && !data.has("password") => {
            missing("username", errors);
            missing("password", errors);
        }
        "kubernetes.io/ssh-auth" if data.str("ssh-privatekey").is_empty() => {
            missing("ssh-privatekey", errors);
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].iter().filter(|key| !data.has(key)) {
                missing(key, errors);
            }
        }
        _ => {}
    }
}

fn json_value(data: &At<'_, '_>, key: &str, errors: &mut ErrorList) {
    use base64::Engine;
    let path = data.path.key(key);
    if !data.has(key) {
        return errors.push(FieldError::required(&path, ""));
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(data.str(key));
    if let Err(why) = json::parse(&decoded.unwrap_or_default()) {
        let hidden = "<secret contents redacted>";
        errors.push(FieldError::invalid(&path, hidden, &why.to_string()));
    }
}

/// Namespaces carry a finalizer in their spec until their content is gone.
pub(super) fn namespace(base: Strategy) -> Strategy {
    Strategy {
        name_rule: names::name_is_dns_label,
        fields: const {
            &[SelectableField { name: "status.phase", places: &[&["status", "phase"]], unset: "" }]
        },
        default: default_namespace,
        prepare_create: prepare_namespace,
        prepare_update: prepare_namespace_update,
        validate: |new, _| validate_namespace_finalizers(new),
        validate_status: |new, _| validate_namespace_phase(new),
        parts: &[PartRules {
            name: "finalize",
            prepare: |new, old| match old.get("status").cloned() {
                Some(status) => drop(new.root.insert("status", status)),
                None => drop(new.root.remove("status")),
            },
            validate: |new, _| validate_namespace_finalizers(new),
        }],
        is_held: |namespace| !namespace.array_at(&["spec", "finalizers"]).is_empty(),
        ..base
    }
}

fn validate_namespace_finalizers(namespace: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Path::new("spec");
    let path = spec.field("finalizers");
    for at in At::of(namespace, "spec").field("finalizers").items() {
        at.rule(&mut errors, names::is_qualified_name);
    }
    let finalizers = namespace.array_at(&["spec", "finalizers"]);
    errors.extend(validate_built_in_finalizers(finalizers, &path));
    errors
}

fn validate_namespace_phase(namespace: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let (wanted, state) = match namespace.deletion_timestamp() {
        None => ("Active", "empty"),
        Some(_) => ("Terminating", "not empty"),
    };
    let phase = namespace.str_at(&["status", "phase"]);
    if phase != wanted {
        let why = format!("may only be '{wanted}' if `deletionTimestamp` is {state}");
        errors.push(FieldError::invalid(&Path::new("status").field("Phase"), phase, &why));
    }
    errors
}

fn default_namespace(namespace: &mut Object) {
    let name = namespace.name().to_owned();
    if !name.is_empty() {
        let labels = namespace.metadata_mut().object_at("labels");
        labels.insert("kubernetes.io/metadata.name", name);
        labels.sort();
    }
}

fn prepare_namespace(namespace: &mut Object) {
    let mut status = Map::new();
    status.insert("phase", "Active");
    namespace.root.insert("status", status);
    let spec = namespace.object_mut("spec");
    let finalizers = spec.entry_or("finalizers", || Value::Array(vec![]));
    if let Value::Array(items) = finalizers
        && !items.iter().any(|item| item.as_str() == Some("kubernetes"))
    {
        items.push("kubernetes".into());
    }
}

fn prepare_namespace_update(new: &mut Object, old: &Object) {
    match old.at(&["spec", "finalizers"]).cloned() {
        Some(finalizers) => new.object_mut("spec").insert("finalizers", finalizers),
        None => new.object_mut("spec").remove("finalizers"),
    };
}

/// ServiceAccounts keep nothing of their secrets but names.
pub(super) fn service_account(base: Strategy) -> Strategy {
    fn names_only(account: &mut Object) {
        for secret in children(&mut account.root, "secrets") {
            secret.retain(|name, _| name == "name");
        }
    }
    Strategy { prepare_create: names_only, prepare_update: |new, _| names_only(new), ..base }
}

/// LimitRanges.
pub(super) fn limit_range(base: Strategy) -> Strategy {
    Strategy { default: default_limit_range, validate: |new, _| validate_limit_range(new), ..base }
}

fn default_limit_range(range: &mut Object) {
    let spec = range.object_mut("spec");
    if spec.get("limits").is_some_and(Value::is_empty) {
        spec.remove("limits");
    }
    for item in children(spec, "limits") {
        if item.get("type").and_then(Value::as_str) != Some("Container") {
            continue;
        }
        fill_from(item, "default", "max");
        fill_from(item, "defaultRequest", "default");
        fill_from(item, "defaultRequest", "min");
    }
}

/// Amounts that one list lacks are those of another.
fn fill_from(item: &mut Map, list: &str, source: &str) {
    let Some(amounts) = item.get(source).and_then(Value::as_object).cloned() else { return };
    let target = item.object_at(list);
    target.fill(amounts);
}

fn validate_limit_range(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = At::of(new, "spec");
    let limits = spec.field("limits");
    let mut seen: Seen<&str> = Seen::new();
    for item in limits.items() {
        let kind = item.field("type");
        if kind.not_empty(&mut errors, "") {
            kind.rule(&mut errors, names::is_qualified_name);
            let standard = ["Pod", "Container", "PersistentVolumeClaim"].contains(&kind.text());
            if !standard && !kind.text().contains('/') {
                let words = "must be a standard limit type or fully qualified";
                kind.invalid(&mut errors, words);
            }
        }
        if !seen.insert(kind.text()) {
            kind.duplicate(&mut errors);
        }
        limit_item(&item, &mut errors);
    }
    errors
}

fn limit_item(item: &At<'_, '_>, errors: &mut ErrorList) {
    const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
    for list in LISTS {
        for (name, amount) in item.field(list).entries() {
            super::pod::resources::positive(name, &amount, errors);
        }
        let only_containers = matches!(list, "default" | "defaultRequest");
        if only_containers && item.str("type") == "Pod" && !item.get(list).is_empty() {
            item.field(list).forbidden(errors, "may not be specified when `type` is 'Pod'");
        }
    }
    if item.str("type") == "PersistentVolumeClaim" {
        let (min, max) = (item.get("min").get("storage"), item.get("max").get("storage"));
        if min.is_none() && max.is_none() {
            let words =
                "either minimum or maximum storage value is required, but neither was provided";
            item.field("limits").required(errors, words);
        }
    }
    for (small, large, words) in [
        ("min", "max", "min value"),
        ("min", "defaultRequest", "min value"),
        ("min", "default", "min value"),
        ("defaultRequest", "max", "default request value"),
        ("defaultRequest", "default", "default request value"),
        ("default", "max", "default value"),
    ] {
        ordered(item, small, large, words, errors);
    }
}

fn ordered(item: &At<'_, '_>, small: &str, large: &str, words: &str, errors: &mut ErrorList) {
    let place = item.field(small);
    let upper = item.field(large);
    for (name, amount) in place.entries() {
        let limit = upper.field(name);
        let (Some(low), Some(high)) = (amount.quantity(), limit.quantity()) else { continue };
        if low > high {
            let what = match large {
                "max" => "max value",
                "default" => "default limit value",
                _ => "default request value",
            };
            let (low, high) = (low.to_string(), high.to_string());
            let words = format!("{words} {low} is greater than {what} {high}");
            amount.invalid_as(errors, low, &words);
        }
    }
}

/// ResourceQuotas.
pub(super) fn resource_quota(base: Strategy) -> Strategy {
    Strategy { validate: validate_quota, validate_status: |new, _| quota_status(new), ..base }
}

fn validate_quota(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = At::of(new, "spec");
    let hard = spec.field("hard");
    amounts(&hard, &mut errors);
    scopes(&spec.field("scopes"), &hard, &mut errors);
    if let Some(old) = old {
        let at = spec.field("scopes");
        let sorted = |list: &[Value]| {
            let mut texts: Vec<String> =
                list.iter().filter_map(|v| v.as_str().map(str::to_owned)).collect();
            texts.sort();
            texts
        };
        if sorted(at.array()) != sorted(old.array_at(&["spec", "scopes"])) {
            at.invalid(&mut errors, keelson_meta::object_meta::IMMUTABLE);
        }
    }
    errors
}

fn quota_status(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = At::of(new, "status");
    amounts(&status.field("hard"), &mut errors);
    amounts(&status.field("used"), &mut errors);
    errors
}

fn amounts(list: &At<'_, '_>, errors: &mut ErrorList) {
    for (name, amount) in list.entries() {
        let key = Value::from(name);
        let is_count = name.starts_with("count/");
        if !is_count {
            let at = At { value: &key, path: amount.path };
            let before = errors.len();
            super::pod::resources::resource_name(&at, errors);
            if errors.len() > before && !name.contains('/') {
                errors.truncate(before);
                at.invalid(errors, "must be a standard resource for quota");
            }
        }
        super::pod::resources::positive(name, &amount, errors);
    }
}

fn scopes(at: &At<'_, '_>, hard: &At<'_, '_>, errors: &mut ErrorList) {
    const SCOPES: &[&str] = &[
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
        "VolumeAttributesClass",
    ];
    const COMPUTE: &[&str] = &[
        "pods",
        "cpu",
        "memory",
        "limits.cpu",
        "limits.memory",
        "requests.cpu",
        "requests.memory",
    ];
    // How many resources do not fit a scope is counted once for all scopes of a sort.
    let unfit = |fits: fn(&str) -> bool| {
        let names = hard.value.as_object().into_iter().flat_map(Map::iter).map(|(name, _)| name);
        names.filter(|name| !name.contains('/') && !fits(name)).count()
    };
    let best_effort = unfit(|name| name == "pods");
    let volumes = unfit(|name| name.ends_with("storage") || name == "persistentvolumeclaims");
    let compute = unfit(|name| COMPUTE.contains(&name));
    for scope in at.items() {
        if !SCOPES.contains(&scope.text()) {
            at.invalid(errors, "unsupported scope");
        }
        let unfit = match scope.text() {
            "BestEffort" => best_effort,
            "VolumeAttributesClass" => volumes,
            _ => compute,
        };
        for _ in 0..unfit {
            if errors.is_full() {
                break;
            }
            at.invalid(errors, "unsupported scope applied to resource");
        }
    }
    let has = |scope: &str| at.array().iter().any(|value| value.as_str() == Some(scope));
    for (one, other) in [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")] {
        if has(one) && has(other) {
            at.invalid(errors, "conflicting scopes");
        }
    }
}
