//! [`Rule`]: one policy rule of a role.

use crate::Attributes;
use keelson_meta::{Str, Value};
use smallvec::SmallVec;

const ALL: &str = "*";

/// A PolicyRule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Verbs, or `*`.
    pub verbs: Vec<Str>,
    /// API groups, or `*`.
    pub groups: Vec<Str>,
    /// Resources, `resource/subresource`, `*/subresource` or `*`.
    pub resources: Vec<Str>,
    /// Names; empty: all.
    pub names: Vec<Str>,
    /// Non-resource URLs; the last character may be `*`.
    pub urls: Vec<Str>,
}

/// Parses the rules of a role.
pub fn rules_of(rules: &[Value]) -> Vec<Rule> {
    rules.iter().map(Rule::read).collect()
}

impl Rule {
    fn read(rule: &Value) -> Rule {
        let texts = |name: &str| -> Vec<Str> {
            let texts = rule.array_at(&[name]).iter().filter_map(Value::as_str);
            texts.map(Str::new).collect()
        };
        Rule {
            verbs: texts("verbs"),
            groups: texts("apiGroups"),
            resources: texts("resources"),
            names: texts("resourceNames"),
            urls: texts("nonResourceURLs"),
        }
    }

    /// Returns the rule as in a role.
    pub fn to_value(&self) -> Value {
        let mut map = keelson_meta::Map::new();
        let mut put = |name: &'static str, texts: &[Str]| {
            if !texts.is_empty() {
                let texts: Vec<Value> = texts.iter().cloned().map(Value::String).collect();
                map.insert(name, texts);
            }
        };
        put("verbs", &self.verbs);
        put("apiGroups", &self.groups);
        put("resources", &self.resources);
        put("resourceNames", &self.names);
        put("nonResourceURLs", &self.urls);
        Value::Object(map)
    }

    /// Returns whether the rule allows a request.
    pub fn allows(&self, attributes: &Attributes) -> bool {
        if !has_or_all(&self.verbs, &attributes.verb) {
            return false;
        }
        if !attributes.is_resource() {
            return self.urls.iter().any(|url| url_covers(url, &attributes.path));
        }
        has_or_all(&self.groups, &attributes.gvr.group)
            && self.has_resource(&attributes.gvr.resource, &attributes.subresource)
            && (self.names.is_empty() || self.names.contains(&attributes.name))
    }

    fn has_resource(&self, resource: &str, subresource: &str) -> bool {
        self.resources.iter().any(|known| {
            if known == ALL {
                return true;
            }
            if subresource.is_empty() {
                return known == resource;
            }
            let Some((of, sub)) = known.split_once('/') else { return false };
            sub == subresource && (of == ALL || of == resource)
        })
    }

    /// Returns whether this rule covers `other`, which must be a single rule (see
    /// [`Rule::breakdown`]).
    pub fn covers(&self, other: &Rule) -> bool {
        let within = |own: &[Str], other: &[Str]| {
            own.iter().any(|one| one == ALL) || other.iter().all(|one| own.contains(one))
        };
        let names = match other.names.is_empty() {
            true => self.names.is_empty(),
            false => {
                self.names.is_empty() || other.names.iter().all(|name| self.names.contains(name))
            }
        };
        let urls = |url: &Str| self.urls.iter().any(|own| own == url || url_covers(own, url));
        within(&self.verbs, &other.verbs)
            && within(&self.groups, &other.groups)
            && other.resources.iter().all(|resource| self.covers_resource(resource))
            && names
            && other.urls.iter().all(urls)
    }

    fn covers_resource(&self, resource: &str) -> bool {
        self.resources.iter().any(|own| {
            own == ALL
                || own == resource
                || own
                    .strip_prefix("*/")
                    .is_some_and(|sub| resource.split_once('/').is_some_and(|(_, of)| of == sub))
        })
    }

    /// Splits the rule into single rules of one verb, group, resource, name or path.
    pub fn breakdown(&self) -> Vec<Rule> {
        let one = |text: &Str| vec![text.clone()];
        let names: SmallVec<[Option<&Str>; 4]> = match self.names.is_empty() {
            true => SmallVec::from_slice(&[None]),
            false => self.names.iter().map(Some).collect(),
        };
        let mut rules = vec![];
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    rules.extend(names.iter().map(|name| Rule {
                        verbs: one(verb),
                        groups: one(group),
                        resources: one(resource),
                        names: name.map(one).unwrap_or_default(),
                        urls: vec![],
                    }));
                }
            }
        }
        for url in &self.urls {
            let of_verb = |verb| Rule { verbs: one(verb), urls: one(url), ..Rule::default() };
            rules.extend(self.verbs.iter().map(of_verb));
        }
        rules
    }
}

fn has_or_all(known: &[Str], requested: &str) -> bool {
    known.iter().any(|one| one == ALL || one == requested)
}

/// Returns whether a path of a rule, which may end in `*`, covers a path.
fn url_covers(own: &str, path: &str) -> bool {
    own == ALL || own == path || (own.ends_with('*') && path.starts_with(own.trim_end_matches('*')))
}
