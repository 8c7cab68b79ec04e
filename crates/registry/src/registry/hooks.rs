//! Hooks: what single kinds do in the steps of the verbs, beyond their
//! [`Strategy`](keelson_kinds::Strategy). The registry decides when a hook runs; a crate above it
//! implements the hook and passes it in when the registry is opened.
//!
//! Some of these traits have only one implementation besides those of tests. They exist so that
//! this crate can call code of a crate above it.

use super::Registry;
use crate::options::{LogOptions, WriteOptions};
use crate::target::Target;
use crate::write::Write;
use crate::write_failure::WriteFailure;
use keelson_auth::Permit;
use keelson_meta::{Failure, Object, Status, Str, Timestamp};
use keelson_metrics::Exposition;
use keelson_resources::Kind;
use keelson_schema::catalogue::Session;
use keelson_store::BoxFuture;
use std::fmt;
use std::sync::Arc;
use tokio::io::DuplexStream;

/// The hooks of all kinds.
#[derive(Clone, Default)]
pub struct Hooks {
    /// Hooks of built-in resources that store objects, by group and resource.
    pub kinds: Vec<(&'static str, &'static str, Arc<KindHooks>)>,
    /// Built-in resources that store no objects, by group and resource.
    pub computed: Vec<(&'static str, &'static str, Arc<dyn Computed>)>,
    /// The resource quotas.
    pub quotas: Option<Arc<dyn Quotas>>,
    /// Writes what objects of single kinds say about the cluster, as metrics.
    pub metrics: Option<WriteMetrics>,
}

/// Reads stored objects and writes metrics of them.
pub type WriteMetrics = fn(&Registry, &mut Exposition);

impl Hooks {
    /// Returns the hooks of a built-in kind.
    pub(super) fn of(&self, group: &str, resource: &str) -> Option<Arc<KindHooks>> {
        let row = self.kinds.iter().find(|(of, name, _)| *of == group && *name == resource);
        row.map(|(.., hooks)| hooks.clone())
    }
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks").field("kinds", &self.kinds.len()).finish_non_exhaustive()
    }
}

/// The hooks of one kind.
#[derive(Clone, Default)]
pub struct KindHooks {
    /// Allocates shared resources such as addresses and ports to objects.
    pub claims: Option<Arc<dyn Claims>>,
    /// Checks permissions that depend on the object.
    pub guard: Option<Arc<dyn Guard>>,
    /// The subresources that act on an object when they are posted to.
    pub actions: Vec<ActionRow>,
    /// The subresources that connect to a node.
    pub connections: Option<Arc<dyn Connections>>,
}

impl fmt::Debug for KindHooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actions: Vec<&str> = self.actions.iter().map(|row| row.name).collect();
        f.debug_struct("KindHooks").field("actions", &actions).finish_non_exhaustive()
    }
}

/// A subresource that acts on an object when it is posted to.
#[derive(Clone)]
pub struct ActionRow {
    /// Its name in the URL.
    pub name: &'static str,
    /// A resource of the same group whose create does the same (`bindings` for `pods/binding`).
    pub resource: Option<&'static str>,
    /// The implementation.
    pub action: Arc<dyn Action>,
}

/// Allocates shared resources (addresses, ports) to objects of a kind before they are stored, and
/// releases them.
pub trait Claims: Send + Sync {
    /// Allocates what an object lacks and sets its fields. A dry run allocates nothing and returns
    /// no claim.
    fn claim<'a>(
        &'a self,
        registry: &'a Registry,
        obj: &'a mut Object,
        old: Option<&'a Object>,
        dry_run: bool,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Claim>>, Failure>>;

    /// Returns the error that replaces the validation errors of an invalid object, if its
    /// allocation fails too.
    fn refused<'a>(
        &'a self,
        registry: &'a Registry,
        obj: &'a Object,
        old: Option<&'a Object>,
        dry_run: bool,
    ) -> BoxFuture<'a, Option<Failure>>;

    /// Releases the shared resources of a deleted object.
    fn release<'a>(&'a self, registry: &'a Registry, deleted: &'a Object) -> BoxFuture<'a, ()>;
}

/// What was allocated for one write. Dropped before [`Claim::begin`], it releases everything.
pub trait Claim: Send {
    /// Marks that the store is about to be called: from here on a cancelled write may still
    /// succeed.
    fn begin(&mut self);

    /// Ends the claim with the outcome of the write.
    fn end<'a>(self: Box<Self>, registry: &'a Registry, ending: Ending) -> BoxFuture<'a, ()>;
}

/// The outcome of a write with a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The object is stored.
    Stored,
    /// The object is certainly not stored.
    NotStored,
    /// Unknown: the object may be stored, or be found stored when the store is opened again.
    Unknown,
}

/// The resource quotas of namespaces.
pub trait Quotas: Send + Sync {
    /// Whether a quota may apply to a write that stores `obj`.
    fn may_apply(&self, registry: &Registry, write: &Write<'_>, obj: &Object) -> bool;

    /// Charges the quotas for an object that is about to be stored, or refuses it. While the charge
    /// is held, no other write is charged and no usage is recalculated in the namespace.
    fn charge<'a>(
        &'a self,
        registry: &'a Registry,
        write: &'a Write<'a>,
        obj: &'a Object,
    ) -> BoxFuture<'a, Result<Box<dyn Charge>, Failure>>;

    /// Recalculates the usage of quota `name` in a namespace.
    fn recalculate<'a>(
        &'a self,
        registry: &'a Registry,
        permit: &'a Permit,
        namespace: &'a str,
        name: &'a str,
    ) -> BoxFuture<'a, Result<(), Failure>>;
}

/// The amounts that a write was charged.
pub trait Charge: Send {
    /// Takes the charge back: the object was not stored.
    fn refund<'a>(self: Box<Self>, registry: &'a Registry) -> BoxFuture<'a, ()>;
}

/// A permission check that depends on the object. It runs after the mutating plug-ins.
pub trait Guard: Send + Sync {
    /// Refuses a write that its user is not allowed to do.
    fn check<'a>(
        &'a self,
        registry: &'a Registry,
        write: &'a Write<'a>,
        obj: &'a Object,
    ) -> BoxFuture<'a, Result<(), Failure>>;
}

/// The implementation of a subresource that is posted to.
pub trait Action: Send + Sync {
    /// Sets the defaults of a body that are not in its schema. Audit events show them.
    fn fill_defaults(&self, _body: &mut Object) {}

    /// Performs the action. A failure carries its own warnings.
    fn act<'a>(
        &'a self,
        req: ActionRequest<'a>,
        body: Object,
    ) -> BoxFuture<'a, Result<ActionResponse, Failure>>;
}

/// A resource that stores no objects; they are computed for each request.
pub trait Computed: Send + Sync {
    /// Answers a create, which admission has already passed: a review.
    fn post<'a>(
        &'a self,
        _registry: &'a Registry,
        _permit: &'a Permit,
        _review: Object,
    ) -> BoxFuture<'a, Result<Object, Failure>> {
        Box::pin(async { Err(Status::method_not_allowed()) })
    }

    /// Returns the object of a name.
    fn get<'a>(
        &'a self,
        _registry: &'a Registry,
        _name: &'a str,
    ) -> BoxFuture<'a, Result<Object, Failure>> {
        Box::pin(async { Err(Status::method_not_allowed()) })
    }

    /// Returns all objects.
    fn list<'a>(&'a self, _registry: &'a Registry) -> BoxFuture<'a, Result<Vec<Object>, Failure>> {
        Box::pin(async { Err(Status::method_not_allowed()) })
    }
}

/// The result of an action.
#[derive(Clone, Debug, Default)]
pub struct ActionResponse {
    /// The object to answer with; `None`: a `Status` of success.
    pub object: Option<Object>,
    /// Texts of Warning headers.
    pub warnings: Vec<Str>,
}

/// A request to a subresource, covered by its permit. The permit also covers everything that the
/// action does.
#[derive(Clone, Copy)]
pub struct ActionRequest<'a> {
    /// The registry.
    pub registry: &'a Registry,
    /// The permit of the request.
    pub permit: &'a Permit,
    /// The object that the action is about.
    pub target: &'a Target,
    /// The options of the request.
    pub options: &'a WriteOptions,
    pub(crate) row: &'a ActionRow,
}

/// An owned [`ActionRequest`], for a task that outlives the request.
pub struct OwnedActionRequest {
    pub(crate) registry: Arc<Registry>,
    pub(crate) permit: Permit,
    pub(crate) target: Target,
    pub(crate) options: WriteOptions,
    pub(crate) row: ActionRow,
}

/// Subresources that connect the client to something that runs.
pub trait Connections: Send + Sync {
    /// Finds where the requested connection leads.
    fn locate<'a>(
        &'a self,
        registry: &'a Registry,
        target: &'a Target,
        asked: Connection<'a>,
    ) -> BoxFuture<'a, Result<Located, Failure>>;
}

/// A connection that a request asks for.
#[derive(Clone, Copy, Debug)]
pub enum Connection<'a> {
    /// The log of a container.
    Log(&'a LogOptions),
    /// A stream to a container, with its options as admission has left them (`PodExecOptions`).
    Session(Session, &'a Object),
    /// A request to pass on to a path.
    Proxy {
        /// The path after `/proxy`, as it is sent, without query.
        path: &'a str,
    },
}

/// Whether a connection leads anywhere.
#[derive(Debug)]
pub enum Located {
    /// To nothing yet: a log is empty.
    Nothing,
    /// To something outside of this process.
    There(Location),
    /// To a container on a simulated node: its log is told by [`SimulatedNodes::log`].
    Simulated(SimulatedContainer),
    /// To ports of a pod on a simulated node, of which some are registered:
    /// [`SimulatedNodes::port`].
    SimulatedPorts(Object),
}

/// A port of a pod.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodPort {
    /// The namespace of the pod.
    pub namespace: Str,
    /// Its name.
    pub pod: Str,
    /// The number.
    pub port: u16,
}

/// What answers the connections to a port.
pub type PortHandler = Arc<dyn Fn(DuplexStream) -> BoxFuture<'static, ()> + Send + Sync>;

/// A container on a simulated node.
#[derive(Clone, Debug)]
pub struct SimulatedContainer {
    /// Its pod.
    pub pod: Object,
    /// Its name.
    pub name: String,
}

/// Nodes that run nothing: what their pods do stands in the pods' status only.
pub trait SimulatedNodes: Send + Sync {
    /// Whether a node is simulated.
    fn has(&self, node: &Object) -> bool;
    /// Returns what a container, or its previous run, is said to have logged. Fails as a kubelet
    /// does.
    fn log(&self, pod: &Object, container: &str, previous: bool) -> Result<SimulatedLog, Failure>;
    /// Whether anything is registered for the ports of a pod.
    fn has_ports(&self, pod: &Object) -> bool;
    /// Returns what is registered for a port.
    fn port(&self, port: &PodPort) -> Option<PortHandler>;
}

/// The log of a container on a simulated node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SimulatedLog {
    /// The lines, without their ends.
    pub lines: Vec<(Timestamp, String)>,
    /// Whether the container has ended: no line will follow.
    pub is_over: bool,
}

/// Where a connection leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Whether the far side speaks TLS.
    pub is_secure: bool,
    /// A name, or an IP address without brackets.
    pub host: String,
    /// The port as it was given; empty: that of the scheme.
    pub port: String,
    /// The path, escaped.
    pub path: String,
    /// The query, without `?`; `None`: that of the request.
    pub query: Option<String>,
    /// Who is there.
    pub far_side: FarSide,
}

/// Who is at the far side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FarSide {
    /// A kubelet: it is shown the server's certificate for kubelets.
    Kubelet {
        /// Whether its certificate is verified.
        is_verified: bool,
        /// Whether it speaks v5 of the channel protocol and tunnels ports over WebSocket.
        takes_websockets: bool,
    },
    /// Something that users name: it is shown no credentials and must have a global unicast
    /// address.
    Workload,
}

impl Registry {
    /// Whether writes of a kind need claims, and so write several keys.
    pub(crate) fn has_claims(&self, kind: &Kind) -> bool {
        self.hooks_of(kind).claims.is_some()
    }

    /// Returns the implementation of a resource that stores no objects.
    pub fn computed(&self, group: &str, resource: &str) -> Option<&Arc<dyn Computed>> {
        let mut known = self.hooks.computed.iter();
        known.find(|(of, name, _)| *of == group && *name == resource).map(|(.., found)| found)
    }

    /// Returns the resource and subresource that creating `resource` stands for: `pods`, `binding`
    /// for `bindings`.
    pub fn alias_of(&self, group: &str, resource: &str) -> Option<(&'static str, &'static str)> {
        let kinds = self.hooks.kinds.iter().filter(|(of, ..)| *of == group);
        let mut rows =
            kinds.flat_map(|(_, of, hooks)| hooks.actions.iter().map(move |row| (*of, row)));
        let found = rows.find(|(_, row)| row.resource == Some(resource));
        found.map(|(of, row)| (of, row.name))
    }

    /// Whether a quota may apply to a write. Quotas never apply to the server's own writes, which
    /// it needs to start.
    pub(crate) fn has_quotas(&self, write: &Write<'_>, obj: &Object) -> bool {
        let quotas = self.hooks.quotas.as_ref().filter(|_| write.permit.attributes().is_some());
        quotas.is_some_and(|quotas| quotas.may_apply(self, write, obj))
    }

    /// Charges the quotas of the namespace for an object that is about to be stored, or refuses it.
    pub(crate) async fn charge(
        &self,
        write: &Write<'_>,
        obj: &Object,
    ) -> Result<Option<Box<dyn Charge>>, Failure> {
        let quotas = self.hooks.quotas.as_ref().filter(|_| self.has_quotas(write, obj));
        let Some(quotas) = quotas else { return Ok(None) };
        quotas.charge(self, write, obj).await.map(Some)
    }

    /// Takes back the charge for an object that was not stored.
    pub(crate) async fn refund(&self, charge: Option<Box<dyn Charge>>) {
        if let Some(charge) = charge {
            charge.refund(self).await;
        }
    }

    /// Recalculates the usage of a quota.
    pub async fn recalculate_quota(
        &self,
        permit: &Permit,
        namespace: &str,
        name: &str,
    ) -> Result<(), Failure> {
        match &self.hooks.quotas {
            Some(quotas) => quotas.recalculate(self, permit, namespace, name).await,
            None => Ok(()),
        }
    }

    /// Allocates the shared resources that an object lacks. A dry run allocates nothing.
    pub(crate) async fn claim(
        &self,
        target: &Target,
        obj: &mut Object,
        old: Option<&Object>,
        dry_run: bool,
    ) -> Result<Option<Box<dyn Claim>>, WriteFailure> {
        match &self.hooks_of(&target.kind).claims {
            Some(claims) => {
                let claimed = claims.claim(self, obj, old, dry_run).await;
                claimed.map_err(WriteFailure::NotAllocated)
            }
            None => Ok(None),
        }
    }

    /// Returns the error for an invalid object. kube-apiserver allocates before it validates, so a
    /// failed allocation takes the place of the validation errors.
    pub(crate) async fn refused(
        &self,
        target: &Target,
        obj: &Object,
        old: Option<&Object>,
        dry_run: bool,
        invalid: Failure,
    ) -> Failure {
        match &self.hooks_of(&target.kind).claims {
            Some(claims) => claims.refused(self, obj, old, dry_run).await.unwrap_or(invalid),
            None => invalid,
        }
    }

    /// Releases the shared resources of a deleted object.
    pub(crate) async fn release(&self, target: &Target, deleted: &Object) {
        if let Some(claims) = &self.hooks_of(&target.kind).claims {
            claims.release(self, deleted).await;
        }
    }

    /// Finds where a requested connection leads.
    pub async fn locate(
        &self,
        permit: &Permit,
        target: &Target,
        asked: Connection<'_>,
    ) -> Result<Located, Failure> {
        target.assert_connected(permit);
        let connections = self.hooks_of(&target.kind).connections.as_ref();
        connections.ok_or_else(Status::method_not_allowed)?.locate(self, target, asked).await
    }
}
