//! Where logs, streams and proxies of pods, services and nodes lead (registry
//! `core/pod/strategy.go`, `core/node/strategy.go`, `core/service/storage`).

use keelson_auth::Permit;
use keelson_meta::ip::{is_global_unicast, parse_ip};
use keelson_meta::status::quote;
use keelson_meta::{
    ErrorList, Failure, Feature, FieldError, GroupVersionResource, Object, Path, Reason, Status,
    Value,
};
use keelson_registry::hooks::{
    Connection, Connections, FarSide, Located, Location, SimulatedContainer,
};
use keelson_registry::options::{Freshness, LogOptions};
use keelson_registry::{Answer, Registry, Target};
use keelson_schema::catalogue::Session;
use keelson_store::BoxFuture;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The port of a kubelet whose node does not say it.
const KUBELET_PORT: i64 = 10_250;
/// What a node declares whose kubelet speaks v5 of the channel protocol (KEP-4006).
const WEBSOCKETS_FEATURE: &str = "ExtendWebSocketsToKubelet";
/// The bytes that Go's `url.QueryEscape` escapes, but for the blank, which becomes `+`.
const QUERY_ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b' ');

/// The connections of pods, services and nodes.
pub(crate) struct Streams {
    /// The types of node addresses, the preferred one first (`--kubelet-preferred-address-types`).
    address_types: Vec<String>,
}

impl Streams {
    /// Finds nodes by their addresses of these types, the preferred one first.
    pub fn new(address_types: Vec<String>) -> Streams {
        Streams { address_types }
    }
}

impl Connections for Streams {
    fn locate<'a>(
        &'a self,
        registry: &'a Registry,
        target: &'a Target,
        asked: Connection<'a>,
    ) -> BoxFuture<'a, Result<Located, Failure>> {
        Box::pin(async move {
            match asked {
                Connection::Log(options) => self.log(registry, target, options).await,
                Connection::Session(session, options) => {
                    self.session(registry, target, session, options).await
                }
                Connection::Proxy { path } => {
                    let mut location = self.proxied(registry, target).await?;
                    location.path = path.to_owned();
                    Ok(Located::There(location))
                }
            }
        })
    }
}

impl Streams {
    /// Finds the log of a container. It is empty until the pod has a node.
    async fn log(
        &self,
        registry: &Registry,
        target: &Target,
        options: &LogOptions,
    ) -> Result<Located, Failure> {
        let may_split = registry.options.features.is_on(Feature::PodLogsQuerySplitStreams);
        validate_log_options(target, options, may_split)?;
        let pod = read_object(registry, target).await?;
        let container = container_of(&pod, &options.container)?;
        let node = match pod.str_at(&["spec", "nodeName"]) {
            "" => return Ok(Located::Nothing),
            node => read_node_of_pod(registry, node).await?,
        };
        if is_simulated(registry, &node) {
            let name = container.to_owned();
            return Ok(Located::Simulated(SimulatedContainer { pod, name }));
        }
        let node = self.kubelet(&node)?;
        let path = format!("/containerLogs/{}/{}/{container}", pod.namespace(), pod.name());
        let mut location = Location { path, query: Some(log_query(options, may_split)), ..node };
        if let FarSide::Kubelet { is_verified, .. } = &mut location.far_side {
            *is_verified = !options.is_unverified;
        }
        Ok(Located::There(location))
    }

    /// Finds the far side of a stream to a pod.
    async fn session(
        &self,
        registry: &Registry,
        target: &Target,
        session: Session,
        options: &Object,
    ) -> Result<Located, Failure> {
        let pod = read_object(registry, target).await?;
        let place = match session {
            Session::PortForward => format!("/portForward/{}/{}", pod.namespace(), pod.name()),
            Session::Exec | Session::Attach => {
                let container = container_of(&pod, options.str_at(&["container"]))?;
                let verb = if session == Session::Exec { "exec" } else { "attach" };
                format!("/{verb}/{}/{}/{container}", pod.namespace(), pod.name())
            }
        };
        let node = match pod.str_at(&["spec", "nodeName"]) {
            "" => {
                let why = format!("pod {} does not have a host assigned", target.name);
                return Err(Status::bad_request(why));
            }
            node => read_node_of_pod(registry, node).await?,
        };
        let simulated = registry.options.simulated_nodes.as_ref();
        let has_ports = simulated.is_some_and(|nodes| nodes.has(&node) && nodes.has_ports(&pod));
        if session == Session::PortForward && has_ports {
            return match pod.str_at(&["status", "phase"]) {
                "Running" => Ok(Located::SimulatedPorts(pod)),
                phase => Err(Status::bad_request(format!(
                    "pod {} is not running, its phase is {phase}",
                    quote(pod.name())
                ))),
            };
        }
        check_real(registry, &node)?;
        let node = self.kubelet(&node)?;
        let query = Some(session_query(session, options));
        Ok(Located::There(Location { path: place, query, ..node }))
    }

    /// Finds the far side of a proxied request, without its path.
    async fn proxied(&self, registry: &Registry, target: &Target) -> Result<Location, Failure> {
        let what = target.gvr().resource.trim_end_matches('s');
        let backend = Backend::parse(&target.name).ok_or_else(|| {
            Status::bad_request(format!("invalid {what} request {}", quote(&target.name)))
        })?;
        let target = &Target::of(&target.kind, &target.namespace, backend.name);
        match what {
            "pod" => {
                let pod = read_object(registry, target).await?;
                check_real_node_of(registry, &pod).await?;
                let ip = pod_ips(&pod).next().unwrap_or_default().to_owned();
                backend.workload(&ip, &backend.port_of_pod(&pod))
            }
            "service" => service_endpoint(registry, target, &backend).await,
            _ => {
                let node = read_node(registry, backend.name).await?;
                check_real(registry, &node)?;
                let node = self.kubelet(&node)?;
                if backend.port.is_empty() || backend.port == node.port {
                    return Ok(Location { query: None, ..node });
                }
                Ok(backend.location(&node.host, backend.port))
            }
        }
    }

    /// Finds the kubelet of a node; the path is empty.
    fn kubelet(&self, node: &Object) -> Result<Location, Failure> {
        let addresses = node.array_at(&["status", "addresses"]);
        let address = |wanted: &String| {
            let mut all = addresses.iter();
            let found = all.find(|address| address.str_at(&["type"]) == Some(wanted));
            found.and_then(|address| address.str_at(&["address"]))
        };
        let Some(host) = self.address_types.iter().find_map(address) else {
            let known: Vec<String> = addresses
                .iter()
                .map(|address| {
                    let part = |name: &str| address.str_at(&[name]).unwrap_or_default();
                    format!("{{{} {}}}", part("type"), part("address"))
                })
                .collect();
            return Err(Status::new(
                Reason::Unknown,
                format!("no preferred addresses found; known addresses: [{}]", known.join(" ")),
            ));
        };
        let port = node.int_at(&["status", "daemonEndpoints", "kubeletEndpoint", "Port"]);
        let features = node.array_at(&["status", "declaredFeatures"]);
        Ok(Location {
            is_secure: true,
            host: host.to_owned(),
            port: port.filter(|port| *port > 0).unwrap_or(KUBELET_PORT).to_string(),
            path: String::new(),
            query: None,
            far_side: FarSide::Kubelet {
                is_verified: true,
                takes_websockets: features
                    .iter()
                    .any(|feature| feature.as_str() == Some(WEBSOCKETS_FEATURE)),
            },
        })
    }
}

async fn read_object(registry: &Registry, target: &Target) -> Result<Object, Failure> {
    let permit = Permit::internal("system:apiserver");
    match registry.get(&permit, target, Freshness::Latest).await? {
        Answer::Entry(entry) => target.kind.decode(&entry),
        Answer::Object(_) | Answer::Success(_) => Err(Status::internal("a get made an object")),
    }
}

async fn read_node(registry: &Registry, name: &str) -> Result<Object, Failure> {
    read_node_for("nodes", registry, name).await
}

/// Reads the node of a pod. As upstream, one that does not exist is named as a pod.
async fn read_node_of_pod(registry: &Registry, name: &str) -> Result<Object, Failure> {
    read_node_for("pods", registry, name).await
}

/// Reads a node. `resource`: what is named when it does not exist.
async fn read_node_for(resource: &str, registry: &Registry, name: &str) -> Result<Object, Failure> {
    let target = registry.target("", "nodes", "", name);
    read_object(registry, &target).await.map_err(|failure| match failure.code {
        404 => Status::not_found(&GroupVersionResource::new("", "v1", resource), name),
        _ => failure,
    })
}

fn is_simulated(registry: &Registry, node: &Object) -> bool {
    registry.options.simulated_nodes.as_ref().is_some_and(|nodes| nodes.has(node))
}

/// Fails if a node is simulated: there is nothing to connect to.
fn check_real(registry: &Registry, node: &Object) -> Result<(), Failure> {
    if !is_simulated(registry, node) {
        return Ok(());
    }
    Err(Status::bad_request(format!(
        "node {} is simulated: no container runs on it, so there is nothing to connect to; logs \
         say what the simulation did",
        quote(node.name())
    )))
}

/// Fails if the node of a pod is simulated.
async fn check_real_node_of(registry: &Registry, pod: &Object) -> Result<(), Failure> {
    let name = pod.str_at(&["spec", "nodeName"]);
    if registry.options.simulated_nodes.is_none() || name.is_empty() {
        return Ok(());
    }
    match read_node(registry, name).await {
        Ok(node) => check_real(registry, &node),
        // The address of the pod decides.
        Err(_) => Ok(()),
    }
}

/// The target of a proxy: `SCHEME:NAME:PORT`, `NAME:PORT` or `NAME`.
struct Backend<'a> {
    id: &'a str,
    is_secure: bool,
    name: &'a str,
    port: &'a str,
}

impl<'a> Backend<'a> {
    /// Parses a target; `None` if it has another form.
    fn parse(id: &'a str) -> Option<Backend<'a>> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts.as_slice() {
            [name] => ("", *name, ""),
            [name, port] => ("", *name, *port),
            [scheme @ ("" | "http" | "https"), name, port] => (*scheme, *name, *port),
            _ => return None,
        };
        (!name.is_empty()).then_some(Backend { id, is_secure: scheme == "https", name, port })
    }

    /// Returns the port, or else the first one that a container of the pod has.
    fn port_of_pod(&self, pod: &Object) -> String {
        if !self.port.is_empty() {
            return self.port.to_owned();
        }
        let mut containers = pod.array_at(&["spec", "containers"]).iter();
        let first = containers.find_map(|container| {
            container.array_at(&["ports"]).first()?.get("containerPort")?.as_int()
        });
        first.map_or(String::new(), |port| port.to_string())
    }

    /// Returns the location of an address of a workload, which must be a global unicast one.
    fn workload(&self, ip: &str, port: &str) -> Result<Location, Failure> {
        match parse_ip(ip) {
            Some(address) if is_global_unicast(address) => Ok(self.location(ip, port)),
            _ => Err(Status::bad_request("address not allowed")),
        }
    }

    fn location(&self, host: &str, port: &str) -> Location {
        Location {
            is_secure: self.is_secure,
            host: host.to_owned(),
            port: port.to_owned(),
            path: String::new(),
            query: None,
            far_side: FarSide::Workload,
        }
    }
}

/// Chooses a ready endpoint of a service at random, whose pod exists.
async fn service_endpoint(
    registry: &Registry,
    target: &Target,
    backend: &Backend<'_>,
) -> Result<Location, Failure> {
    let mut port_name = backend.port.to_owned();
    if let Ok(number) = backend.port.parse::<i64>() {
        let service = read_object(registry, target).await?;
        let ports = service.array_at(&["spec", "ports"]);
        let Some(port) = ports.iter().find(|port| port.int_at(&["port"]) == Some(number)) else {
            let name = quote(backend.name);
            let why = format!("no service port {number} found for service {name}");
            return Err(Status::unavailable(why));
        };
        port_name = port.str_at(&["name"]).unwrap_or_default().to_owned();
    }
    let none =
        |id: &str| Status::unavailable(format!("no endpoints available for service {}", quote(id)));
    let of = registry.target("", "endpoints", &target.namespace, backend.name);
    let endpoints = read_object(registry, &of).await.map_err(|failure| match failure.code {
        404 => target.not_found(),
        _ => failure,
    })?;
    let subsets = endpoints.array_at(&["subsets"]);
    if subsets.is_empty() {
        return Err(none(backend.name));
    }
    let random = registry.clock.random();
    let start = |among: usize, byte: usize| usize::from(random[byte]) % among.max(1);
    for subset in turned(subsets, start(subsets.len(), 0)) {
        let addresses = subset.array_at(&["addresses"]);
        let ports = subset.array_at(&["ports"]).iter();
        let mut named =
            ports.filter(|port| port.str_at(&["name"]).unwrap_or_default() == port_name);
        let Some(port) = named.find_map(|port| port.int_at(&["port"])) else { continue };
        for address in turned(addresses, start(addresses.len(), 1)) {
            let ip = address.str_at(&["ip"]).unwrap_or_default();
            if let Some(pod) = pod_of_address(registry, target, address, ip).await {
                check_real_node_of(registry, &pod).await?;
                return Ok(backend.location(ip, &port.to_string()));
            }
        }
    }
    Err(none(backend.id))
}

/// Returns the parts of a list from a place on, and then those before it.
fn turned<T>(list: &[T], first: usize) -> impl Iterator<Item = &T> {
    list.iter().skip(first).chain(list.iter().take(first))
}

/// Returns the pod of the service's namespace that has an address, if it exists.
async fn pod_of_address(
    registry: &Registry,
    service: &Target,
    address: &Value,
    ip: &str,
) -> Option<Object> {
    let part = |name: &str| address.str_at(&["targetRef", name]).unwrap_or_default();
    if part("namespace") != service.namespace {
        return None;
    }
    let pod = registry.target("", "pods", &service.namespace, part("name"));
    let pod = read_object(registry, &pod).await.ok()?;
    let is_its = pod_ips(&pod).any(|known| known == ip);
    is_its.then_some(pod)
}

fn pod_ips(pod: &Object) -> impl Iterator<Item = &str> {
    pod.array_at(&["status", "podIPs"]).iter().filter_map(|ip| ip.str_at(&["ip"]))
}

fn validate_log_options(
    target: &Target,
    options: &LogOptions,
    may_split: bool,
) -> Result<(), Failure> {
    let mut errors = ErrorList::new();
    let mut at_least = |name: &str, given: Option<i64>, min: i64| {
        let Some(given) = given.filter(|given| *given < min) else { return };
        let why = match min {
            0 => "must be greater than or equal to 0",
            _ => "must be greater than 0",
        };
        errors.push(FieldError::invalid(&Path::new(name), given, why));
    };
    at_least("tailLines", options.tail_lines, 0);
    at_least("limitBytes", options.limit_bytes, 1);
    if options.since_seconds.is_some() && options.since_time.is_some() {
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(FieldError::forbidden(&Path::new("[]"), why));
    } else {
        at_least("sinceSeconds", options.since_seconds, 1);
    }
    let stream = options.stream.as_deref().unwrap_or(LOG_STREAMS[0]);
    if !may_split {
        if options.stream.is_some() {
            let why = "may not be specified";
            errors.push(FieldError::forbidden(&Path::new("stream"), why));
        }
    } else if !LOG_STREAMS.contains(&stream) {
        errors.push(FieldError::not_supported(&Path::new("stream"), stream, &LOG_STREAMS));
    } else if stream != LOG_STREAMS[0] && options.tail_lines.is_some() {
        let why = "`tailLines` and specific `stream` are mutually exclusive for now";
        errors.push(FieldError::forbidden(&Path::new("[]"), why));
    }
    errors.into_result("", "PodLogOptions", &target.name)
}

/// The values of `stream`, the default first.
const LOG_STREAMS: [&str; 3] = ["All", "Stderr", "Stdout"];

/// Returns the query that a kubelet reads: sorted by name, as Go's `url.Values` are.
fn log_query(options: &LogOptions, may_split: bool) -> String {
    let mut pairs = vec![];
    let mut number = |name, value: Option<i64>| {
        pairs.extend(value.map(|value| (name, value.to_string())));
    };
    number("limitBytes", options.limit_bytes);
    number("sinceSeconds", options.since_seconds);
    number("tailLines", options.tail_lines);
    for (name, is_set) in [
        ("follow", options.follow),
        ("previous", options.previous),
        ("timestamps", options.timestamps),
    ] {
        if is_set {
            pairs.push((name, "true".to_owned()));
        }
    }
    pairs.extend(options.since_time.iter().map(|time| ("sinceTime", time.to_string())));
    if may_split {
        let stream = options.stream.as_deref().unwrap_or(LOG_STREAMS[0]);
        pairs.push(("stream", stream.to_owned()));
    }
    encoded(pairs)
}

/// Returns the query of a stream.
fn session_query(session: Session, options: &Object) -> String {
    let mut pairs = vec![];
    if session == Session::PortForward {
        let ports: Vec<String> = options
            .array_at(&["ports"])
            .iter()
            .filter_map(Value::as_int)
            .map(|port| port.to_string())
            .collect();
        if !ports.is_empty() {
            pairs.push(("port", ports.join(",")));
        }
        return encoded(pairs);
    }
    for (name, member) in
        [("input", "stdin"), ("output", "stdout"), ("error", "stderr"), ("tty", "tty")]
    {
        if options.root.get(member).and_then(Value::as_bool) == Some(true) {
            pairs.push((name, "1".to_owned()));
        }
    }
    let command = options.array_at(&["command"]).iter().filter_map(Value::as_str);
    pairs.extend(command.map(|word| ("command", word.to_owned())));
    encoded(pairs)
}

/// Encodes pairs as Go's `url.Values.Encode`; those of one name keep their order.
fn encoded(mut pairs: Vec<(&str, String)>) -> String {
    pairs.sort_by_key(|(name, _)| *name);
    let pairs = pairs.iter().map(|(name, value)| {
        let value = utf8_percent_encode(value, QUERY_ESCAPED).to_string().replace(' ', "+");
        format!("{name}={value}")
    });
    pairs.collect::<Vec<_>>().join("&")
}

/// Returns the container that is meant. The name may be empty if the pod has one container.
fn container_of<'a>(pod: &'a Object, container: &'a str) -> Result<&'a str, Failure> {
    let names = |list: &str| pod.array_at(&["spec", list]).iter().filter_map(name_of);
    let mut all =
        names("initContainers").chain(names("containers")).chain(names("ephemeralContainers"));
    let pod_name = pod.name();
    if !container.is_empty() {
        if all.any(|name| name == container) {
            return Ok(container);
        }
        let why = format!("container {container} is not valid for pod {pod_name}");
        return Err(Status::bad_request(why));
    }
    if let [only] = names("containers").collect::<Vec<_>>()[..] {
        return Ok(only);
    }
    let names: Vec<&str> = all.collect();
    Err(Status::bad_request(format!(
        "a container name must be specified for pod {pod_name}, choose one of: [{}]",
        names.join(" ")
    )))
}

fn name_of(container: &Value) -> Option<&str> {
    container.str_at(&["name"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn queries_are_those_that_kubelets_read() {
        let options = Object::from_value(value!({
            "stdin": true, "stdout": true, "tty": false,
            "command": ["sh", "-c", "echo \"a b\" && echo ä+~"]
        }));
        assert_eq!(
            session_query(Session::Exec, &options.expect("an object")),
            "command=sh&command=-c&command=echo+%22a+b%22+%26%26+echo+%C3%A4%2B~&input=1&output=1"
        );
        let options = Object::from_value(value!({"ports": [80, 443]})).expect("an object");
        assert_eq!(session_query(Session::PortForward, &options), "port=80%2C443");
        let options = LogOptions {
            follow: true,
            tail_lines: Some(3),
            since_time: Some("2026-01-02T03:04:05Z".into()),
            ..LogOptions::default()
        };
        assert_eq!(
            log_query(&options, true),
            "follow=true&sinceTime=2026-01-02T03%3A04%3A05Z&stream=All&tailLines=3"
        );
    }

    #[test]
    fn targets_of_proxies_have_three_forms() {
        let check = |id: &str, expected: Option<(bool, &str, &str)>| {
            let parsed =
                Backend::parse(id).map(|backend| (backend.is_secure, backend.name, backend.port));
            assert_eq!(parsed, expected, "{id}");
        };
        check("a", Some((false, "a", "")));
        check("a:80", Some((false, "a", "80")));
        check("https:a:web", Some((true, "a", "web")));
        check("http:a:", Some((false, "a", "")));
        check(":a:1", Some((false, "a", "1")));
        check("ftp:a:1", None);
        check(":", None);
        check("a:b:c:d", None);
    }
}
