//! Adds resources to the API table, and removes them, while the server runs.

use crate::registry::{Registry, kind_state};
use keelson_admission::webhooks::ConversionWebhook;
use keelson_resources::api_table::Source;
use keelson_resources::producer::{Definition, ServeError};
use keelson_store::Revision;
use std::sync::Arc;

impl Registry {
    /// Serves a resource. If it is served already, the new definition replaces the old one and ends
    /// its watches, so that clients see the change.
    pub fn serve(&self, definition: &Definition) -> Result<(), ServeError> {
        self.serve_with(definition, None)
    }

    /// Like [`Registry::serve`], for a resource whose objects a webhook converts.
    pub fn serve_converted(
        &self,
        definition: &Definition,
        webhook: Arc<ConversionWebhook>,
    ) -> Result<(), ServeError> {
        self.serve_with(definition, Some(webhook))
    }

    fn serve_with(
        &self,
        definition: &Definition,
        webhook: Option<Arc<ConversionWebhook>>,
    ) -> Result<(), ServeError> {
        let group = &definition.group;
        let resource = &definition.resource;
        if !group.contains('.') {
            return Err(ServeError::Group);
        }
        let objects = self.cache.add(&definition.prefix());
        let was_served = self.change_api(group, resource, |api, number| {
            let was = api.kind(group, resource).map(|kind| kind.source);
            if was == Some(Source::BuiltIn) {
                return Err(ServeError::BuiltIn);
            }
            let foreign = match definition.since {
                _ if objects.is_empty() => Revision(0),
                Some(since) => since,
                None => self.cache.revision(),
            };
            let mut kind = definition.kind(number, foreign)?;
            if let Some(webhook) = &webhook {
                kind_state::convert_by(&mut kind, webhook.clone());
            }
            let kind = Arc::new(kind);
            Ok((api.with(group, resource, definition.endpoints(&kind)), was.is_some()))
        })?;
        if was_served {
            self.cache.remove(&definition.prefix());
        }
        Ok(())
    }

    /// Stops serving a resource and ends its watches. The stored objects stay. Returns false if it
    /// was not served.
    pub fn withdraw(&self, group: &str, resource: &str) -> bool {
        let withdrawn = self.change_api(group, resource, |api, _| {
            let kind = api
                .kind(group, resource)
                .filter(|kind| kind.source == Source::Custom)
                .cloned()
                .ok_or(())?;
            Ok((api.with(group, resource, vec![]), kind))
        });
        let Ok::<_, ()>(kind) = withdrawn else { return false };
        self.cache.remove(&kind.prefix);
        true
    }
}
