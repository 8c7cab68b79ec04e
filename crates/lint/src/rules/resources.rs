//! Names of resources and kinds, and what a kind has at its top level.

use super::{CONVENTIONS_KINDS, CONVENTIONS_NAMING, CONVENTIONS_SPEC, CONVENTIONS_VALIDATION};
use crate::definition::{Definition, Field, Version};
use crate::finding::{Check, Report, Rule, Severity};
use keelson_meta::Value;
use keelson_schema::catalogue::Catalogue;

pub static KIND_NAME: Rule = Rule {
    id: "kind-name",
    severity: Severity::Warning,
    section: CONVENTIONS_KINDS,
    summary: "A kind is called by a word in CamelCase.",
    advice: "A kind is the name of a type in Go and other languages: letters and digits, with an initial capital.",
    check: Check::Definition(kind_name),
};

pub static PLURAL: Rule = Rule {
    id: "resource-plural",
    severity: Severity::Warning,
    section: CONVENTIONS_KINDS,
    summary: "A resource is called by the plural of its kind, in lower case.",
    advice: "The plural is the name in URLs and in roles.",
    check: Check::Definition(plural),
};

pub static SHORT_NAME: Rule = Rule {
    id: "short-name-collision",
    severity: Severity::Warning,
    section: CONVENTIONS_NAMING,
    summary: "No short name is a name of a built-in resource.",
    advice: "`kubectl get svc` finds the built-in resource: the short name has no effect, and confuses.",
    check: Check::Definition(short_name),
};

pub static LIST_KIND: Rule = Rule {
    id: "list-kind-items",
    severity: Severity::Error,
    section: CONVENTIONS_KINDS,
    summary: "A kind with a top-level field `items` is a list kind.",
    advice: "Clients take such an object for a list of objects. Move the field into the spec.",
    check: Check::Version(list_kind),
};

pub static ROOT_FIELDS: Rule = Rule {
    id: "root-fields",
    severity: Severity::Warning,
    section: CONVENTIONS_SPEC,
    summary: "A kind with spec and status has no other top-level fields.",
    advice: "Move the field into the spec or the status: tools show and compare these two.",
    check: Check::Field(root_fields),
};

pub static UNKNOWN_FIELDS_KEPT: Rule = Rule {
    id: "preserve-unknown-fields",
    severity: Severity::Warning,
    section: CONVENTIONS_VALIDATION,
    summary: "Neither the root nor spec or status as a whole keeps unknown fields.",
    advice: "Misspelt fields are stored without an error. Describe the fields, and keep unknown ones only below a \
             field whose content is not yours.",
    check: Check::Field(unknown_fields_kept),
};

fn kind_name(definition: &Definition<'_>, report: &mut Report) {
    let path = ["spec", "names", "kind"];
    let kind = definition.text(&path);
    let is_word = kind.starts_with(|c: char| c.is_ascii_uppercase())
        && kind.chars().all(|c| c.is_ascii_alphanumeric());
    if !kind.is_empty() && !is_word {
        report.definition(path.join("."), format!("the kind {kind:?} is not in CamelCase"));
    }
}

fn plural(definition: &Definition<'_>, report: &mut Report) {
    let path = ["spec", "names", "plural"];
    let plural = definition.text(&path);
    let singular = match definition.text(&["spec", "names", "singular"]) {
        "" => definition.text(&["spec", "names", "kind"]).to_lowercase(),
        singular => singular.to_owned(),
    };
    if !plural.is_empty() && plural == singular {
        report.definition(path.join("."), format!("the plural {plural:?} is also the singular"));
    }
}

fn short_name(definition: &Definition<'_>, report: &mut Report) {
    let versions = Catalogue::shared().groups.iter().flat_map(|group| &group.versions);
    let built_in: Vec<_> = versions.flat_map(|version| &version.resources).collect();
    let names = definition.object.array_at(&["spec", "names", "shortNames"]);
    for (i, name) in names.iter().enumerate() {
        let Some(name) = name.as_str() else { continue };
        let owner = built_in.iter().find(|resource| {
            resource.name == name
                || resource.singular == name
                || resource.short_names.iter().any(|one| one == name)
        });
        if let Some(owner) = owner {
            let message =
                format!("the short name {name:?} is one of the built-in resource {}", owner.name);
            report.definition(format!("spec.names.shortNames[{i}]"), message);
        }
    }
}

fn list_kind(version: &Version<'_>, report: &mut Report) {
    if let Some(items) = version.find("items") {
        report.field(version, items, "", "a top-level field `items` makes the kind a list kind");
    }
}

fn root_fields(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    let has_both = version.find("spec").is_some() && version.find("status").is_some();
    // A list kind has a rule of its own.
    if field.depth == 1 && field.is_named() && has_both && field.name != "items" {
        report.field(
            version,
            field,
            "",
            format!("the top-level field {:?} is beside spec and status", field.name),
        );
    }
}

fn unknown_fields_kept(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    const KEYWORD: &str = "x-kubernetes-preserve-unknown-fields";
    let is_whole =
        field.depth == 0 || (field.depth == 1 && matches!(field.name, "spec" | "status"));
    if is_whole && field.schema.get(KEYWORD).and_then(Value::as_bool) == Some(true) {
        let what = if field.depth == 0 { "object" } else { field.name };
        report.field(version, field, KEYWORD, format!("the whole {what} keeps unknown fields"));
    }
}
