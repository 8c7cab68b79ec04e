//! Admission by functions of the embedding program ([`Builder::admission`]). A Rust test of a
//! controller needs no webhook server with it.

use crate::builder::Builder;
use keelson_admission::{BoxFuture, Call, DynamicPlugIn, Operation, Recorder, Reinvocation};
use keelson_auth::User;
use keelson_meta::{Failure, GroupVersionKind, GroupVersionResource, Object, Status};
use keelson_schema::json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A create, update or delete request, for admission functions of the embedding program.
#[derive(Debug)]
pub struct AdmissionRequest<'a, T> {
    /// The operation.
    pub operation: Operation,
    /// The namespace; empty for cluster-scoped resources.
    pub namespace: &'a str,
    /// The name; empty when it is still to be generated.
    pub name: &'a str,
    /// The user.
    pub user: &'a User,
    /// Whether this is a dry run, which stores nothing.
    pub dry_run: bool,
    /// The stored object, in updates and deletions.
    pub old: Option<T>,
}

impl Builder {
    /// Adds admission functions for a resource (group, version, plural name). `mutate` may change
    /// an object that is created or updated. `validate` gets the object as it will be stored, or
    /// `None` when it is deleted. An error refuses the request: 403 with its text. Both functions
    /// run after the built-in plug-ins of their phase and before webhooks and policies. They must
    /// not block.
    ///
    /// ```
    /// # use serde_json::Value;
    /// let builder = keelson::Keelson::builder().admission(
    ///     ("", "v1", "configmaps"),
    ///     |_request, map: &mut Value| {
    ///         map["metadata"]["labels"]["seen"] = "yes".into();
    ///         Ok(())
    ///     },
    ///     |request, map| match map {
    ///         None if request.name == "keep" => Err("must not be deleted".to_owned()),
    ///         _ => Ok(()),
    ///     },
    /// );
    /// ```
    #[must_use]
    pub fn admission<T: Serialize + DeserializeOwned + Send + 'static>(
        mut self,
        resource: (&str, &str, &str),
        mutate: impl Fn(&AdmissionRequest<'_, T>, &mut T) -> Result<(), String> + Send + Sync + 'static,
        validate: impl Fn(&AdmissionRequest<'_, T>, Option<&T>) -> Result<(), String>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let (group, version, resource) = resource;
        self.admission.in_process.push(Arc::new(InProcessPlugIn {
            resource: GroupVersionResource::new(group, version, resource),
            mutate: Box::new(mutate),
            validate: Box::new(validate),
        }));
        self
    }
}

type Mutate<T> = Box<dyn Fn(&AdmissionRequest<'_, T>, &mut T) -> Result<(), String> + Send + Sync>;
type Validate<T> =
    Box<dyn Fn(&AdmissionRequest<'_, T>, Option<&T>) -> Result<(), String> + Send + Sync>;

struct InProcessPlugIn<T> {
    resource: GroupVersionResource,
    mutate: Mutate<T>,
    validate: Validate<T>,
}

impl<T: Serialize + DeserializeOwned + Send> InProcessPlugIn<T> {
    /// Returns the kind in the version that the functions expect; `None` when the call is for
    /// another resource.
    fn matched_kind(&self, call: &Call<'_>) -> Option<GroupVersionKind> {
        let found = call.attributes.resource;
        let is_same =
            found.group == self.resource.group && found.resource == self.resource.resource;
        let is_write = call.attributes.operation != Operation::Connect;
        let is_matched = is_same && is_write && call.attributes.subresource.is_empty();
        is_matched.then(|| GroupVersionKind {
            version: self.resource.version.clone(),
            ..call.attributes.kind.clone()
        })
    }

    /// Converts an object to `kind` and deserializes it.
    async fn deserialize(
        &self,
        call: &Call<'_>,
        object: &Object,
        kind: &GroupVersionKind,
    ) -> Result<T, Failure> {
        let from = call.attributes.object_kind;
        let converted = call.api.convert(object.clone(), from, kind).await?;
        let mut text = vec![];
        json::write_value(&converted.into_value(), &mut text);
        serde_json::from_slice(&text).map_err(|error| {
            Status::internal(format!("in-process admission cannot read the {kind}: {error}"))
        })
    }

    async fn request<'a>(
        &self,
        call: &Call<'a>,
        kind: &GroupVersionKind,
    ) -> Result<AdmissionRequest<'a, T>, Failure> {
        let attributes = call.attributes;
        let old = match attributes.old {
            Some(old) => Some(self.deserialize(call, old, kind).await?),
            None => None,
        };
        Ok(AdmissionRequest {
            operation: attributes.operation,
            namespace: attributes.namespace,
            name: attributes.name,
            user: attributes.user,
            dry_run: attributes.dry_run,
            old,
        })
    }

    /// Runs `mutate`, and returns the changed object in the kind of the call.
    async fn mutated(
        &self,
        call: &Call<'_>,
        object: &Object,
        kind: &GroupVersionKind,
    ) -> Result<Object, Failure> {
        let request = self.request(call, kind).await?;
        let mut typed = self.deserialize(call, object, kind).await?;
        (self.mutate)(&request, &mut typed).map_err(|why| forbidden(call, &why))?;
        let invalid =
            |why: String| Status::internal(format!("in-process admission made no {kind}: {why}"));
        let text = serde_json::to_vec(&typed).map_err(|error| invalid(error.to_string()))?;
        let parsed = json::parse(&text).map_err(|error| invalid(error.to_string()))?;
        let mut value = parsed.value;
        if let Some(map) = value.as_object_mut() {
            map.insert("kind", kind.kind.clone());
            map.insert("apiVersion", kind.api_version());
        }
        let mutated = call.api.canonicalize(kind, value).map_err(invalid)?;
        call.api.convert(mutated, kind, call.attributes.object_kind).await
    }
}

impl<T: Serialize + DeserializeOwned + Send> DynamicPlugIn for InProcessPlugIn<T> {
    fn name(&self) -> &'static str {
        "InProcess"
    }

    fn admit<'a>(
        &'a self,
        call: &'a Call<'a>,
        object: Option<&'a mut Object>,
        _recorder: &'a mut Recorder,
        _round: &'a mut Reinvocation,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            if let (Some(object), Some(kind)) = (object, self.matched_kind(call)) {
                *object = self.mutated(call, object, &kind).await?;
            }
            Ok(())
        })
    }

    fn validate<'a>(
        &'a self,
        call: &'a Call<'a>,
        object: Option<&'a Object>,
        _recorder: &'a mut Recorder,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            let Some(kind) = self.matched_kind(call) else { return Ok(()) };
            let request = self.request(call, &kind).await?;
            let typed = match object {
                Some(object) => Some(self.deserialize(call, object, &kind).await?),
                None => None,
            };
            (self.validate)(&request, typed.as_ref()).map_err(|why| forbidden(call, &why))
        })
    }
}

fn forbidden(call: &Call<'_>, why: &str) -> Failure {
    Status::forbidden(call.attributes.resource, call.attributes.name, why)
}
