//! The parts of the registry that admission uses: stored objects, for built-in plug-ins; schemas,
//! conversion and equivalent resources, for webhooks and policies.

use crate::registry::Registry;
use keelson_admission::{Api, BoxFuture, Stored};
use keelson_auth::Authorizer;
use keelson_meta::{
    Failure, GroupVersionKind, GroupVersionResource, Object, Status, Str, Value, growth,
};
use keelson_resources::api_table::{ApiGroup, ApiTable, Endpoint, Source};
use keelson_schema::{Schema, decode};
use std::sync::Arc;

impl Stored for Registry {
    fn get(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Failure> {
        let Some(kind) = self.kind(group, resource) else {
            return Ok(None);
        };
        let entry = self.entry_at(&kind, &kind.key(namespace, name))?;
        entry.map(|entry| kind.decode(&entry)).transpose()
    }

    fn list_with(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        words: &[&str],
    ) -> Result<Vec<Object>, Failure> {
        let Some(kind) = self.kind(group, resource) else {
            return Ok(vec![]);
        };
        let prefix = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
        // An object that cannot be read, such as a LimitRange, must not count as absent.
        let snapshot = self.all_under(&kind, &prefix)?;
        let entries = snapshot.range(&prefix, "");
        let wanted = entries
            .filter(|entry| words.is_empty() || words.iter().any(|word| entry.has_text(word)));
        wanted.map(|entry| kind.decode(entry)).collect()
    }

    fn is_terminating(&self, namespace: &str) -> Option<bool> {
        let entry = self.objects(&self.namespaces()).get(namespace)?;
        Some(entry.field("status.phase") == Some("Terminating"))
    }

    fn labels_of(&self, namespace: &str) -> Vec<(Str, Str)> {
        let Some(entry) = self.objects(&self.namespaces()).get(namespace) else {
            return vec![];
        };
        let mut labels = Vec::with_capacity(entry.labels().len());
        labels.extend(entry.labels().map(|(key, value)| (key.into(), value.into())));
        labels
    }
}

impl Api for Registry {
    fn equivalents(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
    ) -> Vec<(GroupVersionResource, GroupVersionKind)> {
        let api = self.api();
        let Some(kind) = api.kind(&resource.group, &resource.resource) else { return vec![] };
        let mut found = vec![];
        // Kinds with the same prefix have the same objects: Event is in two groups.
        let is_same = |group: &&ApiGroup| {
            let other = api.kind(&group.name, &resource.resource);
            other.is_some_and(|other| other.prefix == kind.prefix)
        };
        let same: Vec<&ApiGroup> = match kind.source {
            Source::BuiltIn => api.built_in_groups().filter(is_same).collect(),
            Source::Custom => api.group(&resource.group).into_iter().collect(),
        };
        for group in same {
            for version in &group.versions {
                let gvr = GroupVersionResource::new(
                    group.name.clone(),
                    version.name.clone(),
                    resource.resource.clone(),
                );
                let endpoint = api.endpoint(&group.name, &version.name, &resource.resource);
                let (Some(endpoint), false) = (endpoint, gvr == *resource) else { continue };
                let kind_of_endpoint = match subresource {
                    "" => Some(&endpoint.facts.kind),
                    name => endpoint.facts.subresource(name).map(|sub| &sub.kind),
                };
                found.extend(kind_of_endpoint.map(|kind| (gvr, kind.clone())));
            }
        }
        found
    }

    fn schema(&self, kind: &GroupVersionKind) -> Option<Schema> {
        let custom = endpoint_of(&self.api(), kind).filter(|e| e.source == Source::Custom);
        match custom {
            Some(endpoint) => endpoint.schema().cloned(),
            None => self.catalogue.schema_or_unserved(kind),
        }
    }

    fn resource_of(&self, kind: &GroupVersionKind) -> Option<(GroupVersionResource, bool)> {
        let endpoint = endpoint_of(&self.api(), kind)?;
        let group = kind.group.clone();
        let version = kind.version.clone();
        let gvr = GroupVersionResource::new(group, version, endpoint.facts.name.clone());
        Some((gvr, endpoint.facts.namespaced))
    }

    fn convert<'a>(
        &'a self,
        object: Object,
        from: &'a GroupVersionKind,
        to: &'a GroupVersionKind,
    ) -> BoxFuture<'a, Result<Object, Failure>> {
        Box::pin(async move {
            if from == to {
                return Ok(object);
            }
            let endpoint = endpoint_of(&self.api(), from);
            let kind = endpoint.and_then(|endpoint| endpoint.kind.clone());
            let custom = kind.filter(|kind| kind.source == Source::Custom);
            let Some(kind) = custom else {
                return Ok(keelson_kinds::convert(object, from, to));
            };
            match (kind.schema(&from.version), kind.schema(&to.version)) {
                (Some(from), Some(to)) => self.convert_one(&kind, object, from, to).await,
                _ => Err(Status::internal(format!("{from} cannot be converted to {to}"))),
            }
        })
    }

    fn canonicalize(&self, kind: &GroupVersionKind, value: Value) -> Result<Object, String> {
        let schema = Api::schema(self, kind).ok_or_else(|| format!("no kind {kind} is served"))?;
        let mut object = decode::canonicalize(&schema, value)?.object;
        let filled = keelson_schema::default::fill(&schema, &mut object);
        filled.map_err(|error| error.to_string())?;
        let kind = endpoint_of(&self.api(), kind).and_then(|endpoint| endpoint.kind.clone());
        if let Some(kind) = kind {
            kind.strategy.default(&mut object);
        }
        growth::check_object(&object.root).map_err(|error| error.to_string())?;
        Ok(object)
    }

    fn authorizer(&self) -> &Authorizer {
        &self.options.authorizer
    }

    fn wait_for_latest(&self) -> BoxFuture<'_, Result<(), Failure>> {
        Box::pin(Registry::wait_for_latest(self))
    }

    fn new_uid(&self) -> Str {
        Registry::new_uid(self)
    }
}

fn endpoint_of(api: &ApiTable, kind: &GroupVersionKind) -> Option<Arc<Endpoint>> {
    let version = api.group(&kind.group)?.version(&kind.version)?;
    version.endpoints().find(|endpoint| endpoint.facts.kind == *kind).cloned()
}
