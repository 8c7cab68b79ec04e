//! ResourceQuota: computes usage and checks it against the quotas of a namespace. The caller stores
//! the new usage.

use crate::config::limited_resources::{LimitedResource, Scope};
use crate::plug_ins::pod::{Amounts, Side, add, amounts, container_amounts, pod_amounts, quantity};
use crate::request::{Operation, Request, Stored};
use keelson_meta::quantity::Format;
use keelson_meta::{Failure, Object, Quantity, Reason, Status, Value};
use std::collections::{BTreeMap, BTreeSet};

mod devices;

/// The plug-in's name.
pub const NAME: &str = "ResourceQuota";

/// Resources that containers must specify when a quota limits them.
const REQUIRED_BY_QUOTA: [&str; 6] =
    ["cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"];
const STORAGE_CLASS_SUFFIX: &str = ".storageclass.storage.k8s.io/";

/// Returns whether a request that stores an object may use quota.
pub fn applies(req: &Request<'_>, obj: &Object) -> bool {
    let gvr = (req.gvr.group.as_str(), req.gvr.resource.as_str());
    if req.namespace.is_empty() || matches!(gvr, ("" | "events.k8s.io", "events")) {
        return false;
    }
    match req.operation {
        Operation::Create => req.subresource.is_empty(),
        Operation::Update if gvr == ("", "pods") => match req.subresource {
            "resize" => true,
            // The pod comes into the scope of other quotas.
            "" => req.old.is_some_and(|old| is_terminating(old) != is_terminating(obj)),
            _ => false,
        },
        Operation::Update => {
            req.subresource.is_empty() && matches!(gvr, ("", "services" | "persistentvolumeclaims"))
        }
        Operation::Delete | Operation::Connect => false,
    }
}

/// Returns whether a request may be rejected even without a quota.
pub fn is_limited(req: &Request<'_>) -> bool {
    limits(req).next().is_some()
}

/// Rejects an object that lacks requests or limits that a quota requires, or that uses a limited
/// resource without a quota. `quotas` are those of its namespace.
pub fn check(req: &Request<'_>, obj: &Object, quotas: &[Object]) -> Result<(), Failure> {
    let group = req.gvr.group.as_str();
    let resource = req.gvr.resource.as_str();
    let hard_limits: Vec<Amounts> =
        quotas.iter().map(|quota| amounts(quota.at(&["status", "hard"]))).collect();
    let mut covered: BTreeSet<&str> = BTreeSet::new();
    for (quota, hard) in quotas.iter().zip(&hard_limits) {
        if !matches(quota, group, resource, obj) {
            continue;
        }
        let name = quota.name();
        let tracked = tracked(group, resource, hard);
        if (group, resource) == ("", "pods")
            && let Some(missing) = missing(obj, &tracked)
        {
            let why = format!("failed quota: {name}: must specify {missing}");
            return Err(req.forbidden(obj, &why));
        }
        let used = amounts(quota.at(&["status", "used"]));
        if tracked.iter().any(|what| !used.contains_key(*what)) {
            let what = tracked.into_iter().collect::<Vec<_>>().join(",");
            let why = format!("status unknown for quota: {name}, resources: {what}");
            return Err(req.forbidden(obj, &why));
        }
        covered.extend(tracked);
    }
    check_limited(req, obj, quotas, &covered)
}

/// Rejects limited resources that no quota covers.
fn check_limited(
    req: &Request<'_>,
    obj: &Object,
    quotas: &[Object],
    covered: &BTreeSet<&str>,
) -> Result<(), Failure> {
    if !is_limited(req) {
        return Ok(());
    }
    let group = req.gvr.group.as_str();
    let resource = req.gvr.resource.as_str();
    let mut requested = usage(group, resource, obj, req.stored)?;
    if let Some(old) = req.old {
        subtract(&mut requested, &usage(group, resource, old, req.stored)?);
    }
    let is_limited = |what: &String| limits(req).any(|limit| limit.contains(what));
    let uncovered: Vec<&str> = requested
        .iter()
        .filter(|(what, amount)| {
            amount.sign() > 0 && !covered.contains(what.as_str()) && is_limited(what)
        })
        .map(|(what, _)| what.as_str())
        .collect();
    if !uncovered.is_empty() {
        let why = format!("insufficient quota to consume: {}", uncovered.join(","));
        return Err(req.forbidden(obj, &why));
    }
    let holds = |scope: &Scope| in_scope(group, resource, obj, scope);
    let quota_scopes: Vec<Scope> = quotas.iter().flat_map(scopes).filter(|s| holds(s)).collect();
    let is_covered = |scope: &Scope| quota_scopes.iter().any(|own| own.name == scope.name);
    let limits = limits(req).flat_map(|limit| &limit.scopes);
    let uncovered: Vec<String> =
        limits.filter(|s| holds(s) && !is_covered(s)).map(Scope::to_string).collect();
    if uncovered.is_empty() {
        return Ok(());
    }
    let scopes = uncovered.join(" ");
    let message = format!("insufficient quota to match these scopes: [{scopes}]");
    // Upstream returns the plain error, which becomes a 500 without a reason.
    Err(Status::new(Reason::Unknown, message))
}

/// Returns the limited resources that apply to a request.
fn limits<'a>(req: &Request<'a>) -> impl Iterator<Item = &'a LimitedResource> + use<'a> {
    let gvr = req.gvr;
    let all = req.config.limited_resources.iter();
    all.filter(|limit| limit.resource == gvr.resource.as_str() && limit.group == gvr.group.as_str())
}

/// Returns `status.used` of a quota after this request; `None` when it does not change.
pub fn new_usage(
    req: &Request<'_>,
    obj: &Object,
    quota: &Object,
) -> Result<Option<Amounts>, Failure> {
    let group = req.gvr.group.as_str();
    let resource = req.gvr.resource.as_str();
    let hard = amounts(quota.at(&["status", "hard"]));
    let used = amounts(quota.at(&["status", "used"]));
    if !matches(quota, group, resource, obj) {
        return Ok(None);
    }
    let name = quota.name();
    let mut delta = usage(group, resource, obj, req.stored)?;
    if let Some(old) = req.old.filter(|old| matches(quota, group, resource, old)) {
        subtract(&mut delta, &usage(group, resource, old, req.stored)?);
    }
    delta.retain(|what, amount| amount.sign() > 0 && hard.contains_key(what));
    if delta.is_empty() {
        return Ok(None);
    }
    let mut after = used.clone();
    add(&mut after, &delta);
    let exceeded: Vec<&str> =
        delta.keys().filter(|what| after[*what] > hard[*what]).map(String::as_str).collect();
    if exceeded.is_empty() {
        return Ok(Some(after));
    }
    let shown = |of: &Amounts| {
        let pairs = exceeded.iter().map(|what| format!("{what}={}", quantity_of(of, what)));
        pairs.collect::<Vec<_>>().join(",")
    };
    let why = format!(
        "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
        shown(&delta),
        shown(&used),
        shown(&hard)
    );
    Err(req.forbidden(obj, &why))
}

fn quantity_of(of: &Amounts, what: &str) -> Quantity {
    of.get(what).cloned().unwrap_or_default()
}

/// Subtracts the amounts of the same names.
fn subtract(from: &mut Amounts, less: &Amounts) {
    for (what, amount) in from {
        if let Some(less) = less.get(what) {
            *amount = amount.sub(less);
        }
    }
}

/// Returns the usage of an object by quota resource names.
pub fn usage(
    group: &str,
    resource: &str,
    obj: &Object,
    stored: &dyn Stored,
) -> Result<Amounts, Failure> {
    let one = || Quantity::new(1, Format::DecimalSi);
    let mut all = Amounts::from([(count_name(group, resource), one())]);
    match (group, resource) {
        ("", "pods") if has_ended(obj) => {}
        ("", "pods") => all.extend(pod_usage(obj)),
        ("", "services") => {
            all.insert(resource.to_owned(), one());
            all.extend(service_usage(obj));
        }
        ("", "persistentvolumeclaims") => {
            all.insert(resource.to_owned(), one());
            all.extend(claim_usage(obj));
        }
        ("", "configmaps" | "resourcequotas" | "replicationcontrollers" | "secrets") => {
            all.insert(resource.to_owned(), one());
        }
        ("resource.k8s.io", "resourceclaims") => all.extend(devices::claim_usage(obj, stored)?),
        _ => {}
    }
    Ok(all)
}

/// Returns `count/deployments.apps`.
fn count_name(group: &str, resource: &str) -> String {
    let dot = if group.is_empty() { "" } else { "." };
    format!("count/{resource}{dot}{group}")
}

fn has_ended(pod: &Object) -> bool {
    matches!(pod.str_at(&["status", "phase"]), "Failed" | "Succeeded")
}

/// Returns the usage of a pod that has not terminated.
fn pod_usage(pod: &Object) -> Amounts {
    let mut requests = pod_amounts(pod, Side::Requests);
    let mut limits = pod_amounts(pod, Side::Limits);
    let overhead = amounts(pod.at(&["spec", "overhead"]));
    add(&mut requests, &overhead);
    for (what, amount) in overhead {
        if let Some(limit) = limits.get_mut(&what).filter(|limit| !limit.is_zero()) {
            *limit = limit.add(&amount);
        }
    }
    quota_names(&requests, &limits)
}

/// Returns requests and limits by quota resource names.
fn quota_names(requests: &Amounts, limits: &Amounts) -> Amounts {
    let mut all = Amounts::from([("pods".to_owned(), Quantity::new(1, Format::DecimalSi))]);
    for (what, amount) in requests {
        let native = matches!(what.as_str(), "cpu" | "memory" | "ephemeral-storage");
        if native || what.starts_with("hugepages-") {
            all.insert(what.clone(), amount.clone());
        }
        if native || what.starts_with("hugepages-") || is_extended_resource(what) {
            all.insert(format!("requests.{what}"), amount.clone());
        }
    }
    for what in ["cpu", "memory", "ephemeral-storage"] {
        if let Some(amount) = limits.get(what) {
            all.insert(format!("limits.{what}"), amount.clone());
        }
    }
    all
}

/// Returns whether a resource is an extended one.
fn is_extended_resource(what: &str) -> bool {
    let native = what.contains("kubernetes.io/") && !what.starts_with(devices::IMPLICIT);
    what.contains('/') && !native && !what.starts_with("requests.")
}

fn service_usage(service: &Object) -> Amounts {
    let ports = service.array_at(&["spec", "ports"]);
    let kind = service.str_at(&["spec", "type"]);
    let allocates = service.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool);
    let node_ports = match kind {
        "LoadBalancer" if allocates == Some(false) => {
            let set = ports.iter().filter_map(|port| port.int_at(&["nodePort"]));
            set.filter(|port| *port != 0).count()
        }
        "NodePort" | "LoadBalancer" => ports.len(),
        _ => 0,
    };
    let number = |n: i64| Quantity::new(n, Format::DecimalSi);
    Amounts::from([
        ("services.nodeports".to_owned(), number(i64::try_from(node_ports).unwrap_or(i64::MAX))),
        ("services.loadbalancers".to_owned(), number(i64::from(kind == "LoadBalancer"))),
    ])
}

fn claim_usage(claim: &Object) -> Amounts {
    let mut all = Amounts::new();
    let class = crate::plug_ins::storage::class_of(claim).filter(|class| !class.is_empty());
    if let Some(class) = class {
        let one = Quantity::new(1, Format::DecimalSi);
        all.insert(format!("{class}{STORAGE_CLASS_SUFFIX}persistentvolumeclaims"), one);
    }
    if let Some(requested) = claim.at(&["spec", "resources", "requests", "storage"]) {
        let allocated = quantity(claim.at(&["status", "allocatedResources", "storage"]));
        let size = quantity(Some(requested)).max(allocated);
        if let Some(class) = class {
            all.insert(format!("{class}{STORAGE_CLASS_SUFFIX}requests.storage"), size.clone());
        }
        all.insert("requests.storage".to_owned(), size);
    }
    all
}

/// Returns the resource names in a quota that apply to objects of a resource.
fn tracked<'h>(group: &str, resource: &str, hard: &'h Amounts) -> BTreeSet<&'h str> {
    let count = count_name(group, resource);
    let is_tracked = |what: &str| match (group, resource) {
        ("", "pods") => {
            let what = what.strip_prefix("requests.").unwrap_or(what);
            let bare = what.strip_prefix("limits.").unwrap_or(what);
            matches!(bare, "pods" | "cpu" | "memory" | "ephemeral-storage")
                || what.starts_with("hugepages-")
                || is_extended_resource(what)
        }
        ("", "services") => {
            matches!(what, "services" | "services.nodeports" | "services.loadbalancers")
        }
        ("", "persistentvolumeclaims") => {
            matches!(what, "persistentvolumeclaims" | "requests.storage")
                || what.contains(STORAGE_CLASS_SUFFIX)
        }
        ("", "configmaps" | "resourcequotas" | "replicationcontrollers" | "secrets") => {
            what == resource
        }
        ("resource.k8s.io", "resourceclaims") => devices::is_counted(what),
        _ => false,
    };
    hard.keys().map(String::as_str).filter(|what| *what == count || is_tracked(what)).collect()
}

/// Returns whether a quota applies to objects of a resource.
pub fn tracks(quota: &Object, group: &str, resource: &str) -> bool {
    let has_quota = !matches!((group, resource), ("" | "events.k8s.io", "events"));
    has_quota && !tracked(group, resource, &amounts(quota.at(&["status", "hard"]))).is_empty()
}

/// Returns whether a quota applies to an object: by its resource names and all its scopes.
pub fn matches(quota: &Object, group: &str, resource: &str, obj: &Object) -> bool {
    let hard = amounts(quota.at(&["status", "hard"]));
    scopes(quota).all(|scope| in_scope(group, resource, obj, &scope))
        && !tracked(group, resource, &hard).is_empty()
}

fn scopes(quota: &Object) -> impl Iterator<Item = Scope> {
    let plain = quota
        .array_at(&["spec", "scopes"])
        .iter()
        .filter_map(Value::as_str)
        .map(|name| Scope { name: name.to_owned(), operator: "Exists".to_owned(), values: vec![] });
    let expressions = quota.array_at(&["spec", "scopeSelector", "matchExpressions"]);
    plain.chain(expressions.iter().map(Scope::read))
}

fn in_scope(group: &str, resource: &str, obj: &Object, scope: &Scope) -> bool {
    match (group, resource) {
        ("", "pods") => is_pod_in(obj, scope),
        ("", "persistentvolumeclaims") if scope.name == "VolumeAttributesClass" => {
            let mut classes = [
                obj.str_at(&["spec", "volumeAttributesClassName"]),
                obj.str_at(&["status", "modifyVolumeStatus", "targetVolumeAttributesClassName"]),
                obj.str_at(&["status", "currentVolumeAttributesClassName"]),
            ]
            .into_iter()
            .filter(|class| !class.is_empty())
            .peekable();
            match classes.peek() {
                None => scope.selects(None),
                Some(_) => classes.any(|class| scope.selects(Some(class))),
            }
        }
        _ => false,
    }
}

fn is_pod_in(pod: &Object, scope: &Scope) -> bool {
    match scope.name.as_str() {
        "Terminating" => is_terminating(pod),
        "NotTerminating" => !is_terminating(pod),
        "BestEffort" => is_best_effort(pod),
        "NotBestEffort" => !is_best_effort(pod),
        "PriorityClass" => {
            let class = pod.str_at(&["spec", "priorityClassName"]);
            scope.selects(Some(class).filter(|class| !class.is_empty()))
        }
        "CrossNamespacePodAffinity" => is_cross_namespace(pod),
        _ => false,
    }
}

/// Returns whether a pod ends by itself.
fn is_terminating(pod: &Object) -> bool {
    pod.int_at(&["spec", "activeDeadlineSeconds"]).is_some_and(|seconds| seconds >= 0)
}

/// Returns whether a pod has neither requests nor limits of cpu and memory.
pub(crate) fn is_best_effort(pod: &Object) -> bool {
    let is_set = |amounts: Amounts| {
        let mut native = ["cpu", "memory"].into_iter().filter_map(|what| amounts.get(what));
        native.any(|amount| !amount.is_zero())
    };
    let sides = [Side::Requests, Side::Limits];
    let pod_level =
        sides.iter().any(|side| is_set(amounts(pod.at(&["spec", "resources", side.name()]))));
    let mut containers =
        ["containers", "initContainers"].into_iter().flat_map(|list| pod.array_at(&["spec", list]));
    !pod_level
        && !containers.any(|one| sides.iter().any(|side| is_set(container_amounts(one, *side))))
}

fn is_cross_namespace(pod: &Object) -> bool {
    let across = |term: &Value| {
        !term.array_at(&["namespaces"]).is_empty() || term.get("namespaceSelector").is_some()
    };
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let Some(rules) = pod.at(&["spec", "affinity", kind]) else {
            return false;
        };
        let required = rules.array_at(&["requiredDuringSchedulingIgnoredDuringExecution"]);
        let preferred = rules.array_at(&["preferredDuringSchedulingIgnoredDuringExecution"]);
        required.iter().any(across)
            || preferred.iter().filter_map(|one| one.get("podAffinityTerm")).any(across)
    })
}

/// Returns missing requests and limits in upstream's wording: `limits.memory for: a,b; ...`.
fn missing(pod: &Object, tracked: &BTreeSet<&str>) -> Option<String> {
    let pod_level = |side: Side| amounts(pod.at(&["spec", "resources", side.name()]));
    let of_pod = quota_names(&pod_level(Side::Requests), &pod_level(Side::Limits));
    let mut missing: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for list in ["containers", "initContainers"] {
        for container in pod.array_at(&["spec", list]) {
            let own = quota_names(
                &container_amounts(container, Side::Requests),
                &container_amounts(container, Side::Limits),
            );
            for what in REQUIRED_BY_QUOTA.into_iter().filter(|what| tracked.contains(what)) {
                if !own.contains_key(what) && !of_pod.contains_key(what) {
                    let name = container.str_at(&["name"]).unwrap_or_default();
                    missing.entry(what).or_default().insert(name);
                }
            }
        }
    }
    let lines: Vec<String> = missing
        .into_iter()
        .map(|(what, names)| {
            format!("{what} for: {}", names.into_iter().collect::<Vec<_>>().join(","))
        })
        .collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}
