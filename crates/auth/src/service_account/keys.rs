//! Keys for service account tokens: RSA (RS256) and ECDSA on P-256, P-384 and P-521 (ES256, ES384,
//! ES512). The algorithm is fixed by the key; a token must name the same.

use crate::der;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use keelson_meta::{Value, value};
use p521::ecdsa::signature::{Signer, Verifier};
use ring::rand::SystemRandom;
use ring::signature::{
    self, EcdsaKeyPair, KeyPair, RsaKeyPair, UnparsedPublicKey, VerificationAlgorithm,
};
use std::fmt;
use x509_parser::pem::Pem;
use x509_parser::prelude::{FromDer, SubjectPublicKeyInfo, X509Certificate};

/// Maximum keys in one file.
const KEYS_MAX: usize = 100;

/// An unusable key file. Never contains its content.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct KeyError(pub &'static str);

/// Signature algorithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are those of JSON Web Algorithms")]
pub enum Algorithm {
    RS256,
    ES256,
    ES384,
    ES512,
}

impl Algorithm {
    /// Returns the `alg` of a token header.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::RS256 => "RS256",
            Algorithm::ES256 => "ES256",
            Algorithm::ES384 => "ES384",
            Algorithm::ES512 => "ES512",
        }
    }

    /// Returns `None` for ES512, which ring does not verify.
    fn of_ring(self) -> Option<&'static dyn VerificationAlgorithm> {
        match self {
            Algorithm::RS256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
            Algorithm::ES256 => Some(&signature::ECDSA_P256_SHA256_FIXED),
            Algorithm::ES384 => Some(&signature::ECDSA_P384_SHA384_FIXED),
            Algorithm::ES512 => None,
        }
    }

    /// Returns the object identifier of the curve and its name in JWKs; `None` for RSA.
    fn curve(self) -> Option<(&'static [u8], &'static str)> {
        match self {
            Algorithm::RS256 => None,
            Algorithm::ES256 => Some((der::P256, "P-256")),
            Algorithm::ES384 => Some((der::P384, "P-384")),
            Algorithm::ES512 => Some((der::P521, "P-521")),
        }
    }
}

/// A verification key.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifyingKey {
    /// The algorithm of the key.
    pub algorithm: Algorithm,
    /// The `kid` of its tokens: the hash of the key in DER, as in kube-apiserver, or the id of an
    /// external signer.
    pub id: String,
    /// Whether it is not published.
    pub is_unpublished: bool,
    /// An RSAPublicKey in DER, or an uncompressed point.
    key: Vec<u8>,
}

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VerifyingKey({} {})", self.algorithm.name(), self.id)
    }
}

impl VerifyingKey {
    /// Reads the public keys of a PEM file: public keys, certificates, or private keys.
    pub fn read_all(pem: &str) -> Result<Vec<VerifyingKey>, KeyError> {
        let mut keys = vec![];
        for part in Pem::iter_from_buffer(pem.as_bytes()).take(KEYS_MAX) {
            let part = part.map_err(|_| KeyError("not PEM"))?;
            let key = match part.label.as_str() {
                "PUBLIC KEY" => VerifyingKey::from_spki(&part.contents)?,
                "RSA PUBLIC KEY" => VerifyingKey::rsa(&part.contents),
                "CERTIFICATE" => {
                    let (_, certificate) = X509Certificate::from_der(&part.contents)
                        .map_err(|_| KeyError("a certificate that cannot be read"))?;
                    VerifyingKey::from_spki(certificate.public_key().raw)?
                }
                label if label.ends_with("PRIVATE KEY") => {
                    SigningKey::from_der(label, &part.contents)?.verifying
                }
                _ => continue,
            };
            keys.push(key);
        }
        if keys.is_empty() {
            return Err(KeyError("no key in it"));
        }
        Ok(keys)
    }

    /// Returns a key of an external signer, from a SubjectPublicKeyInfo in DER.
    pub fn external(id: &str, spki: &[u8], is_unpublished: bool) -> Result<VerifyingKey, KeyError> {
        let key = VerifyingKey::from_spki(spki)?;
        Ok(VerifyingKey { id: id.to_owned(), is_unpublished, ..key })
    }

    fn from_spki(spki: &[u8]) -> Result<VerifyingKey, KeyError> {
        const BAD: KeyError = KeyError("a public key that cannot be read");
        let (_, parsed) = SubjectPublicKeyInfo::from_der(spki).map_err(|_| BAD)?;
        let key: &[u8] = &parsed.subject_public_key.data;
        if parsed.algorithm.algorithm.as_bytes() == der::RSA {
            return Ok(VerifyingKey::rsa(key));
        }
        let (algorithm, rest) = der::expect(der::SEQUENCE, spki)
            .and_then(|(content, _)| der::expect(der::SEQUENCE, content))
            .and_then(|(algorithm, _)| der::expect(der::OBJECT_ID, algorithm))
            .ok_or(BAD)?;
        match (algorithm, der::expect(der::OBJECT_ID, rest).ok_or(BAD)?.0) {
            (der::EC, der::P256) => Ok(VerifyingKey::ec(Algorithm::ES256, key)),
            (der::EC, der::P384) => Ok(VerifyingKey::ec(Algorithm::ES384, key)),
            (der::EC, der::P521) => Ok(VerifyingKey::ec(Algorithm::ES512, key)),
            _ => Err(KeyError("only RSA, P-256, P-384 and P-521 keys are supported")),
        }
    }

    /// Creates a key from an RSAPublicKey in DER.
    fn rsa(key: &[u8]) -> VerifyingKey {
        let algorithm =
            der::concat(&[der::wrap(der::OBJECT_ID, der::RSA), der::wrap(der::NULL, &[])]);
        VerifyingKey::new(Algorithm::RS256, &algorithm, key)
    }

    /// Creates a key from a point of a curve.
    fn ec(algorithm: Algorithm, point: &[u8]) -> VerifyingKey {
        let curve = algorithm.curve().unwrap_or_default().0;
        let names =
            der::concat(&[der::wrap(der::OBJECT_ID, der::EC), der::wrap(der::OBJECT_ID, curve)]);
        VerifyingKey::new(algorithm, &names, point)
    }

    fn new(algorithm: Algorithm, names: &[u8], key: &[u8]) -> VerifyingKey {
        let bits = [&[0], key].concat();
        let spki =
            der::concat(&[der::wrap(der::SEQUENCE, names), der::wrap(der::BIT_STRING, &bits)]);
        let spki = der::wrap(der::SEQUENCE, &spki);
        let id = BASE64URL.encode(ring::digest::digest(&ring::digest::SHA256, &spki));
        VerifyingKey { algorithm, id, is_unpublished: false, key: key.to_vec() }
    }

    /// Returns whether the signature of a message is valid.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        if let Some(algorithm) = self.algorithm.of_ring() {
            return UnparsedPublicKey::new(algorithm, &self.key).verify(message, signature).is_ok();
        }
        let key = p521::ecdsa::VerifyingKey::from_sec1_bytes(&self.key);
        let signature = p521::ecdsa::Signature::from_slice(signature);
        key.is_ok_and(|key| signature.is_ok_and(|s| key.verify(message, &s).is_ok()))
    }

    /// Returns the key as a JWK.
    pub fn to_jwk(&self) -> Value {
        let key = &*self.key;
        let id = &self.id;
        let alg = self.algorithm.name();
        let part = |bytes: &[u8]| BASE64URL.encode(bytes);
        let Some((_, curve)) = self.algorithm.curve() else {
            let numbers = der::expect(der::SEQUENCE, key)
                .and_then(|(numbers, _)| der::expect(der::INTEGER, numbers))
                .and_then(|(n, rest)| Some((n, der::expect(der::INTEGER, rest)?.0)));
            let (n, e) = numbers.unwrap_or_default();
            let unsigned = |number: &[u8]| part(number.strip_prefix(&[0]).unwrap_or(number));
            return value!({
                "use": "sig", "kty": "RSA", "kid": (id.as_str()), "alg": alg,
                "n": (unsigned(n)), "e": (unsigned(e))
            });
        };
        let (x, y) = key.get(1..).unwrap_or_default().split_at(key.len().saturating_sub(1) / 2);
        value!({
            "use": "sig", "kty": "EC", "kid": (id.as_str()), "crv": curve, "alg": alg,
            "x": (part(x)), "y": (part(y))
        })
    }
}

/// A signing key.
pub struct SigningKey {
    /// The public key.
    pub verifying: VerifyingKey,
    pair: Pair,
    random: SystemRandom,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ec(EcdsaKeyPair),
    P521(Box<p521::ecdsa::SigningKey>),
}

impl fmt::Debug for SigningKey {
    /// Prints the public key only.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({} {})", self.verifying.algorithm.name(), self.verifying.id)
    }
}

impl SigningKey {
    /// Reads the first private key of a PEM file.
    pub fn read(pem: &str) -> Result<SigningKey, KeyError> {
        for part in Pem::iter_from_buffer(pem.as_bytes()).take(KEYS_MAX) {
            let part = part.map_err(|_| KeyError("not PEM"))?;
            if part.label.ends_with("PRIVATE KEY") {
                return SigningKey::from_der(&part.label, &part.contents);
            }
        }
        Err(KeyError("no private key in it"))
    }

    fn from_der(label: &str, key: &[u8]) -> Result<SigningKey, KeyError> {
        match label {
            "RSA PRIVATE KEY" => SigningKey::rsa(RsaKeyPair::from_der(key)),
            "EC PRIVATE KEY" => {
                let curves = [(der::P256, Algorithm::ES256), (der::P384, Algorithm::ES384)];
                let made = curves
                    .iter()
                    .find_map(|(curve, algorithm)| {
                        SigningKey::ec(*algorithm, &pkcs8(curve, key)).ok()
                    })
                    .or_else(|| SigningKey::p521(key));
                made.ok_or(KeyError("not a P-256, P-384 or P-521 key with its public half"))
            }
            "PRIVATE KEY" => SigningKey::ec(Algorithm::ES256, key)
                .or_else(|_| SigningKey::ec(Algorithm::ES384, key))
                .or_else(|_| p521_of_pkcs8(key).and_then(SigningKey::p521).ok_or(KeyError("")))
                .or_else(|_| SigningKey::rsa(RsaKeyPair::from_pkcs8(key))),
            _ => Err(KeyError("a kind of private key that is not supported")),
        }
    }

    fn rsa(pair: Result<RsaKeyPair, ring::error::KeyRejected>) -> Result<SigningKey, KeyError> {
        let pair = pair.map_err(|_| KeyError("not an RSA key of 2048 to 4096 bits"))?;
        let verifying = VerifyingKey::rsa(pair.public_key().as_ref());
        Ok(SigningKey { verifying, pair: Pair::Rsa(pair), random: SystemRandom::new() })
    }

    fn ec(algorithm: Algorithm, key: &[u8]) -> Result<SigningKey, KeyError> {
        let signing = match algorithm {
            Algorithm::ES384 => &signature::ECDSA_P384_SHA384_FIXED_SIGNING,
            _ => &signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        };
        let random = SystemRandom::new();
        let pair = EcdsaKeyPair::from_pkcs8(signing, key, &random)
            .map_err(|_| KeyError("not an ECDSA key"))?;
        let verifying = VerifyingKey::ec(algorithm, pair.public_key().as_ref());
        Ok(SigningKey { verifying, pair: Pair::Ec(pair), random })
    }

    /// Creates a key from an ECPrivateKey in DER.
    fn p521(key: &[u8]) -> Option<SigningKey> {
        let (parts, _) = der::expect(der::SEQUENCE, key)?;
        let (_, parts) = der::expect(der::INTEGER, parts)?;
        let (secret, _) = der::expect(der::OCTET_STRING, parts)?;
        let pair = p521::ecdsa::SigningKey::from_slice(secret).ok()?;
        let point = p521::ecdsa::VerifyingKey::from(&pair).to_encoded_point(false);
        let verifying = VerifyingKey::ec(Algorithm::ES512, point.as_bytes());
        Some(SigningKey {
            verifying,
            pair: Pair::P521(Box::new(pair)),
            random: SystemRandom::new(),
        })
    }

    /// Signs a message; `None` when the system provides no randomness.
    pub fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        match &self.pair {
            Pair::Ec(pair) => {
                pair.sign(&self.random, message).ok().map(|signed| signed.as_ref().to_vec())
            }
            Pair::P521(pair) => {
                let signed: p521::ecdsa::Signature = pair.try_sign(message).ok()?;
                Some(signed.to_bytes().to_vec())
            }
            Pair::Rsa(pair) => {
                let mut signed = vec![0; pair.public().modulus_len()];
                pair.sign(&signature::RSA_PKCS1_SHA256, &self.random, message, &mut signed).ok()?;
                Some(signed)
            }
        }
    }
}

/// Returns the ECPrivateKey in a P-521 key of PKCS #8.
fn p521_of_pkcs8(key: &[u8]) -> Option<&[u8]> {
    let (parts, _) = der::expect(der::SEQUENCE, key)?;
    let (_, parts) = der::expect(der::INTEGER, parts)?;
    let (names, parts) = der::expect(der::SEQUENCE, parts)?;
    let (kind, names) = der::expect(der::OBJECT_ID, names)?;
    let (curve, _) = der::expect(der::OBJECT_ID, names)?;
    let (key, _) = der::expect(der::OCTET_STRING, parts)?;
    (kind == der::EC && curve == der::P521).then_some(key)
}

/// Wraps an ECPrivateKey in PKCS #8.
fn pkcs8(curve: &[u8], key: &[u8]) -> Vec<u8> {
    let names =
        der::concat(&[der::wrap(der::OBJECT_ID, der::EC), der::wrap(der::OBJECT_ID, curve)]);
    // The curve is in the outer structure; ring rejects it in the inner one.
    let key = without_parameters(key).unwrap_or_else(|| key.to_vec());
    let parts = der::concat(&[
        der::wrap(der::INTEGER, &[0]),
        der::wrap(der::SEQUENCE, &names),
        der::wrap(der::OCTET_STRING, &key),
    ]);
    der::wrap(der::SEQUENCE, &parts)
}

fn without_parameters(key: &[u8]) -> Option<Vec<u8>> {
    const PARAMETERS: u8 = 0xa0;
    let (mut rest, _) = der::expect(der::SEQUENCE, key)?;
    let mut fields = vec![];
    while !rest.is_empty() {
        let (tag, content, after) = der::read(rest)?;
        if tag != PARAMETERS {
            fields.extend(der::wrap(tag, content));
        }
        rest = after;
    }
    Some(der::wrap(der::SEQUENCE, &fields))
}
