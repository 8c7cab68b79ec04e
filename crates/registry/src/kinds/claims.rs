//! Claims of storage, and the volumes that they are bound to.

use super::check::At;
use keelson_meta::ErrorList;

/// The spec of a claim.
pub(super) fn claim_spec(_at: &At<'_, '_>, _errors: &mut ErrorList) {}
