//! The verbs of the API over the stored objects. Each verb is one function that contains its steps
//! in order (`verbs/*.rs`).
//!
//! Every function takes a [`Permit`](keelson_auth::Permit), the proof that the request was authorized.

mod admission;
mod admission_api;
mod api_changes;
pub mod api_table;
mod cel_rules;
pub mod clock;
mod conversion;
mod converted_entries;
pub mod delete_options;
mod informer;
mod kind;
mod managed_fields;
pub mod metrics;
pub mod open_api;
mod open_api_index;
pub mod options;
mod patching;
mod permits;
mod preconditions;
pub mod producer;
mod registry;
mod scale;
mod schema_text;
mod subresources;
mod verbs;
mod write;

pub use admission::AdmissionConfigs;
pub use api_table::{ApiTable, Endpoint, RemoteGroup, RemoteServer, RemoteVersion};
pub use clock::{Clock, SteppedClock, SystemClock};
pub use informer::{Informer, InformerEvent, InformerScope};
pub use keelson_cache::is_unreadable;
/// Encodes a store value for an object that exists but cannot be read, with the reason.
pub use keelson_cache::unreadable as unreadable_record;
pub use keelson_cache::{Entry, Snapshot};
pub use keelson_kinds::PortRange;
pub use keelson_kinds::facts::{
    drop_converted_annotations, has_printed_form, has_table, older_body_versions, printed_form,
};
pub use keelson_kinds::scale::{ScalePaths, path_members, scale_kind};
pub use kind::{Answer, Kind, Target};
pub use metrics::Metrics;
pub use preconditions::{check_action, check_eviction};
pub use registry::hooks::{self, ActionRequest, ActionResponse, OwnedActionRequest};
pub use registry::{OpenError, Registry, RegistryOptions, built_in_kinds, stored_gvk};
pub use scale::ScaleChange;
pub use schema_text::{SchemaBytes, SchemaText};
pub use verbs::bodies::{NewObject, UpdateFn};
pub use verbs::delete::Deleted;
pub use verbs::list::{Filter, List};
pub use verbs::watch::{EventKind, WatchError, WatchEvent, WatchRefusal, WatchSession};
pub use verbs::{RetryBudget, WriteResponse, check_body_fields};
pub use write::{Options, OwnKind, Subresource, Write};
