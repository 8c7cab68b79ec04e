//! [`Filter`]: the fields that an endpoint cannot change, which therefore nobody owns through it.

use super::{Element, FieldSet, Node};
use keelson_meta::Str;

/// Which fields of a request count.
#[derive(Clone, Debug)]
pub enum Filter {
    /// All but these and what is below them: the fields that a strategy resets (`status`).
    Exclude(FieldSet),
    /// Only what is below one of these patterns (`spec.containers.*.resources` for pods/resize).
    Include(Vec<Pattern>),
}

/// The begin of paths.
pub type Pattern = Vec<Step>;

/// One step of a [`Pattern`].
#[derive(Clone, Debug)]
pub enum Step {
    /// This member.
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
    /// Takes out of the set what does not count.
    pub fn run(&self, set: &mut FieldSet) {
        match self {
            Filter::Exclude(excluded) => {
                set.subtract_trees(excluded);
            }
            Filter::Include(patterns) => {
                let rests: Vec<&[Step]> = patterns.iter().map(Vec::as_slice).collect();
                include(set, &rests);
            }
        }
    }
}

fn include(set: &mut FieldSet, patterns: &[&[Step]]) {
    let nodes = std::mem::take(set).nodes;
    let kept = nodes.into_vec().into_iter().filter_map(|mut node: Node| {
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
    *set = FieldSet::from_nodes(kept.collect());
}
