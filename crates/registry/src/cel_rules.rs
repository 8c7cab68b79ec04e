//! [`CelRules`]: the validation rules in CEL of a version of a custom resource, compiled on first use.

use crate::schema_text::SchemaText;
use keelson_cache::Entry;
use keelson_kinds::expressions::ObjectRules;
use keelson_meta::{ErrorList, Map};
use std::sync::OnceLock;

/// The rules of one version of a custom resource.
#[derive(Debug)]
pub struct CelRules {
    source: SchemaText,
    rules: OnceLock<Option<ObjectRules>>,
}

impl CelRules {
    pub(crate) fn new(source: SchemaText) -> CelRules {
        CelRules { source, rules: OnceLock::new() }
    }

    /// See [`SchemaText::follow`].
    pub fn follow(&self, definition: &Entry, version: &str) {
        self.source.follow(definition, version);
    }

    /// The faults that the rules find in an object; `old` is what an update changes.
    pub(crate) fn validate(&self, obj: &Map, old: Option<&Map>, errors: &mut ErrorList) {
        // Nearly no schema is without a description that holds every word: only this one tells.
        let rules = self.rules.get_or_init(|| {
            let source = self.source.open();
            memchr::memmem::find(source.as_ref(), b"x-kubernetes-validations")?;
            ObjectRules::read(source.as_ref())
        });
        if let Some(rules) = rules {
            rules.validate(obj, old, errors);
        }
    }
}
