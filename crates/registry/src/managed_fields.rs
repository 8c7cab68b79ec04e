//! Field managers: updates of `metadata.managedFields`, with the rules of the apply crate.

use crate::conversion::Conversions;
use crate::options::WriteOptions;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::Subresource;
use keelson_apply::apply::{self, Request};
use keelson_apply::fields::{FieldSet, Filter};
use keelson_apply::managed::{self, Scope};
use keelson_kinds::StatusMetadata;
use keelson_kinds::strategy::ResetFields;
use keelson_meta::{Failure, GroupVersion, Object, Reason, Status, Timestamp, Value};
use keelson_resources::Kind;
use keelson_resources::api_table::Source;
use keelson_schema::{Schema, decode};
use std::sync::{LazyLock, Mutex, PoisonError};

/// Updates the managedFields of objects that are written through one version of a resource or
/// subresource (upstream's `FieldManager`).
pub(crate) struct FieldManager<'a> {
    /// The schema of the objects that are read and written there.
    pub schema: &'a Schema,
    subresource: &'a str,
    /// The fields that managers can own.
    filter: Option<&'static Filter>,
    /// The kind, for conversion to other versions; `None` where there is only one.
    kind: Option<&'a Kind>,
    /// The results of a conversion webhook.
    conversions: Option<&'a Conversions>,
    /// The error of a conversion that cannot be compared.
    conversion_error: Mutex<Option<String>>,
}

impl<'a> FieldManager<'a> {
    /// Returns the manager for an object, or for a subresource with the object's own kind.
    pub fn of(target: &'a Target, subresource: Subresource) -> FieldManager<'a> {
        let filter = field_filter(target, subresource);
        let name = subresource.name();
        let schema = target.schema();
        let kind = Some(&*target.kind);
        let conversion_error = Mutex::default();
        FieldManager {
            schema,
            subresource: name,
            filter,
            kind,
            conversions: None,
            conversion_error,
        }
    }

    /// Whether the version is the storage version, or the only one.
    pub fn is_storage(&self) -> bool {
        self.kind.is_none_or(|kind| kind.storage.gvk == self.schema.gvk)
    }

    /// Like [`FieldManager::of`], for a kind that may have a conversion webhook.
    pub fn converting(
        target: &'a Target,
        subresource: Subresource,
        conversions: &'a Conversions,
    ) -> FieldManager<'a> {
        FieldManager { conversions: Some(conversions), ..FieldManager::of(target, subresource) }
    }

    /// Returns the manager for a subresource with a kind of its own, such as Scale.
    pub fn with_own_kind(schema: &'a Schema, subresource: &'a str) -> FieldManager<'a> {
        let conversion_error = Mutex::default();
        FieldManager {
            schema,
            subresource,
            filter: None,
            kind: None,
            conversions: None,
            conversion_error,
        }
    }

    /// Calls `work` with the scope that the apply crate needs.
    fn with_scope<T>(&self, work: impl FnOnce(&Scope<'_>) -> T) -> T {
        let convert = |obj: &Object, version: &GroupVersion| -> Option<(Schema, Object)> {
            let Some(kind) = self.kind else {
                let same = self.schema.gvk.group_version() == *version;
                return same.then(|| (self.schema.clone(), obj.clone()));
            };
            let to = kind.versions.iter().find(|to| to.gvk.group_version() == *version)?;
            if kind.source == Source::BuiltIn {
                return Some((to.clone(), kind.convert(obj.clone(), self.schema, to)));
            }
            let given = obj.api_version();
            let from = kind
                .versions
                .iter()
                .find(|from| from.gvk.api_version() == given)
                .unwrap_or(self.schema);
            let converted = match kind.has_conversion_webhook {
                true if from.gvk != to.gvk => self.conversions?.get(obj, from, to)?,
                _ => obj.clone(),
            };
            Some((to.clone(), self.canonicalize(to, converted)?))
        };
        work(&Scope {
            schema: self.schema,
            subresource: self.subresource,
            filter: self.filter,
            convert: &convert,
        })
    }

    /// Canonicalizes a custom resource in another version. A field that the version does not have
    /// is an error, because upstream does not prune objects for the comparison.
    fn canonicalize(&self, to: &Schema, object: Object) -> Option<Object> {
        let canonical = decode::canonicalize(to, object.into_value()).ok()?;
        if let Some(unknown) = canonical.strict_errors.first() {
            let field = unknown.trim_start_matches("unknown field ").trim_matches('"');
            let why = format!(".{field}: field not declared in schema");
            self.conversion_error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        }
        Some(canonical.object)
    }

    fn take_conversion_error(&self) -> Option<String> {
        self.conversion_error.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Records the field manager of the fields that an update changed.
    pub fn update(&self, old: &Object, new: &mut Object, options: &WriteOptions, now: Timestamp) {
        let name = &options.field_manager;
        let now = now.text();
        self.with_scope(|scope| managed::update(scope, name, &now, Some(old), new));
        // Upstream lets the write succeed and drops all managed fields.
        if self.take_conversion_error().is_some() {
            new.metadata_mut().remove("managedFields");
        }
    }

    /// Applies a configuration (server-side apply).
    pub fn apply(
        &self,
        live: Option<&Object>,
        config: &Value,
        options: &WriteOptions,
        now: Timestamp,
    ) -> Result<Object, Failure> {
        let now = now.text();
        let request = Request { manager: &options.field_manager, force: options.force, now: &now };
        let none = Object::new();
        let live = live.unwrap_or(&none);
        let applied = self.with_scope(|scope| apply::apply(scope, &request, live, config))?;
        if let Some(error) = self.take_conversion_error() {
            let name = format!("{}/{}", live.namespace(), live.name());
            let gvk = &self.schema.gvk;
            let why = format!("failed to convert merged object ({name}; {gvk}): {error}");
            return Err(Status::new(Reason::Unknown, why));
        }
        Ok(applied.object)
    }
}

/// Returns the filter for fields that a write to this subresource cannot change and so cannot own.
fn field_filter(target: &Target, subresource: Subresource) -> Option<&'static Filter> {
    macro_rules! exclude {
        ($($path:expr),*) => {{
            static FILTER: LazyLock<Filter> =
                LazyLock::new(|| Filter::Exclude(FieldSet::of_fields(&[$(&$path),*])));
            Some(&*FILTER)
        }};
    }
    let is_approved = target.kind.strategy.reset_fields == ResetFields::CertificateApproval;
    match subresource {
        Subresource::None if is_approved => exclude!(["spec"], ["status"]),
        // Its only other subresource: the approval.
        Subresource::Other(_) if is_approved => {
            exclude!(["spec"], ["status", "certificate"])
        }
        Subresource::Status if is_approved => exclude!(["spec"], ["status", "conditions"]),
        Subresource::None if target.kind.has_status => exclude!(["status"]),
        Subresource::Status => match target.kind.strategy.status_metadata {
            StatusMetadata::Free => exclude!(["spec"]),
            StatusMetadata::KeepLabels => exclude!(["spec"], ["metadata", "labels"]),
            StatusMetadata::KeepOwners => exclude!(
                ["spec"],
                ["metadata", "deletionTimestamp"],
                ["metadata", "ownerReferences"]
            ),
            StatusMetadata::KeepUserFields | StatusMetadata::Keep | StatusMetadata::KeepAll => {
                exclude!(["spec"], ["metadata"])
            }
        },
        Subresource::Other(_)
            if target.kind.strategy.reset_fields == ResetFields::StatusEverywhere =>
        {
            exclude!(["status"])
        }
        Subresource::None | Subresource::Other(_) | Subresource::Action(_) => None,
    }
}

/// Records the field manager of all fields of a new object.
pub(crate) fn record_create(target: &Target, obj: &mut Object, name: &str, now: Timestamp) {
    let now = now.text();
    let manager = FieldManager::of(target, Subresource::None);
    manager.with_scope(|scope| managed::update(scope, name, &now, None, obj));
}

impl Registry {
    /// Records the field manager of an object that is answered and not stored.
    pub fn set_field_manager(
        &self,
        schema: &Schema,
        subresource: &str,
        obj: &mut Object,
        options: &WriteOptions,
    ) {
        let name = &options.field_manager;
        let now = self.clock.now().text();
        let manager = FieldManager::with_own_kind(schema, subresource);
        manager.with_scope(|scope| managed::update(scope, name, &now, None, obj));
    }
}

/// Restores the times of managedFields entries if an update changed nothing else.
pub(crate) fn restore_times(old: &Object, new: &mut Object) {
    managed::restore_times(old, new);
}
