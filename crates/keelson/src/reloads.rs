//! Starts the loops that reload the files of authentication and authorization, and the keys of an
//! external signer.

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
    /// Starts the loops that reload `--authorization-config` and the keys of service account
    /// tokens, and the loop that records which legacy tokens are used.
    pub(crate) fn start_reload_loops(
        &self,
        registry: &Arc<Registry>,
        egress: &Arc<Egress>,
        tokens: &Arc<ServiceAccountTokens>,
        loops: &mut Loops,
    ) {
        let authorizer = &registry.options.authorizer;
        let interval = self.serving.certificate_check_interval;
        if let Some(reload) = self.authorization.reload(authorizer, egress, interval) {
            loops.run("authorization-config", move || reload.clone().run());
        }
        if self.authentication.service_account_tokens.has_files() {
            let options = self.authentication.service_account_tokens.clone();
            let tokens = tokens.clone();
            loops.run("service-account-keys", move || {
                options.clone().reload_when_changed(tokens.clone(), interval)
            });
        }
        if tokens.is_external() {
            let tokens = tokens.clone();
            loops.run("external-signer-keys", move || {
                let tokens = tokens.clone();
                async move { tokens.follow_external_keys().await }
            });
        }
        let registry = registry.clone();
        let tokens = tokens.clone();
        loops.run("legacy-token-tracking", move || {
            keelson_controllers::track_legacy_uses(registry.clone(), tokens.clone())
        });
    }

    /// Returns the authenticators of tokens that other issuers signed, and starts the loop that
    /// reloads `--authentication-config`.
    pub(crate) fn remote_tokens(
        &self,
        egress: &Arc<Egress>,
        loops: &mut Loops,
    ) -> Result<Option<RemoteTokens>, StartError> {
        if self.authentication.jwt.is_none() && self.authentication.token_webhook.is_none() {
            return Ok(None);
        }
        let webhook =
            self.authentication.token_webhook.as_ref().map(|webhook| webhook.webhook(egress));
        let remote = RemoteTokens { webhook: webhook.transpose()?, ..RemoteTokens::default() };
        let Some(jwt) = &self.authentication.jwt else { return Ok(Some(remote)) };
        let disallowed = &self.authentication.service_account_tokens.issuers;
        jwt.start(&remote.jwt, Some(&self.authentication.anonymous), disallowed, egress)?;
        if let Some(file) = &jwt.file {
            let reload = Reload {
                file: file.clone(),
                slot: remote.jwt.clone(),
                disallowed_issuers: disallowed.clone(),
                egress: egress.clone(),
                interval: self.serving.certificate_check_interval,
            };
            loops.run("authentication-config", move || reload.clone().run());
        }
        Ok(Some(remote))
    }
}
