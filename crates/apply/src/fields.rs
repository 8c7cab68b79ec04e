//! [`FieldSet`]: a set of field paths, as a tree of path elements.
//!
//! The set of an object has about a hundred nodes. Names of up to 23 bytes are stored inside the
//! node, and every set operation merges two sorted lists at each level.

mod codec;
mod element;
mod filter;
mod key;
mod text;

pub use element::{Element, Key, compare_values, equal_values};
pub use filter::{Filter, Pattern, PatternElement};
pub use key::DecodeError;

use std::cmp::Ordering;
use std::fmt::Write;

/// A set of field paths. The parents of a path are not in the set unless they were inserted too.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSet {
    /// Invariant: sorted by element, without duplicates; each node is a member or has children.
    nodes: Box<[Node]>,
}

/// One node of the tree: a path element.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub(crate) element: Element,
    /// Whether the path that ends at this node is in the set.
    pub(crate) is_member: bool,
    pub(crate) children: FieldSet,
}

impl FieldSet {
    /// Creates an empty set.
    pub fn new() -> Self {
        FieldSet::default()
    }

    /// Creates a set of paths that consist of field names only: `&[&["metadata", "name"]]`.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = FieldSet::new();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|name| Element::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Creates a set of nodes in any order; nodes of the same element are merged.
    pub(crate) fn from_nodes(mut nodes: Vec<Node>) -> Self {
        nodes.retain(|node| node.is_member || !node.children.is_empty());
        if !nodes.is_sorted_by(|a, b| a.element < b.element) {
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
            nodes.dedup_by(|next, node| {
                if next.element != node.element {
                    return false;
                }
                node.is_member |= next.is_member;
                node.children.add(std::mem::take(&mut next.children));
                true
            });
        }
        FieldSet { nodes: nodes.into() }
    }

    /// Returns whether the set has no path.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the number of paths.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.is_member) + node.children.len()).sum()
    }

    /// Returns the node of `element` at the top level.
    pub(crate) fn node(&self, element: &Element) -> Option<&Node> {
        let found = self.nodes.binary_search_by(|node| node.element.cmp(element));
        found.ok().map(|at| &self.nodes[at])
    }

    /// Returns the node of the field `name` at the top level.
    pub(crate) fn field(&self, name: &str) -> Option<&Node> {
        let found = self.nodes.binary_search_by(|node| node.element.compare_field(name));
        found.ok().map(|at| &self.nodes[at])
    }

    /// Returns the top-level nodes. The caller must not change the elements, and must call
    /// [`FieldSet::remove_empty_nodes`] after it has emptied a node.
    pub(crate) fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Removes the top-level nodes that are neither a member nor have children.
    pub(crate) fn remove_empty_nodes(&mut self) {
        *self = FieldSet::from_nodes(std::mem::take(&mut self.nodes).into_vec());
    }

    /// Inserts a path. The empty path is ignored.
    pub fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        let at = match self.nodes.binary_search_by(|node| node.element.cmp(first)) {
            Ok(at) => at,
            Err(at) => {
                let node =
                    Node { element: first.clone(), is_member: false, children: FieldSet::new() };
                let mut nodes = std::mem::take(&mut self.nodes).into_vec();
                nodes.insert(at, node);
                self.nodes = nodes.into();
                at
            }
        };
        if rest.is_empty() {
            self.nodes[at].is_member = true;
        } else {
            self.nodes[at].children.insert(rest);
        }
    }

    /// Returns whether a path is in the set.
    pub fn contains(&self, path: &[Element]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        match self.node(first) {
            Some(node) if rest.is_empty() => node.is_member,
            Some(node) => node.children.contains(rest),
            None => false,
        }
    }

    /// Inserts all paths of `other`.
    pub fn add(&mut self, other: FieldSet) {
        if self.nodes.is_empty() {
            *self = other;
            return;
        }
        if other.nodes.is_empty() {
            return;
        }
        let own = std::mem::take(&mut self.nodes);
        let mut nodes = Vec::with_capacity(own.len() + other.nodes.len());
        let mut left = own.into_iter().peekable();
        let mut right = other.nodes.into_iter().peekable();
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(l), Some(r)) => l.element.cmp(&r.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => break,
            };
            let node = match order {
                Ordering::Less => left.next(),
                Ordering::Greater => right.next(),
                Ordering::Equal => left.next().zip(right.next()).map(|(mut node, other)| {
                    node.is_member |= other.is_member;
                    node.children.add(other.children);
                    node
                }),
            };
            nodes.extend(node);
        }
        self.nodes = nodes.into();
    }

    /// Returns the union of all sets. Joins pairs first, so that a path is copied O(log n) times
    /// for n sets.
    pub(crate) fn union(mut sets: Vec<FieldSet>) -> FieldSet {
        while sets.len() > 1 {
            let mut joined = Vec::with_capacity(sets.len().div_ceil(2));
            let mut rest = sets.into_iter();
            while let Some(mut set) = rest.next() {
                set.add(rest.next().unwrap_or_default());
                joined.push(set);
            }
            sets = joined;
        }
        sets.pop().unwrap_or_default()
    }

    /// Removes the paths of `other`. Returns whether the set changed.
    pub fn subtract(&mut self, other: &FieldSet) -> bool {
        self.subtract_with(other, false)
    }

    /// Removes the paths of `other` and all paths below them. Returns whether the set changed.
    pub fn subtract_recursive(&mut self, other: &FieldSet) -> bool {
        self.subtract_with(other, true)
    }

    fn subtract_with(&mut self, other: &FieldSet, is_recursive: bool) -> bool {
        if other.is_empty() {
            return false;
        }
        let mut is_changed = false;
        let mut finder = Finder::new(&self.nodes, &other.nodes);
        for node in &mut self.nodes {
            let Some(found) = finder.find(&node.element) else { continue };
            if found.is_member && is_recursive {
                node.is_member = false;
                node.children = FieldSet::new();
                is_changed = true;
                continue;
            }
            is_changed |= found.is_member && node.is_member;
            node.is_member &= !found.is_member;
            is_changed |= node.children.subtract_with(&found.children, is_recursive);
        }
        if is_changed {
            self.remove_empty_nodes();
        }
        is_changed
    }

    /// Returns the paths that are in both sets.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut nodes = vec![];
        let mut finder = Finder::new(&self.nodes, &other.nodes);
        for node in &self.nodes {
            let Some(found) = finder.find(&node.element) else { continue };
            let is_member = node.is_member && found.is_member;
            let children = node.children.intersection(&found.children);
            if is_member || !children.is_empty() {
                nodes.push(Node { element: node.element.clone(), is_member, children });
            }
        }
        FieldSet { nodes: nodes.into() }
    }

    /// Returns whether all paths of this set are in `other`.
    pub fn is_subset(&self, other: &FieldSet) -> bool {
        let mut finder = Finder::new(&self.nodes, &other.nodes);
        self.nodes.iter().all(|node| {
            finder.find(&node.element).is_some_and(|found| {
                (found.is_member || !node.is_member) && node.children.is_subset(&found.children)
            })
        })
    }

    /// Calls `visit` for each path. The members of a node come before the paths below them.
    pub fn for_each_path(&self, visit: &mut dyn FnMut(&[&Element])) {
        self.for_each_below(&mut vec![], visit);
    }

    fn for_each_below<'s>(
        &'s self,
        prefix: &mut Vec<&'s Element>,
        visit: &mut dyn FnMut(&[&Element]),
    ) {
        for node in self.nodes.iter().filter(|node| node.is_member) {
            prefix.push(&node.element);
            visit(prefix);
            prefix.pop();
        }
        for node in &self.nodes {
            prefix.push(&node.element);
            node.children.for_each_below(prefix, visit);
            prefix.pop();
        }
    }

    /// Returns the paths as text, in the order of [`FieldSet::for_each_path`].
    pub fn texts(&self) -> Vec<String> {
        let mut texts = vec![];
        self.for_each_path(&mut |path| texts.push(path_text(path)));
        texts
    }
}

/// A set with more than this many times the nodes of the other is searched by bisection instead of
/// walked.
const BISECTION_RATIO_MIN: usize = 16;

/// Finds the nodes of one set for the elements of another. The elements must be passed in order.
struct Finder<'s> {
    nodes: &'s [Node],
    bisects: bool,
}

impl<'s> Finder<'s> {
    fn new(few: &[Node], nodes: &'s [Node]) -> Self {
        Finder { nodes, bisects: nodes.len() / BISECTION_RATIO_MIN > few.len() }
    }

    /// Returns the node of `element`, which must be greater than those of all calls before.
    fn find(&mut self, element: &Element) -> Option<&'s Node> {
        let smaller = |node: &Node| node.element < *element;
        let skipped = match self.bisects {
            true => self.nodes.partition_point(smaller),
            false => self.nodes.iter().take_while(|node| smaller(node)).count(),
        };
        self.nodes = &self.nodes[skipped..];
        let (first, rest) = self.nodes.split_first()?;
        if first.element != *element {
            return None;
        }
        self.nodes = rest;
        Some(first)
    }
}

/// Returns a path as text: `.spec.ports[port=80,protocol="TCP"].name`.
pub fn path_text(path: &[&Element]) -> String {
    let mut text = String::new();
    for element in path {
        // Writing to a String cannot fail.
        let _ = write!(text, "{element}");
    }
    text
}

#[cfg(test)]
#[path = "fields_tests.rs"]
mod tests;
