//! Concurrent writers: one order, nothing lost, nothing duplicated.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;

use super::{Case, compare, drain, put_op};
use crate::{BoxFuture, Revision, Store, Txn, TxnOutcome};

const WRITERS: usize = 32;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("one_of_many_creators_wins", one_of_many_creators_wins),
        Case::new("a_contended_counter_loses_no_increment", a_contended_counter),
        Case::new("an_answer_is_visible_at_once", an_answer_is_visible_at_once),
    ]
}

async fn one_of_many_creators_wins(store: Arc<dyn Store>) {
    let create = |n: usize| Txn {
        compare: vec![compare("a", Revision(0))],
        ops: vec![put_op("a", &n.to_string())],
    };
    let writers = (0..WRITERS).map(|n| store.txn(create(n))).collect();
    let outcomes: Vec<_> = all(writers).await.into_iter().map(Result::unwrap).collect();
    let winner = outcomes.iter().position(|outcome| matches!(outcome, TxnOutcome::Committed(_)));
    let kv = store.get(b"a").await.unwrap().unwrap();
    assert_eq!(&kv.value[..], winner.unwrap().to_string().as_bytes());
    let conflicts = outcomes.iter().filter(|outcome| {
        matches!(outcome, TxnOutcome::Conflict { current: Some(current), .. } if *current == kv)
    });
    assert_eq!(conflicts.count(), WRITERS - 1);
}

async fn a_contended_counter(store: Arc<dyn Store>) {
    let start = store.revision();
    let increment = |store: Arc<dyn Store>| async move {
        let mut current = store.get(b"n").await.unwrap();
        loop {
            let (value, modified) = current.as_ref().map_or((0, Revision(0)), |kv| {
                (std::str::from_utf8(&kv.value).unwrap().parse::<u64>().unwrap(), kv.modified)
            });
            let ops = vec![put_op("n", &(value + 1).to_string())];
            let txn = Txn { compare: vec![compare("n", modified)], ops };
            match store.txn(txn).await.unwrap() {
                TxnOutcome::Committed(_) => return,
                TxnOutcome::Conflict { current: newer, .. } => current = newer,
            }
        }
    };
    let writers: Vec<BoxFuture<'_, ()>> =
        (0..WRITERS).map(|_| Box::pin(increment(Arc::clone(&store))) as _).collect();
    all(writers).await;
    let mut watch = store.watch(Bytes::from_static(b"n"), start).unwrap();
    let events = drain(&mut *watch, store.revision()).await;
    let values: Vec<_> = events.iter().map(|event| event.value.clone().unwrap()).collect();
    let expected: Vec<_> = (1..=WRITERS).map(|n| Bytes::from(n.to_string())).collect();
    assert_eq!(values, expected);
}

async fn an_answer_is_visible_at_once(store: Arc<dyn Store>) {
    let writers = (0..WRITERS).map(|n| {
        let store = Arc::clone(&store);
        Box::pin(async move {
            let key = format!("k{n}");
            for round in 0..5 {
                let ops = vec![put_op(&key, &round.to_string())];
                let TxnOutcome::Committed(at) =
                    store.txn(Txn { compare: vec![], ops }).await.unwrap()
                else {
                    panic!("a conflict without a compare")
                };
                assert!(store.revision() >= at);
                let kv = store.get(key.as_bytes()).await.unwrap().unwrap();
                assert_eq!((kv.modified, &kv.value[..]), (at, round.to_string().as_bytes()));
            }
        }) as BoxFuture<'_, ()>
    });
    all(writers.collect()).await;
}

/// Polls futures together on one task, so that the suite needs no runtime features.
async fn all<T>(futures: Vec<BoxFuture<'_, T>>) -> Vec<T> {
    let mut slots: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    poll_fn(|ctx| {
        for (future, answer) in &mut slots {
            if let Some(running) = future
                && let Poll::Ready(value) = running.as_mut().poll(ctx)
            {
                (*future, *answer) = (None, Some(value));
            }
        }
        let is_done = slots.iter().all(|(future, _)| future.is_none());
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    slots.into_iter().filter_map(|(_, answer)| answer).collect()
}
