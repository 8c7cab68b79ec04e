//! LimitRanger: the limit ranges of a namespace set defaults of containers, and limit containers,
//! pods and claims.

use crate::attributes::Recorder;
use crate::plug_ins::pod::{Amounts, Side, amounts, container_amounts, pod_amounts};
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Growth, Map, Object, Overgrown, Quantity, SmallSet, Status, Value};

const ANNOTATION: &str = "kubernetes.io/limit-ranger";
/// Maximum comparisons of limit range items with containers of one pod. Each object is bounded by
/// its size, but not the product of the two.
const COMPARISONS_MAX: usize = 1_000_000;

/// Returns whether limits apply: to new pods and claims, updated claims, and resized pods. Objects
/// that are being deleted are exempt.
fn applies(req: &Request<'_>) -> bool {
    let is_deleted = req.old.is_some_and(|old| old.deletion_timestamp().is_some());
    let is_limited = match req.operation {
        Operation::Create => req.is("", "pods") || req.is("", "persistentvolumeclaims"),
        Operation::Update => {
            req.is("", "persistentvolumeclaims")
                || (req.subresource == "resize" && req.is_below("", "pods"))
        }
        Operation::Delete | Operation::Connect => false,
    };
    is_limited && !is_deleted
}

fn ranges(req: &Request<'_>) -> Result<Vec<Object>, Failure> {
    req.stored.list("", "limitranges", req.namespace)
}

pub(crate) fn admit(
    req: &Request<'_>,
    obj: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !applies(req) || !req.is_below("", "pods") {
        return Ok(());
    }
    let ranges = ranges(req)?;
    check_size(&ranges, obj)?;
    for range in ranges {
        set_defaults(&range, obj)?;
    }
    Ok(())
}

pub(crate) fn validate(
    req: &Request<'_>,
    obj: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !applies(req) {
        return Ok(());
    }
    let ranges = ranges(req)?;
    check_size(&ranges, obj)?;
    for range in ranges {
        let Errors { texts: errors, .. } = if req.is_below("", "pods") {
            pod_errors(&range, obj)
        } else {
            claim_errors(&range, obj)
        };
        if !errors.is_empty() {
            return Err(req.forbidden(obj, &aggregate(&errors)));
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
fn aggregate(errors: &[String]) -> String {
    let mut seen: SmallSet<&str> = SmallSet::new();
    let distinct: Vec<&str> =
        errors.iter().map(String::as_str).filter(|error| seen.insert(error)).collect();
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
fn set_defaults(range: &Object, pod: &mut Object) -> Result<(), Overgrown> {
    let mut requests = Amounts::new();
    let mut limits = Amounts::new();
    for item in items(range, "Container") {
        requests.extend(amounts(item.get("defaultRequest")));
        limits.extend(amounts(item.get("default")));
    }
    let (mut changes, mut growth): (Vec<String>, Growth) = Default::default();
    for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
        let containers = pod.object_mut("spec").get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            for (side, word, defaults) in
                [(Side::Requests, "request", &requests), (Side::Limits, "limit", &limits)]
            {
                let set = set_missing(container, side, defaults, &mut growth)?;
                if !set.is_empty() {
                    let name = container.str_at(&["name"]).unwrap_or_default();
                    changes.push(format!("{} {word} for {what} {name}", set.join(", ")));
                }
            }
        }
    }
    if !changes.is_empty() {
        let text = format!("LimitRanger plugin set: {}", changes.join("; "));
        pod.metadata_mut().object_at("annotations").insert(ANNOTATION, text);
    }
    Ok(())
}

/// Sets the missing amounts of a container; returns their names.
fn set_missing<'d>(
    container: &mut Value,
    side: Side,
    defaults: &'d Amounts,
    growth: &mut Growth,
) -> Result<Vec<&'d str>, Overgrown> {
    let known = container_amounts(container, side);
    let missing: Vec<(&String, &Quantity)> =
        defaults.iter().filter(|(name, _)| !known.contains_key(*name)).collect();
    if let (false, Some(container)) = (missing.is_empty(), container.as_object_mut()) {
        let own = container.object_at("resources").object_at(side.name());
        for (name, amount) in &missing {
            let amount = Value::from(amount.to_string());
            // The name is also in the annotation.
            growth.add(name.len())?;
            growth.add_member(name, &amount)?;
            own.insert(name.as_str(), amount);
        }
    }
    Ok(missing.into_iter().map(|(name, _)| name.as_str()).collect())
}

/// The errors of an object; those beyond the limit of [`Growth`] are dropped.
#[derive(Default)]
struct Errors {
    texts: Vec<String>,
    growth: Growth,
}

impl Errors {
    fn extend(&mut self, error: Option<String>) {
        let fits = |text: &String| self.growth.add(text.len()).is_ok();
        self.texts.extend(error.filter(fits));
    }
}

/// Checks a pod and its containers against a limit range.
fn pod_errors(range: &Object, pod: &Object) -> Errors {
    let mut errors = Errors::default();
    for item in range.array_at(&["spec", "limits"]) {
        match item.str_at(&["type"]) {
            Some("Container") => {
                for list in ["containers", "initContainers"] {
                    for container in pod.array_at(&["spec", list]) {
                        let requests = container_amounts(container, Side::Requests);
                        let limits = container_amounts(container, Side::Limits);
                        check_item(item, &requests, &limits, &mut errors);
                    }
                }
            }
            Some("Pod") => {
                let requests = pod_amounts(pod, Side::Requests);
                let limits = pod_amounts(pod, Side::Limits);
                check_item(item, &requests, &limits, &mut errors);
            }
            _ => {}
        }
    }
    errors
}

/// Checks minimum, maximum and ratio of an item.
fn check_item(item: &Value, requests: &Amounts, limits: &Amounts, errors: &mut Errors) {
    let kind = item.str_at(&["type"]).unwrap_or_default();
    for (name, min) in amounts(item.get("min")) {
        errors.extend(check_min(kind, &name, &min, requests.get(&name), limits.get(&name)));
    }
    for (name, max) in amounts(item.get("max")) {
        let message = format!("maximum {name} usage per {kind} is {max}");
        errors.extend(match (limits.get(&name), requests.get(&name)) {
            (None, _) => Some(format!("{message}.  No limit is specified")),
            (Some(limit), _) if *limit > max => Some(format!("{message}, but limit is {limit}")),
            (_, Some(request)) if *request > max => {
                Some(format!("{message}, but request is {request}"))
            }
            _ => None,
        });
    }
    for (name, ratio) in amounts(item.get("maxLimitRequestRatio")) {
        errors.extend(check_ratio(kind, &name, &ratio, requests.get(&name), limits.get(&name)));
    }
}

fn check_min(
    kind: &str,
    name: &str,
    min: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let message = format!("minimum {name} usage per {kind} is {min}");
    match (request, limit) {
        (None, _) => Some(format!("{message}.  No request is specified")),
        (Some(request), _) if request < min => Some(format!("{message}, but request is {request}")),
        (_, Some(limit)) if limit < min => Some(format!("{message}, but limit is {limit}")),
        _ => None,
    }
}

fn check_ratio(
    kind: &str,
    name: &str,
    ratio: &Quantity,
    request: Option<&Quantity>,
    limit: Option<&Quantity>,
) -> Option<String> {
    let message = format!("{name} max limit to request ratio per {kind} is {ratio}");
    let Some(request) = request.filter(|request| !request.is_zero()) else {
        return Some(format!("{message}, but no request is specified or request is 0"));
    };
    let Some(limit) = limit.filter(|limit| !limit.is_zero()) else {
        return Some(format!("{message}, but no limit is specified or limit is 0"));
    };
    let observed = limit.as_f64() / request.as_f64();
    (observed > ratio.as_f64()).then(|| format!("{message}, but provided ratio is {observed:.6}"))
}

/// Checks the requests of a claim; claims have no limits.
fn claim_errors(range: &Object, claim: &Object) -> Errors {
    let mut errors = Errors::default();
    let requests = amounts(claim.at(&["spec", "resources", "requests"]));
    let kind = "PersistentVolumeClaim";
    for item in items(range, kind) {
        for (name, min) in amounts(item.get("min")) {
            errors.extend(check_min(kind, &name, &min, requests.get(&name), None));
        }
        for (name, max) in amounts(item.get("max")) {
            let message = format!("maximum {name} usage per {kind} is {max}");
            errors.extend(match requests.get(&name) {
                None => Some(format!("{message}.  No request is specified")),
                Some(request) if *request > max => {
                    Some(format!("{message}, but request is {request}"))
                }
                Some(_) => None,
            });
        }
    }
    errors
}
