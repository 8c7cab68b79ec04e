//! The verb create.

use crate::admission::Passes;
use crate::api_table::Source;
use crate::conversion::{read_back, record_of, shown};
use crate::kind::{Answer, Target};
use crate::options::WriteOptions;
use crate::owners;
use crate::registry::{Put, Registry};
use crate::stamp;
use crate::verbs::Tries;
use crate::verbs::bodies::{Updated, check_namespace, invalid, is_refused_claim, shown_object};
use crate::verbs::{Written, check_body_fields};
use crate::write::{Options, Write};
use keelson_admission::{Operation, Stored};
use keelson_auth::Permit;
use keelson_cache::Entry;
use keelson_kinds::strategy::{self, Check};
use keelson_meta::random_names::generated_name;
use keelson_meta::{
    ErrorList, Failure, Map, Object, Reason, Status, Str, Value, names, owner_references, value,
};
use keelson_schema::decode::Decoded;
use keelson_store::{Compare, Revision};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Maximum number of generated names that are tried.
const GENERATE_TRIES_MAX: usize = 8;

impl Registry {
    /// Creates an object from the body of a request.
    pub async fn create(
        &self,
        permit: &Permit,
        target: &Target,
        body: Decoded,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        target.assert_covered(permit, "create", "");
        if target.kind.is_terminating.load(Ordering::Relaxed) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(target.gvr(), body.object.name(), why));
        }
        let warnings = check_body_fields(target.schema(), &body, options.field_validation)?;
        let mut obj = body.object;
        if let Err(failure) = check_namespace(target, &mut obj) {
            return Err(failure.with_warnings(warnings));
        }
        if !options.dry_run
            && obj.resource_version().parse::<u64>().is_ok_and(|version| version != 0)
        {
            let why = "resourceVersion should not be set on objects to be created";
            return Err(Status::new(Reason::Unknown, why).with_warnings(warnings));
        }
        for name in ["deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            obj.metadata_mut().remove(name);
        }
        let made = Updated { object: obj, owned: false, warnings };
        self.create_object(permit, target, made, options).await
    }

    /// Creates an object that does not come from the body of a request.
    pub async fn add(
        &self,
        permit: &Permit,
        target: &Target,
        object: Object,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        target.assert_covered(permit, "create", "");
        let made = Updated { object, owned: false, warnings: vec![] };
        self.create_object(permit, target, made, options).await
    }

    /// Creates an object of the server itself, unless one of that name exists.
    pub async fn make_missing(
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
        let options =
            WriteOptions { field_manager: field_manager.into(), ..WriteOptions::default() };
        match self.add(permit, target, object, &options).await {
            // Another writer created it first.
            Err(status) if status.code == 409 => Ok(()),
            made => made.map(drop),
        }
    }

    /// Creates the namespace of a new object (NamespaceAutoProvision).
    async fn provide_namespace(&self, name: &str) -> Result<(), Failure> {
        let target = self.target("", "namespaces", "", name);
        if name.is_empty() || self.objects(&target.kind).get(name).is_some() {
            return Ok(());
        }
        self.fresh().await?;
        let namespace = value!({"metadata": {"name": (Str::new(name))}});
        let permit = Permit::internal("system:apiserver");
        self.make_missing(&permit, &target, namespace, "kube-apiserver").await?;
        self.fresh().await
    }

    /// Admits, validates and stores a new object, which is in the version of the target.
    pub(crate) async fn create_object(
        &self,
        permit: &Permit,
        target: &Target,
        made: Updated,
        options: &WriteOptions,
    ) -> Result<Written, Failure> {
        let mut warnings = vec![];
        match self.make_object(permit, target, made, options, &mut warnings).await {
            Ok(answer) => {
                let answer = match answer {
                    Answer::Entry(entry) => Answer::Entry(shown!(self, target, entry)?),
                    made => made,
                };
                Ok(Written { answer, warnings, created: true })
            }
            Err(failure) => Err(failure.with_warnings(warnings)),
        }
    }

    async fn make_object(
        &self,
        permit: &Permit,
        target: &Target,
        made: Updated,
        options: &WriteOptions,
        warnings: &mut Vec<Str>,
    ) -> Result<Answer, Failure> {
        let kind = &target.kind;
        let Updated { object: mut obj, owned, warnings: told } = made;
        warnings.extend(told);
        let shares_labels = kind.strategy.labels_from_template && labels_of(&obj).is_none();
        kind.fill_defaults(target.schema(), &mut obj, self.clock.as_ref());
        warnings.extend(owner_references::dedup(&mut obj));
        if !owned {
            kind.note_owners(&mut obj, target.schema(), |obj| {
                owners::created(target, obj, &options.field_manager, self.clock.now());
            });
        }
        let mut obj = kind.to_working(obj, target.schema());
        let given = Str::new(obj.name());
        let new = Creation { permit, target, given: &given, options, shares_labels };
        let told = warnings.len();
        let mut tries = Tries::begin(Instant::now());
        loop {
            tries.next(Instant::now())?;
            if self.provides_namespaces && !options.dry_run {
                Box::pin(self.provide_namespace(&target.namespace)).await?;
            }
            // Read before admission runs, so that what the plug-ins see is at least as new.
            let guard = self.namespace_guard(target).await?;
            warnings.truncate(told);
            let passes = self.admit(&new.write(), &mut obj, warnings).await?;
            if passes.is_some() {
                // A webhook or policy may have changed the namespace.
                check_namespace(target, &mut obj)?;
            }
            if let Some(guard) = &self.hooks_of(kind).guard {
                guard.check(self, &new.write(), &obj).await?;
            }
            if let Some(answer) =
                self.name_and_store(&new, &mut obj, guard, &passes, warnings).await?
            {
                return Ok(answer);
            }
            // The namespace has changed: it may be terminating, and plug-ins read its labels.
            self.fresh().await?;
        }
    }

    /// Prepares, validates and stores an object, and tries other generated names while the name is
    /// taken. Returns `None` when the namespace has changed since admission.
    async fn name_and_store(
        &self,
        new: &Creation<'_>,
        obj: &mut Object,
        mut guard: Option<Compare>,
        passes: &Passes,
        warnings: &mut Vec<Str>,
    ) -> Result<Option<Answer>, Failure> {
        if new.target.kind.strategy.validate_in_namespace.is_some() {
            // The rule must see every label write that this server has acknowledged.
            self.caught_up().await?;
        }
        let told = warnings.len();
        let base = obj.generate_name().to_owned();
        let generates = new.given.is_empty() && obj.name().is_empty() && !base.is_empty();
        for _ in 0..GENERATE_TRIES_MAX {
            if generates {
                let name = generated_name(self.clock.random(), &base);
                obj.set_meta("name", &name);
            }
            // Drop the warnings of the previous try.
            warnings.truncate(told);
            warnings.extend((new.target.kind.strategy.prepare_warnings)(obj));
            prepare(self, new, obj);
            if let Err(invalid) = validate(self, new.target, obj) {
                let dry_run = new.options.dry_run;
                let refused = self.refused(new.target, obj, (None, dry_run), invalid);
                return Err(Box::pin(refused).await);
            }
            warnings.extend(new.target.kind.strategy.warnings(obj, None));
            self.authorize_create(new.permit).await?;
            self.validate_admitted(&new.write(), passes, obj, warnings).await?;
            let target = new.target.named(obj.namespace(), obj.name());
            // Only a generated name leads to another try.
            let guard = if generates { guard.clone() } else { guard.take() };
            let stored = self.store_new(&Creation { target: &target, ..*new }, obj, guard).await;
            if is_refused_claim(&stored) {
                warnings.truncate(told);
            }
            match stored? {
                New::Stored(answer) => return Ok(Some(answer)),
                New::Overtaken => return Ok(None),
                New::Taken { .. } if generates => {}
                New::Taken { ends } => {
                    let mut status = if base.is_empty() {
                        Status::already_exists(target.gvr(), obj.name())
                    } else {
                        name_taken(&target, obj.name())
                    };
                    if ends {
                        status.message = format!("object is being deleted: {}", status.message);
                    }
                    return Err(status);
                }
            }
        }
        Err(name_taken(new.target, obj.name()))
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

    /// Stores an object if its name is free. With claims or quotas, the write completes even when
    /// the request is cancelled.
    async fn store_new(
        &self,
        new: &Creation<'_>,
        obj: &mut Object,
        guard: Option<Compare>,
    ) -> Result<New, Failure> {
        if new.options.dry_run {
            // Boxed because it is rare: the future of every write stays small.
            return Box::pin(self.try_new(new, obj)).await;
        }
        if !self.takes(&new.target.kind) && !self.has_quotas(&new.write()) {
            fill_again(new.target, obj);
            let record = record_of!(self, new.target, obj)?;
            let put = self.put(new.target, record, Revision(0), guard).await?;
            return stored(new.target, put);
        }
        let (permit, target, options) =
            (new.permit.clone(), new.target.clone(), new.options.clone());
        let (given, mut obj) = (Str::new(new.given), obj.clone());
        let shares_labels = new.shares_labels;
        let store = |registry: Arc<Registry>| async move {
            let new = Creation {
                permit: &permit,
                target: &target,
                given: &given,
                options: &options,
                shares_labels,
            };
            registry.charge_and_put(&new, &mut obj, guard).await
        };
        Box::pin(self.to_the_end(store)).await
    }

    async fn charge_and_put(
        &self,
        new: &Creation<'_>,
        obj: &mut Object,
        guard: Option<Compare>,
    ) -> Result<New, Failure> {
        let target = new.target;
        let charge = self.charge(&new.write(), obj).await?;
        let put = match self.claim(target, obj, None, false).await {
            Ok(claim) => {
                fill_again(target, obj);
                let record = record_of!(self, target, obj)?;
                self.put_claimed(target, record, (Revision(0), guard), claim).await
            }
            Err(failure) => Err(failure),
        };
        if !matches!(put, Ok(Put::Done(_))) {
            self.refund(charge).await;
        }
        stored(target, put?)
    }

    /// Checks what a dry run can check without storing the object.
    async fn try_new(&self, new: &Creation<'_>, obj: &mut Object) -> Result<New, Failure> {
        let Creation { target, .. } = *new;
        let kind = &target.kind;
        let given = obj.resource_version().to_owned();
        self.charge(&new.write(), obj).await?;
        self.claim(target, obj, None, true).await?;
        self.fresh().await?;
        if let Some(known) = self.known(target)? {
            return taken(target, Some(known));
        }
        kind.check_record(&record_of!(self, target, obj)?)?;
        read_back!(self, target, obj);
        // The client's resourceVersion is ignored, but the answer repeats it.
        obj.set_meta("resourceVersion", &given);
        let shown = shown_object(target, obj.clone());
        Ok(New::Stored(Answer::Object(shown)))
    }
}

/// Sets the defaults of a custom resource again, as upstream does when it decodes what it has stored.
fn fill_again(target: &Target, obj: &mut Object) {
    if target.kind.source == Source::Custom {
        keelson_schema::default::fill(target.schema(), obj);
    }
}

/// The parameters of a create, the same for every try.
#[derive(Clone, Copy)]
struct Creation<'a> {
    permit: &'a Permit,
    target: &'a Target,
    /// The name that the client gave, or empty.
    given: &'a str,
    options: &'a WriteOptions,
    /// See [`keelson_kinds::strategy::Strategy::labels_from_template`].
    shares_labels: bool,
}

impl<'a> Creation<'a> {
    fn write(&self) -> Write<'a> {
        Write {
            permit: self.permit,
            target: self.target,
            operation: Operation::Create,
            subresource: "",
            name: self.given,
            dry_run: self.options.dry_run,
            old: None,
            options: Options::Write(self.options),
            own: None,
        }
    }
}

/// The outcome of storing a new object.
enum New {
    /// The object is stored, or would be without the dry run.
    Stored(Answer),
    /// An object of this name exists; `ends`: it is being deleted.
    Taken { ends: bool },
    /// The namespace has changed since admission.
    Overtaken,
}

fn stored(target: &Target, put: Put) -> Result<New, Failure> {
    match put {
        Put::Done(entry) => Ok(New::Stored(Answer::Entry(entry))),
        Put::Overtaken => Ok(New::Overtaken),
        Put::Lost(known) => taken(target, known),
    }
}

fn taken(target: &Target, known: Option<Entry>) -> Result<New, Failure> {
    // Any version will do for the deletionTimestamp.
    let known = known.map(|entry| match target.kind.webhook {
        None => target.kind.decode(&entry),
        Some(_) => target.kind.own_object(&entry).map(|(known, _)| known),
    });
    let known = known.transpose()?;
    Ok(New::Taken { ends: known.is_some_and(|known| known.deletion_timestamp().is_some()) })
}

/// Sets the fields that the server sets on create.
fn prepare(registry: &Registry, new: &Creation<'_>, obj: &mut Object) {
    let (permit, target) = (new.permit, new.target);
    let strategy = &target.kind.strategy;
    let metadata = obj.metadata_mut();
    metadata.insert("creationTimestamp", registry.clock.now().text());
    metadata.insert("uid", stamp::uid(registry.clock.as_ref()));
    if target.kind.has_status && !strategy.status_on_create {
        obj.root.remove("status");
    }
    let named = !obj.name().is_empty() || !obj.generate_name().is_empty();
    if !named && strategy.generates_missing_name {
        obj.set_meta("name", &stamp::uid(registry.clock.as_ref()));
    }
    strategy.first_generation(obj);
    // Admission may have changed one of the two label sets.
    let shares_labels = new.shares_labels
        && labels_of(obj).is_some_and(|labels| Some(labels) == template_labels_of(obj));
    strategy.prepare_create(obj);
    if let Some(labels) = template_labels_of(obj).filter(|_| shares_labels).cloned() {
        obj.metadata_mut().insert("labels", labels);
    }
    (strategy.record_user)(obj, permit.user());
}

/// Returns the labels if they are not empty.
fn labels_of(obj: &Object) -> Option<&Map> {
    obj.at(&["metadata", "labels"]).and_then(Value::as_object).filter(|labels| !labels.is_empty())
}

fn template_labels_of(obj: &Object) -> Option<&Map> {
    let place = ["spec", "template", "metadata", "labels"];
    obj.at(&place).and_then(Value::as_object).filter(|labels| !labels.is_empty())
}

fn validate(registry: &Registry, target: &Target, obj: &Object) -> Result<(), Failure> {
    let kind = &target.kind;
    let (strategy, namespaced) = (&kind.strategy, kind.namespaced);
    let checks = strategy.create_checks;
    let mut errors = match strategy.validate_in_namespace {
        Some(rule) => rule(obj, &|| registry.labels_of(obj.namespace())),
        None => ErrorList::new(),
    };
    errors.extend(strategy.check(checks, strategy.validate, obj, None, namespaced));
    kind.validate_last(obj, None, &mut errors);
    kind.validate_further(&target.version, obj, None, &mut errors);
    invalid(target, obj, errors)?;
    let rule = names::name_is_path_segment;
    let fits = rule(obj.name(), false).is_empty() && rule(obj.generate_name(), true).is_empty();
    if checks.contains(&Check::Metadata) && fits {
        return Ok(());
    }
    // A kind that checks its metadata itself checks at least what all kinds check, except for names.
    invalid(target, obj, strategy::validate_metadata(obj, namespaced, rule))
}

/// Returns 409 for a generated name after all tries.
fn name_taken(target: &Target, name: &str) -> Failure {
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
