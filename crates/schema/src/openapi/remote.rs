//! Parts of the v2 documents of other servers, which are merged into that of this server
//! (kube-openapi's aggregator).

use keelson_meta::{Map, Str, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Most levels of a document; one that is deeper is not merged.
pub(super) const DEPTH_MAX: usize = 200;
/// What a reference begins with, and the part of a document that it leads to.
const DEFINITION: &str = "#/definitions/";
const PARAMETER: &str = "#/parameters/";

type Members = BTreeMap<Str, Value>;

/// What a v2 document of another server says of one group version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RemoteSpec {
    /// The paths of the group version.
    pub(super) paths: Members,
    /// The types that the paths refer to.
    pub(super) definitions: Members,
    /// The shared parameters that the paths refer to.
    pub(super) parameters: Members,
}

impl RemoteSpec {
    /// Takes the paths of a group version out of a document, and what they refer to. What belongs
    /// to others is left: a server describes only what it is asked for.
    pub fn of(document: &Value, group: &str, version: &str) -> RemoteSpec {
        if document.depth() > DEPTH_MAX {
            return RemoteSpec::default();
        }
        let of_version = format!("/apis/{group}/{version}/");
        let members = |part: &str| document.get(part).and_then(Value::as_object);
        let paths: Members = members("paths")
            .into_iter()
            .flat_map(Map::iter)
            .filter(|(path, _)| path.starts_with(&of_version))
            .map(|(path, item)| (path.clone(), item.clone()))
            .collect();
        let index = |part: &str| -> HashMap<&str, &Value> {
            let members = members(part).into_iter().flat_map(Map::iter);
            members.map(|(name, value)| (name.as_str(), value)).collect()
        };
        let types = index("definitions");
        let shared = index("parameters");
        let mut spec = RemoteSpec { paths, ..RemoteSpec::default() };
        let mut open: Vec<String> = vec![];
        spec.paths.values().for_each(|item| references(item, &mut open));
        while let Some(reference) = open.pop() {
            let (found, into) = match reference.strip_prefix(DEFINITION) {
                Some(name) => (types.get_key_value(name), &mut spec.definitions),
                None => {
                    let name = reference.strip_prefix(PARAMETER).unwrap_or_default();
                    (shared.get_key_value(name), &mut spec.parameters)
                }
            };
            let Some((name, value)) = found else { continue };
            if !into.contains_key(*name) {
                references(value, &mut open);
                into.insert(Str::new(name), (*value).clone());
            }
        }
        spec
    }

    /// Whether there is nothing of the group version.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }
}

/// Appends all references in a value.
fn references(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, out)),
        Value::Object(members) => {
            for (name, value) in members.iter() {
                match value {
                    Value::String(text) if name == "$ref" => out.push(text.to_string()),
                    value => references(value, out),
                }
            }
        }
        _ => {}
    }
}

/// Renames references in a value.
fn rename(value: &mut Value, names: &HashMap<String, String>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| rename(item, names)),
        Value::Object(members) => {
            for (name, value) in members.iter_mut() {
                match value {
                    Value::String(text) if name == "$ref" => {
                        if let Some(new) = names.get(text.as_str()) {
                            *text = Str::from(new.as_str());
                        }
                    }
                    value => rename(value, names),
                }
            }
        }
        _ => {}
    }
}

/// Merges the parts of other servers. `own` returns a member of a part of this server's document,
/// if there is one. A type or parameter that differs from one of the same name gets another name:
/// `Name_v2`.
pub(super) fn merge(
    remote: &[&RemoteSpec],
    own: impl Fn(&'static str, &str) -> Option<Value>,
) -> RemoteSpec {
    let mut merged = RemoteSpec::default();
    for spec in remote {
        let mut names = HashMap::new();
        for (part, prefix, members, before) in [
            ("definitions", DEFINITION, &spec.definitions, &merged.definitions),
            ("parameters", PARAMETER, &spec.parameters, &merged.parameters),
        ] {
            let mut taken: BTreeSet<String> = BTreeSet::new();
            for (name, value) in members {
                let is_other = |name: &str| {
                    let there = before.get(name).cloned().or_else(|| own(part, name));
                    there.is_some_and(|there| !is_alike(&there, value)) || taken.contains(name)
                };
                let candidates = (2..).map(|number| format!("{name}_v{number}"));
                let mut candidates = std::iter::once(name.to_string()).chain(candidates);
                let Some(free) = candidates.find(|name| !is_other(name)) else { continue };
                if *name != *free.as_str() {
                    names.insert(format!("{prefix}{name}"), format!("{prefix}{free}"));
                }
                taken.insert(free);
            }
        }
        let renamed = |value: &Value| {
            let mut value = value.clone();
            rename(&mut value, &names);
            value
        };
        let name_of = |prefix: &str, name: &Str| {
            let new = names.get(&format!("{prefix}{name}"));
            new.map_or_else(|| name.clone(), |new| Str::from(&new[prefix.len()..]))
        };
        for (path, item) in &spec.paths {
            if own("paths", path).is_none() {
                merged.paths.entry(path.clone()).or_insert_with(|| renamed(item));
            }
        }
        for (part, prefix, members, into) in [
            ("definitions", DEFINITION, &spec.definitions, &mut merged.definitions),
            ("parameters", PARAMETER, &spec.parameters, &mut merged.parameters),
        ] {
            for (name, value) in members {
                let name = name_of(prefix, name);
                if own(part, &name).is_none() {
                    into.entry(name).or_insert_with(|| renamed(value));
                }
            }
        }
    }
    merged
}

/// Whether two types are one: which kinds they belong to does not matter.
fn is_alike(a: &Value, b: &Value) -> bool {
    const KINDS: &str = "x-kubernetes-group-version-kind";
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else { return a == b };
    let members = |map: &Map| map.iter().filter(|(name, _)| *name != KINDS).count();
    members(a) == members(b)
        && a.iter().all(|(name, value)| name == KINDS || b.get(name) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn document(size: &str) -> Value {
        let item = |of: &str| {
            value!({"get": {"parameters": [{"$ref": "#/parameters/p"}],
                "responses": {"200": {"schema": {"$ref": (format!("#/definitions/{of}"))}}}}})
        };
        value!({"paths": {
                "/apis/g/": (item("Pod")), "/apis/g/v1/": (item("Group")),
                "/apis/g/v1/things": (item("Thing")),
                "/apis/g/v10/things": (item("Other")), "/api/v1/pods": (item("Pod"))},
            "parameters": {"p": {"name": "p"}, "q": {"name": "q"}},
            "definitions": {
                "Thing": {"properties": {"size": {"$ref": "#/definitions/Size"}}},
                "Size": {"type": (size), "x-kubernetes-group-version-kind": []},
                "Group": {"type": "object"}, "Other": {}, "Pod": {}}})
    }

    fn names(members: &Members) -> Vec<&str> {
        members.keys().map(Str::as_str).collect()
    }

    #[test]
    fn only_the_group_version_and_what_it_refers_to_is_taken() {
        let spec = RemoteSpec::of(&document("string"), "g", "v1");
        assert_eq!(names(&spec.paths), ["/apis/g/v1/", "/apis/g/v1/things"]);
        assert_eq!(names(&spec.definitions), ["Group", "Size", "Thing"]);
        assert_eq!(names(&spec.parameters), ["p"]);
        assert!(RemoteSpec::of(&document("string"), "g", "v2").is_empty());
        assert!(RemoteSpec::of(&document("string"), "h", "v1").is_empty());
        let deep = (0..DEPTH_MAX).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let deep = value!({"paths": {"/apis/g/v1/": (deep)}});
        assert!(RemoteSpec::of(&deep, "g", "v1").is_empty());
    }

    #[test]
    fn types_that_differ_get_other_names() {
        let one = RemoteSpec::of(&document("string"), "g", "v1");
        let other = RemoteSpec::of(&document("integer"), "g", "v1");
        let own = |part: &str, name: &str| match (part, name) {
            ("definitions", "Size") => Some(value!({"type": "string"})),
            ("definitions", "Group") => Some(value!({"type": "array"})),
            ("paths", "/apis/g/v1/") => Some(value!({})),
            _ => None,
        };
        let merged = merge(&[&one, &other], own);
        assert_eq!(names(&merged.paths), ["/apis/g/v1/things"]);
        assert_eq!(names(&merged.definitions), ["Group_v2", "Size_v2", "Thing"]);
        // As upstream, types are compared without those that they refer to.
        let size = merged.definitions["Thing"].at(&["properties", "size", "$ref"]);
        assert_eq!(size.and_then(Value::as_str), Some("#/definitions/Size"));
        let alone = merge(&[&other], own);
        let size = alone.definitions["Thing"].at(&["properties", "size", "$ref"]);
        assert_eq!(size.and_then(Value::as_str), Some("#/definitions/Size_v2"));
    }
}
