//! Services, endpoints, ingresses, network policies and addresses.

use super::Printer;
use super::column::{AGE, NAME, field, literal, string};
use super::row::{NONE, Row, UNKNOWN, first_items, join, members, text};
use keelson_meta::Value;
use std::collections::BTreeSet;

const SERVICE_SPEC: &str = "io.k8s.api.core.v1.ServiceSpec";
const SLICE: &str = "io.k8s.api.discovery.v1.EndpointSlice";

/// Maximum number of hosts or addresses in a cell; the rest is counted.
const LISTED_ITEMS_MAX: usize = 3;

pub(super) static PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        kind: "Service",
        columns: &[
            NAME,
            string("Type", field(SERVICE_SPEC, "type")),
            string("Cluster-IP", field(SERVICE_SPEC, "clusterIP")),
            string("External-IP", field(SERVICE_SPEC, "externalIPs")),
            string("Port(s)", field(SERVICE_SPEC, "ports")),
            AGE,
            string("Selector", field(SERVICE_SPEC, "selector")).wide(),
        ],
        cells: service,
    },
    Printer {
        group: "",
        kind: "Endpoints",
        columns: &[
            NAME,
            string("Endpoints", field("io.k8s.api.core.v1.Endpoints", "subsets")),
            AGE,
        ],
        cells: |row| vec![row.name(), endpoints(row).into(), row.age()],
    },
    Printer {
        group: "discovery.k8s.io",
        kind: "EndpointSlice",
        columns: &[
            NAME,
            string("AddressType", field(SLICE, "addressType")),
            string("Ports", field(SLICE, "ports")),
            string("Endpoints", field(SLICE, "endpoints")),
            AGE,
        ],
        cells: endpoint_slice,
    },
    Printer {
        group: "networking.k8s.io",
        kind: "Ingress",
        columns: &[
            NAME,
            string("Class", literal("The IngressClass of the ingress.")),
            string("Hosts", literal("The hosts of the rules.")),
            string("Address", literal("The addresses of the load balancer.")),
            string("Ports", literal("The ports.")),
            AGE,
        ],
        cells: ingress,
    },
    Printer {
        group: "networking.k8s.io",
        kind: "IngressClass",
        columns: &[
            NAME,
            string("Controller", literal("The controller of the ingress class.")),
            string("Parameters", literal("An object with more settings.")),
            AGE,
        ],
        cells: ingress_class,
    },
    Printer {
        group: "networking.k8s.io",
        kind: "NetworkPolicy",
        columns: &[
            NAME,
            string(
                "Pod-Selector",
                field("io.k8s.api.networking.v1.NetworkPolicySpec", "podSelector"),
            ),
            AGE,
        ],
        cells: |row| vec![row.name(), row.selector(&["spec", "podSelector"]), row.age()],
    },
    Printer {
        group: "networking.k8s.io",
        kind: "ServiceCIDR",
        columns: &[
            NAME,
            string("CIDRs", field("io.k8s.api.networking.v1.ServiceCIDRSpec", "cidrs")),
            AGE,
        ],
        cells: |row| {
            let cidrs = join(row.array(&["spec", "cidrs"]).iter().map(text));
            vec![row.name(), cidrs.into(), row.age()]
        },
    },
    // Upstream has a cell for the age, but no column.
    Printer {
        group: "networking.k8s.io",
        kind: "IPAddress",
        columns: &[
            NAME,
            string("ParentRef", field("io.k8s.api.networking.v1.IPAddressSpec", "parentRef")),
        ],
        cells: |row| vec![row.name(), parent(row).into(), row.age()],
    },
];

fn service(row: &Row<'_>) -> Vec<Value> {
    let first_ip = row.array(&["spec", "clusterIPs"]).first().map(text);
    let ports: Vec<String> = row.array(&["spec", "ports"]).iter().map(service_port).collect();
    vec![
        row.name(),
        row.text(&["spec", "type"]),
        first_ip.unwrap_or(NONE).into(),
        external_ip(row).into(),
        if ports.is_empty() { NONE.into() } else { ports.join(",").into() },
        row.age(),
        row.labels(&["spec", "selector"]),
    ]
}

fn service_port(port: &Value) -> String {
    let number = port.int_at(&["port"]).unwrap_or(0);
    let protocol = port.str_at(&["protocol"]).unwrap_or_default();
    match port.int_at(&["nodePort"]) {
        Some(node_port @ 1..) => format!("{number}:{node_port}/{protocol}"),
        _ => format!("{number}/{protocol}"),
    }
}

fn external_ip(row: &Row<'_>) -> String {
    let ips = join(row.array(&["spec", "externalIPs"]).iter().map(text));
    match row.str(&["spec", "type"]) {
        "ClusterIP" | "NodePort" if ips.is_empty() => NONE.to_owned(),
        "ClusterIP" | "NodePort" => ips,
        "LoadBalancer" => match (load_balancer(row), ips) {
            (balancer, ips) if balancer.is_empty() && ips.is_empty() => "<pending>".to_owned(),
            (balancer, ips) if balancer.is_empty() => ips,
            (balancer, ips) if ips.is_empty() => balancer,
            (balancer, ips) => format!("{balancer},{ips}"),
        },
        "ExternalName" => row.str(&["spec", "externalName"]).to_owned(),
        _ => UNKNOWN.to_owned(),
    }
}

/// Returns the addresses and names of a load balancer, sorted and without duplicates.
fn load_balancer(row: &Row<'_>) -> String {
    let ingress = row.array(&["status", "loadBalancer", "ingress"]);
    let place = |point| -> &str {
        let member = |name| Value::str_at(point, &[name]).filter(|text| !text.is_empty());
        member("ip").or_else(|| member("hostname")).unwrap_or_default()
    };
    let places: BTreeSet<&str> = ingress.iter().map(place).filter(|p| !p.is_empty()).collect();
    join(places.into_iter())
}

fn endpoints(row: &Row<'_>) -> String {
    let subsets = row.array(&["subsets"]);
    if subsets.is_empty() {
        return NONE.to_owned();
    }
    let mut all = vec![];
    for subset in subsets {
        let ips = || members(subset.array_at(&["addresses"]), "ip");
        let ports = subset.array_at(&["ports"]);
        if ports.is_empty() {
            all.extend(ips().map(str::to_owned));
        }
        for port in ports {
            let port = port.int_at(&["port"]).unwrap_or(0);
            all.extend(ips().map(|ip| host_port(ip, port)));
        }
    }
    if all.is_empty() { String::new() } else { first_items(&all) }
}

fn host_port(host: &str, port: i64) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn endpoint_slice(row: &Row<'_>) -> Vec<Value> {
    let port = |port: &Value| match (port.int_at(&["port"]), port.str_at(&["name"])) {
        (Some(number), _) => number.to_string(),
        (None, Some(name)) => name.to_owned(),
        (None, None) => "*".to_owned(),
    };
    let ports: Vec<String> = row.array(&["ports"]).iter().map(port).collect();
    let endpoints = row.array(&["endpoints"]).iter();
    let addresses: Vec<String> = endpoints
        .flat_map(|endpoint| endpoint.array_at(&["addresses"]))
        .map(|address| text(address).to_owned())
        .collect();
    vec![
        row.name(),
        row.text(&["addressType"]),
        first_items(&ports).into(),
        first_items(&addresses).into(),
        row.age(),
    ]
}

fn ingress(row: &Row<'_>) -> Vec<Value> {
    let tls = !row.array(&["spec", "tls"]).is_empty();
    vec![
        row.name(),
        row.present_or(&["spec", "ingressClassName"], NONE),
        hosts(row.array(&["spec", "rules"])).into(),
        load_balancer(row).into(),
        if tls { "80, 443" } else { "80" }.into(),
        row.age(),
    ]
}

/// Returns the first three hosts. The rest is counted in rules, including those without a host, and
/// only if a rule follows the third host.
fn hosts(rules: &[Value]) -> String {
    let mut list = vec![];
    let mut more = false;
    for host in members(rules, "host") {
        more = more || list.len() == LISTED_ITEMS_MAX;
        if !more && !host.is_empty() {
            list.push(host);
        }
    }
    if list.is_empty() {
        return "*".to_owned();
    }
    let listed = join(list.into_iter());
    if more { format!("{listed} + {} more...", rules.len() - LISTED_ITEMS_MAX) } else { listed }
}

fn ingress_class(row: &Row<'_>) -> Vec<Value> {
    let parameters = row
        .obj
        .at(&["spec", "parameters"])
        .filter(|p| !p.is_null())
        .map(|p| {
            let member = |name| p.str_at(&[name]);
            let group = member("apiGroup").map(|group| format!(".{group}")).unwrap_or_default();
            let kind = member("kind").unwrap_or_default();
            let name = member("name").unwrap_or_default();
            format!("{kind}{group}/{name}")
        })
        .unwrap_or_else(|| NONE.to_owned());
    vec![row.name(), row.text(&["spec", "controller"]), parameters.into(), row.age()]
}

fn parent(row: &Row<'_>) -> String {
    let Some(parent) = row.obj.at(&["spec", "parentRef"]).filter(|p| !p.is_null()) else {
        return NONE.to_owned();
    };
    let member = |name| parent.str_at(&[name]).unwrap_or_default();
    let mut text = member("resource").to_lowercase();
    if !member("group").is_empty() {
        text = format!("{text}.{}", member("group").to_lowercase());
    }
    for name in ["namespace", "name"] {
        if name == "name" || !member(name).is_empty() {
            text = format!("{text}/{}", member(name));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::tests::row;
    use keelson_meta::{Value, value};

    fn check_service(spec: Value, status: Value, expected: &str) {
        let object = value!({"metadata": {"name": "s"}, "spec": (spec), "status": (status)});
        assert_eq!(row("", "Service", object), format!("s | {expected}"));
    }

    #[test]
    fn service_shows_addresses_and_ports() {
        check_service(
            value!({"type": "ClusterIP", "clusterIPs": ["None"], "selector": {"x": "y", "a": "b"},
                "ports": [{"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}),
            value!({}),
            "ClusterIP | None | <none> | 80/TCP,53/UDP | <unknown> | a=b,x=y",
        );
        check_service(
            value!({"type": "ExternalName", "externalName": "x.example"}),
            value!({}),
            "ExternalName | <none> | x.example | <none> | <unknown> | <none>",
        );
        let balanced = || {
            value!({"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "externalIPs": ["9.9.9.9"],
                "ports": [{"port": 80, "nodePort": 30071, "protocol": "TCP"}]})
        };
        check_service(
            balanced(),
            value!({"loadBalancer": {"ingress": [{"hostname": "lb.example"}, {"ip": "1.2.3.4"}]}}),
            "LoadBalancer | 10.0.0.1 | 1.2.3.4,lb.example,9.9.9.9 | 80:30071/TCP | <unknown> | \
             <none>",
        );
        check_service(
            value!({"type": "LoadBalancer"}),
            value!({}),
            "LoadBalancer | <none> | <pending> | <none> | <unknown> | <none>",
        );
    }

    #[test]
    fn endpoints_beyond_the_third_are_counted() {
        let object = value!({"metadata": {"name": "e"}, "subsets": [
            {"addresses": [{"ip": "10.1.1.1"}, {"ip": "fd00::1"}],
                "ports": [{"port": 80}, {"port": 81}]}
        ]});
        assert_eq!(
            row("", "Endpoints", object),
            "e | 10.1.1.1:80,[fd00::1]:80,10.1.1.1:81 + 1 more... | <unknown>"
        );
        let object = value!({"metadata": {"name": "e"}, "addressType": "IPv4",
            "ports": [{"port": 80}, {"name": "x"}, {}], "endpoints": []});
        assert_eq!(
            row("discovery.k8s.io", "EndpointSlice", object),
            "e | IPv4 | 80,x,* | <unset> | <unknown>"
        );
    }

    #[test]
    fn an_ingress_lists_hosts() {
        let check = |rules: Value, expected: &str| {
            let object = value!({"metadata": {"name": "i"}, "spec": {"rules": (rules)}});
            let printed = row("networking.k8s.io", "Ingress", object);
            assert_eq!(printed, format!("i | <none> | {expected} |  | 80 | <unknown>"));
        };
        check(value!([{}]), "*");
        check(value!([{"host": "a"}, {}, {"host": "b"}, {"host": "c"}]), "a,b,c");
        check(value!([{"host": "a"}, {"host": "b"}, {"host": "c"}, {}]), "a,b,c + 1 more...");
    }

    #[test]
    fn ip_address_shows_its_parent() {
        let object = value!({"metadata": {"name": "10.0.0.1"}, "spec": {"parentRef": {
            "resource": "services", "namespace": "default", "name": "kubernetes"
        }}});
        assert_eq!(
            row("networking.k8s.io", "IPAddress", object),
            "10.0.0.1 | services/default/kubernetes | <unknown>"
        );
    }
}
