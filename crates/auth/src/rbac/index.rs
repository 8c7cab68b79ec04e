//! [`Index`]: roles by name, and bindings by subject.

use super::aggregate;
use super::roles::{Names, RoleId, Roles, Rules, Verbs};
use super::{Binding, Grant, RoleKind, RoleRef, Rule, Subject, SubjectKind, rules_of};
use crate::{Attributes, AuthorizationReason, Decision, SERVICE_ACCOUNT_PREFIX, User};
use keelson_meta::{Object, Str, Value};
use smallvec::SmallVec;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// Maximum distinct roles that one decision checks only once.
const CHECKED_ROLES_MAX: usize = 32;

/// Roles and bindings, indexed.
#[derive(Default)]
pub struct Index {
    roles: Roles,
    /// By namespace; cluster role bindings have the empty namespace.
    scopes: Names<Scope>,
}

/// The bindings of a namespace or of the cluster.
#[derive(Default)]
struct Scope {
    bindings: Names<Arc<Binding>>,
    /// Bindings of users and service accounts by user name. Invariant: matches the subjects of
    /// `bindings`.
    users: Names<Vec<GrantedRole>>,
    /// Bindings of groups. Invariant: matches the subjects of `bindings`.
    groups: Names<Vec<GrantedRole>>,
}

/// A grant, and the place of its role; `None` if the reference is invalid.
struct GrantedRole {
    grant: Grant,
    role: Option<RoleId>,
}

/// A role that a binding refers to does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleError(RoleRef);

impl fmt::Display for RoleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = keelson_meta::status::quote(&self.0.name);
        match &self.0.kind {
            Ok(RoleKind::Role) => write!(f, "role.{} {name} not found", super::GROUP),
            Ok(RoleKind::ClusterRole) => write!(f, "clusterrole.{} {name} not found", super::GROUP),
            Err(kind) => {
                let kind = keelson_meta::status::quote(kind);
                write!(f, "unsupported role reference kind: {kind}")
            }
        }
    }
}

impl RoleError {
    /// Returns kube-apiserver's text for writes of roles and bindings, which names the role by the
    /// resource of the request.
    pub fn message_for_write(&self, resource: &str) -> String {
        match self.0.kind {
            Ok(_) => {
                let name = keelson_meta::status::quote(&self.0.name);
                format!("{resource}.{} {name} not found", super::GROUP)
            }
            Err(_) => self.to_string(),
        }
    }
}

impl Index {
    pub(super) fn put_role(&mut self, role: &Object) {
        let rules = rules_of(role.array_at(&["rules"])).into();
        self.roles.put(role.namespace(), role.name(), rules);
    }

    pub(super) fn remove_role(&mut self, namespace: &str, name: &str) {
        self.roles.remove(namespace, name);
    }

    pub(super) fn put_binding(&mut self, object: &Object) {
        let namespace = Str::new(object.namespace());
        let name = Str::new(object.name());
        self.remove_binding(&namespace, &name);
        let subjects = object.array_at(&["subjects"]).iter().filter_map(Subject::read).collect();
        let role = RoleRef::of(object);
        let binding =
            Arc::new(Binding { namespace: namespace.clone(), name: name.clone(), role, subjects });
        let role = self.roles.bind(&binding.role, &namespace);
        let scope = self.scopes.entry(namespace).or_default();
        for subject in 0..binding.subjects.len() {
            let grant = Grant { binding: binding.clone(), subject };
            let Some((is_group, key)) = grant.subject().key(&binding.namespace) else { continue };
            let grants = if is_group { &mut scope.groups } else { &mut scope.users };
            grants.entry(key).or_default().push(GrantedRole { grant, role });
        }
        scope.bindings.insert(name, binding);
    }

    pub(super) fn remove_binding(&mut self, namespace: &str, name: &str) {
        let Some(scope) = self.scopes.get_mut(namespace) else { return };
        let Some(binding) = scope.bindings.remove(name) else { return };
        for subject in &binding.subjects {
            let Some((is_group, key)) = subject.key(namespace) else { continue };
            let grants = if is_group { &mut scope.groups } else { &mut scope.users };
            if let Some(of) = grants.get_mut(&key) {
                of.retain(|of| !Arc::ptr_eq(&of.grant.binding, &binding));
                if of.is_empty() {
                    grants.remove(&key);
                }
            }
        }
        if scope.bindings.is_empty() {
            self.scopes.remove(namespace);
        }
        self.roles.unbind(&binding.role, namespace);
    }

    pub(super) fn remove_all_roles(&mut self, is_cluster: bool) {
        self.roles.remove_all(is_cluster);
    }

    pub(super) fn remove_all_bindings(&mut self, is_cluster: bool) {
        self.scopes.retain(|namespace, scope| {
            let is_kept = namespace.is_empty() != is_cluster;
            if !is_kept {
                for binding in scope.bindings.values() {
                    self.roles.unbind(&binding.role, namespace);
                }
            }
            is_kept
        });
    }

    /// Returns `Allow` if a rule of a role that is bound to the user allows the request.
    pub fn decide(&self, user: &User, attributes: &Attributes) -> Decision {
        let mut errors: Vec<String> = vec![];
        let mut allowed = None;
        // Checks each role once, even if it is bound several times.
        let mut refused: SmallVec<[*const Rule; CHECKED_ROLES_MAX]> = SmallVec::new();
        let verbs = Verbs::of_request(&attributes.verb);
        self.visit(user, &attributes.namespace, |grant, rules| {
            match rules {
                Ok(rules) if rules.lack(verbs, attributes.is_resource()) => {}
                Ok(rules) if refused.contains(&rules.all.as_ptr()) => {}
                Ok(rules) if rules.all.iter().any(|rule| rule.allows(attributes)) => {
                    allowed = Some(grant.clone());
                }
                Ok(rules) if refused.len() < CHECKED_ROLES_MAX => refused.push(rules.all.as_ptr()),
                Ok(_) => {}
                Err(error) => errors.push(error.to_string()),
            }
            allowed.is_none()
        });
        match allowed {
            Some(grant) => Decision::allow(AuthorizationReason::Rbac(grant)),
            None if errors.is_empty() => Decision::no_opinion(String::new()),
            None => Decision::no_opinion(format!("RBAC: {}", aggregate(&errors))),
        }
    }

    /// Returns the rules that apply to a user in a namespace, and the missing roles.
    pub fn rules_for(&self, user: &User, namespace: &str) -> (Vec<Rule>, Vec<RoleError>) {
        let mut all = vec![];
        let mut errors = vec![];
        // A binding counts once, even if several of its subjects match.
        let mut seen = HashSet::new();
        self.visit(user, namespace, |grant, rules| {
            if !seen.insert(Arc::as_ptr(&grant.binding)) {
                return true;
            }
            match rules {
                Ok(rules) => all.extend(rules.all.iter().cloned()),
                Err(error) => errors.push(error),
            }
            true
        });
        (all, errors)
    }

    /// Returns the rules of the role that a binding in `namespace` refers to.
    pub fn role_rules(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], RoleError> {
        let rules = self.roles.find_rules(role, namespace);
        rules.map(|rules| &*rules.all).ok_or_else(|| RoleError(role.clone()))
    }

    /// Visits the grants of a user in the cluster and in a namespace while `visit` returns true.
    fn visit(
        &self,
        user: &User,
        namespace: &str,
        mut visit: impl FnMut(&Grant, Result<&Rules, RoleError>) -> bool,
    ) {
        let cluster = self.scopes.get("");
        let own = (!namespace.is_empty()).then(|| self.scopes.get(namespace)).flatten();
        for scope in cluster.into_iter().chain(own) {
            let by_name = scope.users.get(&user.name);
            let by_group = user.groups.iter().filter_map(|group| scope.groups.get(group));
            for GrantedRole { grant, role } in by_name.into_iter().chain(by_group).flatten() {
                let rules = role.and_then(|role| self.roles.rules(role));
                let rules = rules.ok_or_else(|| RoleError(grant.binding.role.clone()));
                if !visit(grant, rules) {
                    return;
                }
            }
        }
    }
}

impl Subject {
    fn read(subject: &Value) -> Option<Subject> {
        let text = |name: &str| subject.str_at(&[name]).unwrap_or_default();
        let kind = match text("kind") {
            "User" => SubjectKind::User,
            "Group" => SubjectKind::Group,
            "ServiceAccount" => SubjectKind::ServiceAccount,
            _ => return None,
        };
        Some(Subject { kind, namespace: text("namespace").into(), name: text("name").into() })
    }

    /// Returns whether the subject is a group, and the name of the group or user; `None` for an
    /// invalid subject.
    fn key(&self, binding_namespace: &str) -> Option<(bool, Str)> {
        match self.kind {
            SubjectKind::User => Some((false, self.name.clone())),
            SubjectKind::Group => Some((true, self.name.clone())),
            SubjectKind::ServiceAccount => {
                let own = self.namespace.as_str();
                let namespace = if own.is_empty() { binding_namespace } else { own };
                let name = &self.name;
                (!namespace.is_empty())
                    .then(|| (false, format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{name}").into()))
            }
        }
    }
}

#[cfg(test)]
mod tests;
