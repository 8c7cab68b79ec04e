//! Metrics flags.

use crate::flags::go_files;
use crate::flags::setup::Setup;
use crate::flags::table::{Flag, Group, Kind};
use keelson::MetricsSelection;
use keelson_meta::status::quote;
use keelson_meta::{Map, Value};
use keelson_schema::yaml;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The group.
pub const GROUP: Group = Group {
    title: "Metrics",
    flags: &[
        Flag::new(
            "allow-metric-labels",
            Kind::Labels,
            "",
            "Allowed values of labels: METRIC,LABEL=VALUE,VALUE. Series with others are added up in one with the value \
             unexpected.",
        ),
        Flag::new(
            "allow-metric-labels-manifest",
            Kind::Text,
            "",
            "YAML file with allowed values of labels: METRIC,LABEL: VALUE,VALUE.",
        ),
        Flag::new("disabled-metrics", Kind::List, "", "Metrics that are not served."),
        Flag::new(
            "show-hidden-metrics-for-version",
            Kind::Text,
            "",
            "Version whose hidden metrics are served: the previous one.",
        ),
    ],
};

/// The metrics of `--etcd-count-metric-poll-period`.
const OBJECT_COUNTS: [&str; 3] = [
    "apiserver_resource_objects",
    "apiserver_resource_size_estimate_bytes",
    "apiserver_storage_objects",
];

/// Checks the flags, and says to the server which metrics are served.
pub fn apply(setup: &mut Setup<'_>) {
    let values = setup.values;
    let mut selection = MetricsSelection::default();
    let shown = values.text("show-hidden-metrics-for-version");
    match shown {
        "" => {}
        "1.35" => selection.show_hidden(),
        other => setup.fail(format!(
            "metrics.showHiddenMetricsForVersion: Invalid value: {other:?}: must be omitted or have \
             the value '1.35'; only the previous minor version is allowed"
        )),
    }
    let disabled = values.list("disabled-metrics");
    if let Some(wrong) = disabled.iter().find(|name| !is_name(name, true)) {
        setup.fail(format!(
            "metrics.disabledMetrics: Invalid value: {}: must be fully qualified metric \
             names matching \"^[a-zA-Z_:][a-zA-Z0-9_:]*$\", got {wrong:?}",
            serde_json::json!(disabled)
        ));
    }
    disabled.iter().for_each(|metric| selection.disable(metric));
    if values.signed_duration("etcd-count-metric-poll-period").0 <= 0 {
        OBJECT_COUNTS.iter().for_each(|metric| selection.disable(metric));
    }
    let labels = values.pairs("allow-metric-labels");
    if let Some(why) = wrong_labels(labels, "metrics.allowListMapping") {
        setup.fail(why);
    }
    allow(&mut selection, labels);
    let manifest = values.text("allow-metric-labels-manifest");
    if !manifest.is_empty() && !labels.is_empty() {
        setup.fail(format!(
            "metrics: Invalid value: {{\"allowListMapping\":{{{}}},\"allowListMappingManifest\":{}}}: \
             cannot specify both allowListMapping and allowListMappingManifest",
            shown_labels(labels),
            quote(manifest)
        ));
    } else if !manifest.is_empty() {
        match read_manifest(manifest) {
            Ok(labels) => match wrong_labels(&labels, "metrics.allowListMappingManifest") {
                None => allow(&mut selection, &labels),
                Some(why) => setup.fail(format!(
                    "metrics.allowListMappingManifest: Invalid value: {manifest:?}: invalid allow list \
                     mapping in manifest: [{why}]"
                )),
            },
            Err(why) => setup.fail(format!(
                "metrics.allowListMappingManifest: Invalid value: {manifest:?}: {why}"
            )),
        }
    }
    setup.builder.recording.metrics = Arc::new(selection);
}

/// Checks that the keys are names of a metric and of one of its labels.
fn wrong_labels(labels: &BTreeMap<String, String>, field: &str) -> Option<String> {
    let is_label = |key: &String| {
        key.split_once(',')
            .is_some_and(|(metric, label)| is_name(metric, true) && is_name(label, false))
    };
    if labels.keys().all(is_label) {
        return None;
    }
    Some(format!(
        "{field}: Invalid value: {{{}}}: must have keys with format `metricName,labelName` where \
         metricName matches \"[a-zA-Z_:][a-zA-Z0-9_:]*\" and labelName matches \
         \"[a-zA-Z_][a-zA-Z0-9_]*\"",
        shown_labels(labels)
    ))
}

fn shown_labels(labels: &BTreeMap<String, String>) -> String {
    let shown: Vec<String> =
        labels.iter().map(|(key, value)| format!("{key:?}:{value:?}")).collect();
    shown.join(",")
}

fn allow(selection: &mut MetricsSelection, labels: &BTreeMap<String, String>) {
    for (key, values) in labels {
        if let Some((metric, label)) = key.split_once(',') {
            selection.allow(metric, label, values.split(','));
        }
    }
}

/// Reads a map of `METRIC,LABEL` to values with commas between them.
fn read_manifest(path: &str) -> Result<BTreeMap<String, String>, String> {
    let text = std::fs::read(path).map_err(|error| {
        format!("failed to read allow list manifest: {}", go_files::error(path, &error))
    })?;
    let failed = |why: &str| format!("failed to parse allow list manifest: {why}");
    let parsed = yaml::parse(&text).map_err(|why| failed(&why.to_string()))?;
    let map = match parsed.value {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        _ => return Err(failed("the document is no map")),
    };
    let pair = |(key, value): (_, &Value)| match value.as_str() {
        Some(text) => Ok((ToString::to_string(&key), text.to_owned())),
        None => Err(failed("a value is no text")),
    };
    map.iter().map(pair).collect()
}

/// Returns whether a text is the name of a metric, or of a label, which has no colons.
fn is_name(text: &str, has_colons: bool) -> bool {
    let is_letter =
        |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || has_colons && byte == b':';
    text.bytes().next().is_some_and(is_letter)
        && text.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}
