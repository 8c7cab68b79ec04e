//! Authentication flags: certificates, tokens, OpenID Connect, front proxies, anonymous requests.

mod oidc;
mod request_header;

use crate::flags::setup::Setup;
use crate::flags::table::{Face, Flag, Group, Kind};
use anyhow::{Context, Result, anyhow};
use keelson::{ServiceAccountTokenOptions, TokenWebhookOptions};
use keelson_auth::TokenFile;
use keelson_auth::oidc::AnonymousConfig;
use keelson_auth::webhook::ReviewVersion;
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

/// Bounds of `--service-account-max-token-expiration`.
const TOKEN_EXPIRATION_MIN: Duration = Duration::from_secs(60 * 60);
const TOKEN_EXPIRATION_MAX: Duration = Duration::from_secs(1 << 32);

/// The group.
pub const GROUP: Group = Group {
    title: "Authentication",
    flags: &[
        Flag::new(
            "anonymous-auth",
            Kind::Bool,
            "true",
            "Whether requests without credentials are served as system:anonymous.",
        ),
        Flag::new(
            "api-audiences",
            Kind::List,
            "",
            "Audiences of the API; empty means the issuers of service account tokens.",
        ),
        Flag::new(
            "authentication-config",
            Kind::Text,
            "",
            "AuthenticationConfiguration file: OpenID Connect issuers, and the paths that are \
             served to anonymous requests. It is reloaded when it changes.",
        ),
        Flag::new(
            "authentication-token-webhook-cache-ttl",
            Kind::Duration,
            "2m0s",
            "How long to cache answers of the token webhook.",
        ),
        Flag::new(
            "authentication-token-webhook-config-file",
            Kind::Text,
            "",
            "Kubeconfig of a webhook that authenticates bearer tokens.",
        ),
        Flag::new(
            "authentication-token-webhook-version",
            Kind::Text,
            "v1beta1",
            "Version of the TokenReviews that are sent: v1 or v1beta1.",
        ),
        Flag::new("client-ca-file", Kind::Text, "", "CA bundle for client certificates."),
        Flag::new(
            "enable-bootstrap-token-auth",
            Kind::Bool,
            "false",
            "Whether bootstrap tokens (Secrets in kube-system) are accepted.",
        ),
        Flag::new(
            "oidc-ca-file",
            Kind::Text,
            "",
            "CA bundle for the issuer's certificate; empty means that of this host.",
        ),
        Flag::new(
            "oidc-client-id",
            Kind::Text,
            "",
            "Audience that tokens of the issuer must have.",
        ),
        Flag::new("oidc-groups-claim", Kind::Text, "", "Claim that holds the groups."),
        Flag::new("oidc-groups-prefix", Kind::Text, "", "Prefix of groups."),
        Flag::new(
            "oidc-issuer-url",
            Kind::Text,
            "",
            "URL of an OpenID Connect issuer whose tokens are accepted.",
        ),
        Flag::new(
            "oidc-required-claim",
            Kind::Claims,
            "",
            "Claim and value that tokens must have: CLAIM=VALUE. May be repeated.",
        ),
        Flag::new(
            "oidc-signing-algs",
            Kind::List,
            "RS256",
            "Accepted signing algorithms: RS256, RS384, RS512, ES256, ES384, ES512, PS256, PS384, \
             PS512.",
        ),
        Flag::new("oidc-username-claim", Kind::Text, "sub", "Claim that holds the user name."),
        Flag::new(
            "oidc-username-prefix",
            Kind::Text,
            "",
            "Prefix of user names; - means none. Empty means the issuer URL and #, or none if the \
             claim is email.",
        ),
        Flag::new(
            "requestheader-allowed-names",
            Kind::List,
            "",
            "Common names of front proxy certificates; empty means all names.",
        ),
        Flag::new(
            "requestheader-client-ca-file",
            Kind::Text,
            "",
            "CA bundle for client certificates of front proxies, which name users in headers.",
        ),
        Flag::new(
            "requestheader-extra-headers-prefix",
            Kind::List,
            "",
            "Prefixes of headers that hold extra fields of the user.",
        ),
        Flag::new(
            "requestheader-group-headers",
            Kind::List,
            "",
            "Headers that hold the groups of the user, one per header.",
        ),
        Flag::new(
            "requestheader-uid-headers",
            Kind::List,
            "",
            "Headers that hold the uid of the user.",
        ),
        Flag::new(
            "requestheader-username-headers",
            Kind::List,
            "",
            "Headers that hold the user name; the first that is not empty is used.",
        ),
        Flag::new(
            "service-account-extend-token-expiration",
            Kind::Bool,
            "true",
            "Whether tokens of Pods are valid for a year, for clients that do not reload them.",
        ),
        Flag::new(
            "service-account-issuer",
            Kind::Array,
            "",
            "Issuer of service account tokens. May be repeated: new tokens have the first; all \
             are accepted.",
        ),
        Flag::new(
            "service-account-jwks-uri",
            Kind::Text,
            "",
            "URL of the keys that verify service account tokens, for the discovery document; \
             empty means /openid/v1/jwks of this server.",
        ),
        Flag::new(
            "service-account-key-file",
            Kind::Array,
            "",
            "Keys that verify service account tokens: public or private keys, or certificates. \
             May be repeated.",
        ),
        Flag::new(
            "service-account-lookup",
            Kind::Bool,
            "true",
            "Whether the Secrets of legacy service account tokens must exist.",
        ),
        Flag::new(
            "service-account-max-token-expiration",
            Kind::Duration,
            "0s",
            "Maximum lifetime of a service account token; 0 means no maximum.",
        ),
        Flag::new(
            "token-auth-file",
            Kind::Text,
            "",
            "File of static tokens: lines of token,user,uid,\"group,group\".",
        ),
    ],
};

/// Checks the flags and applies them. `allows_all` says whether every request is authorized.
pub fn apply(setup: &mut Setup<'_>, allows_all: bool) {
    let values = setup.values;
    let issuers = oidc::options(values);
    let issuers = setup.take(issuers);
    check_service_accounts(setup);
    if let Some((jwt, anonymous)) = issuers {
        if anonymous.is_some() && values.is_given("anonymous-auth") {
            setup.fail(
                "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is \
                 configured in authentication configuration file",
            );
        }
        let by_flag = AnonymousConfig { enabled: values.bool("anonymous-auth"), paths: vec![] };
        setup.builder.authentication.jwt = jwt;
        setup.builder.authentication.anonymous = anonymous.unwrap_or(by_flag);
    }
    if setup.builder.authentication.anonymous.enabled && allows_all {
        setup.notes.push(
            "--authorization-mode has AlwaysAllow; anonymous requests are rejected, because they \
             would be allowed everything"
                .to_owned(),
        );
        setup.builder.authentication.anonymous.enabled = false;
    }
    setup.builder.authentication.bootstrap_token_auth = values.bool("enable-bootstrap-token-auth");
    setup.builder.authentication.client_ca_file = values.path("client-ca-file");
    let front_proxy = request_header::options(values);
    if let Some(front_proxy) = setup.take(front_proxy) {
        setup.builder.authentication.front_proxy = front_proxy;
    }
    let tokens = tokens(setup);
    if let Some(tokens) = setup.take(tokens) {
        setup.builder.authentication.tokens = tokens;
    }
    let webhook = token_webhook(setup);
    if let Some(webhook) = setup.take(webhook) {
        setup.builder.authentication.token_webhook = webhook;
    }
    service_account_tokens(setup);
}

fn tokens(setup: &Setup<'_>) -> Result<TokenFile> {
    let Some(path) = setup.values.path("token-auth-file") else { return Ok(TokenFile::default()) };
    let context = || format!("--token-auth-file: {}", path.display());
    let text = std::fs::read_to_string(&path).with_context(context)?;
    TokenFile::parse(&text).with_context(context)
}

fn token_webhook(setup: &Setup<'_>) -> Result<Option<TokenWebhookOptions>> {
    let values = setup.values;
    let version = values.text("authentication-token-webhook-version");
    let cache_ttl = values.duration("authentication-token-webhook-cache-ttl");
    let Some(kubeconfig) = values.path("authentication-token-webhook-config-file") else {
        return Ok(None);
    };
    let version = ReviewVersion::parse(version).ok_or_else(|| {
        anyhow!(
            "unsupported authentication webhook version {version:?}, supported versions are \"v1\", \
             \"v1beta1\""
        )
    })?;
    Ok(Some(TokenWebhookOptions { kubeconfig, version, cache_ttl }))
}

/// The checks that kube-apiserver makes. `serve` has an issuer and a key of its own.
fn check_service_accounts(setup: &mut Setup<'_>) {
    let values = setup.values;
    let issuers = values.list("service-account-issuer");
    let mut seen = BTreeSet::new();
    for issuer in issuers {
        if issuer.is_empty() {
            setup.fail("service-account-issuer should not be an empty string");
        } else if !seen.insert(issuer) {
            setup.fail(format!("service-account-issuer {issuer:?} is already specified"));
        }
    }
    let has_keys = !values.list("service-account-key-file").is_empty();
    let endpoint = values.some_text("service-account-signing-endpoint");
    if setup.face == Face::KubeApiserver {
        if issuers.is_empty() {
            setup.fail("service-account-issuer is a required flag");
        }
        if !has_keys && endpoint.is_none() {
            setup.fail(
                "either `--service-account-key-file` or `--service-account-signing-endpoint` must be \
                 set",
            );
        }
    }
    let uri = values.some_text("service-account-jwks-uri");
    if let Some(uri) = uri.filter(|uri| !uri.starts_with("https://")) {
        setup.fail(format!("service-account-jwks-uri requires https scheme, parsed as: {uri}"));
    }
}

/// Checks that kube-apiserver can issue tokens.
pub fn check_token_requests(setup: &mut Setup<'_>) {
    let values = setup.values;
    let has_issuer =
        values.list("service-account-issuer").first().is_some_and(|issuer| !issuer.is_empty());
    let has_key = values.some_text("service-account-signing-key-file").is_some();
    let has_signer = has_key || values.some_text("service-account-signing-endpoint").is_some();
    if setup.face == Face::Serve || has_issuer && has_signer {
        return;
    }
    setup.fail(if has_key || has_issuer || !values.list("api-audiences").is_empty() {
        "--service-account-signing-key-file, --service-account-issuer, and --api-audiences should be \
         specified together"
    } else {
        "--service-account-signing-key-file and --service-account-issuer are required flags"
    });
}

fn service_account_tokens(setup: &mut Setup<'_>) {
    let values = setup.values;
    let signing_key_file = values.path("service-account-signing-key-file");
    let signing_endpoint = values.some_text("service-account-signing-endpoint");
    let issuers = values.list("service-account-issuer");
    let max = values.signed_duration("service-account-max-token-expiration");
    let max_duration = values.duration("service-account-max-token-expiration");
    let key_files: Vec<PathBuf> =
        values.list("service-account-key-file").iter().map(PathBuf::from).collect();
    if max.0 != 0 && !(TOKEN_EXPIRATION_MIN..=TOKEN_EXPIRATION_MAX).contains(&max_duration) {
        setup.fail_first(
            "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds",
        );
    }
    if signing_endpoint.is_some() && (signing_key_file.is_some() || !key_files.is_empty()) {
        setup.fail(
            "can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with \
             `--service-account-signing-endpoint` (They are mutually exclusive)",
        );
    }
    let defaults = ServiceAccountTokenOptions::default();
    setup.builder.authentication.service_account_tokens = ServiceAccountTokenOptions {
        issuers: if issuers.is_empty() { defaults.issuers } else { issuers.to_vec() },
        audiences: values.list("api-audiences").to_vec(),
        signing_key_file,
        signing_endpoint: signing_endpoint.map(str::to_owned),
        key_files,
        expiration_seconds_max: i64::try_from(max_duration.as_secs()).ok().filter(|max| *max > 0),
        extends_expiration: values.bool("service-account-extend-token-expiration"),
        lookup: values.bool("service-account-lookup"),
        jwks_uri: values.some_text("service-account-jwks-uri").map(str::to_owned),
    };
}
