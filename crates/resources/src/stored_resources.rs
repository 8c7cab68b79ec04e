//! [`StoredResources`]: which resource a key of the store belongs to.

use crate::built_in::built_in_kinds;
use crate::kind::Kind;
use keelson_meta::Features;
use keelson_records::{PrefixMap, custom_prefix, get_by_prefix};
use std::sync::Arc;

/// The prefix of all keys.
const ROOT: &[u8] = b"/registry/";

/// All built-in kinds, including those that are not served by default, by the prefix of their keys.
pub struct StoredResources {
    by_prefix: PrefixMap<Arc<Kind>>,
}

impl std::fmt::Debug for StoredResources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} resources", self.by_prefix.len())
    }
}

impl Default for StoredResources {
    fn default() -> StoredResources {
        let mut kinds = built_in_kinds(&[("api/all".to_owned(), true)], Features::ALL);
        // Both resources of Events share their prefix; the core group, whose form is stored, wins.
        kinds.sort_by(|one, other| other.gvr.group.cmp(&one.gvr.group));
        let by_prefix = kinds.into_iter().map(|kind| (kind.prefix.clone(), kind)).collect();
        StoredResources { by_prefix }
    }
}

impl StoredResources {
    /// Returns the built-in kind of a key.
    pub(crate) fn kind(&self, key: &[u8]) -> Option<&Arc<Kind>> {
        get_by_prefix(&self.by_prefix, key)
    }

    /// Returns group and resource of the object with this key; `None` if it is not an object of the
    /// API.
    pub fn group_resource<'a>(&'a self, key: &'a [u8]) -> Option<(&'a str, &'a str)> {
        if let Some(kind) = self.kind(key) {
            return Some((&kind.gvr.group, &kind.gvr.resource));
        }
        let custom = custom_prefix(ROOT, key)?.strip_prefix(ROOT)?;
        std::str::from_utf8(custom).ok()?.strip_suffix('/')?.split_once('/')
    }
}

#[cfg(test)]
mod tests {
    use super::StoredResources;

    #[test]
    fn keys_name_their_resource() {
        let resources = StoredResources::default();
        let check = |key: &str, expected: Option<(&str, &str)>| {
            assert_eq!(resources.group_resource(key.as_bytes()), expected, "{key}");
        };
        check("/registry/secrets/a/b", Some(("", "secrets")));
        check("/registry/events/a/b", Some(("", "events")));
        check("/registry/deployments/a/b", Some(("apps", "deployments")));
        check("/registry/services/specs/a/b", Some(("", "services")));
        check("/registry/services/endpoints/a/b", Some(("", "endpoints")));
        check("/registry/example.com/widgets/a/b", Some(("example.com", "widgets")));
        let definitions = "/registry/apiextensions.k8s.io/customresourcedefinitions/a";
        check(definitions, Some(("apiextensions.k8s.io", "customresourcedefinitions")));
        check("/registry/ranges/servicenodeports", None);
        check("/registry/masterleases/10.0.0.1", None);
    }
}
