//! Authorization flags.

use crate::flags::go_files;
use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Face, Flag, Group, Kind};
use anyhow::{Context, Result, anyhow, bail};
use keelson::Authorization;
use keelson_auth::Abac;
use keelson_auth::webhook::{FailurePolicy, ReviewVersion, WebhookOptions};
use keelson_schema::yaml;
use std::time::Duration;

/// Timeout of a call to the webhook of `--authorization-webhook-config-file`.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
const WEBHOOK: &str = "Webhook";
const ALLOW_ALL: &str = "AlwaysAllow";
/// Versions of policies of the ABAC mode.
const POLICY_VERSIONS: [&str; 2] =
    ["abac.authorization.kubernetes.io/v0", "abac.authorization.kubernetes.io/v1beta1"];

/// The group.
pub const GROUP: Group = Group {
    title: "Authorization",
    flags: &[
        Flag::new(
            "authorization-config",
            Kind::Text,
            "",
            "AuthorizationConfiguration file, instead of the modes: a list of authorizers that \
             may contain several webhooks. It is reloaded when it changes.",
        ),
        Flag::new(
            "authorization-mode",
            Kind::List,
            "",
            "Authorizers, in the order in which they are asked: AlwaysAllow, AlwaysDeny, ABAC, \
             Webhook, RBAC, Node. Empty means AlwaysAllow, unless --authorization-config is set.",
        )
        .in_serve("Node,RBAC"),
        Flag::new(
            "authorization-policy-file",
            Kind::Text,
            "",
            "Policies of the ABAC mode: one JSON object per line.",
        ),
        Flag::new(
            "authorization-webhook-cache-authorized-ttl",
            Kind::Duration,
            "5m0s",
            "How long to cache allowed requests.",
        ),
        Flag::new(
            "authorization-webhook-cache-unauthorized-ttl",
            Kind::Duration,
            "30s",
            "How long to cache denied requests.",
        ),
        Flag::new(
            "authorization-webhook-config-file",
            Kind::Text,
            "",
            "Kubeconfig of the webhook of the Webhook mode.",
        ),
        Flag::new(
            "authorization-webhook-version",
            Kind::Text,
            "v1beta1",
            "Version of the SubjectAccessReviews that are sent: v1 or v1beta1.",
        ),
    ],
};

/// Checks the flags and applies them. Returns whether a mode allows every request.
pub fn apply(setup: &mut Setup<'_>) -> bool {
    let modes = modes(setup);
    let policies = policies(setup, &modes);
    let policies = setup.take_at(Step::Authorization, policies).flatten();
    let authorization = authorization(setup, &modes, policies);
    if let Some(authorization) = setup.take(authorization) {
        setup.builder.authorization = authorization;
    }
    modes.iter().any(|mode| mode == ALLOW_ALL)
}

/// Checks files that modes need, in the words of kube-apiserver.
pub fn check_files(setup: &mut Setup<'_>) {
    let modes = modes(setup);
    let path = |flag, mode: &str| {
        let path = setup.values.some_text(flag)?;
        modes.iter().any(|given| given == mode).then_some(path)
    };
    let policies = path("authorization-policy-file", "ABAC").map(check_policies);
    let webhook = path("authorization-webhook-config-file", WEBHOOK);
    let webhook = webhook.map(go_files::kubeconfig);
    for checked in [policies, webhook].into_iter().flatten() {
        if let Err(why) = checked {
            setup.fail_at(Step::Authorization, format!("invalid authorization config: {why}"));
        }
    }
}

/// Checks a file of policies of the ABAC mode.
fn check_policies(path: &str) -> Result<(), String> {
    let file = std::fs::File::open(path).map_err(|error| go_files::error(path, &error))?;
    let text = std::io::read_to_string(file).map_err(|error| {
        format!("error reading policy file {path}: {}", go_files::error(path, &error))
    })?;
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let failed = |why: String| {
            format!("error reading policy file {path}, line {}: {line}: {why}", number + 1)
        };
        let policy = yaml::parse(line).map_err(|error| failed(error.to_string()))?.value;
        let version = policy.str_at(&["apiVersion"]).unwrap_or_default();
        let kind = policy.str_at(&["kind"]).unwrap_or_default();
        let is_known = kind == "Policy" && POLICY_VERSIONS.contains(&version);
        // A policy without a version is one of an older form.
        if !version.is_empty() && !is_known {
            return Err(failed(format!(
                "no kind {kind:?} is registered for version {version:?} in scheme \
                 \"pkg/runtime/scheme.go:111\""
            )));
        }
    }
    Ok(())
}

/// Returns the modes; empty with `--authorization-config`.
fn modes(setup: &Setup<'_>) -> Vec<String> {
    let values = setup.values;
    let modes = values.list("authorization-mode");
    if values.some_text("authorization-config").is_some() {
        return vec![];
    }
    match setup.face {
        Face::KubeApiserver if modes.is_empty() => vec![ALLOW_ALL.to_owned()],
        _ => modes.to_vec(),
    }
}

/// Reads the policies of the ABAC mode.
fn policies(setup: &Setup<'_>, modes: &[String]) -> Result<Option<Abac>> {
    let path = setup.values.path("authorization-policy-file");
    let Some(path) = path.filter(|_| modes.iter().any(|mode| mode == "ABAC")) else {
        return Ok(None);
    };
    let context = || format!("--authorization-policy-file: {}", path.display());
    let text = std::fs::read_to_string(&path).with_context(context)?;
    Abac::parse(&text).map(Some).with_context(context)
}

fn authorization(
    setup: &Setup<'_>,
    modes: &[String],
    policies: Option<Abac>,
) -> Result<Authorization> {
    let values = setup.values;
    let mut authorization = match values.path("authorization-config") {
        Some(_) if has_other_flags(setup) => bail!(
            "--authorization-config can not be specified when --authorization-mode or \
             --authorization-webhook-* flags are defined"
        ),
        Some(path) => Authorization::file(&path).map_err(anyhow::Error::msg)?,
        None if modes.is_empty() => bail!("at least one authorization-mode must be passed"),
        None => Authorization::modes(modes).map_err(anyhow::Error::msg)?,
    };
    authorization = match (values.path("authorization-policy-file"), authorization.has("ABAC")) {
        (None, false) => authorization,
        (Some(_), true) => match policies {
            Some(policies) => authorization.with_abac(policies),
            None => authorization,
        },
        (None, true) => bail!("authorization-mode ABAC's authorization policy file not passed"),
        // As upstream, it is not looked at beside a file of authorizers.
        (Some(_), false) if values.some_text("authorization-config").is_some() => authorization,
        (Some(_), false) => bail!("cannot specify --authorization-policy-file without mode ABAC"),
    };
    let webhook = webhook(setup);
    if values.some_text("authorization-config").is_some() {
        return Ok(authorization);
    }
    match (values.some_text("authorization-webhook-config-file"), authorization.has(WEBHOOK)) {
        (None, false) => Ok(authorization),
        (Some(path), true) => Ok(authorization.with_webhook(path.to_owned(), &webhook?)),
        (None, true) => {
            bail!("authorization-mode Webhook's authorization config file not passed")
        }
        (Some(_), false) => {
            bail!("cannot specify --authorization-webhook-config-file without mode Webhook")
        }
    }
}

fn has_other_flags(setup: &Setup<'_>) -> bool {
    let flags = [
        "authorization-mode",
        "authorization-webhook-config-file",
        "authorization-webhook-version",
        "authorization-webhook-cache-authorized-ttl",
        "authorization-webhook-cache-unauthorized-ttl",
    ];
    flags.into_iter().any(|flag| setup.values.is_given(flag))
}

fn webhook(setup: &Setup<'_>) -> Result<WebhookOptions> {
    let values = setup.values;
    let version = values.text("authorization-webhook-version");
    let authorized_ttl = values.duration("authorization-webhook-cache-authorized-ttl");
    let unauthorized_ttl = values.duration("authorization-webhook-cache-unauthorized-ttl");
    let version = ReviewVersion::parse(version).ok_or_else(|| {
        anyhow!(
            "invalid authorization config: unsupported webhook authorizer version {version:?}, \
             supported versions are \"v1\", \"v1beta1\""
        )
    })?;
    Ok(WebhookOptions {
        version,
        timeout: WEBHOOK_TIMEOUT,
        authorized_ttl,
        unauthorized_ttl,
        failure_policy: FailurePolicy::NoOpinion,
        match_conditions: vec![],
    })
}
