//! [`Filter`]: leaves out the fields that an endpoint resets, so that no manager owns them through
//! it.

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
pub type Pattern = Vec<PatternElement>;

/// One element of a [`Pattern`].
#[derive(Clone, Debug)]
pub enum PatternElement {
    /// This field.
    Field(Str),
    /// Any element.
    Any,
}

impl PatternElement {
    fn matches(&self, element: &Element) -> bool {
        match (self, element) {
            (PatternElement::Any, _) => true,
            (PatternElement::Field(name), Element::Field(field)) => name == field,
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
                let patterns: Vec<&[PatternElement]> = patterns.iter().map(Vec::as_slice).collect();
                include(set, &patterns);
            }
        }
    }
}

fn include(set: &mut FieldSet, patterns: &[&[PatternElement]]) {
    let nodes = std::mem::take(set).nodes;
    let included = nodes.into_vec().into_iter().filter_map(|mut node: Node| {
        let rests: Vec<&[PatternElement]> = patterns
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
