//! [`Grant`]: a role bound to a subject, the reason of an RBAC decision.

use keelson_meta::status::quote;
use keelson_meta::{Object, Str};
use std::fmt;
use std::sync::Arc;

/// A role binding or cluster role binding.
#[derive(Debug, PartialEq, Eq)]
pub struct Binding {
    /// Namespace; empty for a cluster role binding.
    pub namespace: Str,
    /// Name.
    pub name: Str,
    /// The role that is bound.
    pub role: RoleRef,
    /// Its subjects.
    pub subjects: Vec<Subject>,
}

/// The reference of a binding to its role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleRef {
    /// The kind of role; `Err`: an unknown kind.
    pub kind: Result<RoleKind, Str>,
    /// Name.
    pub name: Str,
}

/// Kinds of roles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoleKind {
    /// In a namespace.
    Role,
    /// Of the cluster.
    ClusterRole,
}

/// A subject of a binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// Kind.
    pub kind: SubjectKind,
    /// Namespace of a service account; empty: that of the binding.
    pub namespace: Str,
    /// Name.
    pub name: Str,
}

/// Kinds of subjects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the API's own words")]
pub enum SubjectKind {
    User,
    Group,
    ServiceAccount,
}

/// A subject of a binding.
#[derive(Clone, Debug)]
pub struct Grant {
    pub(crate) binding: Arc<Binding>,
    /// Invariant: an index of `binding.subjects`.
    pub(crate) subject: usize,
}

impl SubjectKind {
    /// Returns the name of the kind in a binding.
    pub fn name(self) -> &'static str {
        match self {
            SubjectKind::User => "User",
            SubjectKind::Group => "Group",
            SubjectKind::ServiceAccount => "ServiceAccount",
        }
    }
}

impl RoleRef {
    /// Reads the `roleRef` of a binding.
    pub fn of(binding: &Object) -> RoleRef {
        let kind = match binding.str_at(&["roleRef", "kind"]) {
            "Role" => Ok(RoleKind::Role),
            "ClusterRole" => Ok(RoleKind::ClusterRole),
            other => Err(Str::new(other)),
        };
        RoleRef { kind, name: binding.str_at(&["roleRef", "name"]).into() }
    }

    /// Returns the kind as the binding has it.
    pub fn kind_name(&self) -> &str {
        match &self.kind {
            Ok(RoleKind::Role) => "Role",
            Ok(RoleKind::ClusterRole) => "ClusterRole",
            Err(kind) => kind,
        }
    }
}

impl Grant {
    /// Returns the binding.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Returns the subject.
    pub fn subject(&self) -> &Subject {
        &self.binding.subjects[self.subject]
    }
}

impl fmt::Display for Grant {
    /// `RoleBinding "b/ns" of Role "r" to User "u"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binding = self.binding();
        let (kind, name) = match binding.namespace.as_str() {
            "" => ("ClusterRoleBinding", quote(&binding.name)),
            namespace => ("RoleBinding", quote(&format!("{}/{namespace}", binding.name))),
        };
        let role = &binding.role;
        write!(f, "{kind} {name} of {} {} to ", role.kind_name(), quote(&role.name))?;
        let subject = self.subject();
        let name = match subject.kind {
            SubjectKind::ServiceAccount => {
                let of = &subject.namespace;
                let namespace = if of.is_empty() { &binding.namespace } else { of };
                quote(&format!("{}/{namespace}", subject.name))
            }
            _ => quote(&subject.name),
        };
        write!(f, "{} {name}", subject.kind.name())
    }
}
