//! [`Row`]: what is known of a built-in resource besides its schema. Each API group has its rows in
//! its own module.

use crate::strategy::Strategy;

/// A built-in resource.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    /// `pods`.
    pub resource: &'static str,
    /// The rules of its objects, and what the verbs must know of it.
    pub strategy: Strategy,
    /// The storage prefix below `/registry/`; empty: the name of the resource. It is that of
    /// kube-apiserver, so that data can be migrated in both directions.
    pub storage_prefix: &'static str,
    /// The version in which kube-apiserver stores it, if it is not the first of the group: the
    /// previous release must be able to read what this one writes.
    pub stored_version: Option<&'static str>,
    /// Group, version and kind as which it is stored, if they are those of another group.
    pub stored_as: Option<(&'static str, &'static str, &'static str)>,
    /// Its deprecated versions.
    pub deprecations: &'static [Deprecation],
    /// Whether its status can be returned as a table.
    pub has_status_table: bool,
}

impl Row {
    /// A resource without anything special.
    pub const PLAIN: Row = Row {
        resource: "",
        strategy: Strategy::GENERIC,
        storage_prefix: "",
        stored_version: None,
        stored_as: None,
        deprecations: &[],
        has_status_table: true,
    };
}

/// A deprecated version of a resource (the lifecycle comments of its Go type).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deprecation {
    /// `v1beta1`.
    pub version: &'static str,
    /// The minor release of Kubernetes 1 since which it is deprecated.
    pub since: u16,
    /// The minor release in which it will be gone.
    pub until: Option<u16>,
    /// Version and kind to use instead.
    pub replacement: Option<&'static str>,
}
