//! `keelson check`: verifies a data folder that no server uses, or a backup.

use super::output;
use crate::flags::{CheckFlags, ResultFormat};
use anyhow::{Context, Error, Result, anyhow, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson::Decrypter;
use keelson_builtin::OTHER_RECORDS;
use keelson_encryption::{is_encrypted, key_of};
use keelson_meta::{Map, Value};
use keelson_resources::RecordChecker;
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
    /// `None`: encrypted values are not decrypted.
    decrypter: Option<Decrypter>,
    /// Encrypted values that were not decrypted, by their key.
    encrypted: BTreeMap<String, u64>,
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
        kinds: RecordChecker::for_all_kinds(OTHER_RECORDS),
        decrypter: flags.encryption_provider_config.as_deref().map(open_decrypter).transpose()?,
        encrypted: BTreeMap::new(),
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
        for (key, count) in &report.encrypted {
            let line = format!(
                "{count} values are encrypted with {key}: only their checksums were checked, see \
                 --encryption-provider-config"
            );
            writeln!(std::io::stderr(), "{line}").context("write to standard error")?;
        }
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

fn open_decrypter(path: &Path) -> Result<Decrypter> {
    Decrypter::open(path).map_err(|why| anyhow!("--encryption-provider-config: {why}"))
}

/// Removes records that cannot be read from a data folder, prints each, and saves the values that
/// are still intact in `removed-SECONDS.jsonl`.
fn repair(dir: &Path) -> Result<()> {
    use std::io::Write;
    let kinds = RecordChecker::for_all_kinds(OTHER_RECORDS);
    // An encrypted value is not unreadable: its key may be elsewhere.
    let fault = |kv: &KeyValue| {
        if is_encrypted(&kv.value) { None } else { kinds.unreadable_reason(kv) }
    };
    let mut removed = vec![];
    let count = remove_damaged(&dir.join("store"), &fault, &mut |record| removed.push(record))
        .map_err(|error| open_error(&error, "--data-dir"))?;
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
        OpenError::Absent { .. } => anyhow!("{flag}: {error}"),
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
                let text = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or_else(|| panic.downcast_ref::<&str>().copied())
                    .unwrap_or("the library gave up")
                    .lines()
                    .next()
                    .unwrap_or_default();
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
        let checked = match &self.decrypter {
            None if is_encrypted(&kv.value) => {
                *self.encrypted.entry(key_of(&kv.value)).or_default() += 1;
                Ok(())
            }
            None => self.kinds.check(kv),
            Some(decrypter) => decrypter
                .decrypt(&kv.key, &kv.value)
                .map_err(|why| format!("encrypted with {}: {why}", key_of(&kv.value)))
                .and_then(|value| self.kinds.check(&KeyValue { value, ..kv.clone() })),
        };
        if let Err(why) = checked {
            let key = kv.key.escape_ascii();
            let at = kv.modified;
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
        let not_checked = self.encrypted.iter().map(|(key, count)| (key, output::number(*count)));
        let mut encrypted = Map::default();
        not_checked.for_each(|(key, count)| {
            encrypted.insert(key.as_str(), count);
        });
        map.insert("encryptedNotChecked", encrypted);
        let lines: Vec<Value> =
            self.damages.iter().map(|line| Value::from(line.as_str())).collect();
        map.insert("damages", lines);
        output::format(&Value::Object(map), format)
    }
}
