//! The parser: cel-go's grammar with its syntax error messages.
//!
//! A single extra or missing token is reported and skipped, as upstream does. Parsing stops after
//! any other syntax error, so later errors of the same expression are not reported.

mod macros;
mod unary;

pub(crate) use macros::Macros;

use crate::ast::{Entry, Expr, ExprKind, Field, Id, Item, Parsed, operator};
use crate::issues::Issues;
use crate::lexer::{Lexeme, Token, TokenSet, Unrecognized, tokens};
use crate::literal::{self, Literal};
use crate::stack;
use keelson_meta::Str;
use macros::Expansion;

/// Maximum number of characters of an expression.
pub const EXPRESSION_CHARS_MAX: usize = 100_000;

/// Expressions, selections and operators of one kind nest less deep than this.
pub const NESTING_DEPTH_MAX: usize = 250;

/// Maximum depth of the tree. Macros and nested chains make the tree deeper than the text.
const TREE_DEPTH_MAX: usize = 1000;

const RESERVED: [&str; 21] = [
    "as",
    "break",
    "const",
    "continue",
    "else",
    "false",
    "for",
    "function",
    "if",
    "import",
    "in",
    "let",
    "loop",
    "package",
    "namespace",
    "null",
    "return",
    "true",
    "var",
    "void",
    "while",
];

/// The tokens that can begin an expression.
const EXPRESSION_START: TokenSet = TokenSet::of(&[
    Token::LeftBracket,
    Token::LeftBrace,
    Token::LeftParen,
    Token::Dot,
    Token::Minus,
    Token::Not,
    Token::True,
    Token::False,
    Token::Null,
    Token::Float,
    Token::Int,
    Token::Uint,
    Token::String,
    Token::Bytes,
    Token::Identifier,
]);

/// The syntax that an environment enables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Syntax {
    pub(crate) macros: Macros,
    /// Whether field names may be in backquotes.
    pub(crate) quoted_fields: bool,
}

/// Parses an expression and reports its errors to `issues`. Returns `None` after an error that ends
/// parsing.
pub(crate) fn parse(text: &str, syntax: Syntax, issues: &mut Issues) -> Option<Parsed> {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() > EXPRESSION_CHARS_MAX {
        issues.report_whole(format!(
            "expression code point size exceeds limit: size: {}, limit {EXPRESSION_CHARS_MAX}",
            chars.len()
        ));
        return None;
    }
    let (lexemes, unrecognized) = tokens(&chars);
    let mut parser = Parser {
        chars: &chars,
        lexemes,
        at: 0,
        syntax,
        issues,
        builder: Builder::default(),
        depth: Depth::default(),
        follow: vec![],
    };
    let root = parser.parse_all();
    parser.report_unrecognized(&unrecognized);
    let offsets = parser.builder.offsets;
    let root = root.ok()?;
    if root.depth() > TREE_DEPTH_MAX {
        root.drop_iteratively();
        issues.report_whole(format!("expression recursion limit exceeded: {NESTING_DEPTH_MAX}"));
        return None;
    }
    Some(Parsed { root, offsets })
}

/// Maximum number of nodes, including those that macros duplicate.
const NODES_MAX: usize = 400_000;

/// Assigns node ids and records offsets.
#[derive(Debug, Default)]
pub(crate) struct Builder {
    offsets: Vec<u32>,
    /// Number of copied nodes; a copy keeps the id of its original.
    copies: usize,
}

impl Builder {
    pub(crate) fn id(&mut self, offset: u32) -> Id {
        self.offsets.push(offset);
        (self.offsets.len() - 1) as Id
    }

    pub(crate) fn node(&mut self, offset: u32, kind: ExprKind) -> Expr {
        Expr { id: self.id(offset), kind }
    }

    /// Copies a subtree, unless the tree already has too many nodes.
    pub(crate) fn copy(&mut self, expr: &Expr) -> Option<Expr> {
        self.copies = self.copies.saturating_add(expr.node_count(NODES_MAX));
        (self.copies + self.offsets.len() <= NODES_MAX).then(|| expr.clone())
    }

    pub(crate) fn offset(&self, id: Id) -> u32 {
        self.offsets.get(id as usize).copied().unwrap_or_default()
    }
}

/// Parsing stops; the error has been reported.
struct Stop;

type ParseResult<T> = Result<T, Stop>;

/// The nesting depth within grammar rules.
#[derive(Default)]
struct Depth {
    expressions: usize,
    operators: usize,
}

struct Parser<'a> {
    chars: &'a [char],
    lexemes: Vec<Lexeme>,
    at: usize,
    syntax: Syntax,
    issues: &'a mut Issues,
    builder: Builder,
    depth: Depth,
    /// Tokens that can close the enclosing brackets, innermost last.
    follow: Vec<TokenSet>,
}

impl Parser<'_> {
    fn parse_all(&mut self) -> ParseResult<Expr> {
        self.follow.push(TokenSet::of(&[Token::End]));
        let expr = self.expression()?;
        self.expect(Token::End)?;
        Ok(expr)
    }

    fn report_unrecognized(&mut self, unrecognized: &[Unrecognized]) {
        for fault in unrecognized {
            let message =
                format!("token recognition error at: '{}'", escape_whitespace(&fault.text));
            self.syntax_error(fault.start, &message);
        }
    }

    fn peek(&self) -> Token {
        self.peek_at(0)
    }

    fn peek_at(&self, ahead: usize) -> Token {
        let at = (self.at + ahead).min(self.lexemes.len() - 1);
        self.lexemes[at].token
    }

    fn current(&self) -> Lexeme {
        self.lexemes[self.at]
    }

    fn next(&mut self) -> Lexeme {
        let lexeme = self.current();
        if self.at + 1 < self.lexemes.len() {
            self.at += 1;
        }
        lexeme
    }

    fn take_if(&mut self, token: Token) -> Option<Lexeme> {
        (self.peek() == token).then(|| self.next())
    }

    fn text(&self, lexeme: Lexeme) -> String {
        self.chars[lexeme.start as usize..lexeme.end as usize].iter().collect()
    }

    fn lexeme_text(&self, lexeme: Lexeme) -> String {
        match lexeme.token {
            Token::End => "<EOF>".to_owned(),
            _ => escape_whitespace(&self.text(lexeme)),
        }
    }

    fn syntax_error(&mut self, offset: u32, message: &str) {
        self.issues.report(offset, format!("Syntax error: {message}"));
    }

    fn extraneous(&mut self, expected: TokenSet) {
        let found = self.current();
        let message =
            format!("extraneous input '{}' expecting {expected}", self.lexeme_text(found));
        self.syntax_error(found.start, &message);
        self.next();
    }

    fn mismatched(&mut self, expected: TokenSet) -> Stop {
        let found = self.current();
        let message =
            format!("mismatched input '{}' expecting {expected}", self.lexeme_text(found));
        self.syntax_error(found.start, &message);
        Stop
    }

    /// Checks that the next token is expected; skips a single extra token.
    fn sync(&mut self, expected: TokenSet) -> ParseResult<()> {
        if expected.contains(self.peek()) {
            return Ok(());
        }
        if self.peek() != Token::End && expected.contains(self.peek_at(1)) {
            self.extraneous(expected);
            return Ok(());
        }
        Err(self.mismatched(expected))
    }

    /// Takes a token that must be next; reports it if it is missing.
    fn expect(&mut self, token: Token) -> ParseResult<Lexeme> {
        if let Some(lexeme) = self.take_if(token) {
            return Ok(lexeme);
        }
        let expected = TokenSet::of(&[token]);
        let found = self.current();
        if found.token != Token::End && self.peek_at(1) == token {
            self.extraneous(expected);
            return Ok(self.next());
        }
        if self.can_follow(token, found.token) {
            let message = format!("missing {expected} at '{}'", self.lexeme_text(found));
            self.syntax_error(found.start, &message);
            return Ok(Lexeme { token, start: found.start, end: found.start });
        }
        Err(self.mismatched(expected))
    }

    /// Whether `next` can follow `token`, so that only `token` is missing.
    fn can_follow(&self, token: Token, next: Token) -> bool {
        const AFTER_VALUE: TokenSet = TokenSet::of(&[
            Token::Equal,
            Token::NotEqual,
            Token::In,
            Token::Less,
            Token::LessEqual,
            Token::GreaterEqual,
            Token::Greater,
            Token::And,
            Token::Or,
            Token::LeftBracket,
            Token::Dot,
            Token::Minus,
            Token::Question,
            Token::Plus,
            Token::Star,
            Token::Slash,
            Token::Percent,
        ]);
        match token {
            Token::Colon => EXPRESSION_START.contains(next),
            Token::RightParen | Token::RightBracket | Token::RightBrace => {
                // The last entry is the bracket itself; only enclosing ones count.
                let around = &self.follow[..self.follow.len().saturating_sub(1)];
                AFTER_VALUE.contains(next) || around.iter().any(|set| set.contains(next))
            }
            _ => false,
        }
    }

    /// Rejects a tree that is too deep, before a recursive drop would overflow the stack.
    fn check_depth(&mut self, expr: Expr) -> ParseResult<Expr> {
        if expr.depth() <= TREE_DEPTH_MAX {
            return Ok(expr);
        }
        expr.drop_iteratively();
        Err(self.too_deep())
    }

    fn too_deep(&mut self) -> Stop {
        self.issues
            .report_whole(format!("expression recursion limit exceeded: {NESTING_DEPTH_MAX}"));
        Stop
    }

    fn inside<T>(
        &mut self,
        end: &[Token],
        read: impl FnOnce(&mut Self) -> ParseResult<T>,
    ) -> ParseResult<T> {
        self.follow.push(TokenSet::of(end));
        let out = read(self);
        self.follow.pop();
        out
    }

    fn expression(&mut self) -> ParseResult<Expr> {
        stack::ensure_sufficient_stack(|| self.conditional())
    }

    fn conditional(&mut self) -> ParseResult<Expr> {
        self.depth.expressions += 1;
        if self.depth.expressions >= NESTING_DEPTH_MAX {
            return Err(self.too_deep());
        }
        let condition = self.or()?;
        let expr = match self.take_if(Token::Question) {
            None => condition,
            Some(mark) => {
                let id = self.builder.id(mark.start);
                let yes = self.inside(&[Token::Colon], Self::or)?;
                self.expect(Token::Colon)?;
                let no = self.expression()?;
                call(id, operator::CONDITIONAL, vec![condition, yes, no])
            }
        };
        self.depth.expressions -= 1;
        Ok(expr)
    }

    fn or(&mut self) -> ParseResult<Expr> {
        self.chain(Token::Or, operator::OR, Self::and)
    }

    fn and(&mut self) -> ParseResult<Expr> {
        self.chain(Token::And, operator::AND, |parser| parser.relation(0))
    }

    /// Parses a chain of one logical operator into a balanced tree, to limit its depth.
    fn chain(
        &mut self,
        token: Token,
        function: &'static str,
        term: fn(&mut Self) -> ParseResult<Expr>,
    ) -> ParseResult<Expr> {
        let mut terms = vec![Some(term(self)?)];
        let mut ids = vec![];
        while let Some(lexeme) = self.take_if(token) {
            let next = term(self)?;
            ids.push(self.builder.id(lexeme.start));
            terms.push(Some(next));
        }
        Ok(balance(&mut terms, &ids, function))
    }

    /// Parses relations and arithmetic by precedence climbing.
    fn relation(&mut self, precedence_min: u8) -> ParseResult<Expr> {
        let mut left = self.unary()?;
        let mut relations = 0;
        let mut sums = 0;
        loop {
            let token = self.peek();
            let operator = binary(token).filter(|(precedence, _)| *precedence >= precedence_min);
            let Some((precedence, function)) = operator else {
                return if relations + sums > 0 { self.check_depth(left) } else { Ok(left) };
            };
            let count = if precedence == 0 { &mut relations } else { &mut sums };
            *count += 1;
            if self.depth.operators + *count >= NESTING_DEPTH_MAX {
                return Err(self.too_deep());
            }
            let sign = self.next();
            let id = self.builder.id(sign.start);
            self.depth.operators += 1;
            let right = self.relation(precedence + 1)?;
            self.depth.operators -= 1;
            left = call(id, function, vec![left, right]);
        }
    }

    fn member(&mut self) -> ParseResult<Expr> {
        let mut expr = self.primary()?;
        let mut length = 1;
        loop {
            expr = match self.peek() {
                Token::Dot => self.select_or_call(expr)?,
                Token::LeftBracket => self.index(expr)?,
                _ if length > 1 => return self.check_depth(expr),
                _ => return Ok(expr),
            };
            length += 1;
            if length >= NESTING_DEPTH_MAX {
                return Err(self.too_deep());
            }
        }
    }

    fn select_or_call(&mut self, operand: Expr) -> ParseResult<Expr> {
        let dot = self.next();
        let optional = self.take_if(Token::Question).is_some();
        let name = self.field_name(dot, optional)?;
        let field: Str = name.1.into();
        if optional {
            let id = self.builder.id(dot.start);
            let field = self.builder.node(name.0.start, ExprKind::Literal(Literal::String(field)));
            return Ok(call(id, operator::OPTIONAL_SELECT, vec![operand, field]));
        }
        if name.0.token == Token::Identifier
            && let Some(open) = self.take_if(Token::LeftParen)
        {
            let id = self.builder.id(open.start);
            let args = self.arguments()?;
            return Ok(self.call_or_macro(id, field, Some(operand), args));
        }
        let operand = Box::new(operand);
        Ok(self.builder.node(dot.start, ExprKind::Select { operand, field, test: false }))
    }

    /// Takes the name after a dot, without backquotes.
    fn field_name(&mut self, dot: Lexeme, optional: bool) -> ParseResult<(Lexeme, String)> {
        match self.peek() {
            Token::Identifier => {
                let name = self.next();
                Ok((name, self.text(name)))
            }
            Token::QuotedIdentifier => {
                let name = self.next();
                let text = self.text(name);
                if !self.syntax.quoted_fields {
                    self.issues.report(name.start, "unsupported syntax: '`'");
                }
                Ok((name, text.trim_matches('`').to_owned()))
            }
            _ if optional => {
                let expected = TokenSet::of(&[Token::Identifier, Token::QuotedIdentifier]);
                let stop = self.mismatched(expected);
                self.issues.report(self.current().start, "unsupported ident kind");
                Err(stop)
            }
            Token::True | Token::False | Token::Null => {
                Err(self.mismatched(TokenSet::of(&[Token::Identifier])))
            }
            _ => {
                let found = self.current();
                let between: String =
                    self.chars[dot.start as usize..found.end as usize].iter().collect();
                let message =
                    format!("no viable alternative at input '{}'", escape_whitespace(&between));
                self.syntax_error(found.start, &message);
                Err(Stop)
            }
        }
    }

    fn index(&mut self, operand: Expr) -> ParseResult<Expr> {
        let open = self.next();
        let id = self.builder.id(open.start);
        self.sync(EXPRESSION_START.with(&[Token::Question]))?;
        let function = match self.take_if(Token::Question) {
            Some(_) => operator::OPTIONAL_INDEX,
            None => operator::INDEX,
        };
        let index = self.inside(&[Token::RightBracket], |parser| {
            let index = parser.expression()?;
            parser.expect(Token::RightBracket)?;
            Ok(index)
        })?;
        Ok(call(id, function, vec![operand, index]))
    }

    /// Parses arguments after `(`, up to and including `)`.
    fn arguments(&mut self) -> ParseResult<Vec<Expr>> {
        self.inside(&[Token::RightParen], |parser| {
            let mut args = vec![];
            parser.sync(EXPRESSION_START.with(&[Token::RightParen]))?;
            if parser.peek() != Token::RightParen {
                args.push(parser.expression()?);
                while parser.take_if(Token::Comma).is_some() {
                    args.push(parser.expression()?);
                }
            }
            parser.expect(Token::RightParen)?;
            Ok(args)
        })
    }

    fn primary(&mut self) -> ParseResult<Expr> {
        let start = self.current();
        match self.peek() {
            Token::LeftParen => {
                self.next();
                self.inside(&[Token::RightParen], |parser| {
                    let expr = parser.expression()?;
                    parser.expect(Token::RightParen)?;
                    Ok(expr)
                })
            }
            Token::LeftBracket => self.list(),
            Token::LeftBrace => {
                let open = self.next();
                let id = self.builder.id(open.start);
                self.inside(&[Token::RightBrace], |parser| parser.entries(id))
            }
            Token::Dot | Token::Identifier => self.name_call_or_struct(),
            Token::Minus => {
                self.next();
                let number = self.next();
                Ok(self.literal(start.start, "-", number))
            }
            _ => {
                let token = self.next();
                Ok(self.literal(start.start, "", token))
            }
        }
    }

    fn literal(&mut self, start: u32, sign: &str, lexeme: Lexeme) -> Expr {
        let text = self.text(lexeme);
        let parsed = match lexeme.token {
            Token::Int => literal::parse_int(sign, &text),
            Token::Uint => literal::parse_uint(&text),
            Token::Float => literal::parse_double(sign, &text),
            Token::String => literal::parse_string(&text),
            Token::Bytes => literal::parse_bytes(&text),
            Token::True => Ok(Literal::Bool(true)),
            Token::False => Ok(Literal::Bool(false)),
            _ => Ok(Literal::Null),
        };
        let kind = match parsed {
            Ok(literal) => ExprKind::Literal(literal),
            Err(message) => {
                self.issues.report(start, message);
                ExprKind::Error
            }
        };
        self.builder.node(start, kind)
    }

    fn list(&mut self) -> ParseResult<Expr> {
        let open = self.next();
        let id = self.builder.id(open.start);
        let mut items = vec![];
        self.inside(&[Token::RightBracket], |parser| {
            let first =
                EXPRESSION_START.with(&[Token::RightBracket, Token::Comma, Token::Question]);
            parser.sync(first)?;
            while !matches!(parser.peek(), Token::RightBracket | Token::Comma) {
                let optional = parser.take_if(Token::Question).is_some();
                items.push(Item { expr: parser.expression()?, optional });
                if parser.peek() != Token::Comma || !begins_element(parser.peek_at(1)) {
                    break;
                }
                parser.next();
            }
            parser.sync(TokenSet::of(&[Token::RightBracket, Token::Comma]))?;
            parser.take_if(Token::Comma);
            parser.expect(Token::RightBracket)
        })?;
        Ok(Expr { id, kind: ExprKind::List(items) })
    }

    /// Parses the entries of a map after `{`, up to and including `}`.
    fn entries(&mut self, id: Id) -> ParseResult<Expr> {
        let mut entries = vec![];
        self.sync(EXPRESSION_START.with(&[Token::RightBrace, Token::Comma, Token::Question]))?;
        while !matches!(self.peek(), Token::RightBrace | Token::Comma) {
            let optional = self.take_if(Token::Question).is_some();
            let key = self.expression()?;
            self.expect(Token::Colon)?;
            let value = self.expression()?;
            entries.push(Entry { key, value, optional });
            if self.peek() != Token::Comma || !begins_element(self.peek_at(1)) {
                break;
            }
            self.next();
        }
        self.sync(TokenSet::of(&[Token::RightBrace, Token::Comma]))?;
        self.take_if(Token::Comma);
        self.expect(Token::RightBrace)?;
        Ok(Expr { id, kind: ExprKind::Map(entries) })
    }

    fn name_call_or_struct(&mut self) -> ParseResult<Expr> {
        let start = self.current();
        let dot = if self.take_if(Token::Dot).is_some() { "." } else { "" };
        if self.peek() != Token::Identifier {
            let found = self.current();
            let input = self.text(Lexeme { end: found.end, ..start });
            let message = format!("no viable alternative at input '{}'", escape_whitespace(&input));
            self.syntax_error(found.start, &message);
            return Err(Stop);
        }
        if self.is_struct() {
            return self.struct_literal(dot);
        }
        let ident = self.next();
        let name = self.text(ident);
        if RESERVED.contains(&name.as_str()) {
            self.issues.report(start.start, format!("reserved identifier: {name}"));
        }
        let name: Str = format!("{dot}{name}").into();
        if let Some(open) = self.take_if(Token::LeftParen) {
            let id = self.builder.id(open.start);
            let args = self.arguments()?;
            return Ok(self.call_or_macro(id, name, None, args));
        }
        Ok(self.builder.node(ident.start, ExprKind::Ident(name)))
    }

    /// Whether the next tokens are `a.b.c{`.
    fn is_struct(&self) -> bool {
        let mut ahead = 0;
        while self.peek_at(ahead) == Token::Identifier {
            match self.peek_at(ahead + 1) {
                Token::LeftBrace => return true,
                Token::Dot => ahead += 2,
                _ => return false,
            }
        }
        false
    }

    fn struct_literal(&mut self, dot: &str) -> ParseResult<Expr> {
        let mut name = dot.to_owned();
        let open = loop {
            let lexeme = self.next();
            match lexeme.token {
                Token::LeftBrace => break lexeme,
                _ => name.push_str(&self.text(lexeme)),
            }
        };
        let id = self.builder.id(open.start);
        let mut fields = vec![];
        self.inside(&[Token::RightBrace], |parser| {
            let name = TokenSet::of(&[Token::Identifier, Token::QuotedIdentifier]);
            let first = name.with(&[Token::RightBrace, Token::Comma, Token::Question]);
            parser.sync(first)?;
            while !matches!(parser.peek(), Token::RightBrace | Token::Comma) {
                fields.push(parser.field()?);
                let more = matches!(
                    parser.peek_at(1),
                    Token::Identifier | Token::QuotedIdentifier | Token::Question
                );
                if parser.peek() != Token::Comma || !more {
                    break;
                }
                parser.next();
            }
            parser.sync(TokenSet::of(&[Token::RightBrace, Token::Comma]))?;
            parser.take_if(Token::Comma);
            parser.expect(Token::RightBrace)
        })?;
        Ok(Expr { id, kind: ExprKind::Struct { name: name.into(), fields } })
    }

    fn field(&mut self) -> ParseResult<Field> {
        let optional = self.take_if(Token::Question).is_some();
        let start = self.current();
        let (_, name) = self.field_name(start, true)?;
        let colon = self.expect(Token::Colon)?;
        let id = self.builder.id(colon.start);
        let value = self.expression()?;
        Ok(Field { id, name: name.into(), value, optional })
    }

    fn call_or_macro(
        &mut self,
        id: Id,
        function: Str,
        target: Option<Expr>,
        args: Vec<Expr>,
    ) -> Expr {
        let expansion =
            macros::expand(self.syntax.macros, &mut self.builder, id, &function, target, args);
        match expansion {
            Expansion::Expr(expr) => expr,
            Expansion::Fault { offset, message } => {
                self.issues.report(offset, message);
                Expr { id, kind: ExprKind::Error }
            }
            Expansion::Call { target, args } => {
                let target = target.map(Box::new);
                Expr { id, kind: ExprKind::Call { function, target, args } }
            }
        }
    }
}

fn begins_element(token: Token) -> bool {
    EXPRESSION_START.contains(token) || token == Token::Question
}

/// Returns a call of an operator.
fn call(id: Id, function: &'static str, args: Vec<Expr>) -> Expr {
    Expr { id, kind: ExprKind::Call { function: Str::new_static(function), target: None, args } }
}

/// Returns the precedence and the function of a binary operator.
fn binary(token: Token) -> Option<(u8, &'static str)> {
    Some(match token {
        Token::Equal => (0, operator::EQUAL),
        Token::NotEqual => (0, operator::NOT_EQUAL),
        Token::In => (0, operator::IN),
        Token::Less => (0, "_<_"),
        Token::LessEqual => (0, "_<=_"),
        Token::Greater => (0, "_>_"),
        Token::GreaterEqual => (0, "_>=_"),
        Token::Plus => (1, operator::ADD),
        Token::Minus => (1, "_-_"),
        Token::Star => (2, "_*_"),
        Token::Slash => (2, "_/_"),
        Token::Percent => (2, "_%_"),
        _ => return None,
    })
}

/// Builds a balanced tree from terms and the ids of the operators between them.
fn balance(terms: &mut [Option<Expr>], ids: &[Id], function: &'static str) -> Expr {
    if let [only] = terms {
        return only.take().expect("each term is taken once");
    }
    let middle = ids.len() / 2;
    let (left, right) = terms.split_at_mut(middle + 1);
    let left = balance(left, &ids[..middle], function);
    let right = balance(right, &ids[middle + 1..], function);
    call(ids[middle], function, vec![left, right])
}

/// Escapes line breaks and tabs, as messages show the text of an expression.
fn escape_whitespace(text: &str) -> String {
    text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
}
