//! Content negotiation: the encoding and shape of a response, and the format of a request body.

use crate::media_parameters;
use bytes::Bytes;
use keelson_meta::status::Details;
use keelson_meta::{Failure, Object, Reason, Status};
use keelson_schema::decode::Format;
use keelson_schema::{Schema, cbor, json, proto};
use smallvec::SmallVec;

/// The encoding of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// `application/json`.
    #[default]
    Json,
    /// `application/yaml`.
    Yaml,
    /// `application/vnd.kubernetes.protobuf`.
    Protobuf,
    /// `application/cbor`.
    Cbor,
}

/// The encodings of objects, in the order in which error messages list them. CBOR only if it is
/// switched on.
const ENCODINGS: [Encoding; 4] =
    [Encoding::Json, Encoding::Yaml, Encoding::Protobuf, Encoding::Cbor];

/// Returns the encodings of objects.
pub fn supported_encodings(cbor: bool) -> &'static [Encoding] {
    if cbor { &ENCODINGS } else { &ENCODINGS[..3] }
}

/// Returns the encodings of discovery documents.
fn document_encodings() -> &'static [Encoding] {
    &ENCODINGS[..3]
}

/// The shape of objects in a response: complete, metadata only, or a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// The complete object.
    #[default]
    Object,
    /// A table (`Table`).
    Table,
    /// `PartialObjectMetadata`.
    Partial,
    /// `PartialObjectMetadataList`.
    PartialList,
}

/// A media type that the client accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// The encoding.
    pub encoding: Encoding,
    /// The shape.
    pub shape: Shape,
    /// Whether tables and metadata have version v1beta1 of meta.k8s.io instead of v1.
    pub meta_v1beta1: bool,
}

impl Encoding {
    /// Returns the media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
            Encoding::Cbor => "application/cbor",
        }
    }

    /// Returns the encoding that a Content-Type names; its parameters do not count.
    pub(crate) fn of_media_type(text: &str) -> Option<Encoding> {
        let media = text.split(';').next().unwrap_or_default().trim();
        ENCODINGS.into_iter().find(|encoding| encoding.media_type().eq_ignore_ascii_case(media))
    }

    /// Returns the media type of a watch, or `None` if the encoding has no framing of events.
    pub fn stream_media_type(self) -> Option<&'static str> {
        match self {
            Encoding::Json => Some("application/json"),
            Encoding::Yaml => None,
            Encoding::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
            // `application/cbor` means a single item.
            Encoding::Cbor => Some("application/cbor-seq"),
        }
    }
}

impl Encoding {
    /// Encodes an object for [`crate::respond::encoded`]: as JSON for JSON and YAML.
    pub(crate) fn object(self, schema: &Schema, obj: &Object) -> Result<Bytes, Failure> {
        let mut out = vec![];
        match self {
            Encoding::Json | Encoding::Yaml => drop(json::encode(schema, obj, &mut out)),
            Encoding::Protobuf => proto::encode(schema, obj, &mut out)
                .map_err(|error| Status::internal(error.to_string()))?,
            Encoding::Cbor => cbor::encode(schema, obj, &mut out),
        }
        Ok(Bytes::from(out))
    }
}

/// A clause of an Accept header.
struct Entry<'a> {
    media: &'a str,
    quality: u32,
    /// Whether one of `as`, `g` and `v` is given, also without a value.
    converts: bool,
    as_kind: &'a str,
    group: &'a str,
    version: &'a str,
    pretty: bool,
}

impl Entry<'_> {
    fn names(&self, encoding: Encoding) -> bool {
        matches!(self.media, "*/*" | "*" | "application/*") || self.media == encoding.media_type()
    }
}

/// Returns whether the first entry for JSON asks for indentation (`application/json;pretty=1`).
pub fn accepts_pretty(header: Option<&str>) -> bool {
    // Nearly no client does.
    let Some(header) = header.filter(|text| text.contains("pretty")) else { return false };
    entries(header).iter().find(|entry| entry.names(Encoding::Json)).is_some_and(|e| e.pretty)
}

/// Negotiates the encoding and shape of objects and lists.
pub fn accept(header: Option<&str>, supported: &[Encoding]) -> Result<Accepted, Failure> {
    choose(header, supported, |_, _| true)
}

/// Like [`accept`], for custom resources, which support protobuf only for metadata.
pub fn accept_custom(header: Option<&str>, supported: &[Encoding]) -> Result<Accepted, Failure> {
    let is_metadata = |shape| matches!(shape, Shape::Partial | Shape::PartialList);
    choose(header, supported, |encoding, shape| {
        encoding != Encoding::Protobuf || is_metadata(shape)
    })
}

/// Like [`accept`], for responses that cannot be tables.
pub fn accept_without_tables(
    header: Option<&str>,
    supported: &[Encoding],
) -> Result<Accepted, Failure> {
    choose(header, supported, |_, shape| shape != Shape::Table)
}

/// Like [`accept`], for responses that have only one shape: errors and discovery.
pub fn accept_plain(header: Option<&str>, supported: &[Encoding]) -> Result<Encoding, Failure> {
    // Unlike that of an object, the form of these may not name a conversion, not even to nothing.
    let entries = entries(header.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("*/*"));
    let plain = entries.iter().filter(|entry| !entry.converts);
    let encoding =
        plain.flat_map(|entry| supported.iter().find(|encoding| entry.names(**encoding)));
    encoding.copied().next().ok_or_else(|| unsupported_shape(supported))
}

/// Like [`accept_plain`], for the documents of `/api` and of built-in group versions.
pub fn accept_document(header: Option<&str>) -> Result<Encoding, Failure> {
    let supported = document_encodings();
    check_route(header, supported, false)?;
    accept_plain(header, supported)
}

/// Like [`accept_plain`], for the documents of `/apis`, groups, and custom group versions.
pub fn accept_group(header: Option<&str>) -> Result<Encoding, Failure> {
    accept_plain(header, document_encodings())
}

/// Returns the encoding of the aggregated discovery document (`as=APIGroupDiscoveryList`); `None`
/// if the client does not accept it, or prefers the other one.
pub fn accept_aggregated(header: Option<&str>) -> Option<Encoding> {
    entries(header?).iter().find_map(|entry| {
        let encoding = document_encodings().iter().find(|encoding| entry.names(**encoding))?;
        match (entry.as_kind, entry.group, entry.version) {
            _ if !entry.converts => Some(None),
            ("APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") => Some(Some(*encoding)),
            _ => None,
        }
    })?
}

/// Checks that the client accepts the only media type of a page.
pub fn check_accepts(header: Option<&str>, media_type: &str) -> Result<(), Failure> {
    if accepts(header, &[media_type]) { Ok(()) } else { Err(no_representation(media_type)) }
}

/// Checks that the client accepts an encoding of a built-in resource, as upstream's routes do
/// before anything else. `streams`: whether the route also serves watches.
pub fn check_route(
    header: Option<&str>,
    supported: &[Encoding],
    streams: bool,
) -> Result<(), Failure> {
    let media_types = supported.iter().map(|encoding| encoding.media_type());
    if header.is_none() || accepts(header, &media_types.collect::<SmallVec<[&str; 4]>>()) {
        return Ok(());
    }
    match streams {
        false => Err(not_acceptable(supported)),
        true => {
            Err(no_representation(&format!("{}, {}", names(supported), stream_names(supported))))
        }
    }
}

/// Like [`check_route`] for the log of a container, which is text.
pub fn check_log_route(header: Option<&str>, supported: &[Encoding]) -> Result<(), Failure> {
    let mut media_types: SmallVec<[&str; 5]> = smallvec::smallvec!["text/plain"];
    media_types.extend(supported.iter().map(|encoding| encoding.media_type()));
    if accepts(header, &media_types) {
        return Ok(());
    }
    Err(no_representation(&media_types.join(", ")))
}

/// Returns whether the client accepts one of the media types. As in go-restful, parameters do not
/// count. An empty header accepts all, an empty part of one nothing.
fn accepts(header: Option<&str>, media_types: &[&str]) -> bool {
    let header = header.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("*/*");
    header.split(',').any(|entry| {
        let media = entry.split(';').next().unwrap_or_default().trim();
        media == "*/*" || media_types.contains(&media)
    })
}

fn choose(
    header: Option<&str>,
    supported: &[Encoding],
    allows: impl Fn(Encoding, Shape) -> bool,
) -> Result<Accepted, Failure> {
    let header = header.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("*/*");
    let (one, many);
    let entries: &[Entry<'_>] = if header.contains(',') {
        many = entries(header);
        &many
    } else {
        one = [entry(header)];
        &one
    };
    for entry in entries {
        let wanted = supported.iter().find(|encoding| entry.names(**encoding));
        let Some(&encoding) = wanted else { continue };
        let shape = match (entry.as_kind, entry.group, entry.version) {
            ("", "", "") => Shape::Object,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => Shape::Table,
            ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") => Shape::Partial,
            ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => Shape::PartialList,
            _ => continue,
        };
        // As upstream, tables are JSON or YAML only.
        if shape == Shape::Table && !matches!(encoding, Encoding::Json | Encoding::Yaml) {
            continue;
        }
        if !allows(encoding, shape) {
            continue;
        }
        return Ok(Accepted { encoding, shape, meta_v1beta1: entry.version == "v1beta1" });
    }
    Err(unsupported_shape(supported))
}

/// The form of `/statusz` and `/flagz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComponentForm {
    /// Plain text.
    Text,
    /// An object of `config.k8s.io`.
    Object {
        /// JSON or YAML.
        encoding: Encoding,
        /// The version of the group.
        version: &'static str,
    },
}

/// The versions of `config.k8s.io` for `/statusz` and `/flagz`.
const COMPONENT_VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];

/// Negotiates the form of `/statusz` and `/flagz`. Objects require `as`, `g` and `v` in the Accept
/// header.
pub fn accept_component(header: Option<&str>, kind: &str) -> Result<ComponentForm, Failure> {
    let header = header.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("*/*");
    for entry in entries(header) {
        let encoding = match entry.media {
            "text/plain" | "*/*" if !entry.converts => return Ok(ComponentForm::Text),
            "application/json" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            _ => continue,
        };
        let version = COMPONENT_VERSIONS.into_iter().find(|version| *version == entry.version);
        if let Some(version) = version
            && entry.as_kind == kind
            && entry.group == "config.k8s.io"
        {
            return Ok(ComponentForm::Object { encoding, version });
        }
    }
    let why = "only the following media types are accepted: application/json, application/yaml, \
               text/plain";
    Err(Status::new(Reason::NotAcceptable, why))
}

/// Returns the 406 of a route that has none of the media types.
fn not_acceptable(supported: &[Encoding]) -> Failure {
    no_representation(&names(supported))
}

fn no_representation(available: &str) -> Failure {
    let mut status = Status::new(
        Reason::NotAcceptable,
        format!("406: Not Acceptable\n\nAvailable representations: {available}"),
    );
    status.details = Some(Details::default());
    status
}

/// Returns the 406 for media types or shapes that cannot be encoded.
fn unsupported_shape(supported: &[Encoding]) -> Failure {
    let names = names(supported);
    Status::new(
        Reason::NotAcceptable,
        format!("only the following media types are accepted: {names}"),
    )
}

/// Returns the media type of a watch, or 406.
pub fn accept_stream(encoding: Encoding, supported: &[Encoding]) -> Result<&'static str, Failure> {
    encoding.stream_media_type().ok_or_else(|| {
        let names = stream_names(supported);
        let why = format!("only the following media types are accepted: {names}");
        Status::new(Reason::NotAcceptable, why)
    })
}

fn stream_names(supported: &[Encoding]) -> String {
    let streams = supported.iter().filter_map(|encoding| match encoding {
        Encoding::Json => Some("application/json;stream=watch"),
        other => other.stream_media_type(),
    });
    streams.collect::<Vec<_>>().join(", ")
}

fn names(supported: &[Encoding]) -> String {
    supported.iter().map(|encoding| encoding.media_type()).collect::<Vec<_>>().join(", ")
}

/// Parses an Accept header into its entries, by descending quality; a stable sort.
fn entries(header: &str) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = header.split(',').map(entry).collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.quality));
    entries
}

fn entry(part: &str) -> Entry<'_> {
    let mut words = part.split(';').map(str::trim);
    let mut entry = Entry {
        media: words.next().unwrap_or_default(),
        quality: 1000,
        converts: false,
        as_kind: "",
        group: "",
        version: "",
        pretty: false,
    };
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        let name = name.trim();
        entry.converts |= matches!(name, "as" | "g" | "v");
        match name {
            "q" => {
                let quality: f32 = value.trim().parse().unwrap_or(0.0);
                entry.quality = (quality.clamp(0.0, 1.0) * 1000.0) as u32;
            }
            "as" => entry.as_kind = value.trim(),
            "g" => entry.group = value.trim(),
            "v" => entry.version = value.trim(),
            "pretty" => entry.pretty = value.trim() == "1",
            _ => {}
        }
    }
    entry
}

/// Returns the 415 for a body in an unsupported format.
pub fn unsupported_body(supported: &[Encoding]) -> Failure {
    let names = names(supported);
    let why = format!(
        "the body of the request was in an unknown format - accepted media types include: {names}"
    );
    Status::new(Reason::UnsupportedMediaType, why)
}

/// Returns the format of a request body; JSON without a Content-Type.
pub fn body_format(header: Option<&str>, supported: &[Encoding]) -> Result<Format, Failure> {
    let header = header.unwrap_or("application/json");
    // An empty header counts as absent.
    if header.is_empty() {
        return Ok(Format::Json);
    }
    let encoding = Encoding::of_media_type(header).filter(|_| media_parameters::are_valid(header));
    match encoding.filter(|encoding| supported.contains(encoding)) {
        Some(Encoding::Json) => Ok(Format::Json),
        Some(Encoding::Yaml) => Ok(Format::Yaml),
        Some(Encoding::Protobuf) => Ok(Format::Protobuf),
        Some(Encoding::Cbor) => Ok(Format::Cbor),
        None => Err(unsupported_body(supported)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, want: Result<(Encoding, Shape), u16>) {
        let got = accept(Some(header), supported_encodings(false))
            .map(|a| (a.encoding, a.shape))
            .map_err(|status| status.code);
        assert_eq!(got, want, "{header}");
    }

    /// Recorded from kube-apiserver 1.36.3.
    #[test]
    fn an_accept_header_asks_for_indentation() {
        for (header, is_pretty) in [
            ("application/json;pretty=1", true),
            ("application/json;pretty=true", false),
            ("application/json;pretty=0", false),
            ("application/json", false),
            ("application/yaml;pretty=1, application/json", false),
        ] {
            assert_eq!(accepts_pretty(Some(header)), is_pretty, "{header}");
        }
    }

    #[test]
    fn the_supported_entry_with_the_highest_quality_wins() {
        check("", Ok((Encoding::Json, Shape::Object)));
        check("text/html,*/*;q=0.8", Ok((Encoding::Json, Shape::Object)));
        check("application/json;q=0.5,application/yaml;q=0.9", Ok((Encoding::Yaml, Shape::Object)));
        check(
            "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            Ok((Encoding::Json, Shape::Table)),
        );
        check(
            "application/json;as=Other;v=v1;g=x,application/json",
            Ok((Encoding::Json, Shape::Object)),
        );
        check("application/*", Ok((Encoding::Json, Shape::Object)));
        check("garbage", Err(406));
        check("application/cbor", Err(406));
    }

    #[test]
    fn objects_of_custom_resources_are_not_protobuf() {
        let check = |header: &str, want: Result<(Encoding, Shape), u16>| {
            let got = accept_custom(Some(header), supported_encodings(false))
                .map(|a| (a.encoding, a.shape))
                .map_err(|status| status.code);
            assert_eq!(got, want, "{header}");
        };
        let protobuf = Encoding::Protobuf.media_type();
        check(protobuf, Err(406));
        check(&format!("{protobuf},application/json"), Ok((Encoding::Json, Shape::Object)));
        let partial = format!("{protobuf};as=PartialObjectMetadata;g=meta.k8s.io;v=v1");
        check(&partial, Ok((Encoding::Protobuf, Shape::Partial)));
    }

    #[test]
    fn a_table_is_never_protobuf() {
        let protobuf = "application/vnd.kubernetes.protobuf;g=meta.k8s.io;v=v1";
        check(&format!("{protobuf};as=Table"), Err(406));
        let partial = format!("{protobuf};as=PartialObjectMetadata");
        check(&partial, Ok((Encoding::Protobuf, Shape::Partial)));
        let both = format!("{protobuf};as=Table,application/json;as=Table;g=meta.k8s.io;v=v1");
        check(&both, Ok((Encoding::Json, Shape::Table)));
    }

    #[test]
    fn errors_list_the_supported_media_types() {
        let why = |header: &str, cbor: bool| {
            accept(Some(header), supported_encodings(cbor))
                .map_err(|status| status.message.to_string())
        };
        let known = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let only = format!("only the following media types are accepted: {known}");
        assert_eq!(why("application/cbor", false), Err(only.clone()));
        let only = format!("{only}, application/cbor");
        assert_eq!(why("application/cbor;as=Table;v=v1;g=meta.k8s.io", true), Err(only));
        let route = |header: &str, streams: bool| {
            check_route(Some(header), supported_encodings(false), streams)
                .map_err(|status| status.message.to_string())
        };
        let unknown = format!("406: Not Acceptable\n\nAvailable representations: {known}");
        assert_eq!(route("application/cbor", false), Err(unknown.clone()));
        let streams =
            "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
        assert_eq!(route("application/*", true), Err(format!("{unknown}, {streams}")));
        assert_eq!(route("text/html, application/yaml;q=0.1", true), Ok(()));
        let streams = accept_stream(Encoding::Yaml, supported_encodings(true))
            .map_err(|status| status.message);
        let want = "only the following media types are accepted: application/json;stream=watch, \
                    application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq";
        assert_eq!(streams.map_err(|text| text.to_string()), Err(want.to_owned()));
    }
}
