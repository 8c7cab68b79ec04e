//! Ports of nodes that services are given.

use super::pool::{PortPool, Ports};
use super::{Services, Taking};
use keelson_kinds::service::families::into_result;
use keelson_meta::{ErrorList, Failure, FieldError, Object, Path, Reason, Status, Value};
use keelson_registry::{Kind, Registry, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// The port before the first one that a dry run shows.
const DRY_RUN_PORT: u16 = 32_768;

/// What a write of a service does to the ports.
#[derive(Clone, Debug, Default)]
pub(super) struct Change {
    /// Those that it took.
    pub taken: Vec<u16>,
    /// Those that the service no longer needs once it is stored.
    pub freed: Vec<u16>,
    /// How it takes them.
    taking: Taking,
}

/// The ports of nodes that a service has.
pub(super) fn of(service: &Object) -> Vec<u16> {
    let ports = service.array_at(&["spec", "ports"]).iter();
    let health = service.int_at(&["spec", "healthCheckNodePort"]);
    let numbers = ports.map(|port| port.int_at(&["nodePort"])).chain([health]).flatten();
    numbers.filter_map(|number| u16::try_from(number).ok()).filter(|port| *port != 0).collect()
}

/// How often a port that no service has is seen before it is freed: a service that is being stored has
/// its port already.
const LEAK_ROUNDS: usize = 3;

/// Ports that are taken and that no service has, and how often that was seen.
#[derive(Debug, Default)]
pub struct PortLeaks {
    seen: BTreeMap<u16, usize>,
}

impl Services {
    /// Takes the ports that services have, should they count as free: those of the services that can
    /// be read. Ports of another range make way for them once all can be.
    pub(crate) async fn note_ports(&self, registry: &Registry) -> Result<(), Failure> {
        let kind = registry.target("", "services", "", "").kind;
        let stored = ports_of_services(&kind, &registry.cached_all(&kind))?;
        if registry.all(&kind).is_ok() {
            let mut ports = self.ports.none();
            stored.iter().for_each(|port| ports.insert(*port));
            self.ports.replace_other_range(ports).await?;
        }
        let note = |ports: &mut Ports| {
            stored.iter().for_each(|port| ports.insert(*port));
            Ok(())
        };
        self.ports.change_newest(note).await
    }

    /// One look for ports that are taken and that no service has, since a write was cut off; they are
    /// free after some looks (portallocator `controller/repair.go`).
    pub async fn free_leaked_ports(
        &self,
        registry: &Registry,
        leaks: &mut PortLeaks,
    ) -> Result<(), Failure> {
        registry.wait_for_latest().await?;
        self.note_ports(registry).await?;
        // In this order: a port that is taken later belongs to a service that is not looked at.
        let taken = self.ports.look(|ports| Ok(ports.clone())).await?;
        registry.wait_for_latest().await?;
        // Ports of a service that cannot be read would look as if nobody had them.
        let kind = registry.target("", "services", "", "").kind;
        let stored = ports_of_services(&kind, &registry.all(&kind)?)?;
        let leaked: BTreeSet<u16> = taken.iter().filter(|port| !stored.contains(port)).collect();
        leaks.seen.retain(|port, _| leaked.contains(port));
        for port in leaked {
            *leaks.seen.entry(port).or_default() += 1;
        }
        let due = leaks.seen.iter().filter(|(_, rounds)| **rounds > LEAK_ROUNDS);
        let due: Vec<u16> = due.map(|(port, _)| *port).collect();
        if !due.is_empty() {
            tracing::warn!(ports = ?due, "ports of nodes that no service has are free again");
            self.ports.give_back(&due).await;
        }
        Ok(())
    }
}

/// The ports of services that are stored.
fn ports_of_services(kind: &Kind, services: &Snapshot) -> Result<BTreeSet<u16>, Failure> {
    let mut ports = BTreeSet::new();
    for entry in services.range("", "") {
        ports.extend(of(&kind.decode(entry)?));
    }
    Ok(ports)
}

/// Gives a service that is new or changes the ports that it lacks. A dry run takes none.
pub(super) async fn claim(
    pool: &PortPool,
    service: &mut Object,
    old: Option<&Object>,
    taking: Taking,
) -> Result<Change, Failure> {
    let needs = |service: &Object| has_ports(service) || needs_health_check(service);
    if !needs(service) && !old.is_some_and(needs) {
        return Ok(Change::default());
    }
    let given = &*service;
    let work = |ports: &mut Ports| {
        let (mut service, mut change) = (given.clone(), Change { taking, ..Change::default() });
        match old {
            None => create(ports, &mut service, &mut change)?,
            Some(old) => update(ports, &mut service, old, &mut change)?,
        }
        Ok((service, change))
    };
    let (complete, change) = match taking {
        Taking::ForGood => pool.change(work).await?,
        Taking::DryRun | Taking::Trial => pool.look(work).await?,
    };
    *service = complete;
    Ok(change)
}

/// Ports of a new service.
fn create(pool: &mut Ports, service: &mut Object, change: &mut Change) -> Result<(), Failure> {
    if has_ports(service) {
        init(pool, service, change)?;
    }
    if needs_health_check(service) {
        claim_health_check(pool, service, change)?;
    }
    Ok(())
}

/// Ports of a service that changes.
fn update(
    pool: &mut Ports,
    service: &mut Object,
    old: &Object,
    change: &mut Change,
) -> Result<(), Failure> {
    let before = port_numbers(old);
    if has_ports(service) {
        extend(pool, service, &before, change)?;
    }
    let after = port_numbers(service);
    change.freed.extend(before.iter().filter(|port| !after.contains(port)));
    update_health_check(pool, service, old, change)
}

fn has_ports(service: &Object) -> bool {
    matches!(service.str_at(&["spec", "type"]), "NodePort" | "LoadBalancer")
}

/// Whether ports that the client leaves open are filled in.
fn fills_in(service: &Object) -> bool {
    let asked = service.at(&["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool);
    service.str_at(&["spec", "type"]) == "NodePort" || asked != Some(false)
}

fn needs_health_check(service: &Object) -> bool {
    service.str_at(&["spec", "type"]) == "LoadBalancer"
        && service.str_at(&["spec", "externalTrafficPolicy"]) == "Local"
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

fn set(service: &mut Object, index: usize, number: i64) {
    if let Some(Value::Object(port)) = ports_mut(service).get_mut(index) {
        port.insert("nodePort", number);
    }
}

/// Takes the port that the client wants at a place in the list.
fn take(
    pool: &mut Ports,
    service: &Object,
    index: usize,
    number: i64,
    change: &mut Change,
) -> Result<(), Failure> {
    // A number that is no port at all stands for one outside the range.
    let port = u16::try_from(number).unwrap_or(0);
    // As in kube-apiserver, a dry run does not look at the range.
    let unranged = change.taking != Taking::ForGood
        && !pool.range().contains(port)
        && !change.taken.contains(&port);
    if !unranged && let Err(why) = pool.take(port) {
        let mut errors = ErrorList::new();
        let spec = Path::new("spec");
        let ports = spec.field("ports");
        let place = ports.index(index);
        errors.push(FieldError::invalid(&place.field("nodePort"), number, &why));
        return into_result(service, errors);
    }
    change.taken.push(port);
    Ok(())
}

fn take_any(pool: &mut Ports, change: &mut Change) -> Result<u16, Failure> {
    if change.taking == Taking::DryRun {
        // As in kube-apiserver, no port of the range is shown, but one behind those at hand.
        let last = change.taken.iter().copied().max().unwrap_or(DRY_RUN_PORT);
        change.taken.push(last.saturating_add(1));
        return Ok(last.saturating_add(1));
    }
    let number = pool
        .take_any()
        .map_err(|why| Status::internal(format!("failed to allocate a nodePort: {why}")))?;
    change.taken.push(number);
    Ok(number)
}

/// Entries for the same port of the service (one a protocol) share a port of the nodes.
fn init(pool: &mut Ports, service: &mut Object, change: &mut Change) -> Result<(), Failure> {
    let fills_in = fills_in(service);
    let entries: Vec<(i64, i64)> = service
        .array_at(&["spec", "ports"])
        .iter()
        .map(|port| (port.int_at(&["port"]).unwrap_or(0), node_port(port)))
        .collect();
    let mut shared: Vec<(i64, i64)> = vec![];
    for (index, (port, given)) in entries.iter().copied().enumerate() {
        if given == 0 && !fills_in {
            continue;
        }
        let known = shared.iter().find(|(of, _)| *of == port).map(|(_, number)| *number);
        let number = match known {
            Some(known) if given == 0 || given == known => known,
            Some(_) => {
                take(pool, service, index, given, change)?;
                continue;
            }
            None => {
                let wanted = entries.iter().find(|(of, number)| *of == port && *number != 0);
                let number = match wanted {
                    Some((_, wanted)) => {
                        take(pool, service, index, *wanted, change)?;
                        *wanted
                    }
                    None => take_any(pool, change)?.into(),
                };
                shared.push((port, number));
                number
            }
        };
        set(service, index, number);
    }
    Ok(())
}

/// The place of the first port of nodes that an earlier entry of its protocol has, and what is said of it.
fn first_repeated(list: &[Value]) -> Option<(usize, String)> {
    let mut seen = BTreeSet::new();
    list.iter().enumerate().find_map(|(index, port)| {
        let (number, protocol) = (node_port(port), port.str_at(&["protocol"]).unwrap_or("TCP"));
        let repeated = number != 0 && !seen.insert((number, protocol));
        repeated.then(|| (index, format!("duplicate nodePort: {{{protocol} {number}}}")))
    })
}

fn extend(
    pool: &mut Ports,
    service: &mut Object,
    before: &[u16],
    change: &mut Change,
) -> Result<(), Failure> {
    let fills_in = fills_in(service);
    let list = service.array_at(&["spec", "ports"]);
    let entries: Vec<i64> = list.iter().map(node_port).collect();
    let repeated = first_repeated(list);
    for (index, given) in entries.into_iter().enumerate() {
        if let Some((at, why)) = &repeated
            && *at == index
        {
            return Err(Status::new(Reason::Unknown, why));
        }
        if given == 0 {
            if fills_in {
                let number = take_any(pool, change)?;
                set(service, index, number.into());
            }
            continue;
        }
        let is_in = |ports: &[u16]| ports.iter().any(|port| i64::from(*port) == given);
        if !is_in(before) && !is_in(&change.taken) {
            take(pool, service, index, given, change)?;
        }
    }
    Ok(())
}

fn claim_health_check(
    pool: &mut Ports,
    service: &mut Object,
    change: &mut Change,
) -> Result<(), Failure> {
    let wanted = service.int_at(&["spec", "healthCheckNodePort"]).unwrap_or(0);
    if wanted == 0 {
        let number = take_any(pool, change)?;
        service.object_mut("spec").insert("healthCheckNodePort", i64::from(number));
        return Ok(());
    }
    let number = u16::try_from(wanted).unwrap_or(0);
    pool.take(number).map_err(|why| {
        Status::internal(format!(
            "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
        ))
    })?;
    change.taken.push(number);
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
        (false, true) => claim_health_check(pool, service, change),
        (true, false) => {
            change.freed.extend(u16::try_from(number(old)).ok());
            service.object_mut("spec").remove("healthCheckNodePort");
            Ok(())
        }
        (true, true) if number(service) != number(old) => {
            let mut errors = ErrorList::new();
            let spec = Path::new("spec");
            let path = spec.field("healthCheckNodePort");
            errors.push(FieldError::invalid(&path, number(service), "field is immutable"));
            into_result(service, errors)
        }
        _ => Ok(()),
    }
}
