//! Impersonation: requests as another user with the `Impersonate-*` headers (apiserver
//! `filters/impersonation`). It fails closed: a header that is empty, repeated, not UTF-8 or
//! unknown is an error. kube-apiserver ignores some of these and serves the request as its sender.

use crate::header_lists;
use http::header::HeaderName;
use http::{HeaderMap, HeaderValue};
use keelson_auth::service_account;
use keelson_auth::{Attributes, AuthorizationReason, Authorizer, MASTERS, User, forbidden};
use keelson_meta::names::{is_dns1123_label, is_dns1123_subdomain};
use keelson_meta::{Failure, GroupVersionResource, Status, Str, status::quote};
use percent_encoding::percent_decode_str;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};

const PREFIX: &str = "impersonate-";
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

const AUTHENTICATION: &str = "authentication.k8s.io";
const NODES: &str = "system:nodes";
/// The extra key that names the node of the pod to which a service account token is bound.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// From this number of groups or extra values on, constrained impersonation first checks `*`.
const PARTS_MANY: usize = 4;
/// Most senders whose last mode is cached, in each of two generations.
const SENDERS_REMEMBERED_MAX: usize = 5_000;

/// Modes of impersonation: the constrained ones, for one kind of user and one kind of request each,
/// and the legacy one, which allows all requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The node on which the pod of the sender runs.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account, without uid, groups or extra.
    ServiceAccount,
    /// A user that is neither a node nor a service account, with uid, groups and extra.
    UserInfo,
    /// Any user, for all requests.
    Legacy,
}

impl Mode {
    /// Returns the name of the mode in the verbs of constrained impersonation.
    fn verb_part(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }

    /// Returns the verb that allows the impersonation.
    fn verb(self) -> Str {
        match self {
            Mode::Legacy => Str::new_static("impersonate"),
            mode => format!("impersonate:{}", mode.verb_part()).into(),
        }
    }
}

/// The mode that last succeeded for each sender, which is tried first. It only affects the order of
/// modes, so hash collisions of names are harmless.
#[derive(Debug, Default)]
pub(crate) struct LastModes {
    hasher: RandomState,
    generations: Mutex<[HashMap<u64, Mode>; 2]>,
}

impl LastModes {
    fn get(&self, sender: &str) -> Option<Mode> {
        let key = self.hasher.hash_one(sender);
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.iter().find_map(|known| known.get(&key).copied())
    }

    fn set(&self, sender: &str, mode: Mode) {
        let key = self.hasher.hash_one(sender);
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let [new, old] = &mut *generations;
        if new.len() >= SENDERS_REMEMBERED_MAX {
            *old = std::mem::take(new);
        }
        new.insert(key, mode);
    }
}

/// Rejects groups and extra keys that constrained impersonation does not allow.
fn check_constrained(sender: &User, check: &Attributes) -> Result<(), Failure> {
    let why = match check.gvr.resource.as_str() {
        "groups" if check.name == MASTERS => {
            format!("impersonating the {MASTERS} group is not allowed")
        }
        "userextras" if !is_domain_path(&check.subresource) => format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: \
             must be a domain-prefixed path (such as \"acme.io/foo\")",
            quote(&check.subresource)
        ),
        _ => return Ok(()),
    };
    let mut check = check.clone();
    if check.gvr.resource == "userextras" {
        (check.subresource, check.name) = Default::default();
    }
    Err(forbidden(sender, &check, &AuthorizationReason::Text(why)))
}

/// Returns whether a key is a domain-prefixed path such as `acme.io/foo`.
fn is_domain_path(key: &str) -> bool {
    key.split_once('/')
        .is_some_and(|(domain, path)| is_dns1123_subdomain(domain).is_empty() && !path.is_empty())
}

/// Returns the node of a node's user name.
fn node(name: &str) -> Option<&str> {
    name.strip_prefix("system:node:").filter(|node| is_dns1123_subdomain(node).is_empty())
}

/// The Impersonate-* headers of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct ImpersonationHeaders {
    name: Option<Str>,
    uid: Option<Str>,
    groups: Vec<Str>,
    /// Keys with their values, both in the order of the headers.
    extra: Vec<(Str, Vec<Str>)>,
}

/// The user as whom a request acts.
pub(crate) struct Impersonated {
    /// The user.
    pub user: User,
    /// The verb of constrained impersonation that allowed it.
    pub constraint: Option<Str>,
}

/// Returns the impersonated user; `None` if there are no impersonation headers. Fails with 403 if
/// the sender may not impersonate that user. Unless it `is_constrained`, only the legacy mode
/// counts (ConstrainedImpersonation).
pub(crate) async fn impersonate(
    authorizer: &Authorizer,
    last_modes: &LastModes,
    headers: &HeaderMap,
    user: &User,
    request: &Attributes,
    is_constrained: bool,
) -> Result<Option<Impersonated>, Failure> {
    let Some(requested) = ImpersonationHeaders::read(headers)? else { return Ok(None) };
    let Some(name) = requested.name.clone() else { return Err(requested.missing_user_error()) };
    let first = last_modes.get(&user.name);
    let mut modes = vec![Mode::Legacy];
    if is_constrained {
        modes = requested.modes(user, &name);
        modes.sort_by_key(|mode| first != Some(*mode));
    }
    // Boxed, because it is rare and would enlarge the future of each request.
    let mode = Box::pin(requested.check(authorizer, &modes, user, &name, request)).await?;
    if first != Some(mode) {
        last_modes.set(&user.name, mode);
    }
    let user = requested.into_user(mode, name);
    let constraint = (mode != Mode::Legacy).then(|| mode.verb());
    Ok(Some(Impersonated { user, constraint }))
}

impl ImpersonationHeaders {
    /// Parses the headers. Returns `None` if none begins with `Impersonate-`.
    fn read(headers: &HeaderMap) -> Result<Option<ImpersonationHeaders>, Failure> {
        let mut requested = ImpersonationHeaders::default();
        let mut is_any = false;
        // Repeated headers are yielded once for each value.
        for (header, value) in headers {
            let Some(what) = header.as_str().strip_prefix(PREFIX) else { continue };
            is_any = true;
            let value = text(header, value)?;
            match what {
                "user" => set_once(&mut requested.name, header, value)?,
                "uid" => set_once(&mut requested.uid, header, value)?,
                "group" => requested.groups.push(value),
                _ => match what.strip_prefix("extra-") {
                    Some(key) => requested.add_extra(header, key, value)?,
                    None => return Err(invalid_header(header, "is not known")),
                },
            }
        }
        Ok(is_any.then_some(requested))
    }

    fn add_extra(&mut self, header: &HeaderName, key: &str, value: Str) -> Result<(), Failure> {
        let key = unescape(key).ok_or_else(|| invalid_header(header, "is not UTF-8"))?;
        if key.is_empty() {
            return Err(invalid_header(header, "has no key"));
        }
        match self.extra.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => self.extra.push((key, vec![value])),
        }
        Ok(())
    }

    /// Returns a mode in which the sender may impersonate the user, or the 403 of the first mode
    /// tried, in this order.
    async fn check(
        &self,
        authorizer: &Authorizer,
        modes: &[Mode],
        sender: &User,
        name: &Str,
        request: &Attributes,
    ) -> Result<Mode, Failure> {
        let mut refusal = None;
        for mode in modes.iter().copied() {
            match self.check_mode(mode, authorizer, sender, name, request).await {
                Ok(()) => return Ok(mode),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.unwrap_or_else(Status::unauthorized))
    }

    /// Returns the modes that apply to the user, in the order in which they are tried.
    fn modes(&self, sender: &User, name: &str) -> Vec<Mode> {
        let is_bare = self.uid.is_none() && self.groups.is_empty() && self.extra.is_empty();
        let mut modes = vec![];
        match (node(name), service_account(name)) {
            (Some(node), _) if is_bare => {
                let of_sender = sender.extra.iter().find(|(key, _)| key == NODE_NAME);
                let is_associated = service_account(&sender.name).is_some()
                    && of_sender.is_some_and(|(_, names)| names.iter().any(|name| name == node));
                if is_associated {
                    modes.push(Mode::AssociatedNode);
                }
                modes.push(Mode::ArbitraryNode);
            }
            (None, Some(_)) if is_bare => modes.push(Mode::ServiceAccount),
            (None, None) => modes.push(Mode::UserInfo),
            _ => {}
        }
        modes.push(Mode::Legacy);
        modes
    }

    async fn check_mode(
        &self,
        mode: Mode,
        authorizer: &Authorizer,
        sender: &User,
        name: &Str,
        request: &Attributes,
    ) -> Result<(), Failure> {
        if mode != Mode::Legacy {
            let verb = format!("impersonate-on:{}:{}", mode.verb_part(), request.verb);
            let request = Attributes { verb: verb.into(), ..request.clone() };
            authorizer.authorize(sender.clone(), request).await?;
        }
        for checks in self.permissions(mode, name) {
            if mode != Mode::Legacy {
                checks.iter().try_for_each(|check| check_constrained(sender, check))?;
                if checks.len() >= PARTS_MANY
                    && is_allowed_all(authorizer, sender, &checks[0]).await
                {
                    continue;
                }
            }
            for check in checks {
                authorizer.authorize(sender.clone(), check).await?;
            }
        }
        Ok(())
    }

    /// Returns the authorization checks for each part of the user (name, uid, groups, extra).
    fn permissions(&self, mode: Mode, name: &Str) -> [Vec<Attributes>; 4] {
        let verb = mode.verb();
        let check = |group: &str, resource: &str, subresource: &str, name: &str| Attributes {
            verb: verb.clone(),
            gvr: GroupVersionResource::new(group, "v1", resource),
            subresource: subresource.into(),
            name: name.into(),
            ..Attributes::default()
        };
        let group = if mode == Mode::Legacy { "" } else { AUTHENTICATION };
        let user = match (mode, service_account(name)) {
            (Mode::AssociatedNode, _) => check(group, service_account::NODES.1, "", "*"),
            (Mode::ArbitraryNode, _) => {
                check(group, service_account::NODES.1, "", node(name).unwrap_or_default())
            }
            (_, Some((namespace, name))) => Attributes {
                namespace: namespace.into(),
                ..check(group, service_account::ACCOUNTS.1, "", name)
            },
            _ => check(group, "users", "", name),
        };
        let uid = self.uid.iter().map(|uid| check(AUTHENTICATION, "uids", "", uid));
        let groups = self.groups.iter().map(|name| check(group, "groups", "", name));
        let extra = self.extra.iter().flat_map(|(key, values)| {
            values.iter().map(|value| check(AUTHENTICATION, "userextras", key, value))
        });
        [vec![user], uid.collect(), groups.collect(), extra.collect()]
    }

    /// Returns the user, with the groups that all users of its kind have.
    fn into_user(self, mode: Mode, name: Str) -> User {
        let mut groups = self.groups;
        if matches!(mode, Mode::AssociatedNode | Mode::ArbitraryNode) {
            groups.push(Str::new_static(NODES));
        }
        if let (Some((namespace, _)), true) = (service_account(&name), groups.is_empty()) {
            groups.push(Str::new_static(SERVICE_ACCOUNTS));
            groups.push(format!("{SERVICE_ACCOUNTS}:{namespace}").into());
        }
        let is_anonymous = name == keelson_auth::ANONYMOUS
            || groups.iter().any(|group| group == keelson_auth::UNAUTHENTICATED);
        let uid = self.uid.unwrap_or_default();
        let user = User { name, uid, groups: groups.into(), extra: self.extra };
        user.with_group(if is_anonymous {
            keelson_auth::UNAUTHENTICATED
        } else {
            keelson_auth::AUTHENTICATED
        })
    }

    /// Returns the 400 for headers without a user name, with kube-apiserver's message.
    fn missing_user_error(&self) -> Failure {
        let mut extra: Vec<_> = self.extra.iter().collect();
        extra.sort();
        let extra = match extra.as_slice() {
            [] => "map[string][]string(nil)".to_owned(),
            extra => {
                let pairs =
                    extra.iter().map(|(key, of)| format!("{}:{}", quote(key), go_strings(of)));
                format!("map[string][]string{{{}}}", pairs.collect::<Vec<_>>().join(", "))
            }
        };
        Status::bad_request(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:{}, Extra:{extra}}} without \
             impersonating a user name",
            quote(self.uid.as_deref().unwrap_or_default()),
            go_strings(&self.groups)
        ))
    }
}

/// Removes the headers that ask for impersonation: proxied requests must not carry them.
pub(crate) fn remove_headers(headers: &mut HeaderMap) {
    header_lists::remove(headers, |name| name.starts_with(PREFIX));
}

/// Returns whether a sender may impersonate all groups, or all extra values.
async fn is_allowed_all(authorizer: &Authorizer, sender: &User, check: &Attributes) -> bool {
    let any = Str::new_static("*");
    let subresource = if check.subresource.is_empty() { Str::default() } else { any.clone() };
    let all = Attributes { name: any, subresource, ..check.clone() };
    authorizer.allows(sender, &all).await
}

/// Returns the text of a header, which must not be empty.
fn text(header: &HeaderName, value: &HeaderValue) -> Result<Str, Failure> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok("") => Err(invalid_header(header, "is empty")),
        Ok(text) => Ok(text.into()),
        Err(_) => Err(invalid_header(header, "is not UTF-8")),
    }
}

fn set_once(target: &mut Option<Str>, header: &HeaderName, value: Str) -> Result<(), Failure> {
    if target.is_some() {
        return Err(invalid_header(header, "is given more than once"));
    }
    *target = Some(value);
    Ok(())
}

fn invalid_header(header: &HeaderName, why: &str) -> Failure {
    Status::bad_request(format!("impersonation header {} {why}", quote(header.as_str())))
}

/// Percent-decodes a key. An invalid escape leaves it unchanged. Returns `None` if it is not UTF-8.
fn unescape(key: &str) -> Option<Str> {
    if !crate::query::is_escaped_well(key) {
        return Some(key.into());
    }
    percent_decode_str(key).decode_utf8().ok().map(|key| Str::new(&*key))
}

/// Returns namespace and name of a service account's user name.
fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_valid = is_dns1123_label(namespace).is_empty() && is_dns1123_subdomain(name).is_empty();
    is_valid.then_some((namespace, name))
}

/// Formats strings like Go's `%#v` of a `[]string`.
fn go_strings(items: &[Str]) -> String {
    if items.is_empty() {
        return "[]string(nil)".to_owned();
    }
    let quoted: Vec<String> = items.iter().map(|item| quote(item)).collect();
    format!("[]string{{{}}}", quoted.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outcome for an administrator: user, uid, groups and extra, or code and message.
    async fn check(headers: &[(&str, &[u8])], want: &str) {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a header name");
            map.append(name, HeaderValue::from_bytes(value).expect("a header value"));
        }
        let admin = User { name: "admin".into(), ..User::default() };
        let admin = admin.with_group(MASTERS);
        let request = Attributes { verb: "get".into(), ..Attributes::default() };
        let got = match impersonate(
            &Authorizer::default(),
            &LastModes::default(),
            &map,
            &admin,
            &request,
            true,
        )
        .await
        .map(|impersonated| impersonated.map_or(admin, |impersonated| impersonated.user))
        {
            Ok(User { name, uid, groups, extra }) => {
                let extra: Vec<_> =
                    extra.iter().map(|(k, v)| format!("{k}={}", v.join("+"))).collect();
                format!("{name}|{uid}|{}|{}", groups.join(","), extra.join(","))
            }
            Err(failure) => format!("{} {}", failure.code, failure.message),
        };
        assert_eq!(got, want, "{headers:?}");
    }

    #[tokio::test]
    async fn without_headers_the_sender_is_the_user() {
        check(&[("x-impersonate-user", b"a")], "admin||system:masters|").await;
    }

    #[tokio::test]
    async fn a_name_in_utf8_is_that_users_name() {
        check(&[("impersonate-user", "jürgen".as_bytes())], "jürgen||system:authenticated|").await;
    }

    #[tokio::test]
    async fn an_invalid_header_is_never_ignored() {
        let header = "400 impersonation header \"impersonate-";
        check(&[("impersonate-user", b"")], &format!("{header}user\" is empty")).await;
        check(&[("impersonate-user", b"\xff")], &format!("{header}user\" is not UTF-8")).await;
        let doubled = format!("{header}user\" is given more than once");
        check(&[("impersonate-user", b"a"), ("impersonate-user", b"b")], &doubled).await;
        let a = ("impersonate-user", b"a".as_slice());
        check(&[a, ("impersonate-uid", b"")], &format!("{header}uid\" is empty")).await;
        check(&[a, ("impersonate-group", b"")], &format!("{header}group\" is empty")).await;
        check(&[a, ("impersonate-group", b"\xe9")], &format!("{header}group\" is not UTF-8")).await;
        check(&[a, ("impersonate-foo", b"x")], &format!("{header}foo\" is not known")).await;
        check(&[("impersonate-foo", b"x")], &format!("{header}foo\" is not known")).await;
        check(&[a, ("impersonate-extra-", b"x")], &format!("{header}extra-\" has no key")).await;
        check(&[a, ("impersonate-extra-%ff", b"x")], &format!("{header}extra-%ff\" is not UTF-8"))
            .await;
    }

    #[tokio::test]
    async fn parts_of_a_user_without_its_name_are_refused() {
        let message = |uid: &str, groups: &str, extra: &str| {
            format!(
                "400 requested &user.DefaultInfo{{Name:\"\", UID:\"{uid}\", Groups:{groups}, \
                 Extra:{extra}}} without impersonating a user name"
            )
        };
        let none = "[]string(nil)";
        let nil = "map[string][]string(nil)";
        check(&[("impersonate-uid", b"u")], &message("u", none, nil)).await;
        check(&[("impersonate-group", b"g")], &message("", "[]string{\"g\"}", nil)).await;
        let extra = "map[string][]string{\"a\":[]string{\"x\", \"y\"}, \"b\":[]string{\"z\"}}";
        let headers: [(&str, &[u8]); 3] = [
            ("impersonate-extra-b", b"z"),
            ("impersonate-extra-a", b"x"),
            ("impersonate-extra-a", b"y"),
        ];
        check(&headers, &message("", none, extra)).await;
    }

    #[tokio::test]
    async fn groups_uid_and_extra_go_with_the_name() {
        let a = ("impersonate-user", b"a".as_slice());
        check(
            &[a, ("impersonate-uid", b"7"), ("impersonate-group", b"g")],
            "a|7|g,system:authenticated|",
        )
        .await;
        check(&[a, ("impersonate-extra-foo%2fBar", b"x")], "a||system:authenticated|foo/bar=x")
            .await;
        check(&[a, ("impersonate-extra-a%zz", b"x")], "a||system:authenticated|a%zz=x").await;
        check(&[a, ("impersonate-group", b"system:unauthenticated")], "a||system:unauthenticated|")
            .await;
        check(
            &[("impersonate-user", b"system:serviceaccount:ns:x")],
            "system:serviceaccount:ns:x||system:serviceaccounts,system:serviceaccounts:ns,\
             system:authenticated|",
        )
        .await;
        check(
            &[("impersonate-user", b"system:serviceaccount:ns:x"), ("impersonate-group", b"g")],
            "system:serviceaccount:ns:x||g,system:authenticated|",
        )
        .await;
        check(
            &[("impersonate-user", b"system:anonymous")],
            "system:anonymous||system:unauthenticated|",
        )
        .await;
    }

    #[test]
    fn each_part_is_checked_separately() {
        let requested = ImpersonationHeaders {
            name: Some("a".into()),
            uid: Some("7".into()),
            groups: vec!["g".into(), "h".into()],
            extra: vec![("k".into(), vec!["x".into(), "y".into()])],
        };
        let describe = |check: &Attributes| {
            format!(
                "{} {} {}/{} {}",
                check.verb, check.gvr.group, check.gvr.resource, check.subresource, check.name
            )
        };
        let requested: Vec<String> = requested
            .permissions(Mode::Legacy, &"a".into())
            .iter()
            .flatten()
            .map(describe)
            .collect();
        assert_eq!(
            requested,
            [
                "impersonate  users/ a",
                "impersonate authentication.k8s.io uids/ 7",
                "impersonate  groups/ g",
                "impersonate  groups/ h",
                "impersonate authentication.k8s.io userextras/k x",
                "impersonate authentication.k8s.io userextras/k y",
            ]
        );
    }
}
