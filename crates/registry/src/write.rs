//! [`Write`]: a write on its way through admission. [`Part`]: which part of an object it is about.

use crate::kind::Target;
use crate::options::{DeleteOptions, WriteOptions};
use keelson_admission::Operation;
use keelson_auth::Permit;
use keelson_meta::{GroupVersionKind, GroupVersionResource, Map, Object, Value, value};

/// A write on its way through admission.
#[derive(Clone, Copy)]
pub struct Write<'a> {
    /// Of the request.
    pub permit: &'a Permit,
    /// The object.
    pub target: &'a Target,
    /// What is done.
    pub operation: Operation,
    /// The subresource, or empty.
    pub subresource: &'a str,
    /// The name that the client gave, or empty.
    pub name: &'a str,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// The stored object, in the version that writes work on.
    pub old: Option<&'a Object>,
    /// What the client asks of it.
    pub options: Options<'a>,
    /// What is written, where that is not an object of the target's kind.
    pub own: Option<OwnKind<'a>>,
}

/// The kind and resource of what a subresource takes: an Eviction, a Scale, the options of a stream.
#[derive(Clone, Copy)]
pub struct OwnKind<'a> {
    /// The kind.
    pub kind: &'a GroupVersionKind,
    /// Where that is not the target's.
    pub resource: Option<&'a GroupVersionResource>,
}

/// The options of a request, as webhooks and policies see them.
#[derive(Clone, Copy)]
pub enum Options<'a> {
    /// Of create and, for updates, update.
    Write(&'a WriteOptions),
    /// Of delete and deletecollection.
    Delete(&'a DeleteOptions),
    /// Connections have none.
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

/// Which part of an object a write is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// The object itself; its status stays as it is.
    #[default]
    Main,
    /// Its status; the rest stays as it is.
    Status,
    /// Another subresource, by name, whose rules are in the change itself.
    Other(&'static str),
    /// What a subresource such as `binding` does to the object behind it: admitted before, as the request that it is.
    Effect(&'static str),
}

impl Part {
    /// The name in managedFields; empty for the object itself.
    pub fn name(self) -> &'static str {
        match self {
            Part::Main => "",
            Part::Status => "status",
            Part::Other(name) | Part::Effect(name) => name,
        }
    }
}

impl WriteOptions {
    /// As `CreateOptions` and `UpdateOptions` have them.
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
