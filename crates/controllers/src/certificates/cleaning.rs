//! The cleaner: deletes requests that are decided since an hour, that nobody decided for a day, and those whose
//! certificates have ended.

use super::{GROUP, RESOURCE, has_certificate};
use crate::client::{Client, unless_ending};
use crate::control_loop::{self, ControlLoop};
use crate::queue::Queue;
use base64::Engine;
use keelson_auth::x509;
use keelson_meta::time::Timestamp;
use keelson_meta::{Failure, Object, Str};
use keelson_registry::options::DeleteOptions;
use keelson_registry::{InformerEvent, Registry, Target, Wanted};
use std::sync::Arc;
use std::time::Duration;

const DECIDED_SECONDS: i64 = 60 * 60;
const PENDING_SECONDS: i64 = 24 * 60 * 60;

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "certificate-controller");
    control_loop::run(&registry, Cleaner { client }).await;
}

struct Cleaner {
    client: Client,
}

impl ControlLoop for Cleaner {
    /// The name of a request.
    type Key = Str;
    const NAME: &'static str = "certificatesigningrequest-cleaner-controller";
    const WANTED: Wanted = Wanted::Only(&[(GROUP, RESOURCE)]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        super::signing::observe(&events, queue);
        false
    }

    async fn sync(&self, name: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind(GROUP, RESOURCE) else { return Ok(None) };
        let known = self.client.registry.cached(&kind, "", &name);
        let Some(entry) = known else { return Ok(None) };
        let csr = kind.decode(&entry)?;
        let Some(due) = due(&csr) else { return Ok(None) };
        let left = due.saturating_sub(self.client.now().seconds);
        if left > 0 {
            return Ok(Some(Duration::from_secs(left.unsigned_abs())));
        }
        let options = DeleteOptions { uid: Some(csr.uid().into()), ..DeleteOptions::default() };
        let deleted = self.client.delete(&Target::of(&kind, "", &name), &options).await;
        unless_ending(deleted)?;
        Ok(None)
    }
}

/// When a request is to be deleted, in seconds since 1970.
fn due(csr: &Object) -> Option<i64> {
    let seconds = |text: &str| Timestamp::parse(text).ok().map(|time| time.seconds);
    let decided = csr.array_at(&["status", "conditions"]).iter().filter_map(|condition| {
        let is_end = match condition.str_at(&["type"])? {
            // One that is not signed yet is waited for.
            "Approved" => has_certificate(csr),
            "Denied" | "Failed" => true,
            _ => false,
        };
        let since = condition.str_at(&["lastUpdateTime"]).and_then(seconds);
        since.filter(|_| is_end).map(|since| since.saturating_add(DECIDED_SECONDS))
    });
    let made = seconds(csr.creation_timestamp())?;
    let is_pending = csr.array_at(&["status", "conditions"]).is_empty();
    let pending = is_pending.then_some(made.saturating_add(PENDING_SECONDS));
    decided.chain(pending).chain(certificate_end(csr)).min()
}

/// When the certificate ends.
fn certificate_end(csr: &Object) -> Option<i64> {
    let text = csr.str_at(&["status", "certificate"]);
    let pem = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    let der = keelson_auth::CertificateAuthority::der(&pem)?;
    x509::validity(&der).map(|validity| validity.not_after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{Value, value};

    #[test]
    fn requests_are_deleted_an_hour_after_they_are_decided_or_after_a_day() {
        let check = |status: Value, want: Option<i64>| {
            let csr = value!({"metadata": {"creationTimestamp": "1970-01-01T00:00:00Z"},
                "status": status});
            assert_eq!(due(&Object::from_value(csr).expect("a map")), want);
        };
        let decided =
            |kind: &str| value!([{"type": kind, "lastUpdateTime": "1970-01-01T01:00:00Z"}]);
        check(value!({}), Some(PENDING_SECONDS));
        check(value!({"conditions": (decided("Denied"))}), Some(7200));
        check(value!({"conditions": (decided("Failed"))}), Some(7200));
        check(value!({"conditions": (decided("Approved"))}), None);
        check(value!({"conditions": (decided("Approved")), "certificate": "eA=="}), Some(7200));
    }
}
