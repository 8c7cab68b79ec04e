//! [`TokenUses`]: how many requests came with which tokens of service accounts, for metrics.

use super::Verified;
use keelson_meta::Timestamp;
use keelson_metrics::{Counter, Description, Exposition};
use std::sync::atomic::Ordering;

/// Requests by the token that they came with.
#[derive(Debug, Default)]
pub struct TokenUses {
    /// Tokens that are not legacy tokens and need no refresh.
    valid: Counter,
    /// Tokens that their client should have refreshed.
    stale: Counter,
    /// Legacy tokens that were made for their account, and that somebody asked for.
    legacy_auto: Counter,
    legacy_manual: Counter,
}

impl TokenUses {
    /// Counts a request whose token is valid.
    pub(super) fn count(&self, token: &Verified, now: Timestamp) {
        if token.claims.is_legacy {
            let is_auto = token.is_auto_generated.load(Ordering::Relaxed);
            return if is_auto { &self.legacy_auto } else { &self.legacy_manual }.increment();
        }
        let is_stale = token.claims.warn_after.is_some_and(|after| after < now.seconds);
        if is_stale { &self.stale } else { &self.valid }.increment();
    }

    /// Writes the metrics.
    pub fn write(&self, out: &mut Exposition) {
        let legacy = self.legacy_auto.get() + self.legacy_manual.get();
        for (description, count) in [
            (&VALID, self.valid.get()),
            (&STALE, self.stale.get()),
            (&LEGACY, legacy),
            (&LEGACY_AUTO, self.legacy_auto.get()),
            (&LEGACY_MANUAL, self.legacy_manual.get()),
        ] {
            out.family(description).value(&[], count as f64);
        }
    }
}

static VALID: Description = Description::counter(
    "serviceaccount_valid_tokens_total",
    "[ALPHA] Requests with a token of a service account that needs no refresh.",
    &[],
);

static STALE: Description = Description::counter(
    "serviceaccount_stale_tokens_total",
    "[ALPHA] Requests with a token of a service account that its client should have refreshed.",
    &[],
);

static LEGACY: Description = Description::counter(
    "serviceaccount_legacy_tokens_total",
    "[ALPHA] Requests with a token of a service account that is stored in a Secret.",
    &[],
);

static LEGACY_AUTO: Description = Description::counter(
    "serviceaccount_legacy_auto_token_uses_total",
    "[ALPHA] Requests with a token of a Secret that was generated for its service account.",
    &[],
);

static LEGACY_MANUAL: Description = Description::counter(
    "serviceaccount_legacy_manual_token_uses_total",
    "[ALPHA] Requests with a token of a Secret that somebody created for a service account.",
    &[],
);
