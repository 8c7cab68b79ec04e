//! Documents that are made when somebody asks for them: all who are being answered share one text.

use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The documents that are being sent, by name.
#[derive(Debug, Default)]
pub(crate) struct Documents(Mutex<HashMap<String, Weak<Vec<u8>>>>);

impl Documents {
    /// The text of a document, which is made where nobody is being sent it. Others who ask meanwhile wait:
    /// they want the same one nearly always. `None`: there is no such document.
    pub fn text(&self, name: &str, make: impl FnOnce() -> Option<Vec<u8>>) -> Option<Bytes> {
        let mut documents = self.lock();
        if let Some(text) = documents.get(name).and_then(Weak::upgrade) {
            return Some(Bytes::from_owner(Text(text)));
        }
        let text = Arc::new(make()?);
        documents.insert(name.to_owned(), Arc::downgrade(&text));
        Some(Bytes::from_owner(Text(text)))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Weak<Vec<u8>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Text(Arc<Vec<u8>>);

impl AsRef<[u8]> for Text {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_are_answered_share_one_text() {
        let documents = Documents::default();
        let first = documents.text("a", || Some(vec![1; 9]));
        let second = documents.text("a", || panic!("it is there"));
        assert_eq!(first.as_ref().map(|text| text.as_ptr()), second.map(|text| text.as_ptr()));
        drop(first);
        assert_eq!(documents.text("a", || Some(vec![2])).as_deref(), Some(&[2][..]));
        assert_eq!(documents.text("b", || None), None);
    }
}
