//! The built-in resources: the rows of each API group, and the look-up of one.

use crate::row::Row;
use crate::strategy::Strategy;
use crate::{
    admission, api_services, apiextensions, apps, autoscaling, batch, certificates, coordination,
    core, devices, discovery, events, flow, migration, networking, node, policy, rbac, scheduling,
    storage,
};
use keelson_meta::Features;

/// The rows by API group. A group that is not here stores no objects.
const GROUPS: &[(&str, &[Row])] = &[
    ("", core::ROWS),
    ("admissionregistration.k8s.io", admission::ROWS),
    ("apiextensions.k8s.io", apiextensions::ROWS),
    ("apiregistration.k8s.io", api_services::ROWS),
    ("apps", apps::ROWS),
    ("autoscaling", autoscaling::ROWS),
    ("batch", batch::ROWS),
    ("certificates.k8s.io", certificates::ROWS),
    ("coordination.k8s.io", coordination::ROWS),
    ("discovery.k8s.io", discovery::ROWS),
    ("events.k8s.io", events::ROWS),
    ("flowcontrol.apiserver.k8s.io", flow::ROWS),
    ("internal.apiserver.k8s.io", migration::INTERNAL_ROWS),
    ("networking.k8s.io", networking::ROWS),
    ("node.k8s.io", node::ROWS),
    ("policy", policy::ROWS),
    ("rbac.authorization.k8s.io", rbac::ROWS),
    ("resource.k8s.io", devices::ROWS),
    ("scheduling.k8s.io", scheduling::ROWS),
    ("storage.k8s.io", storage::ROWS),
    ("storagemigration.k8s.io", migration::ROWS),
];

/// Returns the row of a resource; `None` if it is not built in or stores no objects.
pub(crate) fn row(group: &str, resource: &str) -> Option<&'static Row> {
    let (_, rows) = GROUPS.iter().find(|(name, _)| *name == group)?;
    rows.iter().find(|row| row.resource == resource)
}

/// Returns the strategy of a built-in resource with these feature gates.
pub fn strategy(group: &str, resource: &str, features: Features) -> Strategy {
    let base = row(group, resource).map_or(Strategy::GENERIC, |row| row.strategy);
    Strategy { features, ..base }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_schema::catalogue::Catalogue;
    use std::collections::BTreeSet;

    /// Resources with a row that store no objects.
    const COMPUTED: &[(&str, &str)] = &[("", "componentstatuses")];

    #[test]
    fn each_stored_resource_of_the_catalogue_has_one_row() {
        let mut rows = BTreeSet::new();
        for (group, of_group) in GROUPS {
            for row in *of_group {
                assert!(rows.insert((*group, row.resource)), "{} twice", row.resource);
            }
        }
        let mut stored: BTreeSet<(&str, &str)> = COMPUTED.iter().copied().collect();
        for group in &Catalogue::shared().groups {
            for resource in group.versions.iter().flat_map(|version| &version.resources) {
                let has = |verb: &str| resource.verbs.iter().any(|known| known == verb);
                if has("list") && has("create") {
                    stored.insert((&group.name, &resource.name));
                }
            }
        }
        assert_eq!(rows, stored);
    }

    #[test]
    fn versions_in_rows_are_versions_of_the_resource() {
        for (group, of_group) in GROUPS {
            for row in *of_group {
                let versions = &Catalogue::shared().group(group).expect("a group").versions;
                let is_known = |version: &str| versions.iter().any(|known| known.name == version);
                for deprecation in row.deprecations {
                    assert!(is_known(deprecation.version), "{} {deprecation:?}", row.resource);
                }
            }
        }
    }
}
