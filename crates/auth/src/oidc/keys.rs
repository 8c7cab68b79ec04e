//! The published keys of an issuer (RFC 7517) and the accepted signature algorithms (RFC 7518).

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use p521::ecdsa::signature::Verifier;
use ring::signature::{self, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// Maximum keys of one issuer.
const KEYS_MAX: usize = 100;

/// An asymmetric signature algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of JSON Web Algorithms")]
pub enum JoseAlgorithm {
    RS256,
    RS384,
    RS512,
    ES256,
    ES384,
    ES512,
    PS256,
    PS384,
    PS512,
}

use JoseAlgorithm::{ES256, ES384, ES512, PS256, PS384, PS512, RS256, RS384, RS512};

impl JoseAlgorithm {
    /// All algorithms.
    pub const ALL: [JoseAlgorithm; 9] =
        [ES256, ES384, ES512, PS256, PS384, PS512, RS256, RS384, RS512];

    /// Returns the `alg` of a token header.
    pub fn name(self) -> &'static str {
        match self {
            RS256 => "RS256",
            RS384 => "RS384",
            RS512 => "RS512",
            ES256 => "ES256",
            ES384 => "ES384",
            ES512 => "ES512",
            PS256 => "PS256",
            PS384 => "PS384",
            PS512 => "PS512",
        }
    }

    fn rsa(self) -> Option<&'static RsaParameters> {
        Some(match self {
            RS256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            RS384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            RS512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            PS256 => &signature::RSA_PSS_2048_8192_SHA256,
            PS384 => &signature::RSA_PSS_2048_8192_SHA384,
            PS512 => &signature::RSA_PSS_2048_8192_SHA512,
            ES256 | ES384 | ES512 => return None,
        })
    }
}

impl FromStr for JoseAlgorithm {
    type Err = String;

    fn from_str(text: &str) -> Result<JoseAlgorithm, String> {
        let found = JoseAlgorithm::ALL.into_iter().find(|algorithm| algorithm.name() == text);
        found.ok_or_else(|| format!("oidc: unsupported signing alg: {text:?}"))
    }
}

/// The keys of an issuer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySet(Vec<Key>);

#[derive(Clone, PartialEq, Eq)]
struct Key {
    id: String,
    /// The algorithm of the key, if it has one.
    algorithm: Option<JoseAlgorithm>,
    public: PublicKey,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

#[derive(Clone, PartialEq, Eq)]
enum PublicKey {
    Rsa {
        modulus: Vec<u8>,
        exponent: Vec<u8>,
    },
    /// An uncompressed point, with the algorithm of its curve.
    Ec(JoseAlgorithm, Vec<u8>),
}

impl KeySet {
    /// Parses a key set. Keys that cannot verify signatures here are skipped.
    pub fn read(set: &Value) -> Option<KeySet> {
        let keys = set.get("keys")?.as_array()?.iter().take(KEYS_MAX);
        Some(KeySet(keys.filter_map(Key::read).collect()))
    }

    /// Returns whether a key verifies the signature; with an id, only keys with that id are tried.
    pub fn verifies(
        &self,
        id: &str,
        algorithm: JoseAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> bool {
        let mut keys = self.0.iter().filter(|key| id.is_empty() || key.id == id);
        keys.any(|key| key.verifies(algorithm, message, signature))
    }
}

impl Key {
    fn read(key: &Value) -> Option<Key> {
        let text = |name: &str| key.get(name).and_then(Value::as_str).unwrap_or_default();
        let bytes = |name: &str| BASE64URL.decode(text(name).trim_end_matches('=')).ok();
        if !["", "sig"].contains(&text("use")) {
            return None;
        }
        let public = match text("kty") {
            "RSA" => PublicKey::Rsa { modulus: bytes("n")?, exponent: bytes("e")? },
            "EC" => {
                let (algorithm, size) = match text("crv") {
                    "P-256" => (ES256, 32_usize),
                    "P-384" => (ES384, 48),
                    "P-521" => (ES512, 66),
                    _ => return None,
                };
                let mut point = vec![4];
                for part in [bytes("x")?, bytes("y")?] {
                    point.extend(std::iter::repeat_n(0, size.checked_sub(part.len())?));
                    point.extend(part);
                }
                PublicKey::Ec(algorithm, point)
            }
            _ => return None,
        };
        // A key for an unknown algorithm verifies nothing.
        let algorithm = match text("alg") {
            "" => None,
            name => Some(name.parse().ok()?),
        };
        Some(Key { id: text("kid").to_owned(), algorithm, public })
    }

    fn verifies(&self, algorithm: JoseAlgorithm, message: &[u8], signature: &[u8]) -> bool {
        if self.algorithm.is_some_and(|own| own != algorithm) {
            return false;
        }
        match &self.public {
            PublicKey::Rsa { modulus, exponent } => algorithm.rsa().is_some_and(|parameters| {
                let first = modulus.iter().position(|byte| *byte != 0).unwrap_or_default();
                let key = RsaPublicKeyComponents { n: &modulus[first..], e: exponent };
                key.verify(parameters, message, signature).is_ok()
            }),
            PublicKey::Ec(of_curve, point) => {
                *of_curve == algorithm && ec_verifies(algorithm, point, message, signature)
            }
        }
    }
}

fn ec_verifies(algorithm: JoseAlgorithm, point: &[u8], message: &[u8], signature: &[u8]) -> bool {
    let verify = |by: &'static signature::EcdsaVerificationAlgorithm| {
        UnparsedPublicKey::new(by, point).verify(message, signature).is_ok()
    };
    match algorithm {
        ES256 => verify(&signature::ECDSA_P256_SHA256_FIXED),
        ES384 => verify(&signature::ECDSA_P384_SHA384_FIXED),
        _ => {
            // ring does not support P-521.
            let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(point);
            let signature = p521::ecdsa::Signature::from_slice(signature);
            key.is_ok_and(|key| signature.is_ok_and(|s| key.verify(message, &s).is_ok()))
        }
    }
}
