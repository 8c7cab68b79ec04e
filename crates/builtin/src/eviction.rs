//! Eviction: deletes a pod if its PodDisruptionBudget allows it (registry
//! `core/pod/storage/eviction.go`).

use keelson_meta::selector::Selector;
use keelson_meta::status::Details;
use keelson_meta::{
    Cause, ErrorList, Failure, FieldError, GroupVersionKind, Object, Path, Reason, Status, Str,
    Value, value,
};
use keelson_registry::delete_options::GivenDeleteOptions;
use keelson_registry::hooks::Action;
use keelson_registry::options::{DeleteOptions, WriteOptions};
use keelson_registry::{
    ActionRequest, ActionResponse, Answer, NewObject, OwnedActionRequest, RetryBudget, Subresource,
    Target, check_eviction,
};
use keelson_store::BoxFuture;
use std::time::Instant;

/// Maximum entries in `status.disruptedPods` of a budget.
const DISRUPTED_PODS_MAX: usize = 2000;
/// `Retry-After` for a budget that its controller has not processed yet.
const RETRY_SECONDS: u32 = 10;

/// `pods/NAME/eviction`.
pub(crate) struct Evictions;

impl Action for Evictions {
    fn act<'a>(
        &'a self,
        req: ActionRequest<'a>,
        body: Object,
    ) -> BoxFuture<'a, Result<ActionResponse, Failure>> {
        Box::pin(evict(req, body))
    }
}

/// Deletes a pod, or returns 429 if its budget does not allow it. It runs to its end even if the
/// request is dropped: a disruption that is taken from a budget must be used.
async fn evict(req: ActionRequest<'_>, mut eviction: Object) -> Result<ActionResponse, Failure> {
    let mut warnings = vec![];
    let kind = GroupVersionKind::new("policy", "v1", "Eviction");
    let write = req.write(&kind);
    let configs = req
        .admit(&write, &mut eviction, &mut warnings)
        .await
        .map_err(|failure| failure.with_warnings(warnings.clone()))?;
    if eviction.name() != req.target.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    check_dry_run(&eviction, req.options.dry_run)?;
    let admitted = req.validate_admitted(&write, &configs, &eviction, &mut warnings).await;
    admitted.map_err(|failure| failure.with_warnings(warnings.clone()))?;
    let options = delete_options(&eviction, req.options.dry_run)?;
    if req.options.dry_run {
        evict_pod(req, &options).await?;
    } else {
        let evict = |owned: OwnedActionRequest| async move {
            evict_pod(owned.as_request(), &options).await
        };
        req.run_to_completion(evict).await?;
    }
    Ok(ActionResponse { object: None, warnings })
}

async fn evict_pod(req: ActionRequest<'_>, options: &DeleteOptions) -> Result<(), Failure> {
    let is_unconditional = options.resource_version.is_none() && options.uid.is_none();
    let is_conflict = |status: &Status| status.reason == Reason::Conflict && is_unconditional;
    let mut retries = RetryBudget::new(Instant::now());
    loop {
        retries.count_try(Instant::now())?;
        let pod = req.read(req.target).await?;
        if can_ignore_budget(&pod) {
            let version = (!is_terminal(&pod)).then(|| pod.resource_version());
            match add_condition_and_delete(req, options, version).await {
                // The pod may have started to run in the meantime.
                Err(status) if is_conflict(&status) => continue,
                done => return done,
            }
        }
        let Some(budget) = budget(req, &pod).await? else {
            return add_condition_and_delete(req, options, None).await;
        };
        if !is_ready(&pod) && allows_unready(&budget) {
            let version = Some(pod.resource_version());
            return match add_condition_and_delete(req, options, version).await {
                Err(status) if is_conflict(&status) => Err(not_processed(budget.name())),
                done => done,
            };
        }
        decrement_budget(req, &budget, options.dry_run).await?;
        return add_condition_and_delete(req, options, None).await;
    }
}

/// Returns the budget that selects a pod; more than one is an error.
async fn budget(req: ActionRequest<'_>, pod: &Object) -> Result<Option<Object>, Failure> {
    let namespace = &req.target.namespace;
    let all = req.registry.target("policy", "poddisruptionbudgets", namespace, "");
    let list = req.list(&all).await?;
    let mut budgets = vec![];
    for entry in &list.items {
        let budget = all.kind.decode(entry)?;
        // As upstream, a budget with an invalid selector is ignored.
        let selector = Selector::from_object(budget.at(&["spec", "selector"]));
        if selector.is_ok_and(|selector| selector.matches_object(pod)) {
            budgets.push(budget);
        }
    }
    if budgets.len() > 1 {
        let why = "This pod has more than one PodDisruptionBudget, which the eviction \
                   subresource does not support.";
        return Err(Status::new(Reason::Unknown, why));
    }
    Ok(budgets.pop())
}

/// Decrements `disruptionsAllowed` of a budget and adds the pod to `disruptedPods`.
async fn decrement_budget(
    req: ActionRequest<'_>,
    budget: &Object,
    dry_run: bool,
) -> Result<(), Failure> {
    let ActionRequest { registry, target, .. } = req;
    let namespace = &target.namespace;
    let name = budget.name();
    let budgets = registry.target("policy", "poddisruptionbudgets", namespace, name);
    let now = registry.clock.now().text();
    let change = |live: Option<&Object>| {
        let live = live.ok_or_else(|| budgets.not_found())?;
        check_budget(&budgets, live)?;
        let mut object = live.clone();
        let observed = object.int_at(&["status", "observedGeneration"]).unwrap_or(0);
        let left = object.int_at(&["status", "disruptionsAllowed"]).unwrap_or(0) - 1;
        let status = object.object_mut("status");
        status.insert("disruptionsAllowed", left);
        status.object_at("disruptedPods").insert(target.name.clone(), now.as_str());
        if left == 0 {
            let condition = value!({
                "type": "DisruptionAllowed", "status": "False", "observedGeneration": observed,
                "lastTransitionTime": (now.as_str()), "reason": "InsufficientPods",
                "message": ""
            });
            set_condition(&mut object, condition);
        }
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    let field_manager = Str::new_static("kube-apiserver");
    let options = WriteOptions { dry_run, field_manager, ..WriteOptions::default() };
    req.change(&budgets, Subresource::Status, &change, &options).await.map(drop)
}

/// Adds the condition DisruptionTarget to the pod and deletes it; if `version` is given, only in
/// that version.
async fn add_condition_and_delete(
    req: ActionRequest<'_>,
    options: &DeleteOptions,
    version: Option<&str>,
) -> Result<(), Failure> {
    let registry = req.registry;
    let target = req.target;
    let mut options = options.clone();
    if options.resource_version.is_none() {
        options.resource_version = version.map(Str::new);
    }
    if !options.dry_run {
        let now = registry.clock.now().text();
        let change = |live: Option<&Object>| {
            let live = live.ok_or_else(|| target.not_found())?;
            check_eviction(target, &options, live)?;
            let mut object = live.clone();
            let condition = value!({
                "type": "DisruptionTarget", "status": "True", "lastProbeTime": null,
                "lastTransitionTime": (now.as_str()), "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting"
            });
            set_condition(&mut object, condition);
            // The condition gets no field manager.
            Ok(NewObject { object, managed: true, warnings: vec![] })
        };
        let subresource = Subresource::Action("eviction");
        let write = WriteOptions::default();
        let written = req.change(target, subresource, &change, &write).await?;
        if let (Some(expected), Answer::Entry(entry)) =
            (&mut options.resource_version, &written.answer)
        {
            *expected = entry.modified().to_string().into();
        }
    }
    req.delete(&options).await.map(drop)
}

/// Returns the validated options of the deletion.
/// Refuses a dry run whose options say something else.
fn check_dry_run(eviction: &Object, dry_run: bool) -> Result<(), Failure> {
    let given: Vec<&str> =
        eviction.array_at(&["deleteOptions", "dryRun"]).iter().filter_map(Value::as_str).collect();
    if !dry_run || given.is_empty() || given == ["All"] {
        return Ok(());
    }
    let given = given.join(" ");
    let why = format!("Non-matching dry-run options in request and content: [All] and [{given}]");
    Err(Status::new(Reason::Unknown, why))
}

fn delete_options(eviction: &Object, dry_run: bool) -> Result<DeleteOptions, Failure> {
    let given = eviction.at(&["deleteOptions"]).map(GivenDeleteOptions::from_value);
    let mut options = given.unwrap_or_default().validate()?;
    if options.ignore_read_error {
        let options = Path::new("deleteOptions");
        let path = options.field("ignoreStoreReadErrorWithClusterBreakingPotential");
        let why = "can not be set for pod eviction, try after removing the option";
        let mut errors = ErrorList::new();
        errors.push(FieldError::invalid(&path, true, why));
        errors.into_result("policy", "Eviction", eviction.name())?;
    }
    options.dry_run |= dry_run;
    Ok(options)
}

/// Returns whether a pod may be deleted without a budget (upstream's `canIgnorePDB`).
fn can_ignore_budget(pod: &Object) -> bool {
    is_terminal(pod) || pod.str_at(&["status", "phase"]) == "Pending"
}

fn is_terminal(pod: &Object) -> bool {
    let has_ended = matches!(pod.str_at(&["status", "phase"]), "Succeeded" | "Failed");
    has_ended || pod.deletion_timestamp().is_some()
}

fn is_ready(pod: &Object) -> bool {
    condition(pod, "Ready").is_some_and(|ready| ready.str_at(&["status"]) == Some("True"))
}

fn condition<'o>(obj: &'o Object, name: &str) -> Option<&'o Value> {
    let conditions = obj.array_at(&["status", "conditions"]);
    conditions.iter().find(|condition| condition.str_at(&["type"]) == Some(name))
}

/// Returns whether a budget allows deleting pods that are not ready without counting them.
fn allows_unready(budget: &Object) -> bool {
    let count = |name: &str| budget.int_at(&["status", name]).unwrap_or(0);
    budget.str_at(&["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
        || (count("desiredHealthy") > 0 && count("currentHealthy") >= count("desiredHealthy"))
}

/// Returns an error if a budget allows no disruption now.
fn check_budget(budgets: &Target, budget: &Object) -> Result<(), Failure> {
    let count = |name: &str| budget.int_at(&["status", name]).unwrap_or(0);
    if count("observedGeneration") < budget.generation() {
        return Err(not_processed(budget.name()));
    }
    let forbidden = |why: &str| {
        let mut gvr = budgets.gvr().clone();
        gvr.resource = Str::new_static("poddisruptionbudget");
        Err(Status::forbidden(&gvr, budget.name(), why))
    };
    if count("disruptionsAllowed") < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    let disrupted = budget.at(&["status", "disruptedPods"]).and_then(Value::as_object);
    if disrupted.is_some_and(|pods| pods.len() > DISRUPTED_PODS_MAX) {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return forbidden(why);
    }
    if count("disruptionsAllowed") > 0 {
        return Ok(());
    }
    Err(too_many_requests(&denial_message(budget), 0))
}

/// Returns the reason why a budget allows no disruption, in upstream's words.
fn denial_message(budget: &Object) -> String {
    let name = budget.name();
    let count = |name: &str| budget.int_at(&["status", name]).unwrap_or(0);
    let desired = count("desiredHealthy");
    let healthy = count("currentHealthy");
    let denied = condition(budget, "DisruptionAllowed")
        .filter(|condition| {
            condition.str_at(&["status"]) == Some("False")
                && condition.str_at(&["message"]).is_some_and(|text| !text.is_empty())
        })
        .map(|condition| {
            let text = |name: &str| condition.str_at(&[name]).unwrap_or_default();
            (text("reason"), text("message"))
        });
    let message = format!("The disruption budget {name} does not allow evicting pods currently");
    match denied {
        // The counts of a budget are outdated if its controller failed.
        Some(("SyncFailed", why)) => format!("{message} because it failed sync: {why}"),
        _ if healthy <= desired => format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        ),
        Some((reason, why)) => format!("{message} ({reason}): {why}"),
        None => message,
    }
}

/// Returns 429 for a budget whose status is older than its spec.
fn not_processed(budget: &str) -> Failure {
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    too_many_requests(&why, RETRY_SECONDS)
}

fn too_many_requests(why: &str, retry_after_seconds: u32) -> Failure {
    let mut status = Status::new(
        Reason::TooManyRequests,
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    let cause =
        Cause { reason: "DisruptionBudget".into(), message: why.to_owned(), field: String::new() };
    status.details =
        Some(Details { causes: vec![cause], retry_after_seconds, ..Details::default() });
    status
}

/// Sets a condition by its type. `lastTransitionTime` changes only with `status`.
fn set_condition(obj: &mut Object, mut new: Value) {
    let conditions = obj.object_mut("status").entry_or("conditions", || Value::Array(vec![]));
    let Some(all) = conditions.as_array_mut() else {
        return;
    };
    let same = |old: &Value, new: &Value, name: &str| old.str_at(&[name]) == new.str_at(&[name]);
    match all.iter_mut().find(|old| same(old, &new, "type")) {
        Some(old) => {
            if same(old, &new, "status")
                && let (Some(time), Some(new)) =
                    (old.get("lastTransitionTime").cloned(), new.as_object_mut())
            {
                new.insert("lastTransitionTime", time);
            }
            *old = new;
        }
        None => all.push(new),
    }
}
