//! Events of the server's own control loops (client-go `tools/events`).

use keelson_auth::Permit;
use keelson_meta::{Object, value};
use keelson_registry::options::WriteOptions;
use keelson_registry::{Registry, Target};

/// The namespace of events about cluster-scoped objects.
const DEFAULT_NAMESPACE: &str = "default";

/// The fields of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event<'a> {
    /// `reportingController`.
    pub controller: &'static str,
    /// `type`: `Normal` or `Warning`.
    pub event_type: &'static str,
    /// `reason`.
    pub reason: &'static str,
    /// `action`.
    pub action: &'static str,
    /// `note`.
    pub note: &'a str,
}

/// Stores an event about an object. An event that cannot be stored is logged.
pub(crate) async fn record(registry: &Registry, about: &Target, obj: &Object, event: Event<'_>) {
    let now = registry.clock.now();
    let namespace = if obj.namespace().is_empty() { DEFAULT_NAMESPACE } else { obj.namespace() };
    let nanos = i128::from(now.seconds) * 1_000_000_000 + i128::from(now.nanos);
    let name = format!("{}.{nanos:x}", obj.name());
    let value = value!({
        "metadata": {"name": (name.as_str()), "namespace": namespace},
        "eventTime": (now.micro().to_string()),
        "reportingController": (event.controller),
        "reportingInstance": (format!("{}-keelson", event.controller)),
        "action": (event.action), "reason": (event.reason), "type": (event.event_type),
        "note": (event.note),
        "regarding": {
            "kind": (about.kind.name().clone()), "apiVersion": (about.schema().gvk.api_version()),
            "namespace": (obj.namespace()), "name": (obj.name()), "uid": (obj.uid()),
            "resourceVersion": (obj.resource_version())
        }
    });
    let target = registry.target("events.k8s.io", "events", namespace, &name);
    let mut object = Object::from_value(value).unwrap_or_default();
    object.set_gvk(&target.schema().gvk);
    let options = WriteOptions { field_manager: event.controller.into(), ..Default::default() };
    let permit = Permit::internal("system:apiserver");
    if let Err(error) = registry.add(&permit, &target, object, &options).await {
        tracing::warn!(%error, reason = event.reason, note = event.note, "event not stored");
    }
}
