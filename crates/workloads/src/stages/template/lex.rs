//! Splits the text of a template into plain text and actions, and actions into tokens.

use super::TemplateError;
use keelson_meta::Value;

/// A part of a template's text.
#[derive(Debug, PartialEq)]
pub enum Piece {
    Plain(String),
    /// What stands between `{{` and `}}`, and the line of its beginning.
    Action(Vec<Token>, u32),
}

/// A token of an action.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub kind: TokenKind,
    /// Whether a blank stands before it: `.a .b` are two operands, `.a.b` is one.
    pub is_apart: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum TokenKind {
    /// A keyword, or the name of a function.
    Word(String),
    /// `.name`
    Field(String),
    /// `$name`, or `$`
    Variable(String),
    /// `.`
    Dot,
    Literal(Value),
    Open,
    Close,
    Pipe,
    Comma,
    /// `:=`
    Declare,
    /// `=`
    Assign,
}

/// Splits a template.
pub fn pieces(text: &str) -> Result<Vec<Piece>, TemplateError> {
    let mut pieces = vec![];
    let mut rest = text;
    let mut line = 1;
    let mut trims_start = false;
    while let Some((before, after)) = rest.split_once("{{") {
        let trims_end = after.starts_with("- ") || after.starts_with("-\n");
        push_plain(&mut pieces, before, trims_start, trims_end);
        line += lines(before);
        let after = if trims_end { &after[1..] } else { after };
        let action = action_end(after)
            .ok_or_else(|| TemplateError::new(line, "an action has no closing }}"))?;
        trims_start = action.trims_start;
        let body = &after[..action.body];
        if !is_comment(body) {
            pieces.push(Piece::Action(tokens(body, line)?, line));
        }
        line += lines(body);
        rest = &after[action.end..];
    }
    push_plain(&mut pieces, rest, trims_start, false);
    Ok(pieces)
}

fn lines(text: &str) -> u32 {
    u32::try_from(text.bytes().filter(|byte| *byte == b'\n').count()).unwrap_or(u32::MAX)
}

fn push_plain(pieces: &mut Vec<Piece>, text: &str, trims_start: bool, trims_end: bool) {
    let blank = |c: char| matches!(c, ' ' | '\t' | '\r' | '\n');
    let text = if trims_start { text.trim_start_matches(blank) } else { text };
    let text = if trims_end { text.trim_end_matches(blank) } else { text };
    if !text.is_empty() {
        pieces.push(Piece::Plain(text.to_owned()));
    }
}

fn is_comment(body: &str) -> bool {
    let body = body.trim();
    body.starts_with("/*") && body.ends_with("*/")
}

/// Where the body of an action ends, and where the text after it begins.
struct ActionEnd {
    body: usize,
    end: usize,
    trims_start: bool,
}

/// Finds the end of an action: the first `}}` outside of quotes and comments.
fn action_end(text: &str) -> Option<ActionEnd> {
    if text.trim_start().starts_with("/*") {
        let body = text.find("*/")? + 2;
        let closing = text[body..].find("}}")?;
        let trims_start = text[body..body + closing].trim() == "-";
        return Some(ActionEnd { body, end: body + closing + 2, trims_start });
    }
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            quote @ (b'"' | b'\'' | b'`') => at = after_quoted(bytes, at, quote)?,
            b'}' if bytes.get(at + 1) == Some(&b'}') => {
                let marker = text[..at].strip_suffix('-');
                let trims = marker.filter(|before| before.ends_with([' ', '\n', '\t']));
                let body = trims.map_or(at, str::len);
                return Some(ActionEnd { body, end: at + 2, trims_start: trims.is_some() });
            }
            _ => at += 1,
        }
    }
    None
}

/// Returns the place after a quoted text that begins at `at`.
fn after_quoted(bytes: &[u8], at: usize, quote: u8) -> Option<usize> {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' if quote != b'`' => at += 2,
            byte if byte == quote => return Some(at + 1),
            _ => at += 1,
        }
    }
    None
}

fn tokens(body: &str, first_line: u32) -> Result<Vec<Token>, TemplateError> {
    let mut tokens: Vec<Token> = vec![];
    let mut rest = body;
    let mut line = first_line;
    let mut is_apart = true;
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            line += u32::from(first == '\n');
            is_apart = true;
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (kind, length) = token(rest).map_err(|why| TemplateError::new(line, why))?;
        tokens.push(Token { kind, is_apart });
        is_apart = false;
        rest = &rest[length..];
    }
    Ok(tokens)
}

/// Reads the first token of a text. Returns its length, too.
fn token(text: &str) -> Result<(TokenKind, usize), String> {
    let name = |from: usize| {
        let name = text[from..].find(|c: char| !(c.is_alphanumeric() || c == '_'));
        name.map_or(text.len(), |length| from + length)
    };
    let mut chars = text.chars();
    let first = chars.next().unwrap_or_default();
    let second = chars.next();
    let starts_number = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    Ok(match first {
        '(' => (TokenKind::Open, 1),
        ')' => (TokenKind::Close, 1),
        '|' => (TokenKind::Pipe, 1),
        ',' => (TokenKind::Comma, 1),
        '=' => (TokenKind::Assign, 1),
        ':' if second == Some('=') => (TokenKind::Declare, 2),
        '"' | '`' | '\'' => literal(text, first)?,
        '.' if starts_number(second) => number(text)?,
        '.' => match name(1) {
            1 => (TokenKind::Dot, 1),
            end => (TokenKind::Field(text[1..end].to_owned()), end),
        },
        '$' => {
            let end = name(1);
            (TokenKind::Variable(text[..end].to_owned()), end)
        }
        '+' | '-' if starts_number(second) => number(text)?,
        '0'..='9' => number(text)?,
        first if first.is_alphabetic() || first == '_' => {
            let end = name(0);
            let word = &text[..end];
            let kind = match word {
                "true" | "false" => TokenKind::Literal(Value::Bool(word == "true")),
                "nil" => TokenKind::Literal(Value::Null),
                _ => TokenKind::Word(word.to_owned()),
            };
            (kind, end)
        }
        other => return Err(format!("unexpected {other:?}")),
    })
}

fn literal(text: &str, quote: char) -> Result<(TokenKind, usize), String> {
    let end = after_quoted(text.as_bytes(), 0, quote as u8).ok_or("a quoted text has no end")?;
    let inner = &text[1..end - 1];
    let value = match quote {
        '`' => Value::from(inner),
        _ => {
            let plain = unescape(inner)?;
            let mut chars = plain.chars();
            match (quote, chars.next(), chars.next()) {
                ('\'', Some(only), None) => Value::Int(i64::from(u32::from(only))),
                ('\'', ..) => return Err(format!("{text:.12} is not one character")),
                _ => Value::from(plain),
            }
        }
    };
    Ok((TokenKind::Literal(value), end))
}

/// Replaces the escapes of a Go string literal.
fn unescape(text: &str) -> Result<String, String> {
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            plain.push(c);
            continue;
        }
        let escape = chars.next().unwrap_or_default();
        let digits = match escape {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'v' => '\u{b}',
            '\\' | '"' | '\'' => escape,
            'x' => code_point(&mut chars, 2)?,
            'u' => code_point(&mut chars, 4)?,
            'U' => code_point(&mut chars, 8)?,
            other => return Err(format!("unknown escape \\{other}")),
        };
        plain.push(digits);
    }
    Ok(plain)
}

fn code_point(chars: &mut std::str::Chars<'_>, digits: usize) -> Result<char, String> {
    let hex: String = chars.by_ref().take(digits).collect();
    let number = u32::from_str_radix(&hex, 16).ok().filter(|_| hex.len() == digits);
    number.and_then(char::from_u32).ok_or_else(|| format!("{hex:?} is no code point"))
}

fn number(text: &str) -> Result<(TokenKind, usize), String> {
    let signed = text.strip_prefix(['+', '-']).unwrap_or(text);
    let sign = text.len() - signed.len();
    let length = signed.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '_')));
    let end = sign + length.unwrap_or(signed.len());
    let word = text[..end].replace('_', "");
    let hex = word.trim_start_matches(['+', '-']).strip_prefix("0x");
    let value = match hex {
        Some(digits) => {
            let signed = word.replacen("0x", "", usize::from(!digits.is_empty()));
            i64::from_str_radix(&signed, 16).ok().map(Value::Int)
        }
        None => {
            let int = word.trim_start_matches('+').parse::<i64>().ok().map(Value::Int);
            let float = word.parse::<f64>().ok().filter(|number| number.is_finite());
            int.or(float.map(Value::Float))
        }
    };
    let value = value.ok_or_else(|| format!("{word:?} is no number"))?;
    Ok((TokenKind::Literal(value), end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_trim_the_blanks_beside_an_action() {
        let check = |text: &str, want: &[&str]| {
            let pieces = pieces(text).expect("a template");
            let plain = pieces.into_iter().filter_map(|piece| match piece {
                Piece::Plain(text) => Some(text),
                Piece::Action(..) => None,
            });
            assert_eq!(plain.collect::<Vec<_>>(), want, "{text}");
        };
        check("a {{ .x }} b", &["a ", " b"]);
        check("a \n {{- .x -}} \n b", &["a", "b"]);
        check("a {{/* }} no end */}} b", &["a ", " b"]);
        check("a {{- /* c */ -}} b", &["a", "b"]);
        check("{{ `}}` }}{{ \"\\\"}}\" }}", &[]);
        check("{{ 3 -}} x", &["x"]);
    }

    #[test]
    fn literals_are_those_of_go() {
        let check = |text: &str, want: Value| {
            let (kind, length) = token(text).expect("a token");
            assert_eq!((kind, length), (TokenKind::Literal(want), text.len()), "{text}");
        };
        check("12", Value::Int(12));
        check("-0x1f", Value::Int(-31));
        check("1.5", Value::Float(1.5));
        check("1e3", Value::Float(1000.0));
        check("'a'", Value::Int(97));
        check("\"a\\n\\u00e9\\\"\"", Value::from("a\n\u{e9}\""));
        check("`a\\n`", Value::from("a\\n"));
        check("nil", Value::Null);
        for wrong in ["\"a", "0xg", "%", "\"\\q\""] {
            assert!(token(wrong).is_err(), "{wrong}");
        }
    }
}
