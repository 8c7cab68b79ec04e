//! [`MutatingPolicies`]: the plug-in that applies MutatingAdmissionPolicies (apiserver
//! `admission/plugin/policy/mutating`).

use super::dispatch_context::DispatchContext;
use super::matched_resource::MatchedResource;
use super::matching::requested;
use super::params::{ConfigError, ParamResource};
use super::patch::{Change, PatchError, evaluate};
use super::validating::forbidden;
use crate::attributes::{BoxFuture, Call, DynamicPlugIn, Recorder};
use crate::configurations::Configurations;
use crate::configurations::policy::{Binding, Policy};
use crate::configurations::policy_hooks::PolicyHooks;
use crate::decisions::Decisions;
use crate::match_conditions::Matched;
use crate::reinvocation::{PolicyRounds, Reinvocation};
use crate::{exempt, plug_ins};
use keelson_cel::admission::Inputs;
use keelson_meta::status::{Cause, quote};
use keelson_meta::{Failure, Object, Reason};
use std::sync::Arc;
use std::time::Instant;

/// The plug-in MutatingAdmissionPolicy.
#[derive(Debug, Default)]
pub struct MutatingPolicies;

impl DynamicPlugIn for MutatingPolicies {
    fn name(&self) -> &'static str {
        plug_ins::MUTATING_POLICIES
    }

    fn is_idle(&self, configured: &Configurations) -> bool {
        configured.policies.mutating().is_empty()
    }

    fn admit<'a>(
        &'a self,
        call: &'a Call<'a>,
        object: Option<&'a mut Object>,
        _recorder: &'a mut Recorder,
        context: &'a mut Reinvocation,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        let hooks = call.configured.policies.mutating();
        let resource = &call.attributes.resource.resource;
        if hooks.has_none_for(resource) || exempt::from_policies(call.attributes.resource) {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(dispatch(call, hooks, object, context))
    }
}

/// A policy to apply, with a binding and a parameter.
struct Invocation {
    policy: Arc<Policy>,
    binding: Arc<Binding>,
    matched: MatchedResource,
    param: Option<Object>,
}

impl Invocation {
    /// Returns the key among all policy invocations.
    fn key(&self) -> String {
        let param =
            self.param.as_ref().map(|param| format!("{}/{}", param.namespace(), param.name()));
        format!("{}\n{}\n{}", self.policy.name, self.binding.name, param.unwrap_or_default())
    }
}

/// The errors that reject the request.
#[derive(Default)]
struct PolicyErrors {
    /// The reason of the first error.
    reason: Option<Reason>,
    messages: Vec<String>,
}

impl PolicyErrors {
    fn add(&mut self, policy: &Policy, reason: Reason, message: String) {
        if !policy.ignores_failures {
            self.reason.get_or_insert(reason);
            self.messages.push(message);
        }
    }

    fn add_policy_error(&mut self, policy: &Policy, why: &str) {
        let message = format!("policy {} denied request: {why}", quote(&policy.name));
        self.add(policy, Reason::Forbidden, message);
    }

    fn add_binding_error(&mut self, policy: &Policy, binding: &Binding, reason: Reason, why: &str) {
        let message = format!(
            "policy '{}' with binding '{}' denied request: {why}",
            policy.name, binding.name
        );
        self.add(policy, reason, message);
    }

    fn into_result(self, call: &Call<'_>, object: Option<&Object>) -> Result<(), Failure> {
        let Some(first) = self.messages.first() else { return Ok(()) };
        let mut status = forbidden(call, object, "");
        status.message = first.clone();
        // The status code stays 403.
        status.reason = self.reason.unwrap_or(Reason::Forbidden);
        let causes = self.messages.into_iter().map(|message| Cause { message, ..Cause::default() });
        status.details.get_or_insert_default().causes = causes.collect();
        Err(status)
    }
}

async fn dispatch(
    call: &Call<'_>,
    hooks: &PolicyHooks,
    mut object: Option<&mut Object>,
    reinvocation: &mut Reinvocation,
) -> Result<(), Failure> {
    let mut context = DispatchContext::new(call);
    let mut errors = PolicyErrors::default();
    let invocations = find(call, hooks, object.as_deref(), &mut context, &mut errors).await;
    if !invocations.is_empty() {
        let rounds = std::mem::take(&mut reinvocation.policies);
        let mut run = Run { context, rounds, errors: &mut errors, changed: false };
        run.rounds.begin(reinvocation.is_reinvoked, object.as_deref());
        let outcome = run.all(&invocations, object.as_deref_mut(), reinvocation.is_reinvoked).await;
        run.rounds.last = object.as_deref().cloned();
        reinvocation.is_requested |= run.changed;
        reinvocation.policies = run.rounds;
        outcome?;
    }
    errors.into_result(call, object.as_deref())
}

/// Returns the matching policies with their bindings and parameters.
async fn find(
    call: &Call<'_>,
    hooks: &PolicyHooks,
    object: Option<&Object>,
    context: &mut DispatchContext<'_>,
    errors: &mut PolicyErrors,
) -> Vec<Invocation> {
    let mut found = vec![];
    for hook in hooks.candidates(&requested(call.attributes)) {
        let policy = &hook.policy;
        let matched = match policy.constraints.matches(context, object).await {
            Ok(Some(matched)) => matched,
            Ok(None) => continue,
            Err(failure) => {
                let error = ConfigError::Policy(failure.message.clone());
                errors.add_policy_error(policy, &error.message());
                continue;
            }
        };
        let params = match ParamResource::of(policy, call) {
            Ok(params) => params,
            Err(error) => {
                errors.add_policy_error(policy, &error.message());
                continue;
            }
        };
        for binding in &hook.bindings {
            match params_of(binding, params.as_ref(), object, context).await {
                Ok(params) => found.extend(params.into_iter().map(|param| Invocation {
                    policy: policy.clone(),
                    binding: binding.clone(),
                    matched: matched.clone(),
                    param,
                })),
                Err(error) => {
                    let why = error.message();
                    errors.add_binding_error(policy, binding, Reason::Forbidden, &why);
                }
            }
        }
    }
    found
}

/// Returns the parameters of a binding; empty when the binding does not match.
async fn params_of(
    binding: &Binding,
    params: Option<&ParamResource<'_>>,
    object: Option<&Object>,
    context: &mut DispatchContext<'_>,
) -> Result<Vec<Option<Object>>, ConfigError> {
    if let Some(resources) = &binding.resources {
        let matched = resources
            .matches(context, object)
            .await
            .map_err(|error| ConfigError::Binding(error.message.clone()))?;
        if matched.is_none() {
            return Ok(vec![]);
        }
    }
    ParamResource::collect(params, binding.params.as_ref(), context.call).await
}

/// A pass over the matching policies of a request.
struct Run<'a, 'f> {
    context: DispatchContext<'a>,
    rounds: PolicyRounds,
    errors: &'f mut PolicyErrors,
    /// Whether a policy has changed the object.
    changed: bool,
}

impl Run<'_, '_> {
    async fn all(
        &mut self,
        invocations: &[Invocation],
        mut object: Option<&mut Object>,
        is_reinvoked: bool,
    ) -> Result<(), Failure> {
        let mut is_dirty = false;
        for invocation in invocations {
            is_dirty |= self.one(invocation, object.as_deref_mut(), is_reinvoked).await?;
        }
        // As upstream, a patch without effect counts as a change.
        if is_dirty {
            self.rounds.schedule_invoked();
            self.changed = true;
        }
        Ok(())
    }

    /// Applies one policy; returns whether any mutation was applied.
    async fn one(
        &mut self,
        invocation: &Invocation,
        object: Option<&mut Object>,
        is_reinvoked: bool,
    ) -> Result<bool, Failure> {
        let Invocation { policy, binding, .. } = invocation;
        match self.matches(invocation, object.as_deref()).await? {
            Matched::Yes => {}
            Matched::No { .. } => return Ok(false),
            Matched::Failed(_) if policy.ignores_failures => return Ok(false),
            Matched::Failed(why) => {
                self.errors.add_binding_error(policy, binding, Reason::Invalid, &why);
                return Ok(false);
            }
        }
        let key = invocation.key();
        if is_reinvoked && !self.rounds.again.contains(&key) {
            return Ok(false);
        }
        let mut is_dirty = false;
        if let Some(object) = object {
            let before = object.clone();
            let user = &self.context.call.attributes.user.name;
            let mutations = policy.compiled(user).await?.mutations.len();
            for at in 0..mutations {
                let begun = Instant::now();
                let mutated = self.mutate(invocation, at, object).await;
                let metrics = self.context.call.metrics;
                metrics.mutation(mutated.is_err(), &policy.name, &binding.name, begun.elapsed());
                match mutated {
                    Ok(()) => is_dirty = true,
                    Err(PatchError::Status(failure)) => return Err(failure),
                    Err(PatchError::Refused(why)) => {
                        self.errors.add_binding_error(policy, binding, Reason::Invalid, &why);
                    }
                }
            }
            if before != *object {
                self.rounds.schedule_invoked();
                self.changed = true;
            }
        }
        if policy.reinvoked {
            self.rounds.invoked.insert(key);
        }
        Ok(is_dirty)
    }

    async fn matches(
        &mut self,
        invocation: &Invocation,
        object: Option<&Object>,
    ) -> Result<Matched, Failure> {
        let user = &self.context.call.attributes.user.name;
        let compiled = invocation.policy.compiled(user).await?;
        self.context.prepare(&invocation.matched, object, compiled.reads_namespace).await?;
        if compiled.conditions.is_empty() {
            return Ok(Matched::Yes);
        }
        let context = &self.context;
        let inputs = Inputs { namespace: None, ..inputs(context, invocation, object) };
        let brief = |decisions: &Decisions| {
            let variables = inputs.variables_with(decisions, context.resource.clone());
            compiled.conditions.evaluate(&variables, &compiled.variables)
        };
        let whole = || {
            let policy = invocation.policy.clone();
            let inputs = inputs.to_owned_inputs();
            let resource = context.resource.clone();
            move |decisions: &Decisions| {
                let variables = inputs.inputs().variables_with(decisions, resource);
                policy.known().map_or(Matched::Yes, |compiled| {
                    compiled.conditions.evaluate(&variables, &compiled.variables)
                })
            }
        };
        context.decisions.evaluate(context.call.api.authorizer(), brief, whole).await
    }

    /// Applies the mutation with this number.
    async fn mutate(
        &mut self,
        invocation: &Invocation,
        at: usize,
        object: &mut Object,
    ) -> Result<(), PatchError> {
        let policy = &invocation.policy;
        let compiled = policy.compiled(&self.context.call.attributes.user.name).await?;
        self.context.prepare(&invocation.matched, Some(object), compiled.reads_namespace).await?;
        let context = &self.context;
        let change: Change = {
            let inputs = inputs(context, invocation, Some(object));
            let brief = |decisions: &Decisions| {
                let variables = inputs.variables_with(decisions, context.resource.clone());
                evaluate(compiled, at, &variables)
            };
            let whole = || {
                let policy = policy.clone();
                let inputs = inputs.to_owned_inputs();
                let resource = context.resource.clone();
                move |decisions: &Decisions| {
                    let variables = inputs.inputs().variables_with(decisions, resource);
                    policy.known().map_or_else(PatchError::gone, |compiled| {
                        evaluate(compiled, at, &variables)
                    })
                }
            };
            context.decisions.evaluate(context.call.api.authorizer(), brief, whole).await??
        };
        let (versioned, _) = context.objects(&invocation.matched, Some(object));
        let api = context.call.api;
        let kind = &invocation.matched.kind;
        let Some(changed) = change.apply(versioned.unwrap_or(object), kind, api)? else {
            return Ok(());
        };
        let stored = context.call.attributes.object_kind;
        *object = match kind == stored {
            true => changed,
            false => api.convert(changed, kind, stored).await?,
        };
        self.context.drop_versions();
        Ok(())
    }
}

fn inputs<'s>(
    context: &'s DispatchContext<'_>,
    invocation: &'s Invocation,
    object: Option<&'s Object>,
) -> Inputs<'s> {
    let (object, old) = context.objects(&invocation.matched, object);
    Inputs {
        object: object.map(|object| &object.root),
        old_object: old.map(|old| &old.root),
        request: context.request(&invocation.matched),
        namespace: context.namespace(),
        params: invocation.param.as_ref().map(|param| &param.root),
    }
}
