//! Service account tokens: [`ServiceAccountTokens`] signs and verifies them.
//!
//! Each request checks signature, issuer, audience and times, and that the service account and the
//! bound objects still exist with the same uid. The signature of a token is verified once and then
//! cached.

mod claims;
mod external;
mod issue;
mod jwt;
mod keys;
mod legacy;
#[cfg(test)]
mod tests;
mod uses;

pub use claims::{Claims, LEGACY_ISSUER, Reference};
pub use external::{CALL_TIME_MAX, ExternalKeys, ExternalSigner, SignerError};
use issue::External;
pub(crate) use jwt::{header_fault, is_extended, unverified_claims};
pub use keys::{Algorithm, KeyError, SigningKey, VerifyingKey};
use legacy::LegacyUses;
pub use legacy::{INVALID_SINCE_LABEL, LAST_USED_LABEL, day};
pub use uses::TokenUses;

use crate::token_digest::{SignatureEnd, Token};
use crate::{AUTHENTICATED, CredentialNotes, GroupResource, Objects, SERVICE_ACCOUNT_PREFIX, User};
use base64::Engine;
use keelson_meta::{Object, Str, Timestamp};
use serde_json::Value;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use subtle::ConstantTimeEq;

/// Allowed clock difference; also how long deleted objects still count (as in kube-apiserver).
const LEEWAY_SECONDS: i64 = 60;
/// Maximum cached tokens in each of two generations.
const VERIFIED_TOKENS_MAX: usize = 4096;

/// The resource of service accounts.
pub const ACCOUNTS: GroupResource = ("", "serviceaccounts");
const SECRETS: GroupResource = ("", "secrets");
const PODS: GroupResource = ("", "pods");
/// The resource of nodes.
pub const NODES: GroupResource = ("", "nodes");

/// Lifetime of extended tokens, unless an external signer allows less.
pub const EXTENDED_SECONDS_DEFAULT: i64 = 365 * 24 * 60 * 60;

/// Rules for issuing and verifying tokens.
#[derive(Debug)]
pub struct ServiceAccountOptions {
    /// `--service-account-issuer`: the first signs, all are accepted.
    pub issuers: Vec<String>,
    /// `--api-audiences`; the audiences of tokens without any.
    pub audiences: Vec<Str>,
    /// `--service-account-max-token-expiration`, in seconds.
    pub expiration_seconds_max: Option<i64>,
    /// `--service-account-extend-token-expiration`.
    pub extends_expiration: bool,
    /// Lifetime of an extended token, in seconds.
    pub extended_seconds: i64,
    /// `--service-account-lookup`: whether Secrets of legacy tokens must exist.
    pub lookup: bool,
    /// `--service-account-jwks-uri`.
    pub jwks_uri: Option<String>,
}

/// The keys for tokens, which may be replaced while the server runs.
#[derive(Debug, Default)]
pub struct TokenKeys {
    /// The signing key; without one, no tokens are issued.
    pub signing: Option<Arc<SigningKey>>,
    /// The verification keys.
    pub verifying: Vec<VerifyingKey>,
}

/// Signs and verifies service account tokens.
pub struct ServiceAccountTokens {
    options: ServiceAccountOptions,
    keys: RwLock<Arc<TokenKeys>>,
    /// The external signer, which replaces the own key.
    external: Option<External>,
    legacy_uses: LegacyUses,
    uses: TokenUses,
    objects: OnceLock<Arc<dyn Objects>>,
    verified_tokens: Mutex<VerifiedTokens>,
}

impl std::fmt::Debug for ServiceAccountTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.options.fmt(f)
    }
}

/// Tokens with verified signatures. When the cache is full, the older half is dropped.
#[derive(Default)]
struct VerifiedTokens {
    new: HashMap<SignatureEnd, Arc<Verified>, foldhash::fast::RandomState>,
    old: HashMap<SignatureEnd, Arc<Verified>, foldhash::fast::RandomState>,
    /// Incremented when the keys are replaced, to drop tokens of the old keys.
    generation: u64,
}

/// The revisions of the objects that a token depends on.
type Versions = SmallVec<[u64; 4]>;

/// A token with a verified signature.
#[derive(Debug)]
struct Verified {
    token: Box<str>,
    claims: Claims,
    user: User,
    /// The revisions for which [`ServiceAccountTokens::check_objects`] succeeded.
    checked: Mutex<Versions>,
    /// The [`Objects::revision`] of the last success; 0: none.
    checked_at: AtomicU64,
    /// The day, since 1970, on which the use of a legacy token was recorded last.
    used: AtomicI64,
    /// Whether its Secret was generated for the account, as of the revisions in `checked`.
    is_auto_generated: AtomicBool,
}

impl Verified {
    fn checked(&self) -> MutexGuard<'_, Versions> {
        self.checked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The user of a token.
#[derive(Debug)]
pub struct AuthenticatedToken {
    /// The user.
    pub user: User,
    /// The requested audiences for which the token is valid.
    pub audiences: Vec<Str>,
}

const AUTO_GENERATED_WARNING: &str = "Use tokens from the TokenRequest API or manually created \
     secret-based tokens instead of auto-generated secret-based tokens.";

/// The reason why a token is rejected.
pub type TokenError = String;

/// Such a reason, which the objects of the token give.
struct Refusal {
    why: TokenError,
    /// Whether the Secret of a legacy token has the label [`INVALID_SINCE_LABEL`].
    is_marked_invalid: bool,
}

impl From<TokenError> for Refusal {
    fn from(why: TokenError) -> Refusal {
        Refusal { why, is_marked_invalid: false }
    }
}

impl ServiceAccountTokens {
    /// Returns an authenticator. It accepts no token until [`ServiceAccountTokens::attach`].
    pub fn new(options: ServiceAccountOptions, keys: TokenKeys) -> ServiceAccountTokens {
        ServiceAccountTokens {
            options,
            keys: RwLock::new(Arc::new(keys)),
            external: None,
            legacy_uses: LegacyUses::default(),
            uses: TokenUses::default(),
            objects: OnceLock::new(),
            verified_tokens: Mutex::default(),
        }
    }

    /// Replaces the keys from the next token on; tokens of removed keys become invalid.
    pub fn set_keys(&self, keys: TokenKeys) {
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(keys);
        let mut tokens = self.verified_tokens.lock().unwrap_or_else(PoisonError::into_inner);
        *tokens = VerifiedTokens { generation: tokens.generation + 1, ..VerifiedTokens::default() };
    }

    /// Returns the current keys.
    pub fn keys(&self) -> Arc<TokenKeys> {
        self.keys.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits for the next Secret (namespace, name) whose token was used today and whose label must
    /// be updated.
    pub async fn next_legacy_use(&self) -> (Str, Str) {
        self.legacy_uses.next().await
    }

    /// Gives access to service accounts and bound objects.
    pub fn attach(&self, objects: Arc<dyn Objects>) {
        let _ = self.objects.set(objects);
    }

    /// Returns the options.
    pub fn options(&self) -> &ServiceAccountOptions {
        &self.options
    }

    /// Returns the user of a token and for which of the `requested` audiences it is valid (those of
    /// the API server if none are requested). `Ok(None)`: not a service account token.
    pub async fn authenticate(
        &self,
        token: &str,
        requested: &[Str],
        now: Timestamp,
    ) -> Result<Option<AuthenticatedToken>, TokenError> {
        let notes = &mut CredentialNotes::default();
        self.authenticate_token(&Token::new(token), requested, now, notes).await
    }

    /// Like [`Self::authenticate`], for a token that other authenticators look up too.
    pub(crate) async fn authenticate_token(
        &self,
        token: &Token<'_>,
        requested: &[Str],
        now: Timestamp,
        notes: &mut CredentialNotes,
    ) -> Result<Option<AuthenticatedToken>, TokenError> {
        let verified = match self.cached(token) {
            Some(verified) => verified,
            None => {
                // Read before the keys, so that a token verified with replaced keys is not cached.
                let generation = self.verified_tokens().generation;
                match self.verify(token.text).await? {
                    Some(verified) => self.cache(token, verified, generation),
                    None => return Ok(None),
                }
            }
        };
        if verified.claims.is_legacy {
            notes.annotate("authentication.k8s.io/legacy-token", verified.user.name.clone());
            self.uses.legacy();
        }
        let own = &self.options.audiences;
        let requested = if requested.is_empty() { own } else { requested };
        let claimed = &verified.claims.audiences;
        let claimed = if claimed.is_empty() { own } else { claimed };
        let audiences: Vec<Str> =
            claimed.iter().filter(|one| requested.contains(one)).cloned().collect();
        if audiences.is_empty() {
            let claimed = quoted(claimed);
            let requested = quoted(requested);
            return Err(format!(
                "token audiences {claimed} is invalid for the target audiences {requested}"
            ));
        }
        check_times(&verified.claims, now.seconds)?;
        if let Err(refusal) = self.check_objects(token.text, &verified, now).await {
            if refusal.is_marked_invalid {
                self.note_invalid(&verified, now, notes);
            }
            return Err(refusal.why);
        }
        self.note_use(&verified, now, notes);
        Ok(Some(AuthenticatedToken { user: verified.user.clone(), audiences }))
    }

    /// Counts the use of a valid token, and says what kind it is.
    fn note_use(&self, verified: &Verified, now: Timestamp, notes: &mut CredentialNotes) {
        let claims = &verified.claims;
        if let Some(after) = claims.warn_after.filter(|after| !claims.is_legacy && *after != 0) {
            let late = now.seconds - after;
            self.uses.refreshable(late > 0);
            if late > 0 {
                let subject = &verified.user.name;
                let text = format!("subject: {subject}, seconds after warning threshold: {late}");
                notes.annotate("authentication.k8s.io/stale-token", text);
            }
        }
        let Some(secret) = claims.secret.as_ref() else { return };
        if claims.is_legacy && self.options.lookup {
            self.record_use(verified, now);
            let is_auto = verified.is_auto_generated.load(Ordering::Relaxed);
            self.uses.legacy_of(is_auto);
            notes.warning = is_auto.then_some(AUTO_GENERATED_WARNING);
            let key = match is_auto {
                true => "authentication.k8s.io/legacy-token-autogenerated-secret",
                false => "authentication.k8s.io/legacy-token-manual-secret",
            };
            notes.annotate(key, secret.name.clone());
        }
    }

    /// Counts the use of a legacy token that is marked invalid.
    fn note_invalid(&self, verified: &Verified, now: Timestamp, notes: &mut CredentialNotes) {
        self.record_use(verified, now);
        self.uses.invalid_legacy();
        if let Some(secret) = &verified.claims.secret {
            let text = format!("{}/{}", secret.name, verified.claims.namespace);
            notes.annotate("authentication.k8s.io/legacy-token-invalidated", text);
        }
    }

    /// Returns how many requests came with which tokens.
    pub fn uses(&self) -> &TokenUses {
        &self.uses
    }

    fn cached(&self, token: &Token<'_>) -> Option<Arc<Verified>> {
        let end = token.signature_end()?;
        let verified = self.verified_tokens().get(end)?;
        // The comparison time reveals nothing: the end of the signature was right.
        (*verified.token == *token.text).then_some(verified)
    }

    fn cache(&self, token: &Token<'_>, verified: Verified, generation: u64) -> Arc<Verified> {
        let verified = Arc::new(verified);
        let mut tokens = self.verified_tokens();
        if tokens.generation == generation
            && let Some(end) = token.signature_end()
        {
            tokens.insert(end, verified.clone());
        }
        verified
    }

    fn verified_tokens(&self) -> MutexGuard<'_, VerifiedTokens> {
        self.verified_tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the use of a legacy token, once a day.
    fn record_use(&self, verified: &Verified, now: Timestamp) {
        const DAY_SECONDS: i64 = 86_400;
        let today = now.seconds / DAY_SECONDS;
        let (Some(objects), Some(secret)) = (self.objects.get(), &verified.claims.secret) else {
            return;
        };
        if verified.used.swap(today, Ordering::Relaxed) == today {
            return;
        }
        let namespace = &verified.claims.namespace;
        if let Ok(Some(secret)) = objects.get(SECRETS, namespace, &secret.name) {
            self.legacy_uses.add(&secret, now);
        }
    }

    /// Checks issuer and signature.
    async fn verify(&self, token: &str) -> Result<Option<Verified>, TokenError> {
        let Some(claims) = unverified_claims(token) else { return Ok(None) };
        let issuer = claims.get("iss").and_then(Value::as_str).unwrap_or_default();
        if issuer != LEGACY_ISSUER && !self.options.issuers.iter().any(|own| own == issuer) {
            return Ok(None);
        }
        if let Some(external) = &self.external {
            self.fetch_missing_key(external, &jwt::key_id(token)).await?;
        }
        if !jwt::is_signed(token, &self.keys().verifying) {
            return Err("go-jose/go-jose: error in cryptographic primitive".to_owned());
        }
        let claims = Claims::read(&claims).ok_or("service account token claims are not valid")?;
        if !claims.is_legacy && claims.expires.is_none() {
            return Err("service account token does not expire".to_owned());
        }
        let user = user(&claims);
        let used = AtomicI64::new(i64::MIN);
        let is_auto_generated = AtomicBool::default();
        let token = token.into();
        Ok(Some(Verified {
            token,
            claims,
            user,
            checked: Mutex::default(),
            checked_at: AtomicU64::default(),
            used,
            is_auto_generated,
        }))
    }

    /// Checks that the service account and the bound objects exist with the uids in the token.
    async fn check_objects(
        &self,
        token: &str,
        verified: &Verified,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let Some(objects) = self.objects.get() else {
            return Err("service accounts are not loaded yet".to_owned().into());
        };
        if let Some(lag) = objects.lag() {
            lag.await.map_err(|error| error.message.clone())?;
        }
        // Read before the objects, so that a concurrent write makes the next request check again.
        let revision = objects.revision();
        if revision != 0 && verified.checked_at.load(Ordering::Acquire) == revision {
            return Ok(());
        }
        let versions: Versions = verified
            .claims
            .bound()
            .map(|(resource, namespace, reference)| {
                objects.modified(resource, namespace, &reference.name).unwrap_or_default()
            })
            .collect();
        let is_as_before = *verified.checked() == versions;
        if is_as_before {
            verified.checked_at.store(revision, Ordering::Release);
            return Ok(());
        }
        match self.check_versions(&**objects, token, verified, now) {
            Ok(true) => {
                *verified.checked() = versions;
                verified.checked_at.store(revision, Ordering::Release);
            }
            Ok(false) => {}
            Err(_) => {
                // An object that another server created may not have arrived yet.
                objects.latest().await.map_err(|error| error.message.clone())?;
                self.check_versions(&**objects, token, verified, now)?;
            }
        }
        Ok(())
    }

    /// Returns whether the result stays valid while the objects do not change, or why the token is
    /// rejected.
    fn check_versions(
        &self,
        objects: &dyn Objects,
        token: &str,
        verified: &Verified,
        now: Timestamp,
    ) -> Result<bool, Refusal> {
        let claims = &verified.claims;
        let mut is_final = true;
        for (resource, namespace, reference) in claims.bound() {
            let is_secret_of_legacy = claims.is_legacy && resource == SECRETS;
            if claims.is_legacy && !self.options.lookup {
                continue;
            }
            let name = &reference.name;
            let what = resource.1.trim_end_matches('s');
            let found = objects
                .get(resource, namespace, name)
                .map_err(|error| error.message.clone())?
                .ok_or_else(|| format!("{what} {name:?} not found"))?;
            if let Some(deleted) = found.deletion_timestamp() {
                let deleted = Timestamp::parse(deleted).map_or(0, |time| time.seconds);
                if deleted < now.seconds - LEEWAY_SECONDS {
                    return Err(format!("{what} {name:?} has been deleted").into());
                }
                is_final = false;
            }
            if claims.is_legacy && resource == ACCOUNTS {
                let is_auto = refers_to_secret(&found, claims.secret.as_ref());
                verified.is_auto_generated.store(is_auto, Ordering::Relaxed);
            }
            if is_secret_of_legacy {
                check_legacy_secret(&found, &claims.account.name, token)?;
            } else if found.uid() != reference.uid {
                let uid = found.uid();
                let why = format!("{what} UID ({uid}) does not match service account claim");
                return Err(why.into());
            }
        }
        Ok(is_final)
    }
}

impl VerifiedTokens {
    fn get(&mut self, end: SignatureEnd) -> Option<Arc<Verified>> {
        if let Some(verified) = self.new.get(&end) {
            return Some(verified.clone());
        }
        let verified = self.old.remove(&end)?;
        self.insert(end, verified.clone());
        Some(verified)
    }

    fn insert(&mut self, end: SignatureEnd, verified: Arc<Verified>) {
        if self.new.len() >= VERIFIED_TOKENS_MAX {
            self.old = std::mem::take(&mut self.new);
        }
        self.new.insert(end, verified);
    }
}

impl Claims {
    /// Returns the objects that must exist: resource, namespace, name and uid. The node of a
    /// pod-bound token is informational and not checked.
    fn bound(&self) -> impl Iterator<Item = (GroupResource, &str, &Reference)> {
        let namespace = self.namespace.as_str();
        let node = self.node.as_ref().filter(|_| self.pod.is_none());
        [
            Some((ACCOUNTS, namespace, &self.account)),
            self.secret.as_ref().map(|secret| (SECRETS, namespace, secret)),
            self.pod.as_ref().map(|pod| (PODS, namespace, pod)),
            node.map(|node| (NODES, "", node)),
        ]
        .into_iter()
        .flatten()
    }
}

fn check_times(claims: &Claims, now: i64) -> Result<(), TokenError> {
    if claims.expires.is_some_and(|expires| now - LEEWAY_SECONDS > expires) {
        return Err("service account token has expired".to_owned());
    }
    if claims.not_before.is_some_and(|begin| now + LEEWAY_SECONDS < begin) {
        return Err("service account token is not valid yet".to_owned());
    }
    if claims.issued.is_some_and(|issued| now + LEEWAY_SECONDS < issued) {
        return Err("service account token is issued in the future".to_owned());
    }
    Ok(())
}

/// Checks that a legacy token is the one in its Secret.
fn check_legacy_secret(secret: &Object, account: &str, token: &str) -> Result<(), Refusal> {
    let stored =
        base64::engine::general_purpose::STANDARD.decode(secret.str_at(&["data", "token"]));
    let is_same = stored.is_ok_and(|stored| bool::from(stored.ct_eq(token.as_bytes())));
    if !is_same {
        return Err("service account token has been invalidated".to_owned().into());
    }
    match secret.label(INVALID_SINCE_LABEL).unwrap_or_default() {
        "" => Ok(()),
        _ => {
            let namespace = secret.namespace();
            let name = secret.name();
            let why = format!(
                "the token in secret {namespace}/{name} for service account {namespace}/{account} has \
                 been marked invalid. Use tokens from the TokenRequest API or manually created \
                 secret-based tokens, or remove the '{INVALID_SINCE_LABEL}' label from the secret to \
                 temporarily allow use of this token"
            );
            Err(Refusal { why, is_marked_invalid: true })
        }
    }
}

/// Returns whether an account refers to the Secret of a legacy token, which was generated for it
/// then.
fn refers_to_secret(account: &Object, secret: Option<&Reference>) -> bool {
    let name = secret.map(|secret| secret.name.as_str());
    let mut references = account.array_at(&["secrets"]).iter();
    references.any(|reference| reference.str_at(&["name"]) == name)
}

/// Returns the user of a token.
fn user(claims: &Claims) -> User {
    let namespace = &claims.namespace;
    let groups = ["system:serviceaccounts".into(), format!("system:serviceaccounts:{namespace}")];
    let mut extra = vec![];
    let mut add = |name: &str, value: &str| {
        if !value.is_empty() {
            let name = format!("authentication.kubernetes.io/{name}");
            extra.push((Str::from(name), vec![Str::new(value)]));
        }
    };
    if !claims.is_legacy && !claims.id.is_empty() {
        add("credential-id", &format!("JTI={}", claims.id));
    }
    for (what, reference) in [("node", &claims.node), ("pod", &claims.pod)] {
        if let Some(reference) = reference {
            add(&format!("{what}-name"), &reference.name);
            add(&format!("{what}-uid"), &reference.uid);
        }
    }
    let user = User {
        name: format!("{SERVICE_ACCOUNT_PREFIX}{namespace}:{}", claims.account.name).into(),
        uid: claims.account.uid.clone(),
        groups: groups.into_iter().map(Str::from).collect(),
        extra,
    };
    user.with_group(AUTHENTICATED)
}

/// Formats a list of strings like Go's `%q`.
fn quoted(texts: &[Str]) -> String {
    let quoted: Vec<String> = texts.iter().map(|text| keelson_meta::status::quote(text)).collect();
    format!("[{}]", quoted.join(" "))
}
