//! `gated.json`: discovery and OpenAPI of the resources that a server serves only with feature
//! gates enabled. The file is kept with the tables, because the reference documents are those of a
//! server with default gates.

use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeMap;

/// The content of the file.
pub struct Gated {
    /// Resource to its feature gate.
    pub gates: BTreeMap<String, String>,
    /// The groups of the resources in aggregated discovery, with all versions.
    discovery: Value,
    /// File name to OpenAPI v3 document of the resources: the types that no other document
    /// contains, and the delete operations.
    pub openapi: BTreeMap<String, Value>,
}

impl Gated {
    /// Parses the file.
    pub fn parse(text: &str) -> Result<Gated> {
        let mut file: Value = serde_json::from_str(text)?;
        let mut take = |name: &str| file.get_mut(name).map(Value::take).context(name.to_owned());
        Ok(Gated {
            gates: serde_json::from_value(take("gates")?)?,
            discovery: take("discovery")?,
            openapi: serde_json::from_value(take("openapi")?)?,
        })
    }

    /// Replaces the groups of the same name in aggregated discovery, and appends the others.
    pub fn add_to(&self, all: &mut Value) -> Result<()> {
        let items = |value: &Value| value.get("items").and_then(Value::as_array).cloned();
        let groups = all
            .pointer_mut("/apis/items")
            .and_then(Value::as_array_mut)
            .context("discovery has no groups")?;
        for group in items(&self.discovery).context("gated.json has no groups")? {
            let name = group.pointer("/metadata/name");
            match groups.iter_mut().find(|other| other.pointer("/metadata/name") == name) {
                Some(other) => *other = group,
                None => groups.push(group),
            }
        }
        Ok(())
    }
}
