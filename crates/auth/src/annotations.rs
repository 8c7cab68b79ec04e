//! Audit annotations, which the steps of a request add for its audit event.

use keelson_meta::Str;
use std::sync::{Mutex, PoisonError};

/// Audit annotations of one request (audit.k8s.io/v1 `Event.annotations`).
#[derive(Debug, Default)]
pub struct Annotations(Mutex<Vec<(Str, Str)>>);

impl Annotations {
    /// Adds an annotation. The first value of a key wins, as upstream.
    pub fn add(&self, key: Str, value: Str) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match list.iter().find(|(known, _)| *known == key) {
            None => list.push((key, value)),
            Some((_, known)) if *known != value => {
                tracing::warn!(%key, %known, %value, "audit annotation is set already; keeping it");
            }
            Some(_) => {}
        }
    }

    /// Returns keys and values in the order in which they were added.
    pub fn list(&self) -> Vec<(Str, Str)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_of_a_key_is_kept() {
        let annotations = Annotations::default();
        for (key, value) in [("b", "1"), ("a", "2"), ("b", "3"), ("a", "2")] {
            annotations.add(Str::new(key), Str::new(value));
        }
        let want = [("b", "1"), ("a", "2")].map(|(k, v)| (Str::new(k), Str::new(v)));
        assert_eq!(annotations.list(), want);
    }
}
