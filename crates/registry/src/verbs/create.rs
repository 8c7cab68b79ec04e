//! The verb create.

use crate::admission::AdmissionConfigs;
use crate::clock;
use crate::conversion::{convert_entry, encode_record, round_trip};
use crate::managed_fields::record_create;
use crate::options::WriteOptions;
use crate::registry::{Put, Registry};
use crate::target::{Answer, Target};
use crate::verbs::RetryBudget;
use crate::verbs::bodies::{NewObject, check_namespace, for_target, invalid};
use crate::verbs::{WriteResponse, check_body_fields};
use crate::write::{Options, Write};
use crate::write_failure::WriteFailure;
use keelson_admission::{Operation, Stored};
use keelson_auth::{Permit, long_work};
use keelson_kinds::strategy::{self, Check};
use keelson_meta::random_names::generated_name;
use keelson_meta::{
    ErrorList, Failure, Map, Object, Overgrown, Reason, Status, Str, Value, names,
    owner_references, value,
};
use keelson_records::Entry;
use keelson_resources::api_table::Source;
use keelson_schema::decode::Decoded;
use keelson_store::{Compare, Revision};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

const GENERATE_TRIES_MAX: usize = 8;
const LABELS: &[&str] = &["metadata", "labels"];
const TEMPLATE_LABELS: &[&str] = &["spec", "template", "metadata", "labels"];

/// Refuses the resourceVersion of an object that a client creates. Upstream's store does it, so
/// other faults come first; an update that creates the object may have one.
fn check_no_revision(permit: &Permit, obj: &Object) -> Result<(), Failure> {
    let is_create = permit.attributes().is_some_and(|given| given.verb == "create");
    if is_create && obj.resource_version().parse::<u64>().is_ok_and(|version| version != 0) {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(Status::new(Reason::Unknown, why));
    }
    Ok(())
}

impl Registry {
    /// Creates an object from the body of a request.
    pub async fn create(
        &self,
        permit: &Permit,
        target: &Target,
        body: Decoded,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Failure> {
        target.assert_covered(permit, "create", "");
        let warnings = check_body_fields(target.schema(), &body, options.field_validation)?;
        if target.kind.is_terminating.load(Ordering::Relaxed) {
            let why = "create not allowed while custom resource definition is terminating";
            let refused = Status::forbidden(target.gvr(), body.object.name(), why);
            return Err(refused.with_warnings(warnings));
        }
        let mut obj = body.object;
        if let Err(failure) = check_namespace(target, &mut obj) {
            return Err(failure.with_warnings(warnings));
        }
        for name in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
            obj.metadata_mut().remove(name);
        }
        let input = NewObject { object: obj, managed: false, warnings };
        self.create_object(permit, target, input, options).await
    }

    /// Creates an object that does not come from the body of a request.
    pub async fn add(
        &self,
        permit: &Permit,
        target: &Target,
        object: Object,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Failure> {
        target.assert_covered(permit, "create", "");
        let input = NewObject { object, managed: false, warnings: vec![] };
        self.create_object(permit, target, input, options).await
    }

    /// Creates an object of the server itself, with its status, unless one of that name exists.
    pub async fn create_if_absent(
        &self,
        permit: &Permit,
        target: &Target,
        value: Value,
        field_manager: &'static str,
    ) -> Result<(), Failure> {
        if self.objects(&target.kind).get(&target.key()).is_some() {
            return Ok(());
        }
        let mut object = Object::from_value(value).unwrap_or_default();
        object.set_gvk(&target.schema().gvk);
        let field_manager = field_manager.into();
        let options = WriteOptions { field_manager, keep_status: true, ..Default::default() };
        match self.add(permit, target, object, &options).await {
            // Another writer created it first.
            Err(status) if status.code == 409 => Ok(()),
            result => result.map(drop),
        }
    }

    /// Creates the namespace of a new object (NamespaceAutoProvision).
    async fn provision_namespace(&self, name: &str) -> Result<(), Failure> {
        let target = self.target("", "namespaces", "", name);
        if name.is_empty() || self.objects(&target.kind).get(name).is_some() {
            return Ok(());
        }
        self.wait_for_latest_of(&target.kind).await?;
        let namespace = value!({"metadata": {"name": (Str::new(name))}});
        let permit = Permit::internal("system:apiserver");
        self.create_if_absent(&permit, &target, namespace, "kube-apiserver").await?;
        self.wait_for_latest_of(&target.kind).await
    }

    /// Admits, validates and stores a new object, which is in the version of the target.
    pub(crate) async fn create_object(
        &self,
        permit: &Permit,
        target: &Target,
        input: NewObject,
        options: &WriteOptions,
    ) -> Result<WriteResponse, Failure> {
        let mut warnings = vec![];
        match self.admit_and_store(permit, target, input, options, &mut warnings).await {
            Ok(answer) => {
                let answer = match answer {
                    Answer::Entry(entry) => Answer::Entry(convert_entry!(self, target, entry)?),
                    answer => answer,
                };
                Ok(WriteResponse { answer, warnings, created: true })
            }
            Err(failure) => Err(failure.with_warnings(warnings)),
        }
    }

    async fn admit_and_store(
        &self,
        permit: &Permit,
        target: &Target,
        input: NewObject,
        options: &WriteOptions,
        warnings: &mut Vec<Str>,
    ) -> Result<Answer, Failure> {
        let kind = &target.kind;
        let NewObject { object: mut obj, managed, warnings: new_warnings } = input;
        warnings.extend(new_warnings);
        let copy_labels = kind.strategy.labels_from_template && labels_at(&obj, LABELS).is_none();
        kind.fill_defaults(target.schema(), &mut obj, self.clock.now())?;
        warnings.extend(owner_references::dedup(&mut obj));
        if !managed {
            kind.set_managers(&mut obj, target.schema(), |obj| {
                record_create(target, obj, &options.field_manager, self.clock.now());
            });
        }
        let mut obj = kind.to_working(obj, target.schema())?;
        let name = Str::new(obj.name());
        let new = Creation { permit, target, name: &name, options, copy_labels };
        let warning_count = warnings.len();
        let mut retries = RetryBudget::new(Instant::now());
        loop {
            retries.count_try(Instant::now())?;
            if self.provisions_namespaces && !options.dry_run {
                Box::pin(self.provision_namespace(&target.namespace)).await?;
            }
            // Read before admission runs, so that what the plug-ins see is at least as new.
            let guard = self.namespace_guard(target).await?;
            warnings.truncate(warning_count);
            let configs = self.admit(&new.write(), &mut obj, warnings).await?;
            if configs.is_some() {
                // A webhook or policy may have changed the namespace.
                check_namespace(target, &mut obj)?;
            }
            if let Some(guard) = &self.hooks_of(kind).guard {
                guard.check(self, &new.write(), &obj).await?;
            }
            if let Some(answer) =
                self.name_and_store(&new, &mut obj, guard, &configs, warnings).await?
            {
                return Ok(answer);
            }
            // The namespace has changed: it may be terminating, and plug-ins read its labels.
            self.wait_for_latest_of(&self.namespaces()).await?;
        }
    }

    /// Validates an object that is being created.
    async fn validate_new(&self, new: &Creation<'_>, obj: &Object) -> Result<(), Failure> {
        let target = new.target;
        let in_namespace = || match target.kind.strategy.validate_in_namespace {
            Some(rule) => rule(obj, &|| self.labels_of(obj.namespace())),
            None => ErrorList::new(),
        };
        let brief = || validate(in_namespace(), target, obj);
        let whole = || {
            let errors = in_namespace();
            let target = target.clone();
            let obj = obj.clone();
            move || validate(errors, &target, &obj)
        };
        long_work::run(&new.permit.user().name, brief, whole).await?
    }

    /// Prepares, validates and stores an object, and tries other generated names while the name is
    /// taken. Returns `None` when the namespace has changed since admission.
    async fn name_and_store(
        &self,
        new: &Creation<'_>,
        obj: &mut Object,
        mut guard: Option<Compare>,
        configs: &AdmissionConfigs,
        warnings: &mut Vec<Str>,
    ) -> Result<Option<Answer>, Failure> {
        if new.target.kind.strategy.validate_in_namespace.is_some() {
            // The rule must see every label write that this server has acknowledged.
            self.wait_for_known_of(&self.namespaces()).await?;
        }
        let warning_count = warnings.len();
        let base = obj.generate_name().to_owned();
        let generates = new.name.is_empty() && obj.name().is_empty() && !base.is_empty();
        for _ in 0..GENERATE_TRIES_MAX {
            if generates {
                let name = generated_name(self.clock.random(), &base);
                obj.set_meta("name", &name);
            }
            // Drop the warnings of the previous try.
            warnings.truncate(warning_count);
            warnings.extend((new.target.kind.strategy.prepare_warnings)(obj));
            prepare(self, new, obj);
            if let Err(invalid) = self.validate_new(new, obj).await {
                let dry_run = new.options.dry_run;
                let refused = self.refused(new.target, obj, None, dry_run, invalid);
                return Err(Box::pin(refused).await);
            }
            warnings.extend(new.target.kind.strategy.warnings(obj, None));
            self.authorize_create(new.permit).await?;
            self.validate_admitted(&new.write(), configs, obj, warnings).await?;
            let target = new.target.named(obj.namespace(), obj.name());
            // Only a generated name leads to another try.
            let guard = if generates { guard.clone() } else { guard.take() };
            let stored = self.store_new(&Creation { target: &target, ..*new }, obj, guard).await;
            if matches!(stored, Err(WriteFailure::NotAllocated(_))) {
                warnings.truncate(warning_count);
            }
            match stored? {
                CreateOutcome::Stored(answer) => return Ok(Some(answer)),
                CreateOutcome::NamespaceChanged => return Ok(None),
                CreateOutcome::NameTaken { .. } if generates => {}
                CreateOutcome::NameTaken { is_terminating } => {
                    let mut status = if base.is_empty() {
                        Status::already_exists(target.gvr(), obj.name())
                    } else {
                        generated_name_taken(&target, obj.name())
                    };
                    if is_terminating {
                        status.message = format!("object is being deleted: {}", status.message);
                    }
                    return Err(status);
                }
            }
        }
        Err(generated_name_taken(new.target, obj.name()))
    }

    /// Authorizes verb create for an update or apply that creates the object.
    async fn authorize_create(&self, permit: &Permit) -> Result<(), Failure> {
        match permit.attributes() {
            Some(given) if given.verb != "create" => {
                Box::pin(self.options.authorizer.authorize_verb(permit, "create")).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Stores an object if its name is free. With claims or quotas, a cancelled request does not
    /// stop it.
    async fn store_new(
        &self,
        new: &Creation<'_>,
        obj: &mut Object,
        guard: Option<Compare>,
    ) -> Result<CreateOutcome, WriteFailure> {
        if new.options.dry_run {
            // Boxed because it is rare: the future of every write stays small.
            return Box::pin(self.dry_run_create(new, obj)).await;
        }
        if !self.has_claims(&new.target.kind) && !self.has_quotas(&new.write(), obj) {
            check_no_revision(new.permit, obj)?;
            set_stored_defaults(new.target, obj)?;
            let record = encode_record!(self, new.target, obj)?;
            let put = self.put(new.target, record, Revision(0), guard).await?;
            return create_outcome(new.target, put);
        }
        let permit = new.permit.clone();
        let target = new.target.clone();
        let options = new.options.clone();
        let name = Str::new(new.name);
        let mut obj = obj.clone();
        let copy_labels = new.copy_labels;
        let store = |registry: Arc<Registry>| async move {
            let permit = &permit;
            let target = &target;
            let name = &name;
            let options = &options;
            let new = Creation { permit, target, name, options, copy_labels };
            registry.charge_and_put(&new, &mut obj, guard).await
        };
        Box::pin(self.run_to_completion(store)).await
    }

    async fn charge_and_put(
        &self,
        new: &Creation<'_>,
        obj: &mut Object,
        guard: Option<Compare>,
    ) -> Result<CreateOutcome, WriteFailure> {
        let target = new.target;
        let charge = self.charge(&new.write(), obj).await?;
        let put = self.claim_and_put(new, obj, guard).await;
        if !matches!(put, Ok(Put::Stored(_))) {
            self.refund(charge).await;
        }
        create_outcome(target, put?)
    }

    async fn claim_and_put(
        &self,
        new: &Creation<'_>,
        obj: &mut Object,
        guard: Option<Compare>,
    ) -> Result<Put, WriteFailure> {
        let target = new.target;
        let claim = self.claim(target, obj, None, false).await?;
        check_no_revision(new.permit, obj)?;
        set_stored_defaults(target, obj)?;
        let record = encode_record!(self, target, obj)?;
        self.put_claimed(target, record, Revision(0), guard, claim).await
    }

    /// Checks what a dry run can check without storing the object.
    async fn dry_run_create(
        &self,
        new: &Creation<'_>,
        obj: &mut Object,
    ) -> Result<CreateOutcome, WriteFailure> {
        let Creation { target, .. } = *new;
        let kind = &target.kind;
        let version = obj.resource_version().to_owned();
        self.charge(&new.write(), obj).await?;
        self.claim(target, obj, None, true).await?;
        self.wait_for_latest_of(kind).await?;
        if let Some(known) = self.entry(target)? {
            return name_taken_outcome(target, Some(known));
        }
        kind.check_record(&encode_record!(self, target, obj)?)?;
        round_trip!(self, target, obj);
        // The client's resourceVersion is ignored, but the answer repeats it.
        obj.set_meta("resourceVersion", &version);
        let answer = for_target(target, obj.clone());
        Ok(CreateOutcome::Stored(Answer::Object(answer)))
    }
}

/// Sets the defaults of a custom resource again, as upstream does when it decodes what it has
/// stored.
fn set_stored_defaults(target: &Target, obj: &mut Object) -> Result<(), Overgrown> {
    match target.kind.source {
        Source::Custom => keelson_schema::default::fill(target.schema(), obj),
        Source::BuiltIn => Ok(()),
    }
}

/// The parameters of a create, the same for every try.
#[derive(Clone, Copy)]
struct Creation<'a> {
    permit: &'a Permit,
    target: &'a Target,
    /// The name that the client gave, or empty.
    name: &'a str,
    options: &'a WriteOptions,
    /// See [`keelson_kinds::strategy::Strategy::labels_from_template`].
    copy_labels: bool,
}

impl<'a> Creation<'a> {
    fn write(&self) -> Write<'a> {
        Write {
            permit: self.permit,
            target: self.target,
            operation: Operation::Create,
            subresource: "",
            name: self.name,
            dry_run: self.options.dry_run,
            old: None,
            options: Options::Write(self.options),
            own: None,
        }
    }
}

/// The outcome of storing a new object.
enum CreateOutcome {
    /// The object is stored, or would be without the dry run.
    Stored(Answer),
    /// An object of this name exists; `is_terminating`: it is being deleted.
    NameTaken { is_terminating: bool },
    /// The namespace has changed since admission.
    NamespaceChanged,
}

fn create_outcome(target: &Target, put: Put) -> Result<CreateOutcome, WriteFailure> {
    match put {
        Put::Stored(entry) => Ok(CreateOutcome::Stored(Answer::Entry(entry))),
        Put::NamespaceChanged => Ok(CreateOutcome::NamespaceChanged),
        Put::Conflict(known) => name_taken_outcome(target, known),
    }
}

fn name_taken_outcome(
    target: &Target,
    known: Option<Entry>,
) -> Result<CreateOutcome, WriteFailure> {
    // Any version will do for the deletionTimestamp.
    let known = known
        .map(|entry| match target.kind.has_conversion_webhook {
            false => target.kind.decode(&entry),
            true => target.kind.decode_as_stored(&entry).map(|(known, _)| known),
        })
        .transpose()?;
    Ok(CreateOutcome::NameTaken {
        is_terminating: known.is_some_and(|known| known.deletion_timestamp().is_some()),
    })
}

/// Sets the fields that the server sets on create.
fn prepare(registry: &Registry, new: &Creation<'_>, obj: &mut Object) {
    let permit = new.permit;
    let target = new.target;
    let strategy = &target.kind.strategy;
    let metadata = obj.metadata_mut();
    metadata.insert("creationTimestamp", registry.clock.now().text());
    metadata.insert("uid", clock::uid(registry.clock.as_ref()));
    if target.name.is_empty() || !new.options.dry_run {
        // As upstream, it is not stored, but a dry run of a PUT or PATCH shows it.
        metadata.remove("selfLink");
    }
    if target.kind.has_status && !strategy.status_on_create && !new.options.keep_status {
        obj.root.remove("status");
    }
    let named = !obj.name().is_empty() || !obj.generate_name().is_empty();
    if !named && strategy.generates_missing_name {
        obj.set_meta("name", &clock::uid(registry.clock.as_ref()));
    }
    strategy.first_generation(obj);
    // Admission may have changed one of the two label sets.
    let labels = labels_at(obj, LABELS).filter(|_| new.copy_labels);
    let copy_labels = labels.is_some_and(|labels| Some(labels) == labels_at(obj, TEMPLATE_LABELS));
    strategy.prepare_create(obj);
    if let Some(labels) = labels_at(obj, TEMPLATE_LABELS).filter(|_| copy_labels).cloned() {
        obj.metadata_mut().insert("labels", labels);
    }
    (strategy.record_user)(obj, permit.user());
}

/// Returns the labels at a path; `None` if there are none.
fn labels_at<'a>(obj: &'a Object, path: &[&str]) -> Option<&'a Map> {
    obj.at(path).and_then(Value::as_object).filter(|labels| !labels.is_empty())
}

/// Validates an object. `errors`: those that depend on its namespace.
fn validate(mut errors: ErrorList, target: &Target, obj: &Object) -> Result<(), Failure> {
    let kind = &target.kind;
    let strategy = &kind.strategy;
    let namespaced = kind.namespaced;
    let checks = strategy.create_checks;
    errors.extend(strategy.check(checks, strategy.validate, obj, None, namespaced));
    kind.validate_last(obj, None, &mut errors);
    // Only an update can leave a value as it was.
    let _ = kind.validate_custom(&target.version, obj, None, &mut errors);
    invalid(target, obj, errors)?;
    let rule = names::name_is_path_segment;
    let fits = rule(obj.name(), false).is_empty() && rule(obj.generate_name(), true).is_empty();
    if checks.contains(&Check::Metadata) && fits {
        return Ok(());
    }
    // A kind that checks its metadata itself checks at least what all kinds check, except for
    // names.
    invalid(target, obj, strategy::validate_metadata(obj, namespaced, rule))
}

/// Returns 409 for a generated name after all tries.
fn generated_name_taken(target: &Target, name: &str) -> Failure {
    let mut status = Status::already_exists(target.gvr(), name);
    status.message = format!(
        "{}, the server was not able to generate a unique name for the object",
        status.message
    );
    if let Some(details) = &mut status.details {
        details.retry_after_seconds = 1;
    }
    status
}
