//! Subresources that act on one object: binding, finalize, and what a node would answer.

use crate::admission::{Options, OwnKind, Write};
use crate::kind::{Answer, Target};
use crate::options::WriteOptions;
use crate::registry::Registry;
use crate::verbs::Part;
use crate::verbs::update::{Updated, check_uid};
use keelson_admission::Operation;
use keelson_auth::Permit;
use keelson_meta::status::Failure;
use keelson_meta::{
    ErrorList, FieldError, GroupVersionKind, GroupVersionResource, Object, Path, Reason, Status,
    Str, Value,
};

impl Registry {
    /// Puts a pod on a node: `pods/NAME/binding` and the older `bindings`. Answers with texts of warnings.
    pub async fn bind(
        &self,
        permit: &Permit,
        target: &Target,
        binding: &Object,
        options: &WriteOptions,
    ) -> Result<Vec<Str>, Failure> {
        target.assert_bindable(permit);
        let mut warnings = vec![];
        match self.bind_admitted(permit, target, binding, options, &mut warnings).await {
            Ok(()) => Ok(warnings),
            Err(failure) => Err(failure.with_warnings(warnings)),
        }
    }

    async fn bind_admitted(
        &self,
        permit: &Permit,
        target: &Target,
        binding: &Object,
        options: &WriteOptions,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        let (mut binding, dry_run) = (binding.clone(), options.dry_run);
        let kind = GroupVersionKind::new("", "v1", "Binding");
        let resource = permit.attributes().map(|given| &given.gvr);
        let resource = resource.filter(|asked| asked.resource == "bindings");
        let write = Write {
            permit,
            target,
            operation: Operation::Create,
            subresource: if resource.is_some() { "" } else { "binding" },
            name: &target.name,
            dry_run,
            old: None,
            options: Options::Write(options),
            own: Some(OwnKind { kind: &kind, resource }),
        };
        let passes = self.admit(&write, &mut binding, warnings).await?;
        check_binding(target, &binding)?;
        self.validate_admitted(&write, &passes, &binding, warnings).await?;
        let node = binding.str_at(&["target", "name"]).to_owned();
        let binding_resource = GroupVersionResource::new("", "v1", "pods/binding");
        let change = |live: Option<&Object>| {
            let live = live.ok_or_else(|| target.not_found())?;
            check_uid(target, &binding, live.uid(), dry_run)?;
            if live.deletion_timestamp().is_some() {
                let why =
                    format!("pod {} is being deleted, cannot be assigned to a host", live.name());
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
            for (key, value) in binding.meta_map("labels") {
                object.metadata_mut().object_at("labels").insert(key, value);
            }
            set_scheduled(&mut object, &self.clock.now().text());
            Ok(Updated { object, owned: true, warnings: vec![] })
        };
        let options = WriteOptions { dry_run, ..WriteOptions::default() };
        self.change(permit, target, Part::Effect("binding"), &change, &options).await.map(drop)
    }
}

/// Notes that a pod has found its node.
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

/// The rules of a Binding itself.
pub fn validate_binding(binding: &Object) -> Result<(), Failure> {
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
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    let text = if texts.len() == 1 { texts.concat() } else { format!("[{}]", texts.join(", ")) };
    Err(Status::new(Reason::Unknown, text))
}

impl Registry {
    /// Takes the `kubernetes` finalizer off a namespace that is empty; true when it is gone.
    pub async fn finalize_namespace(&self, permit: &Permit, name: &str) -> Result<bool, Failure> {
        let target = self.target("", "namespaces", "", name);
        target.assert_covered(permit, "update", "finalize");
        let change = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            if let Some(Value::Array(items)) = object.object_mut("spec").get_mut("finalizers") {
                items.retain(|item| item.as_str() != Some("kubernetes"));
            }
            Ok(Updated { object, owned: true, warnings: vec![] })
        };
        let options =
            WriteOptions { field_manager: "kube-controller-manager".into(), ..Default::default() };
        let part = Part::Other("finalize");
        match self.change(permit, &target, part, &change, &options).await {
            // What is still stored waits for finalizers of its metadata.
            Ok(written) => Ok(matches!(written.answer, Answer::Object(_))),
            Err(status) if status.code == 404 => Ok(true),
            Err(status) => Err(status),
        }
    }
}
