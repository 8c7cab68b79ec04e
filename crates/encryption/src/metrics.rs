//! [`Metrics`]: how often values are encrypted and decrypted, with which keys, how long plug-ins
//! take, and reloads of the configuration; by kube-apiserver's names.

use crate::hash::hash;
use keelson_metrics::{
    Bounds, Counter, Description, Exposition, Gauge, Histogram, Series, SeriesMap,
};
use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// Most series of one metric: resources, prefixes and keys come from configurations and plug-ins.
const SERIES_MAX: usize = 4096;
/// The status of an error that no plug-in has sent.
const NOT_OF_PLUG_IN: &str = "unknown-non-grpc";
/// What errors of plug-ins begin with.
const GRPC_ERROR: &str = "rpc error: code = ";

/// The direction of a transformation, as the label `transformation_type` has it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Direction {
    FromStorage,
    ToStorage,
}

impl Direction {
    fn label(self) -> &'static str {
        match self {
            Direction::FromStorage => "from_storage",
            Direction::ToStorage => "to_storage",
        }
    }
}

/// The metrics of encryption.
#[derive(Debug)]
pub struct Metrics {
    /// The hash of the name of the server's identity lease.
    server: String,
    operations: SeriesMap<Counter>,
    latencies: SeriesMap<Latency>,
    calls: SeriesMap<CallLatency>,
    key_uses: SeriesMap<KeyUse>,
    key_statuses: SeriesMap<LastTime>,
    invalid_keys: SeriesMap<Counter>,
    data_keys: SeriesMap<Gauge>,
    generations: Histogram,
    failed_generations: Counter,
    reloads: SeriesMap<KeyUse>,
    /// The hash of the configuration file in force.
    config: Mutex<String>,
}

#[derive(Debug)]
struct Latency(Histogram);

impl Default for Latency {
    fn default() -> Self {
        Latency(Histogram::new(&TRANSFORMATION_SECONDS))
    }
}

#[derive(Debug)]
struct CallLatency(Histogram);

impl Default for CallLatency {
    fn default() -> Self {
        CallLatency(Histogram::new(&CALL_SECONDS))
    }
}

/// How often something happened, and when last.
#[derive(Debug, Default)]
struct KeyUse {
    count: Counter,
    last: LastTime,
}

/// When something happened last, in seconds since 1970.
#[derive(Debug, Default)]
struct LastTime(Gauge);

impl LastTime {
    fn set_to_now(&self) {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.0.set(i64::try_from(since.as_secs()).unwrap_or(i64::MAX));
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics::new("")
    }
}

impl Metrics {
    /// Creates the metrics of a server with this name of its identity lease.
    #[must_use]
    pub fn new(server_name: &str) -> Metrics {
        Metrics {
            server: hash(server_name),
            operations: SeriesMap::new(SERIES_MAX),
            latencies: SeriesMap::new(SERIES_MAX),
            calls: SeriesMap::new(SERIES_MAX),
            key_uses: SeriesMap::new(SERIES_MAX),
            key_statuses: SeriesMap::new(SERIES_MAX),
            invalid_keys: SeriesMap::new(SERIES_MAX),
            data_keys: SeriesMap::new(SERIES_MAX),
            generations: Histogram::new(&GENERATION_SECONDS),
            failed_generations: Counter::new(),
            reloads: SeriesMap::new(SERIES_MAX),
            config: Mutex::default(),
        }
    }

    /// Counts that the key of a plug-in was used for a value.
    pub(crate) fn count_key(
        &self,
        known: &KnownUses,
        plugin: &str,
        key_id_hash: &str,
        direction: Direction,
    ) {
        let known = &known.0[direction as usize];
        let labels = [&*self.server, key_id_hash, plugin, direction.label()];
        if known.get().is_none()
            && let Some(found) = self.key_uses.get(&labels)
        {
            // Another thread may have been first.
            let _ = known.set(found);
        }
        if let Some(series) = known.get() {
            series.metrics.count.increment();
            series.metrics.last.set_to_now();
        }
    }

    /// Notes the key that a plug-in says it has.
    pub(crate) fn note_key(&self, plugin: &str, key_id_hash: &str) {
        if let Some(series) = self.key_statuses.get(&[&self.server, key_id_hash, plugin]) {
            series.metrics.set_to_now();
        }
    }

    /// Counts an invalid key that a plug-in says it has.
    pub(crate) fn count_invalid_key(&self, plugin: &str, error: &str) {
        if let Some(series) = self.invalid_keys.get(&[error, plugin]) {
            series.metrics.increment();
        }
    }

    /// Counts a call of a plug-in. `code` is that of gRPC.
    pub(crate) fn count_call(&self, plugin: &str, method: &str, code: &str, begun: Instant) {
        if let Some(series) = self.calls.get(&[code, method, plugin]) {
            series.metrics.0.observe_duration(begun.elapsed());
        }
    }

    /// Sets the number of data keys of a plug-in that are known.
    pub(crate) fn set_data_keys(&self, plugin: &str, keys: usize) {
        if let Some(series) = self.data_keys.get(&[plugin]) {
            series.metrics.set(i64::try_from(keys).unwrap_or(i64::MAX));
        }
    }

    /// Counts that random bytes for a data key were made.
    pub(crate) fn count_generation(&self, began: Instant, is_made: bool) {
        match is_made {
            true => self.generations.observe_duration(began.elapsed()),
            false => self.failed_generations.increment(),
        }
    }

    /// Notes the file that is in force, by its content.
    pub fn set_config(&self, text: &str) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = hash(text);
    }

    /// Counts a reload of the file.
    pub fn count_reload(&self, is_done: bool) {
        let status = if is_done { "success" } else { "failure" };
        if let Some(series) = self.reloads.get(&[&self.server, status]) {
            series.metrics.count.increment();
            series.metrics.last.set_to_now();
        }
    }

    /// Writes the metrics.
    pub fn write(&self, out: &mut Exposition) {
        write_counters(out, &OPERATIONS, &self.operations);
        let mut latencies = out.family(&LATENCIES);
        for series in self.latencies.all() {
            latencies.histogram(&series.values(), &series.metrics.0);
        }
        drop(latencies);
        let mut calls = out.family(&CALLS);
        for series in self.calls.all() {
            calls.histogram(&series.values(), &series.metrics.0);
        }
        drop(calls);
        write_uses(out, &KEY_USES, &KEY_TIMES, &self.key_uses);
        let mut statuses = out.family(&KEY_STATUS_TIMES);
        for series in self.key_statuses.all() {
            statuses.value(&series.values(), series.metrics.0.get() as f64);
        }
        drop(statuses);
        write_counters(out, &INVALID_KEYS, &self.invalid_keys);
        let mut sizes = out.family(&DATA_KEYS);
        for series in self.data_keys.all() {
            sizes.value(&series.values(), series.metrics.get() as f64);
        }
        drop(sizes);
        out.family(&GENERATIONS).histogram(&[], &self.generations);
        out.family(&FAILED_GENERATIONS).value(&[], self.failed_generations.get() as f64);
        // Of the cache of KMS v1, which there is not.
        out.family(&CACHE_FILL).value(&[], 0.0);
        out.family(&CACHE_MISSES).value(&[], 0.0);
        write_uses(out, &RELOADS, &RELOAD_TIMES, &self.reloads);
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !config.is_empty() {
            out.family(&CONFIG).value(&[&self.server, &config], 1.0);
        }
    }
}

fn write_counters(out: &mut Exposition, of: &'static Description, all: &SeriesMap<Counter>) {
    let mut family = out.family(of);
    for series in all.all() {
        family.value(&series.values(), series.metrics.get() as f64);
    }
}

fn write_uses(
    out: &mut Exposition,
    counts: &'static Description,
    times: &'static Description,
    all: &SeriesMap<KeyUse>,
) {
    let all = all.all();
    let mut family = out.family(counts);
    for series in &all {
        family.value(&series.values(), series.metrics.count.get() as f64);
    }
    drop(family);
    let mut family = out.family(times);
    for series in &all {
        family.value(&series.values(), series.metrics.last.0.get() as f64);
    }
}

/// Counts the transformations of the values of a resource.
#[derive(Clone, Copy)]
pub(crate) struct Counted<'a> {
    pub metrics: &'a Metrics,
    pub group: &'a str,
    pub resource: &'a str,
    pub direction: Direction,
}

/// The series of a provider or key in which its first transformation in each direction was counted,
/// so that they need not be looked up for each value.
#[derive(Debug, Default)]
pub(crate) struct KnownSeries([OnceLock<OfResource>; 2]);

/// The series in which the uses of a key in each direction are counted, once they are known.
#[derive(Debug, Default)]
pub(crate) struct KnownUses([OnceLock<Arc<Series<KeyUse>>>; 2]);

/// The series of transformations that succeed.
#[derive(Debug)]
struct OfResource {
    group: Box<str>,
    resource: Box<str>,
    operations: Arc<Series<Counter>>,
    latencies: Arc<Series<Latency>>,
}

impl Counted<'_> {
    /// Counts one that took so long, with the provider or key that has these series and this
    /// prefix.
    pub fn count_known<T>(
        &self,
        series: &KnownSeries,
        prefix: &[u8],
        took: Duration,
        result: &Result<T, String>,
    ) {
        let known = &series.0[self.direction as usize];
        match known.get() {
            Some(known)
                if result.is_ok()
                    && *known.resource == *self.resource
                    && *known.group == *self.group =>
            {
                known.operations.metrics.increment();
                known.latencies.metrics.0.observe_duration(took);
            }
            _ => {
                if let Some(found) = self.count_and_find(prefix, took, result) {
                    // Another thread may have been first.
                    let _ = known.set(found);
                }
            }
        }
    }

    /// Counts one that took so long, of a value with this prefix.
    pub fn count<T>(&self, prefix: &[u8], took: Duration, result: &Result<T, String>) {
        self.count_and_find(prefix, took, result);
    }

    /// Counts one, and returns its series if it succeeded.
    fn count_and_find<T>(
        &self,
        prefix: &[u8],
        took: Duration,
        result: &Result<T, String>,
    ) -> Option<OfResource> {
        let prefix = std::str::from_utf8(prefix).unwrap_or_default();
        let resource = match self.group {
            "" => Cow::Borrowed(self.resource),
            group => Cow::Owned(format!("{}.{group}", self.resource)),
        };
        let status = result.as_ref().map_or_else(|error| status_of(error), |_| "OK");
        let direction = self.direction.label();
        let labels = [&*resource, status, direction, prefix];
        let operations = self.metrics.operations.get(&labels)?;
        operations.metrics.increment();
        result.as_ref().ok()?;
        let latencies = self.metrics.latencies.get(&[direction, prefix])?;
        latencies.metrics.0.observe_duration(took);
        Some(OfResource {
            group: self.group.into(),
            resource: self.resource.into(),
            operations,
            latencies,
        })
    }
}

/// Returns gRPC's code in the error of a plug-in.
fn status_of(error: &str) -> &str {
    let code = error.split_once(GRPC_ERROR).and_then(|(_, rest)| rest.split(' ').next());
    code.unwrap_or(NOT_OF_PLUG_IN)
}

static TRANSFORMATION_SECONDS: Bounds = Bounds::seconds(&[
    5e-6, 1e-5, 2e-5, 4e-5, 8e-5, 0.00016, 0.00032, 0.00064, 0.00128, 0.00256, 0.00512, 0.01024,
    0.02048, 0.04096, 0.08192, 0.16384, 0.32768, 0.65536, 1.31072, 2.62144, 5.24288, 10.48576,
    20.97152, 41.94304, 83.88608,
]);

static GENERATION_SECONDS: Bounds = Bounds::seconds(&[
    5e-6, 1e-5, 2e-5, 4e-5, 8e-5, 0.00016, 0.00032, 0.00064, 0.00128, 0.00256, 0.00512, 0.01024,
    0.02048, 0.04096,
]);

static CALL_SECONDS: Bounds = Bounds::seconds(&[
    0.0001, 0.0002, 0.0004, 0.0008, 0.0016, 0.0032, 0.0064, 0.0128, 0.0256, 0.0512, 0.1024, 0.2048,
    0.4096, 0.8192, 1.6384, 3.2768, 6.5536, 13.1072, 26.2144, 52.4288,
]);

static OPERATIONS: Description = Description::counter(
    "apiserver_storage_transformation_operations_total",
    "[ALPHA] Values that were encrypted and decrypted, and those that could not be.",
    &["resource", "status", "transformation_type", "transformer_prefix"],
);

static LATENCIES: Description = Description::histogram(
    "apiserver_storage_transformation_duration_seconds",
    "[ALPHA] How long it took to encrypt or decrypt a value.",
    &["transformation_type", "transformer_prefix"],
);

static CALLS: Description = Description::histogram(
    "apiserver_envelope_encryption_kms_operations_latency_seconds",
    "[ALPHA] How long calls of a KMS plug-in took.",
    &["grpc_status_code", "method_name", "provider_name"],
);

static KEY_USES: Description = Description::counter(
    "apiserver_envelope_encryption_key_id_hash_total",
    "[ALPHA] How often the key of a KMS plug-in was used, by the hash of its id.",
    &["apiserver_id_hash", "key_id_hash", "provider_name", "transformation_type"],
);

static KEY_TIMES: Description = Description::gauge(
    "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
    "[ALPHA] When the key of a KMS plug-in was used last.",
    &["apiserver_id_hash", "key_id_hash", "provider_name", "transformation_type"],
);

static KEY_STATUS_TIMES: Description = Description::gauge(
    "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
    "[ALPHA] When a KMS plug-in said last that it has a key.",
    &["apiserver_id_hash", "key_id_hash", "provider_name"],
);

static INVALID_KEYS: Description = Description::counter(
    "apiserver_envelope_encryption_invalid_key_id_from_status_total",
    "[ALPHA] How often a KMS plug-in said that it has an invalid key.",
    &["error", "provider_name"],
);

static DATA_KEYS: Description = Description::gauge(
    "apiserver_envelope_encryption_dek_source_cache_size",
    "[ALPHA] Data keys that are known of a KMS plug-in.",
    &["provider_name"],
);

static GENERATIONS: Description = Description::histogram(
    "apiserver_storage_data_key_generation_duration_seconds",
    "[ALPHA] How long it took to make a data key.",
    &[],
);

static FAILED_GENERATIONS: Description = Description::counter(
    "apiserver_storage_data_key_generation_failures_total",
    "[ALPHA] Data keys that could not be made.",
    &[],
);

static CACHE_FILL: Description = Description::gauge(
    "apiserver_envelope_encryption_dek_cache_fill_percent",
    "[ALPHA] How full the cache of data keys of KMS v1 is, in percent.",
    &[],
);

static CACHE_MISSES: Description = Description::counter(
    "apiserver_storage_envelope_transformation_cache_misses_total",
    "[ALPHA] Data keys of KMS v1 that were not in the cache.",
    &[],
);

static RELOADS: Description = Description::counter(
    "apiserver_encryption_config_controller_automatic_reloads_total",
    "[ALPHA] Reloads of the encryption configuration.",
    &["apiserver_id_hash", "status"],
);

static RELOAD_TIMES: Description = Description::gauge(
    "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
    "[ALPHA] When the encryption configuration was reloaded last.",
    &["apiserver_id_hash", "status"],
);

static CONFIG: Description = Description::gauge(
    "apiserver_encryption_config_controller_last_config_info",
    "[ALPHA] The hash of the encryption configuration in force.",
    &["apiserver_id_hash", "hash"],
);
