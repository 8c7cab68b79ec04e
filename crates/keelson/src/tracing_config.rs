//! [`TracingOptions`]: the file of `--tracing-config-file` (`TracingConfiguration` of
//! `apiserver.config.k8s.io`), read strictly, with kube-apiserver's messages.

use crate::files::go_words;
use keelson_meta::Value;
use keelson_meta::go_url::Url;
use keelson_meta::status::quote;
use keelson_schema::types::Types;
use keelson_schema::{Field, Shape, Struct, StructId, decode};
use std::path::Path;
use std::sync::LazyLock;

const GROUP: &str = "apiserver.config.k8s.io/";
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
const KIND: &str = "TracingConfiguration";
/// Where an OpenTelemetry collector listens for gRPC.
const ENDPOINT_DEFAULT: &str = "localhost:4317";
const SAMPLES_MAX: i64 = 1_000_000;
const ROOT: StructId = StructId(0);

static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let fields = vec![
        Field::new("kind", Shape::String),
        Field::new("apiVersion", Shape::String),
        Field::new("endpoint", Shape::String),
        Field::new("samplingRatePerMillion", Shape::Int32),
    ];
    Types::new(vec![Struct::new(format!("io.k8s.component-base.tracing.api.v1.{KIND}"), fields)])
});

/// Where spans are sent, and how many traces are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingOptions {
    /// The collector: `host:port`, `dns:///host:port`, `unix:///path` or `unix-abstract:name`. OTLP
    /// over gRPC without TLS.
    pub endpoint: String,
    /// How many of a million traces are recorded, beside those that privileged callers record.
    pub samples_per_million: u32,
}

impl Default for TracingOptions {
    fn default() -> Self {
        TracingOptions { endpoint: ENDPOINT_DEFAULT.to_owned(), samples_per_million: 0 }
    }
}

impl TracingOptions {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<TracingOptions, String> {
        let failed = |why: String| format!("failed to read tracing config: {why}");
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let quoted = quote(&shown);
            let why = go_words(path, &error);
            failed(format!("unable to read tracing configuration from {quoted}: {why}"))
        })?;
        TracingOptions::parse(&text)
    }

    fn parse(text: &str) -> Result<TracingOptions, String> {
        let file = decode(text).map_err(|why| {
            format!(
                "failed to read tracing config: unable to decode tracing configuration data: {why}"
            )
        })?;
        let endpoint = file.str_at(&["endpoint"]);
        let samples = file.int_at(&["samplingRatePerMillion"]);
        let mut errors = vec![];
        if let Some(samples) = samples {
            errors.extend(check_samples(samples).err());
        }
        errors.extend(endpoint.and_then(|endpoint| check_endpoint(endpoint).err()));
        match errors.as_slice() {
            [] => Ok(TracingOptions {
                endpoint: endpoint.unwrap_or(ENDPOINT_DEFAULT).to_owned(),
                samples_per_million: u32::try_from(samples.unwrap_or(0)).unwrap_or_default(),
            }),
            [error] => Err(format!("failed to validate tracing configuration: {error}")),
            errors => {
                Err(format!("failed to validate tracing configuration: [{}]", errors.join(", ")))
            }
        }
    }
}

fn decode(text: &str) -> Result<Value, String> {
    decode::configuration_file(&TYPES, ROOT, text, GROUP, &VERSIONS, KIND)
}

fn check_samples(samples: i64) -> Result<(), String> {
    let invalid = |why| Err(format!("samplingRatePerMillion: Invalid value: {samples}: {why}"));
    if samples < 0 {
        return invalid("sampling rate must be positive");
    }
    if samples > SAMPLES_MAX {
        return invalid("sampling rate per million must be less than or equal to one million");
    }
    Ok(())
}

fn check_endpoint(endpoint: &str) -> Result<(), String> {
    // Without a scheme it is a name for DNS.
    let given =
        if endpoint.contains("//") { endpoint.to_owned() } else { format!("dns://{endpoint}") };
    let invalid = |why: String| {
        let shown = if given == endpoint { endpoint } else { &given };
        Err(format!("endpoint: Invalid value: {}: {why}", quote(shown)))
    };
    let url = match Url::parse(&given) {
        Ok(url) => url,
        Err(why) => return invalid(why),
    };
    match url.scheme.as_str() {
        "dns" | "unix" | "unix-abstract" => Ok(()),
        scheme => invalid(format!(
            "unsupported scheme: {scheme}.  Options are none, dns, unix, or unix-abstract.  See \
             https://github.com/grpc/grpc/blob/master/doc/naming.md"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(rest: &str) -> Result<TracingOptions, String> {
        let head = r#"{"kind":"TracingConfiguration","apiVersion":"apiserver.config.k8s.io/v1""#;
        TracingOptions::parse(&format!("{head}{rest}}}"))
    }

    #[test]
    fn fields_have_upstreams_defaults() {
        let options = TracingOptions { endpoint: "localhost:4317".into(), samples_per_million: 0 };
        assert_eq!(parsed(""), Ok(options));
        let options = TracingOptions { endpoint: "unix:///a".into(), samples_per_million: 7 };
        assert_eq!(parsed(r#","endpoint":"unix:///a","samplingRatePerMillion":7"#), Ok(options));
    }

    /// Recorded from kube-apiserver 1.36.3.
    #[test]
    fn wrong_files_get_upstreams_messages() {
        let read = "failed to read tracing config: unable to decode tracing configuration data: ";
        let valid = "failed to validate tracing configuration: ";
        for (rest, want) in [
            (
                r#","samplingRatePerMillion":-1"#,
                format!(
                    "{valid}samplingRatePerMillion: Invalid value: -1: sampling rate must be positive"
                ),
            ),
            (
                r#","samplingRatePerMillion":1000001"#,
                format!(
                    "{valid}samplingRatePerMillion: Invalid value: 1000001: sampling rate per \
                     million must be less than or equal to one million"
                ),
            ),
            (
                r#","endpoint":"http://a:b""#,
                format!(
                    "{valid}endpoint: Invalid value: \"http://a:b\": parse \"http://a:b\": invalid \
                     port \":b\" after host"
                ),
            ),
            (
                r#","endpoint":"%zz""#,
                format!(
                    "{valid}endpoint: Invalid value: \"dns://%zz\": parse \"dns://%zz\": invalid \
                     URL escape \"%zz\""
                ),
            ),
            (
                r#","endpoint":"ftp://a""#,
                format!(
                    "{valid}endpoint: Invalid value: \"ftp://a\": unsupported scheme: ftp.  \
                     Options are none, dns, unix, or unix-abstract.  See \
                     https://github.com/grpc/grpc/blob/master/doc/naming.md"
                ),
            ),
            (r#","foo":1"#, format!("{read}strict decoding error: unknown field \"foo\"")),
            (
                r#","samplingRatePerMillion":"x""#,
                format!(
                    "{read}json: cannot unmarshal string into Go struct field \
                     TracingConfiguration.samplingRatePerMillion of type int32"
                ),
            ),
        ] {
            assert_eq!(parsed(rest), Err(want), "{rest}");
        }
        let other = r#"{"kind":"Foo","apiVersion":"apiserver.config.k8s.io/v1"}"#;
        let want = format!(
            "{read}no kind \"Foo\" is registered for version \"apiserver.config.k8s.io/v1\" in \
             scheme \"pkg/runtime/scheme.go:111\""
        );
        assert_eq!(TracingOptions::parse(other), Err(want));
    }
}
