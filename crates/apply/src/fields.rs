//! [`FieldSet`]: which fields of an object someone owns, as a tree of path elements.
//!
//! A set of one object holds some hundred nodes: names of up to 23 bytes live inside the node, and
//! all operations are one merge of sorted lists per level.

mod codec;
mod element;
mod filter;
mod key;
mod text;

pub use element::{Element, Key, compare_values, equal_values};
pub use filter::{Filter, Pattern, Step};
pub use key::DecodeError;

use std::cmp::Ordering;
use std::fmt::Write;

/// A set of paths. A path's parents are not in the set unless they were put there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FieldSet {
    /// Invariant: sorted by element, none twice; each is a member or has nodes below.
    nodes: Box<[Node]>,
}

/// One step of the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub(crate) element: Element,
    /// Whether the path that ends here is in the set.
    pub(crate) is_member: bool,
    pub(crate) children: FieldSet,
}

impl FieldSet {
    /// The empty set.
    pub fn new() -> Self {
        FieldSet::default()
    }

    /// A set of plain field paths: `&[&["metadata", "name"]]`.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = FieldSet::new();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|name| Element::field(name)).collect();
            set.insert(&path);
        }
        set
    }

    /// Takes nodes in any order; an element that stands more than once is merged.
    pub(crate) fn from_nodes(mut nodes: Vec<Node>) -> Self {
        nodes.retain(|node| node.is_member || !node.children.is_empty());
        if !nodes.is_sorted_by(|a, b| a.element < b.element) {
            nodes.sort_by(|a, b| a.element.cmp(&b.element));
            nodes.dedup_by(|later, kept| {
                if later.element != kept.element {
                    return false;
                }
                kept.is_member |= later.is_member;
                kept.children.add(std::mem::take(&mut later.children));
                true
            });
        }
        FieldSet { nodes: nodes.into() }
    }

    /// True when no path is in the set.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Number of paths.
    pub fn len(&self) -> usize {
        self.nodes.iter().map(|node| usize::from(node.is_member) + node.children.len()).sum()
    }

    /// The node of `element` at the top level.
    pub(crate) fn node(&self, element: &Element) -> Option<&Node> {
        let found = self.nodes.binary_search_by(|node| node.element.cmp(element));
        found.ok().map(|at| &self.nodes[at])
    }

    /// The node of the field `name` at the top level.
    pub(crate) fn field(&self, name: &str) -> Option<&Node> {
        let found = self.nodes.binary_search_by(|node| node.element.compare_field(name));
        found.ok().map(|at| &self.nodes[at])
    }

    /// The nodes of the top level for change; elements must stay, and nodes that become empty must
    /// be taken out with [`FieldSet::sweep`].
    pub(crate) fn nodes_mut(&mut self) -> &mut [Node] {
        &mut self.nodes
    }

    /// Takes out top-level nodes that hold nothing.
    pub(crate) fn sweep(&mut self) {
        *self = FieldSet::from_nodes(std::mem::take(&mut self.nodes).into_vec());
    }

    /// Puts a path into the set. The empty path is nobody's.
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

    /// Whether a path is in the set.
    pub fn contains(&self, path: &[Element]) -> bool {
        let Some((first, rest)) = path.split_first() else { return false };
        match self.node(first) {
            Some(node) if rest.is_empty() => node.is_member,
            Some(node) => node.children.contains(rest),
            None => false,
        }
    }

    /// Puts all paths of `other` into this set.
    pub fn add(&mut self, other: FieldSet) {
        if self.nodes.is_empty() {
            *self = other;
            return;
        }
        if other.nodes.is_empty() {
            return;
        }
        let mine = std::mem::take(&mut self.nodes);
        let mut nodes = Vec::with_capacity(mine.len() + other.nodes.len());
        let mut left = mine.into_iter().peekable();
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

    /// All paths of all sets. Neighbours are joined first, so that no set is copied more often than the
    /// logarithm of their number.
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

    /// Takes the paths of `other` out of this set. Says whether anything went.
    pub fn subtract(&mut self, other: &FieldSet) -> bool {
        self.subtract_with(other, false)
    }

    /// Takes the paths of `other`, and all below them, out of this set.
    pub fn subtract_trees(&mut self, other: &FieldSet) -> bool {
        self.subtract_with(other, true)
    }

    fn subtract_with(&mut self, other: &FieldSet, with_trees: bool) -> bool {
        if other.is_empty() {
            return false;
        }
        let mut is_changed = false;
        let mut theirs = Finder::new(&self.nodes, &other.nodes);
        for node in &mut self.nodes {
            let Some(their) = theirs.find(&node.element) else { continue };
            if their.is_member && with_trees {
                node.is_member = false;
                node.children = FieldSet::new();
                is_changed = true;
                continue;
            }
            is_changed |= their.is_member && node.is_member;
            node.is_member &= !their.is_member;
            is_changed |= node.children.subtract_with(&their.children, with_trees);
        }
        if is_changed {
            self.sweep();
        }
        is_changed
    }

    /// The paths that are in both sets.
    pub fn intersection(&self, other: &FieldSet) -> FieldSet {
        let mut nodes = vec![];
        let mut theirs = Finder::new(&self.nodes, &other.nodes);
        for node in &self.nodes {
            let Some(their) = theirs.find(&node.element) else { continue };
            let is_member = node.is_member && their.is_member;
            let children = node.children.intersection(&their.children);
            if is_member || !children.is_empty() {
                nodes.push(Node { element: node.element.clone(), is_member, children });
            }
        }
        FieldSet { nodes: nodes.into() }
    }

    /// Whether all paths of this set are in `other`.
    pub fn is_within(&self, other: &FieldSet) -> bool {
        let mut theirs = Finder::new(&self.nodes, &other.nodes);
        self.nodes.iter().all(|node| {
            theirs.find(&node.element).is_some_and(|their| {
                (their.is_member || !node.is_member) && node.children.is_within(&their.children)
            })
        })
    }

    /// Calls `visit` for each path, those of a level before those below it.
    pub fn each(&self, visit: &mut dyn FnMut(&[&Element])) {
        self.each_below(&mut vec![], visit);
    }

    fn each_below<'s>(&'s self, prefix: &mut Vec<&'s Element>, visit: &mut dyn FnMut(&[&Element])) {
        for node in self.nodes.iter().filter(|node| node.is_member) {
            prefix.push(&node.element);
            visit(prefix);
            prefix.pop();
        }
        for node in &self.nodes {
            prefix.push(&node.element);
            node.children.each_below(prefix, visit);
            prefix.pop();
        }
    }

    /// The paths as messages show them, in the order of [`FieldSet::each`].
    pub fn texts(&self) -> Vec<String> {
        let mut texts = vec![];
        self.each(&mut |path| texts.push(path_text(path)));
        texts
    }
}

/// How many times more nodes a set has than another that are searched instead of all looked at.
const SEARCHED_TIMES_MIN: usize = 16;

/// Finds nodes of one set for those of another, which come in order.
struct Finder<'s> {
    nodes: &'s [Node],
    is_searched: bool,
}

impl<'s> Finder<'s> {
    fn new(few: &[Node], nodes: &'s [Node]) -> Self {
        Finder { nodes, is_searched: nodes.len() / SEARCHED_TIMES_MIN > few.len() }
    }

    /// The node of an element that is larger than all that were asked for before.
    fn find(&mut self, element: &Element) -> Option<&'s Node> {
        let smaller = |node: &Node| node.element < *element;
        let skipped = match self.is_searched {
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

/// A path as messages show it: `.spec.ports[port=80,protocol="TCP"].name`.
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
