//! The time of a request is at most linear in its body. Tested for every list and map of every
//! built-in kind with many items, through decoding, defaulting, validation, admission,
//! managedFields and encoding.
//!
//! Only a list whose work is above [`ITEM_MICROSECONDS`] an item is measured a second time, at an
//! eighth of the length: work in proportion to pairs of items then takes 64 times as long, work in
//! proportion to items 8 times.

use crate::harness::Harness;
use keelson_meta::{Map, Value, value};
use keelson_resources::Kind;
use keelson_schema::types::{ListKind, ListShape};
use keelson_schema::{Field, Schema, Shape, Struct, StructId, json};
use rustix::time::{ClockId, clock_gettime};
use std::collections::HashSet;
use std::time::Duration;

/// Items of a long list.
const ITEMS: usize = 3_000;
/// Length of a long list divided by that of a short one.
const LONGER: usize = 8;
/// Maximum of the time of a long list divided by that of a short one.
const RATIO_MAX: f64 = 20.0;
/// Time per item that is always accepted.
const ITEM_MICROSECONDS: u32 = if cfg!(debug_assertions) { 25 } else { 3 };
/// Number of measurements, of which the minimum is used.
const TRIES: usize = 4;
/// Tests among which the lists are divided.
const SHARES: usize = 2;
/// Lists and structs on the way to a list.
const DEPTH_MAX: usize = 12;

/// One step from an object to a list.
#[derive(Clone, Debug)]
enum Step {
    Field(String),
    Item(ListShape),
    Entry,
}

/// A list or map of a kind.
#[derive(Clone, Debug)]
struct Place {
    steps: Vec<Step>,
    shape: Shape,
    /// The struct and field that it is the value of.
    of: String,
}

impl Place {
    fn text(&self) -> String {
        let step = |step: &Step| match step {
            Step::Field(name) => format!(".{name}"),
            Step::Item(_) => "[0]".to_owned(),
            Step::Entry => "[a]".to_owned(),
        };
        self.steps.iter().map(step).collect()
    }
}

/// The items of a list.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Items {
    /// Zero values: `{}`.
    Zero,
    /// All fields set, all items equal.
    Equal,
    /// All fields set, to different values in each item.
    Distinct,
}

/// Returns all lists and maps of a kind. Pod templates are omitted, because Pods have the same
/// lists.
fn places(schema: &Schema) -> Vec<Place> {
    let mut found = vec![];
    walk(schema, schema.root, &mut vec![], &mut vec![], &mut found);
    found
}

fn walk(
    schema: &Schema,
    id: StructId,
    above: &mut Vec<StructId>,
    steps: &mut Vec<Step>,
    found: &mut Vec<Place>,
) {
    let of = schema.types.get(id);
    let is_template = of.name.ends_with(".PodTemplateSpec");
    let is_twin = matches!(steps.last(), Some(Step::Item(_)))
        && matches!(steps.iter().rev().nth(1), Some(Step::Field(name)) if name == "initContainers");
    if above.contains(&id) || steps.len() > DEPTH_MAX || is_template || is_twin {
        return;
    }
    above.push(id);
    // All lists of a struct at once, because items of one may be looked up in another.
    if of.fields.iter().filter(|field| is_long(&field.shape)).count() > 1 {
        let of = of.name.to_string();
        found.push(Place { steps: steps.clone(), shape: Shape::Struct(id), of });
    }
    for field in &of.fields {
        steps.push(Step::Field(field.name.to_string()));
        walk_shape(schema, &field.shape, above, steps, found);
        steps.pop();
    }
    above.pop();
}

fn is_long(shape: &Shape) -> bool {
    matches!(shape, Shape::List(_) | Shape::Map(_))
}

fn walk_shape(
    schema: &Schema,
    shape: &Shape,
    above: &mut Vec<StructId>,
    steps: &mut Vec<Step>,
    found: &mut Vec<Place>,
) {
    let (step, item) = match shape {
        Shape::Struct(id) => return walk(schema, *id, above, steps, found),
        Shape::List(list) => (Step::Item((**list).clone()), &list.item),
        Shape::Map(map) => (Step::Entry, &map.value),
        _ => return,
    };
    let field = steps.iter().rev().find_map(|step| match step {
        Step::Field(name) => Some(name.as_str()),
        _ => None,
    });
    let of = above.last().map_or("", |id| &schema.types.get(*id).name);
    // A nested list is measured separately from the list around it.
    let of = format!("{of} {} {}", field.unwrap_or_default(), steps.len() - last_field(steps));
    found.push(Place { steps: steps.clone(), shape: shape.clone(), of });
    steps.push(step);
    walk_shape(schema, item, above, steps, found);
    steps.pop();
}

fn last_field(steps: &[Step]) -> usize {
    steps.iter().rposition(|step| matches!(step, Step::Field(_))).unwrap_or(0)
}

/// Returns a value of a type; lists and structs inside an item are omitted.
fn item(schema: &Schema, shape: &Shape, items: Items, at: usize, depth: usize) -> Value {
    let at = if items == Items::Distinct { at } else { 0 };
    if let Shape::Struct(id) = shape {
        let fields = &schema.types.get(*id).fields;
        let set = |field: &&Field| items != Items::Zero && is_scalar(&field.shape) || depth == 0;
        let member =
            |field: &Field| (field.name.clone(), item(schema, &field.shape, items, at, depth + 1));
        let members = fields
            .iter()
            .filter(|field| set(field) && is_scalar(&field.shape))
            .filter(|_| items != Items::Zero)
            .map(member);
        return Value::Object(members.collect());
    }
    let text = |text: String| if items == Items::Zero { Value::from("") } else { text.into() };
    let number = i64::try_from(at % 30_000).unwrap_or(0) + i64::from(items != Items::Zero);
    match shape {
        Shape::String => text(format!("a{at}")),
        Shape::Bool => Value::Bool(items != Items::Zero),
        Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => Value::Int(number),
        Shape::Bytes => "aGFsbG8=".into(),
        Shape::Time => "2020-01-01T00:00:00Z".into(),
        Shape::MicroTime => "2020-01-01T00:00:00.000000Z".into(),
        Shape::Duration => "1s".into(),
        Shape::Quantity => Value::from(number.to_string()),
        Shape::List(_) => Value::Array(vec![]),
        _ => Value::Object(Map::new()),
    }
}

fn is_scalar(shape: &Shape) -> bool {
    !matches!(
        shape,
        Shape::Struct(_)
            | Shape::List(_)
            | Shape::Map(_)
            | Shape::Json
            | Shape::RawExtension
            | Shape::FieldsV1
            | Shape::SchemaOr(..)
    )
}

/// Returns a list or map of `count` items, or a struct whose lists and maps have `count` items
/// together.
fn long(schema: &Schema, shape: &Shape, items: Items, count: usize) -> Value {
    match shape {
        Shape::List(list) => {
            (0..count).map(|at| item(schema, &list.item, items, at, 1)).collect::<Vec<_>>().into()
        }
        Shape::Map(map) => {
            let entry =
                |at: usize| (format!("a{at:06}").into(), item(schema, &map.value, items, at, 1));
            Value::Object((0..count).map(entry).collect())
        }
        Shape::Struct(id) => {
            let fields = &schema.types.get(*id).fields;
            let lists: Vec<&Field> = fields.iter().filter(|field| is_long(&field.shape)).collect();
            let share = count / lists.len().min(4);
            let member =
                |field: &Field| (field.name.clone(), long(schema, &field.shape, items, share));
            Value::Object(lists.into_iter().map(member).collect())
        }
        other => panic!("{other:?} is no list"),
    }
}

/// Returns an object with a list or map of `count` items at a path.
fn object(kind: &Kind, place: &Place, items: Items, count: usize) -> Value {
    let schema = &kind.storage;
    let list = long(schema, &place.shape, items, count);
    let value = place.steps.iter().rev().fold(list, |below, step| match step {
        Step::Field(name) => {
            let mut map = Map::new();
            map.insert(name.as_str(), below);
            Value::Object(map)
        }
        Step::Entry => value!({"a": (below)}),
        Step::Item(list) => Value::Array(vec![keyed(schema, list, below)]),
    });
    let mut value = value;
    let root = value.as_object_mut().expect("an object is a map");
    root.insert("apiVersion", schema.gvk.api_version());
    root.insert("kind", schema.gvk.kind.clone());
    let metadata = root.object_at("metadata");
    metadata.insert("name", "a");
    if kind.namespaced {
        metadata.insert("namespace", "n");
    }
    value
}

/// Returns an item on the path to a list, with its key fields.
fn keyed(schema: &Schema, list: &ListShape, mut below: Value) -> Value {
    if let (ListKind::Map(keys), Shape::Struct(id)) = (&list.kind, &list.item) {
        let of: &Struct = schema.types.get(*id);
        let Some(map) = below.as_object_mut() else { return below };
        for key in keys {
            if let Some(field) = of.field(key).filter(|_| !map.contains_key(key)) {
                map.insert(key.clone(), item(schema, &field.shape, Items::Equal, 0, 1));
            }
        }
    }
    below
}

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).expect("time is not negative");
    Duration::new(seconds, u32::try_from(now.tv_nsec).expect("less than a second"))
}

/// Requests with a list. For updates and patches the same list is stored before.
const CREATE: (&str, &str) = ("POST", "");
const CHANGES: [(&str, &str); 3] = [
    ("PUT", ""),
    ("PATCH", "application/strategic-merge-patch+json"),
    ("PATCH", "application/apply-patch+yaml"),
];

struct Work {
    harness: Harness,
}

impl Work {
    async fn open() -> Work {
        let harness = Harness::open().await;
        harness.send("POST", "/api/v1/namespaces", "", br#"{"metadata":{"name":"n"}}"#).await;
        let account = br#"{"metadata":{"name":"default"},"automountServiceAccountToken":false}"#;
        harness.send("POST", "/api/v1/namespaces/n/serviceaccounts", "", account).await;
        Work { harness }
    }

    /// Returns the processor time of a request with a list of `count` items.
    async fn time(
        &self,
        kind: &Kind,
        request: (&str, &str),
        place: &Place,
        items: Items,
        count: usize,
    ) -> Duration {
        let (method, media) = request;
        let mut body = vec![];
        let value = object(kind, place, items, count);
        json::write_value(&value, &mut body);
        let name = if method == "POST" { "" } else { "/a" };
        if !name.is_empty() {
            let mut stored = vec![];
            let mut before = object(kind, place, items, count);
            before.as_object_mut().expect("a map").object_at("metadata").insert("uid", "u");
            json::write_value(&before, &mut stored);
            let key = kind.store_key("n", "a");
            self.harness.put_object(kind, key, &stored).await;
        }
        let version = &kind.storage.gvk.version;
        let group = match kind.gvr.group.as_str() {
            "" => format!("/api/{version}"),
            group => format!("/apis/{group}/{version}"),
        };
        let namespace = if kind.namespaced { "/namespaces/n" } else { "" };
        let resource = &kind.gvr.resource;
        let path =
            format!("{group}{namespace}/{resource}{name}?dryRun=All&fieldManager=m&force=true");
        let begin = thread_time();
        let answer = self.harness.send(method, &path, media, &body).await;
        let taken = thread_time() - begin;
        assert!(answer.is_some(), "{method} {path}");
        taken
    }

    /// Returns why the time of a request is too long, if it is.
    async fn fault(
        &self,
        kind: &Kind,
        request: (&str, &str),
        place: &Place,
        items: Items,
    ) -> Option<String> {
        let allowed = Duration::from_micros(u64::from(ITEM_MICROSECONDS)) * ITEMS as u32;
        let mut long = self.time(kind, request, place, items, ITEMS).await;
        let mut short = Duration::MAX;
        for _ in 0..TRIES {
            if long <= allowed {
                return None;
            }
            let few = self.time(kind, request, place, items, ITEMS / LONGER).await;
            short = short.min(few);
            if long.as_secs_f64() <= RATIO_MAX * short.as_secs_f64() {
                return None;
            }
            long = long.min(self.time(kind, request, place, items, ITEMS).await);
        }
        let name = &kind.storage.gvk.kind;
        let ratio = long.as_secs_f64() / short.as_secs_f64();
        let (method, media) = request;
        let place = place.text();
        Some(format!(
            "{method} {media} {name} {place} {items:?}: {long:?}, {ratio:.0} times {short:?}"
        ))
    }
}

/// Checks one part of all lists. A list of several kinds is measured in one of them.
async fn hold(share: usize) {
    let work = Work::open().await;
    let mut kinds = work.harness.registry.kinds();
    kinds.sort_by_key(|kind| {
        (kind.storage.gvk.kind != "Pod", kind.gvr.group.clone(), kind.gvr.resource.clone())
    });
    let mut seen = HashSet::new();
    let mut faults = vec![];
    let mut count = 0;
    let all =
        kinds.iter().flat_map(|kind| places(&kind.storage).into_iter().map(move |p| (kind, p)));
    let all = all.filter(|(_, place)| seen.insert(place.of.clone())).enumerate();
    for (at, (kind, place)) in all.skip(share).step_by(SHARES) {
        let creates = [Items::Zero, Items::Equal, Items::Distinct].map(|items| (CREATE, items));
        // Patch types treat all lists of a type alike, so each list is measured with one of them.
        let change = (CHANGES[at / SHARES % CHANGES.len()], Items::Distinct);
        let is_struct = matches!(place.shape, Shape::Struct(_));
        for (request, items) in creates.into_iter().chain([change]) {
            if is_struct && items != Items::Distinct {
                continue;
            }
            count += 1;
            faults.extend(work.fault(kind, request, &place, items).await);
        }
    }
    assert!(count > 100, "only {count} requests were measured");
    assert!(faults.is_empty(), "{} of {count}:\n{}", faults.len(), faults.join("\n"));
}

#[tokio::test]
async fn validation_time_is_linear_in_list_length() {
    hold(0).await;
}

#[tokio::test]
async fn validation_time_is_linear_in_list_length_second_half() {
    hold(1).await;
}
