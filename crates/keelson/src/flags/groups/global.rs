//! Global flags.

use crate::flags::setup::Setup;
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
            "Print the version; --version=raw prints more of it. --version=v1.36.2-NAME names the \
             version that the server reports.",
        ),
    ],
};

/// Applies the flags.
pub fn apply(setup: &mut Setup<'_>) {
    let version = setup.values.text("version");
    if version.starts_with('v') {
        setup.builder.serving.reported_version = version.to_owned();
    }
}
