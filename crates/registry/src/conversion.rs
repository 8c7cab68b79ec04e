//! Conversion of custom resources by webhooks: for reads, writes, managedFields and admission.
//! Kinds without a conversion webhook do not use this module.

use crate::registry::Registry;
use crate::registry::kind_state::{Conversion, conversion_of};
use crate::target::Target;
use bytes::Bytes;
use keelson_admission::webhooks::{ConversionWebhook, ConvertedObjects};
use keelson_auth::off_worker;
use keelson_meta::{Failure, GroupVersion, Object, Reason, Status, Str};
use keelson_records::Entry;
use keelson_resources::Kind;
use keelson_schema::{Schema, decode, default};
use keelson_store::KeyValue;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Maximum number of objects, and bytes of their JSON, in one call of a webhook.
const BATCH_OBJECTS_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 2 << 20;
/// How many bytes the objects of one list may grow in conversions of webhooks.
const LIST_GROWTH_BYTES_MAX: usize = 64 << 20;
/// Maximum number of rounds of conversions that one update of managedFields may need.
const OWNER_ROUNDS_MAX: usize = 64;
/// Objects of a list that are decoded before other tasks may run.
const DECODED_STRETCH: usize = 16;

/// The conversions of one update of managedFields, which runs synchronously. A conversion that is
/// not known yet is recorded as missing; the webhook is called, and the update is computed again.
#[derive(Debug, Default)]
pub(crate) struct Conversions(Mutex<OwnerConversions>);

#[derive(Debug, Default)]
struct OwnerConversions {
    known: Vec<(Object, GroupVersion, Object)>,
    missing: Vec<(Object, Schema, Schema)>,
    /// Bytes of the webhook's responses.
    bytes: usize,
}

impl Conversions {
    fn lock(&self) -> MutexGuard<'_, OwnerConversions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the object in another version if that conversion is known; else records it as
    /// missing.
    pub fn get(&self, object: &Object, from: &Schema, to: &Schema) -> Option<Object> {
        let mut all = self.lock();
        let version = to.gvk.group_version();
        let mut known = all.known.iter();
        if let Some((.., done)) = known.find(|(of, known, _)| *known == version && of == object) {
            return Some(done.clone());
        }
        all.missing.push((object.clone(), from.clone(), to.clone()));
        None
    }
}

/// How much the objects of one request have grown in conversions.
#[derive(Debug, Default)]
pub(crate) struct Growth(usize);

impl Growth {
    /// Counts a converted object; fails when all together have grown too much.
    fn count(&mut self, stored: &Entry, converted: &Entry) -> Result<(), Failure> {
        self.0 += converted.size().saturating_sub(stored.size());
        if self.0 <= LIST_GROWTH_BYTES_MAX {
            return Ok(());
        }
        let why =
            "a conversion webhook returns objects that are too large for one list; use a limit";
        Err(Status::internal(why))
    }
}

impl Registry {
    /// Calls `work` until all conversions that it needs are known.
    pub(crate) async fn with_conversions<T>(
        &self,
        kind: &Kind,
        conversions: &Conversions,
        mut work: impl FnMut() -> T,
    ) -> Result<T, Failure> {
        for _ in 0..OWNER_ROUNDS_MAX {
            let bytes = conversions.lock().bytes;
            let done = off_worker::compute(bytes, &mut work);
            let missing = std::mem::take(&mut conversions.lock().missing);
            if missing.is_empty() {
                return Ok(done);
            }
            for (object, from, to) in missing {
                let Some(Conversion { webhook, .. }) = conversion_of(kind) else { continue };
                let one = std::slice::from_ref(&object);
                let converted = self.convert_by(webhook, one, &from, &to).await?;
                let ConvertedObjects { objects, bytes } = converted;
                let Some(converted) = objects.into_iter().next() else { continue };
                let mut owners = conversions.lock();
                owners.known.push((object, to.gvk.group_version(), converted));
                owners.bytes += bytes;
            }
        }
        Err(Status::internal("owners of fields need too many conversions"))
    }

    /// Converts an object of a custom resource between two versions, with the webhook if there is
    /// one.
    pub(crate) async fn convert_one(
        &self,
        kind: &Kind,
        object: Object,
        from: &Schema,
        to: &Schema,
    ) -> Result<Object, Failure> {
        Ok(self.convert_measured(kind, object, from, to).await?.0)
    }

    /// Like [`Registry::convert_one`]; returns also the bytes of the webhook's response.
    async fn convert_measured(
        &self,
        kind: &Kind,
        object: Object,
        from: &Schema,
        to: &Schema,
    ) -> Result<(Object, usize), Failure> {
        if from.gvk == to.gvk {
            return Ok((object, 0));
        }
        let Some(Conversion { webhook, .. }) = conversion_of(kind) else {
            return Ok((kind.convert(object, from, to), 0));
        };
        let ConvertedObjects { objects, bytes } =
            self.convert_by(webhook, &[object], from, to).await?;
        let converted = objects
            .into_iter()
            .next()
            .ok_or_else(|| Status::internal("no object was converted"))?;
        Ok((off_worker::compute(bytes, || pruned(to, converted))?, bytes))
    }

    /// Calls the webhook with objects of one version. The result is not pruned yet.
    async fn convert_by(
        &self,
        webhook: &ConversionWebhook,
        objects: &[Object],
        from: &Schema,
        to: &Schema,
    ) -> Result<ConvertedObjects, Failure> {
        let uid = self.new_uid();
        let version = to.gvk.group_version();
        let converted = Box::pin(webhook.convert(objects, &from.gvk, &version, &uid)).await;
        converted.map_err(|error| {
            tracing::warn!(from = %from.gvk, %version, %error, "conversion webhook failed");
            Status::new(Reason::Unknown, error.to_string())
        })
    }

    /// Decodes an entry of a kind with a webhook in the version that writes use. See
    /// `decode_entry!`.
    pub(crate) async fn decode_converted(
        &self,
        target: &Target,
        entry: &Entry,
    ) -> Result<Object, Failure> {
        let (object, from) = target.kind.decode_as_stored(entry)?;
        self.convert_one(&target.kind, object, &from, target.working()).await
    }

    /// Encodes the record of an object that is not in the storage version. See `encode_record!`.
    pub(crate) async fn encode_converted(
        &self,
        target: &Target,
        object: Object,
    ) -> Result<Bytes, Failure> {
        let kind = &target.kind;
        let mut converted = self.convert_one(kind, object, target.working(), &kind.storage).await?;
        // Upstream sets defaults when it decodes what it has stored.
        default::fill(&kind.storage, &mut converted)?;
        Ok(kind.record(&mut converted))
    }

    /// Returns the object as it would be read after it was stored in the storage version.
    pub(crate) async fn round_trip(
        &self,
        target: &Target,
        object: Object,
    ) -> Result<Object, Failure> {
        let kind = &target.kind;
        let version = target.working();
        let mut stored = self.convert_one(kind, object, version, &kind.storage).await?;
        default::fill(&kind.storage, &mut stored)?;
        self.convert_one(kind, stored, &kind.storage, version).await
    }

    /// Converts an entry of a kind with a webhook to the version of the target. See
    /// `convert_entry!`.
    pub(crate) async fn converted(&self, target: &Target, entry: Entry) -> Result<Entry, Failure> {
        let kind = &target.kind;
        let to = target.schema();
        if kind.is_in_present_schema(&entry) && kind.is_in_version(&entry, to) {
            return Ok(entry);
        }
        let (object, from) = kind.decode_as_stored(&entry)?;
        let (object, bytes) = self.convert_measured(kind, object, &from, to).await?;
        off_worker::compute(bytes, || entry_of(kind, to, &entry, object))
    }

    /// Like [`Registry::converted`], for a change that several watchers read: it is converted once.
    pub(crate) async fn converted_for_watch(
        &self,
        target: &Target,
        entry: &Entry,
    ) -> Result<Entry, Failure> {
        let kind = &target.kind;
        let to = target.schema();
        if kind.is_in_present_schema(entry) && kind.is_in_version(entry, to) {
            return Ok(entry.clone());
        }
        let Some(Conversion { converted: known, .. }) = conversion_of(kind) else {
            return self.converted(target, entry.clone()).await;
        };
        let shared = known.shared(&to.gvk.version, entry);
        let convert = || async {
            let converted = self.converted(target, entry.clone()).await;
            known.count(&converted);
            converted
        };
        let converted = shared.get_or_init(convert).await.clone();
        if converted.is_err() {
            known.forget(&to.gvk.version, entry);
        }
        converted
    }

    /// Like [`Registry::converted`], for many entries. Those that are not cached are converted in
    /// batches.
    pub(crate) async fn converted_entries(
        &self,
        target: &Target,
        mut entries: Vec<Entry>,
        growth: &mut Growth,
    ) -> Result<Vec<Entry>, Failure> {
        let kind = &target.kind;
        let to = target.schema();
        let Some(conversion) = conversion_of(kind) else { return Ok(entries) };
        let version = &to.gvk.version;
        let mut waiting: HashMap<Str, Batch> = HashMap::new();
        for at in 0..entries.len() {
            let entry = &entries[at];
            if kind.is_in_present_schema(entry) && kind.is_in_version(entry, to) {
                continue;
            }
            if let Some(known) = conversion.converted.get(version, entry) {
                entries[at] = known;
                continue;
            }
            if (at + 1).is_multiple_of(DECODED_STRETCH) {
                tokio::task::yield_now().await;
            }
            let (object, from) =
                off_worker::compute(entry.size(), || kind.decode_as_stored(entry))?;
            if from.gvk == to.gvk {
                entries[at] = entry_of(kind, to, entry, object)?;
                continue;
            }
            let batch = waiting.entry(from.gvk.version.clone()).or_insert_with(|| Batch::of(from));
            batch.bytes += entry.size();
            batch.objects.push(object);
            batch.places.push(at);
            if batch.is_full() {
                self.convert_batch(target, batch, &mut entries, growth).await?;
            }
        }
        for batch in waiting.values_mut() {
            self.convert_batch(target, batch, &mut entries, growth).await?;
        }
        Ok(entries)
    }

    async fn convert_batch(
        &self,
        target: &Target,
        batch: &mut Batch,
        entries: &mut [Entry],
        growth: &mut Growth,
    ) -> Result<(), Failure> {
        let kind = &target.kind;
        let to = target.schema();
        let Some(conversion) = conversion_of(kind).filter(|_| !batch.objects.is_empty()) else {
            return Ok(());
        };
        let ConvertedObjects { objects, bytes } =
            self.convert_by(&conversion.webhook, &batch.objects, &batch.from, to).await?;
        off_worker::compute(bytes, || {
            for (at, object) in batch.places.drain(..).zip(objects) {
                let entry = entry_of(kind, to, &entries[at], pruned(to, object)?)?;
                growth.count(&entries[at], &entry)?;
                conversion.converted.insert(&to.gvk.version, entry.clone());
                entries[at] = entry;
            }
            batch.objects.clear();
            batch.bytes = 0;
            Ok(())
        })
    }
}

// Futures are as large as all that they may await, so what only kinds with a webhook await is boxed
// here.

/// Decodes an entry in the version that writes use.
macro_rules! decode_entry {
    ($registry:expr, $target:expr, $entry:expr) => {
        match $target.kind.has_conversion_webhook {
            false => $target.kind.object_in($entry, $target.working()),
            true => Box::pin($registry.decode_converted($target, $entry)).await,
        }
    };
}

/// Encodes the record of an object that is in the version that writes use.
macro_rules! encode_record {
    ($registry:expr, $target:expr, $object:expr) => {
        match $target.working().gvk == $target.kind.storage.gvk {
            true => Ok($target.kind.record($object)),
            false => Box::pin($registry.encode_converted($target, $object.clone())).await,
        }
    };
}

/// Replaces an object of a dry run by what a read would return after the write.
macro_rules! round_trip {
    ($registry:expr, $target:expr, $object:expr) => {
        if $target.kind.source == keelson_resources::api_table::Source::Custom {
            if $target.working().gvk == $target.kind.storage.gvk {
                keelson_schema::default::fill($target.working(), $object)?;
            } else {
                let trip = $registry.round_trip($target, std::mem::take($object));
                *$object = Box::pin(trip).await?;
            }
        }
    };
}

/// Converts an entry to the version of the target.
macro_rules! convert_entry {
    ($registry:expr, $target:expr, $entry:expr) => {
        match $target.kind.has_conversion_webhook {
            false => Ok($entry),
            true => Box::pin($registry.converted($target, $entry)).await,
        }
    };
}

pub(crate) use {convert_entry, decode_entry, encode_record, round_trip};

/// Objects of one version that are converted in one call.
struct Batch {
    from: Schema,
    objects: Vec<Object>,
    /// Indices of their entries.
    places: Vec<usize>,
    bytes: usize,
}

impl Batch {
    fn of(from: Schema) -> Batch {
        Batch { from, objects: vec![], places: vec![], bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.objects.len() >= BATCH_OBJECTS_MAX || self.bytes >= BATCH_BYTES_MAX
    }
}

/// Drops the fields that a version does not have from a converted object.
fn pruned(to: &Schema, object: Object) -> Result<Object, Failure> {
    let canonical = decode::canonicalize(to, object.into_value());
    canonical.map(|done| done.object).map_err(|why| Status::new(Reason::Unknown, why))
}

/// Returns an entry with the key and revision of `stored` and the JSON of `object`.
fn entry_of(
    kind: &Kind,
    schema: &Schema,
    stored: &Entry,
    mut object: Object,
) -> Result<Entry, Failure> {
    let value = kind.record_in(schema, &mut object);
    let key = Bytes::copy_from_slice(stored.key().as_bytes());
    let modified = stored.modified();
    let kv = KeyValue { key, value, created: modified, modified };
    Entry::from_store(0, &kv).map_err(Status::internal)
}

/// Returns what upstream answers to a list while its watch cache cannot convert the objects.
pub(crate) fn list_failure(schema: &Schema, why: &Failure) -> Failure {
    let gvk = &schema.gvk;
    let message = format!("storage is (re)initializing: failed to list {gvk}: {}", why.message);
    let mut status = Status::new(Reason::TooManyRequests, message);
    status.details.get_or_insert_default().retry_after_seconds = 1;
    status
}
