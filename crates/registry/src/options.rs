//! Options of requests, parsed and validated (apimachinery `meta/v1/types.go`).

use bytes::Bytes;
pub use keelson_kinds::strategy::Propagation;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Str};
use keelson_schema::continue_token;
use keelson_store::Revision;

/// `fieldValidation`: how unknown and duplicate fields are handled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and add Warning headers.
    #[default]
    Warn,
    /// Refuse the request with 400.
    Strict,
}

/// Returns the errors of strict decoding as warnings; each line of a YAML error is one warning.
pub(crate) fn strict_warnings(strict: &[String]) -> Vec<Str> {
    let lines = strict.iter().flat_map(|text| {
        text.strip_prefix("yaml: unmarshal errors:\n").unwrap_or(text).split('\n')
    });
    lines.map(|line| Str::new(line.trim())).collect()
}

/// Options of create, update, patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// `dryRun=All`: run every step except the write to the store.
    pub dry_run: bool,
    /// The name in managedFields. Never empty.
    pub field_manager: Str,
    /// How unknown and duplicate fields are treated.
    pub field_validation: FieldValidation,
    /// `force=true` of server-side apply.
    pub force: bool,
    /// The client named no field manager, so `field_manager` comes from its user agent.
    pub field_manager_is_default: bool,
    /// The client set `fieldValidation`.
    pub field_validation_is_given: bool,
    /// A create keeps the status. Only for objects of the server itself.
    pub keep_status: bool,
}

impl WriteOptions {
    /// Returns `fieldValidation` if the client set it.
    pub(crate) fn given_validation(&self) -> Option<&'static str> {
        self.field_validation_is_given.then_some(match self.field_validation {
            FieldValidation::Ignore => "Ignore",
            FieldValidation::Warn => "Warn",
            FieldValidation::Strict => "Strict",
        })
    }
}

/// How new a read must be (`resourceVersion` and `resourceVersionMatch`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// As new as the store at the time of the request (no resourceVersion).
    #[default]
    Latest,
    /// Any state (`resourceVersion=0`).
    Any,
    /// At least this revision.
    NotOlderThan(Revision),
    /// Exactly this revision.
    Exact(Revision),
}

impl Freshness {
    /// Returns it as the parameter `resourceVersion`.
    pub fn resource_version(self) -> String {
        match self {
            Freshness::Latest => String::new(),
            Freshness::Any => "0".to_owned(),
            Freshness::NotOlderThan(revision) | Freshness::Exact(revision) => {
                revision.0.to_string()
            }
        }
    }
}

/// Options of list and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Label selector.
    pub labels: Selector,
    /// Field selector.
    pub fields: FieldSelector,
    /// How new the list must be.
    pub freshness: Freshness,
    /// Maximum number of items of a page; 0: no limit.
    pub limit: usize,
    /// `continue`: where this page begins.
    pub continue_from: Option<ContinueToken>,
}

/// A continue token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision of the first page; `None`: continue with the latest state.
    pub revision: Option<Revision>,
    /// The key of the first item, relative to the namespace of the request.
    pub start: Str,
}

impl ContinueToken {
    /// Encodes the token as clients send it back.
    pub fn encode(&self) -> String {
        continue_token::encode(self.revision.map(|revision| revision.0), &self.start)
    }

    /// Parses a token, or returns 400.
    pub fn decode(text: &str) -> Result<ContinueToken, Failure> {
        let (revision, start) = continue_token::decode(text)?;
        Ok(ContinueToken { revision: revision.map(Revision), start })
    }
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatchStart {
    /// With the current objects as ADDED events, as new as the store (no resourceVersion).
    #[default]
    Latest,
    /// With the current objects as ADDED events, however old (`resourceVersion=0`).
    Any,
    /// With the changes after this revision.
    After(Revision),
}

/// Options of watch.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// Label selector.
    pub labels: Selector,
    /// Field selector.
    pub fields: FieldSelector,
    /// Where the watch begins.
    pub start: WatchStart,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `sendInitialEvents`: the current objects first, then a bookmark that marks their end.
    pub initial_events: Option<bool>,
}

/// Options of delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// `dryRun=All`.
    pub dry_run: bool,
    /// `gracePeriodSeconds`.
    pub grace_period_seconds: Option<i64>,
    /// `propagationPolicy`: what happens to dependents.
    pub propagation: Option<Propagation>,
    /// Precondition: the uid of the object.
    pub uid: Option<Str>,
    /// Precondition: the resourceVersion of the object.
    pub resource_version: Option<Str>,
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`: delete an object that cannot be read.
    pub ignore_read_error: bool,
    /// The names of the options in the request that cannot be combined with
    /// [`DeleteOptions::ignore_read_error`].
    pub given: Vec<&'static str>,
}

impl DeleteOptions {
    /// Returns whether the request asks by `orphanDependents: false` for dependents to be deleted,
    /// too: then an object that is not deleted at once is answered with 202.
    pub fn wants_dependents_deleted(&self) -> bool {
        self.propagation == Some(Propagation::Background)
            && self.given.contains(&"orphanDependents")
    }
}

/// The form of a patch, from its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchForm {
    /// JSON Patch (RFC 6902).
    Json,
    /// JSON merge patch (RFC 7386).
    Merge,
    /// Strategic merge patch: lists are merged by key.
    Strategic,
    /// Server-side apply, in YAML.
    ApplyYaml,
    /// Server-side apply, in CBOR.
    ApplyCbor,
}

impl PatchForm {
    /// Whether the patch is a server-side apply configuration.
    pub fn is_apply(self) -> bool {
        matches!(self, PatchForm::ApplyYaml | PatchForm::ApplyCbor)
    }
}

/// A patch that is not parsed yet.
#[derive(Clone, Debug)]
pub struct Patch {
    /// The form of the body.
    pub form: PatchForm,
    /// The body.
    pub body: Bytes,
}

/// Options of `pods/NAME/log`.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The container; empty if the pod has only one.
    pub container: Str,
    /// Whether the stream goes on while the container runs.
    pub follow: bool,
    /// Whether the log of the container's previous run is meant.
    pub previous: bool,
    /// `sinceSeconds`.
    pub since_seconds: Option<i64>,
    /// `sinceTime`, in the form of RFC 3339.
    pub since_time: Option<Str>,
    /// Whether each line begins with its time.
    pub timestamps: bool,
    /// `tailLines`.
    pub tail_lines: Option<i64>,
    /// `limitBytes`.
    pub limit_bytes: Option<i64>,
    /// Whether the node's certificate is not verified (`insecureSkipTLSVerifyBackend`).
    pub is_unverified: bool,
    /// `All`, `Stdout` or `Stderr`.
    pub stream: Option<Str>,
}
