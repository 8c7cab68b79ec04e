//! `keelson version`: the versions of this program and of a running server.

use super::output;
use crate::flags::{VersionFlags, data_dir};
use crate::version::{COMMIT, VERSION};
use anyhow::{Context, Result, anyhow, bail};
use keelson_egress::kubeconfig::Server;
use keelson_egress::{Egress, Request, Route};
use keelson_meta::{Map, Value, value};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::Instant;

/// How long the server has to answer.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum size of the server's version.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Runs the command.
pub fn run(flags: &VersionFlags) -> Result<()> {
    let server = match path(flags)? {
        Some(path) => Some(ask(&path).with_context(|| path.display().to_string())?),
        None => None,
    };
    let text = match flags.output {
        Some(format) => output::format(&document(server.as_ref()), format),
        None => text(server.as_ref()),
    };
    output::print(&text)
}

/// What is known of the server of a kubeconfig.
enum Asked {
    /// Its document at `/version`.
    Version(Value),
    /// It does not run: the kubeconfig is still there.
    NotRunning(String),
}

/// Returns the kubeconfig of the server to ask, unless no server has been started.
fn path(flags: &VersionFlags) -> Result<Option<PathBuf>> {
    if flags.client {
        return Ok(None);
    }
    if let Some(path) = &flags.kubeconfig {
        return Ok(Some(path.clone()));
    }
    let found = match (&flags.data_dir, data_dir(flags.data_dir.as_ref())) {
        (None, Err(_)) => return Ok(None),
        (_, found) => found?.join("admin.kubeconfig"),
    };
    Ok(found.exists().then_some(found))
}

/// Asks the server of a kubeconfig.
fn ask(path: &Path) -> Result<Asked> {
    let text = std::fs::read(path)?;
    let kubeconfig = keelson_schema::yaml::parse(&text).map_err(|error| anyhow!("{error}"))?;
    let folder = path.parent().unwrap_or(Path::new("/"));
    let mut server = Server::read(&kubeconfig.value, folder).map_err(anyhow::Error::msg)?;
    // `localhost` is as good as 127.0.0.1: whoever runs this command chose the server.
    server.peer.route = Route::Node;
    let client = Egress::without_services().client(&server.peer)?;
    let request = Request {
        method: http::Method::GET,
        path: format!("{}/version", server.path),
        headers: http::HeaderMap::new(),
        body: bytes::Bytes::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = runtime.block_on(async {
        client.send(&request, ANSWER_BYTES_MAX, Instant::now() + ANSWER_TIME_MAX).await
    });
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) => return Ok(Asked::NotRunning(format!("{}: {error}", server.url))),
    };
    if !answer.status.is_success() {
        bail!("{} answered {}", server.url, answer.status);
    }
    let version = keelson_schema::json::parse(&answer.body).map_err(|error| anyhow!("{error}"))?;
    Ok(Asked::Version(version.value))
}

fn document(server: Option<&Asked>) -> Value {
    let mut document = Map::default();
    document.insert(
        "programVersion",
        value!({
            "version": VERSION, "commit": COMMIT, "kubernetesVersion": (keelson::KUBERNETES_VERSION),
        }),
    );
    match server {
        Some(Asked::Version(version)) => document.insert("serverVersion", version.clone()),
        Some(Asked::NotRunning(why)) => document.insert("serverError", why.as_str()),
        None => None,
    };
    Value::Object(document)
}

fn text(server: Option<&Asked>) -> String {
    let kubernetes = keelson::KUBERNETES_VERSION;
    let own =
        format!("Program Version: {VERSION}\nCommit: {COMMIT}\nKubernetes Version: {kubernetes}");
    match server {
        Some(Asked::Version(version)) => {
            let of = |name: &str| version.get(name).and_then(Value::as_str).unwrap_or_default();
            format!("{own}\nServer Version: {} ({})", of("gitVersion"), of("compiler"))
        }
        Some(Asked::NotRunning(why)) => format!("{own}\nServer: no answer from {why}"),
        None => own,
    }
}
