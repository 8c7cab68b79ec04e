//! What plug-ins make of objects, beside a handful of stored ones.

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
    /// A world with the namespace `n` and its default account.
    pub fn new() -> World {
        let account = keelson_meta::value!({"metadata": {"name": "default", "namespace": "n"}});
        World::default().with("", "serviceaccounts", account)
    }

    /// With a stored object.
    pub fn with(mut self, group: &'static str, resource: &'static str, value: Value) -> World {
        self.objects.push((group, resource, object(value)));
        self
    }

    /// With a feature that is on.
    pub fn feature(mut self, feature: Feature) -> World {
        self.features = self.features.with(feature, true);
        self
    }

    /// With a label of the namespace.
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
        let of = |obj: &Object| namespace.is_empty() || obj.namespace() == namespace;
        let all =
            self.objects.iter().filter(|(g, r, obj)| (*g, *r) == (group, resource) && of(obj));
        Ok(all.map(|(_, _, obj)| obj.clone()).collect())
    }

    fn is_terminating(&self, namespace: &str) -> Option<bool> {
        (namespace == "n").then_some(false)
    }

    fn labels_of(&self, namespace: &str) -> Vec<(Str, Str)> {
        if namespace == "n" { self.labels.clone() } else { vec![] }
    }
}

/// The object of a value that is a map.
pub fn object(value: Value) -> Object {
    Object::from_value(value).expect("a test's object is a map")
}

/// Asks about a request for `group/resource[/subresource]` in the namespace `n`.
pub fn asked<T>(
    world: &World,
    path: &str,
    old: Option<&Object>,
    ask: impl FnOnce(&Request<'_>) -> T,
) -> T {
    asked_with(world, PlugInConfig::none(), path, old, ask)
}

fn asked_with<T>(
    world: &World,
    config: &PlugInConfig,
    path: &str,
    old: Option<&Object>,
    ask: impl FnOnce(&Request<'_>) -> T,
) -> T {
    let (group, rest) = path.split_once('/').unwrap_or(("", path));
    let (resource, subresource) = rest.split_once('/').unwrap_or((rest, ""));
    let (gvr, user) = (
        GroupVersionResource::new(group, "v1", resource),
        User { name: "u".into(), ..User::default() },
    );
    ask(&Request {
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

/// The object as all default plug-ins leave it, with the warnings, or the message of a refusal.
pub fn admitted(
    world: &World,
    path: &str,
    value: Value,
    old: Option<&Object>,
) -> Result<(Object, Vec<Str>), String> {
    let (result, recorder) = noted(world, PlugInConfig::none(), path, value, old);
    result.map(|obj| (obj, recorder.warnings)).map_err(|status| status.message.clone())
}

/// What all default plug-ins make of an object, and what they note of it.
pub fn noted(
    world: &World,
    config: &PlugInConfig,
    path: &str,
    value: Value,
    old: Option<&Object>,
) -> (Result<Object, Failure>, Recorder) {
    let (chain, mut obj, mut recorder) = (Chain::default(), object(value), Recorder::default());
    let result = asked_with(world, config, path, old, |req| {
        chain.admit(req, &mut obj, &mut recorder)?;
        chain.validate(req, &obj, &mut recorder)
    });
    (result.map(|()| obj), recorder)
}

/// What a refusal says behind `is forbidden: `; empty when it is none.
pub fn refusal(world: &World, path: &str, value: Value) -> String {
    let message = admitted(world, path, value, None).err().unwrap_or_default();
    message.split_once("is forbidden: ").map_or(message.clone(), |(_, why)| why.to_owned())
}
