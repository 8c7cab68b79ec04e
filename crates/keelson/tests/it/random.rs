//! Random numbers that a seed reproduces.

/// SplitMix64.
pub struct Random(u64);

impl Random {
    /// Starts with the seed of an environment variable, or a random one. Prints it, to repeat a
    /// failure.
    pub fn seeded(variable: &str) -> Random {
        let given = std::env::var(variable).ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(0, |now| now.as_nanos() as u64)
        });
        println!("{variable}={seed}");
        Random(seed)
    }

    /// Returns an independent generator, for another thread.
    pub fn split(&mut self) -> Random {
        Random(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}
