//! Group, version, kind and resource.

use crate::Str;
use std::fmt;

/// An API group and version. The core group is the empty string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// `apps`, or empty for the core group.
    pub group: Str,
    /// `v1`.
    pub version: Str,
}

impl GroupVersion {
    /// Returns a group and version.
    pub fn new(group: impl Into<Str>, version: impl Into<Str>) -> Self {
        GroupVersion { group: group.into(), version: version.into() }
    }

    /// Parses an `apiVersion`: `v1` or `apps/v1`. `None` when it has more than one slash.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once('/') {
            None => Some(GroupVersion::new("", text)),
            Some((_, version)) if version.contains('/') => None,
            Some((group, version)) => Some(GroupVersion::new(group, version)),
        }
    }

    /// Returns the kind in this group and version.
    pub fn kind(&self, kind: impl Into<Str>) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: kind.into(),
        }
    }

    /// Returns the resource in this group and version.
    pub fn resource(&self, resource: impl Into<Str>) -> GroupVersionResource {
        GroupVersionResource {
            group: self.group.clone(),
            version: self.version.clone(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for GroupVersion {
    /// Returns the `apiVersion`: `v1` or `apps/v1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            return f.write_str(&self.version);
        }
        write!(f, "{}/{}", self.group, self.version)
    }
}

/// The group, version and kind of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// `apps`, or empty for the core group.
    pub group: Str,
    /// `v1`.
    pub version: Str,
    /// `Deployment`.
    pub kind: Str,
}

impl GroupVersionKind {
    /// Returns a group, version and kind.
    pub fn new(group: impl Into<Str>, version: impl Into<Str>, kind: impl Into<Str>) -> Self {
        GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// Returns the group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// Returns the `apiVersion`: `v1` or `apps/v1`.
    pub fn api_version(&self) -> Str {
        if self.group.is_empty() {
            return self.version.clone();
        }
        smol_str::format_smolstr!("{}/{}", self.group, self.version)
    }
}

impl fmt::Display for GroupVersionKind {
    /// Formats like upstream: `apps/v1, Kind=Deployment`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// The group, version and resource of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    /// `apps`, or empty for the core group.
    pub group: Str,
    /// `v1`.
    pub version: Str,
    /// `deployments`.
    pub resource: Str,
}

impl GroupVersionResource {
    /// Returns a group, version and resource.
    pub fn new(group: impl Into<Str>, version: impl Into<Str>, resource: impl Into<Str>) -> Self {
        GroupVersionResource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// Returns the name in messages: `pods` or `deployments.apps`.
    pub fn qualified(&self) -> Str {
        if self.group.is_empty() {
            return self.resource.clone();
        }
        smol_str::format_smolstr!("{}.{}", self.resource, self.group)
    }
}
