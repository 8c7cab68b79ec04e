//! The comparison of a [`Permit`] with what a verb is about to do.

use crate::kind::Target;
use keelson_auth::{Action, Permit};
use keelson_meta::field_selector::FieldSelector;

/// Subresources that write a part of an object; a GET of them reads the object.
const PART_SUBRESOURCES: [&str; 5] =
    ["status", "ephemeralcontainers", "resize", "approval", "finalize"];

impl Target {
    /// Panics unless the permit was given for this verb on this target: nothing that a request sends may
    /// lead elsewhere than where it was authorized.
    pub(crate) fn assert_covered(&self, permit: &Permit, verb: &str, subresource: &str) {
        let (gvr, namespace) = (self.gvr(), self.namespace.as_str());
        assert_covers(permit, &Action { verb, gvr, subresource, namespace, name: &self.name });
    }

    /// The same of a collection, of which a field selector may leave one name.
    pub(crate) fn assert_covered_collection(
        &self,
        permit: &Permit,
        verb: &str,
        fields: &FieldSelector,
    ) {
        let only = fields.required_value("metadata.name").unwrap_or_default();
        let name = if self.name.is_empty() { only } else { &self.name };
        let (gvr, namespace) = (self.gvr(), self.namespace.as_str());
        assert_covers(permit, &Action { verb, gvr, subresource: "", namespace, name });
    }

    /// The same of a GET, also of a subresource that shows the object.
    pub(crate) fn assert_readable(&self, permit: &Permit) {
        let given = permit.attributes().map_or("", |given| given.subresource.as_str());
        let subresource = PART_SUBRESOURCES.iter().find(|part| **part == given);
        self.assert_covered(permit, "get", subresource.unwrap_or(&""));
    }

    /// The same of a subresource that is reached by several verbs, whatever it is called.
    pub(crate) fn assert_connected(&self, permit: &Permit) {
        if let Some(given) = permit.attributes() {
            assert!(!given.subresource.is_empty(), "{given:?} is not a subresource");
            self.assert_covered(permit, &given.verb, &given.subresource);
        }
    }

    /// The same of an action, by the subresource `name` or by the resource `alias` that does the same.
    pub(crate) fn assert_acted(&self, permit: &Permit, name: &str, alias: Option<&str>) {
        match permit.attributes() {
            Some(given) if Some(given.gvr.resource.as_str()) == alias => {
                let namespace = self.namespace.as_str();
                let (gvr, verb) = (&given.gvr, "create");
                let action = Action { verb, gvr, subresource: "", namespace, name: "" };
                assert_covers(permit, &action);
            }
            _ => self.assert_covered(permit, "create", name),
        }
    }
}

fn assert_covers(permit: &Permit, action: &Action<'_>) {
    assert!(permit.covers(action), "{:?} does not cover {action:?}", permit.attributes());
}
