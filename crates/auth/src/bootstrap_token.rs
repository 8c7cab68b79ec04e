//! Bootstrap tokens (`--enable-bootstrap-token-auth`): `ID.SECRET`, stored in the Secret
//! `kube-system/bootstrap-token-ID`. New nodes request their first certificate with them.

use crate::{AUTHENTICATED, Objects, User};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::{Object, Str, Timestamp};
use std::collections::BTreeSet;
use std::sync::Arc;
use subtle::ConstantTimeEq;

const ID_CHARACTERS: usize = 6;
const SECRET_CHARACTERS: usize = 16;
const NAMESPACE: &str = "kube-system";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";
/// Maximum length of a group without the prefix [`GROUP`].
const GROUP_CHARACTERS_MAX: usize = 256;

/// Authenticates bootstrap tokens.
pub struct BootstrapTokens {
    /// The reader of Secrets.
    objects: Arc<dyn Objects>,
}

impl std::fmt::Debug for BootstrapTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BootstrapTokens")
    }
}

impl BootstrapTokens {
    /// Returns the authenticator of the tokens in these Secrets.
    pub fn new(objects: Arc<dyn Objects>) -> BootstrapTokens {
        BootstrapTokens { objects }
    }

    /// Returns the user of a token; `None` if the token is malformed, unknown or expired.
    pub async fn authenticate(&self, token: &str, now: Timestamp) -> Option<User> {
        let (id, secret) = id_and_secret(token)?;
        if let Some(lag) = self.objects.lag() {
            lag.await.ok()?;
        }
        let name = format!("bootstrap-token-{id}");
        let stored = self.objects.get(("", "secrets"), NAMESPACE, &name).ok()??;
        user(&stored, id, secret, now)
    }
}

/// Returns the parts of a token; `None` if it is malformed.
fn id_and_secret(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    (is_word(id, ID_CHARACTERS) && is_word(secret, SECRET_CHARACTERS)).then_some((id, secret))
}

/// The Secret of a bootstrap token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapToken {
    /// The public part of the token.
    pub id: String,
    /// When the token expires, if ever. An invalid time is the Unix epoch, so the token has
    /// expired.
    pub expires: Option<Timestamp>,
    /// Whether `cluster-info` is signed with the token.
    pub signs: bool,
}

impl BootstrapToken {
    /// Parses a Secret; `None` if it is not that of a bootstrap token.
    pub fn read(stored: &Object) -> Option<BootstrapToken> {
        if stored.str_at(&["type"]) != SECRET_TYPE || stored.namespace() != NAMESPACE {
            return None;
        }
        let id = data(stored, "token-id").unwrap_or_default();
        let expires = data(stored, "expiration").unwrap_or_default();
        let time = || Timestamp::parse(&expires).unwrap_or_default();
        let is_complete = is_word(&id, ID_CHARACTERS)
            && stored.name() == format!("bootstrap-token-{id}")
            && data(stored, "token-secret").is_some_and(|secret| !secret.is_empty());
        let signs =
            is_complete && data(stored, "usage-bootstrap-signing").as_deref() == Some("true");
        Some(BootstrapToken { id, expires: (!expires.is_empty()).then(time), signs })
    }

    /// Signs a text with the token's secret. Returns a JSON Web Signature with detached payload
    /// (RFC 7515, appendix F), by which a new node verifies `cluster-info`.
    pub fn sign(&self, stored: &Object, text: &str) -> Option<String> {
        use base64::engine::general_purpose::URL_SAFE_NO_PAD;
        let secret = data(stored, "token-secret")?;
        let header =
            URL_SAFE_NO_PAD.encode(format!("{{\"alg\":\"HS256\",\"kid\":\"{}\"}}", self.id));
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(text));
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
        let signature = URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, signed.as_bytes()));
        Some(format!("{header}..{signature}"))
    }
}

/// Returns a decoded field of a Secret; empty if it is absent, `None` if it is invalid.
fn data(stored: &Object, key: &str) -> Option<String> {
    let bytes = STANDARD.decode(stored.str_at(&["data", key])).ok()?;
    String::from_utf8(bytes).ok()
}

fn is_word(text: &str, characters: usize) -> bool {
    text.len() == characters && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
}

fn user(stored: &Object, id: &str, secret: &str, now: Timestamp) -> Option<User> {
    let data = |key: &str| data(stored, key);
    if stored.deletion_timestamp().is_some() || stored.str_at(&["type"]) != SECRET_TYPE {
        return None;
    }
    let is_equal = bool::from(data("token-secret")?.as_bytes().ct_eq(secret.as_bytes()));
    if !is_equal || data("token-id")? != id || data("usage-bootstrap-authentication")? != "true" {
        return None;
    }
    // An invalid time counts as expired.
    let expiration = data("expiration")?;
    let is_expired =
        || Timestamp::parse(&expiration).map_or(true, |end| end.seconds <= now.seconds);
    if !expiration.is_empty() && is_expired() {
        return None;
    }
    let mut groups = BTreeSet::from([Str::new_static(GROUP)]);
    let extra = data("auth-extra-groups")?;
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        if !is_group(group) {
            return None;
        }
        groups.insert(group.into());
    }
    let groups: Vec<Str> = groups.into_iter().collect();
    let name = format!("system:bootstrap:{id}").into();
    let user = User { name, groups: groups.into(), ..User::default() };
    Some(user.with_group(AUTHENTICATED))
}

/// Returns whether a group is `system:bootstrappers:` followed by lower-case letters, digits, `:`
/// and `-`, and ends in a letter or digit.
fn is_group(group: &str) -> bool {
    let own = group.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':'));
    let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    own.is_some_and(|own| {
        own.len() <= GROUP_CHARACTERS_MAX
            && own.bytes().all(|b| is_plain(b) || matches!(b, b':' | b'-'))
            && own.bytes().last().is_some_and(is_plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "abcdef";
    const SECRET: &str = "0123456789abcdef";

    /// Checks the groups of the user of a token whose Secret has `changed` fields.
    fn check(changed: &[(&str, &str)], want: Option<&[&str]>) {
        let mut secret = Object::new();
        secret.root.insert("type", SECRET_TYPE);
        let usual = [
            ("token-id", ID),
            ("token-secret", SECRET),
            ("usage-bootstrap-authentication", "true"),
        ];
        for (key, text) in usual.iter().chain(changed) {
            match *key {
                "type" => drop(secret.root.insert("type", *text)),
                "deletionTimestamp" => secret.set_meta(key, text),
                key => drop(secret.object_mut("data").insert(key, STANDARD.encode(text))),
            }
        }
        let user = user(&secret, ID, SECRET, Timestamp::new(1_000, 0));
        let groups = user.map(|user| user.groups.to_vec());
        let want = want.map(|own| {
            let all = [&[GROUP], own, &[AUTHENTICATED]].concat();
            all.into_iter().map(Str::new).collect::<Vec<_>>()
        });
        assert_eq!(groups, want, "{changed:?}");
    }

    #[test]
    fn a_secret_decides_validity_and_groups_of_its_token() {
        check(&[], Some(&[]));
        let extra = "system:bootstrappers:a,system:bootstrappers:b:c-1";
        let groups = ["system:bootstrappers:a", "system:bootstrappers:b:c-1"];
        check(&[("auth-extra-groups", extra)], Some(&groups));
        let twice = "system:bootstrappers:b,system:bootstrappers:a,system:bootstrappers:b";
        let sorted = ["system:bootstrappers:a", "system:bootstrappers:b"];
        check(&[("auth-extra-groups", twice)], Some(&sorted));
        for extra in
            [",", "system:bootstrappers:a,", ",system:bootstrappers:a", "system:bootstrappers"]
        {
            check(&[("auth-extra-groups", extra)], None);
        }
        check(&[("auth-extra-groups", "system:masters")], None);
        check(&[("auth-extra-groups", "system:bootstrappers:")], None);
        check(&[("token-secret", "0123456789abcdeg")], None);
        check(&[("token-id", "abcdeg")], None);
        check(&[("usage-bootstrap-authentication", "yes")], None);
        check(&[("expiration", "1970-01-01T00:16:41Z")], Some(&[]));
        check(&[("expiration", "1970-01-01T00:16:40Z")], None);
        check(&[("expiration", "soon")], None);
        check(&[("type", "Opaque")], None);
        check(&[("deletionTimestamp", "2026-01-01T00:00:00Z")], None);
    }

    #[test]
    fn malformed_tokens_have_no_parts() {
        assert_eq!(id_and_secret("abcdef.0123456789abcdef"), Some((ID, SECRET)));
        for token in ["", "abcdef", "abcdef.", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde/"]
        {
            assert_eq!(id_and_secret(token), None, "{token}");
        }
    }
}
