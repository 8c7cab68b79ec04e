//! The Go types of fields whose type names no schema contains, and the embedded Go structs. Only
//! type errors show them.

use std::collections::HashMap;
use std::sync::OnceLock;

const TABLE: &str = include_str!("../catalogue/go_types.txt");

/// The Go type of one field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// `v1.RestartPolicy`; `None` when it follows from the schema.
    pub go_type: Option<&'static str>,
    /// The embedded struct that declares the field: `VolumeSource`.
    pub embedded: Option<&'static str>,
}

/// Looks up a field of a struct by the struct's full name, such as `io.k8s.api.core.v1.PodSpec`.
pub(crate) fn member(struct_name: &str, name: &str) -> Member {
    table().get(struct_name).and_then(|members| members.get(name)).copied().unwrap_or_default()
}

type Table = HashMap<&'static str, HashMap<&'static str, Member>>;

fn table() -> &'static Table {
    static PARSED: OnceLock<Table> = OnceLock::new();
    PARSED.get_or_init(parse)
}

fn parse() -> Table {
    let mut table = Table::new();
    let mut struct_name = "";
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some(line) = line.strip_prefix("  ") else {
            struct_name = line;
            continue;
        };
        let members = table.entry(struct_name).or_default();
        if let Some((embedded, names)) =
            line.strip_prefix("in ").and_then(|rest| rest.split_once(": "))
        {
            for name in names.split(' ') {
                members.entry(name).or_default().embedded = Some(embedded);
            }
        } else if let Some((name, go_type)) = line.split_once(' ') {
            members.entry(name).or_default().go_type = Some(go_type);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;

    #[test]
    fn members_have_go_types_and_embedding_structs() {
        let name = |struct_name: &str, name: &str| member(struct_name, name).go_type;
        assert_eq!(name("io.k8s.api.core.v1.PodSpec", "restartPolicy"), Some("v1.RestartPolicy"));
        assert_eq!(name("io.k8s.api.core.v1.PodSpec", "nodeName"), None);
        let found = member("io.k8s.api.core.v1.Volume", "secret");
        assert_eq!(found, Member { go_type: None, embedded: Some("VolumeSource") });
    }

    #[test]
    fn every_line_names_an_existing_field() {
        let types = Catalogue::shared().all_types();
        for (struct_name, members) in table() {
            let id = types.find(struct_name).unwrap_or_else(|| panic!("no struct {struct_name}"));
            let fields = &types.get(id).fields;
            for name in members.keys() {
                assert!(
                    fields.iter().any(|field| field.name == *name),
                    "{struct_name} has no {name}"
                );
            }
        }
    }
}
