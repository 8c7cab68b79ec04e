//! Events about pods as kubelets write them. Equal events are counted in one object.

use keelson_loops::client::Client;
use keelson_meta::{Object, Str, value};
use keelson_registry::{NewObject, Subresource, Target};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// An event about a pod.
#[derive(Clone, Debug, PartialEq)]
pub struct PodEvent {
    /// Whether it is a warning.
    pub is_warning: bool,
    pub reason: &'static str,
    /// The part of the pod: `spec.containers{name}`, or empty.
    pub field_path: Str,
    pub message: String,
}

/// Events of one pod, in their order.
pub struct PodEvents {
    pub client: Client,
    /// The name of the node.
    pub node: Str,
    pub pod: Object,
    pub events: Vec<PodEvent>,
}

/// Pods whose events are written at the same time. They must not hold up what pods do.
const WRITERS_MAX: usize = 4;

/// Writes events until nothing sends any more.
pub async fn write(mut received: mpsc::Receiver<PodEvents>) {
    let mut writers = JoinSet::new();
    loop {
        tokio::select! {
            batch = received.recv(), if writers.len() < WRITERS_MAX => {
                let Some(batch) = batch else { return };
                writers.spawn(async move {
                    for event in &batch.events {
                        record(&batch.client, &batch.node, &batch.pod, event).await;
                    }
                });
            }
            Some(written) = writers.join_next() => {
                if let Err(error) = written {
                    tracing::error!(%error, "events were not written");
                }
            }
        }
    }
}

/// Creates an event, or counts it. A failure is only logged.
async fn record(client: &Client, node: &str, pod: &Object, event: &PodEvent) {
    let Some(kind) = client.kind("", "events") else { return };
    let now = client.now().text();
    let PodEvent { is_warning, reason, field_path, message } = event;
    let facts = [pod.uid(), reason, field_path.as_str(), message.as_str()].join("\n");
    let name = format!("{}.{}", pod.name(), crate::random::hex(&facts, 16));
    let target = Target::of(&kind, pod.namespace(), &name);
    if client.registry.cached(&kind, pod.namespace(), &name).is_some() {
        let count = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            let count = object.int_at(&["count"]).unwrap_or(1);
            object.root.insert("count", count + 1);
            object.root.insert("lastTimestamp", now.clone());
            Ok(NewObject { object, managed: false, warnings: vec![] })
        };
        log(client.modify(&target, Subresource::None, &count).await, reason);
        return;
    }
    let mut involved = value!({
        "kind": "Pod", "namespace": (pod.namespace()), "name": (pod.name()), "uid": (pod.uid()),
        "apiVersion": "v1", "resourceVersion": (pod.resource_version())
    });
    if let Some(involved) = involved.as_object_mut().filter(|_| !field_path.is_empty()) {
        involved.insert("fieldPath", field_path.clone());
    }
    let kind = if *is_warning { "Warning" } else { "Normal" };
    let fields = value!({
        "metadata": {"name": (name.as_str()), "namespace": (pod.namespace())},
        "involvedObject": (involved), "reason": (*reason), "message": (message.as_str()),
        "source": {"component": "kubelet", "host": node}, "firstTimestamp": (now.clone()),
        "lastTimestamp": (now.clone()), "count": 1, "type": kind,
        "reportingComponent": "kubelet", "reportingInstance": node
    });
    let new = Object::from_value(fields).unwrap_or_default();
    log(client.create(&target, new).await.map(drop), reason);
}

fn log(result: Result<(), keelson_meta::Failure>, reason: &str) {
    match result {
        // The namespace or the event is gone, or another server wrote it.
        Err(status) if matches!(status.code, 403 | 404 | 409) => {
            tracing::debug!(%status, reason, "event not stored");
        }
        Err(error) => tracing::warn!(%error, reason, "event not stored"),
        Ok(()) => {}
    }
}
