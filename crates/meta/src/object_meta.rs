//! Validation of `metadata` on create and update, for every kind (apimachinery `api/validation`).
//! Errors are in the order of kube-apiserver.

use crate::names::{NameRule, is_qualified_name, is_valid_label_value, name_is_dns_label};
use crate::printable::is_printable;
use crate::status::quote;
use crate::{ErrorList, FieldError, GroupVersion, Map, Path, Value};
use std::collections::BTreeSet;

/// The detail of an [`FieldError::invalid`] for an immutable field.
pub const IMMUTABLE: &str = "field is immutable";

const ANNOTATION_BYTES_MAX: usize = 256 << 10;
const MANAGER_BYTES_MAX: usize = 128;
const SUBRESOURCE_BYTES_MAX: usize = 256;

const ORPHAN_FINALIZER: &str = "orphan";
const FOREGROUND_FINALIZER: &str = "foregroundDeletion";
const NAMESPACE_FINALIZER: &str = "kubernetes";

/// Validates `metadata` of a new object, after its name was generated.
pub fn validate_object_meta(
    meta: &Map,
    namespaced: bool,
    rule: NameRule,
    path: &Path<'_>,
) -> ErrorList {
    let mut errors = ErrorList::new();
    let generate_name = text(meta, "generateName");
    if !generate_name.is_empty() {
        invalid_each(
            &mut errors,
            &path.field("generateName"),
            generate_name,
            rule(generate_name, true),
        );
    }
    let name = text(meta, "name");
    if name.is_empty() {
        let words = "name or generateName is required";
        errors.push(FieldError::required(&path.field("name"), words));
    } else {
        invalid_each(&mut errors, &path.field("name"), name, rule(name, false));
    }
    check_namespace(text(meta, "namespace"), namespaced, &path.field("namespace"), &mut errors);
    let generation = int(meta, "generation");
    if generation < 0 {
        let words = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&path.field("generation"), generation, words));
    }
    errors.extend(validate_labels(map(meta, "labels"), &path.field("labels")));
    errors.extend(validate_annotations(map(meta, "annotations"), &path.field("annotations")));
    errors.extend(validate_owners(list(meta, "ownerReferences"), &path.field("ownerReferences")));
    errors.extend(validate_finalizers(list(meta, "finalizers"), &path.field("finalizers")));
    errors
        .extend(validate_managed_fields(list(meta, "managedFields"), &path.field("managedFields")));
    errors
}

/// Validates changes of `metadata`.
pub fn validate_object_meta_update(new: &Map, old: &Map, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    if !text(old, "deletionTimestamp").is_empty() {
        let now = list(new, "finalizers");
        let before = list(old, "finalizers");
        errors.extend(validate_no_new_finalizers(now, before, &path.field("finalizers")));
    }
    if text(new, "resourceVersion").is_empty() {
        let words = "must be specified for an update";
        errors.push(FieldError::invalid(&path.field("resourceVersion"), "", words));
    }
    if int(new, "generation") < int(old, "generation") {
        let words = "must not be decremented";
        let at = path.field("generation");
        errors.push(FieldError::invalid(&at, int(new, "generation"), words));
    }
    for name in ["name", "namespace", "uid"] {
        if text(new, name) != text(old, name) {
            errors.push(FieldError::invalid(&path.field(name), text(new, name), IMMUTABLE));
        }
    }
    for name in ["creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"] {
        let value = new.get(name).unwrap_or(&Value::Null);
        if value != old.get(name).unwrap_or(&Value::Null) {
            errors.push(FieldError::invalid(&path.field(name), value.clone(), IMMUTABLE));
        }
    }
    errors.extend(validate_labels(map(new, "labels"), &path.field("labels")));
    errors.extend(validate_annotations(map(new, "annotations"), &path.field("annotations")));
    errors.extend(validate_owners(list(new, "ownerReferences"), &path.field("ownerReferences")));
    errors
        .extend(validate_managed_fields(list(new, "managedFields"), &path.field("managedFields")));
    errors
}

/// Adds an error when `new` differs from `old`; absent and null are equal.
pub fn validate_immutable(new: Option<&Value>, old: Option<&Value>, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let new = new.unwrap_or(&Value::Null);
    let old = old.unwrap_or(&Value::Null);
    if new != old {
        errors.push(FieldError::invalid(path, new.clone(), IMMUTABLE));
    }
    errors
}

fn check_namespace(namespace: &str, namespaced: bool, path: &Path<'_>, errors: &mut ErrorList) {
    match (namespaced, namespace.is_empty()) {
        (true, true) => errors.push(FieldError::required(path, "")),
        (true, false) => {
            invalid_each(errors, path, namespace, name_is_dns_label(namespace, false));
        }
        (false, true) => {}
        (false, false) => errors.push(FieldError::forbidden(path, "not allowed on this type")),
    }
}

/// Validates the keys and values of labels.
pub fn validate_labels(labels: Option<&Map>, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for (key, value) in labels.into_iter().flat_map(Map::iter) {
        let value = value.as_str().unwrap_or_default();
        invalid_each(&mut errors, path, key, is_qualified_name(key));
        invalid_each(&mut errors, path, value, is_valid_label_value(value));
    }
    errors
}

/// Validates the keys of annotations (case-insensitively) and their total size.
pub fn validate_annotations(annotations: Option<&Map>, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut bytes = 0;
    for (key, value) in annotations.into_iter().flat_map(Map::iter) {
        invalid_each(&mut errors, path, key, is_qualified_name(&key.to_lowercase()));
        bytes += key.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATION_BYTES_MAX {
        errors.push(FieldError::too_long(path, ANNOTATION_BYTES_MAX));
    }
    errors
}

fn validate_owners(owners: &[Value], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let mut first_controller: Option<String> = None;
    for owner in owners {
        validate_owner(owner, path, &mut errors);
        if owner.get("controller").and_then(Value::as_bool) != Some(true) {
            continue;
        }
        let member = |name| owner.str_at(&[name]).unwrap_or_default();
        let current = format!("{}/{}", member("kind"), member("name"));
        match &first_controller {
            None => first_controller = Some(current),
            Some(first) => errors.push_with(|| {
                let all: Vec<Value> = owners.iter().map(owner_for_message).collect();
                let words = format!(
                    "Only one reference can have Controller set to true. Found \"true\" in \
                     references for {first} and {current}"
                );
                FieldError::invalid(path, all, &words)
            }),
        }
    }
    errors
}

fn validate_owner(owner: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let member = |name| owner.str_at(&[name]).unwrap_or_default();
    let api_version = member("apiVersion");
    let gv = GroupVersion::parse(api_version).unwrap_or_default();
    if gv.version.is_empty() {
        let words = "version must not be empty";
        errors.push(FieldError::invalid(&path.field("apiVersion"), api_version, words));
    }
    for name in ["kind", "name", "uid"] {
        if member(name).is_empty() {
            errors.push(FieldError::invalid(&path.field(name), "", "must not be empty"));
        }
    }
    if api_version == "v1" && member("kind") == "Event" {
        let words = format!("{} is disallowed from being an owner", gv.kind("Event"));
        errors.push(FieldError::invalid(path, owner_for_message(owner), &words));
    }
}

/// Formats an owner reference for messages: fields in the order of the Go struct.
fn owner_for_message(owner: &Value) -> Value {
    let mut formatted = Map::new();
    for name in ["apiVersion", "kind", "name", "uid"] {
        formatted.insert(name, owner.str_at(&[name]).unwrap_or_default());
    }
    for name in ["controller", "blockOwnerDeletion"] {
        if let Some(flag) = owner.get(name).and_then(Value::as_bool) {
            formatted.insert(name, flag);
        }
    }
    Value::Object(formatted)
}

/// Validates the names of finalizers, and that at most one deletion policy is requested.
pub fn validate_finalizers(finalizers: &[Value], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for name in finalizers.iter().filter_map(Value::as_str) {
        invalid_each(&mut errors, path, name, is_qualified_name(name));
    }
    let has = |wanted| finalizers.iter().any(|name| name.as_str() == Some(wanted));
    if has(ORPHAN_FINALIZER) && has(FOREGROUND_FINALIZER) {
        let words =
            format!("finalizer {ORPHAN_FINALIZER} and {FOREGROUND_FINALIZER} cannot be both set");
        errors.push(FieldError::invalid(path, finalizers.to_vec(), &words));
    }
    errors
}

/// Validates finalizers of built-in kinds, after all other metadata: a name without a domain must
/// be a known one.
pub fn validate_built_in_finalizers(finalizers: &[Value], path: &Path<'_>) -> ErrorList {
    let known = [NAMESPACE_FINALIZER, ORPHAN_FINALIZER, FOREGROUND_FINALIZER];
    let mut errors = ErrorList::new();
    for (index, name) in finalizers.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        if !name.contains('/') && !known.contains(&name) {
            let words = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid(&path.index(index), name, words));
        }
    }
    errors
}

/// Rejects new finalizers of an object that is being deleted.
pub fn validate_no_new_finalizers(new: &[Value], old: &[Value], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    let old: BTreeSet<&str> = old.iter().filter_map(Value::as_str).collect();
    let new: BTreeSet<&str> = new.iter().filter_map(Value::as_str).collect();
    let added: Vec<String> = new.difference(&old).map(|name| quote(name)).collect();
    if !added.is_empty() {
        let words = format!(
            "no new finalizers can be added if the object is being deleted, found new finalizers \
             []string{{{}}}",
            added.join(", ")
        );
        errors.push(FieldError::forbidden(path, &words));
    }
    errors
}

fn validate_managed_fields(entries: &[Value], path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    for (index, entry) in entries.iter().enumerate() {
        let path = path.index(index);
        let member = |name| entry.str_at(&[name]).unwrap_or_default();
        let operation = member("operation");
        if operation != "Apply" && operation != "Update" {
            let words = "must be `Apply` or `Update`";
            errors.push(FieldError::invalid(&path.field("operation"), operation, words));
        }
        let kind = member("fieldsType");
        if !kind.is_empty() && kind != "FieldsV1" {
            let words = "must be `FieldsV1`";
            errors.push(FieldError::invalid(&path.field("fieldsType"), kind, words));
        }
        errors.extend(validate_field_manager(member("manager"), &path.field("manager")));
        if member("subresource").len() > SUBRESOURCE_BYTES_MAX {
            errors.push(FieldError::too_long(&path.field("subresource"), SUBRESOURCE_BYTES_MAX));
        }
    }
    errors
}

/// Validates the name of a field manager: length and printable characters.
pub fn validate_field_manager(manager: &str, path: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    if manager.len() > MANAGER_BYTES_MAX {
        errors.push(FieldError::too_long(path, MANAGER_BYTES_MAX));
    }
    for (at, c) in manager.char_indices().filter(|(_, c)| !is_printable(*c)) {
        errors.push_with(|| {
            let words = format!("invalid character U+{:04X} (at position {at})", u32::from(c));
            FieldError::invalid(path, manager, &words)
        });
    }
    errors
}

fn invalid_each(errors: &mut ErrorList, path: &Path<'_>, value: &str, messages: Vec<String>) {
    for message in messages {
        errors.push_with(|| FieldError::invalid(path, value, &message));
    }
}

fn text<'a>(meta: &'a Map, name: &str) -> &'a str {
    meta.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn int(meta: &Map, name: &str) -> i64 {
    meta.get(name).and_then(Value::as_int).unwrap_or(0)
}

fn map<'a>(meta: &'a Map, name: &str) -> Option<&'a Map> {
    meta.get(name).and_then(Value::as_object)
}

fn list<'a>(meta: &'a Map, name: &str) -> &'a [Value] {
    meta.get(name).and_then(Value::as_array).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::name_is_dns_subdomain;
    use crate::value;
    use expect_test::{Expect, expect};

    fn lines(errors: &ErrorList) -> String {
        errors.iter().map(|error| format!("{error}\n")).collect()
    }

    fn check(meta: Value, expected: Expect) {
        let Value::Object(meta) = meta else { unreachable!("a test gives a map") };
        let path = Path::new("metadata");
        let errors = validate_object_meta(&meta, true, name_is_dns_subdomain, &path);
        expected.assert_eq(&lines(&errors));
    }

    fn check_update(new: Value, old: Value, expected: Expect) {
        let (Value::Object(new), Value::Object(old)) = (new, old) else {
            unreachable!("a test gives maps")
        };
        let errors = validate_object_meta_update(&new, &old, &Path::new("metadata"));
        expected.assert_eq(&lines(&errors));
    }

    #[test]
    fn errors_have_the_order_of_upstream() {
        check(
            value!({
                "generation": (-1), "labels": {"a/": "b"}, "annotations": {"A B": ""},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Event", "name": "x", "uid": "u"}],
                "finalizers": ["x", "", "orphan", "foregroundDeletion"],
                "managedFields": [{"operation": "x", "fieldsType": "y", "manager": "a\tb"}]
            }),
            expect![[r#"
                metadata.name: Required value: name or generateName is required
                metadata.namespace: Required value
                metadata.generation: Invalid value: -1: must be greater than or equal to 0
                metadata.labels: Invalid value: "a/": name part must be non-empty
                metadata.labels: Invalid value: "a/": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
                metadata.annotations: Invalid value: "A B": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
                metadata.ownerReferences: Invalid value: {"apiVersion":"v1","kind":"Event","name":"x","uid":"u"}: /v1, Kind=Event is disallowed from being an owner
                metadata.finalizers: Invalid value: "": name part must be non-empty
                metadata.finalizers: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')
                metadata.finalizers: Invalid value: ["x","","orphan","foregroundDeletion"]: finalizer orphan and foregroundDeletion cannot be both set
                metadata.managedFields[0].operation: Invalid value: "x": must be `Apply` or `Update`
                metadata.managedFields[0].fieldsType: Invalid value: "y": must be `FieldsV1`
                metadata.managedFields[0].manager: Invalid value: "a\tb": invalid character U+0009 (at position 1)
            "#]],
        );
    }

    #[test]
    fn only_one_owner_may_be_the_controller() {
        check(
            value!({"name": "a", "namespace": "b", "ownerReferences": [
                {"uid": "u1", "name": "x", "kind": "Pod", "apiVersion": "v1", "controller": true},
                {"uid": "u2", "name": "y", "kind": "Pod", "apiVersion": "v1", "controller": true}
            ]}),
            expect![[r#"
                metadata.ownerReferences: Invalid value: [{"apiVersion":"v1","kind":"Pod","name":"x","uid":"u1","controller":true},{"apiVersion":"v1","kind":"Pod","name":"y","uid":"u2","controller":true}]: Only one reference can have Controller set to true. Found "true" in references for Pod/x and Pod/y
            "#]],
        );
    }

    #[test]
    fn annotations_have_a_total_size_limit() {
        let big = "x".repeat(ANNOTATION_BYTES_MAX);
        check(
            value!({"name": "a", "namespace": "b", "annotations": {"k": (big.as_str())}}),
            expect![[r#"
                metadata.annotations: Too long: may not be more than 262144 bytes
            "#]],
        );
    }

    #[test]
    fn identity_does_not_change() {
        check_update(
            value!({"name": "b", "namespace": "n", "uid": "2", "deletionTimestamp": "t"}),
            value!({"name": "a", "namespace": "n", "uid": "1", "generation": 2}),
            expect![[r#"
                metadata.resourceVersion: Invalid value: "": must be specified for an update
                metadata.generation: Invalid value: 0: must not be decremented
                metadata.name: Invalid value: "b": field is immutable
                metadata.uid: Invalid value: "2": field is immutable
                metadata.deletionTimestamp: Invalid value: "t": field is immutable
            "#]],
        );
    }

    #[test]
    fn finalizers_of_built_in_kinds_are_checked() {
        let names = ["orphan", "ex.io/a", "notqualified"].map(Value::from);
        let errors = validate_built_in_finalizers(&names, &Path::new("finalizers"));
        expect![[r#"
            finalizers[2]: Invalid value: "notqualified": name is neither a standard finalizer name nor is it fully qualified
        "#]]
        .assert_eq(&lines(&errors));
    }

    #[test]
    fn an_object_in_deletion_cannot_gain_finalizers() {
        check_update(
            value!({"name": "a", "resourceVersion": "1", "deletionTimestamp": "t",
                "finalizers": ["ex.io/h", "ex.io/g", "ex.io/a"]}),
            value!({"name": "a", "deletionTimestamp": "t", "finalizers": ["ex.io/a"]}),
            expect![[r#"
                metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{"ex.io/g", "ex.io/h"}
            "#]],
        );
    }
}
