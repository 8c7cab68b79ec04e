//! JSON merge patch (RFC 7386) with one deviation of the library that kube-apiserver uses: a list
//! that does not replace a map loses the null members of the maps inside it. Null items of the list
//! stay.

use crate::PatchError;
use keelson_meta::{Map, Str, Value};

/// Applies `patch` to `doc`; both must be maps. Sorts every map that the patch changes by key,
/// because upstream sorts the same maps and shows the patched text in messages.
pub fn apply(doc: Value, patch: &Value) -> Result<Value, PatchError> {
    let Value::Object(changes) = patch else {
        return Err(PatchError::Malformed(match patch {
            Value::Null => "Invalid JSON Patch".to_owned(),
            other => format!(
                "error decoding patch: json: cannot unmarshal {} into Go value of type \
                 map[string]interface {{}}",
                other.type_name()
            ),
        }));
    };
    let Value::Object(mut root) = doc else {
        return Err(PatchError::Internal("Invalid JSON Document".to_owned()));
    };
    merge_maps(&mut root, changes);
    Ok(Value::Object(root))
}

/// Merges `changes` into `target`. Collects all entries first: inserting them one by one costs
/// O(entries) each.
fn merge_maps(target: &mut Map, changes: &Map) {
    let current = std::mem::take(target);
    let mut merged: Vec<(Str, Value)> = Vec::with_capacity(current.len());
    let added: Vec<(Str, Value)> = changes
        .iter()
        .filter(|(key, change)| !change.is_null() && !current.contains_key(key))
        .map(|(key, change)| (key.clone(), without_nulls(change)))
        .collect();
    for (key, mut value) in current {
        match (changes.get(&key), &mut value) {
            (None, _) => {}
            (Some(Value::Null), _) => continue,
            (Some(Value::Object(inner)), Value::Object(current)) => merge_maps(current, inner),
            // A list or scalar that replaces a map keeps its nulls.
            (Some(change), Value::Object(_)) => value = change.clone(),
            (Some(change), _) => value = without_nulls(change),
        }
        merged.push((key, value));
    }
    merged.extend(added);
    *target = merged.into_iter().collect();
    target.sort();
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut members: Map = map
                .iter()
                .filter(|(_, item)| !item.is_null())
                .map(|(key, item)| (key.clone(), without_nulls(item)))
                .collect();
            members.sort();
            Value::Object(members)
        }
        Value::Array(items) => Value::Array(items.iter().map(without_nulls).collect()),
        scalar => scalar.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{json, show};
    use expect_test::{Expect, expect};

    fn check(doc: &str, patch: &str, expected: Expect) {
        let got = match apply(json(doc), &json(patch)) {
            Ok(value) => show(&value),
            Err(error) => format!("{error:?}"),
        };
        expected.assert_eq(&got);
    }

    #[test]
    fn null_removes_and_maps_merge() {
        check(
            r#"{"b":{"x":1,"y":2},"a":1}"#,
            r#"{"b":{"x":null,"z":{"n":null,"k":3}},"gone":null}"#,
            expect![[r#"{"a":1,"b":{"y":2,"z":{"k":3}}}"#]],
        );
    }

    #[test]
    fn lists_are_replaced_and_keep_their_nulls() {
        check(r#"{"a":[1,2]}"#, r#"{"a":[3,null]}"#, expect![[r#"{"a":[3,null]}"#]]);
        check(r#"{}"#, r#"{"a":[{"b":null},null]}"#, expect![[r#"{"a":[{},null]}"#]]);
        check(r#"{"a":{"x":1}}"#, r#"{"a":[null]}"#, expect![[r#"{"a":[null]}"#]]);
    }

    #[test]
    fn maps_that_the_patch_does_not_open_keep_their_order() {
        check(
            r#"{"z":{"b":1,"a":2},"y":{"d":1,"c":2}}"#,
            r#"{"y":{"e":1}}"#,
            expect![[r#"{"y":{"c":2,"d":1,"e":1},"z":{"b":1,"a":2}}"#]],
        );
    }

    #[test]
    fn a_patch_that_is_no_map_is_refused() {
        check("{}", "null", expect![[r#"Malformed("Invalid JSON Patch")"#]]);
        check(
            "{}",
            "[]",
            expect![[
                r#"Malformed("error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}")"#
            ]],
        );
    }
}
