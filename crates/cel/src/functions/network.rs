//! The functions of `net.IP` and `net.CIDR`.

use super::{Implementation, text_arg};
use crate::value::{EvalError, EvalResult, Opaque, Val};
use keelson_meta::ip::Cidr;
use std::net::{IpAddr, Ipv6Addr};

pub(crate) fn function(name: &str) -> Option<Implementation> {
    Some(match name {
        "isIP" => |args| Ok(Val::Bool(parse_ip(text_arg(args, 0)?).is_ok())),
        "ip.isCanonical" => |args| {
            let text = text_arg(args, 0)?;
            let ip = parse_ip(text).map_err(EvalError::new)?;
            Ok(Val::Bool(ip.to_string() == text))
        },
        "family" => |args| ip_of(args, |ip| Val::Int(if ip.is_ipv4() { 4 } else { 6 })),
        "isUnspecified" => |args| ip_of(args, |ip| Val::Bool(ip.is_unspecified())),
        "isLoopback" => |args| ip_of(args, |ip| Val::Bool(ip.is_loopback())),
        "isLinkLocalMulticast" => |args| ip_of(args, |ip| Val::Bool(is_link_local_multicast(ip))),
        "isLinkLocalUnicast" => |args| ip_of(args, |ip| Val::Bool(is_link_local_unicast(ip))),
        "isGlobalUnicast" => |args| ip_of(args, |ip| Val::Bool(is_global_unicast(ip))),
        "cidr" => |args| match parse_cidr(text_arg(args, 0)?) {
            Ok(cidr) => Ok(Val::opaque(Opaque::Cidr(cidr))),
            Err(message) => Err(EvalError::new(message)),
        },
        "isCIDR" => |args| Ok(Val::Bool(parse_cidr(text_arg(args, 0)?).is_ok())),
        "containsIP" => contains_ip,
        "containsCIDR" => contains_cidr,
        "prefixLength" => |args| cidr_of(args, |cidr| Val::Int(cidr.prefix_bits.into())),
        "masked" => |args| {
            cidr_of(args, |cidr| {
                let address = cidr.network();
                Val::opaque(Opaque::Cidr(Cidr { address, prefix_bits: cidr.prefix_bits }))
            })
        },
        _ => return None,
    })
}

/// `ip(string)`.
pub(crate) fn ip<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let ip = parse_ip(text_arg(args, 0)?).map_err(EvalError::new)?;
    Ok(Val::opaque(Opaque::Ip(ip)))
}

/// `cidr.ip()`.
pub(crate) fn cidr_ip<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    cidr_of(args, |cidr| Val::opaque(Opaque::Ip(cidr.address)))
}

/// Formats a CIDR with its host bits.
pub(crate) fn cidr_text(cidr: &Cidr) -> String {
    format!("{}/{}", cidr.address, cidr.prefix_bits)
}

fn ip_of<'a>(args: &[Val<'a>], f: fn(&IpAddr) -> Val<'a>) -> EvalResult<'a> {
    match args.first() {
        Some(Val::Opaque(opaque)) => match &**opaque {
            Opaque::Ip(ip) => Ok(f(ip)),
            _ => Err(EvalError::no_overload()),
        },
        _ => Err(EvalError::no_overload()),
    }
}

fn cidr_of<'a>(args: &[Val<'a>], f: impl FnOnce(&Cidr) -> Val<'a>) -> EvalResult<'a> {
    match args.first() {
        Some(Val::Opaque(opaque)) => match &**opaque {
            Opaque::Cidr(cidr) => Ok(f(cidr)),
            _ => Err(EvalError::no_overload()),
        },
        _ => Err(EvalError::no_overload()),
    }
}

fn parse_ip(text: &str) -> Result<IpAddr, String> {
    let ip: IpAddr = match text.split_once('%') {
        Some((address, _)) if address.parse::<Ipv6Addr>().is_ok() => {
            return Err(format!("IP address {text:?} with zone value is not allowed"));
        }
        _ => text.parse().map_err(|_| {
            let why = address_error(text);
            format!(
                "IP Address {text:?} parse error during conversion from string: \
                 ParseAddr({text:?}): {why}"
            )
        })?,
    };
    if is_mapped(&ip) {
        return Err(format!("IPv4-mapped IPv6 address {text:?} is not allowed"));
    }
    Ok(ip)
}

fn is_mapped(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
}

/// Returns Go's error message for an invalid address.
fn address_error(text: &str) -> String {
    match text.find(['.', ':', '%']) {
        None => "unable to parse IP".to_owned(),
        Some(at) if text[at..].starts_with('.') => ipv4_error(text).to_owned(),
        Some(at) if text[at..].starts_with('%') => "missing IPv6 address".to_owned(),
        Some(_) => ipv6_error(text),
    }
}

fn ipv4_error(text: &str) -> &'static str {
    let mut fields = 0;
    for field in text.split('.') {
        if field.is_empty() {
            return "IPv4 field must have at least one digit";
        }
        if !field.bytes().all(|b| b.is_ascii_digit()) {
            return "unexpected character";
        }
        if field.len() > 1 && field.starts_with('0') {
            return "IPv4 field has octet with leading zero";
        }
        if field.parse::<u8>().is_err() {
            return "IPv4 field has value >255";
        }
        fields += 1;
        if fields > 4 {
            return "IPv4 address too long";
        }
    }
    "IPv4 address too short"
}

fn ipv6_error(text: &str) -> String {
    let at = text.find(":::").map(|at| at + 2);
    if let Some(at) = at {
        let rest = &text[at..];
        return format!("each colon-separated field must have at least one digit (at {rest:?})");
    }
    if text.matches("::").count() > 1 {
        return "multiple :: in address".to_owned();
    }
    let long = text.split(':').find(|field| field.len() > 4 && !field.contains('.'));
    if let Some(field) = long {
        return format!("each group must have 4 or less digits (at {field:?})");
    }
    if text.split(':').count() < 8 {
        return "address string too short".to_owned();
    }
    "trailing garbage after address".to_owned()
}

fn parse_cidr(text: &str) -> Result<Cidr, String> {
    const OUTER: &str = "network address parse error during conversion from string";
    let fault = |why: &str| Err(format!("{OUTER}: {OUTER}: netip.ParsePrefix({text:?}): {why}"));
    let Some((address, bits)) = text.rsplit_once('/') else { return fault("no '/'") };
    if address.contains('%') {
        return fault("IPv6 zones cannot be present in a prefix");
    }
    let Ok(ip) = address.parse::<IpAddr>() else {
        return fault(&format!("ParseAddr({address:?}): {}", address_error(address)));
    };
    let is_plain = !bits.is_empty() && bits.bytes().all(|b| b.is_ascii_digit());
    if !is_plain || (bits.len() > 1 && bits.starts_with('0')) {
        return fault(&format!("bad bits after slash: {bits:?}"));
    }
    let most = if ip.is_ipv4() { 32 } else { 128 };
    let Some(prefix_bits) = bits.parse::<u8>().ok().filter(|bits| *bits <= most) else {
        return fault("prefix length out of range");
    };
    if is_mapped(&ip) {
        return Err(format!("{OUTER}: IPv4-mapped IPv6 address {text:?} is not allowed"));
    }
    Ok(Cidr { address: ip, prefix_bits })
}

fn contains_ip<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let ip = match args.get(1) {
        // Upstream returns no parse error here.
        Some(Val::String(text)) => parse_ip(text.as_str()).map_err(|_| EvalError::no_overload())?,
        Some(Val::Opaque(opaque)) => match &**opaque {
            Opaque::Ip(ip) => *ip,
            _ => return Err(EvalError::no_overload()),
        },
        _ => return Err(EvalError::no_overload()),
    };
    cidr_of(args, |cidr| Val::Bool(cidr.contains(ip)))
}

fn contains_cidr<'a>(args: &[Val<'a>]) -> EvalResult<'a> {
    let inner = match args.get(1) {
        Some(Val::String(text)) => parse_cidr(text.as_str()).map_err(EvalError::new)?,
        Some(Val::Opaque(opaque)) => match &**opaque {
            Opaque::Cidr(cidr) => *cidr,
            _ => return Err(EvalError::no_overload()),
        },
        _ => return Err(EvalError::no_overload()),
    };
    cidr_of(args, |cidr| {
        let inside = cidr.prefix_bits <= inner.prefix_bits && cidr.contains(inner.network());
        Val::Bool(inside)
    })
}

fn is_link_local_multicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets()[..3] == [224, 0, 0],
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(ip: &IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.segments()[0] & 0xffc0 == 0xfe80,
    }
}

/// As in Go, private addresses count as global.
fn is_global_unicast(ip: &IpAddr) -> bool {
    let broadcast = matches!(ip, IpAddr::V4(ip) if ip.is_broadcast());
    !broadcast
        && !ip.is_unspecified()
        && !ip.is_loopback()
        && !ip.is_multicast()
        && !is_link_local_unicast(ip)
}
