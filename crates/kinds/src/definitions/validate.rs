//! Validates CustomResourceDefinitions (apiextensions `pkg/apis/apiextensions/validation`). Errors
//! have the paths of upstream's internal type, where fields that all versions share are top-level
//! fields.

use super::members::at;
use super::{defaults, internal_types, schema, selectable, set_condition, structural};
use crate::admission::client_config;
use crate::check::Field;
use keelson_meta::printable::is_printable;
use keelson_meta::status::quote;
use keelson_meta::{ErrorList, FieldError, Map, Object, Path, Str, Value, names};
use std::collections::HashSet;

/// The annotation that approves a group of Kubernetes.
const APPROVAL: &str = "api-approved.kubernetes.io";
const APPROVAL_PAGE: &str = "https://github.com/kubernetes/enhancements/pull/1111";
const COLUMN_TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const COLUMN_FORMATS: [&str; 8] =
    ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// Bytes of a `deprecationWarning`.
const WARNING_BYTES_MAX: usize = 256;

fn required(field: &str, why: &str) -> FieldError {
    at(field, FieldError::required(&Path::ROOT, why))
}

fn invalid(field: &str, value: impl Into<Value>, why: &str) -> FieldError {
    at(field, FieldError::invalid(&Path::ROOT, value, why))
}

fn text<'m>(map: &'m Map, name: &str) -> &'m str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Validates a definition, or an update of `old`.
pub(super) fn definition(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let empty = Map::new();
    let spec = new.get("spec").and_then(Value::as_object).unwrap_or(&empty);
    let names = spec.get("names").and_then(Value::as_object).unwrap_or(&empty);
    let group = text(spec, "group");
    let wanted = format!("{}.{group}", text(names, "plural"));
    if old.is_none() {
        let why = "must be spec.names.plural+\".\"+spec.group";
        for (field, name) in
            [("metadata.generateName", new.generate_name()), ("metadata.name", new.name())]
        {
            if !name.is_empty() && name != wanted {
                errors.push(invalid(field, name, why));
            }
        }
    }
    validate_group(group, &mut errors);
    match text(spec, "scope") {
        "" => errors.push(required("spec.scope", "")),
        "Cluster" | "Namespaced" => {}
        other => {
            let error = FieldError::not_supported(&Path::ROOT, other, &["Cluster", "Namespaced"]);
            errors.push(at("spec.scope", error));
        }
    }
    require_schemas(spec, &mut errors);
    let keeps_unknown = spec.get("preserveUnknownFields") == Some(&true.into());
    if keeps_unknown && super::schemas(new).iter().any(|(_, schema, _)| defaults::is_any(schema, 0))
    {
        let why = "must be false in order to use defaults in the schema";
        errors.push(invalid("spec.preserveUnknownFields", true, why));
    }
    versions(spec, &mut errors);
    validate_names(names, "spec.names", false, &mut errors);
    validate_common(spec, &mut errors);
    let strategy = new.at(&["spec", "conversion", "strategy"]).and_then(Value::as_str);
    if let Some(strategy) = strategy.filter(|strategy| keeps_unknown && *strategy != "None") {
        let why = "must be None if spec.preserveUnknownFields is true";
        errors.push(invalid("spec.conversion.strategy", strategy, why));
    }
    conversion(spec, &mut errors);
    if let Some(old) = old {
        immutable(new, old, &mut errors);
    }
    stored_versions(new, spec, &mut errors);
    validate_approval(new, group, old, &mut errors);
    let kept_unknown =
        |old: &Object| old.at(&["spec", "preserveUnknownFields"]) == Some(&true.into());
    if keeps_unknown && !old.is_some_and(kept_unknown) {
        let why = "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in \
                   spec.versions[*].schema instead";
        errors.push(invalid("spec.preserveUnknownFields", true, why));
    }
    errors
}

/// Whether a group belongs to the Kubernetes project, so that its definitions must be approved.
fn is_protected(group: &str) -> bool {
    let of = ["k8s.io", "kubernetes.io"];
    of.iter()
        .any(|of| group.strip_suffix(of).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

fn approval_of(obj: &Object) -> Option<String> {
    let mut annotations = obj.meta_map("annotations");
    annotations.find(|(key, _)| *key == APPROVAL).map(|(_, value)| value.to_owned())
}

/// What the approval annotation of a definition says.
enum Approval<'a> {
    Missing,
    Unapproved(&'a str),
    Approved(&'a str),
    Invalid(&'a str),
}

impl Approval<'_> {
    fn read(annotation: Option<&str>) -> Approval<'_> {
        match annotation {
            None | Some("") => Approval::Missing,
            Some(word) if word.starts_with("unapproved") => Approval::Unapproved(word),
            Some(word) if word.starts_with("https://") || word.starts_with("http://") => {
                Approval::Approved(word)
            }
            Some(word) => Approval::Invalid(word),
        }
    }

    fn message(&self) -> String {
        let wants = format!("protected groups must have approval annotation \"{APPROVAL}\"");
        match self {
            Approval::Missing => format!("{wants}, see {APPROVAL_PAGE}"),
            Approval::Unapproved(word) => format!("not approved: {}", quote(word)),
            Approval::Approved(word) => format!("approved in {word}"),
            Approval::Invalid(_) => {
                let why = "with either a URL or a reason starting with \"unapproved\"";
                format!("{wants} {why}, see {APPROVAL_PAGE}")
            }
        }
    }
}

/// Sets the condition KubernetesAPIApprovalPolicyConformant of a definition in a protected group
/// (apiextensions `pkg/controller/apiapproval`).
pub fn set_approval(definition: &mut Object, now: &str) {
    if !is_protected(definition.str_at(&["spec", "group"])) {
        return;
    }
    let annotation = approval_of(definition);
    let approval = Approval::read(annotation.as_deref());
    let (is_approved, reason) = match approval {
        Approval::Missing => (false, "MissingAnnotation"),
        Approval::Unapproved(_) => (false, "UnapprovedAnnotation"),
        Approval::Approved(_) => (true, "ApprovedAnnotation"),
        Approval::Invalid(_) => (false, "InvalidAnnotation"),
    };
    let kind = "KubernetesAPIApprovalPolicyConformant";
    set_condition(definition, kind, is_approved, reason, &approval.message(), now);
}

fn validate_approval(new: &Object, group: &str, old: Option<&Object>, errors: &mut ErrorList) {
    let now = approval_of(new);
    if !is_protected(group) || old.is_some_and(|old| approval_of(old) == now) {
        return;
    }
    let field = format!("metadata.annotations[{APPROVAL}]");
    let approval = Approval::read(now.as_deref());
    match approval {
        Approval::Missing => errors.push(required(&field, &approval.message())),
        Approval::Invalid(word) => errors.push(invalid(&field, word, &approval.message())),
        Approval::Unapproved(_) | Approval::Approved(_) => {}
    }
}

fn validate_group(group: &str, errors: &mut ErrorList) {
    if group.is_empty() {
        return errors.push(required("spec.group", ""));
    }
    let messages = names::is_dns1123_subdomain(group);
    if !messages.is_empty() {
        errors.push(invalid("spec.group", group, &messages.join(",")));
    } else if !group.contains('.') {
        errors.push(invalid("spec.group", group, "should be a domain with at least one dot"));
    }
}

/// Returns whether all versions have the same value of a field, which upstream then makes a
/// top-level field.
pub(super) fn is_common(versions: &[Value], name: &str) -> bool {
    let mut all = versions.iter().map(|version| version.get(name));
    let first = all.next().flatten();
    first.is_some() && all.all(|other| other == first)
}

fn require_schemas(spec: &Map, errors: &mut ErrorList) {
    let versions = spec.get("versions").and_then(Value::as_array).unwrap_or_default();
    for (i, version) in versions.iter().enumerate() {
        if version.at(&["schema", "openAPIV3Schema"]).is_none() {
            errors.push(required(&format!("spec.versions[{i}].schema.openAPIV3Schema"), ""));
        }
    }
}

fn versions(spec: &Map, errors: &mut ErrorList) {
    let none = vec![];
    let versions = spec.get("versions").and_then(Value::as_array).unwrap_or(&none);
    let is = |version: &Value, name: &str| version.get(name) == Some(&true.into());
    let mut seen = HashSet::new();
    let mut is_unique = true;
    let mut storage = 0;
    for (i, version) in versions.iter().enumerate() {
        let field = format!("spec.versions[{i}]");
        let name = version.str_at(&["name"]).unwrap_or_default();
        is_unique &= seen.insert(name);
        storage += usize::from(is(version, "storage"));
        let messages = names::is_dns1035_label(name);
        if !messages.is_empty() {
            errors.push(invalid(&format!("{field}.name"), name, &messages.join(",")));
        }
        let warning = version.get("deprecationWarning").and_then(Value::as_str);
        if let Some(warning) = warning {
            let field = format!("{field}.deprecationWarning");
            validate_deprecation_warning(warning, is(version, "deprecated"), &field, errors);
        }
        members(versions, version, &field, errors);
    }
    let shown = || match spec.get("versions") {
        Some(Value::Array(_)) => internal_versions(versions),
        _ => Value::Null,
    };
    if !is_unique {
        errors.push(invalid("spec.versions", shown(), "must contain unique version names"));
    }
    if storage != 1 {
        let why = "must have exactly one version marked as storage version";
        errors.push(invalid("spec.versions", shown(), why));
    }
    let first = versions.first().and_then(|version| version.str_at(&["name"])).unwrap_or_default();
    let messages = names::is_dns1035_label(first);
    if !first.is_empty() && !messages.is_empty() {
        // Upstream's internal type has a field of its own for the first version.
        errors.push(invalid("spec.version", first, &messages.join(",")));
    }
}

fn validate_deprecation_warning(
    warning: &str,
    is_deprecated: bool,
    field: &str,
    errors: &mut ErrorList,
) {
    if !is_deprecated {
        return errors.push(invalid(field, warning, "can only be set for deprecated versions"));
    }
    if warning.len() > WARNING_BYTES_MAX {
        let why = format!("must be <= {WARNING_BYTES_MAX} characters long");
        errors.push(invalid(field, warning, &why));
    }
    if warning.is_empty() {
        errors.push(invalid(field, warning, "must not be an empty string"));
    }
    if let Some((at, _)) = warning.char_indices().find(|(_, c)| !is_printable(*c)) {
        let why = format!(
            "must only contain printable UTF-8 characters; non-printable character found at index {at}"
        );
        errors.push(invalid(field, warning, &why));
    }
}

/// The error of selectable fields that all versions share without a shared schema.
const NO_SCHEMA: &str = "may only be set when validations.schema is included";

fn validate_selectable_fields(version: &Value, field: &str, errors: &mut ErrorList) {
    let fields = version.array_at(&["selectableFields"]);
    if fields.is_empty() {
        return;
    }
    let parent = field.strip_suffix(".selectableFields").unwrap_or_default();
    let schema = version.at(&["schema", "openAPIV3Schema"]).and_then(Value::as_object);
    let has_validation = version.get("schema").is_some_and(|schema| !schema.is_null());
    let unsupported = schema.and_then(|schema| structural::unsupported(schema, 0));
    let why = match (parent, schema) {
        ("spec", None) if !has_validation => NO_SCHEMA,
        (parent, None) if parent != "spec" => {
            "may only be set when `version.schema.openAPIV3Schema` is not included"
        }
        (_, Some(schema)) if unsupported.is_none() => {
            return selectable::fields(fields, schema, field, errors);
        }
        _ => {
            if let Some(why) = unsupported {
                errors.push(invalid(&format!("{parent}.schema.openAPIV3Schema"), "", &why));
            }
            // Skip schemas that cannot be structural: kube-apiserver panics there.
            let mut found = ErrorList::new();
            selectable::fields(fields, &Map::new(), field, &mut found);
            let reported =
                found.iter().filter(|error| !error.detail.ends_with("refer to a valid field"));
            return reported.for_each(|error| errors.push(error.clone()));
        }
    };
    errors.push(invalid(field, "", why));
}

/// Validates the fields that all versions share, at the top-level paths of upstream's internal
/// type.
fn validate_common(spec: &Map, errors: &mut ErrorList) {
    let versions = spec.get("versions").and_then(Value::as_array).unwrap_or_default();
    if let Some(first) = versions.first() {
        members(versions, first, "spec", errors);
    }
}

/// Validates the fields of a version; for `spec`, those that all versions share.
fn members(versions: &[Value], version: &Value, parent: &str, errors: &mut ErrorList) {
    let is_top = parent == "spec";
    let is_reported_here = |name: &str| is_common(versions, name) == is_top;
    let schema = version.at(&["schema", "openAPIV3Schema"]).and_then(Value::as_object);
    if let Some(schema) = schema.filter(|_| is_reported_here("schema")) {
        let has_status = |version: &Value| {
            version.at(&["subresources", "status"]).is_some_and(|status| !status.is_null())
        };
        let name = if is_top { "validation" } else { "schema" };
        let has_status = if is_top { versions.iter().any(has_status) } else { has_status(version) };
        schema::root(schema, &format!("{parent}.{name}.openAPIV3Schema"), has_status, errors);
    }
    let scale = version.at(&["subresources", "scale"]).and_then(Value::as_object);
    if let Some(scale) = scale.filter(|_| is_reported_here("subresources")) {
        validate_scale(scale, &format!("{parent}.subresources.scale"), errors);
    }
    if is_reported_here("additionalPrinterColumns") {
        let field = format!("{parent}.additionalPrinterColumns");
        columns(version.array_at(&["additionalPrinterColumns"]), &field, errors);
    }
    if is_reported_here("selectableFields") && version.get("selectableFields").is_some() {
        let field = format!("{parent}.selectableFields");
        if !is_top && is_common(versions, "schema") {
            let why = "may only be set when `version.schema.openAPIV3Schema` is not included";
            return errors.push(invalid(&field, "", why));
        }
        let is_any = !version.array_at(&["selectableFields"]).is_empty();
        if is_any && is_top && !is_common(versions, "schema") {
            return errors.push(invalid(&field, "", NO_SCHEMA));
        }
        validate_selectable_fields(version, &field, errors);
    }
}

/// Formats versions as upstream's messages show them: in its internal type, without the fields that
/// all versions share.
fn internal_versions(versions: &[Value]) -> Value {
    let shown = versions.iter().map(|version| {
        let mut out = Map::new();
        let flag = |name: &str| version.get(name).cloned().unwrap_or(false.into());
        out.insert("Name", version.str_at(&["name"]).unwrap_or_default());
        out.insert("Served", flag("served"));
        out.insert("Storage", flag("storage"));
        out.insert("Deprecated", flag("deprecated"));
        let warning = version.get("deprecationWarning").cloned().unwrap_or_default();
        out.insert("DeprecationWarning", warning);
        for (name, of) in [
            ("Schema", "schema"),
            ("Subresources", "subresources"),
            ("AdditionalPrinterColumns", "additionalPrinterColumns"),
            ("SelectableFields", "selectableFields"),
        ] {
            let own = version.get(of).filter(|_| !is_common(versions, of));
            out.insert(
                Str::new_static(name),
                own.map_or(Value::Null, |own| internal_types::member(of, own)),
            );
        }
        Value::Object(out)
    });
    Value::Array(shown.collect())
}

fn columns(columns: &[Value], field: &str, errors: &mut ErrorList) {
    for (i, column) in columns.iter().enumerate() {
        let text = |name: &str| column.str_at(&[name]).unwrap_or_default();
        let field = |name: &str| format!("{field}[{i}].{name}");
        if text("name").is_empty() {
            errors.push(required(&field("name"), ""));
        }
        let types = format!("must be one of {}", COLUMN_TYPES.join(","));
        match text("type") {
            "" => errors.push(required(&field("type"), &types)),
            kind if !COLUMN_TYPES.contains(&kind) => {
                errors.push(invalid(&field("type"), kind, &types));
            }
            _ => {}
        }
        let format = text("format");
        if !format.is_empty() && !COLUMN_FORMATS.contains(&format) {
            let why = format!("must be one of {}", COLUMN_FORMATS.join(","));
            errors.push(invalid(&field("format"), format, &why));
        }
        match text("jsonPath") {
            "" => errors.push(required(&field("JSONPath"), "")),
            path => {
                simple_path(path, &field("JSONPath"), errors);
            }
        }
    }
}

fn simple_path(path: &str, field: &str, errors: &mut ErrorList) -> bool {
    let is_simple = path.starts_with('.');
    if !is_simple {
        errors.push(invalid(field, path, "must be a simple json path starting with ."));
    }
    is_simple
}

fn validate_scale(scale: &Map, field: &str, errors: &mut ErrorList) {
    let mut check = |name: &str, is_required: bool, roots: &[&str], why: &str| {
        let path = text(scale, name);
        let field = format!("{field}.{name}");
        if path.is_empty() {
            if is_required {
                errors.push(required(&field, ""));
            }
        } else if simple_path(path, &field, errors)
            && !roots.iter().any(|root| path.starts_with(root))
        {
            errors.push(invalid(&field, path, why));
        }
    };
    check("specReplicasPath", true, &[".spec."], "should be a json path under .spec");
    check("statusReplicasPath", true, &[".status."], "should be a json path under .status");
    let why = "should be a json path under either .spec or .status";
    check("labelSelectorPath", false, &[".spec.", ".status."], why);
}

/// Checks names that are wanted, or that were accepted, which may be empty.
fn validate_names(given: &Map, place: &str, may_be_empty: bool, errors: &mut ErrorList) {
    for name in ["plural", "singular", "kind", "listKind"] {
        let value = text(given, name);
        let field = format!("{place}.{name}");
        let is_kind = matches!(name, "kind" | "listKind");
        let label = if is_kind { value.to_lowercase() } else { value.to_owned() };
        let messages = if value.is_empty() { vec![] } else { names::is_dns1035_label(&label) };
        if value.is_empty() && !may_be_empty {
            errors.push(required(&field, ""));
        } else if !messages.is_empty() {
            let why = messages.join(",");
            let why = if is_kind {
                format!("may have mixed case, but should otherwise match: {why}")
            } else {
                why
            };
            errors.push(invalid(&field, value, &why));
        }
    }
    validate_words(given, "shortNames", place, errors);
    let kind = text(given, "kind");
    let list = text(given, "listKind");
    if !kind.is_empty() && kind == list {
        let field = format!("{place}.listKind");
        errors.push(invalid(&field, list, "kind and listKind may not be the same"));
    }
    validate_words(given, "categories", place, errors);
}

/// Checks that each of a list of names is a label.
fn validate_words(given: &Map, name: &str, place: &str, errors: &mut ErrorList) {
    let words = given.get(name).and_then(Value::as_array).unwrap_or_default();
    for (i, word) in words.iter().filter_map(Value::as_str).enumerate() {
        let messages = names::is_dns1035_label(word);
        if !messages.is_empty() {
            let field = format!("{place}.{name}[{i}]");
            errors.push(invalid(&field, word, &messages.join(",")));
        }
    }
}

/// Validates a write of the status.
pub(super) fn status(new: &Object, _old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let accepted = new.at(&["status", "acceptedNames"]).and_then(Value::as_object);
    if let Some(accepted) = accepted {
        validate_names(accepted, "status.acceptedNames", true, &mut errors);
    }
    errors
}

fn conversion(spec: &Map, errors: &mut ErrorList) {
    let Some(conversion) = spec.get("conversion").and_then(Value::as_object) else { return };
    let webhook = conversion.get("webhook").and_then(Value::as_object);
    let given_client = webhook.and_then(|webhook| webhook.get("clientConfig"));
    let reviews = webhook.and_then(|webhook| webhook.get("conversionReviewVersions"));
    let client_field = "spec.conversion.webhookClientConfig";
    let reviews_field = "spec.conversion.conversionReviewVersions";
    let strategy = text(conversion, "strategy");
    match strategy {
        _ if strategy != "Webhook" => {
            unknown_strategy(strategy, errors);
            let has_reviews = reviews.is_some_and(|reviews| !reviews.is_empty());
            let why = "should not be set when strategy is not set to Webhook";
            for (is_set, field) in
                [(given_client.is_some(), client_field), (has_reviews, reviews_field)]
            {
                if is_set {
                    errors.push(at(field, FieldError::forbidden(&Path::ROOT, why)));
                }
            }
        }
        _ => {
            match given_client.filter(|client| client.as_object().is_some()) {
                None => {
                    errors.push(required(client_field, "required when strategy is set to Webhook"));
                }
                Some(given) => {
                    client_config(&Field::new(Some(given), Path::new(client_field)), errors)
                }
            }
            review_versions(reviews, reviews_field, errors);
        }
    }
}

fn unknown_strategy(strategy: &str, errors: &mut ErrorList) {
    match strategy {
        "" => errors.push(required("spec.conversion.strategy", "")),
        "None" | "Webhook" => {}
        other => {
            let error = FieldError::not_supported(&Path::ROOT, other, &["None", "Webhook"]);
            errors.push(at("spec.conversion.strategy", error));
        }
    }
}

fn review_versions(reviews: Option<&Value>, field: &str, errors: &mut ErrorList) {
    let versions = reviews.and_then(Value::as_array).unwrap_or_default();
    if versions.is_empty() {
        return errors.push(required(field, ""));
    }
    let mut seen = HashSet::new();
    let mut is_known = false;
    for (i, version) in versions.iter().filter_map(Value::as_str).enumerate() {
        is_known |= matches!(version, "v1" | "v1beta1");
        let field = format!("{field}[{i}]");
        if !seen.insert(version) {
            errors.push(invalid(&field, version, "duplicate version"));
            continue;
        }
        for why in names::is_dns1035_label(version) {
            errors.push(invalid(&field, version, &why));
        }
    }
    if !is_known {
        let shown = Value::Array(versions.to_vec());
        errors.push(invalid(field, shown, "must include at least one of v1, v1beta1"));
    }
}

/// Checks that every stored version is still one of the versions.
fn stored_versions(new: &Object, spec: &Map, errors: &mut ErrorList) {
    let versions = spec.get("versions").and_then(Value::as_array).unwrap_or_default();
    let name = |version: &Value| version.str_at(&["name"]).unwrap_or_default().to_owned();
    let names: HashSet<String> = versions.iter().map(name).collect();
    let stored = new.array_at(&["status", "storedVersions"]);
    let field = "status.storedVersions";
    if stored.is_empty() {
        return errors.push(invalid(field, Value::Null, "must have at least one stored version"));
    }
    let mut missing: HashSet<&str> = stored.iter().filter_map(Value::as_str).collect();
    for version in versions {
        let name = version.str_at(&["name"]).unwrap_or_default();
        // Like upstream, a duplicate version is not found a second time.
        let is_stored = missing.remove(name);
        if version.get("storage") == Some(&true.into()) && !is_stored {
            let why = format!("must have the storage version {name}");
            errors.push(invalid(field, Value::Array(stored.to_vec()), &why));
        }
    }
    for (i, version) in stored.iter().filter_map(Value::as_str).enumerate() {
        if !names.contains(version) {
            let why = format!(
                "missing from spec.versions; {version} was previously a storage version, and must remain in \
                 spec.versions until a storage migration ensures no data remains persisted in {version} and \
                 removes {version} from status.storedVersions"
            );
            errors.push(invalid(&format!("{field}[{i}]"), version, &why));
        }
    }
}

/// Checks immutable fields: the group and plural always, the others once the definition is
/// established.
fn immutable(new: &Object, old: &Object, errors: &mut ErrorList) {
    let is_established = super::has_condition(old, "Established");
    for (path, always) in [
        (&["spec", "scope"][..], false),
        (&["spec", "names", "kind"][..], false),
        (&["spec", "group"][..], true),
        (&["spec", "names", "plural"][..], true),
    ] {
        let now = new.at(path);
        let before = old.at(path);
        if now != before && (always || is_established) {
            let now = now.cloned().unwrap_or_default();
            errors.push(invalid(&path.join("."), now, "field is immutable"));
        }
    }
}
