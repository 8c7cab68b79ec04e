//! [`PodQueue`]: pods that wait for a node, by priority. A state machine without a clock of its
//! own.

use super::filters::Plugin;
use super::pod::{Pod, PodKey};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Delay after the first error about a pod; it doubles with each further one.
const BACKOFF: Duration = Duration::from_secs(1);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// A change after which pods may be placed that could not be before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Node,
    /// A pod was placed, or its labels changed.
    PodAdded,
    PodRemoved,
    Volumes,
    Devices,
    Namespaces,
}

impl Change {
    /// Whether a pod that a plugin rejected may be allowed now.
    fn concerns(self, plugin: Plugin) -> bool {
        match self {
            Change::Node => true,
            Change::PodAdded => {
                matches!(plugin, Plugin::PodTopologySpread | Plugin::InterPodAffinity)
            }
            Change::PodRemoved => matches!(
                plugin,
                Plugin::NodePorts
                    | Plugin::NodeResourcesFit
                    | Plugin::VolumeRestrictions
                    | Plugin::NodeVolumeLimits
                    | Plugin::PodTopologySpread
                    | Plugin::InterPodAffinity
            ),
            Change::Volumes => matches!(
                plugin,
                Plugin::VolumeRestrictions
                    | Plugin::NodeVolumeLimits
                    | Plugin::VolumeBinding
                    | Plugin::VolumeZone
            ),
            Change::Devices => plugin == Plugin::DynamicResources,
            Change::Namespaces => plugin == Plugin::InterPodAffinity,
        }
    }
}

#[derive(Debug)]
enum State {
    Active,
    /// It is not placed until all gates are removed.
    Gated,
    /// These plugins rejected it.
    Rejected(BTreeSet<Plugin>),
    /// An error occurred; it is tried again at this time.
    Delayed(Instant),
}

#[derive(Debug)]
struct Waiting {
    pod: Arc<Pod>,
    state: State,
    number: u64,
    errors: u32,
}

impl Waiting {
    fn rank(&self) -> (Reverse<i64>, u64, PodKey) {
        (Reverse(self.pod.priority), self.number, self.pod.key.clone())
    }
}

/// Pods that wait for a node.
#[derive(Debug, Default)]
pub struct PodQueue {
    pods: HashMap<PodKey, Waiting>,
    active: BTreeSet<(Reverse<i64>, u64, PodKey)>,
    /// The pods in the state `Rejected`, which changes wake.
    rejected: HashSet<PodKey>,
    delayed: BTreeSet<(Instant, PodKey)>,
    next_number: u64,
}

impl PodQueue {
    /// Adds a pod, or replaces what is known of it. A pod of which only the status changed stays
    /// where it is.
    pub fn put(&mut self, pod: Arc<Pod>) {
        let asked = |pod: &Pod| {
            let wishes = pod.wishes.as_ref();
            wishes.map(|wishes| (wishes.generation, wishes.device_claims.clone()))
        };
        let is_gated = pod.wishes.as_ref().is_some_and(|wishes| wishes.is_gated);
        if let Some(known) = self.pods.get_mut(&pod.key) {
            let is_same = known.pod.uid == pod.uid
                && asked(&known.pod) == asked(&pod)
                && known.pod.labels == pod.labels;
            if is_same {
                known.pod = pod;
                return;
            }
        }
        let known = self.take(&pod.key);
        let key = pod.key.clone();
        let errors = known.as_ref().map_or(0, |known| known.errors);
        let number = known.map_or_else(|| self.number(), |known| known.number);
        let state = if is_gated { State::Gated } else { State::Active };
        let waiting = Waiting { pod, state, number, errors };
        if !is_gated {
            self.active.insert(waiting.rank());
        }
        self.pods.insert(key, waiting);
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn take(&mut self, key: &PodKey) -> Option<Waiting> {
        let known = self.pods.remove(key)?;
        match known.state {
            State::Active => drop(self.active.remove(&known.rank())),
            State::Delayed(at) => drop(self.delayed.remove(&(at, key.clone()))),
            State::Rejected(_) => {
                self.rejected.remove(key);
            }
            State::Gated => {}
        }
        Some(known)
    }

    pub fn remove(&mut self, key: &PodKey) {
        self.take(key);
    }

    pub fn keys(&self) -> impl Iterator<Item = &PodKey> {
        self.pods.keys()
    }

    /// Returns the most important pod that can be tried. It stays in the queue until it is removed,
    /// rejected or delayed.
    pub fn next(&mut self, now: Instant) -> Option<Arc<Pod>> {
        while let Some((at, _)) = self.delayed.first()
            && *at <= now
            && let Some((_, key)) = self.delayed.pop_first()
        {
            self.activate(&key);
        }
        let (_, _, key) = self.active.first()?;
        self.pods.get(key).map(|known| known.pod.clone())
    }

    fn activate(&mut self, key: &PodKey) {
        if let Some(known) = self.pods.get_mut(key) {
            self.rejected.remove(key);
            known.state = State::Active;
            self.active.insert(known.rank());
        }
    }

    /// Notes that no node is allowed for a pod.
    pub fn reject(&mut self, key: &PodKey, plugins: BTreeSet<Plugin>) {
        if let Some(known) = self.pods.get_mut(key) {
            self.active.remove(&known.rank());
            self.rejected.insert(key.clone());
            known.state = State::Rejected(plugins);
        }
    }

    /// Adds a pod again whose placement failed.
    pub fn delay(&mut self, pod: Arc<Pod>, now: Instant) {
        let errors = self.take(&pod.key).map_or(0, |known| known.errors) + 1;
        let at = now + BACKOFF_MAX.min(BACKOFF * (1 << (errors - 1).min(8)));
        let key = pod.key.clone();
        let number = self.number();
        self.delayed.insert((at, key.clone()));
        self.pods.insert(key, Waiting { pod, state: State::Delayed(at), number, errors });
    }

    /// Makes pods active that may be placed after a change.
    pub fn wake(&mut self, change: Change) {
        let is_concerned = |key: &&PodKey| match self.pods.get(*key).map(|known| &known.state) {
            Some(State::Rejected(plugins)) => {
                plugins.iter().any(|plugin| change.concerns(*plugin))
                    || (plugins.is_empty() && change == Change::Node)
            }
            _ => false,
        };
        let keys: Vec<PodKey> = self.rejected.iter().filter(is_concerned).cloned().collect();
        keys.iter().for_each(|key| self.activate(key));
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.delayed.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scheduler::pod::Wishes;

    fn pod(name: &str, priority: i64, is_gated: bool) -> Arc<Pod> {
        let wishes = Wishes { is_gated, ..Wishes::default() };
        let key = ("n".into(), name.into());
        Arc::new(Pod { key, priority, wishes: Some(Box::new(wishes)), ..Pod::default() })
    }

    fn names(queue: &mut PodQueue, now: Instant) -> String {
        let mut names = vec![];
        while let Some(pod) = queue.next(now) {
            names.push(pod.key.1.to_string());
            queue.reject(&pod.key, BTreeSet::from([Plugin::NodeResourcesFit]));
        }
        names.join(" ")
    }

    #[test]
    fn pods_are_tried_by_priority_and_again_after_changes_that_matter() {
        let now = Instant::now();
        let mut queue = PodQueue::default();
        for (name, priority) in [("a", 0), ("b", 5), ("c", 0)] {
            queue.put(pod(name, priority, false));
        }
        queue.put(pod("gated", 9, true));
        assert_eq!(names(&mut queue, now), "b a c");
        queue.put(pod("a", 0, false));
        assert_eq!(names(&mut queue, now), "", "nothing but its status changed");
        queue.wake(Change::PodAdded);
        assert_eq!(names(&mut queue, now), "");
        queue.wake(Change::PodRemoved);
        assert_eq!(names(&mut queue, now), "b a c");
        queue.delay(pod("a", 0, false), now);
        queue.wake(Change::Node);
        assert_eq!(names(&mut queue, now), "b c");
        assert_eq!(names(&mut queue, now + BACKOFF), "a");
        queue.remove(&("n".into(), "b".into()));
        queue.wake(Change::Node);
        assert_eq!(names(&mut queue, now), "c a");
    }
}
