//! [`Tree`]: a persistent ordered set. A clone is O(1) and never changes; an insert or remove
//! copies only the nodes on its path that are shared with a clone.
//!
//! It is a B+ tree: branches hold separator keys, not elements. Trees with elements in their
//! branches (as in the common libraries) retain versions that were replaced or deleted long ago:
//! with nodes of 16, one object in 13 was in memory twice.

use smallvec::SmallVec;
use std::cmp::Ordering;
use std::fmt;
use std::slice;
use std::sync::Arc;

/// Maximum elements of a leaf, and children of a branch.
const NODE_MAX: usize = 24;
/// A smaller node is merged with a neighbour if both fit into one.
const NODE_MIN: usize = 8;

/// The key that elements are ordered by: two strings as bytes, compared one after the other.
pub type SortKey<'a> = (&'a [u8], &'a [u8]);

/// Compares two sort keys.
#[inline]
pub fn order(a: SortKey<'_>, b: SortKey<'_>) -> Ordering {
    // Avoids comparing empty slices, as in `starts_with`.
    let text = |a: &[u8], b: &[u8]| match a.is_empty() || b.is_empty() {
        true => a.len().cmp(&b.len()),
        false => a.cmp(b),
    };
    text(a.0, b.0).then_with(|| text(a.1, b.1))
}

/// An element of a [`Tree`].
pub trait HasSortKey {
    /// Returns the sort key. It must never change.
    fn sort_key(&self) -> SortKey<'_>;
}

impl<T: HasSortKey> HasSortKey for Arc<T> {
    fn sort_key(&self) -> SortKey<'_> {
        (**self).sort_key()
    }
}

/// A persistent ordered set. No two elements have the same sort key. Changes clone elements that
/// are shared with a clone of the set.
#[derive(Clone)]
pub struct Tree<T> {
    root: Arc<Node<T>>,
    len: usize,
}

#[derive(Clone)]
enum Node<T> {
    /// Elements in order.
    Leaf(SmallVec<[T; NODE_MAX]>),
    Branch(Box<Branch<T>>),
}

#[derive(Clone)]
struct Branch<T> {
    /// All leaves have the same depth.
    children: Vec<Arc<Node<T>>>,
    /// One between each two children: at most the smallest key to the right, above all keys to the
    /// left.
    separators: Vec<Separator>,
}

/// An owned sort key, independent of the element it came from.
#[derive(Clone)]
struct Separator(Box<[u8]>, Box<[u8]>);

/// A node that was split off, and the separator to its left.
type Split<T> = (Separator, Arc<Node<T>>);

impl Separator {
    fn at(sort_key: SortKey<'_>) -> Self {
        Self(sort_key.0.into(), sort_key.1.into())
    }

    fn sort_key(&self) -> SortKey<'_> {
        (&self.0, &self.1)
    }
}

impl<T> Default for Tree<T> {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(SmallVec::new())), len: 0 }
    }
}

impl<T> Tree<T> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T: HasSortKey + Clone> Tree<T> {
    /// Returns the element with a sort key.
    pub fn get(&self, sort_key: SortKey<'_>) -> Option<&T> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Branch(branch) => node = &branch.children[branch.child_at(sort_key)],
                Node::Leaf(elements) => {
                    return find(elements, sort_key).ok().map(|at| &elements[at]);
                }
            }
        }
    }

    /// Inserts an element and returns the one that it replaced.
    pub fn insert(&mut self, element: T) -> Option<T> {
        let (old, split) = insert(&mut self.root, element);
        if let Some((separator, right)) = split {
            let children = vec![self.root.clone(), right];
            let branch = Branch { children, separators: vec![separator] };
            self.root = Arc::new(Node::Branch(Box::new(branch)));
        }
        self.len += usize::from(old.is_none());
        old
    }

    /// Removes and returns the element with a sort key.
    pub fn remove(&mut self, sort_key: SortKey<'_>) -> Option<T> {
        let old = remove(&mut self.root, sort_key)?;
        self.len -= 1;
        loop {
            let only = match &*self.root {
                Node::Branch(branch) if branch.children.len() <= 1 => branch.children.first(),
                Node::Branch(_) | Node::Leaf(_) => break,
            };
            self.root = only.cloned().unwrap_or_else(|| Self::default().root);
        }
        Some(old)
    }

    /// Iterates over all elements in order.
    pub fn iter(&self) -> Range<'_, T> {
        self.from((b"", b""))
    }

    /// Iterates over the elements from a sort key on (inclusive), in order.
    pub fn from(&self, sort_key: SortKey<'_>) -> Range<'_, T> {
        let mut ahead = Vec::new();
        let mut node = &*self.root;
        loop {
            match node {
                Node::Branch(branch) => {
                    let at = branch.child_at(sort_key);
                    ahead.push(branch.children[at + 1..].iter());
                    node = &branch.children[at];
                }
                Node::Leaf(elements) => {
                    let at = find(elements, sort_key).unwrap_or_else(|at| at);
                    return Range { ahead, leaf: elements[at..].iter() };
                }
            }
        }
    }
}

impl<T: HasSortKey + Clone> FromIterator<T> for Tree<T> {
    /// Elements that arrive in order fill their nodes completely.
    fn from_iter<I: IntoIterator<Item = T>>(elements: I) -> Self {
        let mut tree = Self::default();
        for element in elements {
            tree.insert(element);
        }
        tree
    }
}

impl<T> fmt::Debug for Tree<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} elements", self.len)
    }
}

/// An iterator over elements in order.
pub struct Range<'a, T> {
    /// For each branch on the path, the children after the current one.
    ahead: Vec<slice::Iter<'a, Arc<Node<T>>>>,
    leaf: slice::Iter<'a, T>,
}

impl<'a, T> Iterator for Range<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(element) = self.leaf.next() {
                return Some(element);
            }
            let mut node = loop {
                match self.ahead.last_mut()?.next() {
                    Some(node) => break node,
                    None => self.ahead.pop(),
                };
            };
            while let Node::Branch(branch) = &**node {
                let mut children = branch.children.iter();
                let Some(first) = children.next() else { break };
                node = first;
                self.ahead.push(children);
            }
            if let Node::Leaf(elements) = &**node {
                self.leaf = elements.iter();
            }
        }
    }
}

/// Returns the index of the element with a sort key, or where it would be inserted.
fn find<T: HasSortKey>(elements: &[T], sort_key: SortKey<'_>) -> Result<usize, usize> {
    elements.binary_search_by(|element| order(element.sort_key(), sort_key))
}

impl<T> Node<T> {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(elements) => elements.len(),
            Self::Branch(branch) => branch.children.len(),
        }
    }
}

impl<T: HasSortKey + Clone> Branch<T> {
    /// Returns the index of the child whose range contains a sort key.
    fn child_at(&self, sort_key: SortKey<'_>) -> usize {
        self.separators.partition_point(|separator| order(separator.sort_key(), sort_key).is_le())
    }

    /// Removes a child that is empty, or merges it with a neighbour if it is small.
    fn tidy(&mut self, at: usize) {
        let len = self.children[at].len();
        if len == 0 {
            self.children.remove(at);
            if !self.separators.is_empty() {
                self.separators.remove(at.saturating_sub(1));
            }
            return;
        }
        let fits = |other: usize| {
            self.children.get(other).is_some_and(|other| len + other.len() <= NODE_MAX)
        };
        let left = match at.checked_sub(1) {
            _ if len >= NODE_MIN => return,
            Some(left) if fits(left) => left,
            _ if fits(at + 1) => at,
            _ => return,
        };
        let right = self.children.remove(left + 1);
        let separator = self.separators.remove(left);
        let right = Arc::unwrap_or_clone(right);
        match (Arc::make_mut(&mut self.children[left]), right) {
            (Node::Leaf(left), Node::Leaf(right)) => left.extend(right),
            (Node::Branch(left), Node::Branch(right)) => {
                left.children.extend(right.children);
                left.separators.push(separator);
                left.separators.extend(right.separators);
            }
            _ => unreachable!("all leaves are equally deep"),
        }
    }
}

fn insert<T: HasSortKey + Clone>(
    node: &mut Arc<Node<T>>,
    element: T,
) -> (Option<T>, Option<Split<T>>) {
    match Arc::make_mut(node) {
        Node::Leaf(elements) => match find(elements, element.sort_key()) {
            Ok(at) => (Some(std::mem::replace(&mut elements[at], element)), None),
            Err(at) => (None, insert_at(elements, at, element)),
        },
        Node::Branch(branch) => {
            let at = branch.child_at(element.sort_key());
            let (old, split) = insert(&mut branch.children[at], element);
            let split = split.and_then(|(separator, right)| {
                branch.separators.insert(at, separator);
                branch.children.insert(at + 1, right);
                halve(branch)
            });
            (old, split)
        }
    }
}

/// Inserts a new element into a leaf. A full leaf is split; the right half is returned.
fn insert_at<T: HasSortKey + Clone>(
    elements: &mut SmallVec<[T; NODE_MAX]>,
    at: usize,
    element: T,
) -> Option<Split<T>> {
    if elements.len() < NODE_MAX {
        elements.insert(at, element);
        return None;
    }
    // Elements that arrive in order leave full nodes behind.
    let middle = if at == NODE_MAX { NODE_MAX } else { NODE_MAX / 2 };
    let mut right: SmallVec<[T; NODE_MAX]> = elements.drain(middle..).collect();
    if at < middle {
        elements.insert(at, element);
    } else {
        right.insert(at - middle, element);
    }
    let separator = Separator::at(right[0].sort_key());
    Some((separator, Arc::new(Node::Leaf(right))))
}

/// Splits a branch that is too large.
fn halve<T>(branch: &mut Branch<T>) -> Option<Split<T>> {
    if branch.children.len() <= NODE_MAX {
        return None;
    }
    let middle = branch.children.len() / 2;
    let children = branch.children.split_off(middle);
    let separators = branch.separators.split_off(middle);
    let between = branch.separators.pop()?;
    let right = Branch { children, separators };
    Some((between, Arc::new(Node::Branch(Box::new(right)))))
}

fn remove<T: HasSortKey + Clone>(node: &mut Arc<Node<T>>, sort_key: SortKey<'_>) -> Option<T> {
    match Arc::make_mut(node) {
        Node::Leaf(elements) => find(elements, sort_key).ok().map(|at| elements.remove(at)),
        Node::Branch(branch) => {
            let at = branch.child_at(sort_key);
            let old = remove(&mut branch.children[at], sort_key)?;
            branch.tidy(at);
            Some(old)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;
    use std::collections::BTreeMap;

    /// An element whose references can be counted.
    type Held = Arc<(String, String, u64)>;

    impl HasSortKey for (String, String, u64) {
        fn sort_key(&self) -> SortKey<'_> {
            (self.0.as_bytes(), self.1.as_bytes())
        }
    }

    fn held(key: u64, version: u64) -> Held {
        Arc::new((["", "a", "b"][key as usize % 3].to_owned(), format!("{key:x}"), version))
    }

    /// Asserts the invariants of a node between two keys and returns its depth.
    fn check(node: &Node<Held>, from: Option<SortKey<'_>>, to: Option<SortKey<'_>>) -> usize {
        assert!(node.len() <= NODE_MAX);
        let is_in = |sort_key: SortKey<'_>| {
            from.is_none_or(|from| from <= sort_key) && to.is_none_or(|to| sort_key < to)
        };
        match node {
            Node::Leaf(elements) => {
                assert!(elements.iter().all(|element| is_in(element.sort_key())));
                assert!(elements.is_sorted_by(|a, b| a.sort_key() < b.sort_key()));
                1
            }
            Node::Branch(branch) => {
                let separators = &branch.separators;
                assert_eq!(branch.children.len(), separators.len() + 1);
                assert!(separators.iter().all(|separator| is_in(separator.sort_key())));
                let depths: Vec<_> = branch
                    .children
                    .iter()
                    .enumerate()
                    .map(|(at, child)| {
                        assert!(child.len() > 0, "an empty child");
                        let from = at
                            .checked_sub(1)
                            .map_or(from, |left| Some(separators[left].sort_key()));
                        check(child, from, separators.get(at).map(Separator::sort_key).or(to))
                    })
                    .collect();
                assert!(depths.iter().all(|depth| *depth == depths[0]), "{depths:?}");
                depths[0] + 1
            }
        }
    }

    /// Compares the tree with a `BTreeMap` while clones must not change. Elements without
    /// references must be dropped.
    #[test]
    fn a_tree_is_a_map_whose_clones_never_change() {
        let mut random = Random(7);
        let mut tree = Tree::default();
        let mut map = BTreeMap::new();
        let mut clones = vec![];
        for turn in 0..40_000_u64 {
            // Grows, then shrinks until it is empty.
            let element = held(random.below(3_000), turn);
            let sort_key = (element.0.clone(), element.1.clone());
            if random.below(100) < if turn < 20_000 { 70 } else { 20 } {
                assert_eq!(tree.insert(element.clone()), map.insert(sort_key, element));
            } else {
                assert_eq!(tree.remove(element.sort_key()), map.remove(&sort_key));
            }
            assert_eq!(tree.len(), map.len());
            if turn % 1_000 == 0 {
                check(&tree.root, None, None);
                clones.push((tree.clone(), map.clone()));
            }
        }
        for (tree, map) in &clones {
            assert!(tree.iter().eq(map.values()), "a clone has changed");
            for _ in 0..100 {
                let element = held(random.below(3_500), 0);
                let sort_key = (element.0.clone(), element.1.clone());
                assert_eq!(tree.get(element.sort_key()), map.get(&sort_key));
                assert!(tree.from(element.sort_key()).eq(map.range(sort_key..).map(|(_, e)| e)));
            }
        }
        drop(clones);
        for (_, element) in std::mem::take(&mut map) {
            assert_eq!(Arc::strong_count(&element), 2, "{element:?}");
            assert_eq!(tree.remove(element.sort_key()), Some(element));
        }
        assert!(
            tree.is_empty() && tree.iter().next().is_none() && check(&tree.root, None, None) == 1
        );
    }

    #[test]
    fn a_replaced_element_is_removed() {
        let elements: Vec<_> = (0..5_000).map(|key| held(key, 1)).collect();
        let mut tree: Tree<_> = elements.iter().cloned().collect();
        for key in 0..5_000 {
            tree.insert(held(key, 2));
        }
        assert!(elements.iter().all(|element| Arc::strong_count(element) == 1));
    }

    #[test]
    fn sorted_insertions_fill_the_nodes() {
        let element = |key: u64| Arc::new((String::new(), format!("{key:06}"), 0));
        let tree: Tree<_> = (0..10_000).map(element).collect();
        let mut leaves = vec![];
        let mut nodes = vec![tree.root.clone()];
        while let Some(node) = nodes.pop() {
            match &*node {
                Node::Leaf(elements) => leaves.push(elements.len()),
                Node::Branch(branch) => nodes.extend(branch.children.iter().cloned()),
            }
        }
        assert_eq!(leaves.len(), 10_000_usize.div_ceil(NODE_MAX));
    }
}
