//! Documents that are generated on request. Concurrent responses share the text.

use bytes::Bytes;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;

/// The documents that are being sent, by name. Weak, so that a text is freed after its last
/// response.
#[derive(Debug, Default)]
pub(crate) struct Documents(Mutex<HashMap<String, Weak<Vec<u8>>>>);

impl Documents {
    /// Returns the text of a document. Generates it, one document at a time, unless it is being
    /// sent already. Returns `None` if `make` does.
    pub async fn text(
        &self,
        name: &str,
        make: impl FnOnce() -> Option<Vec<u8>> + Send + 'static,
    ) -> Option<Bytes> {
        let mut documents = self.0.lock().await;
        if let Some(text) = documents.get(name).and_then(Weak::upgrade) {
            return Some(Bytes::from_owner(Text(text)));
        }
        let made = spawn_blocking(make).await;
        let text = Arc::new(made.inspect_err(|error| tracing::error!(%error, name)).ok()??);
        // Names contain hashes, so old ones must be removed.
        documents.retain(|_, text| text.strong_count() > 0);
        documents.insert(name.to_owned(), Arc::downgrade(&text));
        Some(Bytes::from_owner(Text(text)))
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

    #[tokio::test]
    async fn concurrent_responses_share_one_text() {
        let documents = Documents::default();
        let first = documents.text("a", || Some(vec![1; 9])).await;
        let second = documents.text("a", || panic!("it is there")).await;
        assert_eq!(first.as_ref().map(|text| text.as_ptr()), second.map(|text| text.as_ptr()));
        drop(first);
        assert_eq!(documents.text("a", || Some(vec![2])).await.as_deref(), Some(&[2][..]));
        assert_eq!(documents.text("b", || None).await, None);
        assert_eq!(documents.text("c", || Some(vec![3])).await.as_deref(), Some(&[3][..]));
        assert_eq!(
            documents.0.lock().await.len(),
            1,
            "documents that are not being sent are removed"
        );
    }
}
