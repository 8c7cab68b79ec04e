//! The verb update, and the retry loop of every change of a stored object.

use crate::api_table::Source;
use crate::conversion::{Conversions, object_of, read_back, record_of, shown};
use crate::kind::{Answer, Target};
use crate::options::WriteOptions;
use crate::owners::{self, Endpoint};
use crate::registry::{Put, Registry, Removed};
use crate::verbs::bodies::{
    Change, Updated, check_namespace, invalid, is_refused_claim, shown_object,
};
use crate::verbs::{Tries, Written, check_body_fields};
use crate::write::{Options, Part, Write};
use keelson_admission::{Operation, Stored};
use keelson_auth::Permit;
use keelson_cache::Entry;
use keelson_kinds::preserve;
use keelson_kinds::strategy::{self, Strategy};
use keelson_meta::status::quote;
use keelson_meta::{
    ErrorList, Failure, FieldError, Object, Path, Reason, Status, Str, names, owner_references,
};
use keelson_schema::decode::Decoded;
use keelson_store::Revision;
use std::sync::Arc;
use std::time::Instant;

impl Registry {
    /// Replaces an object with the body of a request.
    pub async fn update(
        &self,
        permit: &Permit,
        target: &Target,
        part: Part,
        body: Decoded,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        target.assert_covered(permit, "update", part.name());
        let warnings = check_body_fields(target.schema(), &body, options.field_validation)?;
        let mut wished = body.object;
        let named = check_namespace(target, &mut wished).and_then(|()| check_name(target, &wished));
        if let Err(failure) = named {
            return Err(failure.with_warnings(warnings));
        }
        let make = |live: Option<&Object>| {
            if live.is_some() || target.kind.strategy.create_on_update {
                let checked =
                    check_uid(target, &wished, live.map_or("", Object::uid), options.dry_run);
                let twice = || owner_references::dedup(&mut wished.clone());
                checked.map_err(|why| why.with_warnings([warnings.clone(), twice()].concat()))?;
            }
            Ok(Updated { object: wished.clone(), owned: false, warnings: warnings.clone() })
        };
        self.change(permit, target, part, &make, options).await
    }

    /// Updates an object, or one subresource of it, with the result of `make`. `make` is called
    /// again when another write came first.
    pub async fn modify(
        &self,
        permit: &Permit,
        target: &Target,
        part: Part,
        make: Change<'_>,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        target.assert_covered(permit, "update", part.name());
        self.change(permit, target, part, make, options).await
    }

    /// Updates an object, and tries again when another write came between read and write.
    pub(crate) async fn change(
        &self,
        permit: &Permit,
        target: &Target,
        part: Part,
        make: Change<'_>,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        let conversions = Conversions::default();
        self.change_converting(permit, target, part, (make, &conversions), options).await
    }

    /// Like [`Registry::change`], for a change that may need conversions by a webhook.
    pub(crate) async fn change_converting(
        &self,
        permit: &Permit,
        target: &Target,
        part: Part,
        (make, conversions): (Change<'_>, &Conversions),
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        let ask = Ask { permit, target, part, options, conversions };
        // The cache of this process nearly always has the newest object, and a successful write proves it. Any other
        // outcome counts only after the store was asked for its newest revision.
        self.caught_up().await?;
        // An object that cannot be read here may have been repaired by another server.
        let (mut stored, mut is_newest) = (self.known(target).unwrap_or_default(), false);
        let mut tries = Tries::begin(Instant::now());
        loop {
            tries.next(Instant::now())?;
            let Some(entry) = stored else {
                if is_newest {
                    return self.create_instead(permit, target, part, make, options).await;
                }
                self.fresh().await?;
                (stored, is_newest) = (self.known(target)?, true);
                continue;
            };
            let mut warnings = vec![];
            let step = self.change_once(&ask, make, &entry, &mut warnings).await;
            if !is_newest && !was_written(&step, &entry, options) {
                self.fresh().await?;
                is_newest = true;
                let now = self.known(target)?;
                if now.as_ref().is_none_or(|now| now.modified() != entry.modified()) {
                    stored = now;
                    continue;
                }
            }
            match step {
                Ok(Step::Done(answer)) => {
                    let answer = match answer {
                        Answer::Entry(entry) => Answer::Entry(shown!(self, target, entry)?),
                        made => made,
                    };
                    return Ok(Written { answer, warnings, created: false });
                }
                Ok(Step::Lost(now)) => (stored, is_newest) = (now, true),
                Err(failure) => return Err(failure.with_warnings(warnings)),
            }
        }
    }

    /// Creates the object when it does not exist, if the kind or the change allows that.
    async fn create_instead(
        &self,
        permit: &Permit,
        target: &Target,
        part: Part,
        make: Change<'_>,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        let updated = make(None);
        let creates = matches!(&updated, Ok(updated) if updated.owned)
            || target.kind.strategy.create_on_update;
        if !creates || part != Part::Main {
            return Err(updated
                .err()
                .filter(|s| s.code != 404)
                .unwrap_or_else(|| target.not_found()));
        }
        let mut updated = updated?;
        sent_version(&updated.object)?;
        // A write that creates ignores the client's resourceVersion.
        if !options.dry_run {
            updated.object.set_meta("resourceVersion", "");
        }
        self.create_object(permit, target, updated, options).await
    }

    /// Runs one try: the steps of every update, in order.
    async fn change_once(
        &self,
        ask: &Ask<'_>,
        make: Change<'_>,
        entry: &Entry,
        warnings: &mut Vec<Str>,
    ) -> Result<Step, Failure> {
        let Ask { target, part, options, conversions, .. } = *ask;
        let kind = &target.kind;
        let stored = object_of!(self, target, entry)?;
        let converted = (target.schema().gvk != target.working().gvk)
            .then(|| kind.in_version(stored.clone(), target.schema()));
        let live = converted.as_ref().unwrap_or(&stored);
        let Updated { mut object, owned, warnings: told } = match &kind.webhook {
            None => make(Some(live))?,
            Some(_) => {
                let made = self.with_conversions(kind, conversions, || make(Some(live)));
                Box::pin(made).await??
            }
        };
        warnings.extend(told);
        warnings.extend(owner_references::dedup(&mut object));
        check_version(target, part, &object, entry)?;
        kind.fill_defaults(target.schema(), &mut object, self.clock.as_ref());
        match &kind.webhook {
            _ if owned => {}
            None => kind.note_owners(&mut object, target.schema(), |object| {
                Endpoint::of(target, part).updated(live, object, options, self.clock.now());
            }),
            Some(_) => object = Box::pin(self.with_owners(ask, live, object)).await?,
        }
        let mut new = kind.to_working(object, target.schema());
        let write = ask.write(&stored);
        let passes = self.admit_part(&write, part, &mut new, warnings).await?;
        // Plug-ins see the resourceVersion that the client sent.
        new.set_meta("resourceVersion", &entry.modified().to_string());
        if let Some(guard) = &self.hooks_of(kind).guard {
            guard.check(self, &write, &new).await?;
        }
        prepare(target, part, &mut new, &stored);
        (kind.strategy.record_time)(&mut new, &stored, &self.clock.now().text());
        owners::restore_times(&stored, &mut new);
        if let Err(invalid) = validate(self, target, part, &new, &stored) {
            if part != Part::Main {
                return Err(invalid);
            }
            let old = (Some(&stored), options.dry_run);
            return Err(Box::pin(self.refused(target, &new, old, invalid)).await);
        }
        let told = warnings.len();
        // Upstream's strategies of subresources return no warnings.
        if part == Part::Main {
            warnings.extend(kind.strategy.warnings(&new, Some(&stored)));
        }
        self.validate_part(&write, part, &passes, &new, warnings).await?;
        let mut result = Changed { new, stored, entry: entry.clone() };
        let several = self.takes(kind) || self.has_quotas(&ask.write(&result.stored));
        if !several {
            return self.put_change(ask, &mut result).await;
        }
        // Boxed because it is rare: the future of every write stays small.
        let step = Box::pin(self.store_several(ask, result)).await;
        if is_refused_claim(&step) {
            warnings.truncate(told);
        }
        step
    }

    /// Stores a change that has claims or quotas. The write completes even when the request is cancelled.
    async fn store_several(&self, ask: &Ask<'_>, result: Changed) -> Result<Step, Failure> {
        let Ask { permit, target, part, options, .. } = *ask;
        if options.dry_run {
            return self.store_change(ask, result).await;
        }
        let (permit, target, options) = (permit.clone(), target.clone(), options.clone());
        let store = |registry: Arc<Registry>| async move {
            let conversions = &Conversions::default();
            let ask =
                Ask { permit: &permit, target: &target, part, options: &options, conversions };
            registry.store_change(&ask, result).await
        };
        self.to_the_end(store).await
    }

    /// Returns the object with managedFields updated, for a kind with a conversion webhook.
    async fn with_owners(
        &self,
        ask: &Ask<'_>,
        live: &Object,
        object: Object,
    ) -> Result<Object, Failure> {
        let Ask { target, part, options, conversions, .. } = *ask;
        let endpoint = Endpoint::converting(target, part, conversions);
        let work = || {
            let mut owned = object.clone();
            endpoint.updated(live, &mut owned, options, self.clock.now());
            owned
        };
        self.with_conversions(&target.kind, conversions, work).await
    }

    /// Charges quotas and stores the change.
    async fn store_change(&self, ask: &Ask<'_>, mut result: Changed) -> Result<Step, Failure> {
        let charge = self.charge(&ask.write(&result.stored), &result.new).await?;
        let step = self.put_change(ask, &mut result).await;
        if !matches!(step, Ok(Step::Done(_))) {
            self.refund(charge).await;
        }
        step
    }

    async fn put_change(&self, ask: &Ask<'_>, result: &mut Changed) -> Result<Step, Failure> {
        let Ask { target, part, options, .. } = *ask;
        let Changed { new, stored, entry } = result;
        let kind = &target.kind;
        if deletes(&kind.strategy, new, stored) && !options.dry_run {
            return Ok(match self.remove(target, entry.modified()).await? {
                Removed::Done(revision) => {
                    self.release(target, new).await;
                    new.set_meta("resourceVersion", &revision.to_string());
                    let gone = shown_object(target, std::mem::take(new));
                    Step::Done(Answer::Object(gone))
                }
                Removed::Lost(now) => Step::Lost(now),
            });
        }
        let claim = match part {
            Part::Main => self.claim(target, new, Some(stored), options.dry_run).await?,
            Part::Status | Part::Other(_) | Part::Effect(_) => None,
        };
        let record = record_of!(self, target, new)?;
        if entry.is_record(&record) {
            return Ok(Step::Done(Answer::Entry(entry.clone())));
        }
        if options.dry_run {
            kind.check_record(&record)?;
            read_back!(self, target, new);
            new.set_meta("resourceVersion", &entry.modified().to_string());
            return Ok(Step::Done(Answer::Object(shown_object(target, std::mem::take(new)))));
        }
        let put = self.put_claimed(target, record, (entry.modified(), None), claim).await?;
        Ok(match put {
            Put::Done(entry) => Step::Done(Answer::Entry(entry)),
            Put::Lost(now) => Step::Lost(now),
            // Only creates have a guard.
            Put::Overtaken => Step::Lost(self.known(target)?),
        })
    }
}

/// The new and the stored object, both in the version that writes use.
struct Changed {
    new: Object,
    stored: Object,
    entry: Entry,
}

/// The parameters of an update, the same for every try.
struct Ask<'a> {
    permit: &'a Permit,
    target: &'a Target,
    part: Part,
    options: &'a WriteOptions,
    conversions: &'a Conversions,
}

impl<'a> Ask<'a> {
    fn write(&self, stored: &'a Object) -> Write<'a> {
        Write {
            permit: self.permit,
            target: self.target,
            operation: Operation::Update,
            subresource: self.part.name(),
            name: &self.target.name,
            dry_run: self.options.dry_run,
            old: Some(stored),
            options: Options::Write(self.options),
            own: None,
        }
    }
}

enum Step {
    Done(Answer),
    Lost(Option<Entry>),
}

/// Whether a try reached the store, so that its outcome is based on the newest object.
fn was_written(step: &Result<Step, Failure>, entry: &Entry, options: &WriteOptions) -> bool {
    match step {
        Ok(Step::Done(Answer::Entry(written))) => !written.is(entry),
        Ok(Step::Done(_)) => !options.dry_run,
        Ok(Step::Lost(_)) => true,
        // The outcome is unknown: a second try could apply the change twice.
        Err(failure) => failure.reason == Reason::ServerTimeout,
    }
}

/// Checks that the name in the body is the name in the URL.
pub(crate) fn check_name(target: &Target, obj: &Object) -> Result<(), Failure> {
    if obj.name().is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    if obj.name() != target.name {
        return Err(Status::bad_request(format!(
            "the name of the object ({}) does not match the name on the URL ({})",
            obj.name(),
            target.name
        )));
    }
    Ok(())
}

/// Parses the resourceVersion that the client sent; 0 if there is none.
fn sent_version(wished: &Object) -> Result<u64, Failure> {
    let text = wished.resource_version();
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        let why = format!("strconv.ParseUint: parsing {}: invalid syntax", quote(text));
        Status::new(Reason::Unknown, why)
    })
}

/// Checks that the resourceVersion that the client sent is that of the stored object.
fn check_version(
    target: &Target,
    part: Part,
    wished: &Object,
    entry: &Entry,
) -> Result<(), Failure> {
    let given = sent_version(wished)?;
    let may_be_absent = target.kind.strategy.unconditional_update || part == Part::Other("scale");
    if given == 0 && !may_be_absent {
        let path = Path::new("metadata");
        let mut errors = ErrorList::new();
        errors.push(FieldError::invalid(
            &path.field("resourceVersion"),
            0,
            "must be specified for an update",
        ));
        let gvr = target.gvr();
        return errors.into_result(&gvr.group, &gvr.resource, wished.name());
    }
    if given != 0 && Revision(given) != entry.modified() {
        return Err(Status::modified(target.gvr(), &target.name));
    }
    Ok(())
}

/// Checks that the uid that the client sent is that of the stored object; `stored` is empty if there is none.
pub fn check_uid(
    target: &Target,
    wished: &Object,
    stored: &str,
    dry_run: bool,
) -> Result<(), Failure> {
    let given = wished.uid();
    if given.is_empty() || given == stored {
        return Ok(());
    }
    let key = target.kind.store_key(&target.namespace, &target.name);
    let key = String::from_utf8_lossy(&key);
    // In a dry run upstream's message has the key without `/registry`.
    let key = key.strip_prefix("/registry").filter(|_| dry_run).unwrap_or(&key);
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {given}, UID in object meta: {stored}"
    );
    Err(Status::conflict(target.gvr(), &target.name, &why))
}

/// Restores the fields that this write may not change, and sets the fields that the server sets.
fn prepare(target: &Target, part: Part, new: &mut Object, old: &Object) {
    let strategy = &target.kind.strategy;
    match part {
        Part::Main if target.kind.has_status => preserve::member(new, old, "status"),
        Part::Status => {
            let status = new.root.remove("status");
            let metadata = new.root.remove("metadata");
            *new = old.clone();
            match status {
                Some(status) => new.root.insert("status", status),
                None => new.root.remove("status"),
            };
            if let Some(metadata) = metadata {
                new.root.insert("metadata", metadata);
            }
            preserve::metadata(new, old, strategy.status_metadata);
        }
        Part::Other(name) | Part::Effect(name) => {
            if let Some(rules) = strategy.subresource(name) {
                strategy.prepare_subresource(rules, new, old);
            }
        }
        Part::Main => {}
    }
    preserve::identity(new, old);
    match part {
        Part::Main => strategy.prepare_update(new, old),
        Part::Status => strategy.prepare_status(new, old),
        Part::Other(_) | Part::Effect(_) => {}
    }
    // Binding a pod is not a change of its spec by a client: the generation stays.
    if part != Part::Effect("binding") {
        strategy.next_generation(target.working(), new, old);
    }
    if part == Part::Main {
        (strategy.drop_after_generation)(new, old);
    }
}

/// Validates an update. Metadata errors are found twice, by the generic validation and by that of
/// the kind; clients of kube-apiserver see them twice too.
fn validate(
    registry: &Registry,
    target: &Target,
    part: Part,
    new: &Object,
    old: &Object,
) -> Result<(), Failure> {
    let kind = &target.kind;
    let strategy = &kind.strategy;
    let rule = names::name_is_path_segment;
    let mut errors = strategy::validate_metadata(new, kind.namespaced, rule);
    errors.extend(strategy::validate_metadata_update(new, old));
    let (checks, rules) = match part {
        Part::Main => (strategy.update_checks, strategy.validate),
        Part::Status => (strategy.status_checks, strategy.validate_status),
        Part::Other(name) | Part::Effect(name) => match strategy.subresource(name) {
            Some(rules) => (strategy.status_checks, rules.validate),
            None => {
                if target.kind.source == Source::Custom {
                    kind.validate_further(&target.version, new, Some(old), &mut errors);
                }
                return invalid(target, new, errors);
            }
        },
    };
    if let (Part::Status, Some(rule)) = (part, strategy.validate_status_in_namespace) {
        errors.extend(rule(new, old, &|| registry.labels_of(new.namespace())));
    }
    errors.extend(strategy.check(checks, rules, new, Some(old), kind.namespaced));
    if part == Part::Main {
        kind.validate_last(new, Some(old), &mut errors);
    }
    kind.validate_further(&target.version, new, Some(old), &mut errors);
    invalid(target, new, errors)
}

/// Whether the update removes the last finalizer of an object that is being deleted, so that it is deleted now.
fn deletes(strategy: &Strategy, new: &Object, old: &Object) -> bool {
    old.deletion_timestamp().is_some()
        && old.deletion_grace_period_seconds().unwrap_or(0) == 0
        && new.finalizers().next().is_none()
        && !(strategy.is_deletion_blocked)(new)
}
