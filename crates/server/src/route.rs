//! The URL of a request: which resource, or which other path. No body is read for this.

use keelson_meta::Str;
use percent_encoding::percent_decode_str;
use smallvec::SmallVec;

/// The target of a request path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// A resource, an object or a subresource.
    Resource(ResourceRoute),
    /// Anything else: discovery, health, OpenAPI, ...
    Path(String),
    /// A URL that is refused as it stands.
    Refused,
}

/// The parts of a resource URL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceRoute {
    /// API group, or empty.
    pub group: Str,
    /// Version.
    pub version: Str,
    /// Resource.
    pub resource: Str,
    /// Namespace, when the URL names one.
    pub namespace: Option<Str>,
    /// Name, or empty.
    pub name: Str,
    /// Subresource, or empty.
    pub subresource: Str,
    /// The path behind the subresource, for proxies.
    pub rest: String,
    /// The deprecated `/watch/` form.
    pub is_watch: bool,
}

impl Route {
    /// Reads the path of a URL.
    pub fn parse(raw: &str) -> Route {
        let mut escapes = raw.split('%').skip(1).filter_map(|rest| rest.get(..2));
        if escapes.any(|escape| matches!(escape, "2f" | "2F" | "00")) {
            return Route::Refused;
        }
        let Ok(path) = percent_decode_str(raw).decode_utf8() else {
            return Route::Refused;
        };
        let parts: SmallVec<[&str; 8]> = path.trim_matches('/').split('/').collect();
        if parts.iter().any(|part| matches!(*part, "." | "..")) {
            return Route::Refused;
        }
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] if !rest.is_empty() => ("", *version, rest),
            ["apis", group, version, rest @ ..] if !rest.is_empty() => (*group, *version, rest),
            _ => return Route::Path(path.to_string()),
        };
        let mut route = ResourceRoute {
            group: group.into(),
            version: version.into(),
            ..ResourceRoute::default()
        };
        let rest = match rest {
            ["watch", rest @ ..] if !rest.is_empty() => {
                route.is_watch = true;
                rest
            }
            rest => rest,
        };
        route.place(rest);
        Route::Resource(route)
    }
}

impl ResourceRoute {
    /// Takes what follows the version: `[namespaces/NS/]RESOURCE[/NAME[/SUBRESOURCE[/...]]]`.
    fn place(&mut self, parts: &[&str]) {
        let parts = match parts {
            // The namespace itself and its subresources are objects of their own resource.
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => parts,
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
                if r.is_watch { "|watch" } else { "" }
            ),
            Route::Path(path) => path,
            Route::Refused => "refused".to_owned(),
        };
        assert_eq!(got, want, "{path}");
    }

    #[test]
    fn urls_are_taken_apart() {
        check("/api/v1/pods", "|v1|-|pods|||");
        check("/api/v1/namespaces/ns/pods/p/log", "|v1|ns|pods|p|log|");
        check("/api/v1/namespaces/ns", "|v1|-|namespaces|ns||");
        check("/api/v1/namespaces/ns/finalize", "|v1|-|namespaces|ns|finalize|");
        check(
            "/apis/apps/v1/watch/namespaces/ns/deployments/d",
            "apps|v1|ns|deployments|d|||watch",
        );
        check("/api/v1/nodes/n/proxy/a/b", "|v1|-|nodes|n|proxy|a/b");
        check("/apis/apps/v1", "/apis/apps/v1");
        check("/healthz", "/healthz");
    }

    #[test]
    fn paths_that_could_lead_elsewhere_are_refused() {
        for path in
            ["/api/v1/namespaces/a%2Fb/pods", "/api/v1/pods/..", "/api/v1/%2e%2e/x", "/a%00"]
        {
            check(path, "refused");
        }
    }
}
