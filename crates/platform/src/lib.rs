//! What the program brings along instead of the system's: the allocator ([`allocator`]), and the
//! three functions of libm that are used (`math`).
//!
//! The only unsafe code of the workspace is here.

pub mod allocator;
mod math;
