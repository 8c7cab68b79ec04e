//! `ResourceQuotaConfiguration`: resources that require a quota.

use super::{check_fields, text};
use keelson_meta::Value;
use std::fmt;

/// A limited resource of `ResourceQuotaConfiguration`: its use requires a quota.
#[derive(Clone, Debug)]
pub(crate) struct LimitedResource {
    pub group: String,
    pub resource: String,
    /// Substrings of the names of limited resources (`matchContains`).
    contained: Vec<String>,
    pub scopes: Vec<Scope>,
}

impl LimitedResource {
    /// Reads a `ResourceQuotaConfiguration`.
    pub fn read_all(own: &Value) -> Result<Vec<LimitedResource>, String> {
        const KINDS: [&str; 2] = ["ResourceQuotaConfiguration", "Configuration"];
        check_fields(own, &["kind", "apiVersion", "limitedResources"])?;
        let kind = text(own, "kind");
        let version = text(own, "apiVersion");
        let known = ["apiserver.config.k8s.io/v1", "resourcequota.admission.k8s.io/v1beta1"];
        if !KINDS.contains(&kind) || !known.contains(&version) {
            return Err(format!("{kind:?} of {version:?} is no {} of {}", KINDS[0], known[0]));
        }
        own.array_at(&["limitedResources"]).iter().map(LimitedResource::read).collect()
    }

    fn read(limited: &Value) -> Result<LimitedResource, String> {
        check_fields(limited, &["apiGroup", "resource", "matchContains", "matchScopes"])?;
        let resource = text(limited, "resource").to_owned();
        if resource.is_empty() {
            return Err("limitedResources: resource must not be empty".to_owned());
        }
        let contained = limited.array_at(&["matchContains"]).iter().filter_map(Value::as_str);
        Ok(LimitedResource {
            group: text(limited, "apiGroup").to_owned(),
            resource,
            contained: contained.map(str::to_owned).collect(),
            scopes: limited.array_at(&["matchScopes"]).iter().map(Scope::read).collect(),
        })
    }

    pub fn contains(&self, what: &str) -> bool {
        self.contained.iter().any(|part| what.contains(part.as_str()))
    }
}

/// A scope of a quota or of the configuration (`ScopedResourceSelectorRequirement`).
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    pub name: String,
    pub operator: String,
    pub values: Vec<String>,
}

impl Scope {
    pub fn read(requirement: &Value) -> Scope {
        let text = |name: &str| requirement.str_at(&[name]).unwrap_or_default().to_owned();
        let values = requirement.array_at(&["values"]).iter().filter_map(Value::as_str);
        Scope {
            name: text("scopeName"),
            operator: text("operator"),
            values: values.map(str::to_owned).collect(),
        }
    }

    /// Returns whether the scope selects a class, or the absence of one.
    pub fn selects(&self, class: Option<&str>) -> bool {
        let is_listed = || class.is_some_and(|class| self.values.iter().any(|own| own == class));
        match self.operator.as_str() {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "DoesNotExist" => class.is_none(),
            _ => class.is_some(),
        }
    }
}

/// Formats the scope as Go prints it.
impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{} {} [{}]}}", self.name, self.operator, self.values.join(" "))
    }
}
