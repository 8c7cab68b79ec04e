//! Quota usage of a ResourceClaim: devices by class.

use crate::plug_ins::pod::{Amounts, add};
use crate::request::Stored;
use keelson_meta::quantity::Format;
use keelson_meta::{Failure, Object, Quantity, Value};

/// Prefix of the implicit extended resource of a device class; its name follows.
pub(super) const IMPLICIT: &str = "deviceclass.resource.kubernetes.io/";
const DEVICE_CLASS_SUFFIX: &str = ".deviceclass.resource.k8s.io/devices";
/// Usage of a request for all devices (`AllocationResultsMaxSize`).
const ALL_DEVICES: i64 = 32;

/// Returns whether a resource name in a quota counts devices of claims.
pub(super) fn is_counted(what: &str) -> bool {
    what.ends_with(DEVICE_CLASS_SUFFIX)
        || what.strip_prefix("requests.").is_some_and(super::is_extended_resource)
}

/// Returns the devices that a claim requests. Of the alternatives in `firstAvailable`, the largest
/// count of each class is used.
pub(super) fn claim_usage(claim: &Object, stored: &dyn Stored) -> Result<Amounts, Failure> {
    let mut classes = Amounts::new();
    for request in claim.array_at(&["spec", "devices", "requests"]) {
        let mut own = Amounts::new();
        let exactly = request.get("exactly").into_iter();
        for request in exactly.chain(request.array_at(&["firstAvailable"])) {
            let class = request.str_at(&["deviceClassName"]).unwrap_or_default();
            let most = own.entry(class.to_owned()).or_default();
            *most = count(request).max(most.clone());
        }
        add(&mut classes, &own);
    }
    let mut all = Amounts::new();
    for (class, count) in classes {
        let mut named =
            vec![format!("{class}{DEVICE_CLASS_SUFFIX}"), format!("requests.{IMPLICIT}{class}")];
        let stored = stored.get("resource.k8s.io", "deviceclasses", "", &class)?;
        let name =
            stored.as_ref().map_or("", |class| class.str_at(&["spec", "extendedResourceName"]));
        if !name.is_empty() {
            named.push(format!("requests.{name}"));
        }
        let counts = named.into_iter().map(|name| (name, count.clone()));
        add(&mut all, &counts.collect());
    }
    Ok(all)
}

fn count(request: &Value) -> Quantity {
    let number = match request.str_at(&["allocationMode"]) {
        Some("All") => ALL_DEVICES,
        _ => request.int_at(&["count"]).unwrap_or(1),
    };
    Quantity::new(number, Format::DecimalSi)
}
