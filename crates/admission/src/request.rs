//! [`Request`]: what a plug-in is told of a request. [`Stored`]: what it may look at.

use crate::config::PlugInConfig;
use keelson_auth::User;
use keelson_meta::{Failure, Features, GroupVersionResource, Object, Status, Str, Timestamp};

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Makes it.
    Create,
    /// Changes it.
    Update,
    /// Deletes it.
    Delete,
    /// Opens a stream or a proxy to it.
    Connect,
}

impl Operation {
    /// All of them, by their number.
    pub(crate) const ALL: [Operation; 4] =
        [Operation::Create, Operation::Update, Operation::Delete, Operation::Connect];

    /// As rules of webhooks and policies name it: `CREATE`.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// Stored objects, in their storage version.
pub trait Stored {
    /// The object of that name, if it is there.
    fn get(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Failure>;

    /// All objects of a resource in a namespace, or of all namespaces when it is empty.
    fn list(&self, group: &str, resource: &str, namespace: &str) -> Result<Vec<Object>, Failure> {
        self.list_with(group, resource, namespace, &[])
    }

    /// Those of [`Stored::list`] in whose JSON one of the words stands, or all when there is no word; the
    /// others are not decoded.
    fn list_with(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        words: &[&str],
    ) -> Result<Vec<Object>, Failure>;

    /// Whether the namespace of that name is being deleted, if it is there. Does not decode it.
    fn is_terminating(&self, namespace: &str) -> Option<bool>;

    /// The labels of a namespace; none when it is not there. Does not decode it.
    fn labels_of(&self, namespace: &str) -> Vec<(Str, Str)>;
}

/// A request, as plug-ins see it. Objects are in the storage version.
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
    /// Nothing is to be stored.
    pub dry_run: bool,
    /// The stored object, of updates and deletions.
    pub old: Option<&'a Object>,
    /// Stored objects.
    pub stored: &'a dyn Stored,
    /// The configuration of the plug-ins.
    pub config: &'a PlugInConfig,
    /// The features that are on.
    pub features: Features,
    /// The time.
    pub now: &'a dyn Fn() -> Timestamp,
    /// Makes a name of a prefix and random characters.
    pub generate_name: &'a dyn Fn(&str) -> Str,
}

/// Why no object can have a name that another one mentions, in the words of upstream's client.
pub(crate) fn unfit_name(name: &str) -> Option<String> {
    let faults = keelson_meta::names::is_path_segment_name(name);
    (!faults.is_empty()).then(|| {
        let name = keelson_meta::status::quote(name);
        format!("invalid resource name {name}: [{}]", faults.join(" "))
    })
}

impl Request<'_> {
    /// Whether it is about this resource itself, not a subresource of it.
    pub(crate) fn is(&self, group: &str, resource: &str) -> bool {
        self.subresource.is_empty() && self.is_below(group, resource)
    }

    /// Whether it is about this resource or a subresource of it.
    pub(crate) fn is_below(&self, group: &str, resource: &str) -> bool {
        self.gvr.resource == resource && self.gvr.group == group
    }

    /// Whether it makes an object of this resource.
    pub(crate) fn creates(&self, group: &str, resource: &str) -> bool {
        self.operation == Operation::Create && self.is(group, resource)
    }

    /// 403 for the object of the request.
    pub(crate) fn forbidden(&self, obj: &Object, why: &str) -> Failure {
        let names = [self.name, obj.name(), obj.generate_name(), "Unknown"];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        Status::forbidden(self.gvr, name, why)
    }
}
