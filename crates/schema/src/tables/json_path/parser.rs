//! Reads the text of a path into its steps.

use super::{Filter, Mismatch, Operator, Slice, Step};
use keelson_meta::{Str, Value};

/// Most nested filters and unions.
const DEPTH_MAX: usize = 8;

/// Returns the steps of a path.
pub(super) fn steps(text: &str) -> Result<Vec<Step>, Mismatch> {
    Parser { rest: text, depth: 0 }.steps()
}

/// Reads the steps of a path, as client-go reads the inside of `{}`.
struct Parser<'t> {
    rest: &'t str,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn steps(mut self) -> Result<Vec<Step>, Mismatch> {
        let mut steps = vec![];
        while let Some(first) = self.rest.chars().next() {
            match first {
                // The end of the action; what follows is the text after it.
                '}' => break,
                ' ' | '@' | '$' => self.skip(1),
                '.' if self.rest.starts_with("..") => {
                    if steps.last() == Some(&Step::Descend) {
                        return Err(Mismatch);
                    }
                    self.skip(2);
                    steps.push(Step::Descend);
                    if self.rest.starts_with(|c: char| c == '_' || c.is_alphanumeric()) {
                        steps.push(self.member());
                    }
                }
                '.' => {
                    self.skip(1);
                    steps.push(self.member());
                }
                '[' if self.rest.starts_with("[?(") => {
                    self.skip(3);
                    steps.push(Step::Filter(self.filter()?));
                }
                '[' => {
                    self.skip(1);
                    steps.extend(self.brackets()?);
                }
                '"' | '\'' => steps.push(self.quoted(first)?),
                '+' | '-' | '0'..='9' => steps.push(self.number()?),
                c if c == '_' || c.is_alphanumeric() => steps.push(self.word()?),
                _ => return Err(Mismatch),
            }
        }
        Ok(steps)
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest.get(bytes..).unwrap_or_default();
    }

    /// Takes the text up to a byte position.
    fn take(&mut self, bytes: usize) -> &'t str {
        let (taken, rest) = self.rest.split_at_checked(bytes).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    /// Reads a part of the path as a path of its own.
    fn inner(&self, text: &str) -> Result<Vec<Step>, Mismatch> {
        if self.depth >= DEPTH_MAX {
            return Err(Mismatch);
        }
        Parser { rest: text, depth: self.depth + 1 }.steps()
    }

    /// Reads the name after a dot. A backslash keeps the next character from ending it.
    fn member(&mut self) -> Step {
        let mut chars = self.rest.char_indices();
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            if c == '\\' {
                chars.next();
            } else if is_terminator(c) {
                end = at;
                break;
            }
        }
        match self.take(end) {
            "*" => Step::Every,
            name => Step::Member(Str::from(name.replace('\\', ""))),
        }
    }

    fn brackets(&mut self) -> Result<Vec<Step>, Mismatch> {
        let end = self.rest.find([']', '\n']).ok_or(Mismatch)?;
        let inside = self.take(end);
        if self.take(1) != "]" {
            return Err(Mismatch);
        }
        let inside = if inside == "*" { ":" } else { inside };
        if inside.contains(',') {
            let paths =
                inside.split(',').map(|part| self.inner(&format!("[{}]", part.trim_matches(' '))));
            return Ok(vec![Step::Union(paths.collect::<Result<_, _>>()?)]);
        }
        let quoted = inside.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        if let Some(name) = quoted.filter(|name| !name.contains('\'')) {
            return self.inner(&format!(".{name}"));
        }
        Ok(vec![Step::Slice(Slice::parse(inside)?)])
    }

    /// Reads `left operator right)]`. A bracket in the one quoted text does not end it.
    fn filter(&mut self) -> Result<Filter, Mismatch> {
        let mut quote = None;
        let mut is_closed = false;
        let mut before = ' ';
        let mut end = None;
        for (at, c) in self.rest.char_indices() {
            match (c, quote) {
                ('\n', _) => return Err(Mismatch),
                ('"' | '\'', None) => quote = Some(c),
                (c, Some(open)) if c == open && before != '\\' => is_closed = true,
                (')', _) if quote.is_some() == is_closed => {
                    end = Some(at);
                    break;
                }
                _ => {}
            }
            before = c;
        }
        let inside = self.take(end.ok_or(Mismatch)?);
        self.skip(1);
        if self.take(1) != "]" {
            return Err(Mismatch);
        }
        let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
        let compared = inside.find(is_operator).filter(|at| *at > 0).and_then(|at| {
            let (left, right) = inside.split_at(at);
            let end = right.find(|c| !is_operator(c))?;
            Some((left, right.split_at(end)))
        });
        match compared {
            None => Ok(Filter { left: self.inner(inside)?, comparison: None }),
            Some((left, (operator, right))) => {
                let right = self.inner(right)?;
                let comparison = Some((Operator::parse(operator), right));
                Ok(Filter { left: self.inner(left)?, comparison })
            }
        }
    }

    fn quoted(&mut self, quote: char) -> Result<Step, Mismatch> {
        self.skip(1);
        let mut text = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => text.push(chars.next().ok_or(Mismatch)?.1),
                c if c == quote => {
                    self.skip(at + 1);
                    return Ok(Step::Literal(Value::from(text)));
                }
                c => text.push(c),
            }
        }
        Err(Mismatch)
    }

    fn number(&mut self) -> Result<Step, Mismatch> {
        let is_part = |c: char| matches!(c, '+' | '-' | '.') || c.is_ascii_digit();
        let text = self.take(self.rest.find(|c| !is_part(c)).unwrap_or(self.rest.len()));
        let number = match text.parse() {
            Ok(number) => Value::Int(number),
            Err(_) => Value::Float(text.parse().map_err(|_| Mismatch)?),
        };
        Ok(Step::Literal(number))
    }

    fn word(&mut self) -> Result<Step, Mismatch> {
        let end = self.rest.find(is_terminator).unwrap_or(self.rest.len());
        match self.take(end) {
            "true" => Ok(Step::Literal(Value::Bool(true))),
            "false" => Ok(Step::Literal(Value::Bool(false))),
            _ => Ok(Step::Word),
        }
    }
}

fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}

impl Slice {
    /// Reads what stands between brackets: `1`, `-1`, `:`, `1:3`, `::2`.
    fn parse(text: &str) -> Result<Slice, Mismatch> {
        let parts: Vec<&str> = text.split(':').collect();
        if parts.len() > 3 {
            return Err(Mismatch);
        }
        let number = |at: usize| match parts.get(at) {
            None | Some(&"") => Ok(None),
            Some(part) => {
                let digits = part.strip_prefix('-').unwrap_or(part);
                let is_number = digits.bytes().all(|byte| byte.is_ascii_digit());
                part.parse::<i64>().ok().filter(|_| is_number).map(Some).ok_or(Mismatch)
            }
        };
        let from = number(0)?;
        let is_index = parts.len() == 1;
        let to = if is_index { from.unwrap_or(0).checked_add(1) } else { number(1)? };
        Ok(Slice { from, to, step: number(2)?, is_index })
    }
}

impl Operator {
    fn parse(text: &str) -> Operator {
        match text {
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            ">=" => Operator::GreaterOrEqual,
            ">" => Operator::Greater,
            _ => Operator::Unknown,
        }
    }
}
