//! What single kinds do in the steps of the verbs, beyond the rules of their [`Strategy`](keelson_kinds::Strategy):
//! the registry says when, a crate above it what. They are handed in when the registry is opened.
//!
//! Some of these traits have one implementation beside that of the tests: they are the seam at which a crate below
//! asks one above it.

use super::Registry;
use crate::kind::{Kind, Target};
use crate::options::{LogOptions, WriteOptions};
use crate::write::Write;
use keelson_auth::Permit;
use keelson_meta::{Failure, Object, Status, Str};
use keelson_store::BoxFuture;
use std::fmt;
use std::sync::Arc;

/// What is asked of every write, and of the writes of single kinds.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Those of built-in resources, by group and name.
    pub kinds: Vec<(&'static str, &'static str, KindHooks)>,
    /// Those of resources that keep no objects, by group and name.
    pub computed: Vec<(&'static str, &'static str, Arc<dyn Computed>)>,
    /// What limits how much there is in a namespace.
    pub quotas: Option<Arc<dyn Quotas>>,
}

impl Hooks {
    pub(super) fn row(&self, group: &str, resource: &str) -> Option<usize> {
        self.kinds.iter().position(|(of, name, _)| *of == group && *name == resource)
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("kinds", &self.kinds.len()).finish_non_exhaustive()
    }
}

/// The hooks of a kind.
#[derive(Clone, Default)]
pub struct KindHooks {
    /// What its objects are given out of what all share.
    pub claims: Option<Arc<dyn Claims>>,
    /// Who may write what, beyond the authorizer.
    pub guard: Option<Arc<dyn Guard>>,
    /// The subresources that act on an object.
    pub actions: Vec<ActionRow>,
    /// The subresources that lead to a node.
    pub connections: Option<Arc<dyn Connections>>,
}

impl fmt::Debug for KindHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actions: Vec<&str> = self.actions.iter().map(|row| row.name).collect();
        f.debug_struct("KindHooks").field("actions", &actions).finish_non_exhaustive()
    }
}

/// A subresource that acts on an object.
#[derive(Clone)]
pub struct ActionRow {
    /// Its name in the URL.
    pub name: &'static str,
    /// A resource of the same group by which the same is asked for.
    pub resource: Option<&'static str>,
    /// What it does.
    pub action: Arc<dyn Action>,
}

/// What objects of a kind take out of what all objects share (addresses, ports) before they are stored, and give
/// back.
pub trait Claims: Send + Sync {
    /// Gives an object that is to be stored what it lacks. A dry run takes nothing, and has no claim.
    fn claim<'a>(
        &'a self,
        registry: &'a Registry,
        obj: &'a mut Object,
        old: Option<&'a Object>,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Claim>>, Failure>>;

    /// What is said of an invalid object in the place of that, if anything is.
    fn refused<'a>(
        &'a self,
        registry: &'a Registry,
        obj: &'a Object,
        old: Option<&'a Object>,
        dry_run: bool,
    ) -> BoxFuture<'a, Option<Failure>>;

    /// The object is gone, and what it was given is free.
    fn release<'a>(&'a self, registry: &'a Registry, gone: &'a Object) -> BoxFuture<'a, ()>;
}

/// What a write has taken. One that is dropped before it begins gives all back.
pub trait Claim: Send {
    /// The store is asked now: should the write be cut off, it may be done all the same.
    fn begin(&mut self);

    /// The store has answered.
    fn end<'a>(self: Box<Self>, registry: &'a Registry, ending: Ending) -> BoxFuture<'a, ()>;
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The object is stored.
    Stored,
    /// It is certainly not.
    NotStored,
    /// It may be, or be found stored when the store opens again.
    Unknown,
}

/// What limits how much there is in a namespace.
pub trait Quotas: Send + Sync {
    /// Whether they may have something to say about a write.
    fn concern(&self, registry: &Registry, write: &Write<'_>) -> bool;

    /// Charges for an object that is about to be stored, or refuses it. While the charge is held, nobody else
    /// charges or counts in the namespace.
    fn charge<'a>(
        &'a self,
        registry: &'a Registry,
        write: &'a Write<'a>,
        obj: &'a Object,
    ) -> BoxFuture<'a, Result<Box<dyn Charge>, Failure>>;

    /// Counts again what the objects of a namespace use up of the quota of a name.
    fn recount<'a>(
        &'a self,
        registry: &'a Registry,
        permit: &'a Permit,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>>;
}

/// What a write was charged.
pub trait Charge: Send {
    /// The object was not stored.
    fn refund<'a>(self: Box<Self>, registry: &'a Registry) -> BoxFuture<'a, ()>;
}

/// Who may write what, where that depends on the object: asked after the plug-ins that change objects.
pub trait Guard: Send + Sync {
    /// Refuses a write that its user may not do.
    fn check<'a>(
        &'a self,
        registry: &'a Registry,
        write: &'a Write<'a>,
        obj: &'a Object,
    ) -> BoxFuture<'a, Result<(), Failure>>;
}

/// What a subresource does to an object when something is posted to it.
pub trait Action: Send + Sync {
    /// Does it. Failures are given the warnings that come with them.
    fn act<'a>(&'a self, asked: Asked<'a>, body: Object) -> BoxFuture<'a, Result<Acted, Failure>>;
}

/// A resource that keeps no objects: they are made when they are asked for.
pub trait Computed: Send + Sync {
    /// Answers what is posted, after plug-ins have seen it: a review.
    fn post<'a>(
        &'a self,
        _registry: &'a Registry,
        _permit: &'a Permit,
        _review: Object,
    ) -> BoxFuture<'a, Result<Object, Failure>> {
        Box::pin(async { Err(Status::method_not_allowed()) })
    }

    /// The object of a name.
    fn get(&self, _registry: &Registry, _name: &str) -> Result<Object, Failure> {
        Err(Status::method_not_allowed())
    }

    /// All objects.
    fn list(&self, _registry: &Registry) -> Result<Vec<Object>, Failure> {
        Err(Status::method_not_allowed())
    }
}

/// What came of an action.
#[derive(Clone, Debug, Default)]
pub struct Acted {
    /// What is answered, where that is more than that it is done.
    pub object: Option<Object>,
    /// Texts of Warning headers.
    pub warnings: Vec<Str>,
}

/// A request to a subresource, which its permit covers: with it goes the right to all that the action does.
#[derive(Clone, Copy)]
pub struct Asked<'a> {
    /// All kinds.
    pub registry: &'a Registry,
    /// Of the request.
    pub permit: &'a Permit,
    /// The object.
    pub target: &'a Target,
    /// What the client asks of it.
    pub options: &'a WriteOptions,
    pub(crate) row: &'a ActionRow,
}

/// The same, for a task that outlives the request.
pub struct OwnedAsked {
    pub(crate) registry: Arc<Registry>,
    pub(crate) permit: Permit,
    pub(crate) target: Target,
    pub(crate) options: WriteOptions,
    pub(crate) row: ActionRow,
}

/// What leads to a node.
pub trait Connections: Send + Sync {
    /// The log of a container, which is empty while no node runs its object.
    fn log<'a>(
        &'a self,
        registry: &'a Registry,
        target: &'a Target,
        options: &'a LogOptions,
    ) -> BoxFuture<'a, Result<(), Failure>>;

    /// Why there is no stream to an object.
    fn refused<'a>(
        &'a self,
        registry: &'a Registry,
        permit: &'a Permit,
        target: &'a Target,
        container: &'a str,
    ) -> BoxFuture<'a, Failure>;
}

impl Registry {
    /// What is done for a kind in the verbs, beyond its rules.
    pub(crate) fn hooks_of(&self, kind: &Kind) -> &KindHooks {
        kind.hooks_row.map_or(&self.no_hooks, |row| &self.hooks.kinds[row].2)
    }

    /// Whether objects of a kind are given something before they are stored: such a write is of several keys.
    pub(crate) fn takes(&self, kind: &Kind) -> bool {
        self.hooks_of(kind).claims.is_some()
    }

    /// What answers for a resource that keeps no objects.
    pub fn computed(&self, group: &str, resource: &str) -> Option<&Arc<dyn Computed>> {
        let mut known = self.hooks.computed.iter();
        known.find(|(of, name, _)| *of == group && *name == resource).map(|(.., found)| found)
    }

    /// The resource of the same group, and its subresource, for which a resource is another way to post.
    pub fn posted_to(&self, group: &str, resource: &str) -> Option<(&'static str, &'static str)> {
        let kinds = self.hooks.kinds.iter().filter(|(of, ..)| *of == group);
        let mut rows =
            kinds.flat_map(|(_, of, hooks)| hooks.actions.iter().map(move |row| (*of, row)));
        let found = rows.find(|(_, row)| row.resource == Some(resource));
        found.map(|(of, row)| (of, row.name))
    }

    /// Whether quotas may have something to say about a write. They have nothing to say about what the
    /// server writes on its own account, which it needs to start.
    pub(crate) fn has_quotas(&self, write: &Write<'_>) -> bool {
        let quotas = self.hooks.quotas.as_ref().filter(|_| write.permit.attributes().is_some());
        quotas.is_some_and(|quotas| quotas.concern(self, write))
    }

    /// Charges the quotas of the namespace for what is about to be stored, or refuses it.
    pub(crate) async fn charge(
        &self,
        write: &Write<'_>,
        obj: &Object,
    ) -> Result<Option<Box<dyn Charge>>, Failure> {
        let quotas = self.hooks.quotas.as_ref().filter(|_| self.has_quotas(write));
        let Some(quotas) = quotas else { return Ok(None) };
        quotas.charge(self, write, obj).await.map(Some)
    }

    /// Gives back what was charged for an object that was not stored.
    pub(crate) async fn refund(&self, charge: Option<Box<dyn Charge>>) {
        if let Some(charge) = charge {
            charge.refund(self).await;
        }
    }

    /// Counts again what the objects of a namespace use up of a quota.
    pub async fn recount_quota(
        &self,
        permit: &Permit,
        namespace: &str,
        name: &str,
    ) -> Result<(), Failure> {
        match &self.hooks.quotas {
            Some(quotas) => quotas.recount(self, permit, namespace, name).await,
            None => Ok(()),
        }
    }

    /// Gives an object that is to be stored what it lacks of what all share. A dry run takes nothing.
    pub(crate) async fn claim(
        &self,
        target: &Target,
        obj: &mut Object,
        old: Option<&Object>,
        dry_run: bool,
    ) -> Result<Option<Box<dyn Claim>>, Failure> {
        match &self.hooks_of(&target.kind).claims {
            Some(claims) => claims.claim(self, obj, old, dry_run).await,
            None => Ok(None),
        }
    }

    /// Why an invalid object is refused. One that takes something is given it before it is validated: when it
    /// does not get that, that alone is said.
    pub(crate) async fn refused(
        &self,
        target: &Target,
        obj: &Object,
        (old, dry_run): (Option<&Object>, bool),
        invalid: Failure,
    ) -> Failure {
        match &self.hooks_of(&target.kind).claims {
            Some(claims) => claims.refused(self, obj, old, dry_run).await.unwrap_or(invalid),
            None => invalid,
        }
    }

    /// The object is gone, and what it was given is free.
    pub(crate) async fn release(&self, target: &Target, gone: &Object) {
        if let Some(claims) = &self.hooks_of(&target.kind).claims {
            claims.release(self, gone).await;
        }
    }

    /// The log of a container, which is empty while no node runs its object.
    pub async fn read_log(
        &self,
        permit: &Permit,
        target: &Target,
        options: &LogOptions,
    ) -> Result<(), Failure> {
        target.assert_covered(permit, "get", "log");
        let connections = self.hooks_of(&target.kind).connections.as_ref();
        connections.ok_or_else(Status::method_not_allowed)?.log(self, target, options).await
    }

    /// Why there is no stream to an object.
    pub async fn no_node(&self, permit: &Permit, target: &Target, container: &str) -> Failure {
        target.assert_connected(permit);
        match &self.hooks_of(&target.kind).connections {
            Some(connections) => connections.refused(self, permit, target, container).await,
            None => Status::method_not_allowed(),
        }
    }
}
