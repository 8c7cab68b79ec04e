//! Finds the fields that messages of a server are about.

use crate::commands::manifests::Manifest;
use keelson_meta::Status;
use keelson_schema::yaml;

/// The beginning of the message for unknown and duplicate fields.
const STRICT: &str = "strict decoding error: ";
/// The beginning of the messages of the YAML reader, which have a line for each.
const YAML: &str = "yaml: unmarshal errors:";
/// What stands before the path of a field with a value of a wrong type.
const GO_FIELD: &str = "Go struct field ";

/// A message, and the field that it is about; empty: the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub field: String,
    pub message: String,
}

/// Returns the place of a field in a file: a line of the document if it is `line N`.
pub fn of(manifest: &Manifest, field: &str) -> yaml::Place {
    match field.strip_prefix("line ").and_then(|line| line.parse().ok()) {
        Some(line) => yaml::Place { line: manifest.line(line), column: 1 },
        None => manifest.find(field).0,
    }
}

/// Returns the causes of a failure, or its message if it has none.
pub fn of_failure(failure: &Status) -> Vec<Place> {
    let causes: Vec<Place> = failure
        .details
        .iter()
        .flat_map(|details| &details.causes)
        .filter(|cause| !cause.field.is_empty())
        .map(|cause| Place {
            field: cause.field.clone(),
            message: format!("{}: {}", cause.field, cause.message),
        })
        .collect();
    if !causes.is_empty() {
        return causes;
    }
    if let Some((_, errors)) = failure.message.split_once(STRICT) {
        return strict_errors(errors);
    }
    let field = go_field(&failure.message).unwrap_or_default();
    vec![Place { field, message: failure.message.clone() }]
}

/// Returns the place of a warning, which may begin with its field: `spec.x: is deprecated`.
pub fn of_warning(text: &str) -> Place {
    let field = text.split_once(": ").map(|(field, _)| field).filter(|field| is_path(field));
    let unknown = quoted(text)
        .filter(|_| text.starts_with("unknown field") || text.starts_with("duplicate field"));
    Place { field: field.or(unknown).unwrap_or_default().to_owned(), message: text.to_owned() }
}

fn is_path(text: &str) -> bool {
    !text.is_empty() && !text.contains(' ') && text.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Returns the first text in quotes.
fn quoted(text: &str) -> Option<&str> {
    text.split('"').nth(1)
}

/// Splits the errors of strict decoding: `unknown field "spec.x", duplicate field "data"`, and
/// lines of the YAML reader, `line 3: key "a" already set in map`.
fn strict_errors(errors: &str) -> Vec<Place> {
    let mut places = vec![];
    for part in errors.split(", unknown field ").flat_map(|part| part.split(", duplicate field ")) {
        for line in part.split('\n').map(str::trim).filter(|line| !line.is_empty() && *line != YAML)
        {
            let word = match errors.find(line).map(|at| &errors[..at]) {
                Some(before) if before.ends_with("unknown field ") => "unknown field ",
                Some(before) if before.ends_with("duplicate field ") => "duplicate field ",
                _ => "",
            };
            // The line is that of the document; the place has that of the file.
            let numbered = line.strip_prefix("line ").and_then(|rest| rest.split_once(": "));
            places.push(match numbered {
                Some((number, message)) => {
                    Place { field: format!("line {number}"), message: message.to_owned() }
                }
                None => Place {
                    field: quoted(line).unwrap_or_default().to_owned(),
                    message: format!("{word}{line}"),
                },
            });
        }
    }
    places
}

/// Returns the field that a message of Go's decoder names:
/// `Go struct field PodSpec.spec.containers of type`.
fn go_field(message: &str) -> Option<String> {
    let (_, rest) = message.split_once(GO_FIELD)?;
    let (path, _) = rest.split_once(" of type")?;
    path.split_once('.').map(|(_, path)| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{ErrorList, FieldError, Path, Status};

    fn check(message: &str, want: &[(&str, &str)]) {
        let failure = Status::bad_request(message);
        let got = of_failure(&failure);
        let want: Vec<Place> = want
            .iter()
            .map(|(field, message)| Place { field: (*field).into(), message: (*message).into() })
            .collect();
        assert_eq!(got, want);
    }

    #[test]
    fn each_unknown_or_duplicate_field_has_its_own_place() {
        check(
            "Pod in version \"v1\" cannot be handled as a Pod: strict decoding error: yaml: unmarshal errors:\n  \
             line 3: key \"a\" already set in map, unknown field \"spec.x\", unknown field \"spec.y[0].z\"",
            &[
                ("line 3", "key \"a\" already set in map"),
                ("spec.x", "unknown field \"spec.x\""),
                ("spec.y[0].z", "unknown field \"spec.y[0].z\""),
            ],
        );
        check(
            "strict decoding error: duplicate field \"data\", unknown field \"x\"",
            &[("data", "duplicate field \"data\""), ("x", "unknown field \"x\"")],
        );
    }

    #[test]
    fn a_wrong_type_has_the_place_of_its_field() {
        let message = "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32";
        check(message, &[("spec.replicas", message)]);
        check("no matches for kind \"A\"", &[("", "no matches for kind \"A\"")]);
    }

    #[test]
    fn causes_have_the_places_of_their_fields() {
        let mut errors = ErrorList::new();
        errors.push(FieldError::required(&Path::new("spec"), ""));
        let failure = Status::invalid("", "Pod", "a", errors);
        let want = Place { field: "spec".to_owned(), message: "spec: Required value".to_owned() };
        assert_eq!(of_failure(&failure), [want]);
    }

    #[test]
    fn a_warning_may_begin_with_its_field() {
        assert_eq!(of_warning("spec.x: is deprecated").field, "spec.x");
        assert_eq!(of_warning("unknown field \"spec.y\"").field, "spec.y");
        assert_eq!(of_warning("v1 Endpoints is deprecated: use x").field, "");
    }
}
