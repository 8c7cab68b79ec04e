//! Default roles and bindings of RBAC: created if they do not exist, otherwise missing rules and
//! subjects are added. Additions of users are kept. A role or binding with the annotation
//! `rbac.authorization.kubernetes.io/autoupdate: "false"` is not changed.

use super::ensure_one;
use keelson_auth::Permit;
use keelson_auth::rbac::{GROUP, Rule, rules_of, uncovered};
use keelson_meta::{Failure, Feature, Map, Object, Str, Value, value};
use keelson_registry::options::WriteOptions;
use keelson_registry::{NewObject, Registry, Subresource, Target};
use std::sync::Arc;
use tokio::task::JoinSet;

const TABLE: &str = include_str!("rbac.txt");
/// Roles and bindings behind a feature gate, in the form of the table.
const GATED: &[(Feature, &str)] = &[(
    Feature::StorageVersionMigrator,
    "clusterrole system:controller:storage-version-migrator-controller\n  \
       create,list,patch * *\n  \
       get apiextensions.k8s.io customresourcedefinitions\n  \
       patch apiextensions.k8s.io customresourcedefinitions/status\n  \
       update storagemigration.k8s.io storageversionmigrations/status\n\
     clusterrolebinding system:controller:storage-version-migrator-controller \
     ClusterRole/system:controller:storage-version-migrator-controller \
     ServiceAccount/kube-system/storage-version-migrator-controller",
)];
const AUTOUPDATE: &str = "rbac.authorization.kubernetes.io/autoupdate";
const BOOTSTRAPPING: &str = "kubernetes.io/bootstrapping";

/// Number of tasks that create roles and bindings. Each write in progress takes memory that the
/// process keeps after the start.
const TASKS: usize = 24;

/// A role or binding of the table.
#[derive(Debug)]
pub(super) struct TableEntry {
    /// The line with its name.
    head: &'static str,
    /// The lines of a role.
    lines: Vec<&'static str>,
}

/// Creates and reconciles default roles and bindings, concurrently, so that their writes share
/// syncs of the disk.
pub(super) async fn ensure(
    registry: &Arc<Registry>,
    entries: Vec<TableEntry>,
) -> Result<(), Failure> {
    let mut shares: [Vec<TableEntry>; TASKS] = [const { vec![] }; TASKS];
    for (number, entry) in entries.into_iter().enumerate() {
        shares[number % TASKS].push(entry);
    }
    let mut tasks = JoinSet::new();
    for share in shares {
        let registry = registry.clone();
        tasks.spawn(async move {
            for entry in share {
                let (target, expected) = entry.object(&registry);
                reconcile(&registry, &target, expected).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.map_err(keelson_meta::Status::internal)??;
    }
    Ok(())
}

async fn reconcile(registry: &Registry, target: &Target, expected: Object) -> Result<(), Failure> {
    let Some(entry) = registry.cached(&target.kind, &target.namespace, &target.name) else {
        return ensure_one(registry, target, expected.into_value()).await;
    };
    let Ok(existing) = target.kind.decode(&entry) else { return Ok(()) };
    if reconciled(&existing, &expected).is_none() {
        return Ok(());
    }
    let permit = Permit::internal("system:apiserver");
    if existing.get("roleRef").is_some_and(|role| Some(role) != expected.get("roleRef")) {
        // `roleRef` is immutable.
        registry.delete(&permit, target, &Default::default(), &mut vec![]).await?;
        return ensure_one(registry, target, expected.into_value()).await;
    }
    let change = |live: Option<&Object>| {
        let live = live.ok_or_else(|| target.not_found())?;
        let object = reconciled(live, &expected).unwrap_or_else(|| live.clone());
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    let options =
        WriteOptions { field_manager: "kube-apiserver".into(), ..WriteOptions::default() };
    registry.modify(&permit, target, Subresource::None, &change, &options).await.map(drop)
}

/// Returns an existing role or binding with what it lacks of the expected one; `None` if nothing is
/// to be changed.
fn reconciled(existing: &Object, expected: &Object) -> Option<Object> {
    if existing.annotation(AUTOUPDATE) == Some("false") {
        return None;
    }
    let mut object = existing.clone();
    for map in ["labels", "annotations"] {
        for (key, value) in expected.meta_map(map) {
            object.metadata_mut().object_at(map).entry_or(key, || value.into());
        }
    }
    if expected.get("roleRef").is_some() {
        object.root.insert("roleRef", expected.get("roleRef").cloned().unwrap_or_default());
        add_missing(&mut object, expected, &["subjects"]);
    } else {
        let is_aggregated = |role: &Object| role.get("aggregationRule").is_some();
        if !(is_aggregated(existing) && is_aggregated(expected)) {
            let held = rules_of(existing.array_at(&["rules"]));
            let missing = uncovered(&held, &rules_of(expected.array_at(&["rules"])));
            if !missing.is_empty() {
                let rules = object.root.entry_or("rules", || Value::Array(vec![]));
                if !matches!(rules, Value::Array(_)) {
                    *rules = Value::Array(vec![]);
                }
                let rules = rules.as_array_mut();
                rules.into_iter().for_each(|rules| {
                    rules.extend(missing.iter().map(Rule::to_value));
                });
            }
        }
        add_missing(&mut object, expected, &["aggregationRule", "clusterRoleSelectors"]);
    }
    (object != *existing).then_some(object)
}

/// Adds the items of an expected list that are missing.
fn add_missing(object: &mut Object, expected: &Object, path: &[&str]) {
    let known = object.array_at(path);
    let missing: Vec<Value> =
        expected.array_at(path).iter().filter(|one| !known.contains(one)).cloned().collect();
    let [first, rest @ ..] = path else { return };
    if missing.is_empty() {
        return;
    }
    let list = match rest {
        [] => object.root.entry_or(first, || Value::Array(vec![])),
        [last, ..] => object.root.object_at(first).entry_or(last, || Value::Array(vec![])),
    };
    if list.is_null() {
        *list = Value::Array(vec![]);
    }
    if let Some(list) = list.as_array_mut() {
        list.extend(missing);
    }
}

/// Returns the rules of a default cluster role; the stored one may differ.
pub fn default_rules(name: &str) -> Vec<Rule> {
    let is_wanted = |entry: &TableEntry| entry.head.strip_prefix("clusterrole ") == Some(name);
    let mut role = Object::new();
    for line in entries(TABLE).into_iter().filter(is_wanted).flat_map(|entry| entry.lines) {
        add_line(&mut role, line);
    }
    rules_of(role.array_at(&["rules"]))
}

/// Returns the default roles and bindings: cluster-scoped and namespaced ones.
pub(super) fn defaults(registry: &Registry) -> (Vec<TableEntry>, Vec<TableEntry>) {
    let features = registry.options.features;
    let gated = GATED
        .iter()
        .filter(|(feature, _)| features.is_on(*feature))
        .flat_map(|(_, table)| entries(table));
    let all = entries(TABLE).into_iter().chain(gated);
    all.partition(|entry| !entry.is_namespaced())
}

fn entries(table: &'static str) -> Vec<TableEntry> {
    let mut entries: Vec<TableEntry> = vec![];
    for line in table.lines().filter(|line| !line.starts_with('#')) {
        if !line.starts_with(' ') {
            entries.push(TableEntry { head: line, lines: vec![] });
        } else if let Some(last) = entries.last_mut() {
            last.lines.push(line);
        }
    }
    entries
}

impl TableEntry {
    fn is_namespaced(&self) -> bool {
        !self.head.starts_with("cluster")
    }

    fn object(&self, registry: &Registry) -> (Target, Object) {
        let mut words = self.head.split(' ');
        let resource = words.next().unwrap_or_default();
        let name = words.next().unwrap_or_default();
        let resource = match resource {
            "clusterrole" => "clusterroles",
            "role" => "roles",
            "clusterrolebinding" => "clusterrolebindings",
            _ => "rolebindings",
        };
        let (target, mut object) = new_object(registry, resource, name);
        if let Some(role) = words.next() {
            set_role_and_subjects(&mut object, role, words);
        }
        for line in &self.lines {
            add_line(&mut object, line);
        }
        (target, object)
    }
}

fn new_object(registry: &Registry, resource: &str, name: &str) -> (Target, Object) {
    let (namespace, name) = name.split_once('/').unwrap_or(("", name));
    let target = registry.target(GROUP, resource, namespace, name);
    let mut object = Object::new();
    object.set_meta("name", name);
    object.set_meta("namespace", namespace);
    object.metadata_mut().object_at("labels").insert(BOOTSTRAPPING, "rbac-defaults");
    object.metadata_mut().object_at("annotations").insert(AUTOUPDATE, "true");
    if !resource.ends_with("bindings") {
        object.root.insert("rules", Value::Null);
    }
    (target, object)
}

/// Adds a line below a role to it.
fn add_line(role: &mut Object, line: &str) {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match *words {
        ["label", key] => {
            role.metadata_mut().object_at("labels").insert(key, "true");
        }
        ["aggregate", key] => {
            let mut labels = Map::new();
            labels.insert(key, "true");
            let rule = value!({"clusterRoleSelectors": [{"matchLabels": (labels)}]});
            role.root.insert("aggregationRule", rule);
        }
        [verbs, "url", urls] => {
            add_rule(role, &Rule { verbs: list(verbs), urls: list(urls), ..Rule::default() });
        }
        [verbs, groups, resources, ref names @ ..] => {
            let names = names.first().map(|names| list(names)).unwrap_or_default();
            let verbs = list(verbs);
            let groups = list(groups);
            let resources = list(resources);
            add_rule(role, &Rule { verbs, groups, resources, names, urls: vec![] });
        }
        _ => {}
    }
}

fn add_rule(role: &mut Object, rule: &Rule) {
    let rules = role.root.entry_or("rules", || Value::Array(vec![]));
    match rules {
        Value::Array(rules) => rules.push(rule.to_value()),
        rules => *rules = Value::Array(vec![rule.to_value()]),
    }
}

fn list(words: &str) -> Vec<Str> {
    words.split(',').map(|word| Str::new(if word == "core" { "" } else { word })).collect()
}

fn set_role_and_subjects<'a>(
    binding: &mut Object,
    role: &str,
    subjects: impl Iterator<Item = &'a str>,
) {
    let (kind, name) = role.split_once('/').unwrap_or(("", role));
    binding.root.insert("roleRef", value!({"apiGroup": GROUP, "kind": kind, "name": name}));
    let subject = |text: &str| {
        let (kind, name) = text.split_once('/').unwrap_or(("", text));
        match (kind, name.split_once('/')) {
            ("ServiceAccount", Some((namespace, name))) => {
                value!({"kind": kind, "name": name, "namespace": namespace})
            }
            _ => value!({"kind": kind, "apiGroup": GROUP, "name": name}),
        }
    };
    let subjects: Vec<Value> = subjects.map(subject).collect();
    if !subjects.is_empty() {
        binding.root.insert("subjects", subjects);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(rules: Value) -> Object {
        Object::from_value(value!({"metadata": {"name": "r"}, "rules": (rules)})).expect("a map")
    }

    #[test]
    fn missing_rules_are_added_and_additional_rules_are_kept() {
        let pods = || value!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]});
        let less = || value!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        let own = || value!({"verbs": ["*"], "apiGroups": ["x"], "resources": ["y"]});
        let expected = role(value!([(pods())]));
        let check = |existing: Value, want: Option<Value>| {
            let got = reconciled(&role(existing), &expected);
            assert_eq!(got.map(|role| role.root.get("rules").cloned().unwrap_or_default()), want);
        };
        check(value!([(pods()), (own())]), None);
        let list = value!({"verbs": ["list"], "apiGroups": [""], "resources": ["pods"]});
        check(value!([(less()), (own())]), Some(value!([(less()), (own()), (list)])));
        let all = value!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]});
        check(value!([(all)]), None);
    }

    #[test]
    fn a_role_without_autoupdate_is_not_changed() {
        let mut existing = role(value!([]));
        existing.metadata_mut().object_at("annotations").insert(AUTOUPDATE, "false");
        let rule = value!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]});
        assert_eq!(reconciled(&existing, &role(value!([(rule)]))), None);
    }
}
