//! `keelson check`: verifies a data folder that no server uses, or a backup.

use super::output;
use crate::flags::{CheckFlags, ResultFormat};
use anyhow::{Context, Error, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_builtin::RecordChecker;
use keelson_meta::{Map, Value};
use keelson_store::backup::{BackupReader, BackupSummary};
use keelson_store::embedded::{CheckItem, CheckSummary, Offline, Removed, remove_damaged};
use keelson_store::{KeyValue, OpenError};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

/// Damages that are listed; further ones are only counted.
const DAMAGES_MAX: usize = 100;
/// The resource of keys that this version does not recognize.
const UNKNOWN: &str = "(unknown)";

/// The findings.
struct Report {
    kinds: RecordChecker,
    resources: BTreeMap<String, Count>,
    summary: CheckSummary,
    damages: Vec<String>,
    damage_count: usize,
}

#[derive(Clone, Copy, Default)]
struct Count {
    objects: u64,
    bytes: u64,
}

/// Runs `keelson check` and prints the findings. Damage is an error. With `--repair`, records that
/// cannot be read are removed first.
pub fn run(flags: &CheckFlags) -> Result<()> {
    if flags.repair {
        repair(&flags.data.dir()?)?;
    }
    let mut report = Report {
        kinds: RecordChecker::for_all_kinds(),
        resources: BTreeMap::new(),
        summary: CheckSummary::default(),
        damages: vec![],
        damage_count: 0,
    };
    let name = match &flags.file {
        Some(file) => {
            report.check_backup(file)?;
            file.clone()
        }
        None => {
            let dir = flags.data.dir()?;
            report.check_dir(&dir)?;
            dir.display().to_string()
        }
    };
    output::print(&match flags.output {
        None => report.table(),
        Some(format) => report.format(format),
    })?;
    if flags.output.is_none() {
        use std::io::Write;
        for line in &report.damages {
            writeln!(std::io::stderr(), "{line}").context("write to standard error")?;
        }
    }
    match report.damage_count {
        0 => Ok(()),
        1 => bail!("{name} is damaged"),
        count => bail!("{name} is damaged in {count} places"),
    }
}

/// Removes records that cannot be read from a data folder, prints each, and saves the values that
/// are still intact in `removed-SECONDS.jsonl`.
fn repair(dir: &Path) -> Result<()> {
    use std::io::Write;
    let kinds = RecordChecker::for_all_kinds();
    let fault = |kv: &KeyValue| kinds.unreadable_reason(kv);
    let mut removed = vec![];
    let count = remove_damaged(&dir.join("store"), &fault, &mut |record| removed.push(record));
    let count = count.map_err(|error| open_error(&error, "--data-dir"))?;
    let mut saved = String::new();
    for Removed { key, revision, why, value } in &removed {
        let key =
            key.as_ref().map_or_else(|| "(no key)".into(), |key| key.escape_ascii().to_string());
        writeln!(std::io::stderr(), "removed {key} at revision {revision}: {why}")
            .context("write to standard error")?;
        if let Some(value) = value {
            let mut line = Map::default();
            line.insert("key", key);
            line.insert("revision", output::number(revision.0));
            line.insert("why", why.as_str());
            line.insert("value", STANDARD.encode(value));
            saved.push_str(&output::format(&Value::Object(line), ResultFormat::Json));
            saved.push('\n');
        }
    }
    if !saved.is_empty() {
        let seconds = std::time::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
        let path = dir.join(format!("removed-{seconds}.jsonl"));
        keelson::write_private(&path, &saved).with_context(|| path.display().to_string())?;
        writeln!(std::io::stderr(), "saved in {}", path.display()).context("standard error")?;
    }
    if count > 0 {
        writeln!(std::io::stderr(), "{count} records removed").context("standard error")?;
    }
    Ok(())
}

/// Returns the error message for a data folder that cannot be opened.
pub fn open_error(error: &OpenError, flag: &str) -> Error {
    use std::error::Error;
    let source = error.source().map(|source| format!(": {source}")).unwrap_or_default();
    match error {
        OpenError::Absent { .. } => anyhow!(
            "{flag}: {error} (data in etcd is backed up and checked by etcd: etcdctl snapshot save)"
        ),
        error => anyhow!("{flag}: {error}{source}"),
    }
}

impl Report {
    fn check_dir(&mut self, dir: &Path) -> Result<()> {
        // redb panics on some damaged files.
        let hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| {}));
        let checked = catch_unwind(AssertUnwindSafe(|| {
            let offline = Offline::open(&dir.join("store"))?;
            offline.check(&mut |item| self.add(item))
        }));
        std::panic::set_hook(hook);
        match checked {
            Ok(Ok(summary)) => self.summary = summary,
            Ok(Err(error @ OpenError::Records { .. })) => {
                self.damage(open_error(&error, "records").to_string());
            }
            Ok(Err(error)) => return Err(open_error(&error, "--data-dir")),
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
                let text = text.unwrap_or("the library gave up").lines().next().unwrap_or_default();
                self.damage(format!("records: they cannot be read: {text}"));
            }
        }
        Ok(())
    }

    fn check_backup(&mut self, file: &str) -> Result<()> {
        let mut reader =
            BackupReader::new(super::open_input(file)?).with_context(|| file.to_owned())?;
        loop {
            match reader.next_key() {
                Ok(Some(kv)) => self.add(CheckItem::Live(kv)),
                Ok(None) => break,
                Err(error) => {
                    self.damage(error.to_string());
                    break;
                }
            }
        }
        let BackupSummary { revision, objects, .. } = reader.summary();
        self.summary = CheckSummary { newest: revision, floor: revision, records: objects };
        Ok(())
    }

    fn add(&mut self, item: CheckItem) {
        match item {
            CheckItem::Live(kv) => {
                let name = self.kinds.name(&kv.key).unwrap_or_else(|| UNKNOWN.to_owned());
                let count = self.resources.entry(name).or_default();
                count.objects += 1;
                count.bytes += kv.value.len() as u64;
                self.check(&kv);
            }
            CheckItem::Past(kv) => self.check(&kv),
            CheckItem::Damage(line) => self.damage(line),
        }
    }

    fn check(&mut self, kv: &KeyValue) {
        if let Err(why) = self.kinds.check(kv) {
            let (key, at) = (kv.key.escape_ascii(), kv.modified);
            self.damage(format!("{key} at revision {at}: {why}"));
        }
    }

    fn damage(&mut self, line: String) {
        self.damage_count += 1;
        match self.damage_count {
            ..=DAMAGES_MAX => self.damages.push(line),
            _ => {
                let more = format!("and {} more", self.damage_count - DAMAGES_MAX);
                self.damages.truncate(DAMAGES_MAX);
                self.damages.push(more);
            }
        }
    }

    fn total(&self) -> Count {
        self.resources.values().fold(Count::default(), |sum, count| Count {
            objects: sum.objects + count.objects,
            bytes: sum.bytes + count.bytes,
        })
    }

    fn table(&self) -> String {
        let width = self.resources.keys().map(String::len).max().unwrap_or_default().max(8);
        let mut out = format!("{:width$}  {:>8}  {:>12}\n", "RESOURCE", "OBJECTS", "BYTES");
        let mut row = |name: &str, Count { objects, bytes }: Count| {
            // Writing to a string does not fail.
            let _ = writeln!(out, "{name:width$}  {objects:>8}  {bytes:>12}");
        };
        for (name, count) in &self.resources {
            row(name, *count);
        }
        row("all", self.total());
        let CheckSummary { newest, floor, records } = self.summary;
        let _ = write!(
            out,
            "revision {newest}, history since {floor}, {records} records, {} damages",
            self.damage_count
        );
        out
    }

    fn format(&self, format: ResultFormat) -> String {
        let count = |count: &Count| {
            let mut map = Map::default();
            map.insert("objects", output::number(count.objects));
            map.insert("bytes", output::number(count.bytes));
            map
        };
        let mut resources = Map::default();
        for (name, resource) in &self.resources {
            resources.insert(name.as_str(), count(resource));
        }
        let CheckSummary { newest, floor, records } = self.summary;
        let mut map = count(&self.total());
        map.insert("revision", output::number(newest.0));
        map.insert("historySince", output::number(floor.0));
        map.insert("records", output::number(records));
        map.insert("resources", resources);
        let lines: Vec<Value> =
            self.damages.iter().map(|line| Value::from(line.as_str())).collect();
        map.insert("damages", lines);
        output::format(&Value::Object(map), format)
    }
}
