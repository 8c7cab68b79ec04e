//! Admission of a write: what plug-ins see of it, and in which order they are called.
//!
//! First come the built-in mutating plug-ins, then the mutating policies and webhooks (a second
//! round when one of them asks for reinvocation). After the object is prepared and validated come
//! the built-in validating plug-ins, then the validating policies and webhooks.

mod scale;

use crate::options::WriteOptions;
use crate::registry::Registry;
use crate::target::Target;
use crate::write::{Options, OwnKind, Subresource, Write};
use keelson_admission::{
    AdmissionStep, Attributes, Call, Configurations, Operation, Phase, Recorder, Reinvocation,
    Request,
};
use keelson_auth::Permit;
use keelson_meta::random_names::generated_name;
use keelson_meta::{Failure, GroupVersionKind, GroupVersionResource, Object, Str, Value};
use std::time::{Duration, Instant};

/// How long a write waits for an object that a control loop is about to create, such as the service
/// account of a pod. Upstream tries ten times, up to 200 ms apart.
const AWAITED_TIME_MAX: Duration = Duration::from_millis(1_500);

/// The webhook and policy configurations that a write is checked against; `None` if there are none.
pub type AdmissionConfigs = Option<Box<Configurations>>;

impl Registry {
    /// Runs mutating admission on the object of a write, which is in the version that writes use.
    pub(crate) async fn admit(
        &self,
        write: &Write<'_>,
        obj: &mut Object,
        warnings: &mut Vec<Str>,
    ) -> Result<AdmissionConfigs, Failure> {
        let begun = Instant::now();
        let admitted = self.admit_uncounted(write, obj, warnings).await;
        self.count_step(Phase::Admit, write.operation, &admitted, begun);
        admitted
    }

    async fn admit_uncounted(
        &self,
        write: &Write<'_>,
        obj: &mut Object,
        warnings: &mut Vec<Str>,
    ) -> Result<AdmissionConfigs, Failure> {
        self.wait_for_dependencies(write, obj).await?;
        self.call_chain(write, warnings, |req, recorder| {
            self.options.admission.admit(req, obj, recorder)
        })?;
        let configs = self.admission_configs(write.permit).await?;
        match &configs {
            None => self.options.admission.count_idle(Phase::Admit, write.operation),
            Some(configured) => {
                Box::pin(self.admit_dynamically(write, configured, obj, warnings)).await?;
            }
        }
        Ok(configs)
    }

    fn count_step<T>(
        &self,
        phase: Phase,
        operation: Operation,
        result: &Result<T, Failure>,
        begun: Instant,
    ) {
        let step = AdmissionStep { phase, operation, rejected: result.is_err() };
        self.options.admission.metrics().step(step, begun);
    }

    /// Runs validating admission on the object as it would be stored.
    pub(crate) async fn validate_admitted(
        &self,
        write: &Write<'_>,
        configs: &AdmissionConfigs,
        obj: &Object,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let chain = &self.options.admission;
        let mut validated =
            self.call_chain(write, warnings, |req, recorder| chain.validate(req, obj, recorder));
        if validated.is_ok() {
            match configs {
                None => chain.count_idle(Phase::Validate, write.operation),
                Some(configured) => {
                    let validated_by = self.validate_dynamically(write, configured, obj, warnings);
                    validated = Box::pin(validated_by).await;
                }
            }
        }
        self.count_step(Phase::Validate, write.operation, &validated, begun);
        validated
    }

    /// Calls the built-in plug-ins. Their audit annotations go to the permit, their warnings to the
    /// client.
    fn call_chain(
        &self,
        write: &Write<'_>,
        warnings: &mut Vec<Str>,
        call: impl FnOnce(&Request<'_>, &mut Recorder) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut recorder = Recorder::default();
        let result = self.with_request(write, |req| call(req, &mut recorder));
        add_warnings_and_annotations(write.permit, recorder, warnings);
        result
    }

    /// Like [`Registry::admit`], for the update of an object or subresource.
    pub(crate) async fn admit_subresource(
        &self,
        write: &Write<'_>,
        subresource: Subresource,
        obj: &mut Object,
        warnings: &mut Vec<Str>,
    ) -> Result<AdmissionConfigs, Failure> {
        match subresource {
            Subresource::Action(_) => Ok(None),
            Subresource::Other("scale") => Box::pin(self.admit_scale(write, obj, warnings)).await,
            _ => self.admit(write, obj, warnings).await,
        }
    }

    /// Like [`Registry::validate_admitted`], for the update of an object or subresource.
    pub(crate) async fn validate_subresource(
        &self,
        write: &Write<'_>,
        subresource: Subresource,
        configs: &AdmissionConfigs,
        obj: &Object,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        match subresource {
            Subresource::Action(_) => Ok(()),
            Subresource::Other("scale") => {
                Box::pin(self.validate_scale(write, configs, obj, warnings)).await
            }
            _ => self.validate_admitted(write, configs, obj, warnings).await,
        }
    }

    /// Runs admission on the deletion of `write.old`.
    pub(crate) async fn admit_deletion(
        &self,
        write: &Write<'_>,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        if let Some(old) = write.old {
            let begun = Instant::now();
            let validated = self.call_chain(write, warnings, |req, recorder| {
                self.options.admission.validate(req, old, recorder)
            });
            if validated.is_err() {
                self.count_step(Phase::Admit, write.operation, &validated, begun);
                return validated;
            }
        }
        let owned = OwnedAttributes::of(write);
        Box::pin(self.admit_stateless(write.permit, &owned, write.old, None, warnings)).await
    }

    /// Returns the current webhook and policy configurations. The server's own writes are exempt,
    /// so that an unreachable webhook cannot keep the server from starting.
    pub(crate) async fn admission_configs(
        &self,
        permit: &Permit,
    ) -> Result<AdmissionConfigs, Failure> {
        if permit.attributes().is_none() || self.options.dynamic_admission.is_empty() {
            return Ok(None);
        }
        self.configurations.current().await?;
        let index = self.configurations.index();
        let is_idle = self.options.dynamic_admission.iter().all(|plug_in| plug_in.is_idle(&index));
        Ok((!is_idle).then(|| Box::new(index.clone())))
    }

    async fn admit_dynamically(
        &self,
        write: &Write<'_>,
        configured: &Configurations,
        obj: &mut Object,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        let owned = OwnedAttributes::of(write);
        let attributes = owned.attributes(write.permit, write.old);
        let call = self.call(&attributes, configured);
        let mut recorder = Recorder::default();
        let mut round = Reinvocation::default();
        let mut admitted = self.call_mutating(&call, Some(obj), &mut recorder, &mut round).await;
        if admitted.is_ok() && round.is_requested {
            round.is_reinvoked = true;
            let chain = &self.options.admission;
            admitted = self.with_request(write, |req| chain.admit(req, obj, &mut recorder));
            if admitted.is_ok() {
                admitted = self.call_mutating(&call, Some(obj), &mut recorder, &mut round).await;
            }
        }
        add_warnings_and_annotations(write.permit, recorder, warnings);
        admitted
    }

    async fn validate_dynamically(
        &self,
        write: &Write<'_>,
        configured: &Configurations,
        obj: &Object,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        let mut owned = OwnedAttributes::of(write);
        if owned.operation == Operation::Create && owned.name.is_empty() {
            // The name was generated after the mutating phase.
            owned.name = obj.name().into();
        }
        let attributes = owned.attributes(write.permit, write.old);
        let call = self.call(&attributes, configured);
        let mut recorder = Recorder::default();
        let validated = self.call_validating(&call, Some(obj), &mut recorder).await;
        add_warnings_and_annotations(write.permit, recorder, warnings);
        validated
    }

    fn call<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        configured: &'a Configurations,
    ) -> Call<'a> {
        Call { attributes, api: self, configured, metrics: self.options.admission.metrics() }
    }

    /// Runs one round of the mutating webhooks and policies. A plug-in without configurations is
    /// counted but not called: the future of a webhook call alone takes kilobytes.
    async fn call_mutating(
        &self,
        call: &Call<'_>,
        mut obj: Option<&mut Object>,
        recorder: &mut Recorder,
        round: &mut Reinvocation,
    ) -> Result<(), Failure> {
        for plug_in in &self.options.dynamic_admission {
            let begun = Instant::now();
            let admitted = match plug_in.is_idle(call.configured) {
                true => Ok(()),
                false => plug_in.admit(call, obj.as_deref_mut(), recorder, round).await,
            };
            self.count_plug_in(plug_in.name(), Phase::Admit, call, &admitted, begun);
            admitted?;
        }
        Ok(())
    }

    async fn call_validating(
        &self,
        call: &Call<'_>,
        obj: Option<&Object>,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        for plug_in in &self.options.dynamic_admission {
            let begun = Instant::now();
            let validated = match plug_in.is_idle(call.configured) {
                true => Ok(()),
                false => plug_in.validate(call, obj, recorder).await,
            };
            self.count_plug_in(plug_in.name(), Phase::Validate, call, &validated, begun);
            validated?;
        }
        Ok(())
    }

    fn count_plug_in(
        &self,
        name: &str,
        phase: Phase,
        call: &Call<'_>,
        result: &Result<(), Failure>,
        begun: Instant,
    ) {
        let operation = call.attributes.operation;
        let rejected = result.is_err();
        self.options.admission.count(name, AdmissionStep { phase, operation, rejected }, begun);
    }

    /// Runs both phases for a request that stores no object of the target: a deletion or a review.
    async fn admit_stateless(
        &self,
        permit: &Permit,
        owned: &OwnedAttributes,
        old: Option<&Object>,
        mut obj: Option<&mut Object>,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        let begun = Instant::now();
        let Some(configured) = self.admission_configs(permit).await? else {
            for phase in [Phase::Admit, Phase::Validate] {
                self.options.admission.count_idle(phase, owned.operation);
                self.count_step(phase, owned.operation, &Ok(()), begun);
            }
            return Ok(());
        };
        let attributes = owned.attributes(permit, old);
        let call = self.call(&attributes, &configured);
        let mut recorder = Recorder::default();
        let mut round = Reinvocation::default();
        let mut passed =
            self.call_mutating(&call, obj.as_deref_mut(), &mut recorder, &mut round).await;
        if passed.is_ok() && round.is_requested {
            round.is_reinvoked = true;
            passed = self.call_mutating(&call, obj.as_deref_mut(), &mut recorder, &mut round).await;
        }
        self.count_step(Phase::Admit, owned.operation, &passed, begun);
        if passed.is_ok() {
            let begun = Instant::now();
            passed = self.call_validating(&call, obj.as_deref(), &mut recorder).await;
            self.count_step(Phase::Validate, owned.operation, &passed, begun);
        }
        add_warnings_and_annotations(permit, recorder, warnings);
        passed
    }

    /// Runs webhooks and policies on a resource that stores no objects: a review.
    pub async fn admit_review(
        &self,
        permit: &Permit,
        resource: &GroupVersionResource,
        kind: &GroupVersionKind,
        obj: &mut Object,
        options: &WriteOptions,
    ) -> Result<Vec<Str>, Failure> {
        self.options.admission.admit_review(permit.user(), resource, obj)?;
        let owned = OwnedAttributes {
            operation: Operation::Create,
            object_kind: kind.clone(),
            kind: kind.clone(),
            resource: resource.clone(),
            subresource: Str::default(),
            namespace: obj.namespace().into(),
            name: obj.name().into(),
            dry_run: options.dry_run,
            options: Options::Write(options).value(Operation::Create),
        };
        let mut warnings = vec![];
        match Box::pin(self.admit_stateless(permit, &owned, None, Some(obj), &mut warnings)).await {
            Ok(()) => Ok(warnings),
            Err(failure) => Err(failure.with_warnings(warnings)),
        }
    }

    /// Runs admission on a stream or proxy request; `options` are the parameters of the URL.
    pub async fn admit_connection(
        &self,
        permit: &Permit,
        target: &Target,
        kind: &GroupVersionKind,
        options: &mut Object,
    ) -> Result<(), Failure> {
        target.assert_connected(permit);
        let subresource = permit.attributes().map_or("", |given| given.subresource.as_str());
        let write = Write {
            permit,
            target,
            operation: Operation::Connect,
            subresource,
            name: &target.name,
            dry_run: false,
            old: None,
            options: Options::None,
            own: Some(OwnKind { kind, resource: None }),
        };
        self.admit_and_validate(&write, options, &mut vec![]).await
    }

    /// Runs admission on a request that stores no object by itself: an Eviction, a connect request.
    pub(crate) async fn admit_and_validate(
        &self,
        write: &Write<'_>,
        obj: &mut Object,
        warnings: &mut Vec<Str>,
    ) -> Result<(), Failure> {
        let configs = self.admit(write, obj, warnings).await?;
        self.validate_admitted(write, &configs, obj, warnings).await
    }

    /// Waits for the objects that the built-in plug-ins will look up.
    async fn wait_for_dependencies(&self, write: &Write<'_>, obj: &Object) -> Result<(), Failure> {
        let namespace = &write.target.namespace;
        let namespaces = self.objects(&self.namespaces());
        let namespace_exists = || namespace.is_empty() || namespaces.get(namespace).is_some();
        let chain = &self.options.admission;
        if !namespace_exists() || chain.reads_other_objects(write.target.gvr()) {
            self.wait_for_latest().await?;
        }
        let Some(dependency) = self.with_request(write, |req| chain.awaited_dependency(req, obj))
        else {
            return Ok(());
        };
        let dependency =
            self.target(dependency.group, dependency.resource, namespace, dependency.name);
        let objects = self.objects(&dependency.kind);
        let mut progress = self.cache.progress_of(&objects);
        let appears = async {
            while objects.get(&dependency.key()).is_none() && namespace_exists() {
                if progress.changed().await.is_err() {
                    return;
                }
            }
        };
        // The plug-in checks whether it exists.
        let _ = tokio::time::timeout(AWAITED_TIME_MAX, appears).await;
        Ok(())
    }

    /// Calls a built-in plug-in with the request of a write.
    pub fn with_request<T>(&self, write: &Write<'_>, call: impl FnOnce(&Request<'_>) -> T) -> T {
        let generate_name = |base: &str| generated_name(self.clock.random(), base);
        let resource = write.own.and_then(|own| own.resource);
        let now = || self.clock.now();
        call(&Request {
            operation: write.operation,
            gvr: resource.unwrap_or(write.target.gvr()),
            subresource: write.subresource,
            namespace: &write.target.namespace,
            name: write.name,
            user: write.permit.user(),
            dry_run: write.dry_run,
            old: write.old,
            stored: self,
            config: self.options.admission.config(),
            features: self.options.features,
            now: &now,
            generate_name: &generate_name,
        })
    }
}

fn add_warnings_and_annotations(permit: &Permit, recorder: Recorder, warnings: &mut Vec<Str>) {
    warnings.extend(recorder.warnings);
    permit.waited_for_webhooks(recorder.webhooks_took);
    for (key, value) in recorder.annotations {
        permit.annotate(key, value);
    }
}

/// Adds the uid of a namespace to the preconditions of its deletion, as upstream does.
fn add_uid_precondition(options: &mut Value, old: &Object) {
    if let Some(options) = options.as_object_mut() {
        options.object_at("preconditions").entry_or("uid", || old.uid().into());
    }
}

/// The values that [`Attributes`] borrow.
struct OwnedAttributes {
    operation: Operation,
    subresource: Str,
    dry_run: bool,
    object_kind: GroupVersionKind,
    kind: GroupVersionKind,
    resource: GroupVersionResource,
    namespace: Str,
    name: Str,
    options: Value,
}

impl OwnedAttributes {
    fn of(write: &Write<'_>) -> OwnedAttributes {
        let target = write.target;
        let (kind, object_kind) = match write.own {
            Some(own) => (own.kind.clone(), own.kind.clone()),
            None => (target.schema().gvk.clone(), target.working().gvk.clone()),
        };
        let resource = write.own.and_then(|own| own.resource.cloned());
        let requested =
            || GroupVersionResource { version: target.version.clone(), ..target.gvr().clone() };
        let is_namespace = target.gvr().group.is_empty() && target.gvr().resource == "namespaces";
        // In a deletecollection webhooks see no name.
        let is_collection =
            write.permit.attributes().is_some_and(|given| given.verb == "deletecollection");
        let name = Str::new(if is_collection { "" } else { write.name });
        let namespace = match is_namespace {
            true => name.clone(),
            false => target.namespace.clone(),
        };
        let mut options = write.options.value(write.operation);
        if let (true, Operation::Delete, Some(old)) = (is_namespace, write.operation, write.old) {
            add_uid_precondition(&mut options, old);
        }
        let resource = resource.unwrap_or_else(requested);
        OwnedAttributes {
            operation: write.operation,
            subresource: write.subresource.into(),
            dry_run: write.dry_run,
            object_kind,
            kind,
            resource,
            namespace,
            name,
            options,
        }
    }

    fn attributes<'a>(&'a self, permit: &'a Permit, old: Option<&'a Object>) -> Attributes<'a> {
        Attributes {
            operation: self.operation,
            object_kind: &self.object_kind,
            kind: &self.kind,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            user: permit.user(),
            dry_run: self.dry_run,
            options: &self.options,
            old,
        }
    }
}
