//! CustomResourceDefinitions: the producer of the API table that reads them from the store, accepts their
//! names, and empties a resource whose definition is deleted
//! (apiextensions `pkg/controller`).

mod changes;
mod emptying;
mod following;

pub use following::run;

use keelson_auth::Permit;
use keelson_kinds::definitions::{has_condition, set_condition};
use keelson_meta::{Failure, GroupVersionKind, Map, Object, Status, Str, Value};
use keelson_registry::api_table::by_priority;
use keelson_registry::options::WriteOptions;
use keelson_registry::producer::{DefinedVersion, Definition};
use keelson_registry::{
    Entry, NewObject, Registry, ScalePaths, SchemaText, Subresource, Target, path_members,
};
use keelson_schema::json;
use keelson_schema::structural::{LazyStructural, Structural};
use keelson_schema::tables::CustomColumns;
use keelson_store::Revision;
use std::cmp::Ordering as Order;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// Names that one definition may not have in common with another of its group, with the reason when it has.
const NAMES: [(&str, &str); 5] = [
    ("plural", "PluralConflict"),
    ("singular", "SingularConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("kind", "KindConflict"),
    ("listKind", "ListKindConflict"),
];

/// Follows definitions, by [`Definitions::follow`] and [`Definitions::forget`].
#[derive(Default)]
struct Definitions {
    /// Names that definitions have.
    accepted: AcceptedNames,
    /// The definitions that there are, by group: a look at one does not cost a look at all others.
    groups: Mutex<HashMap<Str, BTreeSet<Str>>>,
}

impl Definitions {
    /// All that are stored; [`Definitions::know`] adds to them.
    fn stored(registry: &Registry) -> Definitions {
        let definitions = Definitions::default();
        if let Some(target) = target_of(registry, "") {
            let all = registry.cached_all(&target.kind);
            all.range("", "").for_each(|entry| definitions.know(entry.name()));
        }
        definitions
    }

    /// Takes a definition for one that there is.
    fn know(&self, name: &str) {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.entry(group_of(name).into()).or_default().insert(name.into());
    }

    /// The other definitions of the group of one.
    fn others_of_group(&self, registry: &Registry, target: &Target) -> Vec<Entry> {
        let groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let names = groups.get(group_of(&target.name)).into_iter().flatten();
        let others = names.filter(|other| **other != target.name);
        others.filter_map(|other| registry.cached(&target.kind, "", other)).collect()
    }

    /// Accepts the names of a definition, as it is now, and serves it. Gives the names of the definitions that
    /// should be followed again soon: the others of the group, when names that it had are free.
    async fn follow(
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
        let before = names(&definition);
        let definition = self.accept_names(registry, permit, &target, definition).await?;
        serve_definition(registry, &entry, &definition, None);
        Ok(match gives_up_a_name(&before, &names(&definition)) {
            true => named(&self.others_of_group(registry, &target)),
            false => vec![],
        })
    }

    /// Withdraws the resource of a definition that is gone. Its names are free: those of the other definitions of
    /// the group are given back, to be followed again.
    fn forget(&self, registry: &Registry, name: &str) -> Vec<Str> {
        let Some(target) = target_of(registry, name) else { return vec![] };
        let Some((resource, group)) = name.split_once('.') else { return vec![] };
        self.accepted.forget(name);
        // One of the same name may have come meanwhile.
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
        named(&self.others_of_group(registry, &target))
    }

    /// Sets which names are accepted and whether the resource is established.
    async fn accept_names(
        &self,
        registry: &Registry,
        permit: &Permit,
        target: &Target,
        definition: Object,
    ) -> Result<Object, Failure> {
        let others = self.other_names(registry, target)?;
        let now = registry.clock.now().text();
        let accepted = |mut definition: Object| {
            accept(&mut definition, &others, &now);
            definition
        };
        let wanted = accepted(definition.clone());
        if wanted.get("status") == definition.get("status") {
            return Ok(definition);
        }
        let make = |live: Option<&Object>| {
            let live = live.cloned().ok_or_else(|| target.not_found())?;
            if live.deletion_timestamp().is_some() {
                return Ok(NewObject { object: live, managed: false, warnings: vec![] });
            }
            Ok(NewObject { object: accepted(live), managed: false, warnings: vec![] })
        };
        let options = own_options();
        registry.modify(permit, target, Subresource::Status, &make, &options).await?;
        Ok(wanted)
    }

    /// The accepted names of the other definitions of the group of one.
    fn other_names(&self, registry: &Registry, target: &Target) -> Result<Vec<Arc<Map>>, Failure> {
        let others = self.others_of_group(registry, target);
        let names = others.iter().map(|other| self.accepted.of(other));
        names.filter_map(Result::transpose).collect()
    }
}

fn target_of(registry: &Registry, name: &str) -> Option<Target> {
    let kind = registry.kind("apiextensions.k8s.io", "customresourcedefinitions")?;
    Some(Target::of(&kind, "", name))
}

/// Serves what is established at the start of the server: clients find everything there.
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

fn named(entries: &[Entry]) -> Vec<Str> {
    entries.iter().map(|entry| entry.name().into()).collect()
}

/// `entry` has the spec of the definition.
fn serve_definition(
    registry: &Registry,
    entry: &Entry,
    definition: &Object,
    since: Option<Revision>,
) {
    if !has_condition(definition, "Established") {
        return;
    }
    // Its schemas are read only when they are new: its status changes more often.
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
    let mut defined = defined(entry, definition, since);
    let conversion = definition.at(&["spec", "conversion"]);
    if conversion.and_then(|conversion| conversion.str_at(&["strategy"])) == Some("Webhook")
        && let Some(webhook) = conversion.and_then(|conversion| conversion.get("webhook"))
    {
        let webhooks = registry.options.conversion_webhooks.as_ref();
        defined.webhook = webhooks.map(|webhooks| Arc::new(webhooks.webhook(webhook)));
    }
    if let Err(error) = registry.serve(&defined) {
        tracing::warn!(%error, name = definition.name(), "definition cannot be served");
    }
}

/// The accepted names of definitions, as they were last read: most of a definition is its schemas, and a group may
/// have hundreds of definitions.
#[derive(Default)]
struct AcceptedNames(Mutex<HashMap<Str, NamesAt>>);

/// The accepted names of a definition, if any were, at the revision of its last write.
type NamesAt = (Revision, Option<Arc<Map>>);

impl AcceptedNames {
    /// Those of a definition; none: no names of it were looked at yet. Nothing else of it is decoded.
    fn of(&self, definition: &Entry) -> Result<Option<Arc<Map>>, Failure> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((modified, names)) = known.get(definition.name())
            && *modified == definition.modified()
        {
            return Ok(names.clone());
        }
        let text = definition.json_slice();
        let names = json::value_range(text, &["status", "acceptedNames"]);
        let names = names.map(|place| json::parse(&text[place])).transpose();
        let names = match names.map_err(Status::internal)?.map(|parsed| parsed.value) {
            Some(Value::Object(names)) => Some(Arc::new(names)),
            _ => None,
        };
        known.insert(definition.name().into(), (definition.modified(), names.clone()));
        Ok(names)
    }

    fn forget(&self, definition: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(definition);
    }
}

/// The group of the definition of a name, which is `RESOURCE.GROUP`.
fn group_of(name: &str) -> &str {
    name.split_once('.').map(|(_, group)| group).unwrap_or_default()
}

fn own_options() -> WriteOptions {
    WriteOptions { field_manager: "kube-apiserver".into(), ..WriteOptions::default() }
}

/// Words of a name: one, or a list of them.
fn words<'n>(names: &'n Map, name: &str) -> Vec<&'n str> {
    match names.get(name) {
        Some(Value::String(word)) if !word.is_empty() => vec![word],
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    }
}

/// Whether one of the accepted names of a definition is no longer among them.
fn gives_up_a_name(before: &Map, after: &Map) -> bool {
    let is_gone = |name: &str| {
        let left = words(after, name);
        words(before, name).iter().any(|word| !left.contains(word))
    };
    NAMES.iter().any(|(name, _)| is_gone(name))
}

/// Accepts the names of a definition that no other one has, and says what came of it.
fn accept(definition: &mut Object, others: &[Arc<Map>], now: &str) {
    let wished = definition.at(&["spec", "names"]).and_then(Value::as_object).cloned();
    let wished = wished.unwrap_or_default();
    let before = definition.at(&["status", "acceptedNames"]).and_then(Value::as_object).cloned();
    let mut accepted = before.unwrap_or_default();
    // Kinds and list kinds share their names, and so do resources with their short forms.
    let group = |name: &str| match name {
        "kind" | "listKind" => ["kind", "listKind", "", "", ""],
        _ => ["plural", "singular", "shortNames", "", ""],
    };
    let is_taken = |name: &str, word: &str| {
        others.iter().any(|other| group(name).iter().any(|of| words(other, of).contains(&word)))
    };
    let mut conflict = None;
    for (name, reason) in NAMES {
        match words(&wished, name).into_iter().find(|word| is_taken(name, word)) {
            Some(word) => conflict = Some((reason, format!("\"{word}\" is already in use"))),
            None => match wished.get(name) {
                Some(value) if !value.is_empty() => drop(accepted.insert(name, value.clone())),
                _ => drop(accepted.remove(name)),
            },
        }
    }
    match wished.get("categories") {
        Some(categories) if !categories.is_empty() => {
            accepted.insert("categories", categories.clone());
        }
        _ => drop(accepted.remove("categories")),
    }
    definition.object_mut("status").insert("acceptedNames", accepted);
    match &conflict {
        None => {
            let reason = ("NoConflicts", "no conflicts found");
            set_condition(definition, ("NamesAccepted", true), reason, now);
            if !has_condition(definition, "Established") {
                let reason = ("InitialNamesAccepted", "the initial names have been accepted");
                set_condition(definition, ("Established", true), reason, now);
            }
        }
        Some((reason, message)) => {
            set_condition(definition, ("NamesAccepted", false), (reason, message), now);
            if !has_condition(definition, "Established") {
                let reason = ("NotAccepted", "not all names are accepted");
                set_condition(definition, ("Established", false), reason, now);
            }
        }
    }
}

/// The resource that a definition describes.
fn defined(entry: &Entry, definition: &Object, since: Option<Revision>) -> Definition {
    let text = |path: &[&str]| {
        definition.at(path).and_then(Value::as_str).map(Str::new).unwrap_or_default()
    };
    let name = |name: &str| text(&["status", "acceptedNames", name]);
    let names = |name: &str| {
        let words = definition.array_at(&["status", "acceptedNames", name]).iter();
        words.filter_map(Value::as_str).map(Str::new).collect()
    };
    let group = text(&["spec", "group"]);
    let preserves = definition.at(&["spec", "preserveUnknownFields"]) == Some(&true.into());
    let kind = name("kind");
    let all = definition.array_at(&["spec", "versions"]);
    let versions = all.iter().map(|version| {
        let deprecation = deprecation(version, all, &group, &kind);
        defined_version(entry, version, (&group, &kind), preserves, deprecation)
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
        webhook: None,
        definition: Some((Str::new(definition.uid()), definition.generation())),
        group,
        kind,
    }
}

fn defined_version(
    entry: &Entry,
    version: &Value,
    (group, kind): (&Str, &Str),
    preserves: bool,
    deprecation: Option<Str>,
) -> DefinedVersion {
    let text = |name: &str| version.str_at(&[name]).map(Str::new).unwrap_or_default();
    let name = text("name");
    let gvk = GroupVersionKind::new(group.clone(), name.clone(), kind.clone());
    let schema = version.at(&["schema", "openAPIV3Schema"]);
    let openapi = schema.map(|schema| SchemaText::of_version(entry, &name, schema));
    let openapi = openapi.unwrap_or_default();
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

/// The fields that field selectors may ask for (`selectableFields`), as the members that lead to them.
fn selectable(version: &Value) -> Vec<Vec<Str>> {
    let fields = version.array_at(&["selectableFields"]).iter();
    let paths = fields.filter_map(|field| field.str_at(&["jsonPath"]));
    paths.map(path_members).collect()
}

/// What clients of a deprecated version are warned of: its own words, or which version to use.
fn deprecation(version: &Value, all: &[Value], group: &str, kind: &str) -> Option<Str> {
    let is = |version: &Value, name: &str| version.get(name) == Some(&true.into());
    let name = |version: &Value| version.str_at(&["name"]).map(Str::new).unwrap_or_default();
    if !is(version, "deprecated") {
        return None;
    }
    if let Some(words) = version.str_at(&["deprecationWarning"]).filter(|words| !words.is_empty()) {
        return Some(Str::new(words));
    }
    let own = name(version);
    let newer = all.iter().filter(|other| is(other, "served") && !is(other, "deprecated"));
    let newer = newer.map(name).filter(|other| by_priority(other, &own) == Order::Less);
    let words = format!("{group}/{own} {kind} is deprecated");
    Some(Str::from(match newer.min_by(|one, other| by_priority(one, other)) {
        Some(newer) => format!("{words}; use {group}/{newer} {kind}"),
        None => words,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn only_a_name_that_is_gone_is_given_up() {
        let check = |before: Value, after: Value, expected: bool| {
            let (before, after) = (before.as_object().cloned(), after.as_object().cloned());
            let found = gives_up_a_name(&before.expect("a map"), &after.expect("a map"));
            assert_eq!(found, expected);
        };
        // What a new definition has before its names are accepted.
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
