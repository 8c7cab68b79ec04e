//! [`MutatingPolicies`]: lets the MutatingAdmissionPolicies that a request is for change its object
//! (apiserver `admission/plugin/policy/mutating`).

use super::matching::requested;
use super::params::{ConfigError, ParamResource};
use super::patch::{Change, PatchError, evaluate};
use super::round::Round;
use super::seen::Seen;
use super::validating::forbidden;
use crate::attributes::{Call, DynamicPlugIn, Notes, Pending};
use crate::configurations::Configurations;
use crate::configurations::hooks::Hooks;
use crate::configurations::policy::{Binding, Mutation, Policy};
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
        _notes: &'a mut Notes,
        round: &'a mut Reinvocation,
    ) -> Pending<'a, Result<(), Failure>> {
        let hooks = call.configured.policies.mutating();
        let resource = &call.attributes.resource.resource;
        if hooks.has_none_for(resource) || exempt::from_policies(call.attributes.resource) {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(dispatch(call, hooks, object, round))
    }
}

/// A policy that is to change the object.
struct Invocation {
    policy: Arc<Policy>,
    binding: Arc<Binding>,
    seen: Seen,
    param: Option<Object>,
}

impl Invocation {
    /// Its identity among all policy invocations.
    fn key(&self) -> String {
        let param =
            self.param.as_ref().map(|param| format!("{}/{}", param.namespace(), param.name()));
        format!("{}\n{}\n{}", self.policy.name, self.binding.name, param.unwrap_or_default())
    }
}

/// Why the request is refused.
#[derive(Default)]
struct Faults {
    /// The first one's reason.
    reason: Option<Reason>,
    messages: Vec<String>,
}

impl Faults {
    fn add(&mut self, policy: &Policy, reason: Reason, message: String) {
        if !policy.ignores_failures {
            self.reason.get_or_insert(reason);
            self.messages.push(message);
        }
    }

    fn of_policy(&mut self, policy: &Policy, why: &str) {
        let message = format!("policy {} denied request: {why}", quote(&policy.name));
        self.add(policy, Reason::Forbidden, message);
    }

    fn of_binding(&mut self, policy: &Policy, binding: &Binding, reason: Reason, why: &str) {
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
        // The code stays that of a refusal.
        status.reason = self.reason.unwrap_or(Reason::Forbidden);
        let causes = self.messages.into_iter().map(|message| Cause { message, ..Cause::default() });
        status.details.get_or_insert_default().causes = causes.collect();
        Err(status)
    }
}

async fn dispatch(
    call: &Call<'_>,
    hooks: &Hooks,
    mut object: Option<&mut Object>,
    reinvocation: &mut Reinvocation,
) -> Result<(), Failure> {
    let mut round = Round::new(call);
    let mut faults = Faults::default();
    let invocations = find(call, hooks, object.as_deref(), &mut round, &mut faults).await;
    if !invocations.is_empty() {
        let rounds = std::mem::take(&mut reinvocation.policies);
        let mut run = Run { round, rounds, faults: &mut faults, changed: false };
        run.rounds.begin(reinvocation.is_reinvoked, object.as_deref());
        let outcome = run.all(&invocations, object.as_deref_mut(), reinvocation.is_reinvoked).await;
        run.rounds.last = object.as_deref().cloned();
        reinvocation.is_requested |= run.changed;
        reinvocation.policies = run.rounds;
        outcome?;
    }
    faults.into_result(call, object.as_deref())
}

/// The policies that a request is for, with their bindings and parameters.
async fn find(
    call: &Call<'_>,
    hooks: &Hooks,
    object: Option<&Object>,
    round: &mut Round<'_>,
    faults: &mut Faults,
) -> Vec<Invocation> {
    let mut found = vec![];
    for hook in hooks.candidates(&requested(call.attributes)) {
        let policy = &hook.policy;
        let seen = match policy.constraints.matches(round, object).await {
            Ok(Some(seen)) => seen,
            Ok(None) => continue,
            Err(failure) => {
                let error = ConfigError::Policy(failure.message.clone());
                faults.of_policy(policy, &error.message());
                continue;
            }
        };
        let params = match ParamResource::of(policy, call) {
            Ok(params) => params,
            Err(error) => {
                faults.of_policy(policy, &error.message());
                continue;
            }
        };
        for binding in &hook.bindings {
            match params_of(binding, params.as_ref(), object, round).await {
                Ok(params) => found.extend(params.into_iter().map(|param| Invocation {
                    policy: policy.clone(),
                    binding: binding.clone(),
                    seen: seen.clone(),
                    param,
                })),
                Err(error) => {
                    let why = error.message();
                    faults.of_binding(policy, binding, Reason::Forbidden, &why);
                }
            }
        }
    }
    found
}

/// The parameters of a binding; none when it is not for the request.
async fn params_of(
    binding: &Binding,
    params: Option<&ParamResource<'_>>,
    object: Option<&Object>,
    round: &mut Round<'_>,
) -> Result<Vec<Option<Object>>, ConfigError> {
    if let Some(resources) = &binding.resources {
        let matched = resources.matches(round, object).await;
        let matched = matched.map_err(|error| ConfigError::Binding(error.message.clone()))?;
        if matched.is_none() {
            return Ok(vec![]);
        }
    }
    ParamResource::collect(params, binding.params.as_ref(), round.call).await
}

/// The policies of one round, at work.
struct Run<'a, 'f> {
    round: Round<'a>,
    rounds: PolicyRounds,
    faults: &'f mut Faults,
    /// A policy has changed the object.
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
        // A patch that changes nothing counts here, as upstream has it.
        if is_dirty {
            self.rounds.recall_invoked();
            self.changed = true;
        }
        Ok(())
    }

    /// Lets one policy change the object; says whether a mutation of it was done.
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
                self.faults.of_binding(policy, binding, Reason::Invalid, &why);
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
            for mutation in &policy.compiled().mutations {
                let begun = Instant::now();
                let mutated = self.mutate(invocation, mutation, object).await;
                let metrics = self.round.call.metrics;
                metrics.mutation(mutated.is_err(), &policy.name, &binding.name, begun.elapsed());
                match mutated {
                    Ok(()) => is_dirty = true,
                    Err(PatchError::Status(failure)) => return Err(failure),
                    Err(PatchError::Refused(why)) => {
                        self.faults.of_binding(policy, binding, Reason::Invalid, &why);
                    }
                }
            }
            if before != *object {
                self.rounds.recall_invoked();
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
        let compiled = invocation.policy.compiled();
        self.round.prepare(&invocation.seen, object, compiled.reads_namespace).await?;
        if compiled.conditions.is_empty() {
            return Ok(Matched::Yes);
        }
        let round = &self.round;
        let inputs = Inputs { namespace: None, ..inputs(round, invocation, object) };
        let evaluate = |decisions: &Decisions| {
            let variables = inputs.variables_with(decisions, round.resource.clone());
            compiled.conditions.evaluate(&variables, &compiled.variables)
        };
        Ok(round.decisions.settle(round.call.api.authorizer(), evaluate).await)
    }

    async fn mutate(
        &mut self,
        invocation: &Invocation,
        mutation: &Mutation,
        object: &mut Object,
    ) -> Result<(), PatchError> {
        let compiled = invocation.policy.compiled();
        self.round.prepare(&invocation.seen, Some(object), compiled.reads_namespace).await?;
        let round = &self.round;
        let change: Change = {
            let inputs = inputs(round, invocation, Some(object));
            let evaluate = |decisions: &Decisions| {
                let variables = inputs.variables_with(decisions, round.resource.clone());
                evaluate(mutation, &variables, &compiled.variables)
            };
            round.decisions.settle(round.call.api.authorizer(), evaluate).await?
        };
        let (seen, _) = round.objects(&invocation.seen, Some(object));
        let api = round.call.api;
        let kind = &invocation.seen.kind;
        let Some(changed) = change.apply(seen.unwrap_or(object), kind, api)? else {
            return Ok(());
        };
        let stored = round.call.attributes.object_kind;
        *object = match kind == stored {
            true => changed,
            false => api.convert(changed, kind, stored).await?,
        };
        self.round.forget_versions();
        Ok(())
    }
}

fn inputs<'s>(
    round: &'s Round<'_>,
    invocation: &'s Invocation,
    object: Option<&'s Object>,
) -> Inputs<'s> {
    let (object, old) = round.objects(&invocation.seen, object);
    Inputs {
        object: object.map(|object| &object.root),
        old_object: old.map(|old| &old.root),
        request: round.request(&invocation.seen),
        namespace: round.namespace(),
        params: invocation.param.as_ref().map(|param| &param.root),
    }
}
