//! Conversion of custom resources by webhooks: of objects that are read, written, compared by owners of
//! fields or seen by plug-ins. Kinds without a webhook do not come here.

use crate::kind::{Kind, Target};
use crate::registry::Registry;
use bytes::Bytes;
use keelson_admission::webhooks::ConversionWebhook;
use keelson_cache::Entry;
use keelson_meta::{Failure, GroupVersion, Object, Reason, Status, Str};
use keelson_schema::{Schema, decode, default};
use keelson_store::KeyValue;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Objects that are converted by one call, and their bytes of JSON.
const BATCH_OBJECTS_MAX: usize = 500;
const BATCH_BYTES_MAX: usize = 2 << 20;
/// Conversions that are asked for by owners of fields, one after the other, in one change.
const OWNER_ROUNDS_MAX: usize = 64;

/// Conversions that the owners of fields need, which are asked for without waiting: what is not known yet is
/// noted, converted, and the work done anew.
#[derive(Debug, Default)]
pub(crate) struct Conversions(Mutex<OwnerConversions>);

#[derive(Debug, Default)]
struct OwnerConversions {
    known: Vec<(Object, GroupVersion, Object)>,
    missing: Vec<(Object, Schema, Schema)>,
}

impl Conversions {
    fn lock(&self) -> MutexGuard<'_, OwnerConversions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An object in another version, when that is known.
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

impl Registry {
    /// Does work that may need conversions until it has all of them.
    pub(crate) async fn with_conversions<T>(
        &self,
        kind: &Kind,
        conversions: &Conversions,
        mut work: impl FnMut() -> T,
    ) -> Result<T, Failure> {
        for _ in 0..OWNER_ROUNDS_MAX {
            let done = work();
            let missing = std::mem::take(&mut conversions.lock().missing);
            if missing.is_empty() {
                return Ok(done);
            }
            for (object, from, to) in missing {
                let Some(webhook) = &kind.webhook else { continue };
                let one = std::slice::from_ref(&object);
                let converted = self.convert_by(webhook, one, &from, &to).await?;
                let Some(converted) = converted.into_iter().next() else { continue };
                let known = (object, to.gvk.group_version(), converted);
                conversions.lock().known.push(known);
            }
        }
        Err(Status::internal("owners of fields need too many conversions"))
    }

    /// Converts an object of a custom resource between two versions, by the webhook if there is one.
    pub(crate) async fn convert_one(
        &self,
        kind: &Kind,
        object: Object,
        from: &Schema,
        to: &Schema,
    ) -> Result<Object, Failure> {
        if from.gvk == to.gvk {
            return Ok(object);
        }
        let Some(webhook) = &kind.webhook else { return Ok(kind.convert(object, from, to)) };
        let converted = self.convert_by(webhook, &[object], from, to).await?;
        let converted = converted.into_iter().next();
        pruned(to, converted.ok_or_else(|| Status::internal("no object was converted"))?)
    }

    /// Converts objects of one version; what the other has not is still there.
    async fn convert_by(
        &self,
        webhook: &ConversionWebhook,
        objects: &[Object],
        from: &Schema,
        to: &Schema,
    ) -> Result<Vec<Object>, Failure> {
        let (uid, version) = (self.new_uid(), to.gvk.group_version());
        let converted = Box::pin(webhook.convert(objects, &from.gvk, &version, &uid)).await;
        converted.map_err(|error| {
            tracing::warn!(from = %from.gvk, %version, %error, "conversion webhook failed");
            Status::new(Reason::Unknown, error.to_string())
        })
    }

    /// The object of an entry of a kind with a webhook, in the version that writes of a target work on.
    /// See `object_of!`.
    pub(crate) async fn converted_object(
        &self,
        target: &Target,
        entry: &Entry,
    ) -> Result<Object, Failure> {
        let (object, from) = target.kind.own_object(entry)?;
        self.convert_one(&target.kind, object, &from, target.working()).await
    }

    /// The record of an object that is not in the storage version. See `record_of!`.
    pub(crate) async fn converted_record(
        &self,
        target: &Target,
        object: Object,
    ) -> Result<Bytes, Failure> {
        let kind = &target.kind;
        let mut converted = self.convert_one(kind, object, target.working(), &kind.storage).await?;
        // Upstream gives defaults when it reads what it has stored.
        default::fill(&kind.storage, &mut converted);
        Ok(kind.record(&mut converted))
    }

    /// What would be read of an object once it was stored in another version.
    pub(crate) async fn round_trip(
        &self,
        target: &Target,
        object: Object,
    ) -> Result<Object, Failure> {
        let (kind, version) = (&target.kind, target.working());
        let mut stored = self.convert_one(kind, object, version, &kind.storage).await?;
        default::fill(&kind.storage, &mut stored);
        self.convert_one(kind, stored, &kind.storage, version).await
    }

    /// An entry of a kind with a webhook as clients of the target's version see it. See `shown!`.
    pub(crate) async fn converted(&self, target: &Target, entry: Entry) -> Result<Entry, Failure> {
        let (kind, to) = (&target.kind, target.schema());
        if kind.is_of_this_schema(&entry) && kind.is_current(&entry, to) {
            return Ok(entry);
        }
        let (object, from) = kind.own_object(&entry)?;
        let object = self.convert_one(kind, object, &from, to).await?;
        entry_of(kind, to, &entry, object)
    }

    /// The same for a change that several watchers may want to see: it is converted once.
    pub(crate) async fn shown_to_watchers(
        &self,
        target: &Target,
        entry: &Entry,
    ) -> Result<Entry, Failure> {
        let (kind, to) = (&target.kind, target.schema());
        if kind.is_of_this_schema(entry) && kind.is_current(entry, to) {
            return Ok(entry.clone());
        }
        let shared = kind.converted.shared(&to.gvk.version, entry);
        let converted = shared.get_or_init(|| self.converted(target, entry.clone())).await.clone();
        if converted.is_err() {
            kind.converted.forget(&to.gvk.version, entry);
        }
        converted
    }

    /// The same for many entries, of which those that are not known are converted together.
    pub(crate) async fn all_shown(
        &self,
        target: &Target,
        mut entries: Vec<Entry>,
    ) -> Result<Vec<Entry>, Failure> {
        let (kind, to) = (&target.kind, target.schema());
        let Some(webhook) = &kind.webhook else { return Ok(entries) };
        let version = &to.gvk.version;
        let mut waiting: HashMap<Str, Batch> = HashMap::new();
        for at in 0..entries.len() {
            let entry = &entries[at];
            if kind.is_of_this_schema(entry) && kind.is_current(entry, to) {
                continue;
            }
            if let Some(known) = kind.converted.get(version, entry) {
                entries[at] = known;
                continue;
            }
            let (object, from) = kind.own_object(entry)?;
            if from.gvk == to.gvk {
                entries[at] = entry_of(kind, to, entry, object)?;
                continue;
            }
            let batch = waiting.entry(from.gvk.version.clone()).or_insert_with(|| Batch::of(from));
            batch.bytes += entry.size();
            batch.objects.push(object);
            batch.places.push(at);
            if batch.is_full() {
                self.convert_batch(target, webhook, batch, &mut entries).await?;
            }
        }
        for batch in waiting.values_mut() {
            self.convert_batch(target, webhook, batch, &mut entries).await?;
        }
        Ok(entries)
    }

    async fn convert_batch(
        &self,
        target: &Target,
        webhook: &ConversionWebhook,
        batch: &mut Batch,
        entries: &mut [Entry],
    ) -> Result<(), Failure> {
        let (kind, to) = (&target.kind, target.schema());
        if batch.objects.is_empty() {
            return Ok(());
        }
        let converted = self.convert_by(webhook, &batch.objects, &batch.from, to).await?;
        for (at, object) in batch.places.drain(..).zip(converted) {
            let entry = entry_of(kind, to, &entries[at], pruned(to, object)?)?;
            kind.converted.insert(&to.gvk.version, entry.clone());
            entries[at] = entry;
        }
        batch.objects.clear();
        batch.bytes = 0;
        Ok(())
    }
}

// Futures of requests are as large as all that they may wait for: what only kinds with webhooks wait for is
// behind a pointer, which these make where it is needed.

/// The object of an entry in the version that writes of a target work on.
macro_rules! object_of {
    ($registry:expr, $target:expr, $entry:expr) => {
        match $target.kind.webhook {
            None => $target.kind.object_in($entry, $target.working()),
            Some(_) => Box::pin($registry.converted_object($target, $entry)).await,
        }
    };
}

/// The record of an object that is in the version that writes of a target work on.
macro_rules! record_of {
    ($registry:expr, $target:expr, $object:expr) => {
        match $target.working().gvk == $target.kind.storage.gvk {
            true => Ok($target.kind.record($object)),
            false => Box::pin($registry.converted_record($target, $object.clone())).await,
        }
    };
}

/// What a write of a custom resource that is not done would leave to be read.
macro_rules! read_back {
    ($registry:expr, $target:expr, $object:expr) => {
        if $target.kind.source == $crate::api_table::Source::Custom {
            if $target.working().gvk == $target.kind.storage.gvk {
                keelson_schema::default::fill($target.working(), $object);
            } else {
                let trip = $registry.round_trip($target, std::mem::take($object));
                *$object = Box::pin(trip).await?;
            }
        }
    };
}

/// An entry as clients of the target's version see it.
macro_rules! shown {
    ($registry:expr, $target:expr, $entry:expr) => {
        match $target.kind.webhook {
            None => Ok($entry),
            Some(_) => Box::pin($registry.converted($target, $entry)).await,
        }
    };
}

pub(crate) use {object_of, read_back, record_of, shown};

/// Objects of one version that are to be converted together.
struct Batch {
    from: Schema,
    objects: Vec<Object>,
    /// Where their entries stand in the list.
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

/// A converted object without what its version has not.
fn pruned(to: &Schema, object: Object) -> Result<Object, Failure> {
    let canonical = decode::canonicalize(to, object.into_value());
    canonical.map(|done| done.object).map_err(|why| Status::new(Reason::Unknown, why))
}

/// The entry of an object in a version, in the place of the one that is stored.
fn entry_of(
    kind: &Kind,
    schema: &Schema,
    stored: &Entry,
    mut object: Object,
) -> Result<Entry, Failure> {
    let value = kind.record_in(schema, &mut object);
    let (key, modified) = (Bytes::copy_from_slice(stored.key().as_bytes()), stored.modified());
    let kv = KeyValue { key, value, created: modified, modified };
    Entry::from_store(0, &kv).map_err(Status::internal)
}

/// What upstream says of a list whose objects cannot be converted: its watch cache has none of them.
pub(crate) fn not_listed(schema: &Schema, why: &Failure) -> Failure {
    let gvk = &schema.gvk;
    let message = format!("storage is (re)initializing: failed to list {gvk}: {}", why.message);
    let mut status = Status::new(Reason::TooManyRequests, message);
    status.details.get_or_insert_default().retry_after_seconds = 1;
    status
}
