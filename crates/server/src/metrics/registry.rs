//! Metrics that are computed on request: version, features, stored objects.

use crate::version::VersionInfo;
use keelson_meta::{Feature, Stage};
use keelson_metrics::{Description, Exposition, MetricType};
use keelson_registry::Registry;

pub(super) fn write(registry: &Registry, built: &VersionInfo, out: &mut Exposition) {
    let version = built.git_version.as_str();
    let mut parts = version.trim_start_matches('v').split('.');
    let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
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
    objects(registry, out);
}

/// Writes the number of stored objects of each kind.
fn objects(registry: &Registry, out: &mut Exposition) {
    let api = registry.api();
    let mut counts: Vec<(&str, &str, f64)> = api
        .kinds()
        // Events are in two groups, and are stored once.
        .filter(|kind| kind.gvr.group != "events.k8s.io")
        .map(|kind| {
            let stored = registry.cache.resource(&kind.prefix);
            let number = stored.map_or(0, |stored| stored.len());
            (kind.gvr.group.as_str(), kind.gvr.resource.as_str(), number as f64)
        })
        .collect();
    counts.sort_by(|one, other| (one.0, one.1).cmp(&(other.0, other.1)));
    let mut text = out.family(&RESOURCE_OBJECTS);
    for (group, resource, number) in &counts {
        text.value(&[group, resource], *number);
    }
    drop(text);
    let name = |group: &str, resource: &str| match group {
        "" => resource.to_owned(),
        group => format!("{resource}.{group}"),
    };
    let mut named: Vec<_> =
        counts.iter().map(|(group, resource, number)| (name(group, resource), number)).collect();
    named.sort_by(|one, other| one.0.cmp(&other.0));
    let mut text = out.family(&STORAGE_OBJECTS);
    for (name, number) in named {
        text.value(&[&name], *number);
    }
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

static RESOURCE_OBJECTS: Description = Description {
    name: "apiserver_resource_objects",
    help: "[ALPHA] Stored objects by resource.",
    metric_type: MetricType::Gauge,
    labels: &["group", "resource"],
};

static STORAGE_OBJECTS: Description = Description {
    name: "apiserver_storage_objects",
    help: "[STABLE] (Deprecated since 1.34.0) Stored objects by resource; apiserver_resource_objects says the same.",
    metric_type: MetricType::Gauge,
    labels: &["resource"],
};
