//! [`MatchedResource`]: the resource and kind that a rule matched.

use crate::attributes::Call;
use keelson_meta::{GroupVersionKind, GroupVersionResource};

/// The resource and kind that a rule matched. The policy sees the request in this version.
#[derive(Clone, Debug)]
pub(super) struct MatchedResource {
    pub resource: GroupVersionResource,
    pub kind: GroupVersionKind,
}

impl MatchedResource {
    pub fn from_request(call: &Call<'_>) -> MatchedResource {
        let attributes = call.attributes;
        MatchedResource { resource: attributes.resource.clone(), kind: attributes.kind.clone() }
    }
}
