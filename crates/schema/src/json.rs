//! JSON in and out, as Go's encoding/json and sigs.k8s.io/json read and write it.

mod check;
mod encode;
mod parse;
mod places;
mod raw;
mod texts;
mod typed;

pub use crate::json_writer::{write_string, write_utf8, write_value};
pub use check::check_object;
pub use encode::{Marks, encode, encode_list_item};
pub use parse::{DEPTH_MAX, Parsed, SyntaxError, parse};
pub use places::{item_places, place_at};
pub use raw::expanded;
pub(crate) use texts::{keep_texts, kept, kept_value};
pub use texts::{texts_of, untouched, with_texts};
pub(crate) use typed::read;
pub use typed::read_stored;
