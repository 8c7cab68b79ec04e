//! Parsers of text: what they take is read the same when it was written again.

use super::{Target, answer};
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
    words: &[
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
        // Terms are sorted by how they were written, so `a==b` and `a=c` may change places once.
        let sorted = |text: &str| FieldSelector::parse(text).map(|found| found.to_string());
        let fields = same(text, |text| sorted(text).and_then(|text| sorted(&text)))?;
        Ok(fields ^ same(text, selector::parse)?.rotate_left(1))
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
    words: &[
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
        let got = same(text, |text| text.parse::<Quantity>().map_err(|error| error.to_string()))?;
        if let Ok(quantity) = text.parse::<Quantity>() {
            // None of these may panic, whatever the size; sums are exact where they have room.
            let twice = quantity.add(&quantity).sub(&quantity);
            if twice != quantity && quantity.as_i64().is_some() {
                return Err(format!("{quantity} and {quantity} less {quantity} is {twice}"));
            }
            let numbers = (quantity.value(), quantity.milli_value(), quantity.as_f64());
            std::hint::black_box((numbers, quantity.neg().sign(), quantity.as_i64()));
        }
        Ok(got)
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
    words: &[
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
        let times = same(text, |text| Timestamp::parse(text).map(Timestamp::truncated))?;
        let spans = same(text, GoDuration::parse)?;
        let plain = |what: &str| what.to_owned();
        // A range is written by its first address.
        let range = |text: &str| ip::parse_cidr(text).map(|range| range.to_string());
        let nets = same(text, |text| range(text).ok_or_else(|| plain("no range")))?;
        let ips = same(text, |text| ip::parse_ip(text).ok_or_else(|| plain("no address")))?;
        let groups = same(text, |text| GroupVersion::parse(text).ok_or_else(|| plain("no group")))?;
        Ok(times ^ spans.rotate_left(1) ^ nets.rotate_left(2) ^ ips.rotate_left(3) ^ groups)
    },
};

fn texts(texts: &[&str]) -> Vec<Vec<u8>> {
    texts.iter().map(|text| text.as_bytes().to_vec()).collect()
}

/// Reads a text; what it says must be the same when it was written and read again.
fn same<T: PartialEq + Debug + Display>(
    text: &str,
    read: impl Fn(&str) -> Result<T, String>,
) -> Result<u64, String> {
    let value = match read(text) {
        Ok(value) => value,
        Err(why) => return Ok(answer(&why)),
    };
    let written = value.to_string();
    match read(&written) {
        Ok(back) if back == value => Ok(written.len().min(64) as u64),
        back => Err(format!("{value:?} became {back:?} as {written:?}")),
    }
}
