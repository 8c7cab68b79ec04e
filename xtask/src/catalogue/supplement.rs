//! `supplement.txt`: facts about types that no OpenAPI document contains.

use super::presence::Facts;
use anyhow::{Context, Result, bail};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Kinds of one group version.
pub struct Kinds {
    /// For example `apps/v1beta1` or `/v1`; `*`: every group version.
    pub group_version: String,
    /// The Go package of the types, in the form of OpenAPI names.
    pub package: String,
    /// Whether a server uses the types, though no document contains them. They are written to
    /// `types.txt`.
    pub served: bool,
    /// Names of the kinds, which are also the names of their types.
    pub names: Vec<String>,
}

/// The content of the file.
#[derive(Default)]
pub struct Supplement {
    /// In the order of the file.
    pub kinds: Vec<Kinds>,
    /// Package to the packages whose types of the same name complete its types.
    pub like: HashMap<String, Vec<String>>,
    /// Full name of a type to its supplement.
    pub types: BTreeMap<String, TypeSupplement>,
    /// Complete blocks of `unserved.txt`.
    pub blocks: String,
}

/// The supplement of one type.
#[derive(Default)]
pub struct TypeSupplement {
    /// How members are written.
    pub presence: Facts,
    /// Members that are omitted when empty, unlike those of the same name in the sibling type.
    pub omit: HashSet<String>,
    /// Fields of the message whose members Go inlines.
    pub inline: HashSet<String>,
    /// Field of the message to the name of its member.
    pub rename: HashMap<String, String>,
}

impl Supplement {
    /// Returns whether a server uses the type with this full name.
    pub fn is_served(&self, name: &str) -> bool {
        let Some((package, short)) = name.rsplit_once('.') else { return false };
        let short = short.strip_suffix("List").unwrap_or(short);
        let mut served = self.kinds.iter().filter(|kinds| kinds.served && kinds.package == package);
        served.any(|kinds| kinds.names.iter().any(|name| name == short))
    }
}

/// Parses the file.
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
                let supplement = out.types.entry(name.clone()).or_default();
                supplement.add_line(line).with_context(|| format!("supplement.txt: {name}"))?;
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

impl TypeSupplement {
    fn add_line(&mut self, line: &str) -> Result<()> {
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
            _ => self.presence.add_line(line)?,
        }
        Ok(())
    }
}
