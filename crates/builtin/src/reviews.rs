//! Reviews: resources without stored objects.

use crate::access_review;
use keelson_auth::service_account::AuthenticatedToken;
use keelson_auth::{Authenticator, CredentialNotes, Permit, User};
use keelson_meta::{Failure, Map, Object, Status, Str, Value, value};
use keelson_registry::Registry;
use keelson_registry::hooks::Computed;
use keelson_store::BoxFuture;
use std::sync::{Arc, OnceLock};

const AUTHENTICATION: &str = "authentication.k8s.io";
const AUTHORIZATION: &str = "authorization.k8s.io";

/// Returns all of them, with group and resource.
pub(crate) fn rows(
    token_reviews: &Arc<TokenReviews>,
) -> Vec<(&'static str, &'static str, Arc<dyn Computed>)> {
    let access = |kind| Arc::new(AccessReviews { kind }) as Arc<dyn Computed>;
    vec![
        (AUTHENTICATION, "selfsubjectreviews", Arc::new(SelfSubjectReviews)),
        (AUTHENTICATION, "tokenreviews", token_reviews.clone()),
        (AUTHORIZATION, "selfsubjectrulesreviews", Arc::new(RulesReviews)),
        (AUTHORIZATION, "selfsubjectaccessreviews", access(access_review::Kind::SelfSubject)),
        (AUTHORIZATION, "subjectaccessreviews", access(access_review::Kind::Subject)),
        (AUTHORIZATION, "localsubjectaccessreviews", access(access_review::Kind::LocalSubject)),
    ]
}

/// SelfSubjectReview: returns the user of the request.
struct SelfSubjectReviews;

impl Computed for SelfSubjectReviews {
    fn post<'a>(
        &'a self,
        registry: &'a Registry,
        permit: &'a Permit,
        _review: Object,
    ) -> BoxFuture<'a, Result<Object, Failure>> {
        let mut answer = Object::new();
        answer.set_meta("creationTimestamp", &registry.clock.now().text());
        answer.root.insert("status", value!({"userInfo": (user_info(permit.user()))}));
        Box::pin(async { Ok(answer) })
    }
}

/// SelfSubjectRulesReview: lists the rules that apply to the user in a namespace.
struct RulesReviews;

impl Computed for RulesReviews {
    fn post<'a>(
        &'a self,
        registry: &'a Registry,
        permit: &'a Permit,
        review: Object,
    ) -> BoxFuture<'a, Result<Object, Failure>> {
        Box::pin(async move {
            let authorizer = &registry.options.authorizer;
            let answer = access_review::answer_rules(authorizer, &review, permit.user()).await?;
            Ok(Object::from_value(answer).unwrap_or_default())
        })
    }
}

/// SubjectAccessReview, SelfSubjectAccessReview and LocalSubjectAccessReview.
struct AccessReviews {
    kind: access_review::Kind,
}

impl Computed for AccessReviews {
    fn post<'a>(
        &'a self,
        registry: &'a Registry,
        permit: &'a Permit,
        mut review: Object,
    ) -> BoxFuture<'a, Result<Object, Failure>> {
        Box::pin(async move {
            let authorizer = &registry.options.authorizer;
            access_review::answer(authorizer, self.kind, &mut review, permit.user()).await?;
            Ok(review)
        })
    }
}

/// TokenReview: authenticates a token. Returns 404 until an authenticator is attached.
#[derive(Default)]
pub struct TokenReviews {
    authenticator: OnceLock<Arc<Authenticator>>,
}

impl TokenReviews {
    /// Attaches the authenticator. Later calls have no effect.
    pub fn attach(&self, authenticator: Arc<Authenticator>) {
        let _ = self.authenticator.set(authenticator);
    }
}

impl Computed for TokenReviews {
    fn post<'a>(
        &'a self,
        registry: &'a Registry,
        permit: &'a Permit,
        mut review: Object,
    ) -> BoxFuture<'a, Result<Object, Failure>> {
        Box::pin(async move {
            let authenticator = self.authenticator.get().ok_or_else(Status::no_such_path)?;
            review_token(registry, authenticator, permit, &mut review).await?;
            Ok(review)
        })
    }
}

async fn review_token(
    registry: &Registry,
    authenticator: &Authenticator,
    permit: &Permit,
    obj: &mut Object,
) -> Result<(), Failure> {
    let token = obj.str_at(&["spec", "token"]);
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences: Vec<Str> = obj
        .array_at(&["spec", "audiences"])
        .iter()
        .filter_map(Value::as_str)
        .map(Str::new)
        .collect();
    let now = registry.clock.now();
    // What a client has written and this does not set stays, as upstream.
    let mut status = obj.at(&["status"]).and_then(Value::as_object).cloned().unwrap_or_default();
    status.remove("authenticated");
    let mut notes = CredentialNotes::default();
    let authenticated = authenticator.authenticate_token(token, &audiences, now, &mut notes).await;
    // As upstream, they are those of the review.
    notes.annotations.into_iter().for_each(|(key, value)| permit.annotate(key, value));
    match authenticated {
        Ok(AuthenticatedToken { user, audiences, .. }) => {
            status.insert("authenticated", true);
            status.insert("user", user_info(&user));
            let audiences: Vec<Value> = audiences.into_iter().map(Value::String).collect();
            status.insert("audiences", audiences);
        }
        Err(errors) => {
            if status.get("user").is_none() {
                status.insert("user", Map::new());
            }
            let invalid = "invalid bearer token";
            let error = match errors.as_slice() {
                [] => invalid.to_owned(),
                errors => format!("[{invalid}, {}]", errors.join(", ")),
            };
            status.insert("error", error.as_str());
        }
    }
    obj.root.insert("status", status);
    Ok(())
}

/// Returns the `UserInfo` of a user.
fn user_info(user: &User) -> Map {
    let mut info = Map::new();
    info.insert("username", user.name.clone());
    if !user.uid.is_empty() {
        info.insert("uid", user.uid.clone());
    }
    let groups: Vec<Value> = user.groups.iter().cloned().map(Value::String).collect();
    info.insert("groups", groups);
    if !user.extra.is_empty() {
        let extra = user.extra.iter().map(|(name, values)| {
            let values: Vec<Value> = values.iter().cloned().map(Value::String).collect();
            (name.clone(), Value::Array(values))
        });
        info.insert("extra", extra.collect::<Map>());
    }
    info
}
