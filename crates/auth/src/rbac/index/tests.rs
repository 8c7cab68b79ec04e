//! A decision by the index is that of all roles and bindings.

use super::*;
use crate::Change;
use crate::watched_index::Indexer;
use keelson_meta::{GroupVersionResource, value};
use std::collections::BTreeMap;

const ROLES: usize = 0;
const BINDINGS: usize = 1;
/// What the index is compared with: roles and bindings by kind, namespace and name.
type Stored = BTreeMap<(usize, &'static str, &'static str), Object>;

/// Numbers that look random (an LCG of Knuth's).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }

    fn pick(&mut self, of: &[&'static str]) -> &'static str {
        of[self.below(of.len())]
    }

    fn object(&mut self, kind: usize, namespace: &str, name: &str) -> Object {
        let metadata = value!({"name": name, "namespace": namespace});
        let object = match kind {
            ROLES => value!({"metadata": metadata, "rules": (self.rules())}),
            _ => {
                let subjects = vec![self.subject()];
                value!({"metadata": metadata, "roleRef": (self.role()), "subjects": subjects})
            }
        };
        Object::from_value(object).expect("a map")
    }

    fn rules(&mut self) -> Vec<Value> {
        (0..self.below(3))
            .map(|_| {
                let verb = self.pick(&["get", "list", "bind", "use", "*", "delete"]);
                if self.below(3) == 0 {
                    return value!({"verbs": [verb], "nonResourceURLs": ["/logs", "/healthz*"]});
                }
                let resource = self.pick(&["pods", "nodes", "*"]);
                value!({"verbs": [verb], "apiGroups": [""], "resources": [resource]})
            })
            .collect()
    }

    fn role(&mut self) -> Value {
        let kind = self.pick(&["Role", "ClusterRole", "ClusterRole", "Other"]);
        let name = self.pick(&["a", "b", "c"]);
        value!({"kind": kind, "name": name})
    }

    fn subject(&mut self) -> Value {
        match self.below(3) {
            0 => value!({"kind": "User", "name": "u"}),
            1 => value!({"kind": "Group", "name": "g"}),
            _ => value!({"kind": "User", "name": "other"}),
        }
    }
}

/// What RBAC says by reading all roles and bindings.
fn model(stored: &Stored, user: &User, attributes: &Attributes) -> bool {
    let bindings = stored.iter().filter(|((kind, of, _), _)| {
        *kind == BINDINGS && (of.is_empty() || *of == attributes.namespace)
    });
    bindings.into_iter().any(|((_, namespace, _), binding)| {
        let role = RoleRef::of(binding);
        let is_subject =
            binding.array_at(&["subjects"]).iter().filter_map(Subject::read).any(|subject| {
                match subject.kind {
                    SubjectKind::Group => user.is_in(&subject.name),
                    _ => subject.name == user.name,
                }
            });
        let of = match role.kind {
            Ok(RoleKind::ClusterRole) => "",
            Ok(RoleKind::Role) => namespace,
            Err(_) => return false,
        };
        let mut roles = stored.iter().filter(|((kind, namespace, name), _)| {
            *kind == ROLES && *namespace == of && *name == role.name.as_str()
        });
        let rules = roles.next().map(|(_, role)| rules_of(role.array_at(&["rules"])));
        is_subject && rules.unwrap_or_default().iter().any(|rule| rule.allows(attributes))
    })
}

#[test]
fn a_decision_is_that_of_all_roles_and_bindings() {
    let user = User { name: "u".into(), groups: [Str::from("g")].into(), ..User::default() };
    let mut numbers = Numbers(7);
    let mut index = Index::default();
    let mut stored = Stored::new();
    let mut allowed = 0;
    for _ in 0..20_000 {
        let kind = numbers.below(2);
        let namespace = numbers.pick(&["", "n", "m"]);
        let name = numbers.pick(&["a", "b", "c"]);
        let resource = 2 * kind + usize::from(!namespace.is_empty());
        match numbers.below(40) {
            0 => {
                index.apply(resource, Change::Reset);
                stored.retain(|(of, stored, _), _| {
                    *of != kind || stored.is_empty() != namespace.is_empty()
                });
            }
            1..13 => {
                let gone = Change::Gone { namespace: namespace.into(), name: name.into() };
                index.apply(resource, gone);
                stored.remove(&(kind, namespace, name));
            }
            _ => {
                let object = numbers.object(kind, namespace, name);
                index.apply(resource, Change::Put(object.clone()));
                stored.insert((kind, namespace, name), object);
            }
        }
        let mut attributes = Attributes {
            verb: numbers.pick(&["get", "list", "bind", "approve", "delete"]).into(),
            gvr: GroupVersionResource::new("", "v1", numbers.pick(&["pods", "nodes"])),
            namespace: numbers.pick(&["", "n", "m"]).into(),
            ..Attributes::default()
        };
        if numbers.below(3) == 0 {
            attributes.non_resource = true;
            attributes.path = numbers.pick(&["/logs", "/healthz/a", "/other"]).to_owned();
        }
        let got = index.decide(&user, &attributes).is_allowed();
        assert_eq!(got, model(&stored, &user, &attributes), "{attributes:?} {stored:?}");
        allowed += usize::from(got);
    }
    assert!((1_000..10_000).contains(&allowed), "{allowed}");
}

/// Names of roles that nobody has and no binding refers to leave nothing behind.
#[test]
fn an_index_without_roles_and_bindings_is_empty() {
    let mut numbers = Numbers(8);
    let mut index = Index::default();
    for _ in 0..3 {
        for resource in [0, 1, 2, 3] {
            for name in ["a", "b", "c"] {
                let namespace = if resource % 2 == 0 { "" } else { "n" };
                let object = numbers.object(resource / 2, namespace, name);
                index.apply(resource, Change::Put(object));
            }
        }
        for resource in [2, 0, 1, 3] {
            index.apply(resource, Change::Reset);
        }
        assert!(index.roles.is_empty() && index.scopes.is_empty());
    }
}
