//! Tests of policy files and of the rules in them.

use super::*;
use keelson_meta::GroupVersionResource;

const HEAD: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\n";

fn check_refused(rest: &str, expected: &str) {
    let refused = Policy::parse(&format!("{HEAD}{rest}")).expect_err(rest);
    assert_eq!(refused.to_string(), expected, "{rest}");
}

/// The messages are those of kube-apiserver 1.36.
#[test]
fn refused_policies_have_the_messages_of_kube_apiserver() {
    check_refused("", "loaded illegal policy with 0 rules");
    check_refused(
        "rules:\n- users: [a]\n- level: Foo\n",
        "[rules[0].level: Required value, rules[1].level: Unsupported value: \"Foo\": supported \
         values: \"None\", \"Metadata\", \"Request\", \"RequestResponse\"]",
    );
    check_refused(
        "rules:\n- level: None\n  nonResourceURLs: [/a]\n  namespaces: [x]\n- level: None\n  \
         nonResourceURLs: [a, /a*b, '*', '']\n",
        "[rules[0].nonResourceURLs: Invalid value: [\"/a\"]: rules cannot apply to both regular \
         resources and non-resource URLs, rules[1].nonResourceURLs[0]: Invalid value: \"a\": \
         non-resource URL rules must begin with a '/' character, rules[1].nonResourceURLs[1]: \
         Invalid value: \"/a*b\": non-resource URL wildcards '*' must be the final character of \
         the rule, rules[1].nonResourceURLs[3]: Invalid value: \"\": non-resource URL rules must \
         begin with a '/' character]",
    );
    check_refused(
        "omitStages: [Foo]\nrules:\n- level: None\n  omitStages: [Bar, Panic]\n",
        "[omitStages[0]: Invalid value: \"Foo\": allowed stages are \
         RequestReceived,ResponseStarted,ResponseComplete,Panic, rules[0].omitStages[0]: Invalid \
         value: \"Bar\": allowed stages are \
         RequestReceived,ResponseStarted,ResponseComplete,Panic]",
    );
    check_refused(
        "rules:\n- level: None\n  resources: [{group: a/b}, {group: '', resourceNames: [x]}]\n",
        "[rules[0].resources.group: Invalid value: \"a/b\": a lowercase RFC 1123 subdomain must \
         consist of lower case alphanumeric characters, '-' or '.', and must start and end with \
         an alphanumeric character (e.g. 'example.com', regex used for validation is \
         '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*'), \
         rules[0].resources.resourceNames: Invalid value: [\"x\"]: using resourceNames requires \
         at least one resource]",
    );
    check_refused(
        "rules: x\n",
        "failed decoding: json: cannot unmarshal string into Go struct field Policy.rules of type \
         []v1.PolicyRule",
    );
    check_refused(
        "rules:\n- level: None\n  omitManagedFields: 'x'\n",
        "failed decoding: json: cannot unmarshal string into Go struct field \
         PolicyRule.rules.omitManagedFields of type bool",
    );
    check_refused(
        "rules:\n- level: None\n  users: a\n",
        "failed decoding: json: cannot unmarshal string into Go struct field \
         PolicyRule.rules.users of type []string",
    );
}

#[test]
fn files_that_are_no_policy_are_refused() {
    let check = |file: &str, expected: &str| {
        assert_eq!(Policy::parse(file).expect_err(file).to_string(), expected, "{file}");
    };
    let no_kind = "unknown group version field audit.k8s.io/__internal, Kind=Policy in policy";
    check("", no_kind);
    check("rules:\n- level: None\n", no_kind);
    check(
        "apiVersion: audit.k8s.io/v1\nkind: Event\n",
        "failed decoding: converting (v1.Event) to (audit.Policy): unknown conversion",
    );
    check(
        "apiVersion: audit.k8s.io/v1beta1\nkind: Policy\nrules: [{level: None}]\n",
        "failed decoding: no kind \"Policy\" is registered for version \"audit.k8s.io/v1beta1\" \
         in scheme \"pkg/runtime/scheme.go:111\"",
    );
    assert!(Policy::parse("a: [\n").is_err());
}

#[test]
fn unknown_and_duplicate_fields_are_ignored_and_named() {
    let text = format!("{HEAD}foo: 1\nrules:\n- level: None\n  level: Metadata\n  bar: x\n");
    let policy = Policy::parse(&text).expect("a policy");
    assert_eq!(
        policy.ignored.as_deref(),
        Some(
            "yaml: line 6: key \"level\" already set in map, unknown field \"foo\", unknown field \
             \"rules[0].bar\""
        )
    );
}

/// Returns the level of a request: `VERB GROUP/RESOURCE/SUB NAMESPACE/NAME` or `VERB /path`, by a
/// user with a group.
fn level(rules: &str, request: &str, user: Option<(&str, &str)>) -> Level {
    let policy = Policy::parse(&format!("{HEAD}rules:\n{rules}")).expect(rules);
    let parts: Vec<&str> = request.split(' ').collect();
    let attributes = match parts.as_slice() {
        [verb, path] => Attributes {
            verb: (*verb).into(),
            non_resource: true,
            path: (*path).to_owned(),
            ..Attributes::default()
        },
        [verb, resource, object] => {
            let names: Vec<&str> = resource.split('/').collect();
            let (namespace, name) = object.split_once('/').expect("a namespace and a name");
            Attributes {
                verb: (*verb).into(),
                gvr: GroupVersionResource::new(names[0], "v1", names[1]),
                subresource: names.get(2).copied().unwrap_or_default().into(),
                namespace: namespace.into(),
                name: name.into(),
                ..Attributes::default()
            }
        }
        _ => panic!("{request}"),
    };
    let user = user.map(|(name, group)| User {
        name: name.into(),
        groups: [group.into()].into(),
        ..User::default()
    });
    policy.evaluate(&attributes, user.as_ref()).level
}

fn check_matches(rule: &str, matching: &[&str], others: &[&str]) {
    let rules = format!("- {{level: Request, {rule}}}\n");
    for (requests, expected) in [(matching, Level::Request), (others, Level::None)] {
        for request in requests {
            let level = level(&rules, request, Some(("tim", "humans")));
            assert_eq!(level, expected, "{rule}: {request}");
        }
    }
}

const POD: &str = "get /pods ns/web";
const LOG: &str = "get /pods/log ns/web";
const NODE: &str = "get /nodes /n1";
const PATH: &str = "get /logs/kubelet.log";

#[test]
fn rules_match_users_groups_and_verbs() {
    check_matches("users: [tim]", &[POD, PATH], &[]);
    check_matches("users: [tom]", &[], &[POD, PATH]);
    check_matches("userGroups: [x, humans]", &[POD], &[]);
    check_matches("userGroups: [x]", &[], &[POD]);
    check_matches("verbs: [get]", &[POD, PATH], &["list /pods ns/"]);
    check_matches("verbs: [list], users: [tim]", &["list /pods ns/"], &[POD]);
    for rule in ["users: ['']", "userGroups: ['']"] {
        assert_eq!(level(&format!("- {{level: Request, {rule}}}\n"), POD, None), Level::None);
    }
    assert_eq!(level("- level: Metadata\n", POD, None), Level::Metadata);
}

#[test]
fn rules_match_resources_subresources_and_names() {
    check_matches(
        "resources: [{group: ''}]",
        &[POD, LOG, NODE],
        &["get apps/deployments ns/d", PATH],
    );
    check_matches("resources: [{group: '', resources: [pods]}]", &[POD], &[LOG, NODE, PATH]);
    check_matches("resources: [{group: '', resources: [pods/log]}]", &[LOG], &[POD]);
    check_matches("resources: [{group: '', resources: ['pods/*']}]", &[LOG, POD], &[NODE]);
    check_matches("resources: [{group: '', resources: ['*/log']}]", &[LOG], &[POD]);
    check_matches("resources: [{group: '', resources: ['*']}]", &[POD, LOG, NODE], &[PATH]);
    check_matches(
        "resources: [{resources: [pods], resourceNames: [web]}]",
        &[POD],
        &["get /pods ns/db"],
    );
    check_matches(
        "resources: [{group: '*', resources: [pods]}]",
        &[POD, "get metrics/pods ns/p"],
        &[NODE],
    );
    check_matches("resources: [{group: apps}, {group: ''}]", &[POD], &["get batch/jobs ns/j"]);
}

#[test]
fn rules_match_namespaces_and_urls() {
    check_matches("namespaces: [ns]", &[POD, LOG], &[NODE, PATH, "get /pods other/web"]);
    check_matches("namespaces: ['']", &[NODE], &[POD, PATH]);
    check_matches("nonResourceURLs: ['/logs*']", &[PATH, "get /logs"], &["get /log", POD]);
    check_matches("nonResourceURLs: ['*']", &[PATH], &[POD]);
    check_matches("nonResourceURLs: [/logs]", &["get /logs"], &[PATH]);
}

#[test]
fn the_first_rule_that_matches_decides() {
    let rules = "- {level: None, users: [tim]}\n- {level: Metadata}\n";
    assert_eq!(level(rules, POD, Some(("tim", "x"))), Level::None);
    assert_eq!(level(rules, POD, Some(("tom", "x"))), Level::Metadata);
}

#[test]
fn stages_are_joined_and_a_rule_overrides_managed_fields() {
    let text = format!(
        "{HEAD}omitStages: [RequestReceived]\nomitManagedFields: true\nrules:\n- level: Request\n  \
         users: [tim]\n  omitStages: [Panic]\n- level: Request\n  omitManagedFields: false\n"
    );
    let policy = Policy::parse(&text).expect("a policy");
    let config = |name: &str| {
        let user = User { name: name.into(), ..User::default() };
        policy.evaluate(&Attributes::default(), Some(&user))
    };
    let omitted = |name: &str| -> Vec<&str> {
        let stages = config(name).omit_stages;
        let omitted = crate::Stage::ALL.into_iter().filter(|stage| stages.contains(*stage));
        omitted.map(crate::Stage::name).collect()
    };
    assert_eq!(omitted("tim"), ["RequestReceived", "Panic"]);
    assert_eq!(omitted("tom"), ["RequestReceived"]);
    assert!(config("tim").omit_managed_fields);
    assert!(!config("tom").omit_managed_fields);
}
