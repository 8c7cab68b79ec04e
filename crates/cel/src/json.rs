//! Converts CEL values to JSON.

use crate::meter;
use crate::value::{EvalError, EvalResult, Val};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::Value;

/// Converts a value to JSON, whose memory counts as that of the last evaluation. Types, library
/// values, NaN and infinities have no JSON form and are an error.
pub fn to_json(val: &Val<'_>) -> Result<Value, EvalError> {
    Ok(match val {
        Val::Null | Val::Optional(None) => Value::Null,
        Val::Bool(flag) => Value::Bool(*flag),
        Val::Int(number) => Value::Int(*number),
        Val::Uint(number) => match i64::try_from(*number) {
            Ok(number) => Value::Int(number),
            Err(_) => Value::Float(*number as f64),
        },
        Val::Double(number) if number.is_finite() => Value::Float(*number),
        Val::String(text) => {
            meter::make(text.as_str().len())?;
            Value::from(text.as_str())
        }
        Val::Bytes(bytes) => {
            meter::make(bytes.len().saturating_mul(2))?;
            Value::from(STANDARD.encode(bytes))
        }
        Val::Timestamp(_) | Val::Duration(_) => {
            Value::from(crate::functions::convert::to_text(val)?)
        }
        Val::List(list) => {
            let item = |item: EvalResult<'_>| {
                meter::make(size_of::<Value>())?;
                meter::item()?;
                to_json(&item?)
            };
            Value::Array(list.iter().map(item).collect::<Result<_, _>>()?)
        }
        Val::Map(map) => {
            let mut out = keelson_meta::Map::new();
            for (key, value) in map.entries()? {
                meter::item()?;
                let Some(name) = key.as_str() else {
                    return Err(EvalError::new("JSON maps have keys of type string"));
                };
                meter::make(name.len() + size_of::<(keelson_meta::Str, Value)>())?;
                out.insert(name, to_json(&value)?);
            }
            Value::Object(out)
        }
        Val::Optional(Some(inner)) => to_json(inner)?,
        Val::Double(_) | Val::Type(_) | Val::Opaque(_) => {
            let ty = val.ty();
            return Err(EvalError::new(format!(
                "type conversion error from '{}' to 'google.protobuf.Value'",
                ty.runtime_name()
            )));
        }
    })
}
