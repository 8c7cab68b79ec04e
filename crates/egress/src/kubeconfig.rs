//! Servers and credentials in a kubeconfig. The kubeconfig is passed in parsed; relative paths in
//! it are relative to its folder. `exec` and `auth-provider` are rejected: this server runs no
//! programs.

use crate::peer::{Identity, Peer, Trust};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use keelson_meta::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const HTTPS_PORT: u16 = 443;

/// Credentials of a kubeconfig user.
#[derive(Clone, Default)]
pub struct Login {
    authorization: Option<String>,
    identity: Option<Identity>,
}

/// The server of a kubeconfig's current context, with the credentials of its user.
#[derive(Clone)]
pub struct Server {
    /// The server and the credentials of a context.
    pub peer: Peer,
    /// The URL without a trailing slash: `https://127.0.0.1:8443/review`.
    pub url: String,
    /// The path of the URL; empty when it has none.
    pub path: String,
}

/// Returns the users of a kubeconfig by name.
pub fn users(kubeconfig: &Value, folder: &Path) -> Result<BTreeMap<String, Login>, String> {
    let mut users = BTreeMap::new();
    for user in kubeconfig.array_at(&["users"]) {
        let name = text(user, "name");
        let login = Login::read(user.get("user").unwrap_or(&Value::Null), folder);
        users.insert(name.to_owned(), login.map_err(|why| format!("user {name:?}: {why}"))?);
    }
    Ok(users)
}

/// Returns the context that `current-context` names.
pub fn current_context(kubeconfig: &Value) -> Option<&Value> {
    let wanted = text(kubeconfig, "current-context");
    let mut contexts = kubeconfig.array_at(&["contexts"]).iter().rev();
    let context = contexts.find(|context| text(context, "name") == wanted)?;
    if wanted.is_empty() { None } else { context.get("context") }
}

impl Server {
    /// Reads the current context.
    pub fn read(kubeconfig: &Value, folder: &Path) -> Result<Server, String> {
        let Some(context) = current_context(kubeconfig) else {
            let name = text(kubeconfig, "current-context");
            return Err(format!("current-context: there is no context {name:?}"));
        };
        let wanted = text(context, "cluster");
        let mut clusters = kubeconfig.array_at(&["clusters"]).iter().rev();
        let cluster = clusters.find(|cluster| text(cluster, "name") == wanted);
        let Some(cluster) = cluster.and_then(|cluster| cluster.get("cluster")) else {
            return Err(format!("there is no cluster {wanted:?}"));
        };
        let mut server = Server::of_url(text(cluster, "server"))?;
        if let Some(pem) = data_or_file(cluster, "certificate-authority", folder)? {
            server.peer.trust = Trust::Bundle(pem);
        } else if cluster.get("insecure-skip-tls-verify").and_then(Value::as_bool) == Some(true) {
            server.peer.trust = Trust::Anyone;
        }
        let name = text(cluster, "tls-server-name");
        server.peer.server_name = (!name.is_empty()).then(|| name.to_owned());
        if let Some(login) = users(kubeconfig, folder)?.get(text(context, "user")) {
            login.set_credentials(&mut server.peer);
        }
        Ok(server)
    }

    fn of_url(url: &str) -> Result<Server, String> {
        let invalid = || format!("server {url:?} is no https:// URL");
        let uri: Uri = url.parse().map_err(|_| invalid())?;
        let authority = uri.authority().filter(|_| uri.scheme_str() == Some("https"));
        let host = authority.ok_or_else(invalid)?.host();
        let port = authority.and_then(http::uri::Authority::port_u16).unwrap_or(HTTPS_PORT);
        Ok(Server {
            peer: Peer::new(host, port),
            url: url.trim_end_matches('/').to_owned(),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl Login {
    /// Sets the credentials of a peer.
    pub fn set_credentials(&self, peer: &mut Peer) {
        peer.authorization.clone_from(&self.authorization);
        peer.identity.clone_from(&self.identity);
    }

    fn read(user: &Value, folder: &Path) -> Result<Login, String> {
        if let Some(name) = ["exec", "auth-provider"].iter().find(|name| user.get(name).is_some()) {
            return Err(format!("{name} is not supported"));
        }
        let token = match (text(user, "token"), text(user, "tokenFile")) {
            ("", "") => String::new(),
            ("", file) => String::from_utf8_lossy(&read(folder, file)?).trim().to_owned(),
            (token, _) => token.to_owned(),
        };
        let name = text(user, "username");
        let password = text(user, "password");
        let authorization = match (token.is_empty(), name.is_empty()) {
            (false, _) => Some(format!("Bearer {token}")),
            (true, false) => {
                Some(format!("Basic {}", STANDARD.encode(format!("{name}:{password}"))))
            }
            (true, true) => None,
        };
        let chain = data_or_file(user, "client-certificate", folder)?;
        let key = data_or_file(user, "client-key", folder)?;
        let identity = match (chain, key) {
            (Some(chain), Some(key)) => Some(Identity { chain, key }),
            (None, None) => None,
            _ => return Err("a certificate needs a key, and a key a certificate".to_owned()),
        };
        Ok(Login { authorization, identity })
    }
}

/// Returns a string field, or an empty string.
fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.str_at(&[name]).unwrap_or_default()
}

/// Returns the bytes of `NAME-data` or of the file `NAME`.
fn data_or_file(of: &Value, name: &str, folder: &Path) -> Result<Option<Arc<[u8]>>, String> {
    let data = text(of, &format!("{name}-data"));
    if !data.is_empty() {
        let bytes = STANDARD.decode(data).map_err(|error| format!("{name}-data: {error}"))?;
        return Ok(Some(bytes.into()));
    }
    match text(of, name) {
        "" => Ok(None),
        file => Ok(Some(read(folder, file)?.into())),
    }
}

fn read(folder: &Path, file: &str) -> Result<Vec<u8>, String> {
    fs::read(folder.join(file)).map_err(|error| format!("{file}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    #[test]
    fn unusable_configurations_are_rejected() {
        let check = |user: Value, want: &str| {
            let error = Login::read(&user, Path::new("/none")).err().unwrap_or_default();
            assert!(error.contains(want), "{error}");
        };
        check(value!({"exec": {"command": "a"}}), "exec is not supported");
        check(value!({"client-key-data": "YQ=="}), "a certificate needs a key");
        check(value!({"tokenFile": "token"}), "token: No such file");
    }

    #[test]
    fn name_and_password_become_basic_credentials() {
        let user = value!({"username": "a", "password": "b"});
        let login = Login::read(&user, Path::new("/")).unwrap();
        assert_eq!(login.authorization.as_deref(), Some("Basic YTpi"));
    }

    #[test]
    fn the_server_comes_from_the_current_context() {
        let read = |url: &str, current: &str, cluster: &str| {
            let kubeconfig = value!({
                "current-context": (current),
                "contexts": [{"name": "x", "context": {"cluster": (cluster), "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {
                    "server": (url), "certificate-authority-data": "YQ==", "tls-server-name": "n"}}],
                "users": [{"name": "u", "user": {"token": "t"}}]
            });
            Server::read(&kubeconfig, Path::new("/"))
        };
        let server = read("https://[::1]:8443/a/", "x", "c").unwrap();
        assert_eq!((server.url.as_str(), server.path.as_str()), ("https://[::1]:8443/a", "/a"));
        assert_eq!(server.peer.authority(), "[::1]:8443");
        assert_eq!(server.peer.authorization.as_deref(), Some("Bearer t"));
        assert_eq!(server.peer.server_name.as_deref(), Some("n"));
        assert!(server.peer.trust == Trust::Bundle(Arc::from(*b"a")));
        assert_eq!(read("https://a", "x", "c").unwrap().peer.authority(), "a:443");
        let fault = |url: &str, current: &str, cluster: &str| read(url, current, cluster).err();
        let no_https = "server \"http://a\" is no https:// URL";
        assert_eq!(fault("http://a", "x", "c").as_deref(), Some(no_https));
        let no_context = "current-context: there is no context \"y\"";
        assert_eq!(fault("https://a", "y", "c").as_deref(), Some(no_context));
        assert_eq!(fault("https://a", "x", "d").as_deref(), Some("there is no cluster \"d\""));
    }
}
