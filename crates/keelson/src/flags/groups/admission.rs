//! Admission flags.

use crate::flags::setup::Setup;
use crate::flags::table::{Face, Flag, Group, Kind};
use anyhow::{Context, Result, bail};
use keelson::{AdmissionChain, AdmissionConfig};

/// Enabled here by default, but not in kube-apiserver.
const OWN_DEFAULT: &str = "NodeRestriction";

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
    let chain = chain(setup);
    if let Some(chain) = setup.take(chain) {
        setup.builder.admission.chain = chain;
    }
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
        .context("--admission-control-config-file")?
        .unwrap_or_default();
    config.not_ready_seconds = values.int("default-not-ready-toleration-seconds");
    config.unreachable_seconds = values.int("default-unreachable-toleration-seconds");
    let chain = chain.with_config(config);
    if let Some(name) = chain.unconfigured() {
        bail!(
            "--enable-admission-plugins: {name} needs an entry in --admission-control-config-file"
        );
    }
    Ok(chain)
}
