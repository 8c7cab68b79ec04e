//! Traces flags.

use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Face, Flag, Group, Kind};
use anyhow::anyhow;
use keelson::TracingOptions;

/// The group.
pub const GROUP: Group = Group {
    title: "Traces",
    flags: &[Flag::new(
        "tracing-config-file",
        Kind::Text,
        "",
        "File that says where traces are sent, and how many of them.",
    )],
};

/// Reads the file.
pub fn apply(setup: &mut Setup<'_>) {
    let Some(path) = setup.values.path("tracing-config-file") else { return };
    // As upstream, an empty file means no traces.
    let is_empty = std::fs::metadata(&path).is_ok_and(|file| file.is_file() && file.len() == 0);
    if is_empty && setup.face == Face::KubeApiserver {
        return;
    }
    let options = TracingOptions::read(&path).map_err(|why| anyhow!(why));
    setup.builder.recording.tracing = setup.take_at(Step::Tracing, options);
}
