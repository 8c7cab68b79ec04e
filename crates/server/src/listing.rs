//! Lists in other encodings than the stored one, as a sequence of chunks. A long list is encoded
//! while it is sent, so that only the entries and one chunk are in memory.

use crate::body::{Body, ChunkSource, ListBody, Step};
use crate::negotiate::{Encoding, Shape};
use crate::respond::{self, Reply};
use crate::view::View;
use bytes::Bytes;
use keelson_meta::{Failure, Map, Object, Status, Value};
use keelson_records::Entry;
use keelson_registry::{List, Target};
use keelson_resources::api_table::Source;
use keelson_schema::{Schema, cbor, json, proto};

/// Size of the chunks.
const CHUNK_BYTES: usize = 16 << 10;
/// Most items measured before the task yields.
const MEASURED_MAX: usize = 64;

/// The encoding of a list's items.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    /// Objects in JSON.
    Json,
    /// Metadata in JSON.
    Partial,
    /// Rows of a table.
    Rows,
    /// Objects or metadata in protobuf.
    Protobuf,
    /// Objects or metadata in CBOR.
    Cbor,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Measuring the messages, because protobuf has lengths before them.
    Measure,
    Head,
    Items,
    Done,
}

/// A list that is being encoded.
pub(crate) struct Listing {
    view: View,
    target: Target,
    form: Form,
    metadata: Map,
    items: Vec<Entry>,
    /// The next item to measure or write.
    at: usize,
    /// Lengths of the measured messages.
    sizes: Vec<u32>,
    /// Buffer for the current message.
    message: Vec<u8>,
    state: State,
}

/// Smallest list (in bytes of JSON) that is encoded while it is sent. A shorter one is encoded
/// first, so that it has a Content-Length, and a failure becomes an error response.
const LISTED_BYTES_MIN: u64 = 128 << 10;

impl View {
    /// Whether a list is formatted for people, which needs the whole text.
    fn is_for_people(&self) -> bool {
        self.is_pretty || self.accepted.encoding == Encoding::Yaml
    }

    /// Returns the bytes of the items that are encoded or sorted before the response begins; 0 if
    /// all are encoded while they are sent.
    pub fn whole_bytes(&self, target: &Target, list: &List) -> usize {
        let is_whole = self.is_for_people() || self.sorts_rows();
        if !is_whole || (self.is_stored_text(target) && !self.is_pretty) {
            return 0;
        }
        list.items.iter().map(|entry| entry.json_len()).sum()
    }

    /// Returns the response of a list.
    pub fn reply_list(&self, target: &Target, list: List) -> Result<Reply, Failure> {
        self.check_table_options()?;
        let mut metadata = Map::new();
        metadata.insert("resourceVersion", list.revision.to_string());
        match &list.continue_token {
            Some(token) => drop(metadata.insert("continue", token.as_str())),
            // As upstream, lists of custom resources have an empty `continue`.
            None if self.accepted.shape == Shape::Object
                && target.kind.source == Source::Custom =>
            {
                metadata.insert("continue", "");
            }
            None => {}
        }
        if let Some(remaining) = list.remaining {
            metadata.insert("remainingItemCount", i64::try_from(remaining).unwrap_or(i64::MAX));
        }
        let is_in_version =
            || list.items.iter().all(|entry| target.kind.is_in_version(entry, &self.schema));
        if self.is_stored_text(target) && !self.is_pretty && is_in_version() {
            let head = self.list_head(&metadata);
            let body = Body::List(ListBody::new(head, list.items));
            return Ok(respond::with_body(200, Encoding::Json.media_type(), body));
        }
        if self.accepted.shape == Shape::Partial {
            return Err(self.is_list());
        }
        let items = self.sorted(target, list.items)?;
        let listing = Listing::new(self.clone(), target.clone(), metadata, items);
        let encoding = self.accepted.encoding;
        if !self.is_for_people() && listing.source_bytes() >= LISTED_BYTES_MIN {
            let body = Body::Listing(Box::new(listing));
            return Ok(respond::with_body(200, encoding.media_type(), body));
        }
        Ok(respond::encoded(self.is_pretty, 200, encoding, listing.whole()?))
    }
}

impl ChunkSource for Listing {
    fn is_done(&self) -> bool {
        self.state == State::Done
    }

    fn next(&mut self) -> Result<Step, Failure> {
        let mut out = vec![];
        match self.state {
            State::Measure => {
                self.measure()?;
                return Ok(Step::Yield);
            }
            State::Head => {
                self.head(&mut out)?;
                self.state = State::Items;
            }
            State::Items => out.reserve(CHUNK_BYTES + CHUNK_BYTES / 2),
            State::Done => return Ok(Step::Done),
        }
        while out.len() < CHUNK_BYTES {
            let Some(entry) = self.items.get(self.at).cloned() else {
                self.tail(&mut out);
                self.state = State::Done;
                break;
            };
            self.item(&entry, &mut out)?;
            self.at += 1;
        }
        Ok(Step::Chunk(Bytes::from(out)))
    }

    fn source_bytes(&self) -> u64 {
        self.items.iter().map(|entry| entry.json_len() as u64).sum()
    }
}

impl Listing {
    pub fn new(view: View, target: Target, metadata: Map, items: Vec<Entry>) -> Listing {
        let form = match (view.accepted.shape, view.accepted.encoding) {
            (_, Encoding::Protobuf) => Form::Protobuf,
            (_, Encoding::Cbor) => Form::Cbor,
            (Shape::Table, _) => Form::Rows,
            (Shape::PartialList, _) => Form::Partial,
            (Shape::Object | Shape::Partial, _) => Form::Json,
        };
        let state = if form == Form::Protobuf { State::Measure } else { State::Head };
        let sizes = vec![];
        let message = vec![];
        Listing { view, target, form, metadata, items, at: 0, sizes, message, state }
    }

    /// Encodes the whole list; text without its last newline.
    pub fn whole(mut self) -> Result<Bytes, Failure> {
        let mut out = vec![];
        loop {
            match self.next()? {
                Step::Chunk(chunk) => out.extend_from_slice(&chunk),
                Step::Yield => {}
                Step::Done => break,
            }
        }
        if out.last() == Some(&b'\n') && !matches!(self.form, Form::Protobuf | Form::Cbor) {
            out.pop();
        }
        Ok(Bytes::from(out))
    }

    fn measure(&mut self) -> Result<(), Failure> {
        for _ in 0..MEASURED_MAX {
            let Some(entry) = self.items.get(self.sizes.len()).cloned() else {
                self.state = State::Head;
                return Ok(());
            };
            let known = if self.is_stored_kind() { entry.message_bytes() } else { None };
            let size = match known {
                Some(size) => size,
                None => self.encode(&entry)?,
            };
            self.sizes.push(size);
        }
        Ok(())
    }

    /// Returns whether messages have the stored version, whose lengths are cached in the entries.
    fn is_stored_kind(&self) -> bool {
        self.view.accepted.shape == Shape::Object
            && self.view.schema.gvk == self.target.kind.storage.gvk
    }

    /// Encodes the message of an item into `message` and returns its length.
    fn encode(&mut self, entry: &Entry) -> Result<u32, Failure> {
        let obj = self.view_object(entry)?;
        self.message.clear();
        proto::encode_message(&self.item_schema()?, &obj, &mut self.message)
            .map_err(Status::internal)?;
        let size = u32::try_from(self.message.len()).map_err(Status::internal)?;
        if self.is_stored_kind() {
            entry.set_message_bytes(size);
        }
        Ok(size)
    }

    /// Decodes an item in the version and shape of the list.
    fn view_object(&self, entry: &Entry) -> Result<Object, Failure> {
        let obj = self.view.decoded(&self.target, entry)?;
        let is_partial = self.view.accepted.shape == Shape::PartialList;
        Ok(if is_partial { self.view.partial(obj) } else { obj })
    }

    /// Returns whether items have `kind` and `apiVersion`, as those of custom resources do.
    fn items_have_kinds(&self) -> bool {
        self.target.kind.source == Source::Custom
    }

    fn item_schema(&self) -> Result<Schema, Failure> {
        match self.view.accepted.shape {
            Shape::PartialList => self.view.meta_schema("PartialObjectMetadata"),
            _ => Ok(self.view.schema.clone()),
        }
    }

    /// Returns whether the items are null, as upstream: an empty list of metadata.
    fn is_null(&self) -> bool {
        self.form == Form::Partial && self.items.is_empty()
    }

    fn head(&mut self, out: &mut Vec<u8>) -> Result<(), Failure> {
        match self.form {
            Form::Json | Form::Partial => {
                *out = self.view.list_head(&self.metadata);
                if self.is_null() {
                    // The list of items is not begun.
                    out.pop();
                    out.extend_from_slice(b"null");
                }
            }
            Form::Rows => {
                // Written with one row as placeholder, which is cut off together with what follows.
                let rows = if self.items.is_empty() { vec![] } else { vec![Value::Null] };
                let end = if self.items.is_empty() { "}" } else { "null]}" };
                json::write_value(&self.view.table(self.metadata.clone(), rows, true), out);
                out.truncate(out.len() - end.len());
            }
            Form::Protobuf => {
                let list = self.view.list_schema()?;
                let sizes = self.sizes.iter().map(|size| proto::list_item_bytes(*size as usize));
                let total = sizes.sum();
                proto::begin_list(&list, &self.metadata, total, out).map_err(Status::internal)?;
            }
            Form::Cbor => {
                cbor::begin_list(&self.view.cbor_list_schema(), self.items.len(), out);
            }
        }
        Ok(())
    }

    fn item(&mut self, entry: &Entry, out: &mut Vec<u8>) -> Result<(), Failure> {
        if self.form == Form::Protobuf {
            let size = self.encode(entry)?;
            if self.sizes.get(self.at) != Some(&size) {
                return Err(Status::internal("an item is not as long as it was"));
            }
            proto::begin_list_item(self.message.len(), out);
            out.extend_from_slice(&self.message);
            return Ok(());
        }
        let obj = self.view_object(entry)?;
        if self.form == Form::Cbor {
            match self.view.accepted.shape {
                Shape::PartialList => cbor::write_value(&obj.into(), out),
                _ if self.items_have_kinds() => cbor::write_value(&obj.into(), out),
                _ => cbor::encode_list_item(&self.view.schema, &obj, out),
            }
            return Ok(());
        }
        if self.at > 0 {
            out.push(b',');
        }
        match self.form {
            Form::Rows => {
                let printed = self.view.printed(&self.target, entry)?;
                json::write_value(&self.view.row(&obj, printed.as_ref()), out);
            }
            Form::Partial => json::write_value(&obj.into(), out),
            _ if self.items_have_kinds() => drop(json::encode(&self.view.schema, &obj, out)),
            _ => json::encode_list_item(&self.view.schema, &obj, out),
        }
        Ok(())
    }

    fn tail(&self, out: &mut Vec<u8>) {
        match self.form {
            // The rows of an empty table, which may be null, are written with the head.
            Form::Rows if self.items.is_empty() => out.extend_from_slice(b"}\n"),
            Form::Partial if self.is_null() => out.extend_from_slice(b"}\n"),
            Form::Json | Form::Partial | Form::Rows => out.extend_from_slice(b"]}\n"),
            Form::Protobuf => proto::end_list(out),
            Form::Cbor => {
                let metadata = Value::Object(self.metadata.clone());
                cbor::end_list(&self.view.cbor_list_schema(), &metadata, out);
            }
        }
    }
}
