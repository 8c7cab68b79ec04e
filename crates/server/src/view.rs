//! Converts objects to what a client requested: another version, metadata only, or table rows.

use crate::app::App;
use crate::body::Body;
use crate::negotiate::{Accepted, Encoding, Shape};
use crate::request_head::RequestHead;
use crate::respond::{self, Reply};
use bytes::Bytes;
use keelson_auth::off_worker;
use keelson_meta::{
    Failure, FieldError, GroupVersionKind, Map, Object, Path, Reason, Status, Str, Value, value,
};
use keelson_records::Entry;
use keelson_registry::{
    Answer, Target, drop_converted_annotations, has_printed_form, printed_form,
};
use keelson_resources::api_table::Source;
use keelson_schema::{Schema, json, tables};
use std::sync::Arc;

/// The representation of the objects in a response.
#[derive(Clone)]
pub(crate) struct View {
    pub app: Arc<App>,
    pub accepted: Accepted,
    /// The schema of the objects in the response.
    pub schema: Schema,
    /// The kind of the list, such as `PodList`.
    list_kind: Str,
    /// Printer columns of a custom resource.
    columns: Option<Arc<tables::CustomColumns>>,
    /// The `includeObject` of a table, or why it is invalid: upstream says so after all other
    /// errors.
    include: Result<Include, Failure>,
    /// Whether JSON is indented.
    pub is_pretty: bool,
    /// Whether the objects are custom resources.
    is_custom: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Include {
    None,
    Metadata,
    Object,
}

impl Include {
    fn read(head: &RequestHead, accepted: Accepted) -> Result<Include, Failure> {
        match head.query.get("includeObject").unwrap_or_default() {
            _ if accepted.shape != Shape::Table => Ok(Include::Metadata),
            "" | "Metadata" => Ok(Include::Metadata),
            "None" => Ok(Include::None),
            "Object" => Ok(Include::Object),
            other => {
                let path = Path::new("includeObject");
                let why = "must be 'Metadata', 'Object', 'None', or empty";
                let error = FieldError::invalid(&path, other, why);
                Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: {error}"
                )))
            }
        }
    }
}

impl View {
    /// Creates a view. `schema_override` is the schema of the response, if it differs from that of
    /// the objects.
    pub fn new(
        app: &Arc<App>,
        head: &RequestHead,
        accepted: Accepted,
        target: &Target,
        schema_override: Option<&Schema>,
    ) -> View {
        let include = Include::read(head, accepted);
        let app = app.clone();
        let schema = schema_override.unwrap_or_else(|| target.schema()).clone();
        let list_kind = target.kind.list_kind.clone();
        let columns =
            if schema_override.is_none() { target.kind.columns(&target.version) } else { None };
        let is_custom = target.kind.source == Source::Custom;
        let is_pretty = head.pretty();
        View { app, accepted, schema, list_kind, columns, include, is_pretty, is_custom }
    }

    /// Creates a view of objects that are computed for the request.
    pub fn computed(
        app: &Arc<App>,
        head: &RequestHead,
        accepted: Accepted,
        schema: &Schema,
    ) -> View {
        View {
            app: app.clone(),
            accepted,
            schema: schema.clone(),
            list_kind: Str::from(format!("{}List", schema.gvk.kind)),
            columns: None,
            include: Include::read(head, accepted),
            is_pretty: head.pretty(),
            is_custom: false,
        }
    }

    /// Fails with 400 for invalid options of a table.
    pub fn check_table_options(&self) -> Result<(), Failure> {
        self.include.as_ref().map(|_| ()).map_err(Clone::clone)
    }

    fn meta_kind(&self, kind: &'static str) -> GroupVersionKind {
        meta_kind(self.accepted, kind)
    }

    /// Returns the schema of a meta.k8s.io kind.
    pub fn meta_schema(&self, kind: &'static str) -> Result<Schema, Failure> {
        meta_schema(&self.app, self.accepted, kind)
    }

    /// Returns the object of an answer, in the version of the view.
    fn object(&self, target: &Target, answer: &Answer) -> Result<Object, Failure> {
        match answer {
            Answer::Entry(entry) => self.decoded(target, entry),
            Answer::Object(obj) => Ok(obj.clone()),
            Answer::Success(value) => {
                Object::from_value(value.clone()).ok_or_else(|| Status::internal("no object"))
            }
        }
    }

    /// Decodes a stored object, in the version of the view.
    pub fn decoded(&self, target: &Target, entry: &Entry) -> Result<Object, Failure> {
        target.kind.object_in(entry, &self.schema)
    }

    /// Encodes an object for [`respond::encoded`].
    fn text(&self, target: &Target, answer: &Answer) -> Result<Bytes, Failure> {
        let is_text = matches!(self.accepted.encoding, Encoding::Json | Encoding::Yaml);
        match (self.accepted.shape, answer) {
            (Shape::Object, Answer::Entry(entry))
                if is_text
                    && self.is_storage(target)
                    && target.kind.is_in_version(entry, &self.schema) =>
            {
                Ok(entry.json())
            }
            (Shape::Object, _) => {
                self.accepted.encoding.object(&self.schema, &self.object(target, answer)?)
            }
            (Shape::Partial, _) => self.partial_text(self.object(target, answer)?),
            (Shape::Table, _) => {
                let obj = self.object(target, answer)?;
                let version = obj.resource_version().to_owned();
                let printed = match answer {
                    Answer::Entry(entry) => self.printed(target, entry)?,
                    _ => printed_form(&self.schema.gvk, &obj),
                };
                let rows = vec![self.row(&obj, printed.as_ref())];
                let mut metadata = Map::new();
                if !version.is_empty() {
                    metadata.insert("resourceVersion", version);
                }
                Ok(to_json(&self.table(metadata, rows, true)))
            }
            (Shape::PartialList, _) if self.is_custom && self.schema.gvk == target.schema().gvk => {
                Err(Status::new(Reason::Unknown, "content is not a list"))
            }
            (Shape::PartialList, _) => Err(no_list(&go_type(self.is_custom, &self.schema))),
        }
    }

    /// Returns whether the stored JSON can be sent unchanged.
    pub fn is_stored_text(&self, target: &Target) -> bool {
        self.accepted.shape == Shape::Object
            && self.accepted.encoding == Encoding::Json
            && self.is_storage(target)
    }

    /// Returns whether objects are stored in the version of the view, or were converted to it by a
    /// webhook.
    fn is_storage(&self, target: &Target) -> bool {
        target.kind.has_conversion_webhook || target.kind.storage.gvk == self.schema.gvk
    }

    /// Creates the response with one object.
    pub fn reply(&self, code: u16, target: &Target, answer: &Answer) -> Result<Reply, Failure> {
        self.check_table_options()?;
        let encoding = self.accepted.encoding;
        if let Answer::Entry(entry) = answer
            && self.is_stored_text(target)
            && target.kind.is_in_version(entry, &self.schema)
            && !self.is_pretty
        {
            let body = Body::Whole(Some(entry.json_line()));
            return Ok(respond::with_body(code, encoding.media_type(), body));
        }
        let text = self.text(target, answer)?;
        Ok(respond::encoded(self.is_pretty, code, encoding, text))
    }

    /// Returns the items in the order of the response; some tables sort their rows.
    pub fn sorted(&self, target: &Target, items: Vec<Entry>) -> Result<Vec<Entry>, Failure> {
        if !self.sorts_rows() {
            return Ok(items);
        }
        let printer = self.printer();
        let decoded = |entry: Entry| Ok((self.decoded(target, &entry)?, entry));
        let mut items = items.into_iter().map(decoded).collect::<Result<Vec<_>, Failure>>()?;
        items.sort_by(|(a, _), (b, _)| printer.compare_rows(a, b));
        Ok(items.into_iter().map(|(_, entry)| entry).collect())
    }

    /// Whether the rows of a list need another order than its items.
    pub fn sorts_rows(&self) -> bool {
        self.accepted.shape == Shape::Table && self.printer().sorts_rows()
    }

    /// Returns the schema of a list of the objects.
    pub fn list_schema(&self) -> Result<Schema, Failure> {
        let list = self.app.registry.catalogue.schema(&self.list_kind());
        list.ok_or_else(|| Status::internal("no list type"))
    }

    fn list_kind(&self) -> GroupVersionKind {
        if self.accepted.shape == Shape::PartialList {
            return self.meta_kind("PartialObjectMetadataList");
        }
        let gvk = &self.schema.gvk;
        gvk.group_version().kind(self.list_kind.clone())
    }

    /// Returns a schema for a CBOR list, which needs only its kind.
    pub fn cbor_list_schema(&self) -> Schema {
        Schema { gvk: self.list_kind(), ..self.schema.clone() }
    }

    /// Encodes a JSON list up to its items.
    pub fn list_head(&self, metadata: &Map) -> Vec<u8> {
        let kind = self.list_kind();
        let mut head = b"{\"kind\":".to_vec();
        json::write_string(&kind.kind, &mut head);
        head.extend_from_slice(b",\"apiVersion\":");
        json::write_string(&kind.api_version(), &mut head);
        head.extend_from_slice(b",\"metadata\":");
        json::write_value(&Value::Object(metadata.clone()), &mut head);
        head.extend_from_slice(b",\"items\":[");
        head
    }

    /// Returns the `PartialObjectMetadata` of an object: upstream takes it from the internal type.
    pub fn partial(&self, mut obj: Object) -> Object {
        drop_converted_annotations(&self.schema.gvk, &mut obj);
        partial(self.accepted, obj)
    }

    /// Encodes the `PartialObjectMetadata` of an object for [`respond::encoded`].
    pub fn partial_text(&self, mut obj: Object) -> Result<Bytes, Failure> {
        drop_converted_annotations(&self.schema.gvk, &mut obj);
        partial_text(&self.app, self.accepted, obj)
    }

    fn printer(&self) -> &'static tables::Printer {
        tables::printer(&self.schema.gvk.group, &self.schema.gvk.kind)
    }

    /// Returns the version of a stored object from which [`View::row`] is printed, if it is not
    /// that of the view.
    pub fn printed(&self, target: &Target, entry: &Entry) -> Result<Option<Object>, Failure> {
        let is_printed_as_stored = has_printed_form(&self.schema.gvk);
        is_printed_as_stored.then(|| target.kind.decode(entry)).transpose()
    }

    /// Creates a row of a table. Its cells are printed from `printed`, or from `obj` if it is
    /// `None`.
    pub fn row(&self, obj: &Object, printed: Option<&Object>) -> Value {
        let printer = self.printer();
        let now = self.app.registry.clock.now();
        let cells = match &self.columns {
            Some(columns) => columns.cells(obj, now),
            None => printer.cells(printed.unwrap_or(obj), now),
        };
        let mut row = Map::new();
        row.insert("cells", cells);
        let conditions = printer.conditions(obj);
        if !conditions.is_empty() {
            row.insert("conditions", conditions);
        }
        let object = match self.include.as_ref().unwrap_or(&Include::Metadata) {
            Include::None => Value::Null,
            Include::Metadata => {
                let mut partial = self.partial(obj.clone());
                partial.metadata_mut().retain(|_, value| match value {
                    Value::Array(items) => !items.is_empty(),
                    Value::Object(map) => !map.is_empty(),
                    _ => true,
                });
                partial.into()
            }
            Include::Object => {
                let mut text = vec![];
                json::encode(&self.schema, obj, &mut text);
                json::parse(&text).map(|parsed| parsed.value).unwrap_or_default()
            }
        };
        row.insert("object", object);
        Value::Object(row)
    }

    /// Creates a Table. `columns` says whether it has column definitions (in a watch, only the
    /// first has).
    pub fn table(&self, metadata: Map, rows: Vec<Value>, columns: bool) -> Value {
        let definitions = if columns {
            Value::Array(off_worker::compute(tables::describing_bytes(), || match &self.columns {
                Some(columns) => columns.definitions(),
                None => self.printer().column_definitions(),
            }))
        } else {
            Value::Null
        };
        // As upstream, the default table has null instead of an empty list of rows.
        let is_nil = rows.is_empty() && self.columns.is_none() && self.printer().is_default();
        let rows = if is_nil { Value::Null } else { Value::Array(rows) };
        value!({
            "kind": "Table", "apiVersion": (self.meta_kind("Table").api_version()),
            "metadata": (metadata),
            "columnDefinitions": (definitions), "rows": (rows)
        })
    }

    /// Encodes the table of a watch event or bookmark: one row.
    pub fn event_table(&self, obj: &Object, printed: Option<&Object>, first: bool) -> Bytes {
        let mut metadata = Map::new();
        metadata.insert("resourceVersion", obj.resource_version());
        to_json(&self.table(metadata, vec![self.row(obj, printed)], first))
    }

    /// Encodes the object of a watch event, in the encoding of the stream.
    pub fn event_object(
        &self,
        target: &Target,
        entry: &Entry,
        first: bool,
    ) -> Result<Bytes, Failure> {
        match self.accepted.shape {
            Shape::Table => {
                let obj = self.decoded(target, entry)?;
                Ok(self.event_table(&obj, self.printed(target, entry)?.as_ref(), first))
            }
            Shape::PartialList => self.partial_text(self.decoded(target, entry)?),
            Shape::Object | Shape::Partial => self.text(target, &Answer::Entry(entry.clone())),
        }
    }
}

impl View {
    /// Returns the response of an object that is computed.
    pub fn reply_computed(&self, obj: &Object) -> Result<Reply, Failure> {
        self.check_table_options()?;
        let text = match self.accepted.shape {
            Shape::Table => to_json(&self.table(Map::new(), vec![self.row(obj, None)], true)),
            _ => computed_text(&self.app, self.accepted, &self.schema, obj.clone())?,
        };
        Ok(respond::encoded(self.is_pretty, 200, self.accepted.encoding, text))
    }

    /// Returns the 406 for the metadata of one object where there is a list.
    pub fn is_list(&self) -> Failure {
        let list = format!("{}List", go_type(self.is_custom, &self.schema));
        let why = "you requested PartialObjectMetadata, but the requested object is a list";
        Status::new(Reason::NotAcceptable, format!("{why} (*{list})"))
    }

    /// Returns the response of a list of objects that are computed.
    pub fn reply_computed_list(&self, objects: Vec<Object>) -> Result<Reply, Failure> {
        self.check_table_options()?;
        let Accepted { encoding, shape, .. } = self.accepted;
        let kind = match shape {
            Shape::Table => {
                let rows = objects.iter().map(|obj| self.row(obj, None)).collect();
                let text = to_json(&self.table(Map::new(), rows, true));
                return Ok(respond::encoded(self.is_pretty, 200, encoding, text));
            }
            Shape::Partial => return Err(self.is_list()),
            Shape::PartialList => self.meta_kind("PartialObjectMetadataList"),
            Shape::Object => self.list_kind(),
        };
        let objects = objects.into_iter().map(|obj| match shape {
            Shape::PartialList => self.partial(obj),
            _ => obj,
        });
        let items: Vec<Value> = objects.map(Object::into_value).collect();
        let list = value!({
            "kind": (kind.kind.clone()), "apiVersion": (kind.api_version()), "metadata": {},
            "items": (items)
        });
        let text = match encoding {
            Encoding::Json | Encoding::Yaml => to_json(&list),
            Encoding::Protobuf | Encoding::Cbor => {
                let schema = self
                    .app
                    .registry
                    .catalogue
                    .schema(&kind)
                    .ok_or_else(|| Status::internal("the list has no schema"))?;
                encoding.object(&schema, &Object::from_value(list).unwrap_or_default())?
            }
        };
        Ok(respond::encoded(self.is_pretty, 200, self.accepted.encoding, text))
    }
}

/// Encodes an object that is not stored for [`respond::encoded`], complete or as metadata alone.
pub(crate) fn computed_text(
    app: &App,
    accepted: Accepted,
    schema: &Schema,
    obj: Object,
) -> Result<Bytes, Failure> {
    match accepted.shape {
        Shape::Partial => partial_text(app, accepted, obj),
        Shape::PartialList => Err(no_list(&go_type(false, schema))),
        Shape::Object | Shape::Table => accepted.encoding.object(schema, &obj),
    }
}

fn partial_text(app: &App, accepted: Accepted, obj: Object) -> Result<Bytes, Failure> {
    let schema = meta_schema(app, accepted, "PartialObjectMetadata")?;
    accepted.encoding.object(&schema, &partial(accepted, obj))
}

fn partial(accepted: Accepted, mut obj: Object) -> Object {
    let metadata = obj.root.remove("metadata").unwrap_or_else(|| Map::new().into());
    let mut partial = Object::new();
    partial.set_gvk(&meta_kind(accepted, "PartialObjectMetadata"));
    partial.root.insert("metadata", metadata);
    partial
}

fn meta_kind(accepted: Accepted, kind: &'static str) -> GroupVersionKind {
    let version = if accepted.meta_v1beta1 { "v1beta1" } else { "v1" };
    GroupVersionKind::new("meta.k8s.io", version, kind)
}

fn meta_schema(app: &App, accepted: Accepted, kind: &'static str) -> Result<Schema, Failure> {
    let schema = app.registry.catalogue.schema(&meta_kind(accepted, kind));
    schema.ok_or_else(|| Status::internal(format!("{kind} has no schema")))
}

/// Returns the failure of a request for a list of metadata that is answered with one object.
fn no_list(go_type: &str) -> Failure {
    Status::new(
        Reason::NotAcceptable,
        format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list (*{go_type})"
        ),
    )
}

fn to_json(value: &Value) -> Bytes {
    let mut text = vec![];
    json::write_value(value, &mut text);
    Bytes::from(text)
}

/// Returns upstream's name of the type of an object: `core.ConfigMap`. The scale of a custom
/// resource has an external type, and a custom resource none.
fn go_type(is_custom: bool, schema: &Schema) -> String {
    let GroupVersionKind { group, version, kind } = &schema.gvk;
    let group = group.split('.').next().unwrap_or_default();
    match (is_custom, kind.as_str()) {
        (true, "Scale") if group == "autoscaling" => format!("{version}.{kind}"),
        (true, _) => "unstructured.Unstructured".to_owned(),
        (false, _) => format!("{}.{kind}", if group.is_empty() { "core" } else { group }),
    }
}
