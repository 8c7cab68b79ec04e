//! ComponentStatuses: whether controller manager, scheduler and store are healthy, asked when a
//! client asks (upstream `registry/core/componentstatus`).

use bytes::Bytes;
use futures_util::future::join_all;
use http::{HeaderMap, Method};
use keelson_egress::{Egress, Peer, Request, Route, Trust};
use keelson_meta::{Failure, GroupVersionResource, Object, Status, value};
use keelson_registry::Registry;
use keelson_registry::hooks::Computed;
use keelson_store::BoxFuture;
use std::time::Duration;
use tokio::time::Instant;

/// How long a component may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(20);
/// Largest text that is read of an answer.
const ANSWER_BYTES_MAX: usize = 10 << 10;

/// A component.
#[derive(Clone, Copy)]
struct Component {
    name: &'static str,
    /// Its secure port on this machine; `None` for the store.
    port: Option<u16>,
}

const COMPONENTS: [Component; 3] = [
    Component { name: "controller-manager", port: Some(10257) },
    Component { name: "scheduler", port: Some(10259) },
    Component { name: "etcd-0", port: None },
];

/// The resource `componentstatuses`.
pub(crate) struct ComponentStatuses {
    egress: Egress,
}

impl ComponentStatuses {
    pub fn new() -> ComponentStatuses {
        ComponentStatuses { egress: Egress::without_services() }
    }

    async fn status(&self, registry: &Registry, component: Component) -> Object {
        let answer = match component.port {
            Some(port) => self.ask(port).await,
            None => match registry.store.health() {
                Ok(()) => Ok("ok".to_owned()),
                Err(_) => Err("the store refuses writes".to_owned()),
            },
        };
        let (state, message) = match answer {
            Ok(text) => ("True", text),
            Err(why) => ("False", why),
        };
        let status = value!({
            "metadata": {"name": (component.name)},
            "conditions": [{"type": "Healthy", "status": state, "message": (message)}]
        });
        Object::from_value(status).unwrap_or_default()
    }

    /// Asks a component for its health. As upstream, any certificate will do.
    async fn ask(&self, port: u16) -> Result<String, String> {
        let peer =
            Peer { route: Route::Node, trust: Trust::Anyone, ..Peer::new("127.0.0.1", port) };
        let client = self.egress.client(&peer).map_err(|error| error.to_string())?;
        let method = Method::GET;
        let path = "/healthz".to_owned();
        let request = Request { method, path, headers: HeaderMap::new(), body: Bytes::new() };
        let deadline = Instant::now() + ANSWER_TIME_MAX;
        let answer = client.send(&request, ANSWER_BYTES_MAX, deadline).await;
        let answer =
            answer.map_err(|why| format!("Get \"https://127.0.0.1:{port}/healthz\": {why}"))?;
        let text = String::from_utf8_lossy(&answer.body).into_owned();
        if answer.status.is_success() || answer.status.is_redirection() {
            Ok(text)
        } else {
            Err(format!("HTTP probe failed with statuscode: {}", answer.status.as_u16()))
        }
    }
}

impl Computed for ComponentStatuses {
    fn get<'a>(
        &'a self,
        registry: &'a Registry,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Object, Failure>> {
        Box::pin(async move {
            match COMPONENTS.into_iter().find(|component| component.name == name) {
                Some(component) => Ok(self.status(registry, component).await),
                None => {
                    let gvr = GroupVersionResource::new("", "v1", "componentstatus");
                    Err(Status::not_found(&gvr, name))
                }
            }
        })
    }

    fn list<'a>(&'a self, registry: &'a Registry) -> BoxFuture<'a, Result<Vec<Object>, Failure>> {
        let all = COMPONENTS.map(|component| self.status(registry, component));
        Box::pin(async move { Ok(join_all(all).await) })
    }
}
