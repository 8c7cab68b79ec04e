//! `supplement.txt`: facts about types that no OpenAPI document shows.

use super::presence::Facts;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Kinds of one group version.
pub struct Kinds {
    /// `apps/v1beta1`, `/v1`; `*`: every group version.
    pub group_version: String,
    /// Where their types are.
    pub package: String,
    /// Their types stand among those that are served.
    pub served: bool,
    /// Names of kinds, which are those of their types.
    pub names: Vec<String>,
}

/// What the file says.
#[derive(Default)]
pub struct Supplement {
    /// In the order of the file.
    pub kinds: Vec<Kinds>,
    /// Packages whose types of the same name tell of a package's types.
    pub like: HashMap<String, Vec<String>>,
    /// By full name of the type.
    pub facts: BTreeMap<String, Notes>,
    /// Blocks of `types.txt` that stand for themselves.
    pub blocks: String,
}

/// What the file says of one type.
#[derive(Default)]
pub struct Notes {
    /// How members are written.
    pub presence: Facts,
    /// Members that are left out when they are empty, other than their namesakes.
    pub omit: HashSet<String>,
    /// Fields of the message that JSON does not show.
    pub inline: HashSet<String>,
    /// Field of the message to member.
    pub rename: HashMap<String, String>,
}

impl Supplement {
    /// Whether a type, by its full name, stands among those that are served.
    pub fn is_served(&self, name: &str) -> bool {
        let Some((package, short)) = name.rsplit_once('.') else { return false };
        let short = short.strip_suffix("List").unwrap_or(short);
        let mut served = self.kinds.iter().filter(|kinds| kinds.served && kinds.package == package);
        served.any(|kinds| kinds.names.iter().any(|name| name == short))
    }
}

/// Reads the file.
pub fn parse(text: &str) -> Result<Supplement> {
    let mut out = Supplement::default();
    let (head, blocks) = text.split_once("\nblocks\n").unwrap_or((text, ""));
    out.blocks = blocks.trim().to_owned();
    let mut type_name: Option<String> = None;
    for line in head.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match (line.starts_with(' '), &words[..], &type_name) {
            (false, ["kinds", group_version, package, rest @ ..], _) => {
                out.kinds.push(Kinds {
                    group_version: (*group_version).to_owned(),
                    package: (*package).to_owned(),
                    served: rest == ["served"],
                    names: vec![],
                });
                type_name = None;
            }
            (false, ["like", package, others @ ..], _) => {
                let others = others.iter().map(|other| (*other).to_owned()).collect();
                out.like.insert((*package).to_owned(), others);
            }
            (false, [name], _) => type_name = Some((*name).to_owned()),
            (true, _, Some(name)) => {
                let notes = out.facts.entry(name.clone()).or_default();
                notes.read(line).with_context(|| format!("supplement.txt: {name}"))?;
            }
            (true, names, None) => {
                let kinds = out.kinds.last_mut().context("names without kinds")?;
                kinds.names.extend(names.iter().map(|name| (*name).to_owned()));
            }
            _ => bail!("supplement.txt: {line:?}"),
        }
    }
    Ok(out)
}

impl Notes {
    fn read(&mut self, line: &str) -> Result<()> {
        let (word, names) = line.trim().split_once(':').context("no colon")?;
        let names = names.split_whitespace();
        match word {
            "omit" => self.omit.extend(names.map(str::to_owned)),
            "inline" => self.inline.extend(names.map(str::to_owned)),
            "rename" => {
                for pair in names {
                    let (field, member) = pair.split_once('=').context("field=member")?;
                    self.rename.insert(field.to_owned(), member.to_owned());
                }
            }
            _ => self.presence.read(line)?,
        }
        Ok(())
    }
}
