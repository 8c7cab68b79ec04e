//! Reads `resources.txt`.

use super::{Group, Resource, Subresource, SubresourceClass, Version};
use keelson_meta::{Feature, GroupVersionKind, Str};

/// Reads the table. Its format is guaranteed by the generator, so errors panic.
pub(super) fn read(text: &'static str) -> Vec<Group> {
    let mut groups: Vec<Group> = vec![];
    for line in text.lines().map(str::trim) {
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        if word == "group" {
            let name = words.next().unwrap_or_default();
            // `Str::default()` points to mapped memory. An empty static string may point to an
            // unmapped address, where a vectorized comparison is as slow as the rest of a lookup.
            let name = if name == "core" { Str::default() } else { Str::new_static(name) };
            groups.push(Group { name, versions: vec![] });
        } else if word == "version" {
            let name = Str::new_static(words.next().unwrap_or_default());
            let version =
                Version { name, default_on: words.next() != Some("off"), resources: vec![] };
            groups.last_mut().expect("a version stands in a group").versions.push(version);
        } else if word == "resource" || word == "sub" {
            let group = groups.last_mut().expect("a resource stands in a group");
            let version = group.versions.last_mut().expect("a resource stands in a version");
            if word == "resource" {
                version.resources.push(resource(words, &group.name, &version.name));
            } else {
                let own = version.resources.last_mut().expect("a subresource has a resource");
                let sub = subresource(words, own, &group.name, &version.name);
                own.subresources.push(sub);
            }
        }
    }
    groups
}

fn resource(mut words: std::str::Split<'static, char>, group: &Str, version: &Str) -> Resource {
    let mut word = || words.next().unwrap_or_default();
    let mut out = Resource {
        name: Str::new_static(word()),
        kind: kind(word(), group, version),
        namespaced: word() == "namespaced",
        singular: Str::new_static(word()),
        short_names: vec![],
        categories: vec![],
        verbs: list(word()),
        default_on: true,
        gate: None,
        subresources: vec![],
    };
    if out.singular == "-" {
        out.singular = Str::default();
    }
    for flag in words {
        match flag.split_once('=') {
            Some(("short", names)) => out.short_names = list(names),
            Some(("categories", names)) => out.categories = list(names),
            Some(("gate", name)) => {
                out.gate = Some(Feature::by_name(name).expect("the table names known gates"));
            }
            _ => out.default_on = flag != "off",
        }
    }
    out
}

fn subresource(
    mut words: std::str::Split<'static, char>,
    own: &Resource,
    group: &Str,
    version: &Str,
) -> Subresource {
    let mut word = || words.next().unwrap_or_default();
    let name = Str::new_static(word());
    let kind = match word() {
        "-" => own.kind.clone(),
        other => kind(other, group, version),
    };
    let class = SubresourceClass::of(&name).expect("the table names known subresources");
    Subresource { name, kind, verbs: list(word()), class }
}

fn list(words: &'static str) -> Vec<Str> {
    if words == "-" { vec![] } else { words.split(',').map(Str::new_static).collect() }
}

/// Parses `Kind` or `group/version/Kind`.
fn kind(text: &'static str, group: &Str, version: &Str) -> GroupVersionKind {
    let mut words = text.rsplit('/');
    let kind = Str::new_static(words.next().unwrap_or_default());
    match (words.next(), words.next()) {
        (Some(version), Some(group)) => {
            GroupVersionKind::new(Str::new_static(group), Str::new_static(version), kind)
        }
        _ => GroupVersionKind::new(group.clone(), version.clone(), kind),
    }
}
