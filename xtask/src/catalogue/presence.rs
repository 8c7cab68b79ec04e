//! `presence.txt`: which optional members are Go pointers, which are written even when unset.

use anyhow::{Result, bail};
use std::collections::{HashMap, HashSet};

/// What the file says of one type.
#[derive(Debug, Default)]
pub struct Facts {
    /// Strings that are pointers.
    pub pointer: HashSet<String>,
    /// Other scalars that are not pointers.
    pub value: HashSet<String>,
    /// Members without `omitempty` that OpenAPI does not call required.
    pub always: HashSet<String>,
}

/// By full OpenAPI name of the type.
pub type Presence = HashMap<String, Facts>;

/// Reads the file.
pub fn parse(text: &str) -> Result<Presence> {
    let mut out = Presence::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if !line.starts_with(' ') {
            current = line.trim().to_owned();
            continue;
        }
        let Some((word, names)) = line.trim().split_once(':') else {
            bail!("presence.txt: no colon in {line:?}");
        };
        let facts = out.entry(current.clone()).or_default();
        let set = match word {
            "pointer" => &mut facts.pointer,
            "value" => &mut facts.value,
            "always" => &mut facts.always,
            other => bail!("presence.txt: unknown word {other:?}"),
        };
        set.extend(names.split_whitespace().map(str::to_owned));
    }
    Ok(out)
}
