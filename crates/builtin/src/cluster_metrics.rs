//! What stored objects say about the cluster, read when it is scraped: available APIServices,
//! addresses of services.

use keelson_meta::ip::{self, Cidr};
use keelson_meta::{Object, Value};
use keelson_metrics::{Description, Exposition};
use keelson_registry::Registry;
use keelson_resources::Kind;
use std::net::IpAddr;

pub(crate) fn write(registry: &Registry, out: &mut Exposition) {
    let mut text = out.family(&UNAVAILABLE);
    for service in objects(registry, "apiregistration.k8s.io", "apiservices") {
        text.value(&[service.name()], f64::from(u8::from(!is_available(&service))));
    }
    drop(text);
    let ranges = ranges(registry);
    let addresses = addresses(registry);
    let in_use: Vec<(String, usize, f64)> = ranges
        .iter()
        .map(|range| {
            let used = addresses.iter().filter(|address| range.contains(**address)).count();
            (range.to_string(), used, (hosts(range) - used as f64).max(0.0))
        })
        .collect();
    let mut text = out.family(&ALLOCATED);
    for (range, used, _) in &in_use {
        text.value(&[range], *used as f64);
    }
    drop(text);
    let mut text = out.family(&AVAILABLE);
    for (range, _, free) in &in_use {
        text.value(&[range], *free);
    }
}

/// Returns all objects of a kind that can be read.
fn objects(registry: &Registry, group: &str, resource: &str) -> Vec<Object> {
    let read = |kind: &Kind| {
        let stored = registry.cache.snapshot(&registry.objects(kind));
        stored.range("", "").filter_map(|entry| kind.decode(entry).ok()).collect()
    };
    registry.kind(group, resource).map(|kind| read(&kind)).unwrap_or_default()
}

fn is_available(service: &Object) -> bool {
    service.array_at(&["status", "conditions"]).iter().any(|condition| {
        let is = |member: &str, wanted: &str| {
            condition.get(member).and_then(Value::as_str).is_some_and(|text| text == wanted)
        };
        is("type", "Available") && is("status", "True")
    })
}

/// Returns the ranges of cluster IPs: those of the flags, and those of ServiceCIDRs.
fn ranges(registry: &Registry) -> Vec<Cidr> {
    let service_cidrs = objects(registry, "networking.k8s.io", "servicecidrs");
    let stored = service_cidrs
        .iter()
        .flat_map(|range| range.array_at(&["spec", "cidrs"]))
        .filter_map(Value::as_str);
    let given = registry.options.service_ranges.iter().map(String::as_str);
    let mut ranges: Vec<Cidr> = vec![];
    for range in given.chain(stored).filter_map(ip::parse_cidr) {
        if !ranges.contains(&range) {
            ranges.push(range);
        }
    }
    ranges
}

/// Returns the addresses of all services: the names of IPAddresses.
fn addresses(registry: &Registry) -> Vec<IpAddr> {
    let Some(kind) = registry.kind("networking.k8s.io", "ipaddresses") else { return vec![] };
    let stored = registry.cache.snapshot(&registry.objects(&kind));
    stored.range("", "").filter_map(|entry| ip::parse_ip(entry.name())).collect()
}

/// Returns how many addresses of a range services can have: not that of the network, nor that of
/// broadcasts.
fn hosts(range: &Cidr) -> f64 {
    let (bits, reserved) = if range.network().is_ipv4() { (32, 2.0) } else { (128, 1.0) };
    let bits = bits - i32::from(range.prefix_bits);
    (2_f64.powi(bits) - reserved).max(0.0)
}

static UNAVAILABLE: Description = Description::gauge(
    "aggregator_unavailable_apiservice",
    "[ALPHA] 1 for an APIService that is not available, 0 for one that is.",
    &["name"],
);

static ALLOCATED: Description = Description::gauge(
    "kube_apiserver_clusterip_allocator_allocated_ips",
    "[ALPHA] Cluster IPs that services have, by range.",
    &["cidr"],
);

static AVAILABLE: Description = Description::gauge(
    "kube_apiserver_clusterip_allocator_available_ips",
    "[ALPHA] Cluster IPs that are free, by range.",
    &["cidr"],
);
