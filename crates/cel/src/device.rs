//! CEL device selectors of DeviceClasses and ResourceClaims (`dynamic-resource-allocation/cel`).
//! The scheduler evaluates them; the API server only compiles them and estimates their cost.

use crate::environment::{Environment, Version};
use crate::registry::Library;
use crate::types::{DeclField, DeclType, ObjectType, Shape, Type};
use keelson_meta::Str;
use std::sync::{Arc, OnceLock};

/// Maximum length of a selector.
pub const SELECTOR_BYTES_MAX: usize = 10 * 1024;

/// Maximum estimated cost of a selector.
const SELECTOR_COST_MAX: u64 = 1_000_000;

const ATTRIBUTE_BYTES_MAX: u64 = 64;
const DRIVER_BYTES_MAX: u64 = 63;
const ATTRIBUTES_MAX: u64 = 32;

/// Why a selector is invalid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SelectorError {
    /// It does not compile or does not return a boolean.
    Invalid(String),
    /// Its estimated cost is too high.
    TooComplex,
}

/// Checks a device selector.
pub fn check_selector(version: Version, text: &str) -> Result<(), SelectorError> {
    let env = Environment::kubernetes(version)
        .with_library(Library::Semver)
        .with_library(Library::Bindings)
        .with_decl_type("device", device());
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

/// Whether a text is a semantic version, the type of version attributes of devices.
pub fn is_version(text: &str) -> bool {
    crate::semver::Semver::parse(text).is_ok()
}

/// Returns the type of `device`.
fn device() -> Arc<DeclType> {
    static TYPE: OnceLock<Arc<DeclType>> = OnceLock::new();
    let make = || {
        let map = |values: DeclType| {
            DeclType::new(Shape::Map(Arc::new(values))).with_size_max(ATTRIBUTES_MAX)
        };
        let attribute =
            DeclType::new(Shape::CheckedAs(Type::Any)).with_size_max(ATTRIBUTE_BYTES_MAX);
        let quantity = DeclType::new(Shape::CheckedAs(Type::Opaque("kubernetes.Quantity")));
        let fields = [
            ("driver", DeclType::new(Shape::String).with_size_max(DRIVER_BYTES_MAX)),
            ("attributes", map(map(attribute))),
            ("capacity", map(map(quantity))),
            ("allowMultipleAllocations", DeclType::new(Shape::Bool)),
        ];
        let field = |(name, decl_type)| DeclField {
            name: Str::new_static(name),
            property: Str::new_static(name),
            decl_type: Arc::new(decl_type),
        };
        let fields = fields.into_iter().map(field).collect();
        let object = ObjectType::new("kubernetes.DRADevice", fields);
        Arc::new(DeclType::new(Shape::Object(Arc::new(object))))
    };
    TYPE.get_or_init(make).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected errors are those of kube-apiserver 1.36.
    #[test]
    fn selector_errors_match_kube_apiserver() {
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
