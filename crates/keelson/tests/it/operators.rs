//! Operators of a custom resource, with kube-rs and with the official client
//! for Python (`clients/greeter.py`). Both use the definition in `clients/greeter.yaml`.

use crate::clients::{folder, kube_client, run_python};
use crate::http::{POLL_TIMEOUT, Server};
use futures_util::{StreamExt, TryStreamExt};
use keelson::Keelson;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    WatchEvent, WatchParams,
};
use kube::core::Object;
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

const FINALIZER: &str = "operators.example.com/greeting";
const GREETINGS: usize = 5;

type Greeting = Object<Value, Value>;

#[test]
fn an_operator_in_python_works() {
    let Some(printed) = run_python("greeter.py") else { return };
    assert_eq!(printed, "5 released");
}

#[test]
fn an_operator_with_kube_rs_works() {
    let server = Server::start(Keelson::builder().no_controllers());
    server.block_on(async {
        let client = kube_client(&server).await;
        let definitions = established(&client).await;
        let api = greetings(&client);
        let operator = tokio::spawn(operate(api.clone()));
        timeout(POLL_TIMEOUT, use_greetings(&api)).await.expect("the operator works in time");
        let released = timeout(POLL_TIMEOUT, operator).await.expect("all are released");
        assert_eq!(released.expect("the operator does not panic"), GREETINGS);
        let name = "greetings.operators.example.com";
        definitions.delete(name, &DeleteParams::default()).await.expect("a deletion");
        wait_until("the resource is gone", async || {
            let listed = api.list(&ListParams::default()).await;
            matches!(listed, Err(kube::Error::Api(status)) if status.code == 404)
        })
        .await;
    });
    server.stop();
}

fn greetings(client: &Client) -> Api<Greeting> {
    let resource = ApiResource {
        group: "operators.example.com".into(),
        version: "v1".into(),
        api_version: "operators.example.com/v1".into(),
        kind: "Greeting".into(),
        plural: "greetings".into(),
    };
    Api::namespaced_with(client.clone(), "default", &resource)
}

/// Creates the definition and waits, by a watch, until it is established.
async fn established(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "apiextensions.k8s.io".into(),
        version: "v1".into(),
        api_version: "apiextensions.k8s.io/v1".into(),
        kind: "CustomResourceDefinition".into(),
        plural: "customresourcedefinitions".into(),
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let text = std::fs::read(folder().join("greeter.yaml")).expect("the definition");
    let parsed = keelson_schema::yaml::parse(std::str::from_utf8(&text).expect("text"));
    let mut json = vec![];
    keelson_schema::json::write_value(&parsed.expect("YAML").value, &mut json);
    let definition = serde_json::from_slice(&json).expect("an object");
    let made = api.create(&PostParams::default(), &definition).await.expect("a definition");
    let since = made.resource_version().expect("a version");
    let watched = api.watch(&WatchParams::default(), &since).await.expect("a watch");
    let mut events = watched.boxed();
    let is_established = |conditions: &Value| {
        let conditions = conditions.as_array().map(Vec::as_slice).unwrap_or_default();
        conditions.iter().any(|one| one["type"] == "Established" && one["status"] == "True")
    };
    loop {
        let event = timeout(POLL_TIMEOUT, events.try_next()).await.expect("an event in time");
        if let WatchEvent::Modified(object) = event.expect("an event").expect("a further event")
            && is_established(&object.data["status"]["conditions"])
        {
            return api;
        }
    }
}

/// Runs the operator: adds a finalizer, writes the status and removes the finalizer, until all
/// objects are deleted.
async fn operate(api: Api<Greeting>) -> usize {
    let watched = api.watch(&WatchParams::default(), "0").await.expect("a watch");
    let mut events = watched.boxed();
    let mut released = 0;
    while released < GREETINGS {
        match events.try_next().await.expect("an event").expect("a further event") {
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                reconcile(&api, object).await;
            }
            WatchEvent::Deleted(_) => released += 1,
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(status) => panic!("{status:?}"),
        }
    }
    released
}

async fn reconcile(api: &Api<Greeting>, object: Greeting) {
    let name = object.name_any();
    let params = PatchParams::default();
    let mut finalizers = object.finalizers().to_vec();
    let is_held = finalizers.iter().any(|held| held == FINALIZER);
    let generation = object.metadata.generation.expect("a generation");
    let status = object.status.unwrap_or_default();
    let done = if object.metadata.deletion_timestamp.is_some() {
        finalizers.retain(|held| held != FINALIZER);
        let patch = json!({"metadata": {"finalizers": finalizers}});
        api.patch(&name, &params, &Patch::Merge(&patch)).await
    } else if !is_held {
        finalizers.push(FINALIZER.to_owned());
        let patch = json!({"metadata": {"finalizers": finalizers}});
        api.patch(&name, &params, &Patch::Merge(&patch)).await
    } else if status["observedGeneration"] != generation {
        let part = |name: &str| object.spec[name].as_str().expect("text").to_owned();
        let message = format!("{}, {}", part("words"), part("whom"));
        let status = json!({"message": message, "observedGeneration": generation});
        let patch = Patch::Merge(json!({"status": status}));
        api.patch_status(&name, &params, &patch).await
    } else {
        return;
    };
    done.unwrap_or_else(|error| panic!("{name}: {error}"));
}

/// Acts as a user: creates objects, waits for their status, changes one, and deletes all.
async fn use_greetings(api: &Api<Greeting>) {
    let resource_of = |name: &str, whom: &str| -> Greeting {
        let spec = json!({"whom": whom});
        serde_json::from_value(json!({"apiVersion": "operators.example.com/v1",
            "kind": "Greeting", "metadata": {"name": name}, "spec": spec}))
        .expect("an object")
    };
    let names: Vec<String> = (0..GREETINGS).map(|number| format!("g{number}")).collect();
    for name in &names {
        let made = api.create(&PostParams::default(), &resource_of(name, name)).await;
        assert_eq!(made.expect("a new object").spec["words"], "Hello");
    }
    for whom in ["nobody", "somebody with a long name"] {
        let made = api.create(&PostParams::default(), &resource_of("bad", whom)).await;
        let refused = made.expect_err("it is not valid");
        assert!(matches!(&refused, kube::Error::Api(status) if status.code == 422), "{refused}");
    }
    for name in &names {
        let expected = format!("Hello, {name}");
        wait_until("an object has its status", async || message(api, name).await == expected).await;
    }
    let patch = json!({"spec": {"words": "Good day"}});
    let changed = api.patch("g0", &PatchParams::default(), &Patch::Merge(&patch)).await;
    assert_eq!(changed.expect("a change").metadata.generation, Some(2));
    wait_until("the change is seen", async || message(api, "g0").await == "Good day, g0").await;
    for name in &names {
        let deleted = api.delete(name, &DeleteParams::default()).await.expect("a deletion");
        let held = deleted.left().expect("the finalizer holds it");
        assert!(held.metadata.deletion_timestamp.is_some());
    }
    wait_until("all are gone", async || {
        api.list(&ListParams::default()).await.expect("a list").items.is_empty()
    })
    .await;
}

async fn message(api: &Api<Greeting>, name: &str) -> String {
    let object = api.get_status(name).await.expect("an object");
    object.status.unwrap_or_default()["message"].as_str().unwrap_or_default().to_owned()
}

/// Polls until a condition holds.
async fn wait_until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + POLL_TIMEOUT;
    while !holds().await {
        assert!(Instant::now() < deadline, "{what}");
        tokio::task::yield_now().await;
    }
}
