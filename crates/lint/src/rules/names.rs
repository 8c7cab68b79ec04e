//! Names and descriptions of fields.

use super::{CONVENTIONS_NAMING, CONVENTIONS_PRIMITIVE};
use crate::definition::{Field, Role, Version};
use crate::finding::{Check, Report, Rule, Severity};
use crate::words;

pub static FIELD_NAME: Rule = Rule {
    id: "field-name",
    severity: Severity::Error,
    section: CONVENTIONS_NAMING,
    summary: "Field names are camelCase, without underscores, dashes or dots.",
    advice: "Rename the field in a new version. Clients in other languages turn such names into their own form, and \
             field paths and CEL rules must escape them.",
    check: Check::Field(field_name),
};

pub static ACRONYM: Rule = Rule {
    id: "acronym-case",
    severity: Severity::Warning,
    section: CONVENTIONS_NAMING,
    summary: "All letters of an acronym have the same case: httpGet, podIP, clientID.",
    advice: "Write the acronym in lower case where it begins the name, in capitals elsewhere.",
    check: Check::Field(acronym),
};

pub static BOOLEAN: Rule = Rule {
    id: "boolean-name",
    severity: Severity::Warning,
    section: CONVENTIONS_NAMING,
    summary: "A boolean property is called fooable, not isFooable.",
    advice: "Drop the verb. Consider an enum, which can grow.",
    check: Check::Field(boolean),
};

pub static LIST: Rule = Rule {
    id: "list-name",
    severity: Severity::Advice,
    section: CONVENTIONS_NAMING,
    summary: "The name of a list is a plural.",
    advice: "A plural tells readers of a manifest that several values fit.",
    check: Check::Field(list),
};

pub static DESCRIPTION: Rule = Rule {
    id: "description",
    severity: Severity::Advice,
    section: CONVENTIONS_PRIMITIVE,
    summary: "Each field has a description.",
    advice: "`kubectl explain` shows it. Say what the field does, its unit, and what happens when it is not set.",
    check: Check::Field(description),
};

/// Acronyms as they stand in names by mistake.
const ACRONYMS: [&str; 34] = [
    "Acl", "Api", "Aws", "Cidr", "Cpu", "Csi", "Dns", "Gpu", "Grpc", "Html", "Http", "Https", "Id",
    "Ids", "Ip", "Ips", "Json", "Jwt", "Oidc", "Rbac", "Sql", "Ssh", "Ssl", "Tcp", "Tls", "Udp",
    "Uid", "Uri", "Uris", "Url", "Urls", "Uuid", "Xml", "Yaml",
];

/// Plurals without an `s`, and words that stand for many.
const PLURALS: [&str; 18] = [
    "accept", "allow", "any", "all", "args", "children", "command", "criteria", "data", "deny",
    "exclude", "include", "info", "media", "metadata", "not", "people", "spec",
];

fn field_name(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if !field.is_named() {
        return;
    }
    let name = field.name;
    let why = if name.contains('_') || name.contains('-') || name.contains('.') {
        "has a separator"
    } else if name.starts_with(|c: char| c.is_ascii_uppercase()) {
        "begins with a capital"
    } else {
        return;
    };
    report.field(
        version,
        field,
        "",
        format!("the name {name:?} {why}; write {:?}", camel_case(name)),
    );
}

/// Returns a name in camelCase.
fn camel_case(name: &str) -> String {
    let mut out = String::new();
    for part in name.split(['_', '-', '.']).filter(|part| !part.is_empty()) {
        let is_shouted = part.len() > 1 && part.chars().all(|c| !c.is_lowercase());
        let part =
            if is_shouted && name.contains('_') { part.to_lowercase() } else { part.to_owned() };
        if out.is_empty() {
            let first = words::split(&part).first().map_or(0, |word| word.len());
            out.push_str(&part[..first].to_lowercase());
            out.push_str(&part[first..]);
        } else {
            let mut chars = part.chars();
            out.extend(chars.next().into_iter().flat_map(char::to_uppercase));
            out.push_str(chars.as_str());
        }
    }
    acronyms_in_one_case(&out)
}

fn acronym(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    let better = acronyms_in_one_case(field.name);
    if field.is_named() && better != field.name {
        let message = format!("the acronym in {:?} has two cases; write {better:?}", field.name);
        report.field(version, field, "", message);
    }
}

/// Returns a name whose acronyms after the first word are in capitals.
fn acronyms_in_one_case(name: &str) -> String {
    let is_acronym = |word: &str| ACRONYMS.contains(&word);
    let upper = |word: &str| match word.strip_suffix('s').filter(|one| is_acronym(one)) {
        Some(one) => format!("{}s", one.to_uppercase()),
        None if is_acronym(word) => word.to_uppercase(),
        None => word.to_owned(),
    };
    let words = words::split(name);
    let first = words.first().map(|word| (*word).to_owned());
    first.into_iter().chain(words.iter().skip(1).map(|word| upper(word))).collect()
}

fn boolean(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if !field.is_named() || field.kind() != "boolean" {
        return;
    }
    let words = words::split(field.name);
    let (Some(first), Some(_)) = (words.first(), words.get(1)) else { return };
    if *first == "is" {
        let better = camel_case(&field.name[first.len()..]);
        let message = format!("the boolean {:?} begins with a verb; write {better:?}", field.name);
        report.field(version, field, "", message);
    }
}

fn list(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if !field.is_named() || field.kind() != "array" {
        return;
    }
    let last = words::last(field.name);
    if !last.ends_with('s') && !PLURALS.contains(&last.as_str()) && !last.ends_with("list") {
        report.field(
            version,
            field,
            "",
            format!("the list {:?} has the name of a single value", field.name),
        );
    }
}

fn description(version: &Version<'_>, field: &Field<'_>, report: &mut Report) {
    if field.role == Role::Member && field.is_named() && field.text("description").trim().is_empty()
    {
        report.field(version, field, "", "has no description");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_forms_become_camel_case() {
        let check = |name: &str, want: &str| assert_eq!(camel_case(name), want, "{name}");
        check("max_size", "maxSize");
        check("MAX_SIZE", "maxSize");
        check("max-size", "maxSize");
        check("URLPath", "urlPath");
        check("jwks_uri", "jwksURI");
        check("Name", "name");
        check("tls.key", "tlsKey");
    }
}
