//! Checksums of stored data: CRC-32 (IEEE 802.3), which detects every flipped bit and every burst
//! of up to 32 bits.
//!
//! Each covers the id of its record, so that swapped records are detected too.

/// Bytes of a checksum.
pub(super) const SUM_BYTES: usize = 4;

/// Prefixes of the checksummed data, so that a value cannot pass for a head.
const HEAD: &[u8] = b"head";
const VALUE: &[u8] = b"value";
const FLOOR: &[u8] = b"floor";

/// Returns the checksum of a row of the heads table, without the checksum at its end.
pub(super) fn of_head(id: &[u8], row: &[u8]) -> [u8; SUM_BYTES] {
    sum(&[HEAD, id, row])
}

/// Returns the checksum of the value of a record.
pub(super) fn of_value(id: &[u8], value: &[u8]) -> [u8; SUM_BYTES] {
    sum(&[VALUE, id, value])
}

/// Returns the checksum of the floor.
pub(super) fn of_floor(floor: u64) -> u64 {
    u64::from(u32::from_be_bytes(sum(&[FLOOR, &floor.to_be_bytes()])))
}

fn sum(parts: &[&[u8]]) -> [u8; SUM_BYTES] {
    let mut hasher = crc32fast::Hasher::new();
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_changes_the_checksum() {
        let id = [7; 12];
        let value = b"a value".to_vec();
        let whole = of_value(&id, &value);
        for bit in 0..value.len() * 8 {
            let mut flipped = value.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of_value(&id, &flipped), whole, "bit {bit} of the value");
        }
        for bit in 0..id.len() * 8 {
            let mut flipped = id;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(of_value(&flipped, &value), whole, "bit {bit} of the id");
        }
        assert_ne!(of_head(&id, &value), whole);
    }
}
