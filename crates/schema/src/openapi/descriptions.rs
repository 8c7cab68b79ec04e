//! Texts that describe types and members. They are part of the program in packed form and unpacked
//! only while a document is built.

use std::collections::HashMap;
use std::ops::Range;

/// Packed by the build script; the crate `keelson-descriptions` says how.
pub(super) const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.bin"));

/// Unpacked texts are smaller than this; it bounds what a fault of ours may cost.
const UNPACKED_BYTES_MAX: usize = 16 << 20;

/// The texts of all built-in types.
pub(super) struct Descriptions {
    unpacked: String,
    /// Places of texts in `unpacked`.
    texts: Vec<Range<usize>>,
    /// Places of lines of the index in `unpacked`, by name of the type.
    types: HashMap<Box<str>, Range<usize>>,
}

impl Descriptions {
    /// Unpacks the texts.
    pub fn read() -> Descriptions {
        let bytes = miniz_oxide::inflate::decompress_to_vec_with_limit(PACKED, UNPACKED_BYTES_MAX);
        let unpacked = String::from_utf8(bytes.expect("the build script packed the texts"))
            .expect("the build script packed text");
        let (all, index) = unpacked.split_once('\u{2}').unwrap_or_default();
        let mut start = 0;
        let texts = all.split_terminator('\u{1}').map(|text| {
            let place = start..start + text.len();
            start = place.end + 1;
            place
        });
        let texts = texts.collect();
        let mut start = all.len() + 1;
        let types = index.lines().map(|line| {
            let (name, entries) = line.split_once(' ').unwrap_or((line, ""));
            let end = start + line.len();
            start = end + 1;
            (name.into(), end - entries.len()..end)
        });
        let types = types.collect();
        Descriptions { texts, types, unpacked }
    }

    /// What a type is.
    pub fn of_type(&self, type_name: &str) -> Option<&str> {
        self.find(type_name, "").or_else(|| match type_name.ends_with("List") {
            true => Some("A list of objects."),
            false => None,
        })
    }

    /// What a member is.
    pub fn of_member(&self, type_name: &str, member: &str) -> Option<&str> {
        if let Some(text) = self.find(type_name, member) {
            return Some(text);
        }
        // Lists are not among the texts; their members are all alike.
        match member {
            "object" if type_name.ends_with(".WatchEvent") => {
                Some("The object after the change; a Status when the type is ERROR.")
            }
            "apiVersion" | "kind" => self.find("io.k8s.api.core.v1.Pod", member),
            "items" if type_name.ends_with("List") => Some("The objects of the list."),
            "metadata" if type_name.ends_with("List") => Some("What is said of the list itself."),
            _ => None,
        }
    }

    /// The text of a member; that of the type when the member is empty.
    fn find(&self, type_name: &str, member: &str) -> Option<&str> {
        let entries = &self.unpacked[self.types.get(type_name)?.clone()];
        let place =
            entries.split(' ').find_map(|entry| entry.strip_prefix(member)?.strip_prefix('='));
        let place: usize = place?.parse().ok()?;
        Some(&self.unpacked[self.texts.get(place)?.clone()])
    }
}
