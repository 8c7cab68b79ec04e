//! [`Kind`]: one resource with its versions, its rules and its objects. [`Target`]: what a request
//! speaks of. Below this, nobody can ask whether a kind is built in.

use bytes::Bytes;
use keelson_cache::{Entry, Record};
use keelson_kinds::strategy::Strategy;
use keelson_meta::room::Kept;
use keelson_meta::{Failure, GroupVersionKind, GroupVersionResource, Object, Status, Str, Value};
use keelson_schema::Schema;
use keelson_schema::json;
use smallvec::SmallVec;
use std::sync::Arc;

/// Bytes that a thread keeps to encode the next object in.
const SCRATCH_BYTES_MAX: usize = 64 << 10;

thread_local! {
    /// Where objects are encoded: how long one is shows only then, and what is stored has no room left.
    static SCRATCH: Kept<Vec<u8>> = const { Kept::new(SCRATCH_BYTES_MAX) };
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
}

impl Kind {
    /// The schema of a served version.
    pub fn schema(&self, version: &str) -> Option<&Schema> {
        self.versions.iter().find(|schema| schema.gvk.version == version)
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

    /// The object of an entry, in the storage version.
    pub fn decode(&self, entry: &Entry) -> Result<Object, Failure> {
        let text = entry.json_slice();
        if let Some(root) = json::read_stored(&self.storage, text) {
            return Ok(Object { root });
        }
        let parsed = json::parse(text).map_err(Status::internal)?;
        Object::from_value(parsed.value)
            .ok_or_else(|| Status::internal(format!("stored object {entry:?} is not a map")))
    }

    /// The stored form of an object in the storage version.
    pub fn record(&self, obj: &mut Object) -> Bytes {
        obj.metadata_mut().insert("resourceVersion", "0");
        let mut text = Kept::take(&SCRATCH);
        let marks = json::encode(&self.storage, obj, &mut text);
        let labels: SmallVec<[(&str, &str); 8]> = obj.meta_map("labels").collect();
        let fields = self.strategy.selectable(obj);
        let record = Record {
            json: &text,
            resource_version_at: marks.resource_version_at,
            item_at: marks.item_at,
            labels: &labels,
            fields: &fields,
        }
        .encode();
        Kept::give_back(&SCRATCH, text);
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

    /// An object of another version as it is stored, with what the storage version has by default.
    pub fn to_storage(&self, obj: Object, from: &Schema) -> Object {
        if from.gvk == self.storage.gvk {
            return obj;
        }
        let mut obj = self.convert(obj, from, &self.storage);
        keelson_schema::default::fill(&self.storage, &mut obj);
        (self.strategy.default)(&mut obj);
        obj
    }

    /// A stored object in another version; of a kind that conversion changes, as it is written out there.
    pub fn in_version(&self, obj: Object, to: &Schema) -> Object {
        let obj = self.convert(obj, &self.storage, to);
        if !self.strategy.owned_as_converted {
            return obj;
        }
        let mut text = vec![];
        json::encode(to, &obj, &mut text);
        json::read_stored(to, &text).map_or(obj, |root| Object { root })
    }

    /// What the stored version can say of an object of another one.
    pub fn round_trip(&self, obj: Object, schema: &Schema) -> Object {
        if schema.gvk == self.storage.gvk {
            return obj;
        }
        let obj = self.convert(obj, schema, &self.storage);
        self.convert(obj, &self.storage, schema)
    }

    /// Converts between two served versions; objects keep what both can say.
    pub fn convert(&self, obj: Object, from: &Schema, to: &Schema) -> Object {
        if from.gvk == to.gvk {
            return obj;
        }
        keelson_kinds::convert(obj, &from.gvk, &to.gvk)
    }
}

/// The form of an object of which tables are made, when it is another: upstream prints the internal one.
pub fn printed_form(gvk: &GroupVersionKind, obj: &Object) -> Option<Object> {
    let is_old_autoscaler = gvk.group == "autoscaling" && gvk.version == "v1";
    is_old_autoscaler.then(|| {
        let newest = GroupVersionKind { version: "v2".into(), ..gvk.clone() };
        keelson_kinds::convert(obj.clone(), gvk, &newest)
    })
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
    /// The schema of the version in the URL.
    pub fn schema(&self) -> &Schema {
        self.kind.schema(&self.version).unwrap_or(&self.kind.storage)
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
