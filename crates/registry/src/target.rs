//! [`Target`]: the object or collection of a request. [`Answer`]: what a verb answers.

use keelson_kinds::scale;
use keelson_meta::status::quote;
use keelson_meta::{Failure, GroupVersionResource, Object, Status, Str, Value, names};
use keelson_records::Entry;
use keelson_resources::Kind;
use keelson_resources::api_table::Source;
use keelson_schema::Schema;
use keelson_traces::Span;
use std::sync::Arc;

/// The object or collection that a request names.
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
    /// Returns the Scale of an object before an update; missing replicas count as 0.
    pub(crate) fn scale_before(&self, obj: &Object) -> Object {
        match self.kind.scale(&self.version) {
            Some(paths) => scale::custom(&paths, obj),
            None => scale::built_in(obj),
        }
    }

    /// Starts the span of an access to the object. The key is that of etcd, without the prefix.
    pub(crate) fn span(&self, name: &'static str) -> Span {
        let span = keelson_traces::start(name);
        if span.is_recorded() {
            let key = self.kind.store_key(&self.namespace, &self.name);
            let key = String::from_utf8_lossy(key.strip_prefix(b"/registry").unwrap_or(&key));
            span.set("key", &*key);
        }
        span
    }

    /// Starts the span of an access to objects of the kind, with the attributes of upstream's.
    pub(crate) fn collection_span(&self, name: &'static str) -> Span {
        let span = keelson_traces::start(name);
        if span.is_recorded() {
            // Go's `GroupResource.String`.
            let GroupVersionResource { group, resource, .. } = self.gvr();
            let dot = if group.is_empty() { "" } else { "." };
            span.set("type", format!("{resource}{dot}{group}"));
        }
        span
    }

    /// Returns a target in the storage version, for callers inside the server.
    pub fn of(kind: &Arc<Kind>, namespace: &str, name: &str) -> Target {
        let version = kind.storage.gvk.version.clone();
        Target { kind: kind.clone(), version, namespace: namespace.into(), name: name.into() }
    }

    /// Returns the schema of the version in the URL.
    pub fn schema(&self) -> &Schema {
        self.kind.schema(&self.version).unwrap_or(&self.kind.storage)
    }

    /// Returns the schema of the version in which writes handle objects: the storage version for
    /// built-in kinds; for custom resources the version in the URL, whose rules validate the
    /// object.
    pub(crate) fn working(&self) -> &Schema {
        match self.kind.source {
            Source::BuiltIn => &self.kind.storage,
            Source::Custom => self.schema(),
        }
    }

    /// Returns group, version and resource as messages contain them.
    pub fn gvr(&self) -> &GroupVersionResource {
        &self.kind.gvr
    }

    /// Returns the key without the prefix.
    pub fn key(&self) -> String {
        self.kind.key(&self.namespace, &self.name)
    }

    /// Returns 404 for the object, or 400 if no object can have its name.
    pub fn not_found(&self) -> Failure {
        self.check_name().err().unwrap_or_else(|| Status::not_found(self.gvr(), &self.name))
    }

    /// Refuses a name that no URL can contain (apiserver `registry.NamespaceKeyFunc`).
    pub(crate) fn check_name(&self) -> Result<(), Failure> {
        let faults = names::is_path_segment_name(&self.name);
        if faults.is_empty() {
            return Ok(());
        }
        let name = quote(&self.name);
        let faults = faults.join(";");
        Err(Status::bad_request(format!("Name parameter invalid: {name}: {faults}")))
    }

    /// Returns the same target with another namespace and name.
    pub fn named(&self, namespace: &str, name: &str) -> Target {
        Target { namespace: namespace.into(), name: name.into(), ..self.clone() }
    }
}

/// The object or Status that a verb answers.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A stored object, whose JSON can be sent as it is.
    Entry(Entry),
    /// An object that was built for this answer, in the version of the URL.
    Object(Object),
    /// A `Status` of success with these details.
    Success(Value),
}
