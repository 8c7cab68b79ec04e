//! The ciphers: pure functions of key, value, authenticated data and random bytes, with the layouts
//! and messages of kube-apiserver.
//!
//! | cipher | stored bytes |
//! |---|---|
//! | AES-GCM | nonce (12), ciphertext, tag (16); authenticates the data |
//! | AES-CBC | initialization vector (16), ciphertext padded as in PKCS#7; authenticates nothing |
//! | secretbox | nonce (24), tag (16), ciphertext; authenticates the ciphertext alone |
//!
//! AES-GCM is ring's, which needs half the time of the crate `aes-gcm`; that one has the keys of 24
//! bytes, which ring has not. Keys in ring are not erased when they are dropped, as those of TLS.
//! Of secretbox the crate `salsa20` makes the key of a message, `keystream` the blocks,
//! `authenticator` the tag.

use crate::authenticator::tag;
use crate::keystream::{KeyStream, Processor};
use aes::{Aes128, Aes192, Aes256};
use aes_gcm::aead::consts::U12;
use aes_gcm::aead::{Aead, Payload};
use aes_gcm::{AesGcm as Gcm, KeyInit};
use bytes::{Buf, Bytes, BytesMut};
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockModeDecrypt, BlockModeEncrypt, InnerIvInit};
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, LessSafeKey, Nonce, UnboundKey};
use salsa20::cipher::Array;
use salsa20::cipher::consts::U10;
use salsa20::hsalsa;
use std::cell::RefCell;
use subtle::ConstantTimeEq;
use thiserror::Error;
use zeroize::Zeroizing;

const GCM_NONCE_BYTES: usize = 12;
const GCM_TAG_BYTES: usize = 16;
/// What AES-GCM adds to a value.
pub(crate) const GCM_MORE_BYTES: usize = GCM_NONCE_BYTES + GCM_TAG_BYTES;
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
    /// A key of 16 or 32 bytes.
    Ring(Box<LessSafeKey>),
    Bits192(Box<Gcm<Aes192, U12>>),
}

impl AesGcm {
    pub fn new(key: &[u8]) -> Result<AesGcm, CipherError> {
        let size = || CipherError::KeySize(key.len());
        let ring = |algorithm: &'static Algorithm| {
            let key = UnboundKey::new(algorithm, key).map_err(|_| size())?;
            Ok(AesGcm::Ring(Box::new(LessSafeKey::new(key))))
        };
        match key.len() {
            16 => ring(&AES_128_GCM),
            24 => {
                let cipher = KeyInit::new_from_slice(key).map_err(|_| size())?;
                Ok(AesGcm::Bits192(Box::new(cipher)))
            }
            _ => ring(&AES_256_GCM),
        }
    }

    /// Encrypts and appends to `out`.
    pub fn seal(&self, plain: &[u8], data: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
        let nonce: [u8; GCM_NONCE_BYTES] = public_random()?;
        let failed = CipherError::Authentication;
        out.extend_from_slice(&nonce);
        match self {
            AesGcm::Ring(key) => {
                let at = out.len();
                out.extend_from_slice(plain);
                let nonce = Nonce::assume_unique_for_key(nonce);
                let sealed = key.seal_in_place_separate_tag(nonce, Aad::from(data), &mut out[at..]);
                out.extend_from_slice(sealed.map_err(|_| failed)?.as_ref());
            }
            AesGcm::Bits192(cipher) => {
                let sealed = cipher.encrypt(&nonce.into(), Payload { msg: plain, aad: data });
                out.extend_from_slice(&sealed.map_err(|_| failed)?);
            }
        }
        Ok(())
    }

    /// Decrypts where the value is.
    pub fn open(&self, mut stored: BytesMut, data: &[u8]) -> Result<Bytes, CipherError> {
        let nonce: [u8; GCM_NONCE_BYTES] = *stored.first_chunk().ok_or(CipherError::Short)?;
        stored.advance(GCM_NONCE_BYTES);
        let failed = CipherError::Authentication;
        match self {
            AesGcm::Ring(key) => {
                let nonce = Nonce::assume_unique_for_key(nonce);
                let opened = key.open_in_place(nonce, Aad::from(data), &mut stored);
                let size = opened.map_err(|_| failed)?.len();
                stored.truncate(size);
                Ok(stored.freeze())
            }
            AesGcm::Bits192(cipher) => cipher
                .decrypt(&nonce.into(), Payload { msg: &stored, aad: data })
                .map(Bytes::from)
                .map_err(|_| failed),
        }
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
        let vector: [u8; BLOCK_BYTES] = public_random()?;
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

    /// Decrypts where the value is.
    pub fn open(&self, mut plain: BytesMut) -> Result<Bytes, CipherError> {
        let vector: [u8; BLOCK_BYTES] = *plain.first_chunk().ok_or(CipherError::Short)?;
        plain.advance(BLOCK_BYTES);
        if !plain.len().is_multiple_of(BLOCK_BYTES) {
            return Err(CipherError::BlockSize);
        }
        let iv = &vector.into();
        let (blocks, _) = Array::slice_as_chunks_mut(&mut plain);
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
        Ok(plain.freeze())
    }
}

/// XSalsa20 and Poly1305, as NaCl's secretbox.
pub(crate) struct Secretbox {
    key: Zeroizing<[u8; BOX_KEY_BYTES]>,
    processor: Processor,
}

impl Secretbox {
    pub fn new(key: &[u8]) -> Result<Secretbox, CipherError> {
        let key = key.try_into().map_err(|_| CipherError::KeySize(key.len()))?;
        Ok(Secretbox { key: Zeroizing::new(key), processor: Processor::new() })
    }

    /// Encrypts and appends to `out`.
    pub fn seal(&self, plain: &[u8], out: &mut Vec<u8>) -> Result<(), CipherError> {
        let nonce: [u8; BOX_NONCE_BYTES] = public_random()?;
        let stream = self.stream(&nonce);
        out.extend_from_slice(&nonce);
        let tag_at = out.len();
        out.extend_from_slice(&[0; BOX_TAG_BYTES]);
        let at = out.len();
        out.extend_from_slice(plain);
        stream.apply(&mut out[at..]);
        let tag = tag(stream.begin(), &out[at..]);
        out[tag_at..at].copy_from_slice(&tag);
        Ok(())
    }

    /// Decrypts where the value is.
    pub fn open(&self, mut plain: BytesMut) -> Result<Bytes, CipherError> {
        let short = CipherError::Short;
        let (nonce, rest) = plain.split_first_chunk::<BOX_NONCE_BYTES>().ok_or(short)?;
        let (sent, sealed) = rest.split_first_chunk::<BOX_TAG_BYTES>().ok_or(short)?;
        let stream = self.stream(nonce);
        if !bool::from(tag(stream.begin(), sealed).ct_eq(sent)) {
            return Err(CipherError::Box);
        }
        plain.advance(BOX_NONCE_BYTES + BOX_TAG_BYTES);
        stream.apply(&mut plain);
        Ok(plain.freeze())
    }

    /// Returns the key stream of a message.
    fn stream(&self, nonce: &[u8; BOX_NONCE_BYTES]) -> KeyStream {
        let (long, rest) = nonce.split_at(BLOCK_BYTES);
        let long = Array::try_from(long).unwrap_or_default();
        let rest = rest.try_into().unwrap_or_default();
        let key: [u8; BOX_KEY_BYTES] = hsalsa::<U10>(&(*self.key).into(), &long).into();
        KeyStream::new(self.processor, &Zeroizing::new(key), &rest)
    }
}

/// Random bytes of the system that are read ahead, so that not every value needs a system call.
const AHEAD_BYTES: usize = 1024;

/// The bytes that a thread has read ahead, and how many of them are used.
struct Ahead {
    bytes: [u8; AHEAD_BYTES],
    used: usize,
}

thread_local! {
    static AHEAD: RefCell<Ahead> =
        const { RefCell::new(Ahead { bytes: [0; AHEAD_BYTES], used: AHEAD_BYTES }) };
}

/// Returns random bytes that are stored with a value, such as a nonce: not for secrets, since they
/// were in memory before. Each byte is returned once.
pub(crate) fn public_random<const N: usize>() -> Result<[u8; N], CipherError> {
    const { assert!(N <= AHEAD_BYTES) }
    AHEAD.with_borrow_mut(|ahead| {
        if ahead.used + N > AHEAD_BYTES {
            getrandom::fill(&mut ahead.bytes).map_err(|_| CipherError::Random)?;
            ahead.used = 0;
        }
        let bytes = ahead.bytes[ahead.used..].first_chunk().ok_or(CipherError::Random)?;
        ahead.used += N;
        Ok(*bytes)
    })
}

/// Returns random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], CipherError> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|_| CipherError::Random)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn bytes_read_ahead_are_returned_once() {
        // More than are read at once, in sizes that do not divide that.
        let all: Vec<[u8; 24]> =
            (0..1000).map(|_| public_random().expect("random bytes")).collect();
        let differing: HashSet<_> = all.iter().flat_map(|bytes| bytes.as_chunks::<8>().0).collect();
        assert_eq!(differing.len(), 3 * all.len());
    }

    #[test]
    fn each_size_of_keys_opens_what_it_has_sealed() {
        for size in [16, 24, 32] {
            let cipher = AesGcm::new(&vec![7; size]).expect("a key");
            for plain in [&b""[..], b"x", &[b'y'; 5000]] {
                let mut sealed = b"before".to_vec();
                cipher.seal(plain, b"path", &mut sealed).expect("sealed");
                let sealed = sealed.strip_prefix(b"before").expect("it is appended");
                assert_eq!(sealed.len(), plain.len() + GCM_MORE_BYTES, "{size}");
                assert_eq!(cipher.open(sealed.into(), b"path").as_deref(), Ok(plain), "{size}");
                let other = cipher.open(sealed.into(), b"other");
                assert_eq!(other, Err(CipherError::Authentication), "{size}");
            }
            let short = cipher.open([0; GCM_NONCE_BYTES + 3].as_slice().into(), b"path");
            assert_eq!(short, Err(CipherError::Authentication));
            let shorter = cipher.open([0; 3].as_slice().into(), b"path");
            assert_eq!(shorter, Err(CipherError::Short));
        }
        for size in [0, 15, 31, 33] {
            let refused = AesGcm::new(&vec![7; size]).err();
            assert_eq!(refused, Some(CipherError::KeySize(size)));
        }
    }
}
