//! The position of CEL errors among the other errors of a definition: they are found later, but
//! upstream reports them after the errors of their schema.

use keelson_meta::{ErrorList, FieldError};

/// Returns the index of the first error inside the schema at `field` (see [`super::schemas`]), or
/// where it would be. The errors of its defaults come before it.
pub fn schema_errors_index(found: &ErrorList, field: &str) -> usize {
    let is_of_node = |error: &FieldError| {
        let rest = error.field.strip_prefix(field);
        rest.is_some_and(|rest| !matches!(rest, "" | ".nullable"))
    };
    found.iter().position(is_of_node).unwrap_or_else(|| rule_errors_index(found, field))
}

/// Returns the index after the errors of the schema at `field`.
pub fn rule_errors_index(found: &ErrorList, field: &str) -> usize {
    let is_later = |error: &FieldError| !is_before(error, field);
    found.iter().position(is_later).unwrap_or(found.len())
}

/// Returns whether an error comes before those of the rules in the schema at `field`.
fn is_before(error: &FieldError, field: &str) -> bool {
    let of = error.field.as_str();
    if of.starts_with(field) {
        return true;
    }
    match (version_of(of), version_of(field)) {
        // Missing schemas are reported first.
        (Some((_, ".schema.openAPIV3Schema")), _) => true,
        (Some((version, rest)), Some((own, _))) => {
            let is_behind = ["subresources", "additionalPrinterColumns", "selectableFields"]
                .iter()
                .any(|member| rest.strip_prefix('.').is_some_and(|rest| rest.starts_with(member)));
            version < own || (version == own && !is_behind)
        }
        (Some(_), None) => true,
        (None, own) => match of {
            _ if error.detail == "field is immutable" => false,
            "spec.group" | "spec.scope" => true,
            "spec.preserveUnknownFields" => error.detail.starts_with("must be false"),
            "spec.versions" | "spec.version" => own.is_none(),
            of if of.starts_with("spec.names") => own.is_none(),
            of => of.starts_with("metadata.") && !of.starts_with("metadata.annotations["),
        },
    }
}

/// Splits `spec.versions[1].schema` into 1 and `.schema`.
fn version_of(field: &str) -> Option<(usize, &str)> {
    let (number, rest) = field.strip_prefix("spec.versions[")?.split_once(']')?;
    Some((number.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::Path;

    /// The order of kube-apiserver's errors for a definition with two versions whose schemas
    /// differ.
    #[test]
    fn rule_errors_follow_those_of_their_schema() {
        let fields = [
            "metadata.name",
            "spec.group",
            "spec.scope",
            "spec.versions[1].schema.openAPIV3Schema",
            "spec.versions[0].schema.openAPIV3Schema.nullable",
            "spec.versions[0].schema.openAPIV3Schema.properties[a].type",
            "spec.versions[0].additionalPrinterColumns[0].name",
            "spec.versions[1].name",
            "spec.versions[2].schema.openAPIV3Schema.type",
            "spec.versions",
            "spec.names.kind",
            "spec.conversion.strategy",
            "metadata.annotations[api-approved.kubernetes.io]",
        ];
        let mut found = ErrorList::new();
        for field in fields {
            let error = FieldError::forbidden(&Path::ROOT, "no");
            found.push(FieldError { field: field.to_owned(), ..error });
        }
        let check = |field: &str, nodes: usize, rules: usize| {
            let indexes = (schema_errors_index(&found, field), rule_errors_index(&found, field));
            assert_eq!(indexes, (nodes, rules), "{field}");
        };
        check("spec.versions[0].schema.openAPIV3Schema", 5, 6);
        check("spec.versions[1].schema.openAPIV3Schema", 8, 8);
        check("spec.versions[2].schema.openAPIV3Schema", 8, 9);
        check("spec.validation.openAPIV3Schema", 11, 11);
    }
}
