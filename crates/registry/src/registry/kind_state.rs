//! [`KindState`]: what the registry keeps beside a kind, as long as the kind lives.

use super::hooks::KindHooks;
use crate::converted_entries::ConvertedEntries;
use keelson_admission::webhooks::ConversionWebhook;
use keelson_resources::{Attached, Kind};
use std::sync::Arc;

/// What is attached to a kind of this registry.
#[derive(Debug, Default)]
pub(crate) struct KindState {
    /// The hooks of a built-in kind.
    hooks: Option<Arc<KindHooks>>,
    /// The conversion of a custom resource by a webhook; `None`: conversion only changes the
    /// apiVersion.
    conversion: Option<Conversion>,
}

/// The conversion of a custom resource by a webhook.
#[derive(Debug)]
pub(crate) struct Conversion {
    /// The webhook.
    pub webhook: Arc<ConversionWebhook>,
    /// The entries that it has converted.
    pub converted: ConvertedEntries,
}

/// Attaches the hooks of a built-in kind to it.
pub(crate) fn with_hooks(hooks: Option<Arc<KindHooks>>) -> Attached {
    match hooks {
        None => Attached::default(),
        hooks => Attached::new(KindState { hooks, conversion: None }),
    }
}

/// Makes a webhook convert the objects of a kind.
pub(crate) fn convert_by(kind: &mut Kind, webhook: Arc<ConversionWebhook>) {
    let conversion = Some(Conversion { webhook, converted: ConvertedEntries::default() });
    kind.attached = Attached::new(KindState { hooks: None, conversion });
    kind.has_conversion_webhook = true;
}

/// Returns the hooks of a kind, if it has any.
pub(crate) fn hooks_of(kind: &Kind) -> Option<&KindHooks> {
    kind.attached.get::<KindState>()?.hooks.as_deref()
}

/// Returns the conversion of a kind by a webhook, if it has one.
pub(crate) fn conversion_of(kind: &Kind) -> Option<&Conversion> {
    kind.attached.get::<KindState>()?.conversion.as_ref()
}
