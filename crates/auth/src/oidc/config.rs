//! [`AuthenticationConfiguration`]: the file of `--authentication-config`
//! (`apiserver.config.k8s.io`).

use crate::config::{ConfigErrors, Fields};
use keelson_meta::Value;

/// The accepted versions; they have the same fields.
const VERSIONS: [&str; 3] = ["v1", "v1beta1", "v1alpha1"];

/// An AuthenticationConfiguration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuthenticationConfiguration {
    /// Issuers whose tokens are accepted.
    pub jwt: Vec<JwtConfig>,
    /// Anonymous access, if the file sets it.
    pub anonymous: Option<AnonymousConfig>,
}

/// Anonymous access: on or off, and for which paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnonymousConfig {
    /// Whether anonymous access is enabled.
    pub enabled: bool,
    /// The allowed paths; empty: all.
    pub paths: Vec<String>,
}

/// An issuer with its rules and mappings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JwtConfig {
    /// The issuer.
    pub issuer: IssuerConfig,
    /// Rules on the claims of tokens.
    pub claim_validation_rules: Vec<ClaimRule>,
    /// Mapping of claims to user name, groups, uid and extra.
    pub claim_mappings: ClaimMappings,
    /// Rules on the mapped user.
    pub user_validation_rules: Vec<UserRule>,
}

/// An issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IssuerConfig {
    /// Its URL: the claim `iss` of its tokens.
    pub url: String,
    /// The URL of its discovery document, if not below its URL.
    pub discovery_url: String,
    /// CA certificates in PEM; empty: those of the system.
    pub certificate_authority: String,
    /// The accepted audiences.
    pub audiences: Vec<String>,
    /// `MatchAny` or empty.
    pub audience_match_policy: String,
    /// `controlplane`, `cluster` or empty.
    pub egress_selector_type: String,
}

/// A rule for the claims of a token: a required value, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimRule {
    /// The claim.
    pub claim: String,
    /// The required value.
    pub required_value: String,
    /// An expression that must be true, instead of claim and value.
    pub expression: String,
    /// The error message.
    pub message: String,
}

/// Mapping of claims to user name, groups, uid and extra.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClaimMappings {
    /// The name.
    pub username: Mapping,
    /// The groups.
    pub groups: Mapping,
    /// The uid; without a prefix.
    pub uid: Mapping,
    /// Extra attributes.
    pub extra: Vec<ExtraMapping>,
}

/// A claim, or an expression.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The claim.
    pub claim: String,
    /// Prefix of the value.
    pub prefix: Option<String>,
    /// An expression, instead of claim and prefix.
    pub expression: String,
}

/// An extra attribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtraMapping {
    /// The key.
    pub key: String,
    /// An expression for the values.
    pub value_expression: String,
}

/// A rule on the mapped user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserRule {
    /// The expression, which must be true.
    pub expression: String,
    /// The error message.
    pub message: String,
}

impl AnonymousConfig {
    /// Returns whether a request for this path is served without credentials.
    pub fn serves(&self, path: &str) -> bool {
        self.enabled && (self.paths.is_empty() || self.paths.iter().any(|one| one == path))
    }
}

impl AuthenticationConfiguration {
    /// Parses the file without validating it.
    pub fn read(file: &Value) -> Result<AuthenticationConfiguration, String> {
        let errors = ConfigErrors::default();
        let kind = "AuthenticationConfiguration";
        let fields = Fields::of_file(file, kind, &VERSIONS, &["jwt", "anonymous"], &errors)?;
        let known_fields =
            ["issuer", "claimValidationRules", "claimMappings", "userValidationRules"];
        let jwt = fields.objects("jwt", &known_fields).iter().map(JwtConfig::read).collect();
        let anonymous = fields.object("anonymous", &["enabled", "conditions"]);
        let conditions = anonymous.objects("conditions", &["path"]);
        let anonymous = anonymous.is_there().then(|| AnonymousConfig {
            enabled: anonymous.flag("enabled"),
            paths: conditions.iter().map(|condition| condition.text("path")).collect(),
        });
        errors.into_result()?;
        Ok(AuthenticationConfiguration { jwt, anonymous })
    }
}

impl JwtConfig {
    fn read(fields: &Fields<'_>) -> JwtConfig {
        let known_fields = [
            "url",
            "discoveryURL",
            "certificateAuthority",
            "audiences",
            "audienceMatchPolicy",
            "egressSelectorType",
        ];
        let issuer = fields.object("issuer", &known_fields);
        let claim_rules = ["claim", "requiredValue", "expression", "message"];
        let claim_rules = fields.objects("claimValidationRules", &claim_rules);
        let user_rules = fields.objects("userValidationRules", &["expression", "message"]);
        JwtConfig {
            issuer: IssuerConfig {
                url: issuer.text("url"),
                discovery_url: issuer.text("discoveryURL"),
                certificate_authority: issuer.text("certificateAuthority"),
                audiences: issuer.texts("audiences"),
                audience_match_policy: issuer.text("audienceMatchPolicy"),
                egress_selector_type: issuer.text("egressSelectorType"),
            },
            claim_validation_rules: claim_rules
                .iter()
                .map(|rule| ClaimRule {
                    claim: rule.text("claim"),
                    required_value: rule.text("requiredValue"),
                    expression: rule.text("expression"),
                    message: rule.text("message"),
                })
                .collect(),
            claim_mappings: ClaimMappings::read(
                &fields.object("claimMappings", &["username", "groups", "uid", "extra"]),
            ),
            user_validation_rules: user_rules
                .iter()
                .map(|rule| UserRule {
                    expression: rule.text("expression"),
                    message: rule.text("message"),
                })
                .collect(),
        }
    }
}

impl ClaimMappings {
    fn read(fields: &Fields<'_>) -> ClaimMappings {
        let mapping = |name: &str, known_fields: &[&str]| {
            let fields = fields.object(name, known_fields);
            Mapping {
                claim: fields.text("claim"),
                prefix: fields.optional_text("prefix"),
                expression: fields.text("expression"),
            }
        };
        let extra = fields.objects("extra", &["key", "valueExpression"]);
        ClaimMappings {
            username: mapping("username", &["claim", "prefix", "expression"]),
            groups: mapping("groups", &["claim", "prefix", "expression"]),
            uid: mapping("uid", &["claim", "expression"]),
            extra: extra
                .iter()
                .map(|fields| ExtraMapping {
                    key: fields.text("key"),
                    value_expression: fields.text("valueExpression"),
                })
                .collect(),
        }
    }
}
