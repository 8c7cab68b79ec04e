//! [`WebhookAuthorizer`]: authorizes with SubjectAccessReviews (`--authorization-webhook-*`, the
//! type Webhook of `--authorization-config`).

use super::cache::ResponseCache;
use super::conditions::{Conditions, Matched};
use super::{ReviewVersion, Reviewer};
use crate::{Attributes, AuthorizationReason, Decision, Outcome, Selectors, User, long_work};
use keelson_egress::Egress;
use keelson_egress::kubeconfig::Server;
use keelson_meta::selector::Operator;
use keelson_meta::{Failure, Reason, Status, Str};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum length of a cached request, to bound the memory that users can fill.
const CACHED_REQUEST_BYTES_MAX: usize = 10_000;

/// The decision when the webhook cannot be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// No opinion: other authorizers decide.
    #[default]
    NoOpinion,
    /// Deny.
    Deny,
}

/// Timeout, cache times and failure policy of a webhook.
#[derive(Clone, Debug, PartialEq)]
pub struct WebhookOptions {
    /// The version of reviews that it speaks.
    pub version: ReviewVersion,
    /// Timeout of one try.
    pub timeout: Duration,
    /// Cache time of an allow.
    pub authorized_ttl: Duration,
    /// Cache time of a deny.
    pub unauthorized_ttl: Duration,
    /// The failure policy.
    pub failure_policy: FailurePolicy,
    /// Match conditions in CEL; the webhook is called if all are true.
    pub match_conditions: Vec<String>,
}

/// Authorizes by a webhook.
pub struct WebhookAuthorizer {
    reviewer: Reviewer,
    options: WebhookOptions,
    conditions: Arc<Conditions>,
    answers: ResponseCache<(Outcome, String)>,
}

impl std::fmt::Debug for WebhookAuthorizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WebhookAuthorizer").field(&self.reviewer.url).finish()
    }
}

impl WebhookAuthorizer {
    /// Returns an authorizer for the server of a kubeconfig.
    pub fn new(
        server: &Server,
        options: WebhookOptions,
        egress: &Egress,
    ) -> Result<WebhookAuthorizer, String> {
        let reviewer = Reviewer::new(server, options.timeout, egress)?;
        let conditions = Arc::new(Conditions::compile(&options.match_conditions)?);
        Ok(WebhookAuthorizer { reviewer, options, conditions, answers: ResponseCache::new() })
    }

    /// Returns the webhook's decision, possibly from the cache.
    pub async fn decide(&self, user: &User, attributes: &Attributes) -> Decision {
        let spec = spec(user, attributes);
        let brief = || self.conditions.matches(&spec);
        let whole = || {
            let conditions = self.conditions.clone();
            let spec = spec.clone();
            move || conditions.matches(&spec)
        };
        match long_work::run(&user.name, brief, whole).await {
            Ok(Matched::Yes) => {}
            Ok(Matched::No) => return Decision::no_opinion(String::new()),
            Ok(Matched::Failed(error)) => return self.failed(error),
            Err(failure) => return self.failed(failure.message.clone()),
        }
        let text = spec.to_string();
        let digest = ResponseCache::<()>::digest(text.as_bytes());
        if let Some((outcome, reason)) = self.answers.get(&digest, Instant::now()) {
            return decision(outcome, reason);
        }
        let answer = match self.reviewer.post(&self.review(spec)).await {
            Ok(answer) => answer,
            Err(error) => return self.failed(error),
        };
        let status = answer.get("status").unwrap_or(&Value::Null);
        let is = |name: &str| status.get(name).and_then(Value::as_bool).unwrap_or_default();
        let reason = status.get("reason").and_then(Value::as_str).unwrap_or_default().to_owned();
        let outcome = match (is("allowed"), is("denied")) {
            (true, true) => {
                let why = "webhook subject access review returned both allow and deny response";
                let error = Some(failure(why));
                return Decision { error, ..decision(Outcome::Deny, reason) };
            }
            (true, false) => Outcome::Allow,
            (false, true) => Outcome::Deny,
            (false, false) => Outcome::NoOpinion,
        };
        if text.len() <= CACHED_REQUEST_BYTES_MAX {
            let time = match outcome {
                Outcome::Allow => self.options.authorized_ttl,
                Outcome::Deny | Outcome::NoOpinion => self.options.unauthorized_ttl,
            };
            self.answers.put(digest, (outcome, reason.clone()), Instant::now(), time);
        }
        decision(outcome, reason)
    }

    fn review(&self, mut spec: Value) -> Value {
        let version = self.options.version;
        if let (ReviewVersion::V1Beta1, Some(fields)) = (version, spec.as_object_mut())
            && let Some(groups) = fields.remove("groups")
        {
            fields.insert("group".to_owned(), groups);
        }
        json!({
            "kind": "SubjectAccessReview",
            "apiVersion": format!("authorization.k8s.io/{}", version.name()),
            "metadata": {}, "spec": spec, "status": {"allowed": false}
        })
    }

    fn failed(&self, error: String) -> Decision {
        let policy = self.options.failure_policy;
        let webhook = &self.reviewer.url;
        tracing::warn!(error, webhook, ?policy, "authorization webhook failed");
        let outcome = match policy {
            FailurePolicy::NoOpinion => Outcome::NoOpinion,
            FailurePolicy::Deny => Outcome::Deny,
        };
        Decision { error: Some(failure(&error)), ..decision(outcome, String::new()) }
    }
}

/// Returns the 500 for a request without a decision; reviews use its message unchanged.
fn failure(why: &str) -> Failure {
    Status::new(Reason::InternalError, why.to_owned())
}

fn decision(outcome: Outcome, reason: String) -> Decision {
    let reason = match reason.is_empty() {
        true => AuthorizationReason::Empty,
        false => AuthorizationReason::Text(reason),
    };
    Decision { outcome, reason, error: None }
}

/// Returns the spec of a SubjectAccessReview without empty fields.
fn spec(user: &User, attributes: &Attributes) -> Value {
    let mut spec = Map::new();
    let mut part = Map::new();
    let name = if attributes.is_resource() {
        let gvr = &attributes.gvr;
        let version = if gvr.version.is_empty() { "*" } else { &gvr.version };
        for (name, text) in [
            ("namespace", attributes.namespace.as_str()),
            ("verb", &attributes.verb),
            ("group", &gvr.group),
            ("version", version),
            ("resource", &gvr.resource),
            ("subresource", &attributes.subresource),
            ("name", &attributes.name),
        ] {
            put(&mut part, name, text);
        }
        if let Some(selectors) = &attributes.selectors {
            put_selectors(&mut part, selectors);
        }
        "resourceAttributes"
    } else {
        put(&mut part, "path", &attributes.path);
        put(&mut part, "verb", &attributes.verb);
        "nonResourceAttributes"
    };
    spec.insert(name.to_owned(), part.into());
    put(&mut spec, "user", &user.name);
    let texts = |list: &[Str]| -> Value { list.iter().map(Str::as_str).collect() };
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), texts(&user.groups));
    }
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(key, values)| (key.to_string(), texts(values)));
        spec.insert("extra".to_owned(), Value::Object(extra.collect()));
    }
    put(&mut spec, "uid", &user.uid);
    spec.into()
}

fn put(map: &mut Map<String, Value>, name: &str, text: &str) {
    if !text.is_empty() {
        map.insert(name.to_owned(), text.into());
    }
}

/// Adds selectors as requirements; unparsable ones are left out, so that the request needs more
/// permissions.
fn put_selectors(map: &mut Map<String, Value>, selectors: &Selectors) {
    let fields = selectors.fields.as_ref().map(|fields| {
        let terms = fields.terms().iter().map(|term| {
            let operator = if term.negated { "NotIn" } else { "In" };
            json!({"key": term.field.as_str(), "operator": operator,
                "values": [term.value.as_str()]})
        });
        terms.collect::<Vec<_>>()
    });
    let labels = selectors.labels.as_ref().map(|labels| {
        let terms = labels.requirements().iter().filter_map(|requirement| {
            let operator = match requirement.operator() {
                Operator::In | Operator::Equals | Operator::DoubleEquals => "In",
                Operator::NotIn | Operator::NotEquals => "NotIn",
                Operator::Exists => "Exists",
                Operator::DoesNotExist => "DoesNotExist",
                // A SubjectAccessReview has no such operators.
                Operator::GreaterThan | Operator::LessThan => return None,
            };
            let values: Vec<&str> = requirement.values().iter().map(Str::as_str).collect();
            let mut one = json!({"key": requirement.key(), "operator": operator});
            if !values.is_empty() {
                one["values"] = json!(values);
            }
            Some(one)
        });
        terms.collect::<Vec<_>>()
    });
    for (name, terms) in [("fieldSelector", fields), ("labelSelector", labels)] {
        if let Some(terms) = terms.filter(|terms| !terms.is_empty()) {
            map.insert(name.to_owned(), json!({"requirements": terms}));
        }
    }
}
