//! [`AuthorizationConfiguration`]: the file of `--authorization-config`
//! (`apiserver.config.k8s.io`).

use super::access::{FailurePolicy, WebhookOptions};
use super::{ReviewVersion, conditions};
use crate::config::{ConfigErrors, Fields};
use keelson_meta::time::GoDuration;
use keelson_meta::{ErrorList, FieldError, Path, Value, names};
use std::collections::HashSet;
use std::time::Duration;

/// The accepted versions; they have the same fields.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];
/// The types of authorizers.
const TYPES: [&str; 6] = ["ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook"];
const WEBHOOK: &str = "Webhook";
/// Maximum conditions of one webhook, as in kube-apiserver.
const CONDITIONS_MAX: usize = 64;
/// Maximum timeout of a webhook.
const TIMEOUT_MAX: Duration = Duration::from_secs(30);
const AUTHORIZED_TTL_DEFAULT: Duration = Duration::from_secs(300);
const UNAUTHORIZED_TTL_DEFAULT: Duration = Duration::from_secs(30);

/// The authorizers of a file, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AuthorizationConfiguration {
    /// The authorizers.
    pub authorizers: Vec<AuthorizerConfig>,
}

/// An authorizer of the chain.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthorizerConfig {
    /// `RBAC`, `Webhook` and so on.
    pub kind: String,
    /// The name in logs.
    pub name: String,
    /// The webhook, if it is of type Webhook.
    pub webhook: Option<WebhookConfig>,
}

/// A webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookConfig {
    /// Timeout, cache times and failure policy.
    pub options: WebhookOptions,
    /// The path of the kubeconfig.
    pub kubeconfig: String,
}

impl AuthorizationConfiguration {
    /// Parses and validates a file.
    pub fn read(file: &Value) -> Result<AuthorizationConfiguration, String> {
        let failed = |why| format!("failed to load AuthorizationConfiguration from file: {why}");
        let config_errors = ConfigErrors::default();
        let kind = "AuthorizationConfiguration";
        let fields = Fields::of_file(file, kind, &VERSIONS, &["authorizers"], &config_errors)
            .map_err(failed)?;
        let mut errors = ErrorList::new();
        let list = fields.objects("authorizers", &["type", "name", "webhook"]);
        let root = Path::new("authorizers");
        if list.is_empty() {
            let why = "at least one authorization mode must be defined";
            errors.push(FieldError::required(&root, why));
        }
        let mut kinds = HashSet::new();
        let mut known_names = HashSet::new();
        let mut authorizers = vec![];
        for (at, fields) in list.iter().enumerate() {
            let path = root.index(at);
            // Parse even an invalid webhook, so that its unknown fields are reported.
            let webhook = Webhook::read(fields);
            let kind = fields.text("type");
            let name = fields.text("name");
            if !check_kind(&kind, &mut kinds, &path, &mut errors) {
                continue;
            }
            check_name(&name, &mut known_names, &path, &mut errors);
            let webhook = match (kind == WEBHOOK, webhook) {
                (true, Some(webhook)) => webhook.check(&path, &mut errors),
                (true, None) => {
                    let why = "required when type=Webhook";
                    errors.push(FieldError::required(&path.field("webhook"), why));
                    None
                }
                (false, Some(_)) => {
                    let why = "may only be specified when type=Webhook";
                    errors.push(FieldError::invalid(&path.field("webhook"), "non-null", why));
                    None
                }
                (false, None) => None,
            };
            authorizers.push(AuthorizerConfig { kind, name, webhook });
        }
        config_errors.into_result().map_err(failed)?;
        if errors.is_empty() {
            Ok(AuthorizationConfiguration { authorizers })
        } else {
            Err(errors.aggregate())
        }
    }
}

fn check_kind(
    kind: &str,
    seen: &mut HashSet<String>,
    path: &Path<'_>,
    errors: &mut ErrorList,
) -> bool {
    let path = path.field("type");
    if kind.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else if !TYPES.contains(&kind) {
        errors.push(FieldError::not_supported(&path, kind, &TYPES));
    } else if !seen.insert(kind.to_owned()) && kind != WEBHOOK {
        errors.push(FieldError::duplicate(&path, kind));
    } else {
        return true;
    }
    false
}

fn check_name(name: &str, seen: &mut HashSet<String>, path: &Path<'_>, errors: &mut ErrorList) {
    let path = path.field("name");
    let name_errors = names::is_dns1123_subdomain(name);
    if name.is_empty() {
        errors.push(FieldError::required(&path, ""));
    } else if seen.contains(name) {
        errors.push(FieldError::duplicate(&path, name));
    } else if !name_errors.is_empty() {
        let why = format!("authorizer name is invalid: {}", name_errors.join(", "));
        errors.push(FieldError::invalid(&path, name, &why));
    }
    seen.insert(name.to_owned());
}

/// A webhook as in the file.
struct Webhook {
    timeout: String,
    authorized_ttl: String,
    unauthorized_ttl: String,
    remembers_authorized: bool,
    remembers_unauthorized: bool,
    version: String,
    condition_version: String,
    failure_policy: String,
    connection: String,
    kubeconfig: Option<String>,
    conditions: Vec<String>,
}

impl Webhook {
    fn read(fields: &Fields<'_>) -> Option<Webhook> {
        let known_fields = [
            "timeout",
            "authorizedTTL",
            "cacheAuthorizedRequests",
            "unauthorizedTTL",
            "cacheUnauthorizedRequests",
            "subjectAccessReviewVersion",
            "matchConditionSubjectAccessReviewVersion",
            "failurePolicy",
            "connectionInfo",
            "matchConditions",
        ];
        let fields = fields.object("webhook", &known_fields);
        let connection = fields.object("connectionInfo", &["type", "kubeConfigFile"]);
        let conditions = fields.objects("matchConditions", &["expression"]);
        fields.is_there().then(|| Webhook {
            timeout: fields.text("timeout"),
            authorized_ttl: fields.text("authorizedTTL"),
            unauthorized_ttl: fields.text("unauthorizedTTL"),
            remembers_authorized: fields.flag_or("cacheAuthorizedRequests", true),
            remembers_unauthorized: fields.flag_or("cacheUnauthorizedRequests", true),
            version: fields.text("subjectAccessReviewVersion"),
            condition_version: fields.text("matchConditionSubjectAccessReviewVersion"),
            failure_policy: fields.text("failurePolicy"),
            connection: connection.text("type"),
            kubeconfig: connection.optional_text("kubeConfigFile"),
            conditions: conditions.iter().map(|fields| fields.text("expression")).collect(),
        })
    }

    fn check(self, path: &Path<'_>, errors: &mut ErrorList) -> Option<WebhookConfig> {
        let before = errors.len();
        let timeout = self.timeout(&path.field("timeout"), errors);
        let ttl = |text: &str, default: Duration, path: &Path<'_>, errors: &mut ErrorList| {
            match duration(text, path, errors) {
                Some(0) | None => default,
                Some(nanos) if nanos < 0 => {
                    let shown = GoDuration(nanos).to_string();
                    errors.push(FieldError::invalid(path, shown, "must be > 0s"));
                    default
                }
                Some(nanos) => Duration::from_nanos(nanos.unsigned_abs()),
            }
        };
        let at = path.field("authorizedTTL");
        let authorized = ttl(&self.authorized_ttl, AUTHORIZED_TTL_DEFAULT, &at, errors);
        let at = path.field("unauthorizedTTL");
        let unauthorized = ttl(&self.unauthorized_ttl, UNAUTHORIZED_TTL_DEFAULT, &at, errors);
        let version = self.check_versions(path, errors);
        let policy = path.field("failurePolicy");
        let failure_policy = match self.failure_policy.as_str() {
            "Deny" => FailurePolicy::Deny,
            "NoOpinion" => FailurePolicy::NoOpinion,
            other => {
                errors.push(match other {
                    "" => FieldError::required(&policy, ""),
                    other => FieldError::not_supported(&policy, other, &["NoOpinion", "Deny"]),
                });
                FailurePolicy::Deny
            }
        };
        let kubeconfig = self.check_connection(&path.field("connectionInfo"), errors);
        check_conditions(&self.conditions, &path.field("matchConditions"), errors);
        let when = |remembers: bool, time| if remembers { time } else { Duration::ZERO };
        let options = WebhookOptions {
            version: version.unwrap_or(ReviewVersion::V1),
            timeout,
            authorized_ttl: when(self.remembers_authorized, authorized),
            unauthorized_ttl: when(self.remembers_unauthorized, unauthorized),
            failure_policy,
            match_conditions: self.conditions,
        };
        (errors.len() == before).then_some(WebhookConfig { options, kubeconfig })
    }

    fn timeout(&self, path: &Path<'_>, errors: &mut ErrorList) -> Duration {
        match duration(&self.timeout, path, errors) {
            None => {}
            Some(0) => errors.push(FieldError::required(path, "")),
            Some(nanos) => {
                let time = u64::try_from(nanos).ok().map(Duration::from_nanos);
                match time.filter(|time| *time <= TIMEOUT_MAX) {
                    Some(time) => return time,
                    None => {
                        let shown = GoDuration(nanos).to_string();
                        let error = FieldError::invalid(path, shown, "must be > 0s and <= 30s");
                        errors.push(error);
                    }
                }
            }
        }
        TIMEOUT_MAX
    }

    fn check_versions(&self, path: &Path<'_>, errors: &mut ErrorList) -> Option<ReviewVersion> {
        let version = ReviewVersion::parse(&self.version);
        if version.is_none() {
            let path = path.field("subjectAccessReviewVersion");
            errors.push(match self.version.as_str() {
                "" => FieldError::required(&path, ""),
                other => FieldError::not_supported(&path, other, &["v1", "v1beta1"]),
            });
        }
        let path = path.field("matchConditionSubjectAccessReviewVersion");
        match self.condition_version.as_str() {
            "v1" => {}
            "" if self.conditions.is_empty() => {}
            "" => {
                let why = "required if match conditions are specified";
                errors.push(FieldError::required(&path, why));
            }
            other => errors.push(FieldError::not_supported(&path, other, &["v1"])),
        }
        version
    }

    fn check_connection(&self, path: &Path<'_>, errors: &mut ErrorList) -> String {
        let file = self.kubeconfig.clone().unwrap_or_default();
        let at = path.field("kubeConfigFile");
        match self.connection.as_str() {
            "" => errors.push(FieldError::required(&path.field("type"), "")),
            "InClusterConfig" if self.kubeconfig.is_some() => {
                let why = "can only be set when type=KubeConfigFile";
                errors.push(FieldError::invalid(&at, file.as_str(), why));
            }
            "InClusterConfig" => {
                let why = "InClusterConfig is not supported: name a kubeconfig";
                errors.push(FieldError::forbidden(&path.field("type"), why));
            }
            "KubeConfigFile" => {
                let invalid = |why: &str| FieldError::invalid(&at, file.as_str(), why);
                if file.is_empty() {
                    errors.push(FieldError::required(&at, ""));
                } else if !file.starts_with('/') {
                    errors.push(invalid("must be an absolute path"));
                } else {
                    match std::fs::metadata(&file) {
                        Ok(found) if found.is_file() => {}
                        Ok(_) => errors.push(invalid("must be a regular file")),
                        Err(error) => {
                            let why = format!("error loading file: stat {file}: {}", go(&error));
                            errors.push(invalid(&why));
                        }
                    }
                }
            }
            other => {
                let quoted = serde_json::json!(self.kubeconfig);
                let shown = format!(
                    "{{\"Type\":{},\"KubeConfigFile\":{quoted}}}",
                    serde_json::json!(other)
                );
                let path = path.field("type");
                let error =
                    FieldError::not_supported(&path, "", &["InClusterConfig", "KubeConfigFile"]);
                errors.push(FieldError { value: Some(shown), ..error });
            }
        }
        file
    }
}

/// Returns Go's text for a file error.
fn go(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        std::io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}

/// Parses a duration to nanoseconds; empty is 0.
fn duration(text: &str, path: &Path<'_>, errors: &mut ErrorList) -> Option<i64> {
    if text.is_empty() {
        return Some(0);
    }
    let parsed = GoDuration::parse(text).ok().map(|duration| duration.0);
    if parsed.is_none() {
        errors.push(FieldError::invalid(path, text, "invalid duration"));
    }
    parsed
}

fn check_conditions(conditions: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    if conditions.len() > CONDITIONS_MAX {
        errors.push(FieldError::too_many(path, conditions.len(), CONDITIONS_MAX));
        return;
    }
    let mut seen = HashSet::new();
    for (at, text) in conditions.iter().enumerate() {
        let element = path.index(at);
        let path = element.field("expression");
        if text.trim().is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !seen.insert(text) {
            errors.push(FieldError::duplicate(&path, text.as_str()));
        } else if let Err(why) = conditions::compile(text) {
            errors.push(FieldError::invalid(&path, text.as_str(), &why));
        }
    }
}
