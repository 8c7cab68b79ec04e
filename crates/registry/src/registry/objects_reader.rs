//! The registry as authorizers and authenticators read it: objects, and the changes of some
//! resources.

use super::Registry;
use keelson_auth::{BoxFuture, Change, Feed, GroupResource, Objects};
use keelson_cache::{Cursor, Position, Resource};
use keelson_meta::{Failure, Object, Status};
use keelson_records::Entry;
use keelson_resources::Kind;
use std::sync::{Arc, Weak};

/// The registry as authorizers read it.
struct ReadOnly {
    /// Weak, because the registry owns the authorizer.
    registry: Weak<Registry>,
    /// What each request asks, without counting who uses the registry: all processors write to
    /// that number.
    position: Position,
}

impl Registry {
    /// Returns read access for authorizers and authenticators. It does not keep the registry alive.
    pub fn objects_reader(&self) -> Arc<dyn Objects> {
        Arc::new(ReadOnly { registry: self.this.clone(), position: self.cache.position() })
    }
}

impl ReadOnly {
    fn registry(&self) -> Result<Arc<Registry>, Failure> {
        self.registry.upgrade().ok_or_else(|| Status::unavailable("the server is shutting down"))
    }
}

impl Objects for ReadOnly {
    fn revision(&self) -> u64 {
        if self.registry.strong_count() == 0 { 0 } else { self.position.get() }
    }

    fn lag(&self) -> Option<BoxFuture<Result<(), Failure>>> {
        if self.registry.strong_count() > 0 && self.position.is_current() {
            return None;
        }
        let registry = self.registry();
        Some(Box::pin(async move { registry?.wait_for_known().await }))
    }

    fn latest(&self) -> BoxFuture<Result<(), Failure>> {
        let registry = self.registry();
        Box::pin(async move { registry?.wait_for_latest().await })
    }

    fn modified(
        &self,
        (group, resource): GroupResource,
        namespace: &str,
        name: &str,
    ) -> Option<u64> {
        let registry = self.registry.upgrade()?;
        let kind = registry.kind(group, resource)?;
        let entry = registry.entry_at(&kind, &kind.key(namespace, name)).ok()??;
        Some(entry.modified().0)
    }

    fn follow(&self, resources: &'static [GroupResource]) -> Box<dyn Feed> {
        let followed = |&(group, resource): &GroupResource| {
            let registry = self.registry.upgrade()?;
            let kind = registry.kind(group, resource)?.clone();
            let objects = registry.objects(&kind);
            Some(Followed { kind, objects, cursor: None, taken_through: None })
        };
        Box::new(Following {
            registry: self.registry.clone(),
            resources: resources.iter().map(followed).collect(),
        })
    }

    fn get(
        &self,
        (group, resource): GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Object>, Failure> {
        let registry = self.registry()?;
        let Some(kind) = registry.kind(group, resource) else { return Ok(None) };
        let entry = registry.entry_at(&kind, &kind.key(namespace, name))?;
        entry.map(|entry| kind.decode(&entry)).transpose()
    }

    fn labelled(
        &self,
        (group, resource): GroupResource,
        namespace: &str,
        label: (&str, &str),
    ) -> Result<Vec<Object>, Failure> {
        let (key, value) = label;
        let registry = self.registry()?;
        let Some(kind) = registry.kind(group, resource) else { return Ok(vec![]) };
        let prefix = format!("{namespace}/");
        let snapshot = registry.all_under(&kind, &prefix)?;
        let entries = snapshot.range(&prefix, "").filter(|entry| entry.label(key) == Some(value));
        entries.map(|entry| kind.decode(entry)).collect()
    }
}

/// Cursors of several resources; `None` for a resource that is not served.
struct Following {
    registry: Weak<Registry>,
    resources: Vec<Option<Followed>>,
}

struct Followed {
    kind: Arc<Kind>,
    objects: Arc<Resource>,
    /// `None`: all objects must be listed again.
    cursor: Option<Cursor>,
    /// The value of [`Resource::changes`] up to which all changes were taken; `None` after a
    /// failure.
    taken_through: Option<u64>,
}

impl Feed for Following {
    fn take(&mut self, out: &mut Vec<(usize, Change)>) -> Result<(), Failure> {
        let Some(registry) = self.registry.upgrade() else {
            return Err(Status::unavailable("the server is shutting down"));
        };
        for (index, followed) in self.resources.iter_mut().enumerate() {
            if let Some(followed) = followed {
                followed.take(&registry, &mut |change| out.push((index, change)))?;
            }
        }
        Ok(())
    }
}

impl Followed {
    fn take(&mut self, registry: &Registry, out: &mut dyn FnMut(Change)) -> Result<(), Failure> {
        // Read before the changes are taken: a concurrent change is taken again next time.
        let now = self.objects.changes();
        if self.taken_through == Some(now) {
            return Ok(());
        }
        self.taken_through = None;
        let mut changes = vec![];
        while let Some(cursor) = &mut self.cursor {
            if cursor.take(&mut changes).is_err() {
                self.cursor = None;
            } else if changes.is_empty() {
                break;
            }
            for change in changes.drain(..) {
                match change.kind {
                    keelson_cache::ChangeKind::Put => out(change_of(&self.kind, &change.entry)),
                    keelson_cache::ChangeKind::Delete => out(deleted(change.entry.key())),
                }
            }
        }
        if self.cursor.is_none() {
            self.relist(registry, out)?;
        }
        // The last known state of an object that cannot be read must not be used.
        for key in self.objects.unreadable_keys() {
            out(deleted(&key));
        }
        self.taken_through = Some(now);
        Ok(())
    }

    fn relist(&mut self, registry: &Registry, out: &mut dyn FnMut(Change)) -> Result<(), Failure> {
        let snapshot = registry.cache.snapshot(&self.objects);
        let cursor = self.objects.cursor(snapshot.revision);
        out(Change::Reset);
        for entry in snapshot.range("", "") {
            out(change_of(&self.kind, entry));
        }
        self.cursor =
            Some(cursor.ok_or_else(|| {
                Status::unavailable("the watch cache is being filled; try again")
            })?);
        Ok(())
    }
}

/// Returns the object of an entry as a change; an object that cannot be decoded counts as deleted.
fn change_of(kind: &Kind, entry: &Entry) -> Change {
    kind.decode(entry).map_or_else(|_| deleted(entry.key()), Change::Put)
}

fn deleted(key: &str) -> Change {
    let (namespace, name) = key.split_once('/').unwrap_or(("", key));
    Change::Gone { namespace: namespace.into(), name: name.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_namespace_and_name() {
        let check = |key: &str, want: (&str, &str)| match deleted(key) {
            Change::Gone { namespace, name } => assert_eq!((&*namespace, &*name), want),
            other => panic!("{other:?}"),
        };
        check("ns/name", ("ns", "name"));
        check("name", ("", "name"));
    }

    #[test]
    fn a_registry_that_is_gone_refuses() {
        let objects = ReadOnly { registry: Weak::new(), position: Position::default() };
        assert!(objects.lag().is_some());
        assert_eq!(objects.revision(), 0);
        assert!(objects.get(("", "pods"), "a", "b").is_err());
    }
}
