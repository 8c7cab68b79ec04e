//! Servers behind this one: a second server serves the group of an APIService.

mod discovery;
mod far_side;
pub mod open_api;
mod raw;
pub mod scripted;

use crate::certificates::client_files;
use crate::front_proxy;
use crate::http::{Client, POLL_TIMEOUT, Response, Server, without_controllers};
use keelson::Builder;
use keelson_testkit::api::Api;
use serde_json::{Value, json};
use std::time::Instant;
use tempfile::TempDir;

const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const THINGS: &str = "/apis/behind.example/v1/namespaces/default/things";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const AGGREGATED: &str =
    "Accept: application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList\r\n";

/// Makes the service `behind`, which leads to this host.
pub fn external_service(client: &Client) {
    let service = json!({"metadata": {"name": "behind"}, "spec": {
        "type": "ExternalName", "externalName": "localhost"}});
    let created = client.post("/api/v1/namespaces/default/services", &service);
    assert_eq!(created.status, 201);
}

/// Two servers: `front` passes requests for `behind.example/v1` on to `behind`.
struct World {
    front: Server,
    behind: Server,
    /// A client of `behind`.
    far: Api,
    _dir: TempDir,
}

impl World {
    fn start() -> World {
        World::start_with(without_controllers())
    }

    fn start_with(front: Builder) -> World {
        let dir = tempfile::tempdir().expect("a folder");
        let (authority, certificate) = client_files(dir.path(), "aggregator");
        let mut builder = without_controllers().token("t", "admin");
        let proxies = dir.path().join("ca.crt");
        std::fs::write(&proxies, authority).expect("written");
        builder.authentication.front_proxy = Some(front_proxy::options(&proxies, &["aggregator"]));
        let behind = Server::start(builder);
        let api = Api::unchecked(behind.keelson.address(), Some("t".to_owned())).expect("a client");
        let definition = json!({
            "metadata": {"name": "things.behind.example"},
            "spec": {"group": "behind.example", "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing", "shortNames": ["th"]},
                "versions": [{"name": "v1", "served": true, "storage": true,
                    "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object",
                        "x-kubernetes-preserve-unknown-fields": true}}}]}
        });
        assert_eq!(api.post(DEFINITIONS, &definition).expect("an answer").code, 201);
        let front = front.with(|front| front.far_side.proxy_client_certificate = Some(certificate));
        let front = Server::start_plain(front);
        let world = World { front, behind, far: api, _dir: dir };
        let client = world.front.client();
        external_service(&client);
        let port = world.behind.keelson.address().port();
        let registered = json!({"metadata": {"name": "v1.behind.example"}, "spec": {
            "group": "behind.example", "version": "v1", "groupPriorityMinimum": 100,
            "versionPriority": 10, "insecureSkipTLSVerify": true,
            "service": {"name": "behind", "namespace": "default", "port": port}}});
        assert_eq!(client.post(SERVICES, &registered).status, 201);
        world
    }

    /// Returns a client, once requests are passed on.
    fn client(&self) -> Client {
        let client = self.front.client();
        client.poll(&format!("{SERVICES}/v1.behind.example"), |answer| {
            answer.body["status"]["conditions"][0]["status"] == "True"
        });
        client.poll("/apis/behind.example/v1", |answer| answer.status == 200);
        client
    }

    fn stop(self) {
        self.front.stop();
        self.behind.stop();
    }
}

#[test]
fn requests_reach_the_server_behind() {
    let world = World::start();
    let client = world.client();
    let service = client.get(&format!("{SERVICES}/v1.behind.example")).body;
    let condition = &service["status"]["conditions"][0];
    assert_eq!(condition["reason"], "Passed");
    assert_eq!(condition["message"], "all checks passed");
    let made = client.post(
        THINGS,
        &json!({"apiVersion": "behind.example/v1", "kind": "Thing",
        "metadata": {"name": "a"}, "spec": {"size": 1}}),
    );
    assert_eq!((made.status, &made.body["spec"]["size"]), (201, &json!(1)));
    // A server that takes dots for a way would answer for another path than the permitted one.
    let name = format!("{THINGS}/..");
    let direct = world.far.get(&name).expect("an answer").code;
    assert_eq!((direct, client.get(&name).status), (400, 404));
    let mut watch = client.open_watch(&format!("{THINGS}?watch=true"));
    assert_eq!(watch.next_types_and_names(1), [("ADDED".to_owned(), "a".to_owned())]);
    let patched = client.call(
        "PATCH",
        &format!("{THINGS}/a"),
        "application/merge-patch+json",
        Some(&json!({"spec": {"size": 2}})),
    );
    assert_eq!((patched.status, &patched.body["spec"]["size"]), (200, &json!(2)));
    assert_eq!(watch.next_types_and_names(1), [("MODIFIED".to_owned(), "a".to_owned())]);
    assert_eq!(client.get(&format!("{THINGS}/missing")).status, 404);
    assert_eq!(client.delete(&format!("{THINGS}/a")).status, 200);
    world.stop();
}

#[test]
fn the_server_behind_knows_the_user() {
    let world = World::start();
    let client = world.client();
    // The front allows it, and the server behind refuses it: it decides for itself.
    let role = json!({"metadata": {"name": "all-things"}, "rules": [
        {"apiGroups": ["behind.example"], "resources": ["*"], "verbs": ["*"]}]});
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    assert_eq!(client.post(&format!("{rbac}/clusterroles"), &role).status, 201);
    let binding = json!({"metadata": {"name": "all-things"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all-things"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "bob"}]});
    assert_eq!(client.post(&format!("{rbac}/clusterrolebindings"), &binding).status, 201);
    let as_bob =
        "Impersonate-User: bob\r\nX-Remote-User: admin\r\nX-Remote-Group: system:masters\r\n";
    let refused = client.send_bytes(&format!("GET {THINGS}"), as_bob, b"");
    let message = refused.body["message"].as_str().unwrap_or_default();
    assert_eq!(refused.status, 403);
    assert!(message.contains("User \"bob\" cannot list resource \"things\""), "{message}");
    world.stop();
}

#[test]
fn discovery_says_what_the_server_behind_serves() {
    let world = World::start();
    let client = world.client();
    let list = client.get("/apis/behind.example/v1").body;
    assert_eq!(list["resources"][0]["name"], "things");
    let group = |answer: &Value| {
        let items = answer["items"].as_array().cloned().unwrap_or_default();
        items.into_iter().find(|item| item["metadata"]["name"] == "behind.example")
    };
    let answer = client.send_bytes("GET /apis", AGGREGATED, b"");
    let version = group(&answer.body).expect("the group")["versions"][0].clone();
    assert_eq!(version["freshness"], "Current");
    let resource = &version["resources"][0];
    assert_eq!(resource["resource"], "things");
    assert_eq!(
        resource["responseKind"],
        json!({"group": "behind.example", "version": "v1", "kind": "Thing"})
    );
    assert_eq!(resource["shortNames"], json!(["th"]));
    assert_eq!(resource["subresources"][0]["subresource"], "status");
    world.behind.stop();
    // The condition names what fails, and requests are answered at once.
    let down = client.poll(&format!("{SERVICES}/v1.behind.example"), |answer| {
        answer.body["status"]["conditions"][0]["status"] == "False"
    });
    let condition = &down.body["status"]["conditions"][0];
    assert_eq!(condition["reason"], "FailedDiscoveryCheck");
    let message = condition["message"].as_str().unwrap_or_default();
    assert!(message.contains("failing or missing response from https://localhost:"), "{message}");
    client.poll(THINGS, |answer| answer.status == 503 && answer.body == "service unavailable\n");
    let answer = client.send_bytes("GET /apis", AGGREGATED, b"");
    let version = group(&answer.body).expect("the group")["versions"][0].clone();
    assert_eq!(version, json!({"version": "v1", "freshness": "Stale"}));
    world.front.stop();
}

#[test]
fn open_api_documents_describe_what_the_server_behind_serves() {
    let world = World::start();
    let client = world.client();
    const V3: &str = "apis/behind.example/v1";
    let index = client.poll("/openapi/v3", |answer| answer.body["paths"][V3].is_object()).body;
    let url = index["paths"][V3]["serverRelativeURL"].as_str().expect("a URL");
    assert!(url.starts_with("/openapi/v3/apis/behind.example/v1?hash="), "{url}");
    assert!(index["paths"]["apis/apps/v1"].is_object());
    let document = client.get(url);
    let schemas = &document.body["components"]["schemas"];
    assert_eq!(schemas["example.behind.v1.Thing"]["type"], "object");
    const LIST: &str = "/apis/behind.example/v1/namespaces/{namespace}/things";
    let v2 = client.get("/openapi/v2").body;
    let kind = &v2["paths"][LIST]["get"]["x-kubernetes-group-version-kind"]["kind"];
    assert_eq!(kind, "Thing");
    let list = &v2["definitions"]["example.behind.v1.ThingList"]["properties"];
    // Both servers describe metadata alike: one type is enough.
    let metadata = "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta";
    assert_eq!(list["metadata"]["$ref"], metadata, "{list}");
    assert!(v2["paths"]["/apis/apps/v1/deployments"].is_object());
    let names = v2["definitions"].as_object().expect("definitions");
    assert!(names.keys().all(|name| !name.ends_with("_v2")), "nothing is there twice");
    // They go with the APIService.
    assert_eq!(client.delete(&format!("{SERVICES}/v1.behind.example")).status, 200);
    client.poll("/openapi/v3", |answer| answer.body["paths"][V3].is_null());
    assert!(client.get("/openapi/v2").body["paths"][LIST].is_null());
    assert_eq!(client.get(&format!("/openapi/v3/{V3}")).status, 404);
    world.stop();
}

/// Returns whether aggregated discovery says that the group is up to date.
fn is_current(client: &Client) -> bool {
    let answer = client.send_bytes("GET /apis", AGGREGATED, b"");
    let mut items = answer.body["items"].as_array().into_iter().flatten();
    let group = items.find(|item| item["metadata"]["name"] == "behind.example");
    group.is_some_and(|group| group["versions"][0]["freshness"] == "Current")
}

fn wait_for(client: &Client, holds: impl Fn(&Client) -> bool) {
    let deadline = Instant::now() + POLL_TIMEOUT;
    while !holds(client) {
        assert!(Instant::now() < deadline, "{}", client.get("/apis").body);
        std::thread::yield_now();
    }
}

#[test]
fn the_content_of_a_namespace_at_the_server_behind_goes_with_it() {
    let controllers = vec!["namespace-controller".to_owned()];
    let front = without_controllers();
    let world = World::start_with(front.with(|front| front.controllers.selected = controllers));
    let client = world.client();
    wait_for(&client, is_current);
    let things = |namespace: &str| format!("/apis/behind.example/v1/namespaces/{namespace}/things");
    for namespace in ["one", "two"] {
        let object = json!({"metadata": {"name": namespace}});
        assert_eq!(client.post("/api/v1/namespaces", &object).status, 201);
        let far = world.far.post("/api/v1/namespaces", &object).expect("an answer");
        assert_eq!(far.code, 201, "{}", far.body);
        let thing = json!({"apiVersion": "behind.example/v1", "kind": "Thing",
            "metadata": {"name": "a"}});
        assert_eq!(client.post(&things(namespace), &thing).status, 201);
    }
    let names = |namespace: &str| {
        let list = world.far.get(&things(namespace)).expect("an answer").body;
        list["items"].as_array().map(Vec::len)
    };
    assert_eq!(client.delete("/api/v1/namespaces/one").status, 200);
    client.poll("/api/v1/namespaces/one", |answer| answer.status == 404);
    assert_eq!((names("one"), names("two")), (Some(0), Some(1)));
    // What a server that is gone has of a namespace is not known: the namespace stays, and says
    // why.
    world.behind.stop();
    wait_for(&client, |client| !is_current(client));
    assert_eq!(client.delete("/api/v1/namespaces/two").status, 200);
    let conditions = |answer: &Response| answer.body["status"]["conditions"][0].clone();
    let stays = client
        .poll("/api/v1/namespaces/two", |answer| conditions(answer)["reason"] == "DiscoveryFailed");
    let condition = conditions(&stays);
    assert_eq!(condition["type"], "NamespaceDeletionDiscoveryFailure");
    assert_eq!(condition["status"], "True");
    assert_eq!(
        condition["message"],
        "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server \
         APIs: behind.example/v1: stale GroupVersion discovery: behind.example/v1"
    );
    // Without the APIService nothing is waited for.
    client.delete(&format!("{SERVICES}/v1.behind.example"));
    client.poll("/api/v1/namespaces/two", |answer| answer.status == 404);
    world.front.stop();
}
