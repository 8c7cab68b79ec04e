//! The verbs delete and deletecollection: preconditions, grace period, finalizers, deletion.

use crate::conversion::{decode_entry, encode_record};
use crate::options::{DeleteOptions, ListOptions, Propagation};
use crate::preconditions::check_deletion;
use crate::registry::{Deletion, Put, Registry};
use crate::target::Target;
use crate::verbs::RetryBudget;
use crate::verbs::bodies::for_target;
use crate::write::{Options, Write};
use futures_util::stream::{FuturesUnordered, StreamExt};
use keelson_admission::Operation;
use keelson_auth::Permit;
use keelson_kinds::deletion::{Grace, mark, mark_graceful, set_propagation};
use keelson_kinds::strategy::GarbageCollection;
use keelson_meta::time::Timestamp;
use keelson_meta::{ErrorList, Failure, Feature, FieldError, Object, Path, Status, Str};
use keelson_records::Entry;
use std::sync::Arc;
use std::time::Instant;

const DELETIONS_MAX: usize = 32;

/// The outcome of a deletion. Objects are in the version of the target.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// Deleted: the last state of the object, with the resourceVersion of the deletion.
    Gone(Object),
    /// Marked for deletion: the object, which waits for its grace period or its finalizers.
    Waiting(Object),
    /// Deleted: an object that could not be read.
    Unreadable,
}

enum Plan {
    /// Delete the object.
    Delete,
    /// Store the changed object; then delete it, or leave that to others.
    Mark { then_delete: bool },
    /// Change nothing: the object is being deleted already.
    Leave,
}

/// A try that another write came before.
struct Overtaken {
    /// The stored object, unless it was deleted.
    now: Option<Entry>,
    /// The object that this try has marked for deletion without a grace period. When others delete
    /// it first, that is a success.
    marked: Option<Object>,
}

impl Overtaken {
    fn before_mark<T>(now: Option<Entry>) -> Result<Result<T, Overtaken>, Failure> {
        Ok(Err(Overtaken { now, marked: None }))
    }
}

impl Registry {
    /// Deletes an object or marks it for deletion. Appends texts of Warning headers to `warnings`.
    pub async fn delete(
        &self,
        permit: &Permit,
        target: &Target,
        options: &DeleteOptions,
        warnings: &mut Vec<Str>,
    ) -> Result<Deleted, Failure> {
        target.assert_covered(permit, "delete", "");
        warnings.extend(default_propagation_warnings(target, options));
        self.delete_unchecked(permit, target, options, Some(warnings)).await
    }

    /// Deletes an object for a request that is not authorized and admitted as a delete.
    pub(crate) async fn delete_admitted(
        &self,
        permit: &Permit,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Deleted, Failure> {
        self.delete_unchecked(permit, target, options, None).await
    }

    async fn delete_unchecked(
        &self,
        permit: &Permit,
        target: &Target,
        options: &DeleteOptions,
        mut warnings: Option<&mut Vec<Str>>,
    ) -> Result<Deleted, Failure> {
        check_deletable(target)?;
        self.check_ignore_read_error(options)?;
        self.wait_for_latest_of(&target.kind).await?;
        if options.ignore_read_error {
            if self.remove_unreadable(target).await?.is_some() {
                return Ok(Deleted::Unreadable);
            }
            if self.refuses_malformed_deletion() {
                return Err(not_corrupt(target));
            }
        }
        let mut stored = self.entry(target)?;
        let mut marked = None;
        let mut retries = RetryBudget::new(Instant::now());
        loop {
            retries.count_try(Instant::now())?;
            let Some(entry) = stored else {
                return marked.map(Deleted::Gone).ok_or_else(|| target.not_found());
            };
            match self.delete_once(permit, target, options, entry, warnings.as_deref_mut()).await? {
                Ok(deleted) => return Ok(deleted),
                Err(overtaken) => {
                    stored = overtaken.now;
                    marked = overtaken.marked.or(marked);
                }
            }
        }
    }

    /// Whether deletions that ignore read errors are validated as upstream does.
    fn refuses_malformed_deletion(&self) -> bool {
        self.options.features.is_on(Feature::AllowUnsafeMalformedObjectDeletion)
    }

    /// Refuses options that cannot be combined with
    /// `ignoreStoreReadErrorWithClusterBreakingPotential`.
    fn check_ignore_read_error(&self, options: &DeleteOptions) -> Result<(), Failure> {
        if !options.ignore_read_error || !self.refuses_malformed_deletion() {
            return Ok(());
        }
        let with = options.given.iter().map(|name| format!("cannot be set together with .{name}"));
        invalid_ignore_read_error(&with.collect::<Vec<_>>())
    }

    /// Runs one try. The inner error means that another write came first.
    async fn delete_once(
        &self,
        permit: &Permit,
        target: &Target,
        options: &DeleteOptions,
        entry: Entry,
        warnings: Option<&mut Vec<Str>>,
    ) -> Result<Result<Deleted, Overtaken>, Failure> {
        let mut obj = decode_entry!(self, target, &entry)?;
        check_deletion(target, options, &obj)?;
        let write = Write {
            permit,
            target,
            operation: Operation::Delete,
            subresource: "",
            name: &target.name,
            dry_run: options.dry_run,
            old: Some(&obj),
            options: Options::Delete(options),
            own: None,
        };
        if let Some(warnings) = warnings {
            self.admit_deletion(&write, warnings).await?;
        }
        let plan = self.plan(target, options, &mut obj);
        let is_multi_key =
            self.has_claims(&target.kind) || matches!(plan, Plan::Mark { then_delete: true });
        if options.dry_run || !is_multi_key {
            return self.finish(target, plan, obj, entry, options.dry_run).await;
        }
        let target = target.clone();
        let delete = |registry: Arc<Registry>| async move {
            registry.finish(&target, plan, obj, entry, false).await
        };
        Box::pin(self.run_to_completion(delete)).await
    }

    /// Decides the next step, and changes the object if it is stored again.
    fn plan(&self, target: &Target, options: &DeleteOptions, obj: &mut Object) -> Plan {
        let now = self.clock.now();
        if target.kind.strategy.has_content
            && let Some(plan) = plan_with_content(options, obj, now)
        {
            return plan;
        }
        if let Some(terminate) = target.kind.strategy.terminate
            && obj.deletion_timestamp().is_none()
        {
            terminate(obj, &now.text());
            obj.set_meta("deletionTimestamp", &now.text());
            return Plan::Mark { then_delete: false };
        }
        let grace_period = target.kind.strategy.grace_period;
        let graceful = match mark_graceful(grace_period, options.grace_period_seconds, obj, now) {
            Grace::Pending => return Plan::Leave,
            Grace::Marked(seconds) => Some(seconds),
            Grace::None => None,
        };
        let policy = target.kind.strategy.garbage_collection;
        let finalizers = obj.metadata().and_then(|metadata| metadata.get("finalizers")).cloned();
        let changed =
            self.options.garbage_collection && set_propagation(obj, options.propagation, policy);
        let waits_for_finalizers = obj.finalizers().next().is_some();
        match graceful {
            Some(seconds) => Plan::Mark { then_delete: !waits_for_finalizers && seconds == 0 },
            None if waits_for_finalizers => {
                if obj.deletion_timestamp().is_some() && !changed {
                    return Plan::Leave;
                }
                mark(obj, now, 0);
                Plan::Mark { then_delete: false }
            }
            None => {
                // The answer is the object as it was stored.
                if let Some(finalizers) = finalizers {
                    obj.metadata_mut().insert("finalizers", finalizers);
                }
                Plan::Delete
            }
        }
    }

    /// Carries out the last step of a deletion. The inner error means that another write came
    /// first.
    async fn finish(
        &self,
        target: &Target,
        plan: Plan,
        mut obj: Object,
        mut entry: Entry,
        dry_run: bool,
    ) -> Result<Result<Deleted, Overtaken>, Failure> {
        let answer = |obj: Object| for_target(target, obj);
        let is_marked = matches!(plan, Plan::Mark { .. });
        match plan {
            Plan::Leave => return Ok(Ok(Deleted::Waiting(answer(obj)))),
            Plan::Mark { then_delete } if dry_run => {
                let answer = answer(obj);
                let deleted =
                    if then_delete { Deleted::Gone(answer) } else { Deleted::Waiting(answer) };
                return Ok(Ok(deleted));
            }
            Plan::Mark { then_delete } => {
                let record = encode_record!(self, target, &mut obj)?;
                match self.put(target, record, entry.modified(), None).await? {
                    Put::Conflict(now) => return Overtaken::before_mark(now),
                    Put::NamespaceChanged => return Overtaken::before_mark(self.entry(target)?),
                    Put::Stored(marked) => {
                        obj.set_meta("resourceVersion", &marked.modified().to_string());
                        if !then_delete {
                            return Ok(Ok(Deleted::Waiting(answer(obj))));
                        }
                        entry = marked;
                    }
                }
            }
            Plan::Delete if dry_run => return Ok(Ok(Deleted::Gone(answer(obj)))),
            Plan::Delete => {}
        }
        match self.remove(target, entry.modified()).await? {
            Deletion::Done(revision) => {
                self.release(target, &obj).await;
                obj.set_meta("resourceVersion", &revision.to_string());
                Ok(Ok(Deleted::Gone(answer(obj))))
            }
            Deletion::Conflict(now) => {
                let marked = is_marked.then(|| answer(obj));
                Ok(Err(Overtaken { now, marked }))
            }
        }
    }

    /// Deletes all objects that match, started in the order of their keys. Returns their state
    /// before the deletion. Appends the warnings of each deletion to `warnings`.
    pub async fn delete_collection(
        &self,
        permit: &Permit,
        target: &Target,
        list: &ListOptions,
        options: &DeleteOptions,
        warnings: &mut Vec<Str>,
    ) -> Result<crate::List, Failure> {
        target.assert_covered_collection(permit, "deletecollection", &list.fields);
        if options.ignore_read_error && self.refuses_malformed_deletion() {
            let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
            invalid_ignore_read_error(&[why.to_owned()])?;
        }
        // Upstream deletes page by page, so a failed conversion is answered as for a page.
        let limit = if list.limit == 0 { usize::MAX } else { list.limit };
        let page = self.list_unchecked(target, &ListOptions { limit, ..list.clone() }).await?;
        warnings.extend(default_propagation_warnings(target, options));
        // Concurrent deletions share a sync to disk. With webhooks or policies, objects are deleted
        // one by one, because upstream stops at the first one that is refused.
        let deletions_max =
            if self.admission_configs(permit).await?.is_some() { 1 } else { DELETIONS_MAX };
        let mut entries = page.items.iter();
        let mut deleting = FuturesUnordered::new();
        loop {
            while deleting.len() < deletions_max
                && let Some(entry) = entries.next()
            {
                deleting.push(self.delete_item(permit, target, entry, options));
            }
            match deleting.next().await {
                Some(deleted) => warnings.extend(deleted?),
                None => break,
            }
        }
        drop(deleting);
        Ok(page)
    }

    async fn delete_item(
        &self,
        permit: &Permit,
        target: &Target,
        entry: &Entry,
        options: &DeleteOptions,
    ) -> Result<Vec<Str>, Failure> {
        let one = target.named(entry.namespace(), entry.name());
        let mut warnings = vec![];
        match self.delete_unchecked(permit, &one, options, Some(&mut warnings)).await {
            // Another request deleted it first.
            Err(status) if status.code == 404 => Ok(warnings),
            Err(status) => Err(status.with_warnings(warnings)),
            Ok(_) => Ok(warnings),
        }
    }
}

/// The name of the option in errors.
const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

fn invalid_ignore_read_error(why: &[String]) -> Result<(), Failure> {
    let path = Path::new(IGNORE_READ_ERROR);
    let mut errors = ErrorList::new();
    for why in why {
        errors.push(FieldError::invalid(&path, true, why));
    }
    errors.into_result("meta.k8s.io", "DeleteOptions", "")
}

/// Returns 422 for an object that can be read, or does not exist.
fn not_corrupt(target: &Target) -> Failure {
    let mut errors = ErrorList::new();
    let why = "is exclusively used to delete corrupt object(s), try again by removing this option";
    errors.push(FieldError::invalid(&Path::new(IGNORE_READ_ERROR), true, why));
    let refused = errors.into_result(&target.gvr().group, &target.gvr().resource, &target.name);
    refused.err().unwrap_or_else(|| target.not_found())
}

/// Refuses the deletion of objects that every cluster has.
fn check_deletable(target: &Target) -> Result<(), Failure> {
    match (target.kind.strategy.deletion_forbidden)(&target.name) {
        Some(why) => Err(Status::forbidden(target.gvr(), &target.name, why)),
        None => Ok(()),
    }
}

/// Returns the warning of a client that does not set the propagation policy, for kinds whose
/// default has surprised users.
pub fn default_propagation_warnings(target: &Target, options: &DeleteOptions) -> Vec<Str> {
    let warning = target.kind.strategy.deletion_warning.filter(|_| options.propagation.is_none());
    warning.map(Str::new_static).into_iter().collect()
}

/// Plans the deletion of an object with content (a namespace): it is Terminating until its content
/// is deleted and `spec.finalizers` is empty, and is then deleted like any other object.
fn plan_with_content(options: &DeleteOptions, obj: &mut Object, now: Timestamp) -> Option<Plan> {
    if obj.deletion_timestamp().is_some() {
        let is_held = !obj.array_at(&["spec", "finalizers"]).is_empty();
        return is_held.then_some(Plan::Leave);
    }
    // Only for these kinds does `orphanDependents: false` mean foreground.
    let propagation = match options.propagation {
        Some(Propagation::Background) if options.given.contains(&"orphanDependents") => {
            Some(Propagation::Foreground)
        }
        other => other,
    };
    if propagation.is_some() {
        set_propagation(obj, propagation, GarbageCollection::DeleteDependents);
    }
    let time = now.text();
    obj.set_meta("deletionTimestamp", &time);
    obj.object_mut("status").insert("phase", "Terminating");
    // Upstream deletes even an empty one only with the next delete.
    Some(Plan::Mark { then_delete: false })
}
