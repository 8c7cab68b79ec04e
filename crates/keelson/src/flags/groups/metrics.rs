//! Metrics flags.

use crate::flags::setup::Setup;
use crate::flags::table::{Flag, Group, Kind};

const OWN_METRICS: &str = "metrics are always served whole, and none of them is hidden";

/// The group.
pub const GROUP: Group = Group {
    title: "Metrics",
    flags: &[
        Flag::new(
            "allow-metric-labels",
            Kind::Labels,
            "",
            "Allowed values of labels: METRIC,LABEL=VALUE,VALUE.",
        )
        .accepted(OWN_METRICS),
        Flag::new(
            "allow-metric-labels-manifest",
            Kind::Text,
            "",
            "File with allowed values of labels.",
        )
        .accepted(OWN_METRICS),
        Flag::new("disabled-metrics", Kind::List, "", "Metrics that are not served.")
            .accepted(OWN_METRICS),
        Flag::new(
            "show-hidden-metrics-for-version",
            Kind::Text,
            "",
            "Version whose hidden metrics are served: the previous one.",
        )
        .accepted(OWN_METRICS),
    ],
};

/// Checks the flags.
pub fn apply(setup: &mut Setup<'_>) {
    let values = setup.values;
    let shown = values.text("show-hidden-metrics-for-version");
    if !matches!(shown, "" | "1.35") {
        setup.fail(format!(
            "metrics.showHiddenMetricsForVersion: Invalid value: {shown:?}: must be omitted or have \
             the value '1.35'; only the previous minor version is allowed"
        ));
    }
    let disabled = values.list("disabled-metrics");
    if let Some(wrong) = disabled.iter().find(|name| !is_name(name, true)) {
        setup.fail(format!(
            "metrics.disabledMetrics: Invalid value: {disabled:?}: must be fully qualified metric \
             names matching \"^[a-zA-Z_:][a-zA-Z0-9_:]*$\", got {wrong:?}"
        ));
    }
    let labels = values.pairs("allow-metric-labels");
    let is_label = |key: &String| {
        key.split_once(',')
            .is_some_and(|(metric, label)| is_name(metric, true) && is_name(label, false))
    };
    if !labels.keys().all(is_label) {
        let shown: Vec<String> =
            labels.iter().map(|(key, value)| format!("{key:?}:{value:?}")).collect();
        setup.fail(format!(
            "metrics.allowListMapping: Invalid value: {{{}}}: must have keys with format \
             `metricName,labelName` where metricName matches \"[a-zA-Z_:][a-zA-Z0-9_:]*\" and \
             labelName matches \"[a-zA-Z_][a-zA-Z0-9_]*\"",
            shown.join(",")
        ));
    }
}

/// Returns whether a text is the name of a metric, or of a label, which has no colons.
fn is_name(text: &str, has_colons: bool) -> bool {
    let is_letter =
        |byte: u8| byte.is_ascii_alphabetic() || byte == b'_' || has_colons && byte == b':';
    text.bytes().next().is_some_and(is_letter)
        && text.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
}
