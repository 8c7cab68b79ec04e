//! The protobuf wire format: varints, keys, lengths, fields.

use std::fmt;

/// Maximum nesting of messages.
pub const DEPTH_MAX: usize = 100;

/// Why bytes are not the expected protobuf message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProtoError {
    /// The `k8s\0` prefix is missing.
    Prefix,
    /// The input is empty.
    Empty,
    /// Nothing follows the prefix.
    EmptyBody,
    /// The input ends within a field.
    End,
    /// A varint of more than 64 bits.
    Overflow,
    /// An invalid field number: 0 or more than 29 bits.
    Tag(u64),
    /// An end-group key without a start.
    EndGroup,
    /// An unknown wire type.
    WireType(u8),
    /// A field with a wrong wire type: (wire type, JSON name).
    WrongType(u8, String),
    /// Nesting exceeds [`DEPTH_MAX`].
    Depth,
    /// Invalid content of a field: (JSON name, reason).
    Content(String, String),
}

impl fmt::Display for ProtoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProtoError::Prefix => f.write_str(
                "provided data does not appear to be a protobuf message, \
                 expected prefix [107 56 115 0]",
            ),
            ProtoError::Empty => f.write_str("empty data"),
            ProtoError::EmptyBody => f.write_str("empty body"),
            ProtoError::End => f.write_str("unexpected EOF"),
            ProtoError::Overflow => f.write_str("proto: integer overflow"),
            ProtoError::Tag(tag) => write!(f, "proto: illegal tag {tag}"),
            ProtoError::EndGroup => f.write_str("proto: unexpected end of group"),
            ProtoError::WireType(wire) => write!(f, "proto: illegal wireType {wire}"),
            ProtoError::WrongType(wire, name) => {
                write!(f, "proto: wrong wireType = {wire} for field {name}")
            }
            ProtoError::Depth => f.write_str("proto: exceeded max depth"),
            ProtoError::Content(name, why) => write!(f, "proto: field {name}: {why}"),
        }
    }
}

impl std::error::Error for ProtoError {}

/// The value of one field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wire<'a> {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64(u64),
    /// Wire type 2.
    Bytes(&'a [u8]),
    /// Wire type 5.
    Fixed32,
    /// Wire type 3: a group, skipped.
    Group,
}

impl<'a> Wire<'a> {
    fn number(self) -> u8 {
        match self {
            Wire::Varint(_) => 0,
            Wire::Fixed64(_) => 1,
            Wire::Bytes(_) => 2,
            Wire::Group => 3,
            Wire::Fixed32 => 5,
        }
    }

    /// Returns the error for a wrong wire type.
    pub fn wrong_type(self, name: &str) -> ProtoError {
        ProtoError::WrongType(self.number(), name.to_owned())
    }

    /// Returns the varint, or an error for another wire type.
    pub fn varint(self, name: &str) -> Result<u64, ProtoError> {
        match self {
            Wire::Varint(number) => Ok(number),
            other => Err(other.wrong_type(name)),
        }
    }

    /// Returns text, bytes or a message, or an error for another wire type.
    pub fn bytes(self, name: &str) -> Result<&'a [u8], ProtoError> {
        match self {
            Wire::Bytes(bytes) => Ok(bytes),
            other => Err(other.wrong_type(name)),
        }
    }
}

/// Reads a message field by field.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// Reads the next field: number and value.
    #[inline]
    pub fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, ProtoError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (tag, wire) = self.key()?;
        let content = match wire {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?.try_into().map_err(|_| ProtoError::End)?;
                Wire::Fixed64(u64::from_le_bytes(bytes))
            }
            2 => {
                let length = usize::try_from(self.varint()?).map_err(|_| ProtoError::End)?;
                Wire::Bytes(self.take(length)?)
            }
            3 => {
                self.skip_group()?;
                Wire::Group
            }
            4 => return Err(ProtoError::EndGroup),
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            other => return Err(ProtoError::WireType(other)),
        };
        Ok(Some((tag, content)))
    }

    fn key(&mut self) -> Result<(u32, u8), ProtoError> {
        let key = self.varint()?;
        let tag = key >> 3;
        match u32::try_from(tag) {
            Ok(tag @ 1..=0x1fff_ffff) => Ok((tag, (key & 7) as u8)),
            _ => Err(ProtoError::Tag(tag)),
        }
    }

    /// Skips a group whose start was just read.
    fn skip_group(&mut self) -> Result<(), ProtoError> {
        let mut depth = 1_usize;
        while depth > 0 {
            match self.key()?.1 {
                0 => drop(self.varint()?),
                1 => drop(self.take(8)?),
                2 => {
                    let length = usize::try_from(self.varint()?).map_err(|_| ProtoError::End)?;
                    self.take(length)?;
                }
                3 => depth += 1,
                4 => depth -= 1,
                5 => drop(self.take(4)?),
                other => return Err(ProtoError::WireType(other)),
            }
        }
        Ok(())
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtoError> {
        let (head, rest) = self.rest.split_at_checked(length).ok_or(ProtoError::End)?;
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    fn varint(&mut self) -> Result<u64, ProtoError> {
        if let [first @ 0..0x80, rest @ ..] = self.rest {
            self.rest = rest;
            return Ok(u64::from(*first));
        }
        self.long_varint()
    }

    fn long_varint(&mut self) -> Result<u64, ProtoError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?[0];
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(ProtoError::Overflow)
    }
}

/// Decodes a packed repeated field.
pub(super) fn packed(bytes: &[u8]) -> Result<Vec<u64>, ProtoError> {
    let mut reader = Reader::new(bytes);
    let mut out = vec![];
    while !reader.rest.is_empty() {
        out.push(reader.varint()?);
    }
    Ok(out)
}

/// Appends a varint.
pub(super) fn put_varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Returns the length of a varint.
pub(super) fn varint_len(number: u64) -> usize {
    let bits = 64 - (number | 1).leading_zeros() as usize;
    bits.div_ceil(7)
}

/// Appends a field's number and wire type.
pub(super) fn put_key(tag: u32, wire: u8, out: &mut Vec<u8>) {
    put_varint(u64::from(tag) << 3 | u64::from(wire), out);
}

/// Appends a field of bytes.
pub(super) fn put_bytes(tag: u32, bytes: &[u8], out: &mut Vec<u8>) {
    put_key(tag, 2, out);
    put_varint(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a length-delimited field whose content `write` appends. One byte is reserved for the
/// length; a longer length moves the content.
pub(super) fn put_nested(tag: u32, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    put_key(tag, 2, out);
    let at = begin(out);
    write(out);
    end(at, out);
}

/// Begins length-delimited content. Returns the start offset for [`end`].
pub(super) fn begin(out: &mut Vec<u8>) -> usize {
    out.push(0);
    out.len()
}

/// Ends length-delimited content that began at `start`.
pub(super) fn end(start: usize, out: &mut Vec<u8>) {
    let length = out.len() - start;
    if length < 0x80 {
        out[start - 1] = length as u8;
        return;
    }
    let width = varint_len(length as u64);
    out.resize(out.len() + width - 1, 0);
    out.copy_within(start..start + length, start + width - 1);
    let mut rest = length;
    for byte in &mut out[start - 1..start + width - 2] {
        *byte = rest as u8 | 0x80;
        rest >>= 7;
    }
    out[start + width - 2] = rest as u8;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_any_width_are_patched_in() {
        for length in [0, 1, 127, 128, 300, 16_383, 16_384, 2_097_151, 2_097_152] {
            let content: Vec<u8> = (0..length).map(|i| i as u8).collect();
            let mut nested = vec![9];
            let mut plain = vec![9];
            put_nested(3, &mut nested, |out| out.extend_from_slice(&content));
            put_bytes(3, &content, &mut plain);
            assert!(nested == plain, "{length}");
            assert_eq!(plain.len(), 1 + 1 + varint_len(length as u64) + length);
        }
    }

    #[test]
    fn malformed_fields_have_distinct_errors() {
        let check = |bytes: &[u8], want: ProtoError| {
            let mut reader = Reader::new(bytes);
            let got = loop {
                match reader.next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{bytes:x?} was read"),
                    Err(error) => break error,
                }
            };
            assert_eq!(got, want, "{bytes:x?}");
        };
        check(&[0x08], ProtoError::End);
        check(&[0x0a, 0x02, 0x00], ProtoError::End);
        check(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], ProtoError::End);
        check(&[0xff; 11], ProtoError::Overflow);
        check(&[0x00, 0x00], ProtoError::Tag(0));
        check(&[0x0c], ProtoError::EndGroup);
        check(&[0x0f], ProtoError::WireType(7));
        check(&[0x0b, 0x08, 0x01], ProtoError::End);
    }

    #[test]
    fn groups_and_fixed_numbers_are_skipped() {
        let mut reader =
            Reader::new(&[0x0b, 0x13, 0x08, 0x01, 0x14, 0x0c, 0x15, 0, 0, 0, 0, 0x18, 5]);
        let mut tags = vec![];
        while let Some((tag, _)) = reader.next().unwrap() {
            tags.push(tag);
        }
        assert_eq!(tags, [1, 2, 3]);
    }
}
