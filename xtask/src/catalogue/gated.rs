//! `gated.json`: what a server says of the resources that it serves only with feature gates on. Kept
//! with the tables, as the reference says of itself what it does by default.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;

/// What the file says.
pub struct Gated {
    /// Resource to the gate that it needs.
    pub gates: BTreeMap<String, String>,
    /// Their groups in aggregated discovery, with all versions.
    discovery: Value,
    /// OpenAPI v3 documents of their versions: the types that no other document has, and deletions.
    pub openapi: BTreeMap<String, Value>,
}

impl Gated {
    /// Reads the text of the file.
    pub fn parse(text: &str) -> Result<Gated> {
        let mut file: Value = serde_json::from_str(text)?;
        let mut take = |name: &str| file.get_mut(name).map(Value::take).context(name.to_owned());
        Ok(Gated {
            gates: serde_json::from_value(take("gates")?)?,
            discovery: take("discovery")?,
            openapi: serde_json::from_value(take("openapi")?)?,
        })
    }

    /// Puts the groups in place of those of the same name, or at the end.
    pub fn add_to(&self, all: &mut Value) -> Result<()> {
        let items = |value: &Value| value.get("items").and_then(Value::as_array).cloned();
        let groups = all
            .pointer_mut("/apis/items")
            .and_then(Value::as_array_mut)
            .context("discovery has no groups")?;
        for group in items(&self.discovery).context("gated.json has no groups")? {
            let name = group.pointer("/metadata/name");
            match groups.iter_mut().find(|known| known.pointer("/metadata/name") == name) {
                Some(known) => *known = group,
                None => groups.push(group),
            }
        }
        Ok(())
    }
}
