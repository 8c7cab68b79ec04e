//! A request body to an object of the kind that was expected, with every refusal worded as a
//! kube-apiserver words it (apiserver `handlers/create.go`, apimachinery `serializer/json`).

use crate::cbor;
use crate::conform::{Conform, Words};
use crate::json;
use crate::proto;
use crate::types::Schema;
use crate::yaml;
use keelson_meta::status::quote;
use keelson_meta::{
    ErrorList, Failure, FieldError, GroupVersion, GroupVersionKind, Map, Object, Path, Status, Str,
    Value, json_text,
};

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

/// A body that was read.
#[derive(Clone, Debug, Default)]
pub struct Decoded {
    /// The object in canonical form, with `kind` and `apiVersion`.
    pub object: Object,
    /// What strict decoding refuses: `unknown field "spec.x"`, `duplicate field "data"`.
    pub strict: Vec<String>,
}

/// Tells which kinds exist, for the words of a refusal.
pub type IsKnown<'a> = &'a dyn Fn(&GroupVersionKind) -> bool;

/// Go's words for the type into which a body's kind is read first.
const TYPE_META: &str = "type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                         Kind string \"json:\\\"kind,omitempty\\\"\" }";

/// Bytes of a body that a refusal shows.
const SUMMARY_BYTES_MAX: usize = 30;

/// Maps that an object of a request may hold beside the fields of its owners. Each takes two bytes of a
/// body, and up to 2 KB of memory once it has its defaults and its owners and is written out again. The
/// largest objects that etcd takes would need to spend less than 21 bytes on each map to have as many.
pub const MAPS_MAX: usize = 75_000;

/// Bytes of a body in which there is no room for [`MAPS_MAX`].
const UNCOUNTED_BYTES_MAX: usize = 2 * MAPS_MAX;

/// Refuses an object with more than [`MAPS_MAX`] maps, which came with a body of `bytes`.
pub fn check_maps(root: &Map, bytes: usize) -> Result<(), Failure> {
    if bytes <= UNCOUNTED_BYTES_MAX || maps_in(root) <= MAPS_MAX {
        return Ok(());
    }
    let why = format!("Request entity too large: an object may hold at most {MAPS_MAX} maps");
    Err(Status::too_large(why))
}

fn maps_in(map: &Map) -> usize {
    let members = map.iter().filter(|(key, _)| *key != "fieldsV1");
    1 + members.map(|(_, value)| maps_in_value(value)).sum::<usize>()
}

fn maps_in_value(value: &Value) -> usize {
    match value {
        Value::Object(map) => maps_in(map),
        Value::Array(items) => items.iter().map(maps_in_value).sum(),
        Value::Raw(text) => json_text::maps_in(text),
        _ => 0,
    }
}

/// Reads a body of the kind that `schema` describes. A missing `kind` or `apiVersion` is taken from the
/// schema; other ones are refused.
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
        && let Some(object) = decode_plain(schema, body)
    {
        return Ok(Decoded { object, strict: vec![] });
    }
    let (value, mut strict) = read(body, format).map_err(|why| unrecognized(schema, body, &why))?;
    let given = given_gvk(&value, schema).map_err(|why| unrecognized(schema, body, &why))?;
    if schema.types.is_custom_resource() {
        if value.str_at(&["kind"]).unwrap_or_default().is_empty() {
            let why = format!("Object 'Kind' is missing in '{}'", String::from_utf8_lossy(body));
            return Err(unrecognized(schema, body, &why));
        }
        check_version(value.str_at(&["apiVersion"]).unwrap_or_default(), schema)?;
        check_custom_type(&value, schema)?;
    }
    let mismatched = |why: String| mismatched(&given, schema, &why);
    if given != schema.gvk {
        check_gvk(&given, schema, is_known).map_err(mismatched)?;
        check_version(&given.api_version(), schema)?;
    }
    let text = (format == Format::Json).then_some(body);
    let mut decoded = conform_body(schema, value, text).map_err(mismatched)?;
    strict.append(&mut decoded.strict);
    Ok(Decoded { strict, ..decoded })
}

/// Refuses a custom resource of another kind or version than that of its endpoint: upstream reads it without a
/// type, and finds that when it validates it.
pub fn check_custom_type(value: &Value, schema: &Schema) -> Result<(), Failure> {
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

/// The object of a JSON body about which there is nothing to say: the short way for nearly all bodies.
fn decode_plain(schema: &Schema, body: &[u8]) -> Option<Object> {
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

/// Protobuf has no strict decoding: what no field takes is skipped.
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
    Ok(Decoded { object, strict: vec![] })
}

/// The refusal of a body whose kind cannot be told.
fn unrecognized(schema: &Schema, body: &[u8], why: &str) -> Failure {
    Status::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): {why} ({})",
        schema.gvk.kind,
        summary(body)
    ))
}

/// The refusal of a body whose kind is told.
fn mismatched(given: &GroupVersionKind, schema: &Schema, why: &str) -> Failure {
    Status::bad_request(format!(
        "{} in version {} cannot be handled as a {}: {why}",
        given.kind,
        quote(&given.version),
        schema.gvk.kind
    ))
}

/// Puts a value into canonical form, and names what strict decoding refuses.
pub fn conform(schema: &Schema, value: Value) -> Result<Decoded, String> {
    conform_in(schema, value, Words::Json)
}

/// The same, with wrong types told in other words.
pub fn conform_in(schema: &Schema, value: Value, words: Words) -> Result<Decoded, String> {
    conform_by(Conform::new(&schema.types, words), schema, value, None)
}

/// The same for a value that was read of a body; `text` is that, if it is JSON.
fn conform_body(schema: &Schema, value: Value, text: Option<&[u8]>) -> Result<Decoded, String> {
    let mut walk = Conform::new(&schema.types, Words::Json);
    walk.sorts_texts = text.is_none();
    conform_by(walk, schema, value, text)
}

fn conform_by<'s>(
    mut walk: Conform<'s>,
    schema: &'s Schema,
    value: Value,
    text: Option<&[u8]>,
) -> Result<Decoded, String> {
    let mut root = walk.object(schema.root(), value).map_err(|e| e.0)?;
    if let Some(text) = text.filter(|_| walk.has_texts) {
        json::keep_texts(text, &mut root);
    }
    root.remove("kind");
    root.remove("apiVersion");
    let mut object = Object { root };
    object.set_gvk(&schema.gvk);
    if schema.types.is_custom_resource() {
        walk.unknown.sort_by(|one, other| order_of_unknown(one).cmp(&order_of_unknown(other)));
    }
    let strict = walk.unknown.iter().map(|path| format!("unknown field {}", quote(path))).collect();
    Ok(Decoded { object, strict })
}

/// Upstream looks for unknown fields in the metadata of a custom resource, then in the rest, and then in the
/// metadata of resources within it.
fn order_of_unknown(path: &str) -> (u8, &str) {
    if path.starts_with("metadata.") {
        (0, "")
    } else if path.contains(".metadata.") {
        (2, "")
    } else {
        (1, path)
    }
}

/// The value that a body says, without a kind in mind; errors in upstream's words.
pub fn read_plain(body: &[u8], format: Format) -> Result<Value, String> {
    read(body, format).map(|(value, _)| value)
}

/// The value that a body says, and its duplicates as strict decoding tells them.
fn read(body: &[u8], format: Format) -> Result<(Value, Vec<String>), String> {
    match format {
        Format::Json => {
            let parsed = json::parse(body)
                .map_err(|e| format!("couldn't get version/kind; json parse error: {e}"))?;
            let strict = parsed.duplicates.iter();
            let strict = strict.map(|path| format!("duplicate field {}", quote(path))).collect();
            Ok((parsed.value, strict))
        }
        Format::Yaml => {
            let text = std::str::from_utf8(body)
                .map_err(|_| "yaml: control characters are not allowed".to_owned())?;
            let parsed = yaml::parse(text).map_err(|e| e.to_string())?;
            Ok((parsed.value, yaml_strict(&parsed.duplicates)))
        }
        Format::Cbor => {
            let value = cbor::parse(body)
                .map_err(|e| format!("unable to determine group/version/kind: {e}"))?;
            Ok((value, vec![]))
        }
        Format::Protobuf => Err("protobuf cannot be read without a kind in mind".to_owned()),
    }
}

/// The one line that strict YAML decoding adds when keys stand twice.
pub fn yaml_strict(duplicates: &[(usize, String)]) -> Vec<String> {
    if duplicates.is_empty() {
        return vec![];
    }
    let mut text = "yaml: unmarshal errors:".to_owned();
    for (line, key) in duplicates {
        text.push_str(&format!("\n  line {line}: key {} already set in map", quote(key)));
    }
    vec![text]
}

/// The kind that a body says it is, with what it leaves out taken from the schema.
pub fn given_gvk(value: &Value, schema: &Schema) -> Result<GroupVersionKind, String> {
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
    let text = |name: &str| match root.get(name) {
        None | Some(Value::Null) => Ok(Str::default()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(parse_error(format!(
            "json: cannot unmarshal {} into Go struct field .{name} of type string",
            other.type_name()
        ))),
    };
    complete_gvk(&text("apiVersion")?, &text("kind")?, schema)
}

/// The kind of these words; what is empty is taken from the schema.
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
        Some(gv) => Ok(gv.kind(kind)),
        None => Err(format!("unexpected GroupVersion string: {api_version}")),
    }
}

/// Refuses a kind that is not known, or that is not the expected one in any version.
pub fn check_gvk(
    given: &GroupVersionKind,
    schema: &Schema,
    is_known: IsKnown<'_>,
) -> Result<(), String> {
    if !is_known_to(schema, given, is_known) {
        return Err(format!(
            "no kind {} is registered for version {} in scheme {}",
            quote(&given.kind),
            quote(&given.api_version()),
            quote(scheme(&schema.gvk.group))
        ));
    }
    if given.kind != schema.gvk.kind || hub_group(given) != hub_group(&schema.gvk) {
        return Err(format!(
            "converting ({}.{}) to ({}.{}): unknown conversion",
            given.version,
            given.kind,
            package(&schema.gvk.group),
            schema.gvk.kind
        ));
    }
    Ok(())
}

/// The same for an object that names no version: upstream takes it for one of its types within the server.
pub fn check_internal(
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

/// Whether the part of a server that serves a kind knows another one: definitions have a scheme of their own.
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

/// The group in which all versions of a kind meet; a few kinds moved from one group to another.
fn hub_group(gvk: &GroupVersionKind) -> &str {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("events.k8s.io", "Event") => "",
        ("extensions", "DaemonSet" | "Deployment" | "ReplicaSet") => "apps",
        ("extensions", "Ingress" | "NetworkPolicy") => "networking.k8s.io",
        (group, _) => group,
    }
}

/// Refuses an object whose version is not that of the URL, though its kind is.
pub fn check_version(given: &str, schema: &Schema) -> Result<(), Failure> {
    let expected = schema.gvk.api_version();
    if given.is_empty() || given == expected {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "the API version in the data ({given}) does not match the expected API version ({expected})"
    )))
}

/// Where upstream registers the kinds of a group.
fn scheme(group: &str) -> &'static str {
    match group {
        "apiextensions.k8s.io" => "k8s.io/apiextensions-apiserver/pkg/apiserver/apiserver.go:55",
        "apiregistration.k8s.io" => "k8s.io/kube-aggregator/pkg/apiserver/scheme/scheme.go:38",
        _ => "pkg/api/legacyscheme/scheme.go:30",
    }
}

/// The name of upstream's internal package for a group.
fn package(group: &str) -> &str {
    match group {
        "" => "core",
        "internal.apiserver.k8s.io" => "apiserverinternal",
        group => group.split('.').next().unwrap_or(group),
    }
}

/// The beginning of a body as refusals show it: text of a map, else hex.
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
