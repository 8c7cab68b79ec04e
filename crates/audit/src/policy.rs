//! [`Policy`]: the rules that give each request its level (audit.k8s.io/v1 `Policy`).

mod read;
mod types;

pub use read::PolicyError;

use crate::level::{Level, Stages};
use keelson_auth::{Attributes, User};

/// Stands for all groups, all resources or all subresources.
const ANY: &str = "*";

/// The rules of a policy file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Policy {
    rules: Vec<Rule>,
    omit_stages: Stages,
    omit_managed_fields: bool,
    /// What the file has that is ignored: unknown and duplicate fields, as one text.
    pub ignored: Option<String>,
}

/// One rule. An empty list matches everything.
#[derive(Clone, Debug, PartialEq)]
struct Rule {
    level: Level,
    users: Vec<String>,
    user_groups: Vec<String>,
    verbs: Vec<String>,
    resources: Vec<GroupResources>,
    namespaces: Vec<String>,
    urls: Vec<String>,
    omit_stages: Stages,
    /// Overrides that of the policy.
    omit_managed_fields: Option<bool>,
}

/// Resources of one group.
#[derive(Clone, Debug, PartialEq)]
struct GroupResources {
    group: String,
    resources: Vec<String>,
    names: Vec<String>,
}

/// How one request is audited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestConfig {
    /// How much of it.
    pub level: Level,
    /// The stages without an event.
    pub omit_stages: Stages,
    /// Whether the objects are shown without `metadata.managedFields`.
    pub omit_managed_fields: bool,
}

impl Policy {
    /// Parses a policy file, in YAML or JSON.
    pub fn parse(text: &str) -> Result<Policy, PolicyError> {
        read::parse(text)
    }

    /// Returns how a request is audited: by the first rule that matches, else not at all. A request
    /// whose sender could not be authenticated has no user.
    pub fn evaluate(&self, attributes: &Attributes, user: Option<&User>) -> RequestConfig {
        let rule = self.rules.iter().find(|rule| rule.matches(attributes, user));
        let Some(rule) = rule else {
            return RequestConfig {
                level: Level::None,
                omit_stages: self.omit_stages,
                omit_managed_fields: self.omit_managed_fields,
            };
        };
        RequestConfig {
            level: rule.level,
            omit_stages: self.omit_stages.union(rule.omit_stages),
            omit_managed_fields: rule.omit_managed_fields.unwrap_or(self.omit_managed_fields),
        }
    }
}

impl Rule {
    fn matches(&self, attributes: &Attributes, user: Option<&User>) -> bool {
        let is_listed = |list: &[String], text: &str| list.iter().any(|one| one == text);
        let is_user =
            self.users.is_empty() || user.is_some_and(|user| is_listed(&self.users, &user.name));
        let is_group = self.user_groups.is_empty()
            || user.is_some_and(|user| {
                user.groups.iter().any(|group| is_listed(&self.user_groups, group))
            });
        let is_verb = self.verbs.is_empty() || is_listed(&self.verbs, &attributes.verb);
        if !(is_user && is_group && is_verb) {
            return false;
        }
        if !self.namespaces.is_empty() || !self.resources.is_empty() {
            let is_namespace =
                self.namespaces.is_empty() || is_listed(&self.namespaces, &attributes.namespace);
            let is_resource = self.resources.is_empty()
                || self.resources.iter().any(|resources| resources.matches(attributes));
            return attributes.is_resource() && is_namespace && is_resource;
        }
        self.urls.is_empty()
            || (!attributes.is_resource()
                && self.urls.iter().any(|url| is_path_of(&attributes.path, url)))
    }
}

/// Returns whether a path is the URL of a rule, or begins with what comes before its `*`.
fn is_path_of(path: &str, url: &str) -> bool {
    path == url || (url.ends_with('*') && path.starts_with(url.trim_end_matches('*')))
}

impl GroupResources {
    fn matches(&self, attributes: &Attributes) -> bool {
        if self.group != ANY && self.group != attributes.gvr.group.as_str() {
            return false;
        }
        if self.resources.is_empty() {
            return true;
        }
        let is_name = self.names.is_empty()
            || self.names.iter().any(|name| *name == attributes.name.as_str());
        is_name && self.resources.iter().any(|pattern| is_resource_of(attributes, pattern))
    }
}

/// Returns whether a pattern is that of a resource: `pods`, `pods/log`, `pods/*` (pods and all
/// their subresources), `*/status`, or `*`.
fn is_resource_of(attributes: &Attributes, pattern: &str) -> bool {
    let resource = attributes.gvr.resource.as_str();
    let subresource = &*attributes.subresource;
    match pattern.split_once('/') {
        None => pattern == ANY || (pattern == resource && subresource.is_empty()),
        Some((of, ANY)) if of == resource => true,
        Some((ANY, of)) => !subresource.is_empty() && of == subresource,
        Some((of, sub)) => of == resource && sub == subresource && !sub.is_empty(),
    }
}

#[cfg(test)]
mod tests;
