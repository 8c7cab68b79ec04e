//! [`Roles`]: the rules of roles, each in a place that its bindings know, so that a decision looks
//! up no name.

use super::{RoleKind, RoleRef, Rule};
use keelson_meta::Str;
use std::collections::HashMap;
use std::sync::Arc;

pub(super) type Names<T> = HashMap<Str, T, foldhash::fast::RandomState>;

/// The place of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RoleId(usize);

/// All roles that exist, and those that only bindings refer to.
#[derive(Default)]
pub(super) struct Roles {
    /// By namespace; cluster roles have the empty namespace. Invariant: has no empty map.
    ids: Names<Names<RoleId>>,
    places: Vec<Place>,
    /// Places that no name has.
    free: Vec<RoleId>,
}

#[derive(Default)]
struct Place {
    /// `None`: the role does not exist.
    rules: Option<Rules>,
    /// Bindings that refer to it.
    bindings: usize,
}

/// The rules of a role.
pub(super) struct Rules {
    pub all: Arc<[Rule]>,
    /// The verbs of the rules about resources.
    resource_verbs: Verbs,
    /// The verbs of the rules about non-resource URLs.
    url_verbs: Verbs,
}

impl Rules {
    fn new(all: Arc<[Rule]>) -> Rules {
        let of = |is_part: fn(&Rule) -> bool| {
            let verbs = all.iter().filter(|rule| is_part(rule)).flat_map(|rule| &rule.verbs);
            verbs.fold(Verbs::NONE, |sum, verb| sum.plus(Verbs::of_rule(verb)))
        };
        let resource_verbs = of(|rule| !rule.resources.is_empty());
        let url_verbs = of(|rule| !rule.urls.is_empty());
        Rules { all, resource_verbs, url_verbs }
    }

    /// Returns whether no rule has one of these verbs.
    pub fn lack(&self, verbs: Verbs, is_resource: bool) -> bool {
        let own = if is_resource { self.resource_verbs } else { self.url_verbs };
        own.0 & verbs.0 == 0
    }
}

/// A set of verbs. All that are not among the usual ones count as one, so that a rule may lack a
/// verb that is in its set.
#[derive(Clone, Copy)]
pub(super) struct Verbs(u16);

impl Verbs {
    const NONE: Verbs = Verbs(0);

    /// The verb of a request.
    pub fn of_request(verb: &str) -> Verbs {
        Verbs(match verb {
            "get" => 1,
            "list" => 1 << 1,
            "watch" => 1 << 2,
            "create" => 1 << 3,
            "update" => 1 << 4,
            "patch" => 1 << 5,
            "delete" => 1 << 6,
            "deletecollection" => 1 << 7,
            _ => 1 << 8,
        })
    }

    fn of_rule(verb: &str) -> Verbs {
        if verb == "*" { Verbs(u16::MAX) } else { Verbs::of_request(verb) }
    }

    fn plus(self, other: Verbs) -> Verbs {
        Verbs(self.0 | other.0)
    }
}

impl Roles {
    /// Puts the rules of a role.
    pub fn put(&mut self, namespace: &str, name: &str, rules: Arc<[Rule]>) {
        let id = self.id_of(namespace, name);
        self.places[id.0].rules = Some(Rules::new(rules));
    }

    pub fn remove(&mut self, namespace: &str, name: &str) {
        if let Some(id) = self.find(namespace, name) {
            self.places[id.0].rules = None;
            self.free_if_unused(namespace, name, id);
        }
    }

    /// Removes all roles of the cluster, or all others.
    pub fn remove_all(&mut self, is_cluster: bool) {
        let Roles { ids, places, free } = self;
        ids.retain(|namespace, ids| {
            if namespace.is_empty() == is_cluster {
                ids.retain(|_, id| {
                    let place = &mut places[id.0];
                    place.rules = None;
                    if place.bindings == 0 {
                        free.push(*id);
                    }
                    place.bindings > 0
                });
            }
            !ids.is_empty()
        });
    }

    /// Returns the place of the role of a binding in `namespace`, and counts the binding; `None` if
    /// the reference is invalid.
    pub fn bind(&mut self, role: &RoleRef, namespace: &str) -> Option<RoleId> {
        let id = self.id_of(namespace_of(role, namespace)?, &role.name);
        self.places[id.0].bindings += 1;
        Some(id)
    }

    /// Takes back [`Roles::bind`].
    pub fn unbind(&mut self, role: &RoleRef, namespace: &str) {
        let Some(namespace) = namespace_of(role, namespace) else { return };
        let Some(id) = self.find(namespace, &role.name) else { return };
        self.places[id.0].bindings -= 1;
        self.free_if_unused(namespace, &role.name, id);
    }

    /// Returns the rules in a place; `None` if the role does not exist.
    pub fn rules(&self, id: RoleId) -> Option<&Rules> {
        self.places[id.0].rules.as_ref()
    }

    /// Returns the rules of the role of a binding in `namespace`; `None` if it does not exist.
    pub fn find_rules(&self, role: &RoleRef, namespace: &str) -> Option<&Rules> {
        self.rules(self.find(namespace_of(role, namespace)?, &role.name)?)
    }

    /// Returns whether nothing is left of any role.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.free.len() == self.places.len()
    }

    fn find(&self, namespace: &str, name: &str) -> Option<RoleId> {
        self.ids.get(namespace)?.get(name).copied()
    }

    /// Returns the place of a role, a new one if it has none.
    fn id_of(&mut self, namespace: &str, name: &str) -> RoleId {
        if let Some(id) = self.find(namespace, name) {
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            RoleId(self.places.len() - 1)
        });
        self.ids.entry(namespace.into()).or_default().insert(name.into(), id);
        id
    }

    fn free_if_unused(&mut self, namespace: &str, name: &str, id: RoleId) {
        let place = &self.places[id.0];
        if place.rules.is_some() || place.bindings > 0 {
            return;
        }
        self.free.push(id);
        if let Some(ids) = self.ids.get_mut(namespace) {
            ids.remove(name);
            if ids.is_empty() {
                self.ids.remove(namespace);
            }
        }
    }
}

/// Returns the namespace of a role that a binding in `namespace` refers to.
fn namespace_of<'a>(role: &RoleRef, namespace: &'a str) -> Option<&'a str> {
    match role.kind {
        Ok(RoleKind::ClusterRole) => Some(""),
        Ok(RoleKind::Role) => Some(namespace),
        Err(_) => None,
    }
}
