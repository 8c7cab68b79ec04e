//! The control loops that a server runs.

use crate::supervisor::Loops;
use crate::{cluster_roles, namespaces, quotas, service_accounts};
use keelson_registry::Registry;
use std::sync::Arc;

/// Which control loops run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Controllers {
    namespaces: bool,
    service_accounts: bool,
    quotas: bool,
    cluster_roles: bool,
}

impl Controllers {
    /// Those that `words` choose (kube-controller-manager's syntax: the last word that speaks of a loop
    /// by name counts, else `*` or `-*`).
    pub(crate) fn chosen(words: &[String]) -> Controllers {
        let runs = |name: &str| {
            let off = format!("-{name}");
            let by_name = words.iter().rev().find(|word| **word == name || **word == off);
            by_name.map_or_else(|| words.iter().any(|word| word == "*"), |word| *word == name)
        };
        Controllers {
            namespaces: runs("namespace-controller"),
            service_accounts: runs("serviceaccount-controller"),
            quotas: runs("resourcequota-controller"),
            cluster_roles: runs("clusterrole-aggregation-controller"),
        }
    }

    /// Whether any loop runs.
    pub(crate) fn any(self) -> bool {
        self.namespaces || self.service_accounts || self.quotas || self.cluster_roles
    }

    /// Starts the loops.
    pub(crate) fn start(self, registry: &Arc<Registry>, loops: &mut Loops) {
        if self.namespaces {
            let registry = registry.clone();
            loops.run("namespace-controller", move || namespaces::run(registry.clone()));
        }
        if self.service_accounts {
            let registry = registry.clone();
            loops.run("serviceaccount-controller", move || service_accounts::run(registry.clone()));
        }
        if self.quotas {
            let registry = registry.clone();
            loops.run("resourcequota-controller", move || quotas::run(registry.clone()));
        }
        if self.cluster_roles {
            let registry = registry.clone();
            let start = move || cluster_roles::run(registry.clone());
            loops.run("clusterrole-aggregation-controller", start);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_that_names_a_loop_counts() {
        let chosen = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let chosen = Controllers::chosen(&words);
            [chosen.namespaces, chosen.service_accounts, chosen.quotas, chosen.cluster_roles]
        };
        assert_eq!(chosen(&["*"]), [true; 4]);
        assert_eq!(chosen(&["-*"]), [false; 4]);
        assert_eq!(chosen(&["*", "-namespace-controller"]), [false, true, true, true]);
        assert_eq!(chosen(&["resourcequota-controller"]), [false, false, true, false]);
    }
}
