//! Sizes of terminals: a stream of JSON objects such as `{"Width":80,"Height":24}`.

use bytes::{Buf, BytesMut};
use serde_json::Value;

/// Most bytes of a size, with the white space before it.
pub const SIZE_BYTES_MAX: usize = 1 << 10;

/// A size of a terminal, in characters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TerminalSize {
    /// The number of columns.
    pub width: u16,
    /// The number of rows.
    pub height: u16,
}

impl TerminalSize {
    /// Returns the line that is sent to a node.
    pub fn to_line(self) -> String {
        format!("{{\"Width\":{},\"Height\":{}}}\n", self.width, self.height)
    }
}

/// Reads sizes from pieces of the stream. After something that is no size it reads nothing more.
#[derive(Debug, Default)]
pub struct ResizeReader {
    held: BytesMut,
    is_broken: bool,
}

impl ResizeReader {
    /// Takes a piece of the stream; returns the last size that is complete now. Earlier ones have
    /// no effect that anyone would see.
    pub fn receive(&mut self, piece: &[u8]) -> Option<TerminalSize> {
        if self.is_broken {
            return None;
        }
        let mut last = None;
        // In small parts, so that many sizes in one piece are not held at once.
        for part in piece.chunks(SIZE_BYTES_MAX) {
            self.held.extend_from_slice(part);
            last = self.take_sizes().or(last);
            if self.is_broken || self.held.len() > SIZE_BYTES_MAX {
                self.is_broken = true;
                self.held = BytesMut::new();
                break;
            }
        }
        last
    }

    fn take_sizes(&mut self) -> Option<TerminalSize> {
        let mut last = None;
        let mut values = serde_json::Deserializer::from_slice(&self.held).into_iter::<Value>();
        loop {
            match values.next() {
                Some(Ok(value)) => match size(&value) {
                    Some(size) => last = Some(size),
                    None => {
                        self.is_broken = true;
                        return last;
                    }
                },
                Some(Err(error)) if !error.is_eof() => {
                    self.is_broken = true;
                    return last;
                }
                Some(Err(_)) | None => break,
            }
        }
        let taken = values.byte_offset();
        self.held.advance(taken);
        last
    }
}

/// Returns the size that a value says; `None` if Go would not decode it. Names may have any case.
fn size(value: &Value) -> Option<TerminalSize> {
    let mut size = TerminalSize::default();
    if value.is_null() {
        return Some(size);
    }
    for (name, value) in value.as_object()? {
        let number = if name.eq_ignore_ascii_case("width") {
            &mut size.width
        } else if name.eq_ignore_ascii_case("height") {
            &mut size.height
        } else {
            continue;
        };
        if !value.is_null() {
            *number = u16::try_from(value.as_u64()?).ok()?;
        }
    }
    Some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_from_pieces() {
        let size = |width, height| Some(TerminalSize { width, height });
        for (pieces, expected) in [
            (&[r#"{"Width":80,"Height":24}"#][..], vec![size(80, 24)]),
            (&[r#"{"width":80,"#, r#""HEIGHT":24}"#], vec![None, size(80, 24)]),
            (&["{\"Width\":1}\n{\"Width\":2}\n"], vec![size(2, 0)]),
            (&["{}", "null", r#"{"a":1}"#], vec![size(0, 0); 3]),
            (&["x", "{}"], vec![None, None]),
            (&[r#"{"Width":65536}"#, "{}"], vec![None, None]),
            (&[r#"{"Width":-1}"#, "{}"], vec![None, None]),
            (&[r#"{"Width":"1"}"#, "{}"], vec![None, None]),
            (&["[1]", "{}"], vec![None, None]),
        ] {
            let mut reader = ResizeReader::default();
            let found: Vec<_> =
                pieces.iter().map(|piece| reader.receive(piece.as_bytes())).collect();
            assert_eq!(found, expected, "{pieces:?}");
        }
        assert_eq!(size(80, 24).unwrap().to_line(), "{\"Width\":80,\"Height\":24}\n");
    }

    #[test]
    fn an_endless_size_is_not_held() {
        let mut reader = ResizeReader::default();
        assert_eq!(reader.receive(b"\""), None);
        for _ in 0..100 {
            assert_eq!(reader.receive(&vec![b'a'; 10_000]), None);
            assert!(reader.held.capacity() <= 8 * SIZE_BYTES_MAX);
        }
        assert_eq!(reader.receive(b"\"{}"), None, "it stays broken");
    }
}
