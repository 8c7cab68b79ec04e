//! Binding: assigns a pod to a node, through `pods/NAME/binding` or the older `bindings`.

use keelson_meta::{
    ErrorList, Failure, Feature, FieldError, GroupVersionKind, GroupVersionResource, Object, Path,
    Reason, Status, Str, Value,
};
use keelson_registry::hooks::Action;
use keelson_registry::options::WriteOptions;
use keelson_registry::{
    ActionRequest, ActionResponse, NewObject, Subresource, Target, check_action,
};
use keelson_store::BoxFuture;

/// `pods/NAME/binding` and `bindings`.
pub(crate) struct Bindings;

impl Action for Bindings {
    fn act<'a>(
        &'a self,
        req: ActionRequest<'a>,
        body: Object,
    ) -> BoxFuture<'a, Result<ActionResponse, Failure>> {
        Box::pin(async move {
            let mut warnings = vec![];
            match bind(req, body, &mut warnings).await {
                Ok(()) => Ok(ActionResponse { object: None, warnings }),
                Err(failure) => Err(failure.with_warnings(warnings)),
            }
        })
    }
}

async fn bind(
    req: ActionRequest<'_>,
    mut binding: Object,
    warnings: &mut Vec<Str>,
) -> Result<(), Failure> {
    let ActionRequest { registry, target, .. } = req;
    if target.name.is_empty() {
        validate_binding(&binding)?;
        return Err(Status::bad_request("Name parameter required."));
    }
    let dry_run = req.options.dry_run;
    if req.is_alias() {
        // Upstream ignores the uid of a Binding that is posted to `bindings`.
        binding.set_meta("uid", "");
    }
    let kind = GroupVersionKind::new("", "v1", "Binding");
    let write = req.write(&kind);
    let configs = req.admit(&write, &mut binding, warnings).await?;
    check_binding(target, &binding)?;
    req.validate_admitted(&write, &configs, &binding, warnings).await?;
    let node = binding.str_at(&["target", "name"]).to_owned();
    let binding_resource = GroupVersionResource::new("", "v1", "pods/binding");
    let features = registry.options.features;
    let change = |live: Option<&Object>| {
        let live = live.ok_or_else(|| target.not_found())?;
        check_action(target, &binding, live, dry_run)?;
        if live.deletion_timestamp().is_some() {
            let why = format!("pod {} is being deleted, cannot be assigned to a host", live.name());
            return Err(Status::conflict(&binding_resource, &target.name, &why));
        }
        let bound = live.str_at(&["spec", "nodeName"]);
        if !bound.is_empty() {
            let why = format!("pod {} is already assigned to node {bound:?}", live.name());
            return Err(Status::conflict(&binding_resource, &target.name, &why));
        }
        if !live.array_at(&["spec", "schedulingGates"]).is_empty() {
            let why = format!("pod {} has non-empty .spec.schedulingGates", live.name());
            return Err(Status::conflict(&binding_resource, &target.name, &why));
        }
        let mut object = live.clone();
        object.object_mut("spec").insert("nodeName", node.as_str());
        for (key, value) in binding.meta_map("annotations") {
            object.metadata_mut().object_at("annotations").insert(key, value);
        }
        if features.is_on(Feature::PodTopologyLabelsAdmission) {
            for (key, value) in binding.meta_map("labels") {
                object.metadata_mut().object_at("labels").insert(key, value);
            }
        }
        set_scheduled(&mut object, &registry.clock.now().text());
        if features.is_on(Feature::ClearingNominatedNodeNameAfterBinding) {
            // The pod waits for room nowhere any more.
            object.object_mut("status").remove("nominatedNodeName");
        }
        Ok(NewObject { object, managed: true, warnings: vec![] })
    };
    let options = WriteOptions { dry_run, ..WriteOptions::default() };
    req.change(target, Subresource::Action("binding"), &change, &options).await.map(drop)
}

/// Sets the condition PodScheduled to true.
fn set_scheduled(pod: &mut Object, now: &str) {
    let status = pod.object_mut("status");
    let conditions = status.entry_or("conditions", || Value::Array(vec![]));
    let Value::Array(conditions) = conditions else { return };
    let mut scheduled = keelson_meta::Map::new();
    scheduled.insert("type", "PodScheduled");
    scheduled.insert("status", "True");
    scheduled.insert("lastProbeTime", Value::Null);
    scheduled.insert("lastTransitionTime", now);
    match conditions.iter_mut().find(|c| c.str_at(&["type"]) == Some("PodScheduled")) {
        Some(known) if known.str_at(&["status"]) == Some("True") => {}
        Some(known) => *known = scheduled.into(),
        None => conditions.push(scheduled.into()),
    }
}

fn check_binding(target: &Target, binding: &Object) -> Result<(), Failure> {
    if binding.name() != target.name {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    validate_binding(binding)
}

/// Validates a Binding without its pod.
fn validate_binding(binding: &Object) -> Result<(), Failure> {
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
    // Upstream returns these errors without a reason.
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let text = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
    Err(Status::new(Reason::Unknown, text))
}
