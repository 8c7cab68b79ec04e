//! What an evaluation or a compilation has used of its work and of its memory, and whether it is to
//! end.
//!
//! Upstream's cost model charges neither all work (comparing, printing or converting values that
//! contain one large list many times) nor any memory. So each evaluation has [`WORK_MAX`] and
//! [`VALUES_BYTES_MAX`] beside its cost limit, and whoever runs it can end it: see [`run_briefly`]
//! and [`run_until`].
//!
//! The counters are thread-local because functions receive only their arguments, and an evaluation
//! stays on its thread.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum work of one evaluation, in units of about a nanosecond.
const WORK_MAX: u64 = 1 << 30;

/// Maximum memory of all values that one evaluation makes, in bytes. Values that are dropped before
/// the end count too, so that the sum depends on the expression only.
pub const VALUES_BYTES_MAX: u64 = 128 << 20;

/// Work between two questions whether the evaluation is to end.
const WORK_BETWEEN_CHECKS: u64 = 1 << 16;

/// Work of visiting an item of a list or map.
pub(crate) const ITEM_WORK: u64 = 250;

/// Bytes of text that are read in one unit of work.
const TEXT_BYTES_PER_WORK: u64 = 2;

/// Bytes of memory that are filled in one unit of work.
const VALUE_BYTES_PER_WORK: u64 = 1;

/// Why an evaluation ends before its result is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// It has used its work or its memory.
    Exhausted,
    /// Its caller has ended it.
    Interrupted,
}

struct Meter {
    /// Work until the next check.
    until_check: Cell<u64>,
    /// What `until_check` was at the last check.
    granted: Cell<u64>,
    /// Work that the evaluation has left beyond `granted`.
    evaluation: Cell<u64>,
    /// Work that the caller allows beyond `granted`; `u64::MAX` without a limit.
    allowed: Cell<u64>,
    /// Bytes that the evaluation has left.
    bytes: Cell<u64>,
    /// Whether an interrupt is set.
    has_interrupt: Cell<bool>,
    /// Whether the work was ended by its caller.
    is_interrupted: Cell<bool>,
    /// Whether the evaluation remembers texts or patterns.
    remembers: Cell<bool>,
}

thread_local! {
    static METER: Meter = const {
        Meter {
            until_check: Cell::new(0),
            granted: Cell::new(0),
            evaluation: Cell::new(WORK_MAX),
            allowed: Cell::new(u64::MAX),
            bytes: Cell::new(VALUES_BYTES_MAX),
            has_interrupt: Cell::new(false),
            is_interrupted: Cell::new(false),
            remembers: Cell::new(false),
        }
    };
    static INTERRUPT: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Runs evaluations and compilations that take little work. `None`: they need more than `work_max`
/// units of about a nanosecond, and what was found out is worthless.
///
/// A caller that must not block its thread repeats them elsewhere, with [`run_until`].
pub fn run_briefly<T>(work_max: u64, work: impl FnOnce() -> T) -> Option<T> {
    run(None, work_max, work)
}

/// Runs evaluations and compilations until `interrupt` is true. `None`: it became true.
pub fn run_until<T>(interrupt: &Arc<AtomicBool>, work: impl FnOnce() -> T) -> Option<T> {
    run(Some(interrupt.clone()), u64::MAX, work)
}

/// Whether the caller has ended the work on this thread. What it makes must not be kept then.
pub fn is_interrupted() -> bool {
    METER.with(|meter| meter.is_interrupted.get())
}

/// Restores what was set outside, also when the work panics.
struct Outer {
    allowed: u64,
    is_interrupted: bool,
    interrupt: Option<Arc<AtomicBool>>,
}

impl Drop for Outer {
    fn drop(&mut self) {
        METER.with(|meter| {
            meter.settle();
            meter.allowed.set(self.allowed);
            meter.is_interrupted.set(self.is_interrupted);
            meter.has_interrupt.set(self.interrupt.is_some());
        });
        INTERRUPT.set(self.interrupt.take());
    }
}

fn run<T>(interrupt: Option<Arc<AtomicBool>>, allowed: u64, work: impl FnOnce() -> T) -> Option<T> {
    let _outer = METER.with(|meter| {
        meter.settle();
        meter.has_interrupt.set(interrupt.is_some());
        Outer {
            allowed: meter.allowed.replace(allowed),
            is_interrupted: meter.is_interrupted.replace(false),
            interrupt: INTERRUPT.replace(interrupt),
        }
    });
    let done = work();
    METER.with(|meter| !meter.is_interrupted.get()).then_some(done)
}

impl Meter {
    /// Subtracts what was used of the last grant; the next unit of work is checked.
    fn settle(&self) {
        let used = self.granted.take() - self.until_check.take();
        self.evaluation.set(self.evaluation.get().saturating_sub(used));
        if self.allowed.get() != u64::MAX {
            self.allowed.set(self.allowed.get().saturating_sub(used));
        }
    }

    #[cold]
    fn check(&self, work: u64) -> Result<(), Ended> {
        self.settle();
        let ended = self.allowed.get() < work
            || self.has_interrupt.get()
                && INTERRUPT.with_borrow(|interrupt| {
                    interrupt.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
                });
        if ended {
            self.is_interrupted.set(true);
        }
        // Once interrupted, all evaluations of the caller end.
        if self.is_interrupted.get() {
            return Err(Ended::Interrupted);
        }
        if self.evaluation.get() < work {
            self.evaluation.set(0);
            return Err(Ended::Exhausted);
        }
        let most = self.evaluation.get().min(self.allowed.get());
        let granted = most.min(work.saturating_add(WORK_BETWEEN_CHECKS));
        self.granted.set(granted);
        self.until_check.set(granted - work);
        Ok(())
    }
}

/// Begins an evaluation or a compilation. `retained`: the bytes of values that earlier evaluations
/// made and that are still there.
#[inline]
pub(crate) fn begin(retained: u64) {
    METER.with(|meter| {
        meter.settle();
        meter.evaluation.set(WORK_MAX);
        meter.bytes.set(VALUES_BYTES_MAX.saturating_sub(retained));
        if !meter.has_interrupt.get() && !meter.is_interrupted.get() {
            let granted = WORK_BETWEEN_CHECKS.min(meter.allowed.get());
            meter.granted.set(granted);
            meter.until_check.set(granted);
        }
    });
}

/// Whether the evaluation remembers texts or patterns; from now on it does not.
#[inline]
pub(crate) fn take_remembers() -> bool {
    METER.with(|meter| meter.remembers.take())
}

/// Notes that the evaluation remembers a text or a pattern.
pub(crate) fn remember() {
    METER.with(|meter| meter.remembers.set(true));
}

/// Counts work. The error ends the evaluation.
#[inline]
pub(crate) fn work(units: u64) -> Result<(), Ended> {
    METER.with(|meter| match meter.until_check.get().checked_sub(units) {
        Some(left) => {
            meter.until_check.set(left);
            Ok(())
        }
        None => meter.check(units),
    })
}

/// Counts the visit of an item of a list or map.
#[inline]
pub(crate) fn item() -> Result<(), Ended> {
    work(ITEM_WORK)
}

/// Counts the reading of a text of this length.
#[inline]
pub(crate) fn read(bytes: usize) -> Result<(), Ended> {
    work(bytes as u64 / TEXT_BYTES_PER_WORK)
}

/// Counts a new value of this size, before it is made.
#[inline]
pub(crate) fn make(bytes: usize) -> Result<(), Ended> {
    METER.with(|meter| match meter.bytes.get().checked_sub(bytes as u64) {
        Some(left) => {
            meter.bytes.set(left);
            work(bytes as u64 / VALUE_BYTES_PER_WORK)
        }
        None => {
            meter.bytes.set(0);
            Err(Ended::Exhausted)
        }
    })
}

/// Returns the bytes of values that the evaluation may still make.
pub(crate) fn bytes_left() -> u64 {
    METER.with(|meter| meter.bytes.get())
}
