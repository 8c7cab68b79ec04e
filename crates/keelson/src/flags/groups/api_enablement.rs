//! API enablement flags.

use crate::flags::go_values;
use crate::flags::setup::Setup;
use crate::flags::table::{Flag, Group, Kind};

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
    for (name, value) in config {
        let parts = name.split('/').count();
        if parts > 3 || parts == 1 && name != "v1" {
            setup.fail(format!("runtime-config invalid key {name}"));
            continue;
        }
        // A name alone enables it.
        let is_on = if value.is_empty() { Ok(true) } else { go_values::boolean(value) };
        match is_on {
            Ok(is_on) => setup.builder.apis.runtime_config.push((name.clone(), is_on)),
            Err(_) => setup.fail(format!("invalid value {name}={value}")),
        }
    }
}
