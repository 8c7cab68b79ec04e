//! Validates the OpenAPI v3 schema of a version (apiextensions `pkg/apis/apiextensions/validation`,
//! `validateCustomResourceDefinitionValidation`).

use super::members::{flag, forbidden, invalid, text};
use super::{defaults, internal_types, open_api, structural};
use keelson_meta::{ErrorList, Map, Value};

/// The fields of a root schema that are allowed with a status subresource, by their internal Go
/// names.
const ROOT_FIELDS: [&str; 22] = [
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
];

/// Validates the schema of an object, except for the CEL expressions of its rules.
pub(super) fn root(schema: &Map, field: &str, has_status: bool, errors: &mut ErrorList) {
    let mut found = ErrorList::new();
    if has_status {
        with_status(schema, field, &mut found);
    }
    if flag(schema, "nullable") {
        found.push(forbidden(format!("{field}.nullable"), "nullable cannot be true at the root"));
    }
    let unsupported = structural::unsupported(schema, 0);
    if unsupported.is_none() {
        let messages = structural::validate(schema, field);
        let is_structural = messages.is_empty();
        found.extend(messages);
        if is_structural {
            found.extend(defaults::validate(schema, field));
        }
    }
    found.extend(open_api::validate(schema, field));
    if let (Some(why), true) = (unsupported, found.is_empty()) {
        found.push(invalid(field.to_owned(), "", &why));
    }
    errors.extend(found);
}

/// Returns whether a schema is structural.
pub fn is_structural(schema: &Map) -> bool {
    structural::unsupported(schema, 0).is_none() && structural::validate(schema, "").is_empty()
}

/// With a status subresource, upstream takes the schema of `status` from the root, which may have
/// only certain fields.
fn with_status(schema: &Map, field: &str, errors: &mut ErrorList) {
    let kind = text(schema, "type");
    let is_before_type =
        ["id", "$schema", "$ref"].iter().any(|name| !text(schema, name).is_empty());
    if !kind.is_empty() && kind != "object" && !is_before_type {
        let why = "only \"object\" is allowed as the type at the root of the schema if the status \
                   subresource is enabled";
        errors.push(invalid(format!("{field}.type"), kind, why));
    } else if schema.iter().any(|(name, value)| !is_allowed_at_root(name, value)) {
        let fields = ROOT_FIELDS.join(" ");
        let why = format!(
            "only [{fields}] fields are allowed at the root of the schema if the status subresource is \
             enabled"
        );
        errors.push(invalid(field.to_owned(), internal_types::schema(schema), &why));
    }
}

fn is_allowed_at_root(name: &str, value: &Value) -> bool {
    let is_set = !value.is_null() && *value != Value::Bool(false) && *value != Value::from("");
    let name = match name {
        "x-kubernetes-preserve-unknown-fields" => "XPreserveUnknownFields",
        "x-kubernetes-validations" => "XValidations",
        name => name,
    };
    // `additionalProperties: false` counts as set.
    let is_pointer = matches!(name, "additionalProperties" | "default");
    let is_set = is_set || (is_pointer && !value.is_null());
    !is_set || ROOT_FIELDS.iter().any(|known| known.eq_ignore_ascii_case(name))
}
