//! May they: the question ([`Attributes`]) and the proof of a yes ([`Permit`]).

use crate::{MASTERS, User};
use keelson_meta::status::quote;
use keelson_meta::{Failure, GroupVersionResource, Reason, Status, Str};

/// What a request wants to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, ...; for paths outside resources the lower-case HTTP method.
    pub verb: Str,
    /// Group, version and resource; an empty resource for other paths.
    pub gvr: GroupVersionResource,
    /// Subresource, or empty.
    pub subresource: Str,
    /// Namespace, or empty.
    pub namespace: Str,
    /// Name, or empty.
    pub name: Str,
    /// The URL path, for requests that are not about resources.
    pub path: String,
}

/// Proof that a user may do what the attributes say. Only an [`Authorizer`] makes one.
#[derive(Clone, Debug)]
pub struct Permit {
    user: User,
    attributes: Attributes,
}

impl Permit {
    /// Who.
    pub fn user(&self) -> &User {
        &self.user
    }

    /// What.
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// The permit of the server itself, for what it does on its own account: bootstrap objects and
    /// control loops. Never derived from a request.
    pub fn internal(name: &'static str) -> Permit {
        let user = User { name: Str::new_static(name), ..User::default() }.with_group(MASTERS);
        Permit { user, attributes: Attributes::default() }
    }
}

/// Decides.
#[derive(Debug, Default)]
pub struct Authorizer;

impl Authorizer {
    /// Whether the user may, without making a permit: what access reviews answer.
    pub fn allows(&self, user: &User, attributes: &Attributes) -> bool {
        user.is_in(MASTERS) || is_public(attributes)
    }

    /// A permit, or 403.
    pub fn authorize(&self, user: User, attributes: Attributes) -> Result<Permit, Failure> {
        if self.allows(&user, &attributes) {
            return Ok(Permit { user, attributes });
        }
        Err(forbidden(&user, &attributes))
    }
}

/// What everyone may read (the default role `system:public-info-viewer`).
fn is_public(attributes: &Attributes) -> bool {
    let path = attributes.path.trim_end_matches('/');
    matches!(attributes.verb.as_str(), "get" | "head" | "post")
        && matches!(path, "/healthz" | "/livez" | "/readyz" | "/version")
        && attributes.gvr.resource.is_empty()
}

/// The 403 in upstream's words (apiserver `responsewriters/errors.go`).
fn forbidden(user: &User, attributes: &Attributes) -> Failure {
    let who = quote(&user.name);
    let verb = &attributes.verb;
    if attributes.gvr.resource.is_empty() {
        let path = quote(&attributes.path);
        let message = format!("forbidden: User {who} cannot {verb} path {path}");
        let mut status = Status::new(Reason::Forbidden, message);
        status.details = Some(keelson_meta::status::Details::default());
        return status;
    }
    let mut resource = attributes.gvr.resource.to_string();
    if !attributes.subresource.is_empty() {
        resource = format!("{resource}/{}", attributes.subresource);
    }
    let group = quote(&attributes.gvr.group);
    let mut why =
        format!("User {who} cannot {verb} resource {} in API group {group}", quote(&resource));
    if attributes.namespace.is_empty() {
        why.push_str(" at the cluster scope");
    } else {
        why.push_str(&format!(" in the namespace {}", quote(&attributes.namespace)));
    }
    Status::forbidden(&attributes.gvr, &attributes.name, &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, namespace: &str, subresource: &str, want: &str) {
        let user = User { name: "bob".into(), ..User::default() };
        let attributes = Attributes {
            verb: "get".into(),
            gvr: GroupVersionResource::new("apps", "v1", "deployments"),
            subresource: subresource.into(),
            namespace: namespace.into(),
            name: name.into(),
            path: String::new(),
        };
        let status = Authorizer.authorize(user, attributes).unwrap_err();
        assert_eq!((status.code, status.message.as_str()), (403, want));
    }

    #[test]
    fn those_who_may_not_are_told_what() {
        check(
            "web",
            "ns",
            "scale",
            "deployments.apps \"web\" is forbidden: User \"bob\" cannot get resource \
             \"deployments/scale\" in API group \"apps\" in the namespace \"ns\"",
        );
        check(
            "",
            "",
            "",
            "deployments.apps is forbidden: User \"bob\" cannot get resource \"deployments\" \
             in API group \"apps\" at the cluster scope",
        );
    }

    #[test]
    fn masters_may_do_everything() {
        let user = User::default().with_group(MASTERS);
        assert!(Authorizer.authorize(user, Attributes::default()).is_ok());
    }
}
