//! Allocates cluster IPs; each is an `IPAddress` object (registry `core/service/ipallocator`).

use super::{Allocations, Mode};
use keelson_auth::Permit;
use keelson_kinds::service::families::{
    into_result, is_external_name, is_headless, keeps_families, texts,
};
use keelson_meta::ip::{self, Cidr};
use keelson_meta::{ErrorList, Failure, FieldError, Object, Path, Status, Value, value};
use keelson_registry::metrics::AllocationWay;
use keelson_registry::options::{DeleteOptions, WriteOptions};
use keelson_registry::{Registry, Target};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

const FIELD_MANAGER: &str = "kube-apiserver";
/// Maximum addresses of a range that are tried to find a free one.
const TRIES_MAX: u128 = 1 << 20;

/// Returns the cluster IPs of a service.
pub(super) fn of(service: &Object) -> Vec<String> {
    if is_external_name(service) || is_headless(service) {
        return vec![];
    }
    texts(service, "clusterIPs").into_iter().map(str::to_owned).collect()
}

pub(super) fn family_of(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// Returns the IP families of the server's service ranges, the default one first.
pub(super) fn families(registry: &Registry) -> Vec<&'static str> {
    let ranges = registry.options.service_ranges.iter().filter_map(|range| ip::parse_cidr(range));
    ranges.map(|range| family_of(range.network())).collect()
}

/// Returns the ranges of a family: those in the server's flags and those in `ServiceCIDR` objects.
fn ranges(registry: &Registry, family: &str) -> Result<Vec<Cidr>, Failure> {
    let target = registry.target("networking.k8s.io", "servicecidrs", "", "");
    let objects = registry.all(&target.kind)?;
    let stored: Vec<Object> =
        objects.range("", "").map(|entry| target.kind.decode(entry)).collect::<Result<_, _>>()?;
    let stored: Vec<String> = stored
        .iter()
        .filter(|cidr| cidr.deletion_timestamp().is_none())
        .flat_map(|cidr| {
            let texts = cidr.array_at(&["spec", "cidrs"]).iter().filter_map(Value::as_str);
            texts.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let mut ranges: Vec<Cidr> = vec![];
    for text in registry.options.service_ranges.iter().chain(&stored) {
        let range = ip::parse_cidr(text).filter(|range| family_of(range.network()) == family);
        if let Some(range) = range.filter(|range| !ranges.contains(range)) {
            ranges.push(range);
        }
    }
    Ok(ranges)
}

/// Allocates an address for each IP family of a service, and sets `clusterIP` and `clusterIPs`.
pub(super) async fn allocate(
    registry: &Registry,
    service: &mut Object,
    old: Option<&Object>,
    mode: Mode,
    allocations: &mut Allocations,
) -> Result<(), Failure> {
    let before = match old {
        Some(old) if is_headless(old) || keeps_families(service, old) => return Ok(()),
        Some(old) => of(old),
        None => vec![],
    };
    if is_external_name(service) {
        allocations.released = before;
        return Ok(());
    }
    if is_headless(service) {
        return Ok(());
    }
    let families: Vec<String> =
        texts(service, "ipFamilies").into_iter().map(str::to_owned).collect();
    let mut ips: Vec<String> =
        texts(service, "clusterIPs").into_iter().map(str::to_owned).collect();
    allocations.released = before.iter().filter(|ip| !ips.contains(ip)).cloned().collect();
    for (index, family) in families.iter().enumerate() {
        match ips.get(index) {
            // The service has this address already; validation rejects a change.
            Some(_) if index < before.len() => {}
            Some(requested) => {
                allocate_requested(registry, service, requested, mode, allocations).await?;
            }
            None => ips.push(allocate_any(registry, service, family, mode, allocations).await?),
        }
    }
    let spec = service.object_mut("spec");
    if let Some(first) = ips.first() {
        spec.insert("clusterIP", first.as_str());
    }
    spec.insert("clusterIPs", ips.into_iter().map(Value::from).collect::<Vec<_>>());
    Ok(())
}

/// Allocates an address that the client requests.
async fn allocate_requested(
    registry: &Registry,
    service: &Object,
    requested: &str,
    mode: Mode,
    allocations: &mut Allocations,
) -> Result<(), Failure> {
    let invalid = |why: &str| {
        let mut errors = ErrorList::new();
        let ips = service.array_at(&["spec", "clusterIPs"]).to_vec();
        let why = format!("failed to allocate IP {requested}: {why}");
        errors.push(FieldError::invalid(&Path::new("spec").field("clusterIPs"), ips, &why));
        into_result(service, errors)
    };
    let Some(address) = ip::parse_ip(requested) else { return Ok(()) };
    let ranges = ranges(registry, family_of(address))?;
    let is_host = |range: &&Cidr| {
        let (first, size) = hosts(range);
        range.contains(address) && to_number(address).wrapping_sub(first) < size
    };
    if !ranges.iter().any(|range| is_host(&range)) {
        return match ranges.first().filter(|_| mode == Mode::DryRun) {
            Some(range) => invalid(&format!(
                "the provided IP ({address}) is not in the valid range. The range of valid IPs \
                 is {range}"
            )),
            None => invalid("the provided network does not match the current range"),
        };
    }
    if mode != Mode::Allocate {
        return Ok(());
    }
    let begun = Instant::now();
    let created = create(registry, service, address).await;
    if let Some(range) = ranges.iter().find(is_host) {
        let range = range.to_string();
        let took = begun.elapsed();
        let is_done = created.is_ok();
        registry.metrics.services.address(&range, AllocationWay::Static, is_done, took);
    }
    match created {
        Ok(()) => {
            allocations.allocated.push(address.to_string());
            Ok(())
        }
        Err(status) if status.code == 409 => invalid("provided IP is already allocated"),
        Err(status) => Err(status),
    }
}

/// Allocates a free address. The lower end of a range is used last, because it is reserved for
/// requested addresses (KEP-3070).
async fn allocate_any(
    registry: &Registry,
    service: &Object,
    family: &str,
    mode: Mode,
    allocations: &mut Allocations,
) -> Result<String, Failure> {
    let kind = registry.target("networking.k8s.io", "ipaddresses", "", "").kind;
    let addresses = registry.objects(&kind);
    for range in ranges(registry, family)? {
        if mode == Mode::DryRun {
            return Ok(range.network().to_string());
        }
        let begun = Instant::now();
        let counted = |is_done| {
            let range = range.to_string();
            let took = begun.elapsed();
            registry.metrics.services.address(&range, AllocationWay::Dynamic, is_done, took);
        };
        let (first, size) = hosts(&range);
        let reserved = reserved(size);
        let upper = size - reserved;
        let start = u128::from_le_bytes(registry.clock.random()) % upper.max(1);
        for step in 0..size.min(TRIES_MAX) {
            let is_upper = step < upper;
            let offset = if is_upper { reserved + (start + step) % upper } else { step - upper };
            let address = address(family, first + offset);
            if addresses.get(&address.to_string()).is_some() {
                continue;
            }
            if mode != Mode::Allocate {
                return Ok(address.to_string());
            }
            match create(registry, service, address).await {
                Ok(()) => {
                    counted(true);
                    allocations.allocated.push(address.to_string());
                    return Ok(address.to_string());
                }
                Err(status) if status.code == 409 => {}
                Err(status) => {
                    counted(false);
                    return Err(status);
                }
            }
        }
        counted(false);
    }
    Err(Status::internal("failed to allocate a serviceIP: range is full"))
}

/// Creates the `IPAddress` object of an address.
pub(super) async fn create(
    registry: &Registry,
    service: &Object,
    address: IpAddr,
) -> Result<(), Failure> {
    let name = address.to_string();
    let value = value!({
        "metadata": {"name": (name.as_str()), "labels": {
            "ipaddress.kubernetes.io/ip-family": (family_of(address)),
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"
        }},
        "spec": {"parentRef": {"resource": "services", "namespace": (service.namespace()),
            "name": (service.name())}}
    });
    let target = registry.target("networking.k8s.io", "ipaddresses", "", &name);
    let mut object = Object::from_value(value).unwrap_or_default();
    object.set_gvk(&target.schema().gvk);
    let options = WriteOptions { field_manager: FIELD_MANAGER.into(), ..WriteOptions::default() };
    let permit = Permit::internal("system:apiserver");
    registry.add(&permit, &target, object, &options).await.map(drop)
}

/// Deletes the `IPAddress` objects of these addresses, if they exist.
pub(super) async fn release(registry: &Registry, addresses: &[String]) {
    for name in addresses {
        delete(registry, registry.target("networking.k8s.io", "ipaddresses", "", name)).await;
    }
}

/// Deletes the Endpoints of a deleted service, so that another one of this name does not begin with
/// them (registry `core/service/storage`, `afterDelete`).
pub(super) async fn delete_endpoints(registry: &Registry, service: &Object) {
    delete(registry, registry.target("", "endpoints", service.namespace(), service.name())).await;
}

/// Deletes what belongs to a service, if it exists.
async fn delete(registry: &Registry, target: Target) {
    let permit = Permit::internal("system:apiserver");
    match registry.delete(&permit, &target, &DeleteOptions::default(), &mut vec![]).await {
        Ok(_) => {}
        Err(status) if status.code == 404 => {}
        Err(status) => {
            let name = &target.name;
            tracing::warn!(%name, %status.message, "not deleted with its service");
        }
    }
}

/// Returns the first host address of a range, as a number, and the number of hosts. The network
/// address is not a host, nor is the broadcast address of IPv4.
fn hosts(range: &Cidr) -> (u128, u128) {
    let network = to_number(range.network());
    let (bits, last) = if range.network().is_ipv4() { (32, 1) } else { (128, 0) };
    let size = 1u128.checked_shl(bits - u32::from(range.prefix_bits)).unwrap_or(u128::MAX);
    (network + 1, size.saturating_sub(1 + last))
}

/// Returns the number of addresses at the lower end that are used last (KEP-3070): a sixteenth, at
/// least 16 and at most 256; none in a range of up to 16 addresses.
fn reserved(size: u128) -> u128 {
    if size <= 16 { 0 } else { (size / 16).clamp(16, 256) }
}

fn to_number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    }
}

fn address(family: &str, number: u128) -> IpAddr {
    match family {
        "IPv4" => IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX))),
        _ => IpAddr::V6(Ipv6Addr::from(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_exclude_the_ends_of_a_range() {
        let range = ip::parse_cidr("10.0.0.0/24").expect("a range");
        let (first, size) = hosts(&range);
        assert_eq!((address("IPv4", first).to_string(), size), ("10.0.0.1".to_owned(), 254));
        assert_eq!(reserved(size), 16);
        let range = ip::parse_cidr("fd00::/112").expect("a range");
        let (first, size) = hosts(&range);
        assert_eq!((address("IPv6", first).to_string(), size), ("fd00::1".to_owned(), 65_535));
        assert_eq!(reserved(size), 256);
    }
}
