//! Validation of the defaults in a schema (apiextensions `pkg/apiserver/schema/objectmeta` and
//! `defaulting`).

use super::validate::{EmbeddedCheck, validate_type_meta};
use super::{AdditionalProperties, Node, Structural};
use crate::catalogue::Catalogue;
use crate::decode::canonicalize;
use keelson_meta::{ErrorList, FieldError, Map, Path, Value};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl Structural {
    /// Returns the schema as that of an embedded resource, with kind, apiVersion and metadata.
    #[must_use]
    pub fn embedded(mut self) -> Structural {
        self.root.embedded = true;
        self
    }

    /// Whether decoding would prune a part of a value.
    pub fn has_unknown(&self, value: &Value) -> bool {
        self.root.has_unknown(value)
    }

    /// Returns the schema for the validation of defaults, in which an int-or-string may have any
    /// type.
    #[must_use]
    pub fn for_defaults(mut self) -> Structural {
        self.root.for_each_mut(&mut |node| node.int_or_string = false);
        self
    }

    /// Validates a value that is not a whole object.
    pub fn check_value(&self, value: &Value) -> ErrorList {
        let mut errors = ErrorList::new();
        self.root.validate_if_changed(value, None, &Path::ROOT, &mut errors);
        errors.drop_repeated();
        errors
    }

    /// Validates a default. Returns type errors of embedded resources, else errors of their
    /// metadata, else schema errors.
    pub fn check_default(&self, value: &Value) -> ErrorList {
        for check in
            [validate_type_meta_types as EmbeddedCheck, validate_type_meta as EmbeddedCheck]
        {
            let mut errors = ErrorList::new();
            self.root.visit_embedded(value, &Path::ROOT, check, &mut errors);
            if !errors.is_empty() {
                return errors;
            }
        }
        self.check_value(value)
    }
}

/// Returns the error in kind, apiVersion or metadata of an embedded resource.
pub fn embedded_resource_error(resource: &Map) -> Option<String> {
    for check in [validate_type_meta_types as EmbeddedCheck, validate_type_meta as EmbeddedCheck] {
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

/// Checks the types of kind, apiVersion and metadata.
fn validate_type_meta_types(resource: &Map, path: &Path<'_>, errors: &mut ErrorList) {
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
    if let Err(why) = canonicalize(&schema, metadata.clone()) {
        let field = path.field("metadata");
        errors.push(FieldError::invalid(&field, metadata.clone(), &why));
    }
}

impl Node {
    fn for_each_mut(&mut self, change: &mut impl FnMut(&mut Node)) {
        change(self);
        self.properties.iter_mut().for_each(|(_, node)| node.for_each_mut(change));
        if let AdditionalProperties::Schema(node) = &mut self.additional {
            node.for_each_mut(change);
        }
        if let Some(items) = &mut self.items {
            items.for_each_mut(change);
        }
    }
}
