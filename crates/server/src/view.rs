//! Objects as a client wants to see them: whole, in another version, as metadata only, as table rows.

use crate::body::{Body, ListBody};
use crate::handler::{App, Ask};
use crate::listing::{Form, Listing};
use crate::negotiate::{Accepted, Encoding, Shape};
use crate::respond::{self, Reply};
use bytes::Bytes;
use keelson_cache::Entry;
use keelson_meta::{
    Failure, FieldError, GroupVersionKind, Map, Object, Path, Reason, Status, Value, value,
};
use keelson_registry::{Answer, List, Target};
use keelson_schema::{Schema, cbor, json, proto, tables};
use std::sync::Arc;

/// Bytes of JSON from which on a list of another form is written while it is sent.
const LISTED_BYTES_MIN: usize = 128 << 10;

/// How an answer's objects are shown.
#[derive(Clone)]
pub(crate) struct View {
    pub app: Arc<App>,
    pub accepted: Accepted,
    /// The type of the objects as the client sees them.
    pub schema: Schema,
    /// What of an object stands in a table's row.
    include: Include,
    /// Whether JSON is laid out for people.
    is_pretty: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Include {
    None,
    Metadata,
    Object,
}

impl View {
    /// Takes what the client accepts, or 400 for table options that make no sense.
    pub fn new(
        app: &Arc<App>,
        ask: &Ask,
        accepted: Accepted,
        schema: &Schema,
    ) -> Result<View, Failure> {
        let include = match ask.query.get("includeObject").unwrap_or_default() {
            _ if accepted.shape != Shape::Table => Include::Metadata,
            "" | "Metadata" => Include::Metadata,
            "None" => Include::None,
            "Object" => Include::Object,
            other => {
                let path = Path::new("includeObject");
                let why = "must be 'Metadata', 'Object', 'None', or empty";
                let error = FieldError::invalid(&path, other, why);
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: {error}"
                )));
            }
        };
        let (app, schema) = (app.clone(), schema.clone());
        Ok(View { app, accepted, schema, include, is_pretty: ask.pretty() })
    }

    fn meta_kind(&self, kind: &'static str) -> GroupVersionKind {
        let version = if self.accepted.meta_v1beta1 { "v1beta1" } else { "v1" };
        GroupVersionKind::new("meta.k8s.io", version, kind)
    }

    /// The type of answers in a form of their own.
    pub fn meta_schema(&self, kind: &'static str) -> Result<Schema, Failure> {
        let schema = self.app.registry.catalogue.schema(&self.meta_kind(kind));
        schema.ok_or_else(|| Status::internal(format!("{kind} has no schema")))
    }

    /// The object of an answer, in the version of the view.
    fn object(&self, target: &Target, answer: &Answer) -> Result<Object, Failure> {
        match answer {
            Answer::Entry(entry) => self.decoded(target, entry),
            Answer::Object(obj) => Ok(obj.clone()),
            Answer::Success(value) => {
                Object::from_value(value.clone()).ok_or_else(|| Status::internal("no object"))
            }
        }
    }

    /// A stored object, in the version of the view.
    pub fn decoded(&self, target: &Target, entry: &Entry) -> Result<Object, Failure> {
        let obj = target.kind.decode(entry)?;
        Ok(target.kind.convert(obj, &target.kind.storage, &self.schema))
    }

    /// An object as the client sees it, as [`respond::encoded`] takes it.
    fn text(&self, target: &Target, answer: &Answer) -> Result<Bytes, Failure> {
        let is_text = matches!(self.accepted.encoding, Encoding::Json | Encoding::Yaml);
        match (self.accepted.shape, answer) {
            (Shape::Object, Answer::Entry(entry)) if is_text && self.is_storage(target) => {
                Ok(entry.json())
            }
            (Shape::Object, _) => {
                self.accepted.encoding.object(&self.schema, &self.object(target, answer)?)
            }
            (Shape::Partial, _) => self.partial_text(self.object(target, answer)?),
            (Shape::Table, _) => {
                let obj = self.object(target, answer)?;
                let version = obj.resource_version().to_owned();
                let rows = vec![self.row(&obj)];
                let mut metadata = Map::new();
                if !version.is_empty() {
                    metadata.insert("resourceVersion", version);
                }
                Ok(written(&self.table(metadata, rows, true)))
            }
            (Shape::PartialList, _) => Err(Status::new(
                Reason::NotAcceptable,
                format!(
                    "you requested PartialObjectMetadataList, but the requested object is not a \
                     list (*{})",
                    go_type(&self.schema, "")
                ),
            )),
        }
    }

    /// Whether the stored text, as it is, is what the client sees.
    pub fn is_stored_text(&self, target: &Target) -> bool {
        self.accepted.shape == Shape::Object
            && self.accepted.encoding == Encoding::Json
            && self.is_storage(target)
    }

    /// Whether objects are stored in the version that the client sees.
    fn is_storage(&self, target: &Target) -> bool {
        target.kind.storage.gvk == self.schema.gvk
    }

    /// An answer with one object.
    pub fn reply(&self, code: u16, target: &Target, answer: &Answer) -> Result<Reply, Failure> {
        let encoding = self.accepted.encoding;
        if let Answer::Entry(entry) = answer
            && self.is_stored_text(target)
            && !self.is_pretty
        {
            let body = Body::Whole(Some(entry.json_line()));
            return Ok(respond::with_body(code, encoding.media_type(), body));
        }
        let text = self.text(target, answer)?;
        Ok(respond::encoded(self.is_pretty, code, encoding, text))
    }

    /// An answer with a list.
    pub fn reply_list(&self, target: &Target, list: List) -> Result<Reply, Failure> {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion", list.revision.to_string());
        if let Some(token) = &list.continue_token {
            metadata.insert("continue", token.as_str());
        }
        if let Some(remaining) = list.remaining {
            metadata.insert("remainingItemCount", i64::try_from(remaining).unwrap_or(i64::MAX));
        }
        if self.is_stored_text(target) && !self.is_pretty {
            let head = self.list_head(&metadata);
            let body = Body::List(ListBody::new(head, list.items));
            return Ok(respond::with_body(200, Encoding::Json.media_type(), body));
        }
        if let Some(form) = self.listed_form(&list.items) {
            let listing = Listing::new(self.clone(), target.clone(), form, metadata, list.items);
            let body = Body::Listing(Box::new(listing));
            return Ok(respond::with_body(200, self.accepted.encoding.media_type(), body));
        }
        let objects: Result<Vec<Object>, Failure> =
            list.items.iter().map(|entry| self.decoded(target, entry)).collect();
        self.reply_objects(metadata, objects?)
    }

    /// The form in which a list is written while it is sent; `None`: it is short, or for people, or sorted
    /// anew, and is made whole.
    fn listed_form(&self, items: &[Arc<Entry>]) -> Option<Form> {
        let bytes: usize = items.iter().map(|entry| entry.json_slice().len()).sum();
        if bytes < LISTED_BYTES_MIN || self.is_pretty {
            return None;
        }
        match (self.accepted.shape, self.accepted.encoding) {
            (Shape::Object, Encoding::Json) => Some(Form::Json),
            (Shape::Object | Shape::PartialList, Encoding::Protobuf) => Some(Form::Protobuf),
            (Shape::Object, Encoding::Cbor) => Some(Form::Cbor),
            (Shape::PartialList, Encoding::Json) => Some(Form::Partial),
            (Shape::Table, Encoding::Json) if !self.printer().sorts_rows() => Some(Form::Rows),
            _ => None,
        }
    }

    /// An answer with a list of objects that are no longer stored as such.
    pub fn reply_objects(&self, metadata: Map, objects: Vec<Object>) -> Result<Reply, Failure> {
        let text = match self.accepted.shape {
            Shape::Partial => {
                return Err(Status::new(
                    Reason::NotAcceptable,
                    format!(
                        "you requested PartialObjectMetadata, but the requested object is a list \
                         (*{})",
                        go_type(&self.schema, "List")
                    ),
                ));
            }
            Shape::PartialList => self.partial_list(metadata, objects)?,
            Shape::Table => {
                let mut objects = objects;
                let printer = self.printer();
                objects.sort_by(|a, b| printer.compare_rows(a, b));
                let rows = objects.iter().map(|obj| self.row(obj)).collect();
                written(&self.table(metadata, rows, true))
            }
            Shape::Object if self.accepted.encoding == Encoding::Protobuf => {
                protobuf_list(&self.list_schema()?, &self.schema, &metadata, &objects)?
            }
            Shape::Object if self.accepted.encoding == Encoding::Cbor => {
                self.cbor_list(&metadata, &objects)
            }
            Shape::Object => {
                let mut text = self.list_head(&metadata);
                for (i, obj) in objects.iter().enumerate() {
                    if i > 0 {
                        text.push(b',');
                    }
                    json::encode_list_item(&self.schema, obj, &mut text);
                }
                text.extend_from_slice(b"]}");
                Bytes::from(text)
            }
        };
        Ok(respond::encoded(self.is_pretty, 200, self.accepted.encoding, text))
    }

    /// The type of a list of the objects.
    pub fn list_schema(&self) -> Result<Schema, Failure> {
        if self.accepted.shape == Shape::PartialList {
            return self.meta_schema("PartialObjectMetadataList");
        }
        let list = self.app.registry.catalogue.schema(&self.list_kind());
        list.ok_or_else(|| Status::internal("no list type"))
    }

    fn list_kind(&self) -> GroupVersionKind {
        let gvk = &self.schema.gvk;
        gvk.group_version().kind(format!("{}List", gvk.kind))
    }

    /// The type of a CBOR list, which needs nothing but its kind.
    pub fn cbor_list_schema(&self) -> Schema {
        Schema { gvk: self.list_kind(), ..self.schema.clone() }
    }

    /// A list in CBOR.
    fn cbor_list(&self, metadata: &Map, objects: &[Object]) -> Bytes {
        let list = self.cbor_list_schema();
        let mut out = vec![];
        cbor::begin_list(&list, objects.len(), &mut out);
        for obj in objects {
            cbor::encode_list_item(&self.schema, obj, &mut out);
        }
        cbor::end_list(&list, &Value::Object(metadata.clone()), &mut out);
        Bytes::from(out)
    }

    /// A list up to its items.
    pub fn list_head(&self, metadata: &Map) -> Vec<u8> {
        let kind = match self.accepted.shape {
            Shape::PartialList => self.meta_kind("PartialObjectMetadataList"),
            _ => self.list_kind(),
        };
        let mut head = b"{\"kind\":".to_vec();
        json::write_string(&kind.kind, &mut head);
        head.extend_from_slice(b",\"apiVersion\":");
        json::write_string(&kind.api_version(), &mut head);
        head.extend_from_slice(b",\"metadata\":");
        json::write_value(&Value::Object(metadata.clone()), &mut head);
        head.extend_from_slice(b",\"items\":[");
        head
    }

    /// An object's metadata.
    pub fn partial(&self, mut obj: Object) -> Object {
        let metadata = obj.root.remove("metadata").unwrap_or_else(|| Map::new().into());
        let mut partial = Object::new();
        partial.set_gvk(&self.meta_kind("PartialObjectMetadata"));
        partial.root.insert("metadata", metadata);
        partial
    }

    /// An object's metadata, as [`respond::encoded`] takes it.
    pub fn partial_text(&self, obj: Object) -> Result<Bytes, Failure> {
        let schema = self.meta_schema("PartialObjectMetadata")?;
        self.accepted.encoding.object(&schema, &self.partial(obj))
    }

    /// The metadata of a list's objects.
    fn partial_list(&self, metadata: Map, objects: Vec<Object>) -> Result<Bytes, Failure> {
        let partial: Vec<Object> = objects.into_iter().map(|obj| self.partial(obj)).collect();
        let list = self.meta_schema("PartialObjectMetadataList")?;
        if self.accepted.encoding == Encoding::Protobuf {
            let item = self.meta_schema("PartialObjectMetadata")?;
            return protobuf_list(&list, &item, &metadata, &partial);
        }
        let items: Vec<Value> = partial.into_iter().map(Value::from).collect();
        let list = value!({
            "kind": (list.gvk.kind.clone()), "apiVersion": (list.gvk.api_version()),
            "metadata": (metadata), "items": (items)
        });
        let mut out = vec![];
        match self.accepted.encoding {
            Encoding::Cbor => cbor::write_body(&list, &mut out),
            _ => json::write_value(&list, &mut out),
        }
        Ok(Bytes::from(out))
    }

    fn printer(&self) -> &'static tables::Printer {
        tables::printer(&self.schema.gvk.group, &self.schema.gvk.kind)
    }

    pub fn row(&self, obj: &Object) -> Value {
        let printer = self.printer();
        let cells = printer.cells(obj, self.app.registry.clock.now());
        let mut row = Map::new();
        row.insert("cells", cells);
        let conditions = printer.conditions(obj);
        if !conditions.is_empty() {
            row.insert("conditions", conditions);
        }
        let object = match self.include {
            Include::None => Value::Null,
            Include::Metadata => self.partial(obj.clone()).into(),
            Include::Object => {
                let mut text = vec![];
                json::encode(&self.schema, obj, &mut text);
                json::parse(&text).map(|parsed| parsed.value).unwrap_or_default()
            }
        };
        row.insert("object", object);
        Value::Object(row)
    }

    /// A Table; `columns` says whether it carries its columns (only the first of a watch does).
    pub fn table(&self, metadata: Map, rows: Vec<Value>, columns: bool) -> Value {
        let definitions = if columns {
            Value::Array(self.printer().column_definitions(|_, _| None))
        } else {
            Value::Null
        };
        // Upstream's default table never makes the list of its rows when there are none.
        let is_nil = rows.is_empty() && self.printer().is_default();
        let rows = if is_nil { Value::Null } else { Value::Array(rows) };
        value!({
            "kind": "Table", "apiVersion": (self.meta_kind("Table").api_version()),
            "metadata": (metadata),
            "columnDefinitions": (definitions), "rows": (rows)
        })
    }

    /// An object inside a watch event, in the encoding of the stream.
    pub fn event_object(
        &self,
        target: &Target,
        entry: &Arc<Entry>,
        first: bool,
    ) -> Result<Bytes, Failure> {
        match self.accepted.shape {
            Shape::Table => {
                let obj = self.decoded(target, entry)?;
                let mut metadata = Map::new();
                metadata.insert("resourceVersion", obj.resource_version());
                Ok(written(&self.table(metadata, vec![self.row(&obj)], first)))
            }
            Shape::PartialList => self.partial_text(self.decoded(target, entry)?),
            Shape::Object | Shape::Partial => self.text(target, &Answer::Entry(entry.clone())),
        }
    }
}

/// A list in protobuf.
fn protobuf_list(
    list: &Schema,
    item: &Schema,
    metadata: &Map,
    objects: &[Object],
) -> Result<Bytes, Failure> {
    let fail = |error: proto::Mismatch| Status::internal(error.to_string());
    let mut messages = vec![];
    let mut ends = Vec::with_capacity(objects.len());
    for obj in objects {
        proto::encode_message(item, obj, &mut messages).map_err(fail)?;
        ends.push(messages.len());
    }
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let sizes: Vec<usize> = starts.zip(&ends).map(|(start, end)| end - start).collect();
    let total = sizes.iter().map(|size| proto::list_item_bytes(*size)).sum();
    let mut out = Vec::with_capacity(messages.len() + 1024);
    proto::begin_list(list, metadata, total, &mut out).map_err(fail)?;
    let mut at = 0;
    for size in sizes {
        proto::begin_list_item(size, &mut out);
        out.extend_from_slice(&messages[at..at + size]);
        at += size;
    }
    proto::end_list(&mut out);
    Ok(Bytes::from(out))
}

pub(crate) fn written(value: &Value) -> Bytes {
    let mut text = vec![];
    json::write_value(value, &mut text);
    Bytes::from(text)
}

/// Upstream's name for the internal type: `core.ConfigMapList`.
fn go_type(schema: &Schema, suffix: &str) -> String {
    let group = schema.gvk.group.split('.').next().unwrap_or_default();
    let package = if group.is_empty() { "core" } else { group };
    format!("{package}.{}{suffix}", schema.gvk.kind)
}
