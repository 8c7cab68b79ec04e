//! [`Kind`]: one resource with its versions and its rules. It decodes and encodes the objects of
//! the resource. Callers do not distinguish built-in kinds from custom ones.

use crate::attached::Attached;
use crate::cel_rules::CelRules;
use bytes::Bytes;
use keelson_kinds::expressions::OldObject;
use keelson_kinds::scale::ScalePaths;
use keelson_kinds::strategy::Strategy;
use keelson_meta::scratch::Scratch;
use keelson_meta::{
    ErrorList, Failure, GroupVersion, GroupVersionKind, GroupVersionResource, Object, Overgrown,
    Status, Str, Timestamp,
};
use keelson_records::{Entry, Record};
use keelson_schema::Schema;
use keelson_schema::structural::LazyStructural;
use keelson_schema::tables::CustomColumns;
use keelson_schema::{decode, default, json};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Maximum size of the encode buffer that a thread keeps.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Encode buffer. The stored record is a copy, so it has no spare capacity.
    static SCRATCH: Scratch<Vec<u8>> = const { Scratch::new(SCRATCH_BYTES_MAX) };
}

/// The source of a resource's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The built-in catalogue.
    BuiltIn,
    /// A producer at run time, such as a CustomResourceDefinition.
    Custom,
}

/// The validation, columns, scale and selectable fields of one version of a custom resource.
#[derive(Clone, Debug)]
pub struct VersionChecks {
    /// `v1`.
    pub version: Str,
    /// The structural schema.
    pub structural: Arc<LazyStructural>,
    /// The CEL validation rules.
    pub rules: Arc<CelRules>,
    /// The columns of tables (`additionalPrinterColumns`).
    pub columns: Arc<CustomColumns>,
    /// The paths of the scale subresource, if it is enabled.
    pub scale: Option<Arc<ScalePaths>>,
    /// The selectable fields, each as the names on its path.
    pub selectable: Vec<Vec<Str>>,
}

/// A resource that stores objects.
#[derive(Debug)]
pub struct Kind {
    /// Group, storage version and resource.
    pub gvr: GroupVersionResource,
    /// The schemas of the served versions, the preferred one first.
    pub versions: Vec<Schema>,
    /// The schema of the storage version.
    pub storage: Schema,
    /// Whether the resource is namespaced.
    pub namespaced: bool,
    /// Defaults and validation that the schema cannot express.
    pub strategy: Strategy,
    /// Key prefix in the store: `/registry/pods/`.
    pub prefix: Bytes,
    /// Whether there is a `status` subresource.
    pub has_status: bool,
    /// `PodList`.
    pub list_kind: Str,
    /// Whether the resource is built in or custom.
    pub source: Source,
    /// Changes whenever a producer replaces the resource; 0 for built-in resources.
    pub generation: u64,
    /// Records up to this revision may have been written with another schema or in another version;
    /// 0: none.
    pub foreign_through: AtomicU64,
    /// Uid and generation of the CustomResourceDefinition.
    pub definition: Option<(Str, i64)>,
    /// The CustomResourceDefinition is being deleted: creates are refused.
    pub is_terminating: AtomicBool,
    /// The rules of each version of a custom resource.
    pub checks: Vec<VersionChecks>,
    /// The schemas of all versions of a custom resource, served or not.
    pub(crate) all_versions: Vec<Schema>,
    /// Whether a webhook converts the objects of a custom resource; else conversion only changes
    /// the apiVersion.
    pub has_conversion_webhook: bool,
    /// What the crate that runs the verbs keeps beside the kind.
    pub attached: Attached,
}

impl Kind {
    /// Returns the schema of a served version.
    pub fn schema(&self, version: &str) -> Option<&Schema> {
        self.versions.iter().find(|schema| schema.gvk.version == version)
    }

    /// Returns the rules of a version of a custom resource.
    pub fn version_checks(&self, version: &str) -> Option<&VersionChecks> {
        self.checks.iter().find(|checks| checks.version == version)
    }

    /// Adds the errors of the strategy's last rules. They concern the spec, so updates of the
    /// status skip them.
    pub fn validate_last(&self, new: &Object, old: Option<&Object>, errors: &mut ErrorList) {
        if let Some(rules) = self.strategy.validate_last {
            rules(new, old, errors);
        }
    }

    /// Adds the errors of a custom resource: structural schema, scale paths, CEL rules. Returns the
    /// errors of rules about values that an update leaves as they were, which are warnings.
    pub fn validate_custom(
        &self,
        version: &str,
        new: &Object,
        old: Option<&Object>,
        errors: &mut ErrorList,
    ) -> ErrorList {
        let Some(checks) = self.version_checks(version) else { return ErrorList::new() };
        let old = old.map(|old| &old.root);
        errors.extend(checks.structural.validate(&new.root, old));
        if let Some(scale) = &checks.scale {
            scale.validate(new, errors);
        }
        let old = old.map(|object| OldObject { object, schema: &checks.structural });
        checks.rules.validate(&new.root, old, errors)
    }

    /// Whether field selectors support a field of a custom resource in a version.
    pub fn is_selectable(&self, version: &str, field: &str) -> bool {
        let checks = self.version_checks(version);
        checks.is_some_and(|checks| checks.selectable.iter().any(|path| path.join(".") == field))
    }

    /// Returns the selectable fields of a version of a custom resource: `spec.color`.
    pub fn selectable_fields(&self, version: &str) -> Vec<String> {
        let fields = self.version_checks(version).map(|checks| checks.selectable.as_slice());
        fields.unwrap_or_default().iter().map(|path| path.join(".")).collect()
    }

    /// Returns the scale paths of a version of a custom resource.
    pub fn scale(&self, version: &str) -> Option<Arc<ScalePaths>> {
        self.version_checks(version)?.scale.clone()
    }

    /// Returns the table columns of a version of a custom resource.
    pub fn columns(&self, version: &str) -> Option<Arc<CustomColumns>> {
        self.version_checks(version).map(|checks| checks.columns.clone())
    }

    /// Sets the defaults of the schema and of the strategy; `now` is the time that some of them
    /// are.
    pub fn fill_defaults(
        &self,
        schema: &Schema,
        obj: &mut Object,
        now: Timestamp,
    ) -> Result<(), Overgrown> {
        default::fill(schema, obj)?;
        self.strategy.default(obj);
        if let Some(default_time) = self.strategy.default_time {
            default_time(obj, &now.text());
        }
        Ok(())
    }

    /// Returns the key without the prefix: `namespace/name`, or `name` for cluster-scoped kinds.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }

    /// Returns the key in the store.
    pub fn store_key(&self, namespace: &str, name: &str) -> Bytes {
        let between = if self.namespaced { [namespace, "/"] } else { ["", ""] };
        let bytes = self.prefix.len() + between[0].len() + between[1].len() + name.len();
        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(&self.prefix);
        for part in [between[0], between[1], name] {
            out.extend_from_slice(part.as_bytes());
        }
        Bytes::from(out)
    }

    /// Returns the name of the kind: `Pod`.
    pub fn name(&self) -> &Str {
        &self.storage.gvk.kind
    }

    /// Whether an entry was written with the present schema.
    pub fn is_in_present_schema(&self, entry: &Entry) -> bool {
        let foreign = self.foreign_through.load(Ordering::Relaxed);
        foreign == 0 || entry.modified().0 > foreign
    }

    /// Whether the JSON of an entry can be sent as it is to clients of a version: it is in the
    /// storage version, or a webhook has converted it.
    pub fn is_in_version(&self, entry: &Entry, schema: &Schema) -> bool {
        (self.is_in_present_schema(entry) || self.has_conversion_webhook)
            && (self.source == Source::BuiltIn || has_gvk(&schema.gvk, &entry.json_slice()))
    }

    /// Whether a stored text begins with the kind and apiVersion of the storage version.
    pub fn is_in_storage_version(&self, text: &[u8]) -> bool {
        has_gvk(&self.storage.gvk, text)
    }

    /// Decodes a record that another release may have written; drops unknown fields and sets
    /// defaults.
    fn decode_foreign(&self, text: &[u8]) -> Result<Object, Failure> {
        let parsed = json::parse(text).map_err(Status::internal)?;
        let given = |name| parsed.value.str_at(&[name]).unwrap_or_default().to_owned();
        let version = GroupVersion::parse(&given("apiVersion")).unwrap_or_default();
        let from = version.kind(given("kind"));
        let obj = Object::from_value(parsed.value)
            .ok_or_else(|| Status::internal("a stored object is not a map"))?;
        let obj = keelson_kinds::convert(obj, &from, &self.storage.gvk);
        let canonical = decode::canonicalize(&self.storage, obj.into_value());
        let mut obj = canonical.map_err(Status::internal)?.object;
        // An object that grows too much is read without some of its defaults.
        let _ = default::fill(&self.storage, &mut obj);
        self.strategy.default(&mut obj);
        Ok(obj)
    }

    /// Decodes an entry in the storage version.
    pub fn decode(&self, entry: &Entry) -> Result<Object, Failure> {
        self.object_in(entry, &self.storage)
    }

    /// Decodes an entry in a version. With a conversion webhook, the entry must be in that version
    /// already.
    pub fn object_in(&self, entry: &Entry, to: &Schema) -> Result<Object, Failure> {
        if self.source == Source::Custom {
            return self.custom_object_in(entry, to);
        }
        let obj = if self.is_in_present_schema(entry) {
            let mut obj = read_stored(&self.storage, entry)?;
            let texts = if self.strategy.has_raw_extension { entry.field(RAW_TEXTS) } else { None };
            texts.into_iter().for_each(|texts| json::restore_raw_texts(&mut obj.root, texts));
            obj
        } else {
            let mut obj = self.decode_foreign(&entry.json_slice())?;
            obj.metadata_mut().insert("resourceVersion", entry.modified().to_string());
            obj
        };
        Ok(self.convert(obj, &self.storage, to))
    }

    fn custom_object_in(&self, entry: &Entry, to: &Schema) -> Result<Object, Failure> {
        if self.is_in_version(entry, to) {
            return read_stored(to, entry);
        }
        let (obj, from) = self.decode_as_stored(entry)?;
        if from.gvk != to.gvk && self.has_conversion_webhook {
            let why = format!("{} was not converted to {}", entry.name(), to.gvk);
            return Err(Status::internal(why));
        }
        Ok(self.convert(obj, &from, to))
    }

    /// Decodes an entry of a custom resource in the version in which it is stored, and returns the
    /// schema of that version. An object that was written with another schema is pruned and gets
    /// defaults, unless they would make it grow too much: it stays as it was stored, so that it can
    /// be read and deleted.
    pub fn decode_as_stored(&self, entry: &Entry) -> Result<(Object, Schema), Failure> {
        let parsed = json::parse(&entry.json_slice()).map_err(Status::internal)?;
        let version = parsed
            .value
            .str_at(&["apiVersion"])
            .and_then(GroupVersion::parse)
            .unwrap_or_default()
            .version;
        let schema = self
            .all_versions
            .iter()
            .find(|schema| schema.gvk.version == version)
            .unwrap_or(&self.storage);
        if has_gvk(&schema.gvk, &entry.json_slice()) && self.is_in_present_schema(entry) {
            return Ok((read_stored(schema, entry)?, schema.clone()));
        }
        let canonical = decode::canonicalize(schema, parsed.value);
        let mut obj = canonical.map_err(Status::internal)?.object;
        if default::fill(schema, &mut obj).is_err() {
            let parsed = json::parse(&entry.json_slice()).map_err(Status::internal)?;
            let canonical = decode::canonicalize(schema, parsed.value);
            obj = canonical.map_err(Status::internal)?.object;
        }
        obj.metadata_mut().insert("resourceVersion", entry.modified().to_string());
        Ok((obj, schema.clone()))
    }

    /// Returns the schema of a version of a custom resource, served or not.
    pub fn any_version(&self, version: &GroupVersion) -> Option<&Schema> {
        self.all_versions.iter().find(|schema| schema.gvk.group_version() == *version)
    }

    /// Encodes an object in the storage version as a record of the store.
    pub fn record(&self, obj: &mut Object) -> Bytes {
        self.record_in(&self.storage, obj)
    }

    /// Encodes an object in a version as a record.
    pub fn record_in(&self, schema: &Schema, obj: &mut Object) -> Bytes {
        obj.metadata_mut().insert("resourceVersion", "0");
        let mut text = Scratch::take(&SCRATCH);
        let marks = json::encode(schema, obj, &mut text);
        // Sorted as in JSON, so that a write without changes produces the same record.
        let mut labels: SmallVec<[(&str, &str); 8]> = obj.meta_map("labels").collect();
        labels.sort_unstable();
        let mut fields = self.strategy.selectable(obj);
        if self.strategy.has_raw_extension {
            fields.extend(json::raw_texts(&obj.root).map(|texts| (RAW_TEXTS, Str::from(texts))));
        }
        let record = Record {
            json: &text,
            resource_version_at: marks.resource_version_at,
            // Items of a list have no kind, except those of custom resources.
            item_at: if self.source == Source::Custom { 1 } else { marks.item_at },
            labels: &labels,
            fields: &fields,
        }
        .encode();
        Scratch::put_back(&SCRATCH, text);
        record
    }

    /// Checks that a record can be decoded again. A record that fails must not be committed.
    pub fn check_record(&self, record: &[u8]) -> Result<(), Failure> {
        let json = Record::json_of(record);
        let checked =
            json.and_then(|json| json::check_object(json).map_err(|e| e.to_string().into()));
        checked.map_err(|why| {
            tracing::error!(kind = %self.name(), %why, "encoded object cannot be read back; write refused");
            Status::internal(format!("the {} cannot be stored: {why}", self.name()))
        })
    }

    /// Converts an object to the version in which writes handle it and sets its defaults: built-in
    /// kinds to the storage version; custom resources stay as they are.
    pub fn to_working(&self, obj: Object, from: &Schema) -> Result<Object, Overgrown> {
        if from.gvk == self.storage.gvk || self.source == Source::Custom {
            return Ok(obj);
        }
        let mut obj = self.convert(obj, from, &self.storage);
        default::fill(&self.storage, &mut obj)?;
        self.strategy.default(&mut obj);
        Ok(obj)
    }

    /// Converts a stored object to another version and normalizes it where conversion changes
    /// fields.
    pub fn in_version(&self, obj: Object, to: &Schema) -> Object {
        let obj = self.convert(obj, &self.storage, to);
        if !self.strategy.manages_converted_fields {
            return obj;
        }
        let mut text = vec![];
        json::encode(to, &obj, &mut text);
        json::read_stored(to, &text).map_or(obj, |root| Object { root })
    }

    /// Calls `set` to write `metadata.managedFields`. Where conversion changes fields, the managed
    /// fields are computed on the object after conversion to the storage version and back; the
    /// object itself is converted only once.
    pub fn set_managers(&self, obj: &mut Object, schema: &Schema, set: impl FnOnce(&mut Object)) {
        if !self.strategy.manages_converted_fields || schema.gvk == self.storage.gvk {
            return set(obj);
        }
        let converted = self.convert(obj.clone(), schema, &self.storage);
        let mut converted = self.convert(converted, &self.storage, schema);
        set(&mut converted);
        match converted.metadata_mut().remove("managedFields") {
            Some(owners) => obj.metadata_mut().insert("managedFields", owners),
            None => obj.metadata_mut().remove("managedFields"),
        };
    }

    /// Converts between two versions without a webhook. Fields that the other version does not have
    /// are lost.
    pub fn convert(&self, obj: Object, from: &Schema, to: &Schema) -> Object {
        if from.gvk == to.gvk {
            return obj;
        }
        if self.source == Source::BuiltIn {
            return keelson_kinds::convert(obj, &from.gvk, &to.gvk);
        }
        match decode::canonicalize(to, obj.into_value()) {
            Ok(canonical) => canonical.object,
            Err(why) => {
                tracing::warn!(kind = %to.gvk, %why, "stored object does not fit a served version");
                Object::new()
            }
        }
    }
}

/// The record field with the raw texts that encoding would change. No selector can name it.
const RAW_TEXTS: &str = "";

/// Whether the JSON of an object begins with this kind and apiVersion.
fn has_gvk(gvk: &GroupVersionKind, text: &[u8]) -> bool {
    let GroupVersionKind { group, version, kind } = gvk;
    let words = [
        "{\"kind\":\"",
        kind,
        "\",\"apiVersion\":\"",
        group,
        if group.is_empty() { "" } else { "/" },
        version,
        "\"",
    ];
    let mut rest = text;
    words.iter().all(|word| match rest.strip_prefix(word.as_bytes()) {
        Some(after) => {
            rest = after;
            true
        }
        None => false,
    })
}

/// Decodes an entry whose text was written with a schema.
fn read_stored(schema: &Schema, entry: &Entry) -> Result<Object, Failure> {
    let text = &*entry.json_slice();
    if let Some(root) = json::read_stored(schema, text) {
        return Ok(Object { root });
    }
    let parsed = json::parse(text).map_err(Status::internal)?;
    Object::from_value(parsed.value)
        .ok_or_else(|| Status::internal(format!("stored object {entry:?} is not a map")))
}
