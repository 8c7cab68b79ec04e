//! Impersonation: requests in the name of another user by the `Impersonate-*` headers (apiserver
//! `filters/impersonation`). It fails closed: a header that is empty, doubled, not UTF-8 or unknown is
//! refused, where the reference takes some of these for absent and serves the request as its sender.

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
/// Extra of service accounts whose token is bound to a pod on a node.
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

/// From so many groups or extra values on, constrained impersonation first asks for all of them at once.
const PARTS_MANY: usize = 4;
/// Senders whose last mode is remembered, in each of two generations.
const SENDERS_REMEMBERED_MAX: usize = 5_000;

/// Ways to impersonate: the constrained ones, each for a kind of user and for requests that are allowed one by
/// one, and the one with which all requests can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// The node on which the pod of the sender runs.
    AssociatedNode,
    /// Any node.
    ArbitraryNode,
    /// A service account, without anything else.
    ServiceAccount,
    /// A user that is neither node nor service account, with groups and other facts.
    UserInfo,
    /// Anybody, for all requests.
    Legacy,
}

impl Mode {
    /// As the verbs of constrained impersonation call it.
    fn word(self) -> &'static str {
        match self {
            Mode::AssociatedNode => "associated-node",
            Mode::ArbitraryNode => "arbitrary-node",
            Mode::ServiceAccount => "serviceaccount",
            Mode::UserInfo => "user-info",
            Mode::Legacy => "",
        }
    }
}

/// The mode in which each sender impersonated last; it is tried first. Which is remembered changes only the order
/// in which modes are tried, so that names may share a hash.
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

/// Users and groups that constrained impersonation refuses.
fn check_constrained(sender: &User, one: &Attributes) -> Result<(), Failure> {
    let why = match one.gvr.resource.as_str() {
        "groups" if one.name == MASTERS => {
            format!("impersonating the {MASTERS} group is not allowed")
        }
        "userextras" if !is_domain_path(&one.subresource) => format!(
            "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: {}: \
             must be a domain-prefixed path (such as \"acme.io/foo\")",
            quote(&one.subresource)
        ),
        _ => return Ok(()),
    };
    let mut one = one.clone();
    if one.gvr.resource == "userextras" {
        (one.subresource, one.name) = Default::default();
    }
    Err(forbidden(sender, &one, &AuthorizationReason::Text(why)))
}

/// Whether a key is like `acme.io/foo`.
fn is_domain_path(key: &str) -> bool {
    key.split_once('/')
        .is_some_and(|(domain, path)| is_dns1123_subdomain(domain).is_empty() && !path.is_empty())
}

/// The node whose user name this is.
fn node(name: &str) -> Option<&str> {
    name.strip_prefix("system:node:").filter(|node| is_dns1123_subdomain(node).is_empty())
}

/// The Impersonate-* headers of a request.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    name: Option<Str>,
    uid: Option<Str>,
    groups: Vec<Str>,
    /// Keys with their values, both in the order of the headers.
    extra: Vec<(Str, Vec<Str>)>,
}

/// The user that the headers name, when the sender may impersonate all of it; the sender when there is no
/// such header.
pub(crate) async fn impersonated(
    authorizer: &Authorizer,
    last_modes: &LastModes,
    headers: &HeaderMap,
    user: User,
    wanted: &Attributes,
) -> Result<User, Failure> {
    let Some(asked) = Asked::read(headers)? else { return Ok(user) };
    let Some(name) = asked.name.clone() else { return Err(asked.without_user()) };
    // In a box, as what is done seldom, so that the future of each request stays small.
    let first = last_modes.get(&user.name);
    let mode = Box::pin(asked.check(authorizer, first, &user, &name, wanted)).await?;
    if first != Some(mode) {
        last_modes.set(&user.name, mode);
    }
    Ok(asked.into_user(mode, name))
}

impl Asked {
    /// Reads the headers; `None` when none begins with `Impersonate-`.
    fn read(headers: &HeaderMap) -> Result<Option<Asked>, Failure> {
        let mut asked = Asked::default();
        let mut is_any = false;
        // A header that comes several times comes here as often, one after the other.
        for (header, value) in headers {
            let Some(what) = header.as_str().strip_prefix(PREFIX) else { continue };
            is_any = true;
            let value = text(header, value)?;
            match what {
                "user" => set_once(&mut asked.name, header, value)?,
                "uid" => set_once(&mut asked.uid, header, value)?,
                "group" => asked.groups.push(value),
                _ => match what.strip_prefix("extra-") {
                    Some(key) => asked.add_extra(header, key, value)?,
                    None => return Err(refused(header, "is not known")),
                },
            }
        }
        Ok(is_any.then_some(asked))
    }

    fn add_extra(&mut self, header: &HeaderName, key: &str, value: Str) -> Result<(), Failure> {
        let key = unescaped(key).ok_or_else(|| refused(header, "is not UTF-8"))?;
        if key.is_empty() {
            return Err(refused(header, "has no key"));
        }
        match self.extra.iter_mut().find(|(known, _)| *known == key) {
            Some((_, values)) => values.push(value),
            None => self.extra.push((key, vec![value])),
        }
        Ok(())
    }

    /// A mode in which the sender may impersonate the user, or the 403 of the first that was tried. `first` is
    /// tried before the others, if the user can be asked for in it.
    async fn check(
        &self,
        authorizer: &Authorizer,
        first: Option<Mode>,
        sender: &User,
        name: &Str,
        wanted: &Attributes,
    ) -> Result<Mode, Failure> {
        let mut refusal = None;
        let mut modes = self.modes(sender, name);
        modes.sort_by_key(|mode| first != Some(*mode));
        for mode in modes {
            match self.check_mode(mode, authorizer, sender, name, wanted).await {
                Ok(()) => return Ok(mode),
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        Err(refusal.unwrap_or_else(Status::unauthorized))
    }

    /// The modes in which this user can be asked for, in the order in which they are tried.
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
        wanted: &Attributes,
    ) -> Result<(), Failure> {
        if mode != Mode::Legacy {
            let verb = format!("impersonate-on:{}:{}", mode.word(), wanted.verb);
            let wanted = Attributes { verb: verb.into(), ..wanted.clone() };
            authorizer.authorize(sender.clone(), wanted).await?;
        }
        for alike in self.permissions(mode, name) {
            if mode != Mode::Legacy {
                alike.iter().try_for_each(|one| check_constrained(sender, one))?;
                if alike.len() >= PARTS_MANY && may_all(authorizer, sender, &alike[0]).await {
                    continue;
                }
            }
            for one in alike {
                authorizer.authorize(sender.clone(), one).await?;
            }
        }
        Ok(())
    }

    /// The checks of the sender's rights: one for each part (name, uid, groups, extra).
    fn permissions(&self, mode: Mode, name: &Str) -> [Vec<Attributes>; 4] {
        let verb: Str = match mode {
            Mode::Legacy => Str::new_static("impersonate"),
            mode => format!("impersonate:{}", mode.word()).into(),
        };
        let one = |group: &str, resource: &str, subresource: &str, name: &str| Attributes {
            verb: verb.clone(),
            gvr: GroupVersionResource::new(group, "v1", resource),
            subresource: subresource.into(),
            name: name.into(),
            ..Attributes::default()
        };
        let group = if mode == Mode::Legacy { "" } else { AUTHENTICATION };
        let user = match (mode, service_account(name)) {
            (Mode::AssociatedNode, _) => one(group, service_account::NODES.1, "", "*"),
            (Mode::ArbitraryNode, _) => {
                one(group, service_account::NODES.1, "", node(name).unwrap_or_default())
            }
            (_, Some((namespace, name))) => Attributes {
                namespace: namespace.into(),
                ..one(group, service_account::ACCOUNTS.1, "", name)
            },
            _ => one(group, "users", "", name),
        };
        let uid = self.uid.iter().map(|uid| one(AUTHENTICATION, "uids", "", uid));
        let groups = self.groups.iter().map(|name| one(group, "groups", "", name));
        let extra = self.extra.iter().flat_map(|(key, values)| {
            values.iter().map(|value| one(AUTHENTICATION, "userextras", key, value))
        });
        [vec![user], uid.collect(), groups.collect(), extra.collect()]
    }

    /// The user, with the groups that everybody of its kind is in.
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

    /// 400 for parts of a user without its name, as the reference words it.
    fn without_user(&self) -> Failure {
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

/// Whether a sender may impersonate all groups, or all extra.
async fn may_all(authorizer: &Authorizer, sender: &User, one: &Attributes) -> bool {
    let any = Str::new_static("*");
    let subresource = if one.subresource.is_empty() { Str::default() } else { any.clone() };
    let all = Attributes { name: any, subresource, ..one.clone() };
    authorizer.allows(sender, &all).await
}

/// The text of a header, which must not be empty.
fn text(header: &HeaderName, value: &HeaderValue) -> Result<Str, Failure> {
    match std::str::from_utf8(value.as_bytes()) {
        Ok("") => Err(refused(header, "is empty")),
        Ok(text) => Ok(text.into()),
        Err(_) => Err(refused(header, "is not UTF-8")),
    }
}

fn set_once(place: &mut Option<Str>, header: &HeaderName, value: Str) -> Result<(), Failure> {
    if place.is_some() {
        return Err(refused(header, "is given more than once"));
    }
    *place = Some(value);
    Ok(())
}

fn refused(header: &HeaderName, why: &str) -> Failure {
    Status::bad_request(format!("impersonation header {} {why}", quote(header.as_str())))
}

/// A key with its escapes resolved; one that is not escaped well is taken as it stands. `None`: it is
/// not UTF-8.
fn unescaped(key: &str) -> Option<Str> {
    if !crate::query::is_escaped_well(key) {
        return Some(key.into());
    }
    percent_decode_str(key).decode_utf8().ok().map(|key| Str::new(&*key))
}

/// Namespace and name of a service account's user.
fn service_account(name: &str) -> Option<(&str, &str)> {
    let (namespace, name) = name.strip_prefix(SERVICE_ACCOUNT)?.split_once(':')?;
    let is_valid = is_dns1123_label(namespace).is_empty() && is_dns1123_subdomain(name).is_empty();
    is_valid.then_some((namespace, name))
}

/// As Go prints a list of strings with its type.
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
        let wanted = Attributes { verb: "get".into(), ..Attributes::default() };
        let got =
            match impersonated(&Authorizer::default(), &LastModes::default(), &map, admin, &wanted)
                .await
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
    async fn without_headers_the_sender_asks() {
        check(&[("x-impersonate-user", b"a")], "admin||system:masters|").await;
    }

    #[tokio::test]
    async fn a_name_in_utf8_is_that_users_name() {
        check(&[("impersonate-user", "jürgen".as_bytes())], "jürgen||system:authenticated|").await;
    }

    #[tokio::test]
    async fn a_header_that_cannot_be_read_is_never_taken_as_absent() {
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
        let said = |uid: &str, groups: &str, extra: &str| {
            format!(
                "400 requested &user.DefaultInfo{{Name:\"\", UID:\"{uid}\", Groups:{groups}, \
                 Extra:{extra}}} without impersonating a user name"
            )
        };
        let (none, nil) = ("[]string(nil)", "map[string][]string(nil)");
        check(&[("impersonate-uid", b"u")], &said("u", none, nil)).await;
        check(&[("impersonate-group", b"g")], &said("", "[]string{\"g\"}", nil)).await;
        let extra = "map[string][]string{\"a\":[]string{\"x\", \"y\"}, \"b\":[]string{\"z\"}}";
        let headers: [(&str, &[u8]); 3] = [
            ("impersonate-extra-b", b"z"),
            ("impersonate-extra-a", b"x"),
            ("impersonate-extra-a", b"y"),
        ];
        check(&headers, &said("", none, extra)).await;
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
    fn each_part_is_asked_for_by_itself() {
        let asked = Asked {
            name: Some("a".into()),
            uid: Some("7".into()),
            groups: vec!["g".into(), "h".into()],
            extra: vec![("k".into(), vec!["x".into(), "y".into()])],
        };
        let said = |one: &Attributes| {
            format!(
                "{} {} {}/{} {}",
                one.verb, one.gvr.group, one.gvr.resource, one.subresource, one.name
            )
        };
        let asked: Vec<String> =
            asked.permissions(Mode::Legacy, &"a".into()).iter().flatten().map(said).collect();
        assert_eq!(
            asked,
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
