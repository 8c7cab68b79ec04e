//! [`Resources`]: amounts of resources, and what a pod requests.

use keelson_meta::{Map, Object, Quantity, Str, Value};

/// CPU that a container without a request counts for in scores (milli).
const DEFAULT_CPU: i64 = 100;
/// Memory that a container without a request counts for in scores.
const DEFAULT_MEMORY: i64 = 200 * 1024 * 1024;

/// Amounts of resources.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// In thousandths.
    pub cpu: i64,
    pub memory: i64,
    pub ephemeral: i64,
    /// All other resources, by name.
    pub others: Vec<(Str, i64)>,
}

impl Resources {
    /// Reads a map of quantities. The number of pods is left out.
    pub fn of(list: Option<&Value>) -> Resources {
        let mut resources = Resources::default();
        let entries = list.and_then(Value::as_object).into_iter().flat_map(Map::iter);
        for (name, amount) in entries {
            resources.set(name, amount_of(name, amount));
        }
        resources.others.shrink_to_fit();
        resources
    }

    fn set(&mut self, name: &str, amount: i64) {
        match name {
            "cpu" => self.cpu = amount,
            "memory" => self.memory = amount,
            "ephemeral-storage" => self.ephemeral = amount,
            "pods" => {}
            _ => match self.others.iter_mut().find(|(known, _)| known == name) {
                Some((_, known)) => *known = amount,
                None => self.others.push((name.into(), amount)),
            },
        }
    }

    /// Returns the amount of a resource other than CPU, memory and storage.
    pub fn other(&self, name: &str) -> i64 {
        self.others.iter().find(|(known, _)| known == name).map_or(0, |(_, amount)| *amount)
    }

    pub fn add(&mut self, more: &Resources) {
        self.combine(more, i64::saturating_add);
    }

    pub fn sub(&mut self, less: &Resources) {
        self.combine(less, i64::saturating_sub);
    }

    fn raise(&mut self, other: &Resources) {
        self.combine(other, i64::max);
    }

    fn combine(&mut self, other: &Resources, with: fn(i64, i64) -> i64) {
        self.cpu = with(self.cpu, other.cpu);
        self.memory = with(self.memory, other.memory);
        self.ephemeral = with(self.ephemeral, other.ephemeral);
        for (name, amount) in &other.others {
            let amount = with(self.other(name), *amount);
            self.set(name, amount);
        }
    }

    /// Replaces the amounts that `list` names.
    fn replace(&mut self, list: &Value) {
        for (name, amount) in list.as_object().into_iter().flat_map(Map::iter) {
            self.set(name, amount_of(name, amount));
        }
    }
}

/// Returns a quantity as a number: thousandths of CPUs, else units, rounded up.
fn amount_of(name: &str, amount: &Value) -> i64 {
    let parsed = match amount {
        Value::Int(number) => Ok(Quantity::new(*number, keelson_meta::quantity::Format::default())),
        other => other.as_str().unwrap_or_default().parse::<Quantity>(),
    };
    let Ok(quantity) = parsed else { return 0 };
    if name == "cpu" { quantity.milli_value() } else { quantity.value() }
}

/// What a pod requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Requests {
    /// What must be free on a node.
    pub exact: Resources,
    /// The same, with defaults for containers without requests of CPU or memory: for scores.
    pub scored: Resources,
}

/// Returns what a pod requests: the sum of its containers and sidecars, or, if that is more, what
/// the start of its init containers needs.
pub fn requests(pod: &Object) -> Requests {
    let exact = pod_requests(pod, false);
    let mut scored = pod_requests(pod, true);
    scored.ephemeral = exact.ephemeral;
    scored.others.clone_from(&exact.others);
    Requests { exact, scored }
}

fn pod_requests(pod: &Object, with_defaults: bool) -> Resources {
    let statuses = pod.array_at(&["status", "containerStatuses"]);
    let of = |container: &Value| {
        let mut requests = Resources::of(container.at(&["resources", "requests"]));
        // A resize that is not done yet holds both amounts.
        let name = container.str_at(&["name"]);
        let status = statuses.iter().find(|status| status.str_at(&["name"]) == name);
        if let Some(actual) = status.and_then(|status| status.at(&["resources", "requests"])) {
            requests.raise(&Resources::of(Some(actual)));
        }
        let named = |resource: &str| container.at(&["resources", "requests", resource]).is_some();
        if with_defaults && !named("cpu") {
            requests.cpu = DEFAULT_CPU;
        }
        if with_defaults && !named("memory") {
            requests.memory = DEFAULT_MEMORY;
        }
        requests
    };
    let mut sum = Resources::default();
    for container in pod.array_at(&["spec", "containers"]) {
        sum.add(&of(container));
    }
    let mut sidecars = Resources::default();
    let mut peak = Resources::default();
    for container in pod.array_at(&["spec", "initContainers"]) {
        let requests = of(container);
        let mut at_start = sidecars.clone();
        at_start.add(&requests);
        if container.str_at(&["restartPolicy"]) == Some("Always") {
            sum.add(&requests);
            sidecars.add(&requests);
        }
        peak.raise(&at_start);
    }
    sum.raise(&peak);
    if let Some(whole) = pod.at(&["spec", "resources", "requests"]) {
        sum.replace(whole);
    }
    sum.add(&Resources::of(pod.at(&["spec", "overhead"])));
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn a_pod_requests_the_most_that_it_ever_needs() {
        let check = |spec: Value, cpu: i64, memory: i64| {
            let pod = Object::from_value(value!({"spec": (spec)})).unwrap_or_default();
            let requests = requests(&pod).exact;
            assert_eq!((requests.cpu, requests.memory), (cpu, memory));
        };
        let of = |cpu: &str| value!({"resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| value!({"restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        check(value!({"containers": [(of("1")), (of("500m"))]}), 1_500, 0);
        check(
            value!({"containers": [(of("1"))], "initContainers": [(of("3")), (of("2"))]}),
            3_000,
            0,
        );
        let mixed = value!({"containers": [(of("1"))],
            "initContainers": [(sidecar("500m")), (of("2")), (sidecar("1"))]});
        check(mixed, 2_500, 0);
        let whole = value!({"containers": [(of("1"))], "overhead": {"memory": "1Mi"},
            "resources": {"requests": {"cpu": "4", "memory": "1Ki"}}});
        check(whole, 4_000, 1_049_600);
        let scored = requests(
            &Object::from_value(value!({"spec": {"containers": [{}, {}]}})).unwrap_or_default(),
        );
        assert_eq!((scored.scored.cpu, scored.scored.memory), (200, 419_430_400));
    }
}
