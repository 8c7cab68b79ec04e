//! The flags of OpenID Connect authentication.

use anyhow::{Context, Result, anyhow, bail};
use keelson::JwtOptions;
use keelson_auth::oidc::{
    AnonymousConfig, ClaimMappings, ClaimRule, IssuerConfig, JoseAlgorithm, JwtConfig, Mapping,
};
use std::path::PathBuf;

/// The value of `--oidc-username-prefix` that means no prefix.
const NO_PREFIX: &str = "-";

/// `--oidc-*`, `--authentication-config`.
#[derive(clap::Args, Debug)]
pub struct OidcFlags {
    /// AuthenticationConfiguration file: OpenID Connect issuers, and the paths that are served to
    /// anonymous requests. It is reloaded when it changes.
    #[arg(long, value_name = "FILE")]
    authentication_config: Option<PathBuf>,
    /// URL of an OpenID Connect issuer whose tokens are accepted.
    #[arg(long, value_name = "URL")]
    oidc_issuer_url: Option<String>,
    /// Audience that tokens of the issuer must have.
    #[arg(long, value_name = "ID")]
    oidc_client_id: Option<String>,
    /// CA bundle for the issuer's certificate [default: that of this host].
    #[arg(long, value_name = "FILE")]
    oidc_ca_file: Option<PathBuf>,
    /// Claim that holds the user name.
    #[arg(long, value_name = "CLAIM", default_value = "sub")]
    oidc_username_claim: String,
    /// Prefix of user names; `-` means none [default: the issuer URL and #, or none if the claim is
    /// email].
    #[arg(long, value_name = "PREFIX", allow_hyphen_values = true)]
    oidc_username_prefix: Option<String>,
    /// Claim that holds the groups.
    #[arg(long, value_name = "CLAIM")]
    oidc_groups_claim: Option<String>,
    /// Prefix of groups.
    #[arg(long, value_name = "PREFIX")]
    oidc_groups_prefix: Option<String>,
    /// Claim and value that tokens must have; may be repeated.
    #[arg(long, value_delimiter = ',', value_name = "CLAIM=VALUE")]
    oidc_required_claim: Vec<String>,
    /// Accepted signing algorithms.
    #[arg(long, value_delimiter = ',', value_name = "NAMES", default_value = "RS256")]
    oidc_signing_algs: Vec<String>,
}

impl OidcFlags {
    /// Returns the issuers, and the settings for anonymous requests if the file has them.
    pub fn options(&self) -> Result<(Option<JwtOptions>, Option<AnonymousConfig>)> {
        let is_set = self.oidc_issuer_url.is_some() || self.oidc_client_id.is_some();
        if let Some(path) = &self.authentication_config {
            if is_set {
                bail!("authentication-config file and oidc-* flags are mutually exclusive");
            }
            let (options, anonymous) = JwtOptions::read(path).map_err(anyhow::Error::msg)?;
            return Ok((Some(options), anonymous));
        }
        if !is_set {
            return Ok((None, None));
        }
        let (Some(url), Some(client_id)) = (&self.oidc_issuer_url, &self.oidc_client_id) else {
            bail!(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* \
                 flags are set"
            );
        };
        let algorithms = self.oidc_signing_algs.iter().map(|name| name.trim().parse());
        let algorithms: Result<Vec<JoseAlgorithm>, String> = algorithms.collect();
        let options = JwtOptions {
            issuers: vec![self.issuer(url, client_id)?],
            algorithms: algorithms.map_err(anyhow::Error::msg)?,
            file: None,
        };
        Ok((Some(options), None))
    }

    fn issuer(&self, url: &str, client_id: &str) -> Result<JwtConfig> {
        let certificate_authority = match &self.oidc_ca_file {
            None => String::new(),
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("--oidc-ca-file: {}", path.display()))?,
        };
        let prefix = match self.oidc_username_prefix.as_deref().unwrap_or_default() {
            NO_PREFIX => String::new(),
            "" if self.oidc_username_claim == "email" => String::new(),
            "" => format!("{url}#"),
            prefix => prefix.to_owned(),
        };
        let groups = self.oidc_groups_claim.clone().unwrap_or_default();
        let required = self.oidc_required_claim.iter().map(|pair| {
            let (claim, value) = pair
                .split_once('=')
                .ok_or_else(|| anyhow!("--oidc-required-claim: {pair:?} is not like key=value"))?;
            Ok(ClaimRule {
                claim: claim.to_owned(),
                required_value: value.to_owned(),
                ..ClaimRule::default()
            })
        });
        Ok(JwtConfig {
            issuer: IssuerConfig {
                url: url.to_owned(),
                audiences: vec![client_id.to_owned()],
                certificate_authority,
                ..IssuerConfig::default()
            },
            claim_validation_rules: required.collect::<Result<_>>()?,
            claim_mappings: ClaimMappings {
                username: Mapping {
                    claim: self.oidc_username_claim.clone(),
                    prefix: Some(prefix),
                    ..Mapping::default()
                },
                groups: Mapping {
                    prefix: (!groups.is_empty())
                        .then(|| self.oidc_groups_prefix.clone().unwrap_or_default()),
                    claim: groups,
                    ..Mapping::default()
                },
                ..ClaimMappings::default()
            },
            user_validation_rules: vec![],
        })
    }
}
