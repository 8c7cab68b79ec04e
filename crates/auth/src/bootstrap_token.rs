//! Bootstrap tokens: `ID.SECRET`, kept in Secrets `kube-system/bootstrap-token-ID`, with which new nodes ask for
//! their first certificate (`--enable-bootstrap-token-auth`).

use crate::{AUTHENTICATED, Objects, User};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::{Object, Str, Timestamp};
use std::sync::{Arc, OnceLock};
use subtle::ConstantTimeEq;

const ID_CHARACTERS: usize = 6;
const SECRET_CHARACTERS: usize = 16;
const NAMESPACE: &str = "kube-system";
const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
const GROUP: &str = "system:bootstrappers";
/// Characters of the part of a group that the Secret names.
const GROUP_CHARACTERS_MAX: usize = 256;

/// Authenticates bootstrap tokens.
#[derive(Default)]
pub struct BootstrapTokens {
    objects: OnceLock<Arc<dyn Objects>>,
}

impl std::fmt::Debug for BootstrapTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BootstrapTokens")
    }
}

impl BootstrapTokens {
    /// Lets it look for Secrets.
    pub fn attach(&self, objects: Arc<dyn Objects>) {
        let _ = self.objects.set(objects);
    }

    /// The user of a token; `None` when it is none, or not of a Secret that is valid now.
    pub async fn authenticate(&self, token: &str, now: Timestamp) -> Option<User> {
        let (id, secret) = token.split_once('.')?;
        if !is_word(id, ID_CHARACTERS) || !is_word(secret, SECRET_CHARACTERS) {
            return None;
        }
        let objects = self.objects.get()?;
        if let Some(lag) = objects.lag() {
            lag.await.ok()?;
        }
        let name = format!("bootstrap-token-{id}");
        let stored = objects.get(("", "secrets"), NAMESPACE, &name).ok()??;
        user(&stored, id, secret, now)
    }
}

/// The Secret of a bootstrap token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapToken {
    /// The part of the token that is no secret.
    pub id: String,
    /// When it ends; `None`: never. What cannot be read as a time is over.
    pub expires: Option<Timestamp>,
    /// Whether `cluster-info` is signed with it.
    pub signs: bool,
}

impl BootstrapToken {
    /// Reads a Secret; `None`: it is none of a bootstrap token.
    pub fn read(stored: &Object) -> Option<BootstrapToken> {
        if stored.str_at(&["type"]) != SECRET_TYPE || stored.namespace() != NAMESPACE {
            return None;
        }
        let id = data(stored, "token-id").unwrap_or_default();
        let expires = data(stored, "expiration").unwrap_or_default();
        let time = || Timestamp::parse(&expires).unwrap_or_default();
        let is_whole = is_word(&id, ID_CHARACTERS)
            && stored.name() == format!("bootstrap-token-{id}")
            && data(stored, "token-secret").is_some_and(|secret| !secret.is_empty());
        let signs = is_whole && data(stored, "usage-bootstrap-signing").as_deref() == Some("true");
        Some(BootstrapToken { id, expires: (!expires.is_empty()).then(time), signs })
    }

    /// Signs a text with the secret of a stored token: a JSON Web Signature whose payload is left out (RFC 7515,
    /// appendix F), by which a new node knows the cluster.
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

/// A text of a Secret; absent is empty, what is not base64 is nothing.
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
    let is_same = bool::from(data("token-secret")?.as_bytes().ct_eq(secret.as_bytes()));
    if !is_same || data("token-id")? != id || data("usage-bootstrap-authentication")? != "true" {
        return None;
    }
    // What cannot be read as a time is over.
    let expiration = data("expiration")?;
    let is_over = || Timestamp::parse(&expiration).map_or(true, |end| end.seconds <= now.seconds);
    if !expiration.is_empty() && is_over() {
        return None;
    }
    let mut groups = vec![Str::new_static(GROUP)];
    for group in data("auth-extra-groups")?.split(',').filter(|group| !group.is_empty()) {
        if !is_group(group) {
            return None;
        }
        groups.push(group.into());
    }
    let name = format!("system:bootstrap:{id}").into();
    let user = User { name, groups: groups.into(), ..User::default() };
    Some(user.with_group(AUTHENTICATED))
}

/// `system:bootstrappers:` and lower-case letters, digits, `:` and `-`, the last a letter or digit.
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

    /// The groups of the user of a token whose Secret has these data beside those that every one has.
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
    fn a_secret_says_whether_its_token_counts_and_in_which_groups() {
        check(&[], Some(&[]));
        let extra = "system:bootstrappers:a,system:bootstrappers:b:c-1";
        let groups = ["system:bootstrappers:a", "system:bootstrappers:b:c-1"];
        check(&[("auth-extra-groups", extra)], Some(&groups));
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

    #[tokio::test]
    async fn what_is_no_bootstrap_token_is_nobodys() {
        let tokens = BootstrapTokens::default();
        for token in ["", "abcdef", "abcdef.", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcde/"]
        {
            assert_eq!(tokens.authenticate(token, Timestamp::new(0, 0)).await, None);
        }
    }
}
