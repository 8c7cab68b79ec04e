//! [`evaluate_policy`]: evaluates one policy for a request (upstream's `validating/validator.go`).

use crate::configurations::policy::{Compiled, Policy, Validation};
use crate::decisions::Decisions;
use crate::match_conditions::Matched;
use keelson_cel::admission::{Inputs, OutOfBudget, Variables, activation};
use keelson_cel::{EXPRESSION_COST_MAX, OBJECT_COST_MAX, Resource, Val};
use keelson_meta::{Reason, Str};

/// Maximum length of the result of a `messageExpression`.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// Maximum length of an audit annotation.
const ANNOTATION_BYTES_MAX: usize = 10 * 1024;

/// The result of a policy (upstream's `ValidateResult`).
#[derive(Debug, Default)]
pub(super) struct ValidateResult {
    pub failures: Vec<Failed>,
    /// Validations that failed to evaluate under `failurePolicy: Ignore`.
    pub ignored_number: usize,
    /// Audit annotations.
    pub annotations: Vec<(Str, String)>,
    /// Errors of audit annotations; each rejects the request.
    pub annotation_errors: Vec<String>,
}

/// A validation that is false or failed to evaluate.
#[derive(Debug)]
pub(super) struct Failed {
    pub index: usize,
    pub reason: Reason,
    pub message: String,
}

impl ValidateResult {
    /// Returns the result for a policy that could not be evaluated.
    fn error(policy: &Policy, message: String) -> ValidateResult {
        let failed = Failed { index: 0, reason: Reason::Invalid, message };
        let failures = if policy.ignores_failures { vec![] } else { vec![failed] };
        ValidateResult { failures, ..ValidateResult::default() }
    }
}

/// Evaluates a policy without waiting for authorizer decisions.
pub(super) fn evaluate_policy(
    policy: &Policy,
    compiled: &Compiled,
    inputs: &Inputs<'_>,
    resource: &Resource,
    decisions: &Decisions,
) -> ValidateResult {
    let variables = inputs.variables_with(decisions, resource.clone());
    if !compiled.conditions.is_empty() {
        // Match conditions have no `namespaceObject`.
        let variables = Inputs { namespace: None, ..*inputs };
        let variables = variables.variables_with(decisions, resource.clone());
        match compiled.conditions.evaluate(&variables, &compiled.variables) {
            Matched::Yes => {}
            Matched::No { .. } => return ValidateResult::default(),
            Matched::Failed(_) if policy.ignores_failures => return ValidateResult::default(),
            Matched::Failed(error) => return ValidateResult::error(policy, error),
        }
    }
    let mut result = match validate(policy, compiled, inputs, &variables) {
        Ok((failures, ignored_number)) => {
            ValidateResult { failures, ignored_number, ..ValidateResult::default() }
        }
        Err(error) => return ValidateResult::error(policy, error.to_string()),
    };
    match annotate(policy, compiled, &inputs.variables(), &mut result) {
        Ok(()) => result,
        Err(error) => ValidateResult::error(policy, error.to_string()),
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

/// Returns the cost limit of all message expressions together.
fn messages_cost_max(compiled: &Compiled) -> u64 {
    let messages = compiled.validations.iter().filter(|v| v.message_expression.is_some()).count();
    let expressions = match messages {
        0 => 0,
        _ => messages + compiled.variables.len(),
    };
    EXPRESSION_COST_MAX.saturating_mul(expressions as u64)
}

/// Evaluates all message expressions under one cost limit, as upstream does. Messages are trimmed;
/// those that are too long are none.
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
        let value = result.ok();
        let text = value.as_ref().and_then(Val::as_str).map(str::trim);
        messages.push(text.filter(|text| text.len() <= MESSAGE_BYTES_MAX).map(str::to_owned));
    }
    Ok(messages)
}

/// Returns the message of a failed validation.
fn message(validation: &Validation, computed: Option<&str>) -> String {
    let computed = computed.unwrap_or_default();
    if !computed.is_empty() && !computed.contains('\n') {
        return computed.to_owned();
    }
    match validation.message.trim() {
        "" => format!("failed expression: {}", validation.expression.text().trim()),
        message => message.to_owned(),
    }
}

/// Truncates an audit annotation to the limit.
fn cut(text: &str) -> &str {
    let end =
        (0..=ANNOTATION_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    &text[..end.unwrap_or(0)]
}

fn annotate(
    policy: &Policy,
    compiled: &Compiled,
    variables: &Variables<'_>,
    result: &mut ValidateResult,
) -> Result<(), OutOfBudget> {
    let activation = activation(variables, &compiled.variables);
    let mut budget = OBJECT_COST_MAX;
    for (key, expression) in &compiled.audits {
        match expression.evaluate(&activation, &mut budget)? {
            Ok(val) => match val.as_str().map(str::trim) {
                None | Some("") => {}
                Some(text) => result.annotations.push((key.clone(), cut(text).to_owned())),
            },
            Err(_) if policy.ignores_failures => {}
            Err(error) => result.annotation_errors.push(error),
        }
    }
    Ok(())
}
