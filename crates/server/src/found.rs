//! [`Found`]: what the URL of a resource leads to. What a request about it carries.

use crate::app::App;
use crate::ask::Ask;
use crate::route::ResourceRoute;
use http::header;
use keelson_meta::{Failure, GroupVersionResource, Status};
use keelson_registry::api_table::Source;
use keelson_registry::options::WriteOptions;
use keelson_registry::{Endpoint, Target};
use keelson_schema::Schema;
use keelson_schema::catalogue::{Catalogue, Resource, Subresource};
use keelson_schema::decode::{self, Decoded};
use std::sync::Arc;

/// The endpoint and object of a resource URL.
pub(crate) struct Found<'a> {
    /// The resource in the version of the URL.
    pub endpoint: Arc<Endpoint>,
    /// The place of the subresource in the endpoint's facts, when the URL names one.
    pub sub: Option<usize>,
    /// The kind and object, for resources that keep objects.
    pub target: Option<Target>,
    /// The URL's parts.
    pub route: &'a ResourceRoute,
}

impl Found<'_> {
    /// The facts of the resource.
    pub fn facts(&self) -> &Resource {
        &self.endpoint.facts
    }

    /// Group, version and resource of the URL.
    pub fn resource(&self) -> GroupVersionResource {
        let ResourceRoute { group, version, resource, .. } = self.route;
        GroupVersionResource::new(group.clone(), version.clone(), resource.clone())
    }

    /// The subresource, when the URL names one.
    pub fn sub(&self) -> Option<&Subresource> {
        self.sub.map(|place| &self.facts().subresources[place])
    }

    /// The name of the subresource, or empty.
    pub fn sub_name(&self) -> &str {
        self.sub().map_or("", |sub| &sub.name)
    }

    /// Where the objects are, or 404 for a resource that keeps none.
    pub fn target(&self) -> Result<&Target, Failure> {
        self.target.as_ref().ok_or_else(Status::no_such_path)
    }
}

/// Finds what the URL leads to, or 404. `None`: not even the group is known.
pub(crate) fn find<'a>(
    app: &'a App,
    route: &'a ResourceRoute,
) -> Result<Option<Found<'a>>, Failure> {
    let api = app.registry.api();
    let Some(endpoint) = api.endpoint(&route.group, &route.version, &route.resource) else {
        // Of a group that only has custom resources, nobody answers for what is not there.
        let is_known = app.registry.has_group(&route.group);
        return if is_known { Err(Status::no_such_path()) } else { Ok(None) };
    };
    let facts = &endpoint.facts;
    // The scope is part of the route: what lives in namespaces is not reached without one, by name.
    let has_namespace = route.namespace.is_some();
    if has_namespace != facts.namespaced && (has_namespace || !route.name.is_empty()) {
        let is_custom = endpoint.source == Source::Custom;
        return if is_custom { Ok(None) } else { Err(Status::no_such_path()) };
    }
    // Reviews keep nothing: there is no collection of all namespaces, and there are no names.
    let answers_only = !facts.has_verb("list") && !facts.has_verb("get");
    if answers_only && (has_namespace != facts.namespaced || !route.name.is_empty()) {
        return Err(Status::no_such_path());
    }
    let sub = match route.subresource.as_str() {
        "" => None,
        name => {
            let place = facts.subresources.iter().position(|sub| sub.name == name);
            Some(place.ok_or_else(|| no_subresource(endpoint, route))?)
        }
    };
    if !route.rest.is_empty() && !matches!(route.subresource.as_str(), "proxy") {
        return Err(Status::no_such_path());
    }
    let target = endpoint.kind.as_ref().map(|kind| Target {
        kind: kind.clone(),
        version: route.version.clone(),
        namespace: route.namespace.clone().unwrap_or_default(),
        name: route.name.clone(),
    });
    Ok(Some(Found { endpoint: endpoint.clone(), sub, target, route }))
}

/// 404 for a subresource that a resource has not: of a custom one, the object is said not to be there.
fn no_subresource(endpoint: &Endpoint, route: &ResourceRoute) -> Failure {
    match &endpoint.kind {
        Some(kind) if kind.source == Source::Custom => {
            let warnings = endpoint.deprecation.iter().cloned().collect();
            Status::not_found(&kind.gvr, &route.name).with_warnings(warnings)
        }
        _ => Status::no_such_path(),
    }
}

/// The body of a write, as an object of the kind that `schema` describes.
pub(crate) fn decoded(ask: &Ask, schema: &Schema, body: &[u8]) -> Result<Decoded, Failure> {
    let format = ask.body_format()?;
    let catalogue = Catalogue::shared();
    decode::decode(schema, body, format, &|gvk| catalogue.is_known(gvk))
}

pub(crate) fn write_options(ask: &Ask, kind: &str) -> Result<WriteOptions, Failure> {
    ask.query.write_options(kind, ask.header(header::USER_AGENT).unwrap_or_default())
}
