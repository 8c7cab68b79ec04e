//! A registry with a store in memory, and requests in the form of HTTP.

use bytes::Bytes;
use keelson_auth::{Attributes, Authorizer, MASTERS, Permit};
use keelson_builtin::{Opened, Services};
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{Failure, Features, GroupVersionKind, Object, Str, Value};
use keelson_registry::options::{
    DeleteOptions, FieldValidation, Freshness, Patch, PatchForm, Propagation, WriteOptions,
};
use keelson_registry::{
    Answer, Clock, PortRange, Registry, RegistryOptions, Subresource, SystemClock, Target,
};
use keelson_resources::Kind;
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{self, Format};
use keelson_schema::json;
use keelson_store::{Embedded, Op, Store, Txn};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// A registry with the built-in kinds, without an HTTP server.
pub struct Harness {
    /// The registry.
    pub registry: Arc<Registry>,
    /// The allocator of service addresses and ports.
    pub services: Arc<Services>,
    /// A permit for every action.
    pub permit: Permit,
}

/// The object or collection of a path.
pub struct Place {
    /// Resource, namespace and name.
    pub target: Target,
    /// `status`, `scale` or nothing.
    pub sub: String,
}

impl Harness {
    /// Returns a harness over an empty store.
    pub async fn open() -> Harness {
        Harness::over(Embedded::in_memory(), Box::new(SystemClock)).await
    }

    /// Returns a harness over this store, with this clock.
    pub async fn over(store: Arc<dyn Store>, clock: Box<dyn Clock>) -> Harness {
        Harness::with_ports(store, clock, PortRange::default()).await
    }

    /// Like [`Harness::over`], with this node port range.
    pub async fn with_ports(
        store: Arc<dyn Store>,
        clock: Box<dyn Clock>,
        node_ports: PortRange,
    ) -> Harness {
        Harness::with_options(store, clock, |options| options.node_ports = node_ports).await
    }

    /// Like [`Harness::over`], with all versions and these feature gates.
    pub async fn with_features(features: Features) -> Harness {
        let change = |options: &mut RegistryOptions| {
            options.runtime_config = vec![("api/all".to_owned(), true)];
            options.features = features;
        };
        Harness::with(change).await
    }

    /// Returns a harness over an empty store, with other options.
    pub async fn with(change: impl FnOnce(&mut RegistryOptions)) -> Harness {
        Harness::with_options(Embedded::in_memory(), Box::new(SystemClock), change).await
    }

    /// Like [`Harness::over`], with other options.
    pub async fn with_options(
        store: Arc<dyn Store>,
        clock: Box<dyn Clock>,
        change: impl FnOnce(&mut RegistryOptions),
    ) -> Harness {
        let mut options = default_options();
        change(&mut options);
        let opened = keelson_builtin::open(store, clock, options).await;
        let Opened { registry, services, .. } = opened.expect("an empty store opens");
        Harness { registry, services, permit: Permit::internal("test") }
    }

    /// Writes bytes to the store and waits until the cache has them.
    pub async fn put_raw(&self, key: &'static str, value: impl Into<Bytes>) {
        let ops = vec![Op::Put { key: key.into(), value: value.into(), lease: None }];
        let txn = Txn { compare: vec![], ops };
        self.registry.store.txn(txn).await.expect("a write");
        self.registry.cache.wait_latest().await.expect("the cache follows the store");
    }

    /// Stores an object without validation and replaces the stored one.
    pub async fn put_object(&self, kind: &Kind, key: Bytes, text: &[u8]) {
        let parsed = json::parse(text).expect("the test's object is JSON");
        let mut obj = decode::canonicalize(&kind.storage, parsed.value).expect("it fits").object;
        let ops = vec![Op::Put { key, value: kind.record(&mut obj), lease: None }];
        self.registry.store.txn(Txn { compare: vec![], ops }).await.expect("a write");
        self.registry.cache.wait_latest().await.expect("the cache follows the store");
    }

    /// Parses a path such as `/api/v1/namespaces/a/pods/b/status`; `None` if no built-in kind is
    /// stored there.
    pub fn place(&self, path: &str) -> Option<Place> {
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let (group, version, rest) = match parts.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => ("", rest),
            ["namespaces", namespace, rest @ ..] => (*namespace, rest),
            _ => ("", rest),
        };
        let (resource, rest) = rest.split_first()?;
        let kind = self.registry.kind(group, resource)?;
        kind.schema(version)?;
        let name = rest.first().copied().unwrap_or_default();
        let target = Target {
            kind,
            version: version.into(),
            namespace: namespace.into(),
            name: name.into(),
        };
        Some(Place { target, sub: rest.get(1).copied().unwrap_or_default().to_owned() })
    }

    /// Sends a request. Returns the status code and the body; `None` for requests that need an HTTP
    /// server.
    pub async fn send(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: &[u8],
    ) -> Option<(u16, Value)> {
        let asked = self.send_with_warnings(method, path, media_type, body).await;
        asked.map(|(code, answer, _)| (code, answer))
    }

    /// Like [`Harness::send`], and also returns the warnings.
    pub async fn send_with_warnings(
        &self,
        method: &str,
        path: &str,
        media_type: &str,
        body: &[u8],
    ) -> Option<(u16, Value, Vec<Str>)> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let place = self.place(path)?;
        let part = match place.sub.as_str() {
            "" => Subresource::None,
            "status" => Subresource::Status,
            "resize" => Subresource::Other("resize"),
            "ephemeralcontainers" => Subresource::Other("ephemeralcontainers"),
            _ => return None,
        };
        let target = &place.target;
        let options = options(query);
        let format = if media_type.contains("yaml") { Format::Yaml } else { Format::Json };
        let is_known = |gvk: &GroupVersionKind| Catalogue::shared().is_known(gvk);
        let decode = || decode::decode(target.schema(), body, format, &is_known);
        let result = match method {
            "POST" if part == Subresource::None => match decode() {
                Ok(body) => {
                    let permit = self.permit_to_create(target).await;
                    self.registry.create(&permit, target, body, &options).await
                }
                Err(status) => Err(status),
            },
            "PUT" => match decode() {
                Ok(body) => self.registry.update(&self.permit, target, part, body, &options).await,
                Err(status) => Err(status),
            },
            "PATCH" => {
                let patch = patch(media_type, body)?;
                self.registry.patch(&self.permit, target, part, &patch, &options).await
            }
            "DELETE" => {
                let deleted = self.delete(target, body).await;
                return deleted.map(|(code, answer)| (code, answer, vec![]));
            }
            "GET" if !target.name.is_empty() => {
                let read = self.registry.get(&self.permit, target, Freshness::Latest).await;
                let (code, answer) = answer(target, 200, read);
                return Some((code, answer, vec![]));
            }
            _ => return None,
        };
        let code = result.as_ref().map_or(200, |written| if written.created { 201 } else { 200 });
        let warnings = match &result {
            Ok(written) => written.warnings.clone(),
            Err(failure) => failure.warnings.clone(),
        };
        let (code, answer) = answer(target, code, result.map(|written| written.answer));
        Some((code, answer, warnings))
    }

    /// A permit of an administrator, because quotas do not apply to internal permits.
    pub async fn permit_to_create(&self, target: &Target) -> Permit {
        let attributes = Attributes {
            verb: "create".into(),
            gvr: target.kind.gvr.clone(),
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            ..Attributes::default()
        };
        let user = self.permit.user().clone().with_group(MASTERS);
        Authorizer::default().authorize(user, attributes).await.expect("a permit")
    }

    async fn delete(&self, target: &Target, body: &[u8]) -> Option<(u16, Value)> {
        if target.name.is_empty() {
            return None;
        }
        let given = json::parse(body).map(|parsed| parsed.value).unwrap_or_default();
        let orphan = given.get("orphanDependents").and_then(Value::as_bool);
        let policy = match orphan {
            Some(true) => Some("Orphan"),
            Some(false) => Some("Background"),
            None => given.str_at(&["propagationPolicy"]),
        };
        let all = [Propagation::Orphan, Propagation::Background, Propagation::Foreground];
        let options = DeleteOptions {
            grace_period_seconds: given.int_at(&["gracePeriodSeconds"]),
            propagation: all.into_iter().find(|one| Some(one.name()) == policy),
            dry_run: given.get("dryRun").is_some(),
            given: orphan.map(|_| "orphanDependents").into_iter().collect(),
            ..DeleteOptions::default()
        };
        let result = self.registry.delete(&self.permit, target, &options, &mut vec![]).await;
        Some((result.map_or_else(|status| status.code, |_| 200), Value::Null))
    }
}

/// Returns the default options.
pub fn default_options() -> RegistryOptions {
    RegistryOptions {
        service_ranges: vec!["10.0.0.0/24".into()],
        node_ports: PortRange::default(),
        kubernetes_node_port: None,
        node_address_types: vec![],
        advertise_address: [192, 0, 2, 1].into(),
        advertise_port: 6443,
        publishes_endpoint: true,
        runtime_config: vec![],
        features: Features::default(),
        allows_privileged: true,
        garbage_collection: true,
        fairness: true,
        admission: Default::default(),
        dynamic_admission: vec![],
        conversion_webhooks: None,
        authorizer: Arc::default(),
        event_ttl: std::time::Duration::ZERO,
        other_stores: vec![],
        simulated_nodes: None,
    }
}

fn patch(media_type: &str, body: &[u8]) -> Option<Patch> {
    let form = match media_type {
        "application/json-patch+json" => PatchForm::Json,
        "application/merge-patch+json" => PatchForm::Merge,
        "application/strategic-merge-patch+json" => PatchForm::Strategic,
        "application/apply-patch+yaml" => PatchForm::ApplyYaml,
        _ => return None,
    };
    Some(Patch { form, body: Bytes::copy_from_slice(body) })
}

fn options(query: &str) -> WriteOptions {
    let get = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next_back()
    };
    WriteOptions {
        dry_run: get("dryRun") == Some("All"),
        field_manager: get("fieldManager").unwrap_or("unknown").into(),
        force: get("force") == Some("true"),
        field_validation: match get("fieldValidation") {
            Some("Strict") => FieldValidation::Strict,
            Some("Ignore") => FieldValidation::Ignore,
            _ => FieldValidation::Warn,
        },
        ..WriteOptions::default()
    }
}

fn answer(target: &Target, code: u16, result: Result<Answer, Failure>) -> (u16, Value) {
    match result {
        Ok(Answer::Entry(entry)) => {
            let stored = target.kind.decode(&entry).expect("what was stored can be read");
            let obj = target.kind.convert(stored, &target.kind.storage, target.schema());
            (code, written(target, &obj))
        }
        Ok(Answer::Object(obj)) => (code, written(target, &obj)),
        Ok(Answer::Success(value)) => (code, value),
        Err(status) => (status.code, status.to_value()),
    }
}

/// Returns the object as clients receive it.
fn written(target: &Target, obj: &Object) -> Value {
    let mut text = vec![];
    json::encode(target.schema(), obj, &mut text);
    json::parse(&text).expect("what was written can be read").value
}

/// Returns the causes of an error as lines `reason field: message`; empty if it is not an error.
pub fn causes(body: &Value) -> Vec<String> {
    let line = |cause: &Value| {
        let text = |name| cause.str_at(&[name]).unwrap_or_default().to_owned();
        format!("{}: {}", text("field"), text("message"))
    };
    body.array_at(&["details", "causes"]).iter().map(line).collect()
}

/// A clock that is stopped at this second.
pub struct SetClock(pub Arc<AtomicI64>);

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp::default().plus(GoDuration::from_seconds(self.0.load(Ordering::Relaxed)))
    }

    fn random(&self) -> [u8; 16] {
        SystemClock.random()
    }
}
