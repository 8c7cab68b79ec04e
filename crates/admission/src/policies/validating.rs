//! [`ValidatingPolicies`]: the plug-in that evaluates ValidatingAdmissionPolicies (apiserver
//! `admission/plugin/policy/validating`).

mod validator;

use super::dispatch_context::DispatchContext;
use super::matched_resource::MatchedResource;
use super::matching::requested;
use super::params::{ConfigError, ParamResource};
use crate::attributes::{BoxFuture, Call, DynamicPlugIn, Recorder};
use crate::configurations::Configurations;
use crate::configurations::policy::{Action, Binding, Policy};
use crate::configurations::policy_hooks::{PolicyHook, PolicyHooks};
use crate::decisions::Decisions;
use crate::{exempt, plug_ins};
use keelson_cel::admission::Inputs;
use keelson_meta::status::{Cause, quote};
use keelson_meta::{Failure, Object, Reason, Status, Str};
use std::sync::Arc;
use std::time::Instant;
use validator::{ValidateResult, evaluate_policy};

/// The audit annotation for failures of bindings with the action `Audit`.
const FAILURE_KEY: &str = "validation.policy.admission.k8s.io/validation_failure";

/// The plug-in ValidatingAdmissionPolicy.
#[derive(Debug, Default)]
pub struct ValidatingPolicies;

impl DynamicPlugIn for ValidatingPolicies {
    fn name(&self) -> &'static str {
        plug_ins::VALIDATING_POLICIES
    }

    fn is_idle(&self, configured: &Configurations) -> bool {
        configured.policies.validating().is_empty()
    }

    fn validate<'a>(
        &'a self,
        call: &'a Call<'a>,
        object: Option<&'a Object>,
        recorder: &'a mut Recorder,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let hooks = call.configured.policies.validating();
        let resource = &call.attributes.resource.resource;
        if hooks.has_none_for(resource) || exempt::from_policies(call.attributes.resource) {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(dispatch(call, hooks, object, recorder))
    }
}

/// The first failure of a policy, which rejects the request.
struct Denial {
    policy: Str,
    binding: Option<Str>,
    reason: Reason,
    message: String,
}

async fn dispatch(
    call: &Call<'_>,
    hooks: &PolicyHooks,
    object: Option<&Object>,
    recorder: &mut Recorder,
) -> Result<(), Failure> {
    let mut outcome = Outcome { recorder, denial: None };
    let mut context = DispatchContext::new(call);
    for hook in hooks.candidates(&requested(call.attributes)) {
        let matched = match hook.policy.constraints.matches(&mut context, object).await {
            Ok(Some(matched)) => matched,
            Ok(None) => continue,
            Err(failure) => {
                let error = ConfigError::Policy(failure.message.clone());
                outcome.misconfigured(&hook.policy, None, &error);
                continue;
            }
        };
        evaluate_hook(hook, &matched, object, &mut context, &mut outcome).await?;
    }
    match outcome.denial {
        None => Ok(()),
        Some(denial) => Err(rejection(call, object, denial)),
    }
}

/// Evaluates one policy for each binding and each of its parameters.
async fn evaluate_hook(
    hook: &PolicyHook,
    matched: &MatchedResource,
    object: Option<&Object>,
    context: &mut DispatchContext<'_>,
    outcome: &mut Outcome<'_>,
) -> Result<(), Failure> {
    let policy = &hook.policy;
    let params = match ParamResource::of(policy, context.call) {
        Ok(params) => params,
        Err(error) => {
            outcome.misconfigured(policy, None, &error);
            return Ok(());
        }
    };
    let mut annotations: Vec<(Str, Vec<String>)> = vec![];
    for binding in &hook.bindings {
        let is_match = match &binding.resources {
            None => Ok(true),
            Some(resources) => {
                resources.matches(context, object).await.map(|found| found.is_some())
            }
        };
        match is_match {
            Ok(true) => {}
            Ok(false) => continue,
            Err(failure) => {
                let error = ConfigError::Binding(failure.message.clone());
                outcome.misconfigured(policy, Some(binding), &error);
                continue;
            }
        }
        let found = ParamResource::collect(params.as_ref(), binding.params.as_ref(), context.call);
        let found = match found.await {
            Ok(found) => found,
            Err(error) => {
                outcome.misconfigured(policy, Some(binding), &error);
                continue;
            }
        };
        for param in &found {
            let begun = Instant::now();
            let result = evaluate(policy, matched, object, param.as_ref(), context).await?;
            count(&result, policy, binding, context.call, begun);
            outcome.take(policy, binding, result, &mut annotations);
        }
    }
    outcome.publish(policy, annotations);
    Ok(())
}

/// Records failed validations, once for each action. Ignored errors count as allowed.
fn count(
    result: &ValidateResult,
    policy: &Policy,
    binding: &Binding,
    call: &Call<'_>,
    begun: Instant,
) {
    let count = |action: &str| {
        call.metrics.validation(action, &policy.name, &binding.name, begun.elapsed());
    };
    for _ in &result.failures {
        binding.actions.iter().for_each(|action| count(&action.name().to_ascii_lowercase()));
    }
    result.annotation_errors.iter().for_each(|_| count("deny"));
    (0..result.ignored_number).for_each(|_| count("allow"));
}

async fn evaluate(
    policy: &Arc<Policy>,
    matched: &MatchedResource,
    object: Option<&Object>,
    param: Option<&Object>,
    context: &mut DispatchContext<'_>,
) -> Result<ValidateResult, Failure> {
    let compiled = policy.compiled(&context.call.attributes.user.name).await?;
    context.prepare(matched, object, compiled.reads_namespace).await?;
    let (object, old) = context.objects(matched, object);
    let inputs = Inputs {
        object: object.map(|object| &object.root),
        old_object: old.map(|old| &old.root),
        request: context.request(matched),
        namespace: context.namespace(),
        params: param.map(|param| &param.root),
    };
    let brief = |decisions: &Decisions| {
        evaluate_policy(policy, compiled, &inputs, &context.resource, decisions)
    };
    let whole = || {
        let policy = policy.clone();
        let inputs = inputs.to_owned_inputs();
        let resource = context.resource.clone();
        move |decisions: &Decisions| match policy.known() {
            Some(compiled) => {
                evaluate_policy(&policy, compiled, &inputs.inputs(), &resource, decisions)
            }
            None => ValidateResult::default(),
        }
    };
    context.decisions.evaluate(context.call.api.authorizer(), brief, whole).await
}

/// The results of the policies so far.
struct Outcome<'n> {
    recorder: &'n mut Recorder,
    denial: Option<Denial>,
}

impl Outcome<'_> {
    fn deny(&mut self, policy: &Policy, binding: Option<&Binding>, reason: Reason, message: &str) {
        self.denial.get_or_insert_with(|| Denial {
            policy: policy.name.clone(),
            binding: binding.map(|binding| binding.name.clone()),
            reason,
            message: message.to_owned(),
        });
    }

    /// A policy or binding that cannot be evaluated rejects the request, whatever the actions of
    /// the binding are.
    fn misconfigured(&mut self, policy: &Policy, binding: Option<&Binding>, error: &ConfigError) {
        if !policy.ignores_failures {
            self.deny(policy, binding, Reason::Invalid, &error.message());
        }
    }

    fn take(
        &mut self,
        policy: &Policy,
        binding: &Binding,
        result: ValidateResult,
        annotations: &mut Vec<(Str, Vec<String>)>,
    ) {
        for failure in &result.failures {
            for action in &binding.actions {
                match action {
                    Action::Deny => {
                        self.deny(policy, Some(binding), failure.reason, &failure.message);
                    }
                    Action::Warn => self.recorder.warnings.push(
                        format!(
                            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                            policy.name, binding.name, failure.message
                        )
                        .into(),
                    ),
                    Action::Audit => {
                        let value = failure_annotation(binding, failure.index, &failure.message);
                        self.annotate(FAILURE_KEY.into(), value);
                    }
                }
            }
        }
        for (key, value) in result.annotations {
            let at = annotations.iter().position(|(known, _)| *known == key).unwrap_or_else(|| {
                annotations.push((key, vec![]));
                annotations.len() - 1
            });
            let values = &mut annotations[at].1;
            if !values.contains(&value) {
                values.push(value);
            }
        }
        for error in &result.annotation_errors {
            self.deny(policy, Some(binding), Reason::Invalid, error);
        }
    }

    /// Adds the audit annotations of a policy. Values of several bindings or parameters are joined.
    fn publish(&mut self, policy: &Policy, annotations: Vec<(Str, Vec<String>)>) {
        for (key, values) in annotations {
            self.annotate(format!("{}/{key}", policy.name).into(), values.join(", "));
        }
    }

    /// Sets an audit annotation; the last value of a key wins.
    fn annotate(&mut self, key: Str, value: String) {
        self.recorder.annotations.retain(|(known, _)| *known != key);
        self.recorder.annotations.push((key, value.into()));
    }
}

/// Returns the annotation for a failure, a list with one item.
fn failure_annotation(binding: &Binding, index: usize, message: &str) -> String {
    let actions: Vec<String> =
        binding.actions.iter().map(|action| format!("\"{}\"", action.name())).collect();
    format!(
        "[{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{index},\
         \"validationActions\":[{}]}}]",
        quote(message),
        quote(&binding.policy),
        quote(&binding.name),
        actions.join(",")
    )
}

fn rejection(call: &Call<'_>, object: Option<&Object>, denial: Denial) -> Failure {
    let Denial { policy, binding, reason, message } = denial;
    let with = binding.map(|name| format!(" with binding '{name}'")).unwrap_or_default();
    let message = format!("ValidatingAdmissionPolicy '{policy}'{with} denied request: {message}");
    let mut status = forbidden(call, object, &message);
    status.reason = reason;
    status.code = reason.code();
    let details = status.details.get_or_insert_default();
    details.causes.push(Cause { message, ..Cause::default() });
    status
}

/// Returns a 403 for the object of a request.
pub(super) fn forbidden(call: &Call<'_>, object: Option<&Object>, why: &str) -> Failure {
    let attributes = call.attributes;
    let given = object.map_or(["", ""], |object| [object.name(), object.generate_name()]);
    let names = [attributes.name, given[0], given[1], "Unknown"];
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    Status::forbidden(attributes.resource, name, why)
}
