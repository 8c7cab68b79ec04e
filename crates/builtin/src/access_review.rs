//! Access reviews: what somebody may do, answered by the same [`Authorizer`] that decides on requests.

use keelson_auth::{Attributes, Authorizer, Decision, Outcome, Selectors, User};
use keelson_meta::field_selector::{FieldSelector, escape};
use keelson_meta::selector::{self, Selector, validate_label_selector};
use keelson_meta::status::quote;
use keelson_meta::{
    ErrorList, Failure, FieldError, GroupVersionResource, Map, Object, Path, Status, Str, Value,
    value,
};

const GROUP: &str = "authorization.k8s.io";

/// Which access review is asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// About whoever asks.
    SelfSubject,
    /// About somebody else.
    Subject,
    /// About somebody else, in the namespace of the review.
    LocalSubject,
}

/// Puts the authorizer's answer into the status of a review, or 422 when it asks nothing.
pub(crate) async fn answer(
    authorizer: &Authorizer,
    kind: Kind,
    review: &mut Object,
    asking: &User,
) -> Result<(), Failure> {
    validate(kind, review).into_result(GROUP, "", "")?;
    let user = if kind == Kind::SelfSubject { asking.clone() } else { subject(review) };
    let mut ignored = vec![];
    let decision = authorizer.decide(&user, &attributes(review, &mut ignored)).await;
    review.root.insert("status", status(&decision, ignored));
    Ok(())
}

/// `errors`: what of the review was not understood.
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

/// The rules that apply to a user in a namespace.
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
    let (mut resources, mut paths) = (vec![], vec![]);
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
    let (resource, other) = (part("resourceAttributes"), part("nonResourceAttributes"));
    let shown = other.map(|other| {
        let text = |name: &str| quote(other.str_at(&[name]).unwrap_or_default());
        format!("{{\"Path\":{},\"Verb\":{}}}", text("path"), text("verb"))
    });
    let other_is = |why: &str, errors: &mut ErrorList| {
        let error = FieldError::invalid(&spec.field("nonResourceAttributes"), "", why);
        errors.push(FieldError { shown: shown.clone(), ..error });
    };
    match (resource, other) {
        (Some(_), Some(_)) => {
            other_is("cannot be specified in combination with resourceAttributes", &mut errors);
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
    let is_bare = |(name, value): (&Str, &Value)| {
        name == "managedFields" || value.is_empty() || (is_local && name == "namespace")
    };
    if !metadata.all(is_bare) {
        let shown = review.get("metadata").cloned().unwrap_or_default();
        errors.push(FieldError::invalid(&Path::new("metadata"), shown, "must be empty"));
    }
    if is_local {
        let asked = resource.map(|r| r.str_at(&["namespace"]).unwrap_or_default());
        if let Some(asked) = asked.filter(|asked| *asked != review.namespace()) {
            let attributes = spec.field("resourceAttributes");
            let why = "must match metadata.namespace";
            errors.push(FieldError::invalid(&attributes.field("namespace"), asked, why));
        }
        if other.is_some() {
            other_is("disallowed on this kind of request", &mut errors);
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
            // An operator that there is not is no fault here; its requirement is ignored.
            for error in found.iter().filter(|error| !error.field.ends_with(".operator")) {
                let field = error.field.replace("matchExpressions", "requirements");
                errors.push(FieldError { field, ..error.clone() });
            }
        } else {
            let path = path.field("requirements");
            for (at, requirement) in requirements.iter().enumerate() {
                validate_field_requirement(requirement, &path.index(at), errors);
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

/// The user that a review asks about.
fn subject(review: &Object) -> User {
    let texts = |values: &[Value]| -> Vec<Str> {
        values.iter().filter_map(Value::as_str).map(Str::new).collect()
    };
    let extra = review.at(&["spec", "extra"]).and_then(Value::as_object);
    let extra = extra.into_iter().flat_map(Map::iter);
    User {
        name: review.str_at(&["spec", "user"]).into(),
        uid: review.str_at(&["spec", "uid"]).into(),
        groups: texts(review.array_at(&["spec", "groups"])).into(),
        extra: extra
            .map(|(key, values)| (key.clone(), texts(values.as_array().unwrap_or_default())))
            .collect(),
    }
}

/// What a review asks about; `ignored` gets what of its selectors was not understood.
fn attributes(review: &Object, ignored: &mut Vec<String>) -> Attributes {
    let resource = review.at(&["spec", "resourceAttributes"]).filter(|value| !value.is_null());
    let Some(resource) = resource else {
        let text = |name: &str| review.str_at(&["spec", "nonResourceAttributes", name]);
        let (verb, path) = (text("verb").into(), text("path").to_owned());
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

/// The selectors of a review. What is not understood is ignored: the request asks for more then, never for less.
fn selectors(resource: &Value, ignored: &mut Vec<String>) -> Option<Selectors> {
    let part = |name: &str| resource.get(name).filter(|value| !value.is_null());
    let (labels, fields) = (part("labelSelector"), part("fieldSelector"));
    if labels.is_none() && fields.is_none() {
        return None;
    }
    let fields = match fields {
        None => FieldSelector::parse("").ok(),
        Some(given) => {
            let (read, understood) = field_selector(given);
            note_ignored("fieldSelector", understood, ignored);
            read
        }
    };
    let labels = match labels {
        None => selector::parse("").ok(),
        Some(given) => {
            let (read, understood) = label_selector(given);
            note_ignored("labelSelector", understood, ignored);
            read
        }
    };
    Some(Selectors { labels, fields })
}

/// Whether all of a selector was understood, part of it, or nothing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Understood {
    All,
    Some,
    Nothing,
}

impl Understood {
    fn of(understood: usize, given: usize) -> Understood {
        match understood {
            all if all == given => Understood::All,
            0 => Understood::Nothing,
            _ => Understood::Some,
        }
    }
}

fn note_ignored(name: &str, understood: Understood, ignored: &mut Vec<String>) {
    let how = match understood {
        Understood::All => return,
        Understood::Some => "partially ignored",
        Understood::Nothing => "ignored",
    };
    ignored.push(format!("spec.resourceAttributes.{name} {how} due to parse error"));
}

fn label_selector(given: &Value) -> (Option<Selector>, Understood) {
    let raw = given.str_at(&["rawSelector"]).unwrap_or_default();
    if !raw.is_empty() {
        let read = selector::parse(raw).ok();
        let understood = if read.is_some() { Understood::All } else { Understood::Nothing };
        return (read, understood);
    }
    let requirements = given.array_at(&["requirements"]);
    let of =
        |list: Vec<Value>| Selector::from_object(Some(&value!({"matchExpressions": (list)}))).ok();
    let readable = requirements.iter().filter(|one| of(vec![(*one).clone()]).is_some());
    let readable: Vec<Value> = readable.cloned().collect();
    let understood = Understood::of(readable.len(), requirements.len());
    (of(readable), understood)
}

/// Only requirements of one value each can be said by a field selector.
fn field_selector(given: &Value) -> (Option<FieldSelector>, Understood) {
    let raw = given.str_at(&["rawSelector"]).unwrap_or_default();
    if !raw.is_empty() {
        let read = FieldSelector::parse(raw).ok();
        let understood = if read.is_some() { Understood::All } else { Understood::Nothing };
        return (read, understood);
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
    let understood = Understood::of(terms.len(), requirements.len());
    (FieldSelector::parse(&terms.join(",")).ok(), understood)
}
