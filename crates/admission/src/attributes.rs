//! [`Attributes`]: a write or a connection as webhooks and policies see it. [`Api`]: their access
//! to the API. [`DynamicPlugIn`]: the trait that they implement.

use crate::configurations::Configurations;
use crate::metrics::Metrics;
use crate::reinvocation::Reinvocation;
use crate::request::{Operation, Stored};
use keelson_auth::{Authorizer, User};
use keelson_meta::{Failure, GroupVersionKind, GroupVersionResource, Object, Str, Value};
use keelson_schema::Schema;
use std::pin::Pin;
use std::time::Duration;

/// A boxed future.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A write or a connection, as webhooks and policies see it (apiserver `admission.Attributes`).
#[derive(Clone, Copy)]
pub struct Attributes<'a> {
    /// The operation.
    pub operation: Operation,
    /// The kind of the objects: in the storage version. For subresources with a type of their own
    /// (Scale, Eviction, PodExecOptions) that type.
    pub object_kind: &'a GroupVersionKind,
    /// The kind of the request: in the version of the URL.
    pub kind: &'a GroupVersionKind,
    /// The resource of the request, in the version of the URL.
    pub resource: &'a GroupVersionResource,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The namespace, or empty. For a Namespace object, its own name.
    pub namespace: &'a str,
    /// The name, or empty when one is to be generated.
    pub name: &'a str,
    /// The user.
    pub user: &'a User,
    /// A dry run: nothing is stored.
    pub dry_run: bool,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions` with `kind` and `apiVersion`; null for
    /// connections.
    pub options: &'a Value,
    /// The stored object of updates and deletions, as `object_kind`.
    pub old: Option<&'a Object>,
}

impl<'a> Attributes<'a> {
    /// Returns the name of the object, including one that was generated.
    pub(crate) fn name_of(&self, object: &'a Object) -> &'a str {
        if self.name.is_empty() { object.name() } else { self.name }
    }

    /// Returns the resource as `authorizer.requestResource`.
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

/// The reads and checks that webhooks and policies need; implemented by the registry.
pub trait Api: Stored + Send + Sync {
    /// Returns the other resources that serve the same objects, with their kinds: other versions or
    /// groups (`matchPolicy: Equivalent`).
    fn equivalents(
        &self,
        resource: &GroupVersionResource,
        subresource: &str,
    ) -> Vec<(GroupVersionResource, GroupVersionKind)>;

    /// Returns the schema of a served kind, including kinds of subresources and custom resources.
    fn schema(&self, kind: &GroupVersionKind) -> Option<Schema>;

    /// Returns the resource of a kind and whether it is namespaced; `None` when it is not served.
    fn resource_of(&self, kind: &GroupVersionKind) -> Option<(GroupVersionResource, bool)>;

    /// Converts an object to another version of its kind.
    fn convert<'a>(
        &'a self,
        object: Object,
        from: &'a GroupVersionKind,
        to: &'a GroupVersionKind,
    ) -> BoxFuture<'a, Result<Object, Failure>>;

    /// Drops unknown fields from an object that a webhook or policy changed, and applies defaults.
    /// The error is the message about a field of a wrong type.
    fn canonicalize(&self, kind: &GroupVersionKind, value: Value) -> Result<Object, String>;

    /// Returns the authorizer for `authorizer` in expressions.
    fn authorizer(&self) -> &Authorizer;

    /// Waits until reads are as new as the store. Called before an object counts as not found.
    fn wait_for_latest(&self) -> BoxFuture<'_, Result<(), Failure>>;

    /// Returns a new unique uid.
    fn new_uid(&self) -> Str;
}

/// Collects the warnings and audit annotations that plug-ins add to a request (upstream's
/// `warning.Recorder` and `Attributes.AddAnnotation`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorder {
    /// Values of Warning headers.
    pub warnings: Vec<Str>,
    /// Audit annotations, in order.
    pub annotations: Vec<(Str, Str)>,
    /// Time spent waiting for webhooks.
    pub webhooks_took: Duration,
}

/// An admission plug-in that is async or evaluates expressions.
pub trait DynamicPlugIn: Send + Sync {
    /// Returns the name in `--enable-admission-plugins`.
    fn name(&self) -> &'static str;

    /// Returns whether the plug-in has nothing to do with this configuration.
    fn is_idle(&self, _configured: &Configurations) -> bool {
        false
    }

    /// Mutates or rejects an object. `object` is `None` for deletions, and the options for
    /// connections.
    fn admit<'a>(
        &'a self,
        _call: &'a Call<'a>,
        _object: Option<&'a mut Object>,
        _recorder: &'a mut Recorder,
        _round: &'a mut Reinvocation,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }

    /// Rejects an object as it would be stored, or accepts it.
    fn validate<'a>(
        &'a self,
        _call: &'a Call<'a>,
        _object: Option<&'a Object>,
        _recorder: &'a mut Recorder,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async { Ok(()) })
    }
}

/// The arguments of a dynamic plug-in.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The request.
    pub attributes: &'a Attributes<'a>,
    /// Reads of the API.
    pub api: &'a dyn Api,
    /// The webhooks and policies for this request.
    pub configured: &'a Configurations,
    /// Metrics of admission.
    pub metrics: &'a Metrics,
}
