//! Turns the tokens of the first document into events: scalars, aliases, and the starts and ends of
//! lists and maps. The grammar is that of libyaml.

use super::cursor::Fault;
use super::scanner::{Scanner, Spot, Text, Token, TokenKind};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// What the handle `!!` stands for.
const CORE_PREFIX: &str = "tag:yaml.org,2002:";

/// A tag, as far as it matters to the value of a scalar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tag {
    /// No tag.
    None,
    /// The tag `!`.
    NonSpecific,
    Null,
    Bool,
    Int,
    Float,
    Str,
    Timestamp,
    Binary,
    Merge,
    /// A tag that makes any scalar a string.
    Other,
}

/// An event, and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub kind: EventKind,
    pub spot: Spot,
    pub anchor: Option<Text>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventKind {
    /// A scalar. It is implicit if its text decides on its type: it is plain and has no tag, or has
    /// the tag `!`.
    Scalar {
        text: Text,
        tag: Tag,
        is_implicit: bool,
    },
    Alias(Text),
    SequenceStart,
    SequenceEnd,
    MappingStart,
    MappingEnd,
}

/// What comes next in an open collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    BlockEntry,
    /// An entry of a list that is not indented within its map.
    IndentlessEntry,
    BlockKey,
    BlockValue,
    FlowFirstEntry,
    FlowEntry,
    /// The key of a map with one entry, which is an item of a list: `[a: b]`.
    PairKey,
    PairValue,
    PairEnd,
    FlowFirstKey,
    FlowKey,
    FlowValue,
    /// The value of a key without a `:`.
    FlowNoValue,
}

/// Where a node stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Flow,
    Block,
    /// In a map, whose lists need not be indented.
    BlockMapping,
}

/// The parser.
pub(super) struct Parser<'a> {
    pub scanner: Scanner<'a>,
    /// The open collections, innermost last; the scanner limits their number.
    states: Vec<State>,
    /// Handles of tags, and what they stand for.
    prefixes: HashMap<String, String>,
    /// Whether a document has begun whose content is still to be read.
    at_root: bool,
    is_explicit: bool,
}

impl<'a> Parser<'a> {
    pub fn new(scanner: Scanner<'a>) -> Parser<'a> {
        Parser {
            scanner,
            states: vec![],
            prefixes: HashMap::new(),
            at_root: false,
            is_explicit: false,
        }
    }

    /// Begins the first document. Returns false if there is none.
    pub fn begin_document(&mut self) -> Result<bool, Fault> {
        let first = self.scanner.peek()?;
        if first.kind == TokenKind::StreamEnd {
            return Ok(false);
        }
        self.is_explicit = matches!(
            first.kind,
            TokenKind::Version { .. } | TokenKind::TagDirective { .. } | TokenKind::DocumentStart
        );
        let token = self.read_directives()?;
        if self.is_explicit {
            if token.kind != TokenKind::DocumentStart {
                return fault(token, "did not find expected <document start>");
            }
            self.scanner.take();
        }
        self.at_root = true;
        Ok(true)
    }

    /// Checks what follows the content of the document.
    pub fn end_document(&mut self) -> Result<(), Fault> {
        self.scanner.peek().map(|_| ())
    }

    fn read_directives(&mut self) -> Result<Token, Fault> {
        let mut has_version = false;
        loop {
            let token = self.scanner.peek()?;
            match token.kind {
                TokenKind::Version { .. } if has_version => {
                    return fault(token, "found duplicate %YAML directive");
                }
                TokenKind::Version { major: 1, minor: 1 } => has_version = true,
                TokenKind::Version { .. } => {
                    return fault(token, "found incompatible YAML document");
                }
                TokenKind::TagDirective { handle, prefix } => {
                    let handle = self.scanner.text(handle).to_owned();
                    let prefix = self.scanner.text(prefix).to_owned();
                    match self.prefixes.entry(handle) {
                        Entry::Occupied(_) => {
                            return fault(token, "found duplicate %TAG directive");
                        }
                        Entry::Vacant(vacant) => drop(vacant.insert(prefix)),
                    }
                }
                _ => break,
            }
            self.scanner.take();
        }
        for (handle, prefix) in [("!", "!"), ("!!", CORE_PREFIX)] {
            self.prefixes.entry(handle.to_owned()).or_insert_with(|| prefix.to_owned());
        }
        self.scanner.peek()
    }

    /// Returns the next event of the document; the caller stops when its root has ended.
    pub fn next(&mut self) -> Result<Event, Fault> {
        if std::mem::take(&mut self.at_root) {
            return self.root();
        }
        match self.states.last().copied() {
            None => self.root(),
            Some(State::BlockEntry) => self.block_entry(),
            Some(State::IndentlessEntry) => self.indentless_entry(),
            Some(State::BlockKey) => self.block_key(),
            Some(State::BlockValue) => self.block_value(),
            Some(State::FlowFirstEntry) => self.flow_entry(true),
            Some(State::FlowEntry) => self.flow_entry(false),
            Some(State::PairKey) => self.pair_key(),
            Some(State::PairValue) => self.pair_value(),
            Some(State::PairEnd) => self.pair_end(),
            Some(State::FlowFirstKey) => self.flow_key(true),
            Some(State::FlowKey) => self.flow_key(false),
            Some(State::FlowValue) => self.flow_value(),
            Some(State::FlowNoValue) => self.flow_no_value(),
        }
    }

    fn root(&mut self) -> Result<Event, Fault> {
        let token = self.scanner.peek()?;
        let is_empty = matches!(
            token.kind,
            TokenKind::Version { .. }
                | TokenKind::TagDirective { .. }
                | TokenKind::DocumentStart
                | TokenKind::DocumentEnd
                | TokenKind::StreamEnd
        );
        if self.is_explicit && is_empty {
            return Ok(empty_scalar(token.spot));
        }
        self.node(Place::Block)
    }

    /// Takes the next token and returns the one after it.
    fn advance(&mut self) -> Result<Token, Fault> {
        self.scanner.take();
        self.scanner.peek()
    }

    /// Replaces what comes next in the innermost collection.
    fn become_state(&mut self, state: State) {
        self.states.pop();
        self.states.push(state);
    }

    /// Ends the innermost collection.
    fn end(&mut self, kind: EventKind, spot: Spot) -> Event {
        self.states.pop();
        Event { kind, spot, anchor: None }
    }

    /// Reads a node: its properties, and a scalar or the start of a collection.
    fn node(&mut self, place: Place) -> Result<Event, Fault> {
        let first = self.scanner.peek()?;
        if let TokenKind::Alias(name) = first.kind {
            self.scanner.take();
            return Ok(Event { kind: EventKind::Alias(name), spot: first.spot, anchor: None });
        }
        let (anchor, tag) = self.properties()?;
        let token = self.scanner.peek()?;
        let is_block = place != Place::Flow;
        let opened = match token.kind {
            TokenKind::BlockEntry if place == Place::BlockMapping => {
                self.states.push(State::IndentlessEntry);
                return Ok(Event { kind: EventKind::SequenceStart, spot: first.spot, anchor });
            }
            TokenKind::Scalar { text, is_plain } => {
                self.scanner.take();
                let is_implicit = (is_plain && tag == Tag::None) || tag == Tag::NonSpecific;
                let kind = EventKind::Scalar { text, tag, is_implicit };
                return Ok(Event { kind, spot: first.spot, anchor });
            }
            TokenKind::FlowSequenceStart => (EventKind::SequenceStart, State::FlowFirstEntry),
            TokenKind::FlowMappingStart => (EventKind::MappingStart, State::FlowFirstKey),
            TokenKind::BlockSequenceStart if is_block => {
                (EventKind::SequenceStart, State::BlockEntry)
            }
            TokenKind::BlockMappingStart if is_block => (EventKind::MappingStart, State::BlockKey),
            _ if anchor.is_some() || tag != Tag::None => {
                let is_implicit = tag == Tag::None;
                let kind = EventKind::Scalar { text: Text::default(), tag, is_implicit };
                return Ok(Event { kind, spot: first.spot, anchor });
            }
            _ => return fault(token, "did not find expected node content"),
        };
        self.scanner.take();
        self.states.push(opened.1);
        Ok(Event { kind: opened.0, spot: first.spot, anchor })
    }

    /// Takes an anchor and a tag, in any order.
    fn properties(&mut self) -> Result<(Option<Text>, Tag), Fault> {
        let mut anchor = None;
        let mut tag = None;
        let mut token = self.scanner.peek()?;
        loop {
            match token.kind {
                TokenKind::Anchor(name) if anchor.is_none() => anchor = Some(name),
                TokenKind::Tag { handle, suffix } if tag.is_none() => {
                    tag = Some((token, handle, suffix));
                }
                _ => break,
            }
            token = self.advance()?;
        }
        // The tag is looked up only now, because the scanner's errors come first.
        let tag = match tag {
            Some((token, handle, suffix)) => self.tag(token, handle, suffix)?,
            None => Tag::None,
        };
        Ok((anchor, tag))
    }

    fn tag(&self, token: Token, handle: Text, suffix: Text) -> Result<Tag, Fault> {
        let suffix = self.scanner.text(suffix);
        let whole = match self.scanner.text(handle) {
            "" => suffix.to_owned(),
            handle => match self.prefixes.get(handle) {
                Some(prefix) => format!("{prefix}{suffix}"),
                None => return fault(token, "found undefined tag handle"),
            },
        };
        Ok(match whole.strip_prefix(CORE_PREFIX) {
            None if whole == "!" => Tag::NonSpecific,
            Some("null") => Tag::Null,
            Some("bool") => Tag::Bool,
            Some("int") => Tag::Int,
            Some("float") => Tag::Float,
            Some("str") => Tag::Str,
            Some("timestamp") => Tag::Timestamp,
            Some("binary") => Tag::Binary,
            Some("merge") => Tag::Merge,
            _ => Tag::Other,
        })
    }

    fn block_entry(&mut self) -> Result<Event, Fault> {
        let token = self.scanner.peek()?;
        match token.kind {
            TokenKind::BlockEntry => match self.advance()?.kind {
                TokenKind::BlockEntry | TokenKind::BlockEnd => Ok(empty_scalar(token.spot)),
                _ => self.node(Place::Block),
            },
            TokenKind::BlockEnd => {
                self.scanner.take();
                Ok(self.end(EventKind::SequenceEnd, token.spot))
            }
            _ => fault(token, "did not find expected '-' indicator"),
        }
    }

    fn indentless_entry(&mut self) -> Result<Event, Fault> {
        let token = self.scanner.peek()?;
        if token.kind != TokenKind::BlockEntry {
            return Ok(self.end(EventKind::SequenceEnd, token.spot));
        }
        match self.advance()?.kind {
            TokenKind::BlockEntry | TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd => {
                Ok(empty_scalar(token.spot))
            }
            _ => self.node(Place::Block),
        }
    }

    fn block_key(&mut self) -> Result<Event, Fault> {
        let token = self.scanner.peek()?;
        match token.kind {
            TokenKind::Key => {
                self.become_state(State::BlockValue);
                self.node_of_mapping(token)
            }
            TokenKind::BlockEnd => {
                self.scanner.take();
                Ok(self.end(EventKind::MappingEnd, token.spot))
            }
            _ => fault(token, "did not find expected key"),
        }
    }

    fn block_value(&mut self) -> Result<Event, Fault> {
        let token = self.scanner.peek()?;
        self.become_state(State::BlockKey);
        match token.kind {
            TokenKind::Value => self.node_of_mapping(token),
            _ => Ok(empty_scalar(token.spot)),
        }
    }

    /// Reads the node after the token of a key or value, which may be missing.
    fn node_of_mapping(&mut self, indicator: Token) -> Result<Event, Fault> {
        match self.advance()?.kind {
            TokenKind::Key | TokenKind::Value | TokenKind::BlockEnd => {
                Ok(empty_scalar(indicator.spot))
            }
            _ => self.node(Place::BlockMapping),
        }
    }

    fn flow_entry(&mut self, is_first: bool) -> Result<Event, Fault> {
        let mut token = self.scanner.peek()?;
        if token.kind != TokenKind::FlowSequenceEnd && !is_first {
            if token.kind != TokenKind::FlowEntry {
                return fault(token, "did not find expected ',' or ']'");
            }
            token = self.advance()?;
        }
        match token.kind {
            TokenKind::FlowSequenceEnd => {
                self.scanner.take();
                Ok(self.end(EventKind::SequenceEnd, token.spot))
            }
            TokenKind::Key => {
                self.scanner.take();
                self.become_state(State::FlowEntry);
                self.states.push(State::PairKey);
                Ok(Event { kind: EventKind::MappingStart, spot: token.spot, anchor: None })
            }
            _ => {
                self.become_state(State::FlowEntry);
                self.node(Place::Flow)
            }
        }
    }

    fn pair_key(&mut self) -> Result<Event, Fault> {
        let token = self.scanner.peek()?;
        self.become_state(State::PairValue);
        match token.kind {
            TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowSequenceEnd => {
                // Upstream takes the token, although it has not read the value yet.
                self.scanner.take();
                Ok(empty_scalar(token.spot))
            }
            _ => self.node(Place::Flow),
        }
    }

    fn pair_value(&mut self) -> Result<Event, Fault> {
        let token = self.scanner.peek()?;
        self.become_state(State::PairEnd);
        let value = self.flow_value_after(token, TokenKind::FlowSequenceEnd)?;
        // Upstream gives the line of the `:` to a value that is missing.
        let is_missing = value == empty_scalar(value.spot);
        Ok(if is_missing { empty_scalar(token.spot) } else { value })
    }

    /// Reads the value of a key in a flow collection; an entry or its end may follow at once.
    fn flow_value_after(&mut self, token: Token, end: TokenKind) -> Result<Event, Fault> {
        if token.kind != TokenKind::Value {
            return Ok(empty_scalar(token.spot));
        }
        let next = self.advance()?;
        if next.kind == TokenKind::FlowEntry || next.kind == end {
            return Ok(empty_scalar(next.spot));
        }
        self.node(Place::Flow)
    }

    fn pair_end(&mut self) -> Result<Event, Fault> {
        let token = self.scanner.peek()?;
        Ok(self.end(EventKind::MappingEnd, token.spot))
    }

    fn flow_key(&mut self, is_first: bool) -> Result<Event, Fault> {
        let mut token = self.scanner.peek()?;
        if token.kind != TokenKind::FlowMappingEnd && !is_first {
            if token.kind != TokenKind::FlowEntry {
                return fault(token, "did not find expected ',' or '}'");
            }
            token = self.advance()?;
        }
        match token.kind {
            TokenKind::FlowMappingEnd => {
                self.scanner.take();
                Ok(self.end(EventKind::MappingEnd, token.spot))
            }
            TokenKind::Key => {
                self.become_state(State::FlowValue);
                let next = self.advance()?;
                match next.kind {
                    TokenKind::Value | TokenKind::FlowEntry | TokenKind::FlowMappingEnd => {
                        Ok(empty_scalar(next.spot))
                    }
                    _ => self.node(Place::Flow),
                }
            }
            _ => {
                self.become_state(State::FlowNoValue);
                self.node(Place::Flow)
            }
        }
    }

    fn flow_value(&mut self) -> Result<Event, Fault> {
        let token = self.scanner.peek()?;
        self.become_state(State::FlowKey);
        self.flow_value_after(token, TokenKind::FlowMappingEnd)
    }

    fn flow_no_value(&mut self) -> Result<Event, Fault> {
        let token = self.scanner.peek()?;
        self.become_state(State::FlowKey);
        Ok(empty_scalar(token.spot))
    }
}

fn empty_scalar(spot: Spot) -> Event {
    let kind = EventKind::Scalar { text: Text::default(), tag: Tag::None, is_implicit: true };
    Event { kind, spot, anchor: None }
}

/// Returns the error of the parser for a token. Unlike the scanner's, upstream's parser counts
/// lines from 0.
fn fault<T>(token: Token, message: &'static str) -> Result<T, Fault> {
    Err(Fault { line: token.spot.line as usize, message })
}
