//! Resolves the URL of a resource to its endpoint and target, and decodes the body and write
//! options.

use crate::app::App;
use crate::request_head::RequestHead;
use crate::route::ResourceRoute;
use http::header;
use keelson_meta::{Failure, GroupVersionResource, Status};
use keelson_registry::options::WriteOptions;
use keelson_registry::{Target, older_body_versions};
use keelson_resources::Endpoint;
use keelson_resources::api_table::Source;
use keelson_schema::Schema;
use keelson_schema::catalogue::{Catalogue, Resource, Subresource, SubresourceClass};
use keelson_schema::decode::{self, Decoded};
use std::sync::Arc;

/// The endpoint and target of a resource URL.
pub(crate) struct ResolvedRoute<'a> {
    /// The resource in the version of the URL.
    pub endpoint: Arc<Endpoint>,
    /// The index of the subresource in the endpoint's facts, if the URL has one.
    pub sub: Option<usize>,
    /// The kind and object, for resources with stored objects.
    pub target: Option<Target>,
    /// The URL's parts.
    pub route: &'a ResourceRoute,
}

impl ResolvedRoute<'_> {
    /// Returns the discovery facts of the resource.
    pub fn facts(&self) -> &Resource {
        &self.endpoint.facts
    }

    /// Returns group, version and resource of the URL.
    pub fn resource(&self) -> GroupVersionResource {
        let ResourceRoute { group, version, resource, .. } = self.route;
        GroupVersionResource::new(group.clone(), version.clone(), resource.clone())
    }

    /// Returns the subresource, if the URL has one.
    pub fn sub(&self) -> Option<&Subresource> {
        self.sub.map(|position| &self.facts().subresources[position])
    }

    /// Returns what the subresource does; `None` if the URL has none.
    pub fn class(&self) -> Option<SubresourceClass> {
        self.sub().map(|sub| sub.class)
    }

    /// Returns the name of the subresource, or an empty string.
    pub fn sub_name(&self) -> &str {
        self.sub().map_or("", |sub| &sub.name)
    }

    /// Returns the target, or 404 for a resource without stored objects.
    pub fn target(&self) -> Result<&Target, Failure> {
        self.target.as_ref().ok_or_else(Status::no_such_path)
    }
}

/// Resolves a URL, or fails with 404. Returns `None` if the plain 404 page is to be sent instead of
/// a Status.
pub(crate) fn resolve<'a>(
    app: &'a App,
    route: &'a ResourceRoute,
) -> Result<Option<ResolvedRoute<'a>>, Failure> {
    if route.is_misplaced {
        let is_core = route.group.is_empty() && route.version.is_empty();
        return if is_core { Err(Status::no_such_path()) } else { Ok(None) };
    }
    let api = app.registry.api();
    let Some(endpoint) = api.endpoint(&route.group, &route.version, &route.resource) else {
        // Only groups with built-in resources respond with a Status.
        let is_known = app.registry.has_group(&route.group);
        return if is_known { Err(Status::no_such_path()) } else { Ok(None) };
    };
    let facts = &endpoint.facts;
    // A namespaced object cannot be reached without a namespace, nor a cluster-scoped one with one.
    let has_namespace = route.namespace.is_some();
    let is_custom = endpoint.source == Source::Custom;
    let is_below = !route.name.is_empty() || (!is_custom && !route.subresource.is_empty());
    if has_namespace != facts.namespaced && (has_namespace || is_below) {
        return if is_custom { Ok(None) } else { Err(Status::no_such_path()) };
    }
    // Reviews are not stored, so they have no names and no collection across namespaces.
    let is_review = !facts.has_verb("list") && !facts.has_verb("get");
    if is_review && (has_namespace != facts.namespaced || !route.name.is_empty()) {
        return Err(Status::no_such_path());
    }
    let sub = match route.subresource.as_str() {
        "" => None,
        name => {
            let position = facts.subresources.iter().position(|sub| sub.name == name);
            Some(position.ok_or_else(|| no_subresource(endpoint, route))?)
        }
    };
    let class = sub.map(|position: usize| facts.subresources[position].class);
    if !route.rest.is_empty() && class != Some(SubresourceClass::Proxy) {
        return Err(Status::no_such_path());
    }
    let target = endpoint.kind.as_ref().map(|kind| Target {
        kind: kind.clone(),
        version: route.version.clone(),
        namespace: route.namespace.clone().unwrap_or_default(),
        name: route.name.clone(),
    });
    Ok(Some(ResolvedRoute { endpoint: endpoint.clone(), sub, target, route }))
}

/// Returns the 404 for an unknown subresource. For a custom resource it says that the object is not
/// found.
fn no_subresource(endpoint: &Endpoint, route: &ResourceRoute) -> Failure {
    match &endpoint.kind {
        Some(kind) if kind.source == Source::Custom => {
            let warnings = endpoint.deprecation.iter().cloned().collect();
            Status::not_found(&kind.gvr, &route.name).with_warnings(warnings)
        }
        _ => Status::no_such_path(),
    }
}

/// Decodes the body of a write as an object of the kind that `schema` describes.
pub(crate) fn decoded(
    head: &RequestHead,
    schema: &Schema,
    body: &[u8],
) -> Result<Decoded, Failure> {
    let format = head.body_format()?;
    let catalogue = Catalogue::shared();
    decode::decode(schema, body, format, &|gvk| catalogue.is_known(gvk))
}

/// Decodes the body of a subresource, which some kinds take in older versions, too.
pub(crate) fn decoded_in_any_version(
    head: &RequestHead,
    schema: &Schema,
    body: &[u8],
) -> Result<Decoded, Failure> {
    let older = older_body_versions(&schema.gvk);
    if older.is_empty() {
        return decoded(head, schema, body);
    }
    let given = decode::named_kind(schema, body, head.body_format()?).filter(|given| {
        let is_same = given.group == schema.gvk.group && given.kind == schema.gvk.kind;
        is_same && older.contains(&given.version.as_str())
    });
    let old = given.and_then(|given| Catalogue::shared().schema_or_unserved(&given));
    let mut decoded = decoded(head, old.as_ref().unwrap_or(schema), body)?;
    decoded.object.set_gvk(&schema.gvk);
    Ok(decoded)
}

pub(crate) fn write_options(head: &RequestHead, kind: &str) -> Result<WriteOptions, Failure> {
    head.query.write_options(kind, head.header(header::USER_AGENT).unwrap_or_default())
}
