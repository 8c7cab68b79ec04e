//! [`DispatchContext`]: state that the policies of one request share: versioned objects, the
//! namespace, the `request` variable, authorizer decisions.

use super::matched_resource::MatchedResource;
use crate::admission_request::admission_request;
use crate::attributes::Call;
use crate::decisions::Decisions;
use keelson_cel::Resource;
use keelson_meta::{
    Failure, GroupVersionKind, GroupVersionResource, Map, Object, Status, Str, Value,
};

/// Metadata fields of `namespaceObject`.
const NAMESPACE_METADATA: [&str; 12] = [
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "finalizers",
];

/// State shared by the policies of one request.
pub(super) struct DispatchContext<'a> {
    pub call: &'a Call<'a>,
    pub decisions: Decisions,
    /// The resource for `authorizer.requestResource`.
    pub resource: Resource,
    labels: Option<Vec<(Str, Str)>>,
    namespace: Option<Option<Map>>,
    equivalents: Option<Vec<(GroupVersionResource, GroupVersionKind)>>,
    versions: Vec<Versioned>,
    requests: Vec<(MatchedResource, Map)>,
}

/// The objects of a request converted to another version.
struct Versioned {
    kind: GroupVersionKind,
    object: Option<Object>,
    old: Option<Object>,
}

impl<'a> DispatchContext<'a> {
    pub fn new(call: &'a Call<'a>) -> DispatchContext<'a> {
        let attributes = call.attributes;
        let resource = attributes.cel_resource();
        DispatchContext {
            call,
            decisions: Decisions::new(attributes.user.clone()),
            resource,
            labels: None,
            namespace: None,
            equivalents: None,
            versions: vec![],
            requests: vec![],
        }
    }

    /// Returns the other resources that serve the request's objects.
    pub fn equivalents(&mut self) -> &[(GroupVersionResource, GroupVersionKind)] {
        let Call { attributes, api, .. } = self.call;
        self.equivalents
            .get_or_insert_with(|| api.equivalents(attributes.resource, attributes.subresource))
    }

    /// Returns the labels of the request's namespace.
    pub async fn namespace_labels(&mut self) -> Result<&[(Str, Str)], Failure> {
        if self.labels.is_none() {
            self.await_namespace().await?;
            self.labels = Some(self.call.api.labels_of(self.call.attributes.namespace));
        }
        Ok(self.labels.as_deref().unwrap_or_default())
    }

    async fn await_namespace(&self) -> Result<(), Failure> {
        let Call { attributes, api, .. } = self.call;
        if api.is_terminating(attributes.namespace).is_some() {
            return Ok(());
        }
        api.wait_for_latest().await?;
        match api.is_terminating(attributes.namespace) {
            Some(_) => Ok(()),
            None => {
                let namespaces = GroupVersionResource::new("", "v1", "namespaces");
                Err(Status::not_found(&namespaces, attributes.namespace))
            }
        }
    }

    /// Loads everything that [`DispatchContext::objects`] and the other variables need.
    pub async fn prepare(
        &mut self,
        matched: &MatchedResource,
        object: Option<&Object>,
        reads_namespace: bool,
    ) -> Result<(), Failure> {
        if reads_namespace && self.namespace.is_none() {
            self.namespace = Some(self.read_namespace().await?);
        }
        let is_known = |(known, _): &(MatchedResource, Map)| {
            known.kind == matched.kind && known.resource == matched.resource
        };
        if !self.requests.iter().any(is_known) {
            let mut request =
                admission_request(self.call.attributes, &matched.resource, &matched.kind);
            // The objects are separate variables.
            request.insert("uid", "");
            request.insert("object", Value::Null);
            request.insert("oldObject", Value::Null);
            self.requests.push((matched.clone(), request));
        }
        if self.versions.iter().any(|known| known.kind == matched.kind) {
            return Ok(());
        }
        let old = self.call.attributes.old;
        let (object, old) = if matched.kind != *self.call.attributes.object_kind {
            let object = self.convert(object, matched).await?;
            let written = object.as_ref().and_then(|object| self.written(object, matched));
            (written.or(object), self.convert(old, matched).await?)
        } else {
            let written = object.and_then(|object| self.written(object, matched));
            // The stored form omits empty fields; it differs for kinds that keep the client's text.
            let may_differ = written.is_some() || object.is_none();
            let old_written = old.filter(|_| may_differ).and_then(|old| self.written(old, matched));
            if written.is_none() && old_written.is_none() {
                return Ok(());
            }
            (written.or_else(|| object.cloned()), old_written.or_else(|| old.cloned()))
        };
        self.versions.push(Versioned { kind: matched.kind.clone(), object, old });
        Ok(())
    }

    /// Returns the object as it would be encoded; `None` when it is the same.
    fn written(&self, object: &Object, matched: &MatchedResource) -> Option<Object> {
        self.call.api.schema(&matched.kind)?.encoded_form(object)
    }

    async fn convert(
        &self,
        object: Option<&Object>,
        matched: &MatchedResource,
    ) -> Result<Option<Object>, Failure> {
        let Some(object) = object else { return Ok(None) };
        let Call { attributes, api, .. } = self.call;
        api.convert(object.clone(), attributes.object_kind, &matched.kind).await.map(Some)
    }

    /// Returns the `namespaceObject` variable; `None` for cluster-scoped objects and for
    /// namespaces.
    async fn read_namespace(&self) -> Result<Option<Map>, Failure> {
        let Call { attributes, api, .. } = self.call;
        let resource = attributes.resource;
        let is_namespace = resource.group.is_empty() && resource.resource == "namespaces";
        if attributes.namespace.is_empty() || is_namespace {
            return Ok(None);
        }
        self.await_namespace().await?;
        let Some(mut namespace) = api.get("", "namespaces", "", attributes.namespace)? else {
            return Ok(None);
        };
        namespace.metadata_mut().retain(|name, _| NAMESPACE_METADATA.contains(&name.as_str()));
        namespace.root.retain(|name, _| matches!(name.as_str(), "metadata" | "spec" | "status"));
        Ok(Some(namespace.root))
    }

    /// Returns `object` and `oldObject` as a policy sees them.
    pub fn objects<'s>(
        &'s self,
        matched: &MatchedResource,
        object: Option<&'s Object>,
    ) -> (Option<&'s Object>, Option<&'s Object>) {
        match self.versions.iter().find(|known| known.kind == matched.kind) {
            Some(known) => (known.object.as_ref(), known.old.as_ref()),
            None => (object, self.call.attributes.old),
        }
    }

    /// Returns the `request` variable.
    pub fn request(&self, matched: &MatchedResource) -> Option<&Map> {
        let is_known = |(known, _): &&(MatchedResource, Map)| {
            known.kind == matched.kind && known.resource == matched.resource
        };
        self.requests.iter().find(is_known).map(|(_, request)| request)
    }

    /// Returns the `namespaceObject` variable, if it was loaded.
    pub fn namespace(&self) -> Option<&Map> {
        self.namespace.as_ref()?.as_ref()
    }

    /// Drops converted objects after the object has changed.
    pub fn drop_versions(&mut self) {
        self.versions.clear();
    }
}
