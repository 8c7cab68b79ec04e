//! Selectors of devices, in DeviceClasses and ResourceClaims (`dynamic-resource-allocation/cel`). The
//! scheduler evaluates them; here they are compiled, and their cost is estimated.

use crate::environment::{Environment, Version};
use crate::registry::Library;
use crate::types::{Declared, DeclaredField, ObjectType, Shape, Type};
use keelson_meta::Str;
use std::sync::{Arc, OnceLock};

/// A selector is at most this long.
pub const SELECTOR_BYTES_MAX: usize = 10 * 1024;

/// A selector is estimated to cost at most this.
const SELECTOR_COST_MAX: u64 = 1_000_000;

const ATTRIBUTE_BYTES_MAX: u64 = 64;
const DRIVER_BYTES_MAX: u64 = 63;
const ATTRIBUTES_MAX: u64 = 32;

/// Why a selector cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorError {
    /// It does not compile, or is no condition.
    Invalid(String),
    /// It may cost too much.
    TooComplex,
}

/// Checks a selector.
pub fn check_selector(version: Version, text: &str) -> Result<(), SelectorError> {
    let env = Environment::kubernetes(version)
        .with_library(Library::Semver)
        .with_library(Library::Bindings)
        .with_declared("device", device());
    let compiled = env.compile(text).map_err(|error| SelectorError::Invalid(error.to_string()))?;
    let found = compiled.program.result_type();
    if !matches!(found, Type::Bool | Type::Any) {
        let why = format!("must evaluate to bool or the unknown type, not {found}");
        return Err(SelectorError::Invalid(why));
    }
    match compiled.cost.max > SELECTOR_COST_MAX {
        true => Err(SelectorError::TooComplex),
        false => Ok(()),
    }
}

/// Whether a text is a semantic version, as attributes of devices hold them.
pub fn is_version(text: &str) -> bool {
    crate::semver::Semver::parse(text).is_ok()
}

/// The type of `device`.
fn device() -> Arc<Declared> {
    static TYPE: OnceLock<Arc<Declared>> = OnceLock::new();
    let make = || {
        let map = |values: Declared| {
            Declared::new(Shape::Map(Arc::new(values))).with_size_max(ATTRIBUTES_MAX)
        };
        let attribute =
            Declared::new(Shape::Computed(Type::Any)).with_size_max(ATTRIBUTE_BYTES_MAX);
        let quantity = Declared::new(Shape::Computed(Type::Opaque("kubernetes.Quantity")));
        let fields = [
            ("driver", Declared::new(Shape::String).with_size_max(DRIVER_BYTES_MAX)),
            ("attributes", map(map(attribute))),
            ("capacity", map(map(quantity))),
            ("allowMultipleAllocations", Declared::new(Shape::Bool)),
        ];
        let field = |(name, declared)| DeclaredField {
            name: Str::new_static(name),
            property: Str::new_static(name),
            declared: Arc::new(declared),
        };
        let fields = fields.into_iter().map(field).collect();
        let object = ObjectType::new("kubernetes.DRADevice", fields);
        Arc::new(Declared::new(Shape::Object(Arc::new(object))))
    };
    TYPE.get_or_init(make).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answers are those of kube-apiserver 1.36.
    #[test]
    fn selectors_are_checked_as_by_kube_apiserver() {
        let check = |text: &str, want: &str| {
            let found = match check_selector(Version::NEW_EXPRESSIONS, text) {
                Ok(()) => "ok".to_owned(),
                Err(SelectorError::TooComplex) => "too complex".to_owned(),
                Err(SelectorError::Invalid(why)) => why,
            };
            assert!(found.contains(want), "{text}: {found}");
        };
        check("device.driver == 'x'", "ok");
        check("device.allowMultipleAllocations", "ok");
        check("device.attributes['a'].b", "ok");
        check("cel.bind(d, device.attributes['a'], d.b == 1)", "ok");
        check("device.attributes['a'].b.matches(device.attributes['a'].c)", "ok");
        check("dyn(true)", "must evaluate to bool or the unknown type, not dyn");
        check("device.attributes['a'].b + 1", "not int");
        check("device.capacity['a'].b", "not kubernetes.Quantity");
        check("device.device == ''", "undefined field 'device'");
        check("device.attributes['a'].b + true", "'_+_' applied to '(any, bool)'");
        check("device.attributes['a'] == 1", "applied to '(map(string, any), int)'");
        check("object == 1", "undeclared reference to 'object'");
        let nested = "device.attributes.all(k, device.attributes.all(j, device.attributes.all(l, \
                      device.attributes.all(m, true))))";
        check(nested, "too complex");
        check(
            "device.attributes.all(k, device.attributes[k].all(j, j == device.attributes[k][j]))",
            "ok",
        );
    }
}
