//! [`listed_groups`]: all groups as discovery lists them, those of this server and those of the
//! servers behind it.

use crate::api_table::{ApiGroup, ApiTable, ApiVersion, RemoteGroup, RemoteVersion, by_priority};
use keelson_kinds::api_services::priorities;
use keelson_meta::Str;
use std::cmp::Reverse;

/// A group in discovery.
pub struct ListedGroup<'a> {
    /// Its name.
    pub name: &'a Str,
    /// Its versions, the preferred one first.
    pub versions: Vec<ListedVersion<'a>>,
    /// The group, if only this server serves it.
    pub own: Option<&'a ApiGroup>,
    /// The highest `groupPriorityMinimum` of its APIServices.
    pub priority: i64,
}

impl ListedGroup<'_> {
    /// Returns the first name of its APIServices.
    fn first_service(&self) -> String {
        let names = self.versions.iter().map(|version| version.name());
        names.map(|version| format!("{version}.{}", self.name)).min().unwrap_or_default()
    }
}

/// Sorts groups as `/apis` lists them for clients that do not ask for aggregated discovery: those
/// of the same priority by the names of their APIServices, not by their own (kube-aggregator
/// `SortedByGroupAndVersion`).
pub fn sort_by_services(groups: &mut [ListedGroup<'_>]) {
    groups.sort_by_cached_key(|group| (Reverse(group.priority), group.first_service()));
}

/// A version of a group in discovery.
#[derive(Clone, Copy)]
pub enum ListedVersion<'a> {
    /// This server serves it.
    Own(&'a ApiVersion),
    /// Another server serves it.
    Remote(&'a RemoteVersion),
}

impl<'a> ListedVersion<'a> {
    /// Returns its name.
    pub fn name(&self) -> &'a Str {
        match self {
            ListedVersion::Own(version) => &version.name,
            ListedVersion::Remote(version) => &version.name,
        }
    }
}

/// Returns all groups but the core group, in the order of the priorities of their APIServices. A
/// version that this server serves itself is its own.
pub fn listed_groups<'a>(api: &'a ApiTable, remote: &'a [RemoteGroup]) -> Vec<ListedGroup<'a>> {
    let own = api.groups().filter(|group| !group.name.is_empty());
    if remote.is_empty() {
        return own.map(|group| listed(&group.name, Some(group), None)).collect();
    }
    let mut groups: Vec<ListedGroup<'_>> = own
        .map(|group| {
            let other = remote.iter().find(|other| other.name == group.name);
            listed(&group.name, Some(group), other)
        })
        .collect();
    let others = remote.iter().filter(|other| api.group(&other.name).is_none());
    groups.extend(others.map(|other| listed(&other.name, None, Some(other))));
    groups.sort_by_key(|group| (Reverse(group.priority), group.name));
    groups
}

/// Returns one group as discovery lists it; `None`: nobody serves it.
pub fn listed_group<'a>(
    api: &'a ApiTable,
    remote: &'a [RemoteGroup],
    name: &str,
) -> Option<ListedGroup<'a>> {
    let own = api.group(name);
    let other = remote.iter().find(|other| other.name == name);
    let name = own.map(|group| &group.name).or_else(|| other.map(|other| &other.name))?;
    Some(listed(name, own, other))
}

fn listed<'a>(
    name: &'a Str,
    own: Option<&'a ApiGroup>,
    other: Option<&'a RemoteGroup>,
) -> ListedGroup<'a> {
    let own_versions = own.into_iter().flat_map(|group| &group.versions);
    let mut versions: Vec<ListedVersion<'_>> = own_versions.map(ListedVersion::Own).collect();
    let is_own =
        |version: &&RemoteVersion| own.is_some_and(|group| group.version(&version.name).is_some());
    let others = other.into_iter().flat_map(|group| &group.versions);
    let others: Vec<&RemoteVersion> = others.filter(|version| !is_own(version)).collect();
    if !others.is_empty() {
        versions.extend(others.iter().copied().map(ListedVersion::Remote));
        let priority = |version: &ListedVersion<'_>| match version {
            ListedVersion::Own(version) => priorities(name, &version.name).1,
            ListedVersion::Remote(version) => version.priority,
        };
        versions.sort_by(|one, other| {
            let by_name = || by_priority(one.name(), other.name());
            priority(other).cmp(&priority(one)).then_with(by_name)
        });
    }
    let own_priority = own.map(own_priority).unwrap_or_default();
    let priority = other.map_or(own_priority, |other| other.priority.max(own_priority));
    ListedGroup { name, versions, own: own.filter(|_| others.is_empty()), priority }
}

fn own_priority(group: &ApiGroup) -> i64 {
    let versions = group.versions.iter();
    versions.map(|version| priorities(&group.name, &version.name).0).max().unwrap_or_default()
}
