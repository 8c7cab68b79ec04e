//! [`EventLimits`]: the configuration of EventRateLimit, with the token buckets of its limits.

use super::{check_fields, text};
use keelson_meta::Value;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Maximum buckets of one limit, unless its configuration sets another number.
const CACHE_SIZE: usize = 4096;

/// The limits of EventRateLimit.
#[derive(Debug)]
pub(crate) struct EventLimits {
    pub limits: Vec<Limit>,
}

#[derive(Debug)]
pub(crate) struct Limit {
    pub by: By,
    a_second: f64,
    burst: f64,
    keys_max: usize,
    buckets: Mutex<HashMap<String, Bucket>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Server,
    Namespace,
    User,
    SourceAndObject,
}

impl By {
    pub fn name(self) -> &'static str {
        match self {
            By::Server => "Server",
            By::Namespace => "Namespace",
            By::User => "User",
            By::SourceAndObject => "SourceAndObject",
        }
    }
}

/// The token bucket of a limit.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    /// Nanoseconds.
    filled: i128,
}

impl EventLimits {
    pub fn read(config: &Value) -> Result<EventLimits, String> {
        check_fields(config, &["kind", "apiVersion", "limits"])?;
        let mut limits = vec![];
        for (place, limit) in config.array_at(&["limits"]).iter().enumerate() {
            check_fields(limit, &["type", "qps", "burst", "cacheSize"])?;
            let all = [By::Server, By::Namespace, By::User, By::SourceAndObject];
            let asked = text(limit, "type");
            let by = all.into_iter().find(|by| by.name() == asked).ok_or_else(|| {
                format!("limits[{place}].type: {asked:?} is none of Server, Namespace, User, SourceAndObject")
            })?;
            let positive = |name: &str| {
                let number = limit.int_at(&[name]).filter(|number| *number > 0);
                number.ok_or_else(|| format!("limits[{place}].{name}: must be positive"))
            };
            let keys = limit.int_at(&["cacheSize"]).unwrap_or(0);
            let keys = usize::try_from(keys)
                .map_err(|_| format!("limits[{place}].cacheSize: must not be negative"))?;
            limits.push(Limit {
                by,
                a_second: positive("qps")? as f64,
                burst: positive("burst")? as f64,
                keys_max: if keys == 0 { CACHE_SIZE } else { keys },
                buckets: Mutex::default(),
            });
        }
        if limits.is_empty() {
            return Err("limits: Invalid value: []: must not be empty".to_owned());
        }
        Ok(EventLimits { limits })
    }
}

impl Limit {
    /// Takes one token; returns false when there is none.
    pub fn take(&self, key: &str, now: i128) -> bool {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        if !buckets.contains_key(key) && buckets.len() >= self.keys_max {
            let oldest = buckets.iter().min_by_key(|(_, bucket)| bucket.filled);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                buckets.remove(&oldest);
            }
        }
        let full = Bucket { tokens: self.burst, filled: now };
        let bucket = buckets.entry(key.to_owned()).or_insert(full);
        let seconds = (now - bucket.filled).max(0) as f64 / 1e9;
        bucket.tokens = (bucket.tokens + seconds * self.a_second).min(self.burst);
        bucket.filled = now;
        let has = bucket.tokens >= 1.0;
        if has {
            bucket.tokens -= 1.0;
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn a_bucket_allows_its_burst_and_then_its_rate() {
        let config = value!({"limits": [{"type": "Namespace", "qps": 2, "burst": 3}]});
        let limits = EventLimits::read(&config).expect("a configuration");
        let limit = &limits.limits[0];
        let at = |millis: i128| millis * 1_000_000;
        let taken: Vec<bool> =
            [0, 0, 0, 0, 400, 500, 600].into_iter().map(|ms| limit.take("a", at(ms))).collect();
        assert_eq!(taken, [true, true, true, false, false, true, false]);
        assert!(limit.take("b", at(600)), "each key has a bucket of its own");
    }

    #[test]
    fn cached_keys_are_bounded() {
        let config = value!({"limits": [{"type": "User", "qps": 1, "burst": 1, "cacheSize": 2}]});
        let limits = EventLimits::read(&config).expect("a configuration");
        for (millis, key) in ["a", "b", "c", "d"].into_iter().enumerate() {
            assert!(limits.limits[0].take(key, millis as i128));
        }
        let kept = limits.limits[0].buckets.lock().expect("a lock").len();
        assert_eq!(kept, 2);
    }

    #[test]
    fn invalid_limits_are_rejected() {
        let check = |config: Value, want: &str| {
            assert_eq!(EventLimits::read(&config).map(drop), Err(want.to_owned()));
        };
        check(value!({"limits": []}), "limits: Invalid value: []: must not be empty");
        check(
            value!({"limits": [{"type": "Node", "qps": 1, "burst": 1}]}),
            "limits[0].type: \"Node\" is none of Server, Namespace, User, SourceAndObject",
        );
        check(
            value!({"limits": [{"type": "User", "burst": 1}]}),
            "limits[0].qps: must be positive",
        );
    }
}
