//! Validates requests and limits of containers and pods, and computes the QoS class.

use super::context::Context;
use crate::check::{Field, NOT_NEGATIVE, quantity};
use keelson_meta::names;
use keelson_meta::{ErrorList, FieldError, Map, Object, Quantity, Str, Value};
use std::collections::{BTreeSet, HashMap};

const HUGE_PAGES: &str = "hugepages-";
const STANDARD_CONTAINER: &[&str] = &["cpu", "ephemeral-storage", "memory"];

/// Validates the resources of a container.
pub(super) fn container(at: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    requirements(at, errors, container_resource_name);
    claims(&at.field("claims"), context, errors);
}

/// Validates pod-level resources.
pub(super) fn pod(
    at: &Field<'_, '_>,
    spec: &Field<'_, '_>,
    context: &Context<'_>,
    errors: &mut ErrorList,
) {
    if !at.is_set() {
        return;
    }
    let claims_of_pod = at.field("claims");
    if claims_of_pod.is_set() {
        claims_of_pod.forbidden(errors, "claims may not be set for Resources at pod-level");
    }
    requirements(at, errors, |name, errors| {
        let before = errors.len();
        resource_name(name, errors);
        let known = matches!(name.text(), "cpu" | "memory") || is_huge_page(name.text());
        if errors.len() == before && !known {
            name.not_supported(errors, &["cpu", "hugepages-", "memory"]);
        }
    });
    claims(&claims_of_pod, context, errors);
    let Some(map) = spec.value.as_object() else { return };
    let requests = at.field("requests");
    for (name, total) in total_requests(map) {
        let Some(declared) = quantity(requests.get(&name)) else { continue };
        if declared < total {
            let words =
                format!("must be greater than or equal to aggregate container requests of {total}");
            let place = requests.path.key(&name);
            errors.push(FieldError::invalid(&place, declared.to_string(), &words));
        }
    }
}

/// Validates the `overhead` of a pod or RuntimeClass; like upstream, as limits.
pub(crate) fn overhead(at: &Field<'_, '_>, amounts: &Value, errors: &mut ErrorList) {
    let fixed = Field { value: amounts, path: at.path.field("limits") };
    let mut names_seen = (false, false);
    for (name, amount) in fixed.entries() {
        let key = Value::from(name);
        container_resource_name(&Field { value: &key, path: amount.path }, errors);
        positive(name, &amount, errors);
        whole_pages(name, &amount, errors);
        note(&mut names_seen, name);
    }
    if names_seen.1 && !names_seen.0 {
        errors.push(FieldError::forbidden(&at.path, "HugePages require cpu or memory"));
    }
}

/// Validates requests and limits. `check_name` is called with the name of each resource.
fn requirements(
    at: &Field<'_, '_>,
    errors: &mut ErrorList,
    check_name: fn(&Field<'_, '_>, &mut ErrorList),
) {
    let limits = at.field("limits");
    let mut names_seen = (false, false);
    for (name, amount) in limits.entries() {
        let key = Value::from(name);
        check_name(&Field { value: &key, path: amount.path }, errors);
        positive(name, &amount, errors);
        whole_pages(name, &amount, errors);
        note(&mut names_seen, name);
    }
    let requests = at.field("requests");
    for (name, amount) in requests.entries() {
        let key = Value::from(name);
        check_name(&Field { value: &key, path: amount.path }, errors);
        positive(name, &amount, errors);
        below_limit(name, &requests, &limits, errors);
        whole_pages(name, &amount, errors);
        note(&mut names_seen, name);
    }
    if names_seen.1 && !names_seen.0 {
        let words = "HugePages require cpu or memory";
        errors.push(FieldError::forbidden(&at.path, words));
    }
}

/// Requires huge pages to be a multiple of the page size in their name.
fn whole_pages(name: &str, at: &Field<'_, '_>, errors: &mut ErrorList) {
    let Some(size) = name.strip_prefix(HUGE_PAGES) else { return };
    let Some(amount) = at.quantity() else { return };
    let size = size
        .parse::<Quantity>()
        .ok()
        .filter(|size| size.sign() > 0)
        .filter(Quantity::is_integer)
        .map(|size| size.value());
    if size.is_none_or(|size| amount.value() % size != 0) {
        let words = format!("{amount} is not positive integer multiple of {name}");
        at.invalid_as(errors, amount.to_string(), &words);
    }
}

/// Records whether cpu or memory, and huge pages, are requested.
fn note(seen: &mut (bool, bool), name: &str) {
    seen.0 |= matches!(name, "cpu" | "memory");
    seen.1 |= is_huge_page(name);
}

fn below_limit(
    name: &str,
    requests: &Field<'_, '_>,
    limits: &Field<'_, '_>,
    errors: &mut ErrorList,
) {
    let request = quantity(requests.get(name));
    let limit = quantity(limits.get(name));
    let (Some(request), text) = (request, limits.get(name)) else { return };
    match limit {
        Some(limit) => {
            let relation = match may_overcommit(name) {
                true if request > limit => "less than or equal to",
                false if request != limit => "equal to",
                _ => return,
            };
            let limit = text.as_str().unwrap_or_default();
            let words = format!("must be {relation} {name} limit of {limit}");
            errors.push(FieldError::invalid(&requests.path, request.to_string(), &words));
        }
        None if !may_overcommit(name) => {
            errors.push(FieldError::required(
                &limits.path,
                "Limit must be set for non overcommitable resources",
            ));
        }
        None => {}
    }
}

fn may_overcommit(name: &str) -> bool {
    is_native(name) && !is_huge_page(name)
}

fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Returns whether a resource name is one of huge pages, such as `hugepages-2Mi`.
pub(crate) fn is_huge_page(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Validates the name of a container resource.
pub(crate) fn container_resource_name(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let name = at.text();
    resource_name(at, errors);
    if !name.contains('/') && !is_huge_page(name) && !STANDARD_CONTAINER.contains(&name) {
        at.invalid(errors, "must be a standard resource for containers");
    } else if !is_native(name) && !is_extended(name) {
        at.invalid(errors, "doesn't follow extended resource name standard");
    }
}

/// Validates a resource name: qualified, and a standard one if it has no prefix.
pub(crate) fn resource_name(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const STANDARD: &[&str] = &[
        "cpu",
        "memory",
        "ephemeral-storage",
        "storage",
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "requests.storage",
        "limits.cpu",
        "limits.memory",
        "limits.ephemeral-storage",
        "services.nodeports",
        "services.loadbalancers",
    ];
    let name = at.text();
    let before = errors.len();
    at.rule(errors, names::is_qualified_name);
    if errors.len() > before {
        return;
    }
    let is_huge = is_huge_page(name) || name.starts_with("requests.hugepages-");
    if !name.contains('/') && !STANDARD.contains(&name) && !is_huge {
        at.invalid(errors, "must be a standard resource type or fully qualified");
    }
}

/// Returns whether a name is that of an extended resource, such as `example.com/gpu`.
pub(crate) fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && names::is_qualified_name(&format!("requests.{name}")).is_empty()
}

/// Requires an amount that is not negative, and an integer for resources that cannot be divided.
pub(crate) fn positive(name: &str, at: &Field<'_, '_>, errors: &mut ErrorList) {
    let Some(amount) = at.quantity() else { return };
    if amount.sign() < 0 {
        at.invalid_as(errors, amount.to_string(), NOT_NEGATIVE);
    }
    let whole = matches!(
        name,
        "pods"
            | "services"
            | "replicationcontrollers"
            | "resourcequotas"
            | "secrets"
            | "configmaps"
            | "persistentvolumeclaims"
            | "services.nodeports"
            | "services.loadbalancers"
    ) || is_extended(name);
    if whole && !amount.is_integer() {
        at.invalid_as(errors, amount.to_string(), "must be an integer");
    }
}

fn claims(at: &Field<'_, '_>, context: &Context<'_>, errors: &mut ErrorList) {
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for claim in at.items() {
        let name = claim.field("name");
        if name.text().is_empty() {
            claim.required(errors, "");
            continue;
        }
        claim.field("request").rule_if_set(errors, names::is_dns1123_label);
        let shown = match claim.str("request") {
            "" => name.text().to_owned(),
            request => format!("{}/{request}", name.text()),
        };
        let has_request_of = |name: &str| {
            let begin = format!("{name}/");
            seen.range(begin.clone()..).next().is_some_and(|other| other.starts_with(&begin))
        };
        let twice = seen.contains(&shown)
            || seen.contains(name.text())
            || (claim.str("request").is_empty() && has_request_of(&shown));
        if twice {
            errors.push(FieldError::duplicate(&claim.path, shown));
        } else {
            seen.insert(shown);
        }
        if !context.claims.contains(name.text()) {
            errors.push_with(|| {
                let known = match context.claim_names.as_slice() {
                    [] => " which is empty".to_owned(),
                    known => format!(": {}", known.join(", ")),
                };
                let detail = format!("must be one of the names in pod.spec.resourceClaims{known}");
                FieldError { detail, ..FieldError::not_found(&claim.path, name.text()) }
            });
        }
    }
}

/// Returns the total requests of a pod's containers. Of init containers that end, the largest
/// counts.
pub(super) fn total_requests(spec: &Map) -> Vec<(Str, Quantity)> {
    let mut totals: Vec<(Str, Quantity)> = vec![];
    let mut places: HashMap<Str, usize> = HashMap::new();
    let list = |name: &str| spec.get(name).and_then(Value::as_array).unwrap_or_default();
    let amounts = |container: &Value| -> Vec<(Str, Quantity)> {
        let requests = container.at(&["resources", "requests"]).and_then(Value::as_object);
        let pairs = requests.into_iter().flat_map(Map::iter);
        pairs.filter_map(|(name, v)| Some((name.clone(), quantity(v)?))).collect()
    };
    let is_sidecar = |c: &Value| c.str_at(&["restartPolicy"]) == Some("Always");
    let sidecars = list("initContainers").iter().filter(|c| is_sidecar(c));
    for container in list("containers").iter().chain(sidecars) {
        for (name, amount) in amounts(container) {
            let place = *places.entry(name.clone()).or_insert(totals.len());
            match totals.get_mut(place) {
                Some((_, total)) => *total = total.add(&amount),
                None => totals.push((name, amount)),
            }
        }
    }
    for container in list("initContainers").iter().filter(|c| !is_sidecar(c)) {
        for (name, amount) in amounts(container) {
            let place = *places.entry(name.clone()).or_insert(totals.len());
            match totals.get_mut(place) {
                Some((_, total)) if *total < amount => *total = amount,
                Some(_) => {}
                None => totals.push((name, amount)),
            }
        }
    }
    totals
}

/// Returns the QoS class: `Guaranteed`, `Burstable` or `BestEffort`.
pub(super) fn qos_class(pod: &Object) -> &'static str {
    let whole = pod.at(&["spec", "resources"]).filter(|resources| !resources.is_empty());
    let resources: Vec<&Value> = match whole {
        Some(whole) => vec![whole],
        None => {
            let lists = [["spec", "initContainers"], ["spec", "containers"]];
            let containers = lists.iter().flat_map(|list| pod.array_at(list));
            static NONE: Value = Value::Null;
            containers.map(|c| c.get("resources").unwrap_or(&NONE)).collect()
        }
    };
    let amount = |of: &Value, list: &str, name: &str| {
        of.at(&[list, name]).and_then(quantity).filter(|amount| amount.sign() > 0)
    };
    let mut any = false;
    let mut all_limited = true;
    for of in &resources {
        for name in ["cpu", "memory"] {
            let request = amount(of, "requests", name);
            let limit = amount(of, "limits", name);
            any |= request.is_some() || limit.is_some();
            all_limited &= limit.is_some() && request.is_none_or(|r| Some(r) == limit);
        }
    }
    match (any, all_limited) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
