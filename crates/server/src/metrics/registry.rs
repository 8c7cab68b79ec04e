//! Metrics that are computed on request: version and features.

use crate::version::VersionInfo;
use keelson_meta::{Feature, Stage};
use keelson_metrics::{Description, Exposition, MetricType};
use keelson_registry::Registry;

pub(super) fn write(registry: &Registry, built: &VersionInfo, out: &mut Exposition) {
    let version = built.git_version.as_str();
    let mut parts = version.trim_start_matches('v').split('.');
    let major = parts.next().unwrap_or_default();
    let minor = parts.next().unwrap_or_default();
    let platform = format!("{}/{}", std::env::consts::OS, architecture());
    let commit = built.git_commit.as_str();
    let values = ["", &built.build, commit, "clean", version, "", major, minor, &platform];
    out.family(&BUILD_INFO).value(&values, 1.0);
    let mut features = out.family(&FEATURES);
    for feature in Feature::all() {
        let is_on = registry.options.features.is_on(feature);
        features.value(&[feature.name(), stage(feature.stage())], f64::from(u8::from(is_on)));
    }
    drop(features);
    // The emulated version is that of the binary, and works with the one before.
    let minor_number: u32 = minor.parse().unwrap_or_default();
    let emulated = format!("{major}.{minor}");
    let oldest = format!("{major}.{}", minor_number.saturating_sub(1));
    let binary = version.trim_start_matches('v');
    out.family(&VERSION_INFO).value(&[binary, "kube", &emulated, &oldest], 1.0);
}

/// Returns Go's name of the architecture.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn stage(stage: Stage) -> &'static str {
    match stage {
        Stage::Alpha => "ALPHA",
        Stage::Beta => "BETA",
        Stage::Ga => "",
        Stage::Deprecated => "DEPRECATED",
    }
}

static BUILD_INFO: Description = Description {
    name: "kubernetes_build_info",
    help: "[BETA] Always 1; the labels say which version this is.",
    metric_type: MetricType::Gauge,
    labels: &[
        "build_date",
        "compiler",
        "git_commit",
        "git_tree_state",
        "git_version",
        "go_version",
        "major",
        "minor",
        "platform",
    ],
};

static FEATURES: Description = Description {
    name: "kubernetes_feature_enabled",
    help: "[BETA] Whether a feature gate is on, with its stage.",
    metric_type: MetricType::Gauge,
    labels: &["name", "stage"],
};

static VERSION_INFO: Description = Description::gauge(
    "version_info",
    "[ALPHA] Always 1; the labels say which version this is, and with which others it works.",
    &["binary", "component", "emulation", "min_compat"],
);
