//! JSON Patch, merge patch and strategic merge patch of an object (apiserver `handlers/patch.go`).

use crate::options::{FieldValidation, Patch, PatchForm, strict_warnings};
use keelson_apply::{go_fmt, json_patch, merge_patch, strategic};
use keelson_meta::{
    ErrorList, Failure, FieldError, GroupVersion, Map, Object, Path, Reason, Status, Str, Value,
    json_text,
};
use keelson_schema::canonical::GoDecoder;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{
    Decoded, body_gvk, canonicalize_as, check_custom_resource_type, check_gvk,
    check_internal_version, check_maps,
};
use keelson_schema::given_numbers::GivenNumbers;
use keelson_schema::{Schema, Shape, json};

/// A parsed patch of any form but server-side apply.
#[derive(Debug)]
pub(crate) struct ParsedPatch {
    form: PatchForm,
    value: Value,
    bytes: usize,
    /// Errors of strict decoding of the patch itself.
    strict: Vec<String>,
    /// Strings that the patch writes with `\u` escapes, as we encode them and as the patch has
    /// them: upstream's error messages quote the patch unchanged.
    escaped: Vec<(String, String)>,
    /// Numbers that the patch writes otherwise than this server would, likewise.
    numbers: GivenNumbers,
}

/// The result of a patch.
pub(crate) struct Patched {
    pub object: Object,
    /// Warnings about unknown and duplicate fields.
    pub warnings: Vec<Str>,
    /// The error for a custom resource whose type the patch changes. It is reported after errors of
    /// the name.
    pub other_type: Option<Failure>,
}

/// Maximum number of escaped strings that are kept for error messages.
const ESCAPED_TEXTS_MAX: usize = 32;

/// Returns the strings of a body that contain `\u` escapes, as we encode them and as the body has
/// them.
fn escaped_texts(body: &[u8]) -> Vec<(String, String)> {
    let Ok(text) = std::str::from_utf8(body) else { return vec![] };
    let mut found = vec![];
    let mut rest = text;
    while let Some(start) = rest.find('"').filter(|_| found.len() < ESCAPED_TEXTS_MAX) {
        let after = &rest[start + 1..];
        let mut is_escaped = false;
        let end = after.bytes().position(|byte| {
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            ends
        });
        let Some(end) = end else { break };
        let literal = &rest[start..start + end + 2];
        if literal.contains("\\u")
            && let Ok(parsed) = json::parse(literal.as_bytes())
        {
            let canonical = text_of(&parsed.value);
            let given = json_text::compact(literal);
            if canonical != given {
                found.push((canonical, given.into_owned()));
            }
        }
        rest = &after[end + 1..];
    }
    found
}

impl ParsedPatch {
    /// Parses a patch of any form but server-side apply.
    pub fn parse(patch: &Patch) -> Result<ParsedPatch, Failure> {
        let form = patch.form;
        let refuse = |why: &dyn std::fmt::Display| match form {
            PatchForm::Strategic => Status::bad_request(why.to_string()),
            _ => Status::bad_request(format!("error decoding patch: {why}")),
        };
        let parsed = json::parse(&patch.body).map_err(|error| refuse(&error))?;
        if let Some(number) = &parsed.overflow {
            let why = json::overflow_error(number);
            return Err(refuse(&match form {
                PatchForm::Json => why.replace("Go value", "Go struct field jsonPatchOp.value"),
                _ => why,
            }));
        }
        let value = parsed.value;
        let wanted = match form {
            PatchForm::Json => "[]handlers.jsonPatchOp",
            _ => "map[string]interface {}",
        };
        let fits = match form {
            PatchForm::Json => value.as_array().is_some(),
            _ => value.as_object().is_some(),
        };
        if !fits && !value.is_null() {
            let given = value.type_name();
            let why = format!("json: cannot unmarshal {given} into Go value of type {wanted}");
            return Err(refuse(&why));
        }
        let duplicates = parsed.duplicates.iter();
        let prefix = if form == PatchForm::Json { "json patch " } else { "" };
        let mut strict: Vec<String> = duplicates
            .map(|path| format!("{prefix}duplicate field {}", keelson_meta::status::quote(path)))
            .collect();
        if form == PatchForm::Json {
            strict.extend(json_patch::unknown_fields(&value));
        }
        let escaped = match form {
            PatchForm::Strategic => vec![],
            _ if patch.body.windows(2).any(|pair| pair == b"\\u") => escaped_texts(&patch.body),
            _ => vec![],
        };
        let numbers = match form {
            PatchForm::Strategic => GivenNumbers::default(),
            _ => GivenNumbers::of(&patch.body),
        };
        Ok(ParsedPatch { form, value, bytes: patch.body.len(), strict, escaped, numbers })
    }

    /// Applies the patch to `live`, an object of `schema`. `has_raw`: see
    /// `Strategy::has_raw_extension`.
    pub fn apply(
        &self,
        schema: &Schema,
        live: &Object,
        validation: FieldValidation,
        has_raw: bool,
    ) -> Result<Patched, Failure> {
        let is_custom = schema.types.is_custom_resource();
        let after = self.apply_to(schema, live, has_raw)?;
        let other_type = if is_custom { other_custom_type(&after, schema) } else { None };
        let is_other_kind = other_type.is_some() && is_other_kind(&after, schema);
        // The patched value is needed for errors only, so it is computed again instead of cloned.
        let invalid = |why: String| match self.apply_to(schema, live, has_raw) {
            Ok(after) => self.invalid_patch(live, &after, &why, is_custom),
            Err(failure) => failure,
        };
        let mut decoded = self.decode(schema, after).map_err(invalid)?;
        // A JSON Patch can copy values, so its length does not bound the object.
        let bytes = if self.form == PatchForm::Json { usize::MAX } else { self.bytes };
        check_maps(&decoded.object.root, bytes)?;
        if is_other_kind {
            // Upstream checks only the metadata of an object of another kind.
            decoded.strict_errors.retain(|why| why.starts_with("unknown field \"metadata."));
        }
        let mut strict = self.strict.clone();
        strict.append(&mut decoded.strict_errors);
        let warnings = match validation {
            FieldValidation::Strict if !strict.is_empty() => {
                return Err(invalid(format!("strict decoding error: {}", strict.join(", "))));
            }
            FieldValidation::Warn => strict_warnings(&strict),
            FieldValidation::Strict | FieldValidation::Ignore => vec![],
        };
        Ok(Patched { object: decoded.object, warnings, other_type })
    }

    /// Applies the patch. With `has_raw`, `live` may hold raw texts, which the patch sees parsed
    /// and which stay unchanged where it does not touch them.
    fn apply_to(&self, schema: &Schema, live: &Object, has_raw: bool) -> Result<Value, Failure> {
        let before = live.clone().into_value();
        if !has_raw {
            return self.patched(schema, before);
        }
        let after = self.patched(schema, json::parse_raw(before.clone()))?;
        let opens = (self.form == PatchForm::Merge).then_some(&self.value);
        let is_converted = self.form == PatchForm::Strategic;
        Ok(if is_converted { after } else { json::keep_unchanged_raw(&before, after, opens) })
    }

    fn patched(&self, schema: &Schema, before: Value) -> Result<Value, Failure> {
        let after = match self.form {
            // The other forms do not read inside raw texts.
            PatchForm::Json => json_patch::apply(json::parse_raw(before), &self.value),
            PatchForm::Merge => merge_patch::apply(before, &self.value),
            PatchForm::Strategic => strategic::apply(schema, before, self.value.clone()),
            PatchForm::ApplyYaml | PatchForm::ApplyCbor => {
                return Err(Status::new(
                    Reason::UnsupportedMediaType,
                    "415: Unsupported Media Type",
                ));
            }
        };
        after.map_err(Failure::from)
    }

    /// Decodes the patched value. Upstream applies a strategic merge patch to values and ignores
    /// the resulting type; the other forms are decoded as the type that the text names.
    fn decode(&self, schema: &Schema, after: Value) -> Result<Decoded, String> {
        if self.form == PatchForm::Strategic {
            return canonicalize_as(schema, after, GoDecoder::UnstructuredConverter);
        }
        if schema.types.is_custom_resource() {
            check_type_members(&after)?;
            // The type is checked after the name.
            return canonicalize_as(schema, after, GoDecoder::Json);
        }
        let given = body_gvk(&after, schema)?;
        let says_version = !after.str_at(&["apiVersion"]).unwrap_or_default().is_empty();
        if !says_version {
            check_internal_version(&given, schema, &|gvk| Catalogue::shared().is_known(gvk))?;
            return unversioned(schema, after);
        }
        if given == schema.gvk {
            return canonicalize_as(schema, after, GoDecoder::Json);
        }
        let catalogue = Catalogue::shared();
        let check = check_gvk(&given, schema, &|gvk| catalogue.is_known(gvk));
        let Some(other) = catalogue.schema(&given) else {
            return check.and(Err(format!("no schema for {given}")));
        };
        let decoded = canonicalize_as(&other, after, GoDecoder::Json)?;
        check?;
        let object = keelson_kinds::convert(decoded.object, &given, &schema.gvk);
        Ok(Decoded { object, ..decoded })
    }

    /// Returns 422 for a patch whose result is not an object of its kind.
    fn invalid_patch(&self, live: &Object, after: &Value, why: &str, is_custom: bool) -> Failure {
        let text = match self.form {
            PatchForm::Strategic => {
                let live = live.clone().into_value();
                go_fmt::plain(&strategic::without_replaced_nulls(&live, self.value.clone()))
            }
            _ => {
                let text = match is_custom {
                    true => text_of(&json::parse_raw(after.clone()).sorted()),
                    false => text_of(after),
                };
                let restore_escapes = |text: String, (canonical, given): &(String, String)| {
                    text.replace(canonical.as_str(), given)
                };
                self.numbers.in_document(self.escaped.iter().fold(text, restore_escapes))
            }
        };
        let why = &self.numbers.in_error(why.to_owned());
        let mut errors = ErrorList::new();
        errors.push(FieldError::invalid(&Path::new("patch"), text.as_str(), why));
        Status::invalid("", "", "", errors)
    }
}

fn text_of(value: &Value) -> String {
    let mut text = vec![];
    json::write_value(value, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Checks the apiVersion and kind of a custom resource, which upstream reads in a separate step.
fn check_type_members(object: &Value) -> Result<(), String> {
    let unread = |given: &Value, into: &str| {
        let given = given.type_name();
        let why = format!("json: cannot unmarshal {given} into Go {into}");
        Err(format!("couldn't get version/kind; json parse error: {why}"))
    };
    if object.as_object().is_none() {
        let fields = r#"APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"""#;
        return unread(object, &format!("value of type struct {{ {fields} }}"));
    }
    for name in ["apiVersion", "kind"] {
        match object.get(name) {
            None | Some(Value::Null | Value::String(_)) => {}
            Some(other) => return unread(other, &format!("struct field .{name} of type string")),
        }
    }
    let text = |name: &str| object.str_at(&[name]).unwrap_or_default();
    if GroupVersion::parse(text("apiVersion")).is_none() {
        return Err(format!("unexpected GroupVersion string: {}", text("apiVersion")));
    }
    if text("kind").is_empty() {
        let text = text_of(&json::parse_raw(object.clone()).sorted());
        return Err(format!("Object 'Kind' is missing in '{text}'"));
    }
    if object.get("apiVersion").is_some_and(Value::is_null) {
        let why = "<nil> is of the type <nil>, expected string";
        return Err(format!(".apiVersion accessor error: {why}"));
    }
    Ok(())
}

/// Returns the error for a custom resource that does not have the type of its endpoint.
fn other_custom_type(object: &Value, schema: &Schema) -> Option<Failure> {
    if object.str_at(&["apiVersion"]).unwrap_or_default().is_empty() {
        let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
        return Some(Status::internal(why));
    }
    check_custom_resource_type(object, schema).err()
}

/// Whether an object is of another group or kind, whatever its version.
fn is_other_kind(object: &Value, schema: &Schema) -> bool {
    let text = |name: &str| object.str_at(&[name]).unwrap_or_default();
    let group = GroupVersion::parse(text("apiVersion")).unwrap_or_default().group;
    text("kind") != schema.gvk.kind || group != schema.gvk.group
}

/// Decodes an object without apiVersion. Upstream decodes it as its internal type, whose fields
/// have no JSON names, except those of the metadata, which stand at the top level.
fn unversioned(schema: &Schema, value: Value) -> Result<Decoded, String> {
    let Value::Object(members) = value else {
        return canonicalize_as(schema, value, GoDecoder::Json);
    };
    let metadata = schema.root().field("metadata").map(|field| &field.shape);
    let known = match metadata {
        Some(Shape::Struct(id)) => Some(schema.types.get(*id)),
        _ => None,
    };
    let is_type = |name: &str| matches!(name, "kind" | "apiVersion");
    let mut strict = vec![];
    let mut kept = Map::new();
    for (name, value) in members {
        if known.is_some_and(|known| known.field(&name).is_some()) {
            kept.insert(name, value);
        } else if !is_type(&name) {
            strict.push(format!("unknown field {}", keelson_meta::status::quote(&name)));
        }
    }
    let mut object = Map::new();
    object.insert("metadata", kept);
    let mut decoded = canonicalize_as(schema, Value::Object(object), GoDecoder::Json)?;
    strict.append(&mut decoded.strict_errors);
    Ok(Decoded { strict_errors: strict, ..decoded })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn texts_that_a_patch_escapes_are_shown_with_the_escapes_of_go() {
        let found = escaped_texts(br#"{"a":"<\u0041","b":"<","c":"\u003c"}"#);
        let shown = (r#""\u003cA""#.to_owned(), r#""\u003c\u0041""#.to_owned());
        assert_eq!(found, [shown]);
    }

    /// The texts are those of a kube-apiserver 1.36.
    #[test]
    fn numbers_that_no_float_can_hold_are_refused() {
        let check = |form, body: &'static str, want: &str| {
            let patch = Patch { form, body: Bytes::from_static(body.as_bytes()) };
            let failure = ParsedPatch::parse(&patch).expect_err("a refusal");
            assert_eq!((failure.code, failure.message.as_str()), (400, want));
        };
        let why = "json: cannot unmarshal number 1e400 into Go value of type float64";
        let decoding = format!("error decoding patch: {why}");
        check(PatchForm::Merge, r#"{"spec":{"n":1e400}}"#, &decoding);
        check(PatchForm::Strategic, r#"{"spec":{"n":1e400}}"#, why);
        let of_operation = "error decoding patch: json: cannot unmarshal number 1e400 into Go \
                            struct field jsonPatchOp.value of type float64";
        let operations = r#"[{"op":"add","path":"/spec/n","value":1e400}]"#;
        check(PatchForm::Json, operations, of_operation);
    }
}
