//! Rules of kinds of the core group.

use crate::strategy::Strategy;
use keelson_meta::{ErrorList, FieldError, Map, Object, Path, Value, names};

/// Seconds that a pod has to stop when nothing else is said.
const POD_GRACE_SECONDS: i64 = 30;

/// Pods begin as Pending and are deleted gracefully.
pub(super) fn pod(base: Strategy) -> Strategy {
    Strategy { prepare_create: prepare_pod, grace: Some(pod_grace), ..base }
}

fn prepare_pod(pod: &mut Object) {
    let status = pod.object_mut("status");
    status.insert("phase", "Pending");
}

/// A pod that no node runs, or that has ended, has nothing to finish.
fn pod_grace(pod: &Object, asked: Option<i64>) -> i64 {
    let declared = pod.int_at(&["spec", "terminationGracePeriodSeconds"]);
    let period = asked.or(declared).unwrap_or(POD_GRACE_SECONDS);
    let ended = matches!(pod.str_at(&["status", "phase"]), "Failed" | "Succeeded");
    if pod.str_at(&["spec", "nodeName"]).is_empty() || ended {
        return 0;
    }
    // A negative period counts as the shortest one.
    if period < 0 { 1 } else { period }
}

/// Namespaces carry a finalizer in their spec until their content is gone.
pub(super) fn namespace(base: Strategy) -> Strategy {
    Strategy {
        name_rule: names::name_is_dns_label,
        fields: const {
            &[crate::strategy::SelectableField {
                name: "status.phase",
                places: &[&["status", "phase"]],
                unset: "",
            }]
        },
        default: default_namespace,
        prepare_create: prepare_namespace,
        prepare_update: prepare_namespace_update,
        ..base
    }
}

fn default_namespace(namespace: &mut Object) {
    let name = namespace.name().to_owned();
    if !name.is_empty() {
        let labels = namespace.metadata_mut().object_at("labels");
        labels.entry_or("kubernetes.io/metadata.name", || Value::Null);
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
    match old.at(&["spec", "finalizers"]) {
        Some(finalizers) => {
            let finalizers = finalizers.clone();
            new.object_mut("spec").insert("finalizers", finalizers);
        }
        None => {
            new.object_mut("spec").remove("finalizers");
        }
    }
}

/// Secrets have a type, take plain text, and keep bytes.
pub(super) fn secret(base: Strategy) -> Strategy {
    Strategy { default: default_secret, validate: validate_secret, ..base }
}

fn default_secret(secret: &mut Object) {
    if secret.str_at(&["type"]).is_empty() {
        secret.root.insert("type", "Opaque");
    }
    let Some(Value::Object(plain)) = secret.root.remove("stringData") else {
        return;
    };
    let data = secret.object_mut("data");
    for (key, value) in plain {
        use base64::Engine;
        let text = value.as_str().unwrap_or_default();
        data.insert(key, base64::engine::general_purpose::STANDARD.encode(text));
    }
    data.sort();
}

fn validate_secret(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let data = Path::new("data");
    if let Some(map) = new.get("data").and_then(Value::as_object) {
        for (key, _) in map.sorted() {
            for why in names::is_config_map_key(key) {
                errors.push(FieldError::invalid(&data.key(key), key.clone(), &why));
            }
        }
    }
    if let Some(old) = old
        && old.get("type") != new.get("type")
    {
        let value = new.get("type").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&Path::new("type"), value, "field is immutable"));
    }
    errors
}
