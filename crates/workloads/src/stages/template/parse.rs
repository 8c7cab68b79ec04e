//! Parses a template into a tree, and checks that its functions exist.

use super::TemplateError;
use super::functions;
use super::lex::{Piece, Token, TokenKind, pieces};
use keelson_meta::Value;
use std::collections::HashMap;

/// Blocks and parentheses that may stand in each other.
const DEPTH_MAX: usize = 64;

/// Conditions, and what is rendered if they hold.
pub type Branches = Vec<(Pipeline, Vec<TemplatePart>)>;

/// A part of a parsed template.
#[derive(Clone, Debug)]
pub enum TemplatePart {
    Plain(String),
    /// A pipeline whose value is written, unless it sets a variable.
    Action(Pipeline),
    If {
        branches: Branches,
        otherwise: Vec<TemplatePart>,
    },
    With {
        branches: Branches,
        otherwise: Vec<TemplatePart>,
    },
    Range {
        /// The variables of the index and of the item; each may be absent.
        index: Option<String>,
        item: Option<String>,
        over: Pipeline,
        body: Vec<TemplatePart>,
        otherwise: Vec<TemplatePart>,
    },
    Break,
    Continue,
    /// The call of a template that `define` or `block` has named.
    Call(String, Option<Pipeline>, u32),
}

#[derive(Clone, Debug)]
pub struct Pipeline {
    pub line: u32,
    /// The variable that is set, and whether it is a new one.
    pub variable: Option<(String, bool)>,
    /// Each gets the value of the one before it as its last argument.
    pub calls: Vec<Vec<Operand>>,
}

#[derive(Clone, Debug)]
pub enum Operand {
    Literal(Value),
    /// `.` and fields of it.
    Dot(Vec<String>),
    Variable(String, Vec<String>),
    Function(String, Vec<String>),
    Nested(Box<Pipeline>, Vec<String>),
}

/// A parsed template and those that it defines.
#[derive(Clone, Debug, Default)]
pub struct ParsedTemplate {
    pub main: Vec<TemplatePart>,
    pub named: HashMap<String, Vec<TemplatePart>>,
}

/// How a list of parts ended.
#[derive(PartialEq)]
enum EndWord {
    Text,
    End,
    /// `else`, with the rest of its action.
    Else(Vec<Token>, u32),
}

pub fn parse(text: &str) -> Result<ParsedTemplate, TemplateError> {
    let mut parser = Parser {
        pieces: pieces(text)?.into_iter(),
        parsed: ParsedTemplate::default(),
        depth: 0,
        ranges: 0,
    };
    let (main, end) = parser.parts()?;
    match end {
        EndWord::Text => Ok(ParsedTemplate { main, ..parser.parsed }),
        EndWord::End => Err(TemplateError::new(0, "an end has no beginning")),
        EndWord::Else(_, line) => Err(TemplateError::new(line, "an else has no if")),
    }
}

struct Parser {
    pieces: std::vec::IntoIter<Piece>,
    parsed: ParsedTemplate,
    depth: usize,
    /// How many `range` are open.
    ranges: usize,
}

impl Parser {
    fn parts(&mut self) -> Result<(Vec<TemplatePart>, EndWord), TemplateError> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(TemplateError::new(0, "blocks are nested too deeply"));
        }
        let mut parts = vec![];
        let end = loop {
            let Some(piece) = self.pieces.next() else { break EndWord::Text };
            let (tokens, line) = match piece {
                Piece::Plain(text) => {
                    parts.push(TemplatePart::Plain(text));
                    continue;
                }
                Piece::Action(tokens, line) => (tokens, line),
            };
            let word = match tokens.first().map(|token| &token.kind) {
                Some(TokenKind::Word(word)) => word.clone(),
                _ => String::new(),
            };
            let rest = || tokens[1..].to_vec();
            match word.as_str() {
                "end" => break EndWord::End,
                "else" => break EndWord::Else(rest(), line),
                _ => {}
            }
            if let Some(part) = self.part(&word, tokens, line)? {
                parts.push(part);
            }
        };
        self.depth -= 1;
        Ok((parts, end))
    }

    /// Parses an action, and what belongs to it; `None`: it only defines a template.
    fn part(
        &mut self,
        word: &str,
        mut tokens: Vec<Token>,
        line: u32,
    ) -> Result<Option<TemplatePart>, TemplateError> {
        let takes_rest = matches!(
            word,
            "if" | "with" | "range" | "break" | "continue" | "template" | "define" | "block"
        );
        if takes_rest {
            tokens.remove(0);
        }
        Ok(Some(match word {
            "if" => {
                let (branches, otherwise) = self.branches(tokens, line, "if")?;
                TemplatePart::If { branches, otherwise }
            }
            "with" => {
                let (branches, otherwise) = self.branches(tokens, line, "with")?;
                TemplatePart::With { branches, otherwise }
            }
            "range" => self.range(&tokens, line)?,
            "break" | "continue" if self.ranges == 0 => {
                return Err(TemplateError::new(line, format!("{word} outside of range")));
            }
            "break" => TemplatePart::Break,
            "continue" => TemplatePart::Continue,
            "template" | "block" | "define" => {
                let name = template_name(&mut tokens, word, line)?;
                if word != "template" {
                    let body = self.body(line)?;
                    self.parsed.named.insert(name.clone(), body);
                }
                if word == "define" {
                    return Ok(None);
                }
                let argument = match tokens.is_empty() {
                    true => None,
                    false => Some(self.pipeline(&tokens, line)?),
                };
                TemplatePart::Call(name, argument, line)
            }
            _ => TemplatePart::Action(self.pipeline(&tokens, line)?),
        }))
    }

    /// Parses up to an `end`.
    fn body(&mut self, line: u32) -> Result<Vec<TemplatePart>, TemplateError> {
        match self.parts()? {
            (parts, EndWord::End) => Ok(parts),
            _ => Err(TemplateError::new(line, "a block has no end")),
        }
    }

    /// Parses the branches of an `if` or a `with`, whose `else` may have a condition, too.
    fn branches(
        &mut self,
        first: Vec<Token>,
        first_line: u32,
        word: &str,
    ) -> Result<(Branches, Vec<TemplatePart>), TemplateError> {
        let mut tokens = first;
        let mut line = first_line;
        let mut branches = vec![];
        loop {
            let condition = self.pipeline(&tokens, line)?;
            let (body, end) = self.parts()?;
            branches.push((condition, body));
            match end {
                EndWord::End => return Ok((branches, vec![])),
                EndWord::Text => {
                    return Err(TemplateError::new(first_line, format!("{word} has no end")));
                }
                EndWord::Else(rest, _) if rest.is_empty() => {
                    return Ok((branches, self.body(first_line)?));
                }
                EndWord::Else(rest, at) => {
                    if rest[0].kind != TokenKind::Word(word.to_owned()) {
                        let why = format!("else of {word} may only be followed by {word}");
                        return Err(TemplateError::new(at, why));
                    }
                    (tokens, line) = (rest[1..].to_vec(), at);
                }
            }
        }
    }

    fn range(&mut self, tokens: &[Token], line: u32) -> Result<TemplatePart, TemplateError> {
        let mut names = vec![];
        let mut rest = tokens;
        if let Some(declare) = tokens.iter().position(|one| one.kind == TokenKind::Declare) {
            for token in &tokens[..declare] {
                match &token.kind {
                    TokenKind::Variable(name) => names.push(name.clone()),
                    TokenKind::Comma => {}
                    _ => return Err(TemplateError::new(line, "range needs variables before :=")),
                }
            }
            rest = &tokens[declare + 1..];
        }
        if names.len() > 2 {
            return Err(TemplateError::new(line, "range has too many variables"));
        }
        let over = self.pipeline(rest, line)?;
        let item = names.pop();
        let index = names.pop();
        self.ranges += 1;
        let (body, end) = self.parts()?;
        self.ranges -= 1;
        let otherwise = match end {
            EndWord::End => vec![],
            EndWord::Else(rest, _) if rest.is_empty() => self.body(line)?,
            _ => return Err(TemplateError::new(line, "range has no end")),
        };
        Ok(TemplatePart::Range { index, item, over, body, otherwise })
    }

    fn pipeline(&mut self, tokens: &[Token], line: u32) -> Result<Pipeline, TemplateError> {
        let (variable, rest) = match tokens {
            [Token { kind: TokenKind::Variable(name), .. }, Token { kind, .. }, rest @ ..]
                if matches!(kind, TokenKind::Declare | TokenKind::Assign) =>
            {
                (Some((name.clone(), *kind == TokenKind::Declare)), rest)
            }
            _ => (None, tokens),
        };
        let mut reader = CallReader { tokens: rest, at: 0, line, depth: 0 };
        let calls = reader.calls()?;
        if reader.at < rest.len() {
            return Err(TemplateError::new(line, "unexpected )"));
        }
        Ok(Pipeline { line, variable, calls })
    }
}

fn template_name(tokens: &mut Vec<Token>, word: &str, line: u32) -> Result<String, TemplateError> {
    let name = match tokens.first().map(|token| &token.kind) {
        Some(TokenKind::Literal(Value::String(name))) => name.to_string(),
        _ => return Err(TemplateError::new(line, format!("{word} needs a name in quotes"))),
    };
    tokens.remove(0);
    Ok(name)
}

/// Reads the calls of a pipeline.
struct CallReader<'a> {
    tokens: &'a [Token],
    at: usize,
    line: u32,
    depth: usize,
}

impl CallReader<'_> {
    fn error<T>(&self, why: impl Into<String>) -> Result<T, TemplateError> {
        Err(TemplateError::new(self.line, why))
    }

    /// Reads calls up to the end or a closing parenthesis.
    fn calls(&mut self) -> Result<Vec<Vec<Operand>>, TemplateError> {
        let mut calls = vec![vec![]];
        while let Some(token) = self.tokens.get(self.at) {
            match token.kind {
                TokenKind::Close => break,
                TokenKind::Pipe => {
                    self.at += 1;
                    calls.push(vec![]);
                }
                _ => {
                    let operand = self.operand()?;
                    calls.last_mut().unwrap_or(&mut vec![]).push(operand);
                }
            }
        }
        if calls.iter().any(Vec::is_empty) {
            return self.error("a value is missing");
        }
        for call in &calls[1..] {
            if !matches!(call[0], Operand::Function(..)) {
                return self.error("only a function may follow |");
            }
        }
        if calls.iter().any(|call| call.len() > 1 && !matches!(call[0], Operand::Function(..))) {
            return self.error("a value that is no function has arguments");
        }
        Ok(calls)
    }

    fn operand(&mut self) -> Result<Operand, TemplateError> {
        let token = self.tokens[self.at].clone();
        self.at += 1;
        match token.kind {
            TokenKind::Literal(value) => Ok(Operand::Literal(value)),
            TokenKind::Dot => Ok(Operand::Dot(vec![])),
            TokenKind::Field(name) => {
                let mut path = vec![name];
                path.append(&mut self.fields());
                Ok(Operand::Dot(path))
            }
            TokenKind::Variable(name) => Ok(Operand::Variable(name, self.fields())),
            TokenKind::Word(name) => {
                if !functions::is_known(&name) {
                    return self.error(format!("function {name:?} is not known"));
                }
                Ok(Operand::Function(name, self.fields()))
            }
            TokenKind::Open => {
                self.depth += 1;
                if self.depth > DEPTH_MAX {
                    return self.error("parentheses are nested too deeply");
                }
                let calls = self.calls()?;
                if self.tokens.get(self.at).is_none_or(|token| token.kind != TokenKind::Close) {
                    return self.error("a parenthesis is not closed");
                }
                self.at += 1;
                self.depth -= 1;
                let pipeline = Pipeline { line: self.line, variable: None, calls };
                Ok(Operand::Nested(Box::new(pipeline), self.fields()))
            }
            other => self.error(format!("unexpected {other:?}")),
        }
    }

    /// Reads the fields that follow an operand without a blank.
    fn fields(&mut self) -> Vec<String> {
        let mut fields = vec![];
        while let Some(Token { kind: TokenKind::Field(name), is_apart: false }) =
            self.tokens.get(self.at)
        {
            fields.push(name.clone());
            self.at += 1;
        }
        fields
    }
}
