//! Events that the server's own loops report (client-go `tools/events`).

use keelson_auth::Permit;
use keelson_meta::{Object, value};
use keelson_registry::options::WriteOptions;
use keelson_registry::{Registry, Target};

/// Where events of cluster-scoped objects stand.
const DEFAULT_NAMESPACE: &str = "default";

/// What an event says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report<'a> {
    /// Who reports: `ipallocator-repair-controller`.
    pub controller: &'static str,
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// Why, in one word that is compared.
    pub reason: &'static str,
    /// What was done, in one word that is compared.
    pub action: &'static str,
    /// The text for people.
    pub note: &'a str,
}

/// Stores an event about an object. One that cannot be stored is logged: what it reports is done.
pub(crate) async fn report(registry: &Registry, about: &Target, obj: &Object, report: Report<'_>) {
    let now = registry.clock.now();
    let namespace = if obj.namespace().is_empty() { DEFAULT_NAMESPACE } else { obj.namespace() };
    let nanos = i128::from(now.seconds) * 1_000_000_000 + i128::from(now.nanos);
    let name = format!("{}.{nanos:x}", obj.name());
    let event = value!({
        "metadata": {"name": (name.as_str()), "namespace": namespace},
        "eventTime": (now.micro().to_string()),
        "reportingController": (report.controller),
        "reportingInstance": (format!("{}-keelson", report.controller)),
        "action": (report.action), "reason": (report.reason), "type": (report.kind),
        "note": (report.note),
        "regarding": {
            "kind": (about.kind.name().clone()), "apiVersion": (about.schema().gvk.api_version()),
            "namespace": (obj.namespace()), "name": (obj.name()), "uid": (obj.uid()),
            "resourceVersion": (obj.resource_version())
        }
    });
    let target = registry.target("events.k8s.io", "events", namespace, &name);
    let mut object = Object::from_value(event).unwrap_or_default();
    object.set_gvk(&target.schema().gvk);
    let options = WriteOptions { field_manager: report.controller.into(), ..Default::default() };
    let permit = Permit::internal("system:apiserver");
    if let Err(error) = registry.add(&permit, &target, object, &options).await {
        tracing::warn!(%error, reason = report.reason, note = report.note, "event not stored");
    }
}
