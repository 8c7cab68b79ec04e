//! Addresses that services are given, each an `IPAddress` object (registry `core/service/ipallocator`).

use super::{Taken, Taking};
use keelson_auth::Permit;
use keelson_kinds::service::families::{
    into_result, is_external_name, is_headless, keeps_families, texts,
};
use keelson_meta::ip::{self, Cidr};
use keelson_meta::{ErrorList, Failure, FieldError, Object, Path, Status, Value, value};
use keelson_registry::Registry;
use keelson_registry::options::{DeleteOptions, WriteOptions};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Who makes the objects that hold addresses.
const OWNER: &str = "kube-apiserver";
/// Addresses of a range that are looked at for one that is free.
const LOOKS_MAX: u128 = 1 << 20;

/// The addresses that a service has.
pub(super) fn of(service: &Object) -> Vec<String> {
    if is_external_name(service) || is_headless(service) {
        return vec![];
    }
    texts(service, "clusterIPs").into_iter().map(str::to_owned).collect()
}

pub(super) fn family_of(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "IPv4" } else { "IPv6" }
}

/// The families of the service ranges, the default one first.
pub(super) fn families(registry: &Registry) -> Vec<&'static str> {
    let ranges = registry.options.service_ranges.iter().filter_map(|range| ip::parse_cidr(range));
    ranges.map(|range| family_of(range.network())).collect()
}

/// The ranges of a family: those of the server's flags, and those of `ServiceCIDR` objects.
fn ranges(registry: &Registry, family: &str) -> Result<Vec<Cidr>, Failure> {
    let target = registry.target("networking.k8s.io", "servicecidrs", "", "");
    let objects = registry.all(&target.kind)?;
    let stored = objects.range("", "").map(|entry| target.kind.decode(entry));
    let stored: Vec<Object> = stored.collect::<Result<_, _>>()?;
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

/// Gives a service one address of each of its families.
pub(super) async fn claim(
    registry: &Registry,
    service: &mut Object,
    old: Option<&Object>,
    taking: Taking,
    claim: &mut Taken,
) -> Result<(), Failure> {
    let before = match old {
        Some(old) if is_headless(old) || keeps_families(service, old) => return Ok(()),
        Some(old) => of(old),
        None => vec![],
    };
    if is_external_name(service) {
        claim.freed = before;
        return Ok(());
    }
    if is_headless(service) {
        return Ok(());
    }
    let families: Vec<String> =
        texts(service, "ipFamilies").into_iter().map(str::to_owned).collect();
    let mut given: Vec<String> =
        texts(service, "clusterIPs").into_iter().map(str::to_owned).collect();
    claim.freed = before.iter().filter(|ip| !given.contains(ip)).cloned().collect();
    for (index, family) in families.iter().enumerate() {
        match given.get(index) {
            // One that the service has stays; the validation refuses another in its place.
            Some(_) if index < before.len() => {}
            Some(wanted) => take(registry, service, wanted, taking, claim).await?,
            None => given.push(take_any(registry, service, family, taking, claim).await?),
        }
    }
    let spec = service.object_mut("spec");
    if let Some(first) = given.first() {
        spec.insert("clusterIP", first.as_str());
    }
    spec.insert("clusterIPs", given.into_iter().map(Value::from).collect::<Vec<_>>());
    Ok(())
}

async fn take(
    registry: &Registry,
    service: &Object,
    wanted: &str,
    taking: Taking,
    claim: &mut Taken,
) -> Result<(), Failure> {
    let refused = |why: &str| {
        let mut errors = ErrorList::new();
        let given = service.array_at(&["spec", "clusterIPs"]).to_vec();
        let why = format!("failed to allocate IP {wanted}: {why}");
        errors.push(FieldError::invalid(&Path::new("spec").field("clusterIPs"), given, &why));
        into_result(service, errors)
    };
    let Some(address) = ip::parse_ip(wanted) else { return Ok(()) };
    let ranges = ranges(registry, family_of(address))?;
    let fits = |range: &&Cidr| {
        let (first, size) = hosts(range);
        range.contains(address) && offset(address).wrapping_sub(first) < size
    };
    if !ranges.iter().any(|range| fits(&range)) {
        return match ranges.first().filter(|_| taking == Taking::DryRun) {
            Some(range) => refused(&format!(
                "the provided IP ({address}) is not in the valid range. The range of valid IPs \
                 is {range}"
            )),
            None => refused("the provided network does not match the current range"),
        };
    }
    if taking != Taking::ForGood {
        return Ok(());
    }
    match make(registry, service, address).await {
        Ok(()) => {
            claim.taken.push(address.to_string());
            Ok(())
        }
        Err(status) if status.code == 409 => refused("provided IP is already allocated"),
        Err(status) => Err(status),
    }
}

/// Takes a free address. The lower end of a range is left to those who ask for an address by name,
/// as long as there are others.
async fn take_any(
    registry: &Registry,
    service: &Object,
    family: &str,
    taking: Taking,
    claim: &mut Taken,
) -> Result<String, Failure> {
    let kind = registry.target("networking.k8s.io", "ipaddresses", "", "").kind;
    let known = registry.objects(&kind);
    for range in ranges(registry, family)? {
        if taking == Taking::DryRun {
            return Ok(range.network().to_string());
        }
        let (first, size) = hosts(&range);
        let reserved = reserved(size);
        let upper = size - reserved;
        let start = u128::from_le_bytes(registry.clock.random()) % upper.max(1);
        for step in 0..size.min(LOOKS_MAX) {
            let is_upper = step < upper;
            let at = if is_upper { reserved + (start + step) % upper } else { step - upper };
            let address = address(family, first + at);
            if known.get(&address.to_string()).is_some() {
                continue;
            }
            if taking != Taking::ForGood {
                return Ok(address.to_string());
            }
            match make(registry, service, address).await {
                Ok(()) => {
                    claim.taken.push(address.to_string());
                    return Ok(address.to_string());
                }
                Err(status) if status.code == 409 => {}
                Err(status) => return Err(status),
            }
        }
    }
    Err(Status::internal("failed to allocate a serviceIP: range is full"))
}

/// Makes the object that holds an address.
pub(super) async fn make(
    registry: &Registry,
    service: &Object,
    address: IpAddr,
) -> Result<(), Failure> {
    let name = address.to_string();
    let held = value!({
        "metadata": {"name": (name.as_str()), "labels": {
            "ipaddress.kubernetes.io/ip-family": (family_of(address)),
            "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io"
        }},
        "spec": {"parentRef": {"resource": "services", "namespace": (service.namespace()),
            "name": (service.name())}}
    });
    let target = registry.target("networking.k8s.io", "ipaddresses", "", &name);
    let mut object = Object::from_value(held).unwrap_or_default();
    object.set_gvk(&target.schema().gvk);
    let options = WriteOptions { field_manager: OWNER.into(), ..WriteOptions::default() };
    let permit = Permit::internal("system:apiserver");
    registry.add(&permit, &target, object, &options).await.map(drop)
}

/// Deletes the objects that hold these addresses; what is gone already is no fault.
pub(super) async fn free(registry: &Registry, addresses: &[String]) {
    let permit = Permit::internal("system:apiserver");
    for name in addresses {
        let target = registry.target("networking.k8s.io", "ipaddresses", "", name);
        let done = registry.delete(&permit, &target, &DeleteOptions::default(), &mut vec![]).await;
        match done {
            Ok(_) => {}
            Err(status) if status.code == 404 => {}
            Err(status) => {
                tracing::warn!(address = name, %status.message, "an address stays taken");
            }
        }
    }
}

/// The first address of a range that can be given, as a number, and how many there are: neither the
/// one that names the range nor, for IPv4, the one that reaches all of it.
fn hosts(range: &Cidr) -> (u128, u128) {
    let network = offset(range.network());
    let (bits, last) = if range.network().is_ipv4() { (32, 1) } else { (128, 0) };
    let size = 1u128.checked_shl(bits - u32::from(range.prefix_bits)).unwrap_or(u128::MAX);
    (network + 1, size.saturating_sub(1 + last))
}

/// How many of the first addresses are given last: a sixteenth, at least 16, at most 256; none of a
/// range that has no more than those (KEP-3070).
fn reserved(size: u128) -> u128 {
    if size <= 16 { 0 } else { (size / 16).clamp(16, 256) }
}

fn offset(address: IpAddr) -> u128 {
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
    fn the_ends_of_a_range_are_not_given() {
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
