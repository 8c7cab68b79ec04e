//! [`FrontProxy`]: users in the headers of an authenticating proxy (`--requestheader-*`).

use crate::User;
use crate::in_authenticated_group;
use keelson_meta::{Failure, Status, Str};
use percent_encoding::percent_decode_str;

/// The headers in which a proxy names a user. The proxy's client certificate must be verified
/// before [`FrontProxy::user`] is called.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrontProxy {
    /// `--requestheader-allowed-names`: accepted common names; empty: all.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`; the first non-empty one is used.
    pub username_headers: Vec<String>,
    /// `--requestheader-uid-headers`.
    pub uid_headers: Vec<String>,
    /// `--requestheader-group-headers`; all values are used.
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_header_prefixes: Vec<String>,
}

/// A header: its name in lower case, and its value.
pub type Header<'h> = (&'h str, &'h [u8]);

/// The default headers of upstream.
const STANDARD_HEADERS: [&str; 3] = ["x-remote-user", "x-remote-uid", "x-remote-group"];
const STANDARD_EXTRA_PREFIX: &str = "x-remote-extra-";

impl FrontProxy {
    /// Returns the user in the headers; `None` without a user name. Header names are in lower case.
    /// A header that is not UTF-8 is a 401.
    pub fn user(&self, headers: &[Header<'_>]) -> Result<Option<User>, Failure> {
        let name = first_value(headers, &self.username_headers)?;
        if name.is_empty() {
            return Ok(None);
        }
        let uid = first_value(headers, &self.uid_headers)?;
        let mut groups: Vec<Str> = vec![];
        for wanted in &self.group_headers {
            for (header, value) in headers {
                if header.eq_ignore_ascii_case(wanted) && !value.is_empty() {
                    groups.push(text(value)?);
                }
            }
        }
        let extra = self.extra(headers)?;
        let user = User { name, uid, groups: groups.into(), extra };
        Ok(Some(in_authenticated_group(user)))
    }

    fn extra(&self, headers: &[Header<'_>]) -> Result<Vec<(Str, Vec<Str>)>, Failure> {
        let mut extra: Vec<(Str, Vec<Str>)> = vec![];
        for (header, value) in headers {
            let mut prefixes = self.extra_header_prefixes.iter();
            let Some(key) = prefixes.find_map(|prefix| strip_prefix(header, prefix)) else {
                continue;
            };
            let key = unescaped(key)?;
            let value = text(value)?;
            match extra.iter_mut().find(|(known, _)| *known == key) {
                Some((_, values)) => values.push(value),
                None => extra.push((key, vec![value])),
            }
        }
        Ok(extra)
    }

    /// Returns whether a header (in lower case) is one of the user headers.
    pub fn reads(&self, header: &str) -> bool {
        let mut names = self
            .username_headers
            .iter()
            .chain(&self.uid_headers)
            .chain(&self.group_headers)
            .map(String::as_str);
        names.any(|name| header.eq_ignore_ascii_case(name))
            || self.extra_header_prefixes.iter().any(|p| strip_prefix(header, p).is_some())
    }

    /// Returns whether a header (in lower case) is one of the default user headers.
    pub fn is_standard_header(header: &str) -> bool {
        STANDARD_HEADERS.contains(&header) || header.starts_with(STANDARD_EXTRA_PREFIX)
    }
}

/// Returns the first value of the first header whose first value is not empty.
fn first_value(headers: &[Header<'_>], wanted: &[String]) -> Result<Str, Failure> {
    for wanted in wanted {
        let mut of_name = headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        match of_name.next() {
            Some((_, value)) if !value.is_empty() => return text(value),
            _ => {}
        }
    }
    Ok(Str::default())
}

fn text(value: &[u8]) -> Result<Str, Failure> {
    std::str::from_utf8(value).map(Str::new).map_err(|_| Status::unauthorized())
}

fn strip_prefix<'h>(header: &'h str, prefix: &str) -> Option<&'h str> {
    let (start, rest) = header.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// Decodes percent escapes in a key; returns the key unchanged if they are invalid.
fn unescaped(key: &str) -> Result<Str, Failure> {
    let bytes = key.as_bytes();
    let is_hex = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
    let mut escapes = key.match_indices('%').map(|(at, _)| at);
    if !escapes.all(|at| is_hex(at + 1) && is_hex(at + 2)) {
        return Ok(key.into());
    }
    let decoded = percent_decode_str(key).decode_utf8();
    decoded.map(|key| Str::new(&*key)).map_err(|_| Status::unauthorized())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy() -> FrontProxy {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        FrontProxy {
            allowed_names: list(&["front"]),
            username_headers: list(&["X-Remote-User", "X-Other-User"]),
            uid_headers: list(&["X-Remote-Uid"]),
            group_headers: list(&["X-Remote-Group"]),
            extra_header_prefixes: list(&["X-Remote-Extra-"]),
        }
    }

    fn check(headers: &[Header<'_>], want: &str) {
        let user = proxy().user(headers);
        let got = match user {
            Ok(None) => "nobody".to_owned(),
            Err(status) => status.code.to_string(),
            Ok(Some(User { name, uid, groups, extra })) => {
                format!("{name}|{uid}|{}|{extra:?}", groups.join(","))
            }
        };
        assert_eq!(got, want, "{headers:?}");
    }

    #[test]
    fn the_headers_of_a_front_proxy_contain_the_user() {
        check(&[("x-remote-group", b"a")], "nobody");
        check(&[("x-remote-user", b"u")], "u||system:authenticated|[]");
        check(&[("x-remote-user", b""), ("x-other-user", b"w")], "w||system:authenticated|[]");
        check(&[("x-remote-user", b"u"), ("x-remote-user", b"v")], "u||system:authenticated|[]");
        check(
            &[
                ("x-remote-user", b"u"),
                ("x-remote-group", b"a,b"),
                ("x-remote-group", b"c"),
                ("x-remote-uid", b"7"),
                ("x-remote-extra-foo%2fbar", b"x"),
                ("x-remote-extra-foo%2fbar", b"y"),
                ("x-remote-extra-a%zz", b"1"),
            ],
            "u|7|a,b,c,system:authenticated|[(\"foo/bar\", [\"x\", \"y\"]), (\"a%zz\", [\"1\"])]",
        );
        check(&[("x-remote-user", b"system:anonymous")], "system:anonymous|||[]");
        let group = ("x-remote-group", b"system:unauthenticated".as_slice());
        check(&[("x-remote-user", b"u"), group], "u||system:unauthenticated|[]");
    }

    #[test]
    fn a_header_that_is_not_utf8_is_rejected() {
        check(&[("x-remote-user", b"\xff")], "401");
        check(&[("x-remote-user", b"u"), ("x-remote-group", b"\xe9")], "401");
        check(&[("x-remote-user", b"u"), ("x-remote-extra-%ff", b"a")], "401");
    }

    #[test]
    fn headers_with_users_are_recognized() {
        let proxy = proxy();
        for name in ["x-other-user", "x-remote-uid", "x-remote-extra-a"] {
            assert!(proxy.reads(name), "{name}");
        }
        assert!(!proxy.reads("x-remote-extra") && !proxy.reads("authorization"));
        assert!(FrontProxy::is_standard_header("x-remote-extra-a"));
        assert!(!FrontProxy::is_standard_header("x-other-user"));
    }
}
