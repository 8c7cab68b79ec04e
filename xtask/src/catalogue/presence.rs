//! `presence.txt`: which optional members are Go pointers, and which are written even when unset.
//! `supplement.txt` contains lines of the same form.

use anyhow::{Result, bail};
use std::collections::{HashMap, HashSet};

/// The facts about the members of one type.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Strings that are pointers.
    pub pointer: HashSet<String>,
    /// Other scalars that are not pointers.
    pub value: HashSet<String>,
    /// Members without `omitempty` that are not required in OpenAPI.
    pub always: HashSet<String>,
    /// Members with `omitempty` that are required in OpenAPI.
    pub omitempty: HashSet<String>,
}

/// Full OpenAPI name of a type to its facts.
pub type Presence = HashMap<String, Facts>;

/// Parses the file.
pub fn parse(text: &str) -> Result<Presence> {
    let mut out = Presence::new();
    let mut current = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        if !line.starts_with(' ') {
            current = line.trim().to_owned();
            continue;
        }
        out.entry(current.clone()).or_default().add_line(line)?;
    }
    Ok(out)
}

impl Facts {
    /// Adds a line of the form `word: member ..`.
    pub fn add_line(&mut self, line: &str) -> Result<()> {
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

    /// Returns whether there is a fact about a member.
    pub fn contains(&self, member: &str) -> bool {
        [&self.pointer, &self.value, &self.always, &self.omitempty]
            .iter()
            .any(|set| set.contains(member))
    }

    /// Removes the facts about a member.
    pub fn remove(&mut self, member: &str) {
        for set in [&mut self.pointer, &mut self.value, &mut self.always, &mut self.omitempty] {
            set.remove(member);
        }
    }

    /// Copies the facts of `other` about a member, except `omitempty`.
    pub fn copy_from(&mut self, other: &Facts, member: &str) {
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
