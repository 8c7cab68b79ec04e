//! The objects of the servers behind this one, as a control loop deletes and lists them.

use crate::client::Client;
use keelson_auth::Attributes;
use keelson_meta::{Failure, GroupVersionResource, Status, Str, Value, value};
use keelson_registry::RemoteCall;
use keelson_resources::RemoteServer;
use std::sync::Arc;

/// The objects of one resource in a namespace, which another server serves.
#[derive(Clone, Debug)]
pub struct FarObjects {
    /// The server.
    pub server: Arc<RemoteServer>,
    /// The resource.
    pub gvr: GroupVersionResource,
    /// The namespace.
    pub namespace: Str,
}

impl FarObjects {
    fn path(&self, name: &str) -> String {
        let GroupVersionResource { group, version, resource } = &self.gvr;
        let separator = if name.is_empty() { "" } else { "/" };
        format!("/apis/{group}/{version}/namespaces/{}/{resource}{separator}{name}", self.namespace)
    }
}

impl Client {
    /// Deletes all objects, those that depend on them later.
    pub async fn delete_all_far(&self, objects: &FarObjects) -> Result<(), Failure> {
        self.far(objects, "deletecollection", "").await.map(drop)
    }

    /// Deletes one object. It is no failure if it is not there.
    pub async fn delete_far(&self, objects: &FarObjects, name: &str) -> Result<(), Failure> {
        match self.far(objects, "delete", name).await {
            Err(failure) if failure.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }

    /// Returns all objects, or their metadata.
    pub async fn list_far(&self, objects: &FarObjects) -> Result<Value, Failure> {
        self.far(objects, "list", "").await
    }

    /// Sends a request as the user of this client, if he may send it.
    async fn far(
        &self,
        objects: &FarObjects,
        verb: &'static str,
        name: &str,
    ) -> Result<Value, Failure> {
        let attributes = Attributes {
            verb: Str::new_static(verb),
            gvr: objects.gvr.clone(),
            namespace: objects.namespace.clone(),
            name: Str::new(name),
            ..Attributes::default()
        };
        let user = self.user();
        self.registry.options.authorizer.authorize(user.clone(), attributes).await?;
        let is_list = verb == "list";
        let body = match is_list {
            true => Value::Null,
            false => value!({
                "kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"
            }),
        };
        let call = RemoteCall {
            server: objects.server.clone(),
            user: user.clone(),
            method: if is_list { "GET" } else { "DELETE" },
            path: objects.path(name),
            body,
        };
        let path = call.path.clone();
        let answer = self.registry.call_remote(call).await;
        match answer.map_err(|why| Status::unavailable(format!("{path}: {why}")))? {
            (200..300, body) => Ok(body),
            (404, _) => Err(Status::not_found(&objects.gvr, name)),
            (code, body) => {
                let told = body.str_at(&["message"]).unwrap_or_default();
                Err(Status::internal(format!("{path}: status {code}: {told}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_paths() {
        let objects = FarObjects {
            server: Arc::new(RemoteServer {
                namespace: "default".into(),
                service: "behind".into(),
                port: 443,
                ca_bundle: None,
                is_insecure: false,
            }),
            gvr: GroupVersionResource::new("g", "v1", "things"),
            namespace: "team".into(),
        };
        assert_eq!(objects.path(""), "/apis/g/v1/namespaces/team/things");
        assert_eq!(objects.path("a"), "/apis/g/v1/namespaces/team/things/a");
    }
}
