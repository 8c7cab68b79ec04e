//! The maximums of the contract. Exceeding one is an error, or shortens the result.

/// Longest key, in bytes. The longest key Kubernetes can form is below 1 KB.
pub const KEY_BYTES_MAX: usize = 4096;

/// Most compares and most operations in one transaction.
pub const TXN_OPS_MAX: usize = 1024;

/// Most bytes of keys and values in one transaction.
pub const TXN_BYTES_MAX: usize = 16 << 20;

/// Most items in one page of a range; a larger or absent limit is lowered to this.
pub const PAGE_ITEMS_MAX: usize = 10_000;

/// A page ends after the item that brings its values to this many bytes.
pub const PAGE_BYTES_MAX: usize = 16 << 20;

/// A watch batch ends with the revision that brings it to this many events.
pub const BATCH_EVENTS_MAX: usize = 1024;

/// A watch batch ends with the revision that brings its values to this many bytes.
pub const BATCH_BYTES_MAX: usize = 4 << 20;

/// Most open watches on one store. The cache opens a few and shares them among many watchers.
pub const WATCHES_MAX: usize = 4096;
