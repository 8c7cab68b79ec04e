//! The cluster role aggregation controller: sets the rules of cluster roles that have an
//! aggregationRule.

use keelson_auth::rbac::{self, Rule, rules_of};
use keelson_loops::client::Client;
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object, Value, value};
use keelson_registry::options::PatchForm;
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const ACCOUNT: &str = "clusterrole-aggregation-controller";

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, ACCOUNT).with_field_manager(ACCOUNT);
    control_loop::run(&registry, ClusterRoles { client }).await;
}

struct ClusterRoles {
    client: Client,
}

impl ControlLoop for ClusterRoles {
    /// All cluster roles are synced together.
    type Key = ();
    const NAME: &'static str = "clusterrole-aggregation-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[(rbac::GROUP, "clusterroles")]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, _: Vec<InformerEvent>, queue: &mut Queue<()>) -> bool {
        queue.add(());
        false
    }

    async fn sync(&self, (): ()) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind(rbac::GROUP, "clusterroles") else { return Ok(None) };
        let mut roles: BTreeMap<String, Object> = BTreeMap::new();
        for entry in self.client.registry.cached_all(&kind).range("", "") {
            if let Ok(role) = kind.decode(entry) {
                roles.insert(entry.name().to_owned(), role);
            }
        }
        for (name, rules) in aggregated_rules(&roles) {
            self.apply(&Target::of(&kind, "", &name), &rules).await?;
        }
        Ok(None)
    }
}

impl ClusterRoles {
    async fn apply(&self, target: &Target, rules: &[Rule]) -> Result<(), Failure> {
        let rules: Vec<Value> = rules.iter().map(Rule::to_value).collect();
        let mut role = value!({
            "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
            "metadata": {"name": (target.name.clone())}
        });
        if let (Some(role), false) = (role.as_object_mut(), rules.is_empty()) {
            role.insert("rules", rules);
        }
        match self.client.patch(target, Subresource::None, PatchForm::ApplyYaml, &role).await {
            Err(status) if status.code == 404 => Ok(()),
            applied => applied.map(drop),
        }
    }
}

/// Returns the roles whose rules differ from their aggregation, with the aggregated rules.
fn aggregated_rules(roles: &BTreeMap<String, Object>) -> Vec<(String, Vec<Rule>)> {
    let mut changed = vec![];
    for (name, role) in roles {
        let selectors = role.array_at(&["aggregationRule", "clusterRoleSelectors"]);
        if selectors.is_empty() {
            continue;
        }
        let mut rules: Vec<Rule> = vec![];
        for selector in selectors {
            let Ok(selector) = Selector::from_object(Some(selector)) else { continue };
            // `roles` is sorted by name.
            let selected = roles
                .values()
                .filter(|other| other.name() != name.as_str() && selector.matches_object(other));
            for rule in selected.flat_map(|role| rules_of(role.array_at(&["rules"]))) {
                if !rules.contains(&rule) {
                    rules.push(rule);
                }
            }
        }
        if rules != rules_of(role.array_at(&["rules"])) {
            changed.push((name.clone(), rules));
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn role(name: &str, label: &str, aggregates: &str, resources: &[&str]) -> (String, Object) {
        let rule = |resource: &&str| value!({"verbs": ["get"], "apiGroups": [""], "resources": [(*resource)]});
        let rules: Vec<Value> = resources.iter().map(rule).collect();
        let mut role = value!({"metadata": {"name": name}, "rules": (rules)});
        if let Some(role) = role.as_object_mut() {
            role.object_at("metadata").object_at("labels").insert(label, "true");
            if !aggregates.is_empty() {
                let mut labels = keelson_meta::Map::new();
                labels.insert(aggregates, "true");
                let rule = value!({"clusterRoleSelectors": [{"matchLabels": (labels)}]});
                role.insert("aggregationRule", rule);
            }
        }
        (name.to_owned(), Object::from_value(role).expect("a map"))
    }

    #[test]
    fn a_role_has_the_rules_that_it_selects_in_the_order_of_names_and_each_once() {
        let check = |roles: &[(String, Object)], want: &[(&str, &[&str])]| {
            let roles = roles.iter().cloned().collect();
            let got = aggregated_rules(&roles).into_iter().map(|(name, rules)| {
                (name, rules.iter().map(|rule| rule.resources[0].to_string()).collect::<Vec<_>>())
            });
            let want = want.iter().map(|(name, resources)| {
                ((*name).to_owned(), resources.iter().map(|r| (*r).to_owned()).collect::<Vec<_>>())
            });
            assert_eq!(got.collect::<Vec<_>>(), want.collect::<Vec<_>>());
        };
        let a = role("a", "x", "", &["pods", "nodes"]);
        let b = role("b", "x", "", &["pods"]);
        let all = role("all", "y", "x", &["other"]);
        check(&[all.clone(), b.clone(), a.clone()], &[("all", &["pods", "nodes"])]);
        check(&[all], &[("all", &[])]);
        check(&[role("full", "y", "x", &["pods"]), b], &[]);
    }
}
