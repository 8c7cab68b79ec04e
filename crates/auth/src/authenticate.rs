//! Authenticates requests: client certificates, then bearer tokens.

use crate::{ANONYMOUS, AUTHENTICATED, TokenFile, UNAUTHENTICATED};
use keelson_meta::{Failure, Status, Str, User};
use std::fmt;
use x509_parser::prelude::{FromDer, X509Certificate};

/// What a request brought along to say who sent it.
#[derive(Clone, Default)]
pub struct Credentials<'a> {
    /// The `Authorization` header.
    pub authorization: Option<&'a str>,
    /// What the TLS layer says of the client's certificate.
    pub certificate: Certificate<'a>,
}

/// A client's certificate.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Certificate<'a> {
    /// The client showed none.
    #[default]
    Absent,
    /// In DER, verified against the client CA.
    Verified(&'a [u8]),
    /// It does not lead to the client CA, or not now.
    Refused,
}

impl fmt::Debug for Credentials<'_> {
    /// Says what is there, never what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("authorization", &self.authorization.is_some())
            .field("certificate", &(self.certificate != Certificate::Absent))
            .finish()
    }
}

/// All ways of telling who asks.
#[derive(Debug, Default)]
pub struct Authenticator {
    tokens: TokenFile,
}

impl Authenticator {
    /// With the tokens of a `--token-auth-file`.
    pub fn new(tokens: TokenFile) -> Self {
        Authenticator { tokens }
    }

    /// Who sent a request with these credentials. No credentials at all are those of
    /// `system:anonymous`, whom the authorizer knows to refuse; wrong ones are 401.
    pub fn authenticate(&self, credentials: &Credentials<'_>) -> Result<User, Failure> {
        if let Some(user) = self.recognize(credentials) {
            return Ok(user);
        }
        let is_wrong = credentials.authorization.and_then(bearer).is_some()
            || match credentials.certificate {
                Certificate::Absent => false,
                Certificate::Refused => true,
                // One that names nobody is none; one that cannot be read is wrong.
                Certificate::Verified(der) => names_somebody(der),
            };
        if is_wrong {
            return Err(Status::unauthorized());
        }
        let anonymous = User { name: Str::new_static(ANONYMOUS), ..User::default() };
        Ok(anonymous.with_group(UNAUTHENTICATED))
    }

    /// Whose credentials these are, if anybody's.
    pub fn recognize(&self, credentials: &Credentials<'_>) -> Option<User> {
        let by_certificate = match credentials.certificate {
            Certificate::Verified(der) => certificate_user(der),
            Certificate::Absent | Certificate::Refused => None,
        };
        by_certificate.or_else(|| self.tokens.user(bearer(credentials.authorization?)?))
    }
}

/// The token of `Bearer TOKEN`; the word in any case, one space (RFC 6750).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.trim().split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// Whether a certificate has a common name, be it one that cannot be read.
fn names_somebody(der: &[u8]) -> bool {
    let Ok((_, certificate)) = X509Certificate::from_der(der) else { return true };
    let last = certificate.subject().iter_common_name().last();
    last.is_some_and(|name| !name.as_slice().is_empty())
}

/// The user that a certificate names: common name, organizations as groups.
fn certificate_user(der: &[u8]) -> Option<User> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    // Of several the last counts, as in Go.
    let name = subject.iter_common_name().last()?.as_str().ok().filter(|n| !n.is_empty())?;
    // A group that cannot be read must not be taken as absent.
    let groups = subject.iter_organization().map(|o| o.as_str().map(Str::new));
    let groups = groups.collect::<Result<_, _>>().ok()?;
    let digest = sha2::Digest::finalize(sha2::Digest::chain_update(
        <sha2::Sha256 as sha2::Digest>::new(),
        der,
    ));
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let id = Str::from(format!("X509SHA256={hex}"));
    let extra = vec![(Str::new("authentication.kubernetes.io/credential-id"), vec![id])];
    let user = User { name: name.into(), uid: Str::default(), groups, extra };
    Some(user.with_group(AUTHENTICATED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_token_names_its_user_and_a_wrong_one_gets_401() {
        let tokens = TokenFile::parse("secret,alice,u1,\"devs,ops\"\nother,bob,u2\n").unwrap();
        let authenticator = Authenticator::new(tokens);
        let check = |header: Option<&str>| {
            let credentials = Credentials { authorization: header, ..Credentials::default() };
            authenticator.authenticate(&credentials).map(|user| (user.name, user.groups))
        };
        let alice = check(Some("Bearer secret")).unwrap();
        assert_eq!(alice.0, "alice");
        assert_eq!(*alice.1, ["devs", "ops", "system:authenticated"]);
        assert!(check(Some("bearer other")).is_ok());
        assert_eq!(check(Some("Bearer secre")).map_err(|status| status.code), Err(401));
        for header in [None, Some("Bearer"), Some("Basic secret")] {
            let (name, groups) = check(header).unwrap();
            assert_eq!((name.as_str(), &*groups), (ANONYMOUS, &[UNAUTHENTICATED.into()][..]));
        }
    }

    #[test]
    fn a_refused_certificate_gets_401_unless_a_token_is_known() {
        let tokens = TokenFile::parse("secret,alice,u1\n").unwrap();
        let authenticator = Authenticator::new(tokens);
        let check = |authorization| {
            let credentials = Credentials { authorization, certificate: Certificate::Refused };
            authenticator.authenticate(&credentials).map(|user| user.name).map_err(|s| s.code)
        };
        assert_eq!(check(None), Err(401));
        assert_eq!(check(Some("Bearer secret")), Ok("alice".into()));
    }

    #[test]
    fn credentials_are_not_printed() {
        let credentials =
            Credentials { authorization: Some("Bearer hush"), ..Credentials::default() };
        assert!(!format!("{credentials:?}").contains("hush"));
    }
}
