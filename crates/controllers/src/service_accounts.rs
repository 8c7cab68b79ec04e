//! The service account controller: creates the service account `default` in every namespace. Pods
//! that name no service account use it.

use keelson_loops::client::{Client, ignore_terminating, is_active};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str};
use keelson_registry::{InformerEvent, InformerScope, Registry, Target};
use std::sync::Arc;
use std::time::Duration;

const ACCOUNT: &str = "default";

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "service-account-controller");
    control_loop::run(&registry, ServiceAccounts { client }).await;
}

struct ServiceAccounts {
    client: Client,
}

impl ControlLoop for ServiceAccounts {
    /// A namespace.
    type Key = Str;
    const NAME: &'static str = "serviceaccount-controller";
    const SCOPE: InformerScope =
        InformerScope::Only(&[("", "namespaces"), ("", "serviceaccounts")]);
    const WORKERS_MAX: usize = 8;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        for event in events {
            match &event {
                InformerEvent::Listed(kind, all) if kind.gvr.resource == "namespaces" => {
                    all.range("", "").for_each(|entry| queue.add(entry.name().into()));
                }
                InformerEvent::Put { kind, entry, .. } if kind.gvr.resource == "namespaces" => {
                    queue.add(entry.name().into());
                }
                InformerEvent::Deleted { entry, .. } if entry.name() == ACCOUNT => {
                    queue.add(entry.namespace().into());
                }
                _ => {}
            }
        }
        false
    }

    async fn sync(&self, namespace: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "serviceaccounts") else { return Ok(None) };
        if !is_active(&self.client.registry, &namespace)
            || self.client.registry.cached(&kind, &namespace, ACCOUNT).is_some()
        {
            return Ok(None);
        }
        let target = Target::of(&kind, &namespace, ACCOUNT);
        let mut account = Object::new();
        account.set_meta("name", ACCOUNT);
        account.set_meta("namespace", &namespace);
        ignore_terminating(self.client.create(&target, account).await)?;
        Ok(None)
    }
}
