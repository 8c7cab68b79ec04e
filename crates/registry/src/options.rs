//! What a request may ask of a verb, parsed and checked; see apimachinery `meta/v1/types.go`.

use bytes::Bytes;
pub use keelson_kinds::strategy::Propagation;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Str};
use keelson_schema::continue_token;
use keelson_store::Revision;

/// How unknown and duplicate fields are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them silently.
    Ignore,
    /// Drop them and say so in Warning headers.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

/// What strict decoding refuses, as warnings: the lines of YAML each for itself.
pub(crate) fn strict_warnings(strict: &[String]) -> Vec<Str> {
    let lines = strict.iter().flat_map(|text| {
        text.strip_prefix("yaml: unmarshal errors:\n").unwrap_or(text).split('\n')
    });
    lines.map(|line| Str::new(line.trim())).collect()
}

/// Options of create, update, patch.
#[derive(Clone, Debug, Default)]
pub struct WriteOptions {
    /// `dryRun=All`: everything but the store.
    pub dry_run: bool,
    /// The name in managedFields; never empty.
    pub field_manager: Str,
    /// How unknown and duplicate fields are treated.
    pub field_validation: FieldValidation,
    /// `force=true` of server-side apply.
    pub force: bool,
    /// The client named no field manager; `field_manager` is made of its user agent.
    pub field_manager_is_default: bool,
    /// The client said how unknown fields are treated.
    pub field_validation_is_given: bool,
}

impl WriteOptions {
    /// `fieldValidation` as the client gave it.
    pub(crate) fn given_validation(&self) -> Option<&'static str> {
        self.field_validation_is_given.then_some(match self.field_validation {
            FieldValidation::Ignore => "Ignore",
            FieldValidation::Warn => "Warn",
            FieldValidation::Strict => "Strict",
        })
    }
}

/// Which state of a resource a read wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    /// As new as the store at the time of the request.
    #[default]
    Latest,
    /// Whatever is at hand.
    Any,
    /// At least this revision.
    NotOlderThan(Revision),
    /// This revision.
    Exact(Revision),
}

/// Options of list and deletecollection.
#[derive(Clone, Debug, Default)]
pub struct ListOptions {
    /// Labels to match.
    pub labels: Selector,
    /// Fields to match.
    pub fields: FieldSelector,
    /// Which state.
    pub freshness: Freshness,
    /// Most items of a page; 0 is all.
    pub limit: usize,
    /// Where the last page ended.
    pub continue_from: Option<ContinueToken>,
}

/// Where a paged list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContinueToken {
    /// The revision of the first page; `None` goes on with the latest state.
    pub revision: Option<Revision>,
    /// The first key that was not sent, without the part that the request's namespace gives.
    pub start: Str,
}

impl ContinueToken {
    /// The text that clients send back.
    pub fn encode(&self) -> String {
        continue_token::encode(self.revision.map(|revision| revision.0), &self.start)
    }

    /// Reads such a text, or 400.
    pub fn decode(text: &str) -> Result<ContinueToken, Failure> {
        let (revision, start) = continue_token::decode(text)?;
        Ok(ContinueToken { revision: revision.map(Revision), start })
    }
}

/// Where a watch begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WatchStart {
    /// With the present objects as ADDED events, as new as the store.
    #[default]
    Latest,
    /// With the present objects as ADDED events.
    Any,
    /// After this revision.
    After(Revision),
}

/// Options of watch.
#[derive(Clone, Debug, Default)]
pub struct WatchOptions {
    /// Labels to match.
    pub labels: Selector,
    /// Fields to match.
    pub fields: FieldSelector,
    /// Where to begin.
    pub start: WatchStart,
    /// `allowWatchBookmarks`.
    pub bookmarks: bool,
    /// `sendInitialEvents`: present objects first, then a bookmark that says so.
    pub initial_events: Option<bool>,
}

/// Options of delete.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// `dryRun=All`.
    pub dry_run: bool,
    /// Seconds to let the object finish.
    pub grace_period_seconds: Option<i64>,
    /// What happens to dependents.
    pub propagation: Option<Propagation>,
    /// Only an object with this uid.
    pub uid: Option<Str>,
    /// Only an object with this resourceVersion.
    pub resource_version: Option<Str>,
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`: delete an object that cannot be read.
    pub ignore_read_error: bool,
    /// Options that were given and that [`DeleteOptions::ignore_read_error`] does not go with, as the
    /// names of their fields.
    pub given: Vec<&'static str>,
}

/// What a patch is, by its media type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchForm {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own: lists are merged by key.
    Strategic,
    /// Server-side apply, in YAML.
    ApplyYaml,
    /// Server-side apply, in CBOR.
    ApplyCbor,
}

impl PatchForm {
    /// Whether it tells what the client wants to own rather than a difference.
    pub fn is_apply(self) -> bool {
        matches!(self, PatchForm::ApplyYaml | PatchForm::ApplyCbor)
    }
}

/// A patch as it came.
#[derive(Clone, Debug)]
pub struct Patch {
    /// How the body is meant.
    pub form: PatchForm,
    /// The text.
    pub body: Bytes,
}

/// Options of `pods/NAME/log`.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// The container; empty when the pod has but one.
    pub container: Str,
    /// Last lines to show.
    pub tail_lines: Option<i64>,
    /// Bytes after which the log ends.
    pub limit_bytes: Option<i64>,
    /// How far back the log begins.
    pub since_seconds: Option<i64>,
    /// Whether a time from which it begins was given, too.
    pub has_since_time: bool,
}
