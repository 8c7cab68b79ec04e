//! Paths and the operations on them, before they are written in one of the two document forms.

use super::parameters::Parameter;
use keelson_meta::{GroupVersionKind, Str};

/// A path and what can be done with it.
pub(super) struct PathItem {
    pub path: String,
    /// What all operations take, sorted by name and place.
    pub parameters: Vec<Parameter>,
    /// Sorted by method.
    pub operations: Vec<Operation>,
}

/// One method of a path.
pub(super) struct Operation {
    pub method: &'static str,
    /// `operationId`.
    pub id: String,
    pub description: String,
    pub tag: Str,
    /// `x-kubernetes-action`; empty: none is written.
    pub action: &'static str,
    pub kind: Option<GroupVersionKind>,
    /// Sorted by name and place; those of the path are not repeated.
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    /// Codes of success.
    pub codes: &'static [u16],
    pub answer: Answer,
    pub produces: &'static [&'static str],
    /// What OpenAPI v2 says of the request's content type.
    pub consumes: &'static [&'static str],
}

/// What a request carries.
pub(super) struct Body {
    /// Full name of its type.
    pub type_name: Str,
    pub required: bool,
}

/// What an answer carries.
pub(super) enum Answer {
    /// Text of no further form.
    Text,
    /// A type, by its full name.
    Type(Str),
}

/// Content types of objects.
pub(super) const OBJECT_MEDIA: &[&str] =
    &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];

/// Any content type.
pub(super) const ANY_MEDIA: &[&str] = &["*/*"];

/// The package of types that all groups share.
pub(super) const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.";

/// An operation that tells what is served; `answer` is a type of meta/v1.
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

/// Makes a path's entry: what all operations take is said once.
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

/// `RbacAuthorization` of `rbac.authorization.k8s.io`.
pub(super) fn group_title(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    let name = group.strip_suffix(".k8s.io").unwrap_or(group);
    name.split(['.', '-']).map(upper_first).collect()
}

/// The tag of a group without a version.
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
