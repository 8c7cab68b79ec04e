//! [`Target`]: the server of `keelson ui` and its user, a context of a kubeconfig.

use super::exec_plugin::ExecPlugin;
use crate::flags::{UiFlags, data_dir};
use anyhow::{Context, Result, anyhow, bail};
use http::{HeaderName, HeaderValue};
use keelson_aggregation::extra_header;
use keelson_egress::kubeconfig::Server;
use keelson_egress::{Proxy, Route};
use keelson_meta::{Map, Timestamp, Value};
use std::path::{Path, PathBuf};

/// Members of a user that a plug-in's credentials replace.
const CREDENTIALS: [&str; 10] = [
    "exec",
    "token",
    "tokenFile",
    "username",
    "password",
    "client-certificate",
    "client-certificate-data",
    "client-key",
    "client-key-data",
    "auth-provider",
];
const IMPERSONATED_USER: HeaderName = HeaderName::from_static("impersonate-user");
const IMPERSONATED_UID: HeaderName = HeaderName::from_static("impersonate-uid");
const IMPERSONATED_GROUP: HeaderName = HeaderName::from_static("impersonate-group");
/// The beginning of the headers of extra values.
const IMPERSONATED_EXTRA: &str = "impersonate-extra-";

/// A server, and how the credentials of its user are found.
pub struct Target {
    /// A kubeconfig with one cluster and one user.
    kubeconfig: Map,
    folder: PathBuf,
    plugin: Option<ExecPlugin>,
    /// The user as whom requests are sent, in the headers of impersonation.
    pub impersonated: Vec<(HeaderName, HeaderValue)>,
}

impl Target {
    /// Reads the chosen context of the chosen kubeconfig.
    pub fn read(flags: &UiFlags) -> Result<Target> {
        let path = path(flags)?;
        let context = || path.display().to_string();
        let text = std::fs::read(&path).with_context(context)?;
        let parsed = keelson_schema::yaml::parse(&text).map_err(|error| anyhow!("{error}"));
        let kubeconfig = parsed.with_context(context)?.value;
        let folder = path.parent().unwrap_or(Path::new("/"));
        Target::of(kubeconfig, flags.context.as_deref(), folder).with_context(context)
    }

    /// Reads a context, or the current one. Users of other contexts are not looked at: they may
    /// have credentials that are not supported.
    fn of(kubeconfig: Value, context: Option<&str>, folder: &Path) -> Result<Target> {
        let Value::Object(mut kubeconfig) = kubeconfig else { bail!("it is no kubeconfig") };
        if let Some(name) = context {
            kubeconfig.insert("current-context", name);
        }
        let whole = Value::Object(kubeconfig.clone());
        let Some(context) = keelson_egress::kubeconfig::current_context(&whole) else {
            let name = whole.str_at(&["current-context"]).unwrap_or_default();
            bail!("current-context: there is no context {name:?}");
        };
        keep(&mut kubeconfig, "users", &name_at(context, "user"));
        keep(&mut kubeconfig, "clusters", &name_at(context, "cluster"));
        let none = Value::Null;
        let user = last(&kubeconfig, "users", "user").unwrap_or(&none);
        let cluster = last(&kubeconfig, "clusters", "cluster").unwrap_or(&none);
        let plugin =
            user.get("exec").map(|exec| ExecPlugin::read(exec, cluster, folder)).transpose()?;
        let impersonated = impersonated(user)?;
        Ok(Target { kubeconfig, folder: folder.to_owned(), plugin, impersonated })
    }

    /// Returns the server with the user's credentials, and when they end. May run the user's
    /// program, which may ask him: blocks.
    pub fn connect(&self) -> Result<(Server, Option<Timestamp>)> {
        let mut kubeconfig = self.kubeconfig.clone();
        let mut expires = None;
        if let Some(plugin) = &self.plugin {
            let credentials = plugin.run()?;
            expires = credentials.expires;
            replace_credentials(&mut kubeconfig, &credentials.user);
        }
        let mut server =
            Server::read(&Value::Object(kubeconfig), &self.folder).map_err(anyhow::Error::msg)?;
        // Whoever has the file may also mean this host.
        server.peer.route = Route::Node;
        let cluster = last(&self.kubeconfig, "clusters", "cluster");
        let proxy = cluster.and_then(|cluster| cluster.str_at(&["proxy-url"])).unwrap_or_default();
        if !proxy.is_empty() {
            let proxy = Proxy::parse(proxy).map_err(|why| anyhow!("cluster: proxy-url: {why}"))?;
            server.peer.proxy = Some(proxy);
        }
        Ok((server, expires))
    }

    /// Returns whether other credentials may be had when the server refuses these.
    pub fn can_renew(&self) -> bool {
        self.plugin.is_some()
    }
}

/// Returns the headers of the user as whom a kubeconfig's user acts.
fn impersonated(user: &Value) -> Result<Vec<(HeaderName, HeaderValue)>> {
    let text = |name: &str| user.str_at(&[name]).unwrap_or_default();
    let mut headers = vec![];
    let mut add = |name: HeaderName, value: &str| {
        let value = HeaderValue::from_bytes(value.as_bytes());
        headers.push((name, value.context("user: as: it cannot stand in a header")?));
        anyhow::Ok(())
    };
    let groups = user.array_at(&["as-groups"]);
    let extra = user.get("as-user-extra").and_then(Value::as_object);
    if text("as").is_empty() {
        let others = !text("as-uid").is_empty() || !groups.is_empty() || extra.is_some();
        anyhow::ensure!(!others, "user: as-uid, as-groups and as-user-extra need as");
        return Ok(headers);
    }
    add(IMPERSONATED_USER, text("as"))?;
    if !text("as-uid").is_empty() {
        add(IMPERSONATED_UID, text("as-uid"))?;
    }
    for group in groups.iter().filter_map(Value::as_str) {
        add(IMPERSONATED_GROUP, group)?;
    }
    for (key, values) in extra.into_iter().flat_map(Map::iter) {
        let name = extra_header(IMPERSONATED_EXTRA, key).map_err(anyhow::Error::msg)?;
        for value in values.as_array().unwrap_or_default().iter().filter_map(Value::as_str) {
            add(name.clone(), value)?;
        }
    }
    Ok(headers)
}

/// Returns the last entry's member of a list, which is the one that counts.
fn last<'k>(kubeconfig: &'k Map, list: &str, member: &str) -> Option<&'k Value> {
    kubeconfig.get(list).and_then(Value::as_array)?.last()?.get(member)
}

/// Replaces the credentials of the only user.
fn replace_credentials(kubeconfig: &mut Map, credentials: &Value) {
    let Some(Value::Array(users)) = kubeconfig.get_mut("users") else { return };
    let Some(Value::Object(entry)) = users.last_mut() else { return };
    let Some(Value::Object(user)) = entry.get_mut("user") else { return };
    for name in CREDENTIALS {
        user.remove(name);
    }
    for (name, value) in credentials.as_object().into_iter().flat_map(Map::iter) {
        user.insert(name.clone(), value.clone());
    }
}

/// Returns the kubeconfig: that of the flag, the first one of `KUBECONFIG` that is there,
/// `~/.kube/config`, or that of a server of this host.
fn path(flags: &UiFlags) -> Result<PathBuf> {
    if let Some(path) = &flags.kubeconfig {
        return Ok(path.clone());
    }
    let named = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".kube/config"));
    let own = data_dir(None).ok().map(|dir| dir.join("admin.kubeconfig"));
    let mut candidates = std::env::split_paths(&named).chain(home).chain(own);
    candidates.find(|path| path.is_file()).context("there is no kubeconfig: --kubeconfig names one")
}

fn name_at(context: &Value, member: &str) -> String {
    context.str_at(&[member]).unwrap_or_default().to_owned()
}

/// Removes all entries of a list but those with a name.
fn keep(kubeconfig: &mut Map, list: &str, name: &str) {
    let entries = kubeconfig.get(list).and_then(Value::as_array).unwrap_or_default();
    let named = entries.iter().filter(|entry| entry.str_at(&["name"]) == Some(name));
    let kept: Vec<Value> = named.cloned().collect();
    kubeconfig.insert(list, kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use keelson_meta::value;

    fn config(user: Value) -> Value {
        let exec = || {
            let version = "client.authentication.k8s.io/v1beta1";
            value!({"apiVersion": (version), "command": "echo", "args": ["{}"]})
        };
        value!({
            "current-context": "one",
            "contexts": [
                {"name": "one", "context": {"cluster": "c", "user": "u"}},
                {"name": "two", "context": {"cluster": "d", "user": "plug-in"}}],
            "clusters": [
                {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}},
                {"name": "d", "cluster": {"server": "https://127.0.0.1:2", "proxy-url": "ftp://a"}}],
            "users": [{"name": "u", "user": (user)}, {"name": "plug-in", "user": {"exec": (exec())}}]
        })
    }

    fn read(user: Value, context: Option<&str>) -> Result<Target> {
        Target::of(config(user), context, Path::new("/"))
    }

    fn error(read: Result<impl Sized>) -> String {
        format!("{:#}", read.err().expect("an error"))
    }

    #[test]
    fn a_context_is_read_whatever_the_others_need() {
        let (server, expires) = read(value!({"token": "t"}), None).unwrap().connect().unwrap();
        assert_eq!((server.peer.authority().as_str(), expires), ("127.0.0.1:1", None));
        assert_eq!(server.peer.authorization.as_deref(), Some("Bearer t"));
        let none = read(Value::Null, Some("three"));
        assert_eq!(error(none), "current-context: there is no context \"three\"");
        let printed = read(Value::Null, Some("two")).and_then(|target| target.connect());
        assert_eq!(error(printed), "exec: the output of echo: it is no ExecCredential");
    }

    #[test]
    fn a_plug_in_replaces_what_the_user_has() {
        let script = r#"echo '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","status":{"token":"new"}}'"#;
        let user = value!({"username": "a", "password": "b", "exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "command": "sh",
            "args": ["-c", (script)], "interactiveMode": "Never"}});
        let target = read(user, None).unwrap();
        assert!(target.can_renew());
        let (server, _) = target.connect().unwrap();
        assert_eq!(server.peer.authorization.as_deref(), Some("Bearer new"));
    }

    #[test]
    fn a_user_may_act_as_another() {
        let user = value!({"token": "t", "as": "bob", "as-uid": "1", "as-groups": ["a", "b"],
            "as-user-extra": {"example.org/Reason": ["x"]}});
        let target = read(user, None).unwrap();
        let headers =
            target.impersonated.iter().map(|(name, value)| (name.as_str(), value.as_bytes()));
        let wanted: [(&str, &[u8]); 5] = [
            ("impersonate-user", b"bob"),
            ("impersonate-uid", b"1"),
            ("impersonate-group", b"a"),
            ("impersonate-group", b"b"),
            ("impersonate-extra-example.org%2freason", b"x"),
        ];
        assert_eq!(headers.collect::<Vec<_>>(), wanted);
        let alone = read(value!({"as-groups": ["a"]}), None);
        assert_eq!(error(alone), "user: as-uid, as-groups and as-user-extra need as");
    }
}
