//! [`reconcile`]: brings the EndpointSlices of an owner to what they are to say, with few writes: endpoints stay in
//! the slice in which they are.

use super::trigger::ANNOTATION;
use super::{ServiceKey, Value};
use crate::client::{Client, unless_ending};
use keelson_meta::{Failure, Map, Object, Str, value};
use keelson_registry::options::DeleteOptions;
use keelson_registry::{Entry, Part, Target};

pub(super) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
/// Endpoints of one slice.
const ENDPOINTS_MAX: usize = 100;

/// Whose slices they are.
pub(super) struct Owner<'a> {
    /// Who writes them.
    pub managed_by: &'static str,
    /// The service, or the Endpoints that are mirrored.
    pub object: &'a Object,
    pub kind: &'static str,
    /// Labels beside those that say whose they are.
    pub labels: Map,
    pub annotations: Map,
    /// When the change happened that is told now.
    pub trigger: Option<Str>,
    /// Whether there is a slice also when there is nothing to tell.
    pub has_placeholder: bool,
}

/// Endpoints of one family with the same ports.
#[derive(Debug)]
pub(super) struct Group {
    /// `IPv4` or `IPv6`.
    pub family: Str,
    pub ports: Vec<Value>,
    pub endpoints: Vec<Value>,
}

/// The service of a slice that is managed by someone.
pub(super) fn service_of(entry: &Entry, managed_by: &str) -> Option<ServiceKey> {
    let service = entry.label(SERVICE_NAME_LABEL)?;
    let is_managed = entry.label(MANAGED_BY_LABEL) == Some(managed_by);
    is_managed.then(|| (entry.namespace().into(), service.into()))
}

/// What is to be written.
#[derive(Debug, Default)]
struct Plan {
    create: Vec<Object>,
    update: Vec<Object>,
    delete: Vec<Object>,
}

/// Writes what is missing, changes what is wrong, deletes what is too much.
pub(super) async fn reconcile(
    client: &Client,
    owner: &Owner<'_>,
    groups: Vec<Group>,
) -> Result<(), Failure> {
    let Some(kind) = client.kind("discovery.k8s.io", "endpointslices") else { return Ok(()) };
    let (namespace, name) = (owner.object.namespace(), owner.object.name());
    let prefix = format!("{namespace}/");
    let all = client.registry.cached_all(&kind);
    let known = all.range(&prefix, "").filter(|entry| {
        service_of(entry, owner.managed_by).is_some_and(|(_, service)| service == name)
    });
    let known = known.map(|entry| kind.decode(entry)).collect::<Result<Vec<_>, _>>()?;
    let known = known.into_iter().filter(|slice| slice.deletion_timestamp().is_none()).collect();
    let plan = plan(owner, known, groups);
    for slice in plan.create {
        let target = Target::of(&kind, namespace, "");
        unless_ending(client.create(&target, slice).await)?;
    }
    for slice in plan.update {
        let target = Target::of(&kind, namespace, slice.name());
        unless_ending(client.update(&target, Part::Main, slice).await)?;
    }
    for slice in plan.delete {
        let target = Target::of(&kind, namespace, slice.name());
        unless_ending(client.delete(&target, &DeleteOptions::default()).await)?;
    }
    Ok(())
}

fn plan(owner: &Owner<'_>, known: Vec<Object>, groups: Vec<Group>) -> Plan {
    let mut plan = Plan::default();
    let mut known = known;
    let mut families: Vec<Str> = groups.iter().map(|group| group.family.clone()).collect();
    families.sort();
    families.dedup();
    let mut groups = groups;
    for family in families {
        let is_of = |slice: &mut Object| slice.str_at(&["addressType"]) == family;
        let slices: Vec<Object> = known.extract_if(.., is_of).collect();
        let own = groups.extract_if(.., |group| group.family == family).collect();
        plan_family(owner, &family, slices, own, &mut plan);
    }
    // Families that the service has no longer.
    plan.delete.extend(known);
    plan
}

/// Plans the slices of one family.
fn plan_family(
    owner: &Owner<'_>,
    family: &Str,
    mut slices: Vec<Object>,
    groups: Vec<Group>,
    plan: &mut Plan,
) {
    let (mut own, mut unchanged) = (Plan::default(), 0);
    for group in groups.into_iter().filter(|group| !group.endpoints.is_empty()) {
        let has_ports = |slice: &mut Object| slice.array_at(&["ports"]) == group.ports;
        let known = slices.extract_if(.., has_ports).collect();
        unchanged += plan_group(owner, group, known, &mut own);
    }
    own.delete.extend(slices);
    if owner.has_placeholder && own.create.is_empty() && own.update.is_empty() && unchanged == 0 {
        let is_placeholder = |slice: &Object| {
            slice.array_at(&["ports"]).is_empty()
                && slice.array_at(&["endpoints"]).is_empty()
                && !has_other_metadata(owner, slice)
        };
        match own.delete.iter().position(is_placeholder) {
            Some(at) => drop(own.delete.remove(at)),
            None => own.create.push(new_slice(owner, family, &[], vec![])),
        }
    }
    // A slice that is too much becomes one that is missing.
    while let Some(new) = own.create.pop() {
        let Some(mut old) = own.delete.pop() else {
            own.create.push(new);
            break;
        };
        for name in ["endpoints", "ports"] {
            old.root.insert(name, new.get(name).cloned().unwrap_or_default());
        }
        own.update.push(old);
    }
    for slice in &mut own.update {
        set_metadata(owner, slice);
    }
    plan.create.extend(own.create);
    plan.update.extend(own.update);
    plan.delete.extend(own.delete);
}

/// Plans the slices of one group, of which there are some; how many of them stay as they are.
fn plan_group(owner: &Owner<'_>, group: Group, known: Vec<Object>, plan: &mut Plan) -> usize {
    let mut left = group.endpoints;
    let (mut changed, mut unchanged): (Vec<Object>, Vec<Object>) = (vec![], vec![]);
    for mut slice in known {
        let before = slice.array_at(&["endpoints"]);
        let kept: Vec<Value> = before
            .iter()
            .filter_map(|known| {
                let at = left.iter().position(|new| is_same_endpoint(new, known))?;
                Some(left.remove(at))
            })
            .collect();
        if kept.is_empty() {
            plan.delete.push(slice);
        } else if kept != before || has_other_metadata(owner, &slice) {
            slice.root.insert("endpoints", kept);
            changed.push(slice);
        } else {
            unchanged.push(slice);
        }
    }
    for slice in &mut changed {
        fill(slice, &mut left);
    }
    // A slice that had not to be written is only when all that is left finds room there.
    let has_room =
        |slice: &Object| slice.array_at(&["endpoints"]).len() + left.len() <= ENDPOINTS_MAX;
    if !left.is_empty()
        && let Some(at) = unchanged.iter().position(has_room)
    {
        let mut slice = unchanged.remove(at);
        fill(&mut slice, &mut left);
        changed.push(slice);
    }
    plan.update.extend(changed);
    while !left.is_empty() {
        let rest = left.split_off(left.len().min(ENDPOINTS_MAX));
        let endpoints = std::mem::replace(&mut left, rest);
        plan.create.push(new_slice(owner, &group.family, &group.ports, endpoints));
    }
    unchanged.len()
}

/// Moves as many endpoints into a slice as there is room for.
fn fill(slice: &mut Object, left: &mut Vec<Value>) {
    let Some(Value::Array(endpoints)) = slice.root.get_mut("endpoints") else { return };
    let room = ENDPOINTS_MAX.saturating_sub(endpoints.len()).min(left.len());
    endpoints.extend(left.drain(..room));
}

/// Whether two endpoints are one, which may have changed.
fn is_same_endpoint(one: &Value, other: &Value) -> bool {
    let same = |path: &[&str]| one.at(path) == other.at(path);
    same(&["addresses"]) && same(&["targetRef", "uid"])
}

fn new_slice(owner: &Owner<'_>, family: &Str, ports: &[Value], endpoints: Vec<Value>) -> Object {
    let object = owner.object;
    let slice = value!({
        "metadata": {
            "generateName": (format!("{}-", object.name())), "namespace": (object.namespace()),
            "ownerReferences": [{
                "apiVersion": "v1", "kind": (owner.kind), "name": (object.name()),
                "uid": (object.uid()), "controller": true, "blockOwnerDeletion": true
            }]
        },
        "addressType": (family.clone())
    });
    let mut slice = Object::from_value(slice).unwrap_or_default();
    // Nobody owns a list without items.
    for (name, items) in [("endpoints", endpoints), ("ports", ports.to_vec())] {
        if !items.is_empty() {
            slice.root.insert(name, items);
        }
    }
    set_metadata(owner, &mut slice);
    slice
}

fn all_labels(owner: &Owner<'_>) -> Map {
    let mut labels = owner.labels.clone();
    labels.insert(SERVICE_NAME_LABEL, owner.object.name());
    labels.insert(MANAGED_BY_LABEL, owner.managed_by);
    labels
}

fn set_metadata(owner: &Owner<'_>, slice: &mut Object) {
    slice.metadata_mut().insert("labels", all_labels(owner));
    let mut annotations = owner.annotations.clone();
    if let Some(trigger) = &owner.trigger {
        annotations.insert(ANNOTATION, trigger.clone());
    }
    if annotations.is_empty() {
        slice.metadata_mut().remove("annotations");
    } else {
        slice.metadata_mut().insert("annotations", annotations);
    }
}

/// Whether labels or annotations are not what they are to be.
fn has_other_metadata(owner: &Owner<'_>, slice: &Object) -> bool {
    let labels = slice.at(&["metadata", "labels"]).and_then(Value::as_object);
    let annotations = slice.meta_map("annotations").filter(|(name, _)| *name != ANNOTATION);
    let wanted = owner.annotations.iter();
    let wanted = wanted.map(|(name, text)| (name.as_str(), text.as_str().unwrap_or_default()));
    let (mut annotations, mut wanted): (Vec<_>, Vec<_>) = (annotations.collect(), wanted.collect());
    annotations.sort_unstable();
    wanted.sort_unstable();
    labels != Some(&all_labels(owner)) || annotations != wanted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint(number: usize, ready: bool) -> Value {
        value!({"addresses": [(format!("10.0.{}.{}", number / 250, number % 250))],
            "conditions": {"ready": (Value::Bool(ready))}})
    }

    fn check(known: Vec<Object>, endpoints: Vec<Value>, want: &[usize], told: [usize; 3]) -> Plan {
        let object = value!({"metadata": {"name": "s", "namespace": "ns", "uid": "u"}});
        let object = Object::from_value(object).expect("a map");
        let owner = Owner {
            managed_by: "test",
            object: &object,
            kind: "Service",
            labels: Map::new(),
            annotations: Map::new(),
            trigger: None,
            has_placeholder: true,
        };
        let ports = vec![value!({"name": "p", "port": 80})];
        let groups = vec![Group { family: "IPv4".into(), ports, endpoints }];
        let plan = plan(&owner, known, groups);
        let sizes = plan.create.iter().chain(&plan.update);
        let sizes: Vec<usize> = sizes.map(|slice| slice.array_at(&["endpoints"]).len()).collect();
        assert_eq!(sizes, want);
        assert_eq!([plan.create.len(), plan.update.len(), plan.delete.len()], told);
        plan
    }

    #[test]
    fn endpoints_stay_in_their_slices_and_slices_are_filled_before_others_are_made() {
        let all = |range: std::ops::Range<usize>| range.map(|n| endpoint(n, true)).collect();
        let made = check(vec![], all(0..250), &[100, 100, 50], [3, 0, 0]).create;
        check(made.clone(), all(0..250), &[], [0, 0, 0]);
        // What finds room in one slice goes there.
        check(made.clone(), all(0..260), &[60], [0, 1, 0]);
        // A slice that is written anyway takes what is new.
        let mut some: Vec<Value> = all(0..260);
        some[3] = endpoint(3, false);
        some.remove(4);
        check(made.clone(), some, &[100, 59], [0, 2, 0]);
        // One whose endpoints are gone goes, or becomes another.
        check(made.clone(), all(0..200), &[], [0, 0, 1]);
        check(made, vec![], &[0], [0, 1, 2]);
    }
}
