//! The configuration: follows the FlowSchemas and PriorityLevelConfigurations of the store, and
//! divides the seats by demand.

use super::{Counts, Fairness, FlowOfLevel, LevelState, SharedLevel, Table, nanoseconds};
use http::HeaderValue;
use keelson_fairness::{
    Claim, FlowSchema, Level, LevelSpec, Limits, RetryAfter, Shape, allocate, seats_max,
};
use keelson_meta::{Object, Str};
use keelson_registry::{InformerScope, Registry};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// How often seats are divided by demand.
const PERIOD: Duration = Duration::from_secs(10);

/// Where the configuration is stored.
#[derive(Debug)]
pub struct FairnessSource {
    /// Groups and names of its resources.
    pub resources: &'static [(&'static str, &'static str)],
    /// Returns its FlowSchemas and its levels.
    pub read: fn(&Registry) -> (Vec<Object>, Vec<Object>),
}

/// Follows the configuration, and divides the seats, until it is dropped.
pub(crate) async fn follow(fairness: &Fairness, registry: &Arc<Registry>, source: &FairnessSource) {
    let mut informer = registry.informer(InformerScope::Only(source.resources));
    let mut next_division = Instant::now() + PERIOD;
    loop {
        let mut events = vec![];
        informer.take_all(&mut events);
        if !events.is_empty() {
            load(fairness, registry, source);
        }
        if Instant::now() >= next_division {
            next_division = Instant::now() + PERIOD;
            fairness.divide();
        }
        let _ = tokio::time::timeout_at(next_division, informer.changed()).await;
    }
}

/// Reads the configuration of the store.
pub(crate) fn load(fairness: &Fairness, registry: &Registry, source: &FairnessSource) {
    let (schemas, levels) = (source.read)(registry);
    let schemas = schemas.iter().map(FlowSchema::read).collect();
    fairness.configure(schemas, levels.iter().map(LevelSpec::read).collect());
}

impl Fairness {
    /// Takes over a configuration. The mandatory objects act also while they are not stored.
    pub(super) fn configure(&self, mut schemas: Vec<FlowSchema>, mut specs: Vec<LevelSpec>) {
        for spec in LevelSpec::mandatory() {
            if !specs.iter().any(|known| known.name == spec.name) {
                specs.push(spec);
            }
        }
        for schema in FlowSchema::mandatory() {
            if !schemas.iter().any(|known| known.name == schema.name) {
                schemas.push(schema);
            }
        }
        FlowSchema::sort(&mut schemas);
        specs.sort_by(|one, other| one.name.cmp(&other.name));
        let old = self.table.load_full();
        let mut levels: Vec<_> = specs.iter().map(|spec| self.level(&old, spec, &specs)).collect();
        levels.extend(old.levels.iter().filter(|level| outlives(level, &specs)).cloned());
        let flows = schemas
            .into_iter()
            .filter_map(|schema| flow(&old, schema, &levels, &specs))
            .map(Arc::new)
            .collect();
        self.table.store(Arc::new(Table { flows, levels }));
        // New levels have no demand yet: they get their part at once.
        self.divide_by(|level| level.last_period());
    }

    /// Returns the level of an object, the one that is in use if there is one.
    fn level(&self, old: &Table, spec: &LevelSpec, all: &[LevelSpec]) -> Arc<SharedLevel> {
        let shares = all.iter().map(|level| u64::from(level.shares)).sum();
        let limits = Limits::new(
            self.seats,
            (spec.shares, shares),
            spec.lent_percent,
            spec.borrowed_percent,
            spec.shape == Shape::Exempt,
        );
        if let Some(known) = old.levels.iter().find(|level| level.name == spec.name) {
            let mut state = known.lock();
            state.is_ending = false;
            state.limits = limits;
            if state.spec != *spec {
                state.level.reshape(spec.shape);
                state.spec = spec.clone();
            }
            drop(state);
            return known.clone();
        }
        let state = LevelState {
            level: Level::new(spec.shape, limits.nominal, nanoseconds(self.began)),
            spec: spec.clone(),
            limits,
            target: 0.0,
            retry_after: RetryAfter::default(),
            is_ending: false,
            counts: Counts::default(),
        };
        Arc::new(SharedLevel { name: spec.name.clone(), began: self.began, state: state.into() })
    }

    /// Divides the seats by the demand of the period that ends now.
    fn divide(&self) {
        let now = nanoseconds(self.began);
        self.divide_by(|level| level.end_period(now));
        // Levels that were deleted are forgotten once they are idle.
        let table = self.table.load_full();
        if table.levels.iter().any(|level| level.has_ended()) {
            let levels = table.levels.iter().filter(|level| !level.has_ended());
            let flows = table.flows.clone();
            let levels = levels.cloned().collect();
            self.table.store(Arc::new(Table { flows, levels }));
        }
    }

    fn divide_by(&self, period: impl Fn(&mut Level<super::Waiter>) -> keelson_fairness::Period) {
        let table = self.table.load_full();
        let claims: Vec<Claim> = table
            .levels
            .iter()
            .map(|shared| {
                let mut state = shared.lock();
                let period = period(&mut state.level);
                let is_exempt = state.spec.shape == Shape::Exempt;
                let highest = period.highest;
                let smoothed = period.smoothed;
                let claim = Claim::new(state.limits, highest, smoothed, is_exempt);
                state.target = claim.target;
                claim
            })
            .collect();
        let (seats, fraction) = allocate(self.seats, &claims);
        self.fraction.store(fraction.to_bits(), Ordering::Relaxed);
        let now = nanoseconds(self.began);
        for (shared, seats) in table.levels.iter().zip(seats) {
            shared.lock().level.set_limit(now, seats.round() as u32);
            shared.dispatch();
        }
    }
}

impl SharedLevel {
    fn has_ended(&self) -> bool {
        let state = self.lock();
        state.is_ending && state.level.is_idle()
    }
}

/// Returns whether a level without an object has requests that must end. It keeps its nominal seats
/// for them.
fn outlives(level: &SharedLevel, specs: &[LevelSpec]) -> bool {
    if specs.iter().any(|spec| spec.name == level.name) {
        return false;
    }
    let mut state = level.lock();
    state.is_ending = true;
    !state.level.is_idle()
}

/// Joins a FlowSchema with its level; `None` if there is no such level.
fn flow(
    old: &Table,
    schema: FlowSchema,
    levels: &[Arc<SharedLevel>],
    specs: &[LevelSpec],
) -> Option<FlowOfLevel> {
    let spec = specs.iter().find(|spec| spec.name == schema.level)?;
    let level = levels.iter().find(|level| level.name == schema.level)?.clone();
    let known = old
        .flows
        .iter()
        .find(|flow| flow.schema.name == schema.name && flow.level.name == level.name);
    let nominal = level.lock().limits.nominal;
    Some(FlowOfLevel {
        metrics: known.map(|flow| flow.metrics.clone()).unwrap_or_default(),
        schema_uid: header(&schema.uid),
        level_uid: header(&spec.uid),
        request_seats_max: seats_max(nominal),
        schema,
        level,
    })
}

/// Returns a UID as the value of a header. The server makes UIDs, which are always valid ones.
fn header(uid: &Str) -> HeaderValue {
    HeaderValue::from_str(uid).unwrap_or(HeaderValue::from_static(""))
}
