//! Group, version, kind and resource.

use crate::Str;
use std::fmt;

/// An API group and one of its versions. The core group is the empty string.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// `apps`, or empty for the core group.
    pub group: Str,
    /// `v1`.
    pub version: Str,
}

impl GroupVersion {
    /// Joins the two.
    pub fn new(group: impl Into<Str>, version: impl Into<Str>) -> Self {
        GroupVersion { group: group.into(), version: version.into() }
    }

    /// Reads an `apiVersion`: `v1` or `apps/v1`. `None` when it has more than one slash.
    pub fn parse(text: &str) -> Option<Self> {
        match text.split_once('/') {
            None => Some(GroupVersion::new("", text)),
            Some((_, version)) if version.contains('/') => None,
            Some((group, version)) => Some(GroupVersion::new(group, version)),
        }
    }

    /// With a kind.
    pub fn kind(&self, kind: impl Into<Str>) -> GroupVersionKind {
        GroupVersionKind {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: kind.into(),
        }
    }

    /// With a resource.
    pub fn resource(&self, resource: impl Into<Str>) -> GroupVersionResource {
        GroupVersionResource {
            group: self.group.clone(),
            version: self.version.clone(),
            resource: resource.into(),
        }
    }
}

impl fmt::Display for GroupVersion {
    /// The `apiVersion` form: `v1` or `apps/v1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.group.is_empty() {
            return f.write_str(&self.version);
        }
        write!(f, "{}/{}", self.group, self.version)
    }
}

/// What an object says it is.
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
    /// Joins the three.
    pub fn new(group: impl Into<Str>, version: impl Into<Str>, kind: impl Into<Str>) -> Self {
        GroupVersionKind { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// Group and version.
    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// The `apiVersion` form: `v1` or `apps/v1`.
    pub fn api_version(&self) -> Str {
        if self.group.is_empty() {
            return self.version.clone();
        }
        smol_str::format_smolstr!("{}/{}", self.group, self.version)
    }
}

impl fmt::Display for GroupVersionKind {
    /// As upstream prints it: `apps/v1, Kind=Deployment`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Kind={}", self.group, self.version, self.kind)
    }
}

/// Where an object lives in the API.
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
    /// Joins the three.
    pub fn new(group: impl Into<Str>, version: impl Into<Str>, resource: impl Into<Str>) -> Self {
        GroupVersionResource {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// As upstream names it in messages: `pods` or `deployments.apps`.
    pub fn qualified(&self) -> Str {
        if self.group.is_empty() {
            return self.resource.clone();
        }
        smol_str::format_smolstr!("{}.{}", self.resource, self.group)
    }
}
