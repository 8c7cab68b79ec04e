//! PodSecurityConfiguration: the levels of namespaces without labels, and exemptions.

use super::{check_fields, text};
use keelson_meta::Value;
use std::fmt;

/// A Pod Security Standard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// A level at one Kubernetes version; without a version, the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standard {
    pub level: Level,
    pub minor: Option<u32>,
}

impl Standard {
    /// Returns whether the standard forbids nothing.
    pub fn is_privileged(self) -> bool {
        self.level == Level::Privileged
    }
}

impl Level {
    /// Returns the name of the level in labels.
    pub fn name(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

impl fmt::Display for Standard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = self.level.name();
        match self.minor {
            Some(minor) => write!(f, "{level}:v1.{minor}"),
            None => write!(f, "{level}:latest"),
        }
    }
}

/// The levels of a namespace without labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Defaults {
    pub enforce: Standard,
    pub audit: Standard,
    pub warn: Standard,
}

impl Default for Defaults {
    fn default() -> Self {
        let none = Standard { level: Level::Privileged, minor: None };
        Defaults { enforce: none, audit: none, warn: none }
    }
}

impl Defaults {
    /// Returns whether the levels enforce, audit and warn of nothing.
    pub fn is_privileged(&self) -> bool {
        [self.enforce, self.audit, self.warn].into_iter().all(Standard::is_privileged)
    }

    pub fn read(config: &Value) -> Result<Defaults, String> {
        let Some(defaults) = config.get("defaults").filter(|value| !value.is_null()) else {
            return Ok(Defaults::default());
        };
        let known =
            ["enforce", "enforce-version", "audit", "audit-version", "warn", "warn-version"];
        check_fields(defaults, &known)?;
        let standard = |mode: &str| {
            let level = match text(defaults, mode) {
                "" | "privileged" => Level::Privileged,
                "baseline" => Level::Baseline,
                "restricted" => Level::Restricted,
                other => {
                    return Err(format!(
                        "defaults.{mode}: Invalid value: {other:?}: must be one of privileged, \
                         baseline, restricted"
                    ));
                }
            };
            let minor = match text(defaults, &format!("{mode}-version")) {
                "" | "latest" => None,
                version => Some(minor(version).ok_or_else(|| {
                    format!(
                        "defaults.{mode}-version: Invalid value: {version:?}: must be \"latest\" or \
                         \"v1.x\""
                    )
                })?),
            };
            Ok(Standard { level, minor })
        };
        Ok(Defaults {
            enforce: standard("enforce")?,
            audit: standard("audit")?,
            warn: standard("warn")?,
        })
    }
}

/// The reason of an exemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exempt {
    Namespace,
    User,
    RuntimeClass,
}

impl Exempt {
    /// Returns the value of the audit annotation.
    pub fn name(self) -> &'static str {
        match self {
            Exempt::Namespace => "namespace",
            Exempt::User => "user",
            Exempt::RuntimeClass => "runtimeClass",
        }
    }
}

/// Exempt namespaces, users and runtime classes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exemptions {
    namespaces: Vec<String>,
    users: Vec<String>,
    runtime_classes: Vec<String>,
}

impl Exemptions {
    pub fn read(config: &Value) -> Result<Exemptions, String> {
        let Some(exemptions) = config.get("exemptions").filter(|value| !value.is_null()) else {
            return Ok(Exemptions::default());
        };
        check_fields(exemptions, &["namespaces", "usernames", "runtimeClasses"])?;
        let names = |field: &str| {
            let names = exemptions.array_at(&[field]).iter().map(|name| {
                let text = name.as_str().map(str::to_owned);
                text.ok_or_else(|| format!("exemptions.{field}: an item is no string: quote it"))
            });
            names.collect::<Result<Vec<String>, String>>()
        };
        Ok(Exemptions {
            namespaces: names("namespaces")?,
            users: names("usernames")?,
            runtime_classes: names("runtimeClasses")?,
        })
    }

    /// Returns whether a namespace is exempt.
    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.iter().any(|known| known == name)
    }

    /// Returns the exemption of a namespace or a user.
    pub fn exempts(&self, namespace: &str, user: &str) -> Option<Exempt> {
        if self.has_namespace(namespace) {
            return Some(Exempt::Namespace);
        }
        let is_user = self.users.iter().any(|known| known == user);
        is_user.then_some(Exempt::User)
    }

    /// Returns whether the runtime class of a pod spec is exempt.
    pub fn exempts_class(&self, spec: Option<&Value>) -> bool {
        let class = spec.and_then(|spec| spec.str_at(&["runtimeClassName"]));
        class.is_some_and(|class| self.runtime_classes.iter().any(|known| known == class))
    }
}

/// Parses the minor version: 25 for `v1.25`.
pub(crate) fn minor(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("v1.")?;
    let leads = digits.len() > 1 && digits.starts_with('0');
    (!leads && digits.bytes().all(|b| b.is_ascii_digit())).then(|| digits.parse().ok()).flatten()
}
