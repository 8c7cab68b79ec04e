//! Validates the status of a pod and its changes.

use super::{annotations, resources};
use crate::check::{Field, child, default_empty, new_ip};
use crate::gates;
use keelson_meta::status::quote;
use keelson_meta::{
    ErrorList, Feature, FieldError, Map, Object, SmallSet, Value, ip, names, value,
};
use std::collections::BTreeSet;

/// The lists of container statuses with the lists of containers.
const LISTS: [(&str, &str); 3] = [
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", "ephemeralContainers"),
];
const NOMINATED_BOUND: &str = "may not be set on pods that are already bound to a node";
const NOT_NEGATIVE: &str = "must be a non-negative integer";
const HEALTHS: &[&str] = &["Healthy", "Unhealthy", "Unknown"];
const ID_MAX: i64 = i32::MAX as i64;

/// Makes `podIP` and the first of `podIPs` equal; `podIP` wins.
pub(super) fn default_addresses(pod: &mut Object) {
    let Some(status) = child(&mut pod.root, "status") else { return };
    let ip = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = |status: &Map| {
        let list = status.get("podIPs").and_then(Value::as_array);
        list.and_then(<[Value]>::first).map(|item| ip(item.get("ip")))
    };
    let old = ip(status.get("podIP"));
    if !old.is_empty() && first(status).as_ref() != Some(&old) {
        status.insert("podIPs", vec![value!({"ip": (old.as_str())})]);
    }
    if let Some(first) = first(status).filter(|first| !first.is_empty()) {
        default_empty(status, "podIP", first);
    }
}

/// Validates a status update.
pub(super) fn validate(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let Some(old) = old else { return errors };
    annotations::validate_update(new, old, &mut errors);
    let spec = Field::of(new, "spec");
    let at = Field::of(new, "status");
    let before = Field::of(old, "status");
    conditions(&at.field("conditions"), &mut errors);
    let node = at.field("nominatedNodeName");
    if node.text() != before.str("nominatedNodeName") {
        node.rule_if_set(&mut errors, names::is_dns1123_subdomain);
        let is_cleared = gates::is_on(Feature::ClearingNominatedNodeNameAfterBinding);
        if is_cleared && !node.text().is_empty() && !spec.field("nodeName").text().is_empty() {
            node.forbidden(&mut errors, NOMINATED_BOUND);
        }
    }
    not_negative(&at.field("observedGeneration"), &mut errors);
    at.field("qosClass").unchanged_value(&mut errors, before.get("qosClass"));
    for (list, containers) in LISTS {
        let containers = spec.get(containers).as_array().unwrap_or_default();
        transitions(&at.field(list), before.get(list), containers, &spec, &mut errors);
    }
    claim_statuses(&at.field("resourceClaimStatuses"), &spec, &mut errors);
    extended_claim(&at.field("extendedResourceClaimStatus"), &spec, &mut errors);
    node_claims(&at, &spec, &mut errors);
    addresses(&at.field("podIPs"), &mut errors);
    host_addresses(&at, &mut errors);
    for (list, _) in LISTS {
        let is_windows = spec.value.str_at(&["os", "name"]) == Some("windows");
        at.field(list).items().for_each(|status| user(&status, is_windows, &mut errors));
    }
    for (list, containers) in LISTS {
        let containers = spec.get(containers).as_array().unwrap_or_default();
        for status in at.field(list).items() {
            let devices = status.field("allocatedResourcesStatus");
            if list.starts_with("ephemeral") && !devices.array().is_empty() {
                devices.forbidden(&mut errors, "must not be specified in container status");
            } else {
                allocated(&status, containers, &mut errors);
            }
        }
    }
    for (list, _) in LISTS {
        at.field(list).items().for_each(|status| image_volumes(&status, &mut errors));
    }
    errors
}

/// Validates `nodeAllocatableResourceClaimStatuses`: each names a claim of the pod, its containers
/// and its resources.
fn node_claims(status: &Field<'_, '_>, spec: &Field<'_, '_>, errors: &mut ErrorList) {
    const MISSING: &str = "must not be empty";
    let list = status.field("nodeAllocatableResourceClaimStatuses");
    if list.array().is_empty() {
        return;
    }
    let of = |at: &Field<'_, '_>, list: &str| -> Vec<String> {
        let items = at.get(list).as_array().unwrap_or_default().iter();
        items.filter_map(|item| item.str_at(&["resourceClaimName"]).map(str::to_owned)).collect()
    };
    let mut known: BTreeSet<String> = of(spec, "resourceClaims").into_iter().collect();
    known.extend(of(status, "resourceClaimStatuses"));
    for claim in list.items() {
        let name = claim.field("resourceClaimName");
        name.not_empty(errors, MISSING);
        if !known.contains(name.text()) {
            name.invalid_as(errors, name.text(), "no mapping found in pod reference");
        }
        claim.field("containers").not_empty(errors, MISSING);
        let resources = claim.field("resources");
        if resources.value.is_empty() {
            resources.required(errors, MISSING);
        }
        for (name, amount) in resources.entries() {
            if name.contains('/') && !name.starts_with("kubernetes.io/") {
                amount.invalid_as(errors, name, "must be a node allocatable resource name");
            }
            if amount.quantity().is_some_and(|amount| amount.sign() < 0) {
                amount.invalid(errors, "must be non-negative");
            }
        }
    }
}

/// Validates the image references of mounted image volumes.
fn image_volumes(status: &Field<'_, '_>, errors: &mut ErrorList) {
    const REFERENCE_BYTES_MAX: usize = 256;
    for mount in status.field("volumeMounts").items() {
        let volume = mount.field("volumeStatus");
        let image = volume.field("image");
        if !image.is_set() {
            continue;
        }
        // Upstream uses the Go field name.
        let image = Field { path: volume.path.field("imageVolumeStatus"), ..image };
        let reference = image.field("imageRef");
        if reference.text().len() > REFERENCE_BYTES_MAX {
            errors.push(FieldError::too_long(&reference.path, REFERENCE_BYTES_MAX));
        }
        reference.not_empty(errors, "imageRef must not be empty");
    }
}

fn not_negative(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if at.number() < 0 {
        at.invalid(errors, NOT_NEGATIVE);
    }
}

fn conditions(list: &Field<'_, '_>, errors: &mut ErrorList) {
    const KNOWN: &[&str] = &[
        "ContainersReady",
        "DisruptionTarget",
        "Initialized",
        "PodReadyToStartContainers",
        "PodScheduled",
        "Ready",
    ];
    for condition in list.items() {
        not_negative(&condition.field("observedGeneration"), errors);
        let kind = condition.str("type");
        if !KNOWN.contains(&kind) {
            // Upstream uses the Go field name.
            let at = Field { value: condition.get("type"), path: condition.path.field("Type") };
            for why in names::is_qualified_name(kind) {
                at.invalid_as(errors, kind, &why);
            }
        }
    }
}

/// Checks that a terminated container runs again only if its restart policy allows it.
fn transitions(
    list: &Field<'_, '_>,
    before: &Value,
    containers: &[Value],
    spec: &Field<'_, '_>,
    errors: &mut ErrorList,
) {
    let is_ephemeral = list.path.to_string().contains("ephemeral");
    let ended = |status: &Value| status.at(&["state", "terminated"]).cloned();
    for (index, stored) in before.as_array().unwrap_or_default().iter().enumerate() {
        let Some(terminated) = ended(stored) else { continue };
        let name = stored.str_at(&["name"]).unwrap_or_default();
        let is_named = |status: &&Value| status.str_at(&["name"]).unwrap_or_default() == name;
        let code = terminated.get("exitCode").and_then(Value::as_int).unwrap_or(0);
        let container = containers.iter().find(is_named);
        if !is_ephemeral
            && container
                .is_some_and(|container| restarts(container, spec.str("restartPolicy"), code))
        {
            continue;
        }
        let leaves = |status: &&Value| is_named(status) && ended(status).is_none();
        for _ in list.array().iter().filter(leaves) {
            let place = list.path.index(index);
            let words = "may not be transitioned to non-terminated state";
            errors.push(FieldError::forbidden(&place.field("state"), words));
        }
    }
}

/// Returns whether a container that ended with `code` is restarted.
fn restarts(container: &Value, policy_of_pod: &str, code: i64) -> bool {
    for rule in container.array_at(&["restartPolicyRules"]) {
        let codes = rule.array_at(&["exitCodes", "values"]);
        let is_in = codes.iter().any(|value| value.as_int() == Some(code));
        let matches = match rule.str_at(&["exitCodes", "operator"]) {
            Some("In") => is_in,
            Some("NotIn") => !is_in,
            _ => false,
        };
        if matches {
            return rule.str_at(&["action"]) != Some("Never");
        }
    }
    match container.str_at(&["restartPolicy"]).unwrap_or(policy_of_pod) {
        "Always" => true,
        "OnFailure" => code != 0,
        _ => false,
    }
}

fn claim_statuses(list: &Field<'_, '_>, spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let claims = spec.get("resourceClaims").as_array().unwrap_or_default();
    let known: SmallSet<&str> = claims.iter().filter_map(|claim| claim.str_at(&["name"])).collect();
    let mut seen: SmallSet<&str> = SmallSet::new();
    for status in list.items() {
        let name = status.field("name");
        if !known.contains(name.text()) {
            let words = "must match the name of an entry in `spec.resourceClaims`";
            name.invalid_as(errors, name.text(), words);
        }
        if !seen.insert(name.text()) {
            name.duplicate(errors);
        }
        let claim = status.field("resourceClaimName");
        if claim.is_set() {
            claim.rule(errors, names::is_dns1123_subdomain);
        }
    }
}

fn extended_claim(at: &Field<'_, '_>, spec: &Field<'_, '_>, errors: &mut ErrorList) {
    if !at.is_set() {
        return;
    }
    let containers: Vec<&Value> = ["initContainers", "containers"]
        .iter()
        .flat_map(|list| spec.get(list).as_array().unwrap_or_default())
        .collect();
    let mappings = at.field("requestMappings");
    if mappings.array().is_empty() {
        mappings.required(errors, "at least one request mapping is required");
    }
    let mut seen: SmallSet<[&str; 3]> = SmallSet::new();
    for mapping in mappings.items() {
        let container = mapping.field("containerName");
        let resource = mapping.field("resourceName");
        match containers.iter().find(|c| c.str_at(&["name"]) == Some(container.text())) {
            None => {
                let words = "must match the name of an entry in spec.initContainers.name or \
                             spec.containers.name";
                container.invalid_as(errors, container.text(), words);
            }
            Some(found) => {
                let requests = found.at(&["resources", "requests", resource.text()]);
                if requests.is_none() || !resources::is_extended(resource.text()) {
                    let words = "must match the extended resource name of an entry in \
                                 spec.initContainers.resources.requests or \
                                 spec.containers.resources.requests";
                    resource.invalid_as(errors, resource.text(), words);
                }
            }
        }
        // Upstream's path of this error lacks the mapping.
        let request =
            Field { value: mapping.get("requestName"), path: at.path.field("requestName") };
        request.rule(errors, names::is_dns1123_label);
        if !seen.insert([container.text(), resource.text(), request.text()]) {
            container.duplicate(errors);
            resource.duplicate(errors);
            mapping.field("requestName").duplicate(errors);
        }
    }
    at.field("resourceClaimName").required_rule(errors, names::is_dns1123_subdomain);
}

/// Validates the IPs of a pod or host: at most one of each family.
fn addresses(list: &Field<'_, '_>, errors: &mut ErrorList) {
    for item in list.items() {
        errors.extend(new_ip(item.str("ip"), &item.path));
    }
    let texts: Vec<&str> = list.items().map(|item| item.str("ip")).collect();
    if texts.len() < 2 {
        return;
    }
    if let Some((index, text)) =
        texts.iter().enumerate().find(|(_, text)| ip::parse_ip(text).is_none())
    {
        let words =
            format!("failed to check for dual stack with error:invalid IP[{index}]: {text}");
        errors.push(FieldError::internal(&list.path, &words));
    }
    let count = |is_v4: bool| {
        texts.iter().filter(|t| ip::parse_ip(t).is_some_and(|ip| ip.is_ipv4() == is_v4)).count()
    };
    if (count(true), count(false), texts.len()) != (1, 1, 2) {
        // The message shows the Go type.
        let shown: Vec<String> =
            texts.iter().map(|text| format!("{{\"IP\":{}}}", quote(text))).collect();
        let words = "may specify no more than one IP for each IP family";
        let error = FieldError::invalid(&list.path, Value::Null, words);
        errors.push(FieldError { value: Some(format!("[{}]", shown.join(","))), ..error });
    }
}

fn host_addresses(status: &Field<'_, '_>, errors: &mut ErrorList) {
    let list = status.field("hostIPs");
    if let Some(first) = list.items().next() {
        let ip = first.field("ip");
        if ip.text() != status.str("hostIP") {
            ip.invalid_as(errors, ip.text(), "must be equal to `hostIP`");
        }
    }
    addresses(&list, errors);
}

/// Validates the user of a container's first process.
fn user(status: &Field<'_, '_>, is_windows: bool, errors: &mut ErrorList) {
    let user = status.field("user");
    let linux = user.field("linux");
    if !linux.is_set() {
        return;
    }
    if is_windows {
        return linux.forbidden(errors, "cannot be set for a windows pod");
    }
    for name in ["uid", "gid"] {
        linux.field(name).in_range(errors, 0, ID_MAX);
    }
    for group in linux.field("supplementalGroups").items() {
        group.in_range(errors, 0, ID_MAX);
    }
}

/// Validates `allocatedResourcesStatus`.
fn allocated(status: &Field<'_, '_>, containers: &[Value], errors: &mut ErrorList) {
    let named = containers.iter().find(|c| c.str_at(&["name"]) == Some(status.str("name")));
    for resource in status.field("allocatedResourcesStatus").items() {
        let name = resource.field("name");
        if let Some(container) = named {
            match name.text().strip_prefix("claim:") {
                Some(claim) if !has_claim(container, claim) => {
                    let words = "must match one of the container's resource claims in a format \
                                 'claim:<claimName>/<request>' or 'claim:<claimName>' if request \
                                 is empty";
                    name.invalid_as(errors, name.text(), words);
                }
                None if container.at(&["resources", "requests", name.text()]).is_none() => {
                    let words = "must match one of the container's resource requests";
                    name.invalid_as(errors, name.text(), words);
                }
                _ => {}
            }
        }
        let mut seen: SmallSet<&str> = SmallSet::new();
        for device in resource.field("resources").items() {
            device.field("health").one_of(errors, HEALTHS);
            let id = device.field("resourceID");
            if !seen.insert(id.text()) {
                id.duplicate(errors);
            }
        }
    }
}

fn has_claim(container: &Value, text: &str) -> bool {
    container.array_at(&["resources", "claims"]).iter().any(|claim| {
        let name = claim.str_at(&["name"]).unwrap_or_default();
        match claim.str_at(&["request"]).unwrap_or_default() {
            "" => text == name,
            request => text.strip_prefix(name).and_then(|t| t.strip_prefix('/')) == Some(request),
        }
    })
}
