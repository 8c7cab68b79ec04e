//! Global flags.

use crate::flags::table::{Flag, Group, Kind};

/// The group.
pub const GROUP: Group = Group {
    title: "Global",
    flags: &[
        Flag::new("help", Kind::Bool, "false", "Print this help."),
        Flag::new(
            "version",
            Kind::Version,
            "",
            "Print the version; --version=raw prints more of it.",
        ),
    ],
};
