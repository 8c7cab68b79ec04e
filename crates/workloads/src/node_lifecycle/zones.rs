//! Zones of nodes: how fast the nodes of a zone get taints that evict pods. When very many nodes
//! are silent, the fault is more likely with the observer.

use keelson_meta::{Str, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Nodes of a zone that are tainted in a second.
const RATE: f64 = 0.1;
/// The rate when many nodes of a large zone are not ready.
const REDUCED_RATE: f64 = 0.01;
/// Share of nodes that are not ready from which a zone is disrupted.
const DISRUPTED_SHARE: f64 = 0.55;
/// Number of nodes up to which a disrupted zone is left alone.
const SMALL_ZONE_NODES_MAX: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Initial,
    Normal,
    Partial,
    Full,
}

/// One zone.
#[derive(Clone, Debug)]
struct Zone {
    state: State,
    bucket: Bucket,
    /// Nodes that must get a taint.
    waiting: BTreeSet<Str>,
}

/// A token bucket that holds one token.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    rate: f64,
    tokens: f64,
    at: Timestamp,
}

impl Bucket {
    fn full(rate: f64, at: Timestamp) -> Bucket {
        Bucket { rate, tokens: 1.0, at }
    }

    fn take(&mut self, now: Timestamp) -> bool {
        let elapsed = now.since(self.at).0.max(0) as f64 / 1e9;
        self.tokens = (self.tokens + elapsed * self.rate).min(1.0);
        self.at = now;
        let is_taken = self.rate > 0.0 && self.tokens >= 1.0;
        if is_taken {
            self.tokens -= 1.0;
        }
        is_taken
    }

    /// Returns the time until there is a token; `None`: there will be none.
    fn wait(&self) -> Option<Duration> {
        let missing = (1.0 - self.tokens).max(0.0);
        (self.rate > 0.0).then(|| Duration::from_secs_f64(missing / self.rate + 0.001))
    }

    /// Changes the rate. A bucket that is empty stays so.
    fn set_rate(&mut self, rate: f64, now: Timestamp) {
        if self.rate != rate {
            let is_full = self.take(now);
            *self = Bucket { rate, tokens: if is_full { 1.0 } else { 0.0 }, at: now };
        }
    }
}

/// All zones.
#[derive(Clone, Debug, Default)]
pub(super) struct Zones {
    zones: BTreeMap<Str, Zone>,
}

/// What a look at all zones found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Nothing special.
    Usual,
    /// Now all nodes are not ready: none may have taints that evict pods.
    AllLost,
    /// Some node is ready again: the times of silence begin anew.
    Recovered,
}

impl Zones {
    /// Observes which nodes of each zone are ready.
    pub fn observe(&mut self, ready: &BTreeMap<Str, Vec<bool>>, now: Timestamp) -> Finding {
        for name in ready.keys() {
            self.zone(name, now);
        }
        let was_lost = self.zones.values().all(|zone| zone.state == State::Full);
        self.zones.retain(|name, _| ready.contains_key(name));
        let states: BTreeMap<&Str, State> =
            ready.iter().map(|(name, nodes)| (name, state_of(nodes))).collect();
        let is_lost = states.values().all(|state| *state == State::Full);
        if is_lost && was_lost {
            return Finding::Usual;
        }
        for (name, zone) in &mut self.zones {
            let state = states.get(name).copied().unwrap_or(State::Normal);
            let nodes = ready.get(name).map_or(0, Vec::len);
            if is_lost {
                zone.bucket.set_rate(0.0, now);
            } else if zone.state != state || was_lost {
                zone.bucket.set_rate(rate_of(state, nodes), now);
            }
            zone.state = state;
        }
        match (is_lost, was_lost) {
            (true, _) => Finding::AllLost,
            (_, true) => Finding::Recovered,
            _ => Finding::Usual,
        }
    }

    fn zone(&mut self, name: &Str, now: Timestamp) -> &mut Zone {
        self.zones.entry(name.clone()).or_insert_with(|| Zone {
            state: State::Initial,
            bucket: Bucket::full(RATE, now),
            waiting: BTreeSet::new(),
        })
    }

    /// Notes that a node must get a taint.
    pub fn add(&mut self, zone: &Str, node: &Str, now: Timestamp) {
        self.zone(zone, now).waiting.insert(node.clone());
    }

    /// Notes that a node needs no taint.
    pub fn remove(&mut self, node: &str) {
        for zone in self.zones.values_mut() {
            zone.waiting.remove(node);
        }
    }

    /// Returns the nodes that get their taint now, and the time until the next one.
    pub fn due(&mut self, now: Timestamp) -> (Vec<Str>, Option<Duration>) {
        let mut due = vec![];
        let mut next = None;
        for zone in self.zones.values_mut() {
            while !zone.waiting.is_empty() && zone.bucket.take(now) {
                due.extend(zone.waiting.pop_first());
            }
            if !zone.waiting.is_empty() {
                next = [next, zone.bucket.wait()].into_iter().flatten().min();
            }
        }
        (due, next)
    }
}

fn state_of(nodes: &[bool]) -> State {
    let ready = nodes.iter().filter(|is_ready| **is_ready).count();
    let lost = nodes.len() - ready;
    if ready == 0 && lost > 0 {
        State::Full
    } else if lost > 2 && lost as f64 / nodes.len() as f64 >= DISRUPTED_SHARE {
        State::Partial
    } else {
        State::Normal
    }
}

fn rate_of(state: State, nodes: usize) -> f64 {
    match state {
        State::Partial if nodes > SMALL_ZONE_NODES_MAX => REDUCED_RATE,
        State::Partial => 0.0,
        _ => RATE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(zones: &[(&str, &[bool])]) -> BTreeMap<Str, Vec<bool>> {
        zones.iter().map(|(name, nodes)| (Str::new(name), nodes.to_vec())).collect()
    }

    #[test]
    fn one_node_in_ten_seconds_gets_a_taint() {
        let mut zones = Zones::default();
        let at = |seconds| Timestamp::new(seconds, 0);
        let finding = zones.observe(&ready(&[("", &[true, true, false, false])]), at(0));
        assert_eq!(finding, Finding::Usual);
        zones.add(&"".into(), &"a".into(), at(0));
        zones.add(&"".into(), &"b".into(), at(0));
        let mut taken = vec![];
        for second in [0, 1, 9, 10, 11, 20] {
            taken.push(zones.due(at(second)).0.len());
        }
        assert_eq!(taken, [1, 0, 0, 1, 0, 0]);
    }

    #[test]
    fn nothing_is_tainted_while_all_nodes_are_lost() {
        let mut zones = Zones::default();
        let at = |seconds| Timestamp::new(seconds, 0);
        zones.observe(&ready(&[("x", &[true]), ("y", &[true])]), at(0));
        let lost = ready(&[("x", &[false]), ("y", &[false])]);
        assert_eq!(zones.observe(&lost, at(1)), Finding::AllLost);
        assert_eq!(zones.observe(&lost, at(2)), Finding::Usual);
        zones.add(&"x".into(), &"a".into(), at(2));
        assert_eq!(zones.due(at(100)), (vec![], None));
        let some = ready(&[("x", &[false]), ("y", &[true])]);
        assert_eq!(zones.observe(&some, at(101)), Finding::Recovered);
        // The zone of the lost node is tainted at the usual rate, later.
        assert_eq!(zones.due(at(102)).0.len(), 0);
        assert_eq!(zones.due(at(112)).0.len(), 1);
    }

    #[test]
    fn a_disrupted_zone_is_left_alone_unless_it_is_large() {
        let check = |ready: usize, lost: usize, want: f64| {
            let mut nodes = vec![true; ready];
            nodes.extend(vec![false; lost]);
            assert_eq!(rate_of(state_of(&nodes), nodes.len()), want, "{ready} {lost}");
        };
        check(1, 2, 0.1);
        check(1, 3, 0.0);
        check(0, 3, 0.1);
        check(5, 5, 0.1);
        check(40, 60, 0.01);
    }
}
