//! Rules: the operations and resources that a webhook or policy matches (apiserver
//! `admission/plugin/webhook/predicates/rules`).

use crate::request::Operation;
use keelson_meta::{GroupVersionResource, Str, Value};

/// A rule of a webhook or policy.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    operations: Vec<Str>,
    groups: Vec<Str>,
    versions: Vec<Str>,
    /// Resource and subresource, which may be empty.
    resources: Vec<(Str, Str)>,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    All,
    Cluster,
    Namespaced,
    /// An unknown value, which matches nothing.
    Unknown,
}

/// The attributes of a request that rules are compared with.
#[derive(Clone, Copy)]
pub(crate) struct Requested<'a> {
    pub operation: Operation,
    pub resource: &'a GroupVersionResource,
    pub subresource: &'a str,
    /// The namespace; for a Namespace object, its own name.
    pub namespace: &'a str,
}

impl Rule {
    /// Parses a rule.
    pub fn new(rule: &Value) -> Rule {
        let texts = |name: &str| -> Vec<Str> {
            rule.array_at(&[name]).iter().filter_map(Value::as_str).map(Str::new).collect()
        };
        let resources = texts("resources").into_iter().map(|text| match text.split_once('/') {
            Some((resource, subresource)) => (resource.into(), subresource.into()),
            None => (text, Str::default()),
        });
        let scope = match rule.str_at(&["scope"]) {
            None | Some("*") => Scope::All,
            Some("Cluster") => Scope::Cluster,
            Some("Namespaced") => Scope::Namespaced,
            Some(_) => Scope::Unknown,
        };
        Rule {
            operations: texts("operations"),
            groups: texts("apiGroups"),
            versions: texts("apiVersions"),
            resources: resources.collect(),
            scope,
        }
    }

    /// Returns whether the rule matches a request.
    pub fn matches(&self, requested: &Requested<'_>) -> bool {
        let resource = requested.resource;
        has(&self.groups, &resource.group)
            && has(&self.versions, &resource.version)
            && self.matches_in_other_version(requested)
    }

    /// Returns whether the rule would match if the resource had another group or version.
    pub fn matches_in_other_version(&self, requested: &Requested<'_>) -> bool {
        has(&self.operations, requested.operation.name())
            && self.matches_scope(requested)
            && self.resources.iter().any(|(name, subresource)| {
                (name == "*" || *name == requested.resource.resource)
                    && (subresource == "*" || subresource == requested.subresource)
            })
    }

    /// Returns the resource names without subresources; `*` matches any.
    pub fn resources(&self) -> impl Iterator<Item = &Str> {
        self.resources.iter().map(|(name, _)| name)
    }

    fn matches_scope(&self, requested: &Requested<'_>) -> bool {
        let resource = requested.resource;
        let is_cluster = || {
            requested.namespace.is_empty()
                || (resource.group.is_empty()
                    && resource.version == "v1"
                    && resource.resource == "namespaces")
        };
        match self.scope {
            Scope::All => true,
            Scope::Cluster => is_cluster(),
            Scope::Namespaced => !is_cluster(),
            Scope::Unknown => false,
        }
    }
}

fn has(list: &[Str], wanted: &str) -> bool {
    list.iter().any(|item| item == "*" || item == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn a_rule_matches_operation_group_version_resource_and_scope() {
        let rule = |resources: &[&str], scope: &str| {
            let resources: Vec<Value> = resources.iter().map(|&text| text.into()).collect();
            Rule::new(&value!({
                "operations": ["CREATE"], "apiGroups": ["", "apps"], "apiVersions": ["v1"],
                "resources": (resources), "scope": (scope)
            }))
        };
        let check = |rule: Rule, path: &str, want: bool| {
            let parts: Vec<&str> = path.split(' ').collect();
            let [operation, group, version, resource, subresource, namespace] = parts[..] else {
                panic!("{path}")
            };
            let operation = match operation {
                "CREATE" => Operation::Create,
                _ => Operation::Delete,
            };
            let plain = |text: &str| if text == "-" { String::new() } else { text.to_owned() };
            let gvr = GroupVersionResource::new(plain(group), version, resource);
            let requested = Requested {
                operation,
                resource: &gvr,
                subresource: &plain(subresource),
                namespace: &plain(namespace),
            };
            assert_eq!(rule.matches(&requested), want, "{path} {rule:?}");
        };
        check(rule(&["pods"], "*"), "CREATE - v1 pods - a", true);
        check(rule(&["pods"], "*"), "DELETE - v1 pods - a", false);
        check(rule(&["pods"], "*"), "CREATE batch v1 pods - a", false);
        check(rule(&["pods"], "*"), "CREATE apps v2 pods - a", false);
        check(rule(&["pods"], "*"), "CREATE - v1 pods status a", false);
        check(rule(&["*"], "*"), "CREATE - v1 pods - a", true);
        check(rule(&["*"], "*"), "CREATE - v1 pods status a", false);
        check(rule(&["*/*"], "*"), "CREATE - v1 pods - a", true);
        check(rule(&["*/status"], "*"), "CREATE - v1 pods status a", true);
        check(rule(&["pods/*"], "*"), "CREATE - v1 pods - a", true);
        check(rule(&["pods/*"], "*"), "CREATE - v1 nodes status -", false);
        check(rule(&["*/*"], "Namespaced"), "CREATE - v1 pods - a", true);
        check(rule(&["*/*"], "Namespaced"), "CREATE - v1 nodes - -", false);
        check(rule(&["*/*"], "Namespaced"), "CREATE - v1 namespaces - a", false);
        check(rule(&["*/*"], "Cluster"), "CREATE - v1 namespaces - a", true);
        check(rule(&["*/*"], "Cluster"), "CREATE - v1 pods - a", false);
        check(rule(&["*/*"], "Odd"), "CREATE - v1 pods - a", false);
    }
}
