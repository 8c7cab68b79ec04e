//! [`Permit`]: proof of an authorization.

use crate::{Annotations, Attributes, MASTERS, User};
use keelson_meta::{GroupVersionResource, Str};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Proof that a user may do what the attributes say. Only an [`Authorizer`](crate::Authorizer) and
/// [`Permit::internal`] create one.
#[derive(Clone, Debug)]
pub struct Permit {
    user: User,
    /// The authorized attributes; `None` for the server itself, which may do everything.
    attributes: Option<Attributes>,
    /// The request's audit annotations; `None` without auditing.
    annotations: Option<Arc<Annotations>>,
    webhooks_took: WebhookTime,
}

/// Nanoseconds that a request waited for webhooks. A clone counts separately from then on.
#[derive(Debug, Default)]
struct WebhookTime(AtomicU64);

impl Clone for WebhookTime {
    fn clone(&self) -> WebhookTime {
        WebhookTime(AtomicU64::new(self.0.load(Ordering::Relaxed)))
    }
}

/// The action of a registry verb, which its [`Permit`] must cover.
#[derive(Clone, Copy, Debug)]
pub struct Action<'a> {
    /// The verb.
    pub verb: &'a str,
    /// The resource; its version is not compared.
    pub gvr: &'a GroupVersionResource,
    /// Subresource, or empty.
    pub subresource: &'a str,
    /// Namespace; empty for cluster-scoped resources and for all namespaces.
    pub namespace: &'a str,
    /// Name; empty for collections.
    pub name: &'a str,
}

impl Permit {
    pub(crate) fn new(
        user: User,
        attributes: Attributes,
        annotations: Option<Arc<Annotations>>,
    ) -> Permit {
        let webhooks_took = WebhookTime::default();
        Permit { user, attributes: Some(attributes), annotations, webhooks_took }
    }

    /// Returns the user.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// Returns the authorized attributes; `None` for a permit of the server itself.
    pub fn attributes(&self) -> Option<&Attributes> {
        self.attributes.as_ref()
    }

    /// Returns a permit of the server itself, for bootstrap objects and controllers. Never derived
    /// from a request.
    pub fn internal(name: &'static str) -> Permit {
        let user = User { name: Str::new_static(name), ..User::default() }.with_group(MASTERS);
        Permit { user, attributes: None, annotations: None, webhooks_took: WebhookTime::default() }
    }

    /// Adds an audit annotation to the request that the permit was given for.
    pub fn annotate(&self, key: Str, value: Str) {
        if let Some(annotations) = &self.annotations {
            annotations.add(key, value);
        }
    }

    /// Adds time that the request waited for admission webhooks.
    pub fn waited_for_webhooks(&self, took: Duration) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if nanoseconds > 0 {
            self.webhooks_took.0.fetch_add(nanoseconds, Ordering::Relaxed);
        }
    }

    /// Returns how long the request waited for admission webhooks.
    pub fn webhooks_took(&self) -> Duration {
        Duration::from_nanos(self.webhooks_took.0.load(Ordering::Relaxed))
    }

    pub(crate) fn with_annotations(self, annotations: Option<Arc<Annotations>>) -> Permit {
        Permit { annotations, ..self }
    }

    /// Returns the audit annotations of the request, if it is audited.
    pub(crate) fn annotations(&self) -> Option<&Arc<Annotations>> {
        self.annotations.as_ref()
    }

    /// Returns whether the permit covers `action`. A permit for all names covers each name, one for
    /// all namespaces each namespace, never the reverse.
    pub fn covers(&self, action: &Action<'_>) -> bool {
        let Some(given) = &self.attributes else { return true };
        let is_within = |given: &str, asked: &str| given.is_empty() || given == asked;
        // A request for a Namespace object is authorized as one in that namespace.
        let namespace = if action.gvr.group.is_empty() && action.gvr.resource == "namespaces" {
            action.name
        } else {
            action.namespace
        };
        given.verb == action.verb
            && given.gvr.resource == action.gvr.resource
            && given.gvr.group == action.gvr.group
            && given.subresource == action.subresource
            && is_within(&given.namespace, namespace)
            && is_within(&given.name, action.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(verb: &str, subresource: &str, namespace: &str, name: &str, want: bool) {
        let gvr = GroupVersionResource::new("", "v1", "pods");
        let permit = |namespace: &str, name: &str| {
            let attributes = Attributes {
                verb: "get".into(),
                gvr: gvr.clone(),
                namespace: namespace.into(),
                name: name.into(),
                ..Attributes::default()
            };
            Permit::new(User::default(), attributes, None)
        };
        let action = Action { verb, gvr: &gvr, subresource, namespace, name };
        assert_eq!(permit("ns", "web").covers(&action), want, "{action:?}");
        assert!(Permit::internal("test").covers(&action), "{action:?}");
        let in_namespace = permit("ns", "").covers(&action);
        assert_eq!(in_namespace, verb == "get" && subresource.is_empty() && namespace == "ns");
    }

    #[test]
    fn a_permit_covers_only_its_attributes() {
        check("get", "", "ns", "web", true);
        check("delete", "", "ns", "web", false);
        check("get", "status", "ns", "web", false);
        check("get", "", "other", "web", false);
        check("get", "", "", "web", false);
        check("get", "", "ns", "db", false);
        check("get", "", "ns", "", false);
    }
}
