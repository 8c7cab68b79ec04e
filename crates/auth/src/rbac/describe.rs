//! Bindings and rules in words, as kube-apiserver words them.

use super::{Grant, Rule, SubjectKind};
use keelson_meta::Str;
use keelson_meta::status::quote;
use std::fmt;

impl fmt::Display for Grant {
    /// `RoleBinding "b/ns" of Role "r" to User "u"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binding = self.binding();
        let (kind, name) = match binding.namespace.as_str() {
            "" => ("ClusterRoleBinding", quote(&binding.name)),
            namespace => ("RoleBinding", quote(&format!("{}/{namespace}", binding.name))),
        };
        let role = &binding.role;
        write!(f, "{kind} {name} of {} {} to ", role.kind_name(), quote(&role.name))?;
        let subject = self.subject();
        let name = match subject.kind {
            SubjectKind::ServiceAccount => {
                let of = &subject.namespace;
                let namespace = if of.is_empty() { &binding.namespace } else { of };
                quote(&format!("{}/{namespace}", subject.name))
            }
            _ => quote(&subject.name),
        };
        write!(f, "{} {name}", subject.kind.name())
    }
}

/// A list of texts as Go's `%q` shows it: `["a" "b"]`.
pub(super) fn quoted(texts: &[Str]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", quoted.join(" "))
}

impl fmt::Display for Rule {
    /// `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ];
        let parts = parts.iter().filter(|(_, texts)| !texts.is_empty());
        let parts: Vec<String> =
            parts.map(|(name, texts)| format!("{name}:{}", quoted(texts))).collect();
        write!(f, "{{{}}}", parts.join(", "))
    }
}
