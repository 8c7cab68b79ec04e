//! Which requests a FlowSchema matches, and how objects are read.

use keelson_fairness::{FlowSchema, LevelSpec, Request, RequestTarget, Shape};
use keelson_meta::{Object, Str, User, Value, value};

fn object(value: Value) -> Object {
    Object::from_value(value).expect("an object")
}

fn schema(subject: Value, rule: (&str, Value)) -> FlowSchema {
    let mut rules = value!({"subjects": [(subject)]});
    if let Some(rules) = rules.as_object_mut() {
        rules.insert(rule.0, vec![rule.1]);
    }
    FlowSchema::read(&object(value!({"metadata": {"name": "s"}, "spec": {"rules": [(rules)]}})))
}

fn user(name: &str, groups: &[&str]) -> User {
    User {
        name: Str::new(name),
        groups: groups.iter().map(|group| Str::new(*group)).collect(),
        ..User::default()
    }
}

fn everyone() -> Value {
    value!({"kind": "Group", "group": {"name": "*"}})
}

fn path<'a>(user: &'a User, path: &'a str) -> Request<'a> {
    Request { user, verb: "get", target: RequestTarget::Path(path) }
}

#[test]
fn subjects_are_users_groups_and_service_accounts() {
    let all_paths = || ("nonResourceRules", value!({"verbs": ["*"], "nonResourceURLs": ["*"]}));
    let check = |subject: Value, name: &str, groups: &[&str], want: bool| {
        let schema = schema(subject.clone(), all_paths());
        let user = user(name, groups);
        assert_eq!(schema.matches(&path(&user, "/a")), want, "{subject:?} {name}");
    };
    let named = |name: &'static str| value!({"kind": "User", "user": {"name": name}});
    check(named("bob"), "bob", &[], true);
    check(named("bob"), "bobby", &[], false);
    check(named("*"), "bob", &[], true);
    check(value!({"kind": "User"}), "bob", &[], false);
    let group = |name: &'static str| value!({"kind": "Group", "group": {"name": name}});
    check(group("devs"), "bob", &["ops", "devs"], true);
    check(group("devs"), "devs", &["ops"], false);
    check(group("*"), "bob", &[], true);
    let account = |namespace: &'static str, name: &'static str| {
        let account = value!({"namespace": namespace, "name": name});
        value!({"kind": "ServiceAccount", "serviceAccount": (account)})
    };
    check(account("n", "a"), "system:serviceaccount:n:a", &[], true);
    check(account("n", "a"), "system:serviceaccount:n:b", &[], false);
    check(account("n", "*"), "system:serviceaccount:n:b", &[], true);
    check(account("n", "*"), "system:serviceaccount:nn:b", &[], false);
    check(account("n", "*"), "n:b", &[], false);
}

#[test]
fn rules_for_paths_also_mean_what_is_below() {
    let check = |rule: &'static str, asked: &str, want: bool| {
        let rules = ("nonResourceRules", value!({"verbs": ["get"], "nonResourceURLs": [rule]}));
        let bob = user("bob", &[]);
        let schema = schema(everyone(), rules);
        assert_eq!(schema.matches(&path(&bob, asked)), want, "{rule} {asked}");
        let other_verb = Request { verb: "post", ..path(&bob, asked) };
        assert!(!schema.matches(&other_verb));
    };
    check("/healthz", "/healthz", true);
    check("/healthz", "/healthz/ping", true);
    check("/healthz", "/healthzz", false);
    check("/apis/*", "/apis/a/b", true);
    check("/apis/*", "/apis", false);
    check("/apis*", "/apis/a", true);
    check("*", "/anything", true);
}

#[test]
fn rules_for_resources_match_all_parts() {
    let bob = user("bob", &[]);
    let check = |rule: Value, asked: (&str, &str, &str, &str, &str), want: bool| {
        let (verb, group, resource, subresource, namespace) = asked;
        let target = RequestTarget::Resource { group, resource, subresource, namespace };
        let request = Request { user: &bob, verb, target };
        let schema = schema(everyone(), ("resourceRules", rule.clone()));
        assert_eq!(schema.matches(&request), want, "{rule:?} {asked:?}");
    };
    let pods = || {
        value!({"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods", "pods/status"],
            "namespaces": ["n"]})
    };
    check(pods(), ("get", "", "pods", "", "n"), true);
    check(pods(), ("get", "", "pods", "status", "n"), true);
    check(pods(), ("get", "", "pods", "log", "n"), false);
    check(pods(), ("create", "", "pods", "", "n"), false);
    check(pods(), ("get", "apps", "pods", "", "n"), false);
    check(pods(), ("get", "", "pods", "", "m"), false);
    check(pods(), ("list", "", "pods", "", ""), false);
    let all = |scope: bool| {
        value!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"],
            "clusterScope": scope})
    };
    check(all(false), ("delete", "apps", "a", "b", "n"), true);
    check(all(false), ("delete", "apps", "a", "b", ""), false);
    check(all(true), ("delete", "apps", "a", "b", ""), true);
}

#[test]
fn schemas_match_by_precedence_then_by_name() {
    let named = |name: &'static str, precedence: i64| {
        let spec = value!({"matchingPrecedence": precedence});
        FlowSchema::read(&object(value!({"metadata": {"name": name}, "spec": (spec)})))
    };
    let mut all = vec![named("c", 5), named("a", 9), named("b", 5)];
    all.extend(FlowSchema::mandatory());
    FlowSchema::sort(&mut all);
    let names: Vec<&str> = all.iter().map(|schema| schema.name.as_str()).collect();
    assert_eq!(names, ["exempt", "b", "c", "a", "catch-all"]);
}

#[test]
fn flows_are_distinguished_by_user_or_namespace() {
    let check = |by: &'static str, want: &str| {
        let spec = value!({"distinguisherMethod": {"type": by}});
        let schema = FlowSchema::read(&object(value!({"spec": (spec)})));
        let bob = user("bob", &[]);
        let target = RequestTarget::Resource {
            group: "",
            resource: "pods",
            subresource: "",
            namespace: "n",
        };
        let request = Request { user: &bob, verb: "get", target };
        assert_eq!(schema.distinguisher(&request), want);
        let want = if want == "n" { "" } else { want };
        assert_eq!(schema.distinguisher(&path(&bob, "/a")), want);
    };
    check("ByUser", "bob");
    check("ByNamespace", "n");
    check("", "");
}

#[test]
fn levels_are_read_with_their_defaults() {
    let check = |spec: Value, want: (u32, u32, Option<u32>, Shape)| {
        let level = LevelSpec::read(&object(value!({"metadata": {"name": "l"}, "spec": (spec)})));
        let LevelSpec { shares, lent_percent, borrowed_percent, shape, .. } = level;
        assert_eq!((shares, lent_percent, borrowed_percent, shape), want);
    };
    let exempt = value!({"type": "Exempt", "exempt": {"lendablePercent": 5}});
    check(exempt, (0, 5, None, Shape::Exempt));
    let reject = value!({"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}});
    check(reject, (30, 0, None, Shape::Reject));
    let queue = value!({"type": "Limited", "limited": {
        "nominalConcurrencyShares": 7, "lendablePercent": 10, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue", "queuing": {"queues": 3}}
    }});
    let shape = Shape::Queue { queues: 3, hand_size: 8, length_max: 50 };
    check(queue, (7, 10, Some(0), shape));
}
