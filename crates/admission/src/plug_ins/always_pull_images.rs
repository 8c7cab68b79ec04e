//! AlwaysPullImages: sets `imagePullPolicy: Always`, so that a pod cannot use a node's cached image
//! without the right to pull it.

use crate::attributes::Recorder;
use crate::request::{Operation, Request};
use keelson_meta::{Failure, Object, Reason, Status, Value};
use std::collections::HashSet;

/// Ephemeral containers come by a subresource, which is left alone.
const LISTS: [&str; 2] = ["initContainers", "containers"];

pub(crate) fn admit(
    req: &Request<'_>,
    pod: &mut Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !applies(req, pod) {
        return Ok(());
    }
    let spec = pod.object_mut("spec");
    for list in LISTS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
            container.insert("imagePullPolicy", "Always");
        }
    }
    let volumes = spec.get_mut("volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten().filter_map(Value::as_object_mut) {
        if let Some(image) = volume.get_mut("image").and_then(Value::as_object_mut) {
            image.insert("pullPolicy", "Always");
        }
    }
    Ok(())
}

pub(crate) fn validate(
    req: &Request<'_>,
    pod: &Object,
    _recorder: &mut Recorder,
) -> Result<(), Failure> {
    if !applies(req, pod) {
        return Ok(());
    }
    for list in LISTS {
        for (place, container) in pod.array_at(&["spec", list]).iter().enumerate() {
            let policy = container.str_at(&["imagePullPolicy"]).unwrap_or_default();
            if policy != "Always" {
                let why = format!(
                    "spec.{list}[{place}].imagePullPolicy: Unsupported value: {policy:?}: supported \
                     values: \"Always\""
                );
                let refused = req.forbidden(pod, &why);
                return Err(Status::new(Reason::Unknown, refused.message.clone()));
            }
        }
    }
    Ok(())
}

/// Returns whether the pod is new or gets another image.
fn applies(req: &Request<'_>, pod: &Object) -> bool {
    let writes = matches!(req.operation, Operation::Create | Operation::Update);
    writes && req.is("", "pods") && req.old.is_none_or(|old| has_new_image(pod, old))
}

fn has_new_image(pod: &Object, old: &Object) -> bool {
    let known: HashSet<&str> = images(old).collect();
    images(pod).any(|image| !known.contains(image))
}

fn images(pod: &Object) -> impl Iterator<Item = &str> {
    let containers = LISTS.iter().flat_map(|list| pod.array_at(&["spec", list]));
    containers.filter_map(|container| container.str_at(&["image"]))
}
