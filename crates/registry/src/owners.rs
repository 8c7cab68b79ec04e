//! Field managers: updates of `metadata.managedFields`, with the rules of the apply crate.

use crate::api_table::Source;
use crate::conversion::Conversions;
use crate::kind::{Kind, Target};
use crate::options::WriteOptions;
use crate::registry::Registry;
use crate::write::Part;
use keelson_apply::apply::{self, Request};
use keelson_apply::fields::{FieldSet, Filter};
use keelson_apply::managed::{self, Scope};
use keelson_kinds::StatusMetadata;
use keelson_kinds::strategy::ResetFields;
use keelson_meta::{Failure, GroupVersion, Object, Reason, Status, Timestamp, Value};
use keelson_schema::{Schema, decode};
use std::sync::{LazyLock, Mutex, PoisonError};

/// The resource or subresource of a write. managedFields entries have its version and its name.
pub(crate) struct Endpoint<'a> {
    /// The schema of the objects that are read and written there.
    pub schema: &'a Schema,
    /// The subresource, or empty.
    subresource: &'a str,
    /// The fields that managers can own.
    filter: Option<&'static Filter>,
    /// The kind, for conversion to other versions; `None` where there is only one.
    kind: Option<&'a Kind>,
    /// The results of a conversion webhook.
    conversions: Option<&'a Conversions>,
    /// The error of a conversion that cannot be compared.
    fault: Mutex<Option<String>>,
}

impl<'a> Endpoint<'a> {
    /// Returns the endpoint of an object, or of a subresource with the object's own kind.
    pub fn of(target: &'a Target, part: Part) -> Endpoint<'a> {
        let filter = excluded(target, part);
        let subresource = part.name();
        let (schema, kind) = (target.schema(), Some(&*target.kind));
        let fault = Mutex::default();
        Endpoint { schema, subresource, filter, kind, conversions: None, fault }
    }

    /// Whether the version is the storage version, or the only one.
    pub fn is_storage(&self) -> bool {
        self.kind.is_none_or(|kind| kind.storage.gvk == self.schema.gvk)
    }

    /// Like [`Endpoint::of`], for a kind that may have a conversion webhook.
    pub fn converting(
        target: &'a Target,
        part: Part,
        conversions: &'a Conversions,
    ) -> Endpoint<'a> {
        Endpoint { conversions: Some(conversions), ..Endpoint::of(target, part) }
    }

    /// Returns the endpoint of a subresource with a kind of its own, such as Scale.
    pub fn with_own_kind(schema: &'a Schema, subresource: &'a str) -> Endpoint<'a> {
        let fault = Mutex::default();
        Endpoint { schema, subresource, filter: None, kind: None, conversions: None, fault }
    }

    /// Calls `work` with the scope that the apply crate needs.
    fn scoped<T>(&self, work: impl FnOnce(&Scope<'_>) -> T) -> T {
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
            let from = kind.versions.iter().find(|from| from.gvk.api_version() == given);
            let from = from.unwrap_or(self.schema);
            let converted = match kind.webhook {
                Some(_) if from.gvk != to.gvk => self.conversions?.get(obj, from, to)?,
                _ => obj.clone(),
            };
            Some((to.clone(), self.canonical(to, converted)?))
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
    fn canonical(&self, to: &Schema, object: Object) -> Option<Object> {
        let canonical = decode::canonicalize(to, object.into_value()).ok()?;
        if let Some(unknown) = canonical.strict_errors.first() {
            let field = unknown.trim_start_matches("unknown field ").trim_matches('"');
            let why = format!(".{field}: field not declared in schema");
            self.fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
        }
        Some(canonical.object)
    }

    fn take_fault(&self) -> Option<String> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Records the field manager of the fields that an update changed.
    pub fn updated(&self, old: &Object, new: &mut Object, options: &WriteOptions, now: Timestamp) {
        let (manager, now) = (&options.field_manager, now.text());
        self.scoped(|scope| managed::update(scope, manager, &now, Some(old), new));
        // Upstream lets the write succeed and drops all managed fields.
        if self.take_fault().is_some() {
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
        let applied = self.scoped(|scope| apply::apply(scope, &request, live, config))?;
        if let Some(fault) = self.take_fault() {
            let name = format!("{}/{}", live.namespace(), live.name());
            let gvk = &self.schema.gvk;
            let why = format!("failed to convert merged object ({name}; {gvk}): {fault}");
            return Err(Status::new(Reason::Unknown, why));
        }
        Ok(applied.object)
    }
}

/// Returns the filter for the fields that a write to this subresource cannot change, so that its
/// manager does not own them.
fn excluded(target: &Target, part: Part) -> Option<&'static Filter> {
    macro_rules! all_but {
        ($($path:expr),*) => {{
            static FILTER: LazyLock<Filter> =
                LazyLock::new(|| Filter::Exclude(FieldSet::of_fields(&[$(&$path),*])));
            Some(&*FILTER)
        }};
    }
    let is_approved = target.kind.strategy.reset_fields == ResetFields::CertificateApproval;
    match part {
        Part::Main if is_approved => all_but!(["spec"], ["status"]),
        Part::Other("approval") if is_approved => {
            all_but!(["spec"], ["status", "certificate"])
        }
        Part::Status if is_approved => all_but!(["spec"], ["status", "conditions"]),
        Part::Main if target.kind.has_status => all_but!(["status"]),
        Part::Status => match target.kind.strategy.status_metadata {
            StatusMetadata::Free => all_but!(["spec"]),
            StatusMetadata::KeepLabels => all_but!(["spec"], ["metadata", "labels"]),
            StatusMetadata::Keep | StatusMetadata::KeepAll => all_but!(["spec"], ["metadata"]),
        },
        Part::Main | Part::Other(_) | Part::Effect(_) => None,
    }
}

/// Records the field manager of all fields of a new object.
pub(crate) fn created(target: &Target, obj: &mut Object, manager: &str, now: Timestamp) {
    let now = now.text();
    let endpoint = Endpoint::of(target, Part::Main);
    endpoint.scoped(|scope| managed::update(scope, manager, &now, None, obj));
}

impl Registry {
    /// Records the field manager of an object that is answered and not stored.
    pub fn note_manager(
        &self,
        schema: &Schema,
        subresource: &str,
        obj: &mut Object,
        options: &WriteOptions,
    ) {
        let (manager, now) = (&options.field_manager, self.clock.now().text());
        let endpoint = Endpoint::with_own_kind(schema, subresource);
        endpoint.scoped(|scope| managed::update(scope, manager, &now, None, obj));
    }
}

/// Restores the times of managedFields entries if an update changed nothing else.
pub(crate) fn restore_times(old: &Object, new: &mut Object) {
    managed::restore_times(old, new);
}
