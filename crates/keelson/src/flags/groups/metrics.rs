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
    let shown = setup.values.text("show-hidden-metrics-for-version");
    if !matches!(shown, "" | "1.35") {
        setup.fail(
            "--show-hidden-metrics-for-version must be omitted or have the value '1.35'. Only the \
             previous minor version is allowed",
        );
    }
}
