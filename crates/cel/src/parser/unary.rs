//! Parses the signs before an operand.

use super::{EXPRESSION_START, ParseResult, Parser, Stop, call, escape_whitespace};
use crate::ast::{Expr, operator};
use crate::lexer::Token;

impl Parser<'_> {
    pub(super) fn unary(&mut self) -> ParseResult<Expr> {
        self.sync(EXPRESSION_START)?;
        let (sign, function) = match self.peek() {
            Token::Not => (Token::Not, operator::NOT),
            Token::Minus if !matches!(self.peek_at(1), Token::Int | Token::Float) => {
                (Token::Minus, operator::NEGATE)
            }
            _ => return self.member(),
        };
        let first = self.current();
        let mut count = 0;
        while self.peek() == sign {
            let literal = matches!(self.peek_at(1), Token::Int | Token::Float);
            if sign == Token::Minus && literal {
                break;
            }
            self.next();
            count += 1;
        }
        let id = (count % 2 == 1).then(|| self.builder.id(first.start));
        self.operand_of(sign)?;
        let target = self.member()?;
        Ok(match id {
            Some(id) => call(id, function, vec![target]),
            None => target,
        })
    }

    /// Checks that an operand follows the signs before it, with the errors of ANTLR, which looks
    /// behind a minus: it may be that of a number.
    fn operand_of(&mut self, sign: Token) -> ParseResult<()> {
        let next = self.peek();
        let is_number = matches!(self.peek_at(1), Token::Int | Token::Float);
        match (sign, next) {
            (Token::Not, Token::Minus) if !is_number => {
                self.next();
                self.no_alternative();
                if !EXPRESSION_START.contains(self.peek()) {
                    self.mismatched(EXPRESSION_START);
                }
                Err(Stop)
            }
            (Token::Minus, Token::Not) => {
                self.no_alternative();
                Err(Stop)
            }
            (Token::Minus, next) if !EXPRESSION_START.contains(next) => {
                self.no_alternative();
                self.sync(EXPRESSION_START)
            }
            (_, next) if EXPRESSION_START.contains(next) => Ok(()),
            _ => {
                self.extraneous(EXPRESSION_START);
                if EXPRESSION_START.contains(self.peek()) { Ok(()) } else { Err(Stop) }
            }
        }
    }

    /// Reports that nothing can begin with the minus before the next token and this token.
    fn no_alternative(&mut self) {
        let found = self.current();
        let minus = self.lexemes[self.at.saturating_sub(1)];
        let text: String = self.chars[minus.start as usize..found.end as usize].iter().collect();
        let message = format!("no viable alternative at input '{}'", escape_whitespace(&text));
        self.syntax_error(found.start, &message);
    }
}
