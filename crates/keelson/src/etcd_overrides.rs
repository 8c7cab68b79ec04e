//! `--etcd-servers-overrides`: etcd clusters for single resources.

use keelson_meta::Features;
use keelson_resources::built_in_kinds;
use std::collections::BTreeMap;
use std::str::FromStr;

/// The resource that stands for all of its group.
const ALL: &str = "*";

/// The etcd cluster of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdOverride {
    /// The group of the resource.
    pub group: String,
    /// The resource, or `*`: all of the group that have no cluster of their own.
    pub resource: String,
    /// URLs of the members.
    pub servers: Vec<String>,
}

impl EtcdOverride {
    /// Returns the URLs of the members in order, by which clusters are told apart.
    pub fn sorted_servers(&self) -> Vec<&String> {
        sorted(&self.servers)
    }
}

/// An override that is not written `group/resource#URL;URL`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadOverride;

impl FromStr for EtcdOverride {
    type Err = BadOverride;

    fn from_str(text: &str) -> Result<EtcdOverride, BadOverride> {
        let words: Vec<&str> = text.split('#').collect();
        let &[resource, servers] = &words[..] else { return Err(BadOverride) };
        let names: Vec<&str> = resource.split('/').collect();
        let &[group, resource] = &names[..] else { return Err(BadOverride) };
        let servers: Vec<String> = servers.split(';').map(str::to_owned).collect();
        if servers.iter().any(String::is_empty) {
            return Err(BadOverride);
        }
        Ok(EtcdOverride { group: group.to_owned(), resource: resource.to_owned(), servers })
    }
}

/// A cluster that several overrides may name, with its members in the order of the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OtherCluster {
    /// URLs of the members.
    pub servers: Vec<String>,
    /// The key prefixes of its resources; none if no resource that is served has this override.
    pub prefixes: Vec<String>,
}

/// Returns the clusters in the order in which they are first named. The last override of a resource
/// counts.
pub(crate) fn clusters(
    overrides: &[EtcdOverride],
    runtime_config: &[(String, bool)],
    features: Features,
) -> Vec<OtherCluster> {
    let mut clusters: Vec<OtherCluster> = vec![];
    let mut numbers: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for one in overrides {
        let known =
            clusters.iter().position(|known| sorted(&known.servers) == one.sorted_servers());
        let number = known.unwrap_or(clusters.len());
        if number == clusters.len() {
            clusters.push(OtherCluster { servers: one.servers.clone(), prefixes: vec![] });
        }
        numbers.insert((&one.group, &one.resource), number);
    }
    for kind in built_in_kinds(runtime_config, features) {
        let group = kind.gvr.group.as_str();
        // Both resources of Events share their objects, and have the place of those in the core
        // group.
        if *group != *kind.storage.gvk.group {
            continue;
        }
        let resource = kind.gvr.resource.as_str();
        let number = numbers.get(&(group, resource)).or_else(|| numbers.get(&(group, ALL)));
        if let Some(number) = number {
            let prefix = String::from_utf8_lossy(&kind.prefix).into_owned();
            clusters[*number].prefixes.push(prefix);
        }
    }
    clusters
}

fn sorted(servers: &[String]) -> Vec<&String> {
    let mut servers: Vec<&String> = servers.iter().collect();
    servers.sort();
    servers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> EtcdOverride {
        text.parse().unwrap_or_else(|BadOverride| panic!("{text}"))
    }

    #[test]
    fn an_override_names_a_resource_and_members() {
        let expected = EtcdOverride {
            group: "apps".to_owned(),
            resource: "deployments".to_owned(),
            servers: vec!["http://a:1".to_owned(), "http://b:2".to_owned()],
        };
        assert_eq!(read("apps/deployments#http://a:1;http://b:2"), expected);
        assert_eq!(read("/events#http://a:1").group, "");
        for text in [
            "",
            "events",
            "/events",
            "events#http://a",
            "/events#",
            "/events#a;",
            "a/b/c#d",
            "a/b#c#d",
        ] {
            assert_eq!(text.parse::<EtcdOverride>(), Err(BadOverride), "{text}");
        }
    }

    #[test]
    fn overrides_with_the_same_members_share_a_cluster() {
        let overrides = [
            read("/pods#http://b;http://a"),
            read("/events#http://c"),
            read("coordination.k8s.io/leases#http://a;http://b"),
            read("events.k8s.io/events#http://d"),
            read("apps/*#http://e"),
            read("apps/deployments#http://c"),
            read("none/such#http://f"),
        ];
        let found = clusters(&overrides, &[], Features::default());
        let servers: Vec<&str> = found.iter().map(|cluster| cluster.servers[0].as_str()).collect();
        assert_eq!(servers, ["http://b", "http://c", "http://d", "http://e", "http://f"]);
        let prefixes = |number: usize| -> Vec<&str> {
            let mut all: Vec<&str> = found[number].prefixes.iter().map(String::as_str).collect();
            all.sort_unstable();
            all
        };
        assert_eq!(prefixes(0), ["/registry/leases/", "/registry/pods/"]);
        assert_eq!(prefixes(1), ["/registry/deployments/", "/registry/events/"]);
        assert_eq!(prefixes(2), [""; 0], "the place of events is that of the core group");
        let of_apps = ["controllerrevisions", "daemonsets", "replicasets", "statefulsets"];
        assert_eq!(prefixes(3), of_apps.map(|name| format!("/registry/{name}/")));
        assert_eq!(prefixes(4), [""; 0]);
    }
}
