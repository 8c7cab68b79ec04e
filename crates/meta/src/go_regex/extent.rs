//! [`Extent`]: how large a part of a pattern is, as Go's parser counts it.

/// The size of a part of a pattern. Numbers saturate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extent {
    /// Instructions of Go's compiled pattern.
    pub instructions: u64,
    /// About how many states an automaton has that reads bytes.
    pub states: u64,
    /// Depth of Go's parsed pattern.
    pub height: u64,
    /// The largest product of counted repetitions inside each other.
    pub repeat_count: u64,
}

impl Extent {
    /// `^`, `\b` and the like.
    pub const ASSERTION: Extent = Extent::one(1);
    /// A class of ASCII characters.
    pub const CLASS: Extent = Extent::one(2);
    /// A class with most characters beyond ASCII.
    pub const WIDE_CLASS: Extent = Extent::one(12);
    /// A class of a Unicode property.
    pub const PROPERTY: Extent = Extent::one(300);

    const fn one(states: u64) -> Extent {
        Extent { instructions: 1, states, height: 1, repeat_count: 1 }
    }

    pub fn of_char(c: char) -> Extent {
        Extent::one(c.len_utf8() as u64)
    }

    /// Adds a part that comes after or instead of this one.
    fn add(&mut self, other: &Extent) {
        self.instructions = self.instructions.saturating_add(other.instructions);
        self.states = self.states.saturating_add(other.states);
        self.height = self.height.max(other.height);
        self.repeat_count = self.repeat_count.max(other.repeat_count);
    }

    fn repeated(&self, least: u32, most: Option<u32>, is_counted: bool) -> Extent {
        let least = u64::from(least);
        let most = most.map(u64::from);
        let times = |number: u64, extra: u64| {
            match most {
                // The last copy is a loop.
                None => number.saturating_mul(least.max(1)).saturating_add(extra),
                Some(most) => number.saturating_mul(most).saturating_add(most - least),
            }
        };
        let count = if is_counted { most.unwrap_or(least).max(1) } else { 1 };
        Extent {
            instructions: times(self.instructions, if least == 0 { 2 } else { 1 }).max(1),
            states: times(self.states, 1).max(1),
            height: self.height + 1,
            repeat_count: match most {
                Some(0) => 1,
                _ => self.repeat_count.saturating_mul(count),
            },
        }
    }
}

/// A group that is being read, or the whole pattern.
#[derive(Debug, Default)]
pub(super) struct Frame {
    /// Whether it is a capturing group.
    pub captures: bool,
    /// The alternatives before the current one, and their number.
    alternatives: (Extent, u64),
    /// The atoms of the current alternative before the last one, and their number.
    atoms: (Extent, u64),
    last: Option<Extent>,
}

impl Frame {
    pub fn push(&mut self, atom: Extent) {
        self.flush();
        self.last = Some(atom);
    }

    fn flush(&mut self) {
        if let Some(last) = self.last.take() {
            self.atoms.0.add(&last);
            self.atoms.1 += 1;
        }
    }

    /// Repeats the last atom. Returns the result.
    pub fn repeat(&mut self, counts: (u32, Option<u32>), is_counted: bool) -> Extent {
        let repeated = self.last.unwrap_or_default().repeated(counts.0, counts.1, is_counted);
        self.last = Some(repeated);
        repeated
    }

    /// Begins the next alternative.
    pub fn alternative(&mut self) {
        self.flush();
        let (mut atoms, count) = std::mem::take(&mut self.atoms);
        atoms.height += u64::from(count != 1);
        atoms.instructions = atoms.instructions.max(1);
        self.alternatives.0.add(&atoms);
        self.alternatives.1 += 1;
    }

    /// Returns the size of the whole group.
    pub fn finish(mut self) -> Extent {
        self.alternative();
        let (mut whole, count) = self.alternatives;
        whole.instructions = whole.instructions.saturating_add(count - 1);
        whole.states = whole.states.saturating_add(count - 1);
        whole.height += u64::from(count > 1) + u64::from(self.captures);
        if self.captures {
            whole.instructions = whole.instructions.saturating_add(2);
        }
        whole
    }
}
