//! A definition as rules see it: its versions, and the fields of each in one list.

use crate::builtin_types::is_builtin;
use crate::words;
use keelson_meta::{Map, Value};
use keelson_schema::json;
use keelson_schema::structural::DEPTH_MAX;
use std::cell::OnceCell;
use std::hash::{DefaultHasher, Hash, Hasher};

/// A definition.
pub struct Definition<'a> {
    /// The object as its file has it.
    pub object: &'a Value,
    /// The storage version first, then the others in their order.
    pub versions: Vec<Version<'a>>,
}

/// A version of a definition.
pub struct Version<'a> {
    pub name: &'a str,
    /// The version in the definition.
    pub object: &'a Value,
    /// `spec.versions[0]`.
    pub path: String,
    pub is_served: bool,
    pub is_storage: bool,
    /// Whether the defined objects are namespaced.
    pub is_namespaced: bool,
    /// The fields: each after the one that contains it, the root first. Empty without a schema.
    pub fields: Vec<Field<'a>>,
}

/// What a schema describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Root,
    /// A member of an object.
    Member,
    /// The items of a list.
    Item,
    /// The values of a map.
    MapValue,
}

/// The part of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Spec,
    Status,
    /// The root, `metadata`, and other top-level fields.
    Other,
}

/// A field of the defined objects.
pub struct Field<'a> {
    pub schema: &'a Map,
    /// The place of the schema in the definition.
    pub path: String,
    /// The field in an object: `spec.items[*].name`.
    pub field: String,
    /// The name of a member; of items and values that of their list or map.
    pub name: &'a str,
    pub role: Role,
    pub part: Part,
    /// The index of the field that contains it.
    pub parent: Option<usize>,
    /// Nesting: 0 is the root, 1 a top-level field.
    pub depth: usize,
    /// Whether the object that contains it requires it.
    pub is_required: bool,
    /// Whether this is a field of a built-in type, at any depth.
    pub is_builtin: bool,
    fingerprint: OnceCell<u64>,
}

impl<'a> Definition<'a> {
    /// Reads a definition. What is not as it should be is left out: other rules report it.
    pub fn read(object: &'a Value) -> Definition<'a> {
        let is_namespaced = object.str_at(&["spec", "scope"]) == Some("Namespaced");
        let mut versions: Vec<Version<'a>> = object
            .array_at(&["spec", "versions"])
            .iter()
            .enumerate()
            .map(|(i, version)| {
                Version::read(version, format!("spec.versions[{i}]"), is_namespaced)
            })
            .collect();
        versions.sort_by_key(|version| !version.is_storage);
        Definition { object, versions }
    }

    /// Returns a text of the definition, or nothing.
    pub fn text(&self, path: &[&str]) -> &'a str {
        self.object.str_at(path).unwrap_or_default()
    }
}

impl<'a> Version<'a> {
    fn read(object: &'a Value, path: String, is_namespaced: bool) -> Version<'a> {
        let is = |name: &str| object.get(name).and_then(Value::as_bool) == Some(true);
        let mut version = Version {
            name: object.str_at(&["name"]).unwrap_or_default(),
            object,
            is_served: is("served"),
            is_storage: is("storage"),
            is_namespaced,
            fields: vec![],
            path,
        };
        let schema = object.at(&["schema", "openAPIV3Schema"]).and_then(Value::as_object);
        if let Some(schema) = schema {
            version.add(Field {
                schema,
                path: format!("{}.schema.openAPIV3Schema", version.path),
                field: String::new(),
                name: "",
                role: Role::Root,
                part: Part::Other,
                parent: None,
                depth: 0,
                is_required: true,
                is_builtin: false,
                fingerprint: OnceCell::new(),
            });
        }
        version
    }

    /// Adds a field and those inside it.
    fn add(&mut self, field: Field<'a>) {
        let schema = field.schema;
        let depth = field.depth + 1;
        let properties = schema.get("properties").and_then(Value::as_object);
        let is_builtin = field.is_builtin
            || (field.role != Role::Root
                && properties.is_some_and(|members| {
                    is_builtin(members.iter().map(|(name, _)| name.as_str()))
                }));
        let path = field.path.clone();
        let shown = field.field.clone();
        let name = field.name;
        let part = field.part;
        let parent = self.fields.len();
        self.fields.push(field);
        if depth > DEPTH_MAX {
            return;
        }
        let required = schema.get("required").and_then(Value::as_array).unwrap_or_default();
        for (member, inner) in properties.into_iter().flat_map(Map::iter) {
            let Some(inner) = inner.as_object() else { continue };
            let dot = if shown.is_empty() { "" } else { "." };
            self.add(Field {
                schema: inner,
                path: format!("{path}.properties[{member}]"),
                field: format!("{shown}{dot}{member}"),
                name: member,
                role: Role::Member,
                part: part_of(depth, member, part),
                parent: Some(parent),
                depth,
                is_required: required.iter().any(|one| one.as_str() == Some(member)),
                is_builtin,
                fingerprint: OnceCell::new(),
            });
        }
        for (keyword, suffix, role) in
            [("items", "[*]", Role::Item), ("additionalProperties", "{*}", Role::MapValue)]
        {
            let Some(inner) = schema.get(keyword).and_then(Value::as_object) else { continue };
            self.add(Field {
                schema: inner,
                path: format!("{path}.{keyword}"),
                field: format!("{shown}{suffix}"),
                name,
                role,
                part,
                parent: Some(parent),
                depth,
                is_required: true,
                is_builtin,
                fingerprint: OnceCell::new(),
            });
        }
    }

    /// Returns the field that contains another.
    pub fn parent(&self, field: &Field<'_>) -> Option<&Field<'a>> {
        self.fields.get(field.parent?)
    }

    /// Returns the field at a path of member names: `status.conditions`.
    pub fn find(&self, path: &str) -> Option<&Field<'a>> {
        self.fields.iter().find(|field| field.field == path && field.role == Role::Member)
    }

    /// Returns the root.
    pub fn root(&self) -> Option<&Field<'a>> {
        self.fields.first()
    }

    /// Whether a CEL rule of a field, or of one that contains it, names it.
    pub fn has_rule_about(&self, field: &Field<'_>) -> bool {
        let names = |of: &Field<'_>, is_self: bool| {
            of.rules()
                .iter()
                .filter_map(|rule| rule.str_at(&["rule"]))
                .any(|rule| is_self || words::has_word(rule, field.name))
        };
        if names(field, true) {
            return true;
        }
        let mut at = field.parent;
        while let Some(parent) = at.and_then(|at| self.fields.get(at)) {
            if names(parent, false) {
                return true;
            }
            at = parent.parent;
        }
        false
    }
}

fn part_of(depth: usize, member: &str, part: Part) -> Part {
    match (depth, member) {
        (1, "spec") => Part::Spec,
        (1, "status") => Part::Status,
        (1, _) => Part::Other,
        _ => part,
    }
}

impl<'a> Field<'a> {
    /// Returns the `type` of its schema, or nothing.
    pub fn kind(&self) -> &'a str {
        self.text("type")
    }

    /// Returns a text of its schema, or nothing.
    pub fn text(&self, name: &str) -> &'a str {
        self.schema.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    pub fn has(&self, name: &str) -> bool {
        self.schema.get(name).is_some_and(|value| !value.is_null())
    }

    pub fn is(&self, name: &str) -> bool {
        self.schema.get(name).and_then(Value::as_bool) == Some(true)
    }

    /// Returns a list of its schema.
    pub fn list(&self, name: &str) -> &'a [Value] {
        self.schema.get(name).and_then(Value::as_array).unwrap_or_default()
    }

    /// Returns its validation rules in CEL.
    pub fn rules(&self) -> &'a [Value] {
        self.list("x-kubernetes-validations")
    }

    /// Returns the schema of a member.
    pub fn member(&self, name: &str) -> Option<&'a Map> {
        self.schema.get("properties")?.get(name)?.as_object()
    }

    /// Returns the names of its members.
    pub fn members(&self) -> impl Iterator<Item = &'a str> {
        let properties = self.schema.get("properties").and_then(Value::as_object);
        properties.into_iter().flat_map(Map::iter).map(|(name, _)| name.as_str())
    }

    /// Returns whether the object that it describes requires a member.
    pub fn requires(&self, name: &str) -> bool {
        self.list("required").iter().any(|one| one.as_str() == Some(name))
    }

    /// Returns a number that fields with equal schemas have in common.
    pub fn fingerprint(&self) -> u64 {
        *self.fingerprint.get_or_init(|| {
            let mut text = vec![];
            json::write_value(&Value::Object(self.schema.clone()), &mut text);
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            hasher.finish()
        })
    }

    /// Whether this is a member that an author named.
    pub fn is_named(&self) -> bool {
        let is_standard = self.depth == 1
            && matches!(self.name, "apiVersion" | "kind" | "metadata" | "spec" | "status");
        self.role == Role::Member && !is_standard
    }
}
