//! What the API server says to a definition that is created.

use super::SERVER;
use crate::definition::Definition;
use crate::finding::{Check, Report, Rule, Severity};
use crate::{GROUP, KIND};
use keelson_kinds::strategy;
use keelson_meta::{Features, GroupVersionKind, Object};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{decode, default};

pub static REFUSED: Rule = Rule {
    id: "server-refuses",
    severity: Severity::Error,
    section: SERVER,
    summary: "The API server accepts the definition.",
    advice: "The message is that of the server.",
    check: Check::Definition(refused),
};

pub static UNKNOWN_FIELD: Rule = Rule {
    id: "unknown-field",
    severity: Severity::Error,
    section: SERVER,
    summary: "The definition has no fields that the server does not know.",
    advice: "The server drops the field; `kubectl create` and `kubectl apply` refuse the definition.",
    check: Check::Definition(unknown_field),
};

pub static UNKNOWN_FORMAT: Rule = Rule {
    id: "unknown-format",
    severity: Severity::Warning,
    section: SERVER,
    summary: "Formats are known and fit their type.",
    advice: "The server warns of other formats and does not check them.",
    check: Check::Definition(unknown_format),
};

/// The only version of the kind that the server serves.
const VERSION: &str = "v1";
const RESOURCE: &str = "customresourcedefinitions";

fn gvk() -> GroupVersionKind {
    GroupVersionKind { group: GROUP.into(), version: VERSION.into(), kind: KIND.into() }
}

/// A definition as the server decodes it, with what it says to its fields, or why it cannot.
fn decoded(definition: &Definition<'_>) -> Result<(Object, Vec<String>), String> {
    let Some(schema) = Catalogue::shared().schema(&gvk()) else {
        return Err("the kind is not known".to_owned());
    };
    let decoded = decode::canonicalize(&schema, definition.object.clone())?;
    let mut object = decoded.object;
    // A definition that grows by its defaults beyond what is allowed is refused for another reason.
    let _ = default::fill(&schema, &mut object);
    strategy(GROUP, RESOURCE, Features::default()).default(&mut object);
    Ok((object, decoded.strict_errors))
}

/// Whether the server serves the version of the kind in which a definition is written.
pub fn is_served_version(definition: &Definition<'_>) -> bool {
    definition.text(&["apiVersion"]) == format!("{GROUP}/{VERSION}")
}

/// Returns the definition with its defaults, if the server can decode it.
pub fn complete(definition: &Definition<'_>) -> Option<Object> {
    decoded(definition).ok().map(|(object, _)| object)
}

fn refused(definition: &Definition<'_>, report: &mut Report) {
    if !is_served_version(definition) {
        let version = definition.text(&["apiVersion"]);
        let message = format!("no matches for kind \"{KIND}\" in version {version:?}");
        return report.definition("apiVersion", message);
    }
    let (mut object, _) = match decoded(definition) {
        Ok(decoded) => decoded,
        Err(why) => return report.definition("", why),
    };
    let rules = strategy(GROUP, RESOURCE, Features::default());
    rules.prepare_create(&mut object);
    let mut errors = rules.check(rules.create_checks, rules.validate, &object, None, false);
    if let Some(last) = rules.validate_last {
        last(&object, None, &mut errors);
    }
    for error in errors.iter() {
        report.definition(path_in_file(&error.field), format!("{}: {}", error.field, error.body()));
    }
}

fn unknown_field(definition: &Definition<'_>, report: &mut Report) {
    let Ok((_, strict_errors)) = decoded(definition) else { return };
    for error in strict_errors {
        let path = error.split('"').nth(1).unwrap_or_default().to_owned();
        report.definition(path, error);
    }
}

fn unknown_format(definition: &Definition<'_>, report: &mut Report) {
    for version in &definition.versions {
        for field in &version.fields {
            let format = field.text("format");
            if !format.is_empty()
                && !keelson_kinds::definitions::is_known_format(field.kind(), format)
            {
                let message = format!("unrecognized format {format:?}");
                report.field(version, field, "format", message);
            }
        }
    }
}

/// Translates the path of an error, which is that of upstream's internal type, to a path in a file:
/// fields that all versions share stand in the first of them.
pub fn path_in_file(field: &str) -> String {
    const FIRST: &str = "spec.versions[0]";
    for (internal, external) in [
        ("spec.validation.", "schema."),
        ("spec.subresources", "subresources"),
        ("spec.additionalPrinterColumns", "additionalPrinterColumns"),
        ("spec.selectableFields", "selectableFields"),
    ] {
        if let Some(rest) = field.strip_prefix(internal) {
            return format!("{FIRST}.{external}{rest}");
        }
    }
    if let Some(rest) = field.strip_prefix("spec.conversion.webhookClientConfig") {
        return format!("spec.conversion.webhook.clientConfig{rest}");
    }
    if let Some(rest) = field.strip_prefix("spec.conversion.conversionReviewVersions") {
        return format!("spec.conversion.webhook.conversionReviewVersions{rest}");
    }
    if field == "spec.version" { format!("{FIRST}.name") } else { field.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_about_shared_fields_are_found_in_the_first_version() {
        let check = |field: &str, want: &str| assert_eq!(path_in_file(field), want);
        let schema = "schema.openAPIV3Schema.properties[spec]";
        check(
            "spec.validation.openAPIV3Schema.properties[spec]",
            &format!("spec.versions[0].{schema}"),
        );
        check(
            "spec.subresources.scale.specReplicasPath",
            "spec.versions[0].subresources.scale.specReplicasPath",
        );
        check("spec.version", "spec.versions[0].name");
        check("spec.versions[1].name", "spec.versions[1].name");
        check(
            "spec.conversion.webhookClientConfig.url",
            "spec.conversion.webhook.clientConfig.url",
        );
        check("spec.names.plural", "spec.names.plural");
    }
}
