//! Egress selector flags.

use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Flag, Group, Kind};
use anyhow::anyhow;
use keelson::read_egress_selector;

const FILE: &str = "egress-selector-config-file";

/// The group.
pub const GROUP: Group = Group {
    title: "Egress selector",
    flags: &[Flag::new(
        FILE,
        Kind::Text,
        "",
        "File (EgressSelectorConfiguration) that says through which proxies the server connects to \
         nodes, pods and services, to servers beside it, and to etcd.",
    )],
};

/// Checks the flag and applies it.
pub fn apply(setup: &mut Setup<'_>) {
    let Some(path) = setup.values.path(FILE) else { return };
    let selector = read_egress_selector(&path).map_err(|why| anyhow!(why));
    if let Some(selector) = setup.take_at(Step::Egress, selector) {
        setup.builder.far_side.egress_selector = selector;
    }
}
