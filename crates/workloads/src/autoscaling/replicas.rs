//! How many replicas a metric asks for: pure functions of samples, pods and targets.

use keelson_loops::pods::ready_condition;
use keelson_meta::quantity::Quantity;
use keelson_meta::time::GoDuration;
use keelson_meta::{Object, Str, Timestamp, Value};
use std::collections::{BTreeMap, BTreeSet};

/// For how long after its start the CPU usage of a pod may be that of its start.
const CPU_INITIALIZATION_SECONDS: i64 = 300;
/// A pod that is unready since at most so long after its start has never been ready.
const INITIAL_READINESS_SECONDS: i64 = 30;

/// A measured value of a pod, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sample {
    pub value: i64,
    pub at: Timestamp,
    pub window: GoDuration,
}

/// Samples by the name of the pod.
pub(super) type Samples = BTreeMap<Str, Sample>;

/// By how much the usage may differ from the target without a change of replicas.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tolerances {
    pub down: f64,
    pub up: f64,
}

impl Tolerances {
    fn accept(self, ratio: f64) -> bool {
        (1.0 - self.down..=1.0 + self.up).contains(&ratio)
    }
}

/// The pods of a workload, by what their samples are worth.
#[derive(Debug, Default, PartialEq, Eq)]
struct Groups {
    ready: usize,
    unready: BTreeSet<Str>,
    missing: BTreeSet<Str>,
    ignored: BTreeSet<Str>,
}

fn group(pods: &[Object], samples: &Samples, is_cpu: bool, now: Timestamp) -> Groups {
    let mut groups = Groups::default();
    for pod in pods {
        let name = Str::new(pod.name());
        let phase = pod.str_at(&["status", "phase"]);
        if pod.deletion_timestamp().is_some() || phase == "Failed" {
            groups.ignored.insert(name);
        } else if phase == "Pending" {
            groups.unready.insert(name);
        } else if let Some(sample) = samples.get(&name) {
            if is_cpu && is_starting(pod, *sample, now) {
                groups.unready.insert(name);
            } else {
                groups.ready += 1;
            }
        } else {
            groups.missing.insert(name);
        }
    }
    groups
}

/// Whether the CPU usage of a pod may be that of its start.
fn is_starting(pod: &Object, sample: Sample, now: Timestamp) -> bool {
    let started = Timestamp::parse(pod.str_at(&["status", "startTime"])).ok();
    let (Some((ready, since)), Some(started)) = (ready_condition(pod), started) else {
        return true;
    };
    let since = Timestamp::parse(since).unwrap_or_default();
    let after_start = |seconds| started.plus(GoDuration::from_seconds(seconds));
    let is_unready = ready == "False";
    if after_start(CPU_INITIALIZATION_SECONDS) > now {
        is_unready || sample.at < since.plus(sample.window)
    } else {
        is_unready && after_start(INITIAL_READINESS_SECONDS) > since
    }
}

/// What a metric of pods is compared with.
pub(super) enum Target<'a> {
    /// A share, in percent, of what the pods request, in thousandths by name. Unknown requests are
    /// an error only if there are samples.
    Utilization(i64, &'a Result<BTreeMap<Str, i64>, String>),
    /// An average, in thousandths.
    Average(i64),
}

/// Ratio of usage to target, utilization in percent (0 for averages), and average.
struct Usage {
    ratio: f64,
    utilization: i64,
    average: i64,
}

impl Target<'_> {
    fn usage(&self, samples: &Samples) -> Result<Usage, String> {
        match self {
            Target::Average(target) => {
                let total: i64 = samples.values().map(|sample| sample.value).sum();
                let average = total / count(samples.len()).max(1);
                let ratio = average as f64 / *target as f64;
                Ok(Usage { ratio, utilization: 0, average })
            }
            Target::Utilization(target, requests) => {
                let requests = requests.as_ref().map_err(Clone::clone)?;
                let mut used = 0;
                let mut requested = 0;
                let mut pods = 0;
                for (name, sample) in samples {
                    if let Some(request) = requests.get(name) {
                        used += sample.value;
                        requested += request;
                        pods += 1;
                    }
                }
                if requested == 0 {
                    return Err("no metrics returned matched known pods".to_owned());
                }
                let utilization = used * 100 / requested;
                let ratio = utilization as f64 / *target as f64;
                Ok(Usage { ratio, utilization, average: used / pods })
            }
        }
    }

    /// Returns the usage that is assumed of a pod without a sample when the others use too little.
    fn fallback(&self, pod: &str) -> i64 {
        match self {
            Target::Average(target) => *target,
            Target::Utilization(target, requests) => {
                let request = requests.as_ref().ok().and_then(|all| all.get(pod));
                request.copied().unwrap_or(0) * (*target).max(100) / 100
            }
        }
    }
}

/// The replicas that a metric asks for, and what was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Proposal {
    pub replicas: i64,
    pub utilization: i64,
    /// An average or a value, in thousandths.
    pub value: i64,
}

/// Returns the replicas that a metric of each pod asks for.
pub(super) fn of_pods(
    current: i64,
    target: &Target<'_>,
    mut samples: Samples,
    pods: &[Object],
    is_cpu: bool,
    tolerances: Tolerances,
    now: Timestamp,
) -> Result<Proposal, String> {
    if pods.is_empty() {
        return Err("no pods returned by selector while calculating replica count".to_owned());
    }
    let groups = group(pods, &samples, is_cpu, now);
    samples.retain(|name, _| !groups.ignored.contains(name) && !groups.unready.contains(name));
    if samples.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let usage = target.usage(&samples)?;
    let of = |replicas| Proposal { replicas, utilization: usage.utilization, value: usage.average };
    let counts_unready = !groups.unready.is_empty() && usage.ratio > 1.0;
    if !counts_unready && groups.missing.is_empty() {
        if tolerances.accept(usage.ratio) {
            return Ok(of(current));
        }
        return Ok(of(ceil(usage.ratio * groups.ready as f64)));
    }
    // What is not known is assumed to be whatever changes the replicas least.
    let mut assume = |name: &Str, value| {
        samples.insert(name.clone(), Sample { value, ..Sample::default() });
    };
    if usage.ratio < 1.0 {
        groups.missing.iter().for_each(|name| assume(name, target.fallback(name)));
    } else if usage.ratio > 1.0 {
        groups.missing.iter().for_each(|name| assume(name, 0));
    }
    if counts_unready {
        groups.unready.iter().for_each(|name| assume(name, 0));
    }
    let ratio = target.usage(&samples)?.ratio;
    let is_reversed = usage.ratio < 1.0 && ratio > 1.0 || usage.ratio > 1.0 && ratio < 1.0;
    if tolerances.accept(ratio) || is_reversed {
        return Ok(of(current));
    }
    let replicas = ceil(ratio * samples.len() as f64);
    if ratio < 1.0 && replicas > current || ratio > 1.0 && replicas < current {
        return Ok(of(current));
    }
    Ok(of(replicas))
}

/// Returns the replicas that one value for all pods asks for.
pub(super) fn of_value(
    current: i64,
    value: i64,
    target: i64,
    pods: &[Object],
    tolerances: Tolerances,
) -> Result<Proposal, String> {
    let ratio = value as f64 / target as f64;
    let of = |replicas| Ok(Proposal { replicas, utilization: 0, value });
    if current == 0 {
        return of(ceil(ratio));
    }
    if tolerances.accept(ratio) {
        return of(current);
    }
    if pods.is_empty() {
        let why = "no pods returned by selector while calculating replica count";
        return Err(format!("unable to calculate ready pods: {why}"));
    }
    let is_ready = |pod: &&Object| {
        pod.str_at(&["status", "phase"]) == "Running" && keelson_loops::pods::is_ready(pod)
    };
    of(ceil(ratio * pods.iter().filter(is_ready).count() as f64))
}

/// Returns the replicas that a value asks for which is divided among the pods.
pub(super) fn of_share(replicas: i64, value: i64, target: i64, tolerances: Tolerances) -> Proposal {
    let ratio = value as f64 / (target as f64 * replicas as f64);
    let wanted =
        if tolerances.accept(ratio) { replicas } else { ceil(value as f64 / target as f64) };
    let value = (value as f64 / replicas as f64).ceil() as i64;
    Proposal { replicas: wanted, utilization: 0, value }
}

fn ceil(number: f64) -> i64 {
    i64::from(number.ceil() as i32)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Returns what each pod requests of a resource, in thousandths, in all containers or in one.
pub(super) fn requests(
    pods: &[Object],
    container: &str,
    resource: &str,
) -> Result<BTreeMap<Str, i64>, String> {
    pods.iter().map(|pod| Ok((pod.name().into(), request(pod, container, resource)?))).collect()
}

fn request(pod: &Object, container: &str, resource: &str) -> Result<i64, String> {
    let milli = |value: &Value| {
        let text = value.as_str().unwrap_or_default();
        text.parse::<Quantity>().map(|quantity| quantity.milli_value()).unwrap_or(0)
    };
    let own = pod.at(&["spec", "resources", "requests"]).filter(|own| !own.is_empty());
    if let (Some(own), "") = (own, container)
        && let Some(value) = own.get(resource)
    {
        return Ok(milli(value));
    }
    let is_sidecar = |one: &&Value| one.str_at(&["restartPolicy"]) == Some("Always");
    let sidecars = pod.array_at(&["spec", "initContainers"]).iter().filter(is_sidecar);
    let mut total = 0;
    for one in pod.array_at(&["spec", "containers"]).iter().chain(sidecars) {
        let name = one.str_at(&["name"]).unwrap_or_default();
        if !container.is_empty() && container != name {
            continue;
        }
        let Some(value) = one.at(&["resources", "requests", resource]) else {
            let pod = pod.name();
            return Err(format!("missing request for {resource} in container {name} of Pod {pod}"));
        };
        total += milli(value);
        if container == name {
            return Ok(total);
        }
    }
    if container.is_empty() {
        return Ok(total);
    }
    Err(format!("container {container} not found in Pod {}", pod.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    const TOLERANCES: Tolerances = Tolerances { down: 0.1, up: 0.1 };

    fn pod(name: &str, phase: &str) -> Object {
        Object::from_value(value!({"metadata": {"name": name},
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "100m"}}}]},
            "status": {"phase": phase, "startTime": "1970-01-01T00:00:00Z", "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:00Z"}]}}))
        .expect("a map")
    }

    fn check(current: i64, phases: &[&str], values: &[i64], target: i64, want: Result<i64, &str>) {
        let names = ["a", "b", "c", "d", "e", "f"];
        let pods: Vec<Object> =
            phases.iter().zip(names).map(|(phase, name)| pod(name, phase)).collect();
        let at = Timestamp::new(10_000, 0);
        let sample = |value: i64| Sample { value, at, window: GoDuration(0) };
        let samples: Samples =
            values.iter().zip(names).map(|(value, name)| (name.into(), sample(*value))).collect();
        let requests = requests(&pods, "", "cpu");
        let target = Target::Utilization(target, &requests);
        let found = of_pods(current, &target, samples, &pods, true, TOLERANCES, at)
            .map(|proposal| proposal.replicas);
        assert_eq!(found, want.map_err(str::to_owned), "{phases:?} {values:?}");
    }

    #[test]
    fn usage_decides_the_replicas() {
        let run = ["Running"; 6];
        check(3, &run[..3], &[30, 30, 30], 30, Ok(3));
        check(3, &run[..3], &[32, 32, 33], 30, Ok(3));
        check(3, &run[..3], &[60, 60, 60], 30, Ok(6));
        check(3, &run[..3], &[10, 10, 10], 30, Ok(1));
        let none = "did not receive metrics for targeted pods (pods might be unready)";
        check(1, &["Pending"], &[], 30, Err(none));
        check(0, &[], &[], 30, Err("no pods returned by selector while calculating replica count"));
    }

    #[test]
    fn unknown_usage_changes_the_replicas_least() {
        let run = ["Running"; 4];
        // A missing pod uses all that it requests.
        check(3, &run[..3], &[10, 10], 50, Ok(3));
        // A missing pod uses nothing.
        check(3, &run[..3], &[60, 60], 30, Ok(4));
        check(3, &["Running", "Running", "Pending"], &[60, 60], 30, Ok(4));
        check(3, &["Running", "Running", "Failed"], &[60, 60, 900], 30, Ok(4));
    }

    #[test]
    fn a_value_is_compared_as_it_is_or_divided() {
        let pods = [pod("a", "Running"), pod("b", "Running"), pod("c", "Pending")];
        let whole = |current, value| {
            of_value(current, value, 10_000, &pods, TOLERANCES).expect("replicas").replicas
        };
        assert_eq!([whole(3, 20_000), whole(3, 10_500), whole(0, 25_000)], [4, 3, 3]);
        let share = of_share(3, 100_000, 20_000, TOLERANCES);
        assert_eq!((share.replicas, share.value), (5, 33_334));
    }

    #[test]
    fn requests_must_be_known() {
        let pods = [pod("a", "Running")];
        let missing = "missing request for memory in container main of Pod a";
        assert_eq!(requests(&pods, "", "memory"), Err(missing.to_owned()));
        let unknown = "container other not found in Pod a";
        assert_eq!(requests(&pods, "other", "cpu"), Err(unknown.to_owned()));
    }
}
