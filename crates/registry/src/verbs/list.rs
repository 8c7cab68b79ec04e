//! The verb list: a snapshot, filtered and split into pages.

mod past;

use crate::conversion::{Growth, list_failure};
use crate::metrics::Scan;
use crate::options::{ContinueToken, Freshness, ListOptions};
use crate::registry::{Registry, unreadable};
use crate::target::Target;
use crate::verbs::pace::Pace;
use keelson_auth::Permit;
use keelson_cache::{Resource, Snapshot, Term};
use keelson_meta::field_selector::{self, FieldSelector, FieldTerm};
use keelson_meta::selector::Selector;
use keelson_meta::{Failure, Reason, Status, Str, Value};
use keelson_records::{Entry, starts_with};
use keelson_resources::api_table::Source;
use keelson_store::Revision;
use std::sync::Arc;
use tokio::time::Instant;

/// Maximum capacity that is reserved before the number of items is known.
const RESERVED_ITEMS_MAX: usize = 1 << 14;

/// Objects whose labels and fields are matched between two looks at the time.
const MATCHED_STRETCH: usize = 64;

/// Objects that are passed on without a selector between two looks at the time.
const PASSED_STRETCH: usize = 4096;

/// Items that are converted in one batch before the selectors are applied.
const CONVERSION_BATCH_ITEMS: usize = 500;

/// A page of a list.
#[derive(Debug)]
pub struct List {
    /// The items, in the order of their keys.
    pub items: Vec<Entry>,
    /// The revision of the list.
    pub revision: Revision,
    /// The token of the next page, if there is one.
    pub continue_token: Option<String>,
    /// `remainingItemCount`, if it is known.
    pub remaining: Option<usize>,
}

/// The objects that a request selects.
#[derive(Clone, Debug)]
pub struct Filter {
    /// `namespace/`, or empty.
    pub prefix: String,
    labels: Selector,
    fields: FieldSelector,
    /// Set when the selector uses fields of a custom resource, which records lack since they can
    /// change.
    computed: Option<Target>,
}

/// Returns the selectable fields of a custom resource, in the version of the target.
fn computed_fields(target: &Target, entry: &Entry) -> Vec<(String, Str)> {
    let Ok(obj) = target.kind.object_in(entry, target.schema()) else { return vec![] };
    let checks = target.kind.version_checks(&target.version);
    let paths = checks.map(|checks| &checks.selectable[..]).unwrap_or_default();
    let field = |path: &Vec<Str>| {
        let members: Vec<&str> = path.iter().map(Str::as_str).collect();
        let text = match obj.at(&members) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Int(number)) => Str::from(number.to_string()),
            Some(Value::Bool(flag)) => Str::from(flag.to_string()),
            _ => Str::default(),
        };
        (path.join("."), text)
    };
    paths.iter().map(field).collect()
}

impl Filter {
    /// Checks the field selector against the kind; 400 for fields that cannot be selected.
    pub fn new(
        target: &Target,
        labels: &Selector,
        fields: &FieldSelector,
    ) -> Result<Filter, Failure> {
        let strategy = &target.kind.strategy;
        let is_known = |term: &&FieldTerm| {
            strategy.is_selectable(&term.field)
                || target.kind.is_selectable(&target.version, &term.field)
        };
        if let Some(unknown) = fields.terms().iter().find(|term| !is_known(term)) {
            return Err(Status::bad_request(match target.kind.source {
                Source::Custom => field_selector::not_supported(&unknown.field),
                Source::BuiltIn => strategy.selector_error(&unknown.field),
            }));
        }
        let required = fields.required_value("metadata.name");
        if !target.name.is_empty() && !fields.terms().is_empty() && required != Some(&target.name) {
            let why = "fieldSelector metadata.name doesn't match requested name";
            return Err(Status::bad_request(why));
        }
        let namespaced = target.kind.namespaced && !target.namespace.is_empty();
        let prefix = if namespaced { format!("{}/", target.namespace) } else { String::new() };
        let is_computed =
            |term: &FieldTerm| target.kind.is_selectable(&target.version, &term.field);
        let computed = fields.terms().iter().any(is_computed).then(|| target.clone());
        let labels = labels.clone();
        let fields = fields.clone();
        let mut filter = Filter { prefix, labels, fields, computed };
        if !target.name.is_empty() {
            filter.prefix.push_str(&target.name);
            filter.fields = FieldSelector::equals("metadata.name", &target.name);
        }
        Ok(filter)
    }

    /// Whether every object under the prefix matches.
    pub fn is_everything(&self) -> bool {
        self.labels.is_everything() && self.fields.is_everything()
    }

    /// Whether an object matches.
    pub fn matches(&self, entry: &Entry) -> bool {
        starts_with(entry.key_bytes(), self.prefix.as_bytes())
            && (self.labels.is_everything() || self.labels_match(entry))
            && (self.fields.is_everything() || self.fields_match(entry))
    }

    #[inline]
    fn labels_match(&self, entry: &Entry) -> bool {
        self.labels.matches_labels_or(|| entry.labels(), |key| entry.label(key))
    }

    /// Returns how many objects may be matched without a look at the time.
    #[inline]
    pub(crate) fn stretch(&self) -> usize {
        if self.is_everything() {
            PASSED_STRETCH
        } else if self.computed.is_some() {
            1
        } else {
            MATCHED_STRETCH
        }
    }

    fn fields_match(&self, entry: &Entry) -> bool {
        let computed = self.computed.as_ref().map(|target| computed_fields(target, entry));
        self.fields.matches(|field| match (field, &computed) {
            ("metadata.name", _) => Some(entry.name()),
            ("metadata.namespace", _) => Some(entry.namespace()),
            (field, None) => entry.field(field),
            (field, Some(known)) => {
                known.iter().find(|(name, _)| name == field).map(|(_, text)| text.as_str())
            }
        })
    }

    /// Returns a label or field and its required value, for a lookup in an index.
    fn term(&self) -> Option<(Term, &str)> {
        let label = self.labels.requirements().iter().find_map(|requirement| {
            let value = requirement.required_value()?;
            Some((Term::Label(requirement.key().into()), value))
        });
        let field = self.fields.terms().iter().find_map(|term| {
            // Name and namespace are in the key. A field with an empty value may be absent in the
            // record.
            let is_other = !term.field.starts_with("metadata.") && !term.value.is_empty();
            let is_wanted = is_other && !term.negated && self.computed.is_none();
            is_wanted.then(|| (Term::Field(term.field.as_str().into()), term.value.as_str()))
        });
        field.or(label)
    }

    /// Returns the page of the objects that match, in the order of their keys, from key `start` on.
    pub(crate) async fn select(
        &self,
        objects: &Arc<Resource>,
        snapshot: &Snapshot,
        start: &str,
        limit: usize,
    ) -> Page {
        if let Some((term, value)) = self.term() {
            if let Some(selected) = snapshot.select(&term, value, &self.prefix, start) {
                let mut page = self.scan(snapshot, selected, limit).await;
                page.index = match term {
                    Term::Field(field) => Str::from(format!("f:{field}")),
                    // Label keys are the clients', and not the names of series.
                    Term::Label(_) => Str::from("l:*"),
                };
                return page;
            }
            if objects.count_scan(&term) {
                let objects = objects.clone();
                tokio::task::spawn_blocking(move || objects.make_index(term));
            }
        }
        self.scan(snapshot, snapshot.range(&self.prefix, start), limit).await
    }

    /// Returns the page of the candidates that match. Yields between stretches of them, so that a
    /// scan of many objects does not hold a thread.
    async fn scan<'a>(
        &self,
        snapshot: &Snapshot,
        mut candidates: impl Iterator<Item = &'a Entry> + Send,
        limit: usize,
    ) -> Page {
        let mut page = Page {
            items: self.reserve(snapshot, limit),
            revision: snapshot.revision,
            more: false,
            remaining: None,
            fetched: 0,
            index: Str::default(),
        };
        let stretch = self.stretch();
        let mut pace = Pace::default();
        while self.scan_stretch(&mut candidates, stretch, limit, &mut page) {
            if pace.is_late() {
                tokio::task::yield_now().await;
            }
        }
        page
    }

    /// Adds those of the next candidates that match, `stretch` of them at most. Returns whether
    /// there may be more.
    fn scan_stretch<'a>(
        &self,
        candidates: &mut impl Iterator<Item = &'a Entry>,
        stretch: usize,
        limit: usize,
        page: &mut Page,
    ) -> bool {
        let mut left = stretch;
        for entry in candidates.by_ref() {
            if self.matches(entry) {
                if page.items.len() == limit {
                    page.more = true;
                    page.fetched += stretch - left;
                    page.remaining = self.is_everything().then(|| 1 + candidates.count());
                    return false;
                }
                page.items.push(entry.clone());
            }
            left -= 1;
            if left == 0 {
                page.fetched += stretch;
                return true;
            }
        }
        page.fetched += stretch - left;
        false
    }

    /// Allocates the vector of the items. Growing it while it is filled would use up to three times
    /// the memory.
    fn reserve(&self, snapshot: &Snapshot, limit: usize) -> Vec<Entry> {
        let limit = limit.min(RESERVED_ITEMS_MAX);
        let count = if self.is_everything() { snapshot.len().min(limit) } else { 0 };
        Vec::with_capacity(count)
    }

    /// Returns the only key that can match, if the selectors require a name.
    pub(crate) fn only_key(&self) -> Option<String> {
        let name = self.fields.required_value("metadata.name")?;
        self.prefix.rsplit_once('/').map(|(namespace, _)| format!("{namespace}/{name}"))
    }
}

/// Returns the answer to a list whose objects could not be converted. Upstream reads a page without
/// selectors from its store while the watch cache cannot be filled.
fn unconverted(target: &Target, options: &ListOptions, why: Failure) -> Failure {
    let has_selectors = !options.labels.is_everything() || !options.fields.is_everything();
    if options.limit > 0 && !has_selectors { why } else { list_failure(target.schema(), &why) }
}

impl Registry {
    /// Returns a page of the objects that match.
    pub async fn list(
        &self,
        permit: &Permit,
        target: &Target,
        options: &ListOptions,
    ) -> Result<List, Failure> {
        target.assert_covered_collection(permit, "list", &options.fields);
        self.list_unchecked(target, options).await
    }

    /// Returns a page, for verbs that are not authorized as a list.
    pub(crate) async fn list_unchecked(
        &self,
        target: &Target,
        options: &ListOptions,
    ) -> Result<List, Failure> {
        let span = target.collection_span("cacher.GetList");
        let filter = Filter::new(target, &options.labels, &options.fields)?;
        let limit = if options.limit == 0 { usize::MAX } else { options.limit };
        let start = match &options.continue_from {
            Some(token) => format!("{}{}", filter.prefix, token.start),
            None => String::new(),
        };
        let converts = target.kind.has_conversion_webhook;
        let mut page = match self.source(target, options).await? {
            ListSource::Cache(snapshot) => {
                self.check_complete(target, &filter, options)?;
                let page = if converts && !filter.is_everything() {
                    let page = self.page_of_converted(target, &filter, &start, limit, &snapshot);
                    Box::pin(page).await.map_err(|why| unconverted(target, options, why))?
                } else {
                    self.page(target, &filter, &start, limit, &snapshot).await
                };
                self.metrics.lists.cached(target.gvr(), &page.index, page.scan());
                page
            }
            ListSource::Store(revision) => {
                let begun = Instant::now();
                let page = self.past_page(target, &filter, &start, limit, revision).await?;
                self.metrics.transactions.observe(target.gvr(), "list", begun.elapsed());
                let page = page.ok_or_else(|| expired(options))?;
                self.metrics.lists.stored(target.gvr(), page.scan());
                page
            }
        };
        if converts {
            let items = std::mem::take(&mut page.items);
            let mut growth = Growth::default();
            let converted = Box::pin(self.converted_entries(target, items, &mut growth)).await;
            page.items = converted.map_err(|why| unconverted(target, options, why))?;
        }
        let token = page.items.last().filter(|_| page.more).map(|last| {
            let start = last.key()[filter.prefix.len()..].into();
            ContinueToken { revision: Some(page.revision), start }.encode()
        });
        let Page { items, revision, remaining, .. } = page;
        span.event_with("Filtered items", || vec![("count", items.len().into())]);
        Ok(List { items, revision, continue_token: token, remaining })
    }

    /// Refuses a list of the latest state that would lack an object that cannot be read. Upstream
    /// checks such lists against the store; lists of any state come from its watch cache, which
    /// does not have the object.
    fn check_complete(
        &self,
        target: &Target,
        filter: &Filter,
        options: &ListOptions,
    ) -> Result<(), Failure> {
        if matches!(options.freshness, Freshness::Any | Freshness::NotOlderThan(_)) {
            return Ok(());
        }
        let objects = self.objects(&target.kind);
        let error = match filter.only_key() {
            Some(key) => objects.unreadable(&key),
            None => objects.unreadable_under(&filter.prefix),
        };
        match error {
            Some(error) => Err(unreadable(&error)),
            None => Ok(()),
        }
    }

    async fn page(
        &self,
        target: &Target,
        filter: &Filter,
        start: &str,
        limit: usize,
        snapshot: &Snapshot,
    ) -> Page {
        if let Some(key) = filter.only_key() {
            let only = snapshot.get(&key).filter(|entry| filter.matches(entry));
            let items = only.cloned().into_iter().collect();
            return Page { items, fetched: 1, ..Page::empty(snapshot.revision) };
        }
        filter.select(&self.objects(&target.kind), snapshot, start, limit).await
    }

    /// Like [`Registry::page`], for a kind with a conversion webhook: it may change labels and
    /// fields, so selectors are applied after the conversion.
    async fn page_of_converted(
        &self,
        target: &Target,
        filter: &Filter,
        start: &str,
        limit: usize,
        snapshot: &Snapshot,
    ) -> Result<Page, Failure> {
        let only = filter.only_key();
        let wanted = |entry: &&Entry| only.as_ref().is_none_or(|key| entry.key() == key);
        let mut rest = snapshot.range(&filter.prefix, start).filter(wanted).cloned();
        let mut items = vec![];
        let mut more = false;
        let mut fetched = 0;
        let mut growth = Growth::default();
        while !more {
            let batch: Vec<Entry> = rest.by_ref().take(CONVERSION_BATCH_ITEMS).collect();
            if batch.is_empty() {
                break;
            }
            fetched += batch.len();
            let converted = self.converted_entries(target, batch, &mut growth).await?;
            items.extend(converted.into_iter().filter(|entry| filter.matches(entry)));
            more = items.len() > limit;
        }
        items.truncate(limit);
        Ok(Page { items, more, fetched, ..Page::empty(snapshot.revision) })
    }

    async fn source(&self, target: &Target, options: &ListOptions) -> Result<ListSource, Failure> {
        let objects = self.objects(&target.kind);
        let token = options.continue_from.as_ref().and_then(|token| token.revision);
        let exact = match (token, options.freshness) {
            (Some(revision), _) | (None, Freshness::Exact(revision)) => Some(revision),
            (None, Freshness::Latest | Freshness::Any | Freshness::NotOlderThan(_)) => None,
        };
        let begun = Instant::now();
        let waited = |is_latest: bool, result: Result<(), Failure>| {
            let took = begun.elapsed();
            let lists = &self.metrics.lists;
            lists.waited(target.gvr(), took, is_latest, result.is_ok());
            result
        };
        if let Some(revision) = exact {
            waited(false, self.wait_for_revision(&target.kind, revision).await)?;
            let known = objects.snapshot_at(revision);
            return Ok(known.map_or(ListSource::Store(revision), ListSource::Cache));
        }
        match options.freshness {
            Freshness::Any => waited(false, self.wait_for_known_of(&target.kind).await)?,
            Freshness::NotOlderThan(revision) => {
                waited(false, self.wait_for_revision(&target.kind, revision).await)?;
            }
            Freshness::Latest | Freshness::Exact(_) => {
                waited(true, self.wait_for_latest_of(&target.kind).await)?;
            }
        }
        Ok(ListSource::Cache(self.cache.snapshot(&objects)))
    }
}

/// What a list reads.
enum ListSource {
    /// A snapshot of the cache.
    Cache(Snapshot),
    /// The store, at a revision that the cache no longer has.
    Store(Revision),
}

/// The items of a page.
pub(crate) struct Page {
    pub items: Vec<Entry>,
    /// The revision of the list.
    pub revision: Revision,
    /// Whether more matching objects follow.
    pub more: bool,
    /// The number of objects that follow, if it is known.
    pub remaining: Option<usize>,
    /// Objects that were looked at.
    pub fetched: usize,
    /// The index that was used: `f:` and a field, or `l:*`; empty without one.
    pub index: Str,
}

impl Page {
    /// Returns a page without items.
    pub(crate) fn empty(revision: Revision) -> Page {
        let items = vec![];
        let remaining = None;
        let index = Str::default();
        Page { items, revision, more: false, remaining, fetched: 0, index }
    }

    fn scan(&self) -> Scan {
        Scan { fetched: self.fetched, returned: self.items.len() }
    }
}

/// Returns 410 for a revision that is compacted.
fn expired(options: &ListOptions) -> Failure {
    match &options.continue_from {
        Some(token) => token_expired(token),
        None => Status::expired("The resourceVersion for the provided list is too old."),
    }
}

/// Returns 410 with a token that continues with the latest state.
fn token_expired(token: &ContinueToken) -> Failure {
    let start = token.start.trim_end_matches('\u{0}').into();
    let next = ContinueToken { revision: None, start }.encode();
    let mut status = Status::new(
        Reason::Expired,
        "The provided continue parameter is too old to display a consistent list result. You can \
         start a new list without the continue parameter, or use the continue token in this \
         response to retrieve the remainder of the results. Continuing with the provided token \
         results in an inconsistent list - objects that were created, modified, or deleted between \
         the time the first chunk was returned and now may show up in the list.",
    );
    status.continue_token = Some(next.into());
    status
}
