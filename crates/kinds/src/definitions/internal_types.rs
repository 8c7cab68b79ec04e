//! Formats schemas as upstream's messages show them: as the internal type `JSONSchemaProps`, with
//! all its fields.

use keelson_meta::{Map, Value, value};

/// The fields of the internal type in order, with their JSON names and their values when absent.
const MEMBERS: [(&str, &str, Absent); 44] = [
    ("ID", "id", Absent::Text),
    ("Schema", "$schema", Absent::Text),
    ("Ref", "$ref", Absent::Null),
    ("Description", "description", Absent::Text),
    ("Type", "type", Absent::Text),
    ("Nullable", "nullable", Absent::False),
    ("Format", "format", Absent::Text),
    ("Title", "title", Absent::Text),
    ("Default", "default", Absent::Null),
    ("Maximum", "maximum", Absent::Null),
    ("ExclusiveMaximum", "exclusiveMaximum", Absent::False),
    ("Minimum", "minimum", Absent::Null),
    ("ExclusiveMinimum", "exclusiveMinimum", Absent::False),
    ("MaxLength", "maxLength", Absent::Null),
    ("MinLength", "minLength", Absent::Null),
    ("Pattern", "pattern", Absent::Text),
    ("MaxItems", "maxItems", Absent::Null),
    ("MinItems", "minItems", Absent::Null),
    ("UniqueItems", "uniqueItems", Absent::False),
    ("MultipleOf", "multipleOf", Absent::Null),
    ("Enum", "enum", Absent::Null),
    ("MaxProperties", "maxProperties", Absent::Null),
    ("MinProperties", "minProperties", Absent::Null),
    ("Required", "required", Absent::Null),
    ("Items", "items", Absent::Null),
    ("AllOf", "allOf", Absent::Null),
    ("OneOf", "oneOf", Absent::Null),
    ("AnyOf", "anyOf", Absent::Null),
    ("Not", "not", Absent::Null),
    ("Properties", "properties", Absent::Null),
    ("AdditionalProperties", "additionalProperties", Absent::Null),
    ("PatternProperties", "patternProperties", Absent::Null),
    ("Dependencies", "dependencies", Absent::Null),
    ("AdditionalItems", "additionalItems", Absent::Null),
    ("Definitions", "definitions", Absent::Null),
    ("ExternalDocs", "externalDocs", Absent::Null),
    ("Example", "example", Absent::Null),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", Absent::Null),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", Absent::False),
    ("XIntOrString", "x-kubernetes-int-or-string", Absent::False),
    ("XListMapKeys", "x-kubernetes-list-map-keys", Absent::Null),
    ("XListType", "x-kubernetes-list-type", Absent::Null),
    ("XMapType", "x-kubernetes-map-type", Absent::Null),
    ("XValidations", "x-kubernetes-validations", Absent::Null),
];

#[derive(Clone, Copy)]
enum Absent {
    Null,
    Text,
    False,
}

/// Formats a schema in the internal form. Returns raw JSON, because a map with so many members
/// would be sorted.
pub(super) fn schema(schema: &Map) -> Value {
    let mut out = String::from("{");
    for (at, (shown, name, absent)) in MEMBERS.into_iter().enumerate() {
        let value = match (schema.get(name).filter(|value| !value.is_null()), absent) {
            (Some(value), _) => member(name, value),
            (None, Absent::Null) => Value::Null,
            (None, Absent::Text) => Value::from(""),
            (None, Absent::False) => Value::Bool(false),
        };
        let comma = if at > 0 { "," } else { "" };
        out.push_str(&format!("{comma}\"{shown}\":{}", keelson_meta::status::show_json(&value)));
    }
    out.push('}');
    Value::Raw(out.into())
}

/// Converts a field of a schema or version to the internal form.
pub(super) fn member(name: &str, value: &Value) -> Value {
    let inner = |value: &Value| value.as_object().map_or(Value::Null, schema);
    match (name, value) {
        ("properties" | "patternProperties" | "definitions", Value::Object(map)) => {
            let mut members: Map =
                map.iter().map(|(name, value)| (name.clone(), inner(value))).collect();
            members.sort();
            Value::Object(members)
        }
        ("items", value) => value!({"Schema": (inner(value)), "JSONSchemas": null}),
        ("additionalProperties" | "additionalItems", Value::Bool(allows)) => {
            value!({"Allows": (*allows), "Schema": null})
        }
        ("additionalProperties" | "additionalItems", value) => {
            value!({"Allows": true, "Schema": (inner(value))})
        }
        ("allOf" | "oneOf" | "anyOf", Value::Array(list)) => {
            Value::Array(list.iter().map(inner).collect())
        }
        ("not", value) => inner(value),
        ("x-kubernetes-validations", Value::Array(rules)) => {
            Value::Array(rules.iter().map(rule).collect())
        }
        ("dependencies", Value::Object(map)) => {
            let one = |value: &Value| match value {
                Value::Array(_) => value!({"Schema": null, "Property": (value.clone())}),
                value => value!({"Schema": (inner(value)), "Property": null}),
            };
            let mut members: Map =
                map.iter().map(|(name, value)| (name.clone(), one(value))).collect();
            members.sort();
            Value::Object(members)
        }
        ("externalDocs", value) => value!({
            "Description": (text(value, "description")), "URL": (text(value, "url"))
        }),
        ("schema", value) => {
            let root = value.get("openAPIV3Schema").map_or(Value::Null, inner);
            value!({"OpenAPIV3Schema": (root)})
        }
        ("subresources", value) => subresources(value),
        ("additionalPrinterColumns", Value::Array(columns)) => {
            Value::Array(columns.iter().map(column).collect())
        }
        ("selectableFields", Value::Array(fields)) => {
            let field = |field: &Value| value!({"JSONPath": (text(field, "jsonPath"))});
            Value::Array(fields.iter().map(field).collect())
        }
        (_, value) => value.clone(),
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.str_at(&[name]).unwrap_or_default()
}

fn subresources(given: &Value) -> Value {
    let scale = given.get("scale").filter(|scale| !scale.is_null()).map_or(Value::Null, |scale| {
        let selector = scale.get("labelSelectorPath").cloned().unwrap_or_default();
        value!({
            "SpecReplicasPath": (text(scale, "specReplicasPath")),
            "StatusReplicasPath": (text(scale, "statusReplicasPath")),
            "LabelSelectorPath": (selector)
        })
    });
    let status = given.get("status").cloned().unwrap_or_default();
    value!({"Status": (status), "Scale": (scale)})
}

fn column(given: &Value) -> Value {
    let priority = given.get("priority").cloned().unwrap_or(Value::Int(0));
    value!({
        "Name": (text(given, "name")), "Type": (text(given, "type")),
        "Format": (text(given, "format")), "Description": (text(given, "description")),
        "Priority": (priority), "JSONPath": (text(given, "jsonPath"))
    })
}

/// Converts a validation rule to the internal form.
fn rule(rule: &Value) -> Value {
    let text = |name: &str| rule.str_at(&[name]).unwrap_or_default();
    let or_null = |name: &str| rule.get(name).cloned().unwrap_or_default();
    value!({
        "Rule": (text("rule")), "Message": (text("message")),
        "MessageExpression": (text("messageExpression")), "Reason": (or_null("reason")),
        "FieldPath": (text("fieldPath")), "OptionalOldSelf": (or_null("optionalOldSelf"))
    })
}
