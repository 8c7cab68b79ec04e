//! R-KIND: kinds, resources, groups, versions and their URLs.

use super::world::{
    DEFINITIONS, DEPLOYMENTS, PODS, Walked, define, everything, invalid, made, namespace, read,
    widget_definition, with_widgets,
};
use super::{MERGE_PATCH, create, names, pod, refused, server};
use crate::world::{Client, Watch};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Checks kind and apiVersion of an object.
#[track_caller]
fn is(obj: &Value, kind: &str, api_version: &str) {
    let head = (&obj["kind"], &obj["apiVersion"]);
    assert_eq!(head, (&json!(kind), &json!(api_version)), "{obj}");
}

/// Sends every verb to a resource, and checks what the answers are.
fn check_verbs(client: &Client, walked: &Walked) {
    let Walked { api_version, kind, .. } = walked;
    let all = walked.all();
    let one = walked.one();
    let list = read(client, &all);
    is(&list, &format!("{kind}List"), api_version);
    assert!(list["items"].is_array(), "{list}");
    let version = list["metadata"]["resourceVersion"].as_str().unwrap_or_default();
    let mut watch = client.open_watch(&format!("{all}?watch=true&resourceVersion={version}"));
    let mut bare = walked.sample.clone();
    let members = bare.as_object_mut().expect("an object");
    members.remove("kind");
    members.remove("apiVersion");
    if api_version == "example.com/v1" {
        // Custom resources are not known well enough to be told by their URL.
        assert_eq!(client.post(&all, &bare).status, 400);
        bare = walked.sample.clone();
    }
    is(&made(client, &all, &bare), kind, api_version);
    is(&event_of(&mut watch, walked), kind, api_version);
    is(&read(client, &one), kind, api_version);
    let patched =
        client.call("PATCH", &one, MERGE_PATCH, Some(&json!({"metadata": {"labels": {"a": "b"}}})));
    is(&patched.body, kind, api_version);
    // The server itself writes to some kinds, so that the version may be old.
    let mut unconditional = read(client, &one);
    unconditional["metadata"]["resourceVersion"] =
        patched.body["metadata"]["resourceVersion"].clone();
    let put = client.call("PUT", &one, "application/json", Some(&unconditional));
    if put.status != 409 {
        is(&put.body, kind, api_version);
    }
    let list = read(client, &all);
    assert!(names(&list).contains(&walked.name.as_str()), "{list}");
    is(&client.get(&format!("{all}/none")).body, "Status", "v1");
    let gone = client.delete(&one);
    assert_eq!(gone.status, 200, "{gone:?}");
    let form =
        if gone.body["kind"] == "Status" { ("Status", "v1") } else { (&**kind, &**api_version) };
    is(&gone.body, form.0, form.1);
    if walked.resource != "namespaces" {
        let none = format!("{all}?fieldSelector=metadata.name%3Dnone");
        is(&client.delete(&none).body, &format!("{kind}List"), api_version);
    }
}

/// Returns the object of the next event about the resource's object.
fn event_of(watch: &mut Watch, walked: &Walked) -> Value {
    loop {
        let event = watch.next().expect("an event");
        if event["object"]["metadata"]["name"] == walked.name.as_str() {
            return event["object"].clone();
        }
    }
}

/// Every kind, every verb.
///
/// Proves: R-KIND-01, R-KIND-02, R-KIND-03, R-KIND-09, R-KIND-10, R-KIND-12, R-KIND-13, R-KIND-14,
/// R-KIND-28, R-COMMON-04.
#[test]
fn every_answer_says_what_it_is() {
    let server = with_widgets();
    let client = server.client();
    for walked in everything() {
        check_verbs(&client, &walked);
    }
    // The one kind that is not stored, and the kinds of lists that are empty.
    let statuses = read(&client, "/api/v1/componentstatuses");
    is(&statuses, "ComponentStatusList", "v1");
    is(&read(&client, "/api/v1/componentstatuses/etcd-0"), "ComponentStatus", "v1");
    assert_eq!(read(&client, PODS)["items"], json!([]));
    for path in ["/api", "/apis", "/apis/apps", "/apis/apps/v1", "/api/v1"] {
        assert!(read(&client, path)["kind"].is_string(), "{path}");
    }
    server.stop();
}

/// Proves: R-KIND-15, R-KIND-16, R-KIND-17, R-KIND-18, R-KIND-19, R-KIND-20, R-KIND-21, R-KIND-22,
/// R-META-01.
#[test]
fn every_resource_has_the_urls_of_its_scope() {
    let server = with_widgets();
    let client = server.client();
    namespace(&client, "other");
    for walked in everything().iter().filter(|walked| walked.resource != "namespaces") {
        let Walked { root, resource, name, sample, .. } = walked;
        let everywhere = format!("{root}/{resource}");
        let here = format!("{root}/namespaces/default/{resource}");
        let there = format!("{root}/namespaces/other/{resource}");
        let (own, wrong) =
            if walked.namespaced { (&here, &everywhere) } else { (&everywhere, &here) };
        let obj = made(&client, own, sample);
        let space = if walked.namespaced { json!("default") } else { Value::Null };
        assert_eq!(obj["metadata"]["namespace"], space, "{obj}");
        assert_eq!(obj["metadata"]["name"], name.as_str());
        assert_eq!(
            read(&client, &format!("{own}/{name}"))["metadata"]["uid"],
            obj["metadata"]["uid"]
        );
        let listed = |path: &str| names(&read(&client, path)).contains(&name.as_str());
        assert!(listed(&everywhere), "{everywhere}");
        assert_eq!(client.get(&format!("{wrong}/{name}")).status, 404, "{wrong}/{name}");
        if walked.namespaced {
            assert!(listed(&here) && !listed(&there), "{here}");
        } else {
            assert_eq!(client.get(&here).status, 404, "{here}");
        }
        assert_eq!(client.delete(&format!("{own}/{name}")).status, 200);
        let root_of_core = if walked.api_version == "v1" { "/apis" } else { "/api" };
        let moved = format!("{root_of_core}/{}/{resource}", walked.api_version);
        assert_eq!(client.get(&moved).status, 404, "{moved}");
    }
    let spaces = read(&client, "/api/v1/namespaces");
    assert!(names(&spaces).contains(&"other"), "{spaces}");
    assert_eq!(read(&client, "/api/v1/namespaces/other")["metadata"]["namespace"], Value::Null);
    server.stop();
}

/// Discovery says which verbs each subresource has; the others are 405.
///
/// Proves: R-KIND-09, R-KIND-23, R-KIND-24, R-KIND-25.
#[test]
fn subresources_are_below_their_object_and_have_the_published_verbs() {
    let server = with_widgets();
    let client = server.client();
    let methods = [
        ("get", "GET"),
        ("create", "POST"),
        ("update", "PUT"),
        ("patch", "PATCH"),
        ("delete", "DELETE"),
    ];
    let mut seen = 0;
    let roots =
        ["/api/v1", "/apis/apps/v1", "/apis/policy/v1", "/apis/batch/v1", "/apis/example.com/v1"];
    for root in roots {
        let found = read(&client, root);
        for resource in found["resources"].as_array().expect("resources") {
            let Some((plural, sub)) =
                resource["name"].as_str().and_then(|name| name.split_once('/'))
            else {
                continue;
            };
            // Proxies take any method.
            if sub == "proxy" {
                continue;
            }
            seen += 1;
            let scope = if resource["namespaced"] == true { "/namespaces/default" } else { "" };
            for (verb, method) in methods {
                let published =
                    resource["verbs"].as_array().is_some_and(|all| all.contains(&json!(verb)));
                let answer = client.call(
                    method,
                    &format!("{root}{scope}/{plural}/none/{sub}"),
                    "application/json",
                    None,
                );
                assert_eq!(answer.status != 405, published, "{verb} {resource}: {answer:?}");
            }
            // A subresource of a collection would be an object of that name.
            for scope in ["", "/namespaces/default"] {
                let answer = client.get(&format!("{root}{scope}/{plural}/*/{sub}"));
                assert!([400, 404, 405].contains(&answer.status), "{plural}/*/{sub}: {answer:?}");
            }
            let answer = client.get(&format!("{root}{scope}/{plural}/{sub}"));
            assert_eq!(answer.status, 404, "{plural}/{sub}: {answer:?}");
        }
    }
    assert!(seen > 20, "{seen}");
    made(&client, PODS, &pod("p"));
    assert_eq!(read(&client, &format!("{PODS}/p/status"))["kind"], "Pod");
    assert_eq!(read(&client, &format!("{PODS}/p"))["kind"], "Pod");
    server.stop();
}

/// Returns whether a text is a DNS label.
fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..64).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Proves: R-KIND-04, R-KIND-05, R-KIND-06, R-KIND-07, R-KIND-08, R-REF-05.
#[test]
fn served_groups_versions_resources_and_kinds_have_their_form() {
    let server = with_widgets();
    let client = server.client();
    let groups = read(&client, "/apis")["groups"].clone();
    let mut roots = vec![("".to_owned(), "/api/v1".to_owned())];
    for group in groups.as_array().expect("groups") {
        let name = group["name"].as_str().expect("a name");
        assert!(name.split('.').all(is_label), "{name}");
        let own = !name.contains('.') || name.ends_with(".k8s.io");
        assert!(own || name == "example.com", "{name}");
        for version in group["versions"].as_array().expect("versions") {
            assert!(version["version"].as_str().is_some_and(is_label), "{version}");
            roots.push((
                name.to_owned(),
                format!("/apis/{name}/{}", version["version"].as_str().unwrap_or_default()),
            ));
        }
    }
    let mut kinds: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
    for (group, root) in &roots {
        let mut plurals = BTreeSet::new();
        for resource in read(&client, root)["resources"].as_array().expect("resources") {
            let text = |member: &str| resource[member].as_str().unwrap_or_default().to_owned();
            let name = text("name");
            let kind = text("kind");
            assert!(plurals.insert(name.clone()), "{root} has {name} twice");
            let plural = name.split('/').next().unwrap_or_default();
            let lower = plural.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            assert!(lower && plural.ends_with('s'), "{name}");
            assert!(kind.starts_with(|c: char| c.is_ascii_uppercase()), "{kind}");
            assert!(kind.chars().all(|c| c.is_ascii_alphanumeric()), "{kind}");
            kinds.entry((group.clone(), kind)).or_default().insert(name);
        }
    }
    // A version with resources of its own beside another version, and kinds that several resources
    // have.
    let version = |root: &str| roots.iter().any(|(_, of)| of == root);
    assert!(version("/apis/autoscaling/v1") && version("/apis/autoscaling/v2"));
    let of_pods = &kinds[&("".to_owned(), "Pod".to_owned())];
    assert!(of_pods.contains("pods") && of_pods.contains("pods/status"), "{of_pods:?}");
    server.stop();
}

/// Proves: R-KIND-04, R-KIND-05, R-KIND-06, R-KIND-07, R-KIND-08.
#[test]
fn definitions_and_api_services_with_other_names_are_refused() {
    let server = server();
    let client = server.client();
    let check = |change: &dyn Fn(&mut Value), fields: &[&str]| {
        let mut definition = widget_definition();
        change(&mut definition);
        let plural = definition["spec"]["names"]["plural"].as_str().unwrap_or_default();
        let group = definition["spec"]["group"].as_str().unwrap_or_default();
        definition["metadata"]["name"] = json!(format!("{plural}.{group}"));
        invalid(&client.post(DEFINITIONS, &definition), fields);
    };
    check(&|d| d["spec"]["group"] = json!("Example.com"), &["metadata.name", "spec.group"]);
    check(&|d| d["spec"]["group"] = json!("ex_ample.com"), &["metadata.name", "spec.group"]);
    check(&|d| d["spec"]["group"] = json!("example"), &["spec.group"]);
    let approval = "metadata.annotations[api-approved.kubernetes.io]";
    check(&|d| d["spec"]["group"] = json!("example.k8s.io"), &[approval]);
    check(&|d| d["spec"]["group"] = json!("example.kubernetes.io"), &[approval]);
    check(
        &|d| d["spec"]["names"]["plural"] = json!("Widgets"),
        &["metadata.name", "spec.names.plural"],
    );
    check(
        &|d| d["spec"]["names"]["kind"] = json!("My_Widget"),
        &["spec.names.singular", "spec.names.kind", "spec.names.listKind"],
    );
    let version = ["spec.versions[0].name", "spec.version"];
    check(&|d| d["spec"]["versions"][0]["name"] = json!("V1"), &version);
    check(&|d| d["spec"]["versions"][0]["name"] = json!("v1.1"), &version);
    let service = |group: &str, version: &str| {
        json!({"metadata": {"name": format!("{version}.{group}")}, "spec": {
            "group": group, "version": version, "groupPriorityMinimum": 100, "versionPriority": 10,
            "service": {"name": "s", "namespace": "default"}, "insecureSkipTLSVerify": true}})
    };
    let services = "/apis/apiregistration.k8s.io/v1/apiservices";
    invalid(&client.post(services, &service("Bad.example.com", "v1")), &["spec.group"]);
    invalid(&client.post(services, &service("bad.example.com", "V1")), &["spec.version"]);
    // Two versions of one group, of which one is added later.
    let mut definition = widget_definition();
    define(&client, &definition);
    let mut second = definition["spec"]["versions"][0].clone();
    second["name"] = json!("v2");
    second["storage"] = json!(false);
    definition["spec"]["versions"] = json!([definition["spec"]["versions"][0], second]);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    let patch = json!({"spec": {"versions": definition["spec"]["versions"]}});
    assert_eq!(client.call("PATCH", &path, MERGE_PATCH, Some(&patch)).status, 200);
    client.poll("/apis/example.com/v2/widgets", |answer| answer.status == 200);
    assert_eq!(read(&client, "/apis/example.com/v1/widgets")["apiVersion"], "example.com/v1");
    server.stop();
}

/// What headers say is in the body, too.
///
/// Proves: R-KIND-27.
#[test]
fn headers_repeat_what_the_body_says() {
    let server = server();
    let client = server.client();
    create(&client, "a");
    let path = "/api/v1/namespaces/default/configmaps/a?fieldValidation=Bad";
    for answer in [
        client.get("/api/v1/namespaces/default/configmaps/none"),
        client.get("/api/v1/nowhere"),
        client.call("PUT", DEPLOYMENTS, "application/json", None),
        client.call("PUT", path, "application/json", None),
        client.get(&format!("{PODS}?resourceVersion=99999999&timeout=1s")),
    ] {
        assert_eq!(answer.body["code"], answer.status, "{answer:?}");
        let seconds =
            answer.header("retry-after").map(|text| text.parse::<u64>().expect("seconds"));
        assert_eq!(answer.body["details"]["retryAfterSeconds"].as_u64(), seconds, "{answer:?}");
    }
    refused(&client.get(&format!("{PODS}/p")), 404, "NotFound", "pods \"p\" not found");
    server.stop();
}
