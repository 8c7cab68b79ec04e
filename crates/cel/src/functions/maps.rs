//! Maps that are created at evaluation.

use super::convert::display;
use crate::value::{EvalError, Key, OwnedMap, Val};

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
    if !map.insert(place, key.clone(), value) {
        let key_text = display(&key);
        return Err(EvalError::new(format!("insert failed: key {key_text} already exists")));
    }
    Ok(())
}
