//! ConfigMaps, Secrets, Namespaces and ServiceAccounts.

use crate::check::{Field, children, default_empty};
use crate::strategy::{Strategy, SubresourceStrategy};
use keelson_meta::object_meta::validate_built_in_finalizers;
use keelson_meta::{ErrorList, FieldError, Map, Object, Path, Str, Value, names};
use keelson_schema::json;

/// Bytes of all values of a ConfigMap or Secret together.
const VALUES_BYTES_MAX: usize = 1024 * 1024;
const IMMUTABLE_DATA: &str = "field is immutable when `immutable` is set";

/// ConfigMaps.
pub(super) const fn config_map(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, _| validate_config_map(new),
        validate_change: |new, old| {
            let mut errors = ErrorList::new();
            immutable_data(new, old, &["data", "binaryData"], &mut errors);
            errors
        },
        ..base
    }
}

fn validate_config_map(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let plain = Field::of(new, "data");
    let binary = Field::of(new, "binaryData");
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
        // Upstream names no field, which prints as brackets.
        errors.push(FieldError::too_long(&Path::ROOT.key(""), VALUES_BYTES_MAX));
    }
    errors
}

fn data_key(key: &str, at: &Field<'_, '_>, errors: &mut ErrorList) {
    for why in names::is_config_map_key(key) {
        at.invalid_as(errors, key, &why);
    }
}

/// Returns the number of bytes that a base64 text encodes.
fn decoded_len(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

/// Checks that an immutable object stays immutable and keeps its values.
fn immutable_data(new: &Object, old: Option<&Object>, members: &[&str], errors: &mut ErrorList) {
    let is_immutable = |obj: &Object| obj.get("immutable").and_then(Value::as_bool) == Some(true);
    let Some(old) = old.filter(|old| is_immutable(old)) else { return };
    if !is_immutable(new) {
        Field::of(new, "immutable").forbidden(errors, IMMUTABLE_DATA);
    }
    for name in members {
        let value = |obj: &Object| obj.get(name).filter(|value| !value.is_empty()).cloned();
        if value(new) != value(old) {
            Field::of(new, name).forbidden(errors, IMMUTABLE_DATA);
        }
    }
}

/// Secrets.
pub(super) const fn secret(base: Strategy) -> Strategy {
    Strategy {
        default: default_secret,
        validate: |new, _| validate_secret(new),
        validate_change: validate_secret_change,
        warnings: secret_warnings,
        ..base
    }
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

/// Warns of a TLS secret without PEM data, with Go's message.
fn secret_warnings(new: &Object, _: Option<&Object>) -> Vec<Str> {
    use base64::Engine;
    if new.str_at(&["type"]) != "kubernetes.io/tls" {
        return vec![];
    }
    let holds_pem = |key: &str| {
        let text = new.str_at(&["data", key]);
        let decoded = base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
        String::from_utf8_lossy(&decoded).contains("-----BEGIN ")
    };
    let words = match (holds_pem("tls.crt"), holds_pem("tls.key")) {
        (false, _) => "tls: failed to find any PEM data in certificate input",
        (true, false) => "tls: failed to find any PEM data in key input",
        (true, true) => return vec![],
    };
    vec![Str::new_static(words)]
}

fn validate_secret_change(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(old) = old {
        Field::of(new, "type").unchanged(&mut errors, old.get("type").unwrap_or(&Value::Null));
        immutable_data(new, Some(old), &["data"], &mut errors);
    }
    errors
}

fn validate_secret(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let data = Field::of(new, "data");
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

/// Checks the keys that the well-known secret types require.
fn secret_type(secret: &Object, data: &Field<'_, '_>, errors: &mut ErrorList) {
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

fn json_value(data: &Field<'_, '_>, key: &str, errors: &mut ErrorList) {
    use base64::Engine;
    let path = data.path.key(key);
    if !data.has(key) {
        return errors.push(FieldError::required(&path, ""));
    }
    let decoded = base64::engine::general_purpose::STANDARD.decode(data.str(key));
    let found = match json::parse(&decoded.unwrap_or_default()) {
        Err(why) => return redacted(&path, &why.to_string(), errors),
        Ok(parsed) => match parsed.value {
            Value::Object(_) | Value::Null => return,
            Value::Array(_) => "array",
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            _ => "number",
        },
    };
    let words =
        format!("json: cannot unmarshal {found} into Go value of type map[string]interface {{}}");
    redacted(&path, &words, errors);
}

/// Adds an error without the secret value.
fn redacted(path: &Path<'_>, words: &str, errors: &mut ErrorList) {
    errors.push(FieldError::invalid(path, "<secret contents redacted>", words));
}

/// Namespaces. They have a finalizer in their spec until their content is deleted.
pub(super) const fn namespace(base: Strategy) -> Strategy {
    Strategy {
        name_rule: names::name_is_dns_label,
        default: default_namespace,
        prepare_create: prepare_namespace,
        prepare_update: prepare_namespace_update,
        validate: |new, _| validate_namespace_finalizers(new, false),
        validate_status: |new, _| validate_namespace_phase(new),
        subresources: &[SubresourceStrategy {
            name: "finalize",
            prepare: |new, old| match old.get("status").cloned() {
                Some(status) => drop(new.root.insert("status", status)),
                None => drop(new.root.remove("status")),
            },
            validate: |new, _| validate_namespace_finalizers(new, true),
        }],
        is_deletion_blocked: |namespace| !namespace.array_at(&["spec", "finalizers"]).is_empty(),
        ..base
    }
}

/// Validates the finalizers. Errors name the item in the `finalize` subresource (`indexed`), and
/// the list elsewhere.
fn validate_namespace_finalizers(namespace: &Object, indexed: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Path::new("spec");
    let list = spec.field("finalizers");
    for (number, name) in namespace.array_at(&["spec", "finalizers"]).iter().enumerate() {
        let path = if indexed { list.index(number) } else { list };
        let at = Field { value: name, path };
        at.rule(&mut errors, names::is_qualified_name);
        for fault in validate_built_in_finalizers(std::slice::from_ref(name), &path) {
            at.invalid(&mut errors, &fault.detail);
        }
    }
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
    default_empty(namespace.object_mut("status"), "phase", "Active");
    label_with_name(namespace);
}

/// Sets the label with the name, which is not known before a generated name is.
fn label_with_name(namespace: &mut Object) {
    let name = namespace.name().to_owned();
    if !name.is_empty() {
        let labels = namespace.metadata_mut().object_at("labels");
        labels.insert("kubernetes.io/metadata.name", name);
        labels.sort();
    }
}

fn prepare_namespace(namespace: &mut Object) {
    label_with_name(namespace);
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

/// ServiceAccounts. References to secrets keep only their names.
pub(super) const fn service_account(base: Strategy) -> Strategy {
    fn names_only(account: &mut Object) {
        for secret in children(&mut account.root, "secrets") {
            secret.retain(|name, _| name == "name");
        }
    }
    Strategy { prepare_create: names_only, prepare_update: |new, _| names_only(new), ..base }
}
