//! Brings a decoded value into the canonical form of its schema. It checks types with Go's error
//! messages, reports unknown fields, and drops nulls and empty members that Go would not keep.

use crate::go_types;
use crate::json;
pub use crate::scalar::TypeError;
use crate::types::{Field, ListShape, Presence, SchemaOr, Shape, Struct, Types};
use keelson_meta::{Map, Path, Str, Value};

/// Maximum number of unknown fields that are reported, as upstream has it.
const UNKNOWN_FIELDS_MAX: usize = 100;
/// Maximum total length of their paths; the path that exceeds it is the last.
const UNKNOWN_FIELDS_BYTES_MAX: usize = 1 << 20;

/// The package of core/v1.
const CORE: &str = "io.k8s.api.core.v1.";

/// The Go decoder whose behavior and error messages apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoDecoder {
    /// `encoding/json`, which decodes text.
    Json,
    /// apimachinery's `runtime.DefaultUnstructuredConverter`, which converts values.
    UnstructuredConverter,
}

/// Brings values into canonical form.
pub struct Canonicalizer<'t> {
    types: &'t Types,
    decoder: GoDecoder,
    /// Paths of unknown fields, in order of appearance.
    pub unknown_fields: Vec<String>,
    unknown_fields_bytes: usize,
    /// The fields from the root to the current value: struct and index of the field.
    field_path: Vec<(&'t Struct, usize)>,
    /// The first type error. Go continues after it, and an error of a type with its own text
    /// decoder takes precedence.
    first_error: Option<TypeError>,
    /// Whether to sort the members of RawExtension values.
    pub sorts_raw: bool,
    /// Whether a RawExtension value was found.
    pub has_raw: bool,
}

impl<'t> Canonicalizer<'t> {
    /// Creates a canonicalizer for the given types.
    pub fn new(types: &'t Types, decoder: GoDecoder) -> Self {
        Canonicalizer {
            types,
            decoder,
            unknown_fields: vec![],
            unknown_fields_bytes: 0,
            field_path: vec![],
            first_error: None,
            sorts_raw: false,
            has_raw: false,
        }
    }

    /// Checks a value against a struct and returns it in canonical form.
    pub fn object(&mut self, struct_type: &'t Struct, value: Value) -> Result<Map, TypeError> {
        match value {
            Value::Object(map) => {
                let map = self.members(struct_type, map, &Path::ROOT)?;
                if self.decoder == GoDecoder::UnstructuredConverter && !struct_type.lenient {
                    self.unknown_fields.sort_unstable();
                }
                self.first_error.take().map_or(Ok(map), Err)
            }
            Value::Null => Ok(Map::new()),
            other => Err(TypeError(format!(
                "json: cannot unmarshal {} into Go value of type {}",
                json_type_name(&other),
                go_type_of_struct(struct_type)
            ))),
        }
    }

    fn members(
        &mut self,
        struct_type: &'t Struct,
        mut map: Map,
        path: &Path<'_>,
    ) -> Result<Map, TypeError> {
        let mut last = 0;
        let mut is_sorted = true;
        let mut member_error: Option<(usize, TypeError)> = None;
        // The converter visits fields in struct order, so of several errors the first in that order
        // is reported.
        let checks_all_members =
            self.decoder == GoDecoder::UnstructuredConverter && !struct_type.lenient;
        map.retain(|key, slot| {
            if member_error.is_some() && !checks_all_members {
                return false;
            }
            let Some(at) = struct_type.position_near(last, key) else {
                if struct_type.preserve_unknown {
                    last = usize::MAX;
                } else {
                    self.report_unknown_field(&path.field(key));
                }
                return struct_type.preserve_unknown;
            };
            if member_error.as_ref().is_some_and(|(place, _)| *place < at) {
                return false;
            }
            let field = &struct_type.fields[at];
            if slot.is_null() && self.is_embedded_metadata(struct_type, field) {
                *slot = Value::Object(Map::new());
            }
            if slot.is_null() && !field.nullable {
                // Nulls in an apply configuration of a custom resource are kept for validation.
                return struct_type.lenient
                    && self.decoder == GoDecoder::UnstructuredConverter
                    && field.presence == Presence::Pointer
                    && !field.untyped;
            }
            if let Some(why) = self.embedded_resource_error(struct_type, field, slot, path) {
                member_error = Some((at, why));
                return false;
            }
            self.field_path.push((struct_type, at));
            match self.value(
                &field.shape,
                std::mem::take(slot),
                struct_type,
                &path.field(&field.name),
            ) {
                Ok(value) => *slot = value,
                Err(why) => member_error = Some((at, why)),
            }
            self.field_path.pop();
            // An empty `metadata.managedFields` resets the field managers; other empty lists have
            // no meaning.
            let resets =
                || field.name == "managedFields" && self.field_path.len() == 1 && slot.is_empty();
            let is_kept = member_error.is_none() && (!field.is_omitted(slot) || resets());
            if is_kept {
                is_sorted &= last <= at;
                last = at;
            }
            is_kept
        });
        if let Some((_, why)) = member_error {
            return Err(why);
        }
        Ok(if is_sorted { map } else { in_order(struct_type, map) })
    }

    /// Returns whether a field is the metadata of an embedded resource: it has the fields of all
    /// metadata, and no others.
    fn is_embedded_metadata(&self, struct_type: &Struct, field: &Field) -> bool {
        let is_of_objects =
            |shape: &Shape| matches!(shape, Shape::Struct(id) if !self.types.get(*id).lenient);
        struct_type.lenient
            && !self.field_path.is_empty()
            && field.name == "metadata"
            && is_of_objects(&field.shape)
    }

    /// Returns the type error of `kind`, `apiVersion` or `metadata` of an embedded resource.
    fn embedded_resource_error(
        &self,
        struct_type: &Struct,
        field: &Field,
        value: &Value,
        path: &Path<'_>,
    ) -> Option<TypeError> {
        if !struct_type.lenient || self.field_path.is_empty() || value.is_null() {
            return None;
        }
        let why = match (&*field.name, &field.shape) {
            ("metadata", Shape::Struct(id)) if self.is_embedded_metadata(struct_type, field) => {
                let mut canonicalizer = Canonicalizer::new(self.types, GoDecoder::Json);
                canonicalizer.object(self.types.get(*id), value.clone()).err()?.0
            }
            ("apiVersion" | "kind", Shape::String) if value.as_str().is_none() => {
                let mut fields = struct_type.fields.iter();
                fields.find(|field| self.is_embedded_metadata(struct_type, field))?;
                "must be a string".to_owned()
            }
            _ => return None,
        };
        let shown_value = keelson_meta::status::show(&value.clone().sorted());
        let field = path.field(&field.name);
        Some(TypeError(format!("{field}: Invalid value: {shown_value}: {why}")))
    }

    fn value(
        &mut self,
        shape: &Shape,
        value: Value,
        struct_type: &'t Struct,
        path: &Path<'_>,
    ) -> Result<Value, TypeError> {
        match (shape, value) {
            (_, Value::Null) if struct_type.lenient => Ok(Value::Null),
            (_, Value::Null) => Ok(self.null(shape)),
            (Shape::String | Shape::Formatted, value @ Value::String(_)) => Ok(value),
            (Shape::Bool, value @ Value::Bool(_)) => Ok(value),
            (Shape::Int64, value @ Value::Int(_)) => Ok(value),
            (Shape::Int32, Value::Int(number)) if i32::try_from(number).is_ok() => {
                Ok(Value::Int(number))
            }
            (Shape::Int32 | Shape::Int64, value @ (Value::Int(_) | Value::Float(_)))
                if self.decoder == GoDecoder::UnstructuredConverter
                    && (!struct_type.lenient || is_whole(&value)) =>
            {
                self.convert_integer(shape, &value)
            }
            (Shape::Number, value @ (Value::Int(_) | Value::Float(_))) => {
                Ok(crate::scalar::number(value))
            }
            (Shape::Double, Value::Int(number)) => Ok(crate::scalar::double(number as f64)),
            (Shape::Double, Value::Float(number)) => Ok(crate::scalar::double(number)),
            (Shape::Struct(id), Value::Object(map)) => {
                let inner = self.types.get(*id);
                self.members(inner, map, path).map(Value::Object)
            }
            (Shape::List(list), Value::Array(items)) => self.list(list, items, struct_type, path),
            (Shape::Map(shape), Value::Object(mut map)) => {
                if struct_type.lenient && !shape.nullable && self.decoder == GoDecoder::Json {
                    map.retain(|_, value| !value.is_null());
                }
                for (key, slot) in map.iter_mut() {
                    let item = std::mem::take(slot);
                    *slot = self.value(&shape.value, item, struct_type, &path.field(key))?;
                }
                // A ResourceList of core/v1.
                if matches!(shape.value, Shape::Quantity) && struct_type.name.starts_with(CORE) {
                    crate::scalar::round_to_milli(&mut map);
                }
                Ok(Value::Object(map))
            }
            (Shape::Json, value) => Ok(value),
            (Shape::RawExtension, value) => Ok(self.raw_extension(value)),
            // Go keeps any value as text; invalid entries are dropped later.
            (Shape::FieldsV1, value) => Ok(value),
            (Shape::SchemaOr(second, id), value) => {
                self.schema_or(*second, *id, value, struct_type, path)
            }
            // Metadata of custom resources is typed.
            (Shape::Struct(id), value) if !self.types.get(*id).lenient => {
                self.text_scalar(&Shape::Struct(*id), value, struct_type)
            }
            (Shape::Struct(id), value) if self.types.get(*id).preserve_unknown => Ok(value),
            (_, mut value) if struct_type.lenient => {
                self.remove_members(&mut value, path);
                Ok(value)
            }
            (shape, value) => self.text_scalar(shape, value, struct_type),
        }
    }

    /// Returns a RawExtension value as text. Text that did not come from JSON is marshalled as Go
    /// does it: with sorted members.
    fn raw_extension(&mut self, value: Value) -> Value {
        self.has_raw = true;
        match value {
            value if self.decoder == GoDecoder::UnstructuredConverter || self.sorts_raw => {
                json::raw_from_value(json::parse_raw(value).sorted())
            }
            Value::Raw(text) => Value::Raw(text),
            value => json::raw_from_value(value),
        }
    }

    /// Removes the members of objects where the schema of a custom resource has another type.
    fn remove_members(&mut self, value: &mut Value, path: &Path<'_>) {
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, _)| self.report_unknown_field(&path.field(key)));
                *map = Map::new();
            }
            Value::Array(items) => {
                for (i, item) in items.iter_mut().enumerate() {
                    self.remove_members(item, &path.index(i));
                }
            }
            _ => {}
        }
    }

    fn report_unknown_field(&mut self, path: &Path<'_>) {
        if self.unknown_fields.len() < UNKNOWN_FIELDS_MAX
            && self.unknown_fields_bytes < UNKNOWN_FIELDS_BYTES_MAX
        {
            let text = path.to_string();
            self.unknown_fields_bytes += text.len();
            self.unknown_fields.push(text);
        }
    }

    fn list(
        &mut self,
        list: &ListShape,
        mut items: Vec<Value>,
        struct_type: &'t Struct,
        path: &Path<'_>,
    ) -> Result<Value, TypeError> {
        for (i, slot) in items.iter_mut().enumerate() {
            let item = std::mem::take(slot);
            *slot = self.value(&list.item, item, struct_type, &path.index(i))?;
        }
        Ok(Value::Array(items))
    }

    fn schema_or(
        &mut self,
        second: SchemaOr,
        id: crate::StructId,
        value: Value,
        struct_type: &'t Struct,
        path: &Path<'_>,
    ) -> Result<Value, TypeError> {
        // Go has a custom decoder for these types, which does not report unknown fields.
        let known = self.unknown_fields.len();
        let known_bytes = self.unknown_fields_bytes;
        let found = self.schema_or_other(second, id, value, struct_type, path);
        self.unknown_fields.truncate(known);
        self.unknown_fields_bytes = known_bytes;
        found
    }

    fn schema_or_other(
        &mut self,
        second: SchemaOr,
        id: crate::StructId,
        value: Value,
        struct_type: &'t Struct,
        path: &Path<'_>,
    ) -> Result<Value, TypeError> {
        match (second, value) {
            (SchemaOr::Bool, value @ Value::Bool(_)) => Ok(value),
            (SchemaOr::Array, Value::Array(items)) if items.is_empty() => Ok(Value::Null),
            (SchemaOr::Array, Value::Array(mut items)) => {
                for slot in &mut items {
                    let item = std::mem::take(slot);
                    *slot = self.value(&Shape::Struct(id), item, struct_type, path)?;
                }
                Ok(Value::Array(items))
            }
            (SchemaOr::StringArray, value @ Value::Array(_)) => Ok(value),
            (_, value @ Value::Object(_)) => {
                self.value(&Shape::Struct(id), value, struct_type, path)
            }
            (SchemaOr::Bool, _) => Err(TypeError("boolean or JSON schema expected".to_owned())),
            // Go's decoder ignores anything else.
            (SchemaOr::Array | SchemaOr::StringArray, _) => Ok(Value::Null),
        }
    }

    /// Returns the zero value that replaces a null list item or map value.
    fn null(&self, shape: &Shape) -> Value {
        match shape {
            Shape::String | Shape::Bytes => Value::String(Str::default()),
            Shape::Bool => Value::Bool(false),
            Shape::Int32 | Shape::Int64 | Shape::Double | Shape::Number | Shape::IntOrString => {
                Value::Int(0)
            }
            Shape::Quantity => Value::from("0"),
            Shape::Duration => Value::from("0s"),
            Shape::Struct(_) => Value::Object(Map::new()),
            _ => Value::Null,
        }
    }

    /// Converts a number as the converter does: it must be whole, and is truncated to the size of
    /// its type.
    fn convert_integer(&self, shape: &Shape, value: &Value) -> Result<Value, TypeError> {
        let number = match value {
            Value::Int(number) => *number,
            Value::Float(number) if number.fract() == 0.0 => go_integer(*number),
            _ => return Err(TypeError(self.conversion_error(shape, value))),
        };
        let is_short = matches!(shape, Shape::Int32);
        Ok(Value::Int(if is_short { i64::from(number as i32) } else { number }))
    }

    /// Canonicalizes types with a text form of their own.
    fn text_scalar(
        &mut self,
        shape: &Shape,
        value: Value,
        struct_type: &'t Struct,
    ) -> Result<Value, TypeError> {
        match (shape, value) {
            (Shape::Bytes, Value::String(text)) => match (crate::scalar::bytes(text), self.decoder)
            {
                (Err(TypeError(why)), GoDecoder::UnstructuredConverter) => {
                    Err(TypeError(format!("error decoding from json: {why}")))
                }
                (Err(why), GoDecoder::Json) => self.record_error(why),
                (bytes, _) => bytes,
            },
            (Shape::Bytes, Value::Array(items)) => self.bytes_from_numbers(&items, struct_type),
            // Go's decoder of JSON trims the text of a quantity.
            (Shape::Quantity, Value::String(text)) if text.trim() != text => {
                crate::scalar::quantity(&Value::from(text.trim()))
            }
            (Shape::Quantity, value) => crate::scalar::quantity(&value),
            (Shape::IntOrString, value @ Value::String(_)) => Ok(value),
            (Shape::IntOrString, Value::Int(number)) if i32::try_from(number).is_ok() => {
                Ok(Value::Int(number))
            }
            (Shape::Time, Value::String(text)) => crate::scalar::time(text),
            (Shape::MicroTime, Value::String(text)) => crate::scalar::micro_time(text),
            (Shape::Duration, Value::String(text)) => crate::scalar::duration(&text),
            (Shape::Time | Shape::MicroTime | Shape::Duration, value) => {
                Err(self.wrong_json_type(&json_type_name(&value), "string", struct_type))
            }
            (Shape::IntOrString, value) => {
                Err(self.wrong_json_type(&json_number_name(&value), "int32", struct_type))
            }
            (shape, value) => {
                let why = self.mismatch(shape, &value, struct_type);
                self.record_error(why)
            }
        }
    }

    /// Converts bytes that are given as a list of numbers.
    fn bytes_from_numbers(
        &mut self,
        items: &[Value],
        struct_type: &'t Struct,
    ) -> Result<Value, TypeError> {
        let mut bytes = Vec::with_capacity(items.len());
        for item in items {
            let byte = match (item, self.decoder) {
                (Value::Null, _) => 0,
                (Value::Int(number), GoDecoder::UnstructuredConverter) => *number as u8,
                (Value::Float(_), GoDecoder::UnstructuredConverter) => {
                    return Err(TypeError("cannot convert float64 to uint8".to_owned()));
                }
                (_, GoDecoder::UnstructuredConverter) => {
                    return Err(TypeError("unrecognized type: uint8".to_owned()));
                }
                (Value::Int(number), GoDecoder::Json) if (0..=255).contains(number) => {
                    *number as u8
                }
                (_, GoDecoder::Json) => {
                    let why = self.type_error(&json_number_name(item), "uint8", struct_type);
                    return self.record_error(why);
                }
            };
            bytes.push(byte);
        }
        Ok(crate::scalar::encoded(&bytes))
    }

    /// Records a type error and continues, as Go does; the converter fails at once.
    fn record_error(&mut self, why: TypeError) -> Result<Value, TypeError> {
        if self.decoder == GoDecoder::UnstructuredConverter {
            return Err(why);
        }
        self.first_error.get_or_insert(why);
        Ok(Value::Null)
    }

    /// Returns the error of a type with its own text decoder for another JSON type.
    fn wrong_json_type(&self, given: &str, wanted: &str, struct_type: &'t Struct) -> TypeError {
        if self.decoder == GoDecoder::UnstructuredConverter {
            let why = format!("json: cannot unmarshal {given} into Go value of type {wanted}");
            return TypeError(why);
        }
        self.type_error(given, wanted, struct_type)
    }

    fn type_error(&self, given: &str, wanted: &str, struct_type: &'t Struct) -> TypeError {
        // Go decodes only the metadata of a custom resource.
        let is_metadata = self.types.is_custom_resource()
            && self
                .field_path
                .first()
                .is_some_and(|(struct_type, at)| struct_type.fields[*at].name == "metadata");
        if is_metadata && self.field_path.len() == 1 {
            let why = format!("json: cannot unmarshal {given} into Go value of type {wanted}");
            return TypeError(why);
        }
        let mut field_path = String::new();
        for (struct_type, at) in self.field_path.iter().skip(usize::from(is_metadata)) {
            let name = &struct_type.fields[*at].name;
            let embedded = go_types::member(&struct_type.name, name).embedded;
            for word in embedded.into_iter().chain([name.as_str()]) {
                field_path.push('.');
                field_path.push_str(word);
            }
        }
        // A decoder that a schema calls for the schemas in it puts its own struct in their errors.
        let mut around = self.field_path.iter();
        let around =
            around.find(|(outer, at)| matches!(outer.fields[*at].shape, Shape::SchemaOr(..)));
        let struct_type = last_word(around.map_or(&struct_type.name, |(outer, _)| &outer.name));
        TypeError(format!(
            "json: cannot unmarshal {given} into Go struct field {struct_type}{field_path} of type {wanted}"
        ))
    }

    /// Returns the Go type of the current field, or of a value in it.
    fn go_type(&self, shape: &Shape) -> String {
        self.named_go_type(shape).map_or_else(|| self.plain_go_type(shape), str::to_owned)
    }

    fn named_go_type(&self, shape: &Shape) -> Option<&'static str> {
        let (struct_type, at) = self.field_path.last()?;
        let field = &struct_type.fields[*at];
        let mut name = go_types::member(&struct_type.name, &field.name).go_type?;
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

    fn mismatch(&self, shape: &Shape, value: &Value, struct_type: &'t Struct) -> TypeError {
        if self.decoder == GoDecoder::UnstructuredConverter {
            return TypeError(self.conversion_error(shape, value));
        }
        let what = match shape {
            Shape::Int32 | Shape::Int64 => json_number_name(value),
            _ => json_type_name(value),
        };
        self.type_error(&what, &self.go_type(shape), struct_type)
    }

    fn conversion_error(&self, shape: &Shape, value: &Value) -> String {
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
            Shape::Double | Shape::Number => "float64".to_owned(),
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

/// Returns the members in struct order; unknown fields come last.
fn in_order(struct_type: &Struct, map: Map) -> Map {
    let place = |key: &Str| struct_type.position(key).unwrap_or(usize::MAX);
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

/// Returns `v1.PodSpec` for `io.k8s.api.core.v1.PodSpec`.
fn go_type_of_struct(struct_type: &Struct) -> String {
    let mut words = struct_type.name.rsplit('.');
    let name = words.next().unwrap_or_default();
    let package = words.next().unwrap_or_default();
    if package.is_empty() { name.to_owned() } else { format!("{package}.{name}") }
}

fn last_word(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

fn json_type_name(value: &Value) -> String {
    value.type_name().to_owned()
}

/// Converts a float as Go does on amd64: one that does not fit is the least integer.
fn go_integer(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// Returns Go's description of a value that should be an integer: numbers are quoted.
pub(crate) fn json_number_name(value: &Value) -> String {
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
        other => json_type_name(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::MapShape;
    use crate::{StructId, TagPath};
    use keelson_meta::value;

    fn field(name: &str, shape: Shape, presence: Presence) -> Field {
        Field { presence, tag: TagPath::new(), ..Field::new(name, shape) }
    }

    fn types() -> Types {
        let list = ListShape::atomic(Shape::Struct(StructId(1)));
        let labels =
            MapShape { value: Shape::String, nullable: false, default: None, atomic: false };
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
        let got = Canonicalizer::new(&types, GoDecoder::Json).object(types.get(StructId(0)), value);
        assert_eq!(got.map(Value::Object), want.map_err(|e| TypeError(e.to_owned())));
    }

    #[test]
    fn values_that_go_omits_are_dropped() {
        check(
            value!({"flag": false, "choice": false, "labels": {}, "items": null}),
            // Empty maps are dropped by the encoder; until then they differ from absent ones.
            Ok(value!({"labels": {}, "choice": false})),
        );
        check(value!({"labels": {"a": null}}), Ok(value!({"labels": {"a": ""}})));
    }

    #[test]
    fn converter_reports_errors_in_struct_order_and_sorts_unknown_fields() {
        let types = types();
        let mut canonicalizer = Canonicalizer::new(&types, GoDecoder::UnstructuredConverter);
        let value = value!({"z": 1, "items": [{"b": 1, "a": 1}], "c": 1});
        canonicalizer.object(types.get(StructId(0)), value).expect("all else fits");
        assert_eq!(canonicalizer.unknown_fields, ["c", "items[0].a", "items[0].b", "z"]);
        let both = value!({"flag": "x", "items": 1});
        let got = Canonicalizer::new(&types, GoDecoder::UnstructuredConverter)
            .object(types.get(StructId(0)), both);
        assert_eq!(got, Err(TypeError("cannot restore slice from int64".to_owned())));
    }

    #[test]
    fn type_errors_match_encoding_json() {
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
    fn type_errors_name_go_types_and_embedded_structs() {
        let schema = crate::catalogue::Catalogue::shared()
            .named("io.k8s.api.core.v1.PodSpec")
            .expect("the catalogue has pods");
        let check = |value: Value, want: &str| {
            let got =
                Canonicalizer::new(&schema.types, GoDecoder::Json).object(schema.root(), value);
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
    fn type_errors_below_items_name_the_schema_around_them() {
        let name = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps";
        let schema =
            crate::catalogue::Catalogue::shared().named(name).expect("the catalogue has schemas");
        let check = |value: Value, want: &str| {
            let got =
                Canonicalizer::new(&schema.types, GoDecoder::Json).object(schema.root(), value);
            let want = format!("json: cannot unmarshal array into Go struct field {want}");
            assert_eq!(got, Err(TypeError(want)));
        };
        let rule = value!({"x-kubernetes-validations": [{"message": []}]});
        check(rule.clone(), "ValidationRule.x-kubernetes-validations.message of type string");
        check(
            value!({"items": (rule)}),
            "JSONSchemaProps.items.x-kubernetes-validations.message of type string",
        );
    }

    #[test]
    fn type_errors_match_the_converter() {
        let types = types();
        let check = |value: Value, want: &str| {
            let mut canonicalizer = Canonicalizer::new(&types, GoDecoder::UnstructuredConverter);
            let got = canonicalizer.object(types.get(StructId(0)), value);
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
    fn unknown_fields_are_reported_and_dropped() {
        let types = types();
        let mut canonicalizer = Canonicalizer::new(&types, GoDecoder::Json);
        let value = value!({"items": [{"count": 1}, {"x": 1}], "y": 2});
        let map = canonicalizer.object(types.get(StructId(0)), value).unwrap();
        assert_eq!(canonicalizer.unknown_fields, ["items[1].x", "y"]);
        assert_eq!(Value::Object(map), value!({"items": [{"count": 1}, {}]}));
    }
}
