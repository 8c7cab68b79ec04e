//! Translates Go regular expressions to the syntax of the crate `regex`: classes such as `\d` are
//! ASCII only, bracketed classes have no set operators, and a pattern that Go rejects is rejected
//! with Go's error text.

use std::iter::Peekable;
use std::ops::Range;
use std::str::CharIndices;

mod extent;

use extent::{Extent, Frame};

/// Go's maximum repeat count, also of repetitions inside each other.
const REPEAT_COUNT_MAX: u32 = 1000;

/// Go's maximum number of instructions of a compiled pattern.
const INSTRUCTIONS_MAX: u64 = (128 << 20) / 40;

/// Go's maximum depth of a parsed pattern.
const HEIGHT_MAX: u64 = 1000;

const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
    "space", "upper", "word", "xdigit",
];

/// Translates a pattern to the syntax of the crate `regex`; the error text is Go's.
pub fn translate(pattern: &str) -> Result<Translated, String> {
    let mut reader = Reader {
        pattern,
        chars: pattern.char_indices().peekable(),
        out: String::with_capacity(pattern.len() + 16),
        frames: vec![Frame::default()],
        last: Last::Nothing,
        properties: vec![],
        ranges: 0,
    };
    while reader.next_atom()? {}
    let whole = match reader.frames.pop() {
        Some(frame) if reader.frames.is_empty() => frame.finish(),
        _ => return Err(format!("missing closing ): `{pattern}`")),
    };
    reader.check(&whole)?;
    let Reader { out, properties, ranges, .. } = reader;
    Ok(Translated { text: out, properties, ranges, states: whole.states, depth: whole.height })
}

/// A pattern in the syntax of the crate `regex`.
#[derive(Clone, Debug)]
pub struct Translated {
    /// The translated pattern.
    pub text: String,
    /// The byte ranges of Unicode properties in the Go pattern; the translation does not validate
    /// them.
    pub properties: Vec<Range<usize>>,
    /// Number of ranges of characters in classes, without those of properties.
    pub ranges: u64,
    /// About how many states the automaton of the pattern has that reads bytes.
    pub states: u64,
    /// Depth of the parsed pattern.
    pub depth: u64,
}

/// What precedes a repetition operator.
#[derive(Clone, Copy)]
enum Last {
    /// Nothing that could be repeated.
    Nothing,
    Atom,
    /// Another repetition operator, at this offset.
    Repeat(usize),
}

/// How often an atom is repeated: at least, and at most if that is limited.
type Counts = (u32, Option<u32>);

struct Reader<'a> {
    pattern: &'a str,
    chars: Peekable<CharIndices<'a>>,
    out: String,
    /// The whole pattern, and the open groups, innermost last.
    frames: Vec<Frame>,
    last: Last,
    properties: Vec<Range<usize>>,
    ranges: u64,
}

impl Reader<'_> {
    fn at(&mut self) -> usize {
        self.chars.peek().map_or(self.pattern.len(), |(at, _)| *at)
    }

    fn rest(&mut self) -> &str {
        let at = self.at();
        &self.pattern[at..]
    }

    fn peek(&mut self) -> Option<char> {
        self.chars.peek().map(|(_, c)| *c)
    }

    fn skip(&mut self, bytes: usize) {
        let end = self.at() + bytes;
        while self.chars.next_if(|(at, _)| *at < end).is_some() {}
    }

    fn literal(&mut self, c: char) {
        push_literal(&mut self.out, c);
        self.atom(Extent::of_char(c));
    }

    fn frame(&mut self) -> &mut Frame {
        if self.frames.is_empty() {
            self.frames.push(Frame::default());
        }
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    fn atom(&mut self, extent: Extent) {
        self.frame().push(extent);
    }

    /// Checks the limits of Go's parser.
    fn check(&self, extent: &Extent) -> Result<(), String> {
        if extent.instructions > INSTRUCTIONS_MAX {
            return Err(format!("expression too large: `{}`", self.pattern));
        }
        if extent.height > HEIGHT_MAX {
            return Err(format!("expression nests too deeply: `{}`", self.pattern));
        }
        Ok(())
    }

    /// Translates one atom or operator; returns false at the end of the pattern.
    fn next_atom(&mut self) -> Result<bool, String> {
        let Some((at, c)) = self.chars.next() else { return Ok(false) };
        let mut last = Last::Atom;
        match c {
            '(' => {
                self.group(at)?;
                last = Last::Nothing;
            }
            ')' => {
                if self.frames.len() < 2 {
                    return Err(format!("unexpected ): `{}`", self.pattern));
                }
                let closed = self.frames.pop().unwrap_or_default().finish();
                self.atom(closed);
                self.out.push(')');
            }
            '|' => {
                self.out.push('|');
                self.frame().alternative();
                last = Last::Nothing;
            }
            '^' | '$' => {
                self.out.push(c);
                self.atom(Extent::ASSERTION);
            }
            '.' => {
                self.out.push(c);
                self.atom(Extent::WIDE_CLASS);
            }
            '[' => self.class(at)?,
            '\\' => self.escape(at)?,
            '*' | '?' => last = self.repeat(at, c.to_string(), (0, (c == '?').then_some(1)))?,
            '+' => last = self.repeat(at, c.to_string(), (1, None))?,
            '{' => match self.counts(at)? {
                Some((text, counts)) => last = self.repeat(at, text, counts)?,
                None => self.literal('{'),
            },
            _ => self.literal(c),
        }
        self.last = last;
        Ok(true)
    }

    fn repeat(&mut self, at: usize, text: String, counts: Counts) -> Result<Last, String> {
        match self.last {
            Last::Nothing => {
                return Err(format!("missing argument to repetition operator: `{text}`"));
            }
            Last::Repeat(before) => {
                let end = self.at();
                let operators = &self.pattern[before..end];
                return Err(format!("invalid nested repetition operator: `{operators}`"));
            }
            Last::Atom => self.out.push_str(&text),
        }
        if self.chars.next_if(|(_, c)| *c == '?').is_some() {
            self.out.push('?');
        }
        let is_counted = text.starts_with('{');
        let repeated = self.frame().repeat(counts, is_counted);
        if is_counted && repeated.repeat_count > REPEAT_COUNT_MAX.into() {
            let end = self.at();
            return Err(format!("invalid repeat count: `{}`", &self.pattern[at..end]));
        }
        self.check(&repeated)?;
        Ok(Last::Repeat(at))
    }

    /// Parses counts after an opening brace: `{2}`, `{2,}` or `{2,5}`; `None` when the brace is a
    /// literal.
    fn counts(&mut self, at: usize) -> Result<Option<(String, Counts)>, String> {
        let rest = self.rest();
        let Some(end) = rest.find('}') else { return Ok(None) };
        let inner = &rest[..end];
        let (low, high) = inner.split_once(',').unwrap_or((inner, inner));
        let is_number = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|b| b.is_ascii_digit())
                && (text.len() == 1 || !text.starts_with('0'))
        };
        if !is_number(low) || !(high.is_empty() || is_number(high)) {
            return Ok(None);
        }
        let number = |text: &str| text.parse::<u32>().unwrap_or(u32::MAX);
        let least = number(low);
        let most = if high.is_empty() { None } else { Some(number(high)) };
        let text = format!("{{{inner}}}");
        if least.max(most.unwrap_or(0)) > REPEAT_COUNT_MAX || most.is_some_and(|most| most < least)
        {
            let text = &self.pattern[at..at + text.len()];
            return Err(format!("invalid repeat count: `{text}`"));
        }
        let length = end + 1;
        self.skip(length);
        Ok(Some((text, (least, most))))
    }

    fn group(&mut self, at: usize) -> Result<(), String> {
        self.frames.push(Frame::default());
        if self.peek() != Some('?') {
            self.frame().captures = true;
            self.out.push('(');
            return Ok(());
        }
        let rest = self.rest();
        for opening in ["?P<", "?<"] {
            let Some(name) = rest.strip_prefix(opening) else { continue };
            if rest.starts_with("?<=") || rest.starts_with("?<!") {
                break;
            }
            let end = name.find('>');
            let is_word = |name: &str| {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            };
            let Some(end) = end.filter(|end| is_word(&name[..*end])) else {
                let shown = end.map_or(&self.pattern[at..], |end| {
                    &self.pattern[at..at + 1 + opening.len() + end + 1]
                });
                return Err(format!("invalid named capture: `{shown}`"));
            };
            // The names are dropped, because callers only match.
            let length = opening.len() + end + 1;
            self.skip(length);
            self.frame().captures = true;
            self.out.push('(');
            return Ok(());
        }
        self.flags(at)
    }

    fn flags(&mut self, at: usize) -> Result<(), String> {
        self.out.push('(');
        self.out.push('?');
        self.skip(1);
        let mut seen = 0;
        for (here, c) in self.chars.by_ref() {
            match c {
                'i' | 'm' | 's' | 'U' => seen += 1,
                '-' => seen = 0,
                ':' | ')' if seen > 0 || here == at + 2 && c == ':' => {
                    self.out.push(c);
                    if c == ')' {
                        self.frames.pop();
                    }
                    return Ok(());
                }
                _ => {
                    let shown = &self.pattern[at..here + c.len_utf8()];
                    return Err(format!("invalid or unsupported Perl syntax: `{shown}`"));
                }
            }
            self.out.push(c);
        }
        Err(format!("missing closing ): `{}`", self.pattern))
    }

    /// Translates an escape sequence outside a class.
    fn escape(&mut self, at: usize) -> Result<(), String> {
        let Some(c) = self.peek() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        if let Some(class) = perl_class(c) {
            self.skip(1);
            self.out.push_str(class);
            self.atom(if c.is_ascii_uppercase() { Extent::WIDE_CLASS } else { Extent::CLASS });
            return Ok(());
        }
        match c {
            'A' | 'z' | 'B' => {
                self.skip(1);
                self.out.push('\\');
                self.out.push(c);
                self.atom(Extent::ASSERTION);
            }
            'b' => {
                self.skip(1);
                self.out.push_str("(?-u:\\b)");
                self.atom(Extent::ASSERTION);
            }
            'Q' => {
                self.skip(1);
                let rest = self.rest();
                let end = rest.find("\\E");
                let quoted = rest[..end.unwrap_or(rest.len())].to_owned();
                quoted.chars().for_each(|c| self.literal(c));
                self.skip(quoted.len() + if end.is_some() { 2 } else { 0 });
            }
            'p' | 'P' => {
                self.property(at)?;
                self.atom(Extent::PROPERTY);
            }
            _ => {
                let c = self.escaped_char(at)?;
                self.literal(c);
            }
        }
        Ok(())
    }

    /// Translates `\pN`, `\p{Greek}` and `\P...`. The crate `regex` rejects unknown properties.
    fn property(&mut self, at: usize) -> Result<(), String> {
        self.skip(1);
        match self.peek() {
            Some('{') => {
                let Some(end) = self.rest().find('}') else {
                    let shown = &self.pattern[at..];
                    return Err(format!("invalid character class range: `{shown}`"));
                };
                self.skip(end + 1);
            }
            Some(c) => self.skip(c.len_utf8()),
            None => {
                let shown = &self.pattern[at..];
                return Err(format!("invalid character class range: `{shown}`"));
            }
        }
        let end = self.at();
        let text = &self.pattern[at..end];
        self.properties.push(at..end);
        self.out.push_str(text);
        Ok(())
    }

    /// Parses the escape sequence of a single character.
    fn escaped_char(&mut self, at: usize) -> Result<char, String> {
        let invalid = |reader: &mut Self| {
            let end = reader.at();
            Err(format!("invalid escape sequence: `{}`", &reader.pattern[at..end]))
        };
        let Some((_, c)) = self.chars.next() else {
            return Err("trailing backslash at end of expression: ``".to_owned());
        };
        let number = match c {
            'a' => 7,
            'f' => 12,
            't' => 9,
            'n' => 10,
            'r' => 13,
            'v' => 11,
            'x' => return self.hexadecimal(at),
            '0' => self.digits(0, 2, 8),
            // A single digit would be a backreference, which Go does not support.
            '1'..='7' if self.peek().is_some_and(|next| next.is_digit(8)) => {
                self.digits(c as u32 - '0' as u32, 2, 8)
            }
            _ if c.is_ascii() && !c.is_ascii_alphanumeric() => c as u32,
            _ => return invalid(self),
        };
        char::from_u32(number).map_or_else(|| invalid(self), Ok)
    }

    fn digits(&mut self, mut number: u32, count: usize, radix: u32) -> u32 {
        for _ in 0..count {
            let Some(digit) = self.peek().and_then(|c| c.to_digit(radix)) else { break };
            number = number * radix + digit;
            self.skip(1);
        }
        number
    }

    fn hexadecimal(&mut self, at: usize) -> Result<char, String> {
        let braces = self.chars.next_if(|(_, c)| *c == '{').is_some();
        let before = self.at();
        let number = self.digits(0, if braces { 6 } else { 2 }, 16);
        let count = self.at() - before;
        let closed = !braces || self.chars.next_if(|(_, c)| *c == '}').is_some();
        let fits = closed && count > 0 && (braces || count == 2);
        char::from_u32(number).filter(|_| fits).ok_or_else(|| {
            let end = self.at();
            format!("invalid escape sequence: `{}`", &self.pattern[at..end])
        })
    }

    fn class(&mut self, at: usize) -> Result<(), String> {
        self.out.push('[');
        let properties = self.properties.len();
        let is_negated = self.chars.next_if(|(_, c)| *c == '^').is_some();
        if is_negated {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            let missing = || format!("missing closing ]: `{}`", &self.pattern[at..]);
            let Some(c) = self.chars.peek().map(|(_, c)| *c) else { return Err(missing()) };
            if c == ']' && !first {
                self.skip(1);
                self.out.push(']');
                let end = self.at();
                let text = &self.pattern[at..end];
                self.atom(match self.properties.len() > properties {
                    true => Extent::PROPERTY,
                    false if is_negated || !text.is_ascii() => Extent::WIDE_CLASS,
                    false => Extent::CLASS,
                });
                return Ok(());
            }
            first = false;
            self.ranges += 1;
            if !self.named_class(c)? {
                self.range(missing_text(self.pattern, at))?;
            }
        }
    }

    /// Translates a named class within a class: `[:alpha:]`, `\d`, `\pN`. Returns false for other
    /// input.
    fn named_class(&mut self, c: char) -> Result<bool, String> {
        let here = self.at();
        if c == '['
            && let Some(inner) = self.rest().strip_prefix("[:")
            && let Some(end) = inner.find(":]")
        {
            let name = &inner[..end];
            let text = format!("[:{name}:]");
            if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
                return Err(format!("invalid character class range: `{text}`"));
            }
            self.skip(text.len());
            self.out.push_str(&text);
            return Ok(true);
        }
        if c != '\\' {
            return Ok(false);
        }
        let next = self.pattern[here + 1..].chars().next();
        match next {
            Some('p' | 'P') => {
                self.skip(1);
                self.property(here)?;
            }
            Some(next) => match perl_class(next) {
                Some(class) => {
                    self.skip(2);
                    self.out.push_str(class);
                }
                None => return Ok(false),
            },
            None => return Ok(false),
        }
        Ok(true)
    }

    /// Translates a character or a range of characters within a class.
    fn range(&mut self, missing: String) -> Result<(), String> {
        let start = self.at();
        let low = self.class_char(&missing)?;
        push_literal(&mut self.out, low);
        let rest = self.rest();
        if !rest.starts_with('-') || rest.starts_with("-]") || rest.len() == 1 {
            return Ok(());
        }
        self.skip(1);
        let high = self.class_char(&missing)?;
        if high < low {
            let end = self.at();
            let text = &self.pattern[start..end];
            return Err(format!("invalid character class range: `{text}`"));
        }
        self.out.push('-');
        push_literal(&mut self.out, high);
        Ok(())
    }

    fn class_char(&mut self, missing: &str) -> Result<char, String> {
        let here = self.at();
        match self.chars.next() {
            Some((_, '\\')) => self.escaped_char(here),
            Some((_, c)) => Ok(c),
            None => Err(missing.to_owned()),
        }
    }
}

fn missing_text(pattern: &str, at: usize) -> String {
    format!("missing closing ]: `{}`", &pattern[at..])
}

fn push_literal(out: &mut String, c: char) {
    if c.is_ascii() && !c.is_ascii_alphanumeric() {
        out.push_str(&format!("\\x{{{:x}}}", c as u32));
    } else {
        out.push(c);
    }
}

/// Returns a Perl class with Go's ASCII meaning, in a form that is valid within other classes too.
fn perl_class(c: char) -> Option<&'static str> {
    Some(match c {
        'd' => "[0-9]",
        'D' => "[^0-9]",
        's' => "[\\t\\n\\x0c\\r ]",
        'S' => "[^\\t\\n\\x0c\\r ]",
        'w' => "[0-9A-Za-z_]",
        'W' => "[^0-9A-Za-z_]",
        _ => return None,
    })
}
