//! Requests in the name of another user: the `Impersonate-*` headers (apiserver
//! `filters/impersonation`).

use http::HeaderMap;
use keelson_auth::{Attributes, Authorizer, User};
use keelson_meta::{Failure, GroupVersionResource, Status, Str, status::quote};

/// The user that the headers name, when the sender may be anyone.
pub(crate) fn impersonated(
    authorizer: &Authorizer,
    headers: &HeaderMap,
    user: User,
    wanted: &Attributes,
) -> Result<User, Failure> {
    let text = |name: &str| {
        headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned()
    };
    let name = text("impersonate-user");
    let groups: Vec<Str> = headers
        .get_all("impersonate-group")
        .iter()
        .filter_map(|value| value.to_str().ok())
        .map(Str::new)
        .collect();
    let uid = text("impersonate-uid");
    if name.is_empty() {
        if groups.is_empty() && uid.is_empty() {
            return Ok(user);
        }
        return Err(Status::bad_request(format!(
            "requested &user.DefaultInfo{{Name:\"\", UID:{}, Groups:{}, \
             Extra:map[string][]string(nil)}} without impersonating a user name",
            quote(&uid),
            go_strings(&groups)
        )));
    }
    let anyone = Attributes {
        verb: Str::new_static("impersonate"),
        gvr: GroupVersionResource::new("", "v1", "users"),
        name: name.as_str().into(),
        ..Attributes::default()
    };
    if !authorizer.allows(&user, &anyone) {
        let verb = format!("impersonate-on:{}:{}", mode(&name), wanted.verb);
        authorizer.authorize(user, Attributes { verb: verb.into(), ..wanted.clone() })?;
    }
    let groups = groups.into();
    let taken = User { name: name.as_str().into(), uid: uid.into(), groups, extra: vec![] };
    let anonymous = taken.name == keelson_auth::ANONYMOUS;
    let group = if anonymous { keelson_auth::UNAUTHENTICATED } else { keelson_auth::AUTHENTICATED };
    Ok(taken.with_group(group))
}

/// The kind of user whose name this is, as the verbs of constrained impersonation call it.
fn mode(name: &str) -> &'static str {
    if name.starts_with("system:serviceaccount:") {
        "serviceaccount"
    } else if name.starts_with("system:node:") {
        "arbitrary-node"
    } else {
        "user-info"
    }
}

/// As Go prints a list of strings with its type.
fn go_strings(items: &[Str]) -> String {
    if items.is_empty() {
        return "[]string(nil)".to_owned();
    }
    let quoted: Vec<String> = items.iter().map(|item| quote(item)).collect();
    format!("[]string{{{}}}", quoted.join(", "))
}
