//! Numbers that look random and are functions of a text, so that equal runs give equal objects.

/// Returns a number for a text (FNV-1a, mixed).
pub fn of_text(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    mix(hash)
}

fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Returns `digits` hexadecimal digits for a text.
pub fn hex(text: &str, digits: usize) -> String {
    let mut seed = of_text(text);
    let mut hex = String::with_capacity(digits + 16);
    while hex.len() < digits {
        seed = mix(seed.wrapping_add(0x9e37_79b9_7f4a_7c15));
        hex.push_str(&format!("{seed:016x}"));
    }
    hex.truncate(digits);
    hex
}
