//! Validates file paths in volumes and containers.

use crate::check::Field;
use keelson_meta::ErrorList;

/// Requires a relative path without `..`.
pub(crate) fn descending(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if at.text().starts_with('/') {
        at.invalid(errors, "must be a relative path");
    }
    no_backsteps(at, errors);
}

/// Requires a path without `..`.
pub(crate) fn no_backsteps(at: &Field<'_, '_>, errors: &mut ErrorList) {
    if has_backsteps(at.text()) {
        at.invalid(errors, "must not contain '..'");
    }
}

pub(super) fn has_backsteps(path: &str) -> bool {
    path.replace('\\', "/").split('/').any(|part| part == "..")
}
