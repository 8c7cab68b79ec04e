//! The registry in one process over a store in memory: the rules of the built-in kinds.

mod allocation;
mod authorization;
mod compare;
mod deletions;
mod gate;
mod gated_kinds;
mod growth;
mod harness;
mod hooks;
mod lease;
mod many_kinds;
mod odd_rules;
mod past;
mod pods;
mod polls;
mod proportion;
mod recorded;
mod records;
mod replay;
mod rules;
mod several_keys;
mod small_rules;
mod status_rules;
mod texts;
mod unreadable;
mod watching;
