//! Writes scalars as sigs.k8s.io/yaml does: the styles of strings, and the places where long ones
//! continue on the next line.

use super::resolve::is_string;
use crate::json;
use keelson_meta::{Value, status};
use std::fmt::Write;

/// Column after which a string continues on the next line, at its next space.
const LINE_COLUMNS: usize = 80;

/// How a string is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    SingleQuoted,
    DoubleQuoted,
    Literal,
}

/// Appends a scalar, or an empty list or map. Further lines are indented.
pub(super) fn write_scalar(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::String(text) => write_string(text, Some(indent), out),
        Value::Float(number) => write_float(*number, out),
        other => {
            let mut json = vec![];
            json::write_value(other, &mut json);
            out.push_str(&String::from_utf8_lossy(&json));
        }
    }
}

/// Appends a float. Upstream reads it from JSON, where whole numbers are integers.
fn write_float(number: f64, out: &mut String) {
    // Integers of 64 bits, with or without a sign.
    let is_integer = number.fract() == 0.0 && (-(2f64.powi(63))..2f64.powi(64)).contains(&number);
    if is_integer {
        // Writing to a String cannot fail.
        let _ = write!(out, "{number}");
    } else {
        out.push_str(&status::float(number));
    }
}

/// Appends a string. It stays in one line without the indentation of further ones.
pub(super) fn write_string(text: &str, indent: Option<usize>, out: &mut String) {
    let style = style(text);
    if style == Style::Literal {
        return write_literal(text, indent.unwrap_or_default(), out);
    }
    let line_start = out.rfind('\n').map_or(0, |at| at + 1);
    let column = out[line_start..].chars().count();
    let mut writer = Writer { out, column, indent };
    match style {
        Style::DoubleQuoted => writer.double_quoted(text),
        Style::SingleQuoted => {
            writer.push('\'');
            writer.words(text, true);
            writer.push('\'');
        }
        Style::Plain | Style::Literal => writer.words(text, false),
    }
}

fn style(text: &str) -> Style {
    let is_printed = text.chars().all(is_printable);
    // What upstream calls a space is none of the other blanks.
    let has_space_before_break = has_pair(text, |c| c == ' ', is_break);
    let is_literal = text.contains('\n');
    if !is_printed || has_space_before_break || (is_literal && text.ends_with(' ')) {
        return Style::DoubleQuoted;
    }
    if is_literal {
        return Style::Literal;
    }
    if !is_string(text) || is_sexagesimal(text) {
        return Style::DoubleQuoted;
    }
    if is_plain(text) {
        Style::Plain
    } else if has_pair(text, is_break, |c| c == ' ') {
        Style::DoubleQuoted
    } else {
        Style::SingleQuoted
    }
}

/// Whether a printable string that is not empty can be written without quotes. Upstream writes `<<`
/// so, and then reads a merge.
fn is_plain(text: &str) -> bool {
    let is_blank = |c: char| c == ' ' || c == '\t';
    let follows = text.chars().nth(1);
    let begins_with_indicator = match text.chars().next() {
        Some('-' | '?' | ':') => follows.is_none_or(is_blank),
        Some(first) => "#,[]{}&*!|>'\"%@`".contains(first),
        None => false,
    };
    !begins_with_indicator
        && !text.starts_with(' ')
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !text.contains(is_break)
        && text != "<<"
}

/// Whether a character that fits one test is followed by one that fits another.
fn has_pair(text: &str, first: impl Fn(char) -> bool, second: impl Fn(char) -> bool) -> bool {
    text.chars().zip(text.chars().skip(1)).any(|(a, b)| first(a) && second(b))
}

/// Whether other readers of YAML take a string for a number in base 60, such as `12:30:45`.
fn is_sexagesimal(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut places = whole.split(':');
    let first = places.next().unwrap_or_default();
    let is_place = |place: &str| match place.as_bytes() {
        [ones] => ones.is_ascii_digit(),
        [tens, ones] => matches!(tens, b'0'..=b'5') && ones.is_ascii_digit(),
        _ => false,
    };
    whole.contains(':')
        && first.starts_with(|c: char| c.is_ascii_digit())
        && is_digits(first)
        && is_digits(fraction)
        && places.all(is_place)
}

/// Writes a literal block: `|`, with `-` or `+` for trailing line breaks.
fn write_literal(text: &str, indent: usize, out: &mut String) {
    out.push('|');
    if text.starts_with(|c: char| c == ' ' || is_break(c)) {
        out.push('2');
    }
    match text.chars().rev().take_while(|c| is_break(*c)).count() {
        0 => out.push('-'),
        1 if text.chars().nth(1).is_some() => {}
        _ => out.push('+'),
    }
    out.push('\n');
    let mut at_line_start = true;
    for c in text.strip_suffix('\n').unwrap_or(text).chars() {
        if at_line_start && !is_break(c) {
            out.extend(std::iter::repeat_n(' ', indent));
        }
        out.push(c);
        at_line_start = is_break(c);
    }
}

/// Whether upstream writes a character without an escape. It escapes all beyond U+FFFF.
fn is_printable(c: char) -> bool {
    c == '\n' || !(c.is_control() || matches!(c, '\u{feff}' | '\u{fffe}'..))
}

/// Whether a character is a line break.
pub(super) fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

/// Writes a string that is not literal.
struct Writer<'a> {
    out: &'a mut String,
    column: usize,
    indent: Option<usize>,
}

impl Writer<'_> {
    fn push(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn indent(&mut self, indent: usize) {
        self.out.extend(std::iter::repeat_n(' ', indent));
        self.column = indent;
    }

    /// Continues on the next line, if this one is long and there may be another.
    fn continues(&mut self) -> bool {
        match self.indent {
            Some(indent) if self.column > LINE_COLUMNS => {
                self.out.push('\n');
                self.indent(indent);
                true
            }
            _ => false,
        }
    }

    /// Writes a string as it is, except single quotes in quotes.
    fn words(&mut self, text: &str, is_quoted: bool) {
        let mut last = '\0';
        for (at, c) in text.char_indices() {
            let rest = &text[at + c.len_utf8()..];
            if c == ' ' {
                let is_between = at > 0 && !rest.is_empty();
                let is_single = last != ' ' && !rest.starts_with(' ');
                if !is_single || !is_between || !self.continues() {
                    self.push(c);
                }
            } else if is_break(c) {
                self.out.push(c);
                self.column = 0;
            } else {
                if is_break(last) {
                    self.indent(self.indent.unwrap_or_default());
                }
                if c == '\'' && is_quoted {
                    self.push(c);
                }
                self.push(c);
            }
            last = c;
        }
    }

    fn double_quoted(&mut self, text: &str) {
        self.push('"');
        // Upstream looks for a byte order mark at the start of the string, whatever the character.
        let escapes_all = text.starts_with('\u{feff}');
        let mut last = '\0';
        for (at, c) in text.char_indices() {
            let rest = &text[at + c.len_utf8()..];
            let is_plain = is_printable(c) && !is_break(c) && !matches!(c, '"' | '\\');
            if !is_plain || escapes_all {
                self.escape(c);
                last = '\0';
                continue;
            }
            let is_between = at > 0 && !rest.is_empty();
            if c == ' ' && last != ' ' && is_between && self.continues() {
                if rest.starts_with(' ') {
                    self.push('\\');
                }
            } else {
                self.push(c);
            }
            last = c;
        }
        self.push('"');
    }

    fn escape(&mut self, c: char) {
        let letter = match c {
            '"' | '\\' => c,
            '\0' => '0',
            '\u{7}' => 'a',
            '\u{8}' => 'b',
            '\t' => 't',
            '\n' => 'n',
            '\u{b}' => 'v',
            '\u{c}' => 'f',
            '\r' => 'r',
            '\u{1b}' => 'e',
            '\u{85}' => 'N',
            '\u{a0}' => '_',
            '\u{2028}' => 'L',
            '\u{2029}' => 'P',
            c => {
                let code = u32::from(c);
                let escape = match code {
                    0..=0xff => format!("\\x{code:02X}"),
                    0x100..=0xffff => format!("\\u{code:04X}"),
                    _ => format!("\\U{code:08X}"),
                };
                return escape.chars().for_each(|c| self.push(c));
            }
        };
        self.push('\\');
        self.push(letter);
    }
}
