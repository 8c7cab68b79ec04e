//! The admission plug-ins that wait for others or evaluate expressions, and how services are found for them.

use keelson_admission::policies::{MutatingPolicies, ValidatingPolicies};
use keelson_admission::webhooks::{MutatingWebhooks, ValidatingWebhooks};
use keelson_admission::{
    Chain, DynamicPlugIn, ImagePolicyWebhook, OwnerReferencesPermissionEnforcement,
};
use keelson_auth::Objects;
use keelson_egress::{BoxFuture, Egress, Resolved, Resolver};
use keelson_meta::Object;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

/// The functions of the embedding program, then the plug-ins that are on, in kube-apiserver's order.
pub(crate) fn plug_ins(
    chain: &Chain,
    in_process: &[Arc<dyn DynamicPlugIn>],
    egress: &Arc<Egress>,
) -> Vec<Arc<dyn DynamicPlugIn>> {
    let credentials = |plug_in: &str| chain.config().webhook_credentials(plug_in);
    let images = ImagePolicyWebhook::new(egress.clone(), chain.config().image_policy());
    let images = images.map(|plug_in| Arc::new(plug_in) as Arc<dyn DynamicPlugIn>);
    let others: [Arc<dyn DynamicPlugIn>; 5] = [
        Arc::new(OwnerReferencesPermissionEnforcement),
        Arc::new(MutatingPolicies),
        Arc::new(MutatingWebhooks::new(egress.clone(), credentials("MutatingAdmissionWebhook"))),
        Arc::new(ValidatingPolicies),
        Arc::new(ValidatingWebhooks::new(
            egress.clone(),
            credentials("ValidatingAdmissionWebhook"),
        )),
    ];
    let all = images.into_iter().chain(others);
    let on = all.filter(|plug_in| chain.has(plug_in.name()));
    in_process.iter().cloned().chain(on).collect()
}

/// Finds services by `NAME.NAMESPACE.svc`: their ClusterIP, or the name that an ExternalName stands for
/// (kube-aggregator `pkg/apiserver/resolvers.go`).
#[derive(Default)]
pub(crate) struct Services {
    objects: OnceLock<Arc<dyn Objects>>,
}

impl Services {
    /// Lets it read services. Before this none is found.
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
        match service {
            Some(service) => route(&service, port),
            None => Err(format!("service {name:?} not found")),
        }
    }
}

impl Resolver for Services {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, Result<Resolved, String>> {
        Box::pin(self.find(host, port))
    }
}

/// Where a service is reached from outside the pod network.
fn route(service: &Object, port: u16) -> Result<Resolved, String> {
    let spec = |name: &str| service.str_at(&["spec", name]);
    match spec("type") {
        "ExternalName" => Ok(Resolved::Name { host: spec("externalName").to_owned(), port }),
        "" | "ClusterIP" | "LoadBalancer" | "NodePort" => {
            let ip = spec("clusterIP");
            if ip == "None" {
                return Err("cannot route to service with ClusterIP \"None\"".to_owned());
            }
            let ports = service.array_at(&["spec", "ports"]);
            if !ports.iter().any(|known| known.int_at(&["port"]) == Some(i64::from(port))) {
                let name = service.name();
                return Err(format!("no service port {port} found for service {name:?}"));
            }
            let ip: IpAddr = ip.parse().map_err(|_| format!("{ip:?} is no address"))?;
            Ok(Resolved::Addresses(vec![SocketAddr::new(ip, port)]))
        }
        other => Err(format!("unsupported service type {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::{Value, value};

    #[test]
    fn a_service_is_reached_by_its_cluster_ip_or_its_external_name() {
        let check = |spec: Value, port: u16, want: Result<&str, &str>| {
            let service = value!({"metadata": {"name": "a"}, "spec": (spec)});
            let service = Object::from_value(service).expect("an object");
            let got = route(&service, port).map(|resolved| match resolved {
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
}
