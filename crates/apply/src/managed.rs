//! `metadata.managedFields`: who owns which field, read, kept up to date and written back.

mod cap;
mod codec;
mod ownership;
pub mod scale;
mod update;

pub use codec::InvalidEntry;
pub use update::{keep_times, manager_name, update, validate};

pub(crate) use ownership::{disown, reconcile_all};
pub(crate) use update::track_before_apply;

use crate::fields::{FieldSet, Filter};
use keelson_meta::{GroupVersion, Object, Str, Value};
use keelson_schema::Schema;
use std::cmp::Ordering;
use std::sync::LazyLock;

/// Owners by Update that an object keeps; older ones are folded into one.
pub const UPDATE_MANAGERS_MAX: usize = 10;
/// Owners that an object may have at all; more are not read.
pub const MANAGERS_MAX: usize = 1_000;
/// Who owns what updates left behind that are no longer told apart.
pub const ANCIENT_MANAGER: &str = "ancient-changes";
/// Who owns what was there when the first apply came.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// Who makes a request that says nothing of itself.
pub const UNKNOWN_MANAGER: &str = "unknown";

/// An object in another version, with the schema of that version; `None` when the version is not
/// served, and what was owned in it is forgotten.
pub type Convert<'a> = dyn Fn(&Object, &GroupVersion) -> Option<(Schema, Object)> + 'a;

/// The endpoint that a request came through.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The schema of the request's version.
    pub schema: &'a Schema,
    /// `status`, or empty.
    pub subresource: &'a str,
    /// The fields that count through this endpoint; `None`: all.
    pub filter: Option<&'a Filter>,
    /// Other versions of an object.
    pub convert: &'a Convert<'a>,
}

/// How an owner came to own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Create, update or any other patch.
    Update,
}

impl Operation {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// One owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Manager {
    /// The name it gave itself.
    pub name: Str,
    /// How it came to own.
    pub operation: Operation,
    /// The version in which `fields` are meant.
    pub api_version: Str,
    /// The subresource through which it wrote, or empty.
    pub subresource: Str,
    /// When it last changed something, RFC 3339 to the second.
    pub time: Option<Str>,
    fields: FieldSet,
    /// The FieldsV1 text of `fields`, while nobody has changed them. Saves encoding what stays.
    encoded: Option<Value>,
}

impl Manager {
    /// What it owns.
    pub fn fields(&self) -> &FieldSet {
        &self.fields
    }

    /// Changes what it owns; `change` says whether it did.
    fn change(&mut self, change: impl FnOnce(&mut FieldSet) -> bool) {
        if change(&mut self.fields) {
            self.encoded = None;
        }
    }

    /// Whether two entries are of one owner: those of Apply whatever their version is.
    fn is_same(&self, other: &Manager) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Upstream's order of identifiers, which are JSON text: name, operation, version, subresource.
    pub(crate) fn compare_identity(&self, other: &Manager) -> Ordering {
        let text = |text: &str| text.bytes().chain([b'"']).collect::<Vec<u8>>();
        let version = |manager: &Manager| match manager.operation {
            Operation::Apply => Str::default(),
            Operation::Update => manager.api_version.clone(),
        };
        text(&self.name)
            .cmp(&text(&other.name))
            .then_with(|| self.operation.cmp(&other.operation))
            .then_with(|| version(self).cmp(&version(other)))
            .then_with(|| self.subresource.cmp(&other.subresource))
    }

    /// The time for sorting; an entry without one is older than all.
    fn time_key(&self) -> &str {
        self.time.as_deref().unwrap_or("1970-01-01T00:00:00Z")
    }
}

/// All owners of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Managers {
    /// Invariant: no two entries are of one owner.
    list: Vec<Manager>,
}

impl Managers {
    /// The owners.
    pub fn iter(&self) -> impl Iterator<Item = &Manager> {
        self.list.iter()
    }

    /// True when nobody owns anything.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Sets what an applier owns, in its version of now; gives back the version and the fields of
    /// its last apply. The time of the last apply stays.
    pub(crate) fn replace(
        &mut self,
        applier: &Manager,
        fields: FieldSet,
    ) -> Option<(Str, FieldSet)> {
        let Some(known) = self.list.iter_mut().find(|known| known.is_same(applier)) else {
            self.list.push(Manager { fields, ..applier.clone() });
            return None;
        };
        let version = std::mem::replace(&mut known.api_version, applier.api_version.clone());
        if known.fields == fields {
            return (version != known.api_version).then_some((version, fields));
        }
        known.encoded = None;
        Some((version, std::mem::replace(&mut known.fields, fields)))
    }

    /// All that is owned in a version.
    pub(crate) fn owned_at(&self, version: &str) -> FieldSet {
        let of_version = self.list.iter().filter(|manager| manager.api_version == version);
        FieldSet::union(of_version.map(|manager| manager.fields.clone()).collect())
    }

    /// The versions in which anything is owned, each once.
    pub(crate) fn versions(&self) -> Vec<Str> {
        let mut versions: Vec<Str> = vec![];
        for manager in &self.list {
            if !versions.contains(&manager.api_version) {
                versions.push(manager.api_version.clone());
            }
        }
        versions
    }

    /// Notes that an applier changed something now.
    pub(crate) fn stamp(&mut self, applier: &Manager, now: &str) {
        if let Some(known) = self.list.iter_mut().find(|known| known.is_same(applier)) {
            known.time = Some(Str::new(now));
        }
    }

    /// Puts an owner in, in place of an entry of the same owner.
    fn put(&mut self, manager: Manager) {
        match self.list.iter_mut().find(|known| known.is_same(&manager)) {
            Some(known) => *known = manager,
            None => self.list.push(manager),
        }
    }
}

/// An owner that does not own anything yet.
pub(crate) fn new_manager(scope: &Scope<'_>, name: &str, operation: Operation) -> Manager {
    Manager {
        name: Str::new(if name.is_empty() { UNKNOWN_MANAGER } else { name }),
        operation,
        api_version: scope.schema.gvk.api_version(),
        subresource: Str::new(scope.subresource),
        time: None,
        fields: FieldSet::new(),
        encoded: None,
    }
}

/// The fields of metadata that nobody owns.
pub(crate) static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of_fields(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "clusterName"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
});

#[cfg(test)]
#[path = "managed_tests.rs"]
mod tests;
