//! [`Attributes`]: a write or a connection as webhooks and policies see it. [`Api`]: what they may ask of
//! the API. [`DynamicPlugIn`]: one of them.

use crate::configurations::Configurations;
use crate::metrics::Metrics;
use crate::reinvocation::Reinvocation;
use crate::request::{Operation, Stored};
use keelson_auth::{Authorizer, User};
use keelson_meta::{Failure, GroupVersionKind, GroupVersionResource, Object, Str, Value};
use keelson_schema::Schema;
use std::pin::Pin;
use std::time::Duration;

/// A future in a box.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A write or a connection, as webhooks and policies see it (apiserver `admission.Attributes`).
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// The operation.
    pub operation: Operation,
    /// The kind in which the objects are passed: in the storage version; for subresources with a type of
    /// their own (Scale, Eviction, PodExecOptions) that type.
    pub object_kind: &'a GroupVersionKind,
    /// The kind that the client asked for: in the version of the URL.
    pub kind: &'a GroupVersionKind,
    /// The resource that the client asked for, in the version of the URL.
    pub resource: &'a GroupVersionResource,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The namespace, or empty. Of a namespace object, its own name.
    pub namespace: &'a str,
    /// The name, or empty when one is to be generated.
    pub name: &'a str,
    /// The user.
    pub user: &'a User,
    /// Nothing is to be stored.
    pub dry_run: bool,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions` with `kind` and `apiVersion`; null for
    /// connections.
    pub options: &'a Value,
    /// The stored object, of updates and deletions, as `object_kind`.
    pub old: Option<&'a Object>,
}

impl<'a> Attributes<'a> {
    /// The name, of an object whose name was generated too.
    pub(crate) fn name_of(&self, object: &'a Object) -> &'a str {
        if self.name.is_empty() { object.name() } else { self.name }
    }

    /// The resource, as expressions know it by `authorizer.requestResource`.
    pub(crate) fn cel_resource(&self) -> keelson_cel::Resource {
        keelson_cel::Resource {
            group: self.resource.group.clone(),
            resource: self.resource.resource.clone(),
            subresource: self.subresource.into(),
            namespace: self.namespace.into(),
            name: self.name.into(),
            ..keelson_cel::Resource::default()
        }
    }
}

/// The API as webhooks and policies read it; implemented by the registry.
pub trait Api: Stored + Send + Sync {
    /// The other resources under which the same objects are served, with their kinds: other versions,
    /// other groups (`matchPolicy: Equivalent`).
    fn equivalents(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
    ) -> Vec<(GroupVersionResource, GroupVersionKind)>;

    /// The type of a kind that is served, of subresources and custom resources too.
    fn schema(&self, kind: &GroupVersionKind) -> Option<Schema>;

    /// The resource that a kind names, with whether it is namespaced; `None` when none is served.
    fn resource_of(&self, kind: &GroupVersionKind) -> Option<(GroupVersionResource, bool)>;

    /// An object in another version of its kind.
    fn convert<'a>(
        &'a self,
        object: Object,
        from: &'a GroupVersionKind,
        to: &'a GroupVersionKind,
    ) -> Pending<'a, Result<Object, Failure>>;

    /// Brings an object that a webhook or policy changed into canonical form: drops unknown fields and
    /// applies defaults. The error is the message about a field of a wrong type.
    fn canonicalize(&self, kind: &GroupVersionKind, value: Value) -> Result<Object, String>;

    /// Decides on what expressions ask of `authorizer`.
    fn authorizer(&self) -> &Authorizer;

    /// Waits until reads are as new as the store: for what is looked for and not found.
    fn fresh(&self) -> Pending<'_, Result<(), Failure>>;

    /// A uid that nothing else has.
    fn new_uid(&self) -> Str;
}

/// Warnings and audit annotations of admission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Texts of Warning headers.
    pub warnings: Vec<Str>,
    /// Audit annotations, in the order in which they were made.
    pub annotations: Vec<(Str, Str)>,
    /// How long webhooks were waited for.
    pub webhooks_took: Duration,
}

/// An admission plug-in that waits for others or evaluates expressions.
pub trait DynamicPlugIn: Send + Sync {
    /// The name as `--enable-admission-plugins` has it.
    fn name(&self) -> &'static str;

    /// Whether there is nothing for it to do.
    fn is_idle(&self, _configured: &Configurations) -> bool {
        false
    }

    /// Changes an object, or refuses it. Of deletions the object is `None`, of connections its options.
    fn admit<'a>(
        &'a self,
        _call: &'a Call<'a>,
        _object: Option<&'a mut Object>,
        _notes: &'a mut Notes,
        _round: &'a mut Reinvocation,
    ) -> Pending<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    /// Refuses an object as it would be stored.
    fn validate<'a>(
        &'a self,
        _call: &'a Call<'a>,
        _object: Option<&'a Object>,
        _notes: &'a mut Notes,
    ) -> Pending<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }
}

/// A call of a dynamic plug-in.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The request.
    pub attributes: &'a Attributes<'a>,
    /// The API for reads.
    pub api: &'a dyn Api,
    /// The webhooks and policies as they are for this request.
    pub configured: &'a Configurations,
    /// What is counted.
    pub metrics: &'a Metrics,
}
