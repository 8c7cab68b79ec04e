//! Warnings about objects that are valid.

use crate::world::{Server, without_accounts};
use serde_json::json;

/// Ingresses with the class as an annotation, and quotas with more requests than limits. Only a new
/// object warns.
#[test]
fn old_classes_and_swapped_quotas_are_warned_about() {
    let server = Server::start_plain(without_accounts());
    let client = server.client();
    let ingress = json!({
        "metadata": {"name": "i", "annotations": {"kubernetes.io/ingress.class": "x"}},
        "spec": {"defaultBackend": {"service": {"name": "s", "port": {"number": 1}}}},
    });
    let quota = json!({"metadata": {"name": "q"}, "spec": {"hard": {
        "memory": "3Gi", "limits.memory": "1Gi", "requests.cpu": "1", "limits.cpu": "1"}}});
    for (path, name, body, warning) in [
        (
            "/apis/networking.k8s.io/v1/namespaces/default/ingresses",
            "i",
            &ingress,
            r#"299 - "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead""#,
        ),
        (
            "/api/v1/namespaces/default/resourcequotas",
            "q",
            &quota,
            r#"299 - "ResourceQuota memory (3Gi) should be less than limits.memory (1Gi)""#,
        ),
    ] {
        let created = client.post(path, body);
        assert_eq!((created.status, created.header("warning")), (201, Some(warning)));
        let updated = client.call("PUT", &format!("{path}/{name}"), "application/json", Some(body));
        assert_eq!((updated.status, updated.header("warning")), (200, None));
    }
    server.stop();
}
