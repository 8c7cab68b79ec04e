//! Reads scalars: plain, quoted and block scalars.
//!
//! A scalar that stands in the text as it is read refers to the text. Others are put together in
//! [`Scanner::made`], piece by piece.

use super::super::cursor::{Fault, Mark};
use super::{Scanner, Text, TokenKind};
use std::ops::Range;

/// A scalar that is being read: what was made of it so far, and where the piece after that begins.
struct Pieces {
    made_start: usize,
    piece_start: usize,
}

/// What happens to the line breaks at the end of a block scalar.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chomping {
    Strip,
    Clip,
    Keep,
}

impl Scanner<'_> {
    fn begin_scalar(&self) -> Pieces {
        Pieces { made_start: self.made.len(), piece_start: self.cursor.at }
    }

    /// Copies the current piece up to an offset. The next one begins at the cursor.
    fn make(&mut self, pieces: &mut Pieces, end: usize) {
        self.made.push_str(self.cursor.text(pieces.piece_start..end));
        pieces.piece_start = self.cursor.at;
    }

    /// Ends a scalar whose last piece ends at an offset, and adds its token.
    fn end_scalar(&mut self, mut pieces: Pieces, end: usize, is_plain: bool, mark: Mark) {
        let text = if self.made.len() == pieces.made_start {
            text(pieces.piece_start..end, false)
        } else {
            self.make(&mut pieces, end);
            text(pieces.made_start..self.made.len(), true)
        };
        self.push(TokenKind::Scalar { text, is_plain }, mark);
    }

    /// Writes what stands for line breaks between words: a space for a single one, otherwise all
    /// but the first. The first is kept if it is a Unicode line separator.
    fn fold(&mut self, first: &str) {
        match (first, self.breaks.as_str()) {
            ("\n", "") => self.made.push(' '),
            ("\n", more) => self.made.push_str(more),
            (first, more) => {
                self.made.push_str(first);
                self.made.push_str(more);
            }
        }
        self.breaks.clear();
    }

    pub(super) fn fetch_plain_scalar(&mut self) -> Result<(), Fault> {
        self.allow_key()?;
        self.allows_key = false;
        let mark = self.cursor.mark;
        let mut pieces = self.begin_scalar();
        let mut end = self.cursor.at;
        let mut first_break = None;
        loop {
            self.cursor.need(4)?;
            if self.cursor.is_document_indicator() || self.cursor.byte(0) == b'#' {
                break;
            }
            while !self.cursor.is_space_or_end(0) && !self.ends_plain_scalar() {
                if let Some(first) = first_break.take() {
                    self.make(&mut pieces, end);
                    self.fold(first);
                }
                self.cursor.skip();
                end = self.cursor.at;
                self.cursor.need(2)?;
            }
            if !self.cursor.is_blank(0) && !self.cursor.is_break(0) {
                break;
            }
            self.skip_space_in_plain_scalar(&mut first_break)?;
            if !self.in_flow() && self.cursor.mark.column < self.inner_column {
                break;
            }
        }
        self.breaks.clear();
        self.end_scalar(pieces, end, true, mark);
        if first_break.is_some() {
            self.allows_key = true;
        }
        Ok(())
    }

    /// Whether an indicator ends a plain scalar.
    fn ends_plain_scalar(&self) -> bool {
        match self.cursor.byte(0) {
            b':' => self.cursor.is_space_or_end(1),
            b',' | b'?' | b'[' | b']' | b'{' | b'}' => self.in_flow(),
            _ => false,
        }
    }

    /// Skips spaces and line breaks after a word. `first_break` is the first line break since the
    /// last word.
    fn skip_space_in_plain_scalar(
        &mut self,
        first_break: &mut Option<&'static str>,
    ) -> Result<(), Fault> {
        self.cursor.need(1)?;
        loop {
            if self.cursor.is_blank(0) {
                let is_indentation =
                    first_break.is_some() && self.cursor.mark.column < self.inner_column;
                if is_indentation && self.cursor.byte(0) == b'\t' {
                    return Err(self
                        .cursor
                        .fault("found a tab character that violates indentation"));
                }
                self.cursor.skip_ascii(1);
            } else if self.cursor.is_break(0) {
                self.take_break(first_break)?;
            } else {
                return Ok(());
            }
            self.cursor.need(1)?;
        }
    }

    /// Takes a line break: as the first one, if there is none yet.
    fn take_break(&mut self, first_break: &mut Option<&'static str>) -> Result<(), Fault> {
        self.cursor.need(2)?;
        let text = self.cursor.take_break();
        match first_break {
            None => *first_break = Some(text),
            Some(_) => self.breaks.push_str(text),
        }
        Ok(())
    }

    pub(super) fn fetch_quoted_scalar(&mut self, quote: u8) -> Result<(), Fault> {
        self.allow_key()?;
        self.allows_key = false;
        let mark = self.cursor.mark;
        self.cursor.skip_ascii(1);
        let mut pieces = self.begin_scalar();
        loop {
            self.cursor.need(4)?;
            if self.cursor.is_document_indicator() {
                return Err(self.cursor.fault("found unexpected document indicator"));
            }
            if self.cursor.is_end() {
                return Err(self.cursor.fault("found unexpected end of stream"));
            }
            // An escaped line break counts as the first one, and leaves nothing.
            let mut first_break = self.read_quoted_word(quote, &mut pieces)?.then_some("");
            let end = self.cursor.at;
            self.cursor.need(1)?;
            if self.cursor.byte(0) == quote {
                self.cursor.skip_ascii(1);
                self.end_scalar(pieces, end, false, mark);
                return Ok(());
            }
            while self.cursor.is_blank(0) || self.cursor.is_break(0) {
                if self.cursor.is_blank(0) {
                    self.cursor.skip_ascii(1);
                } else {
                    self.take_break(&mut first_break)?;
                }
                self.cursor.need(1)?;
            }
            if let Some(first) = first_break {
                self.make(&mut pieces, end);
                self.fold(first);
            }
        }
    }

    /// Reads characters up to the quote or the next space. Returns whether an escaped line break
    /// ended the word.
    fn read_quoted_word(&mut self, quote: u8, pieces: &mut Pieces) -> Result<bool, Fault> {
        while !self.cursor.is_space_or_end(0) {
            let byte = self.cursor.byte(0);
            if byte == quote {
                if quote == b'"' || self.cursor.byte(1) != quote {
                    return Ok(false);
                }
                let end = self.cursor.at + 1;
                self.cursor.skip_ascii(2);
                self.make(pieces, end);
            } else if byte == b'\\' && quote == b'"' {
                let end = self.cursor.at;
                if self.cursor.is_break(1) {
                    self.cursor.need(3)?;
                    self.cursor.skip_ascii(1);
                    self.cursor.skip_break();
                    self.make(pieces, end);
                    return Ok(true);
                }
                let c = self.read_escape()?;
                self.make(pieces, end);
                self.made.push(c);
            } else {
                self.cursor.skip();
            }
            self.cursor.need(2)?;
        }
        Ok(false)
    }

    /// Reads a backslash and what follows it.
    fn read_escape(&mut self) -> Result<char, Fault> {
        let c = match self.cursor.byte(1) {
            b'0' => '\0',
            b'a' => '\u{7}',
            b'b' => '\u{8}',
            b't' | b'\t' => '\t',
            b'n' => '\n',
            b'v' => '\u{b}',
            b'f' => '\u{c}',
            b'r' => '\r',
            b'e' => '\u{1b}',
            b' ' => ' ',
            b'"' => '"',
            b'\'' => '\'',
            b'\\' => '\\',
            b'N' => '\u{85}',
            b'_' => '\u{a0}',
            b'L' => '\u{2028}',
            b'P' => '\u{2029}',
            b'x' => return self.read_code(2),
            b'u' => return self.read_code(4),
            b'U' => return self.read_code(8),
            _ => return Err(self.cursor.fault("found unknown escape character")),
        };
        self.cursor.skip_ascii(2);
        Ok(c)
    }

    /// Reads an escape with hexadecimal digits.
    fn read_code(&mut self, digits: usize) -> Result<char, Fault> {
        self.cursor.skip_ascii(2);
        self.cursor.need(digits)?;
        let mut code = 0_u64;
        for at in 0..digits {
            let message = "did not find expected hexdecimal number";
            let digit = self.cursor.hex_digit(at).ok_or_else(|| self.cursor.fault(message))?;
            code = code << 4 | u64::from(digit);
        }
        let message = "found invalid Unicode character escape code";
        let c = u32::try_from(code)
            .ok()
            .and_then(char::from_u32)
            .ok_or_else(|| self.cursor.fault(message))?;
        self.cursor.skip_ascii(digits);
        Ok(c)
    }

    pub(super) fn fetch_block_scalar(&mut self, is_literal: bool) -> Result<(), Fault> {
        self.forbid_key()?;
        self.allows_key = true;
        let mark = self.cursor.mark;
        let (chomping, indentation) = self.read_block_header()?;
        let made_start = self.made.len();
        let mut column = match indentation {
            0 => 0,
            more => self.inner_column.saturating_sub(1) + more,
        };
        self.skip_block_breaks(&mut column)?;
        self.cursor.need(1)?;
        let mut last_break = "";
        let mut follows_indented_line = false;
        while self.cursor.mark.column == column && !self.cursor.is_end() {
            let is_indented = self.cursor.is_blank(0);
            // Breaks beside lines with more indentation are kept.
            let folds = !is_literal && !follows_indented_line && !is_indented;
            if !folds || last_break != "\n" {
                self.made.push_str(last_break);
            } else if self.breaks.is_empty() {
                self.made.push(' ');
            }
            self.made.push_str(&self.breaks);
            self.breaks.clear();
            follows_indented_line = is_indented;
            last_break = self.read_block_line()?;
            self.skip_block_breaks(&mut column)?;
        }
        if chomping != Chomping::Strip {
            self.made.push_str(last_break);
        }
        if chomping == Chomping::Keep {
            self.made.push_str(&self.breaks);
        }
        self.breaks.clear();
        let text = text(made_start..self.made.len(), true);
        self.push(TokenKind::Scalar { text, is_plain: false }, mark);
        Ok(())
    }

    /// Reads `|` or `>` and the rest of the line. Returns the chomping and the indentation, 0 if
    /// the text shows it.
    fn read_block_header(&mut self) -> Result<(Chomping, usize), Fault> {
        self.cursor.skip_ascii(1);
        self.cursor.need(1)?;
        let mut chomping = self.read_chomping();
        if chomping.is_some() {
            self.cursor.need(1)?;
        }
        let indentation = self.read_indentation()?;
        if indentation > 0 {
            self.cursor.need(1)?;
            chomping = chomping.or_else(|| self.read_chomping());
        }
        self.cursor.skip_rest_of_line()?;
        Ok((chomping.unwrap_or(Chomping::Clip), indentation))
    }

    fn read_chomping(&mut self) -> Option<Chomping> {
        let chomping = match self.cursor.byte(0) {
            b'+' => Chomping::Keep,
            b'-' => Chomping::Strip,
            _ => return None,
        };
        self.cursor.skip_ascii(1);
        Some(chomping)
    }

    fn read_indentation(&mut self) -> Result<usize, Fault> {
        let byte = self.cursor.byte(0);
        if byte == b'0' {
            return Err(self.cursor.fault("found an indentation indicator equal to 0"));
        }
        if !byte.is_ascii_digit() {
            return Ok(0);
        }
        self.cursor.skip_ascii(1);
        Ok(usize::from(byte - b'0'))
    }

    /// Copies a line of a block scalar, and returns its line break.
    fn read_block_line(&mut self) -> Result<&'static str, Fault> {
        let start = self.cursor.at;
        while !self.cursor.is_break_or_end(0) {
            self.cursor.skip();
            self.cursor.need(1)?;
        }
        self.made.push_str(self.cursor.text(start..self.cursor.at));
        self.cursor.need(2)?;
        Ok(if self.cursor.is_end() { "" } else { self.cursor.take_break() })
    }

    /// Skips the indentation before the next line of a block scalar, and keeps the breaks of empty
    /// lines. A column of 0 is replaced by that of the first line.
    fn skip_block_breaks(&mut self, column: &mut usize) -> Result<(), Fault> {
        let mut widest = 0;
        loop {
            self.cursor.need(1)?;
            let is_before = |at: usize| *column == 0 || at < *column;
            while is_before(self.cursor.mark.column) && self.cursor.byte(0) == b' ' {
                self.cursor.skip_ascii(1);
                self.cursor.need(1)?;
            }
            widest = widest.max(self.cursor.mark.column);
            if is_before(self.cursor.mark.column) && self.cursor.byte(0) == b'\t' {
                let message = "found a tab character where an indentation space is expected";
                return Err(self.cursor.fault(message));
            }
            if !self.cursor.is_break(0) {
                break;
            }
            self.cursor.need(2)?;
            let text = self.cursor.take_break();
            self.breaks.push_str(text);
        }
        if *column == 0 {
            *column = widest.max(self.inner_column).max(1);
        }
        Ok(())
    }
}

/// Refers to a range of the text or of what was made of it. Texts are shorter than 4 GiB.
pub(super) fn text(range: Range<usize>, is_made: bool) -> Text {
    let number = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    Text { start: number(range.start), length: number(range.len()), is_made }
}
