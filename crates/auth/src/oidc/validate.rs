//! Validates an authentication configuration with kube-apiserver's texts and compiles its
//! expressions.

use super::config::{
    AnonymousConfig, ClaimMappings, ClaimRule, ExtraMapping, IssuerConfig, JwtConfig, Mapping,
    UserRule,
};
use super::expressions::{Expression, Rules, Subject, reads_claim};
use crate::x509;
use keelson_meta::{ErrorList, FieldError, Path, names};
use std::collections::HashSet;

/// Maximum issuers, as in kube-apiserver.
const ISSUERS_MAX: usize = 64;
/// Domains of extra keys that are reserved for Kubernetes.
const RESERVED_DOMAINS: [&str; 2] = ["kubernetes.io", "k8s.io"];

/// The validation errors of a configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("invalid authentication configuration: {}", .0.aggregate())]
pub struct InvalidConfiguration(ErrorList);

/// Returns the compiled expressions of each issuer, or all errors. `disallowed_issuers` are the
/// issuers of service account tokens.
pub fn validate(
    configs: &[JwtConfig],
    anonymous: Option<&AnonymousConfig>,
    disallowed_issuers: &[String],
) -> Result<Vec<Rules>, InvalidConfiguration> {
    let mut errors = ErrorList::new();
    let mut all = vec![];
    let root = Path::new("jwt");
    if configs.len() > ISSUERS_MAX {
        errors.push(FieldError::too_many(&root, configs.len(), ISSUERS_MAX));
        return Err(InvalidConfiguration(errors));
    }
    let mut issuers = HashSet::new();
    let mut discoveries = HashSet::new();
    for (at, config) in configs.iter().enumerate() {
        let path = root.index(at);
        all.push(check_issuer_config(config, &path, disallowed_issuers, &mut errors));
        let issuer = path.field("issuer");
        let url = config.issuer.url.as_str();
        let discovery = config.issuer.discovery_url.as_str();
        if !issuers.insert(url) {
            errors.push(FieldError::duplicate(&issuer.field("url"), url));
        }
        if !discovery.is_empty() && !discoveries.insert(discovery) {
            errors.push(FieldError::duplicate(&issuer.field("discoveryURL"), discovery));
        }
    }
    if let Some(AnonymousConfig { enabled: false, paths }) = anonymous
        && !paths.is_empty()
    {
        let path = Path::new("anonymous");
        let why = "enabled should be set to true when conditions are defined";
        let shown: Vec<String> =
            paths.iter().map(|path| format!("{{\"Path\":{}}}", serde_json::json!(path))).collect();
        let error = FieldError::invalid(&path.field("conditions"), "", why);
        errors.push(FieldError { value: Some(format!("[{}]", shown.join(","))), ..error });
    }
    if errors.is_empty() { Ok(all) } else { Err(InvalidConfiguration(errors)) }
}

fn check_issuer_config(
    config: &JwtConfig,
    path: &Path<'_>,
    disallowed_issuers: &[String],
    errors: &mut ErrorList,
) -> Rules {
    let mut rules = Rules::default();
    check_issuer(&config.issuer, disallowed_issuers, &path.field("issuer"), errors);
    let at = path.field("claimValidationRules");
    rules.claims = check_claim_rules(&config.claim_validation_rules, &at, errors);
    check_mappings(&config.claim_mappings, &path.field("claimMappings"), &mut rules, errors);
    let at = path.field("userValidationRules");
    rules.user = check_user_rules(&config.user_validation_rules, &at, errors);
    rules
}

fn check_issuer(
    issuer: &IssuerConfig,
    disallowed: &[String],
    path: &Path<'_>,
    errors: &mut ErrorList,
) {
    let url = path.field("url");
    match issuer.url.as_str() {
        "" => errors.push(FieldError::required(&url, "")),
        text => check_url(text, disallowed, &url, errors),
    }
    if !issuer.discovery_url.is_empty() {
        let path = path.field("discoveryURL");
        let text = issuer.discovery_url.as_str();
        let is_same = text.trim_end_matches('/') == issuer.url.trim_end_matches('/');
        if !issuer.url.is_empty() && is_same {
            let why = "discoveryURL must be different from URL";
            errors.push(FieldError::invalid(&path, text, why));
        }
        check_url(text, &[], &path, errors);
    }
    check_audiences(issuer, path, errors);
    let authority = &issuer.certificate_authority;
    if !authority.is_empty() && x509::certificates(authority).is_empty() {
        let why = "data does not contain any valid RSA or ECDSA certificates";
        let path = path.field("certificateAuthority");
        errors.push(FieldError::invalid(&path, "<omitted>", why));
    }
    let egress = issuer.egress_selector_type.as_str();
    if !["", "controlplane", "cluster"].contains(&egress) {
        let why = "egress selector must be either controlplane or cluster";
        errors.push(FieldError::invalid(&path.field("egressSelectorType"), egress, why));
    }
}

fn check_url(text: &str, disallowed: &[String], path: &Path<'_>, errors: &mut ErrorList) {
    let mut invalid = |why: &str| errors.push(FieldError::invalid(path, text, why));
    if disallowed.iter().any(|issuer| issuer == text) {
        let mut sorted: Vec<&str> = disallowed.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        sorted.dedup();
        let list = sorted.join(" ");
        invalid(&format!("URL must not overlap with disallowed issuers: [{list}]"));
    }
    if text.chars().any(|c| c.is_ascii_control()) {
        let why = "net/url: invalid control character in URL";
        return invalid(&format!("parse {}: {why}", keelson_meta::status::quote(text)));
    }
    let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = rest.split('/').next().unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("https") {
        invalid("URL scheme must be https");
    }
    if authority.contains('@') {
        invalid("URL must not contain a username or password");
    }
    if !query.is_empty() {
        invalid("URL must not contain a query");
    }
    if !fragment.is_empty() {
        invalid("URL must not contain a fragment");
    }
}

fn check_audiences(issuer: &IssuerConfig, path: &Path<'_>, errors: &mut ErrorList) {
    let at = path.field("audiences");
    let audiences = &issuer.audiences;
    if audiences.is_empty() {
        errors.push(FieldError::required(&at, &format!("at least one {at} is required")));
        return;
    }
    let mut seen = HashSet::new();
    for (index, audience) in audiences.iter().enumerate() {
        if audience.is_empty() {
            errors.push(FieldError::required(&at.index(index), ""));
        }
        if !seen.insert(audience) {
            errors.push(FieldError::duplicate(&at.index(index), audience.as_str()));
        }
    }
    let policy = issuer.audience_match_policy.as_str();
    let why = match (audiences.len(), policy) {
        (_, "MatchAny") | (1, "") => return,
        (1, _) => "audienceMatchPolicy must be empty or MatchAny for single audience",
        _ => "audienceMatchPolicy must be MatchAny for multiple audiences",
    };
    errors.push(FieldError::invalid(&path.field("audienceMatchPolicy"), policy, why));
}

fn check_claim_rules(
    rules: &[ClaimRule],
    path: &Path<'_>,
    errors: &mut ErrorList,
) -> Vec<(Expression, String)> {
    let mut compiled = vec![];
    let mut claims = HashSet::new();
    let mut expressions = HashSet::new();
    for (at, rule) in rules.iter().enumerate() {
        let path = path.index(at);
        let claim = rule.claim.as_str();
        let text = rule.expression.as_str();
        match (claim.is_empty(), text.is_empty()) {
            (false, false) => {
                let why = "claim and expression can't both be set";
                errors.push(FieldError::invalid(&path, claim, why));
            }
            (true, true) => {
                errors.push(FieldError::required(&path, "claim or expression is required"));
            }
            (false, true) => {
                if !rule.message.is_empty() {
                    let why = "may not be specified when claim is set";
                    let path = path.field("message");
                    errors.push(FieldError::invalid(&path, rule.message.as_str(), why));
                }
                if !claims.insert(claim) {
                    errors.push(FieldError::duplicate(&path.field("claim"), claim));
                }
            }
            (true, false) => {
                if !rule.required_value.is_empty() {
                    let why = "may not be specified when expression is set";
                    let path = path.field("requiredValue");
                    errors.push(FieldError::invalid(&path, rule.required_value.as_str(), why));
                }
                let path = path.field("expression");
                if !expressions.insert(text) {
                    errors.push(FieldError::duplicate(&path, text));
                    continue;
                }
                let condition = compile(text, Subject::Claims, true, &path, errors);
                compiled.extend(condition.map(|one| (one, rule.message.clone())));
            }
        }
    }
    compiled
}

fn check_mappings(
    mappings: &ClaimMappings,
    path: &Path<'_>,
    rules: &mut Rules,
    errors: &mut ErrorList,
) {
    let before = errors.len();
    rules.username = check_mapping(&mappings.username, &path.field("username"), true, errors);
    let has_username = errors.len() == before;
    rules.groups = check_mapping(&mappings.groups, &path.field("groups"), false, errors);
    let uid = path.field("uid");
    match (mappings.uid.claim.is_empty(), mappings.uid.expression.as_str()) {
        (_, "") => {}
        (false, _) => {
            let why = "claim and expression can't both be set";
            errors.push(FieldError::invalid(&uid, "", why));
        }
        (true, text) => {
            rules.uid = compile(text, Subject::Claims, false, &uid.field("expression"), errors);
        }
    }
    rules.extra = check_extra(&mappings.extra, &path.field("extra"), errors);
    let username = &mappings.username.expression;
    let verifies = |text: &str| reads_claim(text, "email_verified");
    let is_verified = || {
        verifies(username)
            || rules.claims.iter().any(|(rule, _)| verifies(&rule.text))
            || rules.extra.iter().any(|(_, extra)| verifies(&extra.text))
    };
    if has_username && reads_claim(username, "email") && !is_verified() {
        let why = "claims.email_verified must be used in claimMappings.username.expression or \
                   claimMappings.extra[*].valueExpression or claimValidationRules[*].expression \
                   when claims.email is used in claimMappings.username.expression";
        let path = path.field("username");
        errors.push(FieldError::invalid(&path.field("expression"), username.as_str(), why));
    }
}

fn check_mapping(
    mapping: &Mapping,
    path: &Path<'_>,
    is_required: bool,
    errors: &mut ErrorList,
) -> Option<Expression> {
    let text = mapping.expression.as_str();
    match (mapping.claim.is_empty(), text.is_empty()) {
        (false, false) => {
            let why = "claim and expression can't both be set";
            errors.push(FieldError::invalid(path, "", why));
        }
        (true, true) if is_required => {
            errors.push(FieldError::required(path, "claim or expression is required"));
        }
        (true, true) => {}
        (true, false) => {
            if let Some(prefix) = &mapping.prefix {
                let why = "may not be specified when expression is set";
                errors.push(FieldError::invalid(&path.field("prefix"), prefix.as_str(), why));
            }
            return compile(text, Subject::Claims, false, &path.field("expression"), errors);
        }
        (false, true) if mapping.prefix.is_none() => {
            let why = "prefix is required when claim is set. It can be set to an empty string to \
                       disable prefixing";
            errors.push(FieldError::required(&path.field("prefix"), why));
        }
        (false, true) => {}
    }
    None
}

fn check_extra(
    extra: &[ExtraMapping],
    path: &Path<'_>,
    errors: &mut ErrorList,
) -> Vec<(String, Expression)> {
    let mut compiled = vec![];
    let mut seen = HashSet::new();
    for (at, mapping) in extra.iter().enumerate() {
        let path = path.index(at);
        let key_path = path.field("key");
        let key = mapping.key.as_str();
        check_extra_key(key, &key_path, errors);
        if !seen.insert(key) {
            errors.push(FieldError::duplicate(&key_path, key));
            continue;
        }
        let path = path.field("valueExpression");
        let text = mapping.value_expression.as_str();
        if text.is_empty() {
            errors.push(FieldError::required(&path, ""));
            continue;
        }
        let value = compile(text, Subject::Claims, false, &path, errors);
        compiled.extend(value.map(|value| (key.to_owned(), value)));
    }
    compiled
}

fn check_extra_key(key: &str, path: &Path<'_>, errors: &mut ErrorList) {
    let (domain, rest) = key.split_once('/').unwrap_or((key, ""));
    if key.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if domain.is_empty() || rest.is_empty() {
        let why = "must be a domain-prefixed path (such as \"acme.io/foo\")";
        errors.push(FieldError::invalid(path, key, why));
    } else {
        for why in names::is_dns1123_subdomain(domain) {
            errors.push(FieldError::invalid(path, domain, &why));
        }
        for why in names::is_http_path(rest) {
            errors.push(FieldError::invalid(
                path,
                rest,
                &format!("Invalid path (e.g. '/{rest}'): {why}"),
            ));
        }
    }
    if key != key.to_lowercase() {
        errors.push(FieldError::invalid(path, key, "must be lowercase"));
    }
    let is_of = |reserved: &str| {
        domain.strip_suffix(reserved).is_some_and(|sub| sub.is_empty() || sub.ends_with('.'))
    };
    if key.contains('/') && RESERVED_DOMAINS.iter().any(|reserved| is_of(reserved)) {
        let why = "k8s.io, kubernetes.io and their subdomains are reserved for Kubernetes use";
        errors.push(FieldError::invalid(path, key, why));
    }
}

fn check_user_rules(
    rules: &[UserRule],
    path: &Path<'_>,
    errors: &mut ErrorList,
) -> Vec<(Expression, String)> {
    let mut compiled = vec![];
    let mut seen = HashSet::new();
    for (at, rule) in rules.iter().enumerate() {
        let element = path.index(at);
        let path = element.field("expression");
        let text = rule.expression.as_str();
        if text.is_empty() {
            errors.push(FieldError::required(&path, ""));
        } else if !seen.insert(text) {
            errors.push(FieldError::duplicate(&path, text));
        } else {
            let condition = compile(text, Subject::User, true, &path, errors);
            compiled.extend(condition.map(|one| (one, rule.message.clone())));
        }
    }
    compiled
}

fn compile(
    text: &str,
    subject: Subject,
    is_condition: bool,
    path: &Path<'_>,
    errors: &mut ErrorList,
) -> Option<Expression> {
    match Expression::compile(text, subject, is_condition) {
        Ok(compiled) => Some(compiled),
        Err(why) => {
            errors.push(FieldError::invalid(path, text, &why));
            None
        }
    }
}
