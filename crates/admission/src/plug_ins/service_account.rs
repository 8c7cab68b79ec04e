//! ServiceAccount: sets and checks the service account of a pod, and mounts its token.

use super::AwaitedDependency;
use crate::attributes::Recorder;
use crate::plug_ins::pod::CONTAINER_LISTS;
use crate::request::{Operation, Request, invalid_name_reason};
use keelson_meta::{Failure, Object, SmallSet, Str, Value, value};

/// The name of the plug-in.
pub(crate) const NAME: &str = "ServiceAccount";
/// The default service account.
const DEFAULT: &str = "default";
const MIRROR: &str = "kubernetes.io/config.mirror";
const ENFORCE_MOUNTABLE: &str = "kubernetes.io/enforce-mountable-secrets";
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
const VOLUME_PREFIX: &str = "kube-api-access-";
/// Slightly more than an hour: kubelets recognize tokens with this lifetime, which the server may
/// extend for old clients.
const TOKEN_SECONDS: i64 = 3607;

fn account_name(pod: &Object) -> &str {
    pod.str_at(&["spec", "serviceAccountName"])
}

fn is_mirror(pod: &Object) -> bool {
    pod.annotation(MIRROR).is_some()
}

/// Returns the default account if the pod uses it; a control loop creates it in each new namespace.
pub(crate) fn awaited_dependency(req: &Request<'_>, pod: &Object) -> Option<AwaitedDependency> {
    let is_default =
        req.creates("", "pods") && !is_mirror(pod) && matches!(account_name(pod), "" | DEFAULT);
    is_default.then_some(AwaitedDependency {
        plug_in: NAME,
        group: "",
        resource: "serviceaccounts",
        name: DEFAULT,
    })
}

pub(crate) fn admit(
    req: &Request<'_>,
    pod: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !req.creates("", "pods") {
        return Ok(());
    }
    if is_mirror(pod) {
        return check_mirror(req, pod);
    }
    if account_name(pod).is_empty() {
        pod.object_mut("spec").insert("serviceAccountName", DEFAULT);
        // The deprecated field is always kept equal.
        pod.object_mut("spec").insert("serviceAccount", DEFAULT);
    }
    let account = account(req, pod)?;
    let bool_at = |obj: &Object, path: &[&str]| obj.at(path).and_then(Value::as_bool);
    let automount = bool_at(pod, &["spec", "automountServiceAccountToken"])
        .or_else(|| bool_at(&account, &["automountServiceAccountToken"]));
    if automount.unwrap_or(true) {
        mount_token(req, pod);
    }
    let secrets = account.array_at(&["imagePullSecrets"]);
    if pod.array_at(&["spec", "imagePullSecrets"]).is_empty() && !secrets.is_empty() {
        pod.object_mut("spec").insert("imagePullSecrets", secrets.to_vec());
    }
    check(req, pod, &account)
}

pub(crate) fn validate(
    req: &Request<'_>,
    pod: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    let ephemeral = req.operation == Operation::Update && req.subresource == "ephemeralcontainers";
    if !(req.creates("", "pods") || ephemeral && req.is_below("", "pods")) {
        return Ok(());
    }
    if !ephemeral && is_mirror(pod) {
        return check_mirror(req, pod);
    }
    if account_name(pod).is_empty() {
        let why = format!("no service account specified for pod {}/{}", req.namespace, pod.name());
        return Err(req.forbidden(pod, &why));
    }
    let account = account(req, pod)?;
    if !ephemeral {
        return check(req, pod, &account);
    }
    if !limits_secrets(&account) {
        return Ok(());
    }
    check_env(req, pod, &account, "ephemeralContainers", "ephemeral container")
}

fn account(req: &Request<'_>, pod: &Object) -> Result<Object, Failure> {
    let name = account_name(pod);
    if let Some(why) = invalid_name_reason(name) {
        let why = format!("error looking up service account {}/{name}: {why}", req.namespace);
        return Err(req.forbidden(pod, &why));
    }
    let found = req.stored.get("", "serviceaccounts", req.namespace, name)?;
    found.ok_or_else(|| {
        let why = format!(
            "error looking up service account {}/{name}: serviceaccount {name:?} not found",
            req.namespace
        );
        req.forbidden(pod, &why)
    })
}

/// A mirror pod must not refer to API objects.
fn check_mirror(req: &Request<'_>, pod: &Object) -> Result<(), Failure> {
    if !account_name(pod).is_empty() {
        return Err(req.forbidden(pod, "a mirror pod may not reference service accounts"));
    }
    let volumes = pod.array_at(&["spec", "volumes"]);
    let sources =
        || volumes.iter().flat_map(|volume| volume.array_at(&["projected", "sources"]).iter());
    let secrets = volumes.iter().any(|volume| volume.get("secret").is_some())
        || sources().any(|source| source.get("secret").is_some())
        || !pod.array_at(&["spec", "imagePullSecrets"]).is_empty()
        || CONTAINER_LISTS.iter().any(|list| {
            let containers = pod.array_at(&["spec", list]).iter();
            containers.into_iter().any(|container| {
                let env = container.array_at(&["env"]).iter();
                let from = container.array_at(&["envFrom"]).iter();
                env.into_iter().any(|one| one.at(&["valueFrom", "secretKeyRef"]).is_some())
                    || from.into_iter().any(|one| one.get("secretRef").is_some())
            })
        });
    if secrets {
        return Err(req.forbidden(pod, "a mirror pod may not reference secrets"));
    }
    if sources().any(|source| source.get("serviceAccountToken").is_some()) {
        let why = "a mirror pod may not use ServiceAccountToken volume projections";
        return Err(req.forbidden(pod, why));
    }
    Ok(())
}

/// Mounts the token volume in every container without a mount at its path.
fn mount_token(req: &Request<'_>, pod: &mut Object) {
    let known = pod.array_at(&["spec", "volumes"]).iter().find_map(|volume| {
        let name = volume.str_at(&["name"]).filter(|name| name.starts_with(VOLUME_PREFIX));
        name.map(Str::new)
    });
    let name = known.clone().unwrap_or_else(|| (req.generate_name)(VOLUME_PREFIX));
    let mut needed = false;
    for list in ["initContainers", "containers"] {
        let containers = pod.object_mut("spec").get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            let mounts = container.entry_or("volumeMounts", || Value::Array(vec![]));
            let Value::Array(mounts) = mounts else { continue };
            if mounts.iter().any(|mount| mount.str_at(&["mountPath"]) == Some(MOUNT_PATH)) {
                continue;
            }
            mounts.push(value!({
                "mountPath": MOUNT_PATH, "name": (name.clone()), "readOnly": true
            }));
            needed = true;
        }
    }
    if known.is_some() || !needed {
        return;
    }
    let volume = value!({"name": (name.clone()), "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {
            "name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]
        }},
        {"downwardAPI": {"items": [{
            "path": "namespace",
            "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
        }]}}
    ]}});
    match pod.object_mut("spec").entry_or("volumes", || Value::Array(vec![])) {
        Value::Array(volumes) => volumes.push(volume),
        other => *other = Value::Array(vec![volume]),
    }
}

/// Returns whether pods of an account may only use the secrets that it lists.
fn limits_secrets(account: &Object) -> bool {
    let enforced = account.annotation(ENFORCE_MOUNTABLE).unwrap_or_default();
    matches!(enforced, "1" | "t" | "T" | "true" | "TRUE" | "True")
}

/// Returns the names that an account lists.
fn names_in<'o>(account: &'o Object, member: &str) -> SmallSet<&'o str> {
    account.array_at(&[member]).iter().filter_map(|secret| secret.str_at(&["name"])).collect()
}

fn check(req: &Request<'_>, pod: &Object, account: &Object) -> Result<(), Failure> {
    if !limits_secrets(account) {
        return Ok(());
    }
    let who = account.name();
    let secrets = names_in(account, "secrets");
    for volume in pod.array_at(&["spec", "volumes"]) {
        let Some(secret) = volume.get("secret").filter(|secret| !secret.is_null()) else {
            continue;
        };
        let name = secret.str_at(&["secretName"]).unwrap_or_default();
        if !secrets.contains(&name) {
            let why = format!(
                "volume with secret.secretName=\"{name}\" is not allowed because service account \
                 {who} does not reference that secret"
            );
            return Err(req.forbidden(pod, &why));
        }
    }
    check_env(req, pod, account, "initContainers", "init container")?;
    check_env(req, pod, account, "containers", "container")?;
    let secrets = names_in(account, "imagePullSecrets");
    for (index, secret) in pod.array_at(&["spec", "imagePullSecrets"]).iter().enumerate() {
        let name = secret.str_at(&["name"]).unwrap_or_default();
        if !secrets.contains(&name) {
            let why = format!(
                "imagePullSecrets[{index}].name=\"{name}\" is not allowed because service account \
                 {who} does not reference that imagePullSecret"
            );
            return Err(req.forbidden(pod, &why));
        }
    }
    Ok(())
}

fn check_env(
    req: &Request<'_>,
    pod: &Object,
    account: &Object,
    list: &str,
    what: &str,
) -> Result<(), Failure> {
    let secrets = names_in(account, "secrets");
    for container in pod.array_at(&["spec", list]) {
        let text = |value: &Value, names: &[&str]| value.str_at(names).map(str::to_owned);
        let env = container.array_at(&["env"]).iter().filter_map(|one| {
            let secret = text(one, &["valueFrom", "secretKeyRef", "name"])?;
            Some((format!("envVar {}", one.str_at(&["name"]).unwrap_or_default()), secret))
        });
        let from = container
            .array_at(&["envFrom"])
            .iter()
            .filter_map(|one| Some(("envFrom".to_owned(), text(one, &["secretRef", "name"])?)));
        for (through, secret) in env.chain(from) {
            if !secrets.contains(secret.as_str()) {
                let name = container.str_at(&["name"]).unwrap_or_default();
                let why = format!(
                    "{what} {name} with {through} referencing secret.secretName=\"{secret}\" is not \
                     allowed because service account {} does not reference that secret",
                    account.name()
                );
                return Err(req.forbidden(pod, &why));
            }
        }
    }
    Ok(())
}
