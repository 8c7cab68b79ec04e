//! [`Authorizer`]: the authorizers of `--authorization-mode`, in order.

use crate::abac::Abac;
use crate::node::NodeAuthorizer;
use crate::rbac::{Rbac, Rule, aggregate, full_authority};
use crate::webhook::WebhookAuthorizer;
use crate::{
    Annotations, Attributes, AuthorizationReason, Decision, MASTERS, Objects, Outcome, Permit, User,
};
use arc_swap::ArcSwap;
use keelson_meta::status::{Details, quote};
use keelson_meta::{Failure, GroupVersionResource, Reason, Status, Str};
use std::sync::Arc;

/// One authorizer of the chain.
pub enum Mode {
    /// Allows everything.
    AlwaysAllow,
    /// Denies everything.
    AlwaysDeny,
    /// RBAC.
    Rbac,
    /// The Node authorizer.
    Node(Arc<NodeAuthorizer>),
    /// ABAC: the lines of a policy file.
    Abac(Arc<Abac>),
    /// A webhook.
    Webhook(Box<WebhookAuthorizer>),
}

const NO_RULES_OF_WEBHOOKS: &str = "webhook authorizer does not support user rule resolution";

/// Authorizes requests. Members of `system:masters` may do everything; for others each mode decides
/// in order, until one allows or denies.
#[derive(Default)]
pub struct Authorizer {
    modes: ArcSwap<Vec<Mode>>,
    /// Roles and bindings. Also used without [`Mode::Rbac`], for escalation checks.
    rbac: Rbac,
}

impl std::fmt::Debug for Authorizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authorizer").field("modes", &self.modes.load().len()).finish()
    }
}

impl Authorizer {
    /// Returns an authorizer with these modes, in order.
    pub fn new(modes: Vec<Mode>) -> Authorizer {
        Authorizer { modes: ArcSwap::from_pointee(modes), rbac: Rbac::default() }
    }

    /// Replaces the modes from the next request on. Modes that read objects must have been
    /// attached.
    pub fn set_modes(&self, modes: Vec<Mode>) {
        self.modes.store(Arc::new(modes));
    }

    /// Returns the Node authorizer, if it is enabled.
    pub fn node(&self) -> Option<Arc<NodeAuthorizer>> {
        self.modes.load().iter().find_map(|mode| match mode {
            Mode::Node(node) => Some(node.clone()),
            _ => None,
        })
    }

    /// Gives the authorizers access to objects. Before this, they allow nothing that depends on
    /// objects.
    pub fn attach(&self, objects: &Arc<dyn Objects>) {
        self.rbac.attach(objects.clone());
        if let Some(node) = self.node() {
            node.attach(objects.clone());
        }
    }

    /// Returns whether RBAC is enabled.
    pub fn has_rbac(&self) -> bool {
        self.modes.load().iter().any(|mode| matches!(mode, Mode::Rbac))
    }

    /// Returns the roles and bindings.
    pub fn rbac(&self) -> &Rbac {
        &self.rbac
    }

    /// Returns a decision without a permit, for access reviews.
    pub async fn decide(&self, user: &User, attributes: &Attributes) -> Decision {
        if user.is_in(MASTERS) {
            return Decision::allow(AuthorizationReason::Empty);
        }
        let mut reasons: Vec<String> = vec![];
        let mut error = None;
        for mode in self.modes.load().iter() {
            let decision = self.decide_by_mode(mode, user, attributes).await;
            if decision.outcome != Outcome::NoOpinion {
                return decision;
            }
            if !matches!(decision.reason, AuthorizationReason::Empty) {
                reasons.push(decision.reason.to_string());
            }
            error = error.or(decision.error);
        }
        Decision { error, ..Decision::no_opinion(reasons.join("\n")) }
    }

    async fn decide_by_mode(&self, mode: &Mode, user: &User, attributes: &Attributes) -> Decision {
        match mode {
            Mode::AlwaysAllow => Decision::allow(AuthorizationReason::Empty),
            Mode::AlwaysDeny => Decision::no_opinion("Everything is forbidden.".to_owned()),
            Mode::Rbac => self.rbac.decide(user, attributes).await,
            Mode::Node(node) => node.decide(user, attributes).await,
            Mode::Abac(abac) => abac.decide(user, attributes),
            // Boxed, to keep the future of each request small.
            Mode::Webhook(webhook) => Box::pin(webhook.decide(user, attributes)).await,
        }
    }

    /// Returns the rules that apply to a user in a namespace, as far as the authorizers can list
    /// them.
    pub async fn rules_for(&self, user: &User, namespace: &str) -> UserRules {
        let mut all = UserRules::default();
        let mut errors = vec![];
        for mode in self.modes.load().iter() {
            match mode {
                Mode::AlwaysAllow => all.rules.extend(full_authority()),
                // Upstream lists none either.
                Mode::AlwaysDeny | Mode::Node(_) => {}
                Mode::Rbac => match self.rbac.current().await {
                    Ok(()) => {
                        let (rules, of_rbac) = self.rbac.index().rules_for(user, namespace);
                        all.rules.extend(rules);
                        let of_rbac: Vec<String> =
                            of_rbac.iter().map(ToString::to_string).collect();
                        errors.extend(Some(aggregate(&of_rbac)).filter(|text| !text.is_empty()));
                    }
                    Err(error) => errors.push(error.message.clone()),
                },
                Mode::Webhook(_) => {
                    all.is_incomplete = true;
                    errors.push(NO_RULES_OF_WEBHOOKS.to_owned());
                }
                Mode::Abac(abac) => all.rules.extend(abac.rules_for(user, namespace)),
            }
        }
        all.error = aggregate(&errors);
        all
    }

    /// Returns whether a request is allowed. Errors count as no.
    pub async fn allows(&self, user: &User, attributes: &Attributes) -> bool {
        self.decide(user, attributes).await.is_allowed()
    }

    /// Returns whether a user has `verb` (`approve`, `sign`, `attest`) on a certificate signer, by
    /// its name or the wildcard of its domain (`example.com/*`).
    pub async fn allows_signer(&self, user: &User, verb: &'static str, signer: &str) -> bool {
        let domain = signer.split('/').next().unwrap_or_default();
        for name in [signer, &format!("{domain}/*")] {
            let attributes = Attributes {
                verb: Str::new_static(verb),
                gvr: GroupVersionResource::new("certificates.k8s.io", "*", "signers"),
                name: name.into(),
                ..Attributes::default()
            };
            if self.allows(user, &attributes).await {
                return true;
            }
        }
        false
    }

    /// Returns a permit, or 403.
    pub async fn authorize(&self, user: User, attributes: Attributes) -> Result<Permit, Failure> {
        self.authorize_annotated(user, attributes, None).await
    }

    /// Returns a permit, or 403. Adds decision and reason to the audit annotations of the request,
    /// which the permit carries on.
    pub async fn authorize_annotated(
        &self,
        user: User,
        attributes: Attributes,
        annotations: Option<Arc<Annotations>>,
    ) -> Result<Permit, Failure> {
        let decision = self.decide(&user, &attributes).await;
        if let Some(annotations) = &annotations {
            annotate(&decision, annotations);
        }
        if decision.is_allowed() {
            return Ok(Permit::new(user, attributes, annotations));
        }
        match decision.error {
            Some(error) => Err(error),
            None => Err(forbidden(&user, &attributes, &decision.reason)),
        }
    }

    /// Returns a permit like `permit` for another verb, or 403: for a PUT or an apply that creates.
    pub async fn authorize_verb(
        &self,
        permit: &Permit,
        verb: &'static str,
    ) -> Result<Permit, Failure> {
        match permit.attributes() {
            None => Ok(permit.clone()),
            Some(given) => {
                let attributes = given.with_verb(verb);
                // The annotations describe the original request only.
                let allowed = self.authorize(permit.user().clone(), attributes).await?;
                Ok(allowed.with_annotations(permit.annotations().cloned()))
            }
        }
    }
}

/// Adds a decision to the audit annotations of its request.
fn annotate(decision: &Decision, annotations: &Annotations) {
    let reason = Str::new_static("authorization.k8s.io/reason");
    if decision.error.is_some() && !decision.is_allowed() {
        annotations.add(reason, Str::new_static("internal error"));
        return;
    }
    let word = if decision.is_allowed() { "allow" } else { "forbid" };
    annotations.add(Str::new_static("authorization.k8s.io/decision"), Str::new_static(word));
    annotations.add(reason, decision.reason.to_string().into());
}

/// The rules that apply to a user.
#[derive(Clone, Debug, Default)]
pub struct UserRules {
    /// The rules.
    pub rules: Vec<Rule>,
    /// Whether an authorizer could not list its rules.
    pub is_incomplete: bool,
    /// The evaluation error, or empty.
    pub error: String,
}

/// Returns a 403 in kube-apiserver's words (`responsewriters/errors.go`).
pub fn forbidden(user: &User, attributes: &Attributes, reason: &AuthorizationReason) -> Failure {
    let who = quote(&user.name);
    let verb = &attributes.verb;
    let reason = match reason {
        AuthorizationReason::Empty => String::new(),
        reason => format!(": {reason}"),
    };
    if !attributes.is_resource() {
        let path = quote(&attributes.path);
        let message = format!("forbidden: User {who} cannot {verb} path {path}{reason}");
        let mut status = Status::new(Reason::Forbidden, message);
        status.details = Some(Details::default());
        return status;
    }
    let mut resource = attributes.gvr.resource.to_string();
    if !attributes.subresource.is_empty() {
        resource = format!("{resource}/{}", attributes.subresource);
    }
    let resource = quote(&resource);
    let group = quote(&attributes.gvr.group);
    let place = match attributes.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {}", quote(namespace)),
    };
    let why = format!(
        "User {who} cannot {verb} resource {resource} in API group {group} {place}{reason}"
    );
    Status::forbidden(&attributes.gvr, &attributes.name, &why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::GroupVersionResource;

    /// Polls once: the authorizers under test are always ready.
    fn now<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        match future.as_mut().poll(&mut cx) {
            std::task::Poll::Ready(done) => done,
            std::task::Poll::Pending => panic!("the authorizer waits"),
        }
    }

    fn check(modes: Vec<Mode>, name: &str, namespace: &str, subresource: &str, want: &str) {
        let user = User { name: "bob".into(), ..User::default() };
        let attributes = Attributes {
            verb: "get".into(),
            gvr: GroupVersionResource::new("apps", "v1", "deployments"),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
            ..Attributes::default()
        };
        let said = now(Authorizer::new(modes).authorize(user, attributes))
            .map_or_else(|s| format!("{} {}", s.code, s.message), |_| "ok".to_owned());
        assert_eq!(said, want);
    }

    #[test]
    fn a_denial_names_user_verb_resource_and_namespace() {
        check(
            vec![],
            "web",
            "ns",
            "scale",
            "403 deployments.apps \"web\" is forbidden: User \"bob\" cannot get resource \
             \"deployments/scale\" in API group \"apps\" in the namespace \"ns\"",
        );
        check(
            vec![Mode::AlwaysDeny],
            "",
            "",
            "",
            "403 deployments.apps is forbidden: User \"bob\" cannot get resource \"deployments\" \
             in API group \"apps\" at the cluster scope: Everything is forbidden.",
        );
    }

    #[test]
    fn the_first_mode_that_allows_decides() {
        check(vec![Mode::AlwaysDeny, Mode::AlwaysAllow], "", "", "", "ok");
    }

    #[test]
    fn masters_may_do_everything() {
        let user = User::default().with_group(MASTERS);
        let authorizer = Authorizer::new(vec![Mode::AlwaysDeny]);
        assert!(now(authorizer.authorize(user, Attributes::default())).is_ok());
    }
}
