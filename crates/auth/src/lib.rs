//! Authentication ([`Authenticator`], [`User`]) and authorization ([`Authorizer`], [`Permit`]).
//!
//! Only [`Authorizer::authorize`] creates a [`Permit`] for a request, and the registry serves
//! nothing without one.

mod abac;
mod annotations;
mod attributes;
mod authenticate;
mod authorize;
mod bootstrap_token;
mod certificate_request;
mod certificate_user;
mod config;
mod decision;
mod der;
mod front_proxy;
mod grant;
mod json;
pub mod long_work;
pub mod node;
mod notes;
mod objects;
pub mod off_worker;
pub mod oidc;
mod permit;
pub mod rbac;
mod remote_tokens;
pub mod service_account;
mod token_digest;
mod token_file;
mod watched_index;
pub mod webhook;
pub mod x509;

pub use abac::{Abac, AbacError};
pub use annotations::Annotations;
pub use attributes::{Attributes, Selectors};
pub use authenticate::{Authenticator, Certificate, Credentials, ProtocolToken};
pub use authorize::{Authorizer, Mode, UserRules, forbidden};
pub use bootstrap_token::{BootstrapToken, BootstrapTokens};
pub use certificate_request::{CertificateAuthority, CertificateRequest, NameCounts};
pub use certificate_user::CertificateUser;
pub use decision::{AuthorizationReason, Decision, Outcome};
pub use front_proxy::FrontProxy;
pub use keelson_meta::User;
pub use notes::CredentialNotes;
pub use objects::{BoxFuture, Change, Feed, GroupResource, Objects};
pub use permit::{Action, Permit};
pub use remote_tokens::{JwtSlot, RemoteTokens};
pub use token_file::{TokenFile, TokenFileError};
pub use watched_index::{Indexer, WatchedIndex};

/// The group that may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of everyone who was authenticated.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The user of requests without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of [`ANONYMOUS`].
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The group of nodes.
pub const NODES: &str = "system:nodes";
/// Prefix of the user names of service accounts; namespace and name follow.
pub const SERVICE_ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Adds an authenticated user to `system:authenticated`; [`ANONYMOUS`] and members of
/// [`UNAUTHENTICATED`] stay as they are.
pub(crate) fn in_authenticated_group(user: User) -> User {
    if user.name == ANONYMOUS || user.is_in(UNAUTHENTICATED) {
        return user;
    }
    user.with_group(AUTHENTICATED)
}
