//! Maps that are created at evaluation.

use super::convert::display;
use crate::value::{EvalError, Key, Map, OwnedMap, Val};

/// Adds an entry to a map. A duplicate key and a key of an unsupported type are errors.
pub(crate) fn insert<'a>(
    map: &mut OwnedMap<'a>,
    key: Val<'a>,
    value: Val<'a>,
) -> Result<(), EvalError> {
    let Some(place) = Key::of(&key) else {
        let ty = key.ty();
        return Err(EvalError::new(format!("unsupported key type: {}", ty.runtime_name())));
    };
    OwnedMap::make_entry(&key)?;
    if !map.insert(place, key.clone(), value) {
        let key_text = display(&key);
        return Err(EvalError::new(format!("insert failed: key {key_text} already exists")));
    }
    Ok(())
}

/// Adds all entries of another map.
pub(crate) fn insert_all<'a>(map: &mut OwnedMap<'a>, added: &Map<'a>) -> Result<(), EvalError> {
    for (key, value) in added.entries()? {
        insert(map, key, value)?;
    }
    Ok(())
}

/// Copies a map.
pub(crate) fn copy<'a>(map: &Map<'a>) -> Result<OwnedMap<'a>, EvalError> {
    let mut out = OwnedMap::default();
    insert_all(&mut out, map)?;
    Ok(out)
}
