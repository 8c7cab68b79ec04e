//! Authorization flags.

use crate::flags::setup::Setup;
use crate::flags::table::{Face, Flag, Group, Kind};
use anyhow::{Context, Result, anyhow, bail};
use keelson::Authorization;
use keelson_auth::Abac;
use keelson_auth::webhook::{FailurePolicy, ReviewVersion, WebhookOptions};
use std::time::Duration;

/// Timeout of a call to the webhook of `--authorization-webhook-config-file`.
const WEBHOOK_TIMEOUT: Duration = Duration::from_secs(30);
const WEBHOOK: &str = "Webhook";
const ALLOW_ALL: &str = "AlwaysAllow";

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
    let authorization = authorization(setup, &modes);
    if let Some(authorization) = setup.take(authorization) {
        setup.builder.authorization = authorization;
    }
    modes.iter().any(|mode| mode == ALLOW_ALL)
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

fn authorization(setup: &Setup<'_>, modes: &[String]) -> Result<Authorization> {
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
        (Some(path), true) => {
            let context = || format!("--authorization-policy-file: {}", path.display());
            let text = std::fs::read_to_string(&path).with_context(context)?;
            authorization.with_abac(Abac::parse(&text).with_context(context)?)
        }
        (None, true) => bail!("authorization-mode ABAC's authorization policy file not passed"),
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
