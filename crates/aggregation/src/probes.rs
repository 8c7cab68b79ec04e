//! [`Probes`]: asks the servers behind this one, again and again, whether they are available and
//! what they serve. Whether it is available is asked for each group version, what it serves once
//! for each server.

use crate::asker::{Asker, Identities, Question, Seen};
use crate::discovery::{self, GroupVersion, Groups, resources};
use crate::documents;
use bytes::Bytes;
use http::StatusCode;
use keelson_auth::{MASTERS, User};
use keelson_egress::Egress;
use keelson_meta::{Str, Value};
use keelson_resources::{RemoteDocuments, RemoteServer};
use keelson_schema::openapi::OpenApi;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How long an answer is valid, and at most how long a failure is. Upstream asks every 30 s whether
/// a server is there, and every minute what it serves; changes are noticed sooner here.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// How soon a server is asked again that did not answer; doubled with each failure.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// How long its OpenAPI documents are valid, as upstream.
const DOCUMENTS_INTERVAL: Duration = Duration::from_secs(60);
/// Most bytes of the list of a server's resources.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// The user as whom servers are asked.
const PROBER: &str = "system:kube-aggregator";
const GROUPS_PATH: &str = "/apis";

/// What is known of a server.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Why the last probe failed; `None` if it did not.
    pub failure: Option<String>,
    /// What the server serves, in the form of aggregated discovery; `None` if it does not say so
    /// now.
    pub resources: Option<Arc<Value>>,
    /// Its OpenAPI documents. They are kept when a probe fails.
    pub documents: Arc<RemoteDocuments>,
}

/// How often servers are asked.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long an answer is valid, and at most how long a failure is.
    pub check: Duration,
    /// How long OpenAPI documents are valid.
    pub documents: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { check: CHECK_INTERVAL, documents: DOCUMENTS_INTERVAL }
    }
}

/// Asks servers in the background.
pub struct Probes {
    asker: Asker,
    pace: Pace,
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Default)]
struct Known {
    /// By the names of APIServices.
    checks: HashMap<Str, Check>,
    /// The servers of the checks.
    servers: HashMap<RemoteServer, Backend>,
}

/// Whether the server of a group version is available.
struct Check {
    version: GroupVersion,
    server: RemoteServer,
    turn: Turn,
    /// Whether the first answer has come.
    is_known: bool,
    failure: Option<String>,
    /// The last answer, and what it says of the resources: it counts for servers without an
    /// aggregated document.
    list: Bytes,
    resources: Option<Arc<Value>>,
}

/// What a server says of all its group versions.
struct Backend {
    turn: Turn,
    /// The group versions that its documents are read for.
    versions: BTreeSet<GroupVersion>,
    serves: Serves,
    groups: Arc<Groups>,
    /// The resources of a version that the server does not name. They have one place, by which
    /// changes are noticed.
    nothing: Arc<Value>,
    seen_groups: Seen,
    documents: documents::Known,
    next_documents: Instant,
    /// How often in sequence the documents did not all come.
    documents_failures: u32,
}

/// When something is asked again.
struct Turn {
    failures: u32,
    is_running: bool,
    next: Instant,
}

/// Where a server says what it serves.
#[derive(Clone, Copy, PartialEq)]
enum Serves {
    /// It does not say so now.
    Unknown,
    /// In its aggregated document.
    Groups,
    /// In its lists for single versions.
    Lists,
}

/// An answer to the request for the aggregated document.
enum Found {
    Failed,
    None,
    Same,
    Groups(Groups, Seen),
}

impl Turn {
    fn new() -> Turn {
        Turn { failures: 0, is_running: false, next: Instant::now() }
    }

    /// Whether it is time to ask; if so, it is taken as being asked.
    fn begin(&mut self) -> bool {
        let begins = !self.is_running && self.next <= Instant::now();
        self.is_running |= begins;
        begins
    }

    fn end(&mut self, is_good: bool, pace: Pace) {
        self.is_running = false;
        let wait = match is_good {
            true => pace.check,
            false => (RETRY_AFTER * 2u32.saturating_pow(self.failures.min(6))).min(pace.check),
        };
        self.failures = if is_good { 0 } else { self.failures.saturating_add(1) };
        self.next = Instant::now() + wait;
    }
}

impl Check {
    fn new(version: GroupVersion, server: RemoteServer) -> Check {
        Check {
            version,
            server,
            turn: Turn::new(),
            is_known: false,
            failure: None,
            list: Bytes::new(),
            resources: None,
        }
    }
}

impl Backend {
    fn new() -> Backend {
        Backend {
            turn: Turn::new(),
            versions: BTreeSet::new(),
            serves: Serves::Unknown,
            groups: Arc::default(),
            nothing: Arc::new(Value::Array(vec![])),
            seen_groups: Seen::default(),
            documents: documents::Known::default(),
            next_documents: Instant::now(),
            documents_failures: 0,
        }
    }

    /// Adds a group version that documents are read for.
    fn want(&mut self, version: &GroupVersion) {
        if self.versions.insert(version.clone()) {
            // The documents are needed once more.
            self.documents.forget_seen();
            self.next_documents = Instant::now();
            self.turn.next = Instant::now();
        }
    }

    /// Says when the documents are asked for again: soon, if they did not all come.
    fn end_documents(&mut self, is_complete: bool, pace: Pace) {
        let soon = RETRY_AFTER * 2u32.saturating_pow(self.documents_failures.min(7));
        let wait = if is_complete { pace.documents } else { soon.min(pace.documents) };
        self.documents_failures =
            if is_complete { 0 } else { self.documents_failures.saturating_add(1) };
        self.next_documents = Instant::now() + wait;
        self.turn.next = self.turn.next.min(self.next_documents);
    }

    /// Returns whether it answered.
    fn record(&mut self, found: Found) -> bool {
        match found {
            Found::Failed => self.serves = Serves::Unknown,
            Found::Same => self.serves = Serves::Groups,
            Found::None => {
                self.serves = Serves::Lists;
                self.groups = Arc::default();
                self.seen_groups = Seen::default();
            }
            Found::Groups(groups, seen) => {
                self.serves = Serves::Groups;
                self.groups = Arc::new(groups);
                self.seen_groups = seen;
            }
        }
        self.serves != Serves::Unknown
    }

    /// Returns the resources of a group version.
    fn resources(&self, check: &Check) -> Option<Arc<Value>> {
        match self.serves {
            Serves::Unknown => None,
            Serves::Lists => check.resources.clone(),
            // A version that the server does not name is there, and has nothing.
            Serves::Groups => {
                Some(self.groups.get(&check.version).unwrap_or(&self.nothing).clone())
            }
        }
    }
}

impl Probes {
    /// Nothing is asked yet.
    pub fn new(egress: Arc<Egress>, identities: Identities) -> Arc<Probes> {
        Probes::with_pace(egress, identities, Pace::default())
    }

    /// Nothing is asked yet.
    pub fn with_pace(egress: Arc<Egress>, identities: Identities, pace: Pace) -> Arc<Probes> {
        let asker = Asker::new(egress, identities);
        Arc::new(Probes { asker, pace, known: Mutex::default(), changed: Notify::new() })
    }

    /// Returns what is known of the server of a group version, and asks it again if that is old.
    /// `None`: the first answer has not come yet.
    pub fn outcome(
        self: &Arc<Self>,
        group: &Str,
        version: &Str,
        server: &RemoteServer,
    ) -> Option<Outcome> {
        let name = Str::from(format!("{version}.{group}"));
        let mut known = self.known();
        let Known { checks, servers } = &mut *known;
        let check = checks
            .entry(name.clone())
            .or_insert_with(|| Check::new((group.clone(), version.clone()), server.clone()));
        if check.server != *server {
            check.server = server.clone();
            check.turn.next = Instant::now();
        }
        let backend = servers.entry(server.clone()).or_insert_with(Backend::new);
        backend.want(&check.version);
        if check.turn.begin() {
            let list = check.list.clone();
            tokio::spawn(self.clone().check(name, check.version.clone(), server.clone(), list));
        }
        if backend.turn.begin() {
            let seen = backend.seen_groups.clone();
            tokio::spawn(self.clone().visit(server.clone(), seen, backend.groups.clone()));
        }
        check.is_known.then(|| Outcome {
            failure: check.failure.clone(),
            resources: backend.resources(check),
            documents: backend.documents.of(&check.version),
        })
    }

    /// Forgets the servers of all group versions but these, by the names of their APIServices.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        let mut known = self.known();
        let Known { checks, servers } = &mut *known;
        checks.retain(|name, _| is_there(name));
        let used = |server: &RemoteServer, version: &GroupVersion| {
            let check = checks.get(format!("{}.{}", version.1, version.0).as_str());
            check.is_some_and(|check| check.server == *server)
        };
        servers.retain(|server, backend| {
            backend.versions.retain(|version| used(server, version));
            !backend.versions.is_empty()
        });
    }

    /// Waits until an outcome has changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Asks whether the server of a group version is available.
    async fn check(
        self: Arc<Self>,
        name: Str,
        version: GroupVersion,
        server: RemoteServer,
        before: Bytes,
    ) {
        let path = format!("/apis/{}/{}", version.0, version.1);
        let user = prober();
        let accept = "application/json";
        let bytes_max = ANSWER_BYTES_MAX;
        let question = Question { path: &path, accept, user: &user, known: None, bytes_max };
        let answer = self.asker.body(&server, question).await;
        let list = answer.as_ref().ok().filter(|list| **list != before).cloned();
        let read = match list {
            Some(list) => {
                let text = list.clone();
                let read = self.asker.evaluate(move || resources(&text)).await;
                Some((list, read.map(Arc::new)))
            }
            None => None,
        };
        let mut known = self.known();
        let Known { checks, servers } = &mut *known;
        let Some(check) = checks.get_mut(&name) else { return };
        check.turn.end(answer.is_ok(), self.pace);
        if check.server != server {
            // This was said of another server.
            check.turn.next = Instant::now();
            return;
        }
        let failure = answer.err();
        let is_back = check.failure.is_some() && failure.is_none();
        let mut is_new = !check.is_known || check.failure != failure;
        check.is_known = true;
        check.failure = failure;
        if let Some((list, resources)) = read {
            check.list = list;
            check.resources = resources;
            is_new = true;
        }
        if let Some(backend) = servers.get_mut(&server).filter(|_| is_back) {
            backend.turn.next = Instant::now();
        }
        if is_new {
            self.changed.notify_one();
        }
    }

    /// Asks a server what it serves, and from time to time for its OpenAPI documents.
    async fn visit(self: Arc<Self>, server: RemoteServer, seen: Seen, before: Arc<Groups>) {
        let found = self.ask_for_groups(&server, seen, before).await;
        let wanted = {
            let mut known = self.known();
            let Some(backend) = known.servers.get_mut(&server) else { return };
            let before = (backend.serves, backend.groups.clone());
            let is_good = backend.record(found);
            if before.0 != backend.serves || !Arc::ptr_eq(&before.1, &backend.groups) {
                self.changed.notify_one();
            }
            let now = Instant::now();
            if !is_good || backend.next_documents > now {
                return backend.turn.end(is_good, self.pace);
            }
            (backend.versions.clone(), backend.documents.clone())
        };
        let (versions, documents) = wanted;
        let (documents, is_complete) =
            documents::ask(&self.asker, &server, &versions, documents).await;
        let mut known = self.known();
        let Some(backend) = known.servers.get_mut(&server) else { return };
        backend.turn.end(true, self.pace);
        if backend.versions != versions {
            // Read for others than are there now.
            backend.turn.next = Instant::now();
            backend.next_documents = Instant::now();
            return;
        }
        backend.documents = documents;
        backend.end_documents(is_complete, self.pace);
        self.changed.notify_one();
    }

    /// Asks a server for its aggregated document.
    async fn ask_for_groups(
        &self,
        server: &RemoteServer,
        seen: Seen,
        before: Arc<Groups>,
    ) -> Found {
        let user = prober();
        let question = Question {
            path: GROUPS_PATH,
            accept: discovery::ACCEPT,
            user: &user,
            known: seen.tag.as_ref(),
            bytes_max: ANSWER_BYTES_MAX,
        };
        let Ok(answer) = self.asker.get(server, question).await else { return Found::Failed };
        if seen.is_confirmed_by(&answer) {
            return Found::Same;
        }
        let media_type = answer.headers.get(http::header::CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        match answer.status {
            StatusCode::SERVICE_UNAVAILABLE => Found::Failed,
            StatusCode::OK if discovery::is_aggregated(media_type) => {
                let read = move || {
                    let hash = OpenApi::hash_of(&answer.body);
                    if hash == seen.hash {
                        return Some(Found::Same);
                    }
                    let groups = with_old_places(discovery::groups(&answer.body)?, &before);
                    Some(Found::Groups(groups, Seen { tag: Seen::tag_of(&answer), hash }))
                };
                self.asker.evaluate(read).await.unwrap_or(Found::Failed)
            }
            _ => Found::None,
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps what is as before in its place, by which changes are noticed.
fn with_old_places(mut groups: Groups, before: &Groups) -> Groups {
    for (version, resources) in &mut groups {
        if let Some(old) = before.get(version).filter(|old| *old == resources) {
            *resources = old.clone();
        }
    }
    groups
}

fn prober() -> User {
    User { name: PROBER.into(), ..User::default() }.with_group(MASTERS)
}
