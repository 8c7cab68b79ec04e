//! The cluster authentication trust controller, which every kube-apiserver runs: tells extension API servers, in the
//! ConfigMap `kube-system/extension-apiserver-authentication`, whose client certificates count here.

use crate::client::{Client, unless_ending};
use crate::control_loop::{self, ControlLoop};
use crate::queue::Queue;
use keelson_meta::{Failure, Object};
use keelson_registry::{InformerEvent, Part, Registry, Target, Wanted};
use std::sync::Arc;
use std::time::Duration;

const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const CLIENT_CA: &str = "client-ca-file";

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>, client_ca: Arc<str>) {
    let client = Client::api_server(&registry);
    control_loop::run(&registry, AuthenticationTrust { client, client_ca }).await;
}

struct AuthenticationTrust {
    client: Client,
    /// In PEM; empty: no client certificates count.
    client_ca: Arc<str>,
}

impl ControlLoop for AuthenticationTrust {
    /// The one ConfigMap.
    type Key = ();
    const NAME: &'static str = "cluster-authentication-trust-controller";
    const WANTED: Wanted = Wanted::Only(&[("", "configmaps")]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<()>) -> bool {
        let concerns = |event: &InformerEvent| match event {
            InformerEvent::Listed(..) => true,
            InformerEvent::Put { entry, .. } | InformerEvent::Deleted { entry, .. } => {
                entry.namespace() == NAMESPACE && entry.name() == CONFIG_MAP
            }
            InformerEvent::Withdrawn(_) => false,
        };
        if !self.client_ca.is_empty() && events.iter().any(concerns) {
            queue.add(());
        }
        false
    }

    async fn sync(&self, (): ()) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "configmaps") else { return Ok(None) };
        let target = Target::of(&kind, NAMESPACE, CONFIG_MAP);
        let known = self.client.get(&target).await?;
        let is_new = known.is_none();
        let mut map = known.unwrap_or_else(|| {
            let mut map = Object::new();
            map.set_meta("name", CONFIG_MAP);
            map.set_meta("namespace", NAMESPACE);
            map
        });
        if map.str_at(&["data", CLIENT_CA]) == &*self.client_ca {
            return Ok(None);
        }
        map.object_mut("data").insert(CLIENT_CA, &*self.client_ca);
        if is_new {
            unless_ending(self.client.create(&target, map).await)?;
        } else {
            unless_ending(self.client.update(&target, Part::Main, map).await)?;
        }
        Ok(None)
    }
}
