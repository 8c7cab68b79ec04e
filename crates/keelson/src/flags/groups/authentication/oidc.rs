//! OpenID Connect issuers, by flags or by the file of `--authentication-config`.

use crate::flags::go_files;
use crate::flags::pflag::Values;
use crate::flags::table::Face;
use anyhow::{Context, Result, bail};
use keelson::JwtOptions;
use keelson_auth::oidc::{
    AnonymousConfig, ClaimMappings, ClaimRule, IssuerConfig, JoseAlgorithm, JwtConfig, Mapping,
};

/// The value of `--oidc-username-prefix` that means no prefix.
const NO_PREFIX: &str = "-";
const INCOMPLETE: &str =
    "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set";
/// The flags that exclude `--authentication-config`.
const OIDC_FLAGS: [&str; 9] = [
    "oidc-issuer-url",
    "oidc-client-id",
    "oidc-ca-file",
    "oidc-username-claim",
    "oidc-username-prefix",
    "oidc-groups-claim",
    "oidc-groups-prefix",
    "oidc-signing-algs",
    "oidc-required-claim",
];

/// Checks the flags together.
pub fn check(values: &Values) -> Result<(), &'static str> {
    let is_set = OIDC_FLAGS.into_iter().any(|flag| values.is_given(flag));
    if is_set && values.some_text("authentication-config").is_some() {
        return Err("authentication-config file and oidc-* flags are mutually exclusive");
    }
    let ids = values.some_text("oidc-issuer-url").zip(values.some_text("oidc-client-id"));
    if is_set && ids.is_none() {
        return Err(INCOMPLETE);
    }
    Ok(())
}

/// Returns the issuers, and the settings for anonymous requests if the file has them.
pub fn options(values: &Values) -> Result<(Option<JwtOptions>, Option<AnonymousConfig>)> {
    let is_set = OIDC_FLAGS.into_iter().any(|flag| values.is_given(flag));
    if let Some(path) = values.path("authentication-config") {
        let (options, anonymous) = JwtOptions::read(&path).map_err(anyhow::Error::msg)?;
        return Ok((Some(options), anonymous));
    }
    if !is_set {
        return Ok((None, None));
    }
    let ids = values.some_text("oidc-issuer-url").zip(values.some_text("oidc-client-id"));
    let Some((url, client_id)) = ids else {
        bail!(INCOMPLETE);
    };
    let algorithms: Result<Vec<JoseAlgorithm>, String> =
        values.list("oidc-signing-algs").iter().map(|name| name.trim().parse()).collect();
    let options = JwtOptions {
        issuers: vec![issuer(values, url, client_id)?],
        algorithms: algorithms.map_err(anyhow::Error::msg)?,
        file: None,
    };
    Ok((Some(options), None))
}

fn issuer(values: &Values, url: &str, client_id: &str) -> Result<JwtConfig> {
    let certificate_authority = match values.path("oidc-ca-file") {
        None => String::new(),
        Some(path) => match values.face() {
            Face::Serve => std::fs::read_to_string(&path)
                .with_context(|| format!("--oidc-ca-file: {}", path.display()))?,
            Face::KubeApiserver => {
                let pem =
                    go_files::read(values.text("oidc-ca-file")).map_err(anyhow::Error::msg)?;
                String::from_utf8_lossy(&pem).into_owned()
            }
        },
    };
    let username_claim = values.text("oidc-username-claim");
    let prefix = match values.text("oidc-username-prefix") {
        NO_PREFIX => String::new(),
        "" if username_claim == "email" => String::new(),
        "" => format!("{url}#"),
        prefix => prefix.to_owned(),
    };
    let groups = values.text("oidc-groups-claim");
    let required = values.pairs("oidc-required-claim").iter().map(|(claim, value)| ClaimRule {
        claim: claim.clone(),
        required_value: value.clone(),
        ..ClaimRule::default()
    });
    Ok(JwtConfig {
        issuer: IssuerConfig {
            url: url.to_owned(),
            audiences: vec![client_id.to_owned()],
            certificate_authority,
            ..IssuerConfig::default()
        },
        claim_validation_rules: required.collect(),
        claim_mappings: ClaimMappings {
            username: Mapping {
                claim: username_claim.to_owned(),
                prefix: Some(prefix),
                ..Mapping::default()
            },
            groups: Mapping {
                prefix: (!groups.is_empty()).then(|| values.text("oidc-groups-prefix").to_owned()),
                claim: groups.to_owned(),
                ..Mapping::default()
            },
            ..ClaimMappings::default()
        },
        user_validation_rules: vec![],
    })
}
