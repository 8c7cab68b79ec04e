//! The targets: code that reads bytes of clients, and the properties that must hold for every
//! input.

mod codecs;
mod expressions;
mod hostile;
mod patches;
mod streams;
mod texts;

use std::hash::{DefaultHasher, Hash, Hasher};

/// A target of the fuzzer.
pub struct Target {
    /// The name for `--target`.
    pub name: &'static str,
    /// Returns the first inputs of a run.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Tokens of the input format, which mutations insert.
    pub dictionary: &'static [&'static [u8]],
    /// Runs an input. Returns a hash that distinguishes outcomes, or the message of a fault.
    pub attempt: fn(&[u8]) -> Result<u64, String>,
}

/// All targets.
pub static TARGETS: [Target; 12] = [
    codecs::JSON,
    codecs::YAML,
    codecs::PROTOBUF,
    codecs::CBOR,
    texts::SELECTOR,
    texts::QUANTITY,
    texts::TIME,
    patches::PATCH,
    expressions::CEL,
    hostile::HOSTILE,
    streams::SPDY,
    streams::CHANNELS,
];

/// Returns the target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// How many bytes before and after the start of a difference are printed.
const CONTEXT_BYTES: usize = 80;

/// Formats two texts around the position where they start to differ.
fn difference(before: &str, after: &str) -> String {
    let same = before.bytes().zip(after.bytes()).take_while(|(a, b)| a == b).count();
    let excerpt = |text: &str| {
        let start = same.saturating_sub(CONTEXT_BYTES).min(text.len());
        let bytes = &text.as_bytes()[start..text.len().min(same + CONTEXT_BYTES)];
        bytes.escape_ascii().to_string()
    };
    format!("\n  {}\nbecame\n  {}", excerpt(before), excerpt(after))
}

/// Returns the hash of a message. Ignores all but letters, and quoted parts.
fn hash_outcome(text: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    let unquoted = text.split('"').step_by(2).flat_map(str::chars);
    unquoted.filter(|c| c.is_alphabetic()).take(60).for_each(|c| c.hash(&mut hash));
    hash.finish()
}
