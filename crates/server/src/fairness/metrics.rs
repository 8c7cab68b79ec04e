//! Metrics of priority and fairness: those of each FlowSchema are counted as requests pass, those
//! of levels are read when they are scraped.

use super::{Fairness, FlowOfLevel, LevelState};
use keelson_fairness::Work;
use keelson_metrics::{
    Bounds, Counter, Description, Exposition, Gauge, Histogram, MetricType, Unit,
};
use std::sync::Arc;
use std::time::Duration;

/// Why requests do not start: the values of the label `reason`.
const REASONS: [&str; 4] = ["cancelled", "concurrency-limit", "queue-full", "time-out"];

/// The values of the label `request_kind`.
const REQUEST_KINDS: [&str; 2] = ["mutating", "readOnly"];

/// What happened to the requests of a FlowSchema.
#[derive(Debug)]
pub(super) struct FlowMetrics {
    /// Seats that requests were estimated to take.
    pub work_seats: Histogram,
    /// Watchers of changes.
    pub watchers: Histogram,
    executing: Gauge,
    executing_seats: Gauge,
    /// Requests that wait, by `REQUEST_KINDS`.
    queued: [Gauge; REQUEST_KINDS.len()],
    queued_seats: Gauge,
    started: Counter,
    rejected: [Counter; REASONS.len()],
    /// Waits that ended in an execution, and others.
    waits: [Histogram; 2],
    /// Executions of watches until their initial events were out, and of other requests.
    executions: [Histogram; 2],
}

impl Default for FlowMetrics {
    fn default() -> FlowMetrics {
        let seconds = || std::array::from_fn(|_| Histogram::new(&SECONDS));
        FlowMetrics {
            work_seats: Histogram::new(&SEATS),
            watchers: Histogram::new(&WATCHERS),
            executing: Gauge::default(),
            executing_seats: Gauge::default(),
            queued: Default::default(),
            queued_seats: Gauge::default(),
            started: Counter::default(),
            rejected: std::array::from_fn(|_| Counter::default()),
            waits: seconds(),
            executions: seconds(),
        }
    }
}

impl FlowMetrics {
    /// Counts a request that gets its seats, and its wait where there are queues.
    pub fn started(&self, work: Work, waited: Option<Duration>) {
        self.started.increment();
        self.executing.add(1);
        self.executing_seats.add(i64::from(work.width()));
        if let Some(waited) = waited {
            self.waits[1].observe_duration(waited);
        }
    }

    /// Counts seats that are returned before the end of an execution.
    pub fn narrowed(&self, seats: u32) {
        self.executing_seats.add(-i64::from(seats));
    }

    /// Counts the end of an execution.
    pub fn finished(&self, work: Work, took: Duration, is_watch: bool) {
        self.executing.add(-1);
        self.executing_seats.add(-i64::from(work.width()));
        self.executions[usize::from(is_watch)].observe_duration(took);
    }

    /// Counts a request that is not let in.
    pub fn rejected(&self, reason: &str) {
        if let Some(which) = REASONS.iter().position(|known| *known == reason) {
            self.rejected[which].increment();
        }
    }

    /// Counts a request that has stopped waiting without a seat.
    pub fn gave_up(&self, reason: &str, waited: Duration) {
        self.rejected(reason);
        self.waits[0].observe_duration(waited);
    }

    /// Counts a request that waits.
    pub fn queued(&self, seats: u32, is_read: bool) {
        self.queued[usize::from(is_read)].add(1);
        self.queued_seats.add(i64::from(seats));
    }

    /// Counts the end of its wait.
    pub fn left_queue(&self, seats: u32, is_read: bool) {
        self.queued[usize::from(is_read)].add(-1);
        self.queued_seats.add(-i64::from(seats));
    }
}

impl Fairness {
    /// Writes all metrics.
    pub(crate) fn write(&self, out: &mut Exposition) {
        self.write_flows(out);
        let mut in_queue = out.family(&IN_QUEUE);
        for (which, kind) in REQUEST_KINDS.iter().enumerate() {
            let of_flow = |flow: &Arc<FlowOfLevel>| flow.metrics.queued[which].get();
            let waiting: i64 = self.table.load().flows.iter().map(of_flow).sum();
            in_queue.value(&[kind], waiting as f64);
        }
        drop(in_queue);
        out.family(&FRACTION).value(&[], self.fraction());
        type Read = fn(&LevelState) -> f64;
        let gauges: [(&'static Description, Read); 10] = [
            (&NOMINAL, |state| f64::from(state.limits.nominal)),
            (&LOWER, |state| f64::from(state.limits.lower)),
            (&UPPER, |state| f64::from(state.limits.upper)),
            (&LIMIT, |state| f64::from(state.level.limit())),
            (&TARGET, |state| state.target),
            (&VIRTUAL_TIME, |state| state.level.virtual_time()),
            (&AVERAGE, |state| state.level.last_period().average),
            (&DEVIATION, |state| state.level.last_period().deviation),
            (&HIGHEST, |state| state.level.last_period().highest),
            (&SMOOTHED, |state| state.level.last_period().smoothed),
        ];
        let table = self.table.load();
        let mut limits = out.hidden_family(&OLD_LIMIT);
        for shared in &table.levels {
            limits.value(&[&shared.name], f64::from(shared.lock().limits.nominal));
        }
        drop(limits);
        for (description, read) in gauges {
            let mut family = out.family(description);
            for shared in &table.levels {
                family.value(&[&shared.name], read(&shared.lock()));
            }
        }
    }

    fn write_flows(&self, out: &mut Exposition) {
        let table = self.table.load();
        // As in kube-apiserver, FlowSchemas that no request has matched have no series.
        let flows: Vec<(&str, &str, &FlowMetrics)> = table
            .flows
            .iter()
            .filter(|flow| flow.metrics.work_seats.total() > 0)
            .map(|flow| (&*flow.schema.name, &*flow.level.name, &*flow.metrics))
            .collect();
        let mut in_use = out.hidden_family(&OLD_IN_USE);
        for (flow, level, metrics) in &flows {
            in_use.value(&[flow, level], metrics.executing_seats.get() as f64);
        }
        drop(in_use);
        type Read = fn(&FlowMetrics) -> f64;
        let numbers: [(&'static Description, Read); 5] = [
            (&EXECUTING, |flow| flow.executing.get() as f64),
            (&EXECUTING_SEATS, |flow| flow.executing_seats.get() as f64),
            (&QUEUED, |flow| flow.queued.iter().map(Gauge::get).sum::<i64>() as f64),
            (&QUEUED_SEATS, |flow| flow.queued_seats.get() as f64),
            (&STARTED, |flow| flow.started.get() as f64),
        ];
        for (description, read) in numbers {
            let mut family = out.family(description);
            for (schema, level, metrics) in &flows {
                family.value(&[schema, level], read(metrics));
            }
        }
        for (description, of_watchers) in [(&WORK_SEATS, false), (&WATCHERS_OF_CHANGES, true)] {
            let mut family = out.family(description);
            for (schema, level, metrics) in &flows {
                let of = if of_watchers { &metrics.watchers } else { &metrics.work_seats };
                if of.total() > 0 || !of_watchers {
                    family.histogram(&[schema, level], of);
                }
            }
        }
        write_labelled(out, &flows);
    }
}

/// Writes the metrics with one more label.
fn write_labelled(out: &mut Exposition, flows: &[(&str, &str, &FlowMetrics)]) {
    let mut family = out.family(&REJECTED);
    for (schema, level, metrics) in flows {
        for (reason, count) in REASONS.iter().zip(&metrics.rejected) {
            if count.get() > 0 {
                family.value(&[schema, level, reason], count.get() as f64);
            }
        }
    }
    drop(family);
    let mut family = out.family(&WAITS);
    for (schema, level, metrics) in flows {
        for (executed, waits) in ["false", "true"].iter().zip(&metrics.waits) {
            if waits.total() > 0 {
                family.histogram(&[executed, schema, level], waits);
            }
        }
    }
    drop(family);
    let mut family = out.family(&EXECUTIONS);
    for (schema, level, metrics) in flows {
        for (kind, took) in ["regular", "watch"].iter().zip(&metrics.executions) {
            if took.total() > 0 {
                family.histogram(&[schema, level, kind], took);
            }
        }
    }
}

static SECONDS: Bounds = Bounds {
    unit: Unit::Seconds,
    upper: &[0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0],
};
static SEATS: Bounds =
    Bounds { unit: Unit::Amount, upper: &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 100.0] };
static WATCHERS: Bounds =
    Bounds { unit: Unit::Amount, upper: &[0.0, 1.0, 10.0, 100.0, 1000.0, 10000.0] };

const BY_FLOW: &[&str] = &["flow_schema", "priority_level"];
const BY_LEVEL: &[&str] = &["priority_level"];

const fn gauge(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Description {
    Description { name, help, metric_type: MetricType::Gauge, labels }
}

static EXECUTING: Description = gauge(
    "apiserver_flowcontrol_current_executing_requests",
    BY_FLOW,
    "[BETA] Requests that have their seats; watches only until their initial events are out.",
);
static EXECUTING_SEATS: Description = gauge(
    "apiserver_flowcontrol_current_executing_seats",
    BY_FLOW,
    "[BETA] Seats of requests that are executed.",
);
static QUEUED: Description = gauge(
    "apiserver_flowcontrol_current_inqueue_requests",
    BY_FLOW,
    "[BETA] Requests that wait for seats.",
);
static QUEUED_SEATS: Description = gauge(
    "apiserver_flowcontrol_current_inqueue_seats",
    BY_FLOW,
    "[ALPHA] Seats for which requests wait.",
);
static STARTED: Description = Description {
    name: "apiserver_flowcontrol_dispatched_requests_total",
    help: "[BETA] Requests that have got seats.",
    metric_type: MetricType::Counter,
    labels: BY_FLOW,
};
static REJECTED: Description = Description {
    name: "apiserver_flowcontrol_rejected_requests_total",
    help: "[BETA] Requests that have got no seats, by reason.",
    metric_type: MetricType::Counter,
    labels: &["flow_schema", "priority_level", "reason"],
};
static WAITS: Description = Description {
    name: "apiserver_flowcontrol_request_wait_duration_seconds",
    help: "[BETA] Seconds for which requests waited for seats, and whether they got them.",
    metric_type: MetricType::Histogram,
    labels: &["execute", "flow_schema", "priority_level"],
};
static EXECUTIONS: Description = Description {
    name: "apiserver_flowcontrol_request_execution_seconds",
    help: "[ALPHA] Seconds for which requests had their seats.",
    metric_type: MetricType::Histogram,
    labels: &["flow_schema", "priority_level", "type"],
};
static WORK_SEATS: Description = Description {
    name: "apiserver_flowcontrol_work_estimated_seats",
    help: "[ALPHA] Seats that requests were estimated to take.",
    metric_type: MetricType::Histogram,
    labels: BY_FLOW,
};
static WATCHERS_OF_CHANGES: Description = Description {
    name: "apiserver_flowcontrol_watch_count_samples",
    help: "[ALPHA] Watches of the resource of a change.",
    metric_type: MetricType::Histogram,
    labels: BY_FLOW,
};
static FRACTION: Description = gauge(
    "apiserver_flowcontrol_seat_fair_frac",
    &[],
    "[ALPHA] Part of its target that each level got when seats were last divided.",
);
static NOMINAL: Description = gauge(
    "apiserver_flowcontrol_nominal_limit_seats",
    BY_LEVEL,
    "[BETA] Seats of a level by its shares.",
);
static LOWER: Description = gauge(
    "apiserver_flowcontrol_lower_limit_seats",
    BY_LEVEL,
    "[ALPHA] Seats of a level that has lent all that it lends.",
);
static UPPER: Description = gauge(
    "apiserver_flowcontrol_upper_limit_seats",
    BY_LEVEL,
    "[ALPHA] Seats of a level that has borrowed all that it may.",
);
static LIMIT: Description = gauge(
    "apiserver_flowcontrol_current_limit_seats",
    BY_LEVEL,
    "[ALPHA] Seats that a level has now.",
);
static TARGET: Description = gauge(
    "apiserver_flowcontrol_target_seats",
    BY_LEVEL,
    "[ALPHA] Seats that a level wanted when they were last divided.",
);
static VIRTUAL_TIME: Description = gauge(
    "apiserver_flowcontrol_current_r",
    BY_LEVEL,
    "[ALPHA] Virtual time of the queues of a level.",
);
static AVERAGE: Description = gauge(
    "apiserver_flowcontrol_demand_seats_average",
    BY_LEVEL,
    "[ALPHA] Average demand for seats in the last period.",
);
static DEVIATION: Description = gauge(
    "apiserver_flowcontrol_demand_seats_stdev",
    BY_LEVEL,
    "[ALPHA] Standard deviation of the demand in the last period.",
);
static HIGHEST: Description = gauge(
    "apiserver_flowcontrol_demand_seats_high_watermark",
    BY_LEVEL,
    "[ALPHA] Highest demand in the last period.",
);
static SMOOTHED: Description = gauge(
    "apiserver_flowcontrol_demand_seats_smoothed",
    BY_LEVEL,
    "[ALPHA] Demand, smoothed over periods.",
);

static IN_QUEUE: Description = Description::gauge(
    "apiserver_current_inqueue_requests",
    "[ALPHA] Requests that wait for a seat, by kind.",
    &["request_kind"],
);

static OLD_LIMIT: Description = Description::gauge(
    "apiserver_flowcontrol_request_concurrency_limit",
    "[ALPHA] (Deprecated since 1.30.0) The same as apiserver_flowcontrol_nominal_limit_seats.",
    &["priority_level"],
);

static OLD_IN_USE: Description = Description::gauge(
    "apiserver_flowcontrol_request_concurrency_in_use",
    "[ALPHA] (Deprecated since 1.31.0) The same as apiserver_flowcontrol_current_executing_seats.",
    &["flow_schema", "priority_level"],
);
