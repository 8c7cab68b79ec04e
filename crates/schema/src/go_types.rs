//! The Go types of members, where they have names of their own that no schema tells, and the Go structs that
//! others embed. Only refusals of a wrong type show them.

use std::collections::HashMap;
use std::sync::OnceLock;

const TABLE: &str = include_str!("../catalogue/go_types.txt");

/// What the table says of one member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// `v1.RestartPolicy`; none where the type follows from the schema.
    pub go_type: Option<&'static str>,
    /// The embedded struct that has the member: `VolumeSource`.
    pub embedded: Option<&'static str>,
}

/// Looks up a member of the struct of a full name, such as `io.k8s.api.core.v1.PodSpec`.
pub(crate) fn member(of: &str, name: &str) -> Member {
    table().get(of).and_then(|members| members.get(name)).copied().unwrap_or_default()
}

type Table = HashMap<&'static str, HashMap<&'static str, Member>>;

fn table() -> &'static Table {
    static PARSED: OnceLock<Table> = OnceLock::new();
    PARSED.get_or_init(parse)
}

fn parse() -> Table {
    let mut table = Table::new();
    let mut of = "";
    for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some(line) = line.strip_prefix("  ") else {
            of = line;
            continue;
        };
        let members = table.entry(of).or_default();
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
        let name = |of: &str, name: &str| member(of, name).go_type;
        assert_eq!(name("io.k8s.api.core.v1.PodSpec", "restartPolicy"), Some("v1.RestartPolicy"));
        assert_eq!(name("io.k8s.api.core.v1.PodSpec", "nodeName"), None);
        let found = member("io.k8s.api.core.v1.Volume", "secret");
        assert_eq!(found, Member { go_type: None, embedded: Some("VolumeSource") });
    }

    #[test]
    fn every_line_is_about_a_member_that_there_is() {
        let types = Catalogue::shared().all_types();
        for (of, members) in table() {
            let id = types.find(of).unwrap_or_else(|| panic!("no struct {of}"));
            let fields = &types.get(id).fields;
            for name in members.keys() {
                assert!(fields.iter().any(|field| field.name == *name), "{of} has no {name}");
            }
        }
    }
}
