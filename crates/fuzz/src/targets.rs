//! What inputs are given to, and what must hold then.

mod codecs;
mod expressions;
mod patches;
mod texts;

use std::hash::{DefaultHasher, Hash, Hasher};

/// Something that reads bytes of a stranger.
pub struct Target {
    /// As `--target` names it.
    pub name: &'static str,
    /// Inputs that a run begins with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Pieces of inputs that mean something.
    pub words: &'static [&'static [u8]],
    /// Tries an input: a number that tells answers apart, or what is wrong.
    pub attempt: fn(&[u8]) -> Result<u64, String>,
}

/// All of them.
pub static TARGETS: [Target; 9] = [
    codecs::JSON,
    codecs::YAML,
    codecs::PROTOBUF,
    codecs::CBOR,
    texts::SELECTOR,
    texts::QUANTITY,
    texts::TIME,
    patches::PATCH,
    expressions::CEL,
];

/// The target of this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Bytes of either side that are shown around a difference.
const SHOWN_BYTES: usize = 80;

/// Two texts from a little before where they begin to differ.
fn difference(one: &str, other: &str) -> String {
    let same = one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count();
    let shown = |text: &str| {
        let from = same.saturating_sub(SHOWN_BYTES).min(text.len());
        let cut = &text.as_bytes()[from..text.len().min(same + SHOWN_BYTES)];
        cut.escape_ascii().to_string()
    };
    format!("\n  {}\nbecame\n  {}", shown(one), shown(other))
}

/// A number for a text, in which digits and what stands in quotes do not count.
fn answer(text: &str) -> u64 {
    let mut hash = DefaultHasher::new();
    let plain = text.split('"').step_by(2).flat_map(str::chars);
    plain.filter(|c| c.is_alphabetic()).take(60).for_each(|c| c.hash(&mut hash));
    hash.finish()
}
