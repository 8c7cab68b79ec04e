//! Subresources that act on one object: binding, finalize, and what a node would answer.

use crate::kind::{Answer, Target};
use crate::options::{DeleteOptions, Freshness, Patch, WriteOptions};
use crate::registry::Registry;
use crate::verbs::Part;
use crate::verbs::update::Updated;
use keelson_auth::Permit;
use keelson_meta::status::{Failure, quote};
use keelson_meta::{ErrorList, FieldError, Object, Path, Reason, Status, Value};
use keelson_schema::Schema;

/// Applies a patch of any form but server-side apply to a value.
pub fn apply_patch(schema: &Schema, before: Value, patch: &Patch) -> Result<Value, Failure> {
    let after = match patch {
        Patch::Json(ops) => keelson_apply::json_patch::apply(before, ops),
        Patch::Merge(patch) => keelson_apply::merge_patch::apply(before, patch),
        Patch::Strategic(patch) => keelson_apply::strategic::apply(schema, before, patch.clone()),
        Patch::Apply(_) => {
            return Err(Status::new(Reason::UnsupportedMediaType, "415: Unsupported Media Type"));
        }
    };
    after.map_err(Failure::from)
}

impl Registry {
    /// Puts a pod on a node: `pods/NAME/binding` and the older `bindings`.
    pub async fn bind(
        &self,
        permit: &Permit,
        target: &Target,
        binding: &Object,
    ) -> Result<(), Failure> {
        check_binding(target, binding)?;
        let node = binding.str_at(&["target", "name"]).to_owned();
        let change = |live: Option<&Object>| {
            let live = live.ok_or_else(|| target.not_found())?;
            if live.deletion_timestamp().is_some() {
                let why =
                    format!("pod {} is being deleted, cannot be assigned to a host", live.name());
                return Err(Status::conflict(target.gvr(), &target.name, &why));
            }
            let bound = live.str_at(&["spec", "nodeName"]);
            if !bound.is_empty() {
                let why = format!("pod {} is already assigned to node {bound:?}", live.name());
                return Err(Status::conflict(target.gvr(), &target.name, &why));
            }
            let mut object = live.clone();
            object.object_mut("spec").insert("nodeName", node.as_str());
            for (key, value) in binding.meta_map("annotations") {
                object.metadata_mut().object_at("annotations").insert(key, value);
            }
            Ok(Updated { object, owned: false })
        };
        let options = WriteOptions { field_manager: "kube-scheduler".into(), ..Default::default() };
        self.change(permit, target, Part::Other("binding"), &change, &options).await.map(drop)
    }

    /// What a stream to an object answers while no node runs it.
    pub async fn no_node(&self, permit: &Permit, target: &Target) -> Failure {
        match self.get(permit, target, Freshness::Latest).await {
            Err(failure) => failure,
            Ok(Answer::Entry(entry)) if target.gvr().resource == "pods" => {
                match entry.field("spec.nodeName") {
                    None | Some("") => Status::bad_request(format!(
                        "pod {} does not have a host assigned",
                        target.name
                    )),
                    Some(node) => {
                        let gvr = keelson_meta::GroupVersionResource::new("", "v1", "nodes");
                        Status::not_found(&gvr, node)
                    }
                }
            }
            Ok(_) => {
                let what = target.gvr().resource.trim_end_matches('s');
                let name = quote(&target.name);
                Status::unavailable(format!("no endpoints available for {what} {name}"))
            }
        }
    }

    /// The log of a container: a pod that is on no node has none, on a node it is out of reach.
    pub async fn log(
        &self,
        permit: &Permit,
        target: &Target,
        container: &str,
    ) -> Result<(), Failure> {
        let Answer::Entry(entry) = self.get(permit, target, Freshness::Latest).await? else {
            return Err(Status::internal("a pod is not stored"));
        };
        let pod = target.kind.decode(&entry)?;
        check_container(&pod, container)?;
        if pod.str_at(&["spec", "nodeName"]).is_empty() {
            return Ok(());
        }
        Err(self.no_node(permit, target).await)
    }
}

/// The container must be one of the pod's; it may be left out where there is only one.
fn check_container(pod: &Object, container: &str) -> Result<(), Failure> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let items = lists.iter().flat_map(|list| pod.array_at(&["spec", list]));
    let names: Vec<&str> = items.filter_map(|item| item.str_at(&["name"])).collect();
    let name = pod.name();
    if container.is_empty() {
        return match pod.array_at(&["spec", "containers"]).len() {
            1 => Ok(()),
            _ => Err(Status::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                names.join(" ")
            ))),
        };
    }
    if names.contains(&container) {
        return Ok(());
    }
    Err(Status::bad_request(format!("container {container} is not valid for pod {name}")))
}

fn check_binding(target: &Target, binding: &Object) -> Result<(), Failure> {
    if !binding.name().is_empty() && binding.name() != target.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    let path = Path::new("target");
    let mut errors = ErrorList::new();
    let kind = binding.str_at(&["target", "kind"]);
    if !matches!(kind, "" | "Node") {
        let valid = ["Node", "<empty>"];
        errors.push(FieldError::not_supported(&path.field("kind"), kind, &valid));
    }
    if binding.str_at(&["target", "name"]).is_empty() {
        errors.push(FieldError::required(&path.field("name"), ""));
    }
    if errors.is_empty() {
        return Ok(());
    }
    // Upstream hands these out without a reason.
    let texts: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    let text = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
    Err(Status::new(Reason::Unknown, text))
}

impl Registry {
    /// Takes the `kubernetes` finalizer off a namespace that is empty; true when it is gone.
    pub async fn finalize_namespace(&self, permit: &Permit, name: &str) -> Result<bool, Failure> {
        let target = self.target("", "namespaces", "", name);
        let change = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            if let Some(Value::Array(items)) = object.object_mut("spec").get_mut("finalizers") {
                items.retain(|item| item.as_str() != Some("kubernetes"));
            }
            Ok(Updated { object, owned: true })
        };
        let options =
            WriteOptions { field_manager: "kube-controller-manager".into(), ..Default::default() };
        let part = Part::Other("finalize");
        match self.change(permit, &target, part, &change, &options).await {
            Ok(_) => {}
            Err(status) if status.code == 404 => return Ok(true),
            Err(status) => return Err(status),
        }
        match self.delete(permit, &target, &DeleteOptions::default()).await {
            Ok(crate::Deleted::Gone(_)) => Ok(true),
            Ok(crate::Deleted::Waiting(_)) => Ok(false),
            Err(status) if status.code == 404 => Ok(true),
            Err(status) => Err(status),
        }
    }
}
