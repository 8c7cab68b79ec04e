//! Validates the status of a ResourceClaim.

use super::requests::{Names, reference, references};
use super::{configuration, driver, not_too_many, parameters, toleration, unique};
use crate::check::Field;
use crate::equality::equal_or_empty;
use keelson_meta::object_meta::IMMUTABLE;
use keelson_meta::{ErrorList, FieldError, Object, Str, Value, names, value};
use std::collections::{BTreeSet, HashSet};

const CONSUMERS_MAX: usize = 256;
const RESULTS_MAX: usize = 32;
const CONFIGS_MAX: usize = 64;
const CONDITIONS_MAX: usize = 8;
const BINDING_CONDITIONS_MAX: usize = 4;
const ADDRESSES_MAX: usize = 16;
const POOL_NAME_BYTES_MAX: usize = 253;
const DATA_BYTES_MAX: usize = 10 * 1024;
const INTERFACE_NAME_BYTES_MAX: usize = 256;
const HARDWARE_ADDRESS_BYTES_MAX: usize = 128;

/// Driver, pool, device and share ID.
type DeviceId<'v> = [&'v str; 4];

fn device_id(item: &Value) -> DeviceId<'_> {
    ["driver", "pool", "device", "shareID"].map(|name| item.str_at(&[name]).unwrap_or_default())
}

/// A device as error messages show it.
#[derive(Clone, PartialEq, Eq, Hash)]
struct GoDeviceId<'v>(DeviceId<'v>);

impl From<GoDeviceId<'_>> for Value {
    fn from(GoDeviceId([driver, pool, device, share]): GoDeviceId<'_>) -> Value {
        value!({"Driver": driver, "Pool": pool, "Device": device, "ShareID": share})
    }
}

/// Returns the device of an item as errors format it.
fn go_device_id(item: &Value) -> GoDeviceId<'_> {
    GoDeviceId(device_id(item))
}

/// Returns the devices that a claim has been given.
fn allocated_devices(claim: &Object) -> HashSet<DeviceId<'_>> {
    claim.array_at(&["status", "allocation", "devices", "results"]).iter().map(device_id).collect()
}

/// Removes what drivers have said of devices that the claim has no longer: who deallocates them
/// need not know it.
pub(super) fn drop_deallocated(new: &mut Object, old: &Object) {
    let mut gone = allocated_devices(old);
    for device in allocated_devices(new) {
        gone.remove(&device);
    }
    let said = new.array_at(&["status", "devices"]);
    let kept: Vec<Value> =
        said.iter().filter(|device| !gone.contains(&device_id(device))).cloned().collect();
    if kept.len() == said.len() {
        return;
    }
    let status = new.object_mut("status");
    if kept.is_empty() {
        status.remove("devices");
    } else {
        status.insert("devices", kept);
    }
}

/// Validates a status update of a claim.
pub(super) fn validate(new: &Object, old: Option<&Object>) -> ErrorList {
    let mut errors = ErrorList::new();
    let spec = Field::of(new, "spec");
    let devices_claimed = spec.field("devices");
    let known = Names::of(&devices_claimed);
    let status = Field::of(new, "status");
    let consumers = status.field("reservedFor");
    if not_too_many(&consumers, CONSUMERS_MAX, &mut errors) {
        for consumer in consumers.items() {
            for name in ["resource", "name", "uid"] {
                consumer.field(name).not_empty(&mut errors, "");
            }
        }
        unique(&consumers, super::named("uid"), &mut errors);
    }
    let allocation = status.field("allocation");
    let allocated = allocated_devices(new);
    let devices = status.field("devices");
    devices.items().for_each(|device| device_status(&device, &allocated, &mut errors));
    unique(&devices, go_device_id, &mut errors);
    reserved(new, old, &consumers, allocation.is_set(), &mut errors);
    let before = old.and_then(|old| old.at(&["status", "allocation"])).filter(|v| !v.is_null());
    match before {
        Some(before) if allocation.is_set() && !equal_or_empty(allocation.value, before) => {
            allocation.invalid(&mut errors, IMMUTABLE);
        }
        None if allocation.is_set() => result(&allocation, &known, &mut errors),
        _ => {}
    }
    errors
}

/// Validates `reservedFor`: a terminating claim gets no new consumers, and an unallocated one has
/// none.
fn reserved(
    new: &Object,
    old: Option<&Object>,
    consumers: &Field<'_, '_>,
    is_allocated: bool,
    errors: &mut ErrorList,
) {
    if consumers.array().is_empty() {
        return;
    }
    if !is_allocated {
        return consumers.forbidden(errors, "may not be specified when `allocated` is not set");
    }
    let before = old.map(|old| old.array_at(&["status", "reservedFor"])).unwrap_or_default();
    let uid = |item: &Value| Str::new(item.str_at(&["uid"]).unwrap_or_default());
    let before: BTreeSet<Str> = before.iter().map(uid).collect();
    let grows = consumers.array().iter().any(|item| !before.contains(&uid(item)));
    if new.deletion_timestamp().is_some() && grows {
        let words = "new entries may not be added while `deallocationRequested` or \
                     `deletionTimestamp` are set";
        consumers.forbidden(errors, words);
    }
}

fn device_status(at: &Field<'_, '_>, allocated: &HashSet<DeviceId<'_>>, errors: &mut ErrorList) {
    driver(&at.field("driver"), errors);
    pool(&at.field("pool"), errors);
    at.field("device").rule(errors, names::is_dns1123_label);
    let share = at.field("shareID");
    if share.is_set() {
        uid(&share, errors);
    }
    if !allocated.contains(&device_id(at.value)) {
        at.invalid_as(errors, go_device_id(at.value), "must be an allocated device in the claim");
    }
    let conditions = at.field("conditions");
    let count = conditions.array().len();
    if count > CONDITIONS_MAX {
        errors.push(FieldError::too_many(&conditions.path, count, CONDITIONS_MAX));
    }
    crate::conditions::validate(&conditions, errors);
    let data = at.field("data");
    if data.is_set() {
        parameters(&data, DATA_BYTES_MAX, errors);
    }
    let network = at.field("networkData");
    for (name, bytes_max) in [
        ("interfaceName", INTERFACE_NAME_BYTES_MAX),
        ("hardwareAddress", HARDWARE_ADDRESS_BYTES_MAX),
    ] {
        if network.str(name).len() > bytes_max {
            errors.push(FieldError::too_long(&network.path.field(name), bytes_max));
        }
    }
    let addresses = network.field("ips");
    if not_too_many(&addresses, ADDRESSES_MAX, errors) {
        addresses.items().for_each(|address| interface_address(&address, errors));
        unique(&addresses, |item| item.as_str().unwrap_or_default(), errors);
    }
}

/// Validates an interface address such as `10.9.8.7/24`, which must be in canonical form.
fn interface_address(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let parsed = at.text().split_once('/').and_then(|(address, bits)| {
        let address: std::net::IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let length: u8 = bits.parse().ok().filter(|length| *length <= bits_max)?;
        Some(format!("{address}/{length}"))
    });
    match parsed {
        None => {
            let words =
                "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)";
            at.invalid_as(errors, at.text(), words);
        }
        Some(canonical) if canonical != at.text() => {
            at.invalid_as(
                errors,
                at.text(),
                &format!("must be in canonical form (\"{canonical}\")"),
            );
        }
        Some(_) => {}
    }
}

pub(super) fn pool(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if !at.not_empty(errors, "") {
        return;
    }
    if at.text().len() > POOL_NAME_BYTES_MAX {
        errors.push(FieldError::too_long(&at.path, POOL_NAME_BYTES_MAX));
    }
    for part in at.text().split('/') {
        for why in names::is_dns1123_subdomain(part) {
            errors.push(FieldError::invalid(&at.path, part, &why));
        }
    }
}

/// Validates a UUID: lower case, with four hyphens.
fn uid(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let text = at.text();
    if !matches!(text.len(), 32 | 36 | 38 | 45) {
        let words = format!("error validating uid: invalid UUID length: {}", text.len());
        return at.invalid(errors, &words);
    }
    let hyphens = [8, 13, 18, 23];
    let is_uuid = text.len() == 36
        && text.bytes().enumerate().all(|(place, byte)| match hyphens.contains(&place) {
            true => byte == b'-',
            false => byte.is_ascii_hexdigit(),
        });
    if !is_uuid {
        at.invalid(errors, "error validating uid: invalid UUID format");
    } else if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
        let words = "uid must be in RFC 4122 normalized form, \
                     `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with lowercase hexadecimal characters";
        at.invalid(errors, words);
    }
}

fn result(allocation: &Field<'_, '_>, known: &Names<'_>, errors: &mut ErrorList) {
    let devices = allocation.field("devices");
    let results = devices.field("results");
    if not_too_many(&results, RESULTS_MAX, errors) {
        results.items().for_each(|result| allocated_device(&result, known, errors));
    }
    let configs = devices.field("config");
    if not_too_many(&configs, CONFIGS_MAX, errors) {
        for config in configs.items() {
            let sources = &["FromClaim", "FromClass"];
            config.field("source").required_one_of(errors, sources);
            references(&config.field("requests"), known, errors);
            configuration(&config, errors);
        }
    }
    let selector = allocation.field("nodeSelector");
    if selector.is_set() {
        crate::core::pod::scheduling::node_selector_with_values(&selector, errors);
    }
}

fn allocated_device(at: &Field<'_, '_>, known: &Names<'_>, errors: &mut ErrorList) {
    reference(&at.field("request"), known, errors);
    driver(&at.field("driver"), errors);
    pool(&at.field("pool"), errors);
    at.field("device").rule(errors, names::is_dns1123_label);
    binding_conditions(at, errors);
    at.field("tolerations").items().for_each(|at| toleration(&at, errors));
    let share = at.field("shareID");
    if share.is_set() {
        uid(&share, errors);
    }
}

pub(super) fn binding_conditions(at: &Field<'_, '_>, errors: &mut ErrorList) {
    let wanted = at.field("bindingConditions");
    let failed = at.field("bindingFailureConditions");
    for list in [&wanted, &failed] {
        if not_too_many(list, BINDING_CONDITIONS_MAX, errors) {
            list.items().for_each(|name| name.rule(errors, names::is_qualified_name));
        }
    }
    unique(&wanted, |item| item.as_str().unwrap_or_default(), errors);
    unique(&failed, |item| item.as_str().unwrap_or_default(), errors);
    for name in failed.items().filter(|name| wanted.array().contains(name.value)) {
        name.invalid(errors, "bindingFailureConditions must not overlap with bindingConditions");
    }
    if wanted.array().is_empty() && !failed.array().is_empty() {
        let words = "bindingConditions are required to use bindingFailureConditions";
        wanted.invalid_as(errors, Value::Null, words);
    }
    if failed.array().is_empty() && !wanted.array().is_empty() {
        let words = "bindingFailureConditions are required to use bindingConditions";
        failed.invalid_as(errors, Value::Null, words);
    }
}
