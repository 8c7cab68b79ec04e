//! Descriptions of types and fields. They are embedded in compressed form and only decompressed
//! while a document is built.

use std::borrow::Cow;
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
    pub fn of_member(&self, type_name: &str, member: &str) -> Option<Cow<'_, str>> {
        if let Some(text) = self.find(type_name, member) {
            return Some(text.into());
        }
        // The source has no descriptions of list types; their fields are all alike.
        match member {
            "object" if type_name.ends_with(".WatchEvent") => {
                Some("The object after the change; a Status when the type is ERROR.".into())
            }
            "apiVersion" | "kind" => self.find("io.k8s.api.core.v1.Pod", member).map(Cow::from),
            "metadata" if type_name.ends_with("List") => {
                Some("What is said of the list itself.".into())
            }
            "items" => {
                let kind = type_name.rsplit('.').next()?.strip_suffix("List")?;
                Some(format!("List of {}", plural(kind)).into())
            }
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

/// Returns a kind as words, in the plural: `network policies` for `NetworkPolicy`. Letters of an
/// abbreviation stay large.
fn plural(kind: &str) -> String {
    let letters: Vec<char> = kind.chars().collect();
    let mut words = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let next_is_small = letters.get(at + 1).is_some_and(|next| next.is_lowercase());
        let after_small = at > 0 && letters[at - 1].is_lowercase();
        if at > 0 && letter.is_uppercase() && (next_is_small || after_small) {
            words.push(' ');
        }
        let begins_word = letter.is_uppercase() && next_is_small;
        words.push(if begins_word { letter.to_ascii_lowercase() } else { *letter });
    }
    if let Some(stem) = words.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o'])) {
        return format!("{stem}ies");
    }
    match words.as_str() {
        "endpoints" => words,
        _ if words.ends_with('s') => words + "es",
        _ => words + "s",
    }
}

#[cfg(test)]
mod tests {
    use super::plural;

    #[test]
    fn kinds_are_named_in_the_plural() {
        for (kind, expected) in [
            ("Service", "services"),
            ("NetworkPolicy", "network policies"),
            ("CSIDriver", "CSI drivers"),
            ("IPAddress", "IP addresses"),
            ("Endpoints", "endpoints"),
            ("StorageClass", "storage classes"),
            ("ReplicationController", "replication controllers"),
        ] {
            assert_eq!(plural(kind), expected);
        }
    }
}
