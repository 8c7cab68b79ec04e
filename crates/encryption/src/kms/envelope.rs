//! The envelope of a value that was encrypted with a data key, which a plug-in has encrypted.

use super::proto::EncryptedObject;
use keelson_meta::names;
use keelson_meta::status::quote;
use prost::Message;

/// The plug-in has encrypted the key of AES-GCM itself: written by Kubernetes 1.27 and 1.28 alone.
pub(super) const KEY: i32 = 0;
/// The plug-in has encrypted a seed, from which a key for each value is derived.
pub(super) const SEED: i32 = 1;

const KEY_ID_BYTES_MAX: usize = 1024;
const SOURCE_BYTES_MAX: usize = 1024;
const ANNOTATIONS_BYTES_MAX: usize = 32 << 10;

impl EncryptedObject {
    /// Decodes and checks a stored envelope.
    pub fn read(stored: &[u8]) -> Result<EncryptedObject, String> {
        let envelope = EncryptedObject::decode(stored).map_err(|error| error.to_string())?;
        envelope.check()?;
        if envelope.encrypted_data.is_empty() {
            return Err("encrypted data is empty".to_owned());
        }
        Ok(envelope)
    }

    /// Checks all but the encrypted data.
    pub fn check(&self) -> Result<(), String> {
        if !matches!(self.encrypted_dek_source_type, KEY | SEED) {
            let kind = self.encrypted_dek_source_type;
            return Err(format!("unknown encryptedDEKSourceType: {kind}"));
        }
        let source = "failed to validate encrypted DEK source: encrypted DEK source is";
        match self.encrypted_dek_source.len() {
            0 => return Err(format!("{source} empty")),
            bytes if bytes > SOURCE_BYTES_MAX => {
                return Err(format!(
                    "{source} {bytes} bytes, which exceeds the max size of {SOURCE_BYTES_MAX}"
                ));
            }
            _ => {}
        }
        check_key_id(&self.key_id).map_err(|why| format!("failed to validate key id: {why}"))?;
        self.check_annotations().map_err(|why| format!("failed to validate annotations: {why}"))
    }

    fn check_annotations(&self) -> Result<(), String> {
        let mut faults = vec![];
        let mut bytes = 0;
        for (name, value) in &self.annotations {
            faults.extend(fault_of_domain(name));
            bytes += name.len() + value.len();
        }
        if bytes > ANNOTATIONS_BYTES_MAX {
            faults.push(format!(
                "total size of annotations is {bytes}, which exceeds the max size of \
                 {ANNOTATIONS_BYTES_MAX}"
            ));
        }
        if faults.is_empty() { Ok(()) } else { Err(aggregate(faults)) }
    }

    /// Returns what identifies the data key.
    pub fn data_key(&self) -> Vec<u8> {
        let identity = EncryptedObject {
            encrypted_data: vec![],
            key_id: self.key_id.clone(),
            encrypted_dek_source: self.encrypted_dek_source.clone(),
            annotations: self.annotations.clone(),
            encrypted_dek_source_type: self.encrypted_dek_source_type,
        };
        identity.encode_to_vec()
    }
}

/// Checks the id of a key.
pub(super) fn check_key_id(id: &str) -> Result<(), String> {
    match id.len() {
        0 => Err("keyID is empty".to_owned()),
        bytes if bytes > KEY_ID_BYTES_MAX => {
            Err(format!("keyID is {bytes} bytes, which exceeds the max size of {KEY_ID_BYTES_MAX}"))
        }
        _ => Ok(()),
    }
}

/// Returns what is wrong with the name of an annotation, which must be a fully qualified domain
/// name.
fn fault_of_domain(name: &str) -> Option<String> {
    let name_shown = quote(name);
    if name.is_empty() {
        return Some("annotations: Required value".to_owned());
    }
    let whole = name.strip_suffix('.').unwrap_or(name);
    let mut faults = names::is_dns1123_subdomain(whole);
    if faults.is_empty() && whole.split('.').count() < 2 {
        faults.push("should be a domain with at least two segments separated by dots".to_owned());
    }
    (!faults.is_empty())
        .then(|| format!("annotations: Invalid value: {name_shown}: {}", faults.join(",")))
}

/// Joins errors as Go's aggregates do.
pub(crate) fn aggregate(mut errors: Vec<String>) -> String {
    let mut seen = std::collections::HashSet::new();
    errors.retain(|error| seen.insert(error.clone()));
    match errors.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_have_limits() {
        let good = EncryptedObject {
            encrypted_data: vec![1],
            key_id: "1".to_owned(),
            encrypted_dek_source: vec![1],
            annotations: [("a.example.com".to_owned(), vec![1])].into(),
            encrypted_dek_source_type: SEED,
        };
        let with = |name: &str, bytes: usize| [(name.to_owned(), vec![0; bytes])].into();
        let check = |envelope: EncryptedObject, expected: &str| {
            let got = EncryptedObject::read(&envelope.encode_to_vec());
            assert_eq!(got.map(drop).err().unwrap_or_default(), expected);
        };
        check(good.clone(), "");
        let source = "failed to validate encrypted DEK source: encrypted DEK source is";
        let key_id = "failed to validate key id: keyID is";
        let annotations = "failed to validate annotations:";
        check(
            EncryptedObject { encrypted_data: vec![], ..good.clone() },
            "encrypted data is empty",
        );
        check(
            EncryptedObject { encrypted_dek_source_type: 2, ..good.clone() },
            "unknown encryptedDEKSourceType: 2",
        );
        check(
            EncryptedObject { encrypted_dek_source: vec![], ..good.clone() },
            &format!("{source} empty"),
        );
        check(
            EncryptedObject { encrypted_dek_source: vec![0; 1025], ..good.clone() },
            &format!("{source} 1025 bytes, which exceeds the max size of 1024"),
        );
        check(
            EncryptedObject { key_id: String::new(), ..good.clone() },
            &format!("{key_id} empty"),
        );
        check(
            EncryptedObject { key_id: "k".repeat(1025), ..good.clone() },
            &format!("{key_id} 1025 bytes, which exceeds the max size of 1024"),
        );
        check(
            EncryptedObject { annotations: with("a.b", 32 << 10), ..good.clone() },
            &format!(
                "{annotations} total size of annotations is 32771, which exceeds the max size of \
                 32768"
            ),
        );
        check(
            EncryptedObject { annotations: with("a", 1), ..good },
            &format!(
                "{annotations} annotations: Invalid value: \"a\": should be a domain with at least \
                 two segments separated by dots"
            ),
        );
    }
}
