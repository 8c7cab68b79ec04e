//! A seeded random walk: runs the same steps on a store and on the [`Model`], and compares the
//! results.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::drain;
use crate::{
    Compare, Event, KeyValue, Model, Op, Page, Range, ReadError, Revision, Store, Txn, TxnOutcome,
    prefix_end,
};

/// SplitMix64. The walk needs reproducibility, not quality.
#[derive(Clone, Debug)]
pub struct Rng(pub u64);

impl Rng {
    /// Returns the next random number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a random number below `end`.
    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }
}

/// A walk in progress. The store may be reopened between calls of [`steps`](Walk::steps).
#[derive(Debug)]
pub struct Walk {
    seed: u64,
    rng: Rng,
    model: Model,
    /// Maps the model's revisions to the store's; a shared backend may skip some.
    pairs: BTreeMap<Revision, Revision>,
    step: usize,
}

impl Walk {
    /// Creates a walk, reproducible by its seed. The store must have no keys.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let rng = Rng(seed);
        let model = Model::new();
        Self { seed, rng, model, pairs: BTreeMap::new(), step: 0 }
    }

    /// Takes some steps. Panics if the store and the model differ.
    pub async fn steps(&mut self, store: &dyn Store, steps: usize) {
        if self.pairs.is_empty() {
            self.pairs.insert(Revision(0), store.revision());
        }
        assert_eq!(store.revision(), self.paired(self.model.revision()), "{}", self.at());
        for _ in 0..steps {
            self.step += 1;
            match self.rng.below(100) {
                0..60 => self.txn(store).await,
                60..75 => self.get(store).await,
                75..88 => self.range(store).await,
                88..92 => self.load(store).await,
                92..97 => self.watch(store).await,
                _ => self.compact(store).await,
            }
        }
        self.load(store).await;
    }

    fn at(&self) -> String {
        format!("seed {} step {}", self.seed, self.step)
    }

    fn paired(&self, model: Revision) -> Revision {
        *self.pairs.get(&model).expect("a revision of the model has its pair")
    }

    fn key(&mut self) -> Bytes {
        let folder = self.rng.below(3);
        let name = self.rng.below(8);
        format!("{}/{name}", ["a", "ab", "b"][folder as usize]).into()
    }

    fn prefix(&mut self) -> Bytes {
        let prefixes = ["", "a", "a/", "ab/", "b/3", "c"];
        prefixes[self.rng.below(prefixes.len() as u64) as usize].into()
    }

    /// Returns a random revision of the model, possibly below the floor.
    fn past(&mut self) -> Revision {
        let newest = self.model.revision().0;
        let back = if self.rng.below(4) == 0 { newest + 1 } else { newest.min(20) + 1 };
        Revision(newest - self.rng.below(back))
    }

    async fn txn(&mut self, store: &dyn Store) {
        let mut ours = Txn::default();
        let mut theirs = Txn::default();
        for _ in 0..self.rng.below(3) {
            let key = self.key();
            let current =
                self.model.get(&key).await.expect("model").map_or(Revision(0), |kv| kv.modified);
            let modified = if self.rng.below(6) == 0 { self.past() } else { current };
            ours.compare.push(Compare { key: key.clone(), modified });
            let modified = if modified == Revision(0) { modified } else { self.paired(modified) };
            theirs.compare.push(Compare { key, modified });
        }
        for _ in 0..1 + self.rng.below(4) {
            let key = self.key();
            if ours.ops.iter().any(|op| *op.key() == key) {
                continue;
            }
            let size = if self.rng.below(20) == 0 { 50_000 } else { self.rng.below(100) };
            let value = vec![self.rng.draw() as u8; size as usize].into();
            let is_delete = self.rng.below(3) == 0;
            ours.ops.push(if is_delete {
                Op::Delete { key }
            } else {
                Op::Put { key, value, lease: None }
            });
        }
        theirs.ops = ours.ops.clone();
        let expected = self.model.txn(ours).await.expect("model");
        let got = store.txn(theirs).await.unwrap_or_else(|error| panic!("{}: {error}", self.at()));
        if let TxnOutcome::Committed(at) = got {
            let last = self.pairs.entry(self.model.revision()).or_insert(at);
            assert_eq!(*last, at, "{}", format_args!("seed {} step {}", self.seed, self.step));
        }
        let expected = match expected {
            TxnOutcome::Committed(at) => TxnOutcome::Committed(self.paired(at)),
            TxnOutcome::Conflict { key, current } => {
                TxnOutcome::Conflict { key, current: current.map(|kv| self.translate(kv)) }
            }
        };
        assert_eq!(got, expected, "{}", self.at());
        assert_eq!(store.revision(), self.paired(self.model.revision()), "{}", self.at());
    }

    async fn get(&mut self, store: &dyn Store) {
        let key = self.key();
        let expected = self.model.get(&key).await.expect("model").map(|kv| self.translate(kv));
        let got = store.get(&key).await.unwrap_or_else(|error| panic!("{}: {error}", self.at()));
        assert_eq!(got, expected, "{} get {}", self.at(), key.escape_ascii());
    }

    async fn range(&mut self, store: &dyn Store) {
        let start = if self.rng.below(2) == 0 { self.prefix() } else { self.key() };
        let end = if self.rng.below(2) == 0 { prefix_end(&start) } else { self.key() };
        let limit = self.rng.below(6) as usize;
        let at = if self.rng.below(2) == 0 { None } else { Some(self.past()) };
        let ours = Range { start, end, limit, at };
        let theirs = Range { at: at.map(|at| self.paired(at)), ..ours.clone() };
        let query = format!("{} {ours:?}", self.at());
        match (self.model.range(ours).await, store.range(theirs).await) {
            (Ok(Page { items, at, more }), Ok(got)) => {
                let items = items.into_iter().map(|kv| self.translate(kv)).collect();
                assert_eq!(got, Page { items, at: self.paired(at), more }, "{query}");
            }
            (Err(ReadError::Compacted { .. }), Err(ReadError::Compacted { .. })) => {}
            (expected, got) => panic!("{query}: {got:?} instead of {expected:?}"),
        }
    }

    async fn load(&mut self, store: &dyn Store) {
        let prefix = self.prefix();
        let mut expected = BTreeMap::new();
        let mut got = Vec::new();
        let mut keep = |kv: KeyValue| {
            expected.insert(kv.key.clone(), kv);
        };
        let at = self.model.load(&prefix, None, &mut keep).await.expect("model");
        let read = store.load(&prefix, None, &mut |kv| got.push(kv)).await;
        assert_eq!(read.ok(), Some(self.paired(at)), "{}", self.at());
        got.sort_by(|a, b| a.key.cmp(&b.key));
        let expected: Vec<_> = expected.into_values().map(|kv| self.translate(kv)).collect();
        assert_eq!(got, expected, "{} load {}", self.at(), prefix.escape_ascii());
    }

    async fn watch(&mut self, store: &dyn Store) {
        let prefix = self.prefix();
        let after = self.past();
        let opened = store.watch(prefix.clone(), self.paired(after));
        let Ok(mut ours) = self.model.watch(prefix, after) else {
            assert!(opened.is_err(), "{} watch after {after}", self.at());
            return;
        };
        let mut theirs = opened.unwrap_or_else(|error| panic!("{}: {error}", self.at()));
        if after == self.model.revision() {
            return;
        }
        let expected = drain(&mut *ours, self.model.revision()).await;
        let got = drain(&mut *theirs, store.revision()).await;
        let expected: Vec<_> =
            expected.into_iter().map(|event| self.translate_event(event)).collect();
        assert_eq!(got, expected, "{} watch after {after}", self.at());
    }

    async fn compact(&mut self, store: &dyn Store) {
        let through = self.past();
        self.model.compact(through).await.expect("model");
        let result = store.compact(self.paired(through)).await;
        assert!(result.is_ok(), "{} compact {through}: {result:?}", self.at());
        assert!(store.floor() >= self.paired(self.model.floor()), "{}", self.at());
    }

    fn translate(&self, kv: KeyValue) -> KeyValue {
        let created = self.paired(kv.created);
        let modified = self.paired(kv.modified);
        KeyValue { created, modified, ..kv }
    }

    fn translate_event(&self, event: Event) -> Event {
        let created = self.paired(event.created);
        let revision = self.paired(event.revision);
        Event { created, revision, ..event }
    }
}
