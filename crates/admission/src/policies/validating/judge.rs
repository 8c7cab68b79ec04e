//! [`judge`]: what a policy says of a request (`validating/validator.go`).

use crate::configurations::policy::{Compiled, Policy, Validation};
use crate::decisions::Decisions;
use crate::match_conditions::Matched;
use keelson_cel::admission::{Inputs, OutOfBudget, Variables, activation};
use keelson_cel::{EXPRESSION_COST_MAX, OBJECT_COST_MAX, Resource, Val};
use keelson_meta::{Reason, Str};

/// A message that an expression makes is at most this long.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// The verdict of a policy.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub failures: Vec<Failed>,
    /// Validations that could not be evaluated, which the policy ignores.
    pub ignored_number: usize,
    /// Audit annotations.
    pub annotations: Vec<(Str, String)>,
    /// Why others could not be made; each refuses the request.
    pub annotation_errors: Vec<String>,
}

/// A validation that does not hold, or could not be evaluated.
#[derive(Debug)]
pub(super) struct Failed {
    pub index: usize,
    pub reason: Reason,
    pub message: String,
}

impl Verdict {
    /// Nothing could be evaluated.
    fn error(policy: &Policy, message: String) -> Verdict {
        let failed = Failed { index: 0, reason: Reason::Invalid, message };
        let failures = if policy.ignores_failures { vec![] } else { vec![failed] };
        Verdict { failures, ..Verdict::default() }
    }
}

/// Evaluates a policy, without waiting for decisions of the authorizer.
pub(super) fn judge(
    policy: &Policy,
    compiled: &Compiled,
    inputs: &Inputs<'_>,
    resource: &Resource,
    decisions: &Decisions,
) -> Verdict {
    let variables = inputs.variables_with(decisions, resource.clone());
    if !compiled.conditions.is_empty() {
        // Match conditions do not see the namespace.
        let seen = Inputs { namespace: None, ..*inputs };
        let seen = seen.variables_with(decisions, resource.clone());
        match compiled.conditions.evaluate(&seen, &compiled.variables) {
            Matched::Yes => {}
            Matched::No { .. } => return Verdict::default(),
            Matched::Failed(_) if policy.ignores_failures => return Verdict::default(),
            Matched::Failed(error) => return Verdict::error(policy, error),
        }
    }
    let mut verdict = match validate(policy, compiled, inputs, &variables) {
        Ok((failures, ignored_number)) => {
            Verdict { failures, ignored_number, ..Verdict::default() }
        }
        Err(error) => return Verdict::error(policy, error.to_string()),
    };
    match annotate(policy, compiled, &inputs.variables(), &mut verdict) {
        Ok(()) => verdict,
        Err(error) => Verdict::error(policy, error.to_string()),
    }
}

fn validate(
    policy: &Policy,
    compiled: &Compiled,
    inputs: &Inputs<'_>,
    variables: &Variables<'_>,
) -> Result<(Vec<Failed>, usize), OutOfBudget> {
    let activation = activation(variables, &compiled.variables);
    let mut budget = OBJECT_COST_MAX;
    let mut results = Vec::with_capacity(compiled.validations.len());
    for validation in &compiled.validations {
        let result = validation.expression.evaluate(&activation, &mut budget)?;
        results.push(result.map(|val| matches!(val, Val::Bool(true))));
    }
    let holds = results.iter().all(|result| matches!(result, Ok(true)));
    if holds && messages_cost_max(compiled) <= budget {
        return Ok((vec![], 0));
    }
    let errors = results.iter().filter(|result| result.is_err()).count();
    let ignored_number = if policy.ignores_failures { errors } else { 0 };
    let messages = messages(compiled, inputs, budget);
    let failed = |(index, result)| -> Option<Failed> {
        let validation: &Validation = &compiled.validations[index];
        let error = |message| {
            let failed = Failed { index, reason: Reason::Invalid, message };
            (!policy.ignores_failures).then_some(failed)
        };
        match (result, &messages) {
            (Err(message), _) => error(message),
            (_, Err(out_of_budget)) => error(format!("failed messageExpression: {out_of_budget}")),
            (Ok(true), _) => None,
            (Ok(false), Ok(messages)) => Some(Failed {
                index,
                reason: validation.reason,
                message: message(validation, messages[index].as_deref()),
            }),
        }
    };
    Ok((results.into_iter().enumerate().filter_map(failed).collect(), ignored_number))
}

/// Cost limit of all message expressions together.
fn messages_cost_max(compiled: &Compiled) -> u64 {
    let messages = compiled.validations.iter().filter(|v| v.message_expression.is_some()).count();
    let expressions = match messages {
        0 => 0,
        _ => messages + compiled.variables.len(),
    };
    EXPRESSION_COST_MAX.saturating_mul(expressions as u64)
}

/// Evaluates all message expressions, as upstream does, under one cost limit.
fn messages(
    compiled: &Compiled,
    inputs: &Inputs<'_>,
    mut budget: u64,
) -> Result<Vec<Option<String>>, OutOfBudget> {
    let variables = inputs.variables();
    let activation = activation(&variables, &compiled.variables);
    let mut messages = Vec::with_capacity(compiled.validations.len());
    for validation in &compiled.validations {
        let Some(expression) = &validation.message_expression else {
            messages.push(None);
            continue;
        };
        let result = expression.evaluate(&activation, &mut budget)?;
        messages.push(result.ok().and_then(|val| val.as_str().map(str::to_owned)));
    }
    Ok(messages)
}

/// The message of a failed validation.
fn message(validation: &Validation, computed: Option<&str>) -> String {
    let computed = computed.unwrap_or_default().trim();
    if !computed.is_empty() && computed.len() <= MESSAGE_BYTES_MAX && !computed.contains('\n') {
        return computed.to_owned();
    }
    match validation.message.trim() {
        "" => format!("failed expression: {}", validation.expression.text().trim()),
        message => message.to_owned(),
    }
}

fn annotate(
    policy: &Policy,
    compiled: &Compiled,
    variables: &Variables<'_>,
    verdict: &mut Verdict,
) -> Result<(), OutOfBudget> {
    let activation = activation(variables, &compiled.variables);
    let mut budget = OBJECT_COST_MAX;
    for (key, expression) in &compiled.audits {
        match expression.evaluate(&activation, &mut budget)? {
            Ok(val) => match val.as_str().map(str::trim) {
                None | Some("") => {}
                Some(text) => verdict.annotations.push((key.clone(), text.to_owned())),
            },
            Err(_) if policy.ignores_failures => {}
            Err(error) => verdict.annotation_errors.push(error),
        }
    }
    Ok(())
}
