//! The basic types of the Kubernetes API, shared by every other crate: values and objects, group,
//! version, kind and resource, field paths, Status errors, names, selectors, quantities, times and
//! users; and scratch buffers for short-lived texts.
//!
//! Guarantee: no IO, no clock, no async; equal inputs give equal outputs.

pub mod cron;
pub mod features;
pub mod field_selector;
pub mod float_digits;
pub mod go_mail;
pub mod go_numbers;
pub mod go_regex;
pub mod go_sort;
pub mod go_url;
pub mod growth;
pub mod gvk;
pub mod ip;
pub mod json_text;
pub mod names;
pub mod object;
pub mod object_meta;
pub mod owner_references;
pub mod path;
pub mod printable;
pub mod quantity;
pub mod random_names;
pub mod scratch;
pub mod selector;
pub mod small_set;
pub mod status;
pub mod time;
pub mod user;
pub mod value;

pub use features::{Feature, FeatureGateError, Features, Stage};
pub use growth::{Growth, Overgrown};
pub use gvk::{GroupVersion, GroupVersionKind, GroupVersionResource};
pub use object::Object;
pub use path::Path;
pub use quantity::Quantity;
pub use small_set::SmallSet;
pub use status::{Cause, ErrorList, ErrorType, Failure, FieldError, Reason, Status};
pub use time::Timestamp;
pub use user::User;
pub use value::{Map, Str, Value};
