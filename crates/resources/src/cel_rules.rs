//! [`CelRules`]: the CEL validation rules of a version of a custom resource, compiled on first use.

use crate::rule_metrics as metrics;
use crate::schema_text::SchemaText;
use keelson_kinds::expressions::{ObjectRules, OldObject};
use keelson_meta::{ErrorList, Map};
use keelson_records::Entry;
use std::sync::OnceLock;
use std::time::Instant;

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

    /// Adds the errors of the rules. Returns those of values that an update leaves as they were.
    pub(crate) fn validate(
        &self,
        obj: &Map,
        old: Option<OldObject<'_>>,
        errors: &mut ErrorList,
    ) -> ErrorList {
        let rules = match self.rules.get() {
            Some(rules) => rules,
            None => {
                let compiled = self.compile();
                // The caller discards the errors.
                if keelson_cel::is_interrupted() {
                    return ErrorList::new();
                }
                self.rules.get_or_init(|| compiled)
            }
        };
        let Some(rules) = rules else { return ErrorList::new() };
        let begun = Instant::now();
        let ratcheted = rules.validate(obj, old, errors);
        metrics::evaluated(begun);
        ratcheted
    }

    fn compile(&self) -> Option<ObjectRules> {
        let source = self.source.open();
        // Descriptions contain most other words; only this one shows that there are rules.
        memchr::memmem::find(source.as_ref(), b"x-kubernetes-validations")?;
        let begun = Instant::now();
        let rules = ObjectRules::read(source.as_ref());
        metrics::compiled(begun);
        rules
    }
}
