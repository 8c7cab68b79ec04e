//! Parses the text form of a label selector: a lexer and a recursive descent parser.

use super::{Operator, Requirement, Selector};
use crate::names::is_qualified_name;
use crate::{FieldError, Path, Str};
use std::collections::BTreeSet;

/// Parses a selector such as `a=b,c in (d, e),!f`. The error is the message for the client.
pub fn parse(text: &str) -> Result<Selector, String> {
    Parser { tokens: scan(text), at: 0 }.selector()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    Close,
    Comma,
    Not,
    Open,
    Word,
    /// An operator, written as a word or a symbol.
    Binary(Operator),
}

fn keyword(text: &str) -> Option<Token> {
    Some(match text {
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "(" => Token::Open,
        "==" => Token::Binary(Operator::DoubleEquals),
        "=" => Token::Binary(Operator::Equals),
        ">" => Token::Binary(Operator::GreaterThan),
        "<" => Token::Binary(Operator::LessThan),
        "!=" => Token::Binary(Operator::NotEquals),
        "in" => Token::Binary(Operator::In),
        "notin" => Token::Binary(Operator::NotIn),
        _ => return None,
    })
}

fn is_symbol(b: u8) -> bool {
    matches!(b, b'=' | b'!' | b'(' | b')' | b',' | b'>' | b'<')
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\t' | b'\r' | b'\n')
}

/// Splits the text into tokens; only the last one is `End`. As upstream, a zero byte ends the text.
fn scan(text: &str) -> Vec<(Token, String)> {
    let text = text.split('\0').next().unwrap_or_default();
    let bytes = text.as_bytes();
    let mut tokens = vec![];
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        if is_space(bytes[at]) {
            at += 1;
        } else if is_symbol(bytes[at]) {
            at = symbol_end(text, start);
            let symbol = &text[start..at];
            tokens.extend(keyword(symbol).map(|token| (token, symbol.to_owned())));
        } else {
            let plain = |b: &u8| !is_symbol(*b) && !is_space(*b);
            at += bytes[start..].iter().take_while(|b| plain(b)).count();
            let word = &text[start..at];
            tokens.push((keyword(word).unwrap_or(Token::Word), word.to_owned()));
        }
    }
    tokens.push((Token::End, String::new()));
    tokens
}

/// Returns the end of the longest operator at `start`. Every prefix of an operator is an operator,
/// so the search ends at the first text that is none.
fn symbol_end(text: &str, start: usize) -> usize {
    let mut end = start + 1;
    while text.as_bytes().get(end).is_some_and(|b| is_symbol(*b))
        && keyword(&text[start..=end]).is_some()
    {
        end += 1;
    }
    end
}

struct Parser {
    /// Ends with `End`.
    tokens: Vec<(Token, String)>,
    at: usize,
}

impl Parser {
    /// Returns the next token, with `in` and `notin` as plain words.
    fn peek(&self) -> (Token, &str) {
        let (token, text) = self.token_at(self.at);
        match token {
            Token::Binary(Operator::In | Operator::NotIn) => (Token::Word, text),
            _ => (token, text),
        }
    }

    fn token_at(&self, at: usize) -> (Token, &str) {
        self.tokens.get(at).map_or((Token::End, ""), |(token, text)| (*token, text))
    }

    fn next(&mut self) -> (Token, String) {
        let (token, text) = self.peek();
        let found = (token, text.to_owned());
        self.at += 1;
        found
    }

    fn selector(&mut self) -> Result<Selector, String> {
        let mut requirements = vec![];
        loop {
            match self.peek() {
                (Token::Word | Token::Not, _) => {}
                (Token::End, _) => break,
                (_, text) => {
                    let words = "expected: !, identifier, or 'end of string'";
                    return Err(format!("found '{text}', {words}"));
                }
            }
            let requirement = self
                .requirement()
                .map_err(|error| format!("unable to parse requirement: {error}"))?;
            requirements.push(requirement);
            match self.next() {
                (Token::End, _) => break,
                (Token::Comma, _) => {}
                (_, text) => {
                    return Err(format!("found '{text}', expected: ',' or 'end of string'"));
                }
            }
            let (token, text) = self.peek();
            if token != Token::Word && token != Token::Not {
                return Err(format!("found '{text}', expected: identifier after ','"));
            }
        }
        Ok(Selector::new(requirements))
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let (mut token, mut key) = self.next();
        let negated = token == Token::Not;
        if negated {
            (token, key) = self.next();
        }
        if token != Token::Word {
            return Err(format!("found '{key}', expected: identifier"));
        }
        let errors = is_qualified_name(&key);
        if !errors.is_empty() {
            // Upstream passes a nil path here, which prints as "<nil>".
            let path = Path::new("<nil>");
            let error = FieldError::invalid(&path, key.as_str(), &errors.join("; "));
            return Err(error.to_string());
        }
        if negated {
            return Requirement::new(&key, Operator::DoesNotExist, vec![]);
        }
        if matches!(self.peek().0, Token::End | Token::Comma) {
            return Requirement::new(&key, Operator::Exists, vec![]);
        }
        let operator = self.operator()?;
        let values = match operator {
            Operator::In | Operator::NotIn => self.values()?,
            _ => BTreeSet::from([self.exact_value()?]),
        };
        Requirement::new(&key, operator, values.into_iter().map(Str::from).collect())
    }

    fn operator(&mut self) -> Result<Operator, String> {
        let (token, text) = self.token_at(self.at);
        match token {
            Token::Binary(operator) => {
                self.at += 1;
                Ok(operator)
            }
            _ => Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    fn exact_value(&mut self) -> Result<String, String> {
        match self.peek().0 {
            Token::End | Token::Comma => return Ok(String::new()),
            _ => {}
        }
        match self.next() {
            (Token::Word, text) => Ok(text),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        match self.next() {
            (Token::Open, _) => {}
            (_, text) => return Err(format!("found '{text}' expected: '('")),
        }
        match self.peek() {
            (Token::Word | Token::Comma, _) => {
                let values = self.value_list()?;
                self.at += 1; // `value_list` stops before the closing parenthesis.
                Ok(values)
            }
            (Token::Close, _) => {
                self.at += 1;
                Ok(BTreeSet::from([String::new()]))
            }
            (_, text) => Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
    }

    /// Parses values up to the closing parenthesis. A missing value beside a comma is the empty
    /// one.
    fn value_list(&mut self) -> Result<BTreeSet<String>, String> {
        let mut values = BTreeSet::new();
        loop {
            match self.next() {
                (Token::Word, text) => {
                    values.insert(text);
                    match self.peek() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    let next = self.peek().0;
                    if values.is_empty() || matches!(next, Token::Close | Token::Comma) {
                        values.insert(String::new());
                    }
                    if next == Token::Close {
                        return Ok(values);
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &str) {
        let parsed = match parse(text) {
            Ok(selector) => selector.to_string(),
            Err(error) => format!("error: {error}"),
        };
        assert_eq!(parsed, expected, "{text:?}");
    }

    #[test]
    fn selectors_print_in_canonical_form() {
        check("", "");
        check(" a = b , c==d,e!=f ", "a=b,c==d,e!=f");
        check("z in (b, a),x notin (c)", "x notin (c),z in (a,b)");
        check("!a,b", "!a,b");
        check("a>1,b<2", "a>1,b<2");
        check("x in (,a,)", "x in (,a)");
        check("x in ()", "x in ()");
        check("in in (in, notin)", "in in (in,notin)");
        check("a=", "a=");
        check("a=,b", "a=,b");
        check("example.com/a=b", "example.com/a=b");
    }

    #[test]
    fn a_negated_key_takes_no_operator() {
        // As upstream, `requirement` stops after "!a", and `selector` expects a comma or the end.
        check("!a=b", "error: found '=', expected: ',' or 'end of string'");
    }

    #[test]
    fn errors_are_worded_as_upstream_words_them() {
        check("!!", "error: unable to parse requirement: found '!', expected: identifier");
        check("a,(", "error: found '(', expected: identifier after ','");
        check("(", "error: found '(', expected: !, identifier, or 'end of string'");
        check("a in", "error: unable to parse requirement: found '' expected: '('");
        check("a in (b", "error: unable to parse requirement: found '', expected: ',' or ')'");
        check(
            "a in (=",
            "error: unable to parse requirement: found '=', expected: ',', ')' or identifier",
        );
        check(
            "a b",
            "error: unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        );
        check("a=b c", "error: found 'c', expected: ',' or 'end of string'");
        check("a,", "error: found '', expected: identifier after ','");
        check(
            "a>x",
            "error: unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        );
        check(
            "a/=b",
            "error: unable to parse requirement: <nil>: Invalid value: \"a/\": name part must be \
             non-empty; name part must consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or \
             '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        );
        check(
            "a=-",
            "error: unable to parse requirement: values[0][a]: Invalid value: \"-\": a valid label \
             must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and \
             must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  \
             or '12345', regex used for validation is \
             '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        );
    }

    #[test]
    fn random_input_never_panics_and_parsed_selectors_round_trip() {
        let pieces = ["a", "in", "notin", "(", ")", ",", "=", "!", "<", ">", " ", "1", "é", "\0"];
        let mut seed: u64 = 7;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..8 {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                text.push_str(pieces[(seed >> 33) as usize % pieces.len()]);
            }
            if let Ok(selector) = parse(&text) {
                assert_eq!(parse(&selector.to_string()), Ok(selector), "{text:?}");
            }
        }
    }
}
