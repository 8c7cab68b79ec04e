//! [`Attached`]: what another crate keeps beside a kind.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// State of one type that lives as long as its kind: hooks, the client of a conversion webhook, a
/// cache. The crate that runs the verbs makes it and alone knows its type, so that this crate needs
/// nothing of what it contains.
#[derive(Clone, Default)]
pub struct Attached(Option<Arc<dyn Any + Send + Sync>>);

impl Attached {
    /// Returns what holds `state`.
    pub fn new<T: Any + Send + Sync>(state: T) -> Attached {
        Attached(Some(Arc::new(state)))
    }

    /// Returns the state; `None` if there is none of this type.
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_ref()?.downcast_ref()
    }
}

impl fmt::Debug for Attached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "attached state" } else { "nothing attached" })
    }
}
