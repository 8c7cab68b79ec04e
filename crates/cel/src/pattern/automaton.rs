//! [`Automaton`]: a pattern that reads characters, for patterns and texts that are too large for
//! the crate `regex`. A class is one instruction, whatever it contains, and a search counts its
//! work.

use crate::meter;
use crate::value::EvalError;
use keelson_meta::go_regex::Translated;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, ClassUnicode, Hir, HirKind, Look, Repetition};
use std::collections::HashMap;
use std::ops::Range;

/// Work of an instruction for one character.
const STEP_WORK: u64 = 10;

/// Memory of an instruction in the automaton and in a search.
const INSTRUCTION_BYTES: usize = size_of::<Instruction>() + 4 * size_of::<u32>();

/// About how much memory a Unicode class takes while a pattern is parsed.
const PROPERTY_BYTES: usize = 6 << 10;

/// Patterns of at most this depth are compiled on the stack of the caller.
const SMALL_DEPTH_MAX: u32 = 20;

/// Stack for compiling a deep pattern.
const LARGE_STACK_BYTES: usize = 16 << 20;

#[derive(Clone, Copy, Debug)]
enum Instruction {
    Char(char, u32),
    /// A class, by its index.
    Class(u32, u32),
    Look(Look, u32),
    /// Both; the first is preferred.
    Split(u32, u32),
    Match,
}

/// A compiled pattern.
#[derive(Debug)]
pub(super) struct Automaton {
    instructions: Vec<Instruction>,
    classes: Vec<ClassUnicode>,
    start: u32,
}

/// Calls `f` with a stack that suffices for a pattern of this depth.
pub(super) fn on_large_stack<T>(depth: u32, f: impl FnOnce() -> T) -> T {
    match depth <= SMALL_DEPTH_MAX {
        true => f(),
        false => stacker::grow(LARGE_STACK_BYTES, f),
    }
}

/// Returns the nesting limit of the parser for a pattern of this depth, which Go's limit bounds.
pub(super) fn nest_limit(depth: u32) -> u32 {
    depth.saturating_mul(3).saturating_add(100)
}

/// Returns how many characters name the ranges of a Unicode property; `None`: there is none.
pub(super) fn property_chars(text: &str) -> Option<u64> {
    match regex_syntax::parse(text).ok()?.kind() {
        HirKind::Class(Class::Unicode(class)) => Some(class.ranges().len() as u64 * 2),
        _ => Some(2),
    }
}

impl Automaton {
    /// Compiles a pattern and counts its memory.
    pub(super) fn new(translated: &Translated) -> Result<Automaton, EvalError> {
        let classes = translated.properties.len().saturating_mul(PROPERTY_BYTES);
        meter::make(classes.saturating_add(translated.text.len()))?;
        let depth = u32::try_from(translated.depth).unwrap_or(u32::MAX);
        on_large_stack(depth, || {
            let mut parser = ParserBuilder::new().nest_limit(nest_limit(depth)).build();
            let hir = parser.parse(&translated.text).map_err(|_| EvalError::exhausted())?;
            let mut compiler = Compiler::default();
            let end = compiler.add(Instruction::Match)?;
            let start = compiler.compile(&hir, end)?;
            let Compiler { instructions, classes, .. } = compiler;
            Ok(Automaton { instructions, classes, start })
        })
    }

    /// Returns about how much memory it takes.
    pub(super) fn bytes(&self) -> u64 {
        let ranges: usize = self.classes.iter().map(|class| class.ranges().len()).sum();
        let classes = ranges * size_of::<(char, char)>();
        (self.instructions.len() * INSTRUCTION_BYTES + classes) as u64
    }

    /// Returns the leftmost match at or after an offset; the first alternative wins. `any`: any
    /// match will do.
    pub(super) fn find(
        &self,
        text: &str,
        from: usize,
        any: bool,
    ) -> Result<Option<Range<usize>>, EvalError> {
        let bytes = self.instructions.len() * INSTRUCTION_BYTES;
        if bytes as u64 > meter::bytes_left() {
            return Err(EvalError::exhausted());
        }
        meter::work(self.instructions.len() as u64)?;
        let mut threads = Threads::new(self.instructions.len());
        let mut later = Threads::new(self.instructions.len());
        let mut found: Option<Range<usize>> = None;
        let mut place = Place::at(text, from);
        loop {
            if found.is_none() {
                self.enter(&mut threads, self.start, place.offset, &place);
            }
            if threads.list.is_empty() && found.is_some() {
                return Ok(found);
            }
            meter::work(STEP_WORK * (threads.list.len() as u64 + 1))?;
            let after = place.following(text);
            for (pc, start) in threads.list.drain(..) {
                match (self.instructions[pc as usize], place.next) {
                    (Instruction::Match, _) => {
                        found = Some(start..place.offset);
                        // The threads that follow are less preferred.
                        break;
                    }
                    (Instruction::Char(wanted, to), Some(c)) if wanted == c => {
                        self.enter(&mut later, to, start, &after);
                    }
                    (Instruction::Class(class, to), Some(c)) if self.has(class, c) => {
                        self.enter(&mut later, to, start, &after);
                    }
                    _ => {}
                }
            }
            if place.next.is_none() || any && found.is_some() {
                return Ok(found);
            }
            threads.clear();
            std::mem::swap(&mut threads, &mut later);
            place = after;
        }
    }

    fn has(&self, class: u32, c: char) -> bool {
        let ranges = self.classes[class as usize].ranges();
        let at = ranges.partition_point(|range| range.end() < c);
        ranges.get(at).is_some_and(|range| range.start() <= c)
    }

    /// Adds a thread, and those that it splits into, in order of preference.
    fn enter(&self, threads: &mut Threads, pc: u32, start: usize, place: &Place) {
        threads.stack.push(pc);
        while let Some(pc) = threads.stack.pop() {
            if !threads.is_new(pc) {
                continue;
            }
            match self.instructions[pc as usize] {
                Instruction::Split(first, second) => threads.stack.extend([second, first]),
                Instruction::Look(look, to) if place.fits(look) => threads.stack.push(to),
                Instruction::Look(..) => {}
                _ => threads.list.push((pc, start)),
            }
        }
    }
}

/// A place in a text, and the characters around it.
#[derive(Clone, Copy)]
struct Place {
    offset: usize,
    previous: Option<char>,
    next: Option<char>,
}

impl Place {
    fn at(text: &str, offset: usize) -> Place {
        let (before, after) = text.split_at(offset);
        Place { offset, previous: before.chars().next_back(), next: after.chars().next() }
    }

    fn following(&self, text: &str) -> Place {
        let offset = self.offset + self.next.map_or(0, char::len_utf8);
        Place { offset, previous: self.next, next: text[offset..].chars().next() }
    }

    fn fits(&self, look: Look) -> bool {
        let ascii = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        let word = |c: Option<char>| {
            c.is_some_and(|c| regex_syntax::try_is_word_character(c).unwrap_or(false))
        };
        match look {
            Look::Start => self.previous.is_none(),
            Look::End => self.next.is_none(),
            Look::StartLF => self.previous.is_none_or(|c| c == '\n'),
            Look::EndLF => self.next.is_none_or(|c| c == '\n'),
            Look::WordAscii => ascii(self.previous) != ascii(self.next),
            Look::WordAsciiNegate => ascii(self.previous) == ascii(self.next),
            Look::WordUnicode => word(self.previous) != word(self.next),
            Look::WordUnicodeNegate => word(self.previous) == word(self.next),
            // The translation of Go's patterns has no others.
            _ => false,
        }
    }
}

/// The threads of a search, in order of preference, each with the start of its match.
struct Threads {
    list: Vec<(u32, usize)>,
    /// The round in which each instruction was entered last.
    entered: Vec<u32>,
    round: u32,
    stack: Vec<u32>,
}

impl Threads {
    fn new(instructions: usize) -> Threads {
        Threads { list: vec![], entered: vec![0; instructions], round: 1, stack: vec![] }
    }

    fn is_new(&mut self, pc: u32) -> bool {
        let entered = &mut self.entered[pc as usize];
        std::mem::replace(entered, self.round) != self.round
    }

    fn clear(&mut self) {
        self.list.clear();
        self.round = self.round.wrapping_add(1);
        if self.round == 0 {
            self.entered.fill(0);
            self.round = 1;
        }
    }
}

#[derive(Default)]
struct Compiler {
    instructions: Vec<Instruction>,
    classes: Vec<ClassUnicode>,
    /// The class of each node, by its address.
    known: HashMap<*const ClassUnicode, u32>,
}

impl Compiler {
    fn add(&mut self, instruction: Instruction) -> Result<u32, EvalError> {
        meter::make(INSTRUCTION_BYTES)?;
        self.instructions.push(instruction);
        u32::try_from(self.instructions.len() - 1).map_err(|_| EvalError::exhausted())
    }

    /// Compiles a part that continues at `next`. Returns its start.
    fn compile(&mut self, hir: &Hir, next: u32) -> Result<u32, EvalError> {
        match hir.kind() {
            HirKind::Empty => Ok(next),
            HirKind::Literal(literal) => {
                let text = std::str::from_utf8(&literal.0).map_err(|_| EvalError::exhausted())?;
                text.chars().rev().try_fold(next, |next, c| self.add(Instruction::Char(c, next)))
            }
            HirKind::Class(Class::Unicode(class)) => self.class(class, next),
            HirKind::Class(Class::Bytes(class)) => {
                let class = class.to_unicode_class().ok_or_else(EvalError::exhausted)?;
                let index = self.add_class(class)?;
                self.add(Instruction::Class(index, next))
            }
            HirKind::Look(look) => self.add(Instruction::Look(*look, next)),
            HirKind::Repetition(repetition) => self.repetition(repetition, next),
            HirKind::Capture(capture) => self.compile(&capture.sub, next),
            HirKind::Concat(parts) => {
                parts.iter().rev().try_fold(next, |next, part| self.compile(part, next))
            }
            HirKind::Alternation(parts) => {
                let mut others: Option<u32> = None;
                for part in parts.iter().rev() {
                    let start = self.compile(part, next)?;
                    others = Some(match others {
                        None => start,
                        Some(other) => self.add(Instruction::Split(start, other))?,
                    });
                }
                Ok(others.unwrap_or(next))
            }
        }
    }

    fn class(&mut self, class: &ClassUnicode, next: u32) -> Result<u32, EvalError> {
        let address = std::ptr::from_ref(class);
        let index = match self.known.get(&address) {
            Some(index) => *index,
            None => {
                let index = self.add_class(class.clone())?;
                self.known.insert(address, index);
                index
            }
        };
        self.add(Instruction::Class(index, next))
    }

    fn add_class(&mut self, class: ClassUnicode) -> Result<u32, EvalError> {
        meter::make(size_of_val(class.ranges()))?;
        self.classes.push(class);
        u32::try_from(self.classes.len() - 1).map_err(|_| EvalError::exhausted())
    }

    fn repetition(&mut self, repetition: &Repetition, next: u32) -> Result<u32, EvalError> {
        let Repetition { min, max, greedy, sub } = repetition;
        let split = |again: u32, next: u32| match greedy {
            true => Instruction::Split(again, next),
            false => Instruction::Split(next, again),
        };
        let mut start = next;
        let mut required = *min;
        match max {
            None => {
                // The loop is known when its body is.
                let again = self.add(Instruction::Match)?;
                let body = self.compile(sub, again)?;
                self.instructions[again as usize] = split(body, next);
                start = if required == 0 { again } else { body };
                required = required.saturating_sub(1);
            }
            Some(max) => {
                for _ in *min..*max {
                    let body = self.compile(sub, start)?;
                    start = self.add(split(body, next))?;
                }
            }
        }
        for _ in 0..required {
            start = self.compile(sub, start)?;
        }
        Ok(start)
    }
}
