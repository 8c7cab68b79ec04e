//! The storage version migrator: writes every object of a resource again, so that it is stored in
//! the current storage version, and reports the result in the StorageVersionMigration. The kind is
//! served only with the feature gate StorageVersionMigrator.
//!
//! Of several migrations of one resource the oldest runs; the others wait for it.

use keelson_loops::client::{Client, ignore_terminating};
use keelson_loops::control_loop::{self, ControlLoop};
use keelson_loops::queue::Queue;
use keelson_meta::{Failure, Object, Str, Timestamp, Value, value};
use keelson_records::Entry;
use keelson_registry::options::PatchForm;
use keelson_registry::{InformerEvent, InformerScope, Registry, Subresource, Target};
use keelson_resources::Kind;
use keelson_resources::api_table::Source;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const GROUP: &str = "storagemigration.k8s.io";
const RESOURCE: &str = "storageversionmigrations";
/// The field manager of the writes to migrated objects. It owns no field.
const FIELD_MANAGER: &str = "storage-version-migrator-controller";
/// Maximum number of concurrent writes.
const WRITES_MAX: usize = 32;
/// How long the loop waits for a resource that is not served yet.
const ABSENT_SECONDS_MAX: i64 = 80;
/// Time between checks of a migration that has to wait.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// Time that a changed definition takes to be served.
const DEFINITION_WAIT: Duration = Duration::from_millis(100);

/// Runs until it is dropped.
pub(crate) async fn run(registry: Arc<Registry>) {
    let client = Client::new(&registry, "storage-version-migrator-controller");
    control_loop::run(&registry, Migrator { client }).await;
}

struct Migrator {
    client: Client,
}

impl ControlLoop for Migrator {
    /// The name of a StorageVersionMigration.
    type Key = Str;
    const NAME: &'static str = "storage-version-migrator-controller";
    const SCOPE: InformerScope = InformerScope::Only(&[(GROUP, RESOURCE)]);
    const WORKERS_MAX: usize = 1;

    fn observe(&self, events: Vec<InformerEvent>, queue: &mut Queue<Str>) -> bool {
        for event in &events {
            match event {
                InformerEvent::Listed(_, all) => {
                    queue.extend(all.range("", "").map(|entry| entry.name().into()));
                }
                InformerEvent::Put { entry, .. } => queue.add(entry.name().into()),
                InformerEvent::Deleted { .. } | InformerEvent::Withdrawn(_) => {}
            }
        }
        false
    }

    async fn sync(&self, name: Str) -> Result<Option<Duration>, Failure> {
        let Some(kind) = self.client.kind(GROUP, RESOURCE) else { return Ok(None) };
        let target = Target::of(&kind, "", &name);
        let known = self.client.registry.cached(&kind, "", &name);
        let Some(migration) = known.map(|entry| kind.decode(&entry)).transpose()? else {
            return Ok(None);
        };
        if is_completed(&migration) || migration.deletion_timestamp().is_some() {
            return Ok(None);
        }
        if self.has_older_migration(&kind, &migration) {
            return Ok(Some(RETRY_INTERVAL));
        }
        if !is_true(&migration, "Running") {
            let mut running = migration;
            self.set_condition(&mut running, "Running", "True", "MigrationRunning", RUNNING);
            ignore_terminating(self.client.update(&target, Subresource::Status, running).await)?;
            // The update is an event that queues the key again.
            return Ok(None);
        }
        self.migrate(&target, migration).await
    }
}

const RUNNING: &str = "The migration is running";

impl Migrator {
    /// Whether an older migration of the same resource has not completed.
    fn has_older_migration(&self, kind: &Kind, migration: &Object) -> bool {
        let age = |one: &Object| {
            (one.str_at(&["metadata", "creationTimestamp"]).to_owned(), one.name().to_owned())
        };
        let resource = resource_of(migration);
        let own = age(migration);
        let all = self.client.registry.cached_all(kind);
        all.range("", "").filter_map(|entry| kind.decode(entry).ok()).any(|other| {
            resource_of(&other) == resource && !is_completed(&other) && age(&other) < own
        })
    }

    /// Writes all objects of the resource and then completes the migration.
    async fn migrate(
        &self,
        target: &Target,
        mut migration: Object,
    ) -> Result<Option<Duration>, Failure> {
        let (group, resource) = resource_of(&migration);
        let Some(kind) = self.client.kind(&group, &resource) else {
            let created = Timestamp::parse(migration.creation_timestamp());
            let age = created.map_or(i64::MAX, |at| self.client.now().seconds - at.seconds);
            if age < ABSENT_SECONDS_MAX {
                return Ok(Some(RETRY_INTERVAL));
            }
            let why = "resource does not exist in discovery";
            self.complete(&mut migration, "Failed", "StorageVersionMigrationFailed", why);
            ignore_terminating(self.client.update(target, Subresource::Status, migration).await)?;
            return Ok(None);
        };
        let definition = self.definition(&kind, &group, &resource).await?;
        if let Some(definition) = &definition
            && storage_version(definition) != Some(&kind.storage.gvk.version)
        {
            return Ok(Some(DEFINITION_WAIT));
        }
        let all = self.client.registry.cached_all(&kind);
        let revision = self.client.registry.cache.revision().to_string();
        let mut writes = JoinSet::new();
        for entry in all.range("", "") {
            if writes.len() == WRITES_MAX {
                control_loop::join_result(writes.join_next().await)?;
            }
            let client = self.client.clone();
            let kind = kind.clone();
            let entry = entry.clone();
            writes.spawn(async move { rewrite(client, &kind, &entry).await });
        }
        while let Some(done) = writes.join_next().await {
            control_loop::join_result(Some(done))?;
        }
        if let Some(definition) = &definition {
            self.set_stored_versions(definition).await?;
        }
        migration.object_mut("status").insert("resourceVersion", revision);
        self.complete(&mut migration, "Succeeded", "StorageVersionMigrationSucceeded", "");
        ignore_terminating(self.client.update(target, Subresource::Status, migration).await)?;
        Ok(None)
    }

    /// Returns the CustomResourceDefinition of a custom resource.
    async fn definition(
        &self,
        kind: &Kind,
        group: &str,
        resource: &str,
    ) -> Result<Option<Object>, Failure> {
        let definitions = self.client.kind("apiextensions.k8s.io", "customresourcedefinitions");
        let Some(definitions) = definitions.filter(|_| kind.source == Source::Custom) else {
            return Ok(None);
        };
        self.client.get(&Target::of(&definitions, "", &format!("{resource}.{group}"))).await
    }

    /// Sets `status.storedVersions` of a CustomResourceDefinition to its storage version. If the
    /// definition has changed since it was read, the sync fails and is retried.
    async fn set_stored_versions(&self, definition: &Object) -> Result<(), Failure> {
        let definitions = self.client.kind("apiextensions.k8s.io", "customresourcedefinitions");
        let (Some(definitions), Some(stored)) = (definitions, storage_version(definition)) else {
            return Ok(());
        };
        let target = Target::of(&definitions, "", definition.name());
        let patch = value!({
            "metadata": {"resourceVersion": (definition.resource_version())},
            "status": {"storedVersions": [stored]}
        });
        let patched =
            self.client.patch(&target, Subresource::Status, PatchForm::Merge, &patch).await;
        ignore_terminating(patched.map(drop))
    }

    fn complete(&self, migration: &mut Object, name: &str, reason: &str, message: &str) {
        self.set_condition(
            migration,
            "Running",
            "False",
            "MigrationCompleted",
            "Migration completed",
        );
        self.set_condition(migration, name, "True", reason, message);
    }

    /// Sets a condition.
    fn set_condition(
        &self,
        migration: &mut Object,
        name: &str,
        status: &str,
        reason: &str,
        message: &str,
    ) {
        let condition = value!({"type": name, "status": status, "reason": reason,
            "message": message, "lastTransitionTime": (self.client.now().text())});
        let all = migration.object_mut("status").entry_or("conditions", || Value::Array(vec![]));
        let Some(all) = all.as_array_mut() else { return };
        match all.iter_mut().find(|one| one.str_at(&["type"]) == Some(name)) {
            Some(known) => *known = condition,
            None => all.push(condition),
        }
    }
}

/// Applies an empty configuration to an object, which encodes it in the storage version.
async fn rewrite(client: Client, kind: &Arc<Kind>, entry: &Entry) -> Result<(), Failure> {
    let target = Target::of(kind, entry.namespace(), entry.name());
    let gvk = &target.schema().gvk;
    let uid = entry
        .field("metadata.uid")
        .map(str::to_owned)
        .or_else(|| Some(kind.decode(entry).ok()?.uid().to_owned()));
    let patch = value!({
        "apiVersion": (gvk.api_version()), "kind": (gvk.kind.clone()),
        "metadata": {"name": (entry.name()), "uid": (uid.unwrap_or_default()),
            "resourceVersion": (entry.modified().to_string())}
    });
    let client = client.with_field_manager(FIELD_MANAGER);
    match client.patch(&target, Subresource::None, PatchForm::ApplyYaml, &patch).await {
        // It was deleted, or written by somebody else and thereby migrated.
        Err(status) if matches!(status.code, 404 | 409) => Ok(()),
        result => result.map(drop),
    }
}

/// Returns the storage version of a CustomResourceDefinition.
fn storage_version(definition: &Object) -> Option<&str> {
    let mut versions = definition.array_at(&["spec", "versions"]).iter();
    let stored = versions.find(|one| one.get("storage").and_then(Value::as_bool) == Some(true));
    stored?.str_at(&["name"])
}

fn resource_of(migration: &Object) -> (String, String) {
    let of = |name: &str| migration.str_at(&["spec", "resource", name]).to_owned();
    (of("group"), of("resource"))
}

fn is_true(migration: &Object, name: &str) -> bool {
    let mut all = migration.array_at(&["status", "conditions"]).iter();
    all.any(|one| one.str_at(&["type"]) == Some(name) && one.str_at(&["status"]) == Some("True"))
}

fn is_completed(migration: &Object) -> bool {
    is_true(migration, "Succeeded") || is_true(migration, "Failed")
}
