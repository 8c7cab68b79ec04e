//! Reads what precedes nodes and documents: anchors and aliases, tags, directives.

use super::super::cursor::Fault;
use super::scalars::text;
use super::{Scanner, Text, TokenKind};

/// Maximum number of digits of each part of a version.
const VERSION_DIGITS_MAX: usize = 2;

impl Scanner<'_> {
    pub(super) fn fetch_anchor(&mut self, indicator: u8) -> Result<(), Fault> {
        self.allow_key()?;
        self.allows_key = false;
        let mark = self.cursor.mark;
        self.cursor.skip_ascii(1);
        let name = self.read_word()?;
        let is_ended = self.cursor.is_space_or_end(0)
            || matches!(self.cursor.byte(0), b'?' | b':' | b',' | b']' | b'}' | b'%' | b'@' | b'`');
        if name.length == 0 || !is_ended {
            let message = "did not find expected alphabetic or numeric character";
            return Err(self.cursor.fault(message));
        }
        let is_anchor = indicator == b'&';
        let kind = if is_anchor { TokenKind::Anchor(name) } else { TokenKind::Alias(name) };
        self.push(kind, mark);
        Ok(())
    }

    /// Reads letters, digits, `_` and `-`.
    fn read_word(&mut self) -> Result<Text, Fault> {
        let start = self.cursor.at;
        self.cursor.need(1)?;
        while self.cursor.is_word(0) {
            self.cursor.skip_ascii(1);
            self.cursor.need(1)?;
        }
        Ok(text(start..self.cursor.at, false))
    }

    pub(super) fn fetch_tag(&mut self) -> Result<(), Fault> {
        self.allow_key()?;
        self.allows_key = false;
        let mark = self.cursor.mark;
        let start = self.cursor.at;
        self.cursor.need(2)?;
        let kind = if self.cursor.byte(1) == b'<' {
            self.cursor.skip_ascii(2);
            let suffix = self.read_uri("")?;
            if self.cursor.byte(0) != b'>' {
                return Err(self.cursor.fault("did not find the expected '>'"));
            }
            self.cursor.skip_ascii(1);
            TokenKind::Tag { handle: Text::default(), suffix }
        } else {
            self.read_short_tag(start)?
        };
        self.cursor.need(1)?;
        if !self.cursor.is_space_or_end(0) {
            return Err(self.cursor.fault("did not find expected whitespace or line break"));
        }
        self.push(kind, mark);
        Ok(())
    }

    /// Reads `!`, `!suffix`, `!!suffix` or `!handle!suffix`.
    fn read_short_tag(&mut self, start: usize) -> Result<TokenKind, Fault> {
        let handle = self.read_handle()?;
        if handle.length > 1 && self.text(handle).ends_with('!') {
            return Ok(TokenKind::Tag { handle, suffix: self.read_uri("")? });
        }
        let begun = self.text(handle).to_owned();
        let suffix = self.read_uri(&begun)?;
        let mark = text(start..start + 1, false);
        // The tag `!` by itself has no handle.
        Ok(if suffix.length == 0 {
            TokenKind::Tag { handle: suffix, suffix: mark }
        } else {
            TokenKind::Tag { handle: mark, suffix }
        })
    }

    /// Reads `!`, and a word with a `!` after it if there is one.
    fn read_handle(&mut self) -> Result<Text, Fault> {
        let start = self.cursor.at;
        self.cursor.need(1)?;
        if self.cursor.byte(0) != b'!' {
            return Err(self.cursor.fault("did not find expected '!'"));
        }
        self.cursor.skip_ascii(1);
        self.read_word()?;
        if self.cursor.byte(0) == b'!' {
            self.cursor.skip_ascii(1);
        }
        Ok(text(start..self.cursor.at, false))
    }

    /// Reads the rest of a tag that begins with `begun`, whose first character does not count.
    fn read_uri(&mut self, begun: &str) -> Result<Text, Fault> {
        let mut uri = begun.as_bytes().get(1..).unwrap_or_default().to_vec();
        let mut is_present = !begun.is_empty();
        self.cursor.need(1)?;
        while self.cursor.is_word(0) || b";/?:@&=+$,.!~*'()[]%".contains(&self.cursor.byte(0)) {
            if self.cursor.byte(0) == b'%' {
                self.read_uri_escape(&mut uri)?;
            } else {
                uri.push(self.cursor.byte(0));
                self.cursor.skip_ascii(1);
            }
            self.cursor.need(1)?;
            is_present = true;
        }
        if !is_present {
            return Err(self.cursor.fault("did not find expected tag URI"));
        }
        let start = self.made.len();
        self.made.push_str(&String::from_utf8_lossy(&uri));
        Ok(text(start..self.made.len(), true))
    }

    /// Reads a character that is written as `%xx` for each of its bytes.
    fn read_uri_escape(&mut self, uri: &mut Vec<u8>) -> Result<(), Fault> {
        let first = self.read_octet()?;
        let trailing = match first {
            0..0x80 => 0,
            0xc0..0xe0 => 1,
            0xe0..0xf0 => 2,
            0xf0..0xf8 => 3,
            _ => return Err(self.cursor.fault("found an incorrect leading UTF-8 octet")),
        };
        uri.push(first);
        self.cursor.skip_ascii(3);
        for _ in 0..trailing {
            let octet = self.read_octet()?;
            if octet & 0xc0 != 0x80 {
                return Err(self.cursor.fault("found an incorrect trailing UTF-8 octet"));
            }
            uri.push(octet);
            self.cursor.skip_ascii(3);
        }
        Ok(())
    }

    /// Returns the byte that `%xx` stands for, without taking it.
    fn read_octet(&mut self) -> Result<u8, Fault> {
        self.cursor.need(3)?;
        let digits = [self.cursor.hex_digit(1), self.cursor.hex_digit(2)];
        match (self.cursor.byte(0), digits) {
            (b'%', [Some(high), Some(low)]) => Ok((high << 4 | low) as u8),
            _ => Err(self.cursor.fault("did not find URI escaped octet")),
        }
    }

    pub(super) fn fetch_directive(&mut self) -> Result<(), Fault> {
        self.end_document()?;
        let mark = self.cursor.mark;
        self.cursor.skip_ascii(1);
        let name = self.read_word()?;
        if name.length == 0 {
            return Err(self.cursor.fault("could not find expected directive name"));
        }
        if !self.cursor.is_space_or_end(0) {
            return Err(self.cursor.fault("found unexpected non-alphabetical character"));
        }
        let kind = match self.text(name) {
            "YAML" => self.read_version()?,
            "TAG" => self.read_tag_directive()?,
            _ => return Err(self.cursor.fault("found unknown directive name")),
        };
        self.cursor.skip_rest_of_line()?;
        self.push(kind, mark);
        Ok(())
    }

    fn read_version(&mut self) -> Result<TokenKind, Fault> {
        self.cursor.skip_blanks()?;
        let major = self.read_version_number()?;
        if self.cursor.byte(0) != b'.' {
            return Err(self.cursor.fault("did not find expected digit or '.' character"));
        }
        self.cursor.skip_ascii(1);
        let minor = self.read_version_number()?;
        Ok(TokenKind::Version { major, minor })
    }

    fn read_version_number(&mut self) -> Result<u8, Fault> {
        let mut number = 0;
        let mut digits = 0;
        self.cursor.need(1)?;
        while self.cursor.byte(0).is_ascii_digit() {
            digits += 1;
            if digits > VERSION_DIGITS_MAX {
                return Err(self.cursor.fault("found extremely long version number"));
            }
            number = number * 10 + (self.cursor.byte(0) - b'0');
            self.cursor.skip_ascii(1);
            self.cursor.need(1)?;
        }
        if digits == 0 {
            return Err(self.cursor.fault("did not find expected version number"));
        }
        Ok(number)
    }

    fn read_tag_directive(&mut self) -> Result<TokenKind, Fault> {
        self.cursor.skip_blanks()?;
        let handle = self.read_handle()?;
        let word = self.text(handle);
        if word != "!" && !(word.len() > 1 && word.ends_with('!')) {
            return Err(self.cursor.fault("did not find expected '!'"));
        }
        self.cursor.need(1)?;
        if !self.cursor.is_blank(0) {
            return Err(self.cursor.fault("did not find expected whitespace"));
        }
        while self.cursor.is_blank(0) {
            self.cursor.skip_ascii(1);
            self.cursor.need(1)?;
        }
        let prefix = self.read_uri("")?;
        self.cursor.need(1)?;
        if !self.cursor.is_space_or_end(0) {
            return Err(self.cursor.fault("did not find expected whitespace or line break"));
        }
        Ok(TokenKind::TagDirective { handle, prefix })
    }
}
