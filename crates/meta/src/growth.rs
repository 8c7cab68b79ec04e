//! [`Growth`]: the bytes that the server itself adds to an object while it processes a request. A
//! small request may ask for much: a default is set in each of many items, a patch copies, a policy
//! repeats a text.
//!
//! Guarantee: an object that stays within these bounds takes at most a few hundred MiB, whatever
//! its values are. kube-apiserver has no such bound; both limits are above the size that can be
//! stored, so a client sees the same refusal, only earlier.

use crate::status::{Failure, Reason, Status};
use crate::{Map, Value};
use std::fmt;

/// Maximum bytes of JSON that one step (defaults, a policy, a plug-in) may add to an object. The
/// size of the largest body, and twice what can be stored.
pub const GROWN_BYTES_MAX: usize = 3 << 20;

/// Maximum size in JSON of an object that admission has changed: a body and its defaults, and room
/// for a patch.
pub const GROWN_OBJECT_BYTES_MAX: usize = 3 * GROWN_BYTES_MAX;

/// An object would grow beyond its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overgrown;

impl fmt::Display for Overgrown {
    /// Formats the message with which etcd refuses an object that is too large.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("etcdserver: request is too large")
    }
}

impl std::error::Error for Overgrown {}

impl From<Overgrown> for Failure {
    /// Returns the 500 of kube-apiserver for an object that is too large for etcd.
    fn from(error: Overgrown) -> Failure {
        Status::new(Reason::Unknown, error.to_string())
    }
}

/// Counts the bytes of JSON that are added to one object.
#[derive(Debug)]
pub struct Growth {
    left: usize,
}

impl Default for Growth {
    fn default() -> Self {
        Growth { left: GROWN_BYTES_MAX }
    }
}

impl Growth {
    /// Counts bytes that are about to be added.
    #[inline]
    pub fn add(&mut self, bytes: usize) -> Result<(), Overgrown> {
        self.left = self.left.checked_sub(bytes).ok_or(Overgrown)?;
        Ok(())
    }

    /// Counts a member that is about to be added. Stops at the limit, so it never costs more than
    /// that.
    #[inline]
    pub fn add_member(&mut self, name: &str, value: &Value) -> Result<(), Overgrown> {
        // Quotes, colon and comma.
        self.add(name.len() + 4)?;
        self.add_value(value)
    }

    /// Counts a value that is about to be added. Escapes are not counted.
    #[inline]
    pub fn add_value(&mut self, value: &Value) -> Result<(), Overgrown> {
        match value {
            Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => self.add(4),
            Value::String(text) => self.add(text.len() + 2),
            Value::Raw(text) => self.add(text.len()),
            Value::Array(items) => self.add_items(items),
            Value::Object(map) => self.add_members(map),
        }
    }

    fn add_items(&mut self, items: &[Value]) -> Result<(), Overgrown> {
        self.add(2 + items.len())?;
        items.iter().try_for_each(|item| self.add_value(item))
    }

    fn add_members(&mut self, map: &Map) -> Result<(), Overgrown> {
        self.add(2)?;
        map.iter().try_for_each(|(name, value)| self.add_member(name, value))
    }
}

/// Checks that an object that admission has changed is not larger than [`GROWN_OBJECT_BYTES_MAX`].
pub fn check_object(root: &Map) -> Result<(), Overgrown> {
    Growth { left: GROWN_OBJECT_BYTES_MAX }.add_members(root)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn values_count_as_much_as_their_json() {
        let value = value!({"a": [1, true, null], "b": {"c": "text"}});
        let mut growth = Growth::default();
        growth.add_value(&value).expect("it is small");
        let counted = GROWN_BYTES_MAX - growth.left;
        let text = r#"{"a":[1,true,null],"b":{"c":"text"}}"#;
        assert!(counted.abs_diff(text.len()) < 10, "{counted} for {} bytes", text.len());
    }

    #[test]
    fn growth_ends_at_the_limit() {
        let text = Value::from("x".repeat(GROWN_BYTES_MAX / 2));
        let mut growth = Growth::default();
        assert_eq!(growth.add_value(&text), Ok(()));
        assert_eq!(growth.add_value(&text), Err(Overgrown));
        let failure = Failure::from(Overgrown);
        assert_eq!((failure.code, &*failure.message), (500, "etcdserver: request is too large"));
        let items = vec![text; 7];
        let root = value!({"a": (items)});
        assert_eq!(check_object(root.as_object().expect("a map")), Err(Overgrown));
    }
}
