//! The service `etcdserverpb.KV`: checks of requests, and what they answer.

mod check;
mod compare;
mod evaluate;
mod interval;
mod reading;
mod select;

pub(crate) use check::{check_delete, check_put, check_range, check_txn};
pub(crate) use evaluate::{Evaluation, LeaseChange};
pub(crate) use interval::Interval;
pub(crate) use select::{keys_needed, select};
