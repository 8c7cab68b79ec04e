//! Columns of `kubectl get`, and the paths of the subresource scale.

use super::SERVER;
use crate::definition::{Field, Role, Version};
use crate::finding::{Check, Report, Rule, Severity};

pub static PATH: Rule = Rule {
    id: "column-path",
    severity: Severity::Warning,
    section: SERVER,
    summary: "The path of a column names a field of the schema.",
    advice: "The server does not check it; the column stays empty.",
    check: Check::Version(path),
};

pub static TYPE: Rule = Rule {
    id: "column-type",
    severity: Severity::Warning,
    section: SERVER,
    summary: "The type of a column fits its field.",
    advice: "A value of another type is not shown.",
    check: Check::Version(kind),
};

pub static AGE: Rule = Rule {
    id: "age-column",
    severity: Severity::Advice,
    section: SERVER,
    summary: "Own columns include the age.",
    advice: "The column Age disappears as soon as a version has columns of its own. Add one of type date with the path \
             .metadata.creationTimestamp.",
    check: Check::Version(age),
};

pub static SCALE: Rule = Rule {
    id: "scale-path",
    severity: Severity::Warning,
    section: SERVER,
    summary: "The paths of the subresource scale name fields of the schema.",
    advice: "Autoscalers read zero replicas there, and cannot write.",
    check: Check::Version(scale),
};

/// Where a path leads.
enum End<'v, 'a> {
    Field(&'v Field<'a>),
    /// To a field of this name that is not there.
    Missing(String),
    /// Out of what the schema describes.
    Unknown,
}

/// Follows a simple JSONPath such as `.spec.replicas`; an expression in it ends what can be known.
fn follow<'v, 'a>(version: &'v Version<'a>, path: &str) -> End<'v, 'a> {
    let Some(mut at) = version.root() else { return End::Unknown };
    let Some(rest) = path.trim().strip_prefix('.') else { return End::Unknown };
    let is_simple =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
    for (i, name) in rest.split('.').enumerate() {
        let (name, has_more) = match name.split_once('[') {
            Some((name, _)) => (name, true),
            None => (name, false),
        };
        let is_standard = i == 0 && matches!(name, "metadata" | "kind" | "apiVersion");
        if !is_simple(name) || is_standard || keeps_any(at) {
            return End::Unknown;
        }
        let wanted =
            if at.field.is_empty() { name.to_owned() } else { format!("{}.{name}", at.field) };
        let member =
            version.fields.iter().find(|field| field.role == Role::Member && field.field == wanted);
        match member {
            Some(member) if has_more => {
                let is_list = member.kind() == "array" || keeps_any(member);
                return if is_list { End::Unknown } else { End::Field(member) };
            }
            Some(member) => at = member,
            None => return End::Missing(wanted),
        }
    }
    End::Field(at)
}

/// Whether a field has members that the schema does not list.
fn keeps_any(field: &Field<'_>) -> bool {
    field.is("x-kubernetes-preserve-unknown-fields")
        || field.is("x-kubernetes-embedded-resource")
        || field.has("additionalProperties")
        // Items are reached by expressions only.
        || field.kind() == "array"
}

/// Returns the columns of a version with their places.
fn columns<'a>(version: &Version<'a>) -> impl Iterator<Item = (String, &'a keelson_meta::Value)> {
    let columns = version.object.array_at(&["additionalPrinterColumns"]).iter().enumerate();
    let path = format!("{}.additionalPrinterColumns", version.path);
    columns.map(move |(i, column)| (format!("{path}[{i}]"), column))
}

fn path(version: &Version<'_>, report: &mut Report) {
    for (place, column) in columns(version) {
        let path = column.str_at(&["jsonPath"]).unwrap_or_default();
        if let End::Missing(field) = follow(version, path) {
            let name = column.str_at(&["name"]).unwrap_or_default();
            let message = format!("the column {name:?} is always empty: there is no field {field}");
            report.version(version, format!("{place}.jsonPath"), message);
        }
    }
}

fn kind(version: &Version<'_>, report: &mut Report) {
    for (place, column) in columns(version) {
        let path = column.str_at(&["jsonPath"]).unwrap_or_default();
        let End::Field(field) = follow(version, path) else { continue };
        let wanted = column.str_at(&["type"]).unwrap_or_default();
        let fits = match (wanted, field.kind()) {
            ("integer", kind) => matches!(kind, "integer" | ""),
            ("number", kind) => matches!(kind, "integer" | "number" | ""),
            ("boolean", kind) => matches!(kind, "boolean" | ""),
            ("date", kind) => matches!(kind, "string" | ""),
            _ => true,
        };
        if !fits {
            let name = column.str_at(&["name"]).unwrap_or_default();
            let message = format!(
                "the column {name:?} has the type {wanted}, but {path} is of type {}",
                field.kind()
            );
            report.version(version, format!("{place}.type"), message);
        }
    }
}

fn age(version: &Version<'_>, report: &mut Report) {
    let mut all = columns(version).peekable();
    let has_columns = all.peek().is_some();
    let has_age = all.any(|(_, column)| {
        column.str_at(&["jsonPath"]).is_some_and(|path| path.contains("creationTimestamp"))
    });
    if has_columns && !has_age {
        let path = format!("{}.additionalPrinterColumns", version.path);
        report.version(version, path, "the columns do not include the age");
    }
}

fn scale(version: &Version<'_>, report: &mut Report) {
    let Some(scale) = version.object.at(&["subresources", "scale"]) else { return };
    for name in ["specReplicasPath", "statusReplicasPath", "labelSelectorPath"] {
        let Some(path) = scale.str_at(&[name]) else { continue };
        if let End::Missing(field) = follow(version, path) {
            let place = format!("{}.subresources.scale.{name}", version.path);
            report.version(version, place, format!("there is no field {field}"));
        }
    }
}
