//! Variable-length integers: seven bits a byte, least significant first.

/// Appends a number below 2^28.
pub(crate) fn write_varint(mut number: usize, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push((number as u8) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reads the number at `at` and advances `at` past it.
pub(crate) fn read_varint(bytes: &[u8], at: &mut usize) -> Option<usize> {
    let mut number = 0usize;
    for shift in (0..28).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        number |= usize::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}
