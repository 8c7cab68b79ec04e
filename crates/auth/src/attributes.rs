//! [`Attributes`]: the attributes of a request that authorizers decide on.

use keelson_meta::field_selector::FieldSelector;
use keelson_meta::selector::Selector;
use keelson_meta::{GroupVersionResource, Str};

/// The attributes of a request that authorizers decide on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// `get`, `list`, `watch`, `create`, ...; for non-resource URLs the lower-case HTTP method.
    pub verb: Str,
    /// Group, version and resource.
    pub gvr: GroupVersionResource,
    /// Subresource, or empty.
    pub subresource: Str,
    /// Namespace, or empty.
    pub namespace: Str,
    /// Name, or empty.
    pub name: Str,
    /// Whether the request is for a non-resource URL.
    pub non_resource: bool,
    /// The URL path of a non-resource request.
    pub path: String,
    /// The selectors of a list, watch or deletecollection; `None` when there are none.
    pub selectors: Option<Box<Selectors>>,
}

/// Label and field selector of a request. A selector that could not be parsed is `None`, which
/// authorizers treat as "selects everything": the request then needs more permissions, never fewer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// Label selector.
    pub labels: Option<Selector>,
    /// Field selector.
    pub fields: Option<FieldSelector>,
}

impl Attributes {
    /// Returns whether the request is for a resource.
    pub fn is_resource(&self) -> bool {
        !self.non_resource
    }

    /// Returns whether the request is read-only (apiserver `AttributesRecord.IsReadOnly`).
    pub fn is_read_only(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// Returns the same attributes with another verb.
    #[must_use]
    pub fn with_verb(&self, verb: &'static str) -> Attributes {
        Attributes { verb: Str::new_static(verb), ..self.clone() }
    }

    /// Returns the value that the field selector requires of `field`.
    pub fn required_field(&self, field: &str) -> Option<&str> {
        self.selectors.as_ref()?.fields.as_ref()?.required_value(field)
    }
}
