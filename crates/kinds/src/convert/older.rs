//! Conversion of versions that are no longer served, but in which a cluster may still store
//! objects. Versions with an identical schema need no conversion.

use keelson_meta::{GroupVersionKind, Map, Object, Value, value};

/// Converts an object of an older version to the newest one.
pub(super) fn to_newest(obj: &mut Object, from: &GroupVersionKind) {
    match (from.kind.as_str(), from.version.as_str()) {
        ("Ingress", "v1beta1") => ingress(obj.object_mut("spec")),
        ("EndpointSlice", "v1beta1") => each(&mut obj.root, "endpoints", endpoint),
        ("PriorityLevelConfiguration", "v1beta1" | "v1beta2") => {
            if let Some(Value::Object(limited)) = obj.object_mut("spec").get_mut("limited") {
                rename(limited, "assuredConcurrencyShares", "nominalConcurrencyShares");
            }
        }
        ("RuntimeClass", "v1alpha1") => {
            if let Some(Value::Object(mut spec)) = obj.root.remove("spec") {
                rename(&mut spec, "runtimeHandler", "handler");
                obj.root = std::mem::take(&mut obj.root).into_iter().chain(spec).collect();
            }
        }
        ("ResourceClaim", "v1beta1") => requests(obj.object_mut("spec")),
        ("ResourceClaimTemplate", "v1beta1") => {
            requests(obj.object_mut("spec").object_at("spec"));
        }
        ("ResourceSlice", "v1beta1") => each(obj.object_mut("spec"), "devices", |device| {
            if let Some(Value::Object(basic)) = device.remove("basic") {
                *device = std::mem::take(device).into_iter().chain(basic).collect();
            }
        }),
        _ => {}
    }
}

/// Converts an object of the newest version to an older one that can be enabled.
pub(super) fn from_newest(obj: &mut Object, to: &GroupVersionKind) {
    let inline = |spec: &mut Map| {
        each(spec.object_at("devices"), "requests", |request| {
            if let Some(Value::Object(exactly)) = request.remove("exactly") {
                *request = std::mem::take(request).into_iter().chain(exactly).collect();
            }
        });
    };
    match (to.kind.as_str(), to.version.as_str()) {
        ("ResourceClaim", "v1beta1") => inline(obj.object_mut("spec")),
        ("ResourceClaimTemplate", "v1beta1") => inline(obj.object_mut("spec").object_at("spec")),
        ("ResourceSlice", "v1beta1") => each(obj.object_mut("spec"), "devices", |device| {
            let mut basic = std::mem::take(device);
            if let Some(name) = basic.remove("name") {
                device.insert("name", name);
            }
            device.insert("basic", basic);
        }),
        _ => {}
    }
}

fn rename(map: &mut Map, from: &str, to: &str) {
    if let Some(value) = map.remove(from) {
        map.insert(to, value);
    }
}

/// Calls `change` for each map of a list.
fn each(map: &mut Map, list: &str, mut change: impl FnMut(&mut Map)) {
    let items = map.get_mut(list).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut).for_each(&mut change);
}

fn ingress(spec: &mut Map) {
    rename(spec, "backend", "defaultBackend");
    if let Some(Value::Object(default)) = spec.get_mut("defaultBackend") {
        backend(default);
    }
    each(spec, "rules", |rule| {
        let Some(Value::Object(http)) = rule.get_mut("http") else { return };
        each(http, "paths", |path| {
            path.entry_or("pathType", || "ImplementationSpecific".into());
            backend(path.object_at("backend"));
        });
    });
}

/// Converts a backend, which has the service name and port as two fields.
fn backend(backend: &mut Map) {
    let Some(name) = backend.remove("serviceName") else { return };
    let port = match backend.remove("servicePort") {
        Some(number @ Value::Int(_)) => value!({"number": (number)}),
        Some(name) => value!({"name": (name)}),
        None => value!({}),
    };
    backend.insert("service", value!({"name": (name), "port": (port)}));
}

/// Converts an endpoint, which has its location in one map.
fn endpoint(endpoint: &mut Map) {
    let Some(Value::Object(mut topology)) = endpoint.remove("topology") else { return };
    topology.remove("kubernetes.io/hostname");
    if let Some(zone) = topology.remove("topology.kubernetes.io/zone") {
        endpoint.insert("zone", zone);
    }
    if !topology.is_empty() {
        endpoint.insert("deprecatedTopology", topology);
    }
}

/// Converts requests: those without alternatives had no `exactly` field.
fn requests(spec: &mut Map) {
    each(spec.object_at("devices"), "requests", |request| {
        let (kept, exactly): (Vec<_>, Vec<_>) = std::mem::take(request)
            .into_iter()
            .partition(|(name, _)| matches!(name.as_str(), "name" | "firstAvailable" | "exactly"));
        *request = kept.into_iter().collect();
        if !exactly.is_empty() {
            request.insert("exactly", exactly.into_iter().collect::<Map>());
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(group: &str, version: &str, kind: &str, old: Value, new: Value) {
        let mut obj = Object::from_value(old.clone()).expect("a map");
        to_newest(&mut obj, &GroupVersionKind::new(group, version, kind));
        assert_eq!(obj.clone().into_value(), new, "{kind}");
        if group == "resource.k8s.io" {
            from_newest(&mut obj, &GroupVersionKind::new(group, version, kind));
            assert_eq!(obj.into_value(), old, "{kind}");
        }
    }

    #[test]
    fn older_forms_become_the_newest() {
        check(
            "extensions",
            "v1beta1",
            "Ingress",
            value!({"spec": {"backend": {"serviceName": "a", "servicePort": 80},
                "rules": [{"http": {"paths": [
                    {"path": "/", "backend": {"serviceName": "b", "servicePort": "web"}}]}}]}}),
            value!({"spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}},
                "rules": [{"http": {"paths": [{"path": "/", "pathType": "ImplementationSpecific",
                    "backend": {"service": {"name": "b", "port": {"name": "web"}}}}]}}]}}),
        );
        check(
            "discovery.k8s.io",
            "v1beta1",
            "EndpointSlice",
            value!({"endpoints": [{"topology": {"kubernetes.io/hostname": "n",
                "topology.kubernetes.io/zone": "z", "rack": "r"}}]}),
            value!({"endpoints": [{"zone": "z", "deprecatedTopology": {"rack": "r"}}]}),
        );
        check(
            "flowcontrol.apiserver.k8s.io",
            "v1beta2",
            "PriorityLevelConfiguration",
            value!({"spec": {"limited": {"assuredConcurrencyShares": 7}}}),
            value!({"spec": {"limited": {"nominalConcurrencyShares": 7}}}),
        );
        check(
            "node.k8s.io",
            "v1alpha1",
            "RuntimeClass",
            value!({"spec": {"runtimeHandler": "h", "overhead": {}}}),
            value!({"handler": "h", "overhead": {}}),
        );
        check(
            "resource.k8s.io",
            "v1beta1",
            "ResourceClaim",
            value!({"spec": {"devices": {"requests": [
                {"name": "a", "deviceClassName": "c", "count": 1},
                {"name": "b", "firstAvailable": [{"name": "x"}]}]}}}),
            value!({"spec": {"devices": {"requests": [
                {"name": "a", "exactly": {"deviceClassName": "c", "count": 1}},
                {"name": "b", "firstAvailable": [{"name": "x"}]}]}}}),
        );
        check(
            "resource.k8s.io",
            "v1beta1",
            "ResourceSlice",
            value!({"spec": {"devices": [{"name": "d", "basic": {"attributes": {}}}]}}),
            value!({"spec": {"devices": [{"name": "d", "attributes": {}}]}}),
        );
    }
}
