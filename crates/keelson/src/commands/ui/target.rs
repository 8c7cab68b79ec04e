//! The server and user of `keelson ui`: a context of a kubeconfig.

use crate::flags::{UiFlags, data_dir};
use anyhow::{Context, Result, anyhow, bail};
use keelson_egress::Route;
use keelson_egress::kubeconfig::Server;
use keelson_meta::{Map, Value};
use std::path::{Path, PathBuf};

/// Members that change which server is asked or as whom, and that are not supported: to leave them out
/// would ask another server, or with other rights.
const UNSUPPORTED: [(&str, &str, &str); 4] = [
    ("users", "user", "as"),
    ("users", "user", "as-uid"),
    ("users", "user", "as-groups"),
    ("clusters", "cluster", "proxy-url"),
];

/// Reads the server and its user.
pub fn read(flags: &UiFlags) -> Result<Server> {
    let path = path(flags)?;
    let context = || path.display().to_string();
    let text = std::fs::read(&path).with_context(context)?;
    let parsed = keelson_schema::yaml::parse(&text).map_err(|error| anyhow!("{error}"));
    let kubeconfig = parsed.with_context(context)?.value;
    let folder = path.parent().unwrap_or(Path::new("/"));
    server(kubeconfig, flags.context.as_deref(), folder).with_context(context)
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

/// Returns the server of a context, or of the current one. Users of other contexts are not looked at:
/// they may have credentials that are not supported.
fn server(kubeconfig: Value, context: Option<&str>, folder: &Path) -> Result<Server> {
    let Value::Object(mut kubeconfig) = kubeconfig else { bail!("it is no kubeconfig") };
    if let Some(name) = context {
        kubeconfig.insert("current-context", name);
    }
    let chosen = keelson_egress::kubeconfig::current_context(&Value::Object(kubeconfig.clone()))
        .map(|context| (name_at(context, "user"), name_at(context, "cluster")));
    if let Some((user, cluster)) = chosen {
        keep(&mut kubeconfig, "users", &user);
        keep(&mut kubeconfig, "clusters", &cluster);
    }
    let kubeconfig = Value::Object(kubeconfig);
    for (list, member, name) in UNSUPPORTED {
        let entries = kubeconfig.array_at(&[list]).iter();
        if entries.filter_map(|entry| entry.get(member)).any(|entry| entry.get(name).is_some()) {
            bail!("{member}: {name} is not supported");
        }
    }
    let mut server = Server::read(&kubeconfig, folder).map_err(anyhow::Error::msg)?;
    // Whoever has the file may also mean this host.
    server.peer.route = Route::Node;
    Ok(server)
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
        value!({
            "current-context": "one",
            "contexts": [
                {"name": "one", "context": {"cluster": "c", "user": "u"}},
                {"name": "two", "context": {"cluster": "d", "user": "plug-in"}}],
            "clusters": [
                {"name": "c", "cluster": {"server": "https://127.0.0.1:1"}},
                {"name": "d", "cluster": {"server": "https://127.0.0.1:2"}}],
            "users": [{"name": "u", "user": (user)}, {"name": "plug-in", "user": {"exec": {}}}]
        })
    }

    #[test]
    fn a_context_is_read_whatever_the_others_need() {
        let read = |user: Value, context| {
            let read = server(config(user), context, Path::new("/"));
            read.map(|server| server.peer.authority()).map_err(|error| error.to_string())
        };
        let token = || value!({"token": "t"});
        assert_eq!(read(token(), None), Ok("127.0.0.1:1".to_owned()));
        let no_plug_ins = "user \"plug-in\": exec is not supported".to_owned();
        assert_eq!(read(token(), Some("two")), Err(no_plug_ins));
        let none = "current-context: there is no context \"three\"".to_owned();
        assert_eq!(read(token(), Some("three")), Err(none));
        let other_rights = "user: as is not supported".to_owned();
        assert_eq!(read(value!({"token": "t", "as": "bob"}), None), Err(other_rights));
    }
}
