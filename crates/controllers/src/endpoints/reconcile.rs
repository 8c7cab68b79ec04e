//! [`reconcile`]: updates the EndpointSlices of an owner with few writes. Endpoints stay in their
//! slice.

use super::trigger::TRIGGER_TIME_ANNOTATION;
use super::{ServiceKey, Value};
use keelson_auth::off_worker;
use keelson_loops::client::{Client, ignore_terminating};
use keelson_meta::{Failure, Map, Object, Str, value};
use keelson_records::Entry;
use keelson_registry::options::DeleteOptions;
use keelson_registry::{Subresource, Target};
use std::collections::HashMap;

pub(super) const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY_LABEL: &str = "endpointslice.kubernetes.io/managed-by";
/// Maximum number of endpoints in a slice.
const ENDPOINTS_MAX: usize = 100;
/// About the bytes of an endpoint.
const ENDPOINT_BYTES: usize = 256;

/// The owner of the slices and their metadata.
pub(super) struct Owner<'a> {
    /// The value of the managed-by label.
    pub managed_by: &'static str,
    /// The Service, or the Endpoints that are mirrored.
    pub object: &'a Object,
    pub kind: &'static str,
    /// Labels besides service name and managed-by.
    pub labels: Map,
    pub annotations: Map,
    /// The time of the change that is written now.
    pub trigger: Option<Str>,
    /// Whether one empty slice exists when there are no endpoints.
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

/// Returns the service of a slice with this managed-by label.
pub(super) fn service_of(entry: &Entry, managed_by: &str) -> Option<ServiceKey> {
    let service = entry.label(SERVICE_NAME_LABEL)?;
    let is_managed = entry.label(MANAGED_BY_LABEL) == Some(managed_by);
    is_managed.then(|| (entry.namespace().into(), service.into()))
}

/// The writes to do.
#[derive(Debug, Default)]
struct Plan {
    create: Vec<Object>,
    update: Vec<Object>,
    delete: Vec<Object>,
}

/// Creates, updates and deletes slices so that they contain the endpoints of `groups`.
pub(super) async fn reconcile(
    client: &Client,
    owner: &Owner<'_>,
    groups: Vec<Group>,
) -> Result<(), Failure> {
    let Some(kind) = client.kind("discovery.k8s.io", "endpointslices") else { return Ok(()) };
    let namespace = owner.object.namespace();
    let name = owner.object.name();
    let prefix = format!("{namespace}/");
    let all = client.registry.cached_all(&kind);
    let known: Vec<&Entry> = all
        .range(&prefix, "")
        .filter(|entry| {
            service_of(entry, owner.managed_by).is_some_and(|(_, service)| service == name)
        })
        .collect();
    let stored: usize = known.iter().map(|entry| entry.size()).sum();
    let made: usize = groups.iter().map(|group| group.endpoints.len() * ENDPOINT_BYTES).sum();
    let plan = off_worker::compute(stored + made, || {
        let known = known
            .into_iter()
            .map(|entry| kind.decode(entry))
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .filter(|slice| slice.deletion_timestamp().is_none());
        Ok::<_, Failure>(plan(owner, known.collect(), groups))
    })?;
    for slice in plan.create {
        let target = Target::of(&kind, namespace, "");
        ignore_terminating(client.create(&target, slice).await)?;
    }
    for slice in plan.update {
        let target = Target::of(&kind, namespace, slice.name());
        ignore_terminating(client.update(&target, Subresource::None, slice).await)?;
    }
    for slice in plan.delete {
        let target = Target::of(&kind, namespace, slice.name());
        ignore_terminating(client.delete(&target, &DeleteOptions::default()).await)?;
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
    // Families that the service no longer has.
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
    let mut own = Plan::default();
    let mut unchanged = 0;
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
    // A surplus slice is updated instead of creating a new one.
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

/// Plans the slices of one group. Returns the number of slices that stay unchanged.
fn plan_group(owner: &Owner<'_>, group: Group, known: Vec<Object>, plan: &mut Plan) -> usize {
    let mut desired = Desired::new(group.endpoints);
    let mut changed: Vec<Object> = vec![];
    let mut unchanged: Vec<Object> = vec![];
    for mut slice in known {
        let before = slice.array_at(&["endpoints"]);
        let matched: Vec<Value> = before.iter().filter_map(|known| desired.take(known)).collect();
        if matched.is_empty() {
            plan.delete.push(slice);
        } else if matched != before || has_other_metadata(owner, &slice) {
            slice.root.insert("endpoints", matched);
            changed.push(slice);
        } else {
            unchanged.push(slice);
        }
    }
    let mut remaining = desired.remaining();
    for slice in &mut changed {
        fill(slice, &mut remaining);
    }
    // An unchanged slice is updated only if all remaining endpoints fit into it.
    let fits =
        |slice: &Object| slice.array_at(&["endpoints"]).len() + remaining.len() <= ENDPOINTS_MAX;
    if !remaining.is_empty()
        && let Some(at) = unchanged.iter().position(fits)
    {
        let mut slice = unchanged.remove(at);
        fill(&mut slice, &mut remaining);
        changed.push(slice);
    }
    plan.update.extend(changed);
    let mut remaining = remaining.into_iter();
    while remaining.len() > 0 {
        let endpoints = remaining.by_ref().take(ENDPOINTS_MAX).collect();
        plan.create.push(new_slice(owner, &group.family, &group.ports, endpoints));
    }
    unchanged.len()
}

/// Moves endpoints into a slice until it is full.
fn fill(slice: &mut Object, remaining: &mut Vec<Value>) {
    let Some(Value::Array(endpoints)) = slice.root.get_mut("endpoints") else { return };
    let count = ENDPOINTS_MAX.saturating_sub(endpoints.len()).min(remaining.len());
    endpoints.extend(remaining.drain(..count));
}

/// Endpoints that are not in a slice yet, which are found by their addresses and target.
struct Desired {
    endpoints: Vec<Option<Value>>,
    /// The places of the endpoints of an identity, the first one last.
    places: HashMap<EndpointIdentity, Vec<usize>>,
}

/// The addresses and the uid of the target.
type EndpointIdentity = (Vec<Str>, Str);

impl Desired {
    fn new(endpoints: Vec<Value>) -> Desired {
        let mut places: HashMap<_, Vec<usize>> = HashMap::with_capacity(endpoints.len());
        for (place, endpoint) in endpoints.iter().enumerate().rev() {
            places.entry(identity(endpoint)).or_default().push(place);
        }
        Desired { endpoints: endpoints.into_iter().map(Some).collect(), places }
    }

    /// Takes the first endpoint with the addresses and the target of a known one.
    fn take(&mut self, known: &Value) -> Option<Value> {
        let place = self.places.get_mut(&identity(known))?.pop()?;
        self.endpoints[place].take()
    }

    /// Returns the endpoints that were not taken, in order.
    fn remaining(self) -> Vec<Value> {
        self.endpoints.into_iter().flatten().collect()
    }
}

fn identity(endpoint: &Value) -> EndpointIdentity {
    let addresses = endpoint.array_at(&["addresses"]).iter().filter_map(Value::as_str);
    let target = endpoint.str_at(&["targetRef", "uid"]).unwrap_or_default();
    (addresses.map(Str::new).collect(), target.into())
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
    // An empty list must not appear in managedFields.
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
        annotations.insert(TRIGGER_TIME_ANNOTATION, trigger.clone());
    }
    if annotations.is_empty() {
        slice.metadata_mut().remove("annotations");
    } else {
        slice.metadata_mut().insert("annotations", annotations);
    }
}

/// Whether the labels or annotations of a slice differ from the desired ones.
fn has_other_metadata(owner: &Owner<'_>, slice: &Object) -> bool {
    let labels = slice.at(&["metadata", "labels"]).and_then(Value::as_object);
    let annotations =
        slice.meta_map("annotations").filter(|(name, _)| *name != TRIGGER_TIME_ANNOTATION);
    let wanted = owner
        .annotations
        .iter()
        .map(|(name, text)| (name.as_str(), text.as_str().unwrap_or_default()));
    let mut annotations: Vec<_> = annotations.collect();
    let mut wanted: Vec<_> = wanted.collect();
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

    fn check(
        known: Vec<Object>,
        endpoints: Vec<Value>,
        want: &[usize],
        counts: [usize; 3],
    ) -> Plan {
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
        let sizes: Vec<usize> = plan
            .create
            .iter()
            .chain(&plan.update)
            .map(|slice| slice.array_at(&["endpoints"]).len())
            .collect();
        assert_eq!(sizes, want);
        assert_eq!([plan.create.len(), plan.update.len(), plan.delete.len()], counts);
        plan
    }

    #[test]
    fn endpoints_stay_in_their_slices_and_slices_are_filled_before_others_are_made() {
        let all = |range: std::ops::Range<usize>| range.map(|n| endpoint(n, true)).collect();
        let created = check(vec![], all(0..250), &[100, 100, 50], [3, 0, 0]).create;
        check(created.clone(), all(0..250), &[], [0, 0, 0]);
        // Endpoints that fit into one slice go there.
        check(created.clone(), all(0..260), &[60], [0, 1, 0]);
        // A slice that is written anyway takes the new endpoints.
        let mut some: Vec<Value> = all(0..260);
        some[3] = endpoint(3, false);
        some.remove(4);
        check(created.clone(), some, &[100, 59], [0, 2, 0]);
        // A slice without endpoints is deleted, or reused.
        check(created.clone(), all(0..200), &[], [0, 0, 1]);
        check(created, vec![], &[0], [0, 1, 2]);
    }

    /// The slices of a service that selects `count` pods are in no order; every third pod changes
    /// its readiness, and every tenth is replaced by another one.
    fn churn(count: usize) -> (Vec<Object>, Vec<Value>) {
        let all: Vec<Value> = (0..count).map(|n| endpoint(n, true)).collect();
        let slices = count.div_ceil(ENDPOINTS_MAX);
        let mut known = check(vec![], all, &vec![ENDPOINTS_MAX; slices], [slices, 0, 0]).create;
        known.reverse();
        let changed = |n: usize| match n % 10 {
            0 => endpoint(count + n, true),
            _ => endpoint(n, !n.is_multiple_of(3)),
        };
        (known, (0..count).map(changed).collect())
    }

    #[test]
    fn the_slices_of_many_pods_are_planned_in_proportion() {
        const TRIES: usize = 3;
        const RATIO_MAX: f64 = 30.0;
        let time = |count: usize| {
            let (known, changed) = churn(count);
            let full = vec![ENDPOINTS_MAX; known.len()];
            let times = (0..TRIES).map(|_| {
                let known = known.clone();
                let changed = changed.clone();
                let begun = off_worker::thread_time();
                check(known, changed, &full, [0, full.len(), 0]);
                off_worker::thread_time() - begun
            });
            times.min().expect("there were tries").as_secs_f64()
        };
        let ratio = time(10_000) / time(1_000);
        // In proportion to pairs it is about 100.
        assert!(ratio < RATIO_MAX, "ten times the pods take {ratio} times as long");
        // One changed pod is one changed slice.
        let (known, _) = churn(1_000);
        let mut one: Vec<Value> = (0..1_000).map(|n| endpoint(n, true)).collect();
        one[555] = endpoint(555, false);
        check(known, one, &[ENDPOINTS_MAX], [0, 1, 0]);
    }
}
