//! The kinds of `scheduling.k8s.io`: PriorityClasses, and PodGroups and Workloads (feature gate
//! `GenericWorkload`).

mod priority_class;

use crate::check::{Field, child, default};
use crate::conditions;
use crate::gated_fields::{GatedField, GatedFields, gate};
use crate::row::Row;
use crate::strategy::{Generation, StatusMetadata, Strategy};
use keelson_meta::Feature;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, FieldError, Object, SmallSet, Value, names};

const GATED_POD_GROUP: &[GatedField] = &[
    gate(Feature::TopologyAwareWorkloadScheduling, &[&["schedulingConstraints"]]),
    gate(
        Feature::WorkloadAwarePreemption,
        &[&["disruptionMode"], &["priority"], &["priorityClassName"]],
    ),
    gate(Feature::DRAWorkloadResourceClaims, &[&["resourceClaims"]]),
];

const GATED_WORKLOAD: &[GatedField] = &[
    gate(
        Feature::TopologyAwareWorkloadScheduling,
        &[&["podGroupTemplates", "*", "schedulingConstraints"]],
    ),
    gate(
        Feature::WorkloadAwarePreemption,
        &[
            &["podGroupTemplates", "*", "disruptionMode"],
            &["podGroupTemplates", "*", "priority"],
            &["podGroupTemplates", "*", "priorityClassName"],
        ],
    ),
    gate(Feature::DRAWorkloadResourceClaims, &[&["podGroupTemplates", "*", "resourceClaims"]]),
];

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row {
        resource: "podgroups",
        strategy: pod_group(Strategy {
            status_metadata: StatusMetadata::Keep,
            gated: &[GatedFields { root: &["spec"], fields: GATED_POD_GROUP }],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "priorityclasses",
        strategy: priority_class::priority_class(Strategy {
            generation: Generation::First,
            status_metadata: StatusMetadata::Keep,
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "workloads",
        strategy: workload(Strategy {
            status_metadata: StatusMetadata::Keep,
            gated: &[GatedFields { root: &["spec"], fields: GATED_WORKLOAD }],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
];

const TEMPLATES_MAX: usize = 8;
const CLAIMS_MAX: usize = 4;
const TOPOLOGY_MAX: usize = 1;
const PRIORITY_MAX: i64 = 1_000_000_000;
const DISRUPTION_MODES: &[&str] = &["Pod", "PodGroup"];

/// PodGroups.
pub(super) const fn pod_group(base: Strategy) -> Strategy {
    Strategy {
        prepare_create: |group| {
            if let Some(spec) = child(&mut group.root, "spec") {
                default(spec, "disruptionMode", "Pod");
            }
        },
        validate: |new, old| match old {
            None => validate_group(new),
            Some(old) => unchanged(
                new,
                old,
                &[
                    "podGroupTemplateRef",
                    "schedulingPolicy",
                    "schedulingConstraints",
                    "resourceClaims",
                    "disruptionMode",
                    "priorityClassName",
                    "priority",
                ],
            ),
        },
        validate_status: |new, _| validate_status(new),
        ..base
    }
}

/// Workloads.
pub(super) const fn workload(base: Strategy) -> Strategy {
    Strategy {
        validate: |new, old| match old {
            None => validate_workload(new),
            Some(old) => {
                let mut errors = unchanged(new, old, &["controllerRef", "podGroupTemplates"]);
                let spec = Field::of(new, "spec");
                spec.field("podGroupTemplates").not_empty(&mut errors, "");
                errors
            }
        },
        ..base
    }
}

fn unchanged(new: &Object, old: &Object, members: &[&str]) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    for name in members {
        let at = spec.field(name);
        if at.value != old.at(&["spec", name]).unwrap_or(&Value::Null) {
            at.invalid_as(&mut errors, Value::Null, IMMUTABLE);
        }
    }
    errors
}

fn validate_group(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let reference = spec.field("podGroupTemplateRef");
    if reference.is_set() && one_member(&reference, &["workload"], &mut errors) {
        let workload = reference.field("workload");
        workload.field("workloadName").required_rule(&mut errors, names::is_dns1123_subdomain);
        workload.field("podGroupTemplateName").required_rule(&mut errors, names::is_dns1123_label);
    }
    shared_rules(&spec, &mut errors);
    errors
}

fn validate_workload(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let controller = spec.field("controllerRef");
    if controller.is_set() {
        controller.field("apiGroup").rule_if_set(&mut errors, names::is_dns1123_subdomain);
        for name in ["kind", "name"] {
            controller.field(name).required_rule(&mut errors, names::is_path_segment_name);
        }
    }
    let templates = spec.field("podGroupTemplates");
    if !templates.not_empty(&mut errors, "") {
        return errors;
    }
    let count = templates.array().len();
    if count > TEMPLATES_MAX {
        errors.push(FieldError::too_many(&templates.path, count, TEMPLATES_MAX));
        return errors;
    }
    duplicates(&templates, &mut errors);
    for template in templates.items() {
        template.field("name").required_rule(&mut errors, names::is_dns1123_label);
        shared_rules(&template, &mut errors);
    }
    errors
}

/// Validates the fields that PodGroups and their templates share.
fn shared_rules(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let policy = spec.field("schedulingPolicy");
    if one_member(&policy, &["basic", "gang"], errors) && policy.has("gang") {
        let gang = policy.field("gang");
        let count = gang.field("minCount");
        if count.number() == 0 {
            count.required(errors, "");
        } else if count.number() < 1 {
            count.invalid(errors, "must be greater than or equal to 1");
        }
    }
    let constraints = spec.field("schedulingConstraints");
    let topology = constraints.field("topology");
    let count = topology.array().len();
    if count > TOPOLOGY_MAX {
        errors.push(FieldError::too_many(&topology.path, count, TOPOLOGY_MAX));
    } else {
        for at in topology.items() {
            at.field("key").required_rule(errors, names::is_qualified_name);
        }
    }
    claims(&spec.field("resourceClaims"), errors);
    spec.field("disruptionMode").one_of_if_set(errors, DISRUPTION_MODES);
    spec.field("priorityClassName").rule_if_set(errors, names::is_dns1123_subdomain);
    let priority = spec.field("priority");
    if priority.number() > PRIORITY_MAX {
        priority.invalid(errors, "must be less than or equal to 1000000000");
    }
}

fn claims(list: &Field<'_, '_>, errors: &mut ErrorList) {
    const SOURCES: &[&str] = &["resourceClaimName", "resourceClaimTemplateName"];
    let count = list.array().len();
    if count > CLAIMS_MAX {
        return errors.push(FieldError::too_many(&list.path, count, CLAIMS_MAX));
    }
    duplicates(list, errors);
    for claim in list.items() {
        one_member(&claim, SOURCES, errors);
        claim.field("name").required_rule(errors, names::is_dns1123_label);
        for source in SOURCES.iter().filter(|source| claim.has(source)) {
            claim.field(source).rule(errors, names::is_dns1123_subdomain);
        }
    }
}

/// Checks that exactly one of these fields is set.
fn one_member(at: &Field<'_, '_>, members: &[&str], errors: &mut ErrorList) -> bool {
    let set: Vec<&str> = members.iter().copied().filter(|name| at.has(name)).collect();
    let listed: Vec<String> = members.iter().map(|name| format!("`{name}`")).collect();
    let listed = listed.join(", ");
    match set.len() {
        1 => return true,
        0 => at.invalid_as(errors, "", &format!("must specify one of: {listed}")),
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            at.invalid_as(errors, shown, &format!("must specify exactly one of: {listed}"));
        }
    }
    false
}

/// Reports list items with duplicate names.
fn duplicates(list: &Field<'_, '_>, errors: &mut ErrorList) {
    let mut seen: SmallSet<&str> = SmallSet::new();
    for at in list.items() {
        if !seen.insert(at.str("name")) {
            at.duplicate(errors);
        }
    }
}

fn validate_status(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    conditions::validate(&status.field("conditions"), &mut errors);
    let list = status.field("resourceClaimStatuses");
    let claims = new.array_at(&["spec", "resourceClaims"]);
    let known: SmallSet<&str> = claims.iter().filter_map(|claim| claim.str_at(&["name"])).collect();
    for at in list.items().filter(|at| !known.contains(&at.str("name"))) {
        let words = "must match the name of an entry in `spec.resourceClaims`";
        at.field("name").invalid_as(&mut errors, at.str("name"), words);
    }
    let count = list.array().len();
    if count > CLAIMS_MAX {
        errors.push(FieldError::too_many(&list.path, count, CLAIMS_MAX));
        return errors;
    }
    duplicates(&list, &mut errors);
    for at in list.items() {
        if at.has("resourceClaimName") {
            at.field("resourceClaimName").rule(&mut errors, names::is_dns1123_subdomain);
        }
    }
    errors
}
