//! [`WriteSeed`]: what new values are encrypted with, and until when. Pure: times come in as
//! arguments.

use super::data_key::DataKey;
use super::proto::EncryptedObject;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long values are still written after the last time that the plug-in was well. Kept short, so
/// that a migration that begins later is sure to use a new key, or to fail.
pub(super) const WRITE_TIME_MAX: Duration = Duration::from_secs(180);

/// What new values are encrypted with.
#[derive(Clone)]
pub(super) struct WriteSeed {
    pub key: Arc<DataKey>,
    /// The envelope of each value, without its data.
    pub envelope: Arc<EncryptedObject>,
    /// The same, encoded: it follows the data of each value.
    pub tail: Arc<[u8]>,
    /// When the plug-in was well last.
    pub confirmed: Instant,
}

impl WriteSeed {
    /// Checks that values may be written at this time.
    pub fn check_writable(&self, now: Instant) -> Result<(), String> {
        let age = now.saturating_duration_since(self.confirmed);
        if age <= WRITE_TIME_MAX {
            return Ok(());
        }
        let hash = &self.key.key_id_hash;
        let late = (age - WRITE_TIME_MAX).as_secs();
        Err(format!("encryptedDEKSource with keyID hash {hash:?} expired {late} seconds ago"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn values_are_written_for_three_minutes_after_the_plug_in_was_well() {
        let confirmed = Instant::now();
        let envelope = EncryptedObject { key_id: "1".to_owned(), ..EncryptedObject::default() };
        let key = Arc::new(DataKey::key(&[0; 16], "1").expect("a key"));
        let tail = envelope.encode_to_vec().into();
        let seed = WriteSeed { key, envelope: Arc::new(envelope), tail, confirmed };
        let check = |seconds: u64, expected: &str| {
            let got = seed.check_writable(confirmed + Duration::from_secs(seconds));
            assert_eq!(got.err().unwrap_or_default(), expected, "after {seconds} s");
        };
        check(0, "");
        check(180, "");
        let hash = "6b86b273ff34fce19d6b804eff5a3f5747ada4eaa22f1d49c01e52ddb7875b4b";
        let expired = format!("encryptedDEKSource with keyID hash \"sha256:{hash}\" expired");
        check(181, &format!("{expired} 1 seconds ago"));
        check(3780, &format!("{expired} 3600 seconds ago"));
    }
}
