//! [`Needs`]: the objects without which a pod's containers do not start: ConfigMaps and Secrets
//! that volumes and variables name, and bound claims.

use super::pod_facts::Needed;
use keelson_meta::{Object, Str, Value};
use keelson_registry::Registry;

/// What a pod needs and does not have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Needs {
    /// Volumes that cannot be mounted: name of the volume and the error.
    pub volumes: Vec<(Str, String)>,
    /// Containers that cannot be configured: name of the container and the error.
    pub containers: Vec<(Str, String)>,
    missing: Vec<Needed>,
}

impl Needs {
    /// Returns the objects whose change may help.
    pub fn missing(&self) -> Vec<Needed> {
        self.missing.clone()
    }
}

/// Finds objects in the namespace of a pod.
trait Find {
    fn exists(&self, resource: &str, name: &str) -> bool;
    fn get(&self, resource: &str, name: &str) -> Option<Object>;
}

/// The objects of a registry in one namespace.
struct Stored<'a> {
    registry: &'a Registry,
    namespace: &'a str,
}

impl Find for Stored<'_> {
    fn exists(&self, resource: &str, name: &str) -> bool {
        let kind = self.registry.kind("", resource);
        kind.is_some_and(|kind| self.registry.cached(&kind, self.namespace, name).is_some())
    }

    fn get(&self, resource: &str, name: &str) -> Option<Object> {
        let kind = self.registry.kind("", resource)?;
        let entry = self.registry.cached(&kind, self.namespace, name)?;
        kind.decode(&entry).ok()
    }
}

/// Returns what a pod needs and does not have.
pub fn of(registry: &Registry, pod: &Object) -> Needs {
    check(pod, &Stored { registry, namespace: pod.namespace() })
}

fn check(pod: &Object, find: &dyn Find) -> Needs {
    let mut needs = Needs::default();
    for volume in pod.array_at(&["spec", "volumes"]) {
        let name = Str::new(volume.str_at(&["name"]).unwrap_or_default());
        let sources = volume.array_at(&["projected", "sources"]).iter();
        for source in [volume].into_iter().chain(sources) {
            let references = [
                ("configmaps", "configmap", source.at(&["configMap"]), "name"),
                (
                    "secrets",
                    "secret",
                    source.at(&["secret"]),
                    if source.at(&["secret", "secretName"]).is_some() {
                        "secretName"
                    } else {
                        "name"
                    },
                ),
            ];
            for (resource, word, reference, field) in references {
                let Some(reference) = reference.filter(|one| !is_optional(one)) else { continue };
                let wanted = reference.str_at(&[field]).unwrap_or_default();
                if !find.exists(resource, wanted) {
                    let why = format!("{word} {wanted:?} not found");
                    needs.volumes.push((name.clone(), why));
                    needs.missing.push((resource, pod.namespace().into(), wanted.into()));
                }
            }
        }
        check_claim(pod, volume, &name, find, &mut needs);
    }
    for list in ["initContainers", "containers"] {
        for container in pod.array_at(&["spec", list]) {
            check_container(pod, container, find, &mut needs);
        }
    }
    needs
}

fn is_optional(reference: &Value) -> bool {
    reference.at(&["optional"]).and_then(Value::as_bool) == Some(true)
}

fn check_claim(pod: &Object, volume: &Value, name: &Str, find: &dyn Find, needs: &mut Needs) {
    let claim = match volume.str_at(&["persistentVolumeClaim", "claimName"]) {
        Some(claim) => Str::new(claim),
        None if volume.at(&["ephemeral"]).is_some() => Str::new(format!("{}-{name}", pod.name())),
        None => return,
    };
    let known = find.get("persistentvolumeclaims", &claim);
    let is_bound = known.as_ref().is_some_and(|one| one.str_at(&["status", "phase"]) == "Bound");
    if !is_bound {
        let why = match known {
            None => format!(
                "error processing PVC {}/{claim}: failed to fetch PVC from API server: persistentvolumeclaims {claim:?} not found",
                pod.namespace()
            ),
            Some(_) => {
                format!("error processing PVC {}/{claim}: PVC is not bound", pod.namespace())
            }
        };
        needs.volumes.push((name.clone(), why));
        needs.missing.push(("persistentvolumeclaims", pod.namespace().into(), claim));
    }
}

fn check_container(pod: &Object, container: &Value, find: &dyn Find, needs: &mut Needs) {
    let whole = container.array_at(&["envFrom"]).iter().flat_map(|from| {
        [
            ("configmaps", "configmap", from.at(&["configMapRef"])),
            ("secrets", "secret", from.at(&["secretRef"])),
        ]
    });
    let single = container.array_at(&["env"]).iter().flat_map(|variable| {
        [
            ("configmaps", "configmap", variable.at(&["valueFrom", "configMapKeyRef"])),
            ("secrets", "secret", variable.at(&["valueFrom", "secretKeyRef"])),
        ]
    });
    for (resource, word, reference) in whole.chain(single) {
        let Some(reference) = reference.filter(|one| !is_optional(one)) else { continue };
        let name = reference.str_at(&["name"]).unwrap_or_default();
        let why = match (find.get(resource, name), reference.str_at(&["key"])) {
            (None, _) => format!("{word} {name:?} not found"),
            (Some(object), Some(key)) if !has_key(&object, key) => {
                let kind = if resource == "secrets" { "Secret" } else { "ConfigMap" };
                format!("couldn't find key {key} in {kind} {}/{name}", pod.namespace())
            }
            _ => continue,
        };
        let container = container.str_at(&["name"]).unwrap_or_default();
        needs.containers.push((container.into(), why));
        needs.missing.push((resource, pod.namespace().into(), name.into()));
        return;
    }
}

fn has_key(object: &Object, key: &str) -> bool {
    ["data", "binaryData"].iter().any(|field| object.at(&[field, key]).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    /// A ConfigMap and two claims.
    struct Known;

    impl Find for Known {
        fn exists(&self, resource: &str, name: &str) -> bool {
            self.get(resource, name).is_some()
        }

        fn get(&self, resource: &str, name: &str) -> Option<Object> {
            let object = match (resource, name) {
                ("configmaps", "c") => value!({"data": {"k": "v"}}),
                ("persistentvolumeclaims", "bound") => value!({"status": {"phase": "Bound"}}),
                ("persistentvolumeclaims", "pending") => value!({"status": {"phase": "Pending"}}),
                _ => return None,
            };
            Object::from_value(object)
        }
    }

    #[test]
    fn missing_objects_hold_volumes_and_containers_back() {
        let check_one = |spec: Value, want: &[&str]| {
            let fields = value!({"metadata": {"name": "p", "namespace": "n"}, "spec": (spec)});
            let needs = check(&Object::from_value(fields).unwrap_or_default(), &Known);
            let texts: Vec<String> =
                needs.volumes.into_iter().chain(needs.containers).map(|(_, why)| why).collect();
            assert_eq!(texts, want);
        };
        let env = |reference: Value| value!({"containers": [{"name": "x", "env": [{"name": "A", "valueFrom": (reference)}]}]});
        check_one(env(value!({"configMapKeyRef": {"name": "c", "key": "k"}})), &[]);
        let key = value!({"configMapKeyRef": {"name": "c", "key": "z"}});
        check_one(env(key), &["couldn't find key z in ConfigMap n/c"]);
        let secret = value!({"secretKeyRef": {"name": "s", "key": "k"}});
        check_one(env(secret), &["secret \"s\" not found"]);
        check_one(env(value!({"secretKeyRef": {"name": "s", "key": "k", "optional": true}})), &[]);
        let volumes = value!({"volumes": [{"name": "v", "secret": {"secretName": "s"}},
            {"name": "w", "projected": {"sources": [{"configMap": {"name": "c"}}]}},
            {"name": "x", "persistentVolumeClaim": {"claimName": "bound"}},
            {"name": "y", "persistentVolumeClaim": {"claimName": "pending"}}]});
        let unbound = "error processing PVC n/pending: PVC is not bound";
        check_one(volumes, &["secret \"s\" not found", unbound]);
    }
}
