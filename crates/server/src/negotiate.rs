//! Content negotiation: which form of an answer a client accepts, which form its body has.

use keelson_meta::status::Details;
use keelson_meta::{Failure, Reason, Status};
use keelson_schema::decode::Format;

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
}

/// What of an object an answer shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shape {
    /// All of it.
    #[default]
    Object,
    /// A row of a table.
    Table,
    /// Its metadata.
    Partial,
    /// The metadata of a list's objects.
    PartialList,
}

/// What a client accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// Encoding.
    pub encoding: Encoding,
    /// What of the object.
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
        }
    }
}

/// One entry of an Accept header.
struct Entry<'a> {
    media: &'a str,
    quality: u32,
    as_kind: &'a str,
    group: &'a str,
    version: &'a str,
}

/// The form in which objects and lists are answered. `protobuf` says whether the answer has that form.
pub fn accept(header: Option<&str>, protobuf: bool) -> Result<Accepted, Failure> {
    let header = header.map(str::trim).filter(|text| !text.is_empty()).unwrap_or("*/*");
    for entry in entries(header) {
        let encoding = match entry.media {
            "*/*" | "application/json" => Encoding::Json,
            "application/yaml" => Encoding::Yaml,
            "application/vnd.kubernetes.protobuf" if protobuf => Encoding::Protobuf,
            _ => continue,
        };
        let shape = match (entry.as_kind, entry.group, entry.version) {
            ("", ..) => Shape::Object,
            ("Table", "meta.k8s.io", "v1" | "v1beta1") => Shape::Table,
            ("PartialObjectMetadata", "meta.k8s.io", "v1" | "v1beta1") => Shape::Partial,
            ("PartialObjectMetadataList", "meta.k8s.io", "v1" | "v1beta1") => Shape::PartialList,
            _ => continue,
        };
        // Tables have no protobuf form; metadata alone has none yet.
        if shape != Shape::Object && encoding == Encoding::Protobuf {
            continue;
        }
        return Ok(Accepted { encoding, shape, meta_v1beta1: entry.version == "v1beta1" });
    }
    Err(not_acceptable())
}

/// The 406 with the forms that there are.
pub fn not_acceptable() -> Failure {
    let mut status = Status::new(
        Reason::NotAcceptable,
        "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf",
    );
    status.details = Some(Details::default());
    status
}

/// The 406 of verbs whose answers are only ever plain objects.
pub fn only_these() -> Failure {
    Status::new(
        Reason::NotAcceptable,
        "only the following media types are accepted: application/json, application/yaml, \
         application/vnd.kubernetes.protobuf",
    )
}

/// The 406 of a watch in a form that has no streams.
pub fn only_streams() -> Failure {
    Status::new(
        Reason::NotAcceptable,
        "only the following media types are accepted: application/json;stream=watch, \
         application/vnd.kubernetes.protobuf;stream=watch",
    )
}

/// The entries of an Accept header, the most wanted first; equal ones in their order.
fn entries(header: &str) -> Vec<Entry<'_>> {
    let mut entries: Vec<Entry<'_>> = header
        .split(',')
        .map(|part| {
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
        })
        .collect();
    entries.sort_by_key(|entry| std::cmp::Reverse(entry.quality));
    entries
}

/// The form of a request's body; absent is JSON.
pub fn body_format(header: Option<&str>) -> Result<Format, Failure> {
    let header = header.unwrap_or("application/json");
    let media = header.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match media.as_str() {
        "application/json" => Ok(Format::Json),
        // A header of nothing is none.
        "" if header.is_empty() => Ok(Format::Json),
        "application/yaml" => Ok(Format::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(Format::Protobuf),
        _ => Err(Status::new(
            Reason::UnsupportedMediaType,
            "the body of the request was in an unknown format - accepted media types include: \
             application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(header: &str, want: Result<(Encoding, Shape), u16>) {
        let got = accept(Some(header), true);
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
    }
}
