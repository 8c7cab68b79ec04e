//! The cluster role aggregation controller: fills cluster roles that have an aggregationRule with the
//! rules of those that it selects.

use bytes::Bytes;
use keelson_auth::Permit;
use keelson_auth::rbac::{self, Rule, rules_of};
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Object, Value, value};
use keelson_registry::options::{Patch, PatchForm, WatchOptions, WriteOptions};
use keelson_registry::{EventKind, Part, Registry, WatchEvent, WatchRefusal};
use keelson_schema::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// From a failure to the next try.
const RETRY_DELAY: Duration = Duration::from_millis(500);
const FIELD_MANAGER: &str = "clusterrole-aggregation-controller";

/// Runs until it is aborted.
pub(crate) async fn run(registry: Arc<Registry>) {
    loop {
        if let Err(error) = follow(&registry).await {
            tracing::warn!(%error, "cluster role aggregation failed; trying again");
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
}

/// Watches cluster roles, and fills those that aggregate whenever one changes.
async fn follow(registry: &Arc<Registry>) -> Result<(), Failure> {
    let permit =
        Permit::internal("system:serviceaccount:kube-system:clusterrole-aggregation-controller");
    let all = registry.target(rbac::GROUP, "clusterroles", "", "");
    let session = registry.watch(&permit, &all, &WatchOptions::default()).await;
    let mut session = session.map_err(WatchRefusal::into_failure)?;
    let mut roles: BTreeMap<String, Object> = BTreeMap::new();
    let mut events: Vec<WatchEvent> = vec![];
    loop {
        loop {
            events.clear();
            if session.take(&mut events).is_err() {
                return Ok(());
            }
            if events.is_empty() {
                break;
            }
            for event in &events {
                let name = event.entry.name().to_owned();
                match (event.kind, all.kind.decode(&event.entry)) {
                    (EventKind::Added | EventKind::Modified, Ok(role)) => roles.insert(name, role),
                    _ => roles.remove(&name),
                };
            }
        }
        for (name, rules) in wanted(&roles) {
            apply(registry, &permit, &name, &rules).await?;
        }
        if session.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// The roles whose rules are not those of the roles that they select, and the rules that they shall have.
fn wanted(roles: &BTreeMap<String, Object>) -> Vec<(String, Vec<Rule>)> {
    let mut wanted = vec![];
    for (name, role) in roles {
        let selectors = role.array_at(&["aggregationRule", "clusterRoleSelectors"]);
        if selectors.is_empty() {
            continue;
        }
        let mut rules: Vec<Rule> = vec![];
        for selector in selectors {
            let Ok(selector) = Selector::from_object(Some(selector)) else { continue };
            // In the order of their names, as the map has them.
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
            wanted.push((name.clone(), rules));
        }
    }
    wanted
}

async fn apply(
    registry: &Registry,
    permit: &Permit,
    name: &str,
    rules: &[Rule],
) -> Result<(), Failure> {
    let target = registry.target(rbac::GROUP, "clusterroles", "", name);
    let rules: Vec<Value> = rules.iter().map(Rule::to_value).collect();
    let mut role = value!({
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": name}
    });
    if let (Some(role), false) = (role.as_object_mut(), rules.is_empty()) {
        role.insert("rules", rules);
    }
    let mut body = vec![];
    json::write_value(&role, &mut body);
    let patch = Patch { form: PatchForm::ApplyYaml, body: Bytes::from(body) };
    let field_manager = FIELD_MANAGER.into();
    let options = WriteOptions { field_manager, force: true, ..WriteOptions::default() };
    match registry.patch(permit, &target, Part::Main, &patch, &options).await {
        Err(status) if status.code == 404 => Ok(()),
        applied => applied.map(drop),
    }
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
            let got = wanted(&roles).into_iter().map(|(name, rules)| {
                (name, rules.iter().map(|rule| rule.resources[0].to_string()).collect::<Vec<_>>())
            });
            let want = want.iter().map(|(name, resources)| {
                ((*name).to_owned(), resources.iter().map(|r| (*r).to_owned()).collect::<Vec<_>>())
            });
            assert_eq!(got.collect::<Vec<_>>(), want.collect::<Vec<_>>());
        };
        let (a, b) = (role("a", "x", "", &["pods", "nodes"]), role("b", "x", "", &["pods"]));
        let all = role("all", "y", "x", &["other"]);
        check(&[all.clone(), b.clone(), a.clone()], &[("all", &["pods", "nodes"])]);
        check(&[all], &[("all", &[])]);
        check(&[role("full", "y", "x", &["pods"]), b], &[]);
    }
}
