//! [`Filter`]: leaves out the fields that an endpoint resets, so that no manager owns them through it.

use super::{Element, FieldSet, Node};
use keelson_meta::Str;

/// Selects the fields that an endpoint can change.
#[derive(Clone, Debug)]
pub enum Filter {
    /// All fields except these and those below them: the fields that a strategy resets (`status`).
    Exclude(FieldSet),
    /// Only the fields below one of these patterns (`spec.containers.*.resources` for pods/resize).
    Include(Vec<Pattern>),
}

/// The first elements of the paths that a pattern selects.
pub type Pattern = Vec<Step>;

/// One element of a [`Pattern`].
#[derive(Clone, Debug)]
pub enum Step {
    /// This field.
    Field(Str),
    /// Any element.
    Any,
}

impl Step {
    fn matches(&self, element: &Element) -> bool {
        match (self, element) {
            (Step::Any, _) => true,
            (Step::Field(name), Element::Field(field)) => name == field,
            _ => false,
        }
    }
}

impl Filter {
    /// Removes the paths that the filter leaves out.
    pub fn apply(&self, set: &mut FieldSet) {
        match self {
            Filter::Exclude(excluded) => {
                set.subtract_recursive(excluded);
            }
            Filter::Include(patterns) => {
                let patterns: Vec<&[Step]> = patterns.iter().map(Vec::as_slice).collect();
                include(set, &patterns);
            }
        }
    }
}

fn include(set: &mut FieldSet, patterns: &[&[Step]]) {
    let nodes = std::mem::take(set).nodes;
    let included = nodes.into_vec().into_iter().filter_map(|mut node: Node| {
        let rests: Vec<&[Step]> = patterns
            .iter()
            .filter_map(|pattern| pattern.split_first())
            .filter(|(first, _)| first.matches(&node.element))
            .map(|(_, rest)| rest)
            .collect();
        if rests.is_empty() {
            return None;
        }
        if !rests.iter().any(|rest| rest.is_empty()) {
            include(&mut node.children, &rests);
        }
        Some(node)
    });
    *set = FieldSet::from_nodes(included.collect());
}
