//! `keelson encryption`: which keys stored values are encrypted with, and writing those with an old
//! key again.

use super::output;
use crate::flags::{EncryptionCommand, EncryptionFlags};
use anyhow::{Context, Result, anyhow, bail};
use keelson::{
    AdminClient, ENCRYPTION_PATH, KeyCounts, ROTATE_PATH, count_key, key_list, resource_name,
};
use keelson_meta::{Map, Value};
use keelson_resources::StoredResources;
use keelson_store::OpenError;
use keelson_store::embedded::{CheckItem, Offline};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Interval of the progress of a rotation.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Runs `keelson encryption`.
pub fn run(command: &EncryptionCommand) -> Result<()> {
    let flags = match command {
        EncryptionCommand::Status(flags) | EncryptionCommand::Rotate(flags) => flags,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let status = match (command, server_of(flags)?) {
        (EncryptionCommand::Status(_), Source::Folder(status)) => status,
        (EncryptionCommand::Status(_), Source::Server(kubeconfig)) => runtime
            .block_on(client(&kubeconfig)?.get(ENCRYPTION_PATH))
            .map_err(|why| anyhow!(why))?,
        (EncryptionCommand::Rotate(_), Source::Server(kubeconfig)) => {
            runtime.block_on(rotate(&client(&kubeconfig)?))?
        }
        (EncryptionCommand::Rotate(_), Source::Folder(_)) => {
            bail!("no server uses the data folder: values are rotated while it serves")
        }
    };
    output::print(&match flags.output {
        Some(format) => output::format(&status, format),
        None => table(&status),
    })?;
    let rotation = status.get("rotation");
    let failed = rotation.and_then(|of| of.get("failed")).and_then(Value::as_int).unwrap_or(0);
    if matches!(command, EncryptionCommand::Rotate(_)) && failed > 0 {
        let failures = rotation.map(|of| of.array_at(&["failures"])).unwrap_or_default();
        for failure in failures.iter().filter_map(Value::as_str) {
            writeln!(std::io::stderr(), "{failure}").context("write to standard error")?;
        }
        bail!("{failed} values could not be rotated");
    }
    Ok(())
}

/// Where the values are counted.
enum Source {
    /// By the server of this kubeconfig.
    Server(PathBuf),
    /// In a folder that no server uses: the result.
    Folder(Value),
}

fn server_of(flags: &EncryptionFlags) -> Result<Source> {
    if let Some(kubeconfig) = &flags.server.kubeconfig {
        return Ok(Source::Server(kubeconfig.clone()));
    }
    let dir = flags.server.data.dir()?;
    match Offline::open(&dir.join("store")) {
        Ok(offline) => Ok(Source::Folder(count(offline)?)),
        Err(OpenError::Locked { .. }) => Ok(Source::Server(dir.join("admin.kubeconfig"))),
        Err(error) => Err(super::check::open_error(&error, "--data-dir")),
    }
}

fn client(kubeconfig: &Path) -> Result<AdminClient> {
    AdminClient::new(kubeconfig).map_err(|why| anyhow!("--kubeconfig: {why}"))
}

/// Counts the values of a folder by their keys.
fn count(offline: Offline) -> Result<Value> {
    let resources = StoredResources::default();
    let mut counts = KeyCounts::new();
    let checked = offline.check(&mut |item| {
        if let CheckItem::Live(kv) = item
            && let Some(resource) = resources.group_resource(&kv.key)
        {
            count_key(&mut counts, &resource_name(resource), &kv.value);
        }
    });
    checked.map_err(|error| super::check::open_error(&error, "--data-dir"))?;
    let is_plain =
        |keys: &std::collections::BTreeMap<String, u64>| keys.keys().all(|key| key == "identity");
    let shown = counts.iter().filter(|(_, keys)| !is_plain(keys)).map(|(name, keys)| {
        let mut shown = Map::default();
        shown.insert("resource", name.as_str());
        shown.insert("keys", key_list(keys));
        Value::Object(shown)
    });
    let mut status = Map::default();
    status.insert("kind", "EncryptionStatus");
    status.insert("resources", shown.collect::<Vec<_>>());
    Ok(Value::Object(status))
}

/// Starts a rotation and waits until it has ended, with its progress on a terminal.
async fn rotate(client: &AdminClient) -> Result<Value> {
    use std::io::IsTerminal;
    let shows = std::io::stderr().is_terminal();
    client.post(ROTATE_PATH).await.map_err(|why| anyhow!(why))?;
    loop {
        let status = client.get(ENCRYPTION_PATH).await.map_err(|why| anyhow!(why))?;
        let rotation = status.get("rotation").cloned().unwrap_or_default();
        let number = |name: &str| rotation.get(name).and_then(Value::as_int).unwrap_or_default();
        let done = number("rewritten") + number("failed");
        let total = number("total");
        if rotation.get("running").and_then(Value::as_bool) != Some(true) {
            if shows {
                let _ = writeln!(std::io::stderr(), "\r\x1b[K{done} of {total} values rotated");
            }
            return Ok(status);
        }
        if shows {
            let _ = write!(std::io::stderr(), "\r\x1b[K{done} of {total} values");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Formats the numbers as a table.
fn table(status: &Value) -> String {
    let mut rows = vec![["RESOURCE", "KEY", "OBJECTS", ""].map(str::to_owned)];
    for resource in status.array_at(&["resources"]) {
        let name = resource.str_at(&["resource"]).unwrap_or_default();
        let write_key = resource.str_at(&["writeKey"]);
        for key in resource.array_at(&["keys"]) {
            let count = key.get("objects");
            let key = key.str_at(&["key"]).unwrap_or_default();
            let count = count.and_then(Value::as_int).unwrap_or_default().to_string();
            let note = match write_key {
                Some(write_key) if write_key != key => "stale",
                _ => "",
            };
            rows.push([name, key, &count, note].map(str::to_owned));
        }
    }
    if rows.len() == 1 {
        return "nothing is encrypted".to_owned();
    }
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let first = width(0);
    let second = width(1);
    let third = width(2);
    let mut out = String::new();
    for [name, key, count, note] in &rows {
        let row = format!("{name:first$}  {key:second$}  {count:>third$}  {note}");
        // Writing to a string does not fail.
        let _ = writeln!(out, "{}", row.trim_end());
    }
    out.truncate(out.trim_end().len());
    out
}
