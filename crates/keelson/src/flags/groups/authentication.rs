//! Authentication flags: certificates, tokens, OpenID Connect, front proxies, anonymous requests.

mod oidc;
mod request_header;

use crate::flags::go_files;
use crate::flags::go_values;
use crate::flags::setup::Setup;
use crate::flags::step::Step;
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
    let issuers = oidc::check(values).map_err(anyhow::Error::msg);
    let issuers = setup.take(issuers).and_then(|()| {
        let issuers = oidc::options(values);
        setup.take_at(Step::Issuers, issuers)
    });
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
        setup.builder.authentication.anonymous = AnonymousConfig { enabled: false, paths: vec![] };
    }
    setup.builder.authentication.bootstrap_token_auth = values.bool("enable-bootstrap-token-auth");
    setup.builder.authentication.client_ca_file = values.path("client-ca-file");
    match request_header::check(values) {
        Ok(headers) => {
            let front_proxy = request_header::options(values, headers);
            if let Some(front_proxy) = setup.take_at(Step::FrontProxy, front_proxy) {
                setup.builder.authentication.front_proxy = front_proxy;
            }
        }
        Err(errors) => errors.into_iter().for_each(|why| setup.fail(why)),
    }
    let tokens = tokens(setup);
    if let Some(tokens) = setup.take_at(Step::StaticTokens, tokens) {
        setup.builder.authentication.tokens = tokens;
    }
    let webhook = token_webhook(setup);
    if let Some(webhook) = setup.take_at(Step::TokenWebhook, webhook) {
        setup.builder.authentication.token_webhook = webhook;
    }
    service_account_tokens(setup);
}

/// Checks files that are read later, in the words of kube-apiserver.
pub fn check_files(setup: &mut Setup<'_>) {
    let values = setup.values;
    let mut check = |step, checked: Result<(), String>| {
        if let Err(why) = checked {
            setup.fail_at(step, why);
        }
    };
    if let Some(path) = values.some_text("client-ca-file") {
        check(Step::ClientCa, go_files::ca_bundle("client-ca-bundle", path));
    }
    if let Some(path) = values.some_text("requestheader-client-ca-file") {
        check(Step::FrontProxy, go_files::ca_bundle("request-header", path));
    }
    for path in values.list("service-account-key-file") {
        check(Step::TokenKeys, check_key(path));
    }
    if let Some(path) = values.some_text("token-auth-file") {
        check(Step::StaticTokens, check_tokens(path));
    }
    if let Some(path) = values.some_text("authentication-token-webhook-config-file") {
        check(Step::TokenWebhook, go_files::kubeconfig(path));
    }
}

/// Checks that a file has a key that verifies tokens.
fn check_key(path: &str) -> Result<(), String> {
    let pem = go_files::read(path)?;
    let is_key = |name: &String| name == "CERTIFICATE" || name.ends_with(" KEY");
    if go_files::blocks(&pem).iter().any(is_key) {
        return Ok(());
    }
    Err(format!(
        "error reading public key file {path}: data does not contain any valid RSA or ECDSA public \
         keys"
    ))
}

/// Checks the number of columns in a file of static tokens.
fn check_tokens(path: &str) -> Result<(), String> {
    let text = go_files::read(path)?;
    let text = String::from_utf8_lossy(&text);
    // Quotes are left to the parser.
    let short = text.lines().filter(|line| !line.contains('"') && !line.is_empty());
    match short.map(|line| line.split(',').count()).find(|columns| *columns < 3) {
        None => Ok(()),
        Some(columns) => Err(format!(
            "token file '{path}' must have at least 3 columns (token, user name, user uid), found \
             {columns}"
        )),
    }
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
        } else if let Some(why) =
            go_values::reference(issuer).err().filter(|_| issuer.contains(':'))
        {
            setup.fail(format!(
                "service-account-issuer {issuer:?} contained a ':' but was not a valid URL: {why}"
            ));
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
    if let Some(why) = uri.and_then(|uri| go_values::reference(uri).err()) {
        setup.fail(format!("service-account-jwks-uri must be a valid URL: {why}"));
    } else if let Some(uri) = uri.filter(|uri| !uri.starts_with("https://")) {
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
        setup.fail_at(
            Step::TokenLifetimes,
            "the service-account-max-token-expiration must be between 1 hour and 2^32 seconds",
        );
    }
    if signing_endpoint.is_some() && (signing_key_file.is_some() || !key_files.is_empty()) {
        if signing_key_file.is_some() {
            setup.fail_at(
                Step::TokenLifetimes,
                "service-account-signing-key-file and service-account-signing-endpoint are mutually \
                 exclusive and cannot be set at the same time",
            );
        }
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
