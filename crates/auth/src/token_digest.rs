//! [`Token`]: digests as lookup keys, so that neither memory order nor timing reveals a token.

use ring::digest::{SHA256, digest};
use std::sync::OnceLock;
use subtle::ConstantTimeEq;

/// A bearer token with its digest, computed at most once a request.
pub(crate) struct Token<'t> {
    pub text: &'t str,
    digest: OnceLock<TokenDigest>,
}

impl<'t> Token<'t> {
    pub fn new(text: &'t str) -> Token<'t> {
        Token { text, digest: OnceLock::new() }
    }

    pub fn digest(&self) -> &TokenDigest {
        self.digest.get_or_init(|| TokenDigest::of(self.text))
    }

    /// Returns `None` if the token is too short to be signed.
    pub fn signature_end(&self) -> Option<SignatureEnd> {
        self.text.as_bytes().last_chunk().copied().map(SignatureEnd)
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

/// The last characters of a signed token, 192 bits of its signature. They cannot be guessed, and
/// whoever has them has the token, so no digest of the whole token is needed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct SignatureEnd([u8; 32]);
