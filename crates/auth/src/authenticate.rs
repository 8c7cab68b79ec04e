//! Authenticates requests: the headers of a front proxy, then client certificates, then bearer
//! tokens.

use crate::certificate_user::CertificateUser;
use crate::oidc::AnonymousConfig;
use crate::remote_tokens::{RemoteTokens, RemoteUser};
use crate::service_account::{AuthenticatedToken, ServiceAccountTokens};
use crate::token_digest::Token;
use crate::{ANONYMOUS, BootstrapTokens, CredentialNotes, FrontProxy, TokenFile, UNAUTHENTICATED};
use keelson_meta::{Failure, Status, Str, Timestamp, User};
use std::fmt;
use std::sync::Arc;

/// The credentials of a request.
#[derive(Default)]
pub struct Credentials<'a> {
    /// The `Authorization` header.
    pub authorization: Option<&'a str>,
    /// The token among the subprotocols of a WebSocket.
    pub protocol: ProtocolToken,
    /// The client's certificate, as the TLS layer verified it.
    pub certificate: Certificate<'a>,
    /// The user in the headers of a front proxy whose certificate was verified.
    pub front_proxy: Option<User>,
    /// The path of the request: anonymous access may be limited to some paths.
    pub path: &'a str,
}

/// A bearer token given as a WebSocket subprotocol, because browsers cannot send the header.
#[derive(Default, PartialEq, Eq)]
pub enum ProtocolToken {
    /// There is none.
    #[default]
    Absent,
    /// There are several, it is not text in base64, or no other subprotocol stands beside it.
    Invalid,
    /// The token.
    Token(String),
}

/// A client's certificate.
#[derive(Clone, Copy, Default)]
pub enum Certificate<'a> {
    /// The client sent none.
    #[default]
    Absent,
    /// Verified against the client CA.
    Verified(&'a CertificateUser),
    /// Not signed by the client CA, expired, or not yet valid.
    Refused,
}

impl fmt::Debug for Credentials<'_> {
    /// Prints which credentials there are, but not their values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("authorization", &self.authorization.is_some())
            .field("certificate", &!matches!(self.certificate, Certificate::Absent))
            .field("front_proxy", &self.front_proxy.is_some())
            .finish()
    }
}

/// All authenticators.
#[derive(Debug)]
pub struct Authenticator {
    tokens: TokenFile,
    service_accounts: Option<Arc<ServiceAccountTokens>>,
    bootstrap: Option<BootstrapTokens>,
    front_proxy: Option<Arc<FrontProxy>>,
    remote: Option<RemoteTokens>,
    /// Which requests without credentials are served as [`ANONYMOUS`].
    anonymous: AnonymousConfig,
    reads_certificate_uids: bool,
}

impl Default for Authenticator {
    fn default() -> Self {
        Authenticator::new(TokenFile::default())
    }
}

/// The audiences of an API server without `--api-audiences`.
static NO_AUDIENCES: [Str; 0] = [];

impl Authenticator {
    /// Returns an authenticator for the tokens of a `--token-auth-file`.
    pub fn new(tokens: TokenFile) -> Self {
        Authenticator {
            tokens,
            service_accounts: None,
            bootstrap: None,
            front_proxy: None,
            remote: None,
            anonymous: AnonymousConfig { enabled: true, paths: vec![] },
            reads_certificate_uids: true,
        }
    }

    /// Sets whether client certificates may name UIDs (AllowParsingUserUIDFromCertAuth).
    #[must_use]
    pub fn with_certificate_uids(mut self, reads: bool) -> Self {
        self.reads_certificate_uids = reads;
        self
    }

    /// Also accepts service account tokens.
    #[must_use]
    pub fn with_service_accounts(mut self, tokens: Arc<ServiceAccountTokens>) -> Self {
        self.service_accounts = Some(tokens);
        self
    }

    /// Also accepts bootstrap tokens.
    #[must_use]
    pub fn with_bootstrap_tokens(mut self, tokens: BootstrapTokens) -> Self {
        self.bootstrap = Some(tokens);
        self
    }

    /// Also accepts the user headers of a front proxy (`--requestheader-*`).
    #[must_use]
    pub fn with_front_proxy(mut self, front_proxy: Option<Arc<FrontProxy>>) -> Self {
        self.front_proxy = front_proxy;
        self
    }

    /// Returns the front proxy configuration.
    pub fn front_proxy(&self) -> Option<&FrontProxy> {
        self.front_proxy.as_deref()
    }

    /// Also accepts tokens of OpenID Connect issuers and webhooks.
    #[must_use]
    pub fn with_remote_tokens(mut self, remote: RemoteTokens) -> Self {
        self.remote = Some(remote);
        self
    }

    /// Sets whether requests without credentials are served (`--anonymous-auth`).
    #[must_use]
    pub fn with_anonymous(mut self, anonymous: AnonymousConfig) -> Self {
        self.anonymous = anonymous;
        self
    }

    /// Returns the service account authenticator, if there is one.
    pub fn service_accounts(&self) -> Option<&Arc<ServiceAccountTokens>> {
        self.service_accounts.as_ref()
    }

    /// Returns the user of a request. A request without credentials is `system:anonymous` if that
    /// is enabled; invalid credentials are a 401.
    pub async fn authenticate(
        &self,
        credentials: Credentials<'_>,
        now: Timestamp,
        notes: &mut CredentialNotes,
    ) -> Result<User, Failure> {
        if let Some(user) = credentials.front_proxy {
            return Ok(user);
        }
        if let Certificate::Verified(shown) = credentials.certificate
            && let Some(user) = shown.user(self.reads_certificate_uids)
        {
            return Ok(user);
        }
        let token = credentials.authorization.and_then(bearer);
        if let Some(token) = token
            && let Ok(authenticated) = self.authenticate_token(token, &[], now, notes).await
        {
            return Ok(authenticated.user);
        }
        if let ProtocolToken::Token(token) = &credentials.protocol
            && let Ok(authenticated) = self.authenticate_token(token, &[], now, notes).await
        {
            return Ok(authenticated.user);
        }
        let is_invalid = token.is_some()
            || credentials.protocol != ProtocolToken::Absent
            || match credentials.certificate {
                Certificate::Absent => false,
                Certificate::Refused => true,
                // A certificate without a common name counts as none; an unreadable one is an
                // error.
                Certificate::Verified(shown) => shown.has_name(),
            };
        if is_invalid || !self.anonymous.serves(credentials.path) {
            return Err(Status::unauthorized());
        }
        let anonymous = User { name: Str::new_static(ANONYMOUS), ..User::default() };
        Ok(anonymous.with_group(UNAUTHENTICATED))
    }

    /// Returns the user of a token and for which of the requested audiences it is valid; those of
    /// the API server if none are requested. Otherwise returns the errors of the authenticators.
    pub async fn authenticate_token(
        &self,
        token: &str,
        requested: &[Str],
        now: Timestamp,
        notes: &mut CredentialNotes,
    ) -> Result<AuthenticatedToken, Vec<String>> {
        // Authenticates what a header has after `Bearer `: the first word; without a word there is
        // no user.
        let token = token.trim_end();
        // `split` is slow for service account tokens, which have about a kilobyte.
        let end = memchr::memchr(b' ', token.as_bytes()).unwrap_or(token.len());
        let token = &token[..end];
        if token.is_empty() && self.anonymous.enabled {
            let anonymous = User { name: Str::new_static(ANONYMOUS), ..User::default() };
            let audiences = if requested.is_empty() { self.audiences() } else { requested };
            return Ok(authenticated_token(
                anonymous.with_group(UNAUTHENTICATED),
                audiences.to_vec(),
            ));
        }
        let token = Token::new(token);
        let mut user = self.tokens.user(&token);
        if let (None, Some(bootstrap)) = (&user, &self.bootstrap) {
            user = bootstrap.authenticate(token.text, now).await;
        }
        if let Some(user) = user {
            return self.for_api_server(user, requested).ok_or_else(Vec::new);
        }
        let mut errors = vec![];
        if let Some(service_accounts) = &self.service_accounts {
            match service_accounts.authenticate_token(&token, requested, now, notes).await {
                Ok(Some(authenticated)) => return Ok(authenticated),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        let Some(remote) = &self.remote else { return Err(errors) };
        // Boxed, to keep the future of each request small.
        let own = self.audiences();
        match Box::pin(remote.authenticate(&token, requested, own, now, &mut errors)).await {
            Some(RemoteUser::ForApiServer(user)) => {
                self.for_api_server(user, requested).ok_or(errors)
            }
            Some(RemoteUser::ForAudiences(user, audiences)) => {
                Ok(authenticated_token(user, audiences))
            }
            None => Err(errors),
        }
    }

    /// Returns the token if it is valid for the API server and a requested audience.
    fn for_api_server(&self, user: User, requested: &[Str]) -> Option<AuthenticatedToken> {
        let own = self.audiences();
        let is_requested = |one: &&Str| requested.is_empty() || requested.contains(one);
        let mut audiences = Vec::with_capacity(own.len());
        audiences.extend(own.iter().filter(is_requested).cloned());
        (!audiences.is_empty() || own.is_empty()).then(|| authenticated_token(user, audiences))
    }

    /// Returns `--api-audiences`.
    pub fn audiences(&self) -> &[Str] {
        match &self.service_accounts {
            Some(tokens) => &tokens.options().audiences,
            None => &NO_AUDIENCES,
        }
    }
}

fn authenticated_token(user: User, audiences: Vec<Str>) -> AuthenticatedToken {
    AuthenticatedToken { user, audiences }
}

/// Returns the token of `Bearer TOKEN` (RFC 6750): the scheme in any case, then one space. With
/// more spaces before it the token does not count.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let is_token = !token.is_empty() && !token.starts_with(' ');
    (scheme.eq_ignore_ascii_case("bearer") && is_token).then_some(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_valid_token_has_a_user_and_an_invalid_one_gets_401() {
        let tokens = TokenFile::parse("secret,alice,u1,\"devs,ops\"\nother,bob,u2\n").unwrap();
        let authenticator = Authenticator::new(tokens);
        let check = async |header: Option<&str>| {
            let credentials = Credentials { authorization: header, ..Credentials::default() };
            let notes = &mut CredentialNotes::default();
            let user = authenticator.authenticate(credentials, Timestamp::new(0, 0), notes).await;
            user.map(|user| (user.name, user.groups))
        };
        let alice = check(Some("Bearer secret")).await.unwrap();
        assert_eq!(alice.0, "alice");
        assert_eq!(*alice.1, ["devs", "ops", "system:authenticated"]);
        assert!(check(Some("bearer other")).await.is_ok());
        for wrong in ["Bearer secre", "Bearer secreT"] {
            assert_eq!(check(Some(wrong)).await.map_err(|status| status.code), Err(401));
        }
        for header in [None, Some("Bearer"), Some("Basic secret"), Some("Bearer  secret")] {
            let (name, groups) = check(header).await.unwrap();
            assert_eq!((name.as_str(), &*groups), (ANONYMOUS, &[UNAUTHENTICATED.into()][..]));
        }
    }

    #[tokio::test]
    async fn a_rejected_certificate_gets_401_without_a_valid_token() {
        let tokens = TokenFile::parse("secret,alice,u1\n").unwrap();
        let authenticator = Authenticator::new(tokens);
        let check = async |authorization| {
            let certificate = Certificate::Refused;
            let credentials = Credentials { authorization, certificate, ..Credentials::default() };
            let notes = &mut CredentialNotes::default();
            let user = authenticator.authenticate(credentials, Timestamp::new(0, 0), notes).await;
            user.map(|user| user.name).map_err(|s| s.code)
        };
        assert_eq!(check(None).await, Err(401));
        assert_eq!(check(Some("Bearer secret")).await, Ok("alice".into()));
    }

    #[test]
    fn credentials_are_not_printed() {
        let credentials =
            Credentials { authorization: Some("Bearer hush"), ..Credentials::default() };
        assert!(!format!("{credentials:?}").contains("hush"));
    }
}
