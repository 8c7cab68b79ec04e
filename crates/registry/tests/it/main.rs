//! The registry in one process over a store in memory: the rules of the built-in kinds.

mod allocation;
mod compare;
mod harness;
mod lease;
mod past;
mod proportion;
mod replay;
mod rules;
mod stored;
mod unreadable;
mod watching;
