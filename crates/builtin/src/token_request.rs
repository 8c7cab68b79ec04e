//! TokenRequest (`serviceaccounts/NAME/token`): issues a token of a service account, which may be
//! bound to a Pod, Secret or Node (registry `core/serviceaccount/storage/token.go`).

use keelson_auth::service_account::{Claims, Reference, ServiceAccountTokens};
use keelson_meta::time::{GoDuration, Timestamp};
use keelson_meta::{
    ErrorList, Failure, Feature, FieldError, GroupVersion, GroupVersionKind, GroupVersionResource,
    Map, Object, Path, Status, Str, Value,
};
use keelson_registry::hooks::Action;
use keelson_registry::{ActionRequest, ActionResponse, Target};
use keelson_store::BoxFuture;
use std::sync::{Arc, OnceLock};

/// Audit annotations of a request.
const ISSUED: &str = "authentication.kubernetes.io/issued-credential-id";
const UID_MISMATCH: &str = "authentication.k8s.io/token-request-uid-mismatch";

const EXPIRATION_SECONDS_DEFAULT: i64 = 3600;
const EXPIRATION_SECONDS_MIN: i64 = 600;
const EXPIRATION_SECONDS_MAX: i64 = 1 << 32;
/// The lifetime that kubelets request for tokens of Pods (`WarnOnlyBoundTokenExpirationSeconds`).
/// Such a token is extended, for clients that do not reload it.
const EXTENDED_SECONDS: i64 = 3607;

/// `serviceaccounts/NAME/token`. Returns 404 until a token issuer is attached.
#[derive(Default)]
pub struct TokenRequests {
    tokens: OnceLock<Arc<ServiceAccountTokens>>,
}

impl TokenRequests {
    /// Attaches the token issuer. Later calls have no effect.
    pub fn attach(&self, tokens: Arc<ServiceAccountTokens>) {
        let _ = self.tokens.set(tokens);
    }
}

impl Action for TokenRequests {
    fn fill_defaults(&self, body: &mut Object) {
        let spec = body.object_mut("spec");
        spec.entry_or("expirationSeconds", || EXPIRATION_SECONDS_DEFAULT.into());
    }

    fn act<'a>(
        &'a self,
        req: ActionRequest<'a>,
        body: Object,
    ) -> BoxFuture<'a, Result<ActionResponse, Failure>> {
        Box::pin(async move {
            let tokens = self.tokens.get().ok_or_else(Status::no_such_path)?;
            request_token(req, tokens, body).await
        })
    }
}

/// Validates a TokenRequest and issues the token.
async fn request_token(
    req: ActionRequest<'_>,
    tokens: &ServiceAccountTokens,
    mut request: Object,
) -> Result<ActionResponse, Failure> {
    let ActionRequest { registry, target, options, .. } = req;
    let kind = GroupVersionKind::new("authentication.k8s.io", "v1", "TokenRequest");
    let schema = registry
        .catalogue
        .schema(&kind)
        .ok_or_else(|| Status::internal("TokenRequest has no schema"))?;
    registry.set_field_manager(&schema, "token", &mut request, options);
    let write = req.write(&kind);
    let mut warnings = vec![];
    let configs = req.admit(&write, &mut request, &mut warnings).await?;
    check_names(target, &request)?;
    let account = req.read(target).await?;
    check_uid(req, &kind, &request, &account)?;
    let own = &tokens.options().audiences;
    let spec = request.object_mut("spec");
    if spec.get("audiences").is_none_or(Value::is_empty) {
        let audiences: Vec<Value> = own.iter().cloned().map(Value::String).collect();
        spec.insert("audiences", audiences);
    }
    let now = registry.clock.now();
    request.set_meta("name", account.name());
    request.set_meta("namespace", account.namespace());
    request.set_meta("uid", account.uid());
    request.set_meta("creationTimestamp", &now.text());
    request.root.remove("status");
    let mut seconds = validate(&request)?;
    req.validate_admitted(&write, &configs, &request, &mut warnings).await?;
    let mut claims = claims(req, &account, &request, now).await?;
    if let Some(max) = tokens.options().expiration_seconds_max.filter(|max| seconds > *max) {
        warnings.push(
            format!("requested expiration of {seconds} seconds shortened to {max} seconds").into(),
        );
        seconds = max;
        request.object_mut("spec").insert("expirationSeconds", max);
    }
    claims.expires = Some(now.seconds + seconds);
    let is_own = claims.audiences.iter().all(|audience| own.contains(audience));
    let is_extended = tokens.options().extends_expiration && claims.pod.is_some() && is_own;
    if is_extended && seconds == EXTENDED_SECONDS {
        claims.warn_after = claims.expires;
        claims.expires = Some(now.seconds + tokens.options().extended_seconds);
    }
    let token = tokens.issue(&claims).await;
    let failed = |why| Status::internal(format!("failed to generate token: {why}"));
    let token = token.map_err(failed)?;
    req.permit.annotate(Str::new_static(ISSUED), format!("JTI={}", claims.id).into());
    let mut status = Map::new();
    status.insert("token", token.as_str());
    let expires = now.plus(GoDuration(seconds.saturating_mul(1_000_000_000)));
    status.insert("expirationTimestamp", expires.truncated().text());
    request.root.insert("status", status);
    Ok(ActionResponse { object: Some(request), warnings })
}

/// Returns the claims of the token without the expiration.
async fn claims(
    req: ActionRequest<'_>,
    account: &Object,
    request: &Object,
    now: Timestamp,
) -> Result<Claims, Failure> {
    let ActionRequest { registry, target, .. } = req;
    let audiences = request.array_at(&["spec", "audiences"]).iter().filter_map(Value::as_str);
    let mut claims = Claims {
        audiences: audiences.map(Str::new).collect(),
        not_before: Some(now.seconds),
        issued: Some(now.seconds),
        id: registry.new_uid(),
        namespace: account.namespace().into(),
        account: reference(account),
        ..Claims::default()
    };
    let bound = request.at(&["spec", "boundObjectRef"]).filter(|bound| !bound.is_null());
    let Some(bound) = bound else { return Ok(claims) };
    let text = |name: &str| bound.str_at(&[name]).unwrap_or_default();
    let kind = text("kind");
    let name = text("name");
    let namespace = target.namespace.as_str();
    let group = GroupVersion::parse(text("apiVersion"));
    let is_core = group.as_ref().is_some_and(|group| group.group.is_empty());
    let found = match (is_core, kind) {
        (true, "Pod") => {
            let pod = req.read(&registry.target("", "pods", namespace, name)).await?;
            if pod.str_at(&["spec", "serviceAccountName"]) != account.name() {
                return Err(Status::bad_request(format!(
                    "cannot bind token for serviceaccount {:?} to pod running with different \
                     serviceaccount name.",
                    account.name()
                )));
            }
            claims.pod = Some(reference(&pod));
            claims.node = node_of(req, &pod).await?;
            pod
        }
        (true, "Secret") => {
            let secret = req.read(&registry.target("", "secrets", namespace, name)).await?;
            claims.secret = Some(reference(&secret));
            secret
        }
        (true, "Node") => {
            let node = req.read(&registry.target("", "nodes", "", name)).await?;
            claims.node = Some(reference(&node));
            node
        }
        _ => {
            let version = group.map(|group| (group.group, group.version)).unwrap_or_default();
            let what = format!("{}/{}, Kind={kind}", version.0, version.1);
            let why = format!("cannot bind token to object of type {what}");
            return Err(Status::bad_request(why));
        }
    };
    let uid = text("uid");
    if !uid.is_empty() && uid != found.uid() {
        let why = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. \
             The object might have been deleted and then recreated"
        );
        return Err(Status::conflict(&GroupVersionResource::new("", "v1", kind), name, &why));
    }
    Ok(claims)
}

/// Returns the node of a pod; without uid if the node does not exist.
async fn node_of(req: ActionRequest<'_>, pod: &Object) -> Result<Option<Reference>, Failure> {
    let name = pod.str_at(&["spec", "nodeName"]);
    if name.is_empty() {
        return Ok(None);
    }
    match req.read(&req.registry.target("", "nodes", "", name)).await {
        Ok(node) => Ok(Some(reference(&node))),
        Err(status) if status.code == 404 => {
            Ok(Some(Reference { name: name.into(), uid: Str::default() }))
        }
        Err(status) => Err(status),
    }
}

fn reference(object: &Object) -> Reference {
    Reference { name: object.name().into(), uid: object.uid().into() }
}

/// Returns an error if the name in the body differs from that in the URL.
fn check_names(target: &Target, request: &Object) -> Result<(), Failure> {
    let mut errors = ErrorList::new();
    let name = request.name();
    let metadata = Path::new("metadata");
    if !name.is_empty() && name != target.name {
        let why = "must match the service account name if specified";
        errors.push(FieldError::invalid(&metadata.field("name"), name, why));
    }
    errors.into_result("authentication.k8s.io", "TokenRequest", &target.name)
}

/// Returns an error if the uid in the body is that of another service account, or notes it when
/// the gate is off.
fn check_uid(
    req: ActionRequest<'_>,
    kind: &GroupVersionKind,
    request: &Object,
    account: &Object,
) -> Result<(), Failure> {
    let given = request.uid();
    let stored = account.uid();
    if given.is_empty() || given == stored {
        return Ok(());
    }
    let why = format!(
        "the UID in the token request ({given}) does not match the UID of the service account ({stored})"
    );
    if !req.registry.options.features.is_on(Feature::TokenRequestServiceAccountUIDValidation) {
        req.permit.annotate(Str::new_static(UID_MISMATCH), why.into());
        return Ok(());
    }
    let resource = kind.group_version().resource(kind.kind.clone());
    Err(Status::conflict(&resource, account.name(), &why))
}

/// Validates and returns the requested expiration in seconds.
fn validate(request: &Object) -> Result<i64, Failure> {
    let seconds = request.int_at(&["spec", "expirationSeconds"]).unwrap_or_default();
    let spec = Path::new("spec");
    let path = spec.field("expirationSeconds");
    let mut errors = ErrorList::new();
    if seconds < EXPIRATION_SECONDS_MIN {
        let why = "may not specify a duration less than 10 minutes";
        errors.push(FieldError::invalid(&path, seconds, why));
    }
    if seconds > EXPIRATION_SECONDS_MAX {
        let why = "may not specify a duration larger than 2^32 seconds";
        errors.push(FieldError::invalid(&path, seconds, why));
    }
    errors.into_result("authentication.k8s.io", "TokenRequest", "").map(|()| seconds)
}
