//! Content negotiation: which form of an answer a client accepts, which form its body has.

use bytes::Bytes;
use keelson_meta::status::Details;
use keelson_meta::{Failure, Object, Reason, Status};
use keelson_schema::decode::Format;
use keelson_schema::{Schema, cbor, json, proto};

/// The encoding of an answer.
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

/// The encodings of objects, in the order in which refusals name them. The last one only where it is
/// switched on.
const ENCODINGS: [Encoding; 4] =
    [Encoding::Json, Encoding::Yaml, Encoding::Protobuf, Encoding::Cbor];

/// The encodings that objects are read and written in.
pub fn spoken(cbor: bool) -> &'static [Encoding] {
    if cbor { &ENCODINGS } else { &ENCODINGS[..3] }
}

/// The encodings of documents that are no objects.
pub fn of_documents() -> &'static [Encoding] {
    &ENCODINGS[..3]
}

/// The form of an object in an answer: whole, metadata only or a table row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// All of it.
    #[default]
    Object,
    /// A row of a table.
    Table,
    /// `PartialObjectMetadata`.
    Partial,
    /// The metadata of a list's objects.
    PartialList,
}

/// A media type that the client accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Encoding.
    pub encoding: Encoding,
    /// The form of the object.
    pub shape: Shape,
    /// The version of meta.k8s.io in which tables and metadata are shown.
    pub meta_v1beta1: bool,
}

impl Encoding {
    /// The media type on the wire.
    pub fn media_type(self) -> &'static str {
        match self {
            Encoding::Json => "application/json",
            Encoding::Yaml => "application/yaml",
            Encoding::Protobuf => "application/vnd.kubernetes.protobuf",
            Encoding::Cbor => "application/cbor",
        }
    }

    /// The media type of a watch; none when events cannot be told apart in this encoding.
    pub fn stream_media_type(self) -> Option<&'static str> {
        match self {
            Encoding::Json => Some("application/json"),
            Encoding::Yaml => None,
            Encoding::Protobuf => Some("application/vnd.kubernetes.protobuf;stream=watch"),
            // `application/cbor` would be one item only.
            Encoding::Cbor => Some("application/cbor-seq"),
        }
    }
}

impl Encoding {
    /// An object as [`crate::respond::encoded`] takes it: JSON for the encodings of text.
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
    as_kind: &'a str,
    group: &'a str,
    version: &'a str,
}

/// The form in which objects and lists are answered, out of the encodings that there are.
pub fn accept(header: Option<&str>, spoken: &[Encoding]) -> Result<Accepted, Failure> {
    choose(header, spoken, |_, _| true)
}

/// The same for custom resources, of which protobuf can carry the metadata alone.
pub fn accept_custom(header: Option<&str>, spoken: &[Encoding]) -> Result<Accepted, Failure> {
    let is_metadata = |shape| matches!(shape, Shape::Partial | Shape::PartialList);
    choose(header, spoken, |encoding, shape| encoding != Encoding::Protobuf || is_metadata(shape))
}

/// The same for what is not printed as a table.
pub fn accept_without_tables(
    header: Option<&str>,
    spoken: &[Encoding],
) -> Result<Accepted, Failure> {
    choose(header, spoken, |_, shape| shape != Shape::Table)
}

fn choose(
    header: Option<&str>,
    spoken: &[Encoding],
    takes: impl Fn(Encoding, Shape) -> bool,
) -> Result<Accepted, Failure> {
    let header = header.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("*/*");
    let mut is_spoken = false;
    let (one, many);
    let entries: &[Entry<'_>] = if header.contains(',') {
        many = entries(header);
        &many
    } else {
        one = [entry(header)];
        &one
    };
    for entry in entries {
        let mut wanted =
            spoken.iter().filter(|e| entry.media == "*/*" || entry.media == e.media_type());
        let Some(&encoding) = wanted.next() else { continue };
        is_spoken = true;
        let shape = match (entry.as_kind, entry.group, entry.version) {
            ("", ..) => Shape::Object,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => Shape::Table,
            ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") => Shape::Partial,
            ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => Shape::PartialList,
            _ => continue,
        };
        // Tables are for people.
        if shape == Shape::Table && !matches!(encoding, Encoding::Json | Encoding::Yaml) {
            continue;
        }
        if !takes(encoding, shape) {
            continue;
        }
        return Ok(Accepted { encoding, shape, meta_v1beta1: entry.version == "v1beta1" });
    }
    Err(if is_spoken { only_these(spoken) } else { not_acceptable(spoken) })
}

/// The form of a page about a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComponentForm {
    /// For people.
    Text,
    /// An object of `config.k8s.io`.
    Object {
        /// JSON or YAML.
        encoding: Encoding,
        /// The version of the group.
        version: &'static str,
    },
}

/// The versions of `config.k8s.io` in which pages about a component are shown.
const COMPONENT_VERSIONS: [&str; 2] = ["v1alpha1", "v1beta1"];

/// The form of a page about a component; objects of `kind` must be asked for with their group and version.
pub fn accept_component(header: Option<&str>, kind: &str) -> Result<ComponentForm, Failure> {
    let header = header.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("*/*");
    for entry in entries(header) {
        let encoding = match entry.media {
            "text/plain" | "*/*" if entry.as_kind.is_empty() => return Ok(ComponentForm::Text),
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

/// The 406 of media types that nobody knows.
fn not_acceptable(spoken: &[Encoding]) -> Failure {
    let mut status = Status::new(
        Reason::NotAcceptable,
        format!("406: Not Acceptable\n\nAvailable representations: {}", names(spoken)),
    );
    status.details = Some(Details::default());
    status
}

/// The 406 of media types that are known, but not in this shape.
fn only_these(spoken: &[Encoding]) -> Failure {
    let names = names(spoken);
    Status::new(
        Reason::NotAcceptable,
        format!("only the following media types are accepted: {names}"),
    )
}

/// The media type of a watch, or 406.
pub fn accept_stream(encoding: Encoding, spoken: &[Encoding]) -> Result<&'static str, Failure> {
    encoding.stream_media_type().ok_or_else(|| {
        let streams = spoken.iter().filter_map(|encoding| match encoding {
            Encoding::Json => Some("application/json;stream=watch"),
            other => other.stream_media_type(),
        });
        let names = streams.collect::<Vec<_>>().join(", ");
        let why = format!("only the following media types are accepted: {names}");
        Status::new(Reason::NotAcceptable, why)
    })
}

fn names(spoken: &[Encoding]) -> String {
    spoken.iter().map(|encoding| encoding.media_type()).collect::<Vec<_>>().join(", ")
}

/// The entries of an Accept header, the most wanted first; equal ones in their order.
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
        as_kind: "",
        group: "",
        version: "",
    };
    for (name, value) in words.filter_map(|word| word.split_once('=')) {
        match name.trim() {
            "q" => {
                let quality: f32 = value.trim().parse().unwrap_or(0.0);
                entry.quality = (quality.clamp(0.0, 1.0) * 1000.0) as u32;
            }
            "as" => entry.as_kind = value.trim(),
            "g" => entry.group = value.trim(),
            "v" => entry.version = value.trim(),
            _ => {}
        }
    }
    entry
}

/// The 415 of a body whose form is not one of these.
pub fn unsupported_body(spoken: &[Encoding]) -> Failure {
    let names = names(spoken);
    let why = format!(
        "the body of the request was in an unknown format - accepted media types include: {names}"
    );
    Status::new(Reason::UnsupportedMediaType, why)
}

/// The form of a request's body; absent is JSON.
pub fn body_format(header: Option<&str>, spoken: &[Encoding]) -> Result<Format, Failure> {
    let header = header.unwrap_or("application/json");
    // A header of nothing is none.
    if header.is_empty() {
        return Ok(Format::Json);
    }
    let media = header.split(';').next().unwrap_or_default().trim();
    match spoken.iter().find(|encoding| encoding.media_type().eq_ignore_ascii_case(media)) {
        Some(Encoding::Json) => Ok(Format::Json),
        Some(Encoding::Yaml) => Ok(Format::Yaml),
        Some(Encoding::Protobuf) => Ok(Format::Protobuf),
        Some(Encoding::Cbor) => Ok(Format::Cbor),
        None => Err(unsupported_body(spoken)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, want: Result<(Encoding, Shape), u16>) {
        let got = accept(Some(header), spoken(false));
        let got = got.map(|a| (a.encoding, a.shape)).map_err(|status| status.code);
        assert_eq!(got, want, "{header}");
    }

    #[test]
    fn the_most_wanted_form_that_there_is_wins() {
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
        check("application/*", Err(406));
        check("garbage", Err(406));
        check("application/cbor", Err(406));
    }

    #[test]
    fn objects_of_custom_resources_are_not_protobuf() {
        let check = |header: &str, want: Result<(Encoding, Shape), u16>| {
            let got = accept_custom(Some(header), spoken(false));
            let got = got.map(|a| (a.encoding, a.shape)).map_err(|status| status.code);
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
    fn refusals_name_what_there_is() {
        let why = |header: &str, cbor: bool| {
            accept(Some(header), spoken(cbor)).map_err(|status| status.message.to_string())
        };
        let known = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
        let unknown = format!("406: Not Acceptable\n\nAvailable representations: {known}");
        assert_eq!(why("application/cbor", false), Err(unknown));
        let only =
            format!("only the following media types are accepted: {known}, application/cbor");
        assert_eq!(why("application/cbor;as=Table;v=v1;g=meta.k8s.io", true), Err(only));
        let streams = accept_stream(Encoding::Yaml, spoken(true)).map_err(|status| status.message);
        let want = "only the following media types are accepted: application/json;stream=watch, \
                    application/vnd.kubernetes.protobuf;stream=watch, application/cbor-seq";
        assert_eq!(streams.map_err(|text| text.to_string()), Err(want.to_owned()));
    }
}
