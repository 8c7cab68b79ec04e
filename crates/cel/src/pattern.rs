//! [`Pattern`]: a regular expression with the meaning and the limits that it has in Go.
//!
//! It is checked when it is made and compiled on its first use. Matching takes time in proportion
//! to text and pattern at most; the work is counted, and ends with the evaluation.

mod automaton;

use crate::meter;
use crate::value::EvalError;
use automaton::Automaton;
use keelson_meta::go_regex::{self, Translated};
use regex::{Regex, RegexBuilder};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Maximum size of a pattern that the crate `regex` compiles. Larger ones are matched by an
/// [`Automaton`], which takes less memory and more time.
const REGEX_BYTES_MAX: usize = 1 << 20;

/// About how much memory a state of a compiled pattern takes.
const STATE_BYTES: u64 = 64;

/// Work of compiling a state.
const STATE_WORK: u64 = 200;

/// Maximum product of states and bytes of text that the crate `regex` may have to try: it cannot be
/// interrupted.
const REGEX_STEPS_MAX: u64 = 1 << 24;

/// Maximum memory of all compiled patterns that are kept in expressions. What does not fit is
/// compiled at each use.
const KEPT_BYTES_MAX: u64 = 128 << 20;

/// Go's maximum number of characters that the classes of a pattern name.
const CLASS_CHARS_MAX: u64 = (128 << 20) / 4;

/// Maximum number of patterns of an evaluation that are kept until its end.
const EVALUATION_PATTERNS_MAX: usize = 16;

static KEPT_BYTES: AtomicU64 = AtomicU64::new(0);

/// A regular expression.
#[derive(Debug)]
pub(crate) struct Pattern {
    translated: Translated,
    engines: Engines,
}

/// A pattern as compiled for short and for long texts, if it was used with such.
#[derive(Debug, Default)]
struct Engines {
    /// `None`: it is too large.
    regex: OnceLock<Option<Kept<Regex>>>,
    automaton: OnceLock<Kept<Automaton>>,
}

/// A compiled pattern that is kept in an expression.
#[derive(Debug)]
struct Kept<T> {
    compiled: T,
    _reserved: Reserved,
}

/// Bytes that are counted in [`KEPT_BYTES`].
#[derive(Debug)]
struct Reserved(u64);

impl Reserved {
    fn new(bytes: u64) -> Option<Reserved> {
        let before = KEPT_BYTES.fetch_add(bytes, Ordering::Relaxed);
        let reserved = Reserved(bytes);
        (before.saturating_add(bytes) <= KEPT_BYTES_MAX).then_some(reserved)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        KEPT_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

impl Pattern {
    /// Checks a pattern. Returns Go's error message.
    pub(crate) fn new(text: &str) -> Result<Pattern, String> {
        Patterns::default().check(text)
    }

    /// Whether the text contains a match.
    pub(crate) fn is_match(&self, text: &str) -> Result<bool, EvalError> {
        meter::work(text.len() as u64)?;
        if let Some(regex) = self.kept_regex(text) {
            return Ok(regex.is_match(text));
        }
        self.with_engine(text, |engine| match engine {
            Engine::Regex(regex) => Ok(regex.is_match(text)),
            Engine::Automaton(automaton) => Ok(automaton.find(text, 0, true)?.is_some()),
        })
    }

    /// Returns the first match at or after an offset.
    pub(crate) fn find_at(
        &self,
        text: &str,
        from: usize,
    ) -> Result<Option<Range<usize>>, EvalError> {
        self.with_engine(text, |engine| match engine {
            Engine::Regex(regex) => {
                let found = regex.find_at(text, from).map(|found| found.range());
                let end = found.as_ref().map_or(text.len(), |found| found.end);
                meter::work((end - from) as u64)?;
                Ok(found)
            }
            Engine::Automaton(automaton) => automaton.find(text, from, false),
        })
    }

    /// Returns the compiled pattern if it is kept and fits a text; the most common case.
    #[inline]
    fn kept_regex(&self, text: &str) -> Option<&Regex> {
        let is_short = self.translated.states.saturating_mul(text.len() as u64) <= REGEX_STEPS_MAX;
        let kept = self.engines.regex.get().filter(|_| is_short)?;
        kept.as_ref().map(|kept| &kept.compiled)
    }

    fn with_engine<T>(
        &self,
        text: &str,
        search: impl FnOnce(Engine<'_>) -> Result<T, EvalError>,
    ) -> Result<T, EvalError> {
        let states = self.translated.states;
        let bytes = states.saturating_mul(STATE_BYTES);
        if let Some(regex) = self.kept_regex(text) {
            return search(Engine::Regex(regex));
        }
        if let Some(kept) = self.engines.automaton.get() {
            return search(Engine::Automaton(&kept.compiled));
        }
        let is_large = matches!(self.engines.regex.get(), Some(None));
        let fits = states.saturating_mul(text.len() as u64) <= REGEX_STEPS_MAX;
        if fits && !is_large && bytes <= REGEX_BYTES_MAX as u64 {
            meter::work(states.saturating_mul(STATE_WORK))?;
            match self.build_regex() {
                None => drop(self.engines.regex.set(None)),
                Some(regex) => {
                    let Some(_reserved) = Reserved::new(bytes) else {
                        return search(Engine::Regex(&regex));
                    };
                    let kept = Some(Kept { compiled: regex, _reserved });
                    let kept = self.engines.regex.get_or_init(|| kept).as_ref();
                    let Some(kept) = kept else { return Err(EvalError::exhausted()) };
                    return search(Engine::Regex(&kept.compiled));
                }
            }
        }
        let automaton = Automaton::new(&self.translated)?;
        let Some(_reserved) = Reserved::new(automaton.bytes()) else {
            return search(Engine::Automaton(&automaton));
        };
        let kept = Kept { compiled: automaton, _reserved };
        search(Engine::Automaton(&self.engines.automaton.get_or_init(|| kept).compiled))
    }

    /// Returns `None` for a pattern that is too large.
    fn build_regex(&self) -> Option<Regex> {
        let depth = u32::try_from(self.translated.depth).unwrap_or(u32::MAX);
        let build = || {
            RegexBuilder::new(&self.translated.text)
                .size_limit(REGEX_BYTES_MAX)
                .dfa_size_limit(REGEX_BYTES_MAX)
                .nest_limit(automaton::nest_limit(depth))
                .build()
                .ok()
        };
        automaton::on_large_stack(depth, build)
    }
}

/// A pattern that is ready to search a text.
enum Engine<'p> {
    Regex(&'p Regex),
    Automaton(&'p Automaton),
}

/// The patterns of an expression, each of which is made once.
#[derive(Debug, Default)]
pub(crate) struct Patterns {
    made: HashMap<String, Arc<Pattern>>,
    /// Unicode properties without spaces, dashes and underscores, and how many characters name the
    /// ranges of each. `None`: there is no such property.
    properties: HashMap<String, Option<u64>>,
}

impl Patterns {
    /// Returns the pattern, or Go's error message.
    pub(crate) fn get(&mut self, text: &str) -> Result<Arc<Pattern>, String> {
        if let Some(known) = self.made.get(text) {
            return Ok(known.clone());
        }
        let pattern = Arc::new(self.check(text)?);
        self.made.insert(text.to_owned(), pattern.clone());
        Ok(pattern)
    }

    fn check(&mut self, text: &str) -> Result<Pattern, String> {
        let fault = |why: String| format!("error parsing regexp: {why}");
        let translated = go_regex::translate(text).map_err(fault)?;
        let mut chars = translated.ranges.saturating_mul(2);
        for at in &translated.properties {
            let property = &text[at.clone()];
            let Some(count) = self.property(property) else {
                return Err(fault(format!("invalid character class range: `{property}`")));
            };
            chars = chars.saturating_add(count);
        }
        if chars > CLASS_CHARS_MAX {
            return Err(fault(format!("expression too large: `{text}`")));
        }
        Ok(Pattern { translated, engines: Engines::default() })
    }

    fn property(&mut self, text: &str) -> Option<u64> {
        let plain: String = text.chars().filter(|c| !" -_".contains(*c)).collect();
        *self.properties.entry(plain).or_insert_with(|| automaton::property_chars(text))
    }
}

thread_local! {
    /// The patterns that the current evaluation has computed.
    static COMPUTED: RefCell<Vec<(String, Arc<Pattern>)>> = const { RefCell::new(vec![]) };
}

/// Returns a pattern that an evaluation has computed, or Go's error message.
pub(crate) fn computed(text: &str) -> Result<Arc<Pattern>, String> {
    COMPUTED.with_borrow_mut(|patterns| {
        if let Some((_, pattern)) = patterns.iter().find(|(known, _)| known == text) {
            return Ok(pattern.clone());
        }
        let pattern = Arc::new(Pattern::new(text)?);
        if patterns.len() >= EVALUATION_PATTERNS_MAX {
            patterns.remove(0);
        }
        meter::remember();
        patterns.push((text.to_owned(), pattern.clone()));
        Ok(pattern)
    })
}

/// Forgets the patterns that an evaluation has computed.
pub(crate) fn forget() {
    COMPUTED.take();
}

#[cfg(test)]
mod tests;
