//! What leads to a node: logs and streams of pods, proxies (registry `core/pod/strategy.go`). No node is
//! reached yet; what is checked before is.

use keelson_auth::Permit;
use keelson_meta::status::quote;
use keelson_meta::{
    ErrorList, Failure, FieldError, GroupVersionResource, Object, Path, Status, Value,
};
use keelson_registry::hooks::Connections;
use keelson_registry::options::{Freshness, LogOptions};
use keelson_registry::{Answer, Registry, Target};
use keelson_store::BoxFuture;

/// Of pods, services and nodes.
pub(crate) struct Streams;

impl Connections for Streams {
    fn log<'a>(
        &'a self,
        registry: &'a Registry,
        target: &'a Target,
        options: &'a LogOptions,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(read_log(registry, target, options))
    }

    fn refused<'a>(
        &'a self,
        registry: &'a Registry,
        permit: &'a Permit,
        target: &'a Target,
        container: &'a str,
    ) -> BoxFuture<'a, Failure> {
        Box::pin(stream_error(registry, permit, target, container))
    }
}

/// The log of a container, which is empty while no node runs the pod.
async fn read_log(
    registry: &Registry,
    target: &Target,
    options: &LogOptions,
) -> Result<(), Failure> {
    validate_log_options(target, options)?;
    let pod = read_object(registry, target).await?;
    check_container(&pod, &options.container)?;
    match pod.str_at(&["spec", "nodeName"]) {
        "" => Ok(()),
        node => Err(no_such_node(node)),
    }
}

/// Why there is no stream to an object.
async fn stream_error(
    registry: &Registry,
    permit: &Permit,
    target: &Target,
    container: &str,
) -> Failure {
    let what = target.gvr().resource.trim_end_matches('s');
    let is_proxy = permit.attributes().is_some_and(|asked| asked.subresource == "proxy");
    let backend = match Backend::read(&target.name) {
        Some(backend) if is_proxy => backend,
        None if is_proxy => {
            let id = quote(&target.name);
            return Status::bad_request(format!("invalid {what} request {id}"));
        }
        _ => Backend { name: &target.name, port: "" },
    };
    let target = &Target::of(&target.kind, &target.namespace, backend.name);
    if target.gvr().resource != "pods" {
        return match read_object(registry, target).await {
            Err(failure) => failure,
            Ok(object) => Status::unavailable(backend.refusal(what, &object)),
        };
    }
    let pod = match read_object(registry, target).await {
        Ok(pod) => pod,
        Err(failure) => return failure,
    };
    if let Err(failure) = check_container(&pod, container) {
        return failure;
    }
    match pod.str_at(&["spec", "nodeName"]) {
        "" => {
            let why = format!("pod {} does not have a host assigned", target.name);
            Status::bad_request(why)
        }
        node => no_such_node(node),
    }
}

async fn read_object(registry: &Registry, target: &Target) -> Result<Object, Failure> {
    let permit = Permit::internal("system:apiserver");
    match registry.get(&permit, target, Freshness::Latest).await? {
        Answer::Entry(entry) => target.kind.decode(&entry),
        Answer::Object(_) | Answer::Success(_) => Err(Status::internal("a get made an object")),
    }
}

/// Where a proxy leads: `SCHEME:NAME:PORT`, `NAME:PORT` or `NAME`.
struct Backend<'a> {
    name: &'a str,
    port: &'a str,
}

impl<'a> Backend<'a> {
    /// `None`: it has another form.
    fn read(id: &'a str) -> Option<Backend<'a>> {
        let parts: Vec<&str> = id.split(':').collect();
        let (name, port) = match parts.as_slice() {
            [name] => (*name, ""),
            [name, port] | ["" | "http" | "https", name, port] => (*name, *port),
            _ => return None,
        };
        (!name.is_empty()).then_some(Backend { name, port })
    }

    /// Why a service or node cannot be reached.
    fn refusal(&self, what: &str, object: &Object) -> String {
        let name = quote(self.name);
        if what == "service"
            && let Ok(number) = self.port.parse::<i64>()
            && !object
                .array_at(&["spec", "ports"])
                .iter()
                .any(|port| port.int_at(&["port"]) == Some(number))
        {
            return format!("no service port {number} found for service {name}");
        }
        format!("no endpoints available for {what} {name}")
    }
}

fn no_such_node(name: &str) -> Failure {
    Status::not_found(&GroupVersionResource::new("", "v1", "nodes"), name)
}

fn validate_log_options(target: &Target, options: &LogOptions) -> Result<(), Failure> {
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
    if options.since_seconds.is_some() && options.has_since_time {
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        errors.push(FieldError::forbidden(&Path::new("[]"), why));
    } else {
        at_least("sinceSeconds", options.since_seconds, 1);
    }
    errors.into_result("", "PodLogOptions", &target.name)
}

/// The container that a stream is about must be one of the pod's; none is named when there is but one.
fn check_container(pod: &Object, container: &str) -> Result<(), Failure> {
    let of = |list: &str| pod.array_at(&["spec", list]).iter().filter_map(name_of);
    let mut all = of("initContainers").chain(of("containers")).chain(of("ephemeralContainers"));
    let pod_name = pod.name();
    if !container.is_empty() {
        if all.any(|name| name == container) {
            return Ok(());
        }
        let why = format!("container {container} is not valid for pod {pod_name}");
        return Err(Status::bad_request(why));
    }
    if of("containers").count() == 1 {
        return Ok(());
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
