//! Admission flags.

use crate::flags::go_files;
use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Face, Flag, Group, Kind};
use anyhow::{Context, Result, bail};
use keelson::{AdmissionChain, AdmissionConfig};
use keelson_schema::yaml;
use std::path::Path;

/// Enabled here by default, but not in kube-apiserver.
const OWN_DEFAULT: &str = "NodeRestriction";

const EVENT_RATE_LIMIT: &str = "EventRateLimit";
/// Versions of an AdmissionConfiguration.
const CONFIG_VERSIONS: [&str; 2] =
    ["apiserver.config.k8s.io/v1", "apiserver.config.k8s.io/v1alpha1"];

/// The group.
pub const GROUP: Group = Group {
    title: "Admission",
    flags: &[
        Flag::new(
            "admission-control",
            Kind::List,
            "",
            "The admission plug-ins, all of them; empty means the default ones.",
        )
        .deprecated(
            "Use --enable-admission-plugins or --disable-admission-plugins instead. Will be \
             removed in a future version.",
        ),
        Flag::new(
            "admission-control-config-file",
            Kind::Text,
            "",
            "AdmissionConfiguration file: the configuration of plug-ins, inline or in files that \
             it names.",
        ),
        Flag::new(
            "default-not-ready-toleration-seconds",
            Kind::Int,
            "300",
            "How long pods tolerate a node that is not ready, unless they say it.",
        ),
        Flag::new(
            "default-unreachable-toleration-seconds",
            Kind::Int,
            "300",
            "How long pods tolerate a node that is unreachable, unless they say it.",
        ),
        Flag::new("disable-admission-plugins", Kind::List, "", "Admission plug-ins to disable."),
        Flag::new(
            "enable-admission-plugins",
            Kind::List,
            "",
            "Admission plug-ins to enable in addition to the default ones.",
        ),
    ],
};

/// Checks the flags and applies them.
pub fn apply(setup: &mut Setup<'_>) {
    check_names(setup);
    if setup.face == Face::KubeApiserver {
        let path = setup.values.some_text("admission-control-config-file");
        if let Err(why) = path.map_or(Ok(()), check_config) {
            let why = format!("failed to apply admission: failed to read plugin config: {why}");
            return setup.fail_at(Step::Admission, why);
        }
    }
    let chain = chain(setup);
    if let Some(chain) = setup.take_at(Step::Admission, chain) {
        setup.builder.admission.chain = chain;
    }
}

/// Checks the form of an AdmissionConfiguration, in the words of kube-apiserver.
fn check_config(path: &str) -> Result<(), String> {
    let text = go_files::read(path).map_err(|why| {
        format!("unable to read admission control configuration from {path:?} [{why}]")
    })?;
    let text = String::from_utf8_lossy(&text);
    let file = yaml::parse(&*text).map_err(|why| why.to_string())?.value;
    let [version, kind] =
        ["apiVersion", "kind"].map(|name| file.str_at(&[name]).unwrap_or_default());
    if kind.is_empty() {
        return Err(format!("Object 'Kind' is missing in '{text}'"));
    }
    if kind != "AdmissionConfiguration" || !CONFIG_VERSIONS.contains(&version) {
        return Err(format!(
            "no kind {kind:?} is registered for version {version:?} in scheme \
             \"pkg/runtime/scheme.go:111\""
        ));
    }
    let fields = file.as_object().into_iter().flat_map(|file| file.iter());
    let unknown: Vec<String> = fields
        .map(|(name, _)| name.to_string())
        .filter(|name| !["apiVersion", "kind", "plugins"].contains(&name.as_str()))
        .map(|name| format!("unknown field {name:?}"))
        .collect();
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(format!("strict decoding error: {}", unknown.join(", "))),
    }
}

/// Returns whether a configuration has an entry of a plug-in.
fn is_configured(path: &Path, name: &str) -> bool {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let parsed = yaml::parse(&text).map(|parsed| parsed.value);
    parsed.is_ok_and(|file| {
        let mut plug_ins = file.array_at(&["plugins"]).iter();
        plug_ins.any(|plug_in| plug_in.str_at(&["name"]) == Some(name))
    })
}

fn check_names(setup: &mut Setup<'_>) {
    let values = setup.values;
    let on = "enable-admission-plugins";
    let off = "disable-admission-plugins";
    let is_set = |flag| !values.list(flag).is_empty();
    if is_set("admission-control") && (is_set(on) || is_set(off)) {
        setup.fail(
            "admission-control and enable-admission-plugins/disable-admission-plugins flags are \
             mutually exclusive",
        );
    }
    for flag in ["admission-control", on, off] {
        for name in values.list(flag) {
            if !AdmissionChain::names().any(|known| known == name) {
                setup.fail(format!("{flag} plugin {name:?} is unknown"));
            }
        }
    }
    let mut both: Vec<&String> =
        values.list(on).iter().filter(|name| values.list(off).contains(name)).collect();
    both.sort();
    both.dedup();
    if !both.is_empty() {
        let both: Vec<&str> = both.into_iter().map(String::as_str).collect();
        setup.fail(format!(
            "[{}] in enable-admission-plugins and disable-admission-plugins overlapped",
            both.join(" ")
        ));
    }
}

/// Returns the chain; the default one if names are wrong, which is reported elsewhere.
fn chain(setup: &Setup<'_>) -> Result<AdmissionChain> {
    let values = setup.values;
    let exactly = values.list("admission-control");
    let mut on = values.list("enable-admission-plugins").to_vec();
    let mut off = values.list("disable-admission-plugins").to_vec();
    if !exactly.is_empty() {
        on = exactly.to_vec();
        off = AdmissionChain::names()
            .filter(|name| exactly.iter().all(|wanted| wanted != name))
            .map(str::to_owned)
            .collect();
    } else if setup.face == Face::KubeApiserver && on.iter().all(|name| name != OWN_DEFAULT) {
        off.push(OWN_DEFAULT.to_owned());
    }
    let chain = AdmissionChain::new(&on, &off).unwrap_or_default();
    let file = values.path("admission-control-config-file");
    let mut config: AdmissionConfig = file
        .as_deref()
        .map(AdmissionChain::read_config)
        .transpose()
        .with_context(|| match setup.face {
            Face::Serve => "--admission-control-config-file",
            Face::KubeApiserver => "failed to apply admission",
        })?
        .unwrap_or_default();
    config.not_ready_seconds = values.int("default-not-ready-toleration-seconds");
    config.unreachable_seconds = values.int("default-unreachable-toleration-seconds");
    let chain = chain.with_config(config);
    let name = chain.unconfigured();
    if setup.face == Face::KubeApiserver
        && chain.has(EVENT_RATE_LIMIT)
        && !file.as_deref().is_some_and(|file| is_configured(file, EVENT_RATE_LIMIT))
    {
        bail!(
            "failed to apply admission: couldn't init admission plugin {EVENT_RATE_LIMIT:?}: limits: \
             Invalid value: null: must not be empty"
        );
    }
    if let Some(name) = name.filter(|_| setup.face == Face::KubeApiserver) {
        bail!(
            "failed to apply admission: couldn't init admission plugin {name:?}: no config specified"
        );
    }
    if let Some(name) = name {
        bail!(
            "--enable-admission-plugins: {name} needs an entry in --admission-control-config-file"
        );
    }
    Ok(chain)
}
