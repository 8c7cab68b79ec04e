//! The verbs of the API over the stored objects. Each verb is one function that contains its steps
//! in order (`verbs/*.rs`).
//!
//! Every function takes a [`Permit`](keelson_auth::Permit), the proof that the request was
//! authorized.

mod admission;
mod admission_api;
pub mod clock;
mod conversion;
mod converted_entries;
pub mod delete_options;
mod informer;
mod managed_fields;
pub mod metrics;
pub mod options;
mod patching;
mod permits;
mod preconditions;
mod registry;
mod remote_calls;
mod scale;
mod serve;
mod subresources;
mod target;
mod verbs;
mod write;
mod write_failure;

pub use admission::AdmissionConfigs;
pub use clock::{Clock, SteppedClock, SystemClock};
pub use informer::{Informer, InformerEvent, InformerScope};
pub use keelson_cache::{Snapshot, StoreSource};
pub use keelson_kinds::PortRange;
pub use keelson_kinds::facts::{
    drop_converted_annotations, has_printed_form, has_table, older_body_versions, printed_form,
};
pub use keelson_kinds::scale::{ScalePaths, path_members, scale_kind};
pub use metrics::Metrics;
pub use preconditions::{check_action, check_eviction};
pub use registry::hooks::{self, ActionRequest, ActionResponse, OwnedActionRequest};
pub use registry::{OpenError, Registry, RegistryOptions};
pub use remote_calls::{RemoteAnswer, RemoteCall, RemoteCalls};
pub use scale::ScaleChange;
pub use target::{Answer, Target};
pub use verbs::bodies::{NewObject, UpdateFn};
pub use verbs::delete::{Deleted, default_propagation_warnings};
pub use verbs::list::{Filter, List};
pub use verbs::watch::{EventKind, WatchError, WatchEvent, WatchRefusal, WatchSession};
pub use verbs::{RetryBudget, WriteResponse, check_body_fields};
pub use write::{Options, OwnKind, Subresource, Write};
