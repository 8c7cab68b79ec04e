//! Parses query parameters into options, with upstream's errors.

use keelson_auth::{Selectors, off_worker};
use keelson_meta::field_selector::{self, FieldSelector};
use keelson_meta::go_numbers::parse_uint;
use keelson_meta::object_meta::validate_field_manager;
use keelson_meta::selector::Selector;
use keelson_meta::status::quote;
use keelson_meta::time::GoDuration;
use keelson_meta::{ErrorList, Failure, FieldError, Object, Path, Reason, Status, Str, Timestamp};
use keelson_registry::delete_options::check_dry_run;
use keelson_registry::options::{
    ContinueToken, FieldValidation, Freshness, ListOptions, LogOptions, WatchOptions, WatchStart,
    WriteOptions,
};
use keelson_store::Revision;
use memchr::memchr;
use percent_encoding::percent_decode_str;
use std::time::Duration;

/// Most bytes of a field manager's name.
const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// Why a list or watch with a continue token has no resourceVersionMatch.
const MATCH_WITH_CONTINUE: &str = "resourceVersionMatch is forbidden when continue is provided";

/// The query parameters of a URL, in order.
#[derive(Clone, Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
    /// Whether watches may not ask for initial events (WatchList).
    pub refuses_watch_lists: bool,
}

impl Query {
    /// Parses the part after `?`. Malformed pairs are left out, as in upstream.
    pub fn parse(text: &str) -> Query {
        let pairs = text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let decode = |text: &str| {
            let text = text.replace('+', " ");
            let decoded = percent_decode_str(&text).decode_utf8().ok()?.into_owned();
            is_escaped_well(&text).then_some(decoded)
        };
        let pairs = pairs
            .filter_map(|pair| {
                let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                Some((decode(name)?, decode(value)?))
            })
            .collect();
        Query { pairs, ..Query::default() }
    }

    /// Returns the first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns all values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Returns a boolean as upstream converts it: `false` and `0` are false, anything else is true.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|text| !matches!(text.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    /// Returns an integer. As in upstream, an empty one is an error.
    pub fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.get(name) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
            let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            let why = if is_number { "value out of range" } else { "invalid syntax" };
            Status::bad_request(format!("strconv.ParseInt: parsing {}: {why}", quote(text)))
        })
    }

    /// Returns whether the request is a watch (`watch`).
    pub fn is_watch(&self) -> bool {
        self.flag("watch").unwrap_or(false)
    }

    /// Returns `pretty`, if given. Unlike other booleans, it is false unless Go's `ParseBool` takes
    /// it as true.
    pub fn pretty(&self) -> Option<bool> {
        let is_true = |text| matches!(text, "1" | "t" | "T" | "true" | "TRUE" | "True");
        self.get("pretty").filter(|text| !text.is_empty()).map(is_true)
    }

    /// Returns `timeoutSeconds` of a watch; `None` for 0. As in Go the nanoseconds wrap around at
    /// 64 bits, and a negative timeout ends at once.
    pub fn timeout(&self) -> Result<Option<Duration>, Failure> {
        let seconds = self.number("timeoutSeconds")?.unwrap_or(0);
        let nanos = GoDuration::wrapping_seconds(seconds).0;
        Ok((nanos != 0).then(|| Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))))
    }

    /// Returns the request timeout: the client's `timeout`, at most the server's limit.
    pub fn request_timeout(&self, most: Duration) -> Result<Duration, Failure> {
        let Some(text) = self.get("timeout").filter(|text| !text.is_empty()) else {
            return Ok(most);
        };
        let given = GoDuration::parse(text).map_err(|why| {
            let what = "invalid timeout specified in the request URL";
            Status::bad_request(format!("{what} - {why}"))
        })?;
        let given = u64::try_from(given.0).map(Duration::from_nanos).unwrap_or_default();
        Ok(if given.is_zero() { most } else { given.min(most) })
    }

    fn parse_selectors(&self) -> (Result<Selector, String>, Result<FieldSelector, String>) {
        let labels = self.text("labelSelector");
        let fields = self.text("fieldSelector");
        off_worker::compute(labels.len() + fields.len(), || {
            (keelson_meta::selector::parse(labels), FieldSelector::parse(fields))
        })
    }

    fn selectors(&self) -> Result<(Selector, FieldSelector), Failure> {
        let (labels, fields) = self.parse_selectors();
        Ok((labels.map_err(Status::bad_request)?, fields.map_err(Status::bad_request)?))
    }

    /// Parses the options of get.
    pub fn get_options(&self) -> Result<Freshness, Failure> {
        if self.flag("export") == Some(true) {
            return Err(Status::bad_request(
                "the export parameter, deprecated since v1.14, is no longer supported",
            ));
        }
        match self.get("resourceVersion").filter(|text| !text.is_empty()) {
            None => Ok(Freshness::Latest),
            Some("0") => Ok(Freshness::Any),
            Some(text) => revision(text).map(Freshness::NotOlderThan),
        }
    }

    /// Checks what does not depend on the state of the store, and returns the selectors.
    pub fn check_list_options(&self) -> Result<(Selector, FieldSelector), Failure> {
        self.timeout()?;
        self.number("limit")?;
        let selectors = self.selectors()?;
        self.check_list()?;
        Ok(selectors)
    }

    /// Parses the options of list and deletecollection.
    pub fn list_options(&self) -> Result<ListOptions, Failure> {
        let (labels, fields) = self.check_list_options()?;
        let limit = self.number("limit")?.unwrap_or(0).max(0);
        let continue_text = self.text("continue");
        let resource_version = self.text("resourceVersion");
        let matching = self.text("resourceVersionMatch");
        let continue_from = if continue_text.is_empty() {
            None
        } else {
            let token = ContinueToken::decode(continue_text)?;
            if !matches!(resource_version, "" | "0") {
                return Err(Status::bad_request(
                    "specifying resource version is not allowed when using continue",
                ));
            }
            Some(token)
        };
        let freshness = match (resource_version, matching) {
            ("", _) => Freshness::Latest,
            ("0", _) => Freshness::Any,
            (text, "Exact") => exactly(list_revision(text)?),
            // With a limit and without resourceVersionMatch, the revision is exact.
            (text, "") if limit > 0 => exactly(list_revision(text)?),
            (text, _) => Freshness::NotOlderThan(list_revision(text)?),
        };
        // kube-apiserver serves reads at revision 0 from its cache, without a limit.
        let limit = if freshness == Freshness::Any { 0 } else { limit };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(ListOptions { labels, fields, freshness, limit, continue_from })
    }

    /// Validates combinations of list parameters (apimachinery `internalversion/validation`).
    fn check_list(&self) -> Result<(), Failure> {
        let mut errors = ErrorList::new();
        if self.is_watch() {
            self.check_watch_match(&mut errors);
        } else {
            self.check_list_match(&mut errors);
            if self.get("sendInitialEvents").is_some() {
                let path = Path::new("sendInitialEvents");
                let why = "sendInitialEvents is forbidden for list";
                errors.push(FieldError::forbidden(&path, why));
            }
        }
        errors.into_result("meta.k8s.io", "ListOptions", "")
    }

    fn check_list_match(&self, errors: &mut ErrorList) {
        let matching = self.text("resourceVersionMatch");
        let version = self.text("resourceVersion");
        let path = Path::new("resourceVersionMatch");
        if matching.is_empty() {
            return;
        }
        if version.is_empty() {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(&path, why));
        }
        if !self.text("continue").is_empty() {
            errors.push(FieldError::forbidden(&path, MATCH_WITH_CONTINUE));
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let valid = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported(&path, matching, &valid));
        }
        if matching == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(&path, why));
        }
    }

    fn check_watch_match(&self, errors: &mut ErrorList) {
        let matching = self.text("resourceVersionMatch");
        let has_initial_events = self.get("sendInitialEvents").is_some();
        let path = Path::new("resourceVersionMatch");
        if has_initial_events && matching != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(&path, why));
        }
        if has_initial_events && self.refuses_watch_lists {
            let why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate \
                       is enabled";
            errors.push(FieldError::forbidden(&Path::new("sendInitialEvents"), why));
        }
        // Such a watch begins with all objects by default, which sets the match, too.
        let is_legacy = matches!(self.text("resourceVersion"), "" | "0");
        let is_default = !has_initial_events && is_legacy && !self.refuses_watch_lists;
        if matching.is_empty() && !is_default {
            return;
        }
        if !has_initial_events && !matching.is_empty() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
                       provided";
            errors.push(FieldError::forbidden(&path, why));
        }
        if !matches!(matching, "" | "NotOlderThan") {
            errors.push(FieldError::not_supported(&path, matching, &["NotOlderThan"]));
        }
        if !self.text("continue").is_empty() {
            errors.push(FieldError::forbidden(&path, MATCH_WITH_CONTINUE));
        }
    }

    /// Returns whether a watch begins with the state of all objects.
    pub fn sends_initial_events(&self) -> bool {
        self.flag("sendInitialEvents") == Some(true)
    }

    /// Returns which of the objects of a list are selected, for objects that are computed. Only
    /// name and namespace are selectable fields.
    pub fn computed_selection(&self) -> Result<impl Fn(&Object) -> bool + use<>, Failure> {
        let (labels, fields) = self.check_list_options()?;
        let is_known = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
        if let Some(term) = fields.terms().iter().find(|term| !is_known(&term.field)) {
            return Err(Status::bad_request(field_selector::not_known(&term.field)));
        }
        Ok(move |obj: &Object| {
            let field = |name: &str| match name {
                "metadata.name" => Some(obj.name()),
                _ => Some(obj.namespace()),
            };
            labels.matches_object(obj) && fields.matches(field)
        })
    }

    /// Parses the options of watch.
    pub fn watch_options(&self) -> Result<WatchOptions, Failure> {
        let (labels, fields) = self.check_list_options()?;
        let start = match self.text("resourceVersion") {
            "" => WatchStart::Latest,
            "0" => WatchStart::Any,
            text => WatchStart::After(revision(text)?),
        };
        Ok(WatchOptions {
            labels,
            fields,
            start,
            bookmarks: self.flag("allowWatchBookmarks").unwrap_or(false),
            // As upstream, a watch without a revision asks for them, too.
            initial_events: self.flag("sendInitialEvents").or_else(|| {
                let is_first = !matches!(start, WatchStart::After(_));
                (is_first && !self.refuses_watch_lists).then_some(true)
            }),
        })
    }

    /// Returns the selectors of a collection for the authorizer, or `None` if there are none.
    pub fn requested_selectors(&self) -> Option<Selectors> {
        let labels = self.text("labelSelector");
        let fields = self.text("fieldSelector");
        if labels.is_empty() && fields.is_empty() {
            return None;
        }
        let (labels, fields) = self.parse_selectors();
        Some(Selectors { labels: labels.ok(), fields: fields.ok() })
    }

    /// Parses the options of `pods/NAME/log`.
    pub fn log_options(&self) -> Result<LogOptions, Failure> {
        let since_time = match self.text("sinceTime") {
            "" | "null" => None,
            text => {
                let time = Timestamp::parse(text).map_err(Status::bad_request)?;
                Some(time.text())
            }
        };
        let is_set = |name: &str| self.flag(name).unwrap_or(false);
        Ok(LogOptions {
            container: self.text("container").into(),
            follow: is_set("follow"),
            previous: is_set("previous"),
            since_seconds: self.number("sinceSeconds")?,
            since_time,
            timestamps: is_set("timestamps"),
            tail_lines: self.number("tailLines")?,
            limit_bytes: self.number("limitBytes")?,
            is_unverified: is_set("insecureSkipTLSVerifyBackend"),
            stream: self.get("stream").map(Str::new),
        })
    }

    /// Parses the options of create and update. `kind` names the options in errors.
    pub fn write_options(&self, kind: &str, user_agent: &str) -> Result<WriteOptions, Failure> {
        self.checked_write_options(kind, user_agent, ErrorList::new())
    }

    /// Parses the options of a patch.
    pub fn patch_options(&self, is_apply: bool, user_agent: &str) -> Result<WriteOptions, Failure> {
        let mut errors = ErrorList::new();
        if is_apply && self.text("fieldManager").is_empty() {
            let why = "is required for apply patch";
            errors.push(FieldError::required(&Path::new("fieldManager"), why));
        }
        if !is_apply && self.get("force").is_some() {
            let why = "may not be specified for non-apply patch";
            errors.push(FieldError::forbidden(&Path::new("force"), why));
        }
        self.checked_write_options("PatchOptions", user_agent, errors)
    }

    /// Parses the options of a write, after checks that found `errors`.
    fn checked_write_options(
        &self,
        kind: &str,
        user_agent: &str,
        mut errors: ErrorList,
    ) -> Result<WriteOptions, Failure> {
        let force = self.flag("force").unwrap_or(false);
        let manager = self.text("fieldManager");
        errors.extend(validate_field_manager(manager, &Path::new("fieldManager")));
        let dry_run = self.dry_run(&mut errors);
        let field_validation = self.field_validation(&mut errors);
        errors.into_result("meta.k8s.io", kind, "")?;
        let field_manager = if manager.is_empty() {
            let word: String = user_agent
                .split('/')
                .next()
                .unwrap_or_default()
                .chars()
                .take(FIELD_MANAGER_BYTES_MAX)
                .collect();
            if word.is_empty() { Str::new_static("unknown") } else { Str::from(word) }
        } else {
            manager.into()
        };
        Ok(WriteOptions {
            dry_run,
            field_manager,
            field_validation,
            force,
            field_manager_is_default: manager.is_empty(),
            field_validation_is_given: !self.text("fieldValidation").is_empty(),
            keep_status: false,
        })
    }

    fn dry_run(&self, errors: &mut ErrorList) -> bool {
        let given: Vec<Str> = self.all("dryRun").map(Str::new).collect();
        check_dry_run(&given, errors)
    }

    fn field_validation(&self, errors: &mut ErrorList) -> FieldValidation {
        match self.text("fieldValidation") {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let valid = ["", "Ignore", "Strict", "Warn"];
                let path = Path::new("fieldValidation");
                errors.push(FieldError::not_supported(&path, other, &valid));
                FieldValidation::Warn
            }
        }
    }
}

/// Returns whether every `%` is followed by two hexadecimal digits.
pub(crate) fn is_escaped_well(text: &str) -> bool {
    let Some(first) = memchr(b'%', text.as_bytes()) else { return true };
    text[first..].split('%').skip(1).all(|rest| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// Returns the freshness of a list at a revision; one that is 0 in another spelling (`00`) is the
/// latest.
fn exactly(revision: Revision) -> Freshness {
    if revision.0 == 0 { Freshness::Latest } else { Freshness::Exact(revision) }
}

/// Parses the resourceVersion of a get or watch.
fn revision(text: &str) -> Result<Revision, Failure> {
    parse_revision(text).map_err(|errors| bare(&errors))
}

/// Parses the resourceVersion of a list.
fn list_revision(text: &str) -> Result<Revision, Failure> {
    parse_revision(text).map_err(|errors| {
        Status::bad_request(format!("invalid resource version: {}", joined(&errors)))
    })
}

fn parse_revision(text: &str) -> Result<Revision, ErrorList> {
    parse_uint(text).map(Revision).map_err(|why| {
        let mut errors = ErrorList::new();
        errors.push(FieldError::invalid(&Path::new("resourceVersion"), text, &why));
        errors
    })
}

/// Returns upstream's response to an error that is not a Status: 500 without a reason.
fn bare(errors: &ErrorList) -> Failure {
    Status::new(Reason::Unknown, joined(errors))
}

fn joined(errors: &ErrorList) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
