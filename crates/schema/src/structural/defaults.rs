//! Validation of the defaults that a schema names (apiextensions `pkg/apiserver/schema/objectmeta` and
//! `defaulting`).

use super::validate::type_members;
use super::{Additional, Node, Structural};
use crate::catalogue::Catalogue;
use crate::decode::conform;
use keelson_meta::{ErrorList, FieldError, Map, Path, Value};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl Structural {
    /// The same schema as that of a whole resource, with kind, apiVersion and metadata.
    #[must_use]
    pub fn embedded(mut self) -> Structural {
        self.root.embedded = true;
        self
    }

    /// Whether decoding would leave a part of a value out.
    pub fn has_unknown(&self, value: &Value) -> bool {
        self.root.has_unknown(value)
    }

    /// The same schema as defaults are held to: those of an int-or-string may be of any type.
    #[must_use]
    pub fn of_defaults(mut self) -> Structural {
        self.root.each_mut(&mut |node| node.int_or_string = false);
        self
    }

    /// The faults of a value that is no whole object.
    pub fn check_value(&self, value: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        self.root.value(value, None, &Path::ROOT, &mut errors);
        errors.drop_repeated();
        errors
    }

    /// The faults of a default: the types of what resources in it have, else their values, else what the
    /// schema says.
    pub fn check_default(&self, value: &Value) -> ErrorList {
        for check in [types_of_resource as Check, type_members as Check] {
            let mut errors = ErrorList::new();
            self.root.resources(value, &Path::ROOT, check, &mut errors);
            if !errors.is_empty() {
                return errors;
            }
        }
        self.check_value(value)
    }
}

pub(super) type Check = fn(&Map, &Path<'_>, &mut ErrorList);

/// Why a resource has no valid kind, apiVersion and metadata.
pub fn resource_fault(resource: &Map) -> Option<String> {
    for check in [types_of_resource as Check, type_members as Check] {
        let mut errors = ErrorList::new();
        check(resource, &Path::ROOT, &mut errors);
        let words: Vec<String> = errors.iter().map(ToString::to_string).collect();
        match &words[..] {
            [] => {}
            [one] => return Some(one.clone()),
            more => return Some(format!("[{}]", more.join(", "))),
        }
    }
    None
}

/// Whether kind, apiVersion and metadata are of their types.
fn types_of_resource(resource: &Map, path: &Path<'_>, errors: &mut ErrorList) {
    for name in ["apiVersion", "kind"] {
        if let Some(value) = resource.get(name)
            && value.as_str().is_none()
        {
            let field = path.field(name);
            errors.push(FieldError::invalid(&field, value.clone(), "must be a string"));
        }
    }
    let (Some(metadata), Some(schema)) =
        (resource.get("metadata"), Catalogue::shared().named(OBJECT_META))
    else {
        return;
    };
    if let Err(why) = conform(&schema, metadata.clone()) {
        let field = path.field("metadata");
        errors.push(FieldError::invalid(&field, metadata.clone(), &why));
    }
}

impl Node {
    fn each_mut(&mut self, change: &mut impl FnMut(&mut Node)) {
        change(self);
        self.properties.iter_mut().for_each(|(_, node)| node.each_mut(change));
        if let Additional::Of(node) = &mut self.additional {
            node.each_mut(change);
        }
        if let Some(items) = &mut self.items {
            items.each_mut(change);
        }
    }

    /// Does something with each resource in a value.
    pub(super) fn resources(
        &self,
        value: &Value,
        path: &Path<'_>,
        check: Check,
        errors: &mut ErrorList,
    ) {
        match value {
            Value::Object(map) => {
                if self.embedded {
                    check(map, path, errors);
                }
                for (name, value) in map.iter() {
                    let node = self.property(name).or(match &self.additional {
                        Additional::Of(node) => Some(node),
                        _ => None,
                    });
                    if let Some(node) = node {
                        node.resources(value, &path.field(name), check, errors);
                    }
                }
            }
            Value::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    if let Some(node) = &self.items {
                        node.resources(item, &path.index(i), check, errors);
                    }
                }
            }
            _ => {}
        }
    }
}
