//! [`Credentials`]: client credentials for webhooks, from the kubeconfig in
//! `--admission-control-config-file` (apiserver `util/webhook/authentication.go`).

use super::{check_fields, text};
use keelson_egress::Peer;
use keelson_egress::kubeconfig::{self, Login};
use keelson_meta::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Credentials by host. Read once, at the start.
#[derive(Clone, Default)]
pub struct Credentials {
    users: BTreeMap<String, Login>,
    /// The user of the current context: for hosts without a user of their name.
    current: Option<Login>,
}

/// Prints the hosts only.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.users.keys()).finish()
    }
}

impl Credentials {
    /// Reads a `WebhookAdmissionConfiguration` and its kubeconfig.
    pub(super) fn read(config: &Value) -> Result<Credentials, String> {
        const KINDS: [&str; 2] = ["WebhookAdmissionConfiguration", "WebhookAdmission"];
        check_fields(config, &["kind", "apiVersion", "kubeConfigFile"])?;
        let kind = text(config, "kind");
        let version = text(config, "apiVersion");
        if !KINDS.contains(&kind) || !version.starts_with("apiserver.config.k8s.io/") {
            return Err(format!("{kind:?} of {version:?} is no {}", KINDS[0]));
        }
        let file = text(config, "kubeConfigFile");
        if file.is_empty() {
            return Ok(Credentials::default());
        }
        if !Path::new(file).is_absolute() {
            return Err(format!("kubeConfigFile: {file:?}: must be an absolute file path"));
        }
        let (kubeconfig, folder) = super::read_kubeconfig(file)?;
        Credentials::of_kubeconfig(&kubeconfig, folder).map_err(|why| format!("{file}: {why}"))
    }

    fn of_kubeconfig(kubeconfig: &Value, folder: &Path) -> Result<Credentials, String> {
        let users = kubeconfig::users(kubeconfig, folder)?;
        let user = kubeconfig::current_context(kubeconfig).map(|context| text(context, "user"));
        let current = user.and_then(|user| users.get(user).cloned());
        Ok(Credentials { users, current })
    }

    /// Sets the credentials of a peer. `host` is as configured, with the port if it has one.
    pub(crate) fn set_credentials(&self, peer: &mut Peer, host: &str) {
        let login = self.user_for_host(host);
        let without_port = || self.user_for_host(host.strip_suffix(":443")?);
        let login = login.or_else(without_port).or_else(|| self.users.get("*"));
        let Some(login) = login.or(self.current.as_ref()) else { return };
        login.set_credentials(peer);
    }

    /// Returns the user with the name of the host, or with a wildcard for its first labels.
    fn user_for_host(&self, host: &str) -> Option<&Login> {
        let dots = host.match_indices('.').map(|(at, _)| format!("*{}", &host[at..]));
        self.users.get(host).or_else(|| {
            let mut names = dots;
            names.find_map(|name| self.users.get(&name))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn user_of_host(users: &[&str], current: &str, host: &str) -> String {
        let user = |name: &&str| value!({"name": (*name), "user": {"token": (*name)}});
        let users: Vec<Value> = users.iter().map(user).collect();
        let kubeconfig = value!({
            "users": (users), "current-context": "c",
            "contexts": [{"name": "c", "context": {"user": (current)}}]
        });
        let credentials = Credentials::of_kubeconfig(&kubeconfig, Path::new("/")).unwrap();
        let mut peer = Peer::new("h", 1);
        credentials.set_credentials(&mut peer, host);
        peer.authorization.unwrap_or_default().replace("Bearer ", "")
    }

    #[test]
    fn the_user_with_the_best_match_of_the_host_is_used() {
        let check = |users: &[&str], host: &str, want: &str| {
            assert_eq!(user_of_host(users, "", host), want, "{users:?} {host}");
        };
        check(&["a.b.svc:443", "a.b.svc", "*"], "a.b.svc:443", "a.b.svc:443");
        check(&["a.b.svc", "*"], "a.b.svc:443", "a.b.svc");
        check(&["a.b.svc", "*"], "a.b.svc:444", "*");
        check(&["*.b.svc", "*.svc"], "a.b.svc:443", "*.b.svc");
        check(&["*.svc:443", "*.b.svc"], "a.b.svc:443", "*.svc:443");
        check(&["*.example.com"], "a.example.com", "*.example.com");
        check(&["example.com"], "a.example.com", "");
        assert_eq!(user_of_host(&["me"], "me", "a.example.com"), "me");
        assert_eq!(user_of_host(&["me", "*"], "me", "a.example.com"), "*");
    }

    #[test]
    fn unusable_configurations_are_rejected() {
        let config = |kind: &str, file: &str| {
            let config = value!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": (kind),
                "kubeConfigFile": (file)});
            Credentials::read(&config).err().unwrap_or_default()
        };
        assert!(config("Odd", "/a").contains("is no WebhookAdmissionConfiguration"));
        let relative = config("WebhookAdmissionConfiguration", "a");
        assert_eq!(relative, "kubeConfigFile: \"a\": must be an absolute file path");
        assert_eq!(config("WebhookAdmission", ""), "");
    }
}
