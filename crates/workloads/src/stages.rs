//! Stages of KWOK (`kwok.x-k8s.io/v1alpha1`): rules that say what happens to objects and when.
//! Where there is a Stage for a kind, Stages decide about it instead of the simulation's own rules.
//!
//! They are read from the objects of the resource `stages`, if a CustomResourceDefinition serves
//! it, and from files. [`rule`] says what a Stage is; the loop that does what they say is in
//! `stage_player.rs`.

pub(crate) mod choice;
mod expressions;
pub(crate) mod play;
mod query;
pub(crate) mod read;
pub(crate) mod rule;
pub(crate) mod template;

use keelson_meta::{Str, Value};
use rule::StageRule;
use std::collections::HashMap;
use std::sync::Arc;

/// The group of Stages.
pub(crate) const GROUP: &str = "kwok.x-k8s.io";
/// Stages of one server.
pub(crate) const STAGES_MAX: usize = 1_000;

/// Stages that were read from files.
#[derive(Clone, Debug, Default)]
pub struct StageFiles {
    rules: Vec<Arc<StageRule>>,
}

impl StageFiles {
    /// Adds an object in YAML. See [`StageFiles::add`].
    pub fn add_yaml(&mut self, text: &str) -> Result<bool, String> {
        let parsed = keelson_schema::yaml::parse(text).map_err(|error| error.to_string())?;
        self.add(&parsed.value)
    }

    /// Adds an object of a file. Returns whether it is a Stage; others are left out. Fails if a
    /// Stage cannot be understood, for example because its template has an unknown function.
    pub fn add(&mut self, object: &Value) -> Result<bool, String> {
        let group = object.str_at(&["apiVersion"]).and_then(|version| version.split_once('/'));
        let is_stage = object.str_at(&["kind"]) == Some("Stage")
            && group.is_some_and(|(group, _)| group == GROUP);
        if !is_stage {
            return Ok(false);
        }
        if self.rules.len() >= STAGES_MAX {
            return Err(format!("there are more than {STAGES_MAX} Stages"));
        }
        let name = object.str_at(&["metadata", "name"]).unwrap_or_default();
        let rule = read::rule(object).map_err(|why| format!("Stage {name:?}: {why}"))?;
        self.rules.extend(rule.map(Arc::new));
        Ok(true)
    }
}

impl StageFiles {
    /// Returns those that match something.
    pub(crate) fn rules(&self) -> Vec<Arc<StageRule>> {
        self.rules.clone()
    }
}

/// Group and kind of objects.
pub(crate) type StagedKind = (Str, Str);

/// The Stages of a server, by the kind of the objects for which they are.
#[derive(Debug, Default)]
pub(crate) struct StageRules {
    by_kind: HashMap<StagedKind, Vec<Arc<StageRule>>>,
}

impl StageRules {
    pub fn new(rules: impl IntoIterator<Item = Arc<StageRule>>) -> StageRules {
        let mut by_kind: HashMap<StagedKind, Vec<Arc<StageRule>>> = HashMap::new();
        for rule in rules {
            by_kind.entry(rule.kind.clone()).or_default().push(rule);
        }
        StageRules { by_kind }
    }

    /// Whether Stages decide about the objects of a kind.
    pub fn decide(&self, group: &str, kind: &str) -> bool {
        !self.of(group, kind).is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.by_kind.is_empty()
    }

    pub fn of(&self, group: &str, kind: &str) -> &[Arc<StageRule>] {
        self.by_kind.get(&(Str::new(group), Str::new(kind))).map_or(&[], Vec::as_slice)
    }
}
