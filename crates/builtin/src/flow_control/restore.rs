//! Sets default objects back to their spec: mandatory ones always, suggested ones unless their
//! annotation says that an administrator maintains them.

use keelson_auth::Permit;
use keelson_meta::{Failure, Object, Value};
use keelson_registry::options::WriteOptions;
use keelson_registry::{Registry, Subresource, Target};
use keelson_schema::decode::Decoded;

/// Whether the server maintains the spec of an object.
pub(super) const AUTO_UPDATE: &str = "apf.kubernetes.io/autoupdate-spec";

/// Sets stored objects back to their defaults.
pub(super) async fn restore_all(
    registry: &Registry,
    defaults: &[(Target, Value)],
    field_manager: &'static str,
) -> Result<(), Failure> {
    let permit = Permit::internal("system:apiserver");
    let options = WriteOptions { field_manager: field_manager.into(), ..WriteOptions::default() };
    for (target, default) in defaults {
        let Some(entry) = registry.cached(&target.kind, "", &target.name) else { continue };
        let Ok(current) = target.kind.decode(&entry) else { continue };
        let Some(mut object) = restored(&current, default) else { continue };
        object.set_gvk(&target.schema().gvk);
        let body = Decoded { object, strict_errors: vec![] };
        match registry.update(&permit, target, Subresource::None, body, &options).await {
            // It was changed or deleted meanwhile, perhaps by another server that does the same.
            Err(failure) if !matches!(failure.code, 404 | 409) => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

/// Returns the object to store in place of `current`; `None` if it is as it should be.
fn restored(current: &Object, default: &Value) -> Option<Object> {
    let is_mandatory = matches!(current.name(), "exempt" | "catch-all");
    let said = current.annotation(AUTO_UPDATE).and_then(parse_bool);
    // Without a valid annotation, an object that nobody has changed is maintained.
    let is_maintained = is_mandatory || said.unwrap_or(current.generation() == 1);
    let mut object = current.clone();
    if said != Some(is_maintained) {
        let annotations = object.metadata_mut().object_at("annotations");
        annotations.insert(AUTO_UPDATE, if is_maintained { "true" } else { "false" });
    }
    if is_maintained {
        let mut spec = default.get("spec").cloned().unwrap_or_default();
        // The shares of the exempt level are the administrator's.
        if let (Some(own), Some(spec)) = (current.at(&["spec", "exempt"]), spec.as_object_mut()) {
            spec.insert("exempt", own.clone());
        }
        let is_same = current.get("spec").is_some_and(|known| is_equal(known, &spec));
        if !is_same {
            object.root.insert("spec", spec);
        }
    }
    (object != *current).then_some(object)
}

/// Compares without regard to the order of fields.
fn is_equal(one: &Value, other: &Value) -> bool {
    one.clone().sorted() == other.clone().sorted()
}

/// Reads a boolean as Go's `strconv.ParseBool`.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn object(name: &'static str, said: Option<&'static str>, generation: i64, n: i64) -> Object {
        let mut metadata = value!({"name": name, "generation": generation});
        if let (Some(said), Some(metadata)) = (said, metadata.as_object_mut()) {
            metadata.object_at("annotations").insert(AUTO_UPDATE, said);
        }
        let object = value!({"metadata": (metadata), "spec": {"n": n, "type": "Limited"}});
        Object::from_value(object).expect("an object")
    }

    #[test]
    fn changed_objects_are_set_back_unless_an_administrator_maintains_them() {
        let default = value!({"spec": {"type": "Limited", "n": 1}});
        let check = |current: &Object, want: Option<(&str, i64)>| {
            let object = restored(current, &default);
            let got = object.as_ref().map(|object| {
                let said = object.annotation(AUTO_UPDATE).unwrap_or_default();
                (said, object.int_at(&["spec", "n"]).unwrap_or_default())
            });
            assert_eq!(got, want, "{current:?}");
        };
        check(&object("system", Some("true"), 1, 1), None);
        check(&object("system", Some("true"), 2, 9), Some(("true", 1)));
        check(&object("system", Some("false"), 2, 9), None);
        check(&object("system", None, 1, 9), Some(("true", 1)));
        check(&object("system", None, 2, 9), Some(("false", 9)));
        check(&object("system", Some("maybe"), 2, 9), Some(("false", 9)));
        check(&object("catch-all", Some("false"), 2, 9), Some(("true", 1)));
        check(&object("catch-all", Some("true"), 2, 1), None);
    }

    #[test]
    fn the_shares_of_the_exempt_level_stay() {
        let default = value!({"spec": {"type": "Exempt", "exempt": {"lendablePercent": 0}}});
        let metadata = value!({"name": "exempt", "annotations": {"apf.kubernetes.io/autoupdate-spec": "true"}});
        let current = value!({
            "metadata": (metadata), "spec": {"type": "Exempt", "exempt": {"lendablePercent": 7}}
        });
        assert_eq!(restored(&Object::from_value(current).expect("an object"), &default), None);
    }
}
