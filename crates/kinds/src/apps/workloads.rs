//! Deployments, ReplicaSets, StatefulSets, DaemonSets and ControllerRevisions.

use crate::check::{Field, Go, GoMembers, as_go, child, children, default, default_empty};
use crate::core::pod;
use crate::core::replication::{
    REPLICAS, at_most_replicas, available, available_of, labels_do_not_match, replica_set_status,
    replicated_template, require_restart_always, selector_matches,
};
use crate::equality::{self, go};
use crate::gates;
use crate::strategy::Strategy;
use keelson_meta::names;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::selector::Selector;
use keelson_meta::{ErrorList, Feature, FieldError, Object, Str, Value, value};
use std::collections::BTreeSet;

/// Deployments.
pub(super) const fn deployment(base: Strategy) -> Strategy {
    Strategy {
        default: default_deployment,
        validate: validate_deployment,
        validate_status: deployment_status,
        warnings: pod::warnings::of_named_workload,
        ..base
    }
}

fn default_deployment(obj: &mut Object) {
    let spec = obj.object_mut("spec");
    default(spec, REPLICAS, 1);
    let strategy = spec.object_at("strategy");
    default_empty(strategy, "type", "RollingUpdate");
    if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
        let update = strategy.object_at("rollingUpdate");
        default(update, "maxUnavailable", "25%");
        default(update, "maxSurge", "25%");
    }
    default(spec, "revisionHistoryLimit", 10);
    default(spec, "progressDeadlineSeconds", 600);
    pod::defaults::template(spec);
}

fn validate_deployment(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    spec.field(REPLICAS).not_negative(&mut errors);
    selector_and_template(&spec, "deployment", &mut errors);
    deployment_strategy(&spec.field("strategy"), &mut errors);
    let ready = spec.field("minReadySeconds");
    ready.not_negative(&mut errors);
    spec.field("revisionHistoryLimit").not_negative(&mut errors);
    let deadline = spec.field("progressDeadlineSeconds");
    if deadline.is_set() {
        deadline.not_negative(&mut errors);
        if deadline.number() <= ready.number() {
            deadline.invalid(&mut errors, "must be greater than minReadySeconds");
        }
    }
    same_selector(&spec, old, &mut errors);
    errors
}

/// Checks that the selector does not change.
fn same_selector(spec: &Field<'_, '_>, old: Option<&Object>, errors: &mut ErrorList) {
    if let Some(old) = old {
        let stored = Field::of(old, "spec");
        spec.unchanged_selector(go::DAEMON_SET_SPEC, stored.value, errors);
    }
}

/// Validates the selector and the template, whose labels it must match.
fn selector_and_template(spec: &Field<'_, '_>, kind: &str, errors: &mut ErrorList) {
    if let Some(selector) = label_selector(spec, kind, errors) {
        replicated_template(&spec.field("template"), &selector, "ReplicaSet", errors);
    }
}

fn label_selector(spec: &Field<'_, '_>, kind: &str, errors: &mut ErrorList) -> Option<Selector> {
    let at = spec.field("selector");
    if !at.is_set() {
        at.required(errors, "");
    } else {
        at.label_selector(errors);
        if is_empty_selector(at.value) {
            at.invalid_selector(errors, &format!("empty selector is invalid for {kind}"));
        }
    }
    let selector = Selector::from_object(at.get_self());
    if selector.is_err() {
        at.invalid_selector(errors, "invalid label selector");
    }
    selector.ok()
}

/// Returns whether a selector has no requirements.
pub(super) fn is_empty_selector(selector: &Value) -> bool {
    ["matchLabels", "matchExpressions"]
        .iter()
        .all(|name| selector.get(name).is_none_or(Value::is_empty))
}

const DEPLOYMENT_ROLLING: GoMembers = &[("MaxUnavailable", Go::Number), ("MaxSurge", Go::Number)];
const DEPLOYMENT_STRATEGY: GoMembers =
    &[("Type", Go::Text), ("RollingUpdate", Go::Struct(DEPLOYMENT_ROLLING))];

fn deployment_strategy(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let update = at.field("rollingUpdate");
    match at.str("type") {
        "Recreate" if update.is_set() => {
            let words = "may not be specified when strategy `type` is 'Recreate'";
            update.forbidden(errors, words);
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let down = update.field("maxUnavailable");
            let up = update.field("maxSurge");
            count_or_percent(&down, errors);
            count_or_percent(&up, errors);
            if amount(down.value) == 0 && amount(up.value) == 0 {
                down.invalid(errors, "may not be 0 when `maxSurge` is 0");
            }
            at_most_100_percent(&down, errors);
        }
        _ => {
            let shown = keelson_meta::status::show(&as_go(at.value, DEPLOYMENT_STRATEGY));
            let error = FieldError::not_supported(&at.path, "", &["Recreate", "RollingUpdate"]);
            errors.push(FieldError { value: Some(shown), ..error });
        }
    }
}

/// Validates an int-or-string that is a count or a percentage.
pub(crate) fn count_or_percent(at: &Field<'_, '_>, errors: &mut ErrorList) {
    match at.value {
        Value::String(_) => at.rule(errors, names::is_valid_percent),
        _ => at.not_negative(errors),
    }
}

/// Returns the number of a count or percentage, also of a count in a string; 0 when invalid.
pub(super) fn amount(value: &Value) -> i64 {
    match value {
        // An invalid percentage counts as 0.
        Value::String(text) if text.ends_with('%') && !names::is_valid_percent(text).is_empty() => {
            0
        }
        Value::String(text) => text.strip_suffix('%').unwrap_or(text).parse().unwrap_or(0),
        other => other.as_int().unwrap_or(0),
    }
}

/// Requires a percentage of at most 100 %.
pub(crate) fn at_most_100_percent(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let is_share = at.value.as_str().is_some_and(|text| text.ends_with('%'));
    if is_share && amount(at.value) > 100 {
        at.invalid(errors, "must not be greater than 100%");
    }
}

fn deployment_status(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    let counts = [
        "observedGeneration",
        REPLICAS,
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
    ];
    counts.iter().for_each(|name| status.field(name).not_negative(&mut errors));
    status.field("collisionCount").not_negative(&mut errors);
    at_most_replicas(&status, &["updatedReplicas", "readyReplicas"], &mut errors);
    available(&status, &mut errors);
    collisions(&status, old, &mut errors);
    errors
}

fn collisions(status: &Field<'_, '_>, old: Option<&Object>, errors: &mut ErrorList) {
    let at = status.field("collisionCount");
    let stored = old.and_then(|old| old.int_at(&["status", "collisionCount"]));
    if stored.is_some_and(|stored| at.number() < stored) {
        at.invalid_as(errors, at.number(), "cannot be decremented");
    }
}

/// ReplicaSets.
pub(super) const fn replica_set(base: Strategy) -> Strategy {
    Strategy {
        default: |obj| {
            let spec = obj.object_mut("spec");
            default(spec, REPLICAS, 1);
            pod::defaults::template(spec);
        },
        validate: validate_replica_set,
        validate_status: |new, _| replica_set_status(new),
        warnings: pod::warnings::of_named_workload,
        ..base
    }
}

fn validate_replica_set(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    spec.field(REPLICAS).not_negative(&mut errors);
    spec.field("minReadySeconds").not_negative(&mut errors);
    selector_and_template(&spec, "deployment", &mut errors);
    same_selector(&spec, old, &mut errors);
    errors
}

/// DaemonSets.
pub(super) const fn daemon_set(base: Strategy) -> Strategy {
    Strategy {
        default: default_daemon_set,
        validate: validate_daemon_set,
        validate_status: daemon_set_status,
        prepare_create: |obj| {
            set_template_generation(obj, 1);
        },
        prepare_update: |new, old| {
            let stored = old.annotation(TEMPLATE_GENERATION).and_then(|text| text.parse().ok());
            let [now, then] =
                [&*new, old].map(|obj| obj.at(&["spec", "template"]).unwrap_or(&Value::Null));
            let is_same = equality::equal_members(go::DAEMON_SET_SPEC, "template", now, then);
            set_template_generation(new, stored.unwrap_or(1) + i64::from(!is_same));
        },
        prepare_status: |new, old| {
            let stored = old.annotation(TEMPLATE_GENERATION).and_then(|text| text.parse().ok());
            set_template_generation(new, stored.unwrap_or(1));
        },
        warnings: pod::warnings::of_workload,
        ..base
    }
}

/// The annotation with the template generation of a DaemonSet, from its first versions.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn set_template_generation(obj: &mut Object, generation: i64) {
    let annotations = obj.metadata_mut().object_at("annotations");
    annotations.insert(TEMPLATE_GENERATION, generation.to_string());
    annotations.sort();
}

fn default_daemon_set(obj: &mut Object) {
    // Upstream decodes the annotation into a field and encodes it again, so a missing one is 0 to
    // field managers.
    if obj.annotation(TEMPLATE_GENERATION).is_none() {
        set_template_generation(obj, 0);
    }
    let spec = obj.object_mut("spec");
    let strategy = spec.object_at("updateStrategy");
    default_empty(strategy, "type", "RollingUpdate");
    if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate") {
        let update = strategy.object_at("rollingUpdate");
        default(update, "maxUnavailable", 1);
        default(update, "maxSurge", 0);
    } else if let Some(update) = child(strategy, "rollingUpdate") {
        // The field is not a pointer in the internal type.
        default(update, "maxUnavailable", 0);
        default(update, "maxSurge", 0);
    }
    default(spec, "revisionHistoryLimit", 10);
    pod::defaults::template(spec);
}

fn validate_daemon_set(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    same_selector(&spec, old, &mut errors);
    daemon_set_spec(&spec, &mut errors);
    errors
}

fn daemon_set_spec(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let selector = spec.field("selector");
    let template = spec.field("template");
    selector.label_selector(errors);
    if let Ok(chosen) = Selector::from_object(selector.get_self())
        && !selector_matches(&chosen, &template)
    {
        labels_do_not_match(&template, errors);
    }
    if selector.is_set() && is_empty_selector(selector.value) {
        selector.invalid_selector(errors, "empty selector is invalid for daemonset");
    }
    pod::spec::template(&template, errors);
    require_restart_always(&template, "DaemonSet", errors);
    spec.field("minReadySeconds").not_negative(errors);
    daemon_set_strategy(&spec.field("updateStrategy"), errors);
    spec.field("revisionHistoryLimit").not_negative(errors);
}

fn daemon_set_strategy(at: &Field<'_, '_>, errors: &mut ErrorList) {
    match at.str("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            let update = at.field("rollingUpdate");
            if !update.is_set() {
                return update.required(errors, "");
            }
            let down = update.field("maxUnavailable");
            let up = update.field("maxSurge");
            count_or_percent(&down, errors);
            count_or_percent(&up, errors);
            at_most_100_percent(&down, errors);
            at_most_100_percent(&up, errors);
            match (amount(down.value) != 0, amount(up.value) != 0) {
                (true, true) => {
                    up.invalid(errors, "may not be set when maxUnavailable is non-zero")
                }
                (false, false) => down.required(errors, "cannot be 0 when maxSurge is 0"),
                _ => {}
            }
        }
        other => {
            // The message shows the Go struct.
            let update = match at.get("rollingUpdate") {
                Value::Null => Value::Null,
                update => {
                    let of = |name: &str| update.get(name).cloned().unwrap_or(Value::Int(0));
                    value!({
                        "MaxUnavailable": (of("maxUnavailable")), "MaxSurge": (of("maxSurge"))
                    })
                }
            };
            let shown = value!({"Type": other, "RollingUpdate": (update)});
            let valid = ["RollingUpdate", "OnDelete"];
            errors.push(FieldError::not_supported(&at.path, shown, &valid));
        }
    }
}

fn daemon_set_status(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    let counts = [
        "currentNumberScheduled",
        "numberMisscheduled",
        "desiredNumberScheduled",
        "numberReady",
        "observedGeneration",
        "updatedNumberScheduled",
        "numberAvailable",
        "numberUnavailable",
    ];
    counts.iter().for_each(|name| status.field(name).not_negative(&mut errors));
    status.field("collisionCount").not_negative(&mut errors);
    collisions(&status, old, &mut errors);
    errors
}

const KEEPS_ALL: &str = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value \
                         >= 0 is recommended";

/// StatefulSets.
pub(super) const fn stateful_set(base: Strategy) -> Strategy {
    Strategy {
        name_rule: names::name_is_dns_label,
        default: default_stateful_set,
        validate: validate_stateful_set,
        validate_status: stateful_set_status,
        warnings: |new, old| {
            let mut warnings = pod::warnings::of_workload(new, old);
            let spec = Field::of(new, "spec");
            if old.is_none_or(|old| old.generation() != new.generation()) {
                warnings.extend(pod::warnings::collect_warnings(|warnings| {
                    for claim in spec.field("volumeClaimTemplates").items() {
                        pod::warnings::claim_sizes(&claim.field("spec"), warnings);
                    }
                }));
            }
            if spec.int("revisionHistoryLimit").is_some_and(|limit| limit < 0) {
                warnings.push(Str::new_static(KEEPS_ALL));
            }
            warnings
        },
        ..base
    }
}

fn default_stateful_set(obj: &mut Object) {
    let spec = obj.object_mut("spec");
    default_empty(spec, "podManagementPolicy", "OrderedReady");
    let strategy = spec.object_at("updateStrategy");
    if strategy.get("type").is_none_or(Value::is_empty) {
        strategy.insert("type", "RollingUpdate");
        strategy.object_at("rollingUpdate");
    }
    if strategy.get("type").and_then(Value::as_str) == Some("RollingUpdate")
        && let Some(update) = child(strategy, "rollingUpdate")
    {
        default(update, "partition", 0);
        if gates::is_on(Feature::MaxUnavailableStatefulSet) {
            default(update, "maxUnavailable", 1);
        }
    }
    let policy = spec.object_at("persistentVolumeClaimRetentionPolicy");
    default_empty(policy, "whenDeleted", "Retain");
    default_empty(policy, "whenScaled", "Retain");
    default(spec, REPLICAS, 1);
    default(spec, "revisionHistoryLimit", 10);
    pod::defaults::template(spec);
    for claim in children(spec, "volumeClaimTemplates") {
        default_empty(claim, "apiVersion", "v1");
        default_empty(claim, "kind", "PersistentVolumeClaim");
        crate::core::claims::default_claim(claim);
    }
}

fn validate_stateful_set(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    stateful_set_policies(&spec, &mut errors);
    if old.is_none() {
        for claim in spec.field("volumeClaimTemplates").items() {
            crate::core::claim_template::claim_spec(&claim.field("spec"), false, &mut errors);
        }
    }
    for name in [REPLICAS, "minReadySeconds"] {
        spec.field(name).not_negative(&mut errors);
    }
    spec.field("ordinals").field("start").not_negative(&mut errors);
    if old.is_none() {
        spec.field("serviceName").rule_if_set(&mut errors, names::is_dns1123_label);
    }
    stateful_set_template(&spec, &mut errors);
    if let Some(old) = old {
        stateful_set_update(new, old, &mut errors);
    }
    errors
}

const ROLLING: GoMembers = &[("Partition", Go::Number), ("MaxUnavailable", Go::Pointer)];
const STRATEGY: GoMembers = &[("Type", Go::Text), ("RollingUpdate", Go::Struct(ROLLING))];

fn stateful_set_policies(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let management = spec.field("podManagementPolicy");
    match management.text() {
        "" => management.required(errors, ""),
        "OrderedReady" | "Parallel" => {}
        _ => management.invalid(errors, "must be 'OrderedReady' or 'Parallel'"),
    }
    let strategy = spec.field("updateStrategy");
    let update = strategy.field("rollingUpdate");
    match strategy.str("type") {
        "" => strategy.required(errors, ""),
        "OnDelete" if update.is_set() => {
            let words = "only allowed for updateStrategy 'RollingUpdate'";
            update.invalid_as(errors, as_go(update.value, ROLLING), words);
        }
        "OnDelete" => {}
        "RollingUpdate" => {
            update.field("partition").not_negative(errors);
            let down = update.field("maxUnavailable");
            if down.is_set() {
                count_or_percent(&down, errors);
                if amount(down.value) == 0 {
                    down.invalid(errors, "cannot be 0");
                }
                at_most_100_percent(&down, errors);
            }
        }
        _ => {
            let words = "must be 'RollingUpdate' or 'OnDelete'";
            strategy.invalid_as(errors, as_go(strategy.value, STRATEGY), words);
        }
    }
    let retention = spec.field("persistentVolumeClaimRetentionPolicy");
    for name in ["whenDeleted", "whenScaled"] {
        retention.field(name).one_of(errors, &["Retain", "Delete"]);
    }
}

fn stateful_set_template(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let selector = spec.field("selector");
    let template = spec.field("template");
    if !selector.is_set() {
        selector.required(errors, "");
    } else {
        selector.label_selector(errors);
        if is_empty_selector(selector.value) {
            selector.invalid_selector(errors, "empty selector is invalid for statefulset");
        }
    }
    match Selector::from_object(selector.get_self()) {
        Err(_) => selector.invalid_selector(errors, ""),
        Ok(chosen) => {
            if !chosen.is_everything() && !selector_matches(&chosen, &template) {
                labels_do_not_match(&template, errors);
            }
            let mut whole = with_claims(spec);
            // The controller sets the names of pods.
            if let Some(pod) = whole.as_object_mut().and_then(|whole| child(whole, "spec")) {
                ["hostname", "subdomain"].iter().for_each(|name| drop(pod.remove(name)));
            }
            pod::spec::template(&Field { value: &whole, path: template.path }, errors);
            // Upstream validates these once more.
            pod::spec::template_metadata(&template, errors);
        }
    }
    require_restart_always(&template, "StatefulSet", errors);
}

/// Returns the template with the volumes of its claim templates.
fn with_claims(spec: &Field<'_, '_>) -> Value {
    let mut template = spec.get("template").clone();
    let claims = spec.get("volumeClaimTemplates").as_array().unwrap_or_default();
    let Some(inner) = template.as_object_mut().filter(|_| !claims.is_empty()) else {
        return template;
    };
    // Claim templates of equal names give one volume.
    let mut claimed = BTreeSet::new();
    let mut volumes = vec![];
    for claim in claims {
        let name = claim.str_at(&["metadata", "name"]).unwrap_or_default();
        if claimed.insert(name) {
            volumes.push(value!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        }
    }
    let inner = inner.object_at("spec");
    let others = inner.get("volumes").and_then(Value::as_array).unwrap_or_default();
    let is_claimed = |v: &Value| claimed.contains(v.str_at(&["name"]).unwrap_or_default());
    volumes.extend(others.iter().filter(|volume| !is_claimed(volume)).cloned());
    inner.insert("volumes", volumes);
    template
}

fn stateful_set_update(new: &Object, old: &Object, errors: &mut ErrorList) {
    const MUTABLE: &[&str] = &[
        REPLICAS,
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    let rest = |obj: &Object| {
        let mut spec = obj.get("spec").and_then(Value::as_object).cloned().unwrap_or_default();
        spec.retain(|name, _| !MUTABLE.contains(&name.as_str()));
        Value::Object(spec)
    };
    if !equality::equal(go::STATEFUL_SET_SPEC, &rest(new), &rest(old)) {
        let words = "updates to statefulset spec for fields other than 'replicas', 'ordinals', \
                     'template', 'updateStrategy', 'revisionHistoryLimit', \
                     'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
        Field::of(new, "spec").forbidden(errors, words);
    }
}

fn stateful_set_status(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    let counts =
        [REPLICAS, "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
    counts.iter().for_each(|name| status.field(name).not_negative(&mut errors));
    status.field("observedGeneration").not_negative(&mut errors);
    status.field("collisionCount").not_negative(&mut errors);
    let limited = ["readyReplicas", "currentReplicas", "updatedReplicas"];
    at_most_replicas(&status, &limited, &mut errors);
    available_of(&status, "status.readyReplicas", &mut errors);
    collisions(&status, old, &mut errors);
    errors
}

/// ControllerRevisions.
pub(super) const fn controller_revision(base: Strategy) -> Strategy {
    Strategy { validate: validate_controller_revision, ..base }
}

fn validate_controller_revision(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let data = Field::of(new, "data");
    let revision = Field::of(new, "revision");
    revision.not_negative(&mut errors);
    match data.value {
        _ if data.value.is_map() || old.is_some() => {}
        Value::Null => data.required(&mut errors, "data is mandatory"),
        _ => data.required(&mut errors, "data must be a valid JSON object"),
    }
    if let Some(old) = old
        && old.get("data") != new.get("data")
    {
        errors.push(FieldError::invalid(&data.path, data.value.clone(), IMMUTABLE));
    }
    errors
}
