//! The TTL-after-finished controller: deletes jobs `ttlSecondsAfterFinished` seconds after they
//! have finished.

use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::time::GoDuration;
use keelson_meta::{Failure, Object, Str, Timestamp};
use keelson_records::Entry;
use keelson_registry::options::{DeleteOptions, Propagation};
use keelson_registry::{InformerEvent, InformerScope, Registry, Target};
use memchr::memmem;
use std::sync::Arc;
use std::time::Duration;

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "ttl-after-finished-controller");
    control_loop::run(&registry, TtlAfterFinished { client }).await;
}

struct TtlAfterFinished {
    client: Client,
}

impl ControlLoop for TtlAfterFinished {
    /// A job: namespace and name.
    type Key = (Str, Str);
    const NAME: &'static str = "ttl-after-finished-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("batch", "jobs")]);
    const WORKERS_MAX: usize = 5;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<(Str, Str)>) -> bool {
        let mut add = |entry: &Entry| {
            if memmem::find(&entry.json_slice(), b"\"ttlSecondsAfterFinished\":").is_some() {
                queue.add((entry.namespace().into(), entry.name().into()));
            }
        };
        for event in &events {
            match event {
                InformerEvent::Listed(_, all) => all.range("", "").for_each(&mut add),
                InformerEvent::Put { entry, .. } => add(entry),
                InformerEvent::Deleted { .. } | InformerEvent::Withdrawn(_) => {}
            }
        }
        false
    }

    async fn sync(&self, key: (Str, Str)) -> Result<Option<Duration>, Failure> {
        let (namespace, name) = key;
        let Some(kind) = self.client.kind("batch", "jobs") else { return Ok(None) };
        let target = Target::of(&kind, &namespace, &name);
        let known = self.client.registry.cached(&kind, &namespace, &name);
        let Some(entry) = known else { return Ok(None) };
        let job = kind.decode(&entry)?;
        let Some(expires) = expires(&job) else { return Ok(None) };
        let remaining = expires.since(self.client.now()).0;
        if remaining > 0 {
            return Ok(Some(Duration::from_nanos(remaining.unsigned_abs())));
        }
        let options = DeleteOptions {
            propagation: Some(Propagation::Foreground),
            uid: Some(job.uid().into()),
            resource_version: Some(job.resource_version().into()),
            ..DeleteOptions::default()
        };
        ignore_terminating(self.client.delete(&target, &options).await)?;
        Ok(None)
    }
}

/// Returns when a finished job must be deleted; `None` if it has not finished or is being deleted.
fn expires(job: &Object) -> Option<Timestamp> {
    let seconds = job.int_at(&["spec", "ttlSecondsAfterFinished"])?;
    if job.deletion_timestamp().is_some() {
        return None;
    }
    let ended = job.array_at(&["status", "conditions"]).iter().find(|condition| {
        matches!(condition.str_at(&["type"]), Some("Complete" | "Failed"))
            && condition.str_at(&["status"]) == Some("True")
    })?;
    let ended = Timestamp::parse(ended.str_at(&["lastTransitionTime"])?).ok()?;
    Some(ended.plus(GoDuration::from_seconds(seconds)))
}
