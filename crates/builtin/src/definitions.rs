//! CustomResourceDefinitions (apiextensions `pkg/controller`): accepts their names, serves their
//! resources through the API table, and deletes the objects of a definition that is deleted.

mod controller;
mod finalizer;
mod watch;

pub use controller::run;

use keelson_auth::Permit;
use keelson_kinds::definitions::{has_condition, set_approval, set_condition};
use keelson_meta::{Failure, GroupVersionKind, Map, Object, Status, Str, Value};
use keelson_records::Entry;
use keelson_registry::options::WriteOptions;
use keelson_registry::{NewObject, Registry, ScalePaths, Subresource, Target, path_members};
use keelson_resources::SchemaText;
use keelson_resources::api_table::by_priority;
use keelson_resources::producer::{DefinedVersion, Definition};
use keelson_schema::json;
use keelson_schema::structural::{LazyStructural, Structural};
use keelson_schema::tables::CustomColumns;
use keelson_store::Revision;
use std::cmp::Ordering as Order;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Names that must be unique in a group, with the reason of the condition NamesAccepted on a
/// conflict.
const NAMES: [(&str, &str); 5] = [
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
];

/// State of the controller: the stored definitions and their accepted names.
#[derive(Default)]
struct Definitions {
    accepted: AcceptedNames,
    /// Names of definitions by group, so that syncing one does not read all others.
    groups: Mutex<HashMap<Str, BTreeSet<Str>>>,
}

impl Definitions {
    /// Returns the state with all stored definitions.
    fn stored(registry: &Registry) -> Definitions {
        let definitions = Definitions::default();
        if let Some(target) = target_of(registry, "") {
            let all = registry.cached_all(&target.kind);
            all.range("", "").for_each(|entry| definitions.add(entry.name()));
        }
        definitions
    }

    /// Adds a stored definition.
    fn add(&self, name: &str) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.entry(group_of(name).into()).or_default().insert(name.into());
    }

    /// Returns the other definitions of a definition's group.
    fn others_of_group(&self, registry: &Registry, target: &Target) -> Vec<Entry> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let names = groups.get(group_of(&target.name)).into_iter().flatten();
        let others = names.filter(|other| **other != target.name);
        others.filter_map(|other| registry.cached(&target.kind, "", other)).collect()
    }

    /// Accepts the names of a definition and serves it. Returns the definitions to sync again: the
    /// others of the group, if the definition has released a name.
    async fn sync(
        &self,
        registry: &Registry,
        permit: &Permit,
        name: &str,
    ) -> Result<Vec<Str>, Failure> {
        let Some(target) = target_of(registry, name) else { return Ok(vec![]) };
        let Some(entry) = registry.cached(&target.kind, "", name) else { return Ok(vec![]) };
        let definition = target.kind.decode(&entry)?;
        if definition.deletion_timestamp().is_some() {
            return Ok(vec![]);
        }
        let names = |definition: &Object| {
            let names = definition.at(&["status", "acceptedNames"]).and_then(Value::as_object);
            names.cloned().unwrap_or_default()
        };
        let others = self.other_names(registry, &target)?;
        let now = registry.clock.now().text();
        let accepted = accepted(&definition, &others, &now);
        // Served before the condition can be read: who waits for Established does not meet a 404.
        serve_definition(registry, &entry, &accepted, None);
        if accepted.get("status") != definition.get("status") {
            write_status(registry, permit, &target, &others, &now).await?;
        }
        Ok(match releases_name(&names(&definition), &names(&accepted)) {
            true => names_of(&self.others_of_group(registry, &target)),
            false => vec![],
        })
    }

    /// Removes a deleted definition and its resource. Returns the other definitions of the group,
    /// to sync them again, because its names are released.
    fn remove(&self, registry: &Registry, name: &str) -> Vec<Str> {
        let Some(target) = target_of(registry, name) else { return vec![] };
        let Some((resource, group)) = name.split_once('.') else { return vec![] };
        self.accepted.remove(name);
        // The definition may have been created again in the meantime.
        if registry.cached(&target.kind, "", name).is_none() {
            registry.withdraw(group, resource);
            let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(names) = groups.get_mut(group) {
                names.remove(name);
                if names.is_empty() {
                    groups.remove(group);
                }
            }
        }
        names_of(&self.others_of_group(registry, &target))
    }

    /// Returns the accepted names of the other definitions of a definition's group.
    fn other_names(&self, registry: &Registry, target: &Target) -> Result<Vec<Arc<Map>>, Failure> {
        let others = self.others_of_group(registry, target);
        let names = others.iter().map(|other| self.accepted.get(other));
        names.filter_map(Result::transpose).collect()
    }
}

/// Returns a definition with `status.acceptedNames` and the conditions NamesAccepted, Established
/// and KubernetesAPIApprovalPolicyConformant. `others` are the accepted names of its group.
fn accepted(definition: &Object, others: &[Arc<Map>], now: &str) -> Object {
    let mut definition = definition.clone();
    accept(&mut definition, others, now);
    set_approval(&mut definition, now);
    definition
}

/// Writes the status of [`accepted`] into the live definition, unless it is being deleted.
async fn write_status(
    registry: &Registry,
    permit: &Permit,
    target: &Target,
    others: &[Arc<Map>],
    now: &str,
) -> Result<(), Failure> {
    let make = |live: Option<&Object>| {
        let live = live.ok_or_else(|| target.not_found())?;
        let object = match live.deletion_timestamp() {
            Some(_) => live.clone(),
            None => accepted(live, others, now),
        };
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    registry.modify(permit, target, Subresource::Status, &make, &own_options()).await?;
    Ok(())
}

fn target_of(registry: &Registry, name: &str) -> Option<Target> {
    let kind = registry.kind("apiextensions.k8s.io", "customresourcedefinitions")?;
    Some(Target::of(&kind, "", name))
}

/// Serves the established definitions when the server starts, before it accepts requests.
pub(crate) fn serve_stored(registry: &Registry) {
    let Some(target) = target_of(registry, "") else { return };
    for entry in registry.cached_all(&target.kind).range("", "") {
        match target.kind.decode(entry) {
            Ok(definition) => {
                serve_definition(registry, entry, &definition, Some(entry.modified()))
            }
            Err(error) => {
                tracing::error!(%error, name = entry.name(), "definition cannot be read; not served");
            }
        }
    }
}

/// Accepts the names of all stored definitions and serves them, for a registry without the control
/// loop.
pub async fn serve_all(registry: &Registry) -> Result<(), Failure> {
    let Some(target) = target_of(registry, "") else { return Ok(()) };
    let definitions = Definitions::stored(registry);
    let permit = watch::own_permit();
    let stored: Vec<Entry> = registry.cached_all(&target.kind).range("", "").cloned().collect();
    for name in names_of(&stored) {
        definitions.sync(registry, &permit, &name).await?;
    }
    Ok(())
}

fn names_of(entries: &[Entry]) -> Vec<Str> {
    entries.iter().map(|entry| entry.name().into()).collect()
}

/// Serves the resource of an established definition. `entry` is the stored definition; `definition`
/// may have a newer status.
fn serve_definition(
    registry: &Registry,
    entry: &Entry,
    definition: &Object,
    since: Option<Revision>,
) {
    if !has_condition(definition, "Established") {
        return;
    }
    // The schemas are parsed only for a new generation; the status changes more often.
    let text = |path: &[&str]| definition.str_at(path).to_owned();
    let known = registry.kind(&text(&["spec", "group"]), &text(&["spec", "names", "plural"]));
    let unchanged = known.filter(|kind| {
        kind.definition.as_ref().is_some_and(|(uid, generation)| {
            *generation == definition.generation() && *uid == definition.uid()
        })
    });
    if let Some(kind) = unchanged {
        kind.checks.iter().for_each(|checks| checks.rules.follow(entry, &checks.version));
        return;
    }
    let defined = producer_definition(entry, definition, since);
    let conversion = definition
        .at(&["spec", "conversion"])
        .filter(|given| given.str_at(&["strategy"]) == Some("Webhook"));
    let config = conversion.and_then(|conversion| conversion.get("webhook"));
    let webhook = config.zip(registry.options.conversion_webhooks.as_ref());
    let served = match webhook {
        Some((config, webhooks)) => {
            registry.serve_converted(&defined, Arc::new(webhooks.webhook(config)))
        }
        None => registry.serve(&defined),
    };
    if let Err(error) = served {
        tracing::warn!(%error, name = definition.name(), "definition cannot be served");
    }
}

/// A cache of accepted names: most of a definition is its schemas, and a group may have hundreds of
/// definitions.
#[derive(Default)]
struct AcceptedNames(Mutex<HashMap<Str, CachedNames>>);

/// The accepted names of a definition, if it has any, and the revision of its last write.
type CachedNames = (Revision, Option<Arc<Map>>);

impl AcceptedNames {
    /// Returns the accepted names of a definition; `None` if it was not synced yet. Parses no other
    /// field.
    fn get(&self, definition: &Entry) -> Result<Option<Arc<Map>>, Failure> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((modified, names)) = known.get(definition.name())
            && *modified == definition.modified()
        {
            return Ok(names.clone());
        }
        let text = &*definition.json_slice();
        let names = json::value_range(text, &["status", "acceptedNames"])
            .map(|range| json::parse(&text[range]))
            .transpose();
        let names = match names.map_err(Status::internal)?.map(|parsed| parsed.value) {
            Some(Value::Object(names)) => Some(Arc::new(names)),
            _ => None,
        };
        known.insert(definition.name().into(), (definition.modified(), names.clone()));
        Ok(names)
    }

    fn remove(&self, definition: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(definition);
    }
}

/// Returns the group in the name of a definition, `RESOURCE.GROUP`.
fn group_of(name: &str) -> &str {
    name.split_once('.').map(|(_, group)| group).unwrap_or_default()
}

fn own_options() -> WriteOptions {
    WriteOptions { field_manager: "kube-apiserver".into(), ..WriteOptions::default() }
}

/// Returns the values of a member of `names`, which is a string or a list.
fn values<'n>(names: &'n Map, name: &str) -> Vec<&'n str> {
    match names.get(name) {
        Some(Value::String(value)) if !value.is_empty() => vec![value],
        Some(Value::Array(values)) => values.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    }
}

/// Returns whether one of the accepted names is missing in `after`.
fn releases_name(before: &Map, after: &Map) -> bool {
    let is_released = |name: &str| {
        let remaining = values(after, name);
        values(before, name).iter().any(|value| !remaining.contains(value))
    };
    NAMES.iter().any(|(name, _)| is_released(name))
}

/// Accepts the names of a definition that no other one has, and sets its conditions.
fn accept(definition: &mut Object, others: &[Arc<Map>], now: &str) {
    let requested =
        definition.at(&["spec", "names"]).and_then(Value::as_object).cloned().unwrap_or_default();
    let before = definition.at(&["status", "acceptedNames"]).and_then(Value::as_object).cloned();
    let mut accepted = before.unwrap_or_default();
    // `kind` and `listKind` share a namespace; so do `plural`, `singular` and `shortNames`.
    let namespace = |name: &str| match name {
        "kind" | "listKind" => ["kind", "listKind", "", "", ""],
        _ => ["plural", "singular", "shortNames", "", ""],
    };
    let is_used = |name: &str, value: &str| {
        others.iter().any(|other| {
            namespace(name).iter().any(|member| values(other, member).contains(&value))
        })
    };
    let mut conflict = None;
    for (name, reason) in NAMES {
        match values(&requested, name).into_iter().find(|value| is_used(name, value)) {
            Some(value) => conflict = Some((reason, format!("\"{value}\" is already in use"))),
            None => match requested.get(name) {
                Some(value) if !value.is_empty() => drop(accepted.insert(name, value.clone())),
                _ => drop(accepted.remove(name)),
            },
        }
    }
    match requested.get("categories") {
        Some(categories) if !categories.is_empty() => {
            accepted.insert("categories", categories.clone());
        }
        _ => drop(accepted.remove("categories")),
    }
    definition.object_mut("status").insert("acceptedNames", accepted);
    match &conflict {
        None => {
            let message = "no conflicts found";
            set_condition(definition, "NamesAccepted", true, "NoConflicts", message, now);
            if !has_condition(definition, "Established") {
                let reason = "InitialNamesAccepted";
                let message = "the initial names have been accepted";
                set_condition(definition, "Established", true, reason, message, now);
            }
        }
        Some((reason, message)) => {
            set_condition(definition, "NamesAccepted", false, reason, message, now);
            if !has_condition(definition, "Established") {
                let message = "not all names are accepted";
                set_condition(definition, "Established", false, "NotAccepted", message, now);
            }
        }
    }
}

/// Returns the definition in the form that the API table takes.
fn producer_definition(entry: &Entry, definition: &Object, since: Option<Revision>) -> Definition {
    let text = |path: &[&str]| {
        definition.at(path).and_then(Value::as_str).map(Str::new).unwrap_or_default()
    };
    let name = |name: &str| text(&["status", "acceptedNames", name]);
    let names = |name: &str| {
        let list = definition.array_at(&["status", "acceptedNames", name]).iter();
        list.filter_map(Value::as_str).map(Str::new).collect()
    };
    let group = text(&["spec", "group"]);
    let preserves = definition.at(&["spec", "preserveUnknownFields"]) == Some(&true.into());
    let kind = name("kind");
    let all = definition.array_at(&["spec", "versions"]);
    let versions = all.iter().map(|version| {
        let deprecation = deprecation(version, all, &group, &kind);
        defined_version(entry, version, &group, &kind, preserves, deprecation)
    });
    Definition {
        resource: text(&["spec", "names", "plural"]),
        singular: name("singular"),
        list_kind: name("listKind"),
        short_names: names("shortNames"),
        categories: names("categories"),
        namespaced: text(&["spec", "scope"]) == "Namespaced",
        versions: versions.collect(),
        storage_version: keelson_kinds::definitions::storage_version(definition),
        since,
        definition: Some((Str::new(definition.uid()), definition.generation())),
        group,
        kind,
    }
}

fn defined_version(
    entry: &Entry,
    version: &Value,
    group: &Str,
    kind: &Str,
    preserves: bool,
    deprecation: Option<Str>,
) -> DefinedVersion {
    let text = |name: &str| version.str_at(&[name]).map(Str::new).unwrap_or_default();
    let name = text("name");
    let gvk = GroupVersionKind::new(group.clone(), name.clone(), kind.clone());
    let schema = version.at(&["schema", "openAPIV3Schema"]);
    let openapi =
        schema.map(|schema| SchemaText::of_version(entry, &name, schema)).unwrap_or_default();
    let text = openapi.clone();
    let structural: Arc<LazyStructural> = Arc::new(LazyLock::new(Box::new(move || {
        let schema = json::parse(text.open().as_ref()).ok().map(|parsed| parsed.value);
        let structural = Structural::read(schema.as_ref()).for_objects();
        if preserves { structural.preserving_unknown() } else { structural }
    })));
    let of_schema = structural.clone();
    DefinedVersion {
        schema: Structural::lazy_schema(gvk, move || of_schema),
        structural: Some(structural),
        is_served: version.get("served") == Some(&true.into()),
        has_status: version.at(&["subresources", "status"]).is_some(),
        deprecation,
        openapi,
        selectable: selectable(version),
        scale: version
            .at(&["subresources", "scale"])
            .map(|scale| Arc::new(ScalePaths::read(scale))),
        columns: Arc::new(CustomColumns::read(version.array_at(&["additionalPrinterColumns"]))),
        name,
    }
}

/// Returns the paths of `selectableFields`, each as the names of its members.
fn selectable(version: &Value) -> Vec<Vec<Str>> {
    let fields = version.array_at(&["selectableFields"]).iter();
    let paths = fields.filter_map(|field| field.str_at(&["jsonPath"]));
    paths.map(path_members).collect()
}

/// Returns the warning for clients of a deprecated version: `deprecationWarning`, or which version
/// to use.
fn deprecation(version: &Value, all: &[Value], group: &str, kind: &str) -> Option<Str> {
    let is = |version: &Value, name: &str| version.get(name) == Some(&true.into());
    let name = |version: &Value| version.str_at(&["name"]).map(Str::new).unwrap_or_default();
    if !is(version, "deprecated") {
        return None;
    }
    if let Some(warning) = version.str_at(&["deprecationWarning"]).filter(|text| !text.is_empty()) {
        return Some(Str::new(warning));
    }
    let own = name(version);
    let newer = all
        .iter()
        .filter(|other| is(other, "served") && !is(other, "deprecated"))
        .map(name)
        .filter(|other| by_priority(other, &own) == Order::Less);
    let warning = format!("{group}/{own} {kind} is deprecated");
    Some(Str::from(match newer.min_by(|one, other| by_priority(one, other)) {
        Some(newer) => format!("{warning}; use {group}/{newer} {kind}"),
        None => warning,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn only_a_removed_name_is_released() {
        let check = |before: Value, after: Value, expected: bool| {
            let before = before.as_object().cloned();
            let after = after.as_object().cloned();
            let found = releases_name(&before.expect("a map"), &after.expect("a map"));
            assert_eq!(found, expected);
        };
        // The names of a new definition before they are accepted.
        let new = value!({"plural": "", "kind": ""});
        let names = value!({"plural": "as", "kind": "A", "shortNames": ["a", "b"]});
        check(new, names.clone(), false);
        check(names.clone(), names.clone(), false);
        let more =
            value!({"plural": "as", "kind": "A", "shortNames": ["b", "c", "a"], "singular": "x"});
        check(names.clone(), more, false);
        check(names.clone(), value!({"plural": "as", "kind": "A", "shortNames": ["a"]}), true);
        check(names.clone(), value!({"plural": "as", "kind": "B", "shortNames": ["a", "b"]}), true);
        check(names, value!({}), true);
    }
}
