//! APIServices: those of the server itself, those of other servers, and their validation.

use crate::http::{Client, Server};
use keelson::Keelson;
use serde_json::{Value, json};

const PATH: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const AUTOMANAGED: &str = "kube-aggregator.kubernetes.io/automanaged";

fn server() -> Server {
    Server::start_plain(Keelson::builder().in_memory().no_controllers())
}

fn remote(group: &str) -> Value {
    json!({
        "metadata": {"name": format!("v1.{group}")},
        "spec": {"group": group, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
            "insecureSkipTLSVerify": true, "service": {"name": "s", "namespace": "default"}}
    })
}

fn reason(service: &Value) -> &str {
    service["status"]["conditions"][0]["reason"].as_str().unwrap_or_default()
}

#[test]
fn built_in_group_versions_have_api_services() {
    let server = server();
    let client = server.client();
    let all = client.get(PATH).body;
    assert_eq!(all["items"].as_array().map(Vec::len), Some(21));
    let apps = client.get(&format!("{PATH}/v1.apps")).body;
    let spec = json!({
        "group": "apps", "version": "v1", "groupPriorityMinimum": 17800, "versionPriority": 15
    });
    assert_eq!(apps["spec"], spec);
    assert_eq!(apps["metadata"]["labels"], json!({AUTOMANAGED: "onstart"}));
    assert_eq!(reason(&apps), "Local");
    assert_eq!(client.get(&format!("{PATH}/v1.")).body["spec"]["groupPriorityMinimum"], 18000);
    server.stop();
}

#[test]
fn the_api_service_of_a_definition_is_created_kept_and_deleted_with_it() {
    let server = server();
    let client = server.client();
    let version = |name: &str, served: bool, storage: bool| {
        json!({"name": name, "served": served, "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object"}}})
    };
    let definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version("v1", true, true), version("v2", false, false)]}
    });
    assert_eq!(client.post(DEFINITIONS, &definition).status, 201);
    let path = format!("{PATH}/v1.example.com");
    let is_made = |uid: &Value| {
        let answer = client
            .poll(&path, |answer| answer.status == 200 && answer.body["metadata"]["uid"] != *uid);
        assert_eq!(answer.body["metadata"]["labels"], json!({AUTOMANAGED: "true"}));
        assert_eq!(answer.body["spec"]["versionPriority"], 100);
        answer.body["metadata"]["uid"].clone()
    };
    let uid = is_made(&Value::Null);
    assert_eq!(client.delete(&path).status, 200);
    is_made(&uid);
    let patch = json!({"spec": {"versionPriority": 5}});
    let answer = client.call("PATCH", &path, "application/merge-patch+json", Some(&patch));
    assert_eq!(answer.status, 200);
    client.poll(&path, |answer| answer.body["spec"]["versionPriority"] == 100);
    assert_eq!(client.get(&format!("{PATH}/v2.example.com")).status, 404, "it is not served");
    assert_eq!(client.delete(&format!("{DEFINITIONS}/things.example.com")).status, 200);
    client.poll(&path, |answer| answer.status == 404);
    server.stop();
}

#[test]
fn the_group_of_an_unavailable_api_service_is_listed_and_503() {
    let server = server();
    let client = server.client();
    assert_eq!(client.post(PATH, &remote("z.example.com")).status, 201);
    let path = format!("{PATH}/v1.z.example.com");
    let told = |why: &str, message: &str| {
        let answer = client.poll(&path, |answer| reason(&answer.body) == why);
        assert_eq!(answer.body["status"]["conditions"][0]["message"], message);
    };
    told("ServiceNotFound", "service/s in \"default\" is not present");
    let group = client.poll("/apis/z.example.com", |answer| answer.status == 200).body;
    assert_eq!(group["preferredVersion"]["groupVersion"], "z.example.com/v1");
    let unavailable = |path: &str| {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.body.as_str()), (503, Some("service unavailable\n")));
    };
    unavailable("/apis/z.example.com/v1");
    unavailable("/apis/z.example.com/v1/namespaces/default/things");
    assert_eq!(client.get("/apis/z.example.com/v2").status, 404);
    assert!(has_stale_group(&client), "aggregated discovery names it");
    let service =
        json!({"metadata": {"name": "s"}, "spec": {"ports": [{"name": "q", "port": 80}]}});
    assert_eq!(client.post("/api/v1/namespaces/default/services", &service).status, 201);
    told("ServicePortError", "service/s in \"default\" is not listening on port 443");
    let patch = json!({"spec": {"service": {"port": 80}}});
    client.call("PATCH", &path, "application/merge-patch+json", Some(&patch));
    told("EndpointsNotFound", "cannot find endpointslices for service/s in \"default\"");
    let patch = json!({"spec": {"service": null, "insecureSkipTLSVerify": null}});
    client.call("PATCH", &path, "application/merge-patch+json", Some(&patch));
    told("Local", "Local APIServices are always available");
    client.delete(&path);
    client.poll("/apis/z.example.com/v1", |answer| answer.status == 404);
    server.stop();
}

fn has_stale_group(client: &Client) -> bool {
    let accept = "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList\r\n";
    let list = client.request("GET", "/apis", accept, None).body;
    let wanted = json!({
        "metadata": {"name": "z.example.com"}, "versions": [{"version": "v1", "freshness": "Stale"}]
    });
    list["items"].as_array().is_some_and(|items| items.contains(&wanted))
}

#[test]
fn an_api_service_is_checked() {
    let server = server();
    let client = server.client();
    let check = |patch: Value, causes: &[&str]| {
        let mut service = remote("z.example.com");
        for (name, value) in patch.as_object().expect("members") {
            service["spec"][name] = value.clone();
        }
        let answer = client.post(&format!("{PATH}?dryRun=All"), &service).body;
        let found = answer["details"]["causes"].as_array().cloned().unwrap_or_default();
        let line = |cause: &Value| {
            let text = |name: &str| cause[name].as_str().unwrap_or_default().to_owned();
            format!("{}: {}", text("field"), text("message"))
        };
        let found: Vec<String> = found.iter().map(line).collect();
        assert_eq!(found, causes, "{patch}");
        if causes.is_empty() {
            assert_eq!(answer["spec"]["service"]["port"], 443);
            assert_eq!(answer["status"], json!({}));
        }
    };
    check(json!({}), &[]);
    check(
        json!({"group": "other"}),
        &["metadata.name: Invalid value: \"v1.z.example.com\": must be \
           `spec.version+\".\"+spec.group`: \"v1.other\""],
    );
    check(
        json!({"groupPriorityMinimum": 20001, "versionPriority": 0}),
        &[
            "spec.groupPriorityMinimum: Invalid value: 20001: must be positive and less than 20000",
            "spec.versionPriority: Invalid value: 0: must be positive and less than 1000",
        ],
    );
    check(
        json!({"service": {"port": 0}}),
        &[
            "spec.service.namespace: Required value",
            "spec.service.name: Required value",
            "spec.service.port: Invalid value: 0: port is not valid: must be between 1 and 65535, \
             inclusive",
        ],
    );
    check(
        json!({"caBundle": "YQ=="}),
        &[
            "spec.insecureSkipTLSVerify: Invalid value: true: may not be true if caBundle is present",
        ],
    );
    check(
        json!({"service": null, "caBundle": "YQ==", "insecureSkipTLSVerify": null}),
        &["spec.caBundle: Invalid value: \"1 bytes\": local APIServices may not have a caBundle"],
    );
    server.stop();
}
