//! Formats rules as kube-apiserver does.

use super::Rule;
use keelson_meta::Str;
use keelson_meta::status::quote;
use std::fmt;

/// Formats a list like Go's `%q`: `["a" "b"]`.
pub(super) fn quoted(texts: &[Str]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| quote(text)).collect();
    format!("[{}]", quoted.join(" "))
}

impl fmt::Display for Rule {
    /// `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get"]}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = [
            ("APIGroups", &self.groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.urls),
            ("ResourceNames", &self.names),
            ("Verbs", &self.verbs),
        ]
        .iter()
        .filter(|(_, texts)| !texts.is_empty())
        .map(|(name, texts)| format!("{name}:{}", quoted(texts)))
        .collect();
        write!(f, "{{{}}}", parts.join(", "))
    }
}
