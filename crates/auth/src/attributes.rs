//! [`Attributes`]: what a request wants to do, as authorizers are asked.

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
    /// Whether this is about a non-resource URL, and not about a resource.
    pub non_resource: bool,
    /// The URL path of a non-resource request.
    pub path: String,
    /// The selectors of a list, watch or deletecollection; absent when there are none.
    pub selectors: Option<Box<Selectors>>,
}

/// Label and field selector of a request. One that could not be parsed is `None`, which authorizers take for
/// "selects everything": the request then asks for more, never for less.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selectors {
    /// Label selector.
    pub labels: Option<Selector>,
    /// Field selector.
    pub fields: Option<FieldSelector>,
}

impl Attributes {
    /// Whether this is about a resource, and not about a non-resource URL.
    pub fn is_resource(&self) -> bool {
        !self.non_resource
    }

    /// Whether nothing is changed (apiserver `AttributesRecord.IsReadOnly`).
    pub fn is_read_only(&self) -> bool {
        matches!(self.verb.as_str(), "get" | "list" | "watch")
    }

    /// The same request with another verb.
    #[must_use]
    pub fn with_verb(&self, verb: &'static str) -> Attributes {
        Attributes { verb: Str::new_static(verb), ..self.clone() }
    }

    /// The value that the field selector requires of `field`.
    pub fn required_field(&self, field: &str) -> Option<&str> {
        self.selectors.as_ref()?.fields.as_ref()?.required_value(field)
    }
}
