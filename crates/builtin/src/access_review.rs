//! Access reviews, answered by the [`Authorizer`] that authorizes requests (registry
//! `authorization`).

use keelson_auth::{Attributes, Authorizer, Decision, Outcome, Selectors, User};
use keelson_meta::field_selector::{FieldSelector, escape};
use keelson_meta::selector::{self, Selector, validate_label_selector};
use keelson_meta::status::quote;
use keelson_meta::{
    ErrorList, Failure, FieldError, GroupVersionResource, Map, Object, Path, Status, Str, Value,
    value,
};

const GROUP: &str = "authorization.k8s.io";

/// The kind of an access review.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// SelfSubjectAccessReview.
    SelfSubject,
    /// SubjectAccessReview.
    Subject,
    /// LocalSubjectAccessReview.
    LocalSubject,
}

/// Sets the status of a review to the authorizer's decision. An invalid review is a 422.
/// `requester` is the user of the request.
pub(crate) async fn answer(
    authorizer: &Authorizer,
    kind: Kind,
    review: &mut Object,
    requester: &User,
) -> Result<(), Failure> {
    validate(kind, review).into_result(GROUP, "", "")?;
    let user = if kind == Kind::SelfSubject { requester.clone() } else { subject(review) };
    let mut ignored = vec![];
    let decision = authorizer.decide(&user, &attributes(review, &mut ignored)).await;
    review.root.insert("status", status(&decision, ignored));
    Ok(())
}

/// Returns the status of a review; `errors` go to `evaluationError`.
fn status(decision: &Decision, mut errors: Vec<String>) -> Map {
    let mut status = Map::new();
    status.insert("allowed", decision.is_allowed());
    if decision.outcome == Outcome::Deny {
        status.insert("denied", true);
    }
    let reason = decision.reason.to_string();
    if !reason.is_empty() {
        status.insert("reason", reason.as_str());
    }
    if let Some(error) = &decision.error {
        errors.insert(0, error.message.to_string());
    }
    if !errors.is_empty() {
        status.insert("evaluationError", errors.join("; "));
    }
    status
}

/// Returns a SelfSubjectRulesReview with the rules that apply to a user in the namespace of its
/// spec.
pub(crate) async fn answer_rules(
    authorizer: &Authorizer,
    review: &Object,
    user: &User,
) -> Result<Value, Failure> {
    let namespace = review.str_at(&["spec", "namespace"]);
    if namespace.is_empty() {
        return Err(Status::bad_request("no namespace on request"));
    }
    let rules = authorizer.rules_for(user, namespace).await;
    let mut resources = vec![];
    let mut paths = vec![];
    for rule in &rules.rules {
        let list = if rule.urls.is_empty() { &mut resources } else { &mut paths };
        list.push(rule.to_value());
    }
    let mut status = Map::new();
    status.insert("resourceRules", resources);
    status.insert("nonResourceRules", paths);
    status.insert("incomplete", rules.is_incomplete);
    if !rules.error.is_empty() {
        status.insert("evaluationError", rules.error.as_str());
    }
    Ok(value!({
        "kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1",
        "metadata": {}, "spec": {}, "status": (status)
    }))
}

fn validate(kind: Kind, review: &Object) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Path::new("spec");
    let part = |name: &str| review.at(&["spec", name]).filter(|value| !value.is_null());
    let resource = part("resourceAttributes");
    let non_resource = part("nonResourceAttributes");
    let shown = non_resource.map(|non_resource| {
        let text = |name: &str| quote(non_resource.str_at(&[name]).unwrap_or_default());
        format!("{{\"Path\":{},\"Verb\":{}}}", text("path"), text("verb"))
    });
    let non_resource_error = |why: &str, errors: &mut ErrorList| {
        let error = FieldError::invalid(&spec.field("nonResourceAttributes"), "", why);
        errors.push(FieldError { value: shown.clone(), ..error });
    };
    match (resource, non_resource) {
        (Some(_), Some(_)) => {
            non_resource_error(
                "cannot be specified in combination with resourceAttributes",
                &mut errors,
            );
        }
        (None, None) => {
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            let path = spec.field("resourceAttributes");
            errors.push(FieldError::invalid(&path, Value::Null, why));
        }
        _ => {}
    }
    let has_subject = !review.str_at(&["spec", "user"]).is_empty()
        || !review.array_at(&["spec", "groups"]).is_empty();
    if kind != Kind::SelfSubject && !has_subject {
        let why = "at least one of user or group must be specified";
        errors.push(FieldError::invalid(&spec.field("user"), "", why));
    }
    if let Some(resource) = resource {
        validate_selectors(resource, &mut errors);
    }
    let is_local = kind == Kind::LocalSubject;
    let mut metadata = review.metadata().into_iter().flat_map(Map::iter);
    let is_allowed_metadata = |(name, value): (&Str, &Value)| {
        name == "managedFields" || value.is_empty() || (is_local && name == "namespace")
    };
    if !metadata.all(is_allowed_metadata) {
        let shown = review.get("metadata").cloned().unwrap_or_default();
        let why = if is_local { "must be empty except for namespace" } else { "must be empty" };
        errors.push(FieldError::invalid(&Path::new("metadata"), shown, why));
    }
    if is_local {
        let namespace = resource.map(|r| r.str_at(&["namespace"]).unwrap_or_default());
        if let Some(namespace) = namespace.filter(|name| *name != review.namespace()) {
            let attributes = spec.field("resourceAttributes");
            let why = "must match metadata.namespace";
            errors.push(FieldError::invalid(&attributes.field("namespace"), namespace, why));
        }
        if non_resource.is_some() {
            non_resource_error("disallowed on this kind of request", &mut errors);
        }
    }
    errors
}

fn validate_selectors(resource: &Value, errors: &mut ErrorList) {
    let spec = Path::new("spec");
    let attributes = spec.field("resourceAttributes");
    for name in ["fieldSelector", "labelSelector"] {
        let Some(selector) = resource.get(name).filter(|value| !value.is_null()) else { continue };
        let path = attributes.field(name);
        let raw = selector.str_at(&["rawSelector"]).unwrap_or_default();
        let requirements = selector.array_at(&["requirements"]);
        if raw.is_empty() && requirements.is_empty() {
            let why = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(&path.field("requirements"), &why));
        }
        if !raw.is_empty() && !requirements.is_empty() {
            let why = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(&path.field("rawSelector"), raw, why));
        } else if name == "labelSelector" {
            let as_selector = value!({"matchExpressions": (requirements.to_vec())});
            let found = validate_label_selector(Some(&as_selector), &path);
            // As upstream, an unknown operator is not an error; its requirement is ignored.
            for error in found.iter().filter(|error| !error.field.ends_with(".operator")) {
                let field = error.field.replace("matchExpressions", "requirements");
                errors.push(FieldError { field, ..error.clone() });
            }
        } else {
            let path = path.field("requirements");
            for (index, requirement) in requirements.iter().enumerate() {
                validate_field_requirement(requirement, &path.index(index), errors);
            }
        }
    }
}

fn validate_field_requirement(requirement: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    let has_values = !requirement.array_at(&["values"]).is_empty();
    let values = path.field("values");
    match requirement.str_at(&["operator"]).unwrap_or_default() {
        "In" | "NotIn" if !has_values => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            errors.push(FieldError::required(&values, why));
        }
        "Exists" | "DoesNotExist" if has_values => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&values, why));
        }
        _ => {}
    }
    if requirement.str_at(&["key"]).unwrap_or_default().is_empty() {
        errors.push(FieldError::required(&path.field("key"), "must be specified"));
    }
}

/// Returns the user in the spec of a review.
fn subject(review: &Object) -> User {
    let texts = |values: &[Value]| -> Vec<Str> {
        values.iter().filter_map(Value::as_str).map(Str::new).collect()
    };
    let extra =
        review.at(&["spec", "extra"]).and_then(Value::as_object).into_iter().flat_map(Map::iter);
    User {
        name: review.str_at(&["spec", "user"]).into(),
        uid: review.str_at(&["spec", "uid"]).into(),
        groups: texts(review.array_at(&["spec", "groups"])).into(),
        extra: extra
            .map(|(key, values)| (key.clone(), texts(values.as_array().unwrap_or_default())))
            .collect(),
    }
}

/// Returns the attributes in the spec of a review; adds to `ignored` the errors of selectors.
fn attributes(review: &Object, ignored: &mut Vec<String>) -> Attributes {
    let resource = review.at(&["spec", "resourceAttributes"]).filter(|value| !value.is_null());
    let Some(resource) = resource else {
        let text = |name: &str| review.str_at(&["spec", "nonResourceAttributes", name]);
        let verb = text("verb").into();
        let path = text("path").to_owned();
        return Attributes { verb, non_resource: true, path, ..Attributes::default() };
    };
    let text = |name: &str| Str::new(resource.str_at(&[name]).unwrap_or_default());
    Attributes {
        verb: text("verb"),
        gvr: GroupVersionResource::new(text("group"), text("version"), text("resource")),
        subresource: text("subresource"),
        namespace: text("namespace"),
        name: text("name"),
        selectors: selectors(resource, ignored).map(Box::new),
        ..Attributes::default()
    }
}

/// Returns the selectors of a review. Invalid parts are ignored, which widens the request that is
/// authorized, and never narrows it.
fn selectors(resource: &Value, ignored: &mut Vec<String>) -> Option<Selectors> {
    let part = |name: &str| resource.get(name).filter(|value| !value.is_null());
    let labels = part("labelSelector");
    let fields = part("fieldSelector");
    if labels.is_none() && fields.is_none() {
        return None;
    }
    let fields = match fields {
        None => FieldSelector::parse("").ok(),
        Some(given) => {
            let (selector, parsed) = field_selector(given);
            add_ignored("fieldSelector", parsed, ignored);
            selector
        }
    };
    let labels = match labels {
        None => selector::parse("").ok(),
        Some(given) => {
            let (selector, parsed) = label_selector(given);
            add_ignored("labelSelector", parsed, ignored);
            selector
        }
    };
    Some(Selectors { labels, fields })
}

/// How much of a selector could be parsed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Parsed {
    All,
    Some,
    Nothing,
}

impl Parsed {
    /// `parsed` of `total` requirements could be parsed.
    fn of(parsed: usize, total: usize) -> Parsed {
        match parsed {
            all if all == total => Parsed::All,
            0 => Parsed::Nothing,
            _ => Parsed::Some,
        }
    }
}

fn add_ignored(name: &str, parsed: Parsed, ignored: &mut Vec<String>) {
    let how = match parsed {
        Parsed::All => return,
        Parsed::Some => "partially ignored",
        Parsed::Nothing => "ignored",
    };
    ignored.push(format!("spec.resourceAttributes.{name} {how} due to parse error"));
}

fn label_selector(given: &Value) -> (Option<Selector>, Parsed) {
    let raw = given.str_at(&["rawSelector"]).unwrap_or_default();
    if !raw.is_empty() {
        let selector = selector::parse(raw).ok();
        let parsed = if selector.is_some() { Parsed::All } else { Parsed::Nothing };
        return (selector, parsed);
    }
    let requirements = given.array_at(&["requirements"]);
    let parse =
        |list: Vec<Value>| Selector::from_object(Some(&value!({"matchExpressions": (list)}))).ok();
    let valid: Vec<Value> =
        requirements.iter().filter(|one| parse(vec![(*one).clone()]).is_some()).cloned().collect();
    let parsed = Parsed::of(valid.len(), requirements.len());
    (parse(valid), parsed)
}

/// Parses a field selector. It can express only requirements with one value each.
fn field_selector(given: &Value) -> (Option<FieldSelector>, Parsed) {
    let raw = given.str_at(&["rawSelector"]).unwrap_or_default();
    if !raw.is_empty() {
        let selector = FieldSelector::parse(raw).ok();
        let parsed = if selector.is_some() { Parsed::All } else { Parsed::Nothing };
        return (selector, parsed);
    }
    let term = |requirement: &Value| {
        let key = requirement.str_at(&["key"])?;
        let [value] = requirement.array_at(&["values"]) else { return None };
        let operator = match requirement.str_at(&["operator"])? {
            "In" => "=",
            "NotIn" => "!=",
            _ => return None,
        };
        Some(format!("{key}{operator}{}", escape(value.as_str()?)))
    };
    let requirements = given.array_at(&["requirements"]);
    let terms: Vec<String> = requirements.iter().filter_map(term).collect();
    let parsed = Parsed::of(terms.len(), requirements.len());
    (FieldSelector::parse(&terms.join(",")).ok(), parsed)
}
