//! [`Seen`]: the resource and kind in which a policy sees a request.

use crate::attributes::Call;
use keelson_meta::{GroupVersionKind, GroupVersionResource};

/// The resource and kind in which a policy sees a request.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub resource: GroupVersionResource,
    pub kind: GroupVersionKind,
}

impl Seen {
    pub fn as_requested(call: &Call<'_>) -> Seen {
        let attributes = call.attributes;
        Seen { resource: attributes.resource.clone(), kind: attributes.kind.clone() }
    }
}
