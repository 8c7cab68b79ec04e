//! [`hash`]: how ids and files are named in logs and metrics without being shown.

/// Returns `sha256:` and the hash of a text in hexadecimal; an empty text stays empty.
pub(crate) fn hash(id: &str) -> String {
    if id.is_empty() {
        return String::new();
    }
    let digest = ring::digest::digest(&ring::digest::SHA256, id.as_bytes());
    let hex: String = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}
