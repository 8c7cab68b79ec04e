//! Warnings about container ports: duplicates, conflicts, and a `hostIP` without a `hostPort`.

use super::{CONTAINERS, Warnings};
use crate::check::Field;
use keelson_meta::Value;
use keelson_meta::status::quote;
use std::collections::HashMap;

/// Up to this many ports are compared pairwise.
const LINEAR_PORTS_MAX: usize = 16;

/// A port with its position in the pod spec.
struct Port<'v> {
    list: &'static str,
    container: usize,
    at: usize,
    value: &'v Value,
}

impl<'v> Port<'v> {
    fn number(&self, name: &str) -> i64 {
        self.value.int_at(&[name]).unwrap_or(0)
    }

    fn text(&self, name: &str) -> &'v str {
        self.value.str_at(&[name]).unwrap_or_default()
    }

    /// Returns its path in the pod spec.
    fn place(&self, spec: &Field<'_, '_>) -> String {
        let Port { list, container, at, .. } = self;
        format!("{}.{list}[{container}].ports[{at}]", spec.path)
    }
}

/// Container port, protocol, host port and host IP. Ports are indexed by all four, and again
/// without the host IP, and without both host fields.
type Key<'v> = (i64, &'v str, Option<i64>, Option<&'v str>);

/// The ports before the current one.
#[derive(Default)]
struct PortIndex<'v> {
    ports: Vec<Port<'v>>,
    places: HashMap<Key<'v>, Vec<usize>>,
}

impl<'v> PortIndex<'v> {
    fn add(&mut self, port: Port<'v>) {
        self.ports.push(port);
        let unindexed = match self.ports.len() {
            0..=LINEAR_PORTS_MAX => return,
            count if self.places.is_empty() => 0..count,
            count => count - 1..count,
        };
        unindexed.for_each(|place| self.index(place));
    }

    fn index(&mut self, place: usize) {
        let port = &self.ports[place];
        let number = port.number("containerPort");
        let protocol = port.text("protocol");
        let host = port.number("hostPort");
        let address = port.text("hostIP");
        for key in [(None, None), (Some(host), None), (Some(host), Some(address))] {
            self.places.entry((number, protocol, key.0, key.1)).or_default().push(place);
        }
    }

    /// Returns the ports that conflict with another one, in order.
    fn conflicting(&self, of: &Port<'v>) -> Vec<&Port<'v>> {
        if self.places.is_empty() {
            return self.ports.iter().filter(|other| conflict(of, other).is_some()).collect();
        }
        let number = of.number("containerPort");
        let protocol = of.text("protocol");
        let host = of.number("hostPort");
        let address = of.text("hostIP");
        let get = |host: Option<i64>, address: Option<&'v str>| {
            self.places.get(&(number, protocol, host, address)).map_or(&[][..], Vec::as_slice)
        };
        // Host ports conflict only if they are equal and their host IPs are equal or one is unset.
        let mut places: Vec<usize> = match (host, address) {
            (0, _) => get(None, None).to_vec(),
            (_, "") => [get(Some(0), None), get(Some(host), None)].concat(),
            _ => {
                let same = get(Some(host), Some(address));
                [get(Some(0), None), same, get(Some(host), Some(""))].concat()
            }
        };
        places.sort_unstable();
        places.into_iter().map(|place| &self.ports[place]).collect()
    }
}

/// Warns of each pair of conflicting ports.
pub(super) fn conflicts(spec: &Field<'_, '_>, warnings: &mut Warnings) {
    let mut known = PortIndex::default();
    let mut names: HashMap<&str, String> = HashMap::new();
    for list in CONTAINERS {
        for (index, container) in spec.field(list).items().enumerate() {
            for (at, port) in container.field("ports").items().enumerate() {
                // Each pair adds a warning, so this holds after few pairs.
                if warnings.is_full() {
                    return;
                }
                let new = Port { list, container: index, at, value: port.value };
                unused_host_ip(&port, warnings);
                for other in known.conflicting(&new) {
                    let Some(how) = conflict(&new, other) else { continue };
                    let place = other.place(spec);
                    warnings.push(&port.path, format_args!("{how} port definition with {place}"));
                }
                let name = new.text("name");
                if let Some(first) = names.get(name) {
                    let text = format_args!(
                        "duplicate port name {} with {first}, services and probes that select \
                         ports by name will use {first}",
                        quote(name)
                    );
                    warnings.push(&port.path, text);
                } else if !name.is_empty() {
                    names.insert(name, new.place(spec));
                }
                known.add(new);
            }
        }
    }
}

/// Warns of a host IP without a host port.
fn unused_host_ip(port: &Field<'_, '_>, warnings: &mut Warnings) {
    let address = port.str("hostIP");
    if address.is_empty() || port.int("hostPort").is_some_and(|number| number != 0) {
        return;
    }
    // The message shows the Go struct.
    let text = format_args!(
        "hostIP set without hostPort: {{Name:{} HostPort:0 ContainerPort:{} Protocol:{} \
         HostIP:{address}}}",
        port.str("name"),
        port.int("containerPort").unwrap_or(0),
        port.str("protocol")
    );
    warnings.push(&port.path, text);
}

/// Returns how two ports conflict.
fn conflict(a: &Port<'_>, b: &Port<'_>) -> Option<&'static str> {
    let port = |of: &Port<'_>| of.number("containerPort");
    if port(a) != port(b) || a.text("protocol") != b.text("protocol") {
        return None;
    }
    let a_host = a.number("hostPort");
    let b_host = b.number("hostPort");
    let a_address = a.text("hostIP");
    let b_address = b.text("hostIP");
    if (a_host, a_address) == (b_host, b_address) {
        Some("duplicate")
    } else if a_host == 0 || b_host == 0 {
        Some("overlapping")
    } else if a_host == b_host && a_address.is_empty() != b_address.is_empty() {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn duplicate_ports_and_unused_host_ips_are_warned_of() {
        let port = |name: &str, address: &str| value!([{"containerPort": 2, "protocol": "TCP", "name": name, "hostIP": address}]);
        let spec = value!({
            "initContainers": [{"name": "i", "ports": (port("x", ""))}],
            "containers": [{"name": "c", "ports": (port("x", "10.0.0.1"))}]
        });
        let mut warnings = Warnings::default();
        let at = Field { value: &spec, path: keelson_meta::Path::new("spec") };
        conflicts(&at, &mut warnings);
        let first = "spec.initContainers[0].ports[0]";
        let place = "spec.containers[0].ports[0]";
        let want = [
            format!(
                "{place}: hostIP set without hostPort: {{Name:x HostPort:0 ContainerPort:2 \
                 Protocol:TCP HostIP:10.0.0.1}}"
            ),
            format!("{place}: overlapping port definition with {first}"),
            format!(
                "{place}: duplicate port name \"x\" with {first}, services and probes that select \
                 ports by name will use {first}"
            ),
        ];
        assert_eq!(warnings.texts, want);
    }

    /// Conflicts must not depend on whether ports are compared pairwise or by index.
    #[test]
    fn many_ports_conflict_as_few_do() {
        let values: Vec<Value> = (0..60i64)
            .map(|at| {
                let address = ["", "10.0.0.1", "10.0.0.2"][(at / 3 % 3) as usize];
                let protocol = if at % 7 == 0 { "UDP" } else { "TCP" };
                value!({"containerPort": (at % 2), "hostPort": (at % 3), "hostIP": address,
                    "protocol": protocol})
            })
            .collect();
        let port = |at: usize| Port { list: "containers", container: 0, at, value: &values[at] };
        let mut known = PortIndex::default();
        for at in 0..values.len() {
            let found: Vec<usize> =
                known.conflicting(&port(at)).iter().map(|port| port.at).collect();
            let want: Vec<usize> =
                (0..at).filter(|other| conflict(&port(at), &port(*other)).is_some()).collect();
            assert_eq!(found, want, "{at}");
            known.add(port(at));
        }
        assert!(!known.places.is_empty());
    }
}
