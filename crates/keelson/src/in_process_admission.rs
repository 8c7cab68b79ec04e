//! Admission by functions of the embedding program ([`Builder::admission`]), so that a Rust test of a
//! controller needs no webhook server.

use crate::builder::Builder;
use keelson_admission::{BoxFuture, Call, DynamicPlugIn, Operation, Recorder, Reinvocation};
use keelson_auth::User;
use keelson_meta::{Failure, GroupVersionKind, GroupVersionResource, Object, Status};
use keelson_schema::json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;

/// A create, update or delete, as functions of the embedding program see it.
#[derive(Debug)]
pub struct AdmittedWrite<'a, T> {
    /// The operation.
    pub operation: Operation,
    /// The namespace, or empty.
    pub namespace: &'a str,
    /// The name, or empty when one is to be generated.
    pub name: &'a str,
    /// The user.
    pub user: &'a User,
    /// Nothing is to be stored.
    pub dry_run: bool,
    /// The stored object, of updates and deletions.
    pub old: Option<T>,
}

impl Builder {
    /// Has creates, updates and deletes of a resource (group, version, plural name) looked at by functions:
    /// `mutate` may change what is created or updated, `validate` sees it as it would be stored, and `None`
    /// when it is deleted. An error refuses the write: 403 with its text. Both run after the built-in plug-ins
    /// of their phase and before webhooks and policies; they must not block.
    ///
    /// ```
    /// # use serde_json::Value;
    /// let builder = keelson::Keelson::builder().admission(
    ///     ("", "v1", "configmaps"),
    ///     |_write, map: &mut Value| {
    ///         map["metadata"]["labels"]["seen"] = "yes".into();
    ///         Ok(())
    ///     },
    ///     |write, map| match map {
    ///         None if write.name == "keep" => Err("it stays".to_owned()),
    ///         _ => Ok(()),
    ///     },
    /// );
    /// ```
    #[must_use]
    pub fn admission<T: Serialize + DeserializeOwned + Send + 'static>(
        mut self,
        resource: (&str, &str, &str),
        mutate: impl Fn(&AdmittedWrite<'_, T>, &mut T) -> Result<(), String> + Send + Sync + 'static,
        validate: impl Fn(&AdmittedWrite<'_, T>, Option<&T>) -> Result<(), String>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        let (group, version, resource) = resource;
        self.in_process_admission.push(Arc::new(InProcess {
            resource: GroupVersionResource::new(group, version, resource),
            mutate: Box::new(mutate),
            validate: Box::new(validate),
        }));
        self
    }
}

type Mutate<T> = Box<dyn Fn(&AdmittedWrite<'_, T>, &mut T) -> Result<(), String> + Send + Sync>;
type Validate<T> =
    Box<dyn Fn(&AdmittedWrite<'_, T>, Option<&T>) -> Result<(), String> + Send + Sync>;

struct InProcess<T> {
    resource: GroupVersionResource,
    mutate: Mutate<T>,
    validate: Validate<T>,
}

impl<T: Serialize + DeserializeOwned + Send> InProcess<T> {
    /// The kind of the resource, if the call is about it.
    fn concerns(&self, call: &Call<'_>) -> Option<GroupVersionKind> {
        let asked = call.attributes.resource;
        let same = asked.group == self.resource.group && asked.resource == self.resource.resource;
        let writes = call.attributes.operation != Operation::Connect;
        let is_concerned = same && writes && call.attributes.subresource.is_empty();
        is_concerned.then(|| GroupVersionKind {
            version: self.resource.version.clone(),
            ..call.attributes.kind.clone()
        })
    }

    /// An object as the functions see it.
    async fn typed(
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

    async fn write<'a>(
        &self,
        call: &Call<'a>,
        kind: &GroupVersionKind,
    ) -> Result<AdmittedWrite<'a, T>, Failure> {
        let attributes = call.attributes;
        let old = match attributes.old {
            Some(old) => Some(self.typed(call, old, kind).await?),
            None => None,
        };
        Ok(AdmittedWrite {
            operation: attributes.operation,
            namespace: attributes.namespace,
            name: attributes.name,
            user: attributes.user,
            dry_run: attributes.dry_run,
            old,
        })
    }

    async fn changed(
        &self,
        call: &Call<'_>,
        object: &Object,
        kind: &GroupVersionKind,
    ) -> Result<Object, Failure> {
        let write = self.write(call, kind).await?;
        let mut typed = self.typed(call, object, kind).await?;
        (self.mutate)(&write, &mut typed).map_err(|why| refusal(call, &why))?;
        let unfit =
            |why: String| Status::internal(format!("in-process admission made no {kind}: {why}"));
        let text = serde_json::to_vec(&typed).map_err(|error| unfit(error.to_string()))?;
        let parsed = json::parse(&text).map_err(|error| unfit(error.to_string()))?;
        let mut value = parsed.value;
        if let Some(map) = value.as_object_mut() {
            map.insert("kind", kind.kind.clone());
            map.insert("apiVersion", kind.api_version());
        }
        let changed = call.api.canonicalize(kind, value).map_err(unfit)?;
        call.api.convert(changed, kind, call.attributes.object_kind).await
    }
}

impl<T: Serialize + DeserializeOwned + Send> DynamicPlugIn for InProcess<T> {
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
            if let (Some(object), Some(kind)) = (object, self.concerns(call)) {
                *object = self.changed(call, object, &kind).await?;
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
            let Some(kind) = self.concerns(call) else { return Ok(()) };
            let write = self.write(call, &kind).await?;
            let typed = match object {
                Some(object) => Some(self.typed(call, object, &kind).await?),
                None => None,
            };
            (self.validate)(&write, typed.as_ref()).map_err(|why| refusal(call, &why))
        })
    }
}

fn refusal(call: &Call<'_>, why: &str) -> Failure {
    Status::forbidden(call.attributes.resource, call.attributes.name, why)
}
