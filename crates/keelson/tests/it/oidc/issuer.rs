//! An OpenID Connect issuer: an HTTPS server that publishes its keys and signs any claims.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use keelson_testkit::https_peer::HttpsPeer;
use p521::ecdsa::signature::Signer;
use ring::rand::SystemRandom;
use ring::signature::{
    self, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, RsaEncoding, RsaKeyPair,
    RsaPublicKeyComponents,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{PrivatePkcs1KeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};

const RSA: &str = include_str!("../../../../auth/src/service_account/testdata/rsa.pem");

/// A key that signs.
pub enum Key {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    P384(EcdsaKeyPair),
    P521(Box<p521::ecdsa::SigningKey>),
}

impl Key {
    pub fn rsa() -> Key {
        let pair = PrivatePkcs8KeyDer::from_pem_slice(RSA.as_bytes())
            .ok()
            .and_then(|key| RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).ok())
            .or_else(|| {
                let key = PrivatePkcs1KeyDer::from_pem_slice(RSA.as_bytes()).ok()?;
                RsaKeyPair::from_der(key.secret_pkcs1_der()).ok()
            });
        Key::Rsa(Box::new(pair.expect("a key")))
    }

    fn ec(algorithm: &'static EcdsaSigningAlgorithm) -> EcdsaKeyPair {
        let random = SystemRandom::new();
        let made = EcdsaKeyPair::generate_pkcs8(algorithm, &random).expect("a key");
        EcdsaKeyPair::from_pkcs8(algorithm, made.as_ref(), &random).expect("a key")
    }

    pub fn p256() -> Key {
        Key::P256(Key::ec(&signature::ECDSA_P256_SHA256_FIXED_SIGNING))
    }

    pub fn p384() -> Key {
        Key::P384(Key::ec(&signature::ECDSA_P384_SHA384_FIXED_SIGNING))
    }

    pub fn p521() -> Key {
        let mut secret = [0; 66];
        ring::rand::SecureRandom::fill(&SystemRandom::new(), &mut secret[1..]).expect("randomness");
        let key = p521::ecdsa::SigningKey::from_slice(&secret).expect("a key");
        Key::P521(Box::new(key))
    }

    /// The public part as a JSON Web Key.
    pub fn jwk(&self, id: &str) -> Value {
        let text = |bytes: &[u8]| BASE64URL.encode(bytes);
        let point = |curve: &str, point: &[u8]| {
            let (x, y) = point[1..].split_at((point.len() - 1) / 2);
            json!({"kty": "EC", "crv": curve, "x": text(x), "y": text(y), "kid": id})
        };
        match self {
            Key::Rsa(pair) => {
                let public = RsaPublicKeyComponents::<Vec<u8>>::from(pair.public());
                json!({"kty": "RSA", "n": text(&public.n), "e": text(&public.e), "kid": id,
                    "use": "sig"})
            }
            Key::P256(pair) => point("P-256", pair.public_key().as_ref()),
            Key::P384(pair) => point("P-384", pair.public_key().as_ref()),
            Key::P521(key) => {
                let public = p521::ecdsa::VerifyingKey::from(&**key);
                point("P-521", public.to_encoded_point(false).as_bytes())
            }
        }
    }

    pub fn sign(&self, algorithm: &str, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Key::Rsa(pair) => {
                let encoding: &dyn RsaEncoding = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_SHA256,
                    "RS384" => &signature::RSA_PKCS1_SHA384,
                    "RS512" => &signature::RSA_PKCS1_SHA512,
                    "PS256" => &signature::RSA_PSS_SHA256,
                    "PS384" => &signature::RSA_PSS_SHA384,
                    _ => &signature::RSA_PSS_SHA512,
                };
                let mut out = vec![0; pair.public().modulus_len()];
                pair.sign(encoding, &random, message, &mut out).expect("a signature");
                out
            }
            Key::P256(pair) | Key::P384(pair) => {
                pair.sign(&random, message).expect("a signature").as_ref().to_vec()
            }
            Key::P521(key) => {
                let signature: p521::ecdsa::Signature = key.sign(message);
                signature.to_bytes().to_vec()
            }
        }
    }

    /// A token of these claims.
    pub fn token(&self, algorithm: &str, id: &str, claims: &Value) -> String {
        let header = json!({"alg": algorithm, "kid": id});
        signed(&header, claims, |message| self.sign(algorithm, message))
    }
}

/// A token with a header, and with the signature that a function makes.
pub fn signed(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let part = |value: &Value| BASE64URL.encode(value.to_string());
    let message = format!("{}.{}", part(header), part(claims));
    let signature = BASE64URL.encode(sign(message.as_bytes()));
    format!("{message}.{signature}")
}

/// An issuer.
pub struct Issuer {
    pub peer: HttpsPeer,
    keys: Arc<Mutex<Vec<Value>>>,
}

impl Issuer {
    /// One that announces these keys.
    pub fn start(keys: Vec<Value>) -> Issuer {
        let keys = Arc::new(Mutex::new(keys));
        let announced = keys.clone();
        let peer = HttpsPeer::start(move |url, asked| {
            Some(match asked.path.as_str() {
                "/.well-known/openid-configuration" | "/elsewhere" => {
                    (200, json!({"issuer": url, "jwks_uri": format!("{url}/keys")}))
                }
                "/keys" => (200, json!({"keys": *announced.lock().expect("a lock")})),
                _ => (404, Value::Null),
            })
        });
        Issuer { peer, keys }
    }

    /// Announces other keys.
    pub fn rotate(&self, keys: Vec<Value>) {
        *self.keys.lock().expect("a lock") = keys;
    }

    pub fn url(&self) -> String {
        self.peer.url()
    }
}
