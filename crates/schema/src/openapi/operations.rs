//! Paths and operations, independent of the OpenAPI version.

use super::parameters::Parameter;
use keelson_meta::{GroupVersionKind, Str};

/// A path with its operations.
pub(super) struct PathItem {
    pub path: String,
    /// Parameters of all operations, sorted by name and location.
    pub parameters: Vec<Parameter>,
    /// Sorted by method.
    pub operations: Vec<Operation>,
}

/// An operation: one method of a path.
pub(super) struct Operation {
    pub method: &'static str,
    /// `operationId`.
    pub id: String,
    pub description: String,
    pub tag: Str,
    /// `x-kubernetes-action`; empty: omitted.
    pub action: &'static str,
    pub kind: Option<GroupVersionKind>,
    /// Parameters besides those of the path, sorted by name and location.
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    /// Status codes of success.
    pub codes: &'static [u16],
    pub answer: Answer,
    pub produces: &'static [&'static str],
    /// Content types of the request, for OpenAPI v2.
    pub consumes: &'static [&'static str],
}

/// A request body.
pub(super) struct Body {
    /// Full name of the type.
    pub type_name: Str,
    pub required: bool,
}

/// A response body.
pub(super) enum Answer {
    /// Plain text.
    Text,
    /// A type, by full name.
    Type(Str),
}

/// Content types of objects.
pub(super) const OBJECT_MEDIA: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// Any content type.
pub(super) const ANY_MEDIA: &[&str] = &["*/*"];

/// The package of the types that all groups share.
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// Returns a discovery operation; `answer` is a type of meta/v1.
pub(super) fn discovery_operation(
    id: String,
    description: &str,
    tag: Str,
    answer: &str,
) -> Operation {
    Operation {
        method: "get",
        id,
        description: description.to_owned(),
        tag,
        action: "",
        kind: None,
        parameters: vec![],
        body: None,
        codes: &[200],
        answer: Answer::Type(format!("{META}{answer}").into()),
        produces: OBJECT_MEDIA,
        consumes: OBJECT_MEDIA,
    }
}

/// Creates a path. Parameters that all operations share are moved to the path.
pub(super) fn path_item(
    path: String,
    common: Vec<Parameter>,
    mut operations: Vec<Operation>,
) -> PathItem {
    let mut parameters = common;
    if let Some((first, others)) = operations.split_first() {
        let shared = first
            .parameters
            .iter()
            .filter(|p| others.iter().all(|other| other.parameters.contains(p)))
            .cloned();
        parameters.extend(shared);
    }
    for operation in &mut operations {
        operation.parameters.retain(|p| !parameters.contains(p));
        sort(&mut operation.parameters);
    }
    operations.sort_by_key(|operation| operation.method);
    sort(&mut parameters);
    PathItem { path, parameters, operations }
}

fn sort(parameters: &mut [Parameter]) {
    parameters.sort_by_key(|p| (p.name, p.place));
}

/// Returns `RbacAuthorization` for `rbac.authorization.k8s.io`.
pub(super) fn group_title(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    let name = group.strip_suffix(".k8s.io").unwrap_or(group);
    name.split(['.', '-']).map(upper_first).collect()
}

/// Returns the tag of a group, without a version.
pub(super) fn group_tag(group: &str) -> Str {
    lower_first(&group_title(group)).into()
}

pub(super) fn upper_first(text: &str) -> String {
    change_first(text, |c| c.to_ascii_uppercase())
}

pub(super) fn lower_first(text: &str) -> String {
    change_first(text, |c| c.to_ascii_lowercase())
}

fn change_first(text: &str, change: fn(char) -> char) -> String {
    let mut characters = text.chars();
    characters.next().map(change).into_iter().chain(characters).collect()
}
