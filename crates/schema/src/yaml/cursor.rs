//! A position in the text of a document, with its line and column, and the tests of characters
//! that the scanner needs.

use super::input::{BYTE_ORDER_MARK, Input};
use std::ops::Range;

/// Why a text is not YAML: the number of the line as upstream counts it, 0 if it names none, and
/// its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub line: usize,
    pub message: &'static str,
}

/// A place in the text. Lines, columns and indices count characters from 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    pub line: usize,
    pub column: usize,
    pub index: usize,
}

/// The text, and a place in it.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    input: &'a Input<'a>,
    /// Offset of the next character.
    pub at: usize,
    pub mark: Mark,
    /// Index of the first character that upstream has not read yet. After the end of the text,
    /// upstream reads a NUL for each request.
    read_until: usize,
    /// The next stretch to read.
    next_stretch: usize,
    /// Offset at which upstream's buffer begins.
    buffer_start: usize,
}

impl<'a> Cursor<'a> {
    pub fn new(input: &'a Input<'a>) -> Cursor<'a> {
        Cursor {
            bytes: input.text.as_bytes(),
            input,
            at: 0,
            mark: Mark::default(),
            read_until: 0,
            next_stretch: 0,
            buffer_start: 0,
        }
    }

    /// Reads until at least this many characters follow, or the text ends.
    #[inline]
    pub fn need(&mut self, characters: usize) -> Result<(), Fault> {
        if self.mark.index + characters <= self.read_until { Ok(()) } else { self.read(characters) }
    }

    #[cold]
    fn read(&mut self, characters: usize) -> Result<(), Fault> {
        self.buffer_start = self.at;
        while self.mark.index + characters > self.read_until {
            let stretch_ends = &self.input.stretch_ends;
            let Some(end) = stretch_ends.get(self.next_stretch).copied() else {
                if let Some(message) = self.input.fault {
                    return Err(Fault { line: 0, message });
                }
                self.read_until += 1;
                return Ok(());
            };
            let start = self.next_stretch.checked_sub(1).map_or(0, |last| stretch_ends[last]);
            let starts_character = |byte: &&u8| **byte & 0xc0 != 0x80;
            self.read_until += self.bytes[start..end].iter().filter(starts_character).count();
            self.next_stretch += 1;
        }
        Ok(())
    }

    /// Returns the byte at a distance; 0 after the end.
    #[inline]
    pub fn byte(&self, ahead: usize) -> u8 {
        self.bytes.get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Returns the text between two offsets, which are those of characters.
    pub fn text(&self, range: Range<usize>) -> &'a str {
        &self.input.text[range]
    }

    /// Takes one character that is no line break.
    #[inline]
    pub fn skip(&mut self) {
        self.at += character_length(self.byte(0));
        self.mark.index += 1;
        self.mark.column += 1;
    }

    /// Takes this many ASCII characters.
    pub fn skip_ascii(&mut self, count: usize) {
        self.at += count;
        self.mark.index += count;
        self.mark.column += count;
    }

    /// Takes a line break.
    pub fn skip_break(&mut self) {
        let is_crlf = self.byte(0) == b'\r' && self.byte(1) == b'\n';
        let length = if is_crlf { 2 } else { character_length(self.byte(0)) };
        self.at += length;
        self.mark.index += if is_crlf { 2 } else { 1 };
        self.mark.line += 1;
        self.mark.column = 0;
    }

    /// Takes a line break and returns the text that it stands for.
    pub fn take_break(&mut self) -> &'static str {
        let text = match (self.byte(0), self.byte(2)) {
            (0xe2, 0xa8) => "\u{2028}",
            (0xe2, _) => "\u{2029}",
            _ => "\n",
        };
        self.skip_break();
        text
    }

    /// Takes spaces and tabs.
    pub fn skip_blanks(&mut self) -> Result<(), Fault> {
        self.need(1)?;
        while self.is_blank(0) {
            self.skip_ascii(1);
            self.need(1)?;
        }
        Ok(())
    }

    /// Takes a comment, if it is next, except the line break.
    pub fn skip_comment(&mut self) -> Result<(), Fault> {
        if self.byte(0) == b'#' {
            while !self.is_break_or_end(0) {
                self.skip();
                self.need(1)?;
            }
        }
        Ok(())
    }

    /// Takes the blanks, the comment and the line break that end a line. All may be missing.
    pub fn skip_rest_of_line(&mut self) -> Result<(), Fault> {
        self.skip_blanks()?;
        self.skip_comment()?;
        if !self.is_break_or_end(0) {
            return Err(self.fault("did not find expected comment or line break"));
        }
        if self.is_break(0) {
            self.need(2)?;
            self.skip_break();
        }
        Ok(())
    }

    /// Whether upstream skips a character at the start of a line: it means to look at the next
    /// character, but looks at the first one of its buffer.
    pub fn buffer_has_byte_order_mark(&self) -> bool {
        self.bytes[self.buffer_start..].starts_with(BYTE_ORDER_MARK)
    }

    pub fn is_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub fn is_blank(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b' ' | b'\t')
    }

    #[inline]
    pub fn is_break(&self, ahead: usize) -> bool {
        match self.byte(ahead) {
            b'\n' | b'\r' => true,
            0xc2 => self.byte(ahead + 1) == 0x85,
            0xe2 => self.byte(ahead + 1) == 0x80 && matches!(self.byte(ahead + 2), 0xa8 | 0xa9),
            _ => false,
        }
    }

    pub fn is_break_or_end(&self, ahead: usize) -> bool {
        self.byte(ahead) == 0 || self.is_break(ahead)
    }

    /// Whether the character is a space, a tab, a line break or the end.
    #[inline]
    pub fn is_space_or_end(&self, ahead: usize) -> bool {
        match self.byte(ahead) {
            b'!'..=b'~' => false,
            b' ' | b'\t' | 0 => true,
            _ => self.is_break(ahead),
        }
    }

    /// Whether a document starts or ends here: `---` or `...` at the start of a line.
    pub fn is_document_indicator(&self) -> bool {
        self.mark.column == 0
            && matches!(
                [self.byte(0), self.byte(1), self.byte(2)],
                [b'-', b'-', b'-'] | [b'.', b'.', b'.']
            )
            && self.is_space_or_end(3)
    }

    /// Whether the character may be part of a name: a letter or digit of ASCII, `_` or `-`.
    pub fn is_word(&self, ahead: usize) -> bool {
        matches!(self.byte(ahead), b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'_' | b'-')
    }

    /// Returns the value of a hexadecimal digit.
    pub fn hex_digit(&self, ahead: usize) -> Option<u32> {
        char::from(self.byte(ahead)).to_digit(16)
    }

    /// Returns the error of the scanner for this place.
    pub fn fault(&self, message: &'static str) -> Fault {
        // Upstream omits the first line.
        Fault { line: if self.mark.line == 0 { 0 } else { self.mark.line + 1 }, message }
    }
}

/// Returns the length of the character that begins with this byte.
#[inline]
fn character_length(first: u8) -> usize {
    match first {
        0..0xc0 => 1,
        0xc0..0xe0 => 2,
        0xe0..0xf0 => 3,
        0xf0.. => 4,
    }
}
