//! Allocates node ports and health check node ports of services (registry
//! `core/service/portallocator`).

use super::pool::{PortPool, Ports};
use super::{Mode, Services};
use keelson_kinds::service::families::into_result;
use keelson_kinds::service::needs_health_check;
use keelson_meta::{ErrorList, Failure, FieldError, Object, Path, Reason, Status, Value};
use keelson_registry::{Registry, Snapshot};
use keelson_resources::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// The port before the first one that a dry run returns.
const DRY_RUN_PORT: u16 = 32_768;

/// The effect of a write of a service on the node ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    /// Ports that were allocated for the write.
    pub allocated: Vec<u16>,
    /// Ports to release once the service is stored.
    pub released: Vec<u16>,
    mode: Mode,
    /// Where the next search for a free port starts.
    random: u128,
}

impl Change {
    /// Returns the next number of a sequence (the upper bits of a linear congruential generator).
    fn next_random(&mut self) -> u128 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.random >> 64
    }
}

/// Returns the node ports of a service, including the health check node port.
pub(super) fn of(service: &Object) -> Vec<u16> {
    let ports = service.array_at(&["spec", "ports"]).iter();
    let health = service.int_at(&["spec", "healthCheckNodePort"]);
    let numbers = ports.map(|port| port.int_at(&["nodePort"])).chain([health]).flatten();
    numbers.filter_map(|number| u16::try_from(number).ok()).filter(|port| *port != 0).collect()
}

/// Number of repairs that find a port leaked before it is released. A service that is being stored
/// has its port already.
const LEAK_ROUNDS: usize = 3;

/// Allocated ports that no service has.
#[derive(Debug, Default)]
pub struct PortLeaks {
    /// The number of consecutive repairs that have found each port leaked.
    rounds: BTreeMap<u16, usize>,
}

impl Services {
    /// Marks the ports of stored services as allocated. Unreadable services are skipped. A bitmap
    /// of another range is replaced if all services are readable.
    pub(crate) async fn allocate_stored_ports(&self, registry: &Registry) -> Result<(), Failure> {
        let kind = registry.target("", "services", "", "").kind;
        let stored = ports_of_services(&kind, &registry.cached_all(&kind))?;
        if registry.all(&kind).is_ok() {
            let mut ports = self.ports.empty();
            stored.iter().for_each(|port| ports.insert(*port));
            self.ports.replace_other_range(ports).await?;
        }
        let insert = |ports: &mut Ports| {
            stored.iter().for_each(|port| ports.insert(*port));
            Ok(())
        };
        let updated = self.ports.update_newest(insert).await;
        self.ports.count(registry);
        updated
    }

    /// Finds allocated ports that no service has, which interrupted writes leave, and releases
    /// those that were found more than [`LEAK_ROUNDS`] times (portallocator
    /// `controller/repair.go`).
    pub async fn free_leaked_ports(
        &self,
        registry: &Registry,
        leaks: &mut PortLeaks,
    ) -> Result<(), Failure> {
        registry.wait_for_latest().await?;
        self.allocate_stored_ports(registry).await?;
        // The bitmap is read before the services, so that no port of a newer service counts as
        // leaked.
        let allocated = self.ports.simulate(|ports| Ok(ports.clone())).await?;
        // An unreadable service is an error: its ports would count as leaked.
        let kind = registry.target("", "services", "", "").kind;
        registry.wait_for_latest_of(&kind).await?;
        let stored = ports_of_services(&kind, &registry.all(&kind)?)?;
        let leaked: BTreeSet<u16> =
            allocated.iter().filter(|port| !stored.contains(port)).collect();
        leaks.rounds.retain(|port, _| leaked.contains(port));
        for port in leaked {
            *leaks.rounds.entry(port).or_default() += 1;
        }
        let expired: Vec<u16> = leaks
            .rounds
            .iter()
            .filter(|(_, rounds)| **rounds > LEAK_ROUNDS)
            .map(|(port, _)| *port)
            .collect();
        if !expired.is_empty() {
            tracing::warn!(ports = ?expired, "releasing leaked node ports");
            self.ports.release(&expired).await;
        }
        Ok(())
    }
}

/// Returns the node ports of all services in a snapshot.
fn ports_of_services(kind: &Kind, services: &Snapshot) -> Result<BTreeSet<u16>, Failure> {
    let mut ports = BTreeSet::new();
    for entry in services.range("", "") {
        ports.extend(of(&kind.decode(entry)?));
    }
    Ok(ports)
}

/// Allocates the node ports that a new or updated service lacks, and sets them.
pub(super) async fn allocate(
    pool: &PortPool,
    service: &mut Object,
    old: Option<&Object>,
    mode: Mode,
    random: u128,
) -> Result<Change, Failure> {
    let needs = |service: &Object| needs_node_ports(service) || needs_health_check(service);
    if !needs(service) && !old.is_some_and(needs) {
        return Ok(Change::default());
    }
    let original = &*service;
    let allocate = |ports: &mut Ports| {
        let mut change = Change { mode, random, ..Change::default() };
        let mut service = original.clone();
        match old {
            None => create(ports, &mut service, &mut change)?,
            Some(old) => update(ports, &mut service, old, &mut change)?,
        }
        Ok((service, change))
    };
    let (updated, change) = match mode {
        Mode::Allocate => pool.update(allocate).await?,
        Mode::DryRun | Mode::Check => pool.simulate(allocate).await?,
    };
    *service = updated;
    Ok(change)
}

/// Allocates the ports of a new service.
fn create(pool: &mut Ports, service: &mut Object, change: &mut Change) -> Result<(), Failure> {
    if needs_node_ports(service) {
        allocate_new(pool, service, change)?;
    }
    if needs_health_check(service) {
        allocate_health_check(pool, service, change)?;
    }
    Ok(())
}

/// Allocates and releases ports of an updated service.
fn update(
    pool: &mut Ports,
    service: &mut Object,
    old: &Object,
    change: &mut Change,
) -> Result<(), Failure> {
    let before = port_numbers(old);
    if needs_node_ports(service) {
        allocate_updated(pool, service, &before, change)?;
    }
    let after = port_numbers(service);
    change.released.extend(before.iter().filter(|port| !after.contains(port)));
    update_health_check(pool, service, old, change)
}

fn needs_node_ports(service: &Object) -> bool {
    matches!(service.str_at(&["spec", "type"]), "NodePort" | "LoadBalancer")
}

/// Returns whether node ports that the client omits are allocated.
fn allocates_omitted(service: &Object) -> bool {
    let allocates = service.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool);
    service.str_at(&["spec", "type"]) == "NodePort" || allocates != Some(false)
}

fn node_port(port: &Value) -> i64 {
    port.int_at(&["nodePort"]).unwrap_or(0)
}

fn port_numbers(service: &Object) -> Vec<u16> {
    let ports = service.array_at(&["spec", "ports"]).iter().map(node_port);
    ports.filter_map(|port| u16::try_from(port).ok()).filter(|port| *port != 0).collect()
}

fn ports_mut(service: &mut Object) -> &mut [Value] {
    match service.object_mut("spec").get_mut("ports") {
        Some(Value::Array(ports)) => ports,
        _ => &mut [],
    }
}

fn set_node_port(service: &mut Object, index: usize, number: i64) {
    if let Some(Value::Object(port)) = ports_mut(service).get_mut(index) {
        port.insert("nodePort", number);
    }
}

/// Allocates the node port that the client requests for the service port at `index`.
fn allocate_requested(
    pool: &mut Ports,
    service: &Object,
    index: usize,
    number: i64,
    change: &mut Change,
) -> Result<(), Failure> {
    // An invalid number is treated as one outside the range.
    let port = u16::try_from(number).unwrap_or(0);
    // As in kube-apiserver, a dry run does not check the range.
    let skips_range = change.mode != Mode::Allocate
        && !pool.range().contains(port)
        && !change.allocated.contains(&port);
    if !skips_range && let Err(why) = pool.allocate(port) {
        let mut errors = ErrorList::new();
        let spec = Path::new("spec");
        let ports = spec.field("ports");
        let path = ports.index(index);
        errors.push(FieldError::invalid(&path.field("nodePort"), number, &why));
        return into_result(service, errors);
    }
    change.allocated.push(port);
    Ok(())
}

/// Allocates any free node port.
fn allocate_any(pool: &mut Ports, change: &mut Change) -> Result<u16, Failure> {
    if change.mode == Mode::DryRun {
        // As in kube-apiserver, the port is one beyond the range and unique in the service.
        let last = change.allocated.iter().copied().max().unwrap_or(DRY_RUN_PORT);
        change.allocated.push(last.saturating_add(1));
        return Ok(last.saturating_add(1));
    }
    let number = pool
        .allocate_any(change.next_random())
        .map_err(|why| Status::internal(format!("failed to allocate a nodePort: {why}")))?;
    change.allocated.push(number);
    Ok(number)
}

/// Allocates the node ports of a new service. Entries with the same service port and different
/// protocols share a node port.
fn allocate_new(
    pool: &mut Ports,
    service: &mut Object,
    change: &mut Change,
) -> Result<(), Failure> {
    let allocates_omitted = allocates_omitted(service);
    let entries: Vec<(i64, i64)> = service
        .array_at(&["spec", "ports"])
        .iter()
        .map(|port| (port.int_at(&["port"]).unwrap_or(0), node_port(port)))
        .collect();
    let mut shared: Vec<(i64, i64)> = vec![];
    for (index, (port, requested)) in entries.iter().copied().enumerate() {
        if requested == 0 && !allocates_omitted {
            continue;
        }
        let existing = shared.iter().find(|(other, _)| *other == port).map(|(_, number)| *number);
        let number = match existing {
            Some(existing) if requested == 0 || requested == existing => existing,
            Some(_) => {
                allocate_requested(pool, service, index, requested, change)?;
                continue;
            }
            None => {
                let first = entries.iter().find(|(other, number)| *other == port && *number != 0);
                let number = match first {
                    Some((_, first)) => {
                        allocate_requested(pool, service, index, *first, change)?;
                        *first
                    }
                    None => allocate_any(pool, change)?.into(),
                };
                shared.push((port, number));
                number
            }
        };
        set_node_port(service, index, number);
    }
    Ok(())
}

/// Returns the index of the first entry that repeats node port and protocol of an earlier one, and
/// the error message.
fn first_duplicate(list: &[Value]) -> Option<(usize, String)> {
    let mut seen = BTreeSet::new();
    list.iter().enumerate().find_map(|(index, port)| {
        let number = node_port(port);
        let protocol = port.str_at(&["protocol"]).unwrap_or("TCP");
        let duplicate = number != 0 && !seen.insert((number, protocol));
        duplicate.then(|| (index, format!("duplicate nodePort: {{{protocol} {number}}}")))
    })
}

/// Allocates the node ports of an updated service; `before` are its current ones.
fn allocate_updated(
    pool: &mut Ports,
    service: &mut Object,
    before: &[u16],
    change: &mut Change,
) -> Result<(), Failure> {
    let allocates_omitted = allocates_omitted(service);
    let list = service.array_at(&["spec", "ports"]);
    let entries: Vec<i64> = list.iter().map(node_port).collect();
    let duplicate = first_duplicate(list);
    for (index, requested) in entries.into_iter().enumerate() {
        if let Some((duplicate_index, why)) = &duplicate
            && *duplicate_index == index
        {
            return Err(Status::new(Reason::Unknown, why));
        }
        if requested == 0 {
            if allocates_omitted {
                let number = allocate_any(pool, change)?;
                set_node_port(service, index, number.into());
            }
            continue;
        }
        let is_in = |ports: &[u16]| ports.iter().any(|port| i64::from(*port) == requested);
        if !is_in(before) && !is_in(&change.allocated) {
            allocate_requested(pool, service, index, requested, change)?;
        }
    }
    Ok(())
}

/// Allocates the health check node port, requested or any.
fn allocate_health_check(
    pool: &mut Ports,
    service: &mut Object,
    change: &mut Change,
) -> Result<(), Failure> {
    let requested = service.int_at(&["spec", "healthCheckNodePort"]).unwrap_or(0);
    if requested == 0 {
        let number = allocate_any(pool, change)?;
        service.object_mut("spec").insert("healthCheckNodePort", i64::from(number));
        return Ok(());
    }
    let number = u16::try_from(requested).unwrap_or(0);
    pool.allocate(number).map_err(|why| {
        Status::internal(format!(
            "failed to allocate requested HealthCheck NodePort {requested}: {why}"
        ))
    })?;
    change.allocated.push(number);
    Ok(())
}

fn update_health_check(
    pool: &mut Ports,
    service: &mut Object,
    old: &Object,
    change: &mut Change,
) -> Result<(), Failure> {
    let number = |service: &Object| service.int_at(&["spec", "healthCheckNodePort"]).unwrap_or(0);
    match (needs_health_check(old), needs_health_check(service)) {
        (false, true) => allocate_health_check(pool, service, change),
        (true, false) => {
            change.released.extend(u16::try_from(number(old)).ok());
            service.object_mut("spec").remove("healthCheckNodePort");
            Ok(())
        }
        (true, true) if number(service) != number(old) => {
            let mut errors = ErrorList::new();
            let spec = Path::new("spec");
            let path = spec.field("healthCheckNodePort");
            errors.push(FieldError::forbidden(&path, "field is immutable"));
            into_result(service, errors)
        }
        _ => Ok(()),
    }
}
