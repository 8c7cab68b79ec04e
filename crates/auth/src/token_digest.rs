//! [`Token`] and [`TokenDigest`]: by what tokens are looked up, so that neither memory order nor timing tells a token.

use ring::digest::{SHA256, digest};
use subtle::ConstantTimeEq;

/// A bearer token with its digest, which is made once a request.
#[derive(Clone, Copy)]
pub(crate) struct Token<'t> {
    pub text: &'t str,
    pub digest: TokenDigest,
}

impl<'t> Token<'t> {
    pub fn new(text: &'t str) -> Token<'t> {
        Token { text, digest: TokenDigest::of(text) }
    }
}

/// SHA-256 of a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TokenDigest([u8; 32]);

impl TokenDigest {
    pub fn of(token: &str) -> TokenDigest {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
        TokenDigest(bytes)
    }

    /// Compares in constant time.
    pub fn is(&self, other: &TokenDigest) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}
