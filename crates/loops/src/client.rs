//! [`Client`]: reads and writes of a control loop. They are authorized and admitted like those of
//! any other client, within the process.

use bytes::Bytes;
use keelson_auth::{AUTHENTICATED, Attributes, MASTERS, Permit, SERVICE_ACCOUNT_PREFIX, User};
use keelson_meta::time::Timestamp;
use keelson_meta::{Failure, Object, Reason, Status, Str, Value, value};
use keelson_records::Entry;
use keelson_registry::options::{
    DeleteOptions, Freshness, ListOptions, Patch, PatchForm, Propagation, WriteOptions,
};
use keelson_registry::{
    Answer, Deleted, List, NewObject, Registry, ScaleChange, Subresource, Target, UpdateFn,
    WriteResponse,
};
use keelson_resources::Kind;
use keelson_schema::decode::Decoded;
use keelson_schema::json;
use std::sync::Arc;

/// The field manager of the writes of a kube-controller-manager.
pub const FIELD_MANAGER: &str = "kube-controller-manager";
/// The group of all service accounts.
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// The group of the service accounts in kube-system.
const SYSTEM_SERVICE_ACCOUNTS: &str = "system:serviceaccounts:kube-system";

/// Reads and writes objects as one user.
#[derive(Clone)]
pub struct Client {
    /// The registry.
    pub registry: Arc<Registry>,
    user: User,
    field_manager: &'static str,
}

impl Client {
    /// Returns a client that acts as a service account of kube-system with the permissions that
    /// RBAC gives it. Without RBAC nobody could grant permissions to it, so it acts as a member of
    /// `system:masters`.
    pub fn new(registry: &Arc<Registry>, account: &str) -> Client {
        let groups = [SERVICE_ACCOUNTS, SYSTEM_SERVICE_ACCOUNTS, AUTHENTICATED];
        let mut user = User {
            name: format!("{SERVICE_ACCOUNT_PREFIX}kube-system:{account}").into(),
            groups: groups.into_iter().map(Str::new_static).collect(),
            ..User::default()
        };
        if !registry.options.authorizer.has_rbac() {
            user = user.with_group(MASTERS);
        }
        Client { registry: registry.clone(), user, field_manager: FIELD_MANAGER }
    }

    /// Returns a client that acts as `system:kube-controller-manager`.
    pub fn manager(registry: &Arc<Registry>) -> Client {
        let client = Client::new(registry, "");
        let groups: Vec<Str> =
            client.user.groups.iter().filter(|group| !group.contains("account")).cloned().collect();
        let name = Str::new_static("system:kube-controller-manager");
        Client { user: User { name, groups: groups.into(), ..User::default() }, ..client }
    }

    /// Returns a client that acts as any user, for example a node. Without RBAC it acts as a member
    /// of `system:masters`, too.
    pub fn of_user(registry: &Arc<Registry>, name: &str, groups: &[&'static str]) -> Client {
        let groups = groups.iter().copied().chain([AUTHENTICATED]);
        let user = User {
            name: name.into(),
            groups: groups.map(Str::new_static).collect(),
            ..User::default()
        };
        let may_be_granted = registry.options.authorizer.has_rbac();
        let user = if may_be_granted { user } else { user.with_group(MASTERS) };
        Client { registry: registry.clone(), user, field_manager: FIELD_MANAGER }
    }

    /// Returns a client that acts as the API server itself.
    pub fn api_server(registry: &Arc<Registry>) -> Client {
        let user = User { name: Str::new_static("system:apiserver"), ..User::default() };
        let user = user.with_group(MASTERS);
        Client { registry: registry.clone(), user, field_manager: "kube-apiserver" }
    }

    /// Returns the client with another field manager.
    pub fn with_field_manager(self, field_manager: &'static str) -> Client {
        Client { field_manager, ..self }
    }

    /// Returns the user as whom the client acts.
    pub(crate) fn user(&self) -> &User {
        &self.user
    }

    /// Returns the current time.
    pub fn now(&self) -> Timestamp {
        self.registry.clock.now()
    }

    /// Returns the kind of a resource; `None` if it is not served.
    pub fn kind(&self, group: &str, resource: &str) -> Option<Arc<Kind>> {
        self.registry.kind(group, resource)
    }

    async fn permit(
        &self,
        verb: &'static str,
        target: &Target,
        subresource: &'static str,
    ) -> Result<Permit, Failure> {
        let gvr = target.gvr().clone();
        // Requests for a namespace are authorized in that namespace.
        let is_namespace = gvr.group.is_empty() && gvr.resource == "namespaces";
        let namespace = if is_namespace { &target.name } else { &target.namespace }.clone();
        let is_new = verb == "create" && subresource.is_empty();
        let attributes = Attributes {
            verb: Str::new_static(verb),
            subresource: Str::new_static(subresource),
            name: if is_new { Str::default() } else { target.name.clone() },
            gvr,
            namespace,
            ..Attributes::default()
        };
        self.registry.options.authorizer.authorize(self.user.clone(), attributes).await
    }

    fn write_options(&self) -> WriteOptions {
        WriteOptions { field_manager: Str::new_static(self.field_manager), ..Default::default() }
    }

    /// Returns the latest stored entry of an object; `None` if it does not exist.
    pub async fn entry(&self, target: &Target) -> Result<Option<Entry>, Failure> {
        let permit = self.permit("get", target, "").await?;
        match self.registry.get(&permit, target, Freshness::Latest).await {
            Ok(Answer::Entry(entry)) => Ok(Some(entry)),
            Ok(_) => Ok(None),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Returns the latest state of an object; `None` if it does not exist.
    pub async fn get(&self, target: &Target) -> Result<Option<Object>, Failure> {
        let entry = self.entry(target).await?;
        entry.map(|entry| target.kind.decode(&entry)).transpose()
    }

    /// Returns the Scale of an object.
    pub async fn scale(&self, target: &Target) -> Result<Option<Object>, Failure> {
        let permit = self.permit("get", target, "scale").await?;
        match self.registry.get_scale(&permit, target, Freshness::Latest).await {
            Ok(Answer::Object(scale)) => Ok(Some(scale)),
            Ok(_) => Ok(None),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// Stores a Scale of an object, if it is still that of the same version.
    pub async fn update_scale(&self, target: &Target, scale: Object) -> Result<(), Failure> {
        let permit = self.permit("update", target, "scale").await?;
        let change = ScaleChange::Whole(Decoded { object: scale, strict_errors: vec![] });
        let options = self.write_options();
        self.registry.update_scale(&permit, target, &change, &options).await.map(drop)
    }

    /// Lists the objects of a kind, in one namespace or in all.
    pub async fn list(&self, target: &Target) -> Result<List, Failure> {
        let permit = self.permit("list", target, "").await?;
        self.registry.list(&permit, target, &ListOptions::default()).await
    }

    /// Creates an object and returns what is stored.
    pub async fn create(&self, target: &Target, mut object: Object) -> Result<Object, Failure> {
        let permit = self.permit("create", target, "").await?;
        object.set_gvk(&target.schema().gvk);
        let body = Decoded { object, strict_errors: vec![] };
        let response = self.registry.create(&permit, target, body, &self.write_options()).await?;
        object_of(target, response)
    }

    /// Replaces an object or its status. A resourceVersion in `object` is a precondition.
    pub async fn update(
        &self,
        target: &Target,
        subresource: Subresource,
        mut object: Object,
    ) -> Result<Object, Failure> {
        let permit = self.permit("update", target, subresource.name()).await?;
        object.set_gvk(&target.schema().gvk);
        let body = Decoded { object, strict_errors: vec![] };
        let options = self.write_options();
        let response = self.registry.update(&permit, target, subresource, body, &options).await?;
        object_of(target, response)
    }

    /// Changes the stored state of an object, or its status. `change` is called again when another
    /// write came first, so there are no conflicts. If it changes nothing, nothing is written.
    pub async fn modify(
        &self,
        target: &Target,
        subresource: Subresource,
        change: UpdateFn<'_>,
    ) -> Result<(), Failure> {
        let permit = self.permit("update", target, subresource.name()).await?;
        let options = self.write_options();
        self.registry.modify(&permit, target, subresource, change, &options).await.map(drop)
    }

    /// Posts the body of a subresource that acts on the object, such as `binding`.
    pub async fn act(
        &self,
        target: &Target,
        subresource: &'static str,
        body: Object,
    ) -> Result<(), Failure> {
        let permit = self.permit("create", target, subresource).await?;
        let options = self.write_options();
        self.registry.act(&permit, target, subresource, body, &options).await.map(drop)
    }

    /// Patches an object or its status.
    pub async fn patch(
        &self,
        target: &Target,
        subresource: Subresource,
        form: PatchForm,
        patch: &Value,
    ) -> Result<WriteResponse, Failure> {
        let permit = self.permit("patch", target, subresource.name()).await?;
        let mut body = vec![];
        json::write_value(patch, &mut body);
        let patch = Patch { form, body: Bytes::from(body) };
        let options = WriteOptions { force: form.is_apply(), ..self.write_options() };
        self.registry.patch(&permit, target, subresource, &patch, &options).await
    }

    /// Deletes an object.
    pub async fn delete(
        &self,
        target: &Target,
        options: &DeleteOptions,
    ) -> Result<Deleted, Failure> {
        let permit = self.permit("delete", target, "").await?;
        self.registry.delete(&permit, target, options, &mut vec![]).await
    }

    /// Deletes all objects of a kind in a namespace.
    pub async fn delete_all(&self, target: &Target) -> Result<(), Failure> {
        let permit = self.permit("deletecollection", target, "").await?;
        let list = ListOptions::default();
        let propagation = Some(Propagation::Background);
        let options = DeleteOptions { propagation, ..DeleteOptions::default() };
        self.registry
            .delete_collection(&permit, target, &list, &options, &mut vec![])
            .await
            .map(drop)
    }

    /// Removes the finalizer `kubernetes` from `spec.finalizers` of a namespace.
    pub async fn finalize_namespace(&self, target: &Target) -> Result<(), Failure> {
        let permit = self.permit("update", target, "finalize").await?;
        let change = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            if let Some(Value::Array(items)) = object.object_mut("spec").get_mut("finalizers") {
                items.retain(|item| item.as_str() != Some("kubernetes"));
            }
            Ok(NewObject { object, managed: true, warnings: vec![] })
        };
        let subresource = Subresource::Other("finalize");
        let options = WriteOptions { field_manager: FIELD_MANAGER.into(), ..Default::default() };
        match self.registry.modify(&permit, target, subresource, &change, &options).await {
            Err(status) if status.code == 404 => Ok(()),
            result => result.map(drop),
        }
    }

    /// Recalculates the usage of a quota.
    pub async fn recalculate_quota(&self, target: &Target) -> Result<(), Failure> {
        let permit = self.permit("update", target, "status").await?;
        self.registry.recalculate_quota(&permit, &target.namespace, &target.name).await
    }

    /// Creates an Event about an object (client-go `tools/record`). A failure is only logged.
    pub async fn record_event(
        &self,
        component: &'static str,
        object: &InvolvedObject<'_>,
        event: EventText<'_>,
    ) {
        let Some(kind) = self.kind("", "events") else { return };
        let namespace = if object.namespace.is_empty() { "default" } else { object.namespace };
        let now = self.now();
        let nanos = i128::from(now.seconds) * 1_000_000_000 + i128::from(now.nanos);
        let name = format!("{}.{nanos:x}", object.name);
        let involved = object.facts();
        let fields = value!({
            "metadata": {"name": (name.as_str()), "namespace": namespace},
            "involvedObject": (involved), "reason": (event.reason), "message": (event.message),
            "source": {"component": component}, "firstTimestamp": (now.text()),
            "lastTimestamp": (now.text()), "count": 1, "type": (event.kind),
            "reportingComponent": component
        });
        let target = Target::of(&kind, namespace, &name);
        let new = Object::from_value(fields).unwrap_or_default();
        if let Err(error) = self.create(&target, new).await {
            tracing::warn!(%error, component, reason = event.reason, "event not stored");
        }
    }
}

/// `involvedObject` of an event.
#[derive(Clone, Copy, Debug, Default)]
pub struct InvolvedObject<'a> {
    /// Its kind.
    pub kind: &'a str,
    /// Its group and version.
    pub api_version: &'a str,
    /// Its namespace; empty if it has none.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// Empty: left out.
    pub resource_version: &'a str,
}

/// Type, reason and message of an event.
#[derive(Clone, Copy, Debug)]
pub struct EventText<'a> {
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// One word in CamelCase that programs compare.
    pub reason: &'static str,
    /// Text for people.
    pub message: &'a str,
}

fn object_of(target: &Target, response: WriteResponse) -> Result<Object, Failure> {
    match response.answer {
        Answer::Entry(entry) => target.kind.decode(&entry),
        Answer::Object(object) => Ok(object),
        Answer::Success(_) => Ok(Object::new()),
    }
}

/// Whether a namespace exists and is not terminating.
pub fn is_active(registry: &Registry, namespace: &str) -> bool {
    let kind = registry.kind("", "namespaces");
    let entry = kind.and_then(|kind| registry.cached(&kind, "", namespace));
    entry.is_some_and(|entry| entry.field("status.phase") != Some("Terminating"))
}

/// Ignores the errors of a write that is not needed any more: the object does not exist, it exists
/// already, or its namespace is terminating.
pub fn ignore_terminating<T>(result: Result<T, Failure>) -> Result<(), Failure> {
    match result {
        Err(status) if status.code == 404 || status.reason == Reason::AlreadyExists => Ok(()),
        Err(status) if is_namespace_terminating(&status) => Ok(()),
        result => result.map(drop),
    }
}

/// Whether a write failed because its namespace is being deleted.
pub fn is_namespace_terminating(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}
