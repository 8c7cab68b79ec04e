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
use keelson_meta::{Failure, GroupVersion, Object, Timestamp, Value};
use keelson_resources::Kind;
use keelson_resources::api_table::Source;
use keelson_schema::{Schema, decode};
use std::sync::LazyLock;

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
}

impl<'a> FieldManager<'a> {
    /// Returns the manager for an object, or for a subresource with the object's own kind.
    pub fn of(target: &'a Target, subresource: Subresource) -> FieldManager<'a> {
        let filter = field_filter(target, subresource);
        let name = subresource.name();
        let schema = target.schema();
        let kind = Some(&*target.kind);
        FieldManager { schema, subresource: name, filter, kind, conversions: None }
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
        FieldManager { schema, subresource, filter: None, kind: None, conversions: None }
    }

    /// Calls `work` with the scope that the apply crate needs.
    fn with_scope<T>(&self, work: impl FnOnce(&Scope<'_>) -> T) -> T {
        let convert = |obj: &Object, version: &GroupVersion| match self.kind {
            None => {
                let same = self.schema.gvk.group_version() == *version;
                Ok(same.then(|| (self.schema.clone(), obj.clone())))
            }
            Some(kind) if kind.source == Source::BuiltIn => {
                let to = kind.versions.iter().find(|to| to.gvk.group_version() == *version);
                Ok(to.map(|to| (to.clone(), kind.convert(obj.clone(), self.schema, to))))
            }
            Some(kind) => self.convert_custom(kind, obj, version),
        };
        work(&Scope {
            schema: self.schema,
            subresource: self.subresource,
            filter: self.filter,
            convert: &convert,
        })
    }

    /// Converts a custom resource to another version, served or not; `None`: a webhook has to be
    /// called first. A version that the definition does not have, or a field that the version does
    /// not have, is an error: upstream does not prune objects for the comparison.
    fn convert_custom(
        &self,
        kind: &Kind,
        obj: &Object,
        version: &GroupVersion,
    ) -> Result<Option<(Schema, Object)>, String> {
        let Some(to) = kind.any_version(version) else {
            return Err(format!("request to convert CR to an invalid group/version: {version}"));
        };
        let from = GroupVersion::parse(obj.api_version());
        let from = from.and_then(|from| kind.any_version(&from)).unwrap_or(self.schema);
        let needs_webhook = kind.has_conversion_webhook && from.gvk != to.gvk;
        let converted = match (needs_webhook, self.conversions) {
            (true, Some(conversions)) => match conversions.get(obj, from, to) {
                Some(converted) => converted,
                None => return Ok(None),
            },
            (true, None) => return Ok(None),
            (false, _) => obj.clone(),
        };
        let canonical = decode::canonicalize(to, converted.into_value())?;
        let unknown: Vec<String> =
            canonical.strict_errors.iter().map(|why| undeclared(why)).collect();
        match &unknown[..] {
            [] => Ok(Some((to.clone(), canonical.object))),
            [one] => Err(one.clone()),
            several => Err(format!("errors:\n  {}", several.join("\n  "))),
        }
    }

    /// Records the field manager of the fields that an update changed.
    pub fn update(&self, old: &Object, new: &mut Object, options: &WriteOptions, now: Timestamp) {
        let name = &options.field_manager;
        let now = now.text();
        self.with_scope(|scope| managed::update(scope, name, &now, Some(old), new));
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
        Ok(applied.object)
    }
}

/// Returns what structured-merge-diff says of an unknown field, given `unknown field "spec.a"`.
fn undeclared(why: &str) -> String {
    let field = why.trim_start_matches("unknown field ").trim_matches('"');
    format!(".{field}: field not declared in schema")
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
