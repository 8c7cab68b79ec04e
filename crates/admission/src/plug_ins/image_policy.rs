//! ImagePolicyWebhook: a backend decides whether the images of a pod may run
//! (`imagepolicy.k8s.io/v1alpha1` ImageReview).

use crate::attributes::{Attributes, BoxFuture, Call, DynamicPlugIn, Recorder};
use crate::config::ImagePolicyConfig;
use crate::request::Operation;
use crate::webhooks::post::{Target, Timer, answered, post};
use crate::webhooks::response::{self, META_KINDS, ReviewObject};
use http::StatusCode;
use keelson_egress::{Client, Egress};
use keelson_meta::status::quote;
use keelson_meta::{Failure, Map, Object, Status, Str, Value, value};
use keelson_schema::json;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

const VERSION: &str = "imagepolicy.k8s.io/v1alpha1";
const KIND: &str = "ImageReview";
/// Substring of the pod annotations that are sent to the backend.
const SENT_ANNOTATIONS: &str = ".image-policy.k8s.io/";
const AUDIT_PREFIX: &str = "imagepolicywebhook.image-policy.k8s.io/";
/// The name of kube-apiserver's scheme.
const SCHEME: &str = "pkg/api/legacyscheme/scheme.go:30";
/// Timeout of a call, also sent in its URL.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);
const CALLS_MAX: u32 = 5;
/// Maximum cached decisions.
const VERDICTS_MAX: usize = 1024;

/// The plug-in.
pub struct ImagePolicyWebhook {
    egress: Arc<Egress>,
    config: ImagePolicyConfig,
    client: OnceLock<Result<Arc<Client>, String>>,
    verdicts: Mutex<HashMap<Vec<u8>, (Verdict, Instant)>>,
}

/// Cached decisions of the backend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Verdict {
    is_allowed: bool,
    reason: Str,
    annotations: Vec<(Str, Str)>,
}

impl DynamicPlugIn for ImagePolicyWebhook {
    fn name(&self) -> &'static str {
        NAME
    }

    fn validate<'a>(
        &'a self,
        call: &'a Call<'a>,
        object: Option<&'a Object>,
        recorder: &'a mut Recorder,
    ) -> BoxFuture<'a, Result<(), Failure>> {
        Box::pin(async move {
            match object.filter(|_| applies(call.attributes)) {
                Some(pod) => self.check(call.attributes, pod, recorder).await,
                None => Ok(()),
            }
        })
    }
}

/// The plug-in's name.
pub(crate) const NAME: &str = "ImagePolicyWebhook";

fn applies(attributes: &Attributes<'_>) -> bool {
    let resource = attributes.resource;
    matches!(attributes.operation, Operation::Create | Operation::Update)
        && resource.group.is_empty()
        && resource.resource == "pods"
        && matches!(attributes.subresource, "" | "ephemeralcontainers")
}

impl ImagePolicyWebhook {
    /// Returns `None` when no backend is configured.
    pub fn new(egress: Arc<Egress>, config: Option<&ImagePolicyConfig>) -> Option<Self> {
        let config = config?.clone();
        let client = OnceLock::new();
        let verdicts = Mutex::default();
        Some(ImagePolicyWebhook { egress, config, client, verdicts })
    }

    async fn check(
        &self,
        attributes: &Attributes<'_>,
        pod: &Object,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        let forbidden = |why: &str| Status::forbidden(attributes.resource, attributes.name, why);
        let body = review(attributes, pod);
        let verdict = match self.verdict(body).await {
            Ok(verdict) => verdict,
            Err(why) if self.config.default_allow => {
                let server = &self.config.server.url;
                let pod = attributes.name;
                tracing::warn!(%server, %pod, error = %why, "image policy webhook failed; failing open");
                recorder
                    .annotations
                    .push((Str::from(format!("{AUDIT_PREFIX}failed-open")), "true".into()));
                return Ok(());
            }
            Err(why) => return Err(forbidden(&why)),
        };
        let key = |name: &Str| Str::from(format!("{AUDIT_PREFIX}{name}"));
        recorder.annotations.extend(verdict.annotations.iter().map(|(k, v)| (key(k), v.clone())));
        match (verdict.is_allowed, verdict.reason.as_str()) {
            (true, _) => Ok(()),
            (false, "") => Err(forbidden("one or more images rejected by webhook backend")),
            (false, reason) => Err(forbidden(&format!(
                "image policy webhook backend denied one or more images: {reason}"
            ))),
        }
    }

    /// Returns the backend's decision, possibly from the cache.
    async fn verdict(&self, body: Vec<u8>) -> Result<Verdict, String> {
        let now = Instant::now();
        if let Some((verdict, until)) = self.verdicts().get(&body)
            && now < *until
        {
            return Ok(verdict.clone());
        }
        let verdict = self.call_backend(&body).await?;
        let config = &self.config;
        let ttl = if verdict.is_allowed { config.allow_ttl } else { config.deny_ttl };
        if !ttl.is_zero() {
            self.cache(body, verdict.clone(), ttl);
        }
        Ok(verdict)
    }

    fn cache(&self, body: Vec<u8>, verdict: Verdict, ttl: Duration) {
        let now = Instant::now();
        let mut verdicts = self.verdicts();
        if verdicts.len() >= VERDICTS_MAX {
            verdicts.retain(|_, (_, until)| now < *until);
        }
        if verdicts.len() >= VERDICTS_MAX {
            verdicts.clear();
        }
        verdicts.insert(body, (verdict, now + ttl));
    }

    fn verdicts(&self) -> std::sync::MutexGuard<'_, HashMap<Vec<u8>, (Verdict, Instant)>> {
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls the backend; retries with growing delays when it fails or is overloaded.
    async fn call_backend(&self, body: &[u8]) -> Result<Verdict, String> {
        let server = &self.config.server;
        let client = || self.egress.client(&server.peer).map_err(|error| error.to_string());
        let client = self.client.get_or_init(client).as_ref().map_err(Clone::clone)?;
        let query = format!("?timeout={}s", CALL_TIME_MAX.as_secs());
        let path = format!("{}{query}", if server.path.is_empty() { "/" } else { &server.path });
        let url = format!("{}{query}", server.url);
        let mut pause = self.config.backoff;
        for call in 1.. {
            let path = &path;
            let url = &url;
            let timer = Timer::Call;
            let target = Target { client, path, url, timer };
            let answer = post(target, body.to_vec(), CALL_TIME_MAX).await?;
            let may_recover = [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::TOO_MANY_REQUESTS];
            if call == CALLS_MAX || !may_recover.contains(&answer.status) {
                let read = || Verdict::read(answered(&answer)?);
                return response::evaluated(answer.body.len(), read);
            }
            tokio::time::sleep(pause).await;
            pause += pause / 2;
        }
        unreachable!("the last call returns")
    }
}

/// Returns the review of a pod's images. Pods with equal reviews share a cached decision.
fn review(attributes: &Attributes<'_>, pod: &Object) -> Vec<u8> {
    let lists: &[&str] = match attributes.subresource {
        "ephemeralcontainers" => &["ephemeralContainers"],
        _ => &["containers", "initContainers"],
    };
    let containers = lists.iter().flat_map(|list| pod.array_at(&["spec", list]));
    let images = containers.map(|container| {
        let image = container.get("image").cloned();
        Value::Object(Map::from_iter(image.map(|image| (Str::new_static("image"), image))))
    });
    let mut spec = Map::new();
    spec.insert("containers", images.collect::<Vec<_>>());
    let annotations = pod.at(&["metadata", "annotations"]).and_then(Value::as_object);
    let mut sent: Vec<_> = annotations.into_iter().flat_map(Map::iter).collect();
    sent.retain(|(name, _)| name.contains(SENT_ANNOTATIONS));
    sent.sort_by_key(|(name, _)| *name);
    if !sent.is_empty() {
        let sent = sent.into_iter().map(|(name, text)| (name.clone(), text.clone()));
        spec.insert("annotations", Map::from_iter(sent));
    }
    if !attributes.namespace.is_empty() {
        spec.insert("namespace", Str::new(attributes.namespace));
    }
    let review = value!({"kind": KIND, "apiVersion": VERSION, "metadata": {},
        "spec": (Value::Object(spec)), "status": {"allowed": false}});
    let mut body = vec![];
    json::write_value(&review, &mut body);
    body
}

impl Verdict {
    fn read(bytes: &[u8]) -> Result<Verdict, String> {
        const STATUS: &str = "ImageReviewStatus.status";
        let ReviewObject { root, api_version: version, kind, .. } = response::read_object(bytes)?;
        if version == "v1" && META_KINDS.contains(&kind.as_str()) {
            return Err(format!("converting (v1.{kind}) to (v1alpha1.{KIND}): unknown conversion"));
        }
        if (kind != KIND || version != VERSION) && !(kind.is_empty() && version.is_empty()) {
            return Err(format!(
                "no kind {} is registered for version {} in scheme \"{SCHEME}\"",
                quote(&kind),
                quote(&version)
            ));
        }
        let status = match root.get("status") {
            None | Some(Value::Null) => return Ok(Verdict::default()),
            Some(Value::Object(status)) => status,
            Some(other) => {
                let go_type = "v1alpha1.ImageReviewStatus";
                return Err(response::type_error(other, "ImageReview.status", go_type));
            }
        };
        let is_allowed = match status.get("allowed") {
            None | Some(Value::Null) => false,
            Some(Value::Bool(is_allowed)) => *is_allowed,
            Some(other) => {
                return Err(response::type_error(other, &format!("{STATUS}.allowed"), "bool"));
            }
        };
        let annotations = status.get("auditAnnotations");
        Ok(Verdict {
            is_allowed,
            reason: response::text(status, STATUS, "reason", "string")?,
            annotations: response::annotations(annotations, &format!("{STATUS}.auditAnnotations"))?,
        })
    }
}
