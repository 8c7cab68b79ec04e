//! Checks that every served kind has a consistent table, and that recorded tables are reproduced.

use super::column::OBJECT_META;
use super::*;
use keelson_meta::Map;
use keelson_testkit::prerequisites::reference_data;
use std::path::{Path, PathBuf};

const NOW: &str = "2024-01-01T00:10:00Z";

/// Returns the cells of an object's row at ten past midnight, joined by bars.
pub(super) fn row(group: &str, kind: &str, object: Value) -> String {
    let now = Timestamp::parse(NOW).expect("the constant is a time");
    let obj = Object::from_value(object).expect("a test gives a map");
    let cells = cells(group, kind, &obj, now);
    cells.iter().map(cell_text).collect::<Vec<_>>().join(" | ")
}

fn cell_text(cell: &Value) -> String {
    match cell {
        Value::String(text) => text.to_string(),
        other => keelson_meta::status::show(other),
    }
}

/// All readable kinds, by group. A star marks kinds with the default table.
const SERVED: &[(&str, &str)] = &[
    (
        "",
        "ComponentStatus ConfigMap Endpoints Event LimitRange* Namespace Node \
         PersistentVolumeClaim PersistentVolume Pod PodTemplate ReplicationController \
         ResourceQuota Secret ServiceAccount Service",
    ),
    (
        "admissionregistration.k8s.io",
        "MutatingAdmissionPolicy MutatingAdmissionPolicyBinding MutatingWebhookConfiguration \
         ValidatingAdmissionPolicy ValidatingAdmissionPolicyBinding \
         ValidatingWebhookConfiguration",
    ),
    ("apiextensions.k8s.io", "CustomResourceDefinition*"),
    ("apiregistration.k8s.io", "APIService"),
    ("apps", "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet"),
    ("autoscaling", "HorizontalPodAutoscaler Scale"),
    ("batch", "CronJob Job"),
    ("certificates.k8s.io", "CertificateSigningRequest ClusterTrustBundle PodCertificateRequest"),
    ("coordination.k8s.io", "LeaseCandidate Lease"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("events.k8s.io", "Event"),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema PriorityLevelConfiguration"),
    ("internal.apiserver.k8s.io", "StorageVersion"),
    ("networking.k8s.io", "IngressClass Ingress IPAddress NetworkPolicy ServiceCIDR"),
    ("node.k8s.io", "RuntimeClass"),
    ("policy", "PodDisruptionBudget"),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding ClusterRole* RoleBinding Role*"),
    (
        "resource.k8s.io",
        "DeviceClass DeviceTaintRule ResourceClaim ResourceClaimTemplate \
         ResourcePoolStatusRequest ResourceSlice",
    ),
    ("scheduling.k8s.io", "PodGroup PriorityClass Workload"),
    ("storagemigration.k8s.io", "StorageVersionMigration"),
    (
        "storage.k8s.io",
        "CSIDriver CSINode CSIStorageCapacity* StorageClass VolumeAttachment \
         VolumeAttributesClass",
    ),
];

#[test]
fn every_served_kind_has_a_consistent_table() {
    let now = Timestamp::default();
    let odd = value!({"metadata": 5, "spec": [], "status": {"conditions": [[], 1]}, "ports": [2]});
    let odd = Object::from_value(odd).expect("the literal is a map");
    for (group, kinds) in SERVED {
        for kind in kinds.split_whitespace() {
            let name = kind.trim_end_matches('*');
            let printer = printer(group, name);
            assert_eq!(printer.is_default(), kind.ends_with('*'), "{group} {kind}");
            let cells = printer.cells(&Object::new(), now).len();
            assert_eq!(printer.cells(&odd, now).len(), cells, "{group} {kind}");
            let extra = usize::from(name == "IPAddress");
            assert_eq!(cells, printer.columns().len() + extra, "{group} {kind}");
            let names = printer.columns().iter().filter(|column| column.name == "Name").count();
            assert_eq!(names, 1, "{group} {kind}");
        }
    }
}

#[test]
fn default_table_shows_the_creation_time() {
    let object = value!({"metadata": {"name": "r", "creationTimestamp": "2024-01-01T00:00:00Z"}});
    assert_eq!(row("rbac.authorization.k8s.io", "Role", object), "r | 2024-01-01T00:00:00Z");
    assert_eq!(columns("x.example", "Widget")[1].kind, "date");
}

#[test]
fn flow_schemas_are_sorted_by_precedence() {
    let object = |name: &str, rank: i64| {
        let object = value!({"metadata": {"name": name}, "spec": {"matchingPrecedence": rank}});
        Object::from_value(object).expect("the literal is a map")
    };
    let printer = printer("flowcontrol.apiserver.k8s.io", "FlowSchema");
    assert_eq!(printer.compare_rows(&object("b", 1), &object("a", 2)), Ordering::Less);
    assert_eq!(printer.compare_rows(&object("b", 1), &object("a", 1)), Ordering::Greater);
}

#[test]
fn definitions_take_descriptions_from_fields() {
    let all = Descriptions::read();
    let text =
        |name: &str, field: &str| all.of_member(name, field).unwrap_or_default().into_owned();
    let address = text("io.k8s.api.core.v1.PodStatus", "podIP");
    assert_eq!(
        printer("", "Pod").column_definitions()[5],
        value!({
            "name": "IP", "type": "string", "format": "", "description": (address.clone()),
            "priority": 1
        })
    );
    let name = text(OBJECT_META, "name");
    assert_eq!(name.is_empty(), address.is_empty(), "both are embedded, or none");
    let name = value!({
        "name": "Name", "type": "string", "format": "name", "description": name, "priority": 0
    });
    assert_eq!(printer("", "Pod").column_definitions()[0], name);
    assert_eq!(CustomColumns::read(&[]).definitions()[0], name);
    assert_eq!(describing_bytes(), 0, "they were read");
}

/// Compares with recorded tables of kube-apiserver: the columns, and the cells of objects whose
/// creation is in the transcript, unless they depend on defaults or controllers.
#[test]
fn recorded_tables_are_reproduced() {
    let paths = ["reference/discovery-aggregated-all.json", "conformance/transcripts"];
    let [Some(discovery), Some(transcripts)] = paths.map(reference_data) else { return };
    let kinds = Kinds::read(&discovery);
    let mut tables = 0;
    let mut compared = 0;
    let mut wrong = vec![];
    for path in json_files(&transcripts) {
        let transcript = read(&path);
        let mut world = World::default();
        let steps = transcript.array_at(&["steps"]).iter();
        for (step, answer) in steps.zip(transcript.array_at(&["answers"])) {
            let Some((verb, url)) = step.str_at(&["do"]).and_then(|text| text.split_once(' '))
            else {
                continue;
            };
            let target = url.split('?').next().unwrap_or_default();
            let (collection, name) = split_target(target);
            if answer.int_at(&["status"]).is_some_and(|status| status < 300) {
                world.note(verb, target, step.get("body"), answer.get("body"));
            }
            let Some((group, kind)) = kinds.of(collection) else { continue };
            let body = answer.get("body").filter(|body| body.get("columnDefinitions").is_some());
            let Some(body) = body.filter(|_| verb == "GET") else { continue };
            tables += 1;
            check_columns(body, printer(&group, &kind), &path);
            let cells = world.recorded_cells(body, collection, name, printer(&group, &kind));
            compared += cells.len();
            let faults = cells.into_iter().filter(|(_, ours, recorded)| ours != recorded);
            wrong.extend(faults.map(|fault| format!("{}: {fault:?}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "(cell, ours, recorded)\n{}", wrong.join("\n"));
    assert!(tables > 20 && compared > 50, "tables {tables}, cells {compared}");
}

fn json_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = vec![];
    for entry in std::fs::read_dir(folder).expect("the folder is there").flatten() {
        let path = entry.path();
        if path.is_dir() {
            files.extend(json_files(&path));
        } else if path.extension().is_some_and(|end| end == "json") {
            files.push(path);
        }
    }
    files
}

fn read(path: &Path) -> Value {
    let text = std::fs::read(path).expect("the file is there");
    convert(serde_json::from_slice(&text).expect("the file is JSON"))
}

fn convert(json: serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(flag) => flag.into(),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(number) => number.into(),
            None => number.as_f64().unwrap_or_default().into(),
        },
        serde_json::Value::String(text) => text.into(),
        serde_json::Value::Array(items) => {
            items.into_iter().map(convert).collect::<Vec<_>>().into()
        }
        serde_json::Value::Object(members) => {
            let members = members.into_iter().map(|(key, value)| (key.into(), convert(value)));
            members.collect::<Map>().into()
        }
    }
}

/// Group and kind of each resource, by path: `apps/v1/deployments`.
struct Kinds(Vec<(String, String, String)>);

impl Kinds {
    fn read(path: &Path) -> Self {
        let mut kinds = vec![];
        collect_kinds(&read(path), &mut kinds);
        assert!(kinds.len() > 50, "the discovery file has resources");
        Kinds(kinds)
    }

    fn of(&self, collection: &str) -> Option<(String, String)> {
        let mut parts: Vec<&str> = collection.trim_start_matches('/').split('/').collect();
        if let Some(at) = parts.iter().position(|part| *part == "namespaces")
            && parts.len() > at + 2
        {
            parts.drain(at..at + 2);
        }
        let path = parts.join("/");
        let found = self.0.iter().find(|(known, ..)| *known == path)?;
        Some((found.1.clone(), found.2.clone()))
    }
}

/// Collects the kinds from aggregated discovery in any version.
fn collect_kinds(value: &Value, kinds: &mut Vec<(String, String, String)>) {
    if let Some(items) = value.as_array() {
        items.iter().for_each(|item| collect_kinds(item, kinds));
    }
    let Some(map) = value.as_object() else { return };
    if !map.contains_key("versions") {
        map.iter().for_each(|(_, member)| collect_kinds(member, kinds));
        return;
    }
    let group = value.str_at(&["metadata", "name"]).unwrap_or_default();
    for version in value.array_at(&["versions"]) {
        let version_name = version.str_at(&["version"]).unwrap_or_default();
        for resource in version.array_at(&["resources"]) {
            let name = resource.str_at(&["resource"]).unwrap_or_default();
            let kind = resource.str_at(&["responseKind", "kind"]).unwrap_or_default();
            let path = match group {
                "" => format!("api/{version_name}/{name}"),
                group => format!("apis/{group}/{version_name}/{name}"),
            };
            kinds.push((path, group.to_owned(), kind.to_owned()));
        }
    }
}

/// Splits a path into collection and name. A path with an even number of segments after the version
/// ends in a name.
fn split_target(target: &str) -> (&str, Option<&str>) {
    let parts: Vec<&str> = target.trim_matches('/').split('/').collect();
    let base = if parts.first() == Some(&"api") { 2 } else { 3 };
    let namespaced = parts.get(base) == Some(&"namespaces") && parts.len() > base + 2;
    let rest = parts.len().saturating_sub(base + if namespaced { 2 } else { 0 });
    if rest < 2 {
        return (target, None);
    }
    target.rsplit_once('/').map_or((target, None), |(head, name)| (head, Some(name)))
}

/// The objects that the writes of a transcript create, as far as known without a server.
#[derive(Default)]
struct World(Vec<(String, Object)>);

impl World {
    /// Applies a write: the recorded response if it is an object, otherwise the request body.
    fn note(&mut self, verb: &str, target: &str, body: Option<&Value>, answer: Option<&Value>) {
        let whole = answer.filter(|answer| answer.at(&["metadata", "creationTimestamp"]).is_some());
        let body = whole.or(body).cloned().and_then(Object::from_value);
        let path = target.strip_suffix("/status").unwrap_or(target);
        match (verb, body) {
            ("POST", Some(mut object)) => {
                let path = format!("{target}/{}", object.name());
                if target.ends_with("/pods") {
                    let gated = !object.array_at(&["spec", "schedulingGates"]).is_empty();
                    let status = object.object_mut("status");
                    status.entry_or("phase", || "Pending".into());
                    if gated {
                        let gate = value!([{"type": "PodScheduled", "reason": "SchedulingGated"}]);
                        status.insert("conditions", gate);
                    }
                }
                self.0.push((path, object));
            }
            ("PATCH" | "PUT", Some(mut change)) => {
                let known = self.0.iter_mut().find(|(known, _)| known == path);
                let Some((_, object)) = known else { return };
                if path == target && whole.is_none() {
                    change.root.remove("status");
                }
                merge(&mut object.root, &change.root);
            }
            // A deleted pod has a grace period.
            ("DELETE", _) if target.contains("/pods/") => {
                let known = self.0.iter_mut().filter(|(known, _)| known == target);
                known.for_each(|(_, object)| object.set_meta("deletionTimestamp", NOW));
            }
            ("DELETE", _) => self.0.retain(|(known, _)| known != target),
            _ => {}
        }
    }

    /// Returns the recorded cells that need no server: position, ours, recorded.
    fn recorded_cells(
        &self,
        body: &Value,
        collection: &str,
        name: Option<&str>,
        printer: &Printer,
    ) -> Vec<(String, String, String)> {
        let prefix = format!("{collection}/");
        let mut known: Vec<&Object> = self
            .0
            .iter()
            .filter(|(key, object)| {
                key.strip_prefix(&prefix).is_some_and(|rest| !rest.contains('/'))
                    && name.is_none_or(|name| object.name() == name)
            })
            .map(|(_, object)| object)
            .collect();
        known.sort_by(|a, b| a.name().cmp(b.name()));
        let now = Timestamp::parse(NOW).expect("the constant is a time");
        let mut found = vec![];
        for (index, obj) in known.into_iter().enumerate() {
            let cells = printer.cells(obj, now);
            for (at, (cell, column)) in cells.iter().zip(printer.columns()).enumerate() {
                let recorded = body
                    .get(&format!("rows.{index}.cells.{at}"))
                    .filter(|_| !needs_server(printer.kind, column.name));
                let place = || format!("{} {} {}", printer.kind, obj.name(), column.name);
                found.extend(recorded.map(|r| (place(), cell_text(cell), cell_text(r))));
            }
        }
        found
    }
}

/// Whether a cell depends on defaults or controllers.
fn needs_server(kind: &str, column: &str) -> bool {
    matches!(
        (kind, column),
        ("Secret", "Type")
            | ("Service", "Type" | "Cluster-IP" | "External-IP" | "Port(s)")
            | ("PersistentVolume", "Status" | "Reclaim Policy")
            | ("PersistentVolumeClaim", "VolumeMode")
            | ("ValidatingWebhookConfiguration", "Webhooks")
            | (_, "Age" | "Created At")
    )
}

fn merge(into: &mut Map, change: &Map) {
    for (key, value) in change.iter() {
        match value {
            Value::Null => {
                into.remove(key);
            }
            Value::Object(members) => merge(into.object_at(key), members),
            other => {
                into.insert(key.clone(), other.clone());
            }
        }
    }
}

fn check_columns(body: &Value, printer: &Printer, path: &Path) {
    let shape = |column: &Value| {
        ["name", "type", "format"].map(|name| column.str_at(&[name]).unwrap_or_default().to_owned())
    };
    let recorded = body.array_at(&["columnDefinitions"]);
    let ours = printer.column_definitions();
    let priorities =
        |all: &[Value]| all.iter().map(|c| c.int_at(&["priority"])).collect::<Vec<_>>();
    let place = path.display();
    assert_eq!(
        recorded.iter().map(shape).collect::<Vec<_>>(),
        ours.iter().map(shape).collect::<Vec<_>>(),
        "{place}"
    );
    assert_eq!(priorities(recorded), priorities(&ours), "{place}");
}
