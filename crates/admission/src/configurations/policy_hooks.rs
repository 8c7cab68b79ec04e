//! [`PolicyHooks`]: the policies that have bindings, indexed by resource.

use super::policy::{Binding, Policy};
use crate::rules::Requested;
use keelson_auth::Change;
use keelson_meta::Str;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

/// Policies of one kind and their bindings.
#[derive(Clone, Debug, Default)]
pub(crate) struct PolicyKind {
    policies: BTreeMap<Str, Arc<Policy>>,
    bindings: BTreeMap<Str, Arc<Binding>>,
    /// Built on the first read after a change.
    hooks: OnceLock<Arc<PolicyHooks>>,
}

/// A policy with its bindings (upstream's `PolicyHook`).
#[derive(Debug)]
pub(crate) struct PolicyHook {
    pub policy: Arc<Policy>,
    pub bindings: Vec<Arc<Binding>>,
}

/// The policies that have bindings, sorted by name.
#[derive(Debug, Default)]
pub(crate) struct PolicyHooks {
    hooks: Vec<PolicyHook>,
    /// Indexes in `hooks` by the resources of their rules.
    by_resource: HashMap<Str, Vec<u32>>,
    /// Indexes of hooks with a rule for all resources.
    of_any: Vec<u32>,
}

impl PolicyKind {
    pub fn apply(&mut self, is_binding: bool, change: Change) {
        self.hooks = OnceLock::new();
        match (is_binding, change) {
            (false, Change::Reset) => self.policies.clear(),
            (false, Change::Put(policy)) => {
                let policy = Policy::new(policy);
                self.policies.insert(policy.name.clone(), Arc::new(policy));
            }
            (false, Change::Gone { name, .. }) => {
                self.policies.remove(&name);
            }
            (true, Change::Reset) => self.bindings.clear(),
            (true, Change::Put(binding)) => {
                let binding = Binding::new(&binding);
                self.bindings.insert(binding.name.clone(), Arc::new(binding));
            }
            (true, Change::Gone { name, .. }) => {
                self.bindings.remove(&name);
            }
        }
    }

    pub fn hooks(&self) -> &Arc<PolicyHooks> {
        self.hooks.get_or_init(|| Arc::new(self.make()))
    }

    fn make(&self) -> PolicyHooks {
        let mut bound: BTreeMap<&Str, Vec<Arc<Binding>>> = BTreeMap::new();
        for binding in self.bindings.values() {
            bound.entry(&binding.policy).or_default().push(binding.clone());
        }
        let mut out = PolicyHooks::default();
        for (name, bindings) in bound {
            // A binding may be stored before its policy.
            let Some(policy) = self.policies.get(name) else { continue };
            out.push(PolicyHook { policy: policy.clone(), bindings });
        }
        out
    }
}

impl PolicyHooks {
    pub fn is_empty(&self) -> bool {
        self.hooks.is_empty()
    }

    fn push(&mut self, hook: PolicyHook) {
        let at = self.hooks.len() as u32;
        let resources = hook.policy.constraints.resources();
        if resources.iter().any(|resource| *resource == "*") {
            self.of_any.push(at);
        } else {
            for resource in resources {
                let places = self.by_resource.entry(resource.clone()).or_default();
                if places.last() != Some(&at) {
                    places.push(at);
                }
            }
        }
        self.hooks.push(hook);
    }

    /// Returns the hooks that may match a request, sorted by policy name. An object served in
    /// several groups or versions has one resource name.
    pub fn candidates(&self, requested: &Requested<'_>) -> Vec<&PolicyHook> {
        let resource = requested.resource.resource.as_str();
        let named = self.by_resource.get(resource).map(Vec::as_slice).unwrap_or_default();
        let mut places: Vec<u32> = Vec::with_capacity(named.len() + self.of_any.len());
        places.extend(named.iter().chain(&self.of_any));
        if !named.is_empty() && !self.of_any.is_empty() {
            places.sort_unstable();
        }
        let hooks = places.into_iter().map(|at| &self.hooks[at as usize]);
        hooks.filter(|hook| hook.policy.constraints.may_match(requested)).collect()
    }

    /// Returns whether no hook matches any request to a resource.
    pub fn has_none_for(&self, resource: &str) -> bool {
        self.of_any.is_empty() && !self.by_resource.contains_key(resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Operation;
    use keelson_meta::{GroupVersionResource, Object, Value, value};

    fn object(name: &str, spec: Value) -> Change {
        let object = Object::from_value(value!({"metadata": {"name": (name)}, "spec": (spec)}));
        Change::Put(object.expect("a map"))
    }

    fn policy(name: &str, resources: &[&str]) -> Change {
        let resources: Vec<Value> = resources.iter().map(|&text| text.into()).collect();
        let rule = value!({"resources": (resources), "operations": ["CREATE"]});
        object(name, value!({"matchConstraints": {"resourceRules": [(rule)]}}))
    }

    fn names(kinds: &PolicyKind, resource: &str) -> Vec<String> {
        let gvr = GroupVersionResource::new("", "v1", resource);
        let operation = Operation::Create;
        let requested =
            Requested { operation, resource: &gvr, subresource: "scale", namespace: "a" };
        let found = kinds.hooks().candidates(&requested);
        let shown = |hook: &&PolicyHook| format!("{} {}", hook.policy.name, hook.bindings.len());
        let names: Vec<String> = found.iter().map(shown).collect();
        assert!(names.is_empty() || !kinds.hooks().has_none_for(resource), "{resource}");
        names
    }

    #[test]
    fn policies_with_bindings_are_found_by_resource() {
        let mut kinds = PolicyKind::default();
        kinds.apply(false, policy("b", &["pods", "pods/scale"]));
        kinds.apply(false, policy("a", &["*/scale"]));
        kinds.apply(false, policy("c", &["pods/*", "nodes/*"]));
        assert!(kinds.hooks().is_empty(), "none has a binding");
        kinds.apply(false, policy("d", &["pods/status"]));
        for (name, policy) in
            [("0", "d"), ("1", "b"), ("2", "b"), ("3", "a"), ("4", "c"), ("5", "absent")]
        {
            kinds.apply(true, object(name, value!({"policyName": (policy)})));
        }
        assert_eq!(names(&kinds, "pods"), ["a 1", "b 2", "c 1"]);
        assert_eq!(names(&kinds, "nodes"), ["a 1", "c 1"]);
        assert_eq!(names(&kinds, "secrets"), ["a 1"]);
        let gone = |name: &str| Change::Gone { namespace: Str::default(), name: name.into() };
        kinds.apply(false, gone("a"));
        kinds.apply(true, gone("2"));
        assert_eq!(names(&kinds, "pods"), ["b 1", "c 1"]);
        assert!(names(&kinds, "secrets").is_empty());
        kinds.apply(true, Change::Reset);
        assert!(kinds.hooks().is_empty());
    }
}
