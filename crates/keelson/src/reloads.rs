//! The loops that read files of authentication and authorization again, and ask an external signer for its keys.

use crate::authentication::Reload;
use crate::builder::Builder;
use crate::start_error::StartError;
use crate::supervisor::Loops;
use keelson_auth::RemoteTokens;
use keelson_auth::service_account::ServiceAccountTokens;
use keelson_egress::Egress;
use keelson_registry::Registry;
use std::sync::Arc;

impl Builder {
    /// Starts the loops that read `--authorization-config` and the keys of service account tokens again, and the
    /// one that writes down which legacy tokens are used.
    pub(crate) fn follow_files(
        &self,
        registry: &Arc<Registry>,
        egress: &Arc<Egress>,
        tokens: &Arc<ServiceAccountTokens>,
        loops: &mut Loops,
    ) {
        let (authorizer, look) = (&registry.options.authorizer, self.certificate_look);
        if let Some(reload) = self.authorization.reload(authorizer, egress, look) {
            loops.run("authorization-config", move || reload.clone().run());
        }
        if self.service_account_tokens.has_files() {
            let (options, ours) = (self.service_account_tokens.clone(), tokens.clone());
            loops.run("service-account-keys", move || options.clone().follow(ours.clone(), look));
        }
        if tokens.is_external() {
            let tokens = tokens.clone();
            loops.run("external-signer-keys", move || {
                let tokens = tokens.clone();
                async move { tokens.follow_external_keys().await }
            });
        }
        let (registry, tokens) = (registry.clone(), tokens.clone());
        loops.run("legacy-token-tracking", move || {
            keelson_controllers::track_legacy_uses(registry.clone(), tokens.clone())
        });
    }

    /// Authenticators of tokens that this server did not issue.
    pub(crate) fn remote_tokens(
        &self,
        egress: &Arc<Egress>,
        loops: &mut Loops,
    ) -> Result<Option<RemoteTokens>, StartError> {
        if self.jwt.is_none() && self.token_webhook.is_none() {
            return Ok(None);
        }
        let webhook = self.token_webhook.as_ref().map(|webhook| webhook.webhook(egress));
        let remote = RemoteTokens { webhook: webhook.transpose()?, ..RemoteTokens::default() };
        let Some(jwt) = &self.jwt else { return Ok(Some(remote)) };
        let disallowed = &self.service_account_tokens.issuers;
        jwt.start(&remote.jwt, Some(&self.anonymous), disallowed, egress)?;
        if let Some(file) = &jwt.file {
            let reload = Reload {
                file: file.clone(),
                slot: remote.jwt.clone(),
                disallowed_issuers: disallowed.clone(),
                egress: egress.clone(),
                look: self.certificate_look,
            };
            loops.run("authentication-config", move || reload.clone().run());
        }
        Ok(Some(remote))
    }
}
