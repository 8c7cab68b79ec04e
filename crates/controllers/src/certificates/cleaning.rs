//! The cleaner: deletes requests an hour after they were decided, a day after their creation if
//! nobody decides, and when their certificate has expired.

use super::{GROUP, RESOURCE, has_certificate};
use base64::Engine;
use keelson_auth::x509;
use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::time::Timestamp;
use keelson_meta::{Failure, Object, Str};
use keelson_registry::options::DeleteOptions;
use keelson_registry::{InformerEvent, InformerScope, Registry, Target};
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
    /// The name of a CertificateSigningRequest.
    type Key = Str;
    const NAME: &'static str = "certificatesigningrequest-cleaner-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[(GROUP, RESOURCE)]);
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
        let Some(due) = deletion_time(&csr) else { return Ok(None) };
        let remaining = due.saturating_sub(self.client.now().seconds);
        if remaining > 0 {
            return Ok(Some(Duration::from_secs(remaining.unsigned_abs())));
        }
        let options = DeleteOptions { uid: Some(csr.uid().into()), ..DeleteOptions::default() };
        let deleted = self.client.delete(&Target::of(&kind, "", &name), &options).await;
        ignore_terminating(deleted)?;
        Ok(None)
    }
}

/// Returns when a request must be deleted, in seconds since 1970.
fn deletion_time(csr: &Object) -> Option<i64> {
    let seconds = |text: &str| Timestamp::parse(text).ok().map(|time| time.seconds);
    let decided = csr.array_at(&["status", "conditions"]).iter().filter_map(|condition| {
        let is_decided = match condition.str_at(&["type"])? {
            // An approved request is kept until it is signed.
            "Approved" => has_certificate(csr),
            "Denied" | "Failed" => true,
            _ => false,
        };
        let since = condition.str_at(&["lastUpdateTime"]).and_then(seconds);
        since.filter(|_| is_decided).map(|since| since.saturating_add(DECIDED_SECONDS))
    });
    let created = seconds(csr.creation_timestamp())?;
    let is_pending = csr.array_at(&["status", "conditions"]).is_empty();
    let pending = is_pending.then_some(created.saturating_add(PENDING_SECONDS));
    decided.chain(pending).chain(certificate_end(csr)).min()
}

/// Returns when the certificate expires, in seconds since 1970.
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
            assert_eq!(deletion_time(&Object::from_value(csr).expect("a map")), want);
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
