//! Splits the text of a document into tokens, by the rules of libyaml, of which upstream's scanner
//! is a translation.
//!
//! YAML marks a key only by the `:` after it. So each token that may begin a key is remembered, one
//! at each level of flow collections, and the tokens for the key and its map are inserted before it
//! once the `:` is found. Tokens are kept back as long as the first one may still be a key: for at
//! most [`KEY_CHARACTERS_MAX`], and not beyond its line.

mod properties;
mod scalars;

use super::cursor::{Cursor, Fault, Mark};
use super::input::Input;
use std::collections::VecDeque;

/// Maximum nesting of flow collections, and of block collections.
const LEVELS_MAX: usize = 10_000;

/// Maximum length of a key without `?`.
const KEY_CHARACTERS_MAX: usize = 1_024;

/// A part of the text, or of the texts that the scanner made of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Text {
    pub start: u32,
    pub length: u32,
    /// Whether this is a part of [`Scanner::made`].
    pub is_made: bool,
}

/// A place in the text. Lines and columns count from 0, columns in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spot {
    pub line: u32,
    pub column: u32,
}

/// A token, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub kind: TokenKind,
    pub spot: Spot,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    StreamEnd,
    Version { major: u8, minor: u8 },
    TagDirective { handle: Text, prefix: Text },
    DocumentStart,
    DocumentEnd,
    BlockSequenceStart,
    BlockMappingStart,
    BlockEnd,
    FlowSequenceStart,
    FlowSequenceEnd,
    FlowMappingStart,
    FlowMappingEnd,
    BlockEntry,
    FlowEntry,
    Key,
    Value,
    Alias(Text),
    Anchor(Text),
    Tag { handle: Text, suffix: Text },
    Scalar { text: Text, is_plain: bool },
}

/// The token that may begin a key at one level.
#[derive(Clone, Copy, Default)]
struct PossibleKey {
    is_possible: bool,
    /// Whether nothing but a key may stand here.
    is_required: bool,
    /// Whether the token is kept back as long as it may be a key. Upstream forgets this at the end
    /// of a flow collection in which nothing could be a key, such as `[]`.
    is_kept_back: bool,
    /// Number of the token.
    token: usize,
    mark: Mark,
}

/// The scanner.
pub(super) struct Scanner<'a> {
    cursor: Cursor<'a>,
    /// Texts with line breaks, escapes or percent encodings.
    made: String,
    /// Line breaks within the scalar that is being read.
    breaks: String,
    tokens: VecDeque<Token>,
    /// Number of tokens that were taken.
    taken: usize,
    /// Whether the first token cannot become a key any more.
    is_ready: bool,
    /// The level outside of flow collections, and that of each flow collection.
    /// Invariant: never empty; the numbers of the tokens do not decrease.
    keys: Vec<PossibleKey>,
    /// Whether a key may begin here.
    allows_key: bool,
    /// The least column of what belongs to the innermost block collection; 0 outside of all.
    inner_column: usize,
    /// The same of the collections around it.
    outer_columns: Vec<usize>,
}

impl<'a> Scanner<'a> {
    pub fn new(input: &'a Input<'a>) -> Scanner<'a> {
        Scanner {
            cursor: Cursor::new(input),
            made: String::new(),
            breaks: String::new(),
            tokens: VecDeque::new(),
            taken: 0,
            is_ready: false,
            keys: vec![PossibleKey::default()],
            allows_key: true,
            inner_column: 0,
            outer_columns: vec![],
        }
    }

    /// Returns the next token without taking it. There is always one: the last is
    /// [`TokenKind::StreamEnd`].
    pub fn peek(&mut self) -> Result<Token, Fault> {
        while !self.is_ready {
            if self.tokens.is_empty() || self.first_may_be_key()? {
                self.fetch()?;
            } else {
                self.is_ready = true;
            }
        }
        let end = Token { kind: TokenKind::StreamEnd, spot: spot(self.cursor.mark) };
        Ok(self.tokens.front().copied().unwrap_or(end))
    }

    /// Takes the token that [`Self::peek`] returned.
    pub fn take(&mut self) {
        self.is_ready = false;
        self.taken += 1;
        self.tokens.pop_front();
    }

    /// Returns the texts that tokens refer to: those that were made.
    pub fn into_made(self) -> String {
        self.made
    }

    /// Returns the text that a token refers to.
    pub fn text(&self, text: Text) -> &str {
        let range = text.start as usize..(text.start + text.length) as usize;
        if text.is_made { &self.made[range] } else { self.cursor.text(range) }
    }

    fn in_flow(&self) -> bool {
        self.keys.len() > 1
    }

    /// Adds the next token, and those that are inferred from it.
    fn fetch(&mut self) -> Result<(), Fault> {
        self.cursor.need(1)?;
        self.skip_to_token()?;
        self.close_blocks(self.cursor.mark.column + 1);
        self.cursor.need(4)?;
        if self.cursor.is_end() {
            return self.fetch_stream_end();
        }
        let first = self.cursor.byte(0);
        if self.cursor.mark.column == 0 {
            if first == b'%' {
                return self.fetch_directive();
            }
            if self.cursor.is_document_indicator() {
                return self.fetch_document_indicator(first);
            }
        }
        let space_follows = self.cursor.is_space_or_end(1);
        match first {
            b'[' => self.fetch_flow_start(TokenKind::FlowSequenceStart),
            b'{' => self.fetch_flow_start(TokenKind::FlowMappingStart),
            b']' => self.fetch_flow_end(TokenKind::FlowSequenceEnd),
            b'}' => self.fetch_flow_end(TokenKind::FlowMappingEnd),
            b',' => self.fetch_flow_entry(),
            b'-' if space_follows => self.fetch_block_entry(),
            b'?' if space_follows || self.in_flow() => self.fetch_key(),
            b':' if space_follows || self.in_flow() => self.fetch_value(),
            b'*' | b'&' => self.fetch_anchor(first),
            b'!' => self.fetch_tag(),
            b'|' | b'>' if !self.in_flow() => self.fetch_block_scalar(first == b'|'),
            b'\'' | b'"' => self.fetch_quoted_scalar(first),
            b'#' | b'|' | b'>' | b'%' | b'@' | b'`' | b'\t' => {
                Err(self.cursor.fault("found character that cannot start any token"))
            }
            _ => self.fetch_plain_scalar(),
        }
    }

    /// Skips spaces, line breaks and comments. Tabs are skipped where no key may begin.
    fn skip_to_token(&mut self) -> Result<(), Fault> {
        loop {
            self.cursor.need(1)?;
            if self.cursor.mark.column == 0 && self.cursor.buffer_has_byte_order_mark() {
                self.cursor.skip();
            }
            self.cursor.need(1)?;
            let skips_tabs = self.in_flow() || !self.allows_key;
            while self.cursor.byte(0) == b' ' || (skips_tabs && self.cursor.byte(0) == b'\t') {
                self.cursor.skip_ascii(1);
                self.cursor.need(1)?;
            }
            self.cursor.skip_comment()?;
            if !self.cursor.is_break(0) {
                return Ok(());
            }
            self.cursor.need(2)?;
            self.cursor.skip_break();
            if !self.in_flow() {
                self.allows_key = true;
            }
        }
    }

    fn push(&mut self, kind: TokenKind, mark: Mark) {
        self.tokens.push_back(Token { kind, spot: spot(mark) });
    }

    /// Adds the token of an indicator of this many characters, which are next.
    fn push_indicator(&mut self, kind: TokenKind, characters: usize) {
        self.push(kind, self.cursor.mark);
        self.cursor.skip_ascii(characters);
    }

    /// Inserts a token before the one with this number. Like upstream, adds it after all others if
    /// that one was taken.
    fn insert(&mut self, kind: TokenKind, mark: Mark, number: usize) {
        let token = Token { kind, spot: spot(mark) };
        let place = number.checked_sub(self.taken).unwrap_or(self.tokens.len());
        self.tokens.insert(place, token);
    }

    // Possible keys.

    /// Returns the level that the next token belongs to.
    fn key(&mut self) -> &mut PossibleKey {
        self.keys.last_mut().expect("there is a level outside of flow collections")
    }

    /// Whether the first token may still turn out to begin a key.
    fn first_may_be_key(&mut self) -> Result<bool, Fault> {
        let first = self.keys.partition_point(|key| key.token < self.taken);
        for level in first..self.keys.len() {
            let key = self.keys[level];
            if key.token != self.taken {
                break;
            }
            if key.is_possible && key.is_kept_back {
                return self.is_still_possible(level);
            }
        }
        Ok(false)
    }

    /// Whether the token of a level may begin a key that ends here.
    fn is_still_possible(&mut self, level: usize) -> Result<bool, Fault> {
        let key = &mut self.keys[level];
        let here = self.cursor.mark;
        if !key.is_possible {
            return Ok(false);
        }
        if key.mark.line < here.line || key.mark.index + KEY_CHARACTERS_MAX < here.index {
            if key.is_required {
                return Err(self.cursor.fault("could not find expected ':'"));
            }
            key.is_possible = false;
        }
        Ok(key.is_possible)
    }

    /// Remembers that the next token may begin a key.
    fn allow_key(&mut self) -> Result<(), Fault> {
        if !self.allows_key {
            return Ok(());
        }
        self.forbid_key()?;
        let mark = self.cursor.mark;
        let is_required = !self.in_flow() && self.inner_column == mark.column + 1;
        let token = self.taken + self.tokens.len();
        *self.key() =
            PossibleKey { is_possible: true, is_required, is_kept_back: true, token, mark };
        Ok(())
    }

    /// Gives up the possible key of this level.
    fn forbid_key(&mut self) -> Result<(), Fault> {
        let key = self.key();
        if key.is_possible && key.is_required {
            return Err(self.cursor.fault("could not find expected ':'"));
        }
        key.is_possible = false;
        Ok(())
    }

    // Indentation.

    /// Begins a block collection if this column is further to the right than the collection around
    /// it. The token `number` is the first that belongs to it.
    fn open_block(&mut self, kind: TokenKind, mark: Mark, number: usize) -> Result<(), Fault> {
        if self.in_flow() || self.inner_column > mark.column {
            return Ok(());
        }
        self.outer_columns.push(self.inner_column);
        self.inner_column = mark.column + 1;
        if self.outer_columns.len() > LEVELS_MAX {
            return Err(self.cursor.fault("exceeded max depth of 10000"));
        }
        self.insert(kind, mark, number);
        Ok(())
    }

    /// Ends the block collections whose content begins to the right of a column.
    fn close_blocks(&mut self, inner_column: usize) {
        if self.in_flow() {
            return;
        }
        while self.inner_column > inner_column {
            self.push(TokenKind::BlockEnd, self.cursor.mark);
            self.inner_column = self.outer_columns.pop().unwrap_or_default();
        }
    }

    // Tokens, except scalars and properties of nodes.

    fn fetch_stream_end(&mut self) -> Result<(), Fault> {
        let mark = &mut self.cursor.mark;
        if mark.column != 0 {
            mark.column = 0;
            mark.line += 1;
        }
        self.end_document()?;
        self.push(TokenKind::StreamEnd, self.cursor.mark);
        Ok(())
    }

    fn end_document(&mut self) -> Result<(), Fault> {
        self.close_blocks(0);
        self.forbid_key()?;
        self.allows_key = false;
        Ok(())
    }

    fn fetch_document_indicator(&mut self, first: u8) -> Result<(), Fault> {
        self.end_document()?;
        let is_start = first == b'-';
        let kind = if is_start { TokenKind::DocumentStart } else { TokenKind::DocumentEnd };
        self.push_indicator(kind, 3);
        Ok(())
    }

    fn fetch_flow_start(&mut self, kind: TokenKind) -> Result<(), Fault> {
        self.allow_key()?;
        let token = self.taken + self.tokens.len();
        self.keys.push(PossibleKey { token, ..PossibleKey::default() });
        if self.keys.len() > LEVELS_MAX + 1 {
            return Err(self.cursor.fault("exceeded max depth of 10000"));
        }
        self.allows_key = true;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn fetch_flow_end(&mut self, kind: TokenKind) -> Result<(), Fault> {
        self.forbid_key()?;
        if self.in_flow()
            && let Some(ended) = self.keys.pop()
            && ended.token == self.key().token
        {
            self.key().is_kept_back = false;
        }
        self.allows_key = false;
        self.push_indicator(kind, 1);
        Ok(())
    }

    fn fetch_flow_entry(&mut self) -> Result<(), Fault> {
        self.forbid_key()?;
        self.allows_key = true;
        self.push_indicator(TokenKind::FlowEntry, 1);
        Ok(())
    }

    fn fetch_block_entry(&mut self) -> Result<(), Fault> {
        // The parser rejects a block entry within a flow collection.
        if !self.in_flow() {
            let message = "block sequence entries are not allowed in this context";
            self.begin_entry(TokenKind::BlockSequenceStart, message)?;
        }
        self.forbid_key()?;
        self.allows_key = true;
        self.push_indicator(TokenKind::BlockEntry, 1);
        Ok(())
    }

    fn fetch_key(&mut self) -> Result<(), Fault> {
        if !self.in_flow() {
            let message = "mapping keys are not allowed in this context";
            self.begin_entry(TokenKind::BlockMappingStart, message)?;
        }
        self.forbid_key()?;
        self.allows_key = !self.in_flow();
        self.push_indicator(TokenKind::Key, 1);
        Ok(())
    }

    fn fetch_value(&mut self) -> Result<(), Fault> {
        if self.is_still_possible(self.keys.len() - 1)? {
            let PossibleKey { token, mark, .. } = *self.key();
            self.insert(TokenKind::Key, mark, token);
            self.open_block(TokenKind::BlockMappingStart, mark, token)?;
            self.key().is_possible = false;
            self.allows_key = false;
        } else {
            if !self.in_flow() {
                let message = "mapping values are not allowed in this context";
                self.begin_entry(TokenKind::BlockMappingStart, message)?;
            }
            self.allows_key = !self.in_flow();
        }
        self.push_indicator(TokenKind::Value, 1);
        Ok(())
    }

    /// Begins a block collection here if it is not open yet; an entry must be allowed.
    fn begin_entry(&mut self, kind: TokenKind, message: &'static str) -> Result<(), Fault> {
        if !self.allows_key {
            return Err(self.cursor.fault(message));
        }
        self.open_block(kind, self.cursor.mark, self.taken + self.tokens.len())
    }
}

/// Returns the place of a mark. Texts are shorter than 4 GiB.
fn spot(mark: Mark) -> Spot {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Spot { line: number(mark.line), column: number(mark.column) }
}
