//! The cost of an operation on one kind does not grow with the number of served kinds.

use crate::harness::Harness;
use keelson_meta::{GroupVersionKind, Str};
use keelson_registry::{InformerEvent, InformerScope, Registry};

use keelson_resources::producer::{DefinedVersion, Definition};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::{Field, Presence, Schema, Shape, Struct};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Number of other kinds in the first and in the second measurement.
const FEW: usize = 50;
const MANY: usize = 5_000;
/// Number of fields of each kind, without those of all objects.
const NAMES: [&str; 20] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s",
    "t",
];
/// Maximum factor between both; work linear in the number of kinds takes 100 times as long.
const RATIO_MAX: u32 = 5;
/// Number of measurements, of which the minimum is used.
const TRIES: usize = 9;

/// Returns the processor time of this thread.
fn thread_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).expect("time is not negative");
    Duration::new(seconds, u32::try_from(now.tv_nsec).expect("less than a second"))
}

/// Returns the minimum of several measurements.
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
        let mut fields = vec![kind, Field::new("apiVersion", Shape::String), metadata];
        fields.extend(NAMES.map(|name| Field::new(name, Shape::String)));
        vec![Struct::new("Widget", fields)]
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

/// Returns the time of some work with few and with many other kinds.
async fn beside_few_and_many(work: impl Fn(&Registry, usize)) -> (Duration, Duration) {
    let harness = Harness::open().await;
    serve(&harness.registry, 0..FEW);
    let few = least(|number| work(&harness.registry, number));
    serve(&harness.registry, FEW..MANY);
    (few, least(|number| work(&harness.registry, number + TRIES)))
}

fn check(measured: (Duration, Duration)) {
    let (few, many) = measured;
    assert!(many < few * RATIO_MAX, "{few:?} beside {FEW} kinds, {many:?} beside {MANY}");
}

#[tokio::test]
async fn adding_a_kind_costs_the_same_beside_thousands() {
    let measured = beside_few_and_many(|registry, number| {
        registry.serve(&definition(format!("more{number}.example.com"))).expect("served");
    });
    check(measured.await);
}

#[tokio::test]
async fn removing_a_kind_costs_the_same_beside_thousands() {
    let measured = beside_few_and_many(|registry, number| {
        assert!(registry.withdraw(&format!("g{number}.example.com"), "widgets"));
    });
    check(measured.await);
}

/// Creates in a round, half of them of a kind of the catalogue.
const CREATES: usize = 200;
/// Number of rounds, of which the median is used.
const ROUNDS: usize = 9;
/// Maximum number of measurements, until one is within the bound.
const MEASUREMENTS: usize = 8;
/// Maximum time of a create with many kinds, in percent of that with few.
const HUNDREDTHS_MAX: u128 = 125;

/// A registry with many kinds, and the number of objects created in it.
struct Creates {
    harness: Harness,
    made: usize,
}

impl Creates {
    async fn beside(kinds: usize) -> Creates {
        let harness = Harness::open().await;
        serve(&harness.registry, 0..kinds);
        Creates { harness, made: 0 }
    }

    /// Creates one object. Returns the processor time, including that of `more`.
    async fn one(&mut self, more: impl Fn(&Registry)) -> Duration {
        self.made += 1;
        let (path, kind) = if self.made.is_multiple_of(2) {
            let kind = r#""apiVersion":"v1","kind":"ConfigMap""#;
            ("/api/v1/namespaces/default/configmaps", kind)
        } else {
            let kind = r#""apiVersion":"g7.example.com/v1","kind":"Widget","a":"x","t":"y""#;
            ("/apis/g7.example.com/v1/namespaces/default/widgets", kind)
        };
        let number = self.made;
        let body = format!(r#"{{{kind},"metadata":{{"name":"made-{number:08}"}}}}"#);
        let began = thread_time();
        let made = self.harness.send("POST", path, "", body.as_bytes()).await;
        more(&self.harness.registry);
        let taken = thread_time() - began;
        assert_eq!(made.map(|(code, _)| code), Some(201));
        taken
    }
}

/// Returns the 99th percentile of creates with many kinds in percent of that with few. Rounds of
/// both alternate, so that other load affects both.
async fn p99_in_hundredths(
    few: &mut Creates,
    many: &mut Creates,
    more: impl Fn(&Registry) + Copy,
) -> u128 {
    let p99 = |mut all: Vec<Duration>| {
        all.sort();
        all[all.len() * 99 / 100 - 1].as_nanos()
    };
    let mut ratios = vec![];
    for _ in 0..ROUNDS {
        let mut of_few = vec![];
        let mut of_many = vec![];
        for _ in 0..CREATES {
            of_few.push(few.one(more).await);
            of_many.push(many.one(more).await);
        }
        ratios.push(p99(of_many) * 100 / p99(of_few));
    }
    ratios.sort();
    ratios[ROUNDS / 2]
}

/// The bound is tight enough that a visit of every kind exceeds it. Programs beside this one take
/// the caches of the processor from the larger registry first: one measurement of several without
/// that is enough.
#[tokio::test]
async fn the_p99_of_creates_is_the_same_beside_thousands_of_kinds() {
    let mut few = Creates::beside(FEW).await;
    let mut many = Creates::beside(MANY).await;
    let mut all = vec![];
    while all.len() < MEASUREMENTS && all.last().is_none_or(|last| *last > HUNDREDTHS_MAX) {
        all.push(p99_in_hundredths(&mut few, &mut many, |_| ()).await);
    }
    assert!(all.last().is_some_and(|last| *last <= HUNDREDTHS_MAX), "{all:?} of 100");
    let look = |registry: &Registry| {
        let api = registry.api();
        assert_eq!(api.kinds().filter(|kind| kind.prefix.is_empty()).count(), 0);
    };
    let hundredths = p99_in_hundredths(&mut few, &mut many, look).await;
    assert!(hundredths > HUNDREDTHS_MAX, "a look at each kind is not seen: {hundredths} of 100");
}

/// Maximum resident memory of a process with many kinds, in bytes.
const RESIDENT_BYTES_MAX: usize = 250 << 20;
/// Set in the measured process, a separate one, so that other tests are not measured.
const MEASURED: &str = "KEELSON_MEASURED";

#[test]
fn thousands_of_kinds_stay_below_250_mb() {
    if std::env::var_os(MEASURED).is_none() {
        let own = std::env::current_exe().expect("a test has a program");
        let name = "many_kinds::thousands_of_kinds_stay_below_250_mb";
        let run =
            std::process::Command::new(own).args(["--exact", name]).env(MEASURED, "1").output();
        let output = run.expect("the test runs again");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let mut many = Creates::beside(MANY).await;
        many.one(|_| ()).await;
        many.one(|_| ()).await;
        let pages = std::fs::read_to_string("/proc/self/statm")
            .expect("Linux tells")
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse::<usize>().ok());
        let resident = pages.expect("resident pages") * rustix::param::page_size();
        assert!(resident < RESIDENT_BYTES_MAX, "{} MB", resident >> 20);
    });
}

#[tokio::test]
async fn an_informer_visits_only_changed_kinds() {
    let harness = Harness::open().await;
    let mut informer = harness.registry.informer(InformerScope::All);
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
    // So many changes exceed the number that is tracked one by one.
    of(100..101);
    check((few, of(101..101 + TRIES).expect("some tries")));
}
