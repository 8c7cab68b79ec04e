//! Traces flags.

use crate::flags::setup::Setup;
use crate::flags::table::{Flag, Group, Kind};
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
    let options = TracingOptions::read(&path).map_err(|why| anyhow!(why));
    setup.builder.recording.tracing = setup.take(options);
}
