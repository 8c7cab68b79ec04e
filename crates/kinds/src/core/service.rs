//! Services, except for the allocation of addresses and ports.

mod addresses;
pub mod families;
mod port_range;
mod ports;
mod warnings;

pub use port_range::PortRange;

use crate::check::{Field, child, children, default, default_empty, new_ip};
use crate::gates;
use crate::strategy::Strategy;
use keelson_meta::{ErrorList, Feature, FieldError, Map, Object, Path, SmallSet, Value, ip, names};

/// The default `timeoutSeconds` of client IP affinity.
const AFFINITY_SECONDS: i64 = 10_800;
const AFFINITY_SECONDS_MAX: i64 = 86_400;
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
const ONLY_LOAD_BALANCER: &str = "may only be used when `type` is 'LoadBalancer'";

/// Where traffic may be sent: to all endpoints, or to those of the same node.
const POLICIES: &[&str] = &["Cluster", "Local"];

/// Services.
pub(super) const fn service(base: Strategy) -> Strategy {
    Strategy {
        name_rule: |name, prefix| match gates::is_on(Feature::RelaxedServiceNameValidation) {
            true => names::name_is_dns_label(name, prefix),
            false => names::name_is_dns1035_label(name, prefix),
        },
        default: default_service,
        prepare_create: |service| {
            addresses::normalize(service, None);
            drop_external_name_fields(service);
        },
        prepare_update,
        validate,
        validate_status: |new, old| {
            let mut errors = ErrorList::new();
            load_balancer_status(new, old, &mut errors);
            errors
        },
        warnings: |new, _| warnings::of(new),
        ..base
    }
}

/// Validates the cluster IPs and IP families of a service.
pub fn validate_addresses(service: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    addresses::validate(&Field::of(service, "spec"), old, &mut errors);
    errors
}

fn default_service(service: &mut Object) {
    let spec = service.object_mut("spec");
    default_empty(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "ClientIP" => {
            let client = spec.object_at("sessionAffinityConfig").object_at("clientIP");
            default(client, "timeoutSeconds", AFFINITY_SECONDS);
        }
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        _ => {}
    }
    default_empty(spec, "type", "ClusterIP");
    for port in children(spec, "ports") {
        default_empty(port, "protocol", "TCP");
        if let Some(number) = port.get("port").cloned() {
            default_empty(port, "targetPort", number);
        }
    }
    if is_external(spec) {
        default_empty(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(text(spec, "type"), "ClusterIP" | "NodePort" | "LoadBalancer") {
        default(spec, "internalTrafficPolicy", "Cluster");
    }
    if text(spec, "type") == "LoadBalancer" {
        default(spec, "allocateLoadBalancerNodePorts", true);
        let balancer = child(&mut service.root, "status").and_then(|s| child(s, "loadBalancer"));
        for point in balancer.into_iter().flat_map(|balancer| children(balancer, "ingress")) {
            if !text(point, "ip").is_empty() {
                default(point, "ipMode", "VIP");
            }
        }
    }
}

fn text<'m>(map: &'m Map, name: &str) -> &'m str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns whether clients outside the cluster can reach the service.
fn is_external(spec: &Map) -> bool {
    match text(spec, "type") {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => spec.get("externalIPs").is_some_and(|list| !list.is_empty()),
        _ => false,
    }
}

fn prepare_update(new: &mut Object, old: &Object) {
    addresses::keep_allocated(new, old);
    addresses::normalize(new, Some(old));
    drop_fields_of_old_type(new, old);
    drop_external_name_fields(new);
}

/// Drops the traffic policy of an ExternalName service. Upstream drops it after the validation, so
/// an unknown one stays, and is refused.
fn drop_external_name_fields(service: &mut Object) {
    let spec = service.object_mut("spec");
    if text(spec, "type") == "ExternalName"
        && POLICIES.contains(&text(spec, "internalTrafficPolicy"))
    {
        spec.remove("internalTrafficPolicy");
    }
}

/// Drops the fields that the new type of a service does not support, unless the client changed them
/// too.
fn drop_fields_of_old_type(new: &mut Object, old: &Object) {
    let Some(before) = old.get("spec").and_then(Value::as_object) else { return };
    let spec = new.object_mut("spec");
    let same = |spec: &Map, name: &str| spec.get(name) == before.get(name);
    let kind = text(spec, "type").to_owned();
    let was = text(before, "type");
    if was != "ExternalName" && kind == "ExternalName" {
        for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if same(spec, name) {
                spec.remove(name);
            }
        }
    }
    if matches!(was, "NodePort" | "LoadBalancer")
        && !matches!(kind.as_str(), "NodePort" | "LoadBalancer")
    {
        drop_node_ports(spec, before);
        if same(spec, "externalTrafficPolicy") && !is_external(spec) {
            spec.remove("externalTrafficPolicy");
        }
    }
    if was == "LoadBalancer" && kind != "LoadBalancer" {
        for name in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
            if same(spec, name) {
                spec.remove(name);
            }
        }
    }
    if checks_health(before) && !checks_health(spec) && same(spec, "healthCheckNodePort") {
        spec.remove("healthCheckNodePort");
    }
    if was == "ClusterIP" && kind == "ClusterIP" && !is_external(spec) && is_external(before) {
        spec.remove("externalTrafficPolicy");
    }
}

/// Returns whether a service has a port for the health checks of load balancers.
pub fn needs_health_check(service: &Object) -> bool {
    service.get("spec").and_then(Value::as_object).is_some_and(checks_health)
}

fn checks_health(spec: &Map) -> bool {
    text(spec, "type") == "LoadBalancer" && text(spec, "externalTrafficPolicy") == "Local"
}

/// Drops the node ports, unless one of them is new.
fn drop_node_ports(spec: &mut Map, before: &Map) {
    fn numbers(of: &Map) -> impl Iterator<Item = i64> {
        let ports = of.get("ports").and_then(Value::as_array).unwrap_or_default();
        ports.iter().filter_map(|port| port.int_at(&["nodePort"])).filter(|number| *number != 0)
    }
    let used: SmallSet<i64> = numbers(before).collect();
    if numbers(spec).all(|number| used.contains(&number)) {
        for port in children(spec, "ports") {
            port.remove("nodePort");
        }
    }
}

fn validate(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    if let Some(old) = old {
        update(&spec, old, &mut errors);
    }
    service_type(&spec, &mut errors);
    ports::all(&spec, &mut errors);
    spec.field("selector").labels(&mut errors);
    affinity(&spec, &mut errors);
    addresses::validate(&spec, old, &mut errors);
    external_addresses(&spec, &mut errors);
    let types = &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    spec.field("type").required_one_of(&mut errors, types);
    ports::collisions(&spec, old.is_none(), &mut errors);
    source_ranges(new, &spec, &mut errors);
    balancer(&spec, &mut errors);
    policies(&spec, &mut errors);
    errors
}

fn update(spec: &Field<'_, '_>, old: &Object, errors: &mut ErrorList) {
    let stored = Field::of(old, "spec");
    addresses::update(spec, &stored, errors);
    let class = spec.field("loadBalancerClass");
    let both = spec.str("type") == "LoadBalancer" && stored.str("type") == "LoadBalancer";
    if both && class.value != stored.get("loadBalancerClass") {
        class.invalid(errors, "may not change once set");
    }
    balancer_class(spec, errors);
}

/// Validates the load balancer class. An update validates it twice.
fn balancer_class(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let class = spec.field("loadBalancerClass");
    if !class.is_set() {
        return;
    }
    if spec.str("type") == "LoadBalancer" {
        class.rule(errors, names::is_qualified_name);
    } else {
        class.forbidden(errors, ONLY_LOAD_BALANCER);
    }
}

fn service_type(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    /// The port of the kubelet.
    const NODE_AGENT_PORT: i64 = 10_250;
    let kind = spec.str("type");
    let headless = addresses::is_headless(spec.value);
    let ports = spec.field("ports");
    if ports.array().is_empty() && !headless && kind != "ExternalName" {
        ports.required(errors, "");
    }
    if kind == "LoadBalancer" {
        for port in ports.items().filter(|port| port.int("port") == Some(NODE_AGENT_PORT)) {
            let words = "may not expose port 10250 externally since it is used by kubelet";
            port.invalid_as(errors, NODE_AGENT_PORT, words);
        }
    }
    if headless && matches!(kind, "LoadBalancer" | "NodePort") {
        let list = spec.path.field("clusterIPs");
        let words = format!("may not be set to 'None' for {kind} services");
        errors.push(FieldError::invalid(&list.index(0), "None", &words));
    }
    if kind == "ExternalName" {
        for name in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if !spec.get(name).is_empty() {
                let words = "may not be set for ExternalName services";
                spec.field(name).forbidden(errors, words);
            }
        }
        let name = spec.field("externalName");
        let text = name.text().strip_suffix('.').unwrap_or(name.text());
        if text.is_empty() {
            name.required(errors, "");
        }
        for why in names::is_dns1123_subdomain(text).iter().filter(|_| !text.is_empty()) {
            name.invalid_as(errors, text, why);
        }
    }
}

fn affinity(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let kind = spec.field("sessionAffinity");
    kind.required_one_of(errors, &["ClientIP", "None"]);
    let config = spec.field("sessionAffinityConfig");
    match kind.text() {
        "ClientIP" => {
            let client = config.field("clientIP");
            let seconds = client.field("timeoutSeconds");
            if !(1..=AFFINITY_SECONDS_MAX).contains(&seconds.number()) {
                let words = format!("must be greater than 0 and less than {AFFINITY_SECONDS_MAX}");
                seconds.invalid(errors, &words);
            }
        }
        "None" if config.is_set() => {
            config.forbidden(errors, "must not be set when session affinity is None");
        }
        _ => {}
    }
}

fn external_addresses(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    for at in spec.field("externalIPs").items() {
        let before = errors.len();
        at.rule(errors, ip::is_valid_ip);
        if errors.len() == before {
            super::endpoints::ordinary_address(&at, errors);
        }
    }
}

fn source_ranges(service: &Object, spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let is_balancer = spec.str("type") == "LoadBalancer";
    let ranges = Field {
        value: spec.get("loadBalancerSourceRanges"),
        path: spec.path.field("LoadBalancerSourceRanges"),
    };
    if !ranges.array().is_empty() {
        if !is_balancer {
            ranges.forbidden(errors, ONLY_LOAD_BALANCER);
        }
        for range in ranges.items() {
            for why in ip::is_valid_cidr(range.text().trim()) {
                range.invalid_as(errors, range.text().trim(), &why);
            }
        }
        return;
    }
    let Some(text) = service.annotation(SOURCE_RANGES) else { return };
    let metadata = Path::new("metadata");
    let annotations = metadata.field("annotations");
    let path = annotations.key(SOURCE_RANGES);
    if !is_balancer {
        errors.push(FieldError::forbidden(&path, ONLY_LOAD_BALANCER));
    }
    for range in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
        for why in ip::is_valid_cidr(range) {
            errors.push(FieldError::invalid(&path, range, &why));
        }
    }
}

fn balancer(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let allocates = spec.field("allocateLoadBalancerNodePorts");
    if spec.str("type") != "LoadBalancer" {
        if allocates.is_set() {
            allocates.forbidden(errors, ONLY_LOAD_BALANCER);
        }
    } else if !allocates.is_set() {
        allocates.required(errors, "");
    }
    balancer_class(spec, errors);
}

fn policies(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let outside = spec.field("externalTrafficPolicy");
    if spec.value.as_object().is_some_and(is_external) {
        outside.required_one_of(errors, POLICIES);
    } else if !outside.text().is_empty() {
        outside.invalid(errors, "may only be set for externally-accessible services");
    }
    let health = spec.field("healthCheckNodePort");
    let checks = spec.value.as_object().is_some_and(checks_health);
    if !checks && health.number() != 0 {
        let words = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is \
                     'Local'";
        health.invalid(errors, words);
    }
    let inside = spec.field("internalTrafficPolicy");
    let kind = spec.str("type");
    if !inside.is_set() && matches!(kind, "ClusterIP" | "NodePort" | "LoadBalancer") {
        inside.required(errors, "");
    }
    inside.one_of_if_set(errors, POLICIES);
    let distributions = &["PreferClose", "PreferSameZone", "PreferSameNode"];
    spec.field("trafficDistribution").one_of_if_set(errors, distributions);
}

fn load_balancer_status(new: &Object, old: Option<&Object>, errors: &mut ErrorList) {
    let status = Field::of(new, "status");
    let balancer = status.field("loadBalancer");
    let list = balancer.field("ingress");
    let stored = old.and_then(|old| old.at(&["status", "loadBalancer", "ingress"]));
    if !list.array().is_empty()
        && new.str_at(&["spec", "type"]) != "LoadBalancer"
        && stored != list.get_self()
    {
        return list.forbidden(errors, "may only be used when `spec.type` is 'LoadBalancer'");
    }
    ingress_points(&list, true, errors);
}

/// Validates `ingress` of a load balancer status.
pub(crate) fn ingress_points(list: &Field<'_, '_>, has_modes: bool, errors: &mut ErrorList) {
    for point in list.items() {
        let address = point.field("ip");
        match address.text() {
            "" => {}
            text if has_modes => errors.extend(new_ip(text, &address.path)),
            _ => address.rule(errors, ip::is_valid_ip),
        }
        let mode = point.field("ipMode");
        if has_modes {
            if !address.text().is_empty() && !mode.is_set() {
                mode.required(errors, "must be specified when `ip` is set");
            } else if address.text().is_empty() && mode.is_set() {
                mode.forbidden(errors, "may not be specified when `ip` is not set");
            } else {
                mode.one_of_if_set(errors, &["Proxy", "VIP"]);
            }
        }
        let host = point.field("hostname");
        if !host.text().is_empty() {
            host.rule(errors, names::is_dns1123_subdomain);
            if ip::parse_ip(host.text()).is_some() {
                host.invalid(errors, "must be a DNS name, not an IP address");
            }
        }
    }
}
