//! [`Round`]: what the policies of one request share: objects in the versions that were needed, the
//! namespace, the `request` variable, decisions of the authorizer.

use super::seen::Seen;
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
pub(super) struct Round<'a> {
    pub call: &'a Call<'a>,
    pub decisions: Decisions,
    /// The resource of the request, as `authorizer.requestResource` asks for it.
    pub resource: Resource,
    labels: Option<Vec<(Str, Str)>>,
    namespace: Option<Option<Map>>,
    equivalents: Option<Vec<(GroupVersionResource, GroupVersionKind)>>,
    versions: Vec<Versioned>,
    requests: Vec<(Seen, Map)>,
}

/// The objects of a request in another version than the stored one.
struct Versioned {
    kind: GroupVersionKind,
    object: Option<Object>,
    old: Option<Object>,
}

impl<'a> Round<'a> {
    pub fn new(call: &'a Call<'a>) -> Round<'a> {
        let attributes = call.attributes;
        let resource = attributes.cel_resource();
        Round {
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

    /// The other resources under which the objects of the request are served.
    pub fn equivalents(&mut self) -> &[(GroupVersionResource, GroupVersionKind)] {
        let Call { attributes, api, .. } = self.call;
        self.equivalents
            .get_or_insert_with(|| api.equivalents(attributes.resource, attributes.subresource))
    }

    /// The labels of the request's namespace.
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
        api.fresh().await?;
        match api.is_terminating(attributes.namespace) {
            Some(_) => Ok(()),
            None => {
                let namespaces = GroupVersionResource::new("", "v1", "namespaces");
                Err(Status::not_found(&namespaces, attributes.namespace))
            }
        }
    }

    /// Makes sure that [`Round::inputs`] has all that expressions of a policy may read.
    pub async fn prepare(
        &mut self,
        seen: &Seen,
        object: Option<&Object>,
        reads_namespace: bool,
    ) -> Result<(), Failure> {
        if reads_namespace && self.namespace.is_none() {
            self.namespace = Some(self.read_namespace().await?);
        }
        let is_known =
            |(known, _): &(Seen, Map)| known.kind == seen.kind && known.resource == seen.resource;
        if !self.requests.iter().any(is_known) {
            let mut request = admission_request(self.call.attributes, &seen.resource, &seen.kind);
            // The objects are variables of their own.
            request.insert("uid", "");
            request.insert("object", Value::Null);
            request.insert("oldObject", Value::Null);
            self.requests.push((seen.clone(), request));
        }
        if self.versions.iter().any(|known| known.kind == seen.kind) {
            return Ok(());
        }
        let old = self.call.attributes.old;
        let (object, old) = if seen.kind != *self.call.attributes.object_kind {
            let object = self.convert(object, seen).await?;
            let written = object.as_ref().and_then(|object| self.written(object, seen));
            (written.or(object), self.convert(old, seen).await?)
        } else {
            let written = object.and_then(|object| self.written(object, seen));
            // What is stored holds nothing empty: it is another one where the kind keeps texts.
            let looks = written.is_some() || object.is_none();
            let old_written = old.filter(|_| looks).and_then(|old| self.written(old, seen));
            if written.is_none() && old_written.is_none() {
                return Ok(());
            }
            (written.or_else(|| object.cloned()), old_written.or_else(|| old.cloned()))
        };
        self.versions.push(Versioned { kind: seen.kind.clone(), object, old });
        Ok(())
    }

    /// The object as it would be written; none: it is that already.
    fn written(&self, object: &Object, seen: &Seen) -> Option<Object> {
        self.call.api.schema(&seen.kind)?.encoded_form(object)
    }

    async fn convert(
        &self,
        object: Option<&Object>,
        seen: &Seen,
    ) -> Result<Option<Object>, Failure> {
        let Some(object) = object else { return Ok(None) };
        let Call { attributes, api, .. } = self.call;
        api.convert(object.clone(), attributes.object_kind, &seen.kind).await.map(Some)
    }

    /// The namespace as expressions see it; none for what is in no namespace, and for namespaces.
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

    /// The objects as a policy sees them: `object` and `oldObject`.
    pub fn objects<'s>(
        &'s self,
        seen: &Seen,
        object: Option<&'s Object>,
    ) -> (Option<&'s Object>, Option<&'s Object>) {
        match self.versions.iter().find(|known| known.kind == seen.kind) {
            Some(known) => (known.object.as_ref(), known.old.as_ref()),
            None => (object, self.call.attributes.old),
        }
    }

    /// The `request` variable.
    pub fn request(&self, seen: &Seen) -> Option<&Map> {
        let is_known =
            |(known, _): &&(Seen, Map)| known.kind == seen.kind && known.resource == seen.resource;
        self.requests.iter().find(is_known).map(|(_, request)| request)
    }

    /// The `namespaceObject` variable, when it was prepared.
    pub fn namespace(&self) -> Option<&Map> {
        self.namespace.as_ref()?.as_ref()
    }

    /// The object has changed: it is converted again when it is needed.
    pub fn forget_versions(&mut self) {
        self.versions.clear();
    }
}
