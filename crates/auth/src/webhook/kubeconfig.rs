//! [`Kubeconfig`]: the server that a kubeconfig's current context names, and how it is reached. [`Login`]: what
//! a server is shown of who calls it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::Uri;
use keelson_egress::{Identity, Peer, Trust};
use keelson_meta::Value;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const HTTPS_PORT: u16 = 443;

/// The server of a kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubeconfig {
    peer: Peer,
    path: String,
}

impl Kubeconfig {
    /// Reads the current context; files are looked for from `folder` on.
    pub fn read(kubeconfig: &Value, folder: &Path) -> Result<Kubeconfig, String> {
        let wanted = text(kubeconfig, "current-context");
        let context = named(kubeconfig, "contexts", "context", wanted)
            .ok_or_else(|| format!("context {wanted:?} does not exist"))?;
        let cluster_name = text(context, "cluster");
        let cluster = named(kubeconfig, "clusters", "cluster", cluster_name)
            .ok_or_else(|| format!("cluster {cluster_name:?} does not exist"))?;
        let login = match text(context, "user") {
            "" => Login::default(),
            name => {
                let user = named(kubeconfig, "users", "user", name)
                    .ok_or_else(|| format!("user {name:?} does not exist"))?;
                Login::read(user, folder).map_err(|why| format!("user {name:?}: {why}"))?
            }
        };
        let server = text(cluster, "server");
        let uri: Uri = server.parse().map_err(|_| format!("server {server:?} is no URL"))?;
        if uri.scheme_str() != Some("https") {
            return Err(format!("server {server:?}: only https is supported"));
        }
        let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let mut peer = Peer::new(host, uri.port_u16().unwrap_or(HTTPS_PORT));
        peer.trust = trust(cluster, folder)?;
        peer.server_name =
            Some(text(cluster, "tls-server-name").to_owned()).filter(|n| !n.is_empty());
        login.equip(&mut peer);
        Ok(Kubeconfig { peer, path: uri.path().to_owned() })
    }

    pub(super) fn peer(&self) -> &Peer {
        &self.peer
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }
}

fn trust(cluster: &Value, folder: &Path) -> Result<Trust, String> {
    if cluster.get("insecure-skip-tls-verify").and_then(Value::as_bool).unwrap_or_default() {
        return Ok(Trust::Anyone);
    }
    let bundle = data_or_file(cluster, "certificate-authority", folder)?;
    Ok(bundle.map_or(Trust::System, Trust::Bundle))
}

/// The last entry of this name in a list of named entries.
fn named<'v>(config: &'v Value, list: &str, part: &str, name: &str) -> Option<&'v Value> {
    let mut entries = config.array_at(&[list]).iter().rev();
    entries.find(|entry| text(entry, "name") == name)?.get(part)
}

/// What a server is shown of who calls it.
#[derive(Clone, Default)]
pub struct Login {
    authorization: Option<String>,
    identity: Option<Identity>,
}

impl fmt::Debug for Login {
    /// Says what is there, never what it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("authorization", &self.authorization.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}

impl Login {
    /// Reads the user of a kubeconfig.
    pub fn read(user: &Value, folder: &Path) -> Result<Login, String> {
        if let Some(name) = ["exec", "auth-provider"].iter().find(|name| user.get(name).is_some()) {
            return Err(format!("{name} is not supported"));
        }
        let token = match (text(user, "token"), text(user, "tokenFile")) {
            ("", "") => String::new(),
            ("", file) => String::from_utf8_lossy(&read(folder, file)?).trim().to_owned(),
            (token, _) => token.to_owned(),
        };
        let (name, password) = (text(user, "username"), text(user, "password"));
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

    /// Gives a peer what it is to be shown.
    pub fn equip(&self, peer: &mut Peer) {
        peer.authorization.clone_from(&self.authorization);
        peer.identity.clone_from(&self.identity);
    }
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value.str_at(&[name]).unwrap_or_default()
}

fn data_or_file(user: &Value, name: &str, folder: &Path) -> Result<Option<Arc<[u8]>>, String> {
    let data = text(user, &format!("{name}-data"));
    if !data.is_empty() {
        let bytes = STANDARD.decode(data).map_err(|error| format!("{name}-data: {error}"))?;
        return Ok(Some(bytes.into()));
    }
    match text(user, name) {
        "" => Ok(None),
        file => Ok(Some(read(folder, file)?.into())),
    }
}

fn read(folder: &Path, file: &str) -> Result<Vec<u8>, String> {
    fs::read(folder.join(file)).map_err(|error| format!("{file}: {error}"))
}
