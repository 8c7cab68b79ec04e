//! Parses the URL of a request into a resource or another path.

use crate::go_url;
use keelson_meta::Str;
use keelson_schema::catalogue::SubresourceClass;
use memchr::memchr;
use percent_encoding::percent_decode_str;
use smallvec::SmallVec;
use std::borrow::Cow;

/// The target of a request path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A resource, an object or a subresource.
    Resource(ResourceRoute),
    /// Anything else: discovery, health, OpenAPI, ...
    Path(String),
    /// A URL that is rejected, because it could be interpreted as another path.
    Invalid,
}

/// The parts of a resource URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRoute {
    /// API group; empty for the core group.
    pub group: Str,
    /// API version.
    pub version: Str,
    /// Resource (plural).
    pub resource: Str,
    /// Namespace, if the URL has one.
    pub namespace: Option<Str>,
    /// Name; empty for a collection.
    pub name: Str,
    /// Subresource; empty if there is none.
    pub subresource: Str,
    /// The path after the subresource, for proxies.
    pub rest: String,
    /// Whether the URL has the deprecated `/watch/` prefix.
    pub is_watch: bool,
    /// Whether nothing is served at the URL, although it is authorized as one of a resource:
    /// `//api/v1/pods`, `/apis//v1/pods`.
    pub is_misplaced: bool,
}

impl Route {
    /// Parses the path of a URL.
    pub fn parse(raw: &str) -> Route {
        let is_escaped = memchr(b'%', raw.as_bytes()).is_some();
        let path = if is_escaped { unescaped(raw) } else { Some(raw.into()) };
        let Some(path) = path else { return Route::Invalid };
        let is_ambiguous = || is_escaped && has_ambiguous_escape(raw);
        let parts: SmallVec<[&str; 8]> = path.trim_matches('/').split('/').collect();
        let dotted = parts.iter().filter(|part| is_dotted(part)).count();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ if dotted > 0 || is_ambiguous() => return Route::Invalid,
            _ => return Route::Path(path.to_string()),
        };
        let mut route = ResourceRoute {
            group: group.into(),
            version: version.into(),
            is_misplaced: path.starts_with("//")
                || parts.get(1).is_some_and(|part| part.is_empty()),
            ..ResourceRoute::default()
        };
        let rest = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => {
                route.is_watch = true;
                rest
            }
            rest => rest,
        };
        route.parse_resource(rest);
        // No object has such a name, as the answer says; nothing else of a URL may be dots.
        if dotted > usize::from(is_dotted(&route.name)) {
            return Route::Invalid;
        }
        let is_proxy = SubresourceClass::of(&route.subresource) == Some(SubresourceClass::Proxy);
        if !is_proxy && is_ambiguous() {
            return Route::Invalid;
        }
        Route::Resource(route)
    }
}

/// Returns whether a part of a path leads elsewhere.
pub(crate) fn is_dotted(part: &str) -> bool {
    matches!(part, "." | "..")
}

impl ResourceRoute {
    /// Returns the path for the far side of a proxy: what follows the subresource, decoded, without
    /// empty parts, and escaped as Go does. Empty, or from a slash on. `raw` is the URL's path.
    pub fn proxied_path(&self, raw: &str) -> String {
        let ends_with_slash = go_url::decode_path(raw).ends_with('/');
        let mut path = match self.rest.as_str() {
            "" => String::new(),
            rest => go_url::escape_path(&go_url::join("", rest)),
        };
        if ends_with_slash && !path.ends_with('/') {
            path.push('/');
        }
        path
    }

    /// Parses the path after the version: `[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE[/...]]]`.
    fn parse_resource(&mut self, parts: &[&str]) {
        let parts = match parts {
            // A Namespace object and its subresources are not namespaced.
            ["namespaces", _] => parts,
            ["namespaces", _, sub] if is_of_namespaces(sub) => parts,
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => {
                self.namespace = Some((*namespace).into());
                rest
            }
            parts => parts,
        };
        let part = |i: usize| Str::new(parts.get(i).copied().unwrap_or_default());
        self.resource = part(0);
        self.name = part(1);
        self.subresource = part(2);
        self.rest = parts.get(3..).unwrap_or_default().join("/");
    }
}

/// Returns a path without its escapes; `None` if it could be interpreted as another path.
fn unescaped(raw: &str) -> Option<Cow<'_, str>> {
    // What follows `/proxy/` belongs to another server.
    let own = raw.split_once("/proxy/").map_or(raw, |(own, _)| own);
    if has_ambiguous_escape(own) || raw.contains("%00") {
        return None;
    }
    percent_decode_str(raw).decode_utf8().ok()
}

/// Whether a path has an escaped slash or NUL: it could be interpreted as another path.
fn has_ambiguous_escape(raw: &str) -> bool {
    let mut escapes = raw.split('%').skip(1).filter_map(|rest| rest.get(..2));
    escapes.any(|escape| matches!(escape, "2f" | "2F" | "00"))
}

fn is_of_namespaces(subresource: &str) -> bool {
    SubresourceClass::of(subresource).is_some_and(SubresourceClass::is_of_namespaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, want: &str) {
        let got = match Route::parse(path) {
            Route::Resource(r) => format!(
                "{}|{}|{}|{}|{}|{}|{}{}",
                r.group,
                r.version,
                r.namespace.as_deref().unwrap_or("-"),
                r.resource,
                r.name,
                r.subresource,
                r.rest,
                if r.is_watch {
                    "|watch"
                } else if r.is_misplaced {
                    "|misplaced"
                } else {
                    ""
                }
            ),
            Route::Path(path) => path,
            Route::Invalid => "invalid".to_owned(),
        };
        assert_eq!(got, want, "{path}");
    }

    #[test]
    fn urls_are_parsed() {
        check("/api/v1/pods", "|v1|-|pods|||");
        check("/api/v1/namespaces/ns/pods/p/log", "|v1|ns|pods|p|log|");
        check("/api/v1/namespaces/ns", "|v1|-|namespaces|ns||");
        check("/api/v1/namespaces/ns/finalize", "|v1|-|namespaces|ns|finalize|");
        check(
            "/apis/apps/v1/watch/namespaces/ns/deployments/d",
            "apps|v1|ns|deployments|d|||watch",
        );
        check("/api/v1/nodes/n/proxy/a/b", "|v1|-|nodes|n|proxy|a/b");
        check("/api/v1/nodes/n/proxy/a%2Fb", "|v1|-|nodes|n|proxy|a/b");
        check("//api/v1/pods", "|v1|-|pods||||misplaced");
        check("/apis//v1/pods", "|v1|-|pods||||misplaced");
        check("/api/v1/namespaces//pods", "|v1||pods|||");
        check("/api/v1/namespaces/n/pods/%2e%2e", "|v1|n|pods|..||");
        check("/apis/apps/v1", "/apis/apps/v1");
        check("/healthz", "/healthz");
    }

    #[test]
    fn ambiguous_paths_are_rejected() {
        for path in [
            "/api/v1/namespaces/n/configmaps/proxy/%2f",
            "/proxy/a%2fb",
            "/api/v1/namespaces/a%2Fb/pods",
            "/api/v1/namespaces/../pods/..",
            "/api/v1/%2e%2e/x",
            "/..",
            "/a%00",
        ] {
            check(path, "invalid");
        }
    }
}
