//! How fast replicas may change: stabilization by recent recommendations, and limits by rules.

use keelson_meta::time::GoDuration;
use keelson_meta::{Object, Timestamp, Value};

/// How long a higher recommendation holds, without other rules.
const DOWNSCALE_SECONDS: i64 = 300;

/// What is remembered about one autoscaler.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    /// Recommended replicas.
    recommendations: Vec<(i64, Timestamp)>,
    /// By how much replicas were increased and decreased.
    ups: Vec<(i64, Timestamp)>,
    downs: Vec<(i64, Timestamp)>,
}

/// The replicas within all limits, with the conditions AbleToScale and ScalingLimited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Limited {
    pub replicas: i64,
    /// Reason and message of AbleToScale, which is true.
    pub able: (&'static str, &'static str),
    /// Status, reason and message of ScalingLimited.
    pub limited: (bool, &'static str, &'static str),
}

/// The numbers that replicas are limited by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub current: i64,
    pub desired: i64,
    pub min: i64,
    pub max: i64,
}

const READY: (&str, &str) = ("ReadyForNewScale", "recommended size matches current size");
const UP_STABILIZED: (&str, &str) = (
    "ScaleUpStabilized",
    "recent recommendations were lower than current one, applying the lowest recent recommendation",
);
const DOWN_STABILIZED: (&str, &str) = (
    "ScaleDownStabilized",
    "recent recommendations were higher than current one, applying the highest recent recommendation",
);
const WITHIN: (&str, &str) =
    ("DesiredWithinRange", "the desired count is within the acceptable range");
const TOO_MANY: (&str, &str) =
    ("TooManyReplicas", "the desired replica count is more than the maximum replica count");
const TOO_FEW: (&str, &str) =
    ("TooFewReplicas", "the desired replica count is less than the minimum replica count");
const TOO_FAST_UP: (&str, &str) =
    ("ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate");
const TOO_FAST_DOWN: (&str, &str) = (
    "ScaleDownLimit",
    "the desired replica count is decreasing faster than the maximum scale rate",
);

fn before(now: Timestamp, seconds: i64) -> Timestamp {
    now.plus(GoDuration::from_seconds(-seconds))
}

impl History {
    /// Remembers the replicas at the beginning.
    pub fn begin(&mut self, replicas: i64, now: Timestamp) {
        if self.recommendations.is_empty() {
            self.recommendations.push((replicas, now));
        }
    }

    /// Limits replicas, with the rules of `spec.behavior` or without.
    pub fn limit(&mut self, autoscaler: &Object, bounds: Bounds, now: Timestamp) -> Limited {
        let behavior = autoscaler.at(&["spec", "behavior"]).filter(|rules| rules.is_map());
        let (stabilized, able, allowed, why) = match behavior {
            None => {
                let stabilized = self.stabilize(bounds.desired, now);
                let (allowed, why) = limit_plainly(bounds, stabilized);
                (stabilized, DOWN_STABILIZED, allowed, why)
            }
            Some(behavior) => {
                let (stabilized, able) = self.stabilize_by_rules(behavior, bounds, now);
                let bounds = Bounds { desired: stabilized, ..bounds };
                let (allowed, why) = self.limit_by_rules(behavior, bounds, now);
                (stabilized, able, allowed, why)
            }
        };
        let able = if stabilized == bounds.desired { READY } else { able };
        Limited { replicas: allowed, able, limited: (allowed != stabilized, why.0, why.1) }
    }

    fn remember(&mut self, replicas: i64, is_old: impl Fn(Timestamp) -> bool, now: Timestamp) {
        let old = self.recommendations.iter().rposition(|(_, at)| is_old(*at));
        match old {
            Some(place) => self.recommendations[place] = (replicas, now),
            None => self.recommendations.push((replicas, now)),
        }
    }

    fn stabilize(&mut self, desired: i64, now: Timestamp) -> i64 {
        let cutoff = before(now, DOWNSCALE_SECONDS);
        let recent = self.recommendations.iter().filter(|(_, at)| *at >= cutoff);
        let highest = recent.map(|(replicas, _)| *replicas).fold(desired, i64::max);
        self.remember(desired, |at| at < cutoff, now);
        highest
    }

    fn stabilize_by_rules(
        &mut self,
        behavior: &Value,
        bounds: Bounds,
        now: Timestamp,
    ) -> (i64, (&'static str, &'static str)) {
        let window = |name: &str, default: i64| {
            let seconds = behavior.int_at(&[name, "stabilizationWindowSeconds"]);
            before(now, seconds.unwrap_or(default))
        };
        let up = window("scaleUp", 0);
        let down = window("scaleDown", DOWNSCALE_SECONDS);
        let mut lowest = bounds.desired;
        let mut highest = bounds.desired;
        for (replicas, at) in &self.recommendations {
            if *at > up {
                lowest = lowest.min(*replicas);
            }
            if *at > down {
                highest = highest.max(*replicas);
            }
        }
        self.remember(bounds.desired, |at| at < up && at < down, now);
        let stabilized = bounds.current.max(lowest).min(highest);
        let why = if bounds.desired >= bounds.current { UP_STABILIZED } else { DOWN_STABILIZED };
        (stabilized, why)
    }

    fn limit_by_rules(
        &self,
        behavior: &Value,
        Bounds { current, desired, min, max }: Bounds,
        now: Timestamp,
    ) -> (i64, (&'static str, &'static str)) {
        if desired > current {
            let limit = self.rate_limit(behavior.get("scaleUp"), current, true, now).max(current);
            let (allowed, why) = if max > limit { (limit, TOO_FAST_UP) } else { (max, TOO_MANY) };
            if desired > allowed {
                return (allowed, why);
            }
        } else if desired < current {
            let limit =
                self.rate_limit(behavior.get("scaleDown"), current, false, now).min(current);
            let (allowed, why) = if min < limit { (limit, TOO_FAST_DOWN) } else { (min, TOO_FEW) };
            if desired < allowed {
                return (allowed, why);
            }
        }
        (desired, WITHIN)
    }

    /// Returns the replicas that the policies of a rule allow.
    fn rate_limit(&self, rules: Option<&Value>, current: i64, is_up: bool, now: Timestamp) -> i64 {
        let select = rules.and_then(|rules| rules.str_at(&["selectPolicy"])).unwrap_or("Max");
        if select == "Disabled" {
            return current;
        }
        let policies = rules.map_or(&[][..], |rules| rules.array_at(&["policies"]));
        let limits = policies.iter().map(|policy| {
            let period = policy.int_at(&["periodSeconds"]).unwrap_or(0);
            let value = policy.int_at(&["value"]).unwrap_or(0);
            let start = current - self.changed(&self.ups, period, now)
                + self.changed(&self.downs, period, now);
            let share = value as f64 / 100.0;
            match (policy.str_at(&["type"]) == Some("Percent"), is_up) {
                (false, true) => start + value,
                (false, false) => start - value,
                (true, true) => i64::from((start as f64 * (1.0 + share)).ceil() as i32),
                (true, false) => i64::from((start as f64 * (1.0 - share)) as i32),
            }
        });
        // The largest change is the highest number upwards and the lowest downwards.
        let limit = if (select == "Min") == is_up { limits.min() } else { limits.max() };
        limit.unwrap_or(current)
    }

    fn changed(&self, events: &[(i64, Timestamp)], period: i64, now: Timestamp) -> i64 {
        let cutoff = before(now, period);
        events.iter().filter(|(_, at)| *at > cutoff).map(|(change, _)| change).sum()
    }

    /// Remembers a change of replicas.
    pub fn changed_to(&mut self, autoscaler: &Object, old: i64, new: i64, now: Timestamp) {
        let Some(behavior) = autoscaler.at(&["spec", "behavior"]) else { return };
        let (events, name) =
            if new > old { (&mut self.ups, "scaleUp") } else { (&mut self.downs, "scaleDown") };
        let policies = behavior.array_at(&[name, "policies"]).iter();
        let periods = policies.filter_map(|policy| policy.int_at(&["periodSeconds"]));
        let cutoff = before(now, periods.max().unwrap_or(0));
        events.retain(|(_, at)| *at >= cutoff);
        events.push(((new - old).abs(), now));
    }
}

/// Limits replicas without rules: at most the double, or 4.
fn limit_plainly(
    Bounds { current, min, max, .. }: Bounds,
    desired: i64,
) -> (i64, (&'static str, &'static str)) {
    let limit = (2 * current).max(4);
    let (allowed, why) = if max > limit { (limit, TOO_FAST_UP) } else { (max, TOO_MANY) };
    if desired < min {
        (min, TOO_FEW)
    } else if desired > allowed {
        (allowed, why)
    } else {
        (desired, WITHIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::new(seconds, 0)
    }

    fn bounds(current: i64, desired: i64) -> Bounds {
        Bounds { current, desired, min: 1, max: 20 }
    }

    #[test]
    fn without_rules_replicas_double_and_decrease_late() {
        let mut history = History::default();
        let plain = Object::new();
        history.begin(3, at(0));
        let mut check = |current, desired, now, want: (i64, &str, &str)| {
            let found = history.limit(&plain, bounds(current, desired), at(now));
            assert_eq!((found.replicas, found.able.0, found.limited.1), want, "{desired} at {now}");
        };
        check(3, 9, 1, (6, "ReadyForNewScale", "ScaleUpLimit"));
        check(6, 40, 2, (12, "ReadyForNewScale", "ScaleUpLimit"));
        check(12, 40, 3, (20, "ReadyForNewScale", "TooManyReplicas"));
        check(20, 2, 4, (20, "ScaleDownStabilized", "TooManyReplicas"));
        check(20, 2, 304, (2, "ReadyForNewScale", "DesiredWithinRange"));
        check(2, 0, 700, (1, "ReadyForNewScale", "TooFewReplicas"));
    }

    #[test]
    fn rules_limit_the_rate() {
        let mut history = History::default();
        let scaler = value!({"spec": {"behavior": {
            "scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [
                {"type": "Pods", "value": 4, "periodSeconds": 15},
                {"type": "Percent", "value": 100, "periodSeconds": 15}]},
            "scaleDown": {"stabilizationWindowSeconds": 60, "selectPolicy": "Min", "policies": [
                {"type": "Pods", "value": 1, "periodSeconds": 10},
                {"type": "Percent", "value": 50, "periodSeconds": 10}]}}}});
        let scaler = Object::from_value(scaler).expect("a map");
        history.begin(2, at(0));
        let mut check = |current, desired, now, want: (i64, &str, &str)| {
            let found = history.limit(&scaler, bounds(current, desired), at(now));
            assert_eq!((found.replicas, found.able.0, found.limited.1), want, "{desired} at {now}");
            if found.replicas != current {
                history.changed_to(&scaler, current, found.replicas, at(now));
            }
        };
        check(2, 15, 1, (6, "ReadyForNewScale", "ScaleUpLimit"));
        check(6, 15, 2, (6, "ReadyForNewScale", "ScaleUpLimit"));
        check(6, 15, 20, (12, "ReadyForNewScale", "ScaleUpLimit"));
        check(12, 15, 40, (15, "ReadyForNewScale", "DesiredWithinRange"));
        check(15, 3, 50, (15, "ScaleDownStabilized", "DesiredWithinRange"));
        check(15, 3, 120, (14, "ReadyForNewScale", "ScaleDownLimit"));
        check(14, 3, 121, (14, "ReadyForNewScale", "ScaleDownLimit"));
        check(14, 3, 131, (13, "ReadyForNewScale", "ScaleDownLimit"));
    }
}
