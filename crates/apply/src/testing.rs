//! Helpers for the tests of this crate: JSON, schemas written as short text, and a server with one
//! object.

use crate::apply::{self, ApplyError};
use crate::fields::{FieldSet, Filter};
use crate::managed::{self, Managers, Scope};
use keelson_meta::{GroupVersionKind, Object, Str, Value};
use keelson_schema::canonical::{Canonicalizer, GoDecoder};
use keelson_schema::types::{ListShape, MapShape};
use keelson_schema::{Field, ListKind, Presence, Schema, Shape, Struct, StructId, Types};
use std::collections::HashMap;

/// Parses JSON.
pub fn json(text: &str) -> Value {
    keelson_schema::json::parse(text.as_bytes()).expect("the test's JSON is valid").value
}

/// Formats JSON with members in the order of the maps.
pub fn show(value: &Value) -> String {
    let mut out = vec![];
    keelson_schema::json::write_value(value, &mut out);
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Parses a schema from lines `Name { member: type, .. }`, one for each struct. The first is the
/// root.
///
/// Types are scalar names, names of structs, `[item]` for lists and `<value>` for maps. A list may
/// be followed by `set`, `map(key+key)`, `merge` and `merge(key)`, a map by `atomic`. `!` is
/// [`Presence::Always`], `?` is [`Presence::OmitEmpty`], `=word` a default. The name of an atomic
/// struct follows `atomic`.
pub fn schema(gvk: (&str, &str, &str), text: &str) -> Schema {
    let blocks: Vec<(&str, &str)> = text
        .lines()
        .filter_map(|line| line.trim().trim_end_matches('}').split_once('{'))
        .map(|(name, body)| (name.trim(), body.trim()))
        .collect();
    let names: HashMap<&str, StructId> = blocks
        .iter()
        .zip(0..)
        .map(|((name, _), id)| (name.trim_start_matches("atomic "), StructId(id)))
        .collect();
    let structs = blocks.iter().map(|(name, body)| {
        let fields = body
            .split(',')
            .map(str::trim)
            .filter(|member| !member.is_empty())
            .map(|member| field(member, &names))
            .collect();
        let mut parsed = Struct::new(name.trim_start_matches("atomic "), fields);
        parsed.atomic = name.starts_with("atomic ");
        parsed
    });
    Schema {
        gvk: GroupVersionKind::new(gvk.0, gvk.1, gvk.2),
        types: Types::new(structs.collect()).into(),
        root: StructId(0),
    }
}

/// The schema of a Deployment with the fields that the tests use.
pub fn deployment() -> Schema {
    schema(("apps", "v1", "Deployment"), &format!("{DEPLOYMENT}{WORKLOAD}{META}"))
}

/// The schema of a Pod with the fields that the tests use.
pub fn pod() -> Schema {
    schema(("", "v1", "Pod"), &format!("{POD}{WORKLOAD}{META}"))
}

/// The schema of a ConfigMap.
pub fn config_map() -> Schema {
    schema(("", "v1", "ConfigMap"), &format!("{CONFIG_MAP}{META}"))
}

/// The schema of a Service with the fields that the tests use.
pub fn service() -> Schema {
    schema(("", "v1", "Service"), &format!("{SERVICE}{META}"))
}

/// The schema of an EndpointSlice with the fields that the tests use.
pub fn endpoint_slice() -> Schema {
    schema(("discovery.k8s.io", "v1", "EndpointSlice"), &format!("{ENDPOINT_SLICE}{META}"))
}

const ENDPOINT_SLICE: &str = "
    EndpointSlice { apiVersion: string?, kind: string?, metadata: ObjectMeta!, endpoints: [Endpoint]! }
    Endpoint { addresses: [string]set!, conditions: EndpointConditions! }
    EndpointConditions { ready: bool }
";

const DEPLOYMENT: &str = "
    Deployment { apiVersion: string?, kind: string?, metadata: ObjectMeta!, spec: DeploymentSpec!, status: DeploymentStatus! }
    DeploymentSpec { replicas: int32, selector: LabelSelector, template: PodTemplateSpec!, strategy: DeploymentStrategy!, minReadySeconds: int32?, paused: bool? }
    DeploymentStrategy { type: string?, rollingUpdate: RollingUpdate }
    RollingUpdate { maxSurge: intorstring, maxUnavailable: intorstring }
    DeploymentStatus { replicas: int32?, readyReplicas: int32?, conditions: [Condition]map(type) merge(type)? }
    Condition { type: string!, status: string!, lastTransitionTime: time!, reason: string?, message: string? }
    atomic LabelSelector { matchLabels: <string>? }
    PodTemplateSpec { metadata: ObjectMeta!, spec: PodSpec! }
";

const POD: &str = "
    Pod { apiVersion: string?, kind: string?, metadata: ObjectMeta!, spec: PodSpec! }
";

const WORKLOAD: &str = "
    PodSpec { containers: [Container]map(name) merge(name)!, volumes: [Volume]map(name) merge(name)?, nodeSelector: <string>atomic?, tolerations: [Toleration]?, imagePullSecrets: [LocalRef]map(name) merge(name)?, topologySpreadConstraints: [Spread]map(topologyKey+whenUnsatisfiable) merge(topologyKey)?, terminationGracePeriodSeconds: int64, securityContext: SecurityContext }
    Container { name: string!, image: string?, args: [string]?, env: [EnvVar]map(name) merge(name)?, ports: [ContainerPort]map(containerPort+protocol) merge(containerPort)?, resources: Resources!, securityContext: SecurityContext, imagePullPolicy: string? }
    EnvVar { name: string!, value: string?, valueFrom: json }
    ContainerPort { name: string?, containerPort: int32!, protocol: string?=TCP }
    Resources { limits: <quantity>?, requests: <quantity>? }
    SecurityContext { runAsUser: int64 }
    Volume { name: string!, emptyDir: EmptyDir, secret: SecretVolume, configMap: json }
    EmptyDir { medium: string? }
    SecretVolume { secretName: string? }
    Toleration { key: string?, operator: string? }
    LocalRef { name: string? }
    Spread { maxSkew: int32!, topologyKey: string!, whenUnsatisfiable: string! }
";

const SERVICE: &str = "
    Service { apiVersion: string?, kind: string?, metadata: ObjectMeta!, spec: ServiceSpec! }
    ServiceSpec { ports: [ServicePort]map(port+protocol) merge(port)?, selector: <string>atomic?, clusterIP: string? }
    ServicePort { name: string?, protocol: string?=TCP, port: int32!, targetPort: intorstring! }
";

const CONFIG_MAP: &str = "
    ConfigMap { apiVersion: string?, kind: string?, metadata: ObjectMeta!, data: <string>?, immutable: bool }
";

const META: &str = "
    ObjectMeta { name: string?, generateName: string?, namespace: string?, uid: string?, resourceVersion: string?, generation: int64?, creationTimestamp: time, labels: <string>?, annotations: <string>?, finalizers: [string]set merge?, ownerReferences: [OwnerReference]map(uid) merge(uid)?, managedFields: [Entry]? }
    atomic OwnerReference { apiVersion: string!, kind: string!, name: string!, uid: string!, controller: bool }
    Entry { manager: string?, operation: string?, apiVersion: string?, time: time, fieldsType: string?, fieldsV1: fields, subresource: string? }
";

fn field(text: &str, names: &HashMap<&str, StructId>) -> Field {
    let (name, spec) = text.split_once(':').expect("a member has a type");
    let (spec, default) = match spec.split_once('=') {
        Some((spec, default)) => (spec.trim(), Some(Box::new(Value::from(default.trim())))),
        None => (spec.trim(), None),
    };
    let presence = match spec.as_bytes().last() {
        Some(b'!') => Presence::Always,
        Some(b'?') => Presence::OmitEmpty,
        _ => Presence::Pointer,
    };
    let mut field = Field::new(name.trim(), shape(spec.trim_end_matches(['!', '?']).trim(), names));
    field.presence = presence;
    field.default = default;
    field
}

fn shape(text: &str, names: &HashMap<&str, StructId>) -> Shape {
    if let Some(inner) = text.strip_prefix('[') {
        let (item, rules) = inner.rsplit_once(']').expect("a list ends");
        return list(shape(item.trim(), names), rules.trim());
    }
    if let Some(inner) = text.strip_prefix('<') {
        let (value, rules) = inner.rsplit_once('>').expect("a map ends");
        let atomic = rules.trim() == "atomic";
        return Shape::Map(Box::new(MapShape {
            value: shape(value.trim(), names),
            nullable: false,
            default: None,
            atomic,
        }));
    }
    match text {
        "string" => Shape::String,
        "bool" => Shape::Bool,
        "int32" => Shape::Int32,
        "int64" => Shape::Int64,
        "time" => Shape::Time,
        "quantity" => Shape::Quantity,
        "intorstring" => Shape::IntOrString,
        "json" => Shape::Json,
        "raw" => Shape::RawExtension,
        "fields" => Shape::FieldsV1,
        name => Shape::Struct(*names.get(name).unwrap_or_else(|| panic!("no struct {name}"))),
    }
}

fn list(item: Shape, rules: &str) -> Shape {
    let mut list = ListShape::atomic(item);
    for rule in rules.split_inclusive([')', ' ']).map(str::trim).filter(|rule| !rule.is_empty()) {
        match rule.split_once('(') {
            None if rule == "set" => list.kind = ListKind::Set,
            None => list.patch_merge = rule == "merge",
            Some((word, keys)) => {
                let keys = keys.trim_end_matches(')').split('+').map(Str::new);
                if word == "map" {
                    list.kind = ListKind::Map(keys.collect());
                } else {
                    list.patch_merge = true;
                    list.patch_merge_key = keys.collect::<Vec<_>>().pop();
                }
            }
        }
    }
    Shape::List(Box::new(list))
}

/// A server that stores one object.
pub struct Server {
    pub schema: Schema,
    pub filter: Option<Filter>,
    pub subresource: &'static str,
    pub object: Object,
    /// Seconds since the start. Each request takes one.
    pub seconds: u32,
    /// Whether the last apply changed the object.
    pub changed: bool,
}

impl Server {
    pub fn new(schema: Schema) -> Self {
        let filter = Some(Filter::Exclude(FieldSet::of_fields(&[&["status"]])));
        Server {
            schema,
            filter,
            subresource: "",
            object: Object::new(),
            seconds: 0,
            changed: false,
        }
    }

    fn now(&mut self) -> String {
        self.seconds += 1;
        format!("2026-01-01T00:{:02}:{:02}Z", self.seconds / 60, self.seconds % 60)
    }

    fn scope(&self) -> Scope<'_> {
        Scope {
            schema: &self.schema,
            subresource: self.subresource,
            filter: self.filter.as_ref(),
            convert: &|_, _| Ok(None),
        }
    }

    /// Canonicalizes an object to its schema, as before it is stored.
    fn canonicalize(&self, object: Object) -> Object {
        let mut canonicalize = Canonicalizer::new(&self.schema.types, GoDecoder::Json);
        let root = canonicalize.object(self.schema.root(), object.into_value());
        let mut object = Object { root: root.expect("the object fits its schema") };
        object.set_gvk(&self.schema.gvk);
        object.set_meta("uid", "u");
        object
    }

    /// Adds `apiVersion`, `kind` and `metadata.name`.
    pub fn complete(&self, text: &str) -> Value {
        let mut object = Object::from_value(json(text)).expect("the test's object is a map");
        if object.kind().is_empty() {
            object.set_gvk(&self.schema.gvk);
        }
        object.set_meta("name", "a");
        object.into_value()
    }

    /// Applies a configuration.
    pub fn apply(&mut self, manager: &str, config: &str) -> Result<(), ApplyError> {
        self.apply_as(manager, config, false)
    }

    /// Applies a configuration with `force`.
    pub fn force(&mut self, manager: &str, config: &str) -> Result<(), ApplyError> {
        self.apply_as(manager, config, true)
    }

    fn apply_as(&mut self, manager: &str, config: &str, force: bool) -> Result<(), ApplyError> {
        let now = self.now();
        let request = apply::Request { manager, force, now: &now };
        let config = self.complete(config);
        let live = self.object.clone();
        let applied = apply::apply(&self.scope(), &request, &live, &config)?;
        self.changed = applied.changed;
        let mut object = self.canonicalize(applied.object);
        managed::restore_times(&self.object, &mut object);
        self.object = object;
        Ok(())
    }

    /// Updates the object, or creates it.
    pub fn put(&mut self, manager: &str, object: &str) {
        let now = self.now();
        let mut object =
            Object::from_value(self.complete(object)).expect("the test's object is a map");
        object.set_meta("uid", self.object.uid());
        let mut object = self.canonicalize(object);
        if self.object.uid().is_empty() {
            object.set_meta("uid", "");
        }
        let old = (!self.object.uid().is_empty()).then_some(&self.object);
        managed::update(&self.scope(), manager, &now, old, &mut object);
        object.set_meta("uid", "u");
        managed::restore_times(&self.object, &mut object);
        self.object = object;
    }

    /// Applies a JSON merge patch.
    pub fn patch(&mut self, manager: &str, patch: &str) {
        let live = self.object.clone().into_value();
        let patched = crate::merge_patch::apply(live, &json(patch)).expect("the patch fits");
        let object = Object::from_value(patched).expect("a patched object is a map");
        self.put(manager, &show(&self.canonicalize(object).into_value()));
    }

    /// Returns the value at `path` as JSON.
    pub fn at(&self, path: &[&str]) -> String {
        self.object.at(path).map_or("absent".to_owned(), show)
    }

    /// Returns the field managers of the object.
    pub fn managers(&self) -> Managers {
        let entries = self.object.array_at(&["metadata", "managedFields"]);
        Managers::decode(entries).expect("written entries decode")
    }

    /// Returns the field managers as text, one per line.
    pub fn owners(&self) -> String {
        let managers = self.managers();
        let lines = managers.iter().map(|manager| {
            let subresource = match manager.subresource.as_str() {
                "" => String::new(),
                name => format!("/{name}"),
            };
            let time = manager.time.as_deref().map_or("never", |time| &time[14..19]);
            let fields = show(&manager.fields().encode());
            format!("{} {}{subresource} {time} {fields}", manager.name, manager.operation.as_str())
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}
