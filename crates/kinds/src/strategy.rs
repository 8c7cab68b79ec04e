//! [`Strategy`]: what no table of fields can say about a kind, as data and small functions. Strategies
//! do no IO and never see HTTP.

use crate::gated::{self, Fields};
use crate::{gates, same};
use keelson_meta::names::{self, NameRule};
use keelson_meta::{ErrorList, Features, Map, Object, Path, Str, User, Value};
use keelson_schema::Schema;
use smallvec::SmallVec;

/// How `metadata.generation` moves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Generation {
    /// The kind does not use it.
    #[default]
    Unused,
    /// 1 at first, and so it stays.
    First,
    /// 1 at first, one more whenever anything but metadata and status changes.
    OnSpecChange,
    /// The same, where an empty list or map is not equal to an absent one.
    OnSpecChangeStrict,
    /// 1 at first, one more whenever anything but metadata changes, an empty list that comes or goes
    /// included; `status` counts only where it is no subresource.
    OnChange {
        /// Whether `status` counts.
        status_counts: bool,
    },
    /// The same, and one more when annotations change.
    OnSpecOrAnnotationChange,
    /// Absent at first, one more whenever anything but metadata and status changes.
    OnSpecChangeFromNone,
    /// 1 at first, one more when labels or anything but metadata and status change.
    OnSpecOrLabelChange,
}

/// What a write to `status` may change in `metadata`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StatusMetadata {
    /// Everything that an update may change.
    #[default]
    Free,
    /// Everything but labels.
    KeepLabels,
    /// Nothing of what users write: labels, annotations, finalizers, owners.
    Keep,
    /// Nothing but managedFields.
    KeepAll,
}

/// `propagationPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents lose the reference.
    Orphan,
    /// Dependents go afterwards.
    Background,
    /// Dependents go first.
    Foreground,
}

impl Propagation {
    /// As `DeleteOptions` names it.
    pub fn name(self) -> &'static str {
        match self {
            Propagation::Orphan => "Orphan",
            Propagation::Background => "Background",
            Propagation::Foreground => "Foreground",
        }
    }
}

/// Seconds of grace for a deletion, from what was asked for.
pub type GracePeriod = fn(&Object, asked: Option<i64>) -> i64;

/// Which fields nobody comes to own by a write, beside those that it cannot change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldOwners {
    /// As `status` is a part of its own.
    #[default]
    Usual,
    /// The spec stays as it was made; approvers own conditions, signers the certificate.
    Approved,
}

/// What becomes of the dependents of a deleted object by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GarbageCollection {
    /// They are deleted in the background.
    #[default]
    DeleteDependents,
    /// They lose the reference.
    OrphanDependents,
    /// Nothing, whatever the deletion asks for.
    Unsupported,
}

/// One check of a write. A kind lists its checks in the order in which upstream makes them: some look at
/// metadata twice or not at all, and answers show that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// The metadata as that of a new object.
    Metadata,
    /// What an update may change in the metadata.
    MetadataChange,
    /// The rules of the kind, or of the subresource that is written.
    Rules,
    /// What an update may change beside metadata ([`Strategy::validate_change`]).
    Change,
}

/// What a kind's rules are given to compare.
pub type Validate = fn(new: &Object, old: Option<&Object>) -> ErrorList;

/// Rules that put their faults among those that all others found.
pub type LastRules = fn(new: &Object, old: Option<&Object>, found: &mut ErrorList);

/// The faults of a new object in a namespace with these labels.
pub type NamespaceRule = fn(new: &Object, labels: &dyn Fn() -> Vec<(Str, Str)>) -> ErrorList;

/// The faults of a status in a namespace with these labels.
pub type StatusNamespaceRule =
    fn(new: &Object, old: &Object, labels: &dyn Fn() -> Vec<(Str, Str)>) -> ErrorList;

/// The rules of a subresource that writes a part of the object.
#[derive(Clone, Copy)]
pub struct PartRules {
    /// The name in the URL.
    pub name: &'static str,
    /// Keeps what this subresource may not change.
    pub prepare: fn(new: &mut Object, old: &Object),
    /// What is checked of the write.
    pub validate: Validate,
}

/// The rules of one kind.
#[derive(Clone, Copy)]
pub struct Strategy {
    /// What names may look like.
    pub name_rule: NameRule,
    /// PUT to a name that does not exist creates.
    pub create_on_update: bool,
    /// PUT without a resourceVersion overwrites.
    pub unconditional_update: bool,
    /// DELETE answers with the object.
    pub returns_deleted: bool,
    /// An object that is given no name gets one that is like a uid.
    pub may_be_nameless: bool,
    /// Why an object of a name may not be deleted, where it may not.
    pub lasting: fn(name: &str) -> Option<&'static str>,
    /// Create keeps the status that the client sends.
    pub status_on_create: bool,
    /// How `metadata.generation` moves.
    pub generation: Generation,
    /// What a write to `status` may change in `metadata`.
    pub status_metadata: StatusMetadata,
    /// Which fields nobody comes to own by a write.
    pub owners: FieldOwners,
    /// Objects stay, terminating, until what they contain is gone.
    pub has_content: bool,
    /// Fills in defaults that follow from other fields.
    pub default: fn(&mut Object),
    /// Fills in the time where nothing is said.
    pub default_time: Option<fn(&mut Object, now: &str)>,
    /// Sets what the server decides when an object is made.
    pub prepare_create: fn(&mut Object),
    /// Notes in a new object who made it.
    pub note_user: fn(&mut Object, &User),
    /// Sets what the server decides when an object changes.
    pub prepare_update: fn(new: &mut Object, old: &Object),
    /// Drops what an update may not set, after the generation has moved.
    pub drop_after_generation: fn(new: &mut Object, old: &Object),
    /// Sets what the server decides when the status changes.
    pub prepare_status: fn(new: &mut Object, old: &Object),
    /// Notes in a changed object when it changed.
    pub note_time: fn(new: &mut Object, old: &Object, now: &str),
    /// The kind's own rules.
    pub validate: Validate,
    /// What a new object may say depends on the labels of its namespace; told before all other faults.
    pub namespace_rule: Option<NamespaceRule>,
    /// What a status may say depends on the labels of its namespace; told before all other faults of the kind.
    pub status_namespace_rule: Option<StatusNamespaceRule>,
    /// What an update may change, where [`Strategy::validate`] does not say so.
    pub validate_change: Validate,
    /// The rules that are asked last; writes of a status do not ask them.
    pub validate_last: Option<LastRules>,
    /// The rules of a write to `status`.
    pub validate_status: Validate,
    /// The checks of a new object.
    pub create_checks: &'static [Check],
    /// The checks of an update.
    pub update_checks: &'static [Check],
    /// The checks of a write to `status`.
    pub status_checks: &'static [Check],
    /// Finalizers without a domain must be of the known ones.
    pub standard_finalizers: bool,
    /// The rules of the subresources beside `status` that write a part of the object.
    pub parts: &'static [PartRules],
    /// Whether more than `metadata.finalizers` keeps an object that is being deleted.
    pub is_held: fn(&Object) -> bool,
    /// What a client is warned of before the server sets anything, whether the object is taken or not.
    pub prepare_warnings: fn(&Object) -> Vec<Str>,
    /// What a client is warned of, though it is taken.
    pub warnings: fn(new: &Object, old: Option<&Object>) -> Vec<Str>,
    /// Objects are deleted some time after their last write (`--event-ttl`).
    pub expires: bool,
    /// What is done to an object that is to be deleted, when something else has to come first.
    pub terminate: Option<fn(&mut Object, now: &str)>,
    /// What becomes of dependents unless the deletion says it.
    pub garbage_collection: GarbageCollection,
    /// What a client is warned of whose deletion does not say what becomes of dependents.
    pub deletion_warning: Option<&'static str>,
    /// Seconds of grace for a deletion; `None`: deletions are immediate.
    pub grace: Option<GracePeriod>,
    /// A new object that its author gave no labels has those of its pod template, also those which
    /// [`Strategy::prepare_create`] adds to the template.
    pub shares_template_labels: bool,
    /// Owners of fields are noted in what conversion to the stored version and back leaves.
    pub owned_as_converted: bool,
    /// Part of an object is kept as the text that its author wrote (`runtime.RawExtension`).
    pub keeps_texts: bool,
    /// Names and places of the fields that field selectors may ask for.
    pub fields: &'static [SelectableField],
    /// The features that the rules see.
    pub features: Features,
    /// Fields of the main resource that need features.
    pub gated: &'static [Fields],
    /// Fields of the status that need features.
    pub gated_status: &'static [Fields],
}

impl std::fmt::Debug for Strategy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Strategy").field("generation", &self.generation).finish_non_exhaustive()
    }
}

/// A field that field selectors may ask for.
#[derive(Clone, Copy, Debug)]
pub struct SelectableField {
    /// As selectors write it.
    pub name: &'static str,
    /// Where it is found; the first place that is set counts.
    pub places: &'static [&'static [&'static str]],
    /// What an unset field counts as.
    pub unset: &'static str,
}

impl Strategy {
    /// The rules that most kinds share.
    pub const GENERIC: Strategy = Strategy {
        name_rule: names::name_is_dns_subdomain,
        create_on_update: false,
        unconditional_update: true,
        returns_deleted: false,
        may_be_nameless: false,
        lasting: |_| None,
        status_on_create: false,
        generation: Generation::Unused,
        status_metadata: StatusMetadata::Free,
        owners: FieldOwners::Usual,
        has_content: false,
        default: |_| (),
        default_time: None,
        prepare_create: |_| (),
        note_user: |_, _| (),
        prepare_update: |_, _| (),
        drop_after_generation: |_, _| (),
        prepare_status: |_, _| (),
        note_time: |_, _, _| (),
        validate: |_, _| ErrorList::new(),
        namespace_rule: None,
        status_namespace_rule: None,
        validate_change: |_, _| ErrorList::new(),
        validate_last: None,
        validate_status: |_, _| ErrorList::new(),
        create_checks: &[Check::Metadata, Check::Rules],
        update_checks: &[Check::MetadataChange, Check::Rules, Check::Change],
        status_checks: &[Check::MetadataChange, Check::Rules],
        standard_finalizers: true,
        parts: &[],
        is_held: |_| false,
        prepare_warnings: |_| vec![],
        warnings: |_, _| vec![],
        expires: false,
        terminate: None,
        garbage_collection: GarbageCollection::DeleteDependents,
        deletion_warning: None,
        grace: None,
        shares_template_labels: false,
        owned_as_converted: false,
        keeps_texts: false,
        fields: &[],
        features: Features::DEFAULT,
        gated: &[],
        gated_status: &[],
    };

    /// Fills in defaults that follow from other fields.
    pub fn default(&self, obj: &mut Object) {
        gates::within(self.features, || (self.default)(obj));
    }

    /// Sets what the server decides when an object is made.
    pub fn prepare_create(&self, obj: &mut Object) {
        gates::within(self.features, || {
            gated::drop_disabled(self.gated, obj, None);
            (self.prepare_create)(obj);
        });
    }

    /// Sets what the server decides when an object changes.
    pub fn prepare_update(&self, new: &mut Object, old: &Object) {
        gates::within(self.features, || {
            gated::drop_disabled(self.gated, new, Some(old));
            (self.prepare_update)(new, old);
        });
    }

    /// Sets what the server decides when the status changes.
    pub fn prepare_status(&self, new: &mut Object, old: &Object) {
        gates::within(self.features, || {
            gated::drop_disabled(self.gated_status, new, Some(old));
            (self.prepare_status)(new, old);
        });
    }

    /// Sets what the server decides when another subresource is written.
    pub fn prepare_part(&self, rules: &PartRules, new: &mut Object, old: &Object) {
        gates::within(self.features, || (rules.prepare)(new, old));
    }

    /// What a client is warned of, though it is taken.
    pub fn warnings(&self, new: &Object, old: Option<&Object>) -> Vec<Str> {
        gates::within(self.features, || (self.warnings)(new, old))
    }

    /// Runs checks of a write in their order; `rules` are those of what is written.
    pub fn check(
        &self,
        checks: &[Check],
        rules: Validate,
        new: &Object,
        old: Option<&Object>,
        namespaced: bool,
    ) -> ErrorList {
        let mut errors = ErrorList::new();
        let rules = |new, old| gates::within(self.features, || rules(new, old));
        let change = |new, old| gates::within(self.features, || (self.validate_change)(new, old));
        for check in checks {
            match (check, old) {
                (Check::Metadata, _) => {
                    errors.extend(validate_metadata(new, namespaced, self.name_rule));
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

    /// Checks the finalizers of a built-in kind.
    fn validate_finalizers(&self, obj: &Object) -> ErrorList {
        let finalizers = obj.array_at(&["metadata", "finalizers"]);
        if !self.standard_finalizers || finalizers.is_empty() {
            return ErrorList::new();
        }
        let metadata = Path::new("metadata");
        let path = metadata.field("finalizers");
        keelson_meta::object_meta::validate_built_in_finalizers(finalizers, &path)
    }

    /// The rules of a subresource.
    pub fn part(&self, name: &str) -> Option<&'static PartRules> {
        self.parts.iter().find(|rules| rules.name == name)
    }

    /// The selectable fields of an object.
    pub fn selectable(&self, obj: &Object) -> SmallVec<[(&'static str, Str); 12]> {
        self.fields.iter().map(|field| (field.name, field.of(obj))).collect()
    }

    /// Whether field selectors may ask for `field`.
    pub fn is_selectable(&self, field: &str) -> bool {
        matches!(field, "metadata.name" | "metadata.namespace")
            || self.fields.iter().any(|known| known.name == field)
    }

    /// Moves the generation of an object that is made.
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

    /// Moves the generation of an object that changes.
    pub fn next_generation(&self, schema: &Schema, new: &mut Object, old: &Object) {
        let mut generation = old.generation();
        let [annotations, labels] = ["annotations", "labels"].map(|map| ["metadata", map]);
        let changed = match self.generation {
            Generation::Unused | Generation::First => false,
            Generation::OnSpecChange | Generation::OnSpecChangeFromNone => {
                !same::desired(schema, new, old)
            }
            Generation::OnSpecChangeStrict => !same::desired_strictly(schema, new, old),
            Generation::OnChange { status_counts } => {
                !same::beside_metadata(new, old, status_counts)
            }
            Generation::OnSpecOrLabelChange => {
                let of = [new, old].map(|obj| {
                    // An empty map is as good as none.
                    obj.at(&labels).filter(|labels| !labels.is_empty())
                });
                !same::desired(schema, new, old) || of[0] != of[1]
            }
            Generation::OnSpecOrAnnotationChange => {
                !same::desired(schema, new, old) || new.at(&annotations) != old.at(&annotations)
            }
        };
        generation += i64::from(changed);
        if generation == 0 {
            new.metadata_mut().remove("generation");
        } else {
            new.metadata_mut().insert("generation", generation);
        }
    }
}

impl SelectableField {
    fn of(&self, obj: &Object) -> Str {
        let found = self.places.iter().find_map(|place| obj.at(place).filter(|v| !v.is_empty()));
        match found {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Int(number)) => Str::from(number.to_string()),
            Some(Value::Bool(flag)) => Str::new_static(if *flag { "true" } else { "false" }),
            _ => Str::new_static(self.unset),
        }
    }
}

/// Checks the metadata that all kinds share.
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

/// Checks what an update may change in the metadata that all kinds share.
pub fn validate_metadata_update(new: &Object, old: &Object) -> ErrorList {
    let empty = Map::new();
    keelson_meta::object_meta::validate_object_meta_update(
        new.metadata().unwrap_or(&empty),
        old.metadata().unwrap_or(&empty),
        &Path::new("metadata"),
    )
}
