//! JSON decoding and encoding, compatible with Go's encoding/json and sigs.k8s.io/json.

mod check;
mod duplicates;
mod encode;
mod parse;
mod ranges;
mod raw;
mod raw_extension;
mod typed;

pub use crate::json_writer::{write_string, write_utf8, write_value};
pub use check::check_object;
pub(crate) use duplicates::Tree;
pub use encode::{EncodedOffsets, encode, encode_list_item};
pub use parse::{DEPTH_MAX, Parsed, SyntaxError, overflow_error};
pub use ranges::{item_ranges, value_range};
pub use raw::parse_raw;
pub use raw_extension::{keep_unchanged_raw, raw_texts, restore_raw_texts};
pub(crate) use raw_extension::{raw_from_text, raw_from_value, restore_raw_from_body};
pub(crate) use typed::read;
pub use typed::read_stored;

/// Parses a whole text.
pub fn parse(text: &[u8]) -> Result<Parsed, SyntaxError> {
    let mut parsed = parse::parse(text)?;
    if !parsed.duplicates.is_empty() {
        // The parser finds duplicates at the end of a map, Go where they stand.
        parsed.duplicates = Tree::parse(text)?.duplicate_paths();
    }
    Ok(parsed)
}
