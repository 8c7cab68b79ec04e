//! The FlowSchemas and PriorityLevelConfigurations that every server has, and the condition
//! Dangling of FlowSchemas. What they mean for requests: `server/src/fairness.rs`.

mod restore;

use crate::ensure::ensure_all;
use bytes::Bytes;
use futures_util::future::try_join_all;
use keelson_auth::Permit;
use keelson_meta::{Failure, Map, Object, Value, value};
use keelson_registry::options::{Patch, PatchForm, WriteOptions};
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use keelson_schema::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
const SCHEMAS: &str = "flowschemas";
const LEVELS: &str = "prioritylevelconfigurations";
/// Groups and names of the resources.
pub const FOLLOWED: &[(&str, &str)] = &[(GROUP, SCHEMAS), (GROUP, LEVELS)];
const PRODUCER: &str = "api-priority-and-fairness-config-producer-v1";
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";
/// Interval at which deleted default objects are created again, and changed ones set back.
const ENSURE_INTERVAL: Duration = Duration::from_secs(60);
/// Retry interval after a failure.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// A limited priority level: name, nominal concurrency shares, lendable percent, and queues
/// (number, hand size, length limit). Without queues it rejects requests.
type Level = (&'static str, i64, i64, Option<(i64, i64, i64)>);

const LIMITED_LEVELS: &[Level] = &[
    ("catch-all", 5, 0, None),
    ("global-default", 20, 50, Some((128, 6, 50))),
    ("leader-election", 10, 0, Some((16, 4, 50))),
    ("node-high", 40, 25, Some((64, 6, 50))),
    ("system", 30, 33, Some((64, 6, 50))),
    ("workload-high", 40, 50, Some((128, 6, 50))),
    ("workload-low", 100, 90, Some((128, 6, 50))),
];

/// A FlowSchema.
struct Schema {
    name: &'static str,
    level: &'static str,
    precedence: i64,
    distinguisher: &'static str,
    /// `Group NAME`, `User NAME` or `ServiceAccount NAMESPACE NAME`.
    subjects: &'static [&'static str],
    rules: Rules,
}

/// The requests that a FlowSchema matches.
enum Rules {
    All,
    Probes,
    LeaderElection,
    Nodes,
}

const ALL_USERS: &[&str] = &["Group system:unauthenticated", "Group system:authenticated"];
const KUBE_SYSTEM: &str = "ServiceAccount kube-system *";

const fn all(
    name: &'static str,
    level: &'static str,
    precedence: i64,
    distinguisher: &'static str,
    subjects: &'static [&'static str],
) -> Schema {
    Schema { name, level, precedence, distinguisher, subjects, rules: Rules::All }
}

const FLOW_SCHEMAS: &[Schema] = &[
    all("catch-all", "catch-all", 10000, "ByUser", ALL_USERS),
    all("exempt", "exempt", 1, "", &["Group system:masters"]),
    all("global-default", "global-default", 9900, "ByUser", ALL_USERS),
    all(
        "kube-controller-manager",
        "workload-high",
        800,
        "ByNamespace",
        &["User system:kube-controller-manager"],
    ),
    all("kube-scheduler", "workload-high", 800, "ByNamespace", &["User system:kube-scheduler"]),
    all("kube-system-service-accounts", "workload-high", 900, "ByNamespace", &[KUBE_SYSTEM]),
    Schema { rules: Rules::Probes, ..all("probes", "exempt", 2, "", ALL_USERS) },
    all("service-accounts", "workload-low", 9000, "ByUser", &["Group system:serviceaccounts"]),
    Schema {
        rules: Rules::LeaderElection,
        ..all(
            "system-leader-election",
            "leader-election",
            100,
            "ByUser",
            &["User system:kube-controller-manager", "User system:kube-scheduler", KUBE_SYSTEM],
        )
    },
    Schema {
        rules: Rules::Nodes,
        ..all("system-node-high", "node-high", 400, "ByUser", &["Group system:nodes"])
    },
    all("system-nodes", "system", 500, "ByUser", &["Group system:nodes"]),
];

/// Creates the default objects that do not exist, and sets back those that were changed.
pub(crate) async fn ensure(registry: &Arc<Registry>) -> Result<(), Failure> {
    let (Some(levels), Some(schemas)) =
        (registry.kind(GROUP, LEVELS), registry.kind(GROUP, SCHEMAS))
    else {
        return Ok(());
    };
    let exempt = value!({
        "type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}
    });
    let limited = LIMITED_LEVELS.iter().map(|level| (level.0, level_spec(level)));
    let default_levels = limited
        .chain([("exempt", exempt)])
        .map(|(name, spec)| (Target::of(&levels, "", name), default_object(name, spec)));
    let now = registry.options.fairness.then(|| registry.clock.now().text());
    let default_schemas = FLOW_SCHEMAS.iter().map(|schema| {
        (Target::of(&schemas, "", schema.name), default_schema(schema, now.as_deref()))
    });
    let defaults: Vec<_> = default_levels.chain(default_schemas).collect();
    ensure_all(registry, defaults.clone(), PRODUCER).await?;
    restore::restore_all(registry, &defaults, PRODUCER).await
}

/// Returns a default FlowSchema. It has its condition already, owned as if it had been applied, so
/// that a new server does not change its first objects. Without the time it has no condition.
fn default_schema(schema: &Schema, now: Option<&str>) -> Value {
    let object = default_object(schema.name, schema.spec());
    let Some(now) = now else { return object };
    let mut object = Object::from_value(object).unwrap_or_default();
    let condition = condition(expected_condition(schema.level, true), now);
    object.root.insert("status", value!({"conditions": [(condition)]}));
    let fields = value!({"f:status": {"f:conditions": {"k:{\"type\":\"Dangling\"}": {
        ".": {}, "f:lastTransitionTime": {}, "f:message": {}, "f:reason": {}, "f:status": {},
        "f:type": {}
    }}}});
    let entry = value!({
        "manager": CONSUMER, "operation": "Apply", "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "time": now, "fieldsType": "FieldsV1", "fieldsV1": (fields), "subresource": "status"
    });
    object.metadata_mut().insert("managedFields", vec![entry]);
    object.into_value()
}

fn default_object(name: &str, spec: Value) -> Value {
    let mut annotations = Map::new();
    annotations.insert(restore::AUTO_UPDATE, "true");
    value!({"metadata": {"name": name, "annotations": (annotations)}, "spec": (spec)})
}

fn level_spec((_, shares, lendable, queues): &Level) -> Value {
    let response = match queues {
        None => value!({"type": "Reject"}),
        Some((queues, hand, length)) => {
            let queues = *queues;
            let hand = *hand;
            let length = *length;
            value!({"type": "Queue", "queuing": {
                "queues": queues, "handSize": hand, "queueLengthLimit": length
            }})
        }
    };
    let shares = *shares;
    let lendable = *lendable;
    value!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": shares, "limitResponse": (response),
        "lendablePercent": lendable
    }})
}

impl Schema {
    fn spec(&self) -> Value {
        let mut rule = Map::new();
        rule.insert("subjects", self.subjects.iter().map(|text| subject(text)).collect::<Vec<_>>());
        let leases = |verbs: &[&'static str]| {
            let verbs: Vec<Value> = verbs.iter().map(|verb| Value::from(*verb)).collect();
            value!({"verbs": (verbs), "apiGroups": ["coordination.k8s.io"],
                "resources": ["leases"], "namespaces": ["*"]})
        };
        match self.rules {
            Rules::All => {
                let everything = value!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"],
                    "clusterScope": true, "namespaces": ["*"]});
                rule.insert("resourceRules", vec![everything]);
                let paths = value!({"verbs": ["*"], "nonResourceURLs": ["*"]});
                rule.insert("nonResourceRules", vec![paths]);
            }
            Rules::Probes => {
                let probes = value!({"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]});
                rule.insert("nonResourceRules", vec![probes]);
            }
            Rules::LeaderElection => {
                rule.insert("resourceRules", vec![leases(&["get", "create", "update"])]);
            }
            Rules::Nodes => {
                let nodes = value!({"verbs": ["*"], "apiGroups": [""],
                    "resources": ["nodes", "nodes/status"], "clusterScope": true,
                    "namespaces": ["*"]});
                rule.insert("resourceRules", vec![nodes, leases(&["*"])]);
            }
        }
        let mut spec = Map::new();
        spec.insert("priorityLevelConfiguration", value!({"name": (self.level)}));
        spec.insert("matchingPrecedence", self.precedence);
        if !self.distinguisher.is_empty() {
            spec.insert("distinguisherMethod", value!({"type": (self.distinguisher)}));
        }
        spec.insert("rules", vec![Value::Object(rule)]);
        Value::Object(spec)
    }
}

fn subject(text: &'static str) -> Value {
    let mut words = text.split(' ');
    let mut next = || words.next().unwrap_or_default();
    let kind = next();
    let first = next();
    match kind {
        "Group" => value!({"kind": "Group", "group": {"name": first}}),
        "User" => value!({"kind": "User", "user": {"name": first}}),
        _ => {
            let name = next();
            value!({"kind": "ServiceAccount", "serviceAccount": {"namespace": first, "name": name}})
        }
    }
}

/// Maintains the default objects and the conditions of FlowSchemas until it is dropped. Without
/// priority and fairness no conditions, as upstream.
pub async fn run(registry: Arc<Registry>) {
    let mut informer = registry.informer(InformerScope::Only(FOLLOWED));
    let mut events: Vec<InformerEvent> = vec![];
    let mut next_ensure = Instant::now() + ENSURE_INTERVAL;
    loop {
        informer.take_all(&mut events);
        events.clear();
        let began = Instant::now();
        let mut written = match registry.options.fairness {
            true => update_conditions(&registry).await,
            false => Ok(()),
        };
        if Instant::now() >= next_ensure {
            next_ensure = Instant::now() + ENSURE_INTERVAL;
            written = written.and(ensure(&registry).await);
        }
        let mut next = next_ensure;
        if let Err(error) = written {
            tracing::warn!(%error, "objects of flow control not written; trying again");
            next = Instant::now() + AFTER_FAILURE;
        }
        // Half of the time at most, whatever a user writes. A single change is followed at once, as
        // upstream: its author's next update of the same version is a conflict.
        tokio::time::sleep(began.elapsed()).await;
        let _ = tokio::time::timeout_at(next, informer.changed()).await;
    }
}

/// Returns the stored FlowSchemas and PriorityLevelConfigurations.
pub fn stored(registry: &Registry) -> (Vec<Object>, Vec<Object>) {
    let all = |resource| -> Vec<Object> {
        let Some(kind) = registry.kind(GROUP, resource) else { return vec![] };
        let objects = registry.cached_all(&kind);
        objects.range("", "").filter_map(|entry| kind.decode(entry).ok()).collect()
    };
    (all(SCHEMAS), all(LEVELS))
}

/// Updates the condition Dangling of all FlowSchemas.
async fn update_conditions(registry: &Registry) -> Result<(), Failure> {
    let (Some(levels), Some(schemas)) =
        (registry.kind(GROUP, LEVELS), registry.kind(GROUP, SCHEMAS))
    else {
        return Ok(());
    };
    registry.wait_for_latest().await?;
    let now = registry.clock.now().text();
    let mut changes = vec![];
    for entry in registry.cached_all(&schemas).range("", "") {
        let Ok(schema) = schemas.decode(entry) else { continue };
        let level = schema.str_at(&["spec", "priorityLevelConfiguration", "name"]);
        let level_exists = registry.cached(&levels, "", level).is_some();
        if let Some(condition) = changed_condition(&schema, level, level_exists) {
            let target = Target::of(&schemas, "", schema.name());
            changes.push((target, apply_configuration(&schema, condition, &now)));
        }
    }
    let apply = |(target, body): (Target, Bytes)| async move {
        let patch = Patch { form: PatchForm::ApplyYaml, body };
        let options =
            WriteOptions { field_manager: CONSUMER.into(), force: true, ..WriteOptions::default() };
        let permit = Permit::internal("system:apiserver");
        match registry.patch(&permit, &target, Subresource::Status, &patch, &options).await {
            // The FlowSchema was deleted, and possibly created again.
            Err(failure) if !matches!(failure.code, 404 | 409) => Err(failure),
            _ => Ok(()),
        }
    };
    try_join_all(changes.into_iter().map(apply)).await.map(drop)
}

/// Status, reason and message of a condition.
type Condition = (&'static str, &'static str, String);

/// Returns the condition Dangling that a FlowSchema with this level must have.
fn expected_condition(level: &str, level_exists: bool) -> Condition {
    let words = "This FlowSchema references the PriorityLevelConfiguration object named";
    match level_exists {
        true => ("False", "Found", format!("{words} {level:?} and it exists")),
        false => ("True", "NotFound", format!("{words} {level:?} but there is no such object")),
    }
}

/// Returns the expected condition; `None` if the FlowSchema has it already.
fn changed_condition(schema: &Object, level: &str, level_exists: bool) -> Option<Condition> {
    let expected = expected_condition(level, level_exists);
    let mut conditions = schema.array_at(&["status", "conditions"]).iter();
    let known = conditions.find(|condition| condition.str_at(&["type"]) == Some("Dangling"));
    let is_same = known.is_some_and(|known| {
        let text = |name| known.str_at(&[name]).unwrap_or_default();
        (text("status"), text("reason"), text("message")) == (expected.0, expected.1, &expected.2)
    });
    (!is_same).then_some(expected)
}

fn condition((status, reason, message): Condition, now: &str) -> Value {
    value!({
        "type": "Dangling", "status": status, "lastTransitionTime": now, "reason": reason,
        "message": (message.as_str())
    })
}

/// Returns the apply configuration that sets the condition.
fn apply_configuration(schema: &Object, expected: Condition, now: &str) -> Bytes {
    let configuration = value!({
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1", "kind": "FlowSchema",
        "metadata": {"name": (schema.name()), "uid": (schema.uid())},
        "status": {"conditions": [(condition(expected, now))]}
    });
    let mut text = vec![];
    json::write_value(&configuration, &mut text);
    Bytes::from(text)
}
