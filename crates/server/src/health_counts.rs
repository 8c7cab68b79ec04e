//! The results of the health checks as metrics (`/metrics/slis`, component-base
//! `metrics/prometheus/slis`).

use keelson_metrics::{Description, Exposition, MetricType};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How often each check passed and failed, and its last result. Only checks that clients asked for
/// count.
#[derive(Debug, Default)]
pub(crate) struct HealthCounts {
    results: Mutex<BTreeMap<Key, Results>>,
}

/// The name of a check, and `healthz`, `livez` or `readyz`.
type Key = (&'static str, &'static str);

#[derive(Debug, Default)]
struct Results {
    passes: u64,
    failures: u64,
    has_passed: bool,
}

impl HealthCounts {
    /// Counts a result of a check.
    pub fn count(&self, check: &'static str, root: &'static str, has_passed: bool) {
        let mut results = self.lock();
        let results = results.entry((check, root)).or_default();
        results.has_passed = has_passed;
        match has_passed {
            true => results.passes += 1,
            false => results.failures += 1,
        }
    }

    /// Appends the metrics.
    pub fn write(&self, out: &mut Exposition) {
        let results = self.lock();
        let mut last = out.family(&LAST);
        for ((check, root), results) in results.iter() {
            last.value(&[check, root], f64::from(u8::from(results.has_passed)));
        }
        drop(last);
        let mut all = out.family(&ALL);
        for ((check, root), results) in results.iter() {
            for (status, count) in [("error", results.failures), ("success", results.passes)] {
                if count > 0 {
                    all.value(&[check, status, root], count as f64);
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Key, Results>> {
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

static LAST: Description = Description {
    name: "kubernetes_healthcheck",
    help: "[STABLE] Whether a health check passed when it was last asked for: 1 or 0.",
    metric_type: MetricType::Gauge,
    labels: &["name", "type"],
};

static ALL: Description = Description {
    name: "kubernetes_healthchecks_total",
    help: "[STABLE] Results of the health checks that were asked for.",
    metric_type: MetricType::Counter,
    labels: &["name", "status", "type"],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted_by_check_and_path() {
        let counts = HealthCounts::default();
        counts.count("ping", "readyz", true);
        counts.count("ping", "readyz", true);
        counts.count("etcd", "livez", true);
        counts.count("etcd", "livez", false);
        let mut out = Exposition::default();
        counts.write(&mut out);
        let text = out.finish();
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            lines,
            [
                r#"kubernetes_healthcheck{name="etcd",type="livez"} 0"#,
                r#"kubernetes_healthcheck{name="ping",type="readyz"} 1"#,
                r#"kubernetes_healthchecks_total{name="etcd",status="error",type="livez"} 1"#,
                r#"kubernetes_healthchecks_total{name="etcd",status="success",type="livez"} 1"#,
                r#"kubernetes_healthchecks_total{name="ping",status="success",type="readyz"} 2"#,
            ]
        );
    }
}
