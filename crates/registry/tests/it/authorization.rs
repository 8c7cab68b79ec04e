//! Verbs check that the permit covers them; roles that cannot be read grant nothing.

use crate::harness::Harness;
use keelson_auth::rbac::GROUP;
use keelson_auth::{Attributes, Authorizer, MASTERS, Permit, User};
use keelson_meta::{GroupVersionResource, Object, Value, value};
use keelson_registry::Subresource;
use keelson_registry::options::{
    DeleteOptions, Freshness, ListOptions, Patch, PatchForm, WatchOptions, WriteOptions,
};
use keelson_schema::decode::{self, Format};

/// Returns a permit of an administrator for this action only.
async fn permit(verb: &str, namespace: &str, name: &str) -> Permit {
    let attributes = Attributes {
        verb: verb.into(),
        gvr: GroupVersionResource::new("", "v1", "configmaps"),
        namespace: namespace.into(),
        name: name.into(),
        ..Attributes::default()
    };
    let user = User::default().with_group(MASTERS);
    Authorizer::default().authorize(user, attributes).await.expect("a permit")
}

/// Returns whether a future panics. A verb panics if the permit is for something else.
async fn panics<F: Future + Send + 'static>(work: F) -> bool
where
    F::Output: Send,
{
    tokio::spawn(work).await.is_err_and(|error| error.is_panic())
}

#[tokio::test]
async fn each_verb_refuses_a_permit_for_something_else() {
    let harness = Harness::open().await;
    let registry = harness.registry;
    let one = registry.target("", "configmaps", "default", "a");
    let all = registry.target("", "configmaps", "default", "");
    let wrong = [("get", "default", "b"), ("update", "default", "a"), ("watch", "other", "")];
    for (verb, namespace, name) in wrong {
        let permit = permit(verb, namespace, name).await;
        let run = |work: &'static str| {
            let registry = registry.clone();
            let permit = permit.clone();
            let one = one.clone();
            let all = all.clone();
            let body = b"{\"metadata\":{\"name\":\"a\"}}";
            let body =
                decode::decode(one.schema(), body, Format::Json, &|_| true).expect("an object");
            panics(async move {
                let write = WriteOptions::default();
                let list = ListOptions::default();
                let delete = DeleteOptions::default();
                let patch = Patch { form: PatchForm::Merge, body: "{}".into() };
                let part = Subresource::Status;
                match work {
                    "get" => drop(registry.get(&permit, &one, Freshness::Latest).await),
                    "list" => drop(registry.list(&permit, &all, &list).await),
                    "watch" => drop(registry.watch(&permit, &all, &WatchOptions::default()).await),
                    "create" => drop(registry.create(&permit, &all, body, &write).await),
                    "update" => drop(registry.update(&permit, &one, part, body, &write).await),
                    "add" => drop(registry.add(&permit, &all, body.object, &write).await),
                    "modify" => {
                        let make = |_: Option<&Object>| Err(one.not_found());
                        drop(registry.modify(&permit, &one, part, &make, &write).await);
                    }
                    "patch" => drop(registry.patch(&permit, &one, part, &patch, &write).await),
                    "delete" => drop(registry.delete(&permit, &one, &delete, &mut vec![]).await),
                    _ => drop(
                        registry
                            .delete_collection(&permit, &all, &list, &delete, &mut vec![])
                            .await,
                    ),
                }
            })
        };
        let reads = ["get", "list", "watch"];
        let writes = ["create", "add", "update", "modify", "patch", "delete", "collection"];
        for work in reads.into_iter().chain(writes) {
            assert!(run(work).await, "{work} with a permit for {verb} {namespace}/{name}");
        }
    }
    let right = permit("get", "default", "a").await;
    assert!(!panics(async move { registry.get(&right, &one, Freshness::Latest).await }).await);
}

async fn make(harness: &Harness, resource: &str, value: Value) {
    let target = harness.registry.target(GROUP, resource, "default", "");
    let mut body = vec![];
    keelson_schema::json::write_value(&value, &mut body);
    let body = decode::decode(target.schema(), &body, Format::Json, &|_| true).expect("an object");
    let options = WriteOptions::default();
    harness.registry.create(&harness.permit, &target, body, &options).await.expect("a write");
}

#[tokio::test]
async fn a_role_or_binding_that_cannot_be_read_grants_nothing() {
    let harness = Harness::open().await;
    let rule = value!({"verbs": ["get"], "apiGroups": [""], "resources": ["configmaps"]});
    make(&harness, "roles", value!({"metadata": {"name": "r"}, "rules": [(rule)]})).await;
    let role = value!({"kind": "Role", "name": "r", "apiGroup": GROUP});
    let bob = value!({"kind": "User", "name": "bob", "apiGroup": GROUP});
    let bind = value!({"metadata": {"name": "b"}, "roleRef": (role), "subjects": [(bob)]});
    make(&harness, "rolebindings", bind).await;
    let user = User { name: "bob".into(), ..User::default() };
    let attributes = Attributes {
        verb: "get".into(),
        gvr: GroupVersionResource::new("", "v1", "configmaps"),
        namespace: "default".into(),
        ..Attributes::default()
    };
    let rbac = harness.registry.options.authorizer.rbac();
    let decide = async || {
        let decision = rbac.decide(&user, &attributes).await;
        (decision.is_allowed(), decision.reason.to_string())
    };
    let granted = "RBAC: allowed by RoleBinding \"b/default\" of Role \"r\" to User \"bob\"";
    assert_eq!(decide().await, (true, granted.to_owned()));
    let read = |key: &str| {
        let kind = harness.registry.kind(GROUP, key).expect("a kind");
        let entry = harness.registry.cache.resource(&kind.prefix).expect("a resource");
        let name = if key == "roles" { "default/r" } else { "default/b" };
        kind.decode(&entry.get(name).expect("an object")).expect("it can be read")
    };
    let role: Object = read("roles");
    let binding: Object = read("rolebindings");
    harness.put_raw("/registry/roles/default/r", "garbage").await;
    let missing = "RBAC: role.rbac.authorization.k8s.io \"r\" not found";
    assert_eq!(decide().await, (false, missing.to_owned()));
    let put = async |resource: &str, key: &'static str, object: &Object| {
        let kind = harness.registry.kind(GROUP, resource).expect("a kind");
        let record = kind.record(&mut object.clone());
        harness.put_raw(key, record).await;
    };
    put("roles", "/registry/roles/default/r", &role).await;
    assert_eq!(decide().await, (true, granted.to_owned()));
    harness.put_raw("/registry/rolebindings/default/b", "garbage").await;
    assert_eq!(decide().await, (false, String::new()));
    put("rolebindings", "/registry/rolebindings/default/b", &binding).await;
    assert_eq!(decide().await, (true, granted.to_owned()));
}
