//! All functions of templates, by their names.

use super::TemplateFacts;
use super::arguments::{Arguments, Function, Table};
use super::{collections, general, numbers, texts};
use keelson_meta::Value;

const TABLES: [Table; 4] = [general::TABLE, texts::TABLE, numbers::TABLE, collections::TABLE];

/// Whether there is a function of this name.
pub fn is_known(name: &str) -> bool {
    find(name).is_some()
}

fn find(name: &str) -> Option<Function> {
    let all = TABLES.iter().flat_map(|table| table.iter());
    all.clone().find(|(known, _)| *known == name).map(|(_, function)| *function)
}

/// Calls a function.
pub fn call(name: &str, all: Vec<Value>, facts: &TemplateFacts) -> Result<Value, String> {
    let function = find(name).ok_or("it is not known")?;
    function(&Arguments { all, facts })
}
