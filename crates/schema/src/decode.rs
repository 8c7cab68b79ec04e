//! Decodes a request body to an object of the expected kind, with kube-apiserver's error messages
//! (apiserver `handlers/create.go`, apimachinery `serializer/json`).

use crate::canonical::{Canonicalizer, GoDecoder};
use crate::cbor;
use crate::given_numbers::GivenNumbers;
use crate::json;
use crate::proto;
use crate::types::{Schema, StructId, Types};
use crate::yaml::{self, ParsedYaml};
use keelson_meta::status::quote;
use keelson_meta::{
    ErrorList, Failure, FieldError, GroupVersion, GroupVersionKind, Map, Object, Path, Status, Str,
    Value, json_text,
};
use std::cmp::Ordering;

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `application/json`.
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
    /// `application/cbor`.
    Cbor,
}

/// A decoded body.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// The object in canonical form, with `kind` and `apiVersion`.
    pub object: Object,
    /// Strict decoding errors: `unknown field "spec.x"`, `duplicate field "data"`.
    pub strict_errors: Vec<String>,
}

/// Returns whether a kind is known; error messages differ.
pub type IsKnown<'a> = &'a dyn Fn(&GroupVersionKind) -> bool;

/// Go's name of the type that a body is first decoded into.
const TYPE_META: &str = "type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                         Kind string \"json:\\\"kind,omitempty\\\"\" }";

/// Number of bytes of a body that error messages show.
const SUMMARY_BYTES_MAX: usize = 30;

/// Maximum number of maps in an object, not counting managed fields. An empty map takes two bytes
/// of a body, and up to 2 KB of memory once it is defaulted, owned and encoded. An object of etcd's
/// maximum size would reach this number only with less than 21 bytes per map.
pub const MAPS_MAX: usize = 75_000;

/// Length of a body that cannot contain [`MAPS_MAX`] maps.
const UNCOUNTED_BODY_BYTES_MAX: usize = 2 * MAPS_MAX;

/// Rejects an object with more than [`MAPS_MAX`] maps; `bytes` is the length of its body.
pub fn check_maps(root: &Map, bytes: usize) -> Result<(), Failure> {
    if bytes <= UNCOUNTED_BODY_BYTES_MAX || count_maps(root) <= MAPS_MAX {
        return Ok(());
    }
    let why = format!("Request entity too large: an object may hold at most {MAPS_MAX} maps");
    Err(Status::too_large(why))
}

fn count_maps(map: &Map) -> usize {
    let members = map.iter().filter(|(key, _)| *key != "fieldsV1");
    1 + members.map(|(_, value)| count_maps_in_value(value)).sum::<usize>()
}

fn count_maps_in_value(value: &Value) -> usize {
    match value {
        Value::Object(map) => count_maps(map),
        Value::Array(items) => items.iter().map(count_maps_in_value).sum(),
        Value::Raw(text) => json_text::count_objects(text),
        _ => 0,
    }
}

/// Decodes a body of the kind of `schema`. A missing `kind` or `apiVersion` is taken from the
/// schema; other values are errors.
pub fn decode(
    schema: &Schema,
    body: &[u8],
    format: Format,
    is_known: IsKnown<'_>,
) -> Result<Decoded, Failure> {
    let decoded = decode_any(schema, body, format, is_known)?;
    check_maps(&decoded.object.root, body.len())?;
    Ok(decoded)
}

fn decode_any(
    schema: &Schema,
    body: &[u8],
    format: Format,
    is_known: IsKnown<'_>,
) -> Result<Decoded, Failure> {
    if format == Format::Protobuf {
        return decode_protobuf(schema, body, is_known);
    }
    if format == Format::Json
        && let Some(object) = decode_without_errors(schema, body)
    {
        return Ok(Decoded { object, strict_errors: vec![] });
    }
    let Read { value, mut strict_errors, has_duplicates, overflow } =
        read(body, format).map_err(|why| unrecognized(schema, body, &why))?;
    let given = body_gvk(&value, schema).map_err(|why| unrecognized(schema, body, &why))?;
    if schema.types.is_custom_resource() {
        if value.str_at(&["kind"]).unwrap_or_default().is_empty() {
            let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
            return Err(unrecognized(schema, body, &why));
        }
        check_version(value.str_at(&["apiVersion"]).unwrap_or_default(), schema)?;
        check_custom_resource_type(&value, schema)?;
    }
    let mismatched = |why: String| {
        let why = if format == Format::Json { GivenNumbers::of(body).in_error(why) } else { why };
        mismatched(&given, schema, &why)
    };
    if let Some(number) = overflow.filter(|_| schema.types.is_custom_resource()) {
        let why = json::overflow_error(&number);
        return Err(mismatched(why));
    }
    check_has_version(&given, body).map_err(mismatched)?;
    if given != schema.gvk {
        check_gvk(&given, schema, is_known).map_err(mismatched)?;
        check_version(&given.api_version(), schema)?;
    }
    let text = (format == Format::Json).then_some(body);
    if format == Format::Json && has_duplicates && !schema.types.is_custom_resource() {
        return merge_duplicates(schema, body).map_err(mismatched);
    }
    let mut decoded = canonicalize_body(schema, value, text).map_err(mismatched)?;
    strict_errors.append(&mut decoded.strict_errors);
    Ok(Decoded { strict_errors, ..decoded })
}

/// Decodes a JSON body with duplicate keys to a typed kind, as Go does.
fn merge_duplicates(schema: &Schema, body: &[u8]) -> Result<Decoded, String> {
    let tree = json::Tree::parse(body).map_err(|error| error.to_string())?;
    let merged = tree.decode(&schema.types, schema.root());
    for suspect in merged.suspects {
        canonicalize(schema, suspect)?;
    }
    let decoded = canonicalize_body(schema, merged.value, Some(body))?;
    Ok(Decoded { strict_errors: merged.errors, ..decoded })
}

/// Returns the kind that a body names, if it can be read; missing parts are taken from the schema.
#[must_use]
pub fn named_kind(schema: &Schema, body: &[u8], format: Format) -> Option<GroupVersionKind> {
    match format {
        Format::Protobuf => {
            let envelope = proto::decode_envelope(body).ok()?;
            complete_gvk(&envelope.api_version, &envelope.kind, schema).ok()
        }
        _ => body_gvk(&read_value(body, format).ok()?, schema).ok(),
    }
}

/// Decodes the options of a request. `check` accepts the kind of the body, and missing parts of it
/// are taken from the schema. Unknown and duplicate fields are ignored. Errors have upstream's
/// messages.
pub fn decode_options(
    schema: &Schema,
    body: &[u8],
    format: Format,
    check: &dyn Fn(&GroupVersionKind) -> Result<(), String>,
) -> Result<Object, String> {
    if format == Format::Protobuf {
        let envelope = proto::decode_envelope(body).map_err(|error| error.to_string())?;
        check(&complete_gvk(&envelope.api_version, &envelope.kind, schema)?)?;
        return proto::decode_message(schema, envelope.raw).map_err(|error| error.to_string());
    }
    let value = read_value(body, format)?;
    let given = body_gvk(&value, schema)?;
    check_has_version(&given, body)?;
    check(&given)?;
    let decoded = canonicalize(schema, value);
    decoded.map(|decoded| decoded.object).map_err(|why| match format {
        Format::Json => GivenNumbers::of(body).in_error(why),
        _ => why,
    })
}

/// Rejects a custom resource whose kind or version differs from the endpoint. Upstream decodes
/// custom resources without a type and finds this in validation.
pub fn check_custom_resource_type(value: &Value, schema: &Schema) -> Result<(), Failure> {
    let given = |name: &str| value.str_at(&[name]).unwrap_or_default();
    let mut errors = ErrorList::new();
    let api_version = schema.gvk.api_version();
    for (name, want) in [("kind", &schema.gvk.kind), ("apiVersion", &api_version)] {
        if given(name) != want {
            let why = format!("must be {want}");
            errors.push(FieldError::invalid(&Path::new(name), given(name), &why));
        }
    }
    let group = GroupVersion::parse(given("apiVersion")).unwrap_or_default().group;
    let name = value.str_at(&["metadata", "name"]).unwrap_or_default();
    errors.into_result(&group, given("kind"), name)
}

/// Decodes a JSON body without errors and warnings: the fast path for nearly all bodies. Returns
/// `None` otherwise.
fn decode_without_errors(schema: &Schema, body: &[u8]) -> Option<Object> {
    let root = json::read(&schema.types, schema.root(), body)?;
    let mut object = Object { root };
    let api_version = schema.gvk.api_version();
    for (name, want) in [("kind", &schema.gvk.kind), ("apiVersion", &api_version)] {
        match object.root.get(name) {
            Some(Value::String(given)) if given == want => {}
            Some(_) => return None,
            None if schema.types.is_custom_resource() => return None,
            None => drop(object.root.insert(name, want.clone())),
        }
    }
    Some(object)
}

/// Decodes a protobuf body. There is no strict decoding; unknown fields are skipped.
fn decode_protobuf(
    schema: &Schema,
    body: &[u8],
    is_known: IsKnown<'_>,
) -> Result<Decoded, Failure> {
    let envelope =
        proto::decode_envelope(body).map_err(|e| unrecognized(schema, body, &e.to_string()))?;
    let given = complete_gvk(&envelope.api_version, &envelope.kind, schema)
        .map_err(|why| unrecognized(schema, body, &why))?;
    if given != schema.gvk {
        check_gvk(&given, schema, is_known).map_err(|why| mismatched(&given, schema, &why))?;
        check_version(&given.api_version(), schema)?;
    }
    let object = proto::decode_message(schema, envelope.raw)
        .map_err(|e| mismatched(&given, schema, &e.to_string()))?;
    Ok(Decoded { object, strict_errors: vec![] })
}

/// Returns the error for a body whose kind is unknown.
fn unrecognized(schema: &Schema, body: &[u8], why: &str) -> Failure {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        schema.gvk.kind,
        summary(body)
    ))
}

/// Returns the error for a body whose kind is known.
fn mismatched(given: &GroupVersionKind, schema: &Schema, why: &str) -> Failure {
    Status::bad_request(format!(
        "{} in version {} cannot be handled as a {}: {why}",
        given.kind,
        quote(&given.version),
        schema.gvk.kind
    ))
}

/// Brings a value into canonical form and returns strict decoding errors.
pub fn canonicalize(schema: &Schema, value: Value) -> Result<Decoded, String> {
    canonicalize_as(schema, value, GoDecoder::Json)
}

/// Same as [`canonicalize`], with the behavior of the given Go decoder.
pub fn canonicalize_as(
    schema: &Schema,
    value: Value,
    decoder: GoDecoder,
) -> Result<Decoded, String> {
    canonicalize_with(Canonicalizer::new(&schema.types, decoder), schema, value, None)
}

/// Same as [`canonicalize`] for a request body. `text` is the body, if it is JSON.
fn canonicalize_body(
    schema: &Schema,
    value: Value,
    text: Option<&[u8]>,
) -> Result<Decoded, String> {
    let mut canonicalizer = Canonicalizer::new(&schema.types, GoDecoder::Json);
    canonicalizer.sorts_raw = text.is_none();
    canonicalize_with(canonicalizer, schema, value, text)
}

fn canonicalize_with<'s>(
    mut canonicalizer: Canonicalizer<'s>,
    schema: &'s Schema,
    value: Value,
    text: Option<&[u8]>,
) -> Result<Decoded, String> {
    let mut root = canonicalizer.object(schema.root(), value).map_err(|e| e.0)?;
    if let Some(text) = text.filter(|_| canonicalizer.has_raw) {
        json::restore_raw_from_body(text, &mut root);
    }
    root.remove("kind");
    root.remove("apiVersion");
    let mut object = Object { root };
    object.set_gvk(&schema.gvk);
    if schema.types.is_custom_resource() {
        canonicalizer.unknown_fields.sort_by(|one, other| compare_unknown_fields(one, other));
    }
    let strict_errors = canonicalizer
        .unknown_fields
        .iter()
        .map(|path| format!("unknown field {}", quote(path)))
        .collect();
    Ok(Decoded { object, strict_errors })
}

/// The order in which upstream reports unknown fields of a custom resource: its metadata, the rest,
/// the metadata of embedded resources. It decodes metadata again, from JSON with sorted keys.
fn compare_unknown_fields(one: &str, other: &str) -> Ordering {
    let rank = |path: &str| match path {
        path if path.starts_with("metadata.") => 0,
        path if path.contains(".metadata.") => 2,
        _ => 1,
    };
    let is_metadata = rank(one) != 1;
    let by_path = || if is_metadata { compare_paths(one, other) } else { one.cmp(other) };
    rank(one).cmp(&rank(other)).then_with(by_path)
}

/// Orders paths like the values in a document whose keys are sorted.
fn compare_paths(one: &str, other: &str) -> Ordering {
    let index = |step: &str| step.strip_suffix(']').and_then(|index| index.parse::<usize>().ok());
    let steps = one.split(['.', '[']).zip(other.split(['.', '[']));
    // A name may look like an index: all indexes precede names, so that no order is a circle.
    let mut orders = steps.map(|(one, other)| match (index(one), index(other)) {
        (Some(one), Some(other)) => one.cmp(&other),
        (None, None) => one.cmp(other),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
    });
    orders.find(|order| order.is_ne()).unwrap_or_else(|| one.len().cmp(&other.len()))
}

/// Decodes a body without a schema. Errors have upstream's messages.
pub fn read_value(body: &[u8], format: Format) -> Result<Value, String> {
    read(body, format).map(|read| read.value)
}

/// Like [`read_value`]. Also returns the first number that no float can hold, in whose place is the
/// largest float.
pub fn read_value_and_overflow(
    body: &[u8],
    format: Format,
) -> Result<(Value, Option<String>), String> {
    read(body, format).map(|read| (read.value, read.overflow))
}

/// A body that was decoded without a schema.
struct Read {
    value: Value,
    /// Strict decoding errors about duplicate keys.
    strict_errors: Vec<String>,
    /// Whether there are duplicate keys.
    has_duplicates: bool,
    /// A number that no float can hold.
    overflow: Option<String>,
}

/// Decodes a body without a schema.
fn read(body: &[u8], format: Format) -> Result<Read, String> {
    match format {
        Format::Json => {
            let parsed = json::parse(body)
                .map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))?;
            let has_duplicates = !parsed.duplicates.is_empty();
            let duplicates = parsed.duplicates.iter();
            let strict_errors =
                duplicates.map(|path| format!("duplicate field {}", quote(path))).collect();
            let overflow = parsed.overflow;
            Ok(Read { value: parsed.value, strict_errors, has_duplicates, overflow })
        }
        Format::Yaml => {
            let parsed = yaml::parse(body).map_err(|e| e.to_string())?;
            let strict_errors = yaml_strict(&parsed.duplicates);
            // Upstream decodes the JSON that it made of the YAML, where keys are sorted.
            let value = parsed.value.sorted();
            let has_duplicates = !strict_errors.is_empty();
            Ok(Read { value, strict_errors, has_duplicates, overflow: None })
        }
        Format::Cbor => {
            let value = cbor::parse(body)
                .map_err(|e| format!("unable to determine group/version/kind: {e}"))?;
            Ok(Read { value, strict_errors: vec![], has_duplicates: false, overflow: None })
        }
        Format::Protobuf => Err("protobuf cannot be read without a kind in mind".to_owned()),
    }
}

/// Returns the strict decoding error for duplicate YAML keys: one text with a line for each.
pub fn yaml_strict(duplicates: &[(usize, String)]) -> Vec<String> {
    if duplicates.is_empty() {
        return vec![];
    }
    let mut text = "yaml: unmarshal errors:".to_owned();
    for (line, key) in duplicates {
        text.push_str(&format!("\n  line {line}: key {key} already set in map"));
    }
    vec![text]
}

/// Reads the text of a configuration file strictly, with the messages of Go's decoders. `group`
/// ends with a slash, `root` is the type of the file.
pub fn configuration_file(
    types: &Types,
    root: StructId,
    text: &str,
    group: &str,
    versions: &[&str],
    kind: &str,
) -> Result<Value, String> {
    let parsed = yaml::parse(text).map_err(|error| error.to_string())?;
    let given = |name: &str| parsed.value.str_at(&[name]).unwrap_or_default();
    let version = given("apiVersion");
    let given_kind = given("kind");
    match version.strip_prefix(group) {
        _ if given_kind.is_empty() => return Err(format!("Object 'Kind' is missing in '{text}'")),
        Some(version) if given_kind == kind && versions.contains(&version) => {}
        _ => {
            let kind = quote(given_kind);
            let version = quote(version);
            return Err(format!(
                "no kind {kind} is registered for version {version} in scheme \
                 \"pkg/runtime/scheme.go:111\""
            ));
        }
    }
    configuration(types, root, parsed)
}

/// Decodes a parsed file of a configuration strictly, with the messages of Go's strict decoder.
/// `root` is the type of the file.
pub fn configuration(types: &Types, root: StructId, parsed: ParsedYaml) -> Result<Value, String> {
    let mut canonicalizer = Canonicalizer::new(types, GoDecoder::Json);
    let file = canonicalizer.object(types.get(root), parsed.value).map_err(|error| error.0)?;
    let mut strict = yaml_strict(&parsed.duplicates);
    let unknown = canonicalizer.unknown_fields.iter();
    strict.extend(unknown.map(|path| format!("unknown field {}", quote(path))));
    if strict.is_empty() {
        return Ok(Value::Object(file));
    }
    Err(format!("strict decoding error: {}", strict.join(", ")))
}

/// Returns the kind of a body; missing parts are taken from the schema.
pub fn body_gvk(value: &Value, schema: &Schema) -> Result<GroupVersionKind, String> {
    let parse_error = |why: String| format!("couldn't get version/kind; json parse error: {why}");
    let root = match value {
        Value::Object(root) => root,
        Value::Null => return Ok(schema.gvk.clone()),
        other => {
            let what = other.type_name();
            let why = format!("json: cannot unmarshal {what} into Go value of {TYPE_META}");
            return Err(parse_error(why));
        }
    };
    // Go's own decoder, which reads only these two fields, ignores case.
    let given = |name: &str| {
        let mut members = root.iter().rev();
        members.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    };
    let text = |name: &str| match given(name) {
        None | Some(Value::Null) => Ok(Str::default()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(parse_error(format!(
            "json: cannot unmarshal {} into Go struct field .{name} of type string",
            other.type_name()
        ))),
    };
    complete_gvk(&text("apiVersion")?, &text("kind")?, schema)
}

/// Rejects a kind with a group that has no version: `apps/`.
fn check_has_version(given: &GroupVersionKind, body: &[u8]) -> Result<(), String> {
    if given.version.is_empty() {
        let body = String::from_utf8_lossy(body);
        return Err(format!("Object 'apiVersion' is missing in '{body}'"));
    }
    Ok(())
}

/// Returns the kind; empty parts are taken from the schema.
fn complete_gvk(
    api_version: &str,
    kind: &str,
    schema: &Schema,
) -> Result<GroupVersionKind, String> {
    let kind = if kind.is_empty() { schema.gvk.kind.clone() } else { Str::new(kind) };
    if api_version.is_empty() {
        return Ok(schema.gvk.group_version().kind(kind));
    }
    match GroupVersion::parse(api_version) {
        Some(gv) if gv.version.is_empty() && gv.group == schema.gvk.group => {
            Ok(schema.gvk.group_version().kind(kind))
        }
        Some(gv) => Ok(gv.kind(kind)),
        None => Err(format!("unexpected GroupVersion string: {api_version}")),
    }
}

/// Kinds that upstream knows in every group version, also in unknown ones.
pub const UNVERSIONED: [&str; 5] =
    ["APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "Status"];

/// Rejects a kind that is unknown, or that is not the expected one in any version.
pub fn check_gvk(
    given: &GroupVersionKind,
    schema: &Schema,
    is_known: IsKnown<'_>,
) -> Result<(), String> {
    let unconverted = |version: &str| {
        let package = package(&schema.gvk.group);
        let from = &given.kind;
        let to = &schema.gvk.kind;
        Err(format!("converting ({version}.{from}) to ({package}.{to}): unknown conversion"))
    };
    if !is_known_to(schema, given, is_known) {
        if UNVERSIONED.contains(&given.kind.as_str()) {
            return unconverted("v1");
        }
        return Err(not_registered(given, scheme(&schema.gvk.group)));
    }
    if given.kind != schema.gvk.kind || hub_group(given) != hub_group(&schema.gvk) {
        return unconverted(&given.version);
    }
    Ok(())
}

/// Returns the error for a kind that a scheme does not know.
pub fn not_registered(given: &GroupVersionKind, scheme: &str) -> String {
    let version = match given.version.as_str() {
        "__internal" => format!("the internal version of group {}", quote(&given.group)),
        _ => format!("version {}", quote(&given.api_version())),
    };
    let kind = quote(&given.kind);
    let scheme = quote(scheme);
    format!("no kind {kind} is registered for {version} in scheme {scheme}")
}

/// Same as [`check_gvk`] for an object without a version, which upstream takes for its internal
/// version.
pub fn check_internal_version(
    given: &GroupVersionKind,
    schema: &Schema,
    is_known: IsKnown<'_>,
) -> Result<(), String> {
    let group = &schema.gvk.group;
    if given.kind == schema.gvk.kind {
        return Ok(());
    }
    if !is_known_to(schema, given, is_known) {
        return Err(format!(
            "no kind {} is registered for the internal version of group {} in scheme {}",
            quote(&given.kind),
            quote(group),
            quote(scheme(group))
        ));
    }
    let package = package(group);
    Err(format!(
        "converting ({package}.{}) to ({package}.{}): unknown conversion",
        given.kind, schema.gvk.kind
    ))
}

/// Whether the scheme of the serving component knows a kind; apiextensions has its own scheme.
fn is_known_to(schema: &Schema, given: &GroupVersionKind, is_known: IsKnown<'_>) -> bool {
    const DEFINITIONS: &str = "apiextensions.k8s.io";
    if schema.gvk.group != DEFINITIONS {
        return is_known(given);
    }
    let kinds = ["CustomResourceDefinition", "CustomResourceDefinitionList", "ConversionReview"];
    given.group == DEFINITIONS
        && matches!(given.version.as_str(), "v1" | "v1beta1")
        && kinds.contains(&given.kind.as_str())
}

/// Returns the group of a kind's internal version. A few kinds moved between groups.
fn hub_group(gvk: &GroupVersionKind) -> &str {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("events.k8s.io", "Event") => "",
        ("extensions", "DaemonSet" | "Deployment" | "ReplicaSet") => "apps",
        ("extensions", "Ingress" | "NetworkPolicy") => "networking.k8s.io",
        ("apps" | "extensions", "Scale") => "autoscaling",
        (group, _) => group,
    }
}

/// Rejects an object whose version differs from the URL.
pub fn check_version(given: &str, schema: &Schema) -> Result<(), Failure> {
    let expected = schema.gvk.api_version();
    if given.is_empty() || given == expected {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the API version in the data ({given}) does not match the expected API version ({expected})"
    )))
}

/// Returns the name of upstream's scheme for a group, as error messages show it.
fn scheme(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:38",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// Returns the name of upstream's internal package for a group.
fn package(group: &str) -> &str {
    match group {
        "" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or(group),
    }
}

/// Returns the beginning of a body for an error message: text if it is a JSON object, otherwise
/// hexadecimal.
fn summary(body: &[u8]) -> String {
    let cut = &body[..body.len().min(SUMMARY_BYTES_MAX)];
    let more = if body.len() > SUMMARY_BYTES_MAX { " ..." } else { "" };
    match body.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(cut)),
        Some(_) => {
            let hex: String = cut.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{more}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_three_unknown_fields_are_in_a_circle() {
        let names =
            ["metadata.a[9]", "metadata.a[10]", "metadata.a.1x", "metadata.a.9]", "metadata.a"];
        for one in names {
            for other in names {
                for third in names {
                    let order = |a, b| compare_unknown_fields(a, b).is_lt();
                    let is_circle = order(one, other) && order(other, third) && !order(one, third);
                    assert!(!is_circle, "{one} {other} {third}");
                }
            }
        }
    }

    #[test]
    fn unknown_fields_of_custom_resources_are_sorted_with_metadata_first() {
        let mut paths = [
            "zzz",
            "spec.o.y",
            "metadata.ownerReferences[10].q",
            "spec.template.metadata.b",
            "metadata.zz",
            "metadata.ownerReferences[2].q",
            "aaa",
            "spec.template.metadata.a",
            "metadata.aa",
        ];
        paths.sort_by(|one, other| compare_unknown_fields(one, other));
        let want = [
            "metadata.aa",
            "metadata.ownerReferences[2].q",
            "metadata.ownerReferences[10].q",
            "metadata.zz",
            "aaa",
            "spec.o.y",
            "zzz",
            "spec.template.metadata.a",
            "spec.template.metadata.b",
        ];
        assert_eq!(paths, want);
    }
}
