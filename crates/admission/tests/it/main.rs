//! Tests of plug-ins with a few stored objects.

mod declared_features;
mod jobs;
mod limits;
mod metrics;
mod pods;
mod quotas;
mod security;

use keelson_admission::{Chain, Operation, PlugInConfig, Recorder, Request, Stored};
use keelson_auth::User;
use keelson_meta::{Failure, Feature, Features, GroupVersionResource, Object, Str, Value};

/// Stored objects: group, resource and the object.
#[derive(Default)]
pub struct World {
    objects: Vec<(&'static str, &'static str, Object)>,
    labels: Vec<(Str, Str)>,
    features: Features,
}

impl World {
    /// Returns a world with the namespace `n` and its default service account.
    pub fn new() -> World {
        let account = keelson_meta::value!({"metadata": {"name": "default", "namespace": "n"}});
        World::default().with("", "serviceaccounts", account)
    }

    /// Adds a stored object.
    pub fn with(mut self, group: &'static str, resource: &'static str, value: Value) -> World {
        self.objects.push((group, resource, object(value)));
        self
    }

    /// Enables a feature gate.
    pub fn feature(mut self, feature: Feature) -> World {
        self.features = self.features.with(feature, true);
        self
    }

    /// Adds a label of the namespace.
    pub fn labelled(mut self, key: &str, value: &str) -> World {
        self.labels.push((key.into(), value.into()));
        self
    }
}

impl Stored for World {
    fn get(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Failure> {
        let all = self.list(group, resource, namespace)?;
        Ok(all.into_iter().find(|obj| obj.name() == name))
    }

    fn list_with(
        &self,
        group: &str,
        resource: &str,
        namespace: &str,
        _words: &[&str],
    ) -> Result<Vec<Object>, Failure> {
        let is_in = |obj: &Object| namespace.is_empty() || obj.namespace() == namespace;
        let all =
            self.objects.iter().filter(|(g, r, obj)| (*g, *r) == (group, resource) && is_in(obj));
        Ok(all.map(|(_, _, obj)| obj.clone()).collect())
    }

    fn is_terminating(&self, namespace: &str) -> Option<bool> {
        (namespace == "n").then_some(false)
    }

    fn labels_of(&self, namespace: &str) -> Vec<(Str, Str)> {
        if namespace == "n" { self.labels.clone() } else { vec![] }
    }
}

/// Returns a value, which must be a map, as an object.
pub fn object(value: Value) -> Object {
    Object::from_value(value).expect("a test's object is a map")
}

/// Calls `call` with a request for `group/resource[/subresource]` in the namespace `n`.
pub fn with_request<T>(
    world: &World,
    path: &str,
    old: Option<&Object>,
    call: impl FnOnce(&Request<'_>) -> T,
) -> T {
    with_configured_request(world, PlugInConfig::none(), path, old, call)
}

fn with_configured_request<T>(
    world: &World,
    config: &PlugInConfig,
    path: &str,
    old: Option<&Object>,
    call: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let (group, rest) = path.split_once('/').unwrap_or(("", path));
    let (resource, subresource) = rest.split_once('/').unwrap_or((rest, ""));
    let gvr = GroupVersionResource::new(group, "v1", resource);
    let user = User { name: "u".into(), ..User::default() };
    call(&Request {
        operation: if old.is_some() { Operation::Update } else { Operation::Create },
        gvr: &gvr,
        subresource,
        namespace: "n",
        name: "",
        user: &user,
        dry_run: false,
        old,
        stored: world,
        config,
        now: &|| keelson_meta::Timestamp { seconds: 0, nanos: 0 },
        features: world.features,
        generate_name: &|base| Str::from(format!("{base}abcde")),
    })
}

/// Returns the object and warnings after all default plug-ins, or the message of the rejection.
pub fn admit(
    world: &World,
    path: &str,
    value: Value,
    old: Option<&Object>,
) -> Result<(Object, Vec<Str>), String> {
    let (result, recorder) = admit_with_config(world, PlugInConfig::none(), path, value, old);
    result.map(|obj| (obj, recorder.warnings)).map_err(|status| status.message.clone())
}

/// Returns the result of all default plug-ins, and what they recorded.
pub fn admit_with_config(
    world: &World,
    config: &PlugInConfig,
    path: &str,
    value: Value,
    old: Option<&Object>,
) -> (Result<Object, Failure>, Recorder) {
    let chain = Chain::default();
    let mut obj = object(value);
    let mut recorder = Recorder::default();
    let result = with_configured_request(world, config, path, old, |req| {
        chain.admit(req, &mut obj, &mut recorder)?;
        chain.validate(req, &obj, &mut recorder)
    });
    (result.map(|()| obj), recorder)
}

/// Returns the message of a rejection after `is forbidden: `; empty if the object is admitted.
pub fn rejection(world: &World, path: &str, value: Value) -> String {
    let message = admit(world, path, value, None).err().unwrap_or_default();
    message.split_once("is forbidden: ").map_or(message.clone(), |(_, why)| why.to_owned())
}
