//! [`Request`]: the arguments of a built-in plug-in. [`Stored`]: its read access.

use crate::config::PlugInConfig;
use keelson_auth::User;
use keelson_meta::{Failure, Features, GroupVersionResource, Object, Status, Str, Timestamp};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Create an object.
    Create,
    /// Update an object.
    Update,
    /// Delete an object.
    Delete,
    /// Open a stream or a proxy.
    Connect,
}

impl Operation {
    /// All operations, by index.
    pub(crate) const ALL: [Operation; 4] =
        [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

    /// Returns the name in rules of webhooks and policies: `CREATE`.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// Read access to stored objects, in their storage version.
pub trait Stored {
    /// Returns the object with this name, if it exists.
    fn get(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Failure>;

    /// Returns all objects of a resource in a namespace; empty: in all namespaces.
    fn list(&self, group: &str, resource: &str, namespace: &str) -> Result<Vec<Object>, Failure> {
        self.list_with(group, resource, namespace, &[])
    }

    /// Returns the objects of [`Stored::list`] whose JSON contains one of the words; all when there
    /// are no words. Others are not decoded.
    fn list_with(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        words: &[&str],
    ) -> Result<Vec<Object>, Failure>;

    /// Returns whether a namespace is being deleted; `None` when it does not exist. Does not decode
    /// it.
    fn is_terminating(&self, namespace: &str) -> Option<bool>;

    /// Returns the labels of a namespace; empty when it does not exist. Behavior not decode it.
    fn labels_of(&self, namespace: &str) -> Vec<(Str, Str)>;
}

/// A request as built-in plug-ins see it. Objects are in the storage version.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    /// The operation.
    pub operation: Operation,
    /// Group, storage version and resource.
    pub gvr: &'a GroupVersionResource,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The namespace, or empty.
    pub namespace: &'a str,
    /// The name, or empty when one is to be generated.
    pub name: &'a str,
    /// The user.
    pub user: &'a User,
    /// A dry run: nothing is stored.
    pub dry_run: bool,
    /// The stored object of updates and deletions.
    pub old: Option<&'a Object>,
    /// Stored objects.
    pub stored: &'a dyn Stored,
    /// The configuration of the plug-ins.
    pub config: &'a PlugInConfig,
    /// The enabled features.
    pub features: Features,
    /// The current time.
    pub now: &'a dyn Fn() -> Timestamp,
    /// Returns a name with a prefix and random characters.
    pub generate_name: &'a dyn Fn(&str) -> Str,
}

/// Returns why a referenced name cannot be the name of an object, in the words of client-go.
pub(crate) fn invalid_name_reason(name: &str) -> Option<String> {
    let faults = keelson_meta::names::is_path_segment_name(name);
    (!faults.is_empty()).then(|| {
        let name = keelson_meta::status::quote(name);
        format!("invalid resource name {name}: [{}]", faults.join(" "))
    })
}

impl Request<'_> {
    /// Returns whether the request is for this resource and no subresource.
    pub(crate) fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.is_below(group, resource)
    }

    /// Returns whether the request is for this resource or a subresource.
    pub(crate) fn is_below(&self, group: &str, resource: &str) -> bool {
        self.gvr.resource == resource && self.gvr.group == group
    }

    /// Returns whether the request creates an object of this resource.
    pub(crate) fn creates(&self, group: &str, resource: &str) -> bool {
        self.operation == Operation::Create && self.is(group, resource)
    }

    /// Returns a 403 for the object of the request.
    pub(crate) fn forbidden(&self, obj: &Object, why: &str) -> Failure {
        let names = [self.name, obj.name(), obj.generate_name(), "Unknown"];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        Status::forbidden(self.gvr, name, why)
    }
}
