//! ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings.

use super::expressions::Expressions;
use super::rules::{has_expression, match_conditions, match_resources};
use crate::check::{Field, child, children, default};
use crate::conditions;
use crate::strategy::Strategy;
use keelson_cel::admission::Purpose;
use keelson_meta::{ErrorList, FieldError, GroupVersion, Map, Object, SmallSet, names};

const NO_EXPRESSION: &str = "expression is not specified";
const AUDIT_ANNOTATIONS_MAX: usize = 20;
const AUDIT_EXPRESSION_BYTES_MAX: usize = 5 * 1024;

/// ValidatingAdmissionPolicies.
pub(crate) const fn validating_policy(base: Strategy) -> Strategy {
    Strategy {
        default: default_policy,
        validate: validate_validating,
        validate_status: |new, _| validate_validating_status(new),
        ..base
    }
}

/// MutatingAdmissionPolicies.
pub(crate) const fn mutating_policy(base: Strategy) -> Strategy {
    Strategy { default: default_policy, validate: validate_mutating, ..base }
}

/// The bindings of both.
pub(crate) const fn binding(base: Strategy, mutating: bool) -> Strategy {
    Strategy {
        default: |obj| {
            if let Some(resources) = child(obj.object_mut("spec"), "matchResources") {
                default_match(resources);
            }
        },
        validate: if mutating {
            |new, _| validate_binding(new, true)
        } else {
            |new, _| validate_binding(new, false)
        },
        ..base
    }
}

fn validate_validating_status(new: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let status = Field::of(new, "status");
    let checking = status.field("typeChecking");
    for found in checking.field("expressionWarnings").items() {
        found.field("warning").not_empty(&mut errors, "");
        found.field("fieldRef").not_empty(&mut errors, "");
    }
    conditions::validate(&status.field("conditions"), &mut errors);
    errors
}

fn default_policy(obj: &mut Object) {
    let spec = obj.object_mut("spec");
    default(spec, "failurePolicy", "Fail");
    if let Some(constraints) = child(spec, "matchConstraints") {
        default_match(constraints);
    }
}

fn default_match(resources: &mut Map) {
    default(resources, "matchPolicy", "Equivalent");
    default(resources, "namespaceSelector", Map::new());
    default(resources, "objectSelector", Map::new());
    for list in ["resourceRules", "excludeResourceRules"] {
        children(resources, list).for_each(|rule| default(rule, "scope", "*"));
    }
}

fn validate_validating(new: &Object, old: Option<&Object>) -> ErrorList {
    const NOTHING: &str = "validations or auditAnnotations must contain at least one item";
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    constraints(&spec, false, &mut errors);
    let old = old.and_then(|old| old.get("spec"));
    let mut expressions = Expressions::of_validating(&spec, old);
    match_conditions(&spec.field("matchConditions"), &expressions, &mut errors);
    variables(&spec.field("variables"), &mut expressions, &mut errors);
    let validations = spec.field("validations");
    let audits = spec.field("auditAnnotations");
    if validations.array().is_empty() && audits.array().is_empty() {
        validations.required(&mut errors, NOTHING);
        audits.required(&mut errors, NOTHING);
        return errors;
    }
    validations.items().for_each(|item| validation(&item, &expressions, &mut errors));
    audit_annotations(&audits, new.name(), &expressions, &mut errors);
    errors
}

fn validate_mutating(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    constraints(&spec, true, &mut errors);
    let old = old.and_then(|old| old.get("spec"));
    let mut expressions = Expressions::of_mutating(&spec, old);
    match_conditions(&spec.field("matchConditions"), &expressions, &mut errors);
    variables(&spec.field("variables"), &mut expressions, &mut errors);
    let mutations = spec.field("mutations");
    mutations.not_empty(&mut errors, "mutations must contain at least one item");
    mutations.items().for_each(|item| mutation(&item, &expressions, &mut errors));
    spec.field("reinvocationPolicy").required_one_of(&mut errors, &["IfNeeded", "Never"]);
    errors
}

/// Validates the fields that both kinds of policies share: `failurePolicy`, `paramKind` and
/// `matchConstraints`.
fn constraints(spec: &Field<'_, '_>, mutating: bool, errors: &mut ErrorList) {
    let policy = spec.field("failurePolicy");
    if policy.is_set() {
        policy.one_of(errors, &["Fail", "Ignore"]);
    } else {
        policy.required(errors, "");
    }
    let kind = spec.field("paramKind");
    if kind.is_set() {
        param_kind(&kind, errors);
    }
    let constraints = spec.field("matchConstraints");
    if !constraints.is_set() {
        return constraints.required(errors, "");
    }
    match_resources(&constraints, errors);
    constraints.field("resourceRules").not_empty(errors, "");
    if mutating {
        mutable_operations(&constraints, errors);
    }
}

/// Checks that no rule of a mutating policy matches DELETE.
fn mutable_operations(resources: &Field<'_, '_>, errors: &mut ErrorList) {
    const OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
    let rules = resources.field("resourceRules");
    for operation in rules.array().iter().flat_map(|rule| rule.array_at(&["operations"])) {
        Field { value: operation, path: rules.path.field("operations") }.one_of(errors, OPERATIONS);
    }
}

fn param_kind(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let version = at.field("apiVersion");
    if version.not_empty(errors, "") {
        if version.text().matches('/').count() > 1 {
            let words = format!("unexpected GroupVersion string: {}", version.text());
            version.invalid(errors, &words);
        } else {
            let gv = GroupVersion::parse(version.text()).unwrap_or_default();
            if !gv.group.is_empty() {
                for why in names::is_dns1123_subdomain(&gv.group) {
                    version.invalid_as(errors, gv.group.as_str(), &why);
                }
            }
            for why in names::is_dns1035_label(&gv.version) {
                version.invalid_as(errors, gv.version.as_str(), &why);
            }
        }
    }
    let kind = at.field("kind");
    if kind.not_empty(errors, "") {
        let messages = names::is_dns1035_label(&kind.text().to_lowercase());
        if !messages.is_empty() {
            let words = "may have mixed case, but should otherwise match: ";
            kind.invalid(errors, &format!("{words}{}", messages.join(",")));
        }
    }
}

fn variables(list: &Field<'_, '_>, expressions: &mut Expressions<'_>, errors: &mut ErrorList) {
    for variable in list.items() {
        let name = variable.field("name");
        if name.text().trim().is_empty() {
            name.required(errors, "name is not specified");
        } else if !is_identifier(name.text()) {
            name.invalid(errors, "must be a valid CEL identifier");
        }
        let text = variable.field("expression");
        if has_expression(&text, NO_EXPRESSION, errors) {
            expressions.variable(name.text(), &text, errors);
        }
    }
}

/// Returns whether a name is a CEL identifier.
fn is_identifier(text: &str) -> bool {
    const RESERVED: &[&str] = &[
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    let is_first = |c: char| c == '_' || c.is_ascii_alphabetic();
    text.starts_with(is_first)
        && text.chars().all(|c| is_first(c) || c.is_ascii_digit())
        && !RESERVED.contains(&text)
}

fn validation(at: &Field<'_, '_>, expressions: &Expressions<'_>, errors: &mut ErrorList) {
    const EMPTY: &str = "must be non-empty if specified";
    let rule = at.field("expression");
    if has_expression(&rule, NO_EXPRESSION, errors) {
        expressions.check(&rule, Purpose::Condition, errors);
    }
    let computed = at.field("messageExpression");
    if !computed.text().is_empty() && computed.text().trim().is_empty() {
        computed.invalid(errors, EMPTY);
    } else if !computed.text().is_empty() {
        expressions.check(&computed, Purpose::Message, errors);
    }
    let message = at.field("message");
    let text = message.text().trim();
    if !message.text().is_empty() && text.is_empty() {
        message.invalid(errors, EMPTY);
    } else if text.contains('\n') {
        message.invalid(errors, "must not contain line breaks");
    }
    let reasons = &["Forbidden", "Invalid", "RequestEntityTooLarge"];
    at.field("reason").one_of_if_set(errors, reasons);
}

fn audit_annotations(
    list: &Field<'_, '_>,
    policy: &str,
    expressions: &Expressions<'_>,
    errors: &mut ErrorList,
) {
    let count = list.array().len();
    if count > AUDIT_ANNOTATIONS_MAX {
        let words = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        list.invalid(errors, &words);
    }
    let mut seen: SmallSet<&str> = SmallSet::new();
    for audit in list.items() {
        let key = audit.field("key");
        let full = match policy {
            "" => key.text().to_owned(),
            policy => format!("{policy}/{}", key.text()),
        };
        for why in names::is_qualified_name(&full) {
            key.invalid_as(errors, full.as_str(), &why);
        }
        let value = audit.field("valueExpression");
        if has_expression(&value, "valueExpression is not specified", errors) {
            expressions.check(&value, Purpose::Audit, errors);
        }
        if value.text().trim().len() > AUDIT_EXPRESSION_BYTES_MAX {
            let words = format!("must not exceed {AUDIT_EXPRESSION_BYTES_MAX} bytes in length");
            value.required(errors, &words);
        }
        if !seen.insert(key.text()) {
            errors.push(FieldError::duplicate(&key.path, key.text()));
        }
    }
}

fn mutation(at: &Field<'_, '_>, expressions: &Expressions<'_>, errors: &mut ErrorList) {
    const PATCH_TYPES: [(&str, &str); 2] =
        [("ApplyConfiguration", "applyConfiguration"), ("JSONPatch", "jsonPatch")];
    let kind = at.field("patchType");
    if !kind.not_empty(errors, "") {
        return;
    }
    if !PATCH_TYPES.iter().any(|(name, _)| *name == kind.text()) {
        return kind.not_supported(errors, &PATCH_TYPES.map(|(name, _)| name));
    }
    for (name, member) in PATCH_TYPES.iter().filter(|(name, _)| *name == kind.text()) {
        let form = at.field(member);
        if form.is_set() {
            let purpose = match *member {
                "jsonPatch" => Purpose::JsonPatch,
                _ => Purpose::ApplyConfiguration,
            };
            let text = form.field("expression");
            if has_expression(&text, "", errors) {
                expressions.check(&text, purpose, errors);
            }
        } else {
            form.required(errors, &format!("must be specified when patchType is {name}"));
        }
    }
    for (_, member) in PATCH_TYPES.iter().filter(|(name, _)| *name != kind.text()) {
        let form = at.field(member);
        if form.is_set() {
            let words = format!("must not be specified when patchType is {}", kind.text());
            form.invalid_as(errors, format!("{{{member}}}"), &words);
        }
    }
}

fn validate_binding(new: &Object, mutating: bool) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    spec.field("policyName").required_rule(&mut errors, names::is_dns1123_subdomain);
    let params = spec.field("paramRef");
    if params.is_set() {
        param_ref(&params, &mut errors);
    }
    let resources = spec.field("matchResources");
    if resources.is_set() {
        match_resources(&resources, &mut errors);
        if mutating {
            mutable_operations(&resources, &mut errors);
        }
    }
    if !mutating {
        actions(&spec.field("validationActions"), &mut errors);
    }
    errors
}

fn param_ref(at: &Field<'_, '_>, errors: &mut ErrorList) {
    const ONE: &str = "name and selector are mutually exclusive";
    let name = at.field("name");
    let selector = at.field("selector");
    let has_name = !name.text().is_empty();
    if has_name {
        name.rule(errors, names::is_path_segment_name);
        if selector.is_set() {
            name.forbidden(errors, ONE);
        }
    }
    if selector.is_set() {
        selector.label_selector(errors);
        if has_name {
            selector.forbidden(errors, ONE);
        }
    }
    if !has_name && !selector.is_set() {
        at.required(errors, "one of name or selector must be specified");
    }
    at.field("parameterNotFoundAction").required_one_of(errors, &["Deny", "Allow"]);
}

fn actions(list: &Field<'_, '_>, errors: &mut ErrorList) {
    if !list.not_empty(errors, "at least one validation action is required") {
        return;
    }
    let mut seen: SmallSet<&str> = SmallSet::new();
    for action in list.items() {
        action.one_of(errors, &["Audit", "Deny", "Warn"]);
        if !seen.insert(action.text()) {
            action.duplicate(errors);
        }
    }
    let has = |name: &str| list.array().iter().any(|action| action.as_str() == Some(name));
    if has("Deny") && has("Warn") {
        let words = "must not contain both Deny and Warn (repeating the same validation failure \
                     information in the API response and headers serves no purpose)";
        list.invalid(errors, words);
    }
}
