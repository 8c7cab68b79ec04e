//! [`SubjectIndex`]: which FlowSchemas may mean a user, without asking each.

use crate::schema::{ALL, FlowSchema, Subject, account_name};
use keelson_meta::{Str, User};

/// The bit of the first FlowSchema that has none of its own, and of all behind it.
const LAST: usize = u128::BITS as usize - 1;

/// FlowSchemas by the users and groups of their subjects.
#[derive(Debug, Default)]
pub struct SubjectIndex {
    users: Places,
    groups: Places,
    /// Those that name no single user or group.
    everyone: u128,
    count: usize,
}

/// The places of FlowSchemas as bits, sorted by name.
#[derive(Debug, Default)]
struct Places(Vec<(Str, u128)>);

impl Places {
    fn get(&self, name: &str) -> u128 {
        let found = self.0.binary_search_by(|(known, _)| known.as_str().cmp(name));
        found.map_or(0, |at| self.0[at].1)
    }

    fn add(&mut self, name: Str, bit: u128) {
        match self.0.binary_search_by(|(known, _)| known.cmp(&name)) {
            Ok(at) => self.0[at].1 |= bit,
            Err(at) => self.0.insert(at, (name, bit)),
        }
    }
}

impl SubjectIndex {
    /// Creates the index of FlowSchemas in the order in which they match.
    pub fn new<'s>(schemas: impl IntoIterator<Item = &'s FlowSchema>) -> SubjectIndex {
        let mut index = SubjectIndex::default();
        for (place, schema) in schemas.into_iter().enumerate() {
            index.count = place + 1;
            for subject in schema.subjects() {
                index.add(subject, 1 << place.min(LAST));
            }
        }
        index
    }

    fn add(&mut self, subject: &Subject, bit: u128) {
        match subject {
            Subject::User(name) if name != ALL => self.users.add(name.clone(), bit),
            Subject::Group(name) if name != ALL => self.groups.add(name.clone(), bit),
            Subject::ServiceAccount { namespace, name } if name != ALL => {
                self.users.add(account_name(namespace, name), bit);
            }
            _ => self.everyone |= bit,
        }
    }

    /// Returns the places of the FlowSchemas with a subject that may mean the user, in the order in
    /// which they match.
    pub fn find(&self, user: &User) -> impl Iterator<Item = usize> + use<> {
        let groups = user.groups.iter().fold(0, |all, group| all | self.groups.get(group));
        let mut bits = self.everyone | self.users.get(&user.name) | groups;
        let count = self.count;
        let single = std::iter::from_fn(move || {
            let place = bits.trailing_zeros() as usize;
            bits &= bits.wrapping_sub(1);
            (place <= LAST).then_some(place)
        });
        single.flat_map(move |place| place..if place == LAST { count } else { place + 1 })
    }
}
