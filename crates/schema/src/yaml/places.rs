//! Where the members of a document stand in its text, for messages with line and column.

use super::document::{Document, NodeKind};
use super::input::Input;
use super::scanner::Spot;
use super::{ParsedYaml, TEXT_BYTES_MAX, YamlError, construct};
use keelson_meta::Str;

/// Maximum number of merged maps that a search looks into.
const MERGED_MAPS_MAX: usize = 1_000;

/// A place in a text. Lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The line.
    pub line: u32,
    /// The column.
    pub column: u32,
}

/// The places of the nodes of a document. Aliases are not expanded, so that this takes memory in
/// proportion to the text.
#[derive(Clone, Debug, Default)]
pub struct Places {
    nodes: Vec<PlacedNode>,
}

#[derive(Clone, Debug)]
struct PlacedNode {
    kind: PlacedKind,
    spot: Spot,
}

/// Like [`NodeKind`]; only scalars that are keys keep their text.
#[derive(Clone, Debug)]
enum PlacedKind {
    Scalar,
    Key(Str),
    Alias(u32),
    Sequence(u32),
    Mapping(u32),
}

/// What a search has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The place of the key of a member, or of an item of a list.
    pub place: Place,
    /// Whether the whole path was found. Otherwise the place is that of the deepest part that was.
    pub is_whole: bool,
}

/// Parses the first document of a text, like [`super::parse`], with the places of its members. JSON
/// is read as YAML.
pub fn parse_with_places(text: impl AsRef<[u8]>) -> Result<(ParsedYaml, Places), YamlError> {
    let bytes = text.as_ref();
    if bytes.len() > TEXT_BYTES_MAX {
        return Err(YamlError::Length);
    }
    let input = Input::new(bytes);
    let document = Document::read(&input)?;
    Ok((construct::construct(&document)?, Places::of(&document)))
}

impl Places {
    fn of(document: &Document<'_>) -> Places {
        let mut nodes: Vec<PlacedNode> = document
            .nodes
            .iter()
            .map(|node| PlacedNode {
                kind: match node.kind {
                    NodeKind::Scalar { .. } => PlacedKind::Scalar,
                    NodeKind::Alias { target, .. } => PlacedKind::Alias(target),
                    NodeKind::Sequence { end } => PlacedKind::Sequence(end),
                    NodeKind::Mapping { end } => PlacedKind::Mapping(end),
                },
                spot: node.spot,
            })
            .collect();
        for (at, node) in document.nodes.iter().enumerate() {
            let NodeKind::Mapping { end } = node.kind else { continue };
            let mut key = at + 1;
            while key < end as usize {
                if let NodeKind::Scalar { text, .. } = document.nodes[key].kind {
                    nodes[key].kind = PlacedKind::Key(Str::new(document.text(text)));
                }
                key = document.after(document.after(key));
            }
        }
        Places { nodes }
    }

    /// Returns where the document begins.
    pub fn root(&self) -> Place {
        self.nodes.first().map_or(Place { line: 1, column: 1 }, |node| place(node.spot))
    }

    /// Finds a field by its path as error messages have it: `spec.containers[0].image`,
    /// `data[tls.key]`, `metadata.annotations[a.example.com/b]`. A list may also be followed by
    /// something else than an index; the list is what is found then.
    pub fn find(&self, path: &str) -> Found {
        let mut rest = path;
        let mut found = self.root();
        let mut at = 0;
        let mut maps_left = MERGED_MAPS_MAX;
        while !rest.is_empty() {
            at = self.resolved(at);
            let step = match self.nodes.get(at).map(|node| &node.kind) {
                Some(PlacedKind::Mapping(_)) => self.member(at, rest, &mut maps_left),
                Some(PlacedKind::Sequence(end)) => self.item(at, *end as usize, rest),
                _ => None,
            };
            let Some(Step { shown, value, rest: after }) = step else {
                return Found { place: found, is_whole: false };
            };
            found = place(self.nodes[shown].spot);
            at = value;
            rest = after;
        }
        Found { place: found, is_whole: true }
    }

    /// Follows aliases. An alias stands after its target, so this ends.
    fn resolved(&self, mut at: usize) -> usize {
        while let Some(PlacedKind::Alias(target)) = self.nodes.get(at).map(|node| &node.kind) {
            at = *target as usize;
        }
        at
    }

    fn after(&self, at: usize) -> usize {
        match self.nodes.get(at).map(|node| &node.kind) {
            Some(PlacedKind::Sequence(end) | PlacedKind::Mapping(end)) => *end as usize,
            _ => at + 1,
        }
    }

    /// Finds the member of a map with which a path begins: the one with the longest key, because
    /// keys may have dots. `maps_left` is the number of merged maps that may still be looked into.
    fn member<'p>(&self, mapping: usize, path: &'p str, maps_left: &mut usize) -> Option<Step<'p>> {
        let end = self.after(mapping);
        let mut best: Option<Step<'p>> = None;
        let mut merged = vec![];
        let mut key = mapping + 1;
        while key < end {
            let value = self.after(key);
            if let PlacedKind::Key(name) = &self.nodes[key].kind {
                if let Some(rest) = after_key(path, name)
                    // The last of several equal keys is the one that counts.
                    && best.as_ref().is_none_or(|best| rest.len() <= best.rest.len())
                {
                    best = Some(Step { shown: key, value, rest });
                }
                if name == "<<" {
                    merged.push(value);
                }
            }
            key = self.after(value);
        }
        if best.is_some() {
            return best;
        }
        merged.into_iter().find_map(|value| self.merged_member(value, path, maps_left))
    }

    /// Finds a member in what is merged into a map: a map, or a list of maps.
    fn merged_member<'p>(
        &self,
        value: usize,
        path: &'p str,
        maps_left: &mut usize,
    ) -> Option<Step<'p>> {
        *maps_left = maps_left.checked_sub(1)?;
        let value = self.resolved(value);
        match self.nodes.get(value)?.kind {
            PlacedKind::Mapping(_) => self.member(value, path, maps_left),
            PlacedKind::Sequence(end) => {
                let mut item = value + 1;
                while item < end as usize {
                    if let Some(step) = self.merged_member(item, path, maps_left) {
                        return Some(step);
                    }
                    item = self.after(item);
                }
                None
            }
            _ => None,
        }
    }

    fn item<'p>(&self, sequence: usize, end: usize, path: &'p str) -> Option<Step<'p>> {
        let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
        let index: usize = index.parse().ok()?;
        let mut item = sequence + 1;
        for _ in 0..index {
            if item >= end {
                return None;
            }
            item = self.after(item);
        }
        (item < end).then_some(Step { shown: item, value: item, rest })
    }
}

/// A step of a search.
struct Step<'p> {
    /// The node whose place is shown.
    shown: usize,
    value: usize,
    rest: &'p str,
}

/// Returns what follows a key at the beginning of a path.
fn after_key<'p>(path: &'p str, key: &str) -> Option<&'p str> {
    if let Some(rest) = path.strip_prefix('[').and_then(|path| path.strip_prefix(key)) {
        return rest.strip_prefix(']');
    }
    let rest = path.strip_prefix('.').unwrap_or(path).strip_prefix(key)?;
    (rest.is_empty() || rest.starts_with(['.', '['])).then_some(rest)
}

fn place(spot: Spot) -> Place {
    Place { line: spot.line.saturating_add(1), column: spot.column.saturating_add(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# A comment.
kind: A
spec:
  items:
  - name: one
    a.b: {c: 1}
    a:
      b: 2
  - {name: two, 'q': [1, 2]}
base: &base
  x: 1
derived:
  <<: *base
  y: 2
same: *base
ü: {ä: 1}
";

    fn check(path: &str, line: u32, column: u32, is_whole: bool) {
        let (parsed, places) = parse_with_places(TEXT).expect("the text is YAML");
        assert!(parsed.duplicates.is_empty());
        let want = Found { place: Place { line, column }, is_whole };
        assert_eq!(places.find(path), want, "{path}");
    }

    #[test]
    fn a_field_is_found_by_its_path() {
        check("", 2, 1, true);
        check("kind", 2, 1, true);
        check("spec", 3, 1, true);
        check("spec.items[0]", 5, 5, true);
        check("spec.items[0].name", 5, 5, true);
        check("spec.items[1]", 9, 5, true);
        check("spec.items[1].name", 9, 6, true);
        check("spec.items[1].q[1]", 9, 26, true);
        check("ü.ä", 16, 5, true);
        check("[ü][ä]", 16, 5, true);
    }

    #[test]
    fn the_longest_key_wins() {
        check("spec.items[0].a.b.c", 6, 11, true);
        check("spec.items[0].a.b", 6, 5, true);
        check("spec.items[0][a][b]", 8, 7, true);
    }

    #[test]
    fn aliases_and_merges_lead_to_what_they_stand_for() {
        check("derived.x", 11, 3, true);
        check("derived.y", 14, 3, true);
        check("same.x", 11, 3, true);
    }

    #[test]
    fn a_path_that_is_not_there_ends_at_its_deepest_part() {
        check("spec.items[2]", 4, 3, false);
        check("spec.items[0].image", 5, 5, false);
        check("spec.items[name]", 4, 3, false);
        check("status.phase", 2, 1, false);
        check("kind.x", 2, 1, false);
    }

    #[test]
    fn json_has_places_too() {
        let (parsed, places) =
            parse_with_places("{\n  \"a\": [\n    {\"b\": 1}]}").expect("JSON is YAML");
        assert_eq!(parsed.value.array_at(&["a"]).len(), 1);
        assert_eq!(places.find("a[0].b").place, Place { line: 3, column: 6 });
    }

    #[test]
    fn merges_that_refer_to_each_other_many_times_end() {
        let mut text = "m0: &m0 {z: 1}\n".to_owned();
        for i in 1..60 {
            let last = i - 1;
            text.push_str(&format!("m{i}: &m{i} {{<<: [*m{last}, *m{last}]}}\n"));
        }
        // Their value would be too large.
        let input = Input::new(text.as_bytes());
        let places = Places::of(&Document::read(&input).expect("the text is YAML"));
        assert!(places.find("m59.z").is_whole);
        assert!(!places.find("m59.none").is_whole);
    }
}
