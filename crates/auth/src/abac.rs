//! Attribute-based access control: the lines of `--authorization-policy-file`.

use crate::rbac::Rule;
use crate::{AUTHENTICATED, Attributes, AuthorizationReason, Decision, User};
use keelson_meta::Str;
use serde_json::Value;

/// Maximum policies in a file.
const POLICIES_MAX: usize = 100_000;

/// The policies of a file. A request is allowed if one of them matches.
#[derive(Debug, Default)]
pub struct Abac {
    policies: Vec<Policy>,
}

/// A policy line. Empty fields match only empty attributes; `*` matches everything.
#[derive(Debug, Default)]
struct Policy {
    user: String,
    group: String,
    is_read_only: bool,
    api_group: String,
    resource: String,
    namespace: String,
    path: String,
}

/// An invalid line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct AbacError {
    /// The line number, from 1.
    pub line: usize,
    /// The reason.
    pub why: String,
}

impl Abac {
    /// Reads a policy file: a JSON object a line; empty lines and comments (`#`) are skipped.
    pub fn parse(text: &str) -> Result<Abac, AbacError> {
        let mut policies = vec![];
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fail = |why: String| AbacError { line: i + 1, why };
            let value: Value = serde_json::from_str(line).map_err(|e| fail(e.to_string()))?;
            policies.push(Policy::read(&value).map_err(fail)?);
            if policies.len() > POLICIES_MAX {
                return Err(fail(format!("more than {POLICIES_MAX} policies")));
            }
        }
        Ok(Abac { policies })
    }

    /// Returns `Allow` if a policy matches the request.
    pub fn decide(&self, user: &User, attributes: &Attributes) -> Decision {
        if self.policies.iter().any(|policy| policy.allows(user, attributes)) {
            return Decision::allow(AuthorizationReason::Empty);
        }
        Decision::no_opinion("No policy matched.".to_owned())
    }

    /// Returns the policies for a user as rules.
    pub fn rules_for(&self, user: &User, namespace: &str) -> Vec<Rule> {
        let one = |text: &str| match text {
            "" => vec![],
            text => vec![Str::new(text)],
        };
        let mut rules = vec![];
        for policy in self.policies.iter().filter(|policy| policy.is_for(user)) {
            if policy.namespace == "*" || policy.namespace == namespace {
                rules.push(Rule {
                    verbs: policy.verbs(),
                    groups: one(&policy.api_group),
                    resources: one(&policy.resource),
                    ..Rule::default()
                });
            }
            if !policy.path.is_empty() {
                let verbs = policy.verbs();
                let urls = one(&policy.path);
                rules.push(Rule { verbs, urls, ..Rule::default() });
            }
        }
        rules
    }
}

impl Policy {
    fn read(value: &Value) -> Result<Policy, String> {
        let text = |of: &Value, name: &str| match of.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(_) => Err(format!("{name} is not a string")),
        };
        let flag = |of: &Value| match of.get("readonly") {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err("readonly is not true or false".to_owned()),
        };
        match (value.get("apiVersion").and_then(Value::as_str), value.get("kind")) {
            (Some("abac.authorization.kubernetes.io/v1beta1"), Some(Value::String(kind)))
                if kind == "Policy" =>
            {
                let spec = value.get("spec").ok_or("spec is missing")?;
                Ok(Policy {
                    user: text(spec, "user")?,
                    group: text(spec, "group")?,
                    is_read_only: flag(spec)?,
                    api_group: text(spec, "apiGroup")?,
                    resource: text(spec, "resource")?,
                    namespace: text(spec, "namespace")?,
                    path: text(spec, "nonResourcePath")?,
                })
            }
            (None, None) if value.is_object() => Ok(Policy {
                user: text(value, "user")?,
                group: text(value, "group")?,
                is_read_only: flag(value)?,
                resource: text(value, "resource")?,
                namespace: text(value, "namespace")?,
                ..Policy::default()
            }
            .unversioned()),
            _ => Err("not a Policy of abac.authorization.kubernetes.io/v1beta1".to_owned()),
        }
    }

    /// Applies the defaults of the unversioned form, whose absent fields match everything.
    fn unversioned(mut self) -> Policy {
        let everybody = self.user.is_empty() && self.group.is_empty();
        if everybody || self.user == "*" || self.group == "*" {
            self.group = AUTHENTICATED.to_owned();
        }
        if self.namespace.is_empty() && self.resource.is_empty() {
            self.path = "*".to_owned();
        }
        for field in [&mut self.namespace, &mut self.resource, &mut self.api_group] {
            if field.is_empty() {
                *field = "*".to_owned();
            }
        }
        self
    }

    fn is_for(&self, user: &User) -> bool {
        match (self.user.as_str(), self.group.as_str()) {
            ("", "") => false,
            (name, group) => {
                (matches!(name, "" | "*") || user.name == name)
                    && (matches!(group, "" | "*") || user.is_in(group))
            }
        }
    }

    fn verbs(&self) -> Vec<Str> {
        let verbs: &[&str] = if self.is_read_only { &["get", "list", "watch"] } else { &["*"] };
        verbs.iter().copied().map(Str::new).collect()
    }

    fn allows(&self, user: &User, attributes: &Attributes) -> bool {
        if !self.is_for(user) || (self.is_read_only && !attributes.is_read_only()) {
            return false;
        }
        let matches = |own: &str, requested: &str| own == "*" || own == requested;
        if attributes.is_resource() {
            return matches(&self.namespace, &attributes.namespace)
                && matches(&self.resource, &attributes.gvr.resource)
                && matches(&self.api_group, &attributes.gvr.group);
        }
        !self.path.is_empty() && matches(&self.path, &attributes.path)
            || (self.path.ends_with('*')
                && attributes.path.starts_with(self.path.trim_end_matches('*')))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::GroupVersionResource;

    fn allowed(line: &str, user: &str, verb: &str, resource: &str, namespace: &str) -> bool {
        let user = User { name: user.into(), ..User::default() }.with_group(AUTHENTICATED);
        let (gvr, path) = match resource.strip_prefix('/') {
            Some(_) => (GroupVersionResource::default(), resource.to_owned()),
            None => (GroupVersionResource::new("", "v1", resource), String::new()),
        };
        let attributes = Attributes {
            verb: verb.into(),
            gvr,
            namespace: namespace.into(),
            non_resource: !path.is_empty(),
            path,
            ..Attributes::default()
        };
        Abac::parse(line).expect("a policy").decide(&user, &attributes).is_allowed()
    }

    #[test]
    fn a_policy_allows_matching_requests() {
        let spec = |spec: &str| {
            format!(
                "{{\"apiVersion\":\"abac.authorization.kubernetes.io/v1beta1\",\
                 \"kind\":\"Policy\",\"spec\":{spec}}}"
            )
        };
        let pods = spec(r#"{"user":"bob","namespace":"a","resource":"pods","readonly":true}"#);
        assert!(allowed(&pods, "bob", "get", "pods", "a"));
        assert!(!allowed(&pods, "bob", "delete", "pods", "a"));
        assert!(!allowed(&pods, "bob", "get", "pods", "b"));
        assert!(!allowed(&pods, "eve", "get", "pods", "a"));
        assert!(!allowed(&pods, "bob", "get", "/version", ""));
        let paths = spec(r#"{"group":"system:authenticated","nonResourcePath":"/ver*"}"#);
        assert!(allowed(&paths, "eve", "get", "/version", ""));
        assert!(!allowed(&paths, "eve", "get", "/metrics", ""));
        assert!(!allowed(&spec("{\"namespace\":\"*\"}"), "eve", "get", "pods", "a"));
        // A policy without a path allows no path, not even an empty one.
        let policy = Abac::parse(&spec(r#"{"user":"bob","resource":"pods"}"#)).expect("a policy");
        let nowhere =
            Attributes { verb: "get".into(), non_resource: true, ..Attributes::default() };
        let bob = User { name: "bob".into(), ..User::default() };
        assert!(!policy.decide(&bob, &nowhere).is_allowed());
    }

    #[test]
    fn a_line_without_version_allows_fields_that_it_omits() {
        assert!(allowed("{\"user\":\"bob\"}", "bob", "delete", "pods", "a"));
        assert!(allowed("{\"user\":\"bob\"}", "bob", "get", "/metrics", ""));
        assert!(!allowed("{\"user\":\"bob\",\"resource\":\"pods\"}", "bob", "get", "/x", ""));
    }

    #[test]
    fn errors_name_the_line() {
        for text in ["# fine\n\n[]", "\n\n{\"kind\":\"Policy\"}", "{}\n{}\n{\"user\":1}"] {
            assert_eq!(Abac::parse(text).unwrap_err().line, 3, "{text}");
        }
    }
}
