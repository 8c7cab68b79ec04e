//! Reads `openapi.txt`, the facts that only OpenAPI documents need. It is read for each document,
//! so that it takes no memory in between.

use std::collections::HashMap;

/// The text of the table.
pub(super) const TABLE: &str = include_str!("../../catalogue/openapi.txt");

/// The content of the table.
#[derive(Default)]
pub(super) struct Facts {
    /// The group versions that contain DeleteOptions and WatchEvent.
    pub every_version: Vec<(&'static str, &'static str)>,
    /// `GROUP/VERSION` and resource of deletes that return the object.
    deleted: Vec<(&'static str, &'static str)>,
    structs: HashMap<&'static str, StructFacts>,
}

/// The facts about one struct.
#[derive(Default)]
pub(super) struct StructFacts {
    /// Whether `type` is omitted.
    pub no_type: bool,
    /// `x-kubernetes-unions` as JSON.
    pub unions: Option<&'static str>,
    members: Vec<(&'static str, MemberFacts)>,
}

/// The facts about one field.
#[derive(Clone, Copy, Default)]
pub(super) struct MemberFacts {
    /// Whether the field is a bare `$ref`.
    pub bare: bool,
    /// Whether the list type is omitted.
    pub unstated: bool,
    /// `x-kubernetes-map-type: granular`.
    pub granular: bool,
    /// `x-kubernetes-list-type` of a field that is not a list.
    pub list_type: Option<&'static str>,
    /// `x-kubernetes-patch-strategy` of a field that is not a list.
    pub patch: Option<&'static str>,
    /// Enum values of the items, separated by `|`, with `+` for a space.
    pub item_enumeration: Option<&'static str>,
    /// The default as JSON.
    pub default: Option<&'static str>,
    /// Whether the implied default is omitted.
    pub no_default: bool,
}

impl Facts {
    /// Reads the table. Its format is guaranteed by the generator, so errors panic.
    pub fn read() -> Facts {
        let mut out = Facts::default();
        let mut current = "";
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let mut words = line.split_ascii_whitespace();
            let first = words.next().unwrap_or_default();
            if line.starts_with(' ') {
                let of = out.structs.get_mut(current).expect("a member stands below a struct");
                of.members.push((first, member(words)));
                continue;
            }
            match first {
                "everywhere" => {
                    out.every_version = words.filter_map(|w| w.split_once('/')).collect()
                }
                "deleted" => {
                    let group_version = words.next().unwrap_or_default();
                    out.deleted.extend(words.map(|resource| (group_version, resource)));
                }
                "struct" => {
                    current = words.next().unwrap_or_default();
                    out.structs.insert(current, head(words));
                }
                other => panic!("openapi.txt: {other:?}"),
            }
        }
        out
    }

    /// Whether a delete of this resource returns the object instead of a Status.
    pub fn answers_deleted(&self, group: &str, version: &str, resource: &str) -> bool {
        self.deleted
            .iter()
            .any(|(at, name)| *name == resource && at.split_once('/') == Some((group, version)))
    }

    /// Returns the facts about a struct.
    pub fn of(&self, name: &str) -> Option<&StructFacts> {
        self.structs.get(name)
    }
}

impl StructFacts {
    /// Returns the facts about a field.
    pub fn member(&self, name: &str) -> MemberFacts {
        let found = self.members.iter().find(|(member, _)| *member == name);
        found.map(|(_, facts)| *facts).unwrap_or_default()
    }
}

fn head(words: impl Iterator<Item = &'static str>) -> StructFacts {
    let mut out = StructFacts::default();
    for word in words {
        match word.split_once('=') {
            None if word == "notype" => out.no_type = true,
            Some(("unions", json)) => out.unions = Some(json),
            _ => panic!("openapi.txt: {word:?} of a struct"),
        }
    }
    out
}

fn member(words: impl Iterator<Item = &'static str>) -> MemberFacts {
    let mut out = MemberFacts::default();
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("bare", _) => out.bare = true,
            ("unstated", _) => out.unstated = true,
            ("granular", _) => out.granular = true,
            ("nodefault", _) => out.no_default = true,
            ("listtype", kind) => out.list_type = Some(kind),
            ("patch", strategy) => out.patch = Some(strategy),
            ("itemenum", values) => out.item_enumeration = Some(values),
            ("default", json) => out.default = Some(json),
            (other, _) => panic!("openapi.txt: {other:?} of a member"),
        }
    }
    out
}
