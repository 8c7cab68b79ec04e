//! Brings a freshly decoded value into the form its schema asks for: type checks with Go's words, names
//! of members that no field has, nulls and empty members dropped where Go would not see them.

use crate::go_types;
use crate::json;
pub use crate::text::TypeError;
use crate::types::{Field, ListShape, Presence, SchemaOr, Shape, Struct, Types};
use keelson_meta::{Map, Path, Str, Value};

/// Unknown fields that are reported; further ones are dropped silently (the same cap as upstream).
const UNKNOWN_MAX: usize = 100;
/// Bytes of their paths; the one that goes beyond is the last.
const UNKNOWN_BYTES_MAX: usize = 1 << 20;

/// Where the types of core/v1 are.
const CORE: &str = "io.k8s.api.core.v1.";

/// Whose words a refusal of a wrong type uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Words {
    /// Those of Go's `encoding/json`, which reads text.
    Json,
    /// Those of apimachinery's `runtime.DefaultUnstructuredConverter`, which reads values.
    Converter,
}

/// Walks values of one set of types.
pub struct Conform<'t> {
    types: &'t Types,
    words: Words,
    /// Paths of the members that no field has, in order of appearance.
    pub unknown: Vec<String>,
    unknown_bytes: usize,
    /// The members from the root down to the value at hand, as places in their structs.
    trail: Vec<(&'t Struct, usize)>,
    /// The first wrong type: Go reads on after it, and a text that its type cannot read counts more.
    first: Option<TypeError>,
    /// Members are put in order where values are kept as text.
    pub sorts_texts: bool,
    /// A value was kept as text.
    pub has_texts: bool,
}

impl<'t> Conform<'t> {
    /// A walk that has seen nothing yet.
    pub fn new(types: &'t Types, words: Words) -> Self {
        Conform {
            types,
            words,
            unknown: vec![],
            unknown_bytes: 0,
            trail: vec![],
            first: None,
            sorts_texts: false,
            has_texts: false,
        }
    }

    /// Checks a value against a struct and makes it canonical.
    pub fn object(&mut self, of: &'t Struct, value: Value) -> Result<Map, TypeError> {
        match value {
            Value::Object(map) => {
                let map = self.members(of, map, &Path::ROOT)?;
                if self.words == Words::Converter && !of.lenient {
                    self.unknown.sort_unstable();
                }
                self.first.take().map_or(Ok(map), Err)
            }
            Value::Null => Ok(Map::new()),
            other => Err(TypeError(format!(
                "json: cannot unmarshal {} into Go value of type {}",
                shown(&other),
                go_type_of_struct(of)
            ))),
        }
    }

    fn members(&mut self, of: &'t Struct, mut map: Map, path: &Path<'_>) -> Result<Map, TypeError> {
        let (mut last, mut is_sorted) = (0, true);
        let mut fault: Option<(usize, TypeError)> = None;
        // The converter goes through the members of the struct: of several faults it meets the first one there.
        let in_turn = self.words == Words::Converter && !of.lenient;
        map.retain(|key, slot| {
            if fault.is_some() && !in_turn {
                return false;
            }
            let Some(at) = of.position_near(last, key) else {
                if of.preserve_unknown {
                    last = usize::MAX;
                } else {
                    self.note_unknown(&path.field(key));
                }
                return of.preserve_unknown;
            };
            if fault.as_ref().is_some_and(|(first, _)| *first < at) {
                return false;
            }
            let field = &of.fields[at];
            if slot.is_null() && !field.nullable {
                // What is applied to a custom resource keeps its nulls until its validation.
                return of.lenient
                    && self.words == Words::Converter
                    && field.presence == Presence::Pointer;
            }
            if let Some(why) = self.fault_of_resource(of, field, slot, path) {
                fault = Some((at, why));
                return false;
            }
            self.trail.push((of, at));
            match self.value(&field.shape, std::mem::take(slot), of, &path.field(&field.name)) {
                Ok(value) => *slot = value,
                Err(why) => fault = Some((at, why)),
            }
            self.trail.pop();
            // An empty list of `metadata.managedFields` resets them; elsewhere it means nothing.
            let resets =
                || field.name == "managedFields" && self.trail.len() == 1 && slot.is_empty();
            let is_kept = fault.is_none() && (!field.is_left_out(slot) || resets());
            if is_kept {
                is_sorted &= last <= at;
                last = at;
            }
            is_kept
        });
        if let Some((_, why)) = fault {
            return Err(why);
        }
        Ok(if is_sorted { map } else { in_order(of, map) })
    }

    /// What is wrong with the type of a member that every resource within a custom resource has.
    fn fault_of_resource(
        &self,
        of: &Struct,
        field: &Field,
        value: &Value,
        path: &Path<'_>,
    ) -> Option<TypeError> {
        if !of.lenient || self.trail.is_empty() || value.is_null() {
            return None;
        }
        let why = match (&*field.name, &field.shape) {
            ("metadata", Shape::Struct(id)) if !self.types.get(*id).lenient => {
                let mut walk = Conform::new(self.types, Words::Json);
                walk.object(self.types.get(*id), value.clone()).err()?.0
            }
            ("apiVersion" | "kind", Shape::String) if value.as_str().is_none() => {
                let has_metadata = |field: &&Field| {
                    let of_struct = matches!(field.shape, Shape::Struct(_));
                    field.name == "metadata" && field.presence == Presence::Always && of_struct
                };
                of.fields.iter().find(has_metadata)?;
                "must be a string".to_owned()
            }
            _ => return None,
        };
        let shown = keelson_meta::status::show(&value.clone().sorted());
        let field = path.field(&field.name);
        Some(TypeError(format!("{field}: Invalid value: {shown}: {why}")))
    }

    fn value(
        &mut self,
        shape: &Shape,
        value: Value,
        of: &'t Struct,
        path: &Path<'_>,
    ) -> Result<Value, TypeError> {
        match (shape, value) {
            (_, Value::Null) if of.lenient => Ok(Value::Null),
            (_, Value::Null) => Ok(self.null(shape)),
            (Shape::String | Shape::Formatted, value @ Value::String(_)) => Ok(value),
            (Shape::Bool, value @ Value::Bool(_)) => Ok(value),
            (Shape::Int64, value @ Value::Int(_)) => Ok(value),
            (Shape::Int32, Value::Int(number)) if i32::try_from(number).is_ok() => {
                Ok(Value::Int(number))
            }
            (Shape::Int32 | Shape::Int64, value @ (Value::Int(_) | Value::Float(_)))
                if self.words == Words::Converter && (!of.lenient || is_whole(&value)) =>
            {
                self.converted(shape, &value)
            }
            (Shape::Double, Value::Int(number)) => Ok(crate::text::double(number as f64)),
            (Shape::Double, Value::Float(number)) => Ok(crate::text::double(number)),
            (Shape::Struct(id), Value::Object(map)) => {
                let inner = self.types.get(*id);
                self.members(inner, map, path).map(Value::Object)
            }
            (Shape::List(list), Value::Array(items)) => self.list(list, items, of, path),
            (Shape::Map(shape), Value::Object(mut map)) => {
                if of.lenient && !shape.nullable && self.words == Words::Json {
                    map.retain(|_, value| !value.is_null());
                }
                for (key, slot) in map.iter_mut() {
                    let item = std::mem::take(slot);
                    *slot = self.value(&shape.value, item, of, &path.field(key))?;
                }
                // The ResourceLists of core/v1.
                if matches!(shape.value, Shape::Quantity) && of.name.starts_with(CORE) {
                    crate::text::round_to_milli(&mut map);
                }
                Ok(Value::Object(map))
            }
            (Shape::Json, value) => Ok(value),
            (Shape::RawExtension, value) => Ok(self.kept(value)),
            // Whatever it is, Go keeps its text: entries that cannot be read are left out later.
            (Shape::FieldsV1, value) => Ok(value),
            (Shape::SchemaOr(second, id), value) => self.schema_or(*second, *id, value, of, path),
            // Metadata is that of every object.
            (Shape::Struct(id), value) if !self.types.get(*id).lenient => {
                self.text(&Shape::Struct(*id), value, of)
            }
            (Shape::Struct(id), value) if self.types.get(*id).preserve_unknown => Ok(value),
            (_, mut value) if of.lenient => {
                self.empty(&mut value, path);
                Ok(value)
            }
            (shape, value) => self.text(shape, value, of),
        }
    }

    /// A value that is kept as text. The text of what was converted, or came in another form, is Go's of a map.
    fn kept(&mut self, value: Value) -> Value {
        self.has_texts = true;
        match value {
            value if self.words == Words::Converter || self.sorts_texts => {
                json::kept_value(json::expanded(value).sorted())
            }
            Value::Raw(text) => Value::Raw(text),
            value => json::kept_value(value),
        }
    }

    /// Takes the members of objects away that stand where the schema of a custom resource has something else.
    fn empty(&mut self, value: &mut Value, path: &Path<'_>) {
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, _)| self.note_unknown(&path.field(key)));
                *map = Map::new();
            }
            Value::Array(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.empty(item, &path.index(i));
                }
            }
            _ => {}
        }
    }

    fn note_unknown(&mut self, path: &Path<'_>) {
        if self.unknown.len() < UNKNOWN_MAX && self.unknown_bytes < UNKNOWN_BYTES_MAX {
            let text = path.to_string();
            self.unknown_bytes += text.len();
            self.unknown.push(text);
        }
    }

    fn list(
        &mut self,
        list: &ListShape,
        mut items: Vec<Value>,
        of: &'t Struct,
        path: &Path<'_>,
    ) -> Result<Value, TypeError> {
        for (i, slot) in items.iter_mut().enumerate() {
            let item = std::mem::take(slot);
            *slot = self.value(&list.item, item, of, &path.index(i))?;
        }
        Ok(Value::Array(items))
    }

    fn schema_or(
        &mut self,
        second: SchemaOr,
        id: crate::StructId,
        value: Value,
        of: &'t Struct,
        path: &Path<'_>,
    ) -> Result<Value, TypeError> {
        // Go has a decoder of its own for these, which does not tell of unknown members.
        let (known, known_bytes) = (self.unknown.len(), self.unknown_bytes);
        let found = self.schema_or_other(second, id, value, of, path);
        self.unknown.truncate(known);
        self.unknown_bytes = known_bytes;
        found
    }

    fn schema_or_other(
        &mut self,
        second: SchemaOr,
        id: crate::StructId,
        value: Value,
        of: &'t Struct,
        path: &Path<'_>,
    ) -> Result<Value, TypeError> {
        match (second, value) {
            (SchemaOr::Bool, value @ Value::Bool(_)) => Ok(value),
            (SchemaOr::Array, Value::Array(mut items)) => {
                for slot in &mut items {
                    let item = std::mem::take(slot);
                    *slot = self.value(&Shape::Struct(id), item, of, path)?;
                }
                Ok(Value::Array(items))
            }
            (SchemaOr::StringArray, value @ Value::Array(_)) => Ok(value),
            (_, value @ Value::Object(_)) => self.value(&Shape::Struct(id), value, of, path),
            (SchemaOr::Bool, _) => Err(TypeError("boolean or JSON schema expected".to_owned())),
            (..) => Err(TypeError("couldn't unmarshal schema or array".to_owned())),
        }
    }

    /// What a null list item or map value becomes: the zero value of its type.
    fn null(&self, shape: &Shape) -> Value {
        match shape {
            Shape::String | Shape::Bytes => Value::String(Str::default()),
            Shape::Bool => Value::Bool(false),
            Shape::Int32 | Shape::Int64 | Shape::Double | Shape::IntOrString => Value::Int(0),
            Shape::Quantity => Value::from("0"),
            Shape::Duration => Value::from("0s"),
            Shape::Struct(_) => Value::Object(Map::new()),
            _ => Value::Null,
        }
    }

    /// A number as the converter takes it: whole, and cut to the size of its type.
    fn converted(&self, shape: &Shape, value: &Value) -> Result<Value, TypeError> {
        let number = match value {
            Value::Int(number) => *number,
            Value::Float(number) if number.fract() == 0.0 => *number as i64,
            _ => return Err(TypeError(self.not_converted(shape, value))),
        };
        let is_short = matches!(shape, Shape::Int32);
        Ok(Value::Int(if is_short { i64::from(number as i32) } else { number }))
    }

    /// Shapes whose JSON form is text with rules of its own.
    fn text(&mut self, shape: &Shape, value: Value, of: &'t Struct) -> Result<Value, TypeError> {
        match (shape, value) {
            (Shape::Bytes, Value::String(text)) => match (crate::text::bytes(text), self.words) {
                (Err(TypeError(why)), Words::Converter) => {
                    Err(TypeError(format!("error decoding from json: {why}")))
                }
                (Err(why), Words::Json) => self.note(why),
                (bytes, _) => bytes,
            },
            (Shape::Bytes, Value::Array(items)) => self.bytes_of(&items, of),
            (Shape::Quantity, value) => crate::text::quantity(&value),
            (Shape::IntOrString, value @ Value::String(_)) => Ok(value),
            (Shape::IntOrString, Value::Int(number)) if i32::try_from(number).is_ok() => {
                Ok(Value::Int(number))
            }
            (Shape::Time, Value::String(text)) => crate::text::time(text),
            (Shape::MicroTime, Value::String(text)) => crate::text::micro_time(text),
            (Shape::Duration, Value::String(text)) => crate::text::duration(&text),
            (Shape::Time | Shape::MicroTime | Shape::Duration, value) => {
                Err(self.misread(&shown(&value), "string", of))
            }
            (Shape::IntOrString, value) => Err(self.misread(&shown_number(&value), "int32", of)),
            (shape, value) => {
                let why = self.mismatch(shape, &value, of);
                self.note(why)
            }
        }
    }

    /// Bytes that are given as a list of numbers.
    fn bytes_of(&mut self, items: &[Value], of: &'t Struct) -> Result<Value, TypeError> {
        let mut bytes = Vec::with_capacity(items.len());
        for item in items {
            let byte = match (item, self.words) {
                (Value::Null, _) => 0,
                (Value::Int(number), Words::Converter) => *number as u8,
                (Value::Float(_), Words::Converter) => {
                    return Err(TypeError("cannot convert float64 to uint8".to_owned()));
                }
                (_, Words::Converter) => {
                    return Err(TypeError("unrecognized type: uint8".to_owned()));
                }
                (Value::Int(number), Words::Json) if (0..=255).contains(number) => *number as u8,
                (_, Words::Json) => {
                    let why = self.refused(&shown_number(item), "uint8", of);
                    return self.note(why);
                }
            };
            bytes.push(byte);
        }
        Ok(crate::text::encoded(&bytes))
    }

    /// Notes a wrong type and goes on, as Go does; the converter ends here.
    fn note(&mut self, why: TypeError) -> Result<Value, TypeError> {
        if self.words == Words::Converter {
            return Err(why);
        }
        self.first.get_or_insert(why);
        Ok(Value::Null)
    }

    /// What a type says that reads a text of its own and was given something else.
    fn misread(&self, given: &str, wanted: &str, of: &'t Struct) -> TypeError {
        if self.words == Words::Converter {
            let why = format!("json: cannot unmarshal {given} into Go value of type {wanted}");
            return TypeError(why);
        }
        self.refused(given, wanted, of)
    }

    fn refused(&self, given: &str, wanted: &str, of: &'t Struct) -> TypeError {
        // Of a custom resource, Go reads the metadata alone.
        let is_metadata = self.types.is_custom_resource()
            && self.trail.first().is_some_and(|(of, at)| of.fields[*at].name == "metadata");
        if is_metadata && self.trail.len() == 1 {
            let why = format!("json: cannot unmarshal {given} into Go value of type {wanted}");
            return TypeError(why);
        }
        let mut trail = String::new();
        for (of, at) in self.trail.iter().skip(usize::from(is_metadata)) {
            let name = &of.fields[*at].name;
            let embedded = go_types::member(&of.name, name).embedded;
            for word in embedded.into_iter().chain([name.as_str()]) {
                trail.push('.');
                trail.push_str(word);
            }
        }
        let of = last_word(&of.name);
        TypeError(format!(
            "json: cannot unmarshal {given} into Go struct field {of}{trail} of type {wanted}"
        ))
    }

    /// The Go type of a value whose shape is that of the member at hand, or of what it holds.
    fn go_type(&self, shape: &Shape) -> String {
        self.named_go_type(shape).map_or_else(|| self.plain_go_type(shape), str::to_owned)
    }

    fn named_go_type(&self, shape: &Shape) -> Option<&'static str> {
        let (of, at) = self.trail.last()?;
        let field = &of.fields[*at];
        let mut name = go_types::member(&of.name, &field.name).go_type?;
        let mut outer = &field.shape;
        while !std::ptr::eq(outer, shape) {
            (outer, name) = match outer {
                Shape::List(list) => (&list.item, name.strip_prefix("[]")?),
                Shape::Map(map) => (&map.value, name.split_once(']')?.1),
                _ => return None,
            };
        }
        Some(name)
    }

    fn mismatch(&self, shape: &Shape, value: &Value, of: &'t Struct) -> TypeError {
        if self.words == Words::Converter {
            return TypeError(self.not_converted(shape, value));
        }
        let what = match shape {
            Shape::Int32 | Shape::Int64 => shown_number(value),
            _ => shown(value),
        };
        self.refused(&what, &self.go_type(shape), of)
    }

    fn not_converted(&self, shape: &Shape, value: &Value) -> String {
        let given = match value {
            Value::String(_) => "string",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int64",
            Value::Float(_) => "float64",
            Value::Array(_) => "slice",
            Value::Object(_) | Value::Raw(_) => "map",
            Value::Null => "invalid",
        };
        match (shape, value) {
            (Shape::Map(_), _) => format!("cannot restore map from {given}"),
            (Shape::List(_) | Shape::Bytes, _) => format!("cannot restore slice from {given}"),
            (Shape::Struct(_), _) => format!("cannot restore struct from: {given}"),
            (Shape::String, Value::Int(_))
            | (Shape::Int32 | Shape::Int64, Value::Float(_) | Value::Int(_)) => {
                format!("cannot convert {given} to {}", self.go_type(shape))
            }
            _ => format!("unrecognized type: {}", self.plain_go_type(shape)),
        }
    }

    fn plain_go_type(&self, shape: &Shape) -> String {
        match shape {
            Shape::String | Shape::Formatted => "string".to_owned(),
            Shape::Bool => "bool".to_owned(),
            Shape::Int32 => "int32".to_owned(),
            Shape::Int64 => "int64".to_owned(),
            Shape::Double => "float64".to_owned(),
            Shape::Bytes => "[]uint8".to_owned(),
            Shape::Time => "v1.Time".to_owned(),
            Shape::MicroTime => "v1.MicroTime".to_owned(),
            Shape::Duration => "v1.Duration".to_owned(),
            Shape::Quantity => "resource.Quantity".to_owned(),
            Shape::IntOrString => "intstr.IntOrString".to_owned(),
            Shape::Json => "v1.JSON".to_owned(),
            Shape::RawExtension => "runtime.RawExtension".to_owned(),
            Shape::FieldsV1 => "v1.FieldsV1".to_owned(),
            Shape::SchemaOr(_, id) | Shape::Struct(id) => go_type_of_struct(self.types.get(*id)),
            Shape::List(list) => format!("[]{}", self.plain_go_type(&list.item)),
            Shape::Map(map) => format!("map[string]{}", self.plain_go_type(&map.value)),
        }
    }
}

/// The members in the order of the struct's; unknown ones come last.
fn in_order(of: &Struct, map: Map) -> Map {
    let place = |key: &Str| of.position(key).unwrap_or(usize::MAX);
    let mut members: Vec<(Str, Value)> = map.into_iter().collect();
    members.sort_by_cached_key(|(key, _)| place(key));
    Map::from_distinct(members)
}

fn is_whole(value: &Value) -> bool {
    match value {
        Value::Float(number) => number.fract() == 0.0,
        value => matches!(value, Value::Int(_)),
    }
}

/// `v1.PodSpec` for `io.k8s.api.core.v1.PodSpec`.
fn go_type_of_struct(of: &Struct) -> String {
    let mut words = of.name.rsplit('.');
    let name = words.next().unwrap_or_default();
    let package = words.next().unwrap_or_default();
    if package.is_empty() { name.to_owned() } else { format!("{package}.{name}") }
}

fn last_word(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn shown(value: &Value) -> String {
    value.type_name().to_owned()
}

/// As Go shows a value that was to become a whole number: a number is quoted.
fn shown_number(value: &Value) -> String {
    match value {
        Value::Int(number) => format!("number {number}"),
        Value::Float(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
            format!("number {number:.1}")
        }
        Value::Float(_) => {
            let mut text = vec![];
            crate::json_writer::write_value(value, &mut text);
            format!("number {}", String::from_utf8_lossy(&text))
        }
        other => shown(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{ListKind, MapShape};
    use crate::{StructId, TagPath};
    use keelson_meta::value;

    fn field(name: &str, shape: Shape, presence: Presence) -> Field {
        Field { presence, tag: TagPath::new(), ..Field::new(name, shape) }
    }

    fn types() -> Types {
        let list = ListShape {
            item: Shape::Struct(StructId(1)),
            kind: ListKind::Atomic,
            patch_merge: false,
            patch_merge_key: None,
        };
        let labels = MapShape { value: Shape::String, nullable: false, atomic: false };
        Types::new(vec![
            Struct::new(
                "io.k8s.api.core.v1.Thing",
                vec![
                    field("labels", Shape::Map(Box::new(labels)), Presence::OmitEmpty),
                    field("items", Shape::List(Box::new(list)), Presence::OmitEmpty),
                    field("flag", Shape::Bool, Presence::OmitEmpty),
                    field("choice", Shape::Bool, Presence::Pointer),
                ],
            ),
            Struct::new(
                "io.k8s.api.core.v1.Item",
                vec![field("count", Shape::Int32, Presence::Pointer)],
            ),
        ])
    }

    fn check(value: Value, want: Result<Value, &str>) {
        let types = types();
        let got = Conform::new(&types, Words::Json).object(types.get(StructId(0)), value);
        assert_eq!(got.map(Value::Object), want.map_err(|e| TypeError(e.to_owned())));
    }

    #[test]
    fn what_go_would_not_write_is_dropped() {
        check(
            value!({"flag": false, "choice": false, "labels": {}, "items": null}),
            // The writer drops empty maps: until then they differ from absent ones.
            Ok(value!({"labels": {}, "choice": false})),
        );
        check(value!({"labels": {"a": null}}), Ok(value!({"labels": {"a": ""}})));
    }

    #[test]
    fn the_converter_goes_through_the_struct_and_sorts_what_is_unknown() {
        let types = types();
        let mut walk = Conform::new(&types, Words::Converter);
        let value = value!({"z": 1, "items": [{"b": 1, "a": 1}], "c": 1});
        walk.object(types.get(StructId(0)), value).expect("all else fits");
        assert_eq!(walk.unknown, ["c", "items[0].a", "items[0].b", "z"]);
        let both = value!({"flag": "x", "items": 1});
        let got = Conform::new(&types, Words::Converter).object(types.get(StructId(0)), both);
        assert_eq!(got, Err(TypeError("cannot restore slice from int64".to_owned())));
    }

    #[test]
    fn wrong_types_are_told_in_the_words_of_go() {
        check(
            value!({"labels": {"a": 1}}),
            Err("json: cannot unmarshal number into Go struct field Thing.labels of type string"),
        );
        check(
            value!({"items": [{"count": 2147483648i64}]}),
            Err("json: cannot unmarshal number 2147483648 into Go struct field \
                 Item.items.count of type int32"),
        );
        check(
            value!({"items": "x"}),
            Err("json: cannot unmarshal string into Go struct field Thing.items of type []v1.Item"),
        );
    }

    #[test]
    fn refusals_name_go_types_and_embedded_structs() {
        let schema = crate::catalogue::Catalogue::shared().named("io.k8s.api.core.v1.PodSpec");
        let schema = schema.expect("the catalogue has pods");
        let check = |value: Value, want: &str| {
            let got = Conform::new(&schema.types, Words::Json).object(schema.root(), value);
            let want = format!("json: cannot unmarshal {want}");
            assert_eq!(got, Err(TypeError(want)));
        };
        check(
            value!({"restartPolicy": 7}),
            "number into Go struct field PodSpec.restartPolicy of type v1.RestartPolicy",
        );
        check(
            value!({"volumes": [{"secret": {"items": 7}}]}),
            "number into Go struct field SecretVolumeSource.volumes.VolumeSource.secret.items of \
             type []v1.KeyToPath",
        );
        check(
            value!({"volumes": [{"persistentVolumeClaim": 7}]}),
            "number into Go struct field Volume.volumes.VolumeSource.persistentVolumeClaim of type \
             v1.PersistentVolumeClaimVolumeSource",
        );
        check(
            value!({"containers": [{"resources": {"limits": "x"}}]}),
            "string into Go struct field ResourceRequirements.containers.resources.limits of type \
             v1.ResourceList",
        );
        check(
            value!({"containers": [{"securityContext": {"capabilities": {"add": [7]}}}]}),
            "number into Go struct field Capabilities.containers.securityContext.capabilities.add of \
             type v1.Capability",
        );
    }

    #[test]
    fn wrong_types_are_told_in_the_words_of_the_converter() {
        let types = types();
        let check = |value: Value, want: &str| {
            let mut walk = Conform::new(&types, Words::Converter);
            let got = walk.object(types.get(StructId(0)), value);
            assert_eq!(got, Err(TypeError(want.to_owned())));
        };
        check(value!({"labels": {"a": 1}}), "cannot convert int64 to string");
        check(value!({"labels": {"a": true}}), "unrecognized type: string");
        check(value!({"labels": "x"}), "cannot restore map from string");
        check(value!({"items": "x"}), "cannot restore slice from string");
        check(value!({"items": ["x"]}), "cannot restore struct from: string");
        check(value!({"items": [{"count": "1"}]}), "unrecognized type: int32");
    }

    #[test]
    fn members_without_a_field_are_named_and_dropped() {
        let types = types();
        let mut walk = Conform::new(&types, Words::Json);
        let value = value!({"items": [{"count": 1}, {"x": 1}], "y": 2});
        let map = walk.object(types.get(StructId(0)), value).unwrap();
        assert_eq!(walk.unknown, ["items[1].x", "y"]);
        assert_eq!(Value::Object(map), value!({"items": [{"count": 1}, {}]}));
    }
}
