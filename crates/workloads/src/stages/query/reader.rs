//! Reads a query.

use super::{Comparison, Filter, TextTest, ValueFunction, number};
use keelson_meta::Value;

/// Parentheses that may stand in each other.
const DEPTH_MAX: usize = 64;

/// Parses the text of a query.
pub fn read(text: &str) -> Result<Filter, String> {
    let words = words(text)?;
    let mut reader = Reader { words: &words, at: 0, depth: 0 };
    let filter = reader.pipe()?;
    match reader.peek() {
        None => Ok(filter),
        Some(word) => Err(format!("unexpected {:?}", word.text())),
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Word {
    /// A name, a number or a sign.
    Plain(String),
    Quoted(String),
}

impl Word {
    fn text(&self) -> &str {
        match self {
            Word::Plain(text) | Word::Quoted(text) => text,
        }
    }
}

const SIGNS: [&str; 17] =
    ["==", "!=", "<=", ">=", "//", "<", ">", "|", ",", "(", ")", "[", "]", ".", "?", "=", "+"];

fn words(text: &str) -> Result<Vec<Word>, String> {
    let mut words = vec![];
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first == '"' {
            let end = quoted_end(rest).ok_or("a quoted text has no end")?;
            let parsed = keelson_schema::json::parse(&rest.as_bytes()[..end]);
            let quoted = parsed.map_err(|why| why.to_string())?.value;
            words.push(Word::Quoted(quoted.as_str().unwrap_or_default().to_owned()));
            end
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            words.push(Word::Plain((*sign).to_owned()));
            sign.len()
        } else {
            let is_name = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$');
            let end = rest.find(|c: char| !is_name(c)).unwrap_or(rest.len());
            let end = if end == 0 { first.len_utf8() } else { end };
            words.push(Word::Plain(rest[..end].to_owned()));
            end
        };
        rest = rest[length..].trim_start();
    }
    Ok(words)
}

/// Returns the place after the quoted text with which a text begins.
fn quoted_end(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    let mut rest = text.char_indices().skip(1);
    let end = rest.find(|(_, c)| {
        let ends = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        ends
    });
    end.map(|(at, _)| at + 1)
}

struct Reader<'a> {
    words: &'a [Word],
    at: usize,
    depth: usize,
}

type Read = Result<Filter, String>;

impl Reader<'_> {
    fn peek(&self) -> Option<&Word> {
        self.words.get(self.at)
    }

    fn take(&mut self, sign: &str) -> bool {
        let is_next = self.peek().is_some_and(|word| *word == Word::Plain(sign.to_owned()));
        self.at += usize::from(is_next);
        is_next
    }

    fn need(&mut self, sign: &str) -> Result<(), String> {
        if self.take(sign) { Ok(()) } else { Err(format!("{sign:?} is missing")) }
    }

    /// Reads filters with the binary operator `sign` between them, which groups to the right.
    fn right(
        &mut self,
        sign: &str,
        next: fn(&mut Self) -> Read,
        make: fn(Box<Filter>, Box<Filter>) -> Filter,
    ) -> Read {
        let mut all = vec![next(self)?];
        while self.take(sign) {
            all.push(next(self)?);
        }
        let last = all.pop().unwrap_or(Filter::Identity);
        Ok(all.into_iter().rfold(last, |right, left| make(Box::new(left), Box::new(right))))
    }

    fn pipe(&mut self) -> Read {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err("it is nested too deeply".to_owned());
        }
        let filter = self.right("|", Self::comma, Filter::Pipe);
        self.depth -= 1;
        filter
    }

    fn comma(&mut self) -> Read {
        self.right(",", Self::alternative, Filter::Comma)
    }

    fn alternative(&mut self) -> Read {
        self.right("//", Self::or, Filter::Alternative)
    }

    fn or(&mut self) -> Read {
        self.right("or", Self::and, Filter::Or)
    }

    fn and(&mut self) -> Read {
        self.right("and", Self::comparison, Filter::And)
    }

    fn comparison(&mut self) -> Read {
        const SIGNS: [(&str, Comparison); 6] = [
            ("==", Comparison::Equal),
            ("!=", Comparison::Different),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::MoreOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::More),
        ];
        let left = self.postfix()?;
        match SIGNS.iter().find(|(sign, _)| self.take(sign)) {
            Some((_, comparison)) => {
                let right = self.postfix()?;
                Ok(Filter::Compare(*comparison, Box::new(left), Box::new(right)))
            }
            None => Ok(left),
        }
    }

    /// Reads a term and the fields and items after it.
    fn postfix(&mut self) -> Read {
        let mut filter = self.term()?;
        loop {
            let part = if self.take("?") {
                filter = Filter::Try(Box::new(filter));
                continue;
            } else if self.take(".") {
                self.after_point()?
            } else if self.take("[") {
                self.item()?
            } else {
                return Ok(filter);
            };
            filter = match filter {
                Filter::Identity => part,
                filter => Filter::Pipe(Box::new(filter), Box::new(part)),
            };
        }
    }

    fn after_point(&mut self) -> Read {
        if self.take("[") {
            return self.item();
        }
        self.name()?.ok_or_else(|| "a name is missing after a point".to_owned())
    }

    /// Reads the name of a field, if there is one.
    fn name(&mut self) -> Result<Option<Filter>, String> {
        let starts = |text: &str| text.starts_with(|c: char| c.is_alphabetic() || c == '_');
        match self.peek() {
            Some(Word::Quoted(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(Some(Filter::Field(name)))
            }
            Some(Word::Plain(name)) if starts(name) => match name.contains(['-', '$']) {
                true => Err(format!("the field {name:?} needs quotes")),
                false => {
                    let name = name.clone();
                    self.at += 1;
                    Ok(Some(Filter::Field(name)))
                }
            },
            _ => Ok(None),
        }
    }

    /// Reads what stands between brackets.
    fn item(&mut self) -> Read {
        if self.take("]") {
            return Ok(Filter::Items);
        }
        let filter = match self.peek() {
            Some(Word::Quoted(name)) => Filter::Field(name.clone()),
            Some(Word::Plain(text)) => match text.parse::<i64>() {
                Ok(number) => Filter::Item(number),
                Err(_) => return Err(format!("unexpected {text:?} between brackets")),
            },
            None => return Err("it ends too early".to_owned()),
        };
        self.at += 1;
        self.need("]")?;
        Ok(filter)
    }

    fn term(&mut self) -> Read {
        if self.take(".") {
            if self.take("[") {
                return self.item();
            }
            return Ok(self.name()?.unwrap_or(Filter::Identity));
        }
        if self.take("(") {
            let filter = self.pipe()?;
            self.need(")")?;
            return Ok(filter);
        }
        let word = self.peek().cloned().ok_or("it ends too early")?;
        let word = match word {
            Word::Quoted(text) => {
                self.at += 1;
                return Ok(Filter::Literal(Value::from(text)));
            }
            Word::Plain(word) => word,
        };
        if let Some(value) = literal(&word) {
            self.at += 1;
            return Ok(Filter::Literal(value));
        }
        if !word.starts_with(|c: char| c.is_alphabetic()) {
            return Err(format!("unexpected {word:?}"));
        }
        self.at += 1;
        self.function(&word)
    }

    fn function(&mut self, name: &str) -> Read {
        let function = match name {
            "empty" => ValueFunction::Empty,
            "first" => ValueFunction::First,
            "keys" => ValueFunction::Keys,
            "last" => ValueFunction::Last,
            "length" => ValueFunction::Length,
            "not" => ValueFunction::Not,
            "tonumber" => ValueFunction::ToNumber,
            "tostring" => ValueFunction::ToString,
            "type" => ValueFunction::Type,
            _ => return self.function_of(name),
        };
        Ok(Filter::Function(function))
    }

    /// Reads a function with one argument.
    fn function_of(&mut self, name: &str) -> Read {
        let make: fn(Box<Filter>) -> Filter = match name {
            "select" => Filter::Select,
            "map" => Filter::Map,
            "any" => Filter::Any,
            "all" => Filter::All,
            "has" => |argument| Filter::Test(TextTest::Has, argument),
            "contains" => |argument| Filter::Test(TextTest::Contains, argument),
            "startswith" => |argument| Filter::Test(TextTest::StartsWith, argument),
            "endswith" => |argument| Filter::Test(TextTest::EndsWith, argument),
            _ => return Err(format!("function {name:?} is not known")),
        };
        if !self.take("(") {
            return match name {
                "any" | "all" => Ok(make(Box::new(Filter::Identity))),
                _ => Err(format!("{name} needs an argument")),
            };
        }
        let argument = self.pipe()?;
        self.need(")")?;
        Ok(make(Box::new(argument)))
    }
}

fn literal(word: &str) -> Option<Value> {
    match word {
        "true" | "false" => Some(Value::Bool(word == "true")),
        "null" => Some(Value::Null),
        _ => number(word).filter(|_| word.starts_with(|c: char| c.is_ascii_digit() || c == '-')),
    }
}
