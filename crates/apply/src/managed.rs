//! `metadata.managedFields`: the fields that each field manager owns. Decodes the entries, updates
//! them after a write and encodes them again.

mod cap;
mod codec;
mod ownership;
pub mod scale;
mod update;

pub use codec::InvalidEntry;
pub use update::{manager_name, restore_times, update, validate};

pub(crate) use ownership::{Refused, reconcile_all, remove_changed_fields};
pub(crate) use update::track_before_apply;

use crate::fields::{FieldSet, Filter};
use keelson_meta::{GroupVersion, Object, Str, Value};
use keelson_schema::Schema;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::LazyLock;

/// Entries with operation `Update` that an object keeps. The oldest are merged beyond that.
pub const UPDATE_MANAGERS_MAX: usize = 10;
/// The manager of the fields of merged entries.
pub const ANCIENT_MANAGER: &str = "ancient-changes";
/// The manager of the fields that an object without managers had before its first apply.
pub const BEFORE_FIRST_APPLY: &str = "before-first-apply";
/// The manager of requests with neither `fieldManager` nor `User-Agent`.
pub const UNKNOWN_MANAGER: &str = "unknown";

/// Converts an object to another version. Returns it with the schema of that version, or `None`
/// when there is no such version; entries of such a version are dropped. An error is upstream's
/// text, which ends an apply; an update drops all entries.
pub type Convert<'a> =
    dyn Fn(&Object, &GroupVersion) -> Result<Option<(Schema, Object)>, String> + 'a;

/// The endpoint of a request, as far as field management needs it.
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// The schema of the request's version.
    pub schema: &'a Schema,
    /// The subresource, such as `status`, or empty.
    pub subresource: &'a str,
    /// Selects the fields that the endpoint can change; `None`: all.
    pub filter: Option<&'a Filter>,
    /// Converts objects to the versions of other entries.
    pub convert: &'a Convert<'a>,
}

impl Scope<'_> {
    /// Converts an object to the version of an entry.
    pub(crate) fn convert_to(
        &self,
        object: &Object,
        api_version: &str,
    ) -> Result<Option<(Schema, Object)>, String> {
        match GroupVersion::parse(api_version) {
            Some(version) => (self.convert)(object, &version),
            None => Ok(None),
        }
    }
}

/// The operation of a `managedFields` entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// Server-side apply.
    Apply,
    /// Create, update, or a patch other than apply.
    Update,
}

impl Operation {
    /// Returns the value of the entry's `operation` field.
    pub fn as_str(self) -> &'static str {
        match self {
            Operation::Apply => "Apply",
            Operation::Update => "Update",
        }
    }
}

/// One field manager: an entry of `managedFields`.
#[derive(Clone, Debug, PartialEq)]
pub struct Manager {
    /// The name of the manager.
    pub name: Str,
    /// How it wrote its fields.
    pub operation: Operation,
    /// The version that the paths of `fields` belong to.
    pub api_version: Str,
    /// The subresource through which it wrote, or empty.
    pub subresource: Str,
    /// When its fields last changed: RFC 3339 with seconds.
    pub time: Option<Str>,
    fields: FieldSet,
    /// The FieldsV1 text of `fields`, unless they have changed since decoding. Saves encoding them
    /// again.
    encoded: Option<Value>,
}

impl Manager {
    /// Returns the fields that the manager owns.
    pub fn fields(&self) -> &FieldSet {
        &self.fields
    }

    /// Changes the fields. `change` returns whether it changed them.
    fn change(&mut self, change: impl FnOnce(&mut FieldSet) -> bool) {
        if change(&mut self.fields) {
            self.encoded = None;
        }
    }

    /// Returns whether two entries belong to the same manager. The version is ignored for `Apply`.
    fn is_same(&self, other: &Manager) -> bool {
        self.name == other.name
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    /// Returns what two entries have in common if [`Manager::is_same`].
    fn identity(&self) -> Identity {
        let api_version = match self.operation {
            Operation::Apply => Str::default(),
            Operation::Update => self.api_version.clone(),
        };
        let name = self.name.clone();
        let subresource = self.subresource.clone();
        Identity { name, operation: self.operation, api_version, subresource }
    }

    /// Compares managers as upstream does: by the JSON text of name, operation, version and
    /// subresource.
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

    /// Returns the time for sorting. An entry without a time is the oldest.
    fn time_key(&self) -> &str {
        self.time.as_deref().unwrap_or("1970-01-01T00:00:00Z")
    }
}

/// The identity of a manager, by which many entries are looked up.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    name: Str,
    operation: Operation,
    /// Empty for `Apply`.
    api_version: Str,
    subresource: Str,
}

/// Up to this number, entries are searched one by one. There is no maximum, as in kube-apiserver:
/// an object may have as many appliers as fit its size.
const LINEAR_MANAGERS_MAX: usize = 16;

/// All field managers of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Managers {
    /// Invariant: no two entries belong to the same manager.
    list: Vec<Manager>,
}

impl Managers {
    /// Iterates over the managers.
    pub fn iter(&self) -> impl Iterator<Item = &Manager> {
        self.list.iter()
    }

    /// Returns whether there is no manager.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Sets the version and fields of an applier and keeps its time. Returns the previous version
    /// and fields if either changed.
    pub(crate) fn replace(
        &mut self,
        applier: &Manager,
        fields: FieldSet,
    ) -> Option<(Str, FieldSet)> {
        let Some(entry) = self.list.iter_mut().find(|entry| entry.is_same(applier)) else {
            self.list.push(Manager { fields, ..applier.clone() });
            return None;
        };
        let version = std::mem::replace(&mut entry.api_version, applier.api_version.clone());
        if entry.fields == fields {
            return (version != entry.api_version).then_some((version, fields));
        }
        entry.encoded = None;
        Some((version, std::mem::replace(&mut entry.fields, fields)))
    }

    /// Returns the fields of all managers of a version.
    pub(crate) fn owned_at(&self, version: &str) -> FieldSet {
        let of_version = self.list.iter().filter(|manager| manager.api_version == version);
        FieldSet::union(of_version.map(|manager| manager.fields.clone()).collect())
    }

    /// Returns the versions of the managers, without duplicates.
    pub(crate) fn versions(&self) -> Vec<Str> {
        let mut versions: Vec<Str> = vec![];
        for manager in &self.list {
            if !versions.contains(&manager.api_version) {
                versions.push(manager.api_version.clone());
            }
        }
        versions
    }

    /// Sets the time of an applier.
    pub(crate) fn set_time(&mut self, applier: &Manager, now: &str) {
        if let Some(entry) = self.list.iter_mut().find(|entry| entry.is_same(applier)) {
            entry.time = Some(Str::new(now));
        }
    }

    /// Inserts a manager, or replaces its entry. Costs O(entries).
    fn put(&mut self, manager: Manager) {
        match self.list.iter_mut().find(|entry| entry.is_same(&manager)) {
            Some(entry) => *entry = manager,
            None => self.list.push(manager),
        }
    }

    /// Inserts managers in order, or replaces their entries. Costs O(1) each.
    fn put_all(
        &mut self,
        managers: impl Iterator<Item = Result<Manager, InvalidEntry>>,
    ) -> Result<(), InvalidEntry> {
        let mut places: HashMap<Identity, usize> = HashMap::new();
        for manager in managers {
            let manager = manager?;
            if self.list.len() < LINEAR_MANAGERS_MAX {
                self.put(manager);
                continue;
            }
            if places.is_empty() {
                places = self.places();
            }
            match places.entry(manager.identity()) {
                Entry::Occupied(place) => self.list[*place.get()] = manager,
                Entry::Vacant(place) => {
                    place.insert(self.list.len());
                    self.list.push(manager);
                }
            }
        }
        Ok(())
    }

    /// Returns the index of each manager.
    fn places(&self) -> HashMap<Identity, usize> {
        self.list.iter().map(Manager::identity).zip(0..).collect()
    }
}

/// Creates a manager without fields.
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

/// The fields that no manager owns.
pub(crate) static UNMANAGED: LazyLock<FieldSet> = LazyLock::new(|| {
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
