//! Claims of storage, and the volumes that they are bound to.

use super::check::{At, default, default_empty};
use keelson_meta::{ErrorList, Map};

/// The spec of a claim.
pub(super) fn claim_spec(_at: &At<'_, '_>, _errors: &mut ErrorList) {}

/// Defaults of a claim, whole or as a template.
pub(super) fn default_claim(claim: &mut Map) {
    default_empty(claim.object_at("status"), "phase", "Pending");
    default(claim.object_at("spec"), "volumeMode", "Filesystem");
}
