//! Checks that a [`Permit`] covers what a verb is about to do.

use crate::target::Target;
use keelson_auth::{Action, Permit};
use keelson_meta::field_selector::FieldSelector;
use keelson_schema::catalogue::SubresourceClass;

impl Target {
    /// Panics unless the permit covers this verb on this target. Nothing in a request may reach
    /// another object than the one that was authorized.
    pub(crate) fn assert_covered(&self, permit: &Permit, verb: &str, subresource: &str) {
        let gvr = self.gvr();
        let namespace = self.namespace.as_str();
        assert_covers(permit, &Action { verb, gvr, subresource, namespace, name: &self.name });
    }

    /// Like [`Target::assert_covered`], for a collection, which a field selector may restrict to
    /// one name.
    pub(crate) fn assert_covered_collection(
        &self,
        permit: &Permit,
        verb: &str,
        fields: &FieldSelector,
    ) {
        // A selected name grants reads only: a deletecollection needs the right for all names.
        let only = match verb {
            "deletecollection" => "",
            _ => fields.required_value("metadata.name").unwrap_or_default(),
        };
        let name = if self.name.is_empty() { only } else { &self.name };
        let gvr = self.gvr();
        let namespace = self.namespace.as_str();
        assert_covers(permit, &Action { verb, gvr, subresource: "", namespace, name });
    }

    /// Like [`Target::assert_covered`], for a GET of an object or of a subresource that returns the
    /// object.
    pub(crate) fn assert_readable(&self, permit: &Permit) {
        let given = permit.attributes().map_or("", |given| given.subresource.as_str());
        let is_part = SubresourceClass::of(given).is_some_and(SubresourceClass::is_part);
        self.assert_covered(permit, "get", if is_part { given } else { "" });
    }

    /// Like [`Target::assert_covered`], for a connect subresource, which several verbs reach.
    pub(crate) fn assert_connected(&self, permit: &Permit) {
        if let Some(given) = permit.attributes() {
            assert!(!given.subresource.is_empty(), "{given:?} is not a subresource");
            self.assert_covered(permit, &given.verb, &given.subresource);
        }
    }

    /// Like [`Target::assert_covered`], for an action by subresource `name` or by resource `alias`.
    pub(crate) fn assert_acted(&self, permit: &Permit, name: &str, alias: Option<&str>) {
        match permit.attributes() {
            Some(given) if Some(given.gvr.resource.as_str()) == alias => {
                let namespace = self.namespace.as_str();
                let gvr = &given.gvr;
                let verb = "create";
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
