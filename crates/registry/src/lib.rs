//! What each verb does, once, in order. The order of the steps stands in one function a verb
//! (`verbs/*.rs`); strategies do no IO and never see HTTP.
//!
//! Every function takes a [`Permit`](keelson_auth::Permit): without one there is no read and no write.

mod admission;
mod admission_api;
mod allocation;
mod api_changes;
pub mod api_services;
pub mod api_table;
mod bootstrap;
mod cel_rules;
pub mod continue_token;
mod conversion;
mod definitions;
mod escalation;
mod eviction;
pub mod flow_control;
mod followed;
mod informer;
mod kind;
mod kubernetes_endpoints;
mod lease;
pub mod open_api;
pub mod options;
mod owners;
mod patching;
mod permits;
pub mod producer;
mod quota;
mod recorder;
mod references;
mod registry;
mod scale;
mod schema_text;
mod signers;
pub mod stamp;
mod stored;
mod stored_kinds;
mod streams;
mod subresources;
mod token_request;
mod turns;
mod verbs;

pub use allocation::{PortLeaks, PortRange};
pub use api_table::{ApiTable, Endpoint};
pub use bootstrap::{default_rules, first_address};
pub use informer::{Informer, InformerEvent, Wanted};
/// A value of the store for an object that is there and cannot be read, made of the reason.
pub use keelson_cache::unreadable as unreadable_record;
pub use keelson_cache::{Entry, Snapshot};
pub use kind::{Answer, Kind, Target, has_printed_form, printed_form};
pub use lease::Candidate;
pub use registry::{OpenError, Registry, RegistryOptions};
pub use scale::{ScaleChange, ScalePaths, scale_kind};
pub use schema_text::{OpenText, SchemaText};
pub use stamp::{Clock, SystemClock};
pub use stored::{EncodeError, StoredForm};
pub use stored_kinds::StoredKinds;
pub use subresources::validate_binding;
pub use verbs::delete::Deleted;
pub use verbs::list::{Filter, List};
pub use verbs::update::Updated;
pub use verbs::watch::{EventKind, WatchError, WatchEvent, WatchRefusal, WatchSession};
pub use verbs::{Part, Written, check_body_fields};
