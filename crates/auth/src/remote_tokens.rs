//! [`RemoteTokens`]: bearer tokens of OpenID Connect issuers and webhooks.

use crate::User;
use crate::oidc::JwtAuthenticators;
use crate::token_digest::Token;
use crate::webhook::WebhookTokens;
use keelson_meta::{Str, Timestamp};
use std::sync::{Arc, PoisonError, RwLock};

/// The current issuers, which may be replaced while the server runs.
#[derive(Debug, Default)]
pub struct JwtSlot(RwLock<Option<Arc<JwtAuthenticators>>>);

impl JwtSlot {
    /// Replaces the issuers from the next request on.
    pub fn set(&self, issuers: JwtAuthenticators) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(issuers));
    }

    fn current(&self) -> Option<Arc<JwtAuthenticators>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Authenticators of tokens that this server did not issue, in order.
#[derive(Debug, Default)]
pub struct RemoteTokens {
    /// OpenID Connect.
    pub jwt: Arc<JwtSlot>,
    /// A webhook.
    pub webhook: Option<WebhookTokens>,
}

/// The user of a token and its audiences.
pub(crate) enum RemoteUser {
    /// No audiences: valid for the API server.
    ForApiServer(User),
    /// Valid for these of the requested audiences.
    ForAudiences(User, Vec<Str>),
}

impl RemoteTokens {
    /// Returns the user of a token; `None` if the token is unknown, or rejected with errors.
    pub(crate) async fn authenticate(
        &self,
        token: &Token<'_>,
        requested: &[Str],
        own: &[Str],
        now: Timestamp,
        errors: &mut Vec<String>,
    ) -> Option<RemoteUser> {
        if let Some(issuers) = self.jwt.current() {
            match issuers.authenticate(token, now).await {
                Ok(Some(user)) => return Some(RemoteUser::ForApiServer(user)),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
        }
        match self.webhook.as_ref()?.authenticate(token.text, requested, own).await {
            Ok(user) => user.map(|(user, audiences)| RemoteUser::ForAudiences(user, audiences)),
            Err(error) => {
                errors.push(error);
                None
            }
        }
    }
}
