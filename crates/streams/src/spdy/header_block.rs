//! The headers of a stream, in the form that is compressed.

use super::{HEADER_BLOCK_BYTES_MAX, HEADERS_MAX, SpdyError};

/// The names and values of the headers of a stream. Names are in lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    /// Returns the first value of a header; the case of `name` does not matter.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut values = self.0.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
        values.next().map(|(_, value)| value.split('\0').next().unwrap_or_default())
    }

    /// Returns the number of names.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the block of bytes; `None` if it is longer than a peer accepts.
    pub(super) fn encode(&self) -> Option<Vec<u8>> {
        let mut out = (self.0.len() as u32).to_be_bytes().to_vec();
        for (name, value) in &self.0 {
            for text in [name, value] {
                out.extend_from_slice(&(text.len() as u32).to_be_bytes());
                out.extend_from_slice(text.as_bytes());
            }
        }
        // Half of the limit, so that the frame around it fits too.
        let is_short = out.len() <= HEADER_BLOCK_BYTES_MAX / 2 && self.0.len() <= HEADERS_MAX;
        is_short.then_some(out)
    }

    /// Parses a block.
    pub(super) fn parse(mut block: &[u8]) -> Result<Headers, SpdyError> {
        let count = take_number(&mut block)?;
        if count as usize > HEADERS_MAX {
            return Err(SpdyError::TooManyHeaders(count));
        }
        let mut headers: Vec<(String, String)> = vec![];
        for _ in 0..count {
            let name = take_text(&mut block)?;
            let value = take_text(&mut block)?;
            if name.is_empty() || name.bytes().any(|byte| byte.is_ascii_uppercase()) {
                return Err(SpdyError::HeaderForm("a name that is empty or not in lower case"));
            }
            if headers.iter().any(|(other, _)| *other == name) {
                return Err(SpdyError::HeaderForm("a name that occurs twice"));
            }
            headers.push((name, value));
        }
        match block {
            [] => Ok(Headers(headers)),
            _ => Err(SpdyError::HeaderForm("more bytes than headers")),
        }
    }
}

/// Joins several values of one name as SPDY does.
impl<N: AsRef<str>, V: Into<String>, const COUNT: usize> From<[(N, V); COUNT]> for Headers {
    fn from(pairs: [(N, V); COUNT]) -> Headers {
        let mut headers: Vec<(String, String)> = vec![];
        for (name, value) in pairs {
            let name = name.as_ref().to_ascii_lowercase();
            let value = value.into();
            match headers.iter_mut().find(|(given, _)| *given == name) {
                Some((_, values)) => {
                    values.push('\0');
                    values.push_str(&value);
                }
                None => headers.push((name, value)),
            }
        }
        Headers(headers)
    }
}

fn take_number(block: &mut &[u8]) -> Result<u32, SpdyError> {
    let (number, rest) =
        block.split_first_chunk().ok_or(SpdyError::HeaderForm("fewer bytes than headers"))?;
    *block = rest;
    Ok(u32::from_be_bytes(*number))
}

/// Takes a length, and a text of this length. Nothing is allocated for bytes that are not there.
fn take_text(block: &mut &[u8]) -> Result<String, SpdyError> {
    let length = take_number(block)? as usize;
    let (text, rest) =
        block.split_at_checked(length).ok_or(SpdyError::HeaderForm("fewer bytes than headers"))?;
    *block = rest;
    let text = std::str::from_utf8(text).map_err(|_| SpdyError::HeaderForm("not UTF-8"))?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_written() {
        let headers =
            Headers::from([("streamType", "data"), ("port", "80"), ("A", "x"), ("a", "y")]);
        assert_eq!(headers.len(), 3);
        assert_eq!(Headers::parse(&headers.encode().unwrap()), Ok(headers.clone()));
        assert_eq!(headers.get("STREAMTYPE"), Some("data"));
        assert_eq!(headers.get("a"), Some("x"));
        assert_eq!(headers.get("b"), None);
    }

    #[test]
    fn wrong_headers_are_refused() {
        let name = |name: &[u8]| [b"\0\0\0\x01\0\0\0\x01", name, b"\0\0\0\0"].concat();
        let form = SpdyError::HeaderForm;
        let twice = [&b"\0\0\0\x02"[..], &name(b"a")[4..], &name(b"a")[4..]].concat();
        for (block, expected) in [
            (b"\0\0".to_vec(), form("fewer bytes than headers")),
            (b"\0\0\x03\xe9".to_vec(), SpdyError::TooManyHeaders(1_001)),
            (b"\xff\xff\xff\xff".to_vec(), SpdyError::TooManyHeaders(u32::MAX)),
            (b"\0\0\0\x01\xff\xff\xff\xff".to_vec(), form("fewer bytes than headers")),
            (name(b"A"), form("a name that is empty or not in lower case")),
            (name(b"\xff"), form("not UTF-8")),
            (
                b"\0\0\0\x01\0\0\0\0\0\0\0\0".to_vec(),
                form("a name that is empty or not in lower case"),
            ),
            (twice, form("a name that occurs twice")),
            ([name(b"a"), vec![0]].concat(), form("more bytes than headers")),
        ] {
            assert_eq!(Headers::parse(&block), Err(expected), "{}", block.escape_ascii());
        }
        assert_eq!(Headers::from([("a", "x".repeat(1 << 20))]).encode(), None);
    }
}
