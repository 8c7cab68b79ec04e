//! The ciphers: pure functions of key, value, authenticated data and random bytes, with the layouts
//! and messages of kube-apiserver.
//!
//! | cipher | stored bytes |
//! |---|---|
//! | AES-GCM | nonce (12), ciphertext, tag (16); authenticates the data |
//! | AES-CBC | initialization vector (16), ciphertext padded as in PKCS#7; authenticates nothing |
//! | secretbox | nonce (24), tag (16), ciphertext; authenticates the ciphertext alone |

use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{AesGcm as Gcm, KeyInit};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit, KeyIvInit, StreamCipher};
use poly1305::Poly1305;
use salsa20::XSalsa20;
use subtle::ConstantTimeEq;
use thiserror::Error;
use zeroize::Zeroizing;

const GCM_NONCE_BYTES: usize = 12;
const BLOCK_BYTES: usize = 16;
const BOX_NONCE_BYTES: usize = 24;
const BOX_TAG_BYTES: usize = 16;
/// The length of a key of secretbox.
pub(crate) const BOX_KEY_BYTES: usize = 32;

/// Why a value cannot be decrypted, in kube-apiserver's words.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum CipherError {
    #[error("the stored data was shorter than the required size")]
    Short,
    #[error("cipher: message authentication failed")]
    Authentication,
    #[error("the stored data is not a multiple of the block size")]
    BlockSize,
    #[error("invalid PKCS7 data (empty or not padded)")]
    NotPadded,
    #[error("invalid padding on input")]
    Padding,
    /// Upstream's words for a tag that does not fit.
    #[error("output array was not large enough for encryption")]
    Box,
    #[error("crypto/aes: invalid key size {0}")]
    KeySize(usize),
    #[error("no random bytes")]
    Random,
}

/// AES-GCM with a key of 16, 24 or 32 bytes.
pub(crate) enum AesGcm {
    Bits128(Box<Gcm<Aes128, U12>>),
    Bits192(Box<Gcm<Aes192, U12>>),
    Bits256(Box<Gcm<Aes256, U12>>),
}

impl AesGcm {
    pub fn new(key: &[u8]) -> Result<AesGcm, CipherError> {
        let size = |_| CipherError::KeySize(key.len());
        Ok(match key.len() {
            16 => AesGcm::Bits128(Box::new(KeyInit::new_from_slice(key).map_err(size)?)),
            24 => AesGcm::Bits192(Box::new(KeyInit::new_from_slice(key).map_err(size)?)),
            _ => AesGcm::Bits256(Box::new(KeyInit::new_from_slice(key).map_err(size)?)),
        })
    }

    /// Encrypts and appends to `out`.
    pub fn seal(&self, plain: &[u8], data: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
        let nonce: [u8; GCM_NONCE_BYTES] = random()?;
        let payload = Payload { msg: plain, aad: data };
        let sealed = match self {
            AesGcm::Bits128(cipher) => cipher.encrypt(&nonce.into(), payload),
            AesGcm::Bits192(cipher) => cipher.encrypt(&nonce.into(), payload),
            AesGcm::Bits256(cipher) => cipher.encrypt(&nonce.into(), payload),
        };
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&sealed.map_err(|_| CipherError::Authentication)?);
        Ok(())
    }

    pub fn open(&self, stored: &[u8], data: &[u8]) -> Result<Vec<u8>, CipherError> {
        let (nonce, sealed) =
            stored.split_first_chunk::<GCM_NONCE_BYTES>().ok_or(CipherError::Short)?;
        let nonce = (*nonce).into();
        let payload = Payload { msg: sealed, aad: data };
        let opened = match self {
            AesGcm::Bits128(cipher) => cipher.decrypt(&nonce, payload),
            AesGcm::Bits192(cipher) => cipher.decrypt(&nonce, payload),
            AesGcm::Bits256(cipher) => cipher.decrypt(&nonce, payload),
        };
        opened.map_err(|_| CipherError::Authentication)
    }
}

/// AES-CBC with a key of 16, 24 or 32 bytes.
pub(crate) enum AesCbc {
    Bits128(Box<Aes128>),
    Bits192(Box<Aes192>),
    Bits256(Box<Aes256>),
}

impl AesCbc {
    pub fn new(key: &[u8]) -> Result<AesCbc, CipherError> {
        let size = |_| CipherError::KeySize(key.len());
        Ok(match key.len() {
            16 => AesCbc::Bits128(Box::new(KeyInit::new_from_slice(key).map_err(size)?)),
            24 => AesCbc::Bits192(Box::new(KeyInit::new_from_slice(key).map_err(size)?)),
            _ => AesCbc::Bits256(Box::new(KeyInit::new_from_slice(key).map_err(size)?)),
        })
    }

    /// Encrypts and appends to `out`.
    pub fn seal(&self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
        let vector: [u8; BLOCK_BYTES] = random()?;
        let iv = &vector.into();
        let sealed = match self {
            AesCbc::Bits128(aes) => cbc::Encryptor::inner_iv_init((**aes).clone(), iv)
                .encrypt_padded_vec::<Pkcs7>(plain),
            AesCbc::Bits192(aes) => cbc::Encryptor::inner_iv_init((**aes).clone(), iv)
                .encrypt_padded_vec::<Pkcs7>(plain),
            AesCbc::Bits256(aes) => cbc::Encryptor::inner_iv_init((**aes).clone(), iv)
                .encrypt_padded_vec::<Pkcs7>(plain),
        };
        out.extend_from_slice(&vector);
        out.extend_from_slice(&sealed);
        Ok(())
    }

    pub fn open(&self, stored: &[u8]) -> Result<Vec<u8>, CipherError> {
        let (vector, sealed) =
            stored.split_first_chunk::<BLOCK_BYTES>().ok_or(CipherError::Short)?;
        if !sealed.len().is_multiple_of(BLOCK_BYTES) {
            return Err(CipherError::BlockSize);
        }
        let iv = &(*vector).into();
        let mut plain = sealed.to_vec();
        let (blocks, _) = cbc::cipher::Array::slice_as_chunks_mut(&mut plain);
        match self {
            AesCbc::Bits128(aes) => {
                cbc::Decryptor::inner_iv_init((**aes).clone(), iv).decrypt_blocks(blocks);
            }
            AesCbc::Bits192(aes) => {
                cbc::Decryptor::inner_iv_init((**aes).clone(), iv).decrypt_blocks(blocks);
            }
            AesCbc::Bits256(aes) => {
                cbc::Decryptor::inner_iv_init((**aes).clone(), iv).decrypt_blocks(blocks);
            }
        }
        // As upstream, the padding may be longer than a block.
        let last = *plain.last().ok_or(CipherError::NotPadded)?;
        let padding = usize::from(last);
        if padding == 0 || padding > plain.len() {
            return Err(CipherError::NotPadded);
        }
        let size = plain.len() - padding;
        if plain[size..].iter().any(|byte| *byte != last) {
            return Err(CipherError::Padding);
        }
        plain.truncate(size);
        Ok(plain)
    }
}

/// XSalsa20 and Poly1305, as NaCl's secretbox.
pub(crate) struct Secretbox {
    key: Zeroizing<[u8; BOX_KEY_BYTES]>,
}

impl Secretbox {
    pub fn new(key: &[u8]) -> Result<Secretbox, CipherError> {
        let key = key.try_into().map_err(|_| CipherError::KeySize(key.len()))?;
        Ok(Secretbox { key: Zeroizing::new(key) })
    }

    /// Encrypts and appends to `out`.
    pub fn seal(&self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
        let nonce: [u8; BOX_NONCE_BYTES] = random()?;
        let (mut stream, tag_of) = self.stream(&nonce);
        let mut sealed = plain.to_vec();
        stream.apply_keystream(&mut sealed);
        out.extend_from_slice(&nonce);
        out.extend_from_slice(&tag_of.compute_unpadded(&sealed));
        out.extend_from_slice(&sealed);
        Ok(())
    }

    pub fn open(&self, stored: &[u8]) -> Result<Vec<u8>, CipherError> {
        let short = CipherError::Short;
        let (nonce, rest) = stored.split_first_chunk::<BOX_NONCE_BYTES>().ok_or(short)?;
        let (tag, sealed) = rest.split_first_chunk::<BOX_TAG_BYTES>().ok_or(short)?;
        let (mut stream, tag_of) = self.stream(nonce);
        let expected = tag_of.compute_unpadded(sealed);
        if !bool::from(expected.ct_eq(tag)) {
            return Err(CipherError::Box);
        }
        let mut plain = sealed.to_vec();
        stream.apply_keystream(&mut plain);
        Ok(plain)
    }

    /// Returns the key stream of the message, and the authenticator, whose key is what precedes it.
    fn stream(&self, nonce: &[u8; BOX_NONCE_BYTES]) -> (XSalsa20, Poly1305) {
        let mut stream = XSalsa20::new(&(*self.key).into(), &(*nonce).into());
        let mut tag_key = Zeroizing::new([0; 32]);
        stream.apply_keystream(&mut *tag_key);
        (stream, Poly1305::new(&(*tag_key).into()))
    }
}

/// Returns random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], CipherError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| CipherError::Random)?;
    Ok(bytes)
}
