//! What is done for one kind does not grow with the number of kinds that are served beside it.

use crate::harness::Harness;
use keelson_meta::{GroupVersionKind, Str};
use keelson_registry::{InformerEvent, Registry, Wanted};

use keelson_registry::producer::{DefinedVersion, Definition};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Field, Presence, Schema, Shape, Struct};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Kinds beside which one more is first measured, and those beside which it is measured again.
const FEW: usize = 50;
const MANY: usize = 3_000;
/// How many times longer the work may take then; work in proportion to the kinds takes 60 times as long.
const RATIO_MAX: u32 = 5;
/// Measurements of which the least counts.
const TRIES: usize = 9;

/// What the thread has used of a processor.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).expect("time is not negative");
    Duration::new(seconds, u32::try_from(now.tv_nsec).expect("less than a second"))
}

/// The least that some work takes.
fn least(mut work: impl FnMut(usize)) -> Duration {
    let once = |number| {
        let began = thread_time();
        work(number);
        thread_time() - began
    };
    (0..TRIES).map(once).min().expect("some tries")
}

fn definition(group: String) -> Definition {
    let group = Str::from(group);
    let gvk = GroupVersionKind::new(group.clone(), "v1", "Widget");
    let types = Catalogue::shared().types_with_object_meta(|meta, _| {
        let metadata =
            Field { presence: Presence::Always, ..Field::new("metadata", Shape::Struct(meta)) };
        let kind = Field::new("kind", Shape::String);
        vec![Struct::new("Widget", vec![kind, Field::new("apiVersion", Shape::String), metadata])]
    });
    let root = Catalogue::shared().first_after_object_meta();
    let version = DefinedVersion {
        name: "v1".into(),
        is_served: true,
        schema: Schema { gvk, types: types.into(), root },
        structural: None,
        scale: None,
        selectable: vec![],
        columns: Default::default(),
        has_status: true,
        deprecation: None,
        openapi: Default::default(),
    };
    Definition {
        group,
        resource: "widgets".into(),
        singular: "widget".into(),
        kind: "Widget".into(),
        list_kind: "WidgetList".into(),
        short_names: vec![],
        categories: vec![],
        namespaced: true,
        since: None,
        definition: None,
        webhook: None,
        storage_version: "v1".into(),
        versions: vec![version],
    }
}

fn serve(registry: &Registry, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let served = registry.serve(&definition(format!("g{number}.example.com")));
        served.expect("it can be served");
    }
}

/// What the work takes beside few kinds and beside many.
async fn beside_few_and_many(work: impl Fn(&Registry, usize)) -> (Duration, Duration) {
    let harness = Harness::open().await;
    serve(&harness.registry, 0..FEW);
    let few = least(|number| work(&harness.registry, number));
    serve(&harness.registry, FEW..MANY);
    (few, least(|number| work(&harness.registry, number + TRIES)))
}

fn check((few, many): (Duration, Duration)) {
    assert!(many < few * RATIO_MAX, "{few:?} beside {FEW} kinds, {many:?} beside {MANY}");
}

#[tokio::test]
async fn to_serve_a_kind_costs_the_same_beside_thousands() {
    let measured = beside_few_and_many(|registry, number| {
        registry.serve(&definition(format!("more{number}.example.com"))).expect("served");
    });
    check(measured.await);
}

#[tokio::test]
async fn to_withdraw_a_kind_costs_the_same_beside_thousands() {
    let measured = beside_few_and_many(|registry, number| {
        assert!(registry.withdraw(&format!("g{number}.example.com"), "widgets"));
    });
    check(measured.await);
}

/// The least that a create takes.
async fn least_create(harness: &Harness, prefix: &str) -> Duration {
    let mut least = Duration::MAX;
    for number in 0..TRIES {
        let body = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{prefix}{number}"}}}}"#
        );
        let path = "/api/v1/namespaces/default/configmaps";
        let began = thread_time();
        let made = harness.send("POST", path, "", body.as_bytes()).await;
        least = least.min(thread_time() - began);
        assert_eq!(made.map(|(code, _)| code), Some(201));
    }
    least
}

#[tokio::test]
async fn to_create_an_object_costs_the_same_beside_thousands() {
    let harness = Harness::open().await;
    serve(&harness.registry, 0..FEW);
    let few = least_create(&harness, "few").await;
    serve(&harness.registry, FEW..MANY);
    check((few, least_create(&harness, "many").await));
}

#[tokio::test]
async fn an_informer_looks_only_at_the_kinds_that_changed() {
    let harness = Harness::open().await;
    let mut informer = harness.registry.informer(Wanted::All);
    let mut one_more = |number| {
        let name = format!("more{number}.example.com");
        harness.registry.serve(&definition(name.clone())).expect("served");
        let mut events = vec![];
        let began = thread_time();
        informer.take(&mut events);
        let taken = thread_time() - began;
        let listed = events.iter().any(
            |event| matches!(event, InformerEvent::Listed(kind, _) if *kind.gvr.group == *name),
        );
        assert!(listed, "{events:?}");
        taken
    };
    let mut of = |numbers: std::ops::Range<usize>| numbers.map(&mut one_more).min();
    of(0..1);
    serve(&harness.registry, 0..FEW);
    of(1..2);
    let few = of(2..2 + TRIES).expect("some tries");
    serve(&harness.registry, FEW..MANY);
    // So many changes at once are not all known one by one.
    of(100..101);
    check((few, of(101..101 + TRIES).expect("some tries")));
}
