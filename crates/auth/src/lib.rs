//! Who asks ([`User`]) and may they ([`Permit`]).
//!
//! A [`Permit`] has a private constructor: only [`Authorizer::authorize`] makes one, and the registry
//! serves nothing without it.

mod authenticate;
mod authorize;
mod token_file;
pub mod x509;

pub use authenticate::{Authenticator, Certificate, Credentials};
pub use authorize::{Attributes, Authorizer, Permit};
pub use keelson_meta::User;
pub use token_file::{TokenFile, TokenFileError};

/// The group that may do everything.
pub const MASTERS: &str = "system:masters";
/// The group of everyone who was recognised.
pub const AUTHENTICATED: &str = "system:authenticated";
/// Who sends no credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The group of those who send no credentials.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
