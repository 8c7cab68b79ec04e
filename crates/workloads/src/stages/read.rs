//! Reads Stages.

use super::expressions::{Condition, DurationSource, NumberSource, StageExpression};
use super::query::StageQuery;
use super::rule::{StageRule, StageSelector, StageStep, TemplatedApply, TemplatedPatch};
use super::template::StageTemplate;
use keelson_meta::time::GoDuration;
use keelson_meta::{Str, Value};
use keelson_registry::Subresource;
use keelson_registry::options::PatchForm;

/// Steps of one Stage.
const STEPS_MAX: usize = 100;

/// Reads a Stage; `None`: it has no selector, and so it matches nothing.
pub fn rule(stage: &Value) -> Result<Option<StageRule>, String> {
    let spec = stage.get("spec").unwrap_or(&Value::Null);
    let Some(selector) = spec.get("selector").filter(|selector| selector.is_map()) else {
        return Ok(None);
    };
    let version = spec.str_at(&["resourceRef", "apiGroup"]).unwrap_or("v1");
    let group = version.split_once('/').map_or("", |(group, _)| group);
    let kind = spec
        .str_at(&["resourceRef", "kind"])
        .filter(|kind| !kind.is_empty())
        .ok_or("spec.resourceRef.kind is missing")?;
    let steps = match spec.array_at(&["steps"]) {
        [] => next(spec.get("next").unwrap_or(&Value::Null))?,
        steps => {
            let steps = steps.iter().map(step).collect::<Result<Vec<_>, _>>()?;
            steps.into_iter().flatten().collect()
        }
    };
    if steps.len() > STEPS_MAX {
        return Err(format!("it has more than {STEPS_MAX} steps"));
    }
    Ok(Some(StageRule {
        name: stage.str_at(&["metadata", "name"]).unwrap_or_default().to_owned(),
        kind: (Str::new(group), Str::new(kind)),
        selector: self::selector(selector)?,
        weight: NumberSource {
            given: spec.int_at(&["weight"]).unwrap_or(0),
            from: source(spec.get("weightFrom"))?,
        },
        delay: duration(spec, "durationMilliseconds", "durationFrom")?,
        jitter: duration(spec, "jitterDurationMilliseconds", "jitterDurationFrom")?,
        steps,
    }))
}

fn selector(selector: &Value) -> Result<StageSelector, String> {
    let pairs = |name: &str| {
        let map = selector.get(name).and_then(Value::as_object);
        let pairs = map.into_iter().flat_map(keelson_meta::Map::iter);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        pairs.map(|(key, value)| (key.to_string(), text(value))).collect()
    };
    let conditions = selector.array_at(&["matchExpressions"]).iter().map(condition);
    Ok(StageSelector {
        labels: pairs("matchLabels"),
        annotations: pairs("matchAnnotations"),
        conditions: conditions.collect::<Result<_, _>>()?,
    })
}

fn condition(expression: &Value) -> Result<Condition, String> {
    if let Some(text) = expression.str_at(&["cel", "expression"]) {
        return Ok(Condition::Holds(StageExpression::cel(text)?));
    }
    let requirement = expression.get("jq").unwrap_or(expression);
    let query = StageQuery::parse(requirement.str_at(&["key"]).ok_or("an expression has no key")?)?;
    let values: Vec<String> = requirement
        .array_at(&["values"])
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect();
    let operator = requirement.str_at(&["operator"]).unwrap_or_default();
    match (operator, values.is_empty()) {
        ("In", false) => Ok(Condition::In(query, values)),
        ("NotIn", false) => Ok(Condition::NotIn(query, values)),
        ("Exists", true) => Ok(Condition::Exists(query)),
        ("DoesNotExist", true) => Ok(Condition::DoesNotExist(query)),
        ("In" | "NotIn", true) => Err(format!("the operator {operator} needs values")),
        ("Exists" | "DoesNotExist", false) => Err(format!("the operator {operator} has values")),
        _ => Err(format!("the operator {operator:?} is not known")),
    }
}

/// Reads an expression: `jq`, `cel` or the older `expressionFrom`.
fn source(from: Option<&Value>) -> Result<Option<StageExpression>, String> {
    let Some(from) = from else { return Ok(None) };
    if let Some(text) = from.str_at(&["cel", "expression"]) {
        return StageExpression::cel(text).map(Some);
    }
    let query = from.str_at(&["jq", "expression"]).or_else(|| from.str_at(&["expressionFrom"]));
    query.map(|text| StageQuery::parse(text).map(StageExpression::Query)).transpose()
}

/// Reads a duration of `spec.delay`; `None`: neither of its fields is there.
fn duration(spec: &Value, given: &str, from: &str) -> Result<Option<DurationSource>, String> {
    let given = spec.int_at(&["delay", given]);
    let from = source(spec.at(&["delay", from]))?;
    if given.is_none() && from.is_none() {
        return Ok(None);
    }
    let given = given.map(|milliseconds| GoDuration(milliseconds.saturating_mul(1_000_000)));
    Ok(Some(DurationSource { given, from }))
}

/// Reads the older form of steps, `spec.next`: events and finalizers, then the deletion or the
/// patches.
fn next(next: &Value) -> Result<Vec<StageStep>, String> {
    let mut steps = vec![];
    steps.extend(next.get("event").map(event));
    steps.extend(next.get("finalizers").map(finalizers));
    if next.get("delete").and_then(Value::as_bool) == Some(true) {
        steps.push(StageStep::Delete);
        return Ok(steps);
    }
    for patch in next.array_at(&["patches"]) {
        steps.push(StageStep::Patch(self::patch(patch)?));
    }
    if let Some(text) = next.str_at(&["statusTemplate"]).filter(|text| !text.is_empty()) {
        steps.push(StageStep::Patch(TemplatedPatch {
            root: "status".to_owned(),
            template: template(text)?,
            subresource: subresource(next.str_at(&["statusSubresource"]).unwrap_or("status"))?,
            form: None,
            user: user(next.get("statusPatchAs")),
        }));
    }
    Ok(steps)
}

/// Reads one of `spec.steps`, which may have several parts.
fn step(step: &Value) -> Result<Vec<StageStep>, String> {
    let mut parts = vec![];
    parts.extend(step.get("event").map(event));
    parts.extend(step.get("finalizers").map(finalizers));
    if step.get("delete").and_then(Value::as_bool) == Some(true) {
        parts.push(StageStep::Delete);
        return Ok(parts);
    }
    if let Some(patch) = step.get("patch") {
        parts.push(StageStep::Patch(self::patch(patch)?));
    }
    if let Some(apply) = step.get("apply") {
        parts.push(StageStep::Apply(self::apply(apply)?));
    }
    Ok(parts)
}

fn event(event: &Value) -> StageStep {
    let part = |name: &str| event.str_at(&[name]).unwrap_or_default().to_owned();
    let kind = if part("type") == "Warning" { "Warning" } else { "Normal" };
    StageStep::Event { kind, reason: part("reason"), message: part("message") }
}

fn finalizers(finalizers: &Value) -> StageStep {
    let names = |list: &str| {
        let items = finalizers.array_at(&[list]).iter();
        items.filter_map(|item| item.str_at(&["value"])).map(Str::new).collect()
    };
    StageStep::Finalizers {
        adds: names("add"),
        removes: names("remove"),
        empties: finalizers.get("empty").and_then(Value::as_bool) == Some(true),
    }
}

fn patch(patch: &Value) -> Result<TemplatedPatch, String> {
    let form = match patch.str_at(&["type"]).unwrap_or_default() {
        "" => None,
        "json" => Some(PatchForm::Json),
        "merge" => Some(PatchForm::Merge),
        "strategic" => Some(PatchForm::Strategic),
        other => return Err(format!("the type of patch {other:?} is not known")),
    };
    Ok(TemplatedPatch {
        root: patch.str_at(&["root"]).unwrap_or_default().to_owned(),
        template: template(patch.str_at(&["template"]).unwrap_or_default())?,
        subresource: subresource(patch.str_at(&["subresource"]).unwrap_or_default())?,
        form,
        user: user(patch.get("impersonation")),
    })
}

fn apply(apply: &Value) -> Result<TemplatedApply, String> {
    let form = match apply.str_at(&["type"]).unwrap_or_default() {
        "" | "apply" => PatchForm::ApplyYaml,
        "merge" => PatchForm::Merge,
        "strategic" => PatchForm::Strategic,
        other => return Err(format!("the type of apply {other:?} is not known")),
    };
    Ok(TemplatedApply {
        template: template(apply.str_at(&["template"]).unwrap_or_default())?,
        subresource: subresource(apply.str_at(&["subresource"]).unwrap_or_default())?,
        form,
        user: user(apply.get("impersonation")),
    })
}

fn template(text: &str) -> Result<StageTemplate, String> {
    StageTemplate::parse(text).map_err(|error| error.to_string())
}

fn subresource(name: &str) -> Result<Subresource, String> {
    match name {
        "" => Ok(Subresource::None),
        "status" => Ok(Subresource::Status),
        other => Err(format!("the subresource {other:?} cannot be patched by a Stage")),
    }
}

fn user(impersonation: Option<&Value>) -> String {
    let name = impersonation.and_then(|user| user.str_at(&["username"]));
    name.unwrap_or_default().to_owned()
}
