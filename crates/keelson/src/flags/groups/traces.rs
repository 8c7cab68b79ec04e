//! Traces flags.

use crate::flags::table::{Flag, Group, Kind};

/// The group.
pub const GROUP: Group = Group {
    title: "Traces",
    flags: &[Flag::new(
        "tracing-config-file",
        Kind::Text,
        "",
        "File that says where traces are sent.",
    )
    .refused("tracing")],
};
