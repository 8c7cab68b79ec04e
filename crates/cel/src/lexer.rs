//! The lexer: splits an expression into tokens. Tokens and the recovery after an unrecognized
//! character are those of cel-go's ANTLR lexer.

use std::fmt;

/// The kind of a token. Messages list expected tokens in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Token {
    End,
    Equal,
    NotEqual,
    In,
    Less,
    LessEqual,
    GreaterEqual,
    Greater,
    And,
    Or,
    LeftBracket,
    RightBracket,
    LeftBrace,
    RightBrace,
    LeftParen,
    RightParen,
    Dot,
    Comma,
    Minus,
    Not,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Identifier,
    QuotedIdentifier,
}

/// The names of tokens in messages, in the order of [`Token`].
const NAMES: [&str; 36] = [
    "<EOF>",
    "'=='",
    "'!='",
    "'in'",
    "'<'",
    "'<='",
    "'>='",
    "'>'",
    "'&&'",
    "'||'",
    "'['",
    "']'",
    "'{'",
    "'}'",
    "'('",
    "')'",
    "'.'",
    "','",
    "'-'",
    "'!'",
    "'?'",
    "':'",
    "'+'",
    "'*'",
    "'/'",
    "'%'",
    "'true'",
    "'false'",
    "'null'",
    "NUM_FLOAT",
    "NUM_INT",
    "NUM_UINT",
    "STRING",
    "BYTES",
    "IDENTIFIER",
    "ESC_IDENTIFIER",
];

/// A set of tokens.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct TokenSet(u64);

impl TokenSet {
    pub(crate) const fn of(tokens: &[Token]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < tokens.len() {
            bits |= 1 << tokens[at] as u8;
            at += 1;
        }
        TokenSet(bits)
    }

    pub(crate) const fn with(self, tokens: &[Token]) -> Self {
        TokenSet(self.0 | TokenSet::of(tokens).0)
    }

    pub(crate) fn contains(self, token: Token) -> bool {
        self.0 & (1 << token as u8) != 0
    }
}

impl fmt::Display for TokenSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = NAMES
            .iter()
            .enumerate()
            .filter(|(at, _)| self.0 & (1 << at) != 0)
            .map(|n| *n.1)
            .collect();
        match names[..] {
            [name] => f.write_str(name),
            _ => write!(f, "{{{}}}", names.join(", ")),
        }
    }
}

/// A token and its position, in characters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexeme {
    pub(crate) token: Token,
    pub(crate) start: u32,
    pub(crate) end: u32,
}

/// Text that is no token.
#[derive(Debug)]
pub(crate) struct Unrecognized {
    pub(crate) start: u32,
    pub(crate) text: String,
}

/// Returns all tokens, the last one being [`Token::End`], and the text that is none.
pub(crate) fn tokens(text: &[char]) -> (Vec<Lexeme>, Vec<Unrecognized>) {
    let mut out = vec![];
    let mut faults = vec![];
    let mut at = 0;
    loop {
        at = skip_blanks(text, at);
        if at >= text.len() {
            let end = text.len() as u32;
            out.push(Lexeme { token: Token::End, start: end, end });
            return (out, faults);
        }
        match Scan::next_token(text, at) {
            Ok((token, end)) => {
                out.push(Lexeme { token, start: at as u32, end: end as u32 });
                at = end;
            }
            Err(end) => {
                // Recovery also skips the character that fits no token.
                let end = (end + 1).min(text.len());
                faults
                    .push(Unrecognized { start: at as u32, text: text[at..end].iter().collect() });
                at = end;
            }
        }
    }
}

fn skip_blanks(text: &[char], mut at: usize) -> usize {
    while at < text.len() {
        match text[at] {
            '\t' | ' ' | '\r' | '\n' | '\u{c}' => at += 1,
            '/' if text.get(at + 1) == Some(&'/') => {
                while at < text.len() && text[at] != '\n' {
                    at += 1;
                }
            }
            _ => break,
        }
    }
    at
}

struct Scan<'a> {
    text: &'a [char],
    start: usize,
}

/// A token and its end, or the position of the character that fits no token.
type ScanResult = Result<(Token, usize), usize>;

impl Scan<'_> {
    fn next_token(text: &[char], start: usize) -> ScanResult {
        let scan = Scan { text, start };
        match text[start] {
            'a'..='z' | 'A'..='Z' | '_' => scan.word(),
            '0'..='9' => Ok(scan.number()),
            '.' if scan.is_digit(start + 1) => Ok(scan.number()),
            '"' | '\'' => scan.string(start, false).map(|end| (Token::String, end)),
            '`' => scan.quoted_identifier(),
            _ => scan.punctuation(),
        }
    }

    fn at(&self, at: usize) -> Option<char> {
        self.text.get(at).copied()
    }

    fn is_digit(&self, at: usize) -> bool {
        self.at(at).is_some_and(|c| c.is_ascii_digit())
    }

    fn punctuation(&self) -> ScanResult {
        let next = self.at(self.start + 1);
        let two = |second: char, token: Token, alone: Option<Token>| match (next, alone) {
            (Some(c), _) if c == second => Ok((token, self.start + 2)),
            (_, Some(alone)) => Ok((alone, self.start + 1)),
            _ => Err(self.start + 1),
        };
        let one = |token: Token| Ok((token, self.start + 1));
        match self.text[self.start] {
            '=' => two('=', Token::Equal, None),
            '!' => two('=', Token::NotEqual, Some(Token::Not)),
            '<' => two('=', Token::LessEqual, Some(Token::Less)),
            '>' => two('=', Token::GreaterEqual, Some(Token::Greater)),
            '&' => two('&', Token::And, None),
            '|' => two('|', Token::Or, None),
            '[' => one(Token::LeftBracket),
            ']' => one(Token::RightBracket),
            '{' => one(Token::LeftBrace),
            '}' => one(Token::RightBrace),
            '(' => one(Token::LeftParen),
            ')' => one(Token::RightParen),
            '.' => one(Token::Dot),
            ',' => one(Token::Comma),
            '-' => one(Token::Minus),
            '?' => one(Token::Question),
            ':' => one(Token::Colon),
            '+' => one(Token::Plus),
            '*' => one(Token::Star),
            '/' => one(Token::Slash),
            '%' => one(Token::Percent),
            _ => Err(self.start),
        }
    }

    /// Scans an identifier, a keyword, or a string with a prefix.
    fn word(&self) -> ScanResult {
        let prefix: String = self.text[self.start..].iter().take(2).collect();
        let prefix = prefix.to_ascii_lowercase();
        let quote = |at: usize| matches!(self.at(at), Some('"' | '\''));
        let string = match prefix.as_str() {
            "br" if quote(self.start + 2) => Some((Token::Bytes, 2, true)),
            _ if prefix.starts_with('b') && quote(self.start + 1) => Some((Token::Bytes, 1, false)),
            _ if prefix.starts_with('r') && quote(self.start + 1) => Some((Token::String, 1, true)),
            _ => None,
        };
        if let Some((token, skip, raw)) = string
            && let Ok(end) = self.string(self.start + skip, raw)
        {
            return Ok((token, end));
        }
        let is_inside = |c: &&char| c.is_ascii_alphanumeric() || **c == '_';
        let length = self.text[self.start..].iter().take_while(is_inside).count();
        let end = self.start + length;
        let word: String = self.text[self.start..end].iter().collect();
        let token = match word.as_str() {
            "in" => Token::In,
            "true" => Token::True,
            "false" => Token::False,
            "null" => Token::Null,
            _ => Token::Identifier,
        };
        Ok((token, end))
    }

    fn number(&self) -> (Token, usize) {
        let digits =
            |at: usize| at + self.text.iter().skip(at).take_while(|c| c.is_ascii_digit()).count();
        let suffixed = |token: Token, end: usize| match self.at(end) {
            Some('u' | 'U') => (Token::Uint, end + 1),
            _ => (token, end),
        };
        if self.at(self.start) == Some('0') && self.at(self.start + 1) == Some('x') {
            let rest = self.text.iter().skip(self.start + 2);
            let hex = rest.take_while(|c| c.is_ascii_hexdigit()).count();
            if hex > 0 {
                return suffixed(Token::Int, self.start + 2 + hex);
            }
        }
        let whole = digits(self.start);
        let mut end = whole;
        if self.at(end) == Some('.') && self.is_digit(end + 1) {
            end = digits(end + 1);
        }
        if matches!(self.at(end), Some('e' | 'E')) {
            let sign = usize::from(matches!(self.at(end + 1), Some('+' | '-')));
            if self.is_digit(end + 1 + sign) {
                end = digits(end + 1 + sign);
            }
        }
        if end == whole { suffixed(Token::Int, whole) } else { (Token::Float, end) }
    }

    /// Returns the end of the string that opens at `open`. The longest form that fits wins: `''` is
    /// an empty string if `'''` is never closed.
    fn string(&self, open: usize, raw: bool) -> Result<usize, usize> {
        let quote = self.text[open];
        let triple = (1..3).all(|more| self.at(open + more) == Some(quote));
        if triple {
            if let Ok(end) = self.string_body(open + 3, quote, raw, true) {
                return Ok(end);
            }
            return Ok(open + 2);
        }
        self.string_body(open + 1, quote, raw, false)
    }

    fn string_body(
        &self,
        mut at: usize,
        quote: char,
        raw: bool,
        triple: bool,
    ) -> Result<usize, usize> {
        loop {
            let c = self.at(at).ok_or(at)?;
            if c == quote && !triple {
                return Ok(at + 1);
            }
            if triple && (0..3).all(|more| self.at(at + more) == Some(quote)) {
                return Ok(at + 3);
            }
            at = match c {
                '\n' | '\r' if !triple => return Err(at),
                '\\' if !raw => self.escape(at)?,
                _ => at + 1,
            };
        }
    }

    fn escape(&self, at: usize) -> Result<usize, usize> {
        let run = |from: usize, count: usize, fits: fn(char) -> bool| {
            for place in from..from + count {
                if !self.at(place).is_some_and(fits) {
                    return Err(place);
                }
            }
            Ok(from + count)
        };
        let hex = |c: char| c.is_ascii_hexdigit();
        match self.at(at + 1) {
            Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => {
                Ok(at + 2)
            }
            Some('0'..='3') => run(at + 2, 2, |c| ('0'..='7').contains(&c)),
            Some('x' | 'X') => run(at + 2, 2, hex),
            Some('u') => run(at + 2, 4, hex),
            Some('U') => run(at + 2, 8, hex),
            _ => Err(at + 1),
        }
    }

    fn quoted_identifier(&self) -> ScanResult {
        let mut at = self.start + 1;
        loop {
            match self.at(at) {
                Some('`') if at > self.start + 1 => return Ok((Token::QuotedIdentifier, at + 1)),
                Some(c) if c.is_ascii_alphanumeric() || "_.-/ ".contains(c) => at += 1,
                _ => return Err(at),
            }
        }
    }
}
