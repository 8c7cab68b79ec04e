//! delete and deletecollection: preconditions, grace, finalizers, then the deletion itself.

use crate::conversion::{object_of, record_of};
use crate::kind::Target;
use crate::options::{DeleteOptions, ListOptions, Propagation};
use crate::registry::{Put, Registry, Removed};
use crate::verbs::Tries;
use crate::verbs::bodies::shown_object;
use crate::write::{Options, Write};
use futures_util::stream::{FuturesUnordered, StreamExt};
use keelson_admission::Operation;
use keelson_auth::Permit;
use keelson_cache::Entry;
use keelson_kinds::deletion::{Grace, mark, mark_graceful, set_propagation};
use keelson_kinds::strategy::GarbageCollection;
use keelson_meta::time::Timestamp;
use keelson_meta::{
    ErrorList, Failure, Feature, FieldError, GroupVersionResource, Object, Path, Status, Str,
};
use std::sync::Arc;
use std::time::Instant;

/// Objects of a collection that are deleted side by side.
const DELETIONS_MAX: usize = 32;

/// How a deletion ended. Objects are in the version of the target.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// The object is gone; this is what it was.
    Gone(Object),
    /// The object waits for its grace period or for finalizers; this is what it is now.
    Waiting(Object),
    /// The object could not be read, and is gone.
    Unreadable,
}

/// What one look at the stored object asks for.
enum Plan {
    /// Delete at once.
    Delete,
    /// Store the object as changed; then delete, or leave it to others.
    Mark { then_delete: bool },
    /// It is being deleted already, and nothing changes.
    Leave,
}

impl Registry {
    /// Deletes an object, or marks it for deletion. Texts of Warning headers go to the last argument.
    pub async fn delete(
        &self,
        permit: &Permit,
        target: &Target,
        options: &DeleteOptions,
        warnings: &mut Vec<Str>,
    ) -> Result<Deleted, Failure> {
        target.assert_covered(permit, "delete", "");
        warn_of_dependents(target, options, warnings);
        self.delete_unchecked(permit, target, options, Some(warnings)).await
    }

    /// Deletes an object, for what was authorized and admitted as something else than a delete.
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
        check_lasting(target)?;
        self.check_ignore_read_error(options)?;
        self.fresh().await?;
        if options.ignore_read_error {
            if self.remove_unreadable(target).await?.is_some() {
                return Ok(Deleted::Unreadable);
            }
            if self.refuses_malformed_deletion() {
                return Err(not_corrupt(target));
            }
        }
        let mut stored = self.known(target)?;
        let mut tries = Tries::begin(Instant::now());
        loop {
            tries.next(Instant::now())?;
            let entry = stored.ok_or_else(|| target.not_found())?;
            match self.delete_once(permit, target, options, entry, warnings.as_deref_mut()).await? {
                Ok(deleted) => return Ok(deleted),
                Err(now) => stored = now,
            }
        }
    }

    /// Whether deletions that ignore read errors are checked as upstream checks them.
    fn refuses_malformed_deletion(&self) -> bool {
        self.options.features.is_on(Feature::AllowUnsafeMalformedObjectDeletion)
    }

    /// Refuses options that do not go with `ignoreStoreReadErrorWithClusterBreakingPotential`.
    fn check_ignore_read_error(&self, options: &DeleteOptions) -> Result<(), Failure> {
        if !options.ignore_read_error || !self.refuses_malformed_deletion() {
            return Ok(());
        }
        let with = options.given.iter().map(|name| format!("cannot be set together with .{name}"));
        invalid_ignore_read_error(&with.collect::<Vec<_>>())
    }

    /// One try; the inner error is what another write left.
    async fn delete_once(
        &self,
        permit: &Permit,
        target: &Target,
        options: &DeleteOptions,
        entry: Entry,
        warnings: Option<&mut Vec<Str>>,
    ) -> Result<Result<Deleted, Option<Entry>>, Failure> {
        let mut obj = object_of!(self, target, &entry)?;
        check_preconditions(target, options, &obj)?;
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
        let plan = plan(target, options, &mut obj, self.clock.now());
        let several = self.takes(&target.kind) || matches!(plan, Plan::Mark { then_delete: true });
        if options.dry_run || !several {
            return self.carry_out(target, plan, obj, entry, options.dry_run).await;
        }
        let target = target.clone();
        let delete = |registry: Arc<Registry>| async move {
            registry.carry_out(&target, plan, obj, entry, false).await
        };
        Box::pin(self.to_the_end(delete)).await
    }

    /// The last step of a deletion. The inner error is what another write left.
    async fn carry_out(
        &self,
        target: &Target,
        plan: Plan,
        mut obj: Object,
        mut entry: Entry,
        dry_run: bool,
    ) -> Result<Result<Deleted, Option<Entry>>, Failure> {
        let shown = |obj: Object| shown_object(target, obj);
        match plan {
            Plan::Leave => return Ok(Ok(Deleted::Waiting(shown(obj)))),
            Plan::Mark { then_delete } if dry_run => {
                let shown = shown(obj);
                let deleted =
                    if then_delete { Deleted::Gone(shown) } else { Deleted::Waiting(shown) };
                return Ok(Ok(deleted));
            }
            Plan::Mark { then_delete } => {
                let record = record_of!(self, target, &mut obj)?;
                match self.put(target, record, entry.modified(), None).await? {
                    Put::Lost(now) => return Ok(Err(now)),
                    Put::Overtaken => return Ok(Err(self.known(target)?)),
                    Put::Done(marked) => {
                        obj.set_meta("resourceVersion", &marked.modified().to_string());
                        if !then_delete {
                            return Ok(Ok(Deleted::Waiting(shown(obj))));
                        }
                        entry = marked;
                    }
                }
            }
            Plan::Delete if dry_run => return Ok(Ok(Deleted::Gone(shown(obj)))),
            Plan::Delete => {}
        }
        Ok(match self.remove(target, entry.modified()).await? {
            Removed::Done(_) => {
                self.release(target, &obj).await;
                Ok(Deleted::Gone(shown(obj)))
            }
            Removed::Lost(now) => Err(now),
        })
    }

    /// Deletes every object that matches, begun in the order of their keys; answers with what they were before that.
    pub async fn delete_collection(
        &self,
        permit: &Permit,
        target: &Target,
        list: &ListOptions,
        options: &DeleteOptions,
        warnings: &mut Vec<Str>,
    ) -> Result<crate::List, Failure> {
        target.assert_covered_collection(permit, "deletecollection", &list.fields);
        warn_of_dependents(target, options, warnings);
        if options.ignore_read_error && self.refuses_malformed_deletion() {
            let why = "is not allowed with DELETECOLLECTION, try again after removing the option";
            invalid_ignore_read_error(&[why.to_owned()])?;
        }
        let page = self.list_unchecked(target, list).await?;
        // Several share a sync to the disk. What a webhook or policy refuses ends the deletion before
        // others are asked about, as upstream.
        let deletions_max = if self.passes(permit).await?.is_some() { 1 } else { DELETIONS_MAX };
        let (mut entries, mut deleting) = (page.items.iter(), FuturesUnordered::new());
        loop {
            while deleting.len() < deletions_max
                && let Some(entry) = entries.next()
            {
                deleting.push(self.delete_item(permit, target, entry, options));
            }
            match deleting.next().await {
                Some(told) => warnings.extend(told?),
                None => break,
            }
        }
        drop(deleting);
        Ok(page)
    }

    /// Deletes an object of a collection; texts of warnings.
    async fn delete_item(
        &self,
        permit: &Permit,
        target: &Target,
        entry: &Entry,
        options: &DeleteOptions,
    ) -> Result<Vec<Str>, Failure> {
        let (one, mut warnings) = (target.named(entry.namespace(), entry.name()), vec![]);
        match self.delete_unchecked(permit, &one, options, Some(&mut warnings)).await {
            // Another request deleted it first: gone all the same.
            Err(status) if status.code == 404 => Ok(warnings),
            Err(status) => Err(status.with_warnings(warnings)),
            Ok(_) => Ok(warnings),
        }
    }
}

/// The option's field in errors.
const IGNORE_READ_ERROR: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";

fn invalid_ignore_read_error(why: &[String]) -> Result<(), Failure> {
    let path = Path::new(IGNORE_READ_ERROR);
    let mut errors = ErrorList::new();
    for why in why {
        errors.push(FieldError::invalid(&path, true, why));
    }
    errors.into_result("meta.k8s.io", "DeleteOptions", "")
}

/// 422 for an object that can be read, or is not there.
fn not_corrupt(target: &Target) -> Failure {
    let mut errors = ErrorList::new();
    let why = "is exclusively used to delete corrupt object(s), try again by removing this option";
    errors.push(FieldError::invalid(&Path::new(IGNORE_READ_ERROR), true, why));
    let refused = errors.into_result(&target.gvr().group, &target.gvr().resource, &target.name);
    refused.err().unwrap_or_else(|| target.not_found())
}

/// Refuses to delete what every cluster has.
fn check_lasting(target: &Target) -> Result<(), Failure> {
    match (target.kind.strategy.deletion_forbidden)(&target.name) {
        Some(why) => Err(Status::forbidden(target.gvr(), &target.name, why)),
        None => Ok(()),
    }
}

/// Warns a client whose deletion does not say what becomes of dependents, where that is not what most expect.
fn warn_of_dependents(target: &Target, options: &DeleteOptions, warnings: &mut Vec<Str>) {
    if options.propagation.is_none() {
        warnings.extend(target.kind.strategy.deletion_warning.map(Str::new_static));
    }
}

/// Refuses an object that is not the one that the request means.
pub fn check_preconditions(
    target: &Target,
    options: &DeleteOptions,
    obj: &Object,
) -> Result<(), Failure> {
    let gvk = &target.schema().gvk;
    // A kind that stands in several groups is called by that in which it is stored.
    let early = GroupVersionResource {
        group: target.kind.storage.gvk.group.clone(),
        resource: gvk.kind.clone(),
        ..target.gvr().clone()
    };
    // What has content is marked before anything is looked at, in a transaction with words of its own.
    let is_early = !target.kind.strategy.has_content;
    let check = |what: &str, asked: Option<&str>, stored: &str, fate: &str| match asked {
        Some(asked) if asked != stored && is_early => Err(Status::conflict(
            &early,
            &target.name,
            &format!(
                "the {what} in the precondition ({asked}) does not match the {what} in record \
                 ({stored}). The object might have been {fate}"
            ),
        )),
        Some(asked) if asked != stored => Err(Status::conflict(
            target.gvr(),
            &target.name,
            &format!(
                "Precondition failed: {what} in precondition: {asked}, {what} in object meta: {stored}"
            ),
        )),
        _ => Ok(()),
    };
    check("UID", options.uid.as_deref(), obj.uid(), "deleted and then recreated")?;
    let version = options.resource_version.as_deref();
    check("ResourceVersion", version, obj.resource_version(), "modified")
}

/// Decides what to do, and marks the object where it is to be stored again.
fn plan(target: &Target, options: &DeleteOptions, obj: &mut Object, now: Timestamp) -> Plan {
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
    let changed = set_propagation(obj, options.propagation, policy);
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
        None => Plan::Delete,
    }
}

/// What has content waits, as Terminating, until that is gone and `spec.finalizers` is empty; from then on it is
/// deleted as other kinds are.
fn plan_with_content(options: &DeleteOptions, obj: &mut Object, now: Timestamp) -> Option<Plan> {
    if obj.deletion_timestamp().is_some() {
        let is_held = !obj.array_at(&["spec", "finalizers"]).is_empty();
        return is_held.then_some(Plan::Leave);
    }
    // Of these alone `orphanDependents: false` means foreground.
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
    // Even an empty one that nothing holds is there for one more look.
    Some(Plan::Mark { then_delete: false })
}
