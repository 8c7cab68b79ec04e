//! Owners and dependents that come, go and come again, by many writers at once: at the end exactly the right objects
//! are there.

use super::{MAPS, looping, owned_by, until};
use crate::http::Client;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const WRITERS: usize = 16;
const LASTS: Duration = Duration::from_secs(4);
/// Names that a writer uses again and again.
const NAMES: usize = 12;

/// Random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 33).expect("31 bits") % end
    }
}

/// What there must be in the end, as far as one writer knows: of each name its uid and its owners.
#[derive(Default)]
struct Model {
    objects: BTreeMap<String, Held>,
}

struct Held {
    uid: String,
    /// By name and uid.
    owners: Vec<(String, String)>,
}

impl Model {
    /// Leaves out what has owners of which none is left; what loses its owners one by one.
    fn collect(&mut self) {
        loop {
            let uids: Vec<String> = self.objects.values().map(|held| held.uid.clone()).collect();
            let before = self.objects.len();
            self.objects.retain(|_, held| {
                let had_owners = !held.owners.is_empty();
                held.owners.retain(|(_, uid)| uids.contains(uid));
                !had_owners || !held.owners.is_empty()
            });
            if self.objects.len() == before {
                return;
            }
        }
    }
}

impl Model {
    /// Waits until the dependents of an object have the owners that they are to have.
    fn await_owners(&self, client: &Client, owner: &str) {
        for (name, held) in &self.objects {
            if !held.owners.iter().any(|(name, _)| name == owner) {
                continue;
            }
            client.poll(&format!("{MAPS}/{name}"), |got| {
                let owners = got.body["metadata"]["ownerReferences"].as_array();
                let uids = owners.into_iter().flatten().map(|owner| &owner["uid"]);
                uids.eq(held.owners.iter().map(|(_, uid)| uid))
            });
        }
    }
}

/// Makes and deletes objects of its own until the time is over. Only it knows their names.
fn write(client: &Client, writer: usize, until: Instant) -> Model {
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ (writer as u64 + 1));
    let mut model = Model::default();
    while Instant::now() < until {
        let name = format!("w{writer}-{}", random.below(NAMES));
        if random.below(3) > 0 {
            // The names of what may have been collected meanwhile are free, or will be.
            model.collect();
            if model.objects.contains_key(&name) {
                continue;
            }
            let all: Vec<_> =
                model.objects.iter().map(|(name, held)| (name.clone(), held.uid.clone())).collect();
            let count = random.below(3).min(all.len());
            let mut owners: Vec<_> =
                (0..count).map(|_| all[random.below(all.len())].clone()).collect();
            owners.sort();
            owners.dedup();
            let references: Vec<Value> = owners
                .iter()
                .map(|(name, uid)| owned_by(name, uid, random.below(2) == 0))
                .collect();
            let body = json!({"metadata": {"name": name, "ownerReferences": references}});
            let made = client.post(MAPS, &body);
            if made.status == 201 {
                let uid = made.body["metadata"]["uid"].as_str().expect("a uid").to_owned();
                model.objects.insert(name, Held { uid, owners });
            } else {
                assert_eq!(made.status, 409, "{made:?}");
            }
        } else if model.objects.contains_key(&name) {
            let policy = ["Background", "Foreground", "Orphan"][random.below(3)];
            if policy == "Orphan" {
                // An object that lost its other owners before, but has not been looked at, would go.
                model.collect();
                if !model.objects.contains_key(&name) {
                    continue;
                }
                model.await_owners(client, &name);
            }
            model.objects.remove(&name);
            let path = format!("{MAPS}/{name}?propagationPolicy={policy}");
            let deleted = client.delete(&path);
            assert!(matches!(deleted.status, 200 | 404), "{deleted:?}");
            if policy == "Orphan" {
                // Its dependents are free once it is gone, and not before: the model waits for that.
                super::gone(client, &format!("{MAPS}/{name}"));
                let uid = |held: &Held| held.uid.clone();
                let known: Vec<String> = model.objects.values().map(uid).collect();
                for held in model.objects.values_mut() {
                    held.owners.retain(|(_, uid)| known.contains(uid));
                }
            }
        }
    }
    model.collect();
    model
}

#[test]
fn exactly_what_has_an_owner_or_needs_none_is_left() {
    let server = looping();
    let end = Instant::now() + LASTS;
    let mut wanted: BTreeMap<String, String> = BTreeMap::new();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let client = server.client();
                scope.spawn(move || write(&client, writer, end))
            })
            .collect();
        for writer in writers {
            let model = writer.join().expect("a writer does not panic");
            wanted.extend(model.objects.into_iter().map(|(name, held)| (name, held.uid)));
        }
    });
    let client = server.client();
    let left = || -> BTreeMap<String, String> {
        let list = client.get(MAPS).body;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let objects = list["items"].as_array().into_iter().flatten();
        let objects = objects
            .map(|object| (text(&object["metadata"]["name"]), text(&object["metadata"]["uid"])));
        objects.filter(|(name, _)| name != "kube-root-ca.crt").collect()
    };
    until("the right objects are left", || left() == wanted);
    super::settle(&client);
    assert_eq!(left(), wanted);
    server.stop();
}
