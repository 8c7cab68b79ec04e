//! [`TokenUses`]: how many requests came with which tokens of service accounts, for metrics.

use keelson_metrics::{Counter, Description, Exposition};

/// Requests by the token that they came with.
#[derive(Debug, Default)]
pub struct TokenUses {
    /// Tokens with a time for refreshing them that is not over.
    valid: Counter,
    /// Tokens that their client should have refreshed.
    stale: Counter,
    /// All legacy tokens with a valid signature.
    legacy: Counter,
    /// Legacy tokens that were made for their account, and that somebody asked for.
    legacy_auto: Counter,
    legacy_manual: Counter,
    /// Legacy tokens that are marked invalid.
    invalid_legacy: Counter,
}

impl TokenUses {
    /// Counts a token that was made with a time after which its client should have refreshed it.
    pub(super) fn refreshable(&self, is_stale: bool) {
        if is_stale { &self.stale } else { &self.valid }.increment();
    }

    /// Counts a legacy token, before anything but its signature is checked.
    pub(super) fn legacy(&self) {
        self.legacy.increment();
    }

    /// Counts a legacy token that is valid.
    pub(super) fn legacy_of(&self, is_auto: bool) {
        if is_auto { &self.legacy_auto } else { &self.legacy_manual }.increment();
    }

    /// Counts a legacy token that is marked invalid.
    pub(super) fn invalid_legacy(&self) {
        self.invalid_legacy.increment();
    }

    /// Writes the metrics.
    pub fn write(&self, out: &mut Exposition) {
        for (description, count) in [
            (&VALID, self.valid.get()),
            (&STALE, self.stale.get()),
            (&LEGACY, self.legacy.get()),
            (&LEGACY_AUTO, self.legacy_auto.get()),
            (&LEGACY_MANUAL, self.legacy_manual.get()),
            (&INVALID_LEGACY, self.invalid_legacy.get()),
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

static INVALID_LEGACY: Description = Description::counter(
    "serviceaccount_invalid_legacy_auto_token_uses_total",
    "[ALPHA] Requests with a token of a Secret that is marked invalid.",
    &[],
);
