//! The root CA certificate publisher: maintains the ConfigMap `kube-root-ca.crt` in every
//! namespace. Pods verify the certificate of the API server with it.

use keelson_loops::client::{Client, ignore_terminating, is_active};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Map, Object, Str, Value};
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use std::sync::Arc;
use std::time::Duration;

const CONFIG_MAP: &str = "kube-root-ca.crt";
const FILE: &str = "ca.crt";
const DESCRIPTION_ANNOTATION: &str = "kubernetes.io/description";
/// The text is part of the API.
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when \
                           using internal endpoints such as the internal service IP or \
                           kubernetes.default.svc. No other usage is guaranteed across \
                           distributions of Kubernetes clusters.";

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>, root_ca: Arc<str>) {
    let client = Client::new(&registry, "root-ca-cert-publisher");
    control_loop::run(&registry, RootCa { client, root_ca }).await;
}

struct RootCa {
    client: Client,
    /// PEM.
    root_ca: Arc<str>,
}

impl ControlLoop for RootCa {
    /// A namespace.
    type Key = Str;
    const NAME: &'static str = "root-ca-certificate-publisher-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[("", "namespaces"), ("", "configmaps")]);
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
                InformerEvent::Put { entry, .. } | InformerEvent::Deleted { entry, .. }
                    if entry.name() == CONFIG_MAP =>
                {
                    queue.add(entry.namespace().into());
                }
                _ => {}
            }
        }
        false
    }

    async fn sync(&self, namespace: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind("", "configmaps") else { return Ok(None) };
        if !is_active(&self.client.registry, &namespace) {
            return Ok(None);
        }
        let target = Target::of(&kind, &namespace, CONFIG_MAP);
        let mut data = Map::new();
        data.insert(FILE, &*self.root_ca);
        let data = Value::Object(data);
        match self.client.registry.cached(&kind, &namespace, CONFIG_MAP) {
            None => {
                let mut map = Object::new();
                map.set_meta("name", CONFIG_MAP);
                map.set_meta("namespace", &namespace);
                describe(&mut map);
                map.root.insert("data", data);
                ignore_terminating(self.client.create(&target, map).await)?;
            }
            Some(entry) => {
                let mut map = kind.decode(&entry)?;
                let is_described = map.annotation(DESCRIPTION_ANNOTATION) == Some(DESCRIPTION);
                if map.get("data") != Some(&data) || !is_described {
                    describe(&mut map);
                    map.root.insert("data", data);
                    ignore_terminating(self.client.update(&target, Subresource::None, map).await)?;
                }
            }
        }
        Ok(None)
    }
}

fn describe(map: &mut Object) {
    map.metadata_mut().object_at("annotations").insert(DESCRIPTION_ANNOTATION, DESCRIPTION);
}
