//! The kinds of `batch`: Jobs and CronJobs.

mod policies;
mod schedule;
mod selector;
mod status;

use super::check::{Field, child, children, default, default_empty, take};
use crate::core::pod;
use crate::core::pod::POD_SPEC;
use crate::equality::{self, go};
use crate::gated_fields::GatedFields;
use crate::gates;
use crate::row::Row;
use crate::strategy::{Check, GarbageCollection, Generation, SelectableField, Strategy};
use keelson_meta::names;
use keelson_meta::selector::Selector;
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, Feature, FieldError, Map, Object, Value};

/// The resources of the group.
pub(crate) const ROWS: &[Row] = &[
    Row {
        resource: "cronjobs",
        strategy: cron_job(Strategy {
            generation: Generation::OnSpecChange,
            status_checks: &[Check::Rules],
            gated: &[GatedFields {
                root: &["spec", "jobTemplate", "spec", "template", "spec"],
                fields: POD_SPEC,
            }],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
    Row {
        resource: "jobs",
        strategy: job(Strategy {
            generation: Generation::OnSpecChange,
            update_checks: &[Check::Metadata, Check::Rules, Check::MetadataChange, Check::Change],
            garbage_collection: GarbageCollection::OrphanDependents,
            labels_from_template: true,
            fields: &[SelectableField {
                name: "status.successful",
                paths: &[&["status", "succeeded"]],
                unset: "0",
            }],
            selector_error: Some(|field| {
                format!("field label {} not supported for Job", quote(field))
            }),
            gated: &[GatedFields { root: &["spec", "template", "spec"], fields: POD_SPEC }],
            ..Strategy::GENERIC
        }),
        ..Row::PLAIN
    },
];

const INDEXED_PARALLELISM_MAX: i64 = 100_000;
const LARGE_COMPLETIONS: i64 = 100_000;
const LARGE_PARALLELISM_MAX: i64 = 10_000;
const FAILED_INDEXES_MAX: i64 = 100_000;
const CRON_NAME_BYTES_MAX: usize = 52;

/// Jobs.
pub(super) const fn job(base: Strategy) -> Strategy {
    Strategy {
        deletion_warning: Some(
            "child pods are preserved by default when jobs are deleted; set \
             propagationPolicy=Background to remove them or set propagationPolicy=Orphan to \
             suppress this warning",
        ),
        default: |obj| {
            default_job_spec(obj.object_mut("spec"));
            labels_from_template(obj);
        },
        prepare_create: |obj| {
            selector::generate(obj);
            // Validation reports a name that is no label value as an error of the template, once.
            if names::is_valid_label_value(obj.name()).is_empty() {
                labels_from_template(obj);
            }
        },
        prepare_update: |new, _| labels_from_template(new),
        prepare_status: |new, _| labels_from_template(new),
        validate: validate_job,
        validate_change: validate_job_change,
        validate_status: status::validate,
        warnings: pod::warnings::of_named_workload,
        ..base
    }
}

/// CronJobs.
pub(super) const fn cron_job(base: Strategy) -> Strategy {
    Strategy {
        default: default_cron_job,
        validate: validate_cron_job,
        warnings: pod::warnings::of_cron_job,
        ..base
    }
}

/// Gives a job without labels those of its pod template.
fn labels_from_template(job: &mut Object) {
    let labels = job.at(&["spec", "template", "metadata", "labels"]).cloned();
    if let Some(labels) = labels.filter(|labels| !labels.is_empty()) {
        default_empty(job.metadata_mut(), "labels", labels);
    }
}

fn default_job_spec(spec: &mut Map) {
    let has = |spec: &Map, name: &str| spec.get(name).is_some_and(|value| !value.is_null());
    if !has(spec, "completions") && !has(spec, "parallelism") {
        spec.insert("completions", 1);
    }
    default(spec, "parallelism", 1);
    let per_index = has(spec, "backoffLimitPerIndex");
    default(spec, "backoffLimit", if per_index { i64::from(i32::MAX) } else { 6 });
    default(spec, "completionMode", "NonIndexed");
    default(spec, "suspend", false);
    default(spec, "manualSelector", false);
    let replaces = if has(spec, "podFailurePolicy") { "Failed" } else { "TerminatingOrFailed" };
    default(spec, "podReplacementPolicy", replaces);
    default_conditions(spec);
    pod::defaults::template(spec);
}

fn default_conditions(spec: &mut Map) {
    let Some(policy) = child(spec, "podFailurePolicy") else { return };
    for rule in children(policy, "rules") {
        for condition in children(rule, "onPodConditions") {
            default_empty(condition, "status", "True");
        }
    }
}

fn default_cron_job(obj: &mut Object) {
    let spec = obj.object_mut("spec");
    default_empty(spec, "concurrencyPolicy", "Allow");
    default(spec, "suspend", false);
    default(spec, "successfulJobsHistoryLimit", 3);
    default(spec, "failedJobsHistoryLimit", 1);
    let job = spec.object_at("jobTemplate").object_at("spec");
    default_conditions(job);
    pod::defaults::template(job);
}

fn validate_job(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    selector::validate(new, old, &mut errors);
    job_spec(&spec, &mut errors);
    job_selector(&spec, &mut errors);
    pod_host_name(new, &mut errors);
    errors
}

/// Like upstream, validates the spec of an updated job once more before its changes.
fn validate_job_change(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old else { return errors };
    let spec = Field::of(new, "spec");
    job_spec(&spec, &mut errors);
    job_selector(&spec, &mut errors);
    job_update(new, old, &mut errors);
    errors
}

/// Checks that the pods of an indexed job, named after it and their index, have valid host names.
fn pod_host_name(job: &Object, errors: &mut ErrorList) {
    let spec = Field::of(job, "spec");
    let count = spec.int("completions").unwrap_or(0);
    if spec.str("completionMode") != "Indexed" || count <= 0 {
        return;
    }
    let longest = format!("{}-{}", job.name(), count - 1);
    if !names::is_dns1123_label(&longest).is_empty() {
        let words = format!("will not able to create pod with invalid DNS label: {longest}");
        Field::of(job, "metadata").field("name").invalid_as(errors, job.name(), &words);
    }
}

/// Validates the selector of a job, and that it matches the template.
fn job_selector(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let selector = spec.field("selector");
    if selector.is_set() {
        selector.label_selector(errors);
    } else {
        selector.required(errors, "");
    }
    let template = spec.field("template");
    if let Ok(chosen) = Selector::from_object(selector.get_self())
        && !crate::core::replication::selector_matches(&chosen, &template)
    {
        crate::core::replication::labels_do_not_match(&template, errors);
    }
}

fn job_spec(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let counts = [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ];
    counts.iter().for_each(|name| spec.field(name).not_negative(errors));
    if spec.has("maxFailedIndexes") && !spec.has("backoffLimitPerIndex") {
        let words = "when maxFailedIndexes is specified";
        spec.field("backoffLimitPerIndex").required(errors, words);
    }
    managed_by(&spec.field("managedBy"), errors);
    let mode = spec.field("completionMode");
    if mode.is_set() {
        mode.one_of(errors, &["NonIndexed", "Indexed"]);
    }
    if mode.text() == "Indexed" {
        indexed(spec, errors);
    } else if !mode.is_set() || mode.text() == "NonIndexed" {
        for name in ["backoffLimitPerIndex", "maxFailedIndexes"] {
            if spec.has(name) {
                spec.field(name).invalid(errors, "requires indexed completion mode");
            }
        }
    }
    policies::pod_failure(spec, errors);
    policies::success(spec, errors);
    policies::replacement(spec, errors);
    pod::spec::template(&spec.field("template"), errors);
    restart_policy(spec, errors);
}

fn managed_by(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const BYTES_MAX: usize = 63;
    if !at.is_set() || !at.not_empty(errors, "") {
        return;
    }
    let (host, path) = at.text().split_once('/').unwrap_or_default();
    if host.is_empty() || path.is_empty() {
        at.invalid(errors, "must be a domain-prefixed path (such as \"acme.io/foo\")");
    } else {
        for why in names::is_dns1123_subdomain(host) {
            at.invalid_as(errors, host, &why);
        }
        for why in names::is_http_path(path) {
            at.invalid_as(errors, path, &why);
        }
    }
    at.not_too_long(errors, BYTES_MAX);
}

fn at_most(at: &Field<'_, '_>, max: i64, when: &str, errors: &mut ErrorList) {
    if at.number() > max {
        at.invalid(errors, &format!("must be less than or equal to {max}{when}"));
    }
}

fn indexed(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let completions = spec.field("completions");
    let parallelism = spec.field("parallelism");
    let failed = spec.field("maxFailedIndexes");
    if !completions.is_set() {
        completions.required(errors, "when completion mode is Indexed");
    }
    at_most(&parallelism, INDEXED_PARALLELISM_MAX, " when completion mode is Indexed", errors);
    if completions.is_set() && failed.is_set() && failed.number() > completions.number() {
        failed.invalid(errors, "must be less than or equal to completions");
    }
    at_most(&failed, FAILED_INDEXES_MAX, "", errors);
    if completions.number() > LARGE_COMPLETIONS && spec.has("backoffLimitPerIndex") {
        if !failed.is_set() {
            failed.required(errors, "must be specified when completions is above 100000");
        }
        let when = " when completions are above 100000 and used with backoff limit per index";
        at_most(&parallelism, LARGE_PARALLELISM_MAX, when, errors);
        at_most(&failed, LARGE_PARALLELISM_MAX, when, errors);
    }
}

fn restart_policy(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let template = spec.field("template");
    let inner = template.field("spec");
    let at = inner.field("restartPolicy");
    match at.text() {
        "Always" | "" => at.required(errors, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" if spec.has("podFailurePolicy") => {
            let words = "only \"Never\" is supported when podFailurePolicy is specified";
            at.invalid(errors, words);
        }
        "OnFailure" | "Never" => {}
        _ => at.not_supported(errors, &["OnFailure", "Never"]),
    }
}

fn job_update(new: &Object, old: &Object, errors: &mut ErrorList) {
    let spec = Field::of(new, "spec");
    let stored = Field::of(old, "spec");
    completions(&spec, &stored, errors);
    spec.unchanged_selector(go::JOB_SPEC, stored.value, errors);
    template_update(&spec, old, errors);
    let names = ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy"];
    for name in names.into_iter().chain(["successPolicy"]) {
        spec.unchanged_member(name, go::JOB_SPEC, stored.value, errors);
    }
}

fn completions(spec: &Field<'_, '_>, stored: &Field<'_, '_>, errors: &mut ErrorList) {
    let at = spec.field("completions");
    if spec.str("completionMode") != "Indexed" {
        return at.unchanged(errors, stored.get("completions"));
    }
    let differs = at.value != stored.get("completions");
    if differs && at.is_set() && spec.int("parallelism") != spec.int("completions") {
        at.invalid(errors, "can only be modified in tandem with spec.parallelism");
    }
}

/// Validates changes of the template. A suspended job without pods, which never started or has
/// stopped, may change its scheduling directives and the resources of its containers (upstream's
/// `shouldAllowMutablePodTemplate`).
fn template_update(spec: &Field<'_, '_>, old: &Object, errors: &mut ErrorList) {
    let at = spec.field("template");
    let before = Field::of(old, "spec");
    let is_suspended = old.at(&["spec", "suspend"]).and_then(Value::as_bool) == Some(true);
    let never_started = old.str_at(&["status", "startTime"]).is_empty();
    let is_idle = old.at(&["status", "active"]).and_then(Value::as_int).unwrap_or_default() == 0;
    let has_stopped = status::is_true(&Field::of(old, "status"), "Suspended");
    let may_change = is_suspended && is_idle && (never_started || has_stopped);
    let directives = match gates::is_on(Feature::MutableSchedulingDirectivesForSuspendedJobs) {
        true => may_change,
        false => is_suspended && never_started,
    };
    let resources = may_change && gates::is_on(Feature::MutablePodResourcesForSuspendedJobs);
    if !directives && !resources {
        return spec.unchanged_member("template", go::JOB_SPEC, before.value, errors);
    }
    let mut stored = before.get("template").clone();
    if let Some(stored) = stored.as_object_mut() {
        if directives {
            take_directives(at.value, stored);
        }
        if resources {
            take_resources(at.get("spec"), stored.object_at("spec"));
            // Only the spec is compared then.
            take(at.value.as_object(), stored, "metadata");
        }
    }
    if !equality::equal_members(go::JOB_SPEC, "template", at.value, &stored) {
        let place = if resources { at.field("spec") } else { at };
        place.invalid(errors, keelson_meta::object_meta::IMMUTABLE);
    }
}

/// Copies labels, annotations and what says on which nodes pods may run.
fn take_directives(template: &Value, stored: &mut Map) {
    take_members(template, stored, "metadata", &["labels", "annotations"]);
    take_members(template, stored, "spec", &["nodeSelector", "tolerations", "schedulingGates"]);
    let affinity = template.at(&["spec", "affinity"]).and_then(Value::as_object);
    let spec = stored.object_at("spec");
    if affinity.is_some() || spec.get("affinity").is_some_and(|stored| !stored.is_null()) {
        let merged = spec.object_at("affinity");
        take(affinity, merged, "nodeAffinity");
        if affinity.is_none() && merged.is_empty() {
            spec.remove("affinity");
        }
    }
}

fn take_members(from: &Value, to: &mut Map, parent: &'static str, names: &[&'static str]) {
    let from = from.get(parent).and_then(Value::as_object);
    let had_parent = to.get(parent).is_some();
    let map = to.object_at(parent);
    names.iter().for_each(|name| take(from, map, name));
    if !had_parent && map.is_empty() {
        to.remove(parent);
    }
}

/// Copies the resources of containers that have the names of before.
fn take_resources(spec: &Value, stored: &mut Map) {
    for list in ["containers", "initContainers"] {
        let containers = spec.get(list).and_then(Value::as_array).unwrap_or_default();
        let before = stored.get(list).and_then(Value::as_array).map_or(0, <[Value]>::len);
        if before != containers.len() {
            continue;
        }
        for (stored, container) in children(stored, list).zip(containers) {
            if stored.get("name") == container.get("name") {
                take(container.as_object(), stored, "resources");
            }
        }
    }
}

fn validate_cron_job(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    schedule::validate(&spec, &mut errors);
    spec.field("concurrencyPolicy").required_one_of(&mut errors, &["Allow", "Forbid", "Replace"]);
    let template = spec.field("jobTemplate");
    let job = template.field("spec");
    job_spec(&job, &mut errors);
    let selector = job.field("selector");
    if selector.is_set() {
        selector.invalid(&mut errors, "`selector` will be auto-generated");
    }
    if job.flag("manualSelector") {
        job.field("manualSelector").not_supported(&mut errors, &["nil", "false"]);
    }
    for name in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        spec.field(name).not_negative(&mut errors);
    }
    if old.is_none() && new.name().len() > CRON_NAME_BYTES_MAX {
        let metadata = keelson_meta::Path::new("metadata");
        let words = format!("must be no more than {CRON_NAME_BYTES_MAX} characters");
        errors.push(FieldError::invalid(&metadata.field("name"), new.name(), &words));
    }
    errors
}
