//! [`Client`]: how a control loop reads and writes objects: as a user of its own, authorized and admitted like
//! any other client, within the process.

use bytes::Bytes;
use keelson_auth::{AUTHENTICATED, Attributes, MASTERS, Permit, SERVICE_ACCOUNT_PREFIX, User};
use keelson_meta::time::Timestamp;
use keelson_meta::{Failure, Map, Object, Reason, Status, Str, Value, value};
use keelson_registry::options::{
    DeleteOptions, Freshness, ListOptions, Patch, PatchForm, Propagation, WriteOptions,
};
use keelson_registry::{
    Answer, Deleted, Entry, Kind, List, Part, Registry, Target, Updated, Written,
};
use keelson_schema::decode::Decoded;
use keelson_schema::json;
use std::sync::Arc;

/// The field manager of everything that a kube-controller-manager writes.
pub(crate) const FIELD_MANAGER: &str = "kube-controller-manager";
/// The group of all service accounts.
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";
/// The group of the service accounts of the loops.
const SYSTEM_SERVICE_ACCOUNTS: &str = "system:serviceaccounts:kube-system";

/// Reads and writes objects as one user.
#[derive(Clone)]
pub(crate) struct Client {
    pub registry: Arc<Registry>,
    user: User,
    field_manager: &'static str,
}

impl Client {
    /// A client that acts as a service account of kube-system, with the permissions that RBAC gives it. Where
    /// RBAC does not decide, nobody could give it any, and it acts for the server itself.
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

    /// A client that acts as kube-controller-manager itself, as some loops do there.
    pub fn manager(registry: &Arc<Registry>) -> Client {
        let client = Client::new(registry, "");
        let groups: Vec<Str> =
            client.user.groups.iter().filter(|group| !group.contains("account")).cloned().collect();
        let name = Str::new_static("system:kube-controller-manager");
        Client { user: User { name, groups: groups.into(), ..User::default() }, ..client }
    }

    /// A client that acts as the API server itself.
    pub fn api_server(registry: &Arc<Registry>) -> Client {
        let user = User { name: Str::new_static("system:apiserver"), ..User::default() };
        let user = user.with_group(MASTERS);
        Client { registry: registry.clone(), user, field_manager: "kube-apiserver" }
    }

    /// The same, with writes that carry another name in managedFields.
    pub fn with_field_manager(self, field_manager: &'static str) -> Client {
        Client { field_manager, ..self }
    }

    /// The present time.
    pub fn now(&self) -> Timestamp {
        self.registry.clock.now()
    }

    /// The kind of a built-in resource; `None` when it is not served.
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
        // A request for a namespace object is authorized as one inside of that namespace.
        let is_namespace = gvr.group.is_empty() && gvr.resource == "namespaces";
        let namespace = if is_namespace { &target.name } else { &target.namespace }.clone();
        let attributes = Attributes {
            verb: Str::new_static(verb),
            subresource: Str::new_static(subresource),
            name: if verb == "create" { Str::default() } else { target.name.clone() },
            gvr,
            namespace,
            ..Attributes::default()
        };
        self.registry.options.authorizer.authorize(self.user.clone(), attributes).await
    }

    fn write_options(&self) -> WriteOptions {
        WriteOptions { field_manager: Str::new_static(self.field_manager), ..Default::default() }
    }

    /// The stored form of an object, as new as the store; `None` when there is none.
    pub async fn entry(&self, target: &Target) -> Result<Option<Entry>, Failure> {
        let permit = self.permit("get", target, "").await?;
        match self.registry.get(&permit, target, Freshness::Latest).await {
            Ok(Answer::Entry(entry)) => Ok(Some(entry)),
            Ok(_) => Ok(None),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// An object, as new as the store; `None` when there is none.
    pub async fn get(&self, target: &Target) -> Result<Option<Object>, Failure> {
        let entry = self.entry(target).await?;
        entry.map(|entry| target.kind.decode(&entry)).transpose()
    }

    /// The Scale of an object.
    pub async fn scale(&self, target: &Target) -> Result<Option<Object>, Failure> {
        let permit = self.permit("get", target, "scale").await?;
        match self.registry.get_scale(&permit, target, Freshness::Latest).await {
            Ok(Answer::Object(scale)) => Ok(Some(scale)),
            Ok(_) => Ok(None),
            Err(status) if status.code == 404 => Ok(None),
            Err(status) => Err(status),
        }
    }

    /// The objects of a kind, of one namespace or of all.
    pub async fn list(&self, target: &Target) -> Result<List, Failure> {
        let permit = self.permit("list", target, "").await?;
        self.registry.list(&permit, target, &ListOptions::default()).await
    }

    /// Makes an object. Answers with what is stored.
    pub async fn create(&self, target: &Target, mut object: Object) -> Result<Object, Failure> {
        let permit = self.permit("create", target, "").await?;
        object.set_gvk(&target.schema().gvk);
        let body = Decoded { object, strict_errors: vec![] };
        let made = self.registry.create(&permit, target, body, &self.write_options()).await?;
        object_of(target, made)
    }

    /// Replaces an object, or its status: of the version that it has, if it has one.
    pub async fn update(
        &self,
        target: &Target,
        part: Part,
        mut object: Object,
    ) -> Result<Object, Failure> {
        let permit = self.permit("update", target, part.name()).await?;
        object.set_gvk(&target.schema().gvk);
        let body = Decoded { object, strict_errors: vec![] };
        let options = self.write_options();
        let written = self.registry.update(&permit, target, part, body, &options).await?;
        object_of(target, written)
    }

    /// Changes an object, or its status, by a patch.
    pub async fn patch(
        &self,
        target: &Target,
        part: Part,
        form: PatchForm,
        patch: &Value,
    ) -> Result<Written, Failure> {
        let permit = self.permit("patch", target, part.name()).await?;
        let mut body = vec![];
        json::write_value(patch, &mut body);
        let patch = Patch { form, body: Bytes::from(body) };
        let options = WriteOptions { force: form.is_apply(), ..self.write_options() };
        self.registry.patch(&permit, target, part, &patch, &options).await
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

    /// Takes the finalizer `kubernetes` off a namespace.
    pub async fn finalize_namespace(&self, target: &Target) -> Result<(), Failure> {
        let permit = self.permit("update", target, "finalize").await?;
        let change = |live: Option<&Object>| {
            let mut object = live.cloned().ok_or_else(|| target.not_found())?;
            if let Some(Value::Array(items)) = object.object_mut("spec").get_mut("finalizers") {
                items.retain(|item| item.as_str() != Some("kubernetes"));
            }
            Ok(Updated { object, owned: true, warnings: vec![] })
        };
        let part = Part::Other("finalize");
        let options = WriteOptions { field_manager: FIELD_MANAGER.into(), ..Default::default() };
        match self.registry.modify(&permit, target, part, &change, &options).await {
            Err(status) if status.code == 404 => Ok(()),
            written => written.map(drop),
        }
    }

    /// Counts again what is used up of a quota.
    pub async fn recount_quota(&self, target: &Target) -> Result<(), Failure> {
        let permit = self.permit("update", target, "status").await?;
        self.registry.recount_quota(&permit, &target.namespace, &target.name).await
    }

    /// Stores an event about an object (client-go `tools/record`). One that cannot be stored is logged.
    pub async fn report(&self, component: &'static str, about: &About<'_>, event: Report<'_>) {
        let Some(kind) = self.kind("", "events") else { return };
        let namespace = if about.namespace.is_empty() { "default" } else { about.namespace };
        let now = self.now();
        let nanos = i128::from(now.seconds) * 1_000_000_000 + i128::from(now.nanos);
        let name = format!("{}.{nanos:x}", about.name);
        let mut involved = Map::new();
        let facts = [
            ("kind", about.kind),
            ("namespace", about.namespace),
            ("name", about.name),
            ("uid", about.uid),
            ("apiVersion", about.api_version),
            ("resourceVersion", about.resource_version),
        ];
        for (name, fact) in facts.into_iter().filter(|(_, fact)| !fact.is_empty()) {
            involved.insert(name, fact);
        }
        let object = value!({
            "metadata": {"name": (name.as_str()), "namespace": namespace},
            "involvedObject": (involved), "reason": (event.reason), "message": (event.message),
            "source": {"component": component}, "firstTimestamp": (now.text()),
            "lastTimestamp": (now.text()), "count": 1, "type": (event.kind),
            "reportingComponent": component
        });
        let target = Target::of(&kind, namespace, &name);
        let object = Object::from_value(object).unwrap_or_default();
        if let Err(error) = self.create(&target, object).await {
            tracing::warn!(%error, component, reason = event.reason, "event not stored");
        }
    }
}

/// The object that an event is about.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct About<'a> {
    pub kind: &'a str,
    pub api_version: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
    /// Empty: the event does not say.
    pub resource_version: &'a str,
}

/// What an event says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Report<'a> {
    /// `Normal` or `Warning`.
    pub kind: &'static str,
    /// One word that is compared.
    pub reason: &'static str,
    /// The text for people.
    pub message: &'a str,
}

fn object_of(target: &Target, written: Written) -> Result<Object, Failure> {
    match written.answer {
        Answer::Entry(entry) => target.kind.decode(&entry),
        Answer::Object(object) => Ok(object),
        Answer::Success(_) => Ok(Object::new()),
    }
}

/// Whether a namespace is there and takes new objects.
pub(crate) fn is_active(registry: &Registry, namespace: &str) -> bool {
    let kind = registry.kind("", "namespaces");
    let entry = kind.and_then(|kind| registry.cached(&kind, "", namespace));
    entry.is_some_and(|entry| entry.field("status.phase") != Some("Terminating"))
}

/// What comes of a write into a namespace that may have begun to end: then it is not needed any more. Nor is it
/// when somebody else was faster.
pub(crate) fn unless_ending<T>(written: Result<T, Failure>) -> Result<(), Failure> {
    match written {
        Err(status) if status.code == 404 || status.reason == Reason::AlreadyExists => Ok(()),
        Err(status) if is_ending(&status) => Ok(()),
        written => written.map(drop),
    }
}

fn is_ending(status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    causes.any(|cause| cause.reason == "NamespaceTerminating")
}
