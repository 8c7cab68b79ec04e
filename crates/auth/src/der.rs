//! A minimal DER reader and writer, as keys and certificates need it.

/// Tags of DER.
pub const SEQUENCE: u8 = 0x30;
pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const NULL: u8 = 0x05;
pub const OBJECT_ID: u8 = 0x06;
pub const UTF8_STRING: u8 = 0x0c;
pub const SET: u8 = 0x31;

/// `rsaEncryption`, `ecPublicKey`, and the curves P-256, P-384 and P-521.
pub const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
pub const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
pub const P256: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07];
pub const P384: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x22];
pub const P521: &[u8] = &[0x2b, 0x81, 0x04, 0x00, 0x23];

/// Encodes a DER value: tag, length, content.
pub fn wrap(tag: u8, content: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    match content.len() {
        short @ 0..=0x7f => out.push(u8::try_from(short).unwrap_or_default()),
        long => {
            let bytes = long.to_be_bytes();
            let bytes = &bytes[bytes.iter().position(|byte| *byte != 0).unwrap_or(7)..];
            out.push(0x80 | u8::try_from(bytes.len()).unwrap_or_default());
            out.extend_from_slice(bytes);
        }
    }
    out.extend_from_slice(content);
    out
}

/// Concatenates values.
pub fn concat(values: &[Vec<u8>]) -> Vec<u8> {
    values.concat()
}

/// Returns tag and content of the first value, and the rest.
pub fn read(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = if first < 0x80 {
        (usize::from(first), rest)
    } else {
        let count = usize::from(first & 0x7f);
        let length = rest
            .get(..count)
            .filter(|_| count <= 4)?
            .iter()
            .fold(0, |sum, byte| (sum << 8) | usize::from(*byte));
        (length, rest.get(count..)?)
    };
    Some((tag, rest.get(..length)?, rest.get(length..)?))
}

/// Returns the content of a value that must have this tag, and the rest.
pub fn expect(tag: u8, bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    read(bytes).filter(|(found, ..)| *found == tag).map(|(_, content, rest)| (content, rest))
}
