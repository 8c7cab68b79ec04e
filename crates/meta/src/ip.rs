//! IP addresses and CIDRs with the API's lenient parsing: stored objects may contain `010.0.0.1`
//! and `::ffff:1.2.3.4`. Non-canonical texts cause warnings.

use crate::status::quote;
use crate::{ErrorList, FieldError, Path};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A CIDR: an address and the length of its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cidr {
    /// As written, host bits included.
    pub address: IpAddr,
    /// Invariant: at most 32 or 128.
    pub prefix_bits: u8,
}

impl Cidr {
    /// Returns the first address: host bits are zero.
    pub fn network(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix_bits)).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix_bits)).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
            }
        }
    }

    /// Returns whether the address is in the network.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let other = Cidr { address: ip, prefix_bits: self.prefix_bits };
        ip.is_ipv4() == self.address.is_ipv4() && other.network() == self.network()
    }

    fn address_bits(&self) -> u8 {
        if self.address.is_ipv4() { 32 } else { 128 }
    }
}

impl fmt::Display for Cidr {
    /// Formats the canonical form.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network(), self.prefix_bits)
    }
}

/// Parses an address; leading zeros of an octet are ignored, a mapped IPv4 address becomes an IPv4
/// address.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    if !text.contains(':') {
        return parse_octets(text).map(IpAddr::V4);
    }
    let parsed: Ipv6Addr = match text.rsplit_once(':') {
        Some((head, tail)) if tail.contains('.') => {
            format!("{head}:{}", parse_octets(tail)?).parse().ok()?
        }
        _ => text.parse().ok()?,
    };
    Some(IpAddr::V6(parsed).to_canonical())
}

fn parse_octets(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        *octet = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then_some(Ipv4Addr::from(octets))
}

/// Parses a CIDR, as leniently as [`parse_ip`].
pub fn parse_cidr(text: &str) -> Option<Cidr> {
    let (address, bits) = text.split_once('/')?;
    if bits.is_empty() || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let mut prefix_bits: u8 = bits.trim_start_matches('0').parse().or(zero(bits)).ok()?;
    let ip = parse_ip(address)?;
    let mapped = ip.is_ipv4() && address.contains(':');
    if mapped && (96..=128).contains(&prefix_bits) {
        prefix_bits -= 96;
    }
    let cidr = Cidr { address: ip, prefix_bits };
    (prefix_bits <= cidr.address_bits()).then_some(cidr)
}

fn zero(bits: &str) -> Result<u8, std::num::ParseIntError> {
    if bits.bytes().all(|b| b == b'0') { Ok(0) } else { bits.parse() }
}

/// Validates an address of either family.
pub fn is_valid_ip(text: &str) -> Vec<String> {
    let words = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    unless(parse_ip(text).is_some(), words)
}

/// Validates an IPv4 address.
pub fn is_valid_ipv4(text: &str) -> Vec<String> {
    unless(parse_ip(text).is_some_and(|ip| ip.is_ipv4()), "must be a valid IPv4 address")
}

/// Validates an IPv6 address.
pub fn is_valid_ipv6(text: &str) -> Vec<String> {
    unless(parse_ip(text).is_some_and(|ip| ip.is_ipv6()), "must be a valid IPv6 address")
}

/// Validates a CIDR of either family.
pub fn is_valid_cidr(text: &str) -> Vec<String> {
    let words = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    unless(parse_cidr(text).is_some(), words)
}

/// Validates an interface address with prefix length, in canonical form: `192.168.1.5/24`.
pub fn is_valid_interface_address(text: &str) -> Vec<String> {
    let Some(cidr) = parse_cidr(text) else { return is_valid_cidr(text) };
    let canonical = format!("{}/{}", cidr.address, cidr.prefix_bits);
    unless(text == canonical, &format!("must be in canonical form ({})", quote(&canonical)))
}

fn unless(fine: bool, words: &str) -> Vec<String> {
    if fine { vec![] } else { vec![words.to_owned()] }
}

/// Validates an address as Kubernetes did before StrictIPCIDRValidation.
pub fn validate_sloppy_ip(text: &str, path: &Path<'_>) -> ErrorList {
    sloppy(text, path, parse_ip(text).is_some(), is_valid_ip)
}

/// Validates a CIDR as Kubernetes did before StrictIPCIDRValidation.
pub fn validate_sloppy_cidr(text: &str, path: &Path<'_>) -> ErrorList {
    sloppy(text, path, parse_cidr(text).is_some(), is_valid_cidr)
}

fn sloppy(
    text: &str,
    path: &Path<'_>,
    is_parsed: bool,
    rule: fn(&str) -> Vec<String>,
) -> ErrorList {
    let mut errors = ErrorList::new();
    if !is_parsed {
        rule(text).iter().for_each(|words| errors.push(FieldError::invalid(path, text, words)));
    }
    errors
}

/// Validates a new address strictly: no leading zeros, no mapped addresses.
pub fn validate_strict_ip(text: &str, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut add = |words: &str| errors.push(FieldError::invalid(path, text, words));
    if parse_ip(text).is_none() {
        is_valid_ip(text).iter().for_each(|words| add(words));
    } else if text.parse::<IpAddr>().is_err() {
        add("must not have leading 0s");
    } else if is_mapped(text) {
        add("must not be an IPv4-mapped IPv6 address");
    }
    errors
}

/// Validates a new CIDR strictly: no leading zeros, no mapped addresses, no host bits.
pub fn validate_strict_cidr(text: &str, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut add = |words: &str| errors.push(FieldError::invalid(path, text, words));
    let Some(cidr) = parse_cidr(text) else {
        is_valid_cidr(text).iter().for_each(|words| add(words));
        return errors;
    };
    if !has_plain_digits(text) {
        add("must not have leading 0s in IP or prefix length");
    } else if is_mapped(text) {
        add("must not have an IPv4-mapped IPv6 address");
    } else if cidr.network() != cidr.address {
        add("must not have bits set beyond the prefix length");
    }
    errors
}

fn has_plain_digits(cidr: &str) -> bool {
    let (address, bits) = cidr.split_once('/').unwrap_or((cidr, "0"));
    address.parse::<IpAddr>().is_ok() && (bits == "0" || !bits.starts_with('0'))
}

fn is_mapped(text: &str) -> bool {
    let address = text.split('/').next().unwrap_or_default();
    address.parse::<Ipv6Addr>().is_ok_and(|ip| ip.to_ipv4_mapped().is_some())
}

/// Returns warnings for a valid address that is not in the preferred form.
pub fn warnings_for_ip(text: &str, path: &Path<'_>) -> Vec<String> {
    let Some(ip) = parse_ip(text) else { return vec![] };
    let shown = quote(text);
    let better = quote(&ip.to_string());
    if text.parse::<IpAddr>().is_err() || is_mapped(text) {
        return vec![format!(
            "{path}: non-standard IP address {shown} will be considered invalid in a future \
             Kubernetes release: use {better}"
        )];
    }
    if ip.is_ipv6() && shown != better {
        let words = "should be in RFC 5952 canonical format";
        return vec![format!("{path}: IPv6 address {shown} {words} ({better})")];
    }
    vec![]
}

/// Returns warnings for a valid CIDR that is not in the preferred form.
pub fn warnings_for_cidr(text: &str, path: &Path<'_>) -> Vec<String> {
    let Some(cidr) = parse_cidr(text) else { return vec![] };
    let shown = quote(text);
    let better = quote(&cidr.to_string());
    let mut warnings = vec![];
    if cidr.network() != cidr.address {
        let single = quote(&format!("{}/{}", cidr.address, cidr.address_bits()));
        warnings.push(format!(
            "{path}: CIDR value {shown} is ambiguous in this context (should be {better} or \
             {single}?)"
        ));
    }
    if !has_plain_digits(text) || is_mapped(text) {
        warnings.push(format!(
            "{path}: non-standard CIDR value {shown} will be considered invalid in a future \
             Kubernetes release: use {better}"
        ));
    }
    if warnings.is_empty() && cidr.address.is_ipv6() && shown != better {
        let words = "should be in RFC 5952 canonical format";
        warnings.push(format!("{path}: IPv6 CIDR value {shown} {words} ({better})"));
    }
    warnings
}

/// Whether an address is one that a host may be reached at from others (Go's `IsGlobalUnicast`).
pub fn is_global_unicast(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !(is_link_local || ip.is_loopback() || ip.is_unspecified() || ip.is_multicast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_leniently() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(parse_ip(text).map(|ip| ip.to_string()).as_deref(), expected, "{text}");
        };
        check("10.0.0.1", Some("10.0.0.1"));
        check("010.000.0.1", Some("10.0.0.1"));
        check("::ffff:1.2.3.04", Some("1.2.3.4"));
        check("2001:DB8::0:1", Some("2001:db8::1"));
        check("256.0.0.1", None);
        check("1.2.3", None);
        check("1.2.3.4.5", None);
        check("fe80::1%eth0", None);
        check("", None);
    }

    #[test]
    fn networks_have_a_first_address() {
        let check = |text: &str, expected: Option<&str>| {
            assert_eq!(
                parse_cidr(text).map(|cidr| cidr.to_string()).as_deref(),
                expected,
                "{text}"
            );
        };
        check("10.1.2.3/24", Some("10.1.2.0/24"));
        check("10.1.2.3/0", Some("0.0.0.0/0"));
        check("10.1.2.3/032", Some("10.1.2.3/32"));
        check("2001:db8::1/64", Some("2001:db8::/64"));
        check("10.1.2.3/33", None);
        check("10.1.2.3", None);
        check("10.1.2.3/", None);
        assert!(parse_cidr("10.0.0.0/8").is_some_and(|c| c.contains([10, 9, 8, 7].into())));
        assert!(!parse_cidr("10.0.0.0/8").is_some_and(|c| c.contains([11, 0, 0, 1].into())));
    }

    #[test]
    fn odd_forms_are_warned_about() {
        let path = Path::new("ip");
        assert_eq!(
            warnings_for_ip("010.0.0.1", &path),
            ["ip: non-standard IP address \"010.0.0.1\" will be considered invalid in a future \
              Kubernetes release: use \"10.0.0.1\""]
        );
        assert_eq!(
            warnings_for_ip("2001:DB8::1", &path),
            ["ip: IPv6 address \"2001:DB8::1\" should be in RFC 5952 canonical format \
              (\"2001:db8::1\")"]
        );
        assert_eq!(
            warnings_for_cidr("10.1.2.3/24", &path),
            ["ip: CIDR value \"10.1.2.3/24\" is ambiguous in this context (should be \
              \"10.1.2.0/24\" or \"10.1.2.3/32\"?)"]
        );
        assert_eq!(warnings_for_cidr("10.1.2.0/24", &path), Vec::<String>::new());
    }
}
