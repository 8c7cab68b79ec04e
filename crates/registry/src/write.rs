//! [`Write`]: the facts about a write that admission sees. [`Subresource`]: the subresource that is
//! written.

use crate::options::{DeleteOptions, WriteOptions};
use crate::target::Target;
use keelson_admission::Operation;
use keelson_auth::Permit;
use keelson_meta::{GroupVersionKind, GroupVersionResource, Map, Object, Value, value};

/// The facts about a write that admission sees.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// The permit of the request.
    pub permit: &'a Permit,
    /// The target of the request.
    pub target: &'a Target,
    /// The operation.
    pub operation: Operation,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The name in the request, or empty.
    pub name: &'a str,
    /// Whether this is a dry run.
    pub dry_run: bool,
    /// The stored object, in the version that writes use.
    pub old: Option<&'a Object>,
    /// The options of the request.
    pub options: Options<'a>,
    /// The kind of the object, if it is not that of the target.
    pub own: Option<OwnKind<'a>>,
}

/// The kind and resource of the body of a subresource: an Eviction, a Scale, the options of a
/// stream.
#[derive(Clone, Copy)]
pub struct OwnKind<'a> {
    /// The kind.
    pub kind: &'a GroupVersionKind,
    /// The resource, if it is not that of the target.
    pub resource: Option<&'a GroupVersionResource>,
}

/// The options of a request as webhooks and policies see them.
#[derive(Clone, Copy)]
pub enum Options<'a> {
    /// Options of a create or an update.
    Write(&'a WriteOptions),
    /// Options of a delete or a deletecollection.
    Delete(&'a DeleteOptions),
    /// A connect request, which has no options.
    None,
}

impl Options<'_> {
    pub(crate) fn value(&self, operation: Operation) -> Value {
        let (kind, mut options) = match self {
            Options::None => return Value::Null,
            Options::Write(options) if operation == Operation::Create => {
                ("CreateOptions", options.to_map())
            }
            Options::Write(options) => ("UpdateOptions", options.to_map()),
            Options::Delete(options) => ("DeleteOptions", options.to_map()),
        };
        options.insert("kind", kind);
        options.insert("apiVersion", "meta.k8s.io/v1");
        Value::Object(options)
    }
}

/// The subresource that a write updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Subresource {
    /// The object itself. The status stays as it is.
    #[default]
    None,
    /// The status. The rest stays as it is.
    Status,
    /// Another subresource, by name. The change itself enforces its rules.
    Other(&'static str),
    /// The effect of an action such as `binding` on the object. Admission has already seen the
    /// action.
    Action(&'static str),
}

impl Subresource {
    /// Returns the name in managedFields; empty for the object itself.
    pub fn name(self) -> &'static str {
        match self {
            Subresource::None => "",
            Subresource::Status => "status",
            Subresource::Other(name) | Subresource::Action(name) => name,
        }
    }
}

impl WriteOptions {
    fn to_map(&self) -> Map {
        let mut map = Map::new();
        if self.dry_run {
            map.insert("dryRun", value!(["All"]));
        }
        if !self.field_manager_is_default {
            map.insert("fieldManager", self.field_manager.clone());
        }
        if let Some(given) = self.given_validation() {
            map.insert("fieldValidation", given);
        }
        map
    }
}

impl DeleteOptions {
    fn to_map(&self) -> Map {
        let mut map = Map::new();
        if let Some(seconds) = self.grace_period_seconds {
            map.insert("gracePeriodSeconds", seconds);
        }
        let mut preconditions = Map::new();
        for (name, given) in [("uid", &self.uid), ("resourceVersion", &self.resource_version)] {
            if let Some(given) = given {
                preconditions.insert(name, given.clone());
            }
        }
        if !preconditions.is_empty() {
            map.insert("preconditions", preconditions);
        }
        if let Some(propagation) = self.propagation {
            map.insert("propagationPolicy", propagation.name());
        }
        if self.dry_run {
            map.insert("dryRun", value!(["All"]));
        }
        if self.ignore_read_error {
            map.insert("ignoreStoreReadErrorWithClusterBreakingPotential", true);
        }
        map
    }
}
