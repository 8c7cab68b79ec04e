//! Paths of files in volumes and containers.

use crate::check::At;
use keelson_meta::ErrorList;

/// A path that leads down: relative, without `..`.
pub(crate) fn descending(at: &At<'_, '_>, errors: &mut ErrorList) {
    if at.text().starts_with('/') {
        at.invalid(errors, "must be a relative path");
    }
    no_backsteps(at, errors);
}

/// A path without `..`.
pub(crate) fn no_backsteps(at: &At<'_, '_>, errors: &mut ErrorList) {
    if has_backsteps(at.text()) {
        at.invalid(errors, "must not contain '..'");
    }
}

pub(super) fn has_backsteps(path: &str) -> bool {
    path.replace('\\', "/").split('/').any(|part| part == "..")
}
