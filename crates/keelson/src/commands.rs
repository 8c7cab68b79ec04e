//! Commands for those who run a server: backup, restore, check.

pub mod backup;
pub mod check;
mod output;
pub mod restore;
