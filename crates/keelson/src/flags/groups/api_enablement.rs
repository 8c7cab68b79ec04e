//! API enablement flags.

use crate::flags::go_values;
use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Flag, Group, Kind};
use std::collections::BTreeSet;

/// Kinds of APIs that are switched together.
const KINDS: [&str; 5] = ["all", "ga", "beta", "alpha", "legacy"];
/// The groups that kube-apiserver knows with their versions, also those that it serves no more; no
/// versions: all are taken.
const GROUPS: [(&str, &[&str]); 25] = [
    ("admission.k8s.io", &["v1", "v1beta1"]),
    ("admissionregistration.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("apiextensions.k8s.io", &[]),
    ("apiregistration.k8s.io", &[]),
    ("apps", &["v1", "v1beta1", "v1beta2"]),
    ("authentication.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("authorization.k8s.io", &["v1", "v1beta1"]),
    ("autoscaling", &["v1", "v2"]),
    ("batch", &["v1", "v1beta1"]),
    ("certificates.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("coordination.k8s.io", &["v1", "v1alpha2", "v1beta1"]),
    ("discovery.k8s.io", &["v1", "v1beta1"]),
    ("events.k8s.io", &["v1", "v1beta1"]),
    ("extensions", &["v1beta1"]),
    ("flowcontrol.apiserver.k8s.io", &["v1", "v1beta1", "v1beta2", "v1beta3"]),
    ("imagepolicy.k8s.io", &["v1alpha1"]),
    ("internal.apiserver.k8s.io", &["v1alpha1"]),
    ("networking.k8s.io", &["v1", "v1beta1"]),
    ("node.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("policy", &["v1", "v1beta1"]),
    ("rbac.authorization.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("resource.k8s.io", &["v1", "v1alpha3", "v1beta1", "v1beta2"]),
    ("scheduling.k8s.io", &["v1", "v1alpha2", "v1beta1"]),
    ("storage.k8s.io", &["v1", "v1alpha1", "v1beta1"]),
    ("storagemigration.k8s.io", &["v1beta1"]),
];

/// The group.
pub const GROUP: Group = Group {
    title: "API enablement",
    flags: &[Flag::new(
        "runtime-config",
        Kind::Config,
        "",
        "Group versions to enable or disable: apps/v1=false, v1=true, or all of a kind: \
             api/all, api/ga, api/beta, api/alpha.",
    )],
};

/// Checks the flags and applies them.
pub fn apply(setup: &mut Setup<'_>) {
    let config = setup.values.pairs("runtime-config");
    if config.len() == 1 && config.get("api/all").is_some_and(|value| value == "false") {
        setup.fail("invalid runtime-config with only api/all=false");
    }
    let mut unknown = BTreeSet::new();
    for (name, value) in config {
        let parts: Vec<&str> = name.split('/').collect();
        match parts[..] {
            ["v1"] | ["api", "v1"] => {}
            [_] | [_, _, _, _, ..] => {
                setup.fail(format!("runtime-config invalid key {name}"));
                continue;
            }
            ["api", kind] if KINDS.contains(&kind) => {}
            [group, version, ..] => match GROUPS.iter().find(|(known, _)| *known == group) {
                None => {
                    unknown.insert(format!("{group}/{version}"));
                }
                Some((_, known)) if known.is_empty() || known.contains(&version) => {}
                Some(_) => setup.fail_at(
                    Step::Apis,
                    format!("group version {group}/{version} that has not been registered"),
                ),
            },
            [] => {}
        }
        // A name alone enables it.
        let is_on = if value.is_empty() { Ok(true) } else { go_values::boolean(value) };
        match is_on {
            Ok(is_on) => {
                let name = if name == "api/v1" { "v1" } else { name };
                setup.builder.apis.runtime_config.push((name.to_owned(), is_on));
            }
            Err(_) if matches!(parts[..], ["api", kind] if KINDS.contains(&kind)) => {
                setup.fail_at(Step::Apis, format!("invalid value {name}={value}"));
            }
            Err(why) => {
                setup.fail_at(Step::Apis, format!("invalid value of {name}: {value}, err: {why}"));
            }
        }
    }
    if !unknown.is_empty() {
        let unknown: Vec<String> = unknown.into_iter().collect();
        setup.fail(format!("unknown api groups {}", unknown.join(",")));
    }
    let config = &setup.builder.apis.runtime_config;
    let switch = |wanted: &str| config.iter().find(|(name, _)| name == wanted);
    // The most specific one counts.
    let core = ["v1", "api/ga", "api/all"].into_iter().find_map(switch);
    if let Some((name, false)) = core.filter(|_| config.len() > 1 || switch("api/all").is_none()) {
        let why = format!("--runtime-config={name}=false: a server needs the API v1");
        setup.fail_at(Step::Apis, why);
    }
}
