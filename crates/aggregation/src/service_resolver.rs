//! [`ServiceResolver`]: resolves the services of webhooks and of servers behind this one to their
//! ClusterIP, or to their endpoints (`--enable-aggregator-routing`).

use keelson_auth::Objects;
use keelson_egress::{BoxFuture, Resolved, Resolver};
use keelson_meta::{Object, Value};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// Resolves `NAME.NAMESPACE.svc` to addresses (kube-aggregator `pkg/apiserver/resolvers.go`).
#[derive(Default)]
pub struct ServiceResolver {
    objects: OnceLock<Arc<dyn Objects>>,
    /// Resolve to endpoints, not to the ClusterIP.
    to_endpoints: bool,
    /// Counts resolutions, to use the endpoints in turn.
    turn: AtomicUsize,
}

impl ServiceResolver {
    /// Returns a resolver to endpoints, or else to the ClusterIP or the external name.
    pub fn new(to_endpoints: bool) -> ServiceResolver {
        ServiceResolver { to_endpoints, ..ServiceResolver::default() }
    }

    /// Sets the reader of services. Before this no service is found.
    pub fn attach(&self, objects: Arc<dyn Objects>) {
        let _ = self.objects.set(objects);
    }

    async fn find(&self, host: &str, port: u16) -> Result<Resolved, String> {
        let name = host.strip_suffix(".svc").and_then(|host| host.rsplit_once('.'));
        let Some((name, namespace)) = name else { return Err(format!("{host} is no service")) };
        let Some(objects) = self.objects.get() else {
            return Err("the services are not loaded yet".to_owned());
        };
        let get = || objects.get(("", "services"), namespace, name);
        let mut service = get().map_err(|failure| failure.message)?;
        if service.is_none() {
            objects.latest().await.map_err(|failure| failure.message)?;
            service = get().map_err(|failure| failure.message)?;
        }
        let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
        if !self.to_endpoints {
            return resolve_cluster_ip(&service, port);
        }
        let resource = ("discovery.k8s.io", "endpointslices");
        let slices = objects
            .labelled(resource, namespace, (SERVICE_LABEL, name))
            .map_err(|failure| failure.message)?;
        resolve_endpoint(&service, &slices, port, self.turn.fetch_add(1, Ordering::Relaxed))
    }
}

impl Resolver for ServiceResolver {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Result<Resolved, String>> {
        Box::pin(self.find(host, port))
    }
}

/// Resolves a service to its ClusterIP or its external name (upstream's `ResolveCluster`).
fn resolve_cluster_ip(service: &Object, port: u16) -> Result<Resolved, String> {
    let spec = |name: &str| service.str_at(&["spec", name]);
    match spec("type") {
        "ExternalName" => Ok(Resolved::Name { host: spec("externalName").to_owned(), port }),
        "" | "ClusterIP" | "LoadBalancer" | "NodePort" => {
            let ip = spec("clusterIP");
            if ip == "None" {
                return Err("cannot route to service with ClusterIP \"None\"".to_owned());
            }
            service_port(service, port)?;
            let ip: IpAddr = ip.parse().map_err(|_| format!("{ip:?} is no address"))?;
            Ok(Resolved::Addresses(vec![SocketAddr::new(ip, port)]))
        }
        other => Err(format!("unsupported service type {other:?}")),
    }
}

/// Returns the port of a service with this number.
fn service_port(service: &Object, port: u16) -> Result<&Value, String> {
    let ports = service.array_at(&["spec", "ports"]);
    let known = ports.iter().find(|known| known.int_at(&["port"]) == Some(i64::from(port)));
    known.ok_or_else(|| format!("no service port {port} found for service {:?}", service.name()))
}

/// Resolves a service to one of its ready endpoints (upstream's `ResolveEndpoint`).
fn resolve_endpoint(
    service: &Object,
    slices: &[Object],
    port: u16,
    turn: usize,
) -> Result<Resolved, String> {
    match service.str_at(&["spec", "type"]) {
        "" | "ClusterIP" | "LoadBalancer" | "NodePort" => {}
        other => return Err(format!("unsupported service type {other:?}")),
    }
    let port_name = service_port(service, port)?.str_at(&["name"]).unwrap_or_default();
    let mut endpoints = vec![];
    for slice in slices {
        let ports = slice.array_at(&["ports"]).iter();
        let mut named =
            ports.filter(|port| port.str_at(&["name"]).unwrap_or_default() == port_name);
        let number = named.find_map(|port| u16::try_from(port.int_at(&["port"])?).ok());
        let Some(number) = number else { continue };
        let is_ready =
            |endpoint: &&Value| endpoint.at(&["conditions", "ready"]) != Some(&Value::Bool(false));
        let ready = slice.array_at(&["endpoints"]).iter().filter(is_ready);
        endpoints.extend(ready.filter_map(|endpoint| Some((first_address(endpoint)?, number))));
    }
    if endpoints.is_empty() {
        return Err(format!("no endpoints available for service {:?}", service.name()));
    }
    let (host, port) = endpoints[turn % endpoints.len()];
    Ok(match host.parse() {
        Ok(ip) => Resolved::Addresses(vec![SocketAddr::new(ip, port)]),
        Err(_) => Resolved::Name { host: host.to_owned(), port },
    })
}

fn first_address(endpoint: &Value) -> Option<&str> {
    endpoint.array_at(&["addresses"]).first()?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn a_service_resolves_to_its_cluster_ip_or_its_external_name() {
        let check = |spec: Value, port: u16, want: Result<&str, &str>| {
            let service = value!({"metadata": {"name": "a"}, "spec": (spec)});
            let service = Object::from_value(service).expect("an object");
            let got = resolve_cluster_ip(&service, port).map(|resolved| match resolved {
                Resolved::Addresses(addresses) => addresses[0].to_string(),
                Resolved::Name { host, port } => format!("{host} {port}"),
            });
            assert_eq!(got, want.map(str::to_owned).map_err(str::to_owned));
        };
        let cluster = |ip: &str| value!({"clusterIP": (ip), "ports": [{"port": 443}]});
        check(cluster("10.0.0.9"), 443, Ok("10.0.0.9:443"));
        check(cluster("fd00::9"), 443, Ok("[fd00::9]:443"));
        check(cluster("10.0.0.9"), 444, Err("no service port 444 found for service \"a\""));
        check(cluster("None"), 443, Err("cannot route to service with ClusterIP \"None\""));
        let external = value!({"type": "ExternalName", "externalName": "a.b"});
        check(external, 9443, Ok("a.b 9443"));
    }

    #[test]
    fn ready_endpoints_are_used_in_turn() {
        let object = |value: Value| Object::from_value(value).expect("an object");
        let ports = || value!([{"name": "https", "port": 443}, {"name": "other", "port": 444}]);
        let service = |spec: Value| object(value!({"metadata": {"name": "a"}, "spec": (spec)}));
        let plain = || service(value!({"ports": (ports())}));
        let slice = |port: Value, endpoints: Value| {
            object(value!({"ports": [(port)], "endpoints": (endpoints)}))
        };
        let https = |port: i64| value!({"name": "https", "port": (port)});
        let ready = value!([{"addresses": ["10.0.0.1"]},
            {"addresses": ["10.0.0.2"], "conditions": {"ready": true}},
            {"addresses": ["10.0.0.3"], "conditions": {"ready": false, "serving": true}}]);
        let slices = [
            slice(https(8443), ready),
            slice(https(9443), value!([{"addresses": ["web.example.org"]}])),
            slice(value!({"name": "https"}), value!([{"addresses": ["10.0.0.4"]}])),
            slice(value!({"name": "b", "port": 1}), value!([{"addresses": ["10.0.0.5"]}])),
        ];
        let address = |text: &str| Ok(Resolved::Addresses(vec![text.parse().expect("an address")]));
        let name = Ok(Resolved::Name { host: "web.example.org".to_owned(), port: 9443 });
        let want = [address("10.0.0.1:8443"), address("10.0.0.2:8443"), name.clone()];
        for turn in 0..6 {
            assert_eq!(resolve_endpoint(&plain(), &slices, 443, turn), want[turn % 3], "{turn}");
        }
        let error = |text: &str| Err::<Resolved, _>(text.to_owned());
        let none = error("no endpoints available for service \"a\"");
        assert_eq!(resolve_endpoint(&plain(), &slices, 444, 0), none);
        assert_eq!(resolve_endpoint(&plain(), &[], 443, 0), none);
        let unknown = error("no service port 445 found for service \"a\"");
        assert_eq!(resolve_endpoint(&plain(), &slices, 445, 0), unknown);
        let external = service(value!({"type": "ExternalName", "externalName": "a.b"}));
        let unsupported = error("unsupported service type \"ExternalName\"");
        assert_eq!(resolve_endpoint(&external, &slices, 443, 0), unsupported);
        // A headless service has endpoints, too.
        let headless = service(value!({"clusterIP": "None", "ports": (ports())}));
        assert_eq!(resolve_endpoint(&headless, &slices, 443, 0), want[0]);
    }
}
