//! How a server behind this one is reached, and what it is told about users.

use http::{HeaderMap, HeaderName, HeaderValue};
use keelson_auth::{FrontProxy, User};
use keelson_egress::{Identity, Peer, Route, Trust};
use keelson_resources::RemoteServer;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const USER: HeaderName = HeaderName::from_static("x-remote-user");
const UID: HeaderName = HeaderName::from_static("x-remote-uid");
const GROUP: HeaderName = HeaderName::from_static("x-remote-group");
/// The beginning of the headers of extra values.
const EXTRA: &str = "x-remote-extra-";

/// The bytes of a key that cannot stand in a header's name, and `%`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'!')
    .remove(b'#')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'*')
    .remove(b'+')
    .remove(b'-')
    .remove(b'.')
    .remove(b'^')
    .remove(b'_')
    .remove(b'`')
    .remove(b'|')
    .remove(b'~');

/// Returns the far side of a connection to a server.
pub fn peer(server: &RemoteServer, identity: Option<Identity>) -> Peer {
    let host = format!("{}.{}.svc", server.service, server.namespace);
    let mut peer = Peer::new(host, server.port);
    peer.route = Route::Given;
    peer.identity = identity;
    peer.trust = match &server.ca_bundle {
        _ if server.is_insecure => Trust::Anyone,
        Some(bundle) => Trust::Bundle(bundle.clone()),
        None => Trust::System,
    };
    peer
}

/// Removes what a client says about users: only this server does.
pub fn remove_user_headers(headers: &mut HeaderMap) {
    let is_ours = |name: &&HeaderName| FrontProxy::is_standard_header(name.as_str());
    let names: Vec<HeaderName> = headers.keys().filter(is_ours).cloned().collect();
    names.iter().for_each(|name| drop(headers.remove(name)));
}

/// Adds who sends a request (apiserver `authentication/request/headerrequest`). Values that cannot
/// stand in a header make the request fail, so that nobody is taken for another user.
pub fn user_headers(headers: &mut HeaderMap, user: &User) -> Result<(), String> {
    let value = |text: &str| {
        HeaderValue::from_bytes(text.as_bytes())
            .map_err(|_| "a name of the user cannot stand in a header".to_owned())
    };
    headers.insert(USER, value(&user.name)?);
    if !user.uid.is_empty() {
        headers.insert(UID, value(&user.uid)?);
    }
    for group in user.groups.iter() {
        headers.append(GROUP, value(group)?);
    }
    for (key, values) in &user.extra {
        let name = extra_header(EXTRA, key)?;
        for text in values {
            headers.append(name.clone(), value(text)?);
        }
    }
    Ok(())
}

/// Returns the header that tells of a user's extra values under a key: a prefix in lower case, and
/// the key escaped as Kubernetes' clients do.
pub fn extra_header(prefix: &str, key: &str) -> Result<HeaderName, String> {
    let key = key.to_ascii_lowercase();
    let name = format!("{prefix}{}", utf8_percent_encode(&key, ESCAPED));
    HeaderName::try_from(name).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_server_says_who_the_user_is() {
        let mut headers = HeaderMap::new();
        for name in ["x-remote-user", "x-remote-group", "x-remote-extra-a", "x-remote-uid"] {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static("forged"));
        }
        headers.insert("accept", HeaderValue::from_static("*/*"));
        remove_user_headers(&mut headers);
        assert_eq!(headers.len(), 1);
        let user = User {
            name: "jürgen".into(),
            groups: ["a".into(), "b".into()].into(),
            extra: vec![("acme.com/Rôle%".into(), vec!["x".into()])],
            ..User::default()
        };
        user_headers(&mut headers, &user).expect("headers");
        let all = |name: &str| -> Vec<Vec<u8>> {
            headers.get_all(name).iter().map(|value| value.as_bytes().to_vec()).collect()
        };
        assert_eq!(all("x-remote-user"), ["jürgen".as_bytes().to_vec()]);
        assert_eq!(all("x-remote-group"), [b"a".to_vec(), b"b".to_vec()]);
        assert_eq!(all("x-remote-extra-acme.com%2Fr%C3%B4le%25"), [b"x".to_vec()]);
        let liar = User { name: "a\r\nx-remote-group: system:masters".into(), ..User::default() };
        assert!(user_headers(&mut headers, &liar).is_err());
    }
}
