//! [`Strategy`]: the rules of a kind that its schema cannot express, as data and small functions.
//! Like upstream's `rest.RESTCreateStrategy` and `rest.RESTUpdateStrategy`. Strategies do no IO and
//! know nothing of HTTP.

use crate::equality;
use crate::gated_fields::{self, GatedFields};
use crate::gates::{self, Gates};
use keelson_meta::names::{self, NameRule};
use keelson_meta::{
    ErrorList, Feature, Features, Map, Object, Path, Str, User, Value, field_selector,
};
use keelson_schema::Schema;
use smallvec::SmallVec;

/// The action of a container's restart rule that restarts all containers.
pub(crate) const RESTART_ALL: &str = "RestartAllContainers";

/// When `metadata.generation` is incremented. It starts at 1 unless a variant says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generation {
    /// The kind does not use it.
    #[default]
    Unused,
    /// Never: it stays 1.
    First,
    /// When anything except metadata and status changes.
    OnSpecChange,
    /// Like [`Generation::OnSpecChange`], but an empty list or map differs from an absent one.
    OnSpecChangeStrict,
    /// When anything except metadata changes. An empty list differs from an absent one.
    OnChange {
        /// Whether a change of `status` counts: only where it is not a subresource.
        status_counts: bool,
    },
    /// When annotations, or anything except metadata and status, change.
    OnSpecOrAnnotationChange,
    /// Like [`Generation::OnSpecChange`], but absent in a new object.
    OnSpecChangeFromNone,
    /// When labels, or anything except metadata and status, change.
    OnSpecOrLabelChange,
}

/// The metadata that a write to the `status` subresource may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusMetadata {
    /// Everything that an update may change.
    #[default]
    Free,
    /// Everything except labels.
    KeepLabels,
    /// Everything except owner references and the deletion.
    KeepOwners,
    /// Neither labels, annotations, finalizers nor owner references.
    KeepUserFields,
    /// What [`StatusMetadata::KeepUserFields`] allows, except the generation, the link and the
    /// deletion.
    Keep,
    /// Only `managedFields`.
    KeepAll,
}

/// The `propagationPolicy` of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents stay and lose their owner reference.
    Orphan,
    /// Dependents are deleted after the object.
    Background,
    /// Dependents are deleted before the object.
    Foreground,
}

impl Propagation {
    /// Returns the value in `DeleteOptions`.
    pub fn name(self) -> &'static str {
        match self {
            Propagation::Orphan => "Orphan",
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
        }
    }
}

/// Returns the grace period of a deletion in seconds. `requested` is that of `DeleteOptions`.
pub type GracePeriod = fn(&Object, requested: Option<i64>) -> i64;

/// The fields that a write resets, so that no field manager owns them through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResetFields {
    /// The main resource resets `status`, the status subresource everything else.
    #[default]
    Standard,
    /// The spec is immutable. `approval` resets all but the conditions, `status` all but the
    /// certificate.
    CertificateApproval,
    /// As standard, and the other subresources reset `status`, too.
    StatusEverywhere,
}

/// The default propagation policy of a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GarbageCollection {
    /// They are deleted in the background.
    #[default]
    DeleteDependents,
    /// They are orphaned.
    OrphanDependents,
    /// Dependents are not garbage collected, whatever `propagationPolicy` says.
    Unsupported,
}

/// One step of validation. A kind lists its steps in upstream's order. Some kinds validate metadata
/// twice or not at all, which shows in the errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The metadata, as of a new object.
    Metadata,
    /// The changes of metadata in an update.
    MetadataChange,
    /// The rules of the kind or of the written subresource.
    Rules,
    /// The changes outside metadata in an update ([`Strategy::validate_change`]).
    Change,
}

/// Validates a new object, or an update of `old`.
pub type Validate = fn(new: &Object, old: Option<&Object>) -> ErrorList;

/// Validates after all other rules, and inserts its errors among theirs.
pub type ValidateLast = fn(new: &Object, old: Option<&Object>, errors: &mut ErrorList);

/// Validates a new object in a namespace with these labels.
pub type ValidateInNamespace = fn(new: &Object, labels: &dyn Fn() -> Vec<(Str, Str)>) -> ErrorList;

/// Validates a status in a namespace with these labels.
pub type ValidateStatusInNamespace =
    fn(new: &Object, old: &Object, labels: &dyn Fn() -> Vec<(Str, Str)>) -> ErrorList;

/// The rules of a subresource that writes a part of the object, other than `status`.
#[derive(Clone, Copy)]
pub struct SubresourceStrategy {
    /// The name in the URL.
    pub name: &'static str,
    /// Restores the fields that the subresource may not change.
    pub prepare: fn(new: &mut Object, old: &Object),
    /// Validates the write.
    pub validate: Validate,
}

/// The rules of one kind.
#[derive(Clone, Copy)]
pub struct Strategy {
    /// Validates names.
    pub name_rule: NameRule,
    /// Whether PUT creates an object that does not exist (`AllowCreateOnUpdate`).
    pub create_on_update: bool,
    /// Whether PUT without a resourceVersion overwrites (`AllowUnconditionalUpdate`).
    pub unconditional_update: bool,
    /// Whether DELETE returns the object instead of a Status.
    pub returns_deleted: bool,
    /// Whether an object without a name gets a generated one, in the form of a UID.
    pub generates_missing_name: bool,
    /// Returns why the object of this name may not be deleted; `None` when it may.
    pub deletion_forbidden: fn(name: &str) -> Option<&'static str>,
    /// Whether create keeps the status that the client sent.
    pub status_on_create: bool,
    /// When `metadata.generation` is incremented.
    pub generation: Generation,
    /// The metadata that a write to `status` may change.
    pub status_metadata: StatusMetadata,
    /// The fields that a write resets, so that no field manager owns them through it.
    pub reset_fields: ResetFields,
    /// Whether a deleted object stays, terminating, until its content is deleted, as a Namespace
    /// does.
    pub has_content: bool,
    /// Whether a deletion compares its preconditions before it reaches the store, with messages of
    /// its own.
    pub early_preconditions: bool,
    /// Sets defaults that depend on other fields.
    pub default: fn(&mut Object),
    /// Sets defaults that are the current time.
    pub default_time: Option<fn(&mut Object, now: &str)>,
    /// Sets server-owned fields of a new object (`PrepareForCreate`).
    pub prepare_create: fn(&mut Object),
    /// Records the user in a new object.
    pub record_user: fn(&mut Object, &User),
    /// Sets server-owned fields of an update (`PrepareForUpdate`).
    pub prepare_update: fn(new: &mut Object, old: &Object),
    /// Drops fields that an update may not set, after the generation is computed.
    pub drop_after_generation: fn(new: &mut Object, old: &Object),
    /// Sets server-owned fields of a status update.
    pub prepare_status: fn(new: &mut Object, old: &Object),
    /// Records the time of a change in an updated object.
    pub record_time: fn(new: &mut Object, old: &Object, now: &str),
    /// The rules of the kind.
    pub validate: Validate,
    /// Rules of a new object that depend on the labels of its namespace. Their errors come first.
    pub validate_in_namespace: Option<ValidateInNamespace>,
    /// Rules of a status that depend on the labels of its namespace. Their errors come before those
    /// of the kind.
    pub validate_status_in_namespace: Option<ValidateStatusInNamespace>,
    /// Rules about the changes in an update that are not part of [`Strategy::validate`].
    pub validate_change: Validate,
    /// Rules that run last, except for a status update.
    pub validate_last: Option<ValidateLast>,
    /// The rules of a status update.
    pub validate_status: Validate,
    /// The validation steps of a new object.
    pub create_checks: &'static [Check],
    /// The validation steps of an update.
    pub update_checks: &'static [Check],
    /// The validation steps of a status update.
    pub status_checks: &'static [Check],
    /// Whether finalizers without a domain must be standard ones.
    pub standard_finalizers: bool,
    /// The rules of subresources, other than `status`, that write a part of the object.
    pub subresources: &'static [SubresourceStrategy],
    /// Returns whether something besides `metadata.finalizers` delays the deletion, such as
    /// `spec.finalizers`.
    pub is_deletion_blocked: fn(&Object) -> bool,
    /// Returns warnings about an object as the client sent it, whether or not it is valid.
    pub prepare_warnings: fn(&Object) -> Vec<Str>,
    /// Returns warnings about a valid object.
    pub warnings: fn(new: &Object, old: Option<&Object>) -> Vec<Str>,
    /// Whether objects expire some time after their last write (`--event-ttl`).
    pub expires: bool,
    /// Changes an object on deletion when a controller must clean up before it is removed.
    pub terminate: Option<fn(&mut Object, now: &str)>,
    /// The default propagation policy.
    pub garbage_collection: GarbageCollection,
    /// The warning for a deletion without a propagation policy.
    pub deletion_warning: Option<&'static str>,
    /// Sets what the object of a bookmark has beside its metadata.
    pub fill_bookmark: Option<fn(&mut Object)>,
    /// The grace period of deletions; `None`: they are immediate.
    pub grace_period: Option<GracePeriod>,
    /// Whether a new object without labels gets those of its pod template, including those that
    /// [`Strategy::prepare_create`] adds to the template.
    pub labels_from_template: bool,
    /// Whether field managers are computed from the object after a conversion to the storage
    /// version and back.
    pub manages_converted_fields: bool,
    /// Whether a field is stored as the text that the client sent (`runtime.RawExtension`).
    pub has_raw_extension: bool,
    /// The selectable fields.
    pub fields: &'static [SelectableField],
    /// Those of `fields` and of the metadata that selectors do not know; a final dot stands for all
    /// below.
    pub not_selectable: &'static [&'static str],
    /// Makes the error for an unknown field; `None`: one of the common errors.
    pub selector_error: Option<fn(&str) -> String>,
    /// The feature gates during the rules.
    pub features: Features,
    /// Whether containers may be privileged (`--allow-privileged`).
    pub allows_privileged: bool,
    /// Fields of the main resource behind feature gates.
    pub gated: &'static [GatedFields],
    /// Fields of the status behind feature gates.
    pub gated_status: &'static [GatedFields],
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Strategy").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// A field that field selectors can use.
#[derive(Clone, Copy, Debug)]
pub struct SelectableField {
    /// The name in selectors.
    pub name: &'static str,
    /// The paths of the value; the first one that is set is used.
    pub paths: &'static [&'static [&'static str]],
    /// The value of an unset field.
    pub unset: &'static str,
}

impl Strategy {
    /// The defaults, which most kinds share.
    pub const GENERIC: Strategy = Strategy {
        name_rule: names::name_is_dns_subdomain,
        create_on_update: false,
        unconditional_update: true,
        returns_deleted: false,
        generates_missing_name: false,
        deletion_forbidden: |_| None,
        status_on_create: false,
        generation: Generation::Unused,
        status_metadata: StatusMetadata::Free,
        reset_fields: ResetFields::Standard,
        has_content: false,
        early_preconditions: false,
        default: |_| (),
        default_time: None,
        prepare_create: |_| (),
        record_user: |_, _| (),
        prepare_update: |_, _| (),
        drop_after_generation: |_, _| (),
        prepare_status: |_, _| (),
        record_time: |_, _, _| (),
        validate: |_, _| ErrorList::new(),
        validate_in_namespace: None,
        validate_status_in_namespace: None,
        validate_change: |_, _| ErrorList::new(),
        validate_last: None,
        validate_status: |_, _| ErrorList::new(),
        create_checks: &[Check::Metadata, Check::Rules],
        update_checks: &[Check::MetadataChange, Check::Rules, Check::Change],
        status_checks: &[Check::MetadataChange, Check::Rules],
        standard_finalizers: true,
        subresources: &[],
        is_deletion_blocked: |_| false,
        prepare_warnings: |_| vec![],
        warnings: |_, _| vec![],
        expires: false,
        terminate: None,
        garbage_collection: GarbageCollection::DeleteDependents,
        deletion_warning: None,
        fill_bookmark: None,
        grace_period: None,
        labels_from_template: false,
        manages_converted_fields: false,
        has_raw_extension: false,
        fields: &[],
        not_selectable: &[],
        selector_error: None,
        features: Features::DEFAULT,
        allows_privileged: true,
        gated: &[],
        gated_status: &[],
    };

    /// Sets whether containers may be privileged.
    #[must_use]
    pub fn allow_privileged(self, allows_privileged: bool) -> Self {
        Strategy { allows_privileged, ..self }
    }

    fn gates(&self) -> Gates {
        Gates { features: self.features, allows_privileged: self.allows_privileged }
    }

    /// Sets defaults that depend on other fields.
    pub fn default(&self, obj: &mut Object) {
        gates::within(self.gates(), || (self.default)(obj));
    }

    /// Drops disabled fields of a new object and sets its server-owned fields.
    pub fn prepare_create(&self, obj: &mut Object) {
        gates::within(self.gates(), || {
            gated_fields::drop_disabled(self.gated, obj, None);
            (self.prepare_create)(obj);
        });
    }

    /// Drops disabled fields of an update and sets its server-owned fields.
    pub fn prepare_update(&self, new: &mut Object, old: &Object) {
        gates::within(self.gates(), || {
            gated_fields::drop_disabled(self.gated, new, Some(old));
            (self.prepare_update)(new, old);
        });
    }

    /// Drops disabled fields of a status update and sets its server-owned fields.
    pub fn prepare_status(&self, new: &mut Object, old: &Object) {
        gates::within(self.gates(), || {
            gated_fields::drop_disabled(self.gated_status, new, Some(old));
            (self.prepare_status)(new, old);
        });
    }

    /// Restores the fields that a subresource may not change.
    pub fn prepare_subresource(&self, rules: &SubresourceStrategy, new: &mut Object, old: &Object) {
        gates::within(self.gates(), || (rules.prepare)(new, old));
    }

    /// Returns the warnings about a valid object.
    pub fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<Str> {
        gates::within(self.gates(), || (self.warnings)(new, old))
    }

    /// Runs the validation steps of a write in order. `rules` are those of the written resource or
    /// subresource.
    pub fn check(
        &self,
        checks: &[Check],
        rules: Validate,
        new: &Object,
        old: Option<&Object>,
        namespaced: bool,
    ) -> ErrorList {
        let mut errors = ErrorList::new();
        let rules = |new: &Object, old: Option<&Object>| {
            let uses = || old.is_some_and(restarts_all_containers);
            gates::within(self.gates(), || {
                gates::with_used(Feature::RestartAllContainersOnContainerExits, uses, || {
                    rules(new, old)
                })
            })
        };
        let change = |new, old| gates::within(self.gates(), || (self.validate_change)(new, old));
        for check in checks {
            match (check, old) {
                (Check::Metadata, _) => {
                    errors.extend(gates::within(self.gates(), || {
                        validate_metadata(new, namespaced, self.name_rule)
                    }));
                    errors.extend(self.validate_finalizers(new));
                }
                (Check::MetadataChange, Some(old)) => {
                    errors.extend(validate_metadata_update(new, old));
                    errors.extend(self.validate_finalizers(new));
                }
                (Check::Rules, _) => errors.extend(rules(new, old)),
                (Check::Change, _) => errors.extend(change(new, old)),
                (Check::MetadataChange, None) => {}
            }
        }
        errors
    }

    /// Validates the finalizers of a built-in kind.
    fn validate_finalizers(&self, obj: &Object) -> ErrorList {
        let finalizers = obj.array_at(&["metadata", "finalizers"]);
        if !self.standard_finalizers || finalizers.is_empty() {
            return ErrorList::new();
        }
        let metadata = Path::new("metadata");
        let path = metadata.field("finalizers");
        keelson_meta::object_meta::validate_built_in_finalizers(finalizers, &path)
    }

    /// Returns the rules of a subresource other than `status`.
    pub fn subresource(&self, name: &str) -> Option<&'static SubresourceStrategy> {
        self.subresources.iter().find(|rules| rules.name == name)
    }

    /// Returns the names and values of an object's selectable fields.
    pub fn selectable(&self, obj: &Object) -> SmallVec<[(&'static str, Str); 12]> {
        self.fields.iter().map(|field| (field.name, field.of(obj))).collect()
    }

    /// Returns whether field selectors can use `field`.
    pub fn is_selectable(&self, field: &str) -> bool {
        let is_known = matches!(field, "metadata.name" | "metadata.namespace")
            || self.fields.iter().any(|known| known.name == field);
        let is_unknown =
            |name: &&str| field == *name || (name.ends_with('.') && field.starts_with(*name));
        is_known && !self.not_selectable.iter().any(is_unknown)
    }

    /// Returns the error for a field that selectors do not know.
    pub fn selector_error(&self, field: &str) -> String {
        match self.selector_error {
            Some(error) => error(field),
            // The message depends on whether the kind has selectable fields of its own.
            None if self.fields.is_empty() => field_selector::not_known(field),
            None => field_selector::not_supported(field),
        }
    }

    /// Sets the generation of a new object.
    pub fn first_generation(&self, obj: &mut Object) {
        match self.generation {
            Generation::Unused | Generation::OnSpecChangeFromNone => {}
            Generation::First
            | Generation::OnSpecChange
            | Generation::OnSpecChangeStrict
            | Generation::OnChange { .. }
            | Generation::OnSpecOrLabelChange
            | Generation::OnSpecOrAnnotationChange => {
                obj.metadata_mut().insert("generation", 1);
            }
        }
    }

    /// Sets the generation of an update of the object, or of a subresource that changes its spec.
    pub fn next_generation(&self, schema: &Schema, new: &mut Object, old: &Object) {
        let changed = match self.generation {
            Generation::Unused | Generation::First => false,
            Generation::OnSpecChange | Generation::OnSpecChangeFromNone => {
                !equality::equal_spec(schema, new, old)
            }
            Generation::OnSpecChangeStrict => !equality::equal_spec_strictly(schema, new, old),
            Generation::OnChange { status_counts } => {
                !equality::equal_except_metadata(new, old, status_counts)
            }
            Generation::OnSpecOrLabelChange => {
                !equality::equal_spec(schema, new, old) || differ_in("labels", new, old)
            }
            Generation::OnSpecOrAnnotationChange => {
                !equality::equal_spec(schema, new, old) || differ_in("annotations", new, old)
            }
        };
        set_generation(new, old.generation() + i64::from(changed));
    }
}

/// Sets the generation of an object whose spec has not changed.
pub fn keep_generation(new: &mut Object, old: &Object) {
    set_generation(new, old.generation());
}

fn set_generation(object: &mut Object, generation: i64) {
    if generation == 0 {
        object.metadata_mut().remove("generation");
    } else {
        object.metadata_mut().insert("generation", generation);
    }
}

/// Returns whether a map of the metadata differs. An empty one equals an absent one.
fn differ_in(map: &str, new: &Object, old: &Object) -> bool {
    let path = ["metadata", map];
    let [new, old] = [new, old].map(|obj| obj.at(&path).filter(|map| !map.is_empty()));
    new != old
}

impl SelectableField {
    /// Returns a field that is empty when it is not set.
    pub(crate) const fn new(
        name: &'static str,
        paths: &'static [&'static [&'static str]],
    ) -> SelectableField {
        SelectableField { name, paths, unset: "" }
    }

    fn of(&self, obj: &Object) -> Str {
        let found = self.paths.iter().find_map(|path| obj.at(path).filter(|v| !v.is_empty()));
        match found {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Int(number)) => Str::from(number.to_string()),
            Some(Value::Bool(flag)) => Str::new_static(if *flag { "true" } else { "false" }),
            _ => Str::new_static(self.unset),
        }
    }
}

/// Validates the metadata of an object.
pub fn validate_metadata(obj: &Object, namespaced: bool, rule: NameRule) -> ErrorList {
    let empty = Map::new();
    let metadata = obj.metadata().unwrap_or(&empty);
    keelson_meta::object_meta::validate_object_meta(
        metadata,
        namespaced,
        rule,
        &Path::new("metadata"),
    )
}

/// Validates the changes of metadata in an update.
pub fn validate_metadata_update(new: &Object, old: &Object) -> ErrorList {
    let empty = Map::new();
    keelson_meta::object_meta::validate_object_meta_update(
        new.metadata().unwrap_or(&empty),
        old.metadata().unwrap_or(&empty),
        &Path::new("metadata"),
    )
}

/// Returns whether a container restarts all others when it ends.
fn restarts_all_containers(object: &Object) -> bool {
    fn has(value: &Value) -> bool {
        match value {
            Value::Array(items) => items.iter().any(has),
            Value::Object(map) => map.iter().any(|(key, value)| match key.as_str() {
                "restartPolicyRules" => value.as_array().is_some_and(|rules| {
                    rules.iter().any(|rule| rule.str_at(&["action"]) == Some(RESTART_ALL))
                }),
                _ => has(value),
            }),
            _ => false,
        }
    }
    object.root.iter().any(|(_, value)| has(value))
}
