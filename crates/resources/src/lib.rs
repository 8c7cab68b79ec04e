//! Which resources are served, and what is known of each: schemas, rules, columns, scale, OpenAPI.
//! Built-in kinds come from the catalogue, others from a [`Definition`](producer::Definition) at
//! run time; nothing that uses a
//! [`Kind`] needs to know which of the two it has.
//!
//! The crate has no runtime and reads no store: of the store it uses `Revision` and `KeyValue`, of
//! the cache nothing. What the verbs keep beside a kind (hooks, connections to webhooks) is
//! [`Attached`] to it.

mod api_changes;
pub mod api_table;
mod attached;
mod built_in;
mod cel_rules;
mod etcd_codec;
mod group_order;
mod kind;
mod open_api;
mod open_api_index;
pub mod producer;
mod record_checker;
pub mod rule_metrics;
mod schema_text;
mod stored_resources;

pub use api_changes::ApiChanges;
pub use api_table::{
    ApiTable, ConvertedDocument, Endpoint, RemoteDocuments, RemoteGroup, RemoteServer,
    RemoteVersion,
};
pub use attached::Attached;
pub use built_in::{Served, built_in, built_in_kinds, storage_version_hash, stored_gvk};
pub use cel_rules::CelRules;
pub use etcd_codec::{EncodeError, EtcdCodec, StorageMediaType};
pub use group_order::{ListedGroup, ListedVersion, listed_group, listed_groups, sort_by_services};
pub use kind::{Kind, VersionChecks};
pub use open_api_index::{OpenApiIndex, OpenApiIndexCache};
pub use record_checker::{OtherRecord, RecordChecker};
pub use schema_text::{SchemaBytes, SchemaText};
pub use stored_resources::StoredResources;
