//! Parsers of texts. A value that they accept is unchanged when it is formatted and parsed again.

use super::{Target, hash_outcome};
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::quantity::Quantity;
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{GroupVersion, ip, selector};
use std::fmt::{Debug, Display};

pub const SELECTOR: Target = Target {
    name: "selector",
    seeds: || {
        texts(&[
            "",
            "a=b",
            "app.example.org/tier==web,env!=test",
            "a in (x, y,z),b notin (w),c,!d",
            "n>3,m<-7",
            "metadata.name=a,status.phase!=Running",
            "spec.nodeName=a\\,b\\=c\\\\",
        ])
    },
    dictionary: &[
        b"in",
        b"notin",
        b"(",
        b")",
        b",",
        b"=",
        b"==",
        b"!=",
        b"!",
        b">",
        b"<",
        b" ",
        b"\\,",
        b"\\=",
        b"\\\\",
        b"a",
        b"example.org/",
        b"metadata.name",
        b"()",
        b"(,)",
    ],
    attempt: |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Ok(0) };
        // Terms are sorted by their source text, so `a==b` and `a=c` may be reordered once.
        let sorted = |text: &str| FieldSelector::parse(text).map(|selector| selector.to_string());
        let fields = round_trip(text, |text| sorted(text).and_then(|text| sorted(&text)))?;
        Ok(fields ^ round_trip(text, selector::parse)?.rotate_left(1))
    },
};

pub const QUANTITY: Target = Target {
    name: "quantity",
    seeds: || {
        texts(&[
            "0",
            "1",
            "-1",
            "100m",
            "1.5Gi",
            "12e6",
            "1E",
            "1e-9",
            "0.000000001",
            "9223372036854775807Ei",
            ".5",
            "+3k",
        ])
    },
    dictionary: &[
        b"Ki",
        b"Mi",
        b"Gi",
        b"Ti",
        b"Pi",
        b"Ei",
        b"n",
        b"u",
        b"m",
        b"k",
        b"M",
        b"E",
        b"e",
        b"e-",
        b"E+",
        b".",
        b"-",
        b"+",
        b"0",
        b"00000000000000000000",
        b"99999999999999999999",
        b"1024",
    ],
    attempt: |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Ok(0) };
        let parse = |text: &str| text.parse::<Quantity>().map_err(|error| error.to_string());
        let outcome = round_trip(text, parse)?;
        if let Ok(quantity) = text.parse::<Quantity>() {
            // No operation may panic, whatever the size. Sums of numbers that fit into 64 bits are
            // exact.
            let sum = quantity.add(&quantity).sub(&quantity);
            if sum != quantity && quantity.as_i64().is_some() {
                return Err(format!("{quantity} + {quantity} - {quantity} is {sum}"));
            }
            let numbers = (quantity.value(), quantity.milli_value(), quantity.as_f64());
            std::hint::black_box((numbers, quantity.neg().sign(), quantity.as_i64()));
        }
        Ok(outcome)
    },
};

pub const TIME: Target = Target {
    name: "time",
    seeds: || {
        texts(&[
            "2026-02-28T23:59:59Z",
            "0000-01-01T00:00:00.123456Z",
            "9999-12-31T23:59:60+23:59",
            "1h2m3.5s",
            "-2562047h47m16.854775808s",
            "1us2ns",
            "10.0.0.0/24",
            "fe80::1%eth0",
            "2001:db8::/64",
            "apps/v1",
        ])
    },
    dictionary: &[
        b"T",
        b"Z",
        b":",
        b"-",
        b"+00:00",
        b".",
        b"h",
        b"m",
        b"s",
        b"ms",
        b"us",
        b"\xc2\xb5s",
        b"ns",
        b"::",
        b"/",
        b"0",
        b"00",
        b"99999999999999999999",
        b"255",
        b"ffff",
    ],
    attempt: |input| {
        let Ok(text) = std::str::from_utf8(input) else { return Ok(0) };
        let times = round_trip(text, |text| Timestamp::parse(text).map(Timestamp::truncated))?;
        let durations = round_trip(text, GoDuration::parse)?;
        // The text of a range has the first address of the range.
        let cidr = |text: &str| {
            let range = ip::parse_cidr(text).map(|range| range.to_string());
            range.ok_or_else(|| "no range".to_owned())
        };
        let ranges = round_trip(text, cidr)?;
        let ip = |text: &str| ip::parse_ip(text).ok_or_else(|| "no address".to_owned());
        let ips = round_trip(text, ip)?;
        let group = |text: &str| GroupVersion::parse(text).ok_or_else(|| "no group".to_owned());
        let groups = round_trip(text, group)?;
        Ok(times ^ durations.rotate_left(1) ^ ranges.rotate_left(2) ^ ips.rotate_left(3) ^ groups)
    },
};

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Parses a text. Checks that the value is unchanged when it is formatted and parsed again.
fn round_trip<T: PartialEq + Debug + Display>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<u64, String> {
    let value = match parse(text) {
        Ok(value) => value,
        Err(message) => return Ok(hash_outcome(&message)),
    };
    let formatted = value.to_string();
    match parse(&formatted) {
        Ok(parsed) if parsed == value => Ok(formatted.len().min(64) as u64),
        parsed => Err(format!("{value:?} became {parsed:?} as {formatted:?}")),
    }
}
