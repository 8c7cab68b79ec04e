//! The verb update, and the retry loop of every change of a stored object.

use crate::conversion::{Conversions, convert_entry, decode_entry, encode_record, round_trip};
use crate::managed_fields::{FieldManager, restore_times};
use crate::options::WriteOptions;
use crate::preconditions::{check_uid, check_version, requested_version};
use crate::registry::{Deletion, Put, Registry};
use crate::target::{Answer, Target};
use crate::verbs::bodies::{NewObject, UpdateFn, check_namespace, for_target, invalid};
use crate::verbs::{RetryBudget, WriteResponse, check_body_fields};
use crate::write::{Options, Subresource, Write};
use crate::write_failure::WriteFailure;
use keelson_admission::{Operation, Stored};
use keelson_auth::{Permit, long_work};
use keelson_kinds::preserve;
use keelson_kinds::strategy::{self, Strategy};
use keelson_meta::{ErrorList, Failure, FieldError, Object, Status, Str, names, owner_references};
use keelson_records::Entry;
use keelson_resources::api_table::Source;
use keelson_schema::decode::Decoded;
use std::sync::Arc;
use std::time::Instant;

impl Registry {
    /// Replaces an object with the body of a request.
    pub async fn update(
        &self,
        permit: &Permit,
        target: &Target,
        subresource: Subresource,
        body: Decoded,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Failure> {
        target.assert_covered(permit, "update", subresource.name());
        let warnings = check_body_fields(target.schema(), &body, options.field_validation)?;
        let mut object = body.object;
        let checked =
            check_namespace(target, &mut object).and_then(|()| check_name(target, &object));
        if let Err(failure) = checked {
            return Err(failure.with_warnings(warnings));
        }
        let make = |live: Option<&Object>| {
            if live.is_some() || target.kind.strategy.create_on_update {
                let checked =
                    check_uid(target, &object, live.map_or("", Object::uid), options.dry_run);
                let deduped = || owner_references::dedup(&mut object.clone());
                checked.map_err(|why| why.with_warnings([warnings.clone(), deduped()].concat()))?;
            }
            Ok(NewObject { object: object.clone(), managed: false, warnings: warnings.clone() })
        };
        self.change(permit, target, subresource, &make, options).await
    }

    /// Updates an object, or one subresource of it. `make` is called again when another write came
    /// first.
    pub async fn modify(
        &self,
        permit: &Permit,
        target: &Target,
        subresource: Subresource,
        make: UpdateFn<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Failure> {
        target.assert_covered(permit, "update", subresource.name());
        self.change(permit, target, subresource, make, options).await
    }

    /// Updates an object, and tries again when another write came between read and write.
    pub(crate) async fn change(
        &self,
        permit: &Permit,
        target: &Target,
        subresource: Subresource,
        make: UpdateFn<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Failure> {
        let conversions = Conversions::default();
        self.change_converting(permit, target, subresource, make, &conversions, options).await
    }

    /// Like [`Registry::change`], for a change that may need conversions by a webhook.
    pub(crate) async fn change_converting(
        &self,
        permit: &Permit,
        target: &Target,
        subresource: Subresource,
        make: UpdateFn<'_>,
        conversions: &Conversions,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Failure> {
        let update = Update { permit, target, subresource, options, conversions };
        // The cache of this process nearly always has the newest object, and a successful write
        // proves it. Any other result counts only after the store was asked for its newest
        // revision.
        self.wait_for_known_of(&target.kind).await?;
        // An object that cannot be read here may have been repaired by another server.
        let mut stored = self.entry(target).unwrap_or_default();
        let mut is_newest = false;
        let mut retries = RetryBudget::new(Instant::now());
        loop {
            retries.count_try(Instant::now())?;
            let Some(entry) = stored else {
                if is_newest {
                    return self.create_instead(permit, target, subresource, make, options).await;
                }
                self.wait_for_latest_of(&target.kind).await?;
                (stored, is_newest) = (self.entry(target)?, true);
                continue;
            };
            let mut warnings = vec![];
            let result = self.change_once(&update, make, &entry, &mut warnings).await;
            if !is_newest && !reached_store(&result, &entry, options) {
                self.wait_for_latest_of(&target.kind).await?;
                is_newest = true;
                let now = self.entry(target)?;
                if now.as_ref().is_none_or(|now| now.modified() != entry.modified()) {
                    stored = now;
                    continue;
                }
            }
            match result {
                Ok(Outcome::Done(answer)) => {
                    let answer = match answer {
                        Answer::Entry(entry) => Answer::Entry(convert_entry!(self, target, entry)?),
                        answer => answer,
                    };
                    return Ok(WriteResponse { answer, warnings, created: false });
                }
                Ok(Outcome::Conflict(now)) => (stored, is_newest) = (now, true),
                Err(failure) => return Err(Failure::from(failure).with_warnings(warnings)),
            }
        }
    }

    /// Creates the object when it does not exist, if the kind or the change allows that.
    async fn create_instead(
        &self,
        permit: &Permit,
        target: &Target,
        subresource: Subresource,
        make: UpdateFn<'_>,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Failure> {
        let updated = make(None);
        let creates = matches!(&updated, Ok(updated) if updated.managed)
            || target.kind.strategy.create_on_update;
        if !creates || subresource != Subresource::None {
            return Err(match updated {
                Ok(updated) => target.not_found().with_warnings(updated.warnings),
                Err(failure) if failure.code != 404 => failure,
                Err(_) => target.not_found(),
            });
        }
        let mut updated = updated?;
        target.check_name()?;
        requested_version(&updated.object)?;
        // A write that creates ignores the client's resourceVersion.
        if !options.dry_run {
            updated.object.set_meta("resourceVersion", "");
        }
        self.create_object(permit, target, updated, options).await
    }

    /// Runs one try: the steps of every update, in order.
    async fn change_once(
        &self,
        update: &Update<'_>,
        make: UpdateFn<'_>,
        entry: &Entry,
        warnings: &mut Vec<Str>,
    ) -> Result<Outcome, WriteFailure> {
        let Update { target, subresource, options, conversions, .. } = *update;
        let kind = &target.kind;
        let stored = decode_entry!(self, target, entry)?;
        let converted = (target.schema().gvk != target.working().gvk)
            .then(|| kind.in_version(stored.clone(), target.schema()));
        let live = converted.as_ref().unwrap_or(&stored);
        let NewObject { mut object, managed, warnings: new_warnings } =
            match kind.has_conversion_webhook {
                false => make(Some(live))?,
                true => {
                    let updated = self.with_conversions(kind, conversions, || make(Some(live)));
                    Box::pin(updated).await??
                }
            };
        warnings.extend(new_warnings);
        warnings.extend(owner_references::dedup(&mut object));
        check_version(target, &object, entry)?;
        kind.fill_defaults(target.schema(), &mut object, self.clock.now())?;
        match kind.has_conversion_webhook {
            _ if managed => {}
            false => kind.set_managers(&mut object, target.schema(), |object| {
                let now = self.clock.now();
                FieldManager::of(target, subresource).update(live, object, options, now);
            }),
            true => object = Box::pin(self.with_managed_fields(update, live, object)).await?,
        }
        let mut new = kind.to_working(object, target.schema())?;
        let write = update.write(&stored);
        let configs = self.admit_subresource(&write, subresource, &mut new, warnings).await?;
        // Plug-ins see the resourceVersion that the client sent.
        new.set_meta("resourceVersion", &entry.modified().to_string());
        if let Some(guard) = &self.hooks_of(kind).guard {
            guard.check(self, &write, &new).await?;
        }
        prepare(target, subresource, &mut new, &stored);
        (kind.strategy.record_time)(&mut new, &stored, &self.clock.now().text());
        restore_times(&stored, &mut new);
        let verdict = self.validate_change(update, &new, &stored).await?;
        warnings.extend(verdict.warnings);
        if let Err(invalid) = verdict.result {
            if subresource != Subresource::None {
                return Err(invalid.into());
            }
            let refused = self.refused(target, &new, Some(&stored), options.dry_run, invalid);
            return Err(Box::pin(refused).await.into());
        }
        let warning_count = warnings.len();
        // Upstream's strategies of subresources return no warnings.
        if subresource == Subresource::None {
            warnings.extend(kind.strategy.warnings(&new, Some(&stored)));
        }
        self.validate_subresource(&write, subresource, &configs, &new, warnings).await?;
        let objects = Objects { new, stored, entry: entry.clone() };
        let result = self.store_objects(update, objects).await;
        if matches!(result, Err(WriteFailure::NotAllocated(_))) {
            warnings.truncate(warning_count);
        }
        result
    }

    async fn store_objects(
        &self,
        update: &Update<'_>,
        mut objects: Objects,
    ) -> Result<Outcome, WriteFailure> {
        let kind = &update.target.kind;
        let is_multi_key =
            self.has_claims(kind) || self.has_quotas(&update.write(&objects.stored), &objects.new);
        if !is_multi_key {
            return self.put_change(update, &mut objects).await;
        }
        // Boxed because it is rare: the future of every write stays small.
        Box::pin(self.store_multi_key(update, objects)).await
    }

    /// Validates an object that is being changed.
    async fn validate_change(
        &self,
        update: &Update<'_>,
        new: &Object,
        old: &Object,
    ) -> Result<Verdict, Failure> {
        let Update { permit, target, subresource, .. } = *update;
        let rule = target.kind.strategy.validate_status_in_namespace;
        let in_namespace = || match rule.filter(|_| subresource == Subresource::Status) {
            Some(rule) => rule(new, old, &|| self.labels_of(new.namespace())),
            None => ErrorList::new(),
        };
        let brief = || validate(in_namespace(), target, subresource, new, old);
        let whole = || {
            let errors = in_namespace();
            let target = target.clone();
            let new = new.clone();
            let old = old.clone();
            move || validate(errors, &target, subresource, &new, &old)
        };
        long_work::run(&permit.user().name, brief, whole).await
    }

    /// Stores a change that has claims or quotas. The write completes even when the request is
    /// cancelled.
    async fn store_multi_key(
        &self,
        update: &Update<'_>,
        objects: Objects,
    ) -> Result<Outcome, WriteFailure> {
        let Update { permit, target, subresource, options, .. } = *update;
        if options.dry_run {
            return self.store_change(update, objects).await;
        }
        let permit = permit.clone();
        let target = target.clone();
        let options = options.clone();
        let store = |registry: Arc<Registry>| async move {
            let conversions = &Conversions::default();
            let permit = &permit;
            let target = &target;
            let options = &options;
            let update = Update { permit, target, subresource, options, conversions };
            registry.store_change(&update, objects).await
        };
        self.run_to_completion(store).await
    }

    /// Returns the object with managedFields updated, for a kind with a conversion webhook.
    async fn with_managed_fields(
        &self,
        update: &Update<'_>,
        live: &Object,
        object: Object,
    ) -> Result<Object, Failure> {
        let Update { target, subresource, options, conversions, .. } = *update;
        let manager = FieldManager::converting(target, subresource, conversions);
        let work = || {
            let mut object = object.clone();
            manager.update(live, &mut object, options, self.clock.now());
            object
        };
        self.with_conversions(&target.kind, conversions, work).await
    }

    async fn store_change(
        &self,
        update: &Update<'_>,
        mut objects: Objects,
    ) -> Result<Outcome, WriteFailure> {
        let charge = self.charge(&update.write(&objects.stored), &objects.new).await?;
        let result = self.put_change(update, &mut objects).await;
        if !matches!(result, Ok(Outcome::Done(_))) {
            self.refund(charge).await;
        }
        result
    }

    async fn put_change(
        &self,
        update: &Update<'_>,
        objects: &mut Objects,
    ) -> Result<Outcome, WriteFailure> {
        let Update { target, subresource, options, .. } = *update;
        let Objects { new, stored, entry } = objects;
        let kind = &target.kind;
        if completes_deletion(&kind.strategy, new, stored) && !options.dry_run {
            return Ok(match self.remove(target, entry.modified()).await? {
                Deletion::Done(_) => {
                    self.release(target, new).await;
                    // The write itself was not stored: upstream answers with the version before it.
                    new.set_meta("resourceVersion", &entry.modified().to_string());
                    let deleted = for_target(target, std::mem::take(new));
                    Outcome::Done(Answer::Object(deleted))
                }
                Deletion::Conflict(now) => Outcome::Conflict(now),
            });
        }
        let claim = match subresource {
            Subresource::None => self.claim(target, new, Some(stored), options.dry_run).await?,
            Subresource::Status | Subresource::Other(_) | Subresource::Action(_) => None,
        };
        if !options.dry_run {
            // As upstream, it is not stored, but a dry run shows it.
            new.metadata_mut().remove("selfLink");
        }
        let record = encode_record!(self, target, new)?;
        if entry.has_content_of(&record) && (options.dry_run || !self.is_stale(target).await?) {
            return Ok(Outcome::Done(Answer::Entry(entry.clone())));
        }
        if options.dry_run {
            kind.check_record(&record)?;
            round_trip!(self, target, new);
            new.set_meta("resourceVersion", &entry.modified().to_string());
            return Ok(Outcome::Done(Answer::Object(for_target(target, std::mem::take(new)))));
        }
        let put = self.put_claimed(target, record, entry.modified(), None, claim).await?;
        Ok(match put {
            Put::Stored(entry) => Outcome::Done(Answer::Entry(entry)),
            Put::Conflict(now) => Outcome::Conflict(now),
            // Only creates have a guard.
            Put::NamespaceChanged => Outcome::Conflict(self.entry(target)?),
        })
    }
}

/// The new and the stored object, both in the version that writes use.
struct Objects {
    new: Object,
    stored: Object,
    entry: Entry,
}

/// The parameters of an update, the same for every try.
struct Update<'a> {
    permit: &'a Permit,
    target: &'a Target,
    subresource: Subresource,
    options: &'a WriteOptions,
    conversions: &'a Conversions,
}

impl<'a> Update<'a> {
    fn write(&self, stored: &'a Object) -> Write<'a> {
        Write {
            permit: self.permit,
            target: self.target,
            operation: Operation::Update,
            subresource: self.subresource.name(),
            name: &self.target.name,
            dry_run: self.options.dry_run,
            old: Some(stored),
            options: Options::Write(self.options),
            own: None,
        }
    }
}

enum Outcome {
    Done(Answer),
    Conflict(Option<Entry>),
}

/// Whether a try reached the store, so that its result is based on the newest object.
fn reached_store(
    result: &Result<Outcome, WriteFailure>,
    entry: &Entry,
    options: &WriteOptions,
) -> bool {
    match result {
        Ok(Outcome::Done(Answer::Entry(written))) => !written.ptr_eq(entry),
        Ok(Outcome::Done(_)) => !options.dry_run,
        Ok(Outcome::Conflict(_)) => true,
        // A second try could apply the change twice.
        Err(WriteFailure::Unknown(_)) => true,
        Err(_) => false,
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

/// Restores the fields that this write may not change, and sets the fields that the server sets.
fn prepare(target: &Target, subresource: Subresource, new: &mut Object, old: &Object) {
    let strategy = &target.kind.strategy;
    match subresource {
        Subresource::None if target.kind.has_status => preserve::member(new, old, "status"),
        Subresource::Status => {
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
        Subresource::Other(name) | Subresource::Action(name) => {
            if let Some(rules) = strategy.subresource(name) {
                strategy.prepare_subresource(rules, new, old);
            }
        }
        Subresource::None => {}
    }
    preserve::identity(new, old);
    match subresource {
        Subresource::None => strategy.prepare_update(new, old),
        Subresource::Status => strategy.prepare_status(new, old),
        Subresource::Other(_) | Subresource::Action(_) => {}
    }
    match subresource {
        Subresource::None | Subresource::Other(_) => {
            strategy.next_generation(target.working(), new, old);
        }
        // Annotations are no reason for a new generation here.
        Subresource::Status => strategy::keep_generation(new, old),
        // An action, such as binding a pod, is no change of its spec by a client.
        Subresource::Action(_) => {}
    }
    if subresource == Subresource::None {
        (strategy.drop_after_generation)(new, old);
    }
}

/// What the validation of an update found.
struct Verdict {
    warnings: Vec<Str>,
    result: Result<(), Failure>,
}

impl Verdict {
    /// `ratcheted`: errors of values that the update leaves as they were.
    fn of(target: &Target, new: &Object, errors: ErrorList, ratcheted: &ErrorList) -> Verdict {
        let warnings = ratcheted.iter().map(|error| Str::new(error.to_string())).collect();
        Verdict { warnings, result: invalid(target, new, errors) }
    }
}

/// Validates an update. Metadata errors are found twice, by the generic validation and by that of
/// the kind; clients of kube-apiserver see them twice too.
/// `in_namespace`: the errors that depend on the namespace.
fn validate(
    in_namespace: ErrorList,
    target: &Target,
    subresource: Subresource,
    new: &Object,
    old: &Object,
) -> Verdict {
    let kind = &target.kind;
    let strategy = &kind.strategy;
    let rule = names::name_is_path_segment;
    let mut errors = strategy::validate_metadata(new, kind.namespaced, rule);
    errors.extend(strategy::validate_metadata_update(new, old));
    let (checks, rules) = match subresource {
        Subresource::None => (strategy.update_checks, strategy.validate),
        Subresource::Status => (strategy.status_checks, strategy.validate_status),
        Subresource::Other(name) | Subresource::Action(name) => match strategy.subresource(name) {
            Some(rules) => (strategy.status_checks, rules.validate),
            None => {
                let ratcheted = match target.kind.source {
                    Source::Custom => {
                        kind.validate_custom(&target.version, new, Some(old), &mut errors)
                    }
                    Source::BuiltIn => ErrorList::new(),
                };
                return Verdict::of(target, new, errors, &ratcheted);
            }
        },
    };
    errors.extend(in_namespace);
    errors.extend(strategy.check(checks, rules, new, Some(old), kind.namespaced));
    if subresource == Subresource::None {
        kind.validate_last(new, Some(old), &mut errors);
    }
    let mut own = ErrorList::new();
    let ratcheted = kind.validate_custom(&target.version, new, Some(old), &mut own);
    match subresource {
        Subresource::Status => own.into_iter().for_each(|error| {
            errors.push(named_within_status(error));
        }),
        _ => errors.extend(own),
    }
    Verdict::of(target, new, errors, &ratcheted)
}

/// Names the place in a message of the schema of a custom resource as upstream does for a status,
/// which it validates by itself: `text in body`, not `status.text in body`. The field of the error
/// stays whole.
fn named_within_status(mut error: FieldError) -> FieldError {
    if let Some(rest) = error.detail.strip_prefix("status")
        && let Some((place, _)) = rest.split_once(" in body ")
        && !place.contains(' ')
    {
        error.detail = rest.strip_prefix('.').unwrap_or(rest).to_owned();
    }
    error
}

/// Whether the update removes the last finalizer of an object that is being deleted, so that it is
/// deleted now.
fn completes_deletion(strategy: &Strategy, new: &Object, old: &Object) -> bool {
    old.deletion_timestamp().is_some()
        && old.deletion_grace_period_seconds().unwrap_or(0) == 0
        && new.finalizers().next().is_none()
        && !(strategy.is_deletion_blocked)(new)
}
