//! Warnings about overlapping paths in one volume.

use super::Warnings;
use crate::check::Field;
use keelson_meta::status::quote;
use keelson_meta::{SmallSet, Str, Value};
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// A path, and the name of its source in warnings.
type Source<'v> = (&'v str, Str);

/// Warns of overlapping paths in each volume.
pub(super) fn overlaps(volumes: &Field<'_, '_>, warnings: &mut Warnings) {
    for volume in volumes.items() {
        let name = || quote(volume.str("name"));
        for (kind, title, named) in [
            ("configMap", "ConfigMap", "name"),
            ("secret", "Secret", "secretName"),
            ("downwardAPI", "DownwardAPI", ""),
        ] {
            let source = volume.field(kind);
            let of = || match named {
                "" => title.to_owned(),
                named => format!("{title} {}", quote(source.str(named))),
            };
            let paths = paths(source.value).map(|path| (path, Str::default())).collect();
            overlap(&|| format!("volume {} ({})", name(), of()), paths, warnings);
        }
        let projected = volume.field("projected");
        let mut all: Vec<Source<'_>> = vec![];
        for source in projected.field("sources").items() {
            if source.value.as_object().is_none_or(|members| members.is_empty()) {
                warnings.add(format!("volume {} (Projected) has no sources provided", name()));
            }
            projected_paths(source.value, &mut all);
        }
        overlap(&|| format!("volume {} (Projected)", name()), all, warnings);
    }
}

fn paths(source: &Value) -> impl Iterator<Item = &str> {
    source.array_at(&["items"]).iter().filter_map(|item| item.str_at(&["path"]))
}

/// Collects the paths of one source of a projected volume.
fn projected_paths<'v>(source: &'v Value, all: &mut Vec<Source<'v>>) {
    for (kind, title) in [("configMap", "ConfigMap"), ("secret", "Secret")] {
        if let Some(of) = source.get(kind) {
            let name = of.str_at(&["name"]).unwrap_or_default();
            let title = Str::from(format!(" ({title} {})", quote(name)));
            all.extend(paths(of).map(|path| (path, title.clone())));
        }
    }
    if let Some(of) = source.get("downwardAPI") {
        all.extend(paths(of).map(|path| (path, Str::new_static(" (DownwardAPI)"))));
    }
    if let Some(path) = source.str_at(&["serviceAccountToken", "path"]) {
        all.push((path, Str::new_static(" (ServiceAccountToken)")));
    }
}

/// Warns of each pair of paths where one equals or contains the other.
fn overlap(what: &dyn Fn() -> String, sources: Vec<Source<'_>>, warnings: &mut Warnings) {
    if sources.len() < 2 {
        return;
    }
    let tree = Tree::new(&sources);
    // The sources before the current one, by the position of their path.
    let mut before: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut seen: SmallSet<(usize, &Str)> = SmallSet::new();
    for (at, (path, of)) in sources.iter().enumerate() {
        if warnings.is_full() {
            return;
        }
        let path = trimmed(path);
        let place = tree.place(path);
        for other in tree.overlapping(place, &before) {
            let (other, source) = &sources[other];
            let path = quote(path);
            let other = quote(trimmed(other));
            let what = what();
            warnings.add(format!("{what}: overlapping paths: {path}{of} with {other}{source}"));
        }
        // A source with the same path would only repeat the warnings.
        if seen.insert((place, of)) {
            before.entry(place).or_default().push(at);
        }
    }
}

fn trimmed(path: &str) -> &str {
    path.trim_end_matches('/')
}

/// Paths in an order where those inside a path directly follow it.
struct Tree<'v> {
    paths: Vec<&'v str>,
    /// The position of the innermost path that contains each path.
    parents: Vec<Option<usize>>,
    /// The position after the last path inside each path.
    ends: Vec<usize>,
}

impl<'v> Tree<'v> {
    fn new(sources: &[Source<'v>]) -> Self {
        let mut paths: Vec<&str> = sources.iter().map(|(path, _)| trimmed(path)).collect();
        paths.sort_unstable_by(|a, b| compare(a, b));
        paths.dedup();
        let mut parents = Vec::with_capacity(paths.len());
        let mut ends = vec![paths.len(); paths.len()];
        let mut open: Vec<usize> = vec![];
        for (at, path) in paths.iter().enumerate() {
            while let Some(last) = open.last().filter(|last| !lies_in(paths[**last], path)) {
                ends[*last] = at;
                open.pop();
            }
            parents.push(open.last().copied());
            open.push(at);
        }
        Tree { paths, parents, ends }
    }

    fn place(&self, path: &str) -> usize {
        self.paths.partition_point(|other| compare(other, path) == Ordering::Less)
    }

    /// Returns the earlier sources whose paths equal, contain or are inside the path at a position,
    /// in order.
    fn overlapping(&self, place: usize, before: &BTreeMap<usize, Vec<usize>>) -> Vec<usize> {
        let inside = before.range(place..self.ends[place]).flat_map(|(_, sources)| sources);
        let mut overlapping: Vec<usize> = inside.copied().collect();
        let mut outer = self.parents[place];
        while let Some(at) = outer {
            overlapping.extend(before.get(&at).into_iter().flatten());
            outer = self.parents[at];
        }
        overlapping.sort_unstable();
        overlapping
    }
}

/// Compares two paths with the slash as the smallest character.
fn compare(a: &str, b: &str) -> Ordering {
    let rank = |byte: u8| if byte == b'/' { 0 } else { u16::from(byte) + 1 };
    let unequal = a.bytes().zip(b.bytes()).find(|(a, b)| a != b);
    unequal.map_or_else(|| a.len().cmp(&b.len()), |(a, b)| rank(a).cmp(&rank(b)))
}

fn lies_in(outer: &str, inner: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reference implementation: compares each path with all before it.
    fn pairs(sources: &[Source<'_>]) -> Vec<Str> {
        let mut warnings = Warnings::default();
        for (at, (path, of)) in sources.iter().enumerate() {
            for (other, source) in &sources[..at] {
                let path = trimmed(path);
                let other = trimmed(other);
                if lies_in(path, other) || lies_in(other, path) {
                    let path = quote(path);
                    let other = quote(other);
                    warnings.add(format!("v: overlapping paths: {path}{of} with {other}{source}"));
                }
            }
        }
        warnings.texts
    }

    #[test]
    fn paths_in_each_other_are_found_in_the_order_of_pairs() {
        let words = ["", "a", "b", "a/b", "a/", "a-b", "a/b/c", "ab", "b/a", "a/b-c", "/a", "a//b"];
        for start in 0..words.len() {
            for step in [1, 5, 7, 11] {
                let sources: Vec<Source<'_>> = (0..20)
                    .map(|at| (words[(start + at * step) % words.len()], at))
                    .map(|(path, at)| (path, Str::from(format!(" ({})", at % 2))))
                    .collect();
                for count in 0..sources.len() {
                    let mut warnings = Warnings::default();
                    overlap(&|| "v".to_owned(), sources[..count].to_vec(), &mut warnings);
                    assert_eq!(warnings.texts, pairs(&sources[..count]), "{sources:?}");
                }
            }
        }
    }
}
