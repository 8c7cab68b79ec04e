//! PersistentVolumeClaims and PersistentVolumes.

use crate::check::{Field, child, children, default, default_empty};
use crate::core::claim_template::{VOLUME_MODES, access_modes, claim_spec, positive};
use crate::core::pod::warnings::{
    Warnings, claim_sizes, collect_warnings, deprecated_volume, node_label_expressions,
    renamed_node_label,
};
use crate::core::pod::{differences, scheduling, volumes};
use crate::equality::{self, go};
use crate::gates;
use crate::strategy::Strategy;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, Feature, FieldError, Map, Object, Path, Str, Value, names, value};

/// The annotation that named the storage class before the field existed.
const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";

/// PersistentVolumeClaims.
pub(super) const fn claim(base: Strategy) -> Strategy {
    Strategy {
        default: |obj| default_claim(&mut obj.root),
        prepare_create: |obj| {
            obj.root.insert("status", value!({"phase": "Pending"}));
            drop_cross_namespace_source(obj.object_mut("spec"));
            sync_data_sources(obj, None);
        },
        prepare_update: |obj, old| {
            if old.at(&["spec", "dataSourceRef"]).is_none() {
                drop_cross_namespace_source(obj.object_mut("spec"));
            }
            sync_data_sources(obj, Some(old));
        },
        validate: validate_claim,
        validate_status: |new, _| claim_status(new),
        warnings: |new, _| claim_warnings(new),
        ..base
    }
}

/// Sets the defaults of a claim or of a claim template.
pub(crate) fn default_claim(claim: &mut Map) {
    default_empty(claim.object_at("status"), "phase", "Pending");
    default(claim.object_at("spec"), "volumeMode", "Filesystem");
}

/// Drops a data source in another namespace unless `CrossNamespaceVolumeDataSource` is enabled.
fn drop_cross_namespace_source(spec: &mut Map) {
    if gates::is_on(Feature::CrossNamespaceVolumeDataSource) {
        return;
    }
    let namespace = spec.get("dataSourceRef").and_then(|source| source.str_at(&["namespace"]));
    if namespace.is_some_and(|namespace| !namespace.is_empty()) {
        spec.remove("dataSourceRef");
    }
}

/// Copies `dataSource` to `dataSourceRef` or back. `dataSource` supports fewer kinds.
fn sync_data_sources(claim: &mut Object, old: Option<&Object>) {
    let had_source = old.is_some_and(|old| old.at(&["spec", "dataSource"]).is_some());
    let spec = claim.object_mut("spec");
    let text = |value: &Value, name: &str| value.str_at(&[name]).unwrap_or_default().to_owned();
    let known = |source: &Value| {
        matches!(
            (text(source, "apiGroup").as_str(), text(source, "kind").as_str()),
            ("", "PersistentVolumeClaim") | ("snapshot.storage.k8s.io", "VolumeSnapshot")
        )
    };
    let reference = spec.get("dataSourceRef").filter(|source| !source.is_null()).cloned();
    if !had_source
        && reference.is_none()
        && spec.get("dataSource").is_some_and(|source| !known(source))
    {
        spec.remove("dataSource");
    }
    let source = spec.get("dataSource").filter(|source| !source.is_null()).cloned();
    match (source, reference) {
        (Some(source), None) => {
            spec.insert("dataSourceRef", source);
        }
        (None, Some(reference)) if text(&reference, "namespace").is_empty() => {
            spec.insert("dataSource", reference);
        }
        _ => {}
    }
}

fn validate_claim(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    // Sources of stored claims keep a group that is no longer valid.
    let has_group = |old: &Object| {
        let mut sources = ["dataSource", "dataSourceRef"].iter();
        sources.any(|source| {
            old.at(&["spec", source, "apiGroup"]).is_some_and(|group| !group.is_null())
        })
    };
    claim_spec(&spec, old.is_some_and(has_group), &mut errors);
    if let Some(old) = old {
        claim_update(new, old, &mut errors);
    }
    errors
}

/// Warns of an annotation that a field has replaced.
fn old_annotation(obj: &Object, key: &str, text: &str, warnings: &mut Warnings) {
    if obj.annotation(key).is_some() {
        let metadata = Path::new("metadata");
        warnings.push(&metadata.field("annotations").key(key), text);
    }
}

const OLD_CLASS_TEXT: &str = "deprecated since v1.8; use \"storageClassName\" attribute instead";

fn claim_warnings(claim: &Object) -> Vec<Str> {
    collect_warnings(|warnings| {
        old_annotation(claim, OLD_CLASS, OLD_CLASS_TEXT, warnings);
        claim_sizes(&Field::of(claim, "spec"), warnings);
    })
}

fn volume_warnings(volume: &Object) -> Vec<Str> {
    collect_warnings(|warnings| {
        old_annotation(volume, OLD_CLASS, OLD_CLASS_TEXT, warnings);
        let options = "deprecated since v1.31; use \"mountOptions\" attribute instead";
        old_annotation(volume, "volume.beta.kubernetes.io/mount-options", options, warnings);
        let spec = Field::of(volume, "spec");
        let policy = spec.field("persistentVolumeReclaimPolicy");
        if policy.text() == "Recycle" {
            let text = "The Recycle reclaim policy is deprecated. Instead, the recommended approach \
                        is to use dynamic provisioning.";
            warnings.push(&policy.path, text);
        }
        let affinity = spec.field("nodeAffinity");
        let required = affinity.field("required");
        for term in required.field("nodeSelectorTerms").items() {
            node_label_expressions(&term, warnings);
        }
        deprecated_volume(&spec, warnings);
    })
}

/// Validates the status of a claim.
fn claim_status(new: &Object) -> ErrorList {
    const RESIZES: &[&str] = &[
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    for (_, amount) in status.field("capacity").entries() {
        valid_amount(&amount, &mut errors);
    }
    let resizes = status.field("allocatedResourceStatuses");
    for (name, resize) in resizes.entries() {
        resource_key(&resizes, name, &mut errors);
        if !RESIZES.contains(&resize.text()) {
            errors.push(FieldError::not_supported(&resizes.path, name, RESIZES));
        }
    }
    let allocated = status.field("allocatedResources");
    for (name, amount) in allocated.entries() {
        if resource_key(&allocated, name, &mut errors) {
            valid_amount(&amount, &mut errors);
        }
    }
    errors
}

/// Validates a resource name: `storage`, or one with another domain. Returns whether it is valid.
fn resource_key(at: &Field<'_, '_>, name: &str, errors: &mut ErrorList) -> bool {
    let before = errors.len();
    let messages = names::is_qualified_name(name);
    for why in &messages {
        at.invalid_as(errors, name, why);
    }
    let is_native = !name.contains('/') || name.contains("kubernetes.io/");
    if messages.is_empty() && is_native && name != "storage" {
        errors.push(FieldError::not_supported(&at.path, name, &["storage"]));
    }
    errors.len() == before
}

fn valid_amount(amount: &Field<'_, '_>, errors: &mut ErrorList) {
    if let Some(quantity) = amount.quantity()
        && quantity.value() < 0
    {
        amount.invalid_as(errors, quantity.value(), "must be a valid resource quantity");
    }
}

fn claim_update(new: &Object, old: &Object, errors: &mut ErrorList) {
    let spec = Field::of(new, "spec");
    let member =
        |obj: &Object| obj.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    let mut desired = member(new);
    let stored = member(old);
    let keep = |desired: &mut Map, name: &str| match stored.get(name) {
        Some(value) => desired.insert(name, value.clone()),
        None => desired.remove(name),
    };
    if stored.get("volumeName").is_none_or(Value::is_empty) {
        keep(&mut desired, "volumeName");
    }
    // The annotation may be copied to the field, and a claim without a class may get one.
    let class = spec.field("storageClassName");
    let now = new.annotation(OLD_CLASS);
    let then = old.annotation(OLD_CLASS);
    let had_none = stored.get("storageClassName").is_none() && class.is_set();
    let is_then = then == Some(class.text());
    if had_none && is_then && now.is_none_or(|now| Some(now) == then) {
        keep(&mut desired, "storageClassName");
    } else {
        old_class(new, old, errors);
        if had_none && (then.is_none() || is_then) {
            keep(&mut desired, "storageClassName");
        }
    }
    let bound = old.str_at(&["status", "phase"]) == "Bound";
    if bound {
        keep(&mut desired, "volumeAttributesClassName");
        let amount = stored.get("resources").and_then(|r| r.at(&["requests", "storage"])).cloned();
        let resources = child(&mut desired, "resources");
        let requests = resources.and_then(|resources| child(resources, "requests"));
        if let (Some(requests), Some(amount)) = (requests, amount) {
            requests.insert("storage", amount);
        }
    }
    let desired = Value::Object(desired);
    let before = Field::of(old, "spec");
    if !equality::equal(go::CLAIM_SPEC, &desired, before.value) {
        let words = "spec is immutable after creation except resources.requests and \
                     volumeAttributesClassName for bound claims";
        let words = format!("{words}\n{}", differences(&desired, before.value));
        spec.forbidden(errors, &words);
    }
    shrinks(&spec, old, errors);
    volume_mode(&spec, &stored, errors);
}

fn shrinks(spec: &Field<'_, '_>, old: &Object, errors: &mut ErrorList) {
    let amount = |value: Option<&Value>| value.and_then(crate::check::quantity).unwrap_or_default();
    let desired = amount(spec.value.at(&["resources", "requests", "storage"]));
    let stored = amount(old.at(&["spec", "resources", "requests", "storage"]));
    let present = amount(old.at(&["status", "capacity", "storage"]));
    if desired < stored && desired <= present {
        let resources = spec.path.field("resources");
        let requests = resources.field("requests");
        let words = "field can not be less than status.capacity";
        errors.push(FieldError::forbidden(&requests.field("storage"), words));
    }
}

fn old_class(new: &Object, old: &Object, errors: &mut ErrorList) {
    let text = |obj: &Object| obj.annotation(OLD_CLASS).unwrap_or_default().to_owned();
    if text(new) != text(old) {
        let metadata = Path::new("metadata");
        let annotations = metadata.field("annotations");
        let path = annotations.field(OLD_CLASS);
        errors.push(FieldError::invalid(&path, text(new), IMMUTABLE));
    }
}

/// Upstream's path of this error lacks `spec`.
fn volume_mode(spec: &Field<'_, '_>, stored: &Map, errors: &mut ErrorList) {
    let at = Field { value: spec.get("volumeMode"), path: Path::new("volumeMode") };
    at.unchanged(errors, stored.get("volumeMode").unwrap_or(&Value::Null));
}

/// PersistentVolumes.
pub(super) const fn volume(base: Strategy) -> Strategy {
    Strategy {
        default: default_volume,
        prepare_create: |obj| {
            let now = obj.creation_timestamp().to_owned();
            let status = value!({"phase": "Pending", "lastPhaseTransitionTime": (now.as_str())});
            obj.root.insert("status", status);
        },
        validate: |new, _| {
            let mut errors = ErrorList::new();
            volume_spec(&Field::of(new, "spec"), &mut errors);
            errors
        },
        validate_change: validate_volume_change,
        record_time: record_phase_change,
        warnings: |new, _| volume_warnings(new),
        ..base
    }
}

fn default_volume(obj: &mut Object) {
    default_empty(obj.object_mut("status"), "phase", "Pending");
    let spec = obj.object_mut("spec");
    default_empty(spec, "persistentVolumeReclaimPolicy", "Retain");
    default(spec, "volumeMode", "Filesystem");
    if let Some(path) = child(spec, "hostPath") {
        default(path, "type", "");
    }
}

type Check = fn(&Field<'_, '_>, errors: &mut ErrorList);

/// The volume sources in the order of errors.
const SOURCES: &[(&str, Check)] = &[
    ("hostPath", volumes::host_path),
    ("gcePersistentDisk", volumes::gce_disk),
    ("awsElasticBlockStore", volumes::aws_disk),
    ("glusterfs", glusterfs),
    ("flocker", volumes::flocker),
    ("nfs", volumes::nfs),
    ("rbd", volumes::rbd),
    ("quobyte", volumes::quobyte),
    ("cephfs", volumes::cephfs),
    ("iscsi", volumes::persistent_iscsi),
    ("cinder", cinder),
    ("fc", volumes::fibre_channel),
    ("flexVolume", volumes::flex),
    ("azureFile", volumes::azure_file),
    ("vsphereVolume", volumes::vsphere),
    ("photonPersistentDisk", volumes::photon),
    ("portworxVolume", volumes::portworx),
    ("azureDisk", volumes::azure_disk),
    ("scaleIO", volumes::scale_io),
    ("local", local),
    ("storageos", storage_os),
    ("csi", csi),
];

fn glusterfs(at: &Field<'_, '_>, errors: &mut ErrorList) {
    volumes::glusterfs(at, errors);
    let namespace = at.field("endpointsNamespace");
    if namespace.is_set() && namespace.text().is_empty() {
        let words = "if the endpointnamespace is set, it must be a valid namespace name";
        namespace.invalid(errors, words);
    }
    namespace.rule_if_set(errors, names::is_dns1123_label);
}

fn cinder(at: &Field<'_, '_>, errors: &mut ErrorList) {
    volumes::cinder(at, errors);
    let secret = at.field("secretRef");
    if secret.is_set() {
        secret.field("namespace").not_empty(errors, "");
    }
}

fn storage_os(at: &Field<'_, '_>, errors: &mut ErrorList) {
    volumes::storage_os_names(at, errors);
    let secret = at.field("secretRef");
    if secret.is_set() {
        secret.field("name").not_empty(errors, "");
        secret.field("namespace").not_empty(errors, "");
    }
}

fn local(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let path = at.field("path");
    if path.not_empty(errors, "") {
        super::pod::paths::no_backsteps(&path, errors);
    }
}

fn csi(at: &Field<'_, '_>, errors: &mut ErrorList) {
    volumes::driver_name(&at.field("driver"), errors);
    at.field("volumeHandle").not_empty(errors, "");
    // Upstream does not validate `nodeStageSecretRef`.
    let secrets = [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ];
    for name in secrets {
        let secret = at.field(name);
        if secret.is_set() {
            secret.field("name").required_rule(errors, names::is_dns1123_subdomain);
            secret.field("namespace").required_rule(errors, names::is_dns1123_label);
        }
    }
}

/// Sets `lastPhaseTransitionTime` when the phase changes.
fn record_phase_change(new: &mut Object, old: &Object, now: &str) {
    const SINCE: &str = "lastPhaseTransitionTime";
    let since = |obj: &Object| obj.at(&["status", SINCE]).cloned().unwrap_or_default();
    let given = since(new);
    let stored = since(old);
    if given.is_null() && !stored.is_null() && new.get("status").is_some() {
        new.object_mut("status").insert(SINCE, now);
        return;
    }
    let changed = new.str_at(&["status", "phase"]) != old.str_at(&["status", "phase"]);
    if changed && (given.is_null() || given == stored) {
        new.object_mut("status").insert(SINCE, now);
    }
}

fn validate_volume_change(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old else { return errors };
    let spec = Field::of(new, "spec");
    let stored = old.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
    let sources = |map: &Map| {
        let mut map = map.clone();
        map.retain(|name, _| SOURCES.iter().any(|(known, _)| *known == name.as_str()));
        Value::Object(map)
    };
    let desired = spec.value.as_object().cloned().unwrap_or_default();
    let now = sources(&desired);
    let before = sources(&stored);
    if !equality::equal(go::VOLUME_SPEC, &now, &before) {
        let words = "spec.persistentvolumesource is immutable after creation";
        let words = format!("{words}\n{}", differences(&now, &before));
        let path = spec.path.field("persistentvolumesource");
        errors.push(FieldError::forbidden(&path, &words));
    }
    volume_mode(&spec, &stored, &mut errors);
    if !gates::is_on(Feature::MutablePVNodeAffinity)
        && let Some(affinity) = stored.get("nodeAffinity").filter(|value| !value.is_null())
        && let given = spec.get("nodeAffinity")
        && let affinity = with_new_labels(affinity, given)
        && !equality::equal_members(go::VOLUME_SPEC, "nodeAffinity", given, &affinity)
    {
        // Upstream's path of this error lacks `spec`.
        let at = Field { value: spec.get("nodeAffinity"), path: Path::new("nodeAffinity") };
        at.invalid(&mut errors, &format!("{IMMUTABLE}, except for updating from beta label to GA"));
    }
    errors
}

/// Returns the stored affinity of a volume, where a key of `given` is the label that took the place
/// of the stored one, with that key. As upstream, an empty key takes the place of any other label.
fn with_new_labels(stored: &Value, given: &Value) -> Value {
    let mut affinity = stored.clone();
    let required = affinity.as_object_mut().and_then(|it| child(it, "required"));
    let terms = required.into_iter().flat_map(|required| children(required, "nodeSelectorTerms"));
    for (term, given) in terms.zip(given.array_at(&["required", "nodeSelectorTerms"])) {
        let expressions = children(term, "matchExpressions");
        for (expression, given) in expressions.zip(given.array_at(&["matchExpressions"])) {
            let key = given.str_at(&["key"]).unwrap_or_default();
            let before = expression.get("key").and_then(Value::as_str).unwrap_or_default();
            if key == renamed_node_label(before).map_or("", |(_, label)| label) {
                expression.insert("key", key);
            }
        }
    }
    affinity
}

/// Validates the inline volume of a VolumeAttachment.
pub(crate) fn inline_volume(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    const UNWANTED: &str = "may not be specified in the context of inline volumes";
    for name in ["claimRef", "capacity"] {
        let at = spec.field(name);
        if !at.value.is_empty() {
            at.forbidden(errors, UNWANTED);
        }
    }
    if !spec.has("csi") {
        let words = "has to be specified in the context of inline volumes";
        spec.field("csi").required(errors, words);
    }
    let modes = spec.field("accessModes");
    modes.not_empty(errors, "");
    access_modes(&modes, errors);
    let policy = spec.field("persistentVolumeReclaimPolicy");
    if !matches!(policy.text(), "" | "Retain") {
        policy.forbidden(errors, "may only be Retain in the context of inline volumes");
    }
    let is_wanted = |name: &str| !(name == "storageClassName" && spec.str(name).is_empty());
    for name in ["nodeAffinity", "storageClassName"] {
        let at = spec.field(name);
        if name == "storageClassName" {
            volume_source(spec, errors);
        }
        if at.is_set() && is_wanted(name) {
            at.forbidden(errors, UNWANTED);
        }
    }
    let mode = spec.field("volumeMode");
    if mode.is_set() && mode.text() != "Filesystem" {
        let words =
            "may not specify volumeMode other than Filesystem in the context of inline volumes";
        mode.forbidden(errors, words);
    }
}

/// Validates the spec of a volume.
fn volume_spec(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let modes = spec.field("accessModes");
    modes.not_empty(errors, "");
    access_modes(&modes, errors);
    capacity(&spec.field("capacity"), errors);
    let policy = spec.field("persistentVolumeReclaimPolicy");
    policy.one_of_if_set(errors, &["Delete", "Recycle", "Retain"]);
    let affinity = spec.field("nodeAffinity");
    if affinity.is_set() {
        let required = affinity.field("required");
        if required.is_set() {
            scheduling::node_selector_with_values(&required, errors);
        } else {
            required.required(errors, "must specify required node constraints");
        }
    }
    volume_source(spec, errors);
    let recycles = spec.str("persistentVolumeReclaimPolicy") == "Recycle";
    let path = spec.value.str_at(&["hostPath", "path"]).unwrap_or_default();
    if recycles && !path.is_empty() && path.trim_matches('/').is_empty() {
        let words = "may not be 'recycle' for a hostPath mount of '/'";
        spec.field("persistentVolumeReclaimPolicy").forbidden(errors, words);
    }
    spec.field("storageClassName").rule_if_set(errors, names::is_dns1123_subdomain);
    spec.field("volumeMode").one_of_if_set(errors, VOLUME_MODES);
    let class = spec.field("volumeAttributesClassName");
    class.rule_if_set(errors, names::is_dns1123_subdomain);
    if class.is_set() && !spec.has("csi") {
        let words = "has to be specified when using volumeAttributesClassName";
        spec.field("csi").required(errors, words);
    }
}

fn capacity(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.not_empty(errors, "");
    let count = at.value.as_object().map_or(0, Map::len);
    if !at.has("storage") || count > 1 {
        let mut shown = at.value.clone();
        if let Some(amounts) = shown.as_object_mut() {
            amounts.sort();
        }
        errors.push(FieldError::not_supported(&at.path, shown, &["storage"]));
    }
    for (_, amount) in at.entries() {
        valid_amount(&amount, errors);
        positive(&amount, errors);
    }
}

fn volume_source(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut count = 0;
    for (name, check) in SOURCES {
        let at = spec.field(name);
        if !at.is_set() {
            continue;
        }
        count += 1;
        // Upstream accepts this one beside another source.
        if count > 1 && *name != "flexVolume" {
            // Upstream uses the Go name here.
            let shown = if *name == "cephfs" { "cephFS" } else { name };
            let at = Field { path: spec.path.field(shown), ..at };
            at.forbidden(errors, "may not specify more than 1 volume type");
            continue;
        }
        check(&Field { path: spec.path.field(volumes::path_name_in_errors(name)), ..at }, errors);
        if *name == "local" && !spec.has("nodeAffinity") {
            spec.field("nodeAffinity").required(errors, "Local volume requires node affinity");
        }
    }
    if count == 0 {
        spec.required(errors, "must specify a volume type");
    }
}
