//! The control loops that a server runs.

use crate::{namespaces, quotas, service_accounts};
use keelson_registry::Registry;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Which control loops run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Controllers {
    namespaces: bool,
    service_accounts: bool,
    quotas: bool,
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
        }
    }

    /// Whether any loop runs.
    pub(crate) fn any(self) -> bool {
        self.namespaces || self.service_accounts || self.quotas
    }

    /// Starts the loops.
    pub(crate) fn start(self, registry: &Arc<Registry>, loops: &mut JoinSet<()>) {
        if self.namespaces {
            loops.spawn(namespaces::run(registry.clone()));
        }
        if self.service_accounts {
            loops.spawn(service_accounts::run(registry.clone()));
        }
        if self.quotas {
            loops.spawn(quotas::run(registry.clone()));
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
            let Controllers { namespaces, service_accounts, quotas } = Controllers::chosen(&words);
            [namespaces, service_accounts, quotas]
        };
        assert_eq!(chosen(&["*"]), [true; 3]);
        assert_eq!(chosen(&["-*"]), [false; 3]);
        assert_eq!(chosen(&["*", "-namespace-controller"]), [false, true, true]);
        assert_eq!(chosen(&["resourcequota-controller"]), [false, false, true]);
    }
}
