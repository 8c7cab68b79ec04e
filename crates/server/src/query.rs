//! Parses query parameters into options, with upstream's errors.

use keelson_auth::Selectors;
use keelson_meta::field_selector::FieldSelector;
use keelson_meta::selector::Selector;
use keelson_meta::status::quote;
use keelson_meta::time::GoDuration;
use keelson_meta::{ErrorList, Failure, FieldError, Path, Reason, Status, Str, Value};
use keelson_registry::options::{
    ContinueToken, DeleteOptions, FieldValidation, Freshness, ListOptions, LogOptions, Propagation,
    WatchOptions, WatchStart, WriteOptions,
};
use keelson_schema::catalogue::Catalogue;
use keelson_schema::decode::{self, Format};
use keelson_schema::{Schema, proto};
use keelson_store::Revision;
use percent_encoding::percent_decode_str;
use std::time::Duration;

/// Most bytes of a field manager's name.
const FIELD_MANAGER_BYTES_MAX: usize = 128;

/// The query parameters of a URL, in order.
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(String, String)>);

impl Query {
    /// Parses the part after `?`. Malformed pairs are left out, as in upstream.
    pub fn parse(text: &str) -> Query {
        let pairs = text.split('&').filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let decode = |text: &str| {
            let text = text.replace('+', " ");
            let decoded = percent_decode_str(&text).decode_utf8().ok()?.into_owned();
            is_escaped_well(&text).then_some(decoded)
        };
        Query(
            pairs
                .filter_map(|pair| {
                    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
                    Some((decode(name)?, decode(value)?))
                })
                .collect(),
        )
    }

    /// Returns the first value of a parameter.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    /// Returns all values of a parameter.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    /// Returns a boolean as upstream converts it: `false` and `0` are false, anything else is true.
    pub fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|text| !matches!(text.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.get(name).filter(|text| !text.is_empty()) else {
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

    /// Returns `pretty`, if given.
    pub fn pretty(&self) -> Option<bool> {
        self.flag("pretty")
    }

    /// Returns `timeoutSeconds` of a watch; `None` for 0. As in Go the nanoseconds wrap around at 64 bits, and a
    /// negative timeout ends at once.
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

    fn selectors(&self) -> Result<(Selector, FieldSelector), Failure> {
        let labels = keelson_meta::selector::parse(self.text("labelSelector"));
        let fields = FieldSelector::parse(self.text("fieldSelector"));
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

    /// Parses the options of list and deletecollection.
    pub fn list_options(&self) -> Result<ListOptions, Failure> {
        let (labels, fields) = self.selectors()?;
        let limit = self.number("limit")?.unwrap_or(0).max(0);
        self.timeout()?;
        self.check_list()?;
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
            (text, "Exact") => Freshness::Exact(revision(text)?),
            // With a limit and without resourceVersionMatch, the revision is exact.
            (text, "") if limit > 0 => Freshness::Exact(revision(text)?),
            (text, _) => Freshness::NotOlderThan(revision(text)?),
        };
        // kube-apiserver serves reads at revision 0 from its cache, without a limit.
        let limit = if freshness == Freshness::Any { 0 } else { limit };
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(ListOptions { labels, fields, freshness, limit, continue_from })
    }

    /// Validates combinations of list parameters (apimachinery `internalversion/validation`).
    fn check_list(&self) -> Result<(), Failure> {
        let mut errors = ErrorList::new();
        let (matching, version) = (self.text("resourceVersionMatch"), self.text("resourceVersion"));
        let path = Path::new("resourceVersionMatch");
        let is_watch = self.is_watch();
        if self.get("sendInitialEvents").is_some() {
            self.check_initial_events(is_watch, &mut errors);
            return errors.into_result("meta.k8s.io", "ListOptions", "");
        }
        if !matching.is_empty() {
            if is_watch {
                let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
                           provided";
                errors.push(FieldError::forbidden(&path, why));
                if matching != "NotOlderThan" {
                    let valid = ["NotOlderThan"];
                    errors.push(FieldError::not_supported(&path, matching, &valid));
                }
                return errors.into_result("meta.k8s.io", "ListOptions", "");
            }
            if version.is_empty() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.push(FieldError::forbidden(&path, why));
            }
            if !self.text("continue").is_empty() {
                let why = "resourceVersionMatch is forbidden when continue is provided";
                errors.push(FieldError::forbidden(&path, why));
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
        if is_watch && !self.text("continue").is_empty() {
            let why = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(&path, why));
        }
        errors.into_result("meta.k8s.io", "ListOptions", "")
    }

    fn check_initial_events(&self, is_watch: bool, errors: &mut ErrorList) {
        let path = Path::new("sendInitialEvents");
        let matching = self.text("resourceVersionMatch");
        if !is_watch {
            errors.push(FieldError::forbidden(&path, "sendInitialEvents is forbidden for list"));
            return;
        }
        let rule = Path::new("resourceVersionMatch");
        if matching.is_empty() {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(&rule, why));
        } else if matching != "NotOlderThan" {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(&rule, why));
            errors.push(FieldError::not_supported(&rule, matching, &["NotOlderThan"]));
        }
    }

    /// Parses the options of watch.
    pub fn watch_options(&self) -> Result<WatchOptions, Failure> {
        let (labels, fields) = self.selectors()?;
        self.check_list()?;
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
            initial_events: self.flag("sendInitialEvents"),
        })
    }

    /// Returns the selectors of a collection for the authorizer, or `None` if there are none.
    pub fn requested_selectors(&self) -> Option<Selectors> {
        let (labels, fields) = (self.text("labelSelector"), self.text("fieldSelector"));
        if labels.is_empty() && fields.is_empty() {
            return None;
        }
        Some(Selectors {
            labels: keelson_meta::selector::parse(labels).ok(),
            fields: FieldSelector::parse(fields).ok(),
        })
    }

    /// Parses the options of `pods/NAME/log`.
    pub fn log_options(&self) -> Result<LogOptions, Failure> {
        let number = |name: &str| match self.text(name) {
            "" => Ok(None),
            text => text.parse::<i64>().map(Some).map_err(|_| {
                let why = format!("strconv.ParseInt: parsing {}: invalid syntax", quote(text));
                Status::bad_request(why)
            }),
        };
        Ok(LogOptions {
            container: self.text("container").into(),
            tail_lines: number("tailLines")?,
            limit_bytes: number("limitBytes")?,
            since_seconds: number("sinceSeconds")?,
            has_since_time: !self.text("sinceTime").is_empty(),
        })
    }

    /// Parses the options of create, update and patch. `kind` names the options in errors.
    pub fn write_options(&self, kind: &str, user_agent: &str) -> Result<WriteOptions, Failure> {
        let mut errors = ErrorList::new();
        let force = self.flag("force").unwrap_or(false);
        let manager = self.text("fieldManager");
        let path = Path::new("fieldManager");
        if manager.len() > FIELD_MANAGER_BYTES_MAX {
            errors.push(FieldError::too_long(&path, FIELD_MANAGER_BYTES_MAX));
        }
        if let Some((i, c)) = manager.char_indices().find(|(_, c)| !is_printable(*c)) {
            let why = format!("invalid character U+{:04X} (at position {i})", c as u32);
            errors.push(FieldError::invalid(&path, manager, &why));
        }
        let dry_run = self.dry_run(&mut errors);
        let field_validation = self.field_validation(&mut errors);
        errors.into_result("meta.k8s.io", kind, "")?;
        let field_manager = if manager.is_empty() {
            let word = user_agent.split('/').next().unwrap_or_default();
            let word: String = word.chars().take(FIELD_MANAGER_BYTES_MAX).collect();
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
        let given: Vec<&str> = self.all("dryRun").collect();
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

    /// Parses the options of delete, from the body if there is one, otherwise from the URL.
    pub fn delete_options(&self, body: &[u8], format: Format) -> Result<DeleteOptions, Failure> {
        let (options, orphan) =
            if body.is_empty() { self.delete_query()? } else { delete_body(body, format)? };
        let mut errors = ErrorList::new();
        check_dry_run(&options.dry_run_given(), &mut errors);
        let path = Path::new("propagationPolicy");
        if let Some(policy) = &options.policy {
            if orphan.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(FieldError::invalid(&path, policy.as_str(), why));
            } else if propagation(policy).is_none() {
                let valid = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(FieldError::not_supported(&path, policy.as_str(), &valid));
            }
        }
        errors.into_result("meta.k8s.io", "DeleteOptions", "")?;
        let given = [
            ("dryRun", !options.dry_run.is_empty()),
            ("propagationPolicy", options.policy.is_some()),
            ("orphanDependents", orphan.is_some()),
            ("gracePeriodSeconds", options.grace.is_some()),
            ("preconditions", options.has_preconditions),
        ];
        let given = given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name);
        let from_orphan =
            orphan.map(|orphan| if orphan { Propagation::Orphan } else { Propagation::Background });
        Ok(DeleteOptions {
            dry_run: !options.dry_run.is_empty(),
            grace_period_seconds: options.grace,
            propagation: options.policy.as_deref().and_then(propagation).or(from_orphan),
            uid: options.uid,
            resource_version: options.resource_version,
            ignore_read_error: options.ignore_read_error,
            given: given.collect(),
        })
    }

    fn delete_query(&self) -> Result<(GivenDelete, Option<bool>), Failure> {
        let given = GivenDelete {
            dry_run: self.all("dryRun").map(str::to_owned).collect(),
            grace: self.number("gracePeriodSeconds")?,
            policy: self.get("propagationPolicy").filter(|t| !t.is_empty()).map(str::to_owned),
            uid: None,
            resource_version: None,
            has_preconditions: false,
            ignore_read_error: self.flag(IGNORE_READ_ERROR).unwrap_or(false),
        };
        Ok((given, self.flag("orphanDependents")))
    }
}

/// Returns whether every `%` is followed by two hexadecimal digits.
pub(crate) fn is_escaped_well(text: &str) -> bool {
    text.split('%').skip(1).all(|rest| {
        rest.as_bytes().get(..2).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    })
}

/// The option to delete unreadable objects.
const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

/// DeleteOptions as the client gave them.
struct GivenDelete {
    dry_run: Vec<String>,
    grace: Option<i64>,
    policy: Option<String>,
    uid: Option<Str>,
    resource_version: Option<Str>,
    has_preconditions: bool,
    ignore_read_error: bool,
}

impl GivenDelete {
    fn dry_run_given(&self) -> Vec<&str> {
        self.dry_run.iter().map(String::as_str).collect()
    }
}

fn check_dry_run(given: &[&str], errors: &mut ErrorList) -> bool {
    if given.iter().any(|word| *word != "All") {
        let items: Vec<Value> = given.iter().map(|word| Value::from(*word)).collect();
        errors.push(FieldError::not_supported(&Path::new("dryRun"), items, &["All"]));
    }
    !given.is_empty()
}

fn propagation(word: &str) -> Option<Propagation> {
    match word {
        "Foreground" => Some(Propagation::Foreground),
        "Background" => Some(Propagation::Background),
        "Orphan" => Some(Propagation::Orphan),
        _ => None,
    }
}

/// Decodes a protobuf body, with `kind` and `apiVersion` of its envelope.
fn read_protobuf(schema: &Schema, body: &[u8]) -> Result<Value, String> {
    let envelope = proto::decode_envelope(body).map_err(|error| error.to_string())?;
    let mut obj = proto::decode_message(schema, envelope.raw).map_err(|error| error.to_string())?;
    for (name, given) in [("kind", envelope.kind), ("apiVersion", envelope.api_version)] {
        if !given.is_empty() {
            obj.root.insert(name, given.as_ref());
        }
    }
    Ok(obj.into_value())
}

/// Parses DeleteOptions of a body, in any served group version, or without one.
fn delete_body(body: &[u8], format: Format) -> Result<(GivenDelete, Option<bool>), Failure> {
    let catalogue = Catalogue::shared();
    let schema = catalogue
        .schema(&keelson_meta::GroupVersionKind::new("", "v1", "DeleteOptions"))
        .ok_or_else(|| Status::internal("DeleteOptions has no schema"))?;
    let value = match format {
        Format::Protobuf => read_protobuf(&schema, body),
        _ => decode::read_value(body, format),
    };
    let value = value.map_err(Status::bad_request)?;
    let api_version = value.get("apiVersion").and_then(Value::as_str).unwrap_or("v1");
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or("DeleteOptions");
    let gv = keelson_meta::GroupVersion::parse(api_version).unwrap_or_default();
    let known = gv.group == "meta.k8s.io" || catalogue.version(&gv.group, &gv.version).is_some();
    if kind != "DeleteOptions" || !known {
        let scheme = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";
        return Err(Status::bad_request(format!(
            "no kind {} is registered for version {} in scheme {}",
            quote(kind),
            quote(api_version),
            quote(scheme)
        )));
    }
    let decoded = decode::canonicalize(&schema, value).map_err(Status::bad_request)?;
    let obj = decoded.object;
    let text = |place: &[&str]| {
        obj.at(place).and_then(Value::as_str).filter(|t| !t.is_empty()).map(Str::new)
    };
    let given = GivenDelete {
        dry_run: obj
            .array_at(&["dryRun"])
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        grace: obj.int_at(&["gracePeriodSeconds"]),
        policy: text(&["propagationPolicy"]).map(|t| t.to_string()),
        uid: text(&["preconditions", "uid"]),
        resource_version: text(&["preconditions", "resourceVersion"]),
        has_preconditions: obj.get("preconditions").is_some(),
        ignore_read_error: obj.get(IGNORE_READ_ERROR).and_then(Value::as_bool).unwrap_or(false),
    };
    Ok((given, obj.get("orphanDependents").and_then(Value::as_bool)))
}

fn is_printable(c: char) -> bool {
    !c.is_control() && c != '\u{fffd}'
}

/// Parses the resourceVersion of a read.
fn revision(text: &str) -> Result<Revision, Failure> {
    text.parse().map(Revision).map_err(|_| {
        let mut errors = ErrorList::new();
        let why = format!("strconv.ParseUint: parsing {}: invalid syntax", quote(text));
        errors.push(FieldError::invalid(&Path::new("resourceVersion"), text, &why));
        bare(&errors)
    })
}

/// Returns upstream's response to an error that is not a Status: 500 without a reason.
fn bare(errors: &ErrorList) -> Failure {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Status::new(Reason::Unknown, texts.join(", "))
}
