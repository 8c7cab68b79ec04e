//! Pod helpers: containers, resource amounts, and the requests of a whole pod.

use keelson_meta::quantity::Format;
use keelson_meta::{Map, Object, Quantity, Value};
use std::collections::BTreeMap;

/// Resource amounts by name.
pub type Amounts = BTreeMap<String, Quantity>;

/// Parses a quantity; absent and invalid values are zero.
pub(crate) fn quantity(value: Option<&Value>) -> Quantity {
    match value {
        Some(Value::Int(number)) => Quantity::new(*number, Format::DecimalSi),
        Some(value) => value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default(),
        None => Quantity::default(),
    }
}

/// Parses a map of quantities.
pub fn amounts(map: Option<&Value>) -> Amounts {
    let map = map.and_then(Value::as_object);
    let pairs = map.into_iter().flat_map(Map::iter);
    pairs.map(|(name, value)| (name.to_string(), quantity(Some(value)))).collect()
}

/// The member of `resources`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// `requests`.
    Requests,
    /// `limits`.
    Limits,
}

impl Side {
    /// Returns the field name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Requests => "requests",
            Side::Limits => "limits",
        }
    }
}

/// Returns the requests or limits of a container.
pub(crate) fn container_amounts(container: &Value, side: Side) -> Amounts {
    amounts(container.at(&["resources", side.name()]))
}

/// Returns whether an init container is a sidecar.
pub(crate) fn is_sidecar(container: &Value) -> bool {
    container.str_at(&["restartPolicy"]) == Some("Always")
}

/// Adds `more` to `to`.
pub(crate) fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.get(name).map_or_else(|| amount.clone(), |known| known.add(amount));
        to.insert(name.clone(), sum);
    }
}

/// Raises each amount to the maximum of both.
pub(crate) fn raise(to: &mut Amounts, other: &Amounts) {
    for (name, amount) in other {
        if to.get(name).is_none_or(|known| amount > known) {
            to.insert(name.clone(), amount.clone());
        }
    }
}

/// Returns the requests or limits of a whole pod without overhead: the sum of containers that run
/// together, and the maximum of those that run one after another. Pod-level resources take
/// precedence.
pub(crate) fn pod_amounts(pod: &Object, side: Side) -> Amounts {
    let mut all = Amounts::new();
    for container in pod.array_at(&["spec", "containers"]) {
        add(&mut all, &container_amounts(container, side));
    }
    let mut sidecars = Amounts::new();
    let mut init = Amounts::new();
    for container in pod.array_at(&["spec", "initContainers"]) {
        let own = container_amounts(container, side);
        if is_sidecar(container) {
            add(&mut all, &own);
            add(&mut sidecars, &own);
            raise(&mut init, &sidecars);
        } else {
            let mut together = own;
            add(&mut together, &sidecars);
            raise(&mut init, &together);
        }
    }
    raise(&mut all, &init);
    for (name, amount) in amounts(pod.at(&["spec", "resources", side.name()])) {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            all.insert(name, amount);
        }
    }
    all
}

/// The lists of containers of a pod's spec.
pub(crate) const CONTAINER_LISTS: [&str; 3] =
    ["initContainers", "containers", "ephemeralContainers"];
