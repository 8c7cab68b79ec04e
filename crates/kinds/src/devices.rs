//! The kinds of `resource.k8s.io`: DeviceClasses, ResourceClaims, ResourceClaimTemplates,
//! ResourceSlices, DeviceTaintRules and ResourcePoolStatusRequests.

mod allocation;
mod requests;
mod slices;
mod taint_rules;

pub(super) use slices::slice;
pub(super) use taint_rules::{pool_status, taint_rule};

use crate::check::{Field, child, children, default, default_empty};
use crate::equality::{self, go};
use crate::gated_fields::{GatedField, GatedFields, gate};
use crate::row::{Deprecation, Row};
use crate::strategy::{Check, Generation, SelectableField, StatusMetadata, Strategy};
use keelson_cel::Version;
use keelson_cel::device::{SELECTOR_BYTES_MAX, SelectorError, check_selector};
use keelson_meta::Feature;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, FieldError, Map, Object, Path, SmallSet, Value, names};

const GATED_CLASS: &[GatedField] =
    &[gate(Feature::DRAExtendedResource, &[&["extendedResourceName"]])];

const GATED_REQUESTS: &[GatedField] = &[
    gate(Feature::DRAPrioritizedList, &[&["requests", "*", "firstAvailable"]]),
    gate(
        Feature::DRADeviceTaints,
        &[
            &["requests", "*", "exactly", "tolerations"],
            &["requests", "*", "firstAvailable", "*", "tolerations"],
        ],
    ),
    gate(
        Feature::DRAConsumableCapacity,
        &[
            &["constraints", "*", "distinctAttribute"],
            &["requests", "*", "exactly", "capacity"],
            &["requests", "*", "firstAvailable", "*", "capacity"],
        ],
    ),
];

const GATED_CLAIM_STATUS: &[GatedField] = &[
    gate(Feature::DRAResourceClaimDeviceStatus, &[&["devices"]]),
    gate(
        Feature::DRADeviceBindingConditions,
        &[
            &["allocation", "devices", "results", "*", "bindingConditions"],
            &["allocation", "devices", "results", "*", "bindingFailureConditions"],
        ],
    ),
    gate(
        Feature::DRAConsumableCapacity,
        &[
            &["allocation", "devices", "results", "*", "shareID"],
            &["allocation", "devices", "results", "*", "consumedCapacity"],
            &["devices", "*", "shareID"],
        ],
    ),
];

const GATED_SLICE: &[GatedField] = &[
    gate(Feature::DRADeviceTaints, &[&["devices", "*", "taints"]]),
    gate(
        Feature::DRAPartitionableDevices,
        &[
            &["perDeviceNodeSelection"],
            &["sharedCounters"],
            &["devices", "*", "consumesCounters"],
            &["devices", "*", "nodeName"],
            &["devices", "*", "nodeSelector"],
            &["devices", "*", "allNodes"],
        ],
    ),
    gate(
        Feature::DRADeviceBindingConditions,
        &[
            &["devices", "*", "bindsToNode"],
            &["devices", "*", "bindingConditions"],
            &["devices", "*", "bindingFailureConditions"],
        ],
    ),
    gate(
        Feature::DRAConsumableCapacity,
        &[
            &["devices", "*", "allowMultipleAllocations"],
            &["devices", "*", "capacity", "*", "requestPolicy"],
        ],
    ),
    gate(
        Feature::DRANodeAllocatableResources,
        &[&["devices", "*", "nodeAllocatableResourceMappings"]],
    ),
    gate(
        Feature::DRAListTypeAttributes,
        &[
            &["devices", "*", "attributes", "*", "bools"],
            &["devices", "*", "attributes", "*", "ints"],
            &["devices", "*", "attributes", "*", "strings"],
            &["devices", "*", "attributes", "*", "versions"],
        ],
    ),
];

const BETAS: &[Deprecation] = &[
    Deprecation { version: "v1beta2", since: 36, until: Some(39), replacement: None },
    Deprecation { version: "v1beta1", since: 35, until: Some(38), replacement: None },
];

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row {
        resource: "deviceclasses",
        strategy: class(Strategy {
            generation: Generation::OnSpecChange,
            returns_deleted: true,
            status_metadata: StatusMetadata::Keep,
            update_checks: &[Check::Metadata, Check::MetadataChange, Check::Rules, Check::Change],
            has_raw_extension: true,
            gated: &[GatedFields { root: &["spec"], fields: GATED_CLASS }],
            ..Strategy::GENERIC
        }),
        deprecations: BETAS,
        ..Row::PLAIN
    },
    Row {
        resource: "devicetaintrules",
        strategy: taint_rule(Strategy {
            generation: Generation::OnSpecChange,
            returns_deleted: true,
            status_metadata: StatusMetadata::Keep,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            ..Strategy::GENERIC
        }),
        stored_version: Some("v1alpha3"),
        deprecations: &[Deprecation {
            version: "v1alpha3",
            since: 36,
            until: Some(39),
            replacement: None,
        }],
        ..Row::PLAIN
    },
    Row {
        resource: "resourceclaims",
        strategy: claim(Strategy {
            returns_deleted: true,
            status_metadata: StatusMetadata::Keep,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            has_raw_extension: true,
            gated: &[GatedFields { root: &["spec", "devices"], fields: GATED_REQUESTS }],
            gated_status: &[GatedFields { root: &["status"], fields: GATED_CLAIM_STATUS }],
            ..Strategy::GENERIC
        }),
        deprecations: BETAS,
        has_status_table: false,
        ..Row::PLAIN
    },
    Row {
        resource: "resourceclaimtemplates",
        strategy: claim_template(Strategy {
            returns_deleted: true,
            status_metadata: StatusMetadata::Keep,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            has_raw_extension: true,
            gated: &[GatedFields { root: &["spec", "spec", "devices"], fields: GATED_REQUESTS }],
            ..Strategy::GENERIC
        }),
        deprecations: BETAS,
        ..Row::PLAIN
    },
    Row {
        resource: "resourcepoolstatusrequests",
        strategy: pool_status(Strategy {
            unconditional_update: false,
            returns_deleted: true,
            status_metadata: StatusMetadata::Keep,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "resourceslices",
        strategy: slice(Strategy {
            generation: Generation::OnSpecChange,
            returns_deleted: true,
            status_metadata: StatusMetadata::Keep,
            fields: &[
                SelectableField::new("spec.nodeName", &[&["spec", "nodeName"]]),
                SelectableField::new("spec.driver", &[&["spec", "driver"]]),
            ],
            not_selectable: &["metadata.namespace"],
            selector_error: Some(|field| {
                let kind = "resource.k8s.io/v1, Kind=ResourceSlice";
                format!("field label not supported for {kind}: {field}")
            }),
            gated: &[GatedFields { root: &["spec"], fields: GATED_SLICE }],
            ..Strategy::GENERIC
        }),
        deprecations: BETAS,
        ..Row::PLAIN
    },
];

const SELECTORS_MAX: usize = 32;
const CONFIGS_MAX: usize = 32;
const DRIVER_BYTES_MAX: usize = 63;
/// The CEL environments of new and of unchanged expressions.
const NEW: Version = Version::NEW_EXPRESSIONS;
const STORED: Version = Version::STORED_EXPRESSIONS;
const PARAMETERS_BYTES_MAX: usize = 10 * 1024;

/// DeviceClasses.
pub(super) const fn class(base: Strategy) -> Strategy {
    Strategy {
        name_rule: names::name_is_dns_subdomain_unless_generated,
        validate: validate_class,
        ..base
    }
}

/// ResourceClaims.
pub(super) const fn claim(base: Strategy) -> Strategy {
    Strategy {
        default: |claim| default_devices(claim.object_mut("spec")),
        validate: |new, old| match old {
            None => requests::validate(&Field::of(new, "spec").field("devices"), NEW),
            Some(_) => ErrorList::new(),
        },
        validate_in_namespace: Some(|new, labels| {
            requests::validate_admin_access(new.get("spec"), labels)
        }),
        validate_change: |new, old| validate_immutable_spec(new, old, go::RESOURCE_CLAIM_SPEC),
        prepare_status: allocation::drop_deallocated,
        validate_status: allocation::validate,
        validate_status_in_namespace: Some(requests::validate_admin_results),
        ..base
    }
}

/// ResourceClaimTemplates.
pub(super) const fn claim_template(base: Strategy) -> Strategy {
    Strategy {
        default: |template| {
            if let Some(spec) = child(template.object_mut("spec"), "spec") {
                default_devices(spec);
            }
        },
        validate: validate_template,
        validate_in_namespace: Some(|new, labels| {
            requests::validate_admin_access(new.at(&["spec", "spec"]), labels)
        }),
        validate_change: |new, old| {
            validate_immutable_spec(new, old, go::RESOURCE_CLAIM_TEMPLATE_SPEC)
        },
        ..base
    }
}

fn default_devices(spec: &mut Map) {
    let Some(devices) = child(spec, "devices") else { return };
    for request in children(devices, "requests") {
        if let Some(exactly) = child(request, "exactly") {
            default_request(exactly);
        }
        children(request, "firstAvailable").for_each(default_request);
    }
}

fn default_request(request: &mut Map) {
    default_empty(request, "allocationMode", "ExactCount");
    if request.get("allocationMode").and_then(Value::as_str) == Some("ExactCount") {
        let is_zero = request.get("count").and_then(Value::as_int) == Some(0);
        if is_zero {
            request.insert("count", 1);
        }
        default(request, "count", 1);
    }
    for toleration in children(request, "tolerations") {
        default_empty(toleration, "operator", "Equal");
    }
}

fn validate_immutable_spec(new: &Object, old: Option<&Object>, of: &str) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let before = old.and_then(|old| old.get("spec"));
    if !equality::equal(of, spec.value, before.unwrap_or(&Value::Null)) {
        let shown = spec.value.as_object().cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&spec.path, shown, IMMUTABLE));
    }
    errors
}

fn validate_class(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let list = spec.field("selectors");
    let before = old.map(|old| old.array_at(&["spec", "selectors"]));
    let version = if before == Some(list.array()) { STORED } else { NEW };
    selectors(&list, version, &mut errors);
    let configs = spec.field("config");
    if not_too_many(&configs, CONFIGS_MAX, &mut errors) {
        configs.items().for_each(|config| configuration(&config, &mut errors));
    }
    let name = spec.field("extendedResourceName");
    if name.is_set() && !crate::core::pod::resources::is_extended(name.text()) {
        name.invalid(&mut errors, "must be a valid extended resource name");
    }
    errors
}

fn validate_template(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let metadata = spec.field("metadata");
    crate::core::claim_template::template_metadata(&metadata, &mut errors);
    let claim = spec.field("spec");
    // The spec is immutable.
    let version = if old.is_some() { STORED } else { NEW };
    errors.extend(requests::validate(&claim.field("devices"), version));
    errors
}

fn selectors(list: &Field<'_, '_>, version: Version, errors: &mut ErrorList) {
    if !not_too_many(list, SELECTORS_MAX, errors) {
        return;
    }
    for selector in list.items() {
        let cel = selector.field("cel");
        match cel.is_set() {
            true => expression(&cel.field("expression"), version, errors),
            false => cel.required(errors, ""),
        }
    }
}

fn expression(at: &Field<'_, '_>, version: Version, errors: &mut ErrorList) {
    if at.text().len() > SELECTOR_BYTES_MAX {
        return errors.push(FieldError::too_long(&at.path, SELECTOR_BYTES_MAX));
    }
    match check_selector(version, at.text()) {
        Ok(()) => {}
        Err(SelectorError::Invalid(why)) => at.invalid_as(errors, at.text(), &why),
        Err(SelectorError::TooComplex) => {
            at.forbidden(errors, "too complex, exceeds cost limit");
        }
    }
}

fn configuration(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let opaque = at.field("opaque");
    if !opaque.is_set() {
        return opaque.required(errors, "");
    }
    driver(&opaque.field("driver"), errors);
    parameters(&opaque.field("parameters"), PARAMETERS_BYTES_MAX, errors);
}

/// Validates opaque parameters: a JSON object.
fn parameters(at: &Field<'_, '_>, bytes_max: usize, errors: &mut ErrorList) {
    match at.value {
        Value::Null => at.required(errors, ""),
        Value::Raw(text) if text.len() > bytes_max => {
            errors.push(FieldError::too_long(&at.path, bytes_max));
        }
        value if value.is_map() => {}
        _ => at.invalid_as(errors, "<value omitted>", "must be a valid JSON object"),
    }
}

fn driver(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if !at.not_empty(errors, "") {
        return;
    }
    if at.text().len() > DRIVER_BYTES_MAX {
        errors.push(FieldError::too_long(&at.path, DRIVER_BYTES_MAX));
    }
    for why in names::is_dns1123_subdomain(&at.text().to_lowercase()) {
        at.invalid(errors, &why);
    }
}

fn toleration(at: &Field<'_, '_>, errors: &mut ErrorList) {
    at.field("key").rule_if_set(errors, names::is_qualified_name);
    let operator = at.field("operator");
    let value = at.field("value");
    match operator.text() {
        "Exists" if !value.text().is_empty() => {
            value.invalid(errors, "must be empty for operator `Exists`");
        }
        "Exists" => {}
        "Equal" => value.rule(errors, names::is_valid_label_value),
        "" => operator.required(errors, ""),
        _ => operator.not_supported(errors, &["Equal", "Exists"]),
    }
    let effect = at.field("effect");
    if !effect.text().is_empty() {
        effect.one_of(errors, &["NoExecute", "NoSchedule", "None"]);
    }
}

/// Reports a list that is too long. Returns whether to validate its items.
fn not_too_many(list: &Field<'_, '_>, items_max: usize, errors: &mut ErrorList) -> bool {
    let count = list.array().len();
    if count > items_max {
        errors.push(FieldError::too_many(&list.path, count, items_max));
    }
    count <= items_max
}

/// Reports every item that has the same key as one before it.
fn unique<'v, K, F>(list: &Field<'v, '_>, key: F, errors: &mut ErrorList)
where
    K: Eq + std::hash::Hash + Clone + Into<Value>,
    F: Fn(&'v Value) -> K,
{
    let mut seen: SmallSet<K> = SmallSet::new();
    for item in list.items() {
        let key = key(item.value);
        if !seen.insert(key.clone()) {
            errors.push(FieldError::duplicate(&item.path, key));
        }
    }
}

/// Returns a function that gets the field `name` of an item, as the key for [`unique`].
fn named<'v>(name: &'static str) -> impl Fn(&'v Value) -> &'v str {
    move |item| item.str_at(&[name]).unwrap_or_default()
}

/// Validates a C identifier with a domain.
fn fully_qualified(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let parts: Vec<&str> = at.text().split('/').collect();
    match parts.as_slice() {
        [name] => identifier(&at.path, name, errors),
        [domain, name] => {
            if domain.is_empty() {
                at.invalid_as(errors, "", "the domain must not be empty");
            } else {
                let text = Value::from(*domain);
                driver(&Field { value: &text, path: at.path }, errors);
            }
            if name.is_empty() {
                at.invalid_as(errors, "", "the name must not be empty");
            } else {
                identifier(&at.path, name, errors);
            }
        }
        _ => {}
    }
    if parts.len() == 1 {
        let words = "a fully qualified name must be a domain and a name separated by a slash";
        at.invalid(errors, words);
    }
}

fn identifier(path: &Path<'_>, name: &str, errors: &mut ErrorList) {
    const IDENTIFIER_BYTES_MAX: usize = 32;
    if name.len() > IDENTIFIER_BYTES_MAX {
        errors.push(FieldError::too_long(path, IDENTIFIER_BYTES_MAX));
    }
    for why in names::is_c_identifier(name) {
        errors.push(FieldError::invalid(path, name, &why));
    }
}
