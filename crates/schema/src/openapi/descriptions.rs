//! Descriptions of types and fields. They are embedded in compressed form and only decompressed
//! while a document is built.

use std::collections::HashMap;
use std::ops::Range;

/// Packed by the build script; `keelson-descriptions` defines the format.
pub(super) const PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptions.bin"));

/// The descriptions of the members that every object has, for documents of custom resources: these
/// need no others. Empty without the source of the texts.
#[allow(missing_docs)]
pub(super) mod standard {
    include!(concat!(env!("OUT_DIR"), "/standard.rs"));
}

/// Maximum size of the decompressed texts.
const UNPACKED_BYTES_MAX: usize = 16 << 20;

/// Size of [`PACKED`] after decompression, about.
pub(crate) const UNPACKED_BYTES: usize = 2 << 20;

/// The descriptions of all built-in types.
pub(crate) struct Descriptions {
    unpacked: String,
    /// Ranges of texts in `unpacked`.
    texts: Vec<Range<usize>>,
    /// Ranges of index lines in `unpacked`, by type name.
    types: HashMap<Box<str>, Range<usize>>,
}

impl Descriptions {
    /// Decompresses the descriptions.
    pub fn read() -> Descriptions {
        let bytes = miniz_oxide::inflate::decompress_to_vec_with_limit(PACKED, UNPACKED_BYTES_MAX);
        let unpacked = String::from_utf8(bytes.expect("the build script packed the texts"))
            .expect("the build script packed text");
        let (all, index) = unpacked.split_once('\u{2}').unwrap_or_default();
        let mut start = 0;
        let texts = all
            .split_terminator('\u{1}')
            .map(|text| {
                let place = start..start + text.len();
                start = place.end + 1;
                place
            })
            .collect();
        let mut start = all.len() + 1;
        let types = index
            .lines()
            .map(|line| {
                let (name, entries) = line.split_once(' ').unwrap_or((line, ""));
                let end = start + line.len();
                start = end + 1;
                (name.into(), end - entries.len()..end)
            })
            .collect();
        Descriptions { texts, types, unpacked }
    }

    /// Returns the description of a type.
    pub fn of_type(&self, type_name: &str) -> Option<&str> {
        self.find(type_name, "").or_else(|| match type_name.ends_with("List") {
            true => Some("A list of objects."),
            false => None,
        })
    }

    /// Returns the description of a field.
    pub fn of_member(&self, type_name: &str, member: &str) -> Option<&str> {
        if let Some(text) = self.find(type_name, member) {
            return Some(text);
        }
        // The source has no descriptions of list types; their fields are all alike.
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

    /// Returns the description of a field, or of the type if `member` is empty.
    fn find(&self, type_name: &str, member: &str) -> Option<&str> {
        let entries = &self.unpacked[self.types.get(type_name)?.clone()];
        let place =
            entries.split(' ').find_map(|entry| entry.strip_prefix(member)?.strip_prefix('='));
        let place: usize = place?.parse().ok()?;
        Some(&self.unpacked[self.texts.get(place)?.clone()])
    }
}
