//! [`Kind`]: one resource with its versions, its rules and its objects. [`Target`]: what a request
//! speaks of. Below this, nobody can ask whether a kind is built in.

use crate::cel_rules::CelRules;
use crate::converted::ConvertedEntries;
use crate::stamp::Clock;
use bytes::Bytes;
use keelson_admission::webhooks::ConversionWebhook;
use keelson_cache::{Entry, Record};
use keelson_kinds::scale::{self, ScalePaths};
use keelson_kinds::strategy::Strategy;
use keelson_meta::scratch::Scratch;
use keelson_meta::{
    ErrorList, Failure, GroupVersion, GroupVersionKind, GroupVersionResource, Object, Status, Str,
    Value,
};
use keelson_schema::Schema;
use keelson_schema::structural::LazyStructural;
use keelson_schema::tables::CustomColumns;
use keelson_schema::{decode, json};
use smallvec::SmallVec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Bytes that a thread keeps to encode the next object in.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Buffer to encode objects in. The stored copy then has exactly the length of the text.
    static SCRATCH: Scratch<Vec<u8>> = const { Scratch::new(SCRATCH_BYTES_MAX) };
}

/// Who serves a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The catalogue.
    BuiltIn,
    /// A producer at run time: a CustomResourceDefinition.
    Custom,
}

/// What validates objects of one version of a custom resource.
#[derive(Clone, Debug)]
pub struct VersionChecks {
    /// `v1`.
    pub version: Str,
    /// Its schema.
    pub structural: Arc<LazyStructural>,
    /// Its rules in CEL.
    pub rules: Arc<CelRules>,
    /// What tables show of it.
    pub columns: Arc<CustomColumns>,
    /// Where its scale stands, if it has one.
    pub scale: Option<Arc<ScalePaths>>,
    /// The fields that field selectors may ask for, as the members that lead to them.
    pub selectable: Vec<Vec<Str>>,
}

/// A resource that keeps objects.
#[derive(Debug)]
pub struct Kind {
    /// Group, storage version and resource.
    pub gvr: GroupVersionResource,
    /// The served versions, the preferred one first. The schemas say which kind they speak.
    pub versions: Vec<Schema>,
    /// The version in which objects are stored.
    pub storage: Schema,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Rules of the kind.
    pub strategy: Strategy,
    /// `/registry/pods/`.
    pub prefix: Bytes,
    /// Whether the `status` subresource exists.
    pub has_status: bool,
    /// `PodList`.
    pub list_kind: Str,
    /// Who serves it.
    pub source: Source,
    /// Told apart from what the resource was before it was changed; 0 for built-in ones.
    pub generation: u64,
    /// Records up to this revision may have been written by another schema or in another version; 0: none.
    pub foreign_through: AtomicU64,
    /// Uid and generation of the CustomResourceDefinition that describes it.
    pub definition: Option<(Str, i64)>,
    /// The row of the registry's hooks with what is done for it in the verbs, beyond its rules.
    pub(crate) hooks_row: Option<usize>,
    /// Its definition is being deleted: nothing is made any more.
    pub is_terminating: AtomicBool,
    /// What validates objects of a custom resource.
    pub checks: Vec<VersionChecks>,
    /// All versions of a custom resource, also those that are not served.
    pub(crate) all_versions: Vec<Schema>,
    /// Converts between the versions of a custom resource; `None`: only the apiVersion differs.
    pub webhook: Option<Arc<ConversionWebhook>>,
    /// Objects that the webhook has converted.
    pub(crate) converted: ConvertedEntries,
}

impl Kind {
    /// The schema of a served version.
    pub fn schema(&self, version: &str) -> Option<&Schema> {
        self.versions.iter().find(|schema| schema.gvk.version == version)
    }

    /// What belongs to a version of a custom resource.
    pub(crate) fn checks_of(&self, version: &str) -> Option<&VersionChecks> {
        self.checks.iter().find(|checks| checks.version == version)
    }

    /// Has the rules that are asked last add what they find. Writes of a status do not ask them: they are about the
    /// spec, which stays.
    pub(crate) fn validate_last(&self, new: &Object, old: Option<&Object>, errors: &mut ErrorList) {
        if let Some(rules) = self.strategy.validate_last {
            rules(new, old, errors);
        }
    }

    /// Adds the faults that the schema and the rules of a custom resource find in an object of a version.
    pub(crate) fn validate_further(
        &self,
        version: &str,
        new: &Object,
        old: Option<&Object>,
        errors: &mut ErrorList,
    ) {
        let Some(checks) = self.checks_of(version) else { return };
        let old = old.map(|old| &old.root);
        errors.extend(checks.structural.validate(&new.root, old));
        if let Some(scale) = &checks.scale {
            scale.validate(new, errors);
        }
        checks.rules.validate(&new.root, old, errors);
    }

    /// Whether field selectors on a version may ask for a field of a custom resource.
    pub(crate) fn is_selectable(&self, version: &str, field: &str) -> bool {
        let checks = self.checks_of(version);
        checks.is_some_and(|checks| checks.selectable.iter().any(|path| path.join(".") == field))
    }

    /// The fields that field selectors may ask for in a version of a custom resource: `spec.color`.
    pub fn selectable_fields(&self, version: &str) -> Vec<String> {
        let fields = self.checks_of(version).map(|checks| checks.selectable.as_slice());
        fields.unwrap_or_default().iter().map(|path| path.join(".")).collect()
    }

    /// Where the scale of a version of a custom resource stands.
    pub(crate) fn scale(&self, version: &str) -> Option<Arc<ScalePaths>> {
        self.checks_of(version)?.scale.clone()
    }

    /// What tables show of a version of a custom resource.
    pub fn columns(&self, version: &str) -> Option<Arc<CustomColumns>> {
        self.checks_of(version).map(|checks| checks.columns.clone())
    }

    /// Fills in what an object of a client leaves open.
    pub(crate) fn fill_defaults(&self, schema: &Schema, obj: &mut Object, clock: &dyn Clock) {
        keelson_schema::default::fill(schema, obj);
        self.strategy.default(obj);
        if let Some(default_time) = self.strategy.default_time {
            default_time(obj, &clock.now().text());
        }
    }

    /// The key behind the prefix.
    pub fn key(&self, namespace: &str, name: &str) -> String {
        if self.namespaced { format!("{namespace}/{name}") } else { name.to_owned() }
    }

    /// The whole key in the store.
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

    /// The kind's name: `Pod`.
    pub fn name(&self) -> &Str {
        &self.storage.gvk.kind
    }

    /// Whether an entry was written by this schema.
    pub(crate) fn is_of_this_schema(&self, entry: &Entry) -> bool {
        let foreign = self.foreign_through.load(Ordering::Relaxed);
        foreign == 0 || entry.modified().0 > foreign
    }

    /// Whether the text of an entry is what clients see of it in a version: the storage version, or any that
    /// a webhook has converted it to.
    pub fn is_current(&self, entry: &Entry, schema: &Schema) -> bool {
        (self.is_of_this_schema(entry) || self.webhook.is_some())
            && (self.source == Source::BuiltIn || is_of(&schema.gvk, entry.json_slice()))
    }

    /// Whether a stored text is of the storage version, as its first members say.
    pub(crate) fn is_of_storage(&self, text: &[u8]) -> bool {
        is_of(&self.storage.gvk, text)
    }

    /// The object of a record of a built-in kind that another version may have written: what this schema
    /// does not know is left out, what it has by default is filled in.
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
        keelson_schema::default::fill(&self.storage, &mut obj);
        self.strategy.default(&mut obj);
        Ok(obj)
    }

    /// The object of an entry, in the storage version.
    pub fn decode(&self, entry: &Entry) -> Result<Object, Failure> {
        self.object_in(entry, &self.storage)
    }

    /// The object of an entry in a version. An entry of a custom resource with a webhook must be in that version.
    pub fn object_in(&self, entry: &Entry, to: &Schema) -> Result<Object, Failure> {
        if self.source == Source::Custom {
            return self.custom_object_in(entry, to);
        }
        let obj = if self.is_of_this_schema(entry) {
            let mut obj = read_stored(&self.storage, entry)?;
            let texts = if self.strategy.has_raw_extension { entry.field(TEXTS) } else { None };
            texts.into_iter().for_each(|texts| json::restore_raw_texts(&mut obj.root, texts));
            obj
        } else {
            let mut obj = self.decode_foreign(entry.json_slice())?;
            obj.metadata_mut().insert("resourceVersion", entry.modified().to_string());
            obj
        };
        Ok(self.convert(obj, &self.storage, to))
    }

    fn custom_object_in(&self, entry: &Entry, to: &Schema) -> Result<Object, Failure> {
        if self.is_current(entry, to) {
            return read_stored(to, entry);
        }
        let (obj, from) = self.own_object(entry)?;
        if from.gvk != to.gvk && self.webhook.is_some() {
            let why = format!("{} was not converted to {}", entry.name(), to.gvk);
            return Err(Status::internal(why));
        }
        Ok(self.convert(obj, &from, to))
    }

    /// An object of a custom resource in the version in which it is stored, and the schema of that. One that
    /// was written by another schema is pruned and given defaults.
    pub(crate) fn own_object(&self, entry: &Entry) -> Result<(Object, Schema), Failure> {
        let parsed = json::parse(entry.json_slice()).map_err(Status::internal)?;
        let version = parsed.value.str_at(&["apiVersion"]).and_then(GroupVersion::parse);
        let version = version.unwrap_or_default().version;
        let schema = self.all_versions.iter().find(|schema| schema.gvk.version == version);
        let schema = schema.unwrap_or(&self.storage);
        if is_of(&schema.gvk, entry.json_slice()) && self.is_of_this_schema(entry) {
            return Ok((read_stored(schema, entry)?, schema.clone()));
        }
        let canonical = decode::canonicalize(schema, parsed.value);
        let mut obj = canonical.map_err(Status::internal)?.object;
        keelson_schema::default::fill(schema, &mut obj);
        obj.metadata_mut().insert("resourceVersion", entry.modified().to_string());
        Ok((obj, schema.clone()))
    }

    /// The stored form of an object in the storage version.
    pub fn record(&self, obj: &mut Object) -> Bytes {
        self.record_in(&self.storage, obj)
    }

    /// The form of an object in a version that entries are made of.
    pub(crate) fn record_in(&self, schema: &Schema, obj: &mut Object) -> Bytes {
        obj.metadata_mut().insert("resourceVersion", "0");
        let mut text = Scratch::take(&SCRATCH);
        let marks = json::encode(schema, obj, &mut text);
        // In one order, as JSON has them: a write that changes nothing makes the same record.
        let mut labels: SmallVec<[(&str, &str); 8]> = obj.meta_map("labels").collect();
        labels.sort_unstable();
        let mut fields = self.strategy.selectable(obj);
        if self.strategy.has_raw_extension {
            fields.extend(json::raw_texts(&obj.root).map(|texts| (TEXTS, Str::from(texts))));
        }
        let record = Record {
            json: &text,
            resource_version_at: marks.resource_version_at,
            // Items of a list are without their kind, but for those of custom resources.
            item_at: if self.source == Source::Custom { 1 } else { marks.item_at },
            labels: &labels,
            fields: &fields,
        }
        .encode();
        Scratch::put_back(&SCRATCH, text);
        record
    }

    /// Checks that a record can be read back, with the code that will read it: what does not pass must
    /// not be committed.
    pub fn check_record(&self, record: &[u8]) -> Result<(), Failure> {
        let json = Record::json_of(record);
        let checked =
            json.and_then(|json| json::check_object(json).map_err(|e| e.to_string().into()));
        checked.map_err(|why| {
            tracing::error!(kind = %self.name(), %why, "encoded object cannot be read back; write refused");
            Status::internal(format!("the {} cannot be stored: {why}", self.name()))
        })
    }

    /// An object of another version in the one that writes work on, with what that has by default. See
    /// [`Target::working`].
    pub(crate) fn to_working(&self, obj: Object, from: &Schema) -> Object {
        if from.gvk == self.storage.gvk || self.source == Source::Custom {
            return obj;
        }
        let mut obj = self.convert(obj, from, &self.storage);
        keelson_schema::default::fill(&self.storage, &mut obj);
        self.strategy.default(&mut obj);
        obj
    }

    /// A stored object in another version; of a kind that conversion changes, as it is written out there.
    pub fn in_version(&self, obj: Object, to: &Schema) -> Object {
        let obj = self.convert(obj, &self.storage, to);
        if !self.strategy.manages_converted_fields {
            return obj;
        }
        let mut text = vec![];
        json::encode(to, &obj, &mut text);
        json::read_stored(to, &text).map_or(obj, |root| Object { root })
    }

    /// Has `note` write `metadata.managedFields`. Of a kind that conversion changes, owners are those of the
    /// fields that conversion to the stored version and back leaves; what is stored is converted once.
    pub fn note_owners(&self, obj: &mut Object, schema: &Schema, note: impl FnOnce(&mut Object)) {
        if !self.strategy.manages_converted_fields || schema.gvk == self.storage.gvk {
            return note(obj);
        }
        let converted = self.convert(obj.clone(), schema, &self.storage);
        let mut converted = self.convert(converted, &self.storage, schema);
        note(&mut converted);
        match converted.metadata_mut().remove("managedFields") {
            Some(owners) => obj.metadata_mut().insert("managedFields", owners),
            None => obj.metadata_mut().remove("managedFields"),
        };
    }

    /// Converts between two versions without a webhook; objects keep what both can say.
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

/// The field of a record with the texts that the object's JSON says in other letters. No selector can ask for it.
const TEXTS: &str = "";

/// Whether the first members of an object's text say that it is of a kind and version.
fn is_of(gvk: &GroupVersionKind, text: &[u8]) -> bool {
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

/// The object of an entry whose text is in the form of a schema.
fn read_stored(schema: &Schema, entry: &Entry) -> Result<Object, Failure> {
    let text = entry.json_slice();
    if let Some(root) = json::read_stored(schema, text) {
        return Ok(Object { root });
    }
    let parsed = json::parse(text).map_err(Status::internal)?;
    Object::from_value(parsed.value)
        .ok_or_else(|| Status::internal(format!("stored object {entry:?} is not a map")))
}

/// What a request speaks of.
#[derive(Clone, Debug)]
pub struct Target {
    /// The resource.
    pub kind: Arc<Kind>,
    /// The version in the URL.
    pub version: Str,
    /// The namespace, or empty.
    pub namespace: Str,
    /// The name, or empty.
    pub name: Str,
}

impl Target {
    /// The Scale of an object that is about to change: one that has no replicas yet has 0.
    pub(crate) fn scale_before(&self, obj: &Object) -> Object {
        match self.kind.scale(&self.version) {
            Some(paths) => scale::custom(&paths, obj),
            None => scale::built_in(obj),
        }
    }

    /// An object of a kind in the version in which it is stored, for callers inside the server.
    pub fn of(kind: &Arc<Kind>, namespace: &str, name: &str) -> Target {
        let version = kind.storage.gvk.version.clone();
        Target { kind: kind.clone(), version, namespace: namespace.into(), name: name.into() }
    }

    /// The schema of the version in the URL.
    pub fn schema(&self) -> &Schema {
        self.kind.schema(&self.version).unwrap_or(&self.kind.storage)
    }

    /// The version in which writes work on objects: of a built-in kind the storage version, of a custom
    /// resource that of the URL, whose rules are asked.
    pub(crate) fn working(&self) -> &Schema {
        match self.kind.source {
            Source::BuiltIn => &self.kind.storage,
            Source::Custom => self.schema(),
        }
    }

    /// Group, version and resource as messages name them.
    pub fn gvr(&self) -> &GroupVersionResource {
        &self.kind.gvr
    }

    /// The key behind the prefix.
    pub fn key(&self) -> String {
        self.kind.key(&self.namespace, &self.name)
    }

    /// 404 for the object.
    pub fn not_found(&self) -> Failure {
        Status::not_found(self.gvr(), &self.name)
    }

    /// The same with another name.
    pub fn named(&self, namespace: &str, name: &str) -> Target {
        Target { namespace: namespace.into(), name: name.into(), ..self.clone() }
    }
}

/// What a verb answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// An object as it is stored, ready to be sent.
    Entry(Entry),
    /// An object that was made for this answer, in the version of the URL.
    Object(Object),
    /// A `Status` of success, with details as given.
    Success(Value),
}
