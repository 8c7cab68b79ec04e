//! [`Invocation`]: a webhook that is to be called.

use crate::configurations::webhook::Webhook;
use keelson_meta::{GroupVersionKind, GroupVersionResource};

/// A webhook that is to be called, with the resource and kind in which it sees the request.
pub(super) struct Invocation<'a> {
    pub webhook: &'a Webhook,
    pub resource: GroupVersionResource,
    pub kind: GroupVersionKind,
}
