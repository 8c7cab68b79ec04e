//! [`Invocation`]: a webhook to call.

use crate::configurations::webhook::Webhook;
use keelson_meta::{GroupVersionKind, GroupVersionResource};

/// A webhook to call, with the resource and kind that its rule matched.
pub(super) struct Invocation<'a> {
    pub webhook: &'a Webhook,
    pub resource: GroupVersionResource,
    pub kind: GroupVersionKind,
}
