//! [`AuditedRequest`]: the audit event of a request, which grows while the request runs.

use crate::body::Body;
use crate::response_object;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, Uri};
use keelson_audit::{
    Audit, Event, Level, NotStored, ObjectReference, Prepared, RequestConfig, ResponseStatus,
    Sender, Stage, request_uri,
};
use keelson_auth::{Annotations, Attributes, User};
use keelson_meta::time::GoDuration;
use keelson_meta::{Str, Timestamp};
use keelson_registry::Registry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A request that takes longer says so in an annotation.
const LATENCY_MIN: Duration = Duration::from_millis(500);
const LATENCY: Str = Str::new_static("apiserver.latency.k8s.io/total");

/// The audit event of a request. When it is dropped before the response is complete, because the
/// client has closed the connection or a stream has ended, it stores the last event.
pub(crate) struct AuditedRequest {
    audit: Arc<Audit>,
    config: RequestConfig,
    registry: Arc<Registry>,
    /// What authorization and admission say of the request.
    pub annotations: Arc<Annotations>,
    started: Instant,
    is_long_running: bool,
    /// Whether it was refused before its sender was known: then there is one event, of the
    /// response.
    is_refused: bool,
    state: Mutex<State>,
}

struct State {
    event: Event,
    progress: Progress,
}

#[derive(Clone, Copy, PartialEq, PartialOrd)]
enum Progress {
    /// Nothing is sent.
    Received,
    /// The headers are sent; the event `ResponseStarted` is stored, if there is one.
    Started,
    /// No event follows.
    Complete,
}

/// What of a request its events show.
pub(crate) struct Arrival<'r> {
    pub attributes: &'r Attributes,
    /// `None`: not authenticated.
    pub user: Option<&'r User>,
    pub audit_id: &'r HeaderValue,
    pub uri: &'r Uri,
    pub headers: &'r HeaderMap,
    pub client: IpAddr,
    pub started: Instant,
    pub is_long_running: bool,
    /// Whether the request was refused before its sender was known.
    pub is_refused: bool,
}

impl AuditedRequest {
    /// Starts the event of a request; `None` if the policy leaves it out.
    pub fn new(
        audit: &Arc<Audit>,
        registry: &Arc<Registry>,
        annotations: Arc<Annotations>,
        arrival: &Arrival<'_>,
    ) -> Option<AuditedRequest> {
        let config = audit.evaluate(arrival.attributes, arrival.user)?;
        let elapsed = GoDuration::from(arrival.started.elapsed());
        let received = registry.clock.now().plus(GoDuration(-elapsed.0));
        Some(AuditedRequest {
            audit: audit.clone(),
            config,
            registry: registry.clone(),
            annotations,
            started: arrival.started,
            is_long_running: arrival.is_long_running,
            is_refused: arrival.is_refused,
            state: Mutex::new(State {
                event: arrival.event(config.level, received),
                progress: Progress::Received,
            }),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how much of the request is audited.
    pub fn level(&self) -> Level {
        self.config.level
    }

    /// Returns whether objects are shown without `metadata.managedFields`.
    pub fn omits_managed_fields(&self) -> bool {
        self.config.omit_managed_fields
    }

    /// Stores the first event, at once if no backend blocks; else it is returned, for
    /// [`AuditedRequest::received`].
    pub fn receive(&self) -> Option<Prepared> {
        let prepared = self.audit.prepare(self.config, &self.state().event)?;
        self.audit.store_at_once(prepared)
    }

    /// Stores the first event. A request whose event is not stored must not go on.
    pub async fn received(&self, first: Prepared) -> Result<(), NotStored> {
        let stored = self.audit.store(first).await;
        if stored.is_err() {
            self.state().progress = Progress::Complete;
        }
        stored
    }

    /// Records the user as whom the sender acts.
    pub fn impersonated(&self, user: &User, constraint: Option<Str>) {
        let event = &mut self.state().event;
        event.impersonated_user = Some(user.clone());
        event.impersonation_constraint = constraint;
    }

    /// Adds what an object that was sent says of the object of the request.
    pub fn refer(&self, namespace: &str, name: &str, uid: &str, resource_version: &str) {
        let event = &mut self.state().event;
        let reference = event.object.get_or_insert_default();
        let fields = [
            (&mut reference.namespace, namespace),
            (&mut reference.name, name),
            (&mut reference.uid, uid),
            (&mut reference.resource_version, resource_version),
        ];
        for (field, text) in fields {
            if field.is_empty() {
                *field = text.into();
            }
        }
    }

    /// Records the object that was sent, as JSON.
    pub fn set_request_object(&self, text: Bytes) {
        self.state().event.request_object = Some(text);
    }

    /// Returns whether events show the objects of responses.
    pub fn shows_response(&self) -> bool {
        self.level() == Level::RequestResponse
    }

    /// Records the response. Stores its events, but for the last one of a response that lasts.
    /// Those for which the request has to wait are returned, for [`AuditedRequest::store`].
    pub fn answered(
        &self,
        reply: &Response<Body>,
        shows_objects: bool,
        is_upgraded: bool,
    ) -> Vec<Prepared> {
        if self.state().progress == Progress::Complete {
            // Its first event was not stored: it has no others.
            return vec![];
        }
        let wants_object = shows_objects && self.shows_response();
        let shown = response_object::read(reply, wants_object, self.omits_managed_fields());
        {
            let event = &mut self.state().event;
            event.status = Some(match &shown.status {
                Some(status) => ResponseStatus::of(status, reply.status().as_u16()),
                None => ResponseStatus { code: reply.status().as_u16(), ..Default::default() },
            });
            if self.shows_response() {
                event.response_object = shown.object;
            }
        }
        let mut waiting = vec![];
        let mut process = |stage, progress| {
            let prepared = self.reach(stage, progress);
            waiting.extend(prepared.and_then(|event| self.audit.store_at_once(event)));
        };
        if self.is_long_running || self.is_refused {
            process(Stage::ResponseStarted, Progress::Started);
        }
        if self.is_refused {
            self.state().progress = Progress::Complete;
        } else if !is_upgraded && !reply.body().is_lasting() {
            process(Stage::ResponseComplete, Progress::Complete);
        }
        waiting
    }

    /// Stores events of the response, in their order. That one may not be stored is no concern of
    /// the client: his request has been done.
    pub async fn store(&self, events: Vec<Prepared>) {
        for event in events {
            let _ = self.audit.store(event).await;
        }
    }

    /// Stores the event of a panic.
    pub async fn panicked(&self, why: &str) {
        if self.state().progress == Progress::Complete {
            return;
        }
        self.state().event.status = Some(ResponseStatus {
            status: Str::new_static("Failure"),
            reason: Str::new_static("InternalError"),
            message: format!("APIServer panic'd: {why}").into(),
            code: 500,
            details: None,
        });
        self.store(self.reach(Stage::Panic, Progress::Complete).into_iter().collect()).await;
    }

    /// Makes the event of a stage that is reached now, if it has one.
    fn reach(&self, stage: Stage, progress: Progress) -> Option<Prepared> {
        let mut annotations = self.annotations.list();
        let now = self.registry.clock.now();
        let latency = self.started.elapsed();
        if stage == Stage::ResponseComplete && !self.is_long_running && latency > LATENCY_MIN {
            annotations.push((LATENCY, GoDuration::from(latency).to_string().into()));
        }
        annotations.sort_unstable();
        let mut state = self.state();
        state.progress = progress;
        let event = &mut state.event;
        event.stage = stage;
        event.stage_time = now;
        event.annotations = annotations;
        self.audit.prepare(self.config, event)
    }
}

impl Drop for AuditedRequest {
    fn drop(&mut self) {
        let progress = self.state().progress;
        if progress == Progress::Complete || self.is_refused {
            return;
        }
        let mut events = vec![];
        if progress == Progress::Received && self.state().event.status.is_none() {
            self.state().event.status = Some(ResponseStatus {
                status: Str::new_static("Success"),
                message: Str::new_static("Connection closed early"),
                code: 200,
                ..ResponseStatus::default()
            });
            if self.is_long_running {
                events.extend(self.reach(Stage::ResponseStarted, Progress::Started));
            }
        }
        events.extend(self.reach(Stage::ResponseComplete, Progress::Complete));
        self.audit.store_later(events);
    }
}

impl Arrival<'_> {
    fn event(&self, level: Level, received: Timestamp) -> Event {
        let Arrival { attributes, .. } = self;
        let object = attributes.is_resource().then(|| ObjectReference {
            resource: attributes.gvr.resource.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            group: attributes.gvr.group.clone(),
            version: attributes.gvr.version.clone(),
            subresource: attributes.subresource.clone(),
            ..ObjectReference::default()
        });
        let Sender { addresses, user_agent } = Sender::of_headers(self.headers, self.client);
        Event {
            level,
            audit_id: self.audit_id.clone(),
            stage: Stage::RequestReceived,
            request_uri: request_uri(self.uri),
            verb: attributes.verb.clone(),
            user: self.user.cloned(),
            impersonated_user: None,
            impersonation_constraint: None,
            source_addresses: addresses,
            user_agent,
            object,
            status: None,
            request_object: None,
            response_object: None,
            received,
            stage_time: received,
            annotations: vec![],
        }
    }
}
