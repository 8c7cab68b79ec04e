//! Validates `podFailurePolicy`, `successPolicy` and `podReplacementPolicy` of a job.

use crate::check::{Field, Go, GoMembers, as_go};
use keelson_meta::names;
use keelson_meta::{ErrorList, ErrorType, FieldError, SmallSet, Value};

const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const CONDITIONS_MAX: usize = 20;
const INDEXES_BYTES_MAX: usize = 64 * 1024;

/// Validates `podReplacementPolicy`.
pub(super) fn replacement(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let at = spec.field("podReplacementPolicy");
    if !at.is_set() {
        return;
    }
    if spec.has("podFailurePolicy") {
        at.one_of(errors, &["Failed"]);
    } else {
        at.one_of(errors, &["Failed", "TerminatingOrFailed"]);
    }
}

/// Validates `podFailurePolicy`.
pub(super) fn pod_failure(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let policy = spec.field("podFailurePolicy");
    let rules = policy.field("rules");
    let count = rules.array().len();
    if count > RULES_MAX {
        errors.push(FieldError::too_many(&rules.path, count, RULES_MAX));
    }
    let lists = [["template", "spec", "containers"], ["template", "spec", "initContainers"]];
    let containers: SmallSet<&str> = lists
        .iter()
        .flat_map(|list| spec.value.array_at(list))
        .filter_map(|c| c.str_at(&["name"]))
        .collect();
    for rule in rules.items() {
        let action = rule.field("action");
        if action.text() == "FailIndex" && !spec.has("backoffLimitPerIndex") {
            action.invalid(errors, "requires the backoffLimitPerIndex to be set");
        }
        const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
        match action.text() {
            "" => action.required(errors, &format!("valid values: {ACTIONS:?}").replace(',', "")),
            _ => action.one_of(errors, &ACTIONS),
        }
        let codes = rule.field("onExitCodes");
        let conditions = rule.field("onPodConditions");
        if codes.is_set() {
            exit_codes(&codes, &containers, errors);
        }
        pod_conditions(&conditions, errors);
        let words = match (codes.is_set(), conditions.array().is_empty()) {
            (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
            (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
            _ => continue,
        };
        errors.push(error_without_value(&rule, words));
    }
}

/// Returns the error `Invalid value` with the detail in place of the value.
pub(super) fn error_without_value(at: &Field<'_, '_>, words: &str) -> FieldError {
    FieldError {
        error_type: ErrorType::Invalid,
        field: at.path.to_string(),
        value: None,
        detail: words.to_owned(),
    }
}

fn exit_codes(at: &Field<'_, '_>, containers: &SmallSet<&str>, errors: &mut ErrorList) {
    let operator = at.field("operator");
    operator.required_one_of(errors, &["In", "NotIn"]);
    let name = at.field("containerName");
    if name.is_set() && !containers.contains(name.text()) {
        let words = "must be one of the container or initContainer names in the pod template";
        name.invalid(errors, words);
    }
    let values = at.field("values");
    let codes: Vec<i64> = values.array().iter().filter_map(Value::as_int).collect();
    if codes.is_empty() {
        values.invalid_as(errors, vec![], "at least one value is required");
    } else if codes.len() > EXIT_CODES_MAX {
        errors.push(FieldError::too_many(&values.path, codes.len(), EXIT_CODES_MAX));
    }
    let mut seen: SmallSet<i64> = SmallSet::new();
    for item in values.items() {
        if operator.text() == "In" && item.number() == 0 {
            item.invalid(errors, "must not be 0 for the In operator");
        }
        if !seen.insert(item.number()) {
            item.duplicate(errors);
        }
    }
    if !codes.is_sorted() {
        values.invalid(errors, "must be ordered");
    }
}

fn pod_conditions(list: &Field<'_, '_>, errors: &mut ErrorList) {
    let count = list.array().len();
    if count > CONDITIONS_MAX {
        errors.push(FieldError::too_many(&list.path, count, CONDITIONS_MAX));
    }
    for condition in list.items() {
        condition.field("type").rule(errors, names::is_qualified_name);
        condition.field("status").required_one_of(errors, &["False", "True", "Unknown"]);
    }
}

/// Validates `successPolicy`.
pub(super) fn success(spec: &Field<'_, '_>, errors: &mut ErrorList) {
    let at = spec.field("successPolicy");
    if !at.is_set() {
        return;
    }
    if spec.str("completionMode") != "Indexed" {
        const RULE: GoMembers =
            &[("SucceededIndexes", Go::Pointer), ("SucceededCount", Go::Pointer)];
        const POLICY: GoMembers = &[("Rules", Go::List(RULE))];
        let shown = as_go(at.value, POLICY);
        return at.invalid_as(errors, shown, "requires indexed completion mode");
    }
    let rules = at.field("rules");
    match rules.array().len() {
        0 => {
            let words = "at least one rules must be specified when the successPolicy is specified";
            rules.required(errors, words);
        }
        count if count > RULES_MAX => {
            errors.push(FieldError::too_many(&rules.path, count, RULES_MAX));
        }
        _ => {}
    }
    let completions = spec.int("completions").unwrap_or(0);
    rules.items().for_each(|rule| success_rule(&rule, completions, errors));
}

fn success_rule(rule: &Field<'_, '_>, completions: i64, errors: &mut ErrorList) {
    let count = rule.field("succeededCount");
    let indexes = rule.field("succeededIndexes");
    if !count.is_set() && !indexes.is_set() {
        let words = "at least one of succeededCount or succeededIndexes must be specified";
        return rule.required(errors, words);
    }
    let mut total = None;
    if indexes.is_set() {
        if indexes.text().len() > INDEXES_BYTES_MAX {
            errors.push(FieldError::too_long(&indexes.path, INDEXES_BYTES_MAX));
        }
        let counted = count_indexes(indexes.text(), completions);
        // Indexes that cannot be read are none.
        total = Some(counted.as_ref().copied().unwrap_or(0));
        if let Err(why) = counted {
            indexes.invalid(errors, &format!("error parsing succeededIndexes: {why}"));
        }
    }
    if !count.is_set() {
        return;
    }
    count.not_negative(errors);
    if count.number() > completions {
        let words = format!(
            "must be less than or equal to {completions} (the number of specified completions)"
        );
        count.invalid(errors, &words);
    }
    if let Some(total) = total
        && count.number() > total
    {
        let words = format!(
            "must be less than or equal to {total} (the number of indexes in the specified \
             succeededIndexes field)"
        );
        count.invalid(errors, &words);
    }
}

/// Returns the error of a list of indexes such as `1,3-5`.
pub(super) fn indexes_error(text: &str, completions: i64) -> Option<String> {
    count_indexes(text, completions).err()
}

/// Parses `3` or `3-5` into its first and last index.
pub(super) fn index_interval(text: &str, completions: i64) -> Result<(i64, i64), String> {
    let read = |text: &str| -> Result<i64, String> {
        let quoted = keelson_meta::status::quote(text);
        let number: i64 = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {quoted}"))?;
        if number >= completions { Err(format!("too large index: {quoted}")) } else { Ok(number) }
    };
    let Some((first, last)) = text.split_once('-') else {
        let index = read(text)?;
        return Ok((index, index));
    };
    if last.contains('-') {
        let quoted = keelson_meta::status::quote(text);
        return Err(format!(
            "the fragment {quoted} violates the requirement that an index interval can have at \
             most two parts separated by '-'"
        ));
    }
    let start = read(first)?;
    let end = read(last)?;
    if start >= end {
        return Err(format!("non-increasing order, previous: {start}, current: {end}"));
    }
    Ok((start, end))
}

/// Returns the number of indexes in a list such as `1,3-5`.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let mut total = 0;
    let mut previous = None::<i64>;
    if text.is_empty() {
        return Ok(0);
    }
    for part in text.split(',') {
        let (start, end) = index_interval(part, completions)?;
        if let Some(previous) = previous
            && previous >= start
        {
            return Err(format!("non-increasing order, previous: {previous}, current: {start}"));
        }
        total += end - start + 1;
        previous = Some(end);
    }
    Ok(total)
}
