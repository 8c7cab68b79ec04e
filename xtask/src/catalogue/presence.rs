//! `presence.txt`: which optional members are Go pointers, which are written even when unset. The same
//! lines stand in `supplement.txt`.

use anyhow::{Result, bail};
use std::collections::{HashMap, HashSet};

/// What the file says of one type.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Strings that are pointers.
    pub pointer: HashSet<String>,
    /// Other scalars that are not pointers.
    pub value: HashSet<String>,
    /// Members without `omitempty` that OpenAPI does not call required.
    pub always: HashSet<String>,
    /// Members with `omitempty` that OpenAPI calls required.
    pub omitempty: HashSet<String>,
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
        out.entry(current.clone()).or_default().read(line)?;
    }
    Ok(out)
}

impl Facts {
    /// Takes in a line of the form `word: member ..`.
    pub fn read(&mut self, line: &str) -> Result<()> {
        let Some((word, names)) = line.trim().split_once(':') else {
            bail!("no colon in {line:?}");
        };
        let set = match word {
            "pointer" => &mut self.pointer,
            "value" => &mut self.value,
            "always" => &mut self.always,
            "omitempty" => &mut self.omitempty,
            other => bail!("unknown word {other:?}"),
        };
        set.extend(names.split_whitespace().map(str::to_owned));
        Ok(())
    }

    /// Whether anything is said of a member.
    pub fn names(&self, member: &str) -> bool {
        [&self.pointer, &self.value, &self.always, &self.omitempty]
            .iter()
            .any(|set| set.contains(member))
    }

    /// Forgets what is said of a member.
    pub fn forget(&mut self, member: &str) {
        for set in [&mut self.pointer, &mut self.value, &mut self.always, &mut self.omitempty] {
            set.remove(member);
        }
    }

    /// Takes over what `other` says of a member.
    pub fn take(&mut self, other: &Facts, member: &str) {
        let pairs = [
            (&mut self.pointer, &other.pointer),
            (&mut self.value, &other.value),
            (&mut self.always, &other.always),
        ];
        for (mine, theirs) in pairs {
            if theirs.contains(member) {
                mine.insert(member.to_owned());
            }
        }
    }
}
