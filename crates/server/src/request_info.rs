//! [`RequestInfo`]: what a request is, read once from its URL and method. Later steps ask it, and
//! no other place compares verbs or names of subresources (apiserver `endpoints/request`).

use crate::query::Query;
use crate::route::{ResourceRoute, Route};
use http::Method;
use keelson_auth::{Attributes, Selectors};
use keelson_meta::{Failure, GroupVersionResource, Str};
use keelson_schema::catalogue::SubresourceClass;
use std::time::Duration;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
    /// The lower-case method of a request for a non-resource path; empty if it has no verb.
    Method(&'static str),
}

/// What a request is.
#[derive(Debug)]
pub(crate) struct RequestInfo {
    /// The target in the URL.
    pub route: Route,
    /// The verb, which the resource may not support.
    pub verb: Verb,
    /// Whether the request may last as long as it likes: it has no deadline and needs no seat.
    pub is_long_running: bool,
    /// Whether it connects the client to something that runs.
    pub is_connection: bool,
    /// Whether it counts as a change for the limit of requests in flight.
    pub is_mutating: bool,
}

impl Verb {
    /// Returns the name for authorization: `deletecollection`.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
            Verb::Method(name) => name,
        }
    }

    /// Returns the verb of a resource request.
    fn of_resource(route: &ResourceRoute, method: &Method, query: &Query) -> Verb {
        let collection = route.name.is_empty();
        match *method {
            // The deprecated `/watch/` path means a watch with any method.
            _ if route.is_watch => Verb::Watch,
            Method::GET | Method::HEAD if collection && query.is_watch() => Verb::Watch,
            Method::GET | Method::HEAD if collection => Verb::List,
            Method::GET | Method::HEAD => Verb::Get,
            Method::POST => Verb::Create,
            Method::PUT => Verb::Update,
            Method::PATCH => Verb::Patch,
            Method::DELETE if collection => Verb::DeleteCollection,
            Method::DELETE => Verb::Delete,
            _ => Verb::Method(""),
        }
    }

    /// Returns the verb that the method means for an object: a collection is one whose name is
    /// missing.
    pub fn of_object(self) -> Verb {
        match self {
            Verb::List | Verb::Watch => Verb::Get,
            Verb::DeleteCollection => Verb::Delete,
            other => other,
        }
    }

    /// Returns the verb of a request for a non-resource path.
    fn of_path(method: &Method) -> Verb {
        Verb::Method(match method.as_str() {
            "GET" => "get",
            "HEAD" => "head",
            "POST" => "post",
            "PUT" => "put",
            "PATCH" => "patch",
            "DELETE" => "delete",
            "OPTIONS" => "options",
            _ => "",
        })
    }
}

impl RequestInfo {
    /// Reads URL and method.
    pub fn new(path: &str, method: &Method, query: &Query) -> RequestInfo {
        let route = Route::parse(path);
        let (verb, class) = match &route {
            Route::Resource(route) => {
                (Verb::of_resource(route, method, query), SubresourceClass::of(&route.subresource))
            }
            Route::Path(_) => (Verb::of_path(method), None),
            Route::Invalid => (Verb::Method(""), None),
        };
        let is_reading = match verb {
            Verb::Get | Verb::List | Verb::Watch => true,
            Verb::Method(name) => name == "get",
            _ => false,
        };
        let is_connection = class.is_some_and(SubresourceClass::is_connection);
        RequestInfo {
            route,
            verb,
            is_long_running: verb == Verb::Watch || is_connection,
            is_connection,
            is_mutating: !is_reading,
        }
    }

    /// Returns how long the request may take: the client's `timeout`, at most `most`. `None` for a
    /// long-running request.
    pub fn timeout(&self, query: &Query, most: Duration) -> Result<Option<Duration>, Failure> {
        if self.is_long_running {
            return Ok(None);
        }
        query.request_timeout(most).map(Some)
    }

    /// Returns the attributes for the authorizer.
    pub fn attributes(&self, query: &Query) -> Attributes {
        match &self.route {
            Route::Resource(route) => self.resource_attributes(route, query),
            Route::Path(path) => Attributes {
                verb: Str::new_static(self.verb.name()),
                non_resource: true,
                path: path.clone(),
                ..Attributes::default()
            },
            Route::Invalid => Attributes { non_resource: true, ..Attributes::default() },
        }
    }

    fn resource_attributes(&self, route: &ResourceRoute, query: &Query) -> Attributes {
        let selectors = match self.verb {
            Verb::List | Verb::Watch | Verb::DeleteCollection => query.requested_selectors(),
            _ => None,
        };
        // The name in the URL, or the one that the field selector of a read of a collection
        // requires.
        let name = match &selectors {
            Some(selectors) if route.name.is_empty() && self.verb != Verb::DeleteCollection => {
                selected_name(selectors)
            }
            _ => route.name.clone(),
        };
        Attributes {
            verb: Str::new_static(self.verb.name()),
            gvr: GroupVersionResource::new(
                route.group.clone(),
                route.version.clone(),
                route.resource.clone(),
            ),
            subresource: route.subresource.clone(),
            // As upstream, a Namespace object counts as being in itself.
            namespace: match &route.namespace {
                Some(namespace) => namespace.clone(),
                None if route.resource == "namespaces" => route.name.clone(),
                None => Str::default(),
            },
            name,
            selectors: selectors.map(Box::new),
            ..Attributes::default()
        }
    }
}

/// Returns the name that a field selector requires, or an empty string.
fn selected_name(selectors: &Selectors) -> Str {
    let fields = selectors.fields.as_ref();
    let name = fields.and_then(|fields| fields.required_value("metadata.name"));
    name.filter(|name| keelson_meta::names::name_is_path_segment(name, false).is_empty())
        .map(Str::new)
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(request: &str, expected: &str) {
        let (method, url) = request.split_once(' ').expect("a method and a URL");
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        let query = Query::parse(query);
        let info = RequestInfo::new(path, &method, &query);
        let mut got = info.verb.name().to_owned();
        for (name, is_so) in [("long", info.is_long_running), ("mutating", info.is_mutating)] {
            if is_so {
                got = format!("{got} {name}");
            }
        }
        assert_eq!(got.trim(), expected, "{request}");
    }

    #[test]
    fn verbs_and_classes_of_requests() {
        check("GET /api/v1/pods", "list");
        check("GET /api/v1/pods?watch=1", "watch long");
        check("GET /api/v1/namespaces/n/pods/p?watch=1", "get");
        check("POST /api/v1/watch/namespaces/n/pods/p", "watch long");
        check("GET /api/v1/namespaces/n/pods/p/log", "get long");
        check("POST /api/v1/namespaces/n/pods/p/exec", "create long mutating");
        check("PUT /api/v1/namespaces/n/services/s/proxy/a", "update long mutating");
        check("DELETE /api/v1/namespaces/n/pods", "deletecollection mutating");
        check("PATCH /api/v1/namespaces/n/pods/p/status", "patch mutating");
        check("OPTIONS /api/v1/namespaces/n/pods/p", "mutating");
        // Only proxies answer these.
        check("HEAD /api/v1/namespaces/n/services/s/proxy/", "get long");
        check("GET /healthz", "get");
        // As upstream, every verb but get, list and watch counts as a change.
        check("HEAD /healthz", "head mutating");
    }

    #[test]
    fn long_running_requests_have_no_deadline() {
        let most = Duration::from_secs(60);
        let query = Query::parse("timeout=5s");
        let timeout = |path| RequestInfo::new(path, &Method::GET, &query).timeout(&query, most);
        assert_eq!(timeout("/api/v1/pods"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(timeout("/api/v1/watch/pods"), Ok(None));
        assert_eq!(timeout("/api/v1/namespaces/n/pods/p/exec"), Ok(None));
    }
}
