//! Hooks: which ones a write calls, in which order, and with which permit.

use crate::gate::Gate;
use crate::harness::default_options;
use keelson_auth::{Attributes, Authorizer, MASTERS, Permit, User};
use keelson_meta::{Failure, GroupVersionResource, Object, Status, Value, value};
use keelson_registry::hooks::{
    Action, ActionRow, Charge, Claim, Claims, Ending, Guard, Hooks, KindHooks, Quotas,
};
use keelson_registry::options::{DeleteOptions, WriteOptions};
use keelson_registry::{
    ActionRequest, ActionResponse, NewObject, Registry, Subresource, SystemClock, Target, Write,
};
use keelson_store::{BoxFuture, Embedded, Store, WriteError};
use std::sync::{Arc, Mutex};

/// The calls of hooks, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn note(&self, what: impl Into<String>) {
        self.0.lock().expect("no test panics here").push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().expect("no test panics here"))
    }
}

/// All hooks of ConfigMaps. The hook that `data.refuse` names refuses the object.
#[derive(Clone)]
struct RecordingHooks(Log);

impl RecordingHooks {
    fn asked(&self, what: &str, obj: &Object) -> Result<(), Failure> {
        self.0.note(what);
        match obj.str_at(&["data", "refuse"]) == what {
            true => Err(Status::bad_request(what)),
            false => Ok(()),
        }
    }
}

impl Guard for RecordingHooks {
    fn check<'a>(
        &'a self,
        _registry: &'a Registry,
        _write: &'a Write<'a>,
        obj: &'a Object,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move { self.asked("guard", obj) })
    }
}

impl Claims for RecordingHooks {
    fn claim<'a>(
        &'a self,
        _registry: &'a Registry,
        obj: &'a mut Object,
        _old: Option<&'a Object>,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Claim>>, Failure>> {
        Box::pin(async move {
            self.asked("claim", obj)?;
            obj.object_mut("data").insert("given", "it");
            Ok((!dry_run).then(|| Box::new(self.clone()) as Box<dyn Claim>))
        })
    }

    fn refused<'a>(
        &'a self,
        _registry: &'a Registry,
        _obj: &'a Object,
        _old: Option<&'a Object>,
        _dry_run: bool,
    ) -> BoxFuture<'a, Option<Failure>> {
        Box::pin(async move { Some(Status::bad_request("refused")) })
    }

    fn release<'a>(&'a self, _registry: &'a Registry, gone: &'a Object) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.0.note(format!("release {}", gone.name())) })
    }
}

impl Claim for RecordingHooks {
    fn begin(&mut self) {
        self.0.note("begin");
    }

    fn end<'a>(self: Box<Self>, _registry: &'a Registry, ending: Ending) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.0.note(format!("{ending:?}")) })
    }
}

impl Quotas for RecordingHooks {
    fn may_apply(&self, _registry: &Registry, write: &Write<'_>, _obj: &Object) -> bool {
        write.target.gvr().resource == "configmaps"
    }

    fn charge<'a>(
        &'a self,
        _registry: &'a Registry,
        _write: &'a Write<'a>,
        obj: &'a Object,
    ) -> BoxFuture<'a, Result<Box<dyn Charge>, Failure>> {
        Box::pin(async move {
            self.asked("charge", obj)?;
            Ok(Box::new(self.clone()) as Box<dyn Charge>)
        })
    }

    fn recalculate<'a>(
        &'a self,
        _registry: &'a Registry,
        _permit: &'a Permit,
        _namespace: &'a str,
        _name: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move { Ok(()) })
    }
}

impl Charge for RecordingHooks {
    fn refund<'a>(self: Box<Self>, _registry: &'a Registry) -> BoxFuture<'a, ()> {
        Box::pin(async move { self.0.note("refund") })
    }
}

impl Action for RecordingHooks {
    fn act<'a>(
        &'a self,
        req: ActionRequest<'a>,
        body: Object,
    ) -> BoxFuture<'a, Result<ActionResponse, Failure>> {
        Box::pin(async move {
            self.0.note(format!("{} is {}", req.target.name, body.str_at(&["posted"])));
            let object = req.read(req.target).await?;
            Ok(ActionResponse { object: Some(object), warnings: vec![] })
        })
    }
}

async fn open() -> (Arc<Registry>, Log) {
    open_over(Embedded::in_memory()).await
}

async fn open_over(store: Arc<dyn Store>) -> (Arc<Registry>, Log) {
    let log = Log::default();
    let noting = Arc::new(RecordingHooks(log.clone()));
    let action: Arc<dyn Action> = noting.clone();
    let kind = KindHooks {
        claims: Some(noting.clone()),
        guard: Some(noting.clone()),
        actions: vec![ActionRow { name: "stamp", resource: Some("stamps"), action }],
        ..KindHooks::default()
    };
    let hooks = Hooks {
        kinds: vec![("", "configmaps", Arc::new(kind))],
        quotas: Some(noting),
        ..Hooks::default()
    };
    let opened = Registry::open(store, Box::new(SystemClock), default_options(), hooks).await;
    let registry = opened.expect("an empty store opens");
    let namespace = registry.target("", "namespaces", "", "default");
    let object = value!({"metadata": {"name": "default"}});
    let permit = Permit::internal("test");
    registry.create_if_absent(&permit, &namespace, object, "test").await.expect("a namespace");
    (registry, log)
}

/// Returns the permit of an administrator for this action on the ConfigMap.
async fn permit(verb: &str, resource: &str, subresource: &str, name: &str) -> Permit {
    let attributes = Attributes {
        verb: verb.into(),
        gvr: GroupVersionResource::new("", "v1", resource),
        subresource: subresource.into(),
        namespace: "default".into(),
        name: name.into(),
        ..Attributes::default()
    };
    let user = User::default().with_group(MASTERS);
    Authorizer::default().authorize(user, attributes).await.expect("a permit")
}

fn target(registry: &Registry) -> Target {
    registry.target("", "configmaps", "default", "a")
}

fn object(registry: &Registry, data: Value) -> Object {
    let object = value!({"metadata": {"name": "a", "namespace": "default"}, "data": data});
    let mut object = Object::from_value(object).expect("a map");
    object.set_gvk(&target(registry).schema().gvk);
    object
}

async fn add(registry: &Registry, data: Value, dry_run: bool) -> Result<(), Failure> {
    let permit = permit("create", "configmaps", "", "").await;
    let options = WriteOptions { dry_run, ..WriteOptions::default() };
    let all = registry.target("", "configmaps", "default", "");
    registry.add(&permit, &all, object(registry, data), &options).await.map(drop)
}

#[tokio::test]
async fn a_create_is_guarded_charged_and_allocated_before_it_is_stored() {
    let (registry, log) = open().await;
    let none: [&str; 0] = [];
    assert_eq!(log.take(), none);
    let refused = |by: &str| value!({"refuse": by});
    let check = |at: &str, result: Result<(), Failure>, code: u16, want: &[&str]| {
        assert_eq!(
            (result.map_or_else(|status| status.code, |()| 201), log.take()),
            (code, want.iter().map(|what| (*what).to_owned()).collect()),
            "{at}"
        );
    };
    check("guard", add(&registry, refused("guard"), false).await, 400, &["guard"]);
    check("charge", add(&registry, refused("charge"), false).await, 400, &["guard", "charge"]);
    let want = ["guard", "charge", "claim", "refund"];
    check("claim", add(&registry, refused("claim"), false).await, 400, &want);
    check("dry run", add(&registry, value!({}), true).await, 201, &want[..3]);
    let want = ["guard", "charge", "claim", "begin", "Stored"];
    check("stored", add(&registry, value!({}), false).await, 201, &want);
    let entry = registry.entry(&target(&registry)).expect("readable").expect("it is stored");
    assert!(entry.has_text("given"), "{entry:?}");
    let want = ["guard", "charge", "claim", "begin", "NotStored", "refund"];
    check("again", add(&registry, value!({}), false).await, 409, &want);
    let permit = permit("delete", "configmaps", "", "a").await;
    let options = DeleteOptions::default();
    let gone = registry.delete(&permit, &target(&registry), &options, &mut vec![]).await;
    check("delete", gone.map(drop), 201, &["release a"]);
}

#[tokio::test]
async fn a_claim_is_kept_unless_the_object_is_certainly_not_stored() {
    let gate = Gate::new("/registry/configmaps/");
    let (registry, log) = open_over(gate.clone()).await;
    let source = || Arc::new(std::fmt::Error);
    let cases = [
        (WriteError::Unknown { source: source() }, 500, "Unknown"),
        (WriteError::Failed { source: source() }, 500, "Unknown"),
        (WriteError::Stopped { source: source() }, 500, "Unknown"),
        (WriteError::Refused { source: source() }, 503, "NotStored"),
        (WriteError::Closed, 500, "NotStored"),
    ];
    for (error, code, ending) in cases {
        log.take();
        gate.fail_next(error.clone());
        let refused = add(&registry, value!({}), false).await.expect_err("the store fails");
        assert_eq!(refused.code, code, "{error}");
        assert_eq!(log.take()[3..5], ["begin", ending], "{error}");
    }
    add(&registry, value!({}), false).await.expect("it is stored");
}

#[tokio::test]
async fn an_update_is_guarded_charged_and_allocated() {
    let (registry, log) = open().await;
    add(&registry, value!({}), false).await.expect("it is stored");
    log.take();
    let permit = permit("update", "configmaps", "", "a").await;
    let change = |live: Option<&Object>| {
        let mut object = live.cloned().expect("it is there");
        object.object_mut("data").insert("new", "1");
        Ok(NewObject { object, managed: false, warnings: vec![] })
    };
    let target = target(&registry);
    let options = WriteOptions::default();
    let written = registry.modify(&permit, &target, Subresource::None, &change, &options).await;
    written.expect("it is stored");
    assert_eq!(log.take(), ["guard", "charge", "claim", "begin", "Stored"]);
}

#[tokio::test]
async fn a_post_to_a_subresource_reaches_only_its_own_action() {
    let (registry, log) = open().await;
    add(&registry, value!({}), false).await.expect("it is stored");
    log.take();
    let act = |permit: Permit, name: &'static str| {
        let registry = registry.clone();
        tokio::spawn(async move {
            let body = Object::from_value(value!({"posted": "stamped"})).expect("a map");
            let options = WriteOptions::default();
            registry.act(&permit, &target(&registry), name, body, &options).await
        })
    };
    let right = permit("create", "configmaps", "stamp", "a").await;
    let acted = act(right.clone(), "stamp").await.expect("no panic").expect("it acts");
    assert_eq!(acted.object.expect("the object").name(), "a");
    assert_eq!(log.take(), ["a is stamped"]);
    // The same through an alias of the resource.
    let other = permit("create", "stamps", "", "").await;
    act(other, "stamp").await.expect("no panic").expect("it acts");
    assert_eq!(log.take(), ["a is stamped"]);
    let unknown = act(right, "eviction").await.expect("no panic").expect_err("there is none");
    assert_eq!(unknown.code, 405);
    for (verb, resource, subresource, name) in [
        ("create", "configmaps", "stamp", "b"),
        ("create", "configmaps", "", "a"),
        ("update", "configmaps", "stamp", "a"),
        ("create", "secrets", "stamp", "a"),
    ] {
        let wrong = permit(verb, resource, subresource, name).await;
        let refused = act(wrong, "stamp").await.is_err_and(|error| error.is_panic());
        assert!(refused, "{verb} {resource}/{name}/{subresource}");
    }
    assert_eq!(log.take(), Vec::<String>::new());
}
