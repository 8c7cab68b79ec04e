//! PodSecurityConfiguration: the levels of namespaces without labels, and exemptions.

use super::{Level, Standard, minor};
use crate::config::{check_fields, text};
use crate::request::Request;
use keelson_meta::{Object, Value};

/// The levels of a namespace whose labels say nothing.
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
    /// Forbids nothing, and neither audits nor warns.
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

/// Why a pod is exempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exempt {
    Namespace,
    User,
    RuntimeClass,
}

impl Exempt {
    /// The reason as an audit annotation has it.
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

    /// Whether a namespace is exempt.
    pub fn has_namespace(&self, name: &str) -> bool {
        self.namespaces.iter().any(|known| known == name)
    }

    /// Whether the namespace or the user of a request is exempt.
    pub fn exempts(&self, req: &Request<'_>) -> Option<Exempt> {
        if self.has_namespace(req.namespace) {
            return Some(Exempt::Namespace);
        }
        let is_user = self.users.iter().any(|user| *user == req.user.name.as_str());
        is_user.then_some(Exempt::User)
    }

    /// Whether the runtime class of a pod's spec is exempt.
    pub fn exempts_class(&self, spec: Option<&Value>) -> bool {
        let class = spec.and_then(|spec| spec.str_at(&["runtimeClassName"]));
        class.is_some_and(|class| self.runtime_classes.iter().any(|known| known == class))
    }
}

/// The warning about level labels on an exempt namespace; `None` when they forbid nothing.
pub(super) fn exempt_warning(
    namespace: &Object,
    levels: &Defaults,
    own: &Defaults,
) -> Option<String> {
    let all = [("enforce", levels.enforce), ("audit", levels.audit), ("warn", levels.warn)];
    if levels == own || levels.is_privileged() {
        return None;
    }
    let has = |mode: &str| {
        let label = format!("pod-security.kubernetes.io/{mode}");
        [label.clone(), format!("{label}-version")].iter().any(|l| namespace.label(l).is_some())
    };
    let shown = all.iter().filter(|(mode, standard)| !standard.is_privileged() && has(mode));
    let shown: Vec<String> = shown.map(|(mode, standard)| format!("{mode}={standard}")).collect();
    Some(format!(
        "namespace {:?} is exempt from Pod Security, and the policy ({}) will be ignored",
        namespace.name(),
        shown.join(", ")
    ))
}
