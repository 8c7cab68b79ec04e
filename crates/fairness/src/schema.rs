//! [`FlowSchema`] and [`LevelSpec`]: the configuration, read from its objects, and which requests
//! it means.

use crate::Flow;
use keelson_meta::{Object, Str, User, Value};

/// What stands for everything in a list of names.
const ALL: &str = "*";
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// What a FlowSchema sees of a request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Who sent it.
    pub user: &'a User,
    /// Its verb; of a non-resource path, the lower-case method.
    pub verb: &'a str,
    /// What it is for.
    pub target: RequestTarget<'a>,
}

/// What a request is for.
#[derive(Clone, Copy, Debug)]
pub enum RequestTarget<'a> {
    /// A resource.
    Resource {
        /// Its API group.
        group: &'a str,
        /// Its plural name.
        resource: &'a str,
        /// The subresource, or empty.
        subresource: &'a str,
        /// The namespace, or empty.
        namespace: &'a str,
    },
    /// A path that names no resource.
    Path(&'a str),
}

/// Which requests go to which level, and which of them are a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowSchema {
    /// Its name.
    pub name: Str,
    /// Its UID.
    pub uid: Str,
    /// The name of its level.
    pub level: Str,
    precedence: i64,
    distinguisher: Distinguisher,
    rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Distinguisher {
    Nothing,
    User,
    Namespace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    subjects: Vec<Subject>,
    resources: Vec<ResourceRule>,
    paths: Vec<PathRule>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Subject {
    User(Str),
    Group(Str),
    ServiceAccount { namespace: Str, name: Str },
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct ResourceRule {
    verbs: Names,
    groups: Names,
    resources: Names,
    namespaces: Names,
    cluster_scope: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct PathRule {
    verbs: Names,
    paths: Vec<Str>,
}

/// A list of names, or all names.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Names {
    All,
    Some(Vec<Str>),
}

impl FlowSchema {
    /// Reads a FlowSchema.
    pub fn read(object: &Object) -> FlowSchema {
        let by = object.str_at(&["spec", "distinguisherMethod", "type"]);
        FlowSchema {
            name: Str::new(object.name()),
            uid: Str::new(object.uid()),
            level: Str::new(object.str_at(&["spec", "priorityLevelConfiguration", "name"])),
            // The default of the API.
            precedence: object.int_at(&["spec", "matchingPrecedence"]).unwrap_or(1000),
            distinguisher: match by {
                "ByUser" => Distinguisher::User,
                "ByNamespace" => Distinguisher::Namespace,
                _ => Distinguisher::Nothing,
            },
            rules: object.array_at(&["spec", "rules"]).iter().map(Rule::read).collect(),
        }
    }

    /// Returns the FlowSchemas that exist whatever is stored: masters are exempt, and `catch-all`
    /// matches what no other does.
    pub fn mandatory() -> [FlowSchema; 2] {
        let schema = |name, precedence, distinguisher, groups: &[&'static str]| FlowSchema {
            name: Str::new_static(name),
            uid: Str::default(),
            level: Str::new_static(name),
            precedence,
            distinguisher,
            rules: vec![Rule::everything_of(groups)],
        };
        let all = ["system:unauthenticated", "system:authenticated"];
        [
            schema("exempt", 1, Distinguisher::Nothing, &["system:masters"]),
            schema("catch-all", 10_000, Distinguisher::User, &all),
        ]
    }

    /// Sorts FlowSchemas into the order in which they match: by precedence, then by name.
    pub fn sort(schemas: &mut [FlowSchema]) {
        schemas.sort_by(|one, other| {
            (one.precedence, &*one.name).cmp(&(other.precedence, &*other.name))
        });
    }

    /// Returns whether the FlowSchema matches a request.
    pub fn matches(&self, request: &Request<'_>) -> bool {
        self.rules.iter().any(|rule| rule.matches(request))
    }

    /// Returns what distinguishes the flow of a request from others of this FlowSchema.
    pub fn distinguisher<'a>(&self, request: &Request<'a>) -> &'a str {
        match (self.distinguisher, request.target) {
            (Distinguisher::User, _) => &request.user.name,
            (Distinguisher::Namespace, RequestTarget::Resource { namespace, .. }) => namespace,
            (Distinguisher::Nothing | Distinguisher::Namespace, _) => "",
        }
    }

    /// Returns the flow of a request.
    pub fn flow(&self, request: &Request<'_>) -> Flow {
        Flow::new(&self.name, self.distinguisher(request))
    }
}

impl Rule {
    fn read(value: &Value) -> Rule {
        Rule {
            subjects: value.array_at(&["subjects"]).iter().filter_map(Subject::read).collect(),
            resources: value.array_at(&["resourceRules"]).iter().map(ResourceRule::read).collect(),
            paths: value.array_at(&["nonResourceRules"]).iter().map(PathRule::read).collect(),
        }
    }

    fn everything_of(groups: &[&'static str]) -> Rule {
        let resources = ResourceRule {
            verbs: Names::All,
            groups: Names::All,
            resources: Names::All,
            namespaces: Names::All,
            cluster_scope: true,
        };
        Rule {
            subjects: groups.iter().map(|group| Subject::Group(Str::new_static(group))).collect(),
            resources: vec![resources],
            paths: vec![PathRule { verbs: Names::All, paths: vec![Str::new_static(ALL)] }],
        }
    }

    fn matches(&self, request: &Request<'_>) -> bool {
        if !self.subjects.iter().any(|subject| subject.matches(request.user)) {
            return false;
        }
        match request.target {
            RequestTarget::Path(path) => {
                self.paths.iter().any(|rule| rule.matches(request.verb, path))
            }
            RequestTarget::Resource { .. } => {
                self.resources.iter().any(|rule| rule.matches(request))
            }
        }
    }
}

impl Subject {
    fn read(value: &Value) -> Option<Subject> {
        let text = |names: &[&str]| value.str_at(names).map(Str::new);
        Some(match value.str_at(&["kind"])? {
            "User" => Subject::User(text(&["user", "name"])?),
            "Group" => Subject::Group(text(&["group", "name"])?),
            "ServiceAccount" => Subject::ServiceAccount {
                namespace: text(&["serviceAccount", "namespace"])?,
                name: text(&["serviceAccount", "name"])?,
            },
            _ => return None,
        })
    }

    fn matches(&self, user: &User) -> bool {
        match self {
            Subject::User(name) => name == ALL || *name == user.name,
            Subject::Group(name) => name == ALL || user.is_in(name),
            Subject::ServiceAccount { namespace, name } => {
                let account = user.name.strip_prefix(ACCOUNT_PREFIX);
                let parts = account.and_then(|account| account.split_once(':'));
                parts.is_some_and(|(of, known)| of == namespace && (name == ALL || known == name))
            }
        }
    }
}

impl ResourceRule {
    fn read(value: &Value) -> ResourceRule {
        ResourceRule {
            verbs: Names::read(value.array_at(&["verbs"])),
            groups: Names::read(value.array_at(&["apiGroups"])),
            resources: Names::read(value.array_at(&["resources"])),
            namespaces: Names::read(value.array_at(&["namespaces"])),
            cluster_scope: value.get("clusterScope").and_then(Value::as_bool) == Some(true),
        }
    }

    fn matches(&self, request: &Request<'_>) -> bool {
        let RequestTarget::Resource { group, resource, subresource, namespace } = request.target
        else {
            return false;
        };
        self.verbs.contain(request.verb)
            && self.resources.contain_resource(resource, subresource)
            && self.groups.contain(group)
            && match namespace {
                "" => self.cluster_scope,
                namespace => self.namespaces.contain(namespace),
            }
    }
}

impl PathRule {
    fn read(value: &Value) -> PathRule {
        let paths = value.array_at(&["nonResourceURLs"]).iter().filter_map(Value::as_str);
        PathRule {
            verbs: Names::read(value.array_at(&["verbs"])),
            paths: paths.map(Str::new).collect(),
        }
    }

    /// Returns whether the rule matches a path. As upstream, a rule also means what is below its
    /// path.
    fn matches(&self, verb: &str, path: &str) -> bool {
        let is_meant = |rule: &Str| {
            if rule == ALL || rule == path {
                return true;
            }
            let prefix = rule.strip_suffix('*').unwrap_or(rule);
            let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
            path.strip_prefix(prefix).is_some_and(|rest| rest.starts_with('/'))
        };
        self.verbs.contain(verb) && self.paths.iter().any(is_meant)
    }
}

impl Names {
    fn read(values: &[Value]) -> Names {
        match values {
            [only] if only.as_str() == Some(ALL) => Names::All,
            values => Names::Some(values.iter().filter_map(Value::as_str).map(Str::new).collect()),
        }
    }

    fn contain(&self, name: &str) -> bool {
        match self {
            Names::All => true,
            Names::Some(names) => names.iter().any(|known| known == name),
        }
    }

    /// Returns whether the names contain `resource/subresource`, without making that text.
    fn contain_resource(&self, resource: &str, subresource: &str) -> bool {
        let is_it = |known: &Str| match known.split_once('/') {
            _ if subresource.is_empty() => known == resource,
            Some((of, part)) => of == resource && part == subresource,
            None => false,
        };
        match self {
            Names::All => true,
            Names::Some(names) => names.iter().any(is_it),
        }
    }
}

/// How a level treats requests that find no seat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// There is always a seat.
    Exempt,
    /// They are rejected.
    Reject,
    /// They wait.
    Queue {
        /// Number of queues.
        queues: usize,
        /// Queues of a flow.
        hand_size: usize,
        /// Most requests in a queue.
        length_max: usize,
    },
}

/// A PriorityLevelConfiguration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LevelSpec {
    /// Its name.
    pub name: Str,
    /// Its UID.
    pub uid: Str,
    /// Its share of the server.
    pub shares: u32,
    /// Part of its seats that others may borrow, in percent.
    pub lent_percent: u32,
    /// Part of its seats that it may borrow in addition, in percent; `None`: as many as there are.
    pub borrowed_percent: Option<u32>,
    /// What happens without a free seat.
    pub shape: Shape,
}

impl LevelSpec {
    /// Reads a PriorityLevelConfiguration.
    pub fn read(object: &Object) -> LevelSpec {
        let is_exempt = object.str_at(&["spec", "type"]) == "Exempt";
        let part = if is_exempt { "exempt" } else { "limited" };
        let number = |name| object.int_at(&["spec", part, name]);
        let small = |number: i64| u32::try_from(number).unwrap_or(0);
        let queuing = |name, missing| {
            let number = object.int_at(&["spec", part, "limitResponse", "queuing", name]);
            number.and_then(|number| usize::try_from(number).ok()).unwrap_or(missing)
        };
        // The defaults of the API.
        let shares = number("nominalConcurrencyShares").unwrap_or(if is_exempt { 0 } else { 30 });
        LevelSpec {
            name: Str::new(object.name()),
            uid: Str::new(object.uid()),
            shares: small(shares),
            lent_percent: number("lendablePercent").map_or(0, small),
            borrowed_percent: number("borrowingLimitPercent").map(small),
            shape: match object.str_at(&["spec", part, "limitResponse", "type"]) {
                _ if is_exempt => Shape::Exempt,
                "Queue" => Shape::Queue {
                    queues: queuing("queues", 64).max(1),
                    hand_size: queuing("handSize", 8).max(1),
                    length_max: queuing("queueLengthLimit", 50),
                },
                _ => Shape::Reject,
            },
        }
    }

    /// Returns the levels that exist whatever is stored.
    pub fn mandatory() -> [LevelSpec; 2] {
        let level = |name, shares, shape| LevelSpec {
            name: Str::new_static(name),
            uid: Str::default(),
            shares,
            lent_percent: 0,
            borrowed_percent: None,
            shape,
        };
        [level("exempt", 0, Shape::Exempt), level("catch-all", 5, Shape::Reject)]
    }
}
