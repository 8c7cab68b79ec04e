//! Shuffle sharding: each flow has a hand of queues, which it shares only in part with any other
//! flow.

use std::hash::{DefaultHasher, Hash, Hasher};

/// Most queues in a hand.
pub const HAND_MAX: usize = 16;

/// The requests of a FlowSchema that are treated alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow(u64);

impl Flow {
    /// Returns the flow of a FlowSchema and a user or namespace.
    pub fn new(schema: &str, distinguisher: &str) -> Flow {
        let mut hasher = DefaultHasher::new();
        (schema, distinguisher).hash(&mut hasher);
        Flow(hasher.finish())
    }

    /// Calls `take` with each queue of the flow's hand. All are different and below `queues`.
    pub fn deal(self, queues: usize, hand_size: usize, mut take: impl FnMut(usize)) {
        let hand_size = hand_size.min(HAND_MAX).min(queues);
        // In ascending order.
        let mut dealt = [0; HAND_MAX];
        let mut entropy = self.0;
        for n in 0..hand_size {
            // A place among the queues that are left, then the queue that has this place.
            let left = (queues - n) as u64;
            let mut card = usize::try_from(entropy % left).unwrap_or(0);
            entropy /= left;
            for earlier in &dealt[..n] {
                card += usize::from(card >= *earlier);
            }
            let place = dealt[..n].partition_point(|earlier| *earlier < card);
            dealt.copy_within(place..n, place + 1);
            dealt[place] = card;
            take(card);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hands_have_different_queues_and_use_all_of_them() {
        for (queues, hand_size) in [(1, 1), (4, 4), (64, 6), (128, 6), (3, 8)] {
            let mut dealt = vec![0_u32; queues];
            for user in 0..2000 {
                let mut hand = vec![];
                Flow::new("s", &user.to_string()).deal(queues, hand_size, |queue| hand.push(queue));
                assert_eq!(hand.len(), hand_size.min(queues));
                hand.iter().for_each(|queue| dealt[*queue] += 1);
                hand.sort_unstable();
                hand.dedup();
                assert_eq!(hand.len(), hand_size.min(queues));
            }
            let mean = 2000 * hand_size.min(queues) / queues;
            let is_near = |count: &u32| (mean / 2..=mean * 2).contains(&(*count as usize));
            assert!(dealt.iter().all(is_near), "{queues}: {dealt:?}");
        }
    }
}
