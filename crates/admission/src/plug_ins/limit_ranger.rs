//! LimitRanger: the limit ranges of a namespace set defaults of containers, and limit containers,
//! pods and claims.

use crate::attributes::Notes;
use crate::plug_ins::pod::{Amounts, Side, amounts, of_container, of_pod};
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Map, Object, Quantity, SmallSet, Status, Value};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Maximum comparisons of limit range items with containers of one pod. Each object is bounded by
/// its size, but not the product of the two.
const COMPARISONS_MAX: usize = 1_000_000;

/// Returns whether limits apply: to new pods and claims, updated claims, and resized pods. Objects
/// that are being deleted are exempt.
fn applies(req: &Request<'_>) -> bool {
    let going = req.old.is_some_and(|old| old.deletion_timestamp().is_some());
    let acts = match req.operation {
        Operation::Create => req.is("", "pods") || req.is("", "persistentvolumeclaims"),
        Operation::Update => {
            req.is("", "persistentvolumeclaims")
                || (req.subresource == "resize" && req.is_below("", "pods"))
        }
        Operation::Delete | Operation::Connect => false,
    };
    acts && !going
}

fn ranges(req: &Request<'_>) -> Result<Vec<Object>, Failure> {
    req.stored.list("", "limitranges", req.namespace)
}

pub(crate) fn admit(
    req: &Request<'_>,
    obj: &mut Object,
    _notes: &mut Notes,
) -> Result<(), Failure> {
    if !applies(req) || !req.is_below("", "pods") {
        return Ok(());
    }
    let ranges = ranges(req)?;
    check_size(&ranges, obj)?;
    for range in ranges {
        set_defaults(&range, obj);
    }
    Ok(())
}

pub(crate) fn validate(req: &Request<'_>, obj: &Object, _notes: &mut Notes) -> Result<(), Failure> {
    if !applies(req) {
        return Ok(());
    }
    let ranges = ranges(req)?;
    check_size(&ranges, obj)?;
    for range in ranges {
        let faults =
            if req.is_below("", "pods") { of_range(&range, obj) } else { of_claim(&range, obj) };
        if !faults.is_empty() {
            return Err(req.forbidden(obj, &joined(&faults)));
        }
    }
    Ok(())
}

/// Rejects too many comparisons.
fn check_size(ranges: &[Object], pod: &Object) -> Result<(), Failure> {
    const LISTS: [&str; 5] = ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"];
    let items = ranges.iter().flat_map(|range| range.array_at(&["spec", "limits"]));
    let size = |item: &Value| -> usize {
        LISTS.iter().filter_map(|list| item.get(list)?.as_object()).map(Map::len).sum()
    };
    let amounts: usize = items.map(|item| 1 + size(item)).sum();
    let lists = ["containers", "initContainers"];
    let containers: usize = lists.iter().map(|list| pod.array_at(&["spec", list]).len()).sum();
    let is_fine = amounts.saturating_mul(containers) <= COMPARISONS_MAX;
    if is_fine { Ok(()) } else { Err(Status::timed_out()) }
}

/// Joins errors like upstream: without duplicates, in brackets if there are several.
fn joined(faults: &[String]) -> String {
    let mut seen: SmallSet<&str> = SmallSet::new();
    let distinct: Vec<&str> =
        faults.iter().map(String::as_str).filter(|fault| seen.insert(fault)).collect();
    match distinct.as_slice() {
        [one] => (*one).to_owned(),
        all => format!("[{}]", all.join(", ")),
    }
}

fn items<'o>(range: &'o Object, kind: &str) -> impl Iterator<Item = &'o Value> {
    let items = range.array_at(&["spec", "limits"]).iter();
    items.filter(move |item| item.str_at(&["type"]) == Some(kind))
}

/// Sets the defaults of containers and records them in an annotation.
fn set_defaults(range: &Object, pod: &mut Object) {
    let (mut requests, mut limits) = (Amounts::new(), Amounts::new());
    for item in items(range, "Container") {
        requests.extend(amounts(item.get("defaultRequest")));
        limits.extend(amounts(item.get("default")));
    }
    let mut notes: Vec<String> = vec![];
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.object_mut("spec").get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            for (side, word, defaults) in
                [(Side::Requests, "request", &requests), (Side::Limits, "limit", &limits)]
            {
                let set = fill(container, side, defaults);
                if !set.is_empty() {
                    let name = container.str_at(&["name"]).unwrap_or_default();
                    notes.push(format!("{} {word} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !notes.is_empty() {
        let text = format!("LimitRanger plugin set: {}", notes.join("; "));
        pod.metadata_mut().object_at("annotations").insert(ANNOTATION, text);
    }
}

/// Sets the missing amounts of a container; returns their names.
fn fill<'d>(container: &mut Value, side: Side, defaults: &'d Amounts) -> Vec<&'d str> {
    let known = of_container(container, side);
    let missing: Vec<(&String, &Quantity)> =
        defaults.iter().filter(|(name, _)| !known.contains_key(*name)).collect();
    if let (false, Some(container)) = (missing.is_empty(), container.as_object_mut()) {
        let own = container.object_at("resources").object_at(side.name());
        for (name, amount) in &missing {
            own.insert(name.as_str(), amount.to_string());
        }
    }
    missing.into_iter().map(|(name, _)| name.as_str()).collect()
}

fn of_range(range: &Object, pod: &Object) -> Vec<String> {
    let mut faults = vec![];
    for item in range.array_at(&["spec", "limits"]) {
        match item.str_at(&["type"]) {
            Some("Container") => {
                for list in ["containers", "initContainers"] {
                    for container in pod.array_at(&["spec", list]) {
                        let requests = of_container(container, Side::Requests);
                        let limits = of_container(container, Side::Limits);
                        bounds(item, &requests, &limits, &mut faults);
                    }
                }
            }
            Some("Pod") => {
                let (requests, limits) = (of_pod(pod, Side::Requests), of_pod(pod, Side::Limits));
                bounds(item, &requests, &limits, &mut faults);
            }
            _ => {}
        }
    }
    faults
}

/// Checks minimum, maximum and ratio of an item.
fn bounds(item: &Value, requests: &Amounts, limits: &Amounts, faults: &mut Vec<String>) {
    let kind = item.str_at(&["type"]).unwrap_or_default();
    for (name, min) in amounts(item.get("min")) {
        faults.extend(below(kind, &name, &min, requests.get(&name), limits.get(&name)));
    }
    for (name, max) in amounts(item.get("max")) {
        let says = format!("maximum {name} usage per {kind} is {max}");
        faults.extend(match (limits.get(&name), requests.get(&name)) {
            (None, _) => Some(format!("{says}.  No limit is specified")),
            (Some(limit), _) if *limit > max => Some(format!("{says}, but limit is {limit}")),
            (_, Some(request)) if *request > max => {
                Some(format!("{says}, but request is {request}"))
            }
            _ => None,
        });
    }
    for (name, ratio) in amounts(item.get("maxLimitRequestRatio")) {
        faults.extend(above_ratio(kind, &name, &ratio, requests.get(&name), limits.get(&name)));
    }
}

fn below(
    kind: &str,
    name: &str,
    min: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let says = format!("minimum {name} usage per {kind} is {min}");
    match (request, limit) {
        (None, _) => Some(format!("{says}.  No request is specified")),
        (Some(request), _) if request < min => Some(format!("{says}, but request is {request}")),
        (_, Some(limit)) if limit < min => Some(format!("{says}, but limit is {limit}")),
        _ => None,
    }
}

fn above_ratio(
    kind: &str,
    name: &str,
    ratio: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let says = format!("{name} max limit to request ratio per {kind} is {ratio}");
    let Some(request) = request.filter(|request| !request.is_zero()) else {
        return Some(format!("{says}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
        return Some(format!("{says}, but no limit is specified or limit is 0"));
    };
    let observed = limit.as_f64() / request.as_f64();
    (observed > ratio.as_f64()).then(|| format!("{says}, but provided ratio is {observed:.6}"))
}

/// Checks the requests of a claim; claims have no limits.
fn of_claim(range: &Object, claim: &Object) -> Vec<String> {
    let mut faults = vec![];
    let requests = amounts(claim.at(&["spec", "resources", "requests"]));
    let kind = "PersistentVolumeClaim";
    for item in items(range, kind) {
        for (name, min) in amounts(item.get("min")) {
            faults.extend(below(kind, &name, &min, requests.get(&name), None));
        }
        for (name, max) in amounts(item.get("max")) {
            let says = format!("maximum {name} usage per {kind} is {max}");
            faults.extend(match requests.get(&name) {
                None => Some(format!("{says}.  No request is specified")),
                Some(request) if *request > max => {
                    Some(format!("{says}, but request is {request}"))
                }
                Some(_) => None,
            });
        }
    }
    faults
}
