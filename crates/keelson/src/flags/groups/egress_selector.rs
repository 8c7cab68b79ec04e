//! Egress selector flags.

use crate::flags::table::{Flag, Group, Kind};

/// The group.
pub const GROUP: Group = Group {
    title: "Egress selector",
    flags: &[Flag::new(
        "egress-selector-config-file",
        Kind::Text,
        "",
        "File that says through which proxies the server connects to others.",
    )
    .refused("connections through proxies")],
};
