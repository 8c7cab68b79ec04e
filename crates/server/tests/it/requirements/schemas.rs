//! Rules on the published schemas: R-TYPE, R-NAME, and parts of R-KIND and R-COND.

use super::server;
use super::world::read;
use serde_json::{Value, json};

/// Calls a function with each definition, field and schema of the field in /openapi/v2.
fn each_field(definitions: &Value, mut visit: impl FnMut(&str, &str, &Value)) {
    for (name, schema) in definitions.as_object().expect("definitions") {
        let short = name.rsplit('.').next().unwrap_or_default();
        for (field, of) in schema["properties"].as_object().into_iter().flatten() {
            visit(short, field, of);
        }
    }
}

fn definitions() -> Value {
    let server = server();
    let definitions = read(&server.client(), "/openapi/v2")["definitions"].clone();
    server.stop();
    definitions
}

/// Returns the definitions of kinds by short name.
fn kinds(definitions: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = definitions.as_object().expect("definitions").iter();
    let kinds = all.filter(|(_, schema)| schema["x-kubernetes-group-version-kind"].is_array());
    kinds.map(|(name, schema)| (name.rsplit('.').next().unwrap_or_default(), schema))
}

/// Proves: R-KIND-10, R-KIND-11, R-KIND-29.
#[test]
fn lists_and_objects_have_their_members() {
    let definitions = definitions();
    let mut lists = 0;
    let mut objects = 0;
    for (name, schema) in kinds(&definitions) {
        let has = |member: &str| schema["properties"][member].is_object();
        if has("items") {
            assert!(name.ends_with("List"), "{name}");
            assert_eq!(schema["properties"]["items"]["type"], "array", "{name}");
            let required = schema["required"].as_array().expect("required fields");
            assert!(required.contains(&json!("items")), "{name}");
            lists += 1;
        } else {
            // Discovery names its lists by what they hold.
            let own = ["APIGroupList", "APIResourceList"].contains(&name);
            assert!(own || !name.ends_with("List"), "{name}");
        }
        if has("spec") || has("status") && name != "Status" {
            assert!(has("metadata"), "{name}");
        }
        if has("spec") && has("status") {
            let mut members: Vec<&String> =
                schema["properties"].as_object().expect("fields").keys().collect();
            members.sort();
            assert_eq!(members, ["apiVersion", "kind", "metadata", "spec", "status"], "{name}");
            objects += 1;
        }
    }
    assert!(lists > 50 && objects > 25, "{lists} {objects}");
}

/// Fields that a kube-apiserver 1.36 names otherwise: the oldest, and those of JSON Schema.
const OTHER_NAMES: [&str; 9] = [
    "DaemonEndpoint.Port",
    "JSONSchemaProps.$ref",
    "JSONSchemaProps.$schema",
    "JSONSchemaProps.x-kubernetes-embedded-resource",
    "JSONSchemaProps.x-kubernetes-int-or-string",
    "JSONSchemaProps.x-kubernetes-list-map-keys",
    "JSONSchemaProps.x-kubernetes-list-type",
    "JSONSchemaProps.x-kubernetes-map-type",
    "JSONSchemaProps.x-kubernetes-preserve-unknown-fields",
];

/// Proves: R-NAME-03.
#[test]
fn fields_are_named_in_camel_case() {
    let mut others = vec![];
    each_field(&definitions(), |name, field, _| {
        let inner = |c: char| c.is_ascii_alphanumeric();
        if !field.starts_with(|c: char| c.is_ascii_lowercase()) || !field.chars().all(inner) {
            others.push(format!("{name}.{field}"));
        }
    });
    others.retain(|other| other != "JSONSchemaProps.x-kubernetes-validations");
    others.sort();
    assert_eq!(others, OTHER_NAMES);
}

/// Maps of objects in a kube-apiserver 1.36: schemas, devices, and pods by name.
const MAPS_OF_OBJECTS: [&str; 13] = [
    "CertificateSigningRequestSpec.extra",
    "CounterSet.counters",
    "Device.attributes",
    "Device.capacity",
    "Device.nodeAllocatableResourceMappings",
    "DeviceCounterConsumption.counters",
    "JSONSchemaProps.definitions",
    "JSONSchemaProps.dependencies",
    "JSONSchemaProps.patternProperties",
    "JSONSchemaProps.properties",
    "PodDisruptionBudgetStatus.disruptedPods",
    "SubjectAccessReviewSpec.extra",
    "UserInfo.extra",
];

/// Proves: R-TYPE-01, R-TYPE-02, R-TYPE-06, R-TYPE-07, R-TYPE-08, R-TYPE-13.
#[test]
fn fields_have_the_types_of_the_conventions() {
    let mut floats = vec![];
    let mut maps = vec![];
    let mut seconds = 0;
    each_field(&definitions(), |name, field, schema| {
        let place = format!("{name}.{field}");
        match schema["type"].as_str() {
            // Integers are signed, of 32 or 64 bits.
            Some("integer") => {
                let format = schema["format"].as_str().unwrap_or_default();
                assert!(["int32", "int64"].contains(&format), "{place}: {schema}");
            }
            Some("number") => floats.push(place.clone()),
            Some("object") => {
                let values = &schema["additionalProperties"];
                let reference = values["$ref"].as_str().unwrap_or_default();
                let plain = values["type"] == "string" || reference.ends_with(".Quantity");
                if values.is_object() && !plain {
                    maps.push(place.clone());
                }
            }
            _ => {}
        }
        if ["Seconds", "Minutes", "Millis"].iter().any(|unit| field.ends_with(unit)) {
            assert_eq!(schema["type"], "integer", "{place}");
            seconds += 1;
        }
        // No text holds a duration; amounts are quantities, which are parsed.
        let lower = field.to_lowercase();
        let duration = ["duration", "timeout", "period"].iter().any(|word| lower.contains(word));
        assert!(!(duration && schema["type"] == "string"), "{place}");
    });
    // Bounds of JSON Schema, which stand in the spec of a definition.
    let bounds = ["maximum", "minimum", "multipleOf"].map(|name| format!("JSONSchemaProps.{name}"));
    floats.sort();
    maps.sort();
    assert_eq!((floats, maps), (bounds.to_vec(), MAPS_OF_OBJECTS.map(str::to_owned).to_vec()));
    assert!(seconds > 25, "{seconds}");
}

/// Proves: R-COND-01, R-COND-02, R-COND-03, R-COND-11.
#[test]
fn conditions_have_the_newer_or_the_older_form() {
    let definitions = definitions();
    let mut forms = 0;
    for (name, schema) in definitions.as_object().expect("definitions") {
        let short = name.rsplit('.').next().unwrap_or_default();
        if !short.ends_with("Condition") || short == "MatchCondition" {
            continue;
        }
        forms += 1;
        let newer = json!(["type", "status", "lastTransitionTime", "reason", "message"]);
        let required = &schema["required"];
        match short {
            "Condition" => {
                assert_eq!(
                    (required, &schema["properties"]["observedGeneration"]["format"]),
                    (&newer, &json!("int64"))
                );
            }
            // These two require nothing, as in a kube-apiserver 1.36.
            "FlowSchemaCondition" | "PriorityLevelConfigurationCondition" => {
                assert!(required.is_null())
            }
            _ => assert_eq!(*required, json!(["type", "status"]), "{short}"),
        }
        for member in ["type", "status"] {
            assert_eq!(schema["properties"][member]["type"], "string", "{short}");
        }
    }
    assert!(forms > 15, "{forms}");
    let mut lists = 0;
    let mut phases = vec![];
    each_field(&definitions, |name, field, schema| match field {
        "conditions" if name.ends_with("Status") => {
            lists += 1;
            let keys = (&schema["x-kubernetes-list-type"], &schema["x-kubernetes-list-map-keys"]);
            // The conditions of a Job are replaced as a whole by an apply, but merge by type.
            let of_job = name == "JobStatus" && schema["x-kubernetes-patch-merge-key"] == "type";
            assert!(of_job || keys == (&json!("map"), &json!(["type"])), "{name}: {schema}");
        }
        "phase" => phases.push(name.to_owned()),
        _ => {}
    });
    assert!(lists > 15, "{lists}");
    phases.sort();
    let older = [
        "NamespaceStatus",
        "NodeStatus",
        "PersistentVolumeClaimStatus",
        "PersistentVolumeStatus",
        "PodStatus",
    ];
    assert_eq!(phases, older);
}
