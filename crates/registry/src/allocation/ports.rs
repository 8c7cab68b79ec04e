//! Ports of nodes that services are given.

use super::Claim;
use super::families::refuse;
use keelson_meta::{ErrorList, Failure, FieldError, Object, Path, Status, Value};
use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// `--service-node-port-range`, by default.
const RANGE: RangeInclusive<u16> = 30_000..=32_767;

/// How far from each other the searches for a free port begin; a prime, so that they get everywhere.
const STRIDE: usize = 7_919;

/// The ports that are in use.
#[derive(Debug, Default)]
pub(crate) struct PortPool {
    used: Mutex<HashSet<u16>>,
}

impl PortPool {
    fn used(&self) -> MutexGuard<'_, HashSet<u16>> {
        // The set is whole after every step.
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the ports of a service that is stored.
    pub fn note(&self, service: &Object) {
        self.used().extend(of(service));
    }

    /// Takes a port that the client wants.
    fn take(&self, port: u16) -> Result<(), String> {
        if !RANGE.contains(&port) {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                RANGE.start(),
                RANGE.end()
            ));
        }
        match self.used().insert(port) {
            true => Ok(()),
            false => Err("provided port is already allocated".to_owned()),
        }
    }

    /// Takes any port; where the search begins differs from call to call, so that a port that was given
    /// back is not at once another service's.
    fn take_any(&self) -> Result<u16, String> {
        let mut used = self.used();
        let size = usize::from(RANGE.end() - RANGE.start()) + 1;
        let first = used.len().wrapping_mul(STRIDE) % size;
        let mut ports = RANGE.chain(RANGE).skip(first).take(size);
        let port = ports.find(|port| !used.contains(port));
        let port = port.ok_or_else(|| "range is full".to_owned())?;
        used.insert(port);
        Ok(port)
    }

    /// Frees ports.
    pub fn give_back(&self, ports: &[u16]) {
        let mut used = self.used();
        for port in ports {
            used.remove(port);
        }
    }
}

/// The ports of nodes that a service has.
pub(super) fn of(service: &Object) -> Vec<u16> {
    let ports = service.array_at(&["spec", "ports"]).iter();
    let health = service.int_at(&["spec", "healthCheckNodePort"]);
    let numbers = ports.map(|port| port.int_at(&["nodePort"])).chain([health]).flatten();
    numbers.filter_map(|number| u16::try_from(number).ok()).filter(|port| *port != 0).collect()
}

/// Ports of a new service.
pub(super) fn claim(
    pool: &PortPool,
    service: &mut Object,
    claim: &mut Claim,
) -> Result<(), Failure> {
    if has_ports(service) {
        init(pool, service, claim)?;
    }
    if needs_health_check(service) {
        claim_health_check(pool, service, claim)?;
    }
    Ok(())
}

/// Ports of a service that changes.
pub(super) fn update(
    pool: &PortPool,
    service: &mut Object,
    old: &Object,
    claim: &mut Claim,
) -> Result<(), Failure> {
    let before = port_numbers(old);
    if has_ports(service) {
        extend(pool, service, &before, claim)?;
    }
    let after = port_numbers(service);
    claim.freed_ports.extend(before.iter().filter(|port| !after.contains(port)));
    update_health_check(pool, service, old, claim)
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

fn node_port(port: &Value) -> u16 {
    port.int_at(&["nodePort"]).and_then(|number| u16::try_from(number).ok()).unwrap_or(0)
}

fn port_numbers(service: &Object) -> Vec<u16> {
    let ports = service.array_at(&["spec", "ports"]).iter().map(node_port);
    ports.filter(|port| *port != 0).collect()
}

fn ports_mut(service: &mut Object) -> &mut [Value] {
    match service.object_mut("spec").get_mut("ports") {
        Some(Value::Array(ports)) => ports,
        _ => &mut [],
    }
}

fn set(service: &mut Object, index: usize, number: u16) {
    if let Some(Value::Object(port)) = ports_mut(service).get_mut(index) {
        port.insert("nodePort", i64::from(number));
    }
}

/// Takes the port that the client wants at a place in the list.
fn take(
    pool: &PortPool,
    service: &Object,
    index: usize,
    number: u16,
    claim: &mut Claim,
) -> Result<(), Failure> {
    if let Err(why) = pool.take(number) {
        let mut errors = ErrorList::new();
        let spec = Path::new("spec");
        let ports = spec.field("ports");
        let place = ports.index(index);
        errors.push(FieldError::invalid(&place.field("nodePort"), i64::from(number), &why));
        return refuse(service, errors);
    }
    claim.taken_ports.push(number);
    Ok(())
}

fn take_any(pool: &PortPool, claim: &mut Claim) -> Result<u16, Failure> {
    let number = pool
        .take_any()
        .map_err(|why| Status::internal(format!("failed to allocate a nodePort: {why}")))?;
    claim.taken_ports.push(number);
    Ok(number)
}

/// Entries for the same port of the service (one a protocol) share a port of the nodes.
fn init(pool: &PortPool, service: &mut Object, claim: &mut Claim) -> Result<(), Failure> {
    let fills_in = fills_in(service);
    let entries: Vec<(i64, u16)> = service
        .array_at(&["spec", "ports"])
        .iter()
        .map(|port| (port.int_at(&["port"]).unwrap_or(0), node_port(port)))
        .collect();
    let mut shared: Vec<(i64, u16)> = vec![];
    for (index, (port, given)) in entries.iter().copied().enumerate() {
        if given == 0 && !fills_in {
            continue;
        }
        let known = shared.iter().find(|(of, _)| *of == port).map(|(_, number)| *number);
        let number = match known {
            Some(known) if given == 0 || given == known => known,
            Some(_) => {
                take(pool, service, index, given, claim)?;
                continue;
            }
            None => {
                let wanted = entries.iter().find(|(of, number)| *of == port && *number != 0);
                let number = match wanted {
                    Some((_, wanted)) => {
                        take(pool, service, index, *wanted, claim)?;
                        *wanted
                    }
                    None => take_any(pool, claim)?,
                };
                shared.push((port, number));
                number
            }
        };
        set(service, index, number);
    }
    Ok(())
}

fn extend(
    pool: &PortPool,
    service: &mut Object,
    before: &[u16],
    claim: &mut Claim,
) -> Result<(), Failure> {
    let fills_in = fills_in(service);
    let entries: Vec<u16> = service.array_at(&["spec", "ports"]).iter().map(node_port).collect();
    for (index, given) in entries.into_iter().enumerate() {
        if given == 0 {
            if fills_in {
                let number = take_any(pool, claim)?;
                set(service, index, number);
            }
        } else if !before.contains(&given) && !claim.taken_ports.contains(&given) {
            take(pool, service, index, given, claim)?;
        }
    }
    Ok(())
}

fn claim_health_check(
    pool: &PortPool,
    service: &mut Object,
    claim: &mut Claim,
) -> Result<(), Failure> {
    let wanted = service.int_at(&["spec", "healthCheckNodePort"]).unwrap_or(0);
    if wanted == 0 {
        let number = take_any(pool, claim)?;
        service.object_mut("spec").insert("healthCheckNodePort", i64::from(number));
        return Ok(());
    }
    let number = u16::try_from(wanted).unwrap_or(0);
    pool.take(number).map_err(|why| {
        Status::internal(format!(
            "failed to allocate requested HealthCheck NodePort {wanted}: {why}"
        ))
    })?;
    claim.taken_ports.push(number);
    Ok(())
}

fn update_health_check(
    pool: &PortPool,
    service: &mut Object,
    old: &Object,
    claim: &mut Claim,
) -> Result<(), Failure> {
    let number = |service: &Object| service.int_at(&["spec", "healthCheckNodePort"]).unwrap_or(0);
    match (needs_health_check(old), needs_health_check(service)) {
        (false, true) => claim_health_check(pool, service, claim),
        (true, false) => {
            claim.freed_ports.extend(u16::try_from(number(old)).ok());
            service.object_mut("spec").remove("healthCheckNodePort");
            Ok(())
        }
        (true, true) if number(service) != number(old) => {
            let mut errors = ErrorList::new();
            let spec = Path::new("spec");
            let path = spec.field("healthCheckNodePort");
            errors.push(FieldError::invalid(&path, number(service), "field is immutable"));
            refuse(service, errors)
        }
        _ => Ok(()),
    }
}
