//! The `scale` subresource: one small kind over the replica counts of several.

use crate::kind::{Answer, Target};
use crate::options::{Freshness, WriteOptions};
use crate::registry::Registry;
use crate::verbs::update::Updated;
use crate::verbs::{Part, Written};
use keelson_auth::Permit;
use keelson_meta::selector::Selector;
use keelson_meta::{
    ErrorList, Failure, FieldError, GroupVersionKind, Map, Object, Path, Status, Value,
};

/// What `scale` speaks: autoscaling/v1 Scale.
pub fn scale_kind() -> GroupVersionKind {
    GroupVersionKind::new("autoscaling", "v1", "Scale")
}

/// The Scale of an object.
fn scale_of(obj: &Object) -> Object {
    let mut metadata = Map::new();
    for name in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = obj.metadata().and_then(|m| m.get(name)) {
            metadata.insert(name, value.clone());
        }
    }
    let mut spec = Map::new();
    spec.insert("replicas", obj.int_at(&["spec", "replicas"]).unwrap_or(0));
    let mut status = Map::new();
    status.insert("replicas", obj.int_at(&["status", "replicas"]).unwrap_or(0));
    let selector = obj.at(&["spec", "selector"]);
    let text = match selector {
        Some(map) if map.get("matchLabels").is_some() || map.get("matchExpressions").is_some() => {
            Selector::from_object(selector).map(|s| s.to_string()).unwrap_or_default()
        }
        Some(Value::Object(labels)) => {
            let pairs = labels.iter().map(|(k, v)| (k.as_str(), v.as_str().unwrap_or_default()));
            Selector::from_labels(pairs).to_string()
        }
        _ => String::new(),
    };
    if !text.is_empty() {
        status.insert("selector", text);
    }
    let mut scale = Object::new();
    scale.set_gvk(&scale_kind());
    scale.root.insert("metadata", metadata);
    scale.root.insert("spec", spec);
    scale.root.insert("status", status);
    scale
}

impl Registry {
    /// The Scale of an object.
    pub async fn get_scale(
        &self,
        permit: &Permit,
        target: &Target,
        freshness: Freshness,
    ) -> Result<Answer, Failure> {
        match self.get(permit, target, freshness).await? {
            Answer::Entry(entry) => Ok(Answer::Object(scale_of(&target.kind.decode(&entry)?))),
            other => Ok(other),
        }
    }

    /// Sets the replica count of an object to that of the Scale that `make` gives.
    pub async fn update_scale(
        &self,
        permit: &Permit,
        target: &Target,
        make: &(dyn Fn(&Object) -> Result<Object, Failure> + Send + Sync),
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        let change = |live: Option<&Object>| {
            let live = live.ok_or_else(|| target.not_found())?;
            let scale = make(&scale_of(live))?;
            check(target, &scale)?;
            let mut object = live.clone();
            let replicas = scale.int_at(&["spec", "replicas"]).unwrap_or(0);
            object.object_mut("spec").insert("replicas", replicas);
            for name in ["resourceVersion", "uid"] {
                let given = scale.metadata().and_then(|m| m.get(name)).cloned();
                match given {
                    Some(value) => object.metadata_mut().insert(name, value),
                    None => object.metadata_mut().remove(name),
                };
            }
            Ok(Updated { object, owned: false })
        };
        let part = Part::Other("scale");
        let mut written = self.change(permit, target, part, &change, options).await?;
        let obj = match &written.answer {
            Answer::Entry(entry) => target.kind.decode(entry)?,
            Answer::Object(obj) => obj.clone(),
            Answer::Success(_) => return Err(Status::internal("a scale without an object")),
        };
        written.answer = Answer::Object(scale_of(&obj));
        Ok(written)
    }
}

fn check(target: &Target, scale: &Object) -> Result<(), Failure> {
    let mut errors = ErrorList::new();
    let replicas = scale.int_at(&["spec", "replicas"]).unwrap_or(0);
    if replicas < 0 {
        let spec = Path::new("spec");
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid(&spec.field("replicas"), replicas, why));
    }
    errors.into_result("autoscaling", "Scale", &target.name)
}
