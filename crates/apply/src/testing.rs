//! What the tests of this crate share: JSON in and out, and schemas written as short text.

use keelson_meta::{GroupVersionKind, Str, Value};
use keelson_schema::types::{ListShape, MapShape};
use keelson_schema::{Field, ListKind, Presence, Schema, Shape, Struct, StructId, Types};
use std::collections::HashMap;
use std::sync::Arc;

/// Reads JSON text.
pub fn json(text: &str) -> Value {
    keelson_schema::json::parse(text.as_bytes()).expect("the test's JSON is valid").value
}

/// Writes JSON text, members in the order of the maps.
pub fn show(value: &Value) -> String {
    let mut out = vec![];
    keelson_schema::json::write_value(value, &mut out);
    String::from_utf8(out).expect("JSON is UTF-8")
}

/// Makes a schema from lines `Name { member: type, .. }`, one a struct; the first is the root.
///
/// Types are scalar words, names of structs, `[item]` and `<value>`. After a list may stand `set`,
/// `map(key+key)`, `merge` and `merge(key)`, after a map `atomic`. `!` is [`Presence::Always`], `?`
/// is [`Presence::OmitEmpty`], `=word` a default. `atomic` stands before the name of an atomic
/// struct.
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
        let fields = body.split(',').map(str::trim).filter(|member| !member.is_empty());
        let fields = fields.map(|member| field(member, &names)).collect();
        let mut made = Struct::new(name.trim_start_matches("atomic "), fields);
        made.atomic = name.starts_with("atomic ");
        made
    });
    Schema {
        gvk: GroupVersionKind::new(gvk.0, gvk.1, gvk.2),
        types: Arc::new(Types::new(structs.collect())),
        root: StructId(0),
    }
}

/// A Deployment as the real one is typed, with the members that the tests speak of.
pub fn deployment() -> Schema {
    schema(("apps", "v1", "Deployment"), &format!("{DEPLOYMENT}{WORKLOAD}{META}"))
}

/// A Pod as the real one is typed, with the members that the tests speak of.
pub fn pod() -> Schema {
    schema(("", "v1", "Pod"), &format!("{POD}{WORKLOAD}{META}"))
}

/// A ConfigMap.
pub fn config_map() -> Schema {
    schema(("", "v1", "ConfigMap"), &format!("{CONFIG_MAP}{META}"))
}

/// A Service as the real one is typed, with the members that the tests speak of.
pub fn service() -> Schema {
    schema(("", "v1", "Service"), &format!("{SERVICE}{META}"))
}

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
    OwnerReference { apiVersion: string!, kind: string!, name: string!, uid: string!, controller: bool }
    Entry { manager: string?, operation: string?, apiVersion: string?, time: time, fieldsType: string?, fieldsV1: fields, subresource: string? }
";

fn field(text: &str, names: &HashMap<&str, StructId>) -> Field {
    let (name, spec) = text.split_once(':').expect("a member has a type");
    let (spec, default) = match spec.split_once('=') {
        Some((spec, default)) => (spec.trim(), Some(Value::from(default.trim()))),
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
        return Shape::Map(Box::new(MapShape { value: shape(value.trim(), names), atomic }));
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
    let mut list =
        ListShape { item, kind: ListKind::Atomic, patch_merge: false, patch_merge_key: None };
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
