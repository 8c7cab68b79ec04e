//! Auditing flags.

use crate::flags::go_files;
use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Flag, Group, Kind};
use anyhow::{Result, anyhow};
use keelson::{
    AuditBatching, AuditFormat, AuditLogFileOptions, AuditLogOptions, AuditMode, AuditOptions,
    AuditPolicyFile, AuditTruncation, AuditWebhookOptions,
};
use keelson_meta::GroupVersion;
use std::path::Path;

/// The version of events.
const VERSION: &str = "audit.k8s.io/v1";
/// The unit of `--audit-log-maxsize`.
const MEGABYTE: u64 = 1 << 20;

/// The group.
pub const GROUP: Group = Group {
    title: "Auditing",
    flags: &[
        Flag::new(
            "audit-log-batch-buffer-size",
            Kind::Int,
            "10000",
            "Number of events that wait to be written, in batch mode.",
        ),
        Flag::new(
            "audit-log-batch-max-size",
            Kind::Int,
            "1",
            "Maximum number of events that are written together, in batch mode.",
        ),
        Flag::new(
            "audit-log-batch-max-wait",
            Kind::Duration,
            "0s",
            "Maximum time that an event waits for others, in batch mode.",
        ),
        Flag::new(
            "audit-log-batch-throttle-burst",
            Kind::Int,
            "0",
            "Number of batches that are written at once after a pause, in batch mode.",
        ),
        Flag::new(
            "audit-log-batch-throttle-enable",
            Kind::Bool,
            "false",
            "Whether batches are throttled, in batch mode.",
        ),
        Flag::new(
            "audit-log-batch-throttle-qps",
            Kind::Float32,
            "0",
            "Maximum number of batches a second, in batch mode.",
        ),
        Flag::new(
            "audit-log-compress",
            Kind::Bool,
            "false",
            "Whether rotated files are compressed.",
        ),
        Flag::new("audit-log-format", Kind::Text, "json", "Format of events: json or legacy."),
        Flag::new(
            "audit-log-maxage",
            Kind::Int,
            "366",
            "Days that rotated files are kept; 0 means no limit.",
        ),
        Flag::new(
            "audit-log-maxbackup",
            Kind::Int,
            "100",
            "Number of rotated files that are kept; 0 means no limit.",
        ),
        Flag::new(
            "audit-log-maxsize",
            Kind::Int,
            "100",
            "Size in MB at which a file is rotated; 0 means never.",
        ),
        Flag::new(
            "audit-log-mode",
            Kind::Text,
            "blocking",
            "How events are written: batch, blocking or blocking-strict.",
        ),
        Flag::new("audit-log-path", Kind::Text, "", "File for audit events; - is standard output."),
        Flag::new(
            "audit-log-truncate-enabled",
            Kind::Bool,
            "false",
            "Whether large events and batches are truncated.",
        ),
        Flag::new(
            "audit-log-truncate-max-batch-size",
            Kind::Int,
            "10485760",
            "Maximum bytes of a batch.",
        ),
        Flag::new(
            "audit-log-truncate-max-event-size",
            Kind::Int,
            "102400",
            "Maximum bytes of an event.",
        ),
        Flag::new(
            "audit-log-version",
            Kind::Text,
            "audit.k8s.io/v1",
            "Version of events in the file.",
        ),
        Flag::new(
            "audit-policy-file",
            Kind::Text,
            "",
            "File that says which requests are audited, and how much of them.",
        ),
        Flag::new(
            "audit-webhook-batch-buffer-size",
            Kind::Int,
            "10000",
            "Number of events that wait to be sent, in batch mode.",
        ),
        Flag::new(
            "audit-webhook-batch-initial-backoff",
            Kind::Duration,
            "10s",
            "Time before the first retry.",
        )
        .deprecated("Deprecated, use --audit-webhook-initial-backoff instead.")
        .hidden(),
        Flag::new(
            "audit-webhook-batch-max-size",
            Kind::Int,
            "400",
            "Maximum number of events that are sent together, in batch mode.",
        ),
        Flag::new(
            "audit-webhook-batch-max-wait",
            Kind::Duration,
            "30s",
            "Maximum time that an event waits for others, in batch mode.",
        ),
        Flag::new(
            "audit-webhook-batch-throttle-burst",
            Kind::Int,
            "15",
            "Number of batches that are sent at once after a pause, in batch mode.",
        ),
        Flag::new(
            "audit-webhook-batch-throttle-enable",
            Kind::Bool,
            "true",
            "Whether batches are throttled, in batch mode.",
        ),
        Flag::new(
            "audit-webhook-batch-throttle-qps",
            Kind::Float32,
            "10",
            "Maximum number of batches a second, in batch mode.",
        ),
        Flag::new(
            "audit-webhook-config-file",
            Kind::Text,
            "",
            "Kubeconfig of the webhook that gets audit events.",
        ),
        Flag::new(
            "audit-webhook-initial-backoff",
            Kind::Duration,
            "10s",
            "Time before the first retry.",
        ),
        Flag::new(
            "audit-webhook-mode",
            Kind::Text,
            "batch",
            "How events are sent: batch, blocking or blocking-strict.",
        ),
        Flag::new(
            "audit-webhook-truncate-enabled",
            Kind::Bool,
            "false",
            "Whether large events and batches are truncated.",
        ),
        Flag::new(
            "audit-webhook-truncate-max-batch-size",
            Kind::Int,
            "10485760",
            "Maximum bytes of a batch.",
        ),
        Flag::new(
            "audit-webhook-truncate-max-event-size",
            Kind::Int,
            "102400",
            "Maximum bytes of an event.",
        ),
        Flag::new(
            "audit-webhook-version",
            Kind::Text,
            "audit.k8s.io/v1",
            "Version of events that are sent.",
        ),
    ],
};

/// The flags of one backend that others have, too.
struct Names {
    backend: &'static str,
    mode: &'static str,
    buffer: &'static str,
    batch: &'static str,
    wait: &'static str,
    throttles: &'static str,
    burst: &'static str,
    rate: &'static str,
    truncates: &'static str,
    batch_bytes: &'static str,
    event_bytes: &'static str,
    version: &'static str,
}

const LOG: Names = Names {
    backend: "log",
    mode: "audit-log-mode",
    buffer: "audit-log-batch-buffer-size",
    batch: "audit-log-batch-max-size",
    wait: "audit-log-batch-max-wait",
    throttles: "audit-log-batch-throttle-enable",
    burst: "audit-log-batch-throttle-burst",
    rate: "audit-log-batch-throttle-qps",
    truncates: "audit-log-truncate-enabled",
    batch_bytes: "audit-log-truncate-max-batch-size",
    event_bytes: "audit-log-truncate-max-event-size",
    version: "audit-log-version",
};

const WEBHOOK: Names = Names {
    backend: "webhook",
    mode: "audit-webhook-mode",
    buffer: "audit-webhook-batch-buffer-size",
    batch: "audit-webhook-batch-max-size",
    wait: "audit-webhook-batch-max-wait",
    throttles: "audit-webhook-batch-throttle-enable",
    burst: "audit-webhook-batch-throttle-burst",
    rate: "audit-webhook-batch-throttle-qps",
    truncates: "audit-webhook-truncate-enabled",
    batch_bytes: "audit-webhook-truncate-max-batch-size",
    event_bytes: "audit-webhook-truncate-max-event-size",
    version: "audit-webhook-version",
};

/// Checks the flags and applies them. As upstream, those of a backend that is not used are not
/// checked.
pub fn apply(setup: &mut Setup<'_>) {
    let before = setup.errors.len();
    let log = log(setup);
    let webhook = webhook(setup);
    let Some(path) = setup.values.path("audit-policy-file") else {
        if log.is_some() || webhook.is_some() {
            let note = "no --audit-policy-file: no audit events are recorded";
            setup.notes.push(note.to_owned());
        }
        return;
    };
    if setup.errors.len() > before {
        return;
    }
    let policy = AuditPolicyFile::read(&path).map_err(|why| anyhow!(why));
    let Some(policy) = setup.take_at(Step::AuditPolicy, policy) else { return };
    if log.is_some() || webhook.is_some() {
        setup.builder.recording.audit = Some(AuditOptions { policy, log, webhook });
    }
}

/// Checks the files of the backends, in the words of kube-apiserver.
pub fn check_files(setup: &mut Setup<'_>) {
    check_log_path(setup);
    let values = setup.values;
    let version = values.text(WEBHOOK.version);
    if !version.is_empty() && GroupVersion::parse(version).is_none() {
        setup.fail_at(Step::AuditWebhook, format!("unexpected GroupVersion string: {version}"));
    }
    let kubeconfig = values.some_text("audit-webhook-config-file");
    if values.some_text("audit-policy-file").is_some()
        && let Some(Err(why)) = kubeconfig.map(go_files::kubeconfig)
    {
        setup.fail_at(Step::AuditWebhook, format!("initializing audit webhook: {why}"));
    }
}

/// Checks that the log can be a file, in the words of kube-apiserver.
fn check_log_path(setup: &mut Setup<'_>) {
    let Some(path) = setup.values.some_text("audit-log-path") else { return };
    if path == "-" {
        return;
    }
    let above = Path::new(path).ancestors().skip(1).find(|folder| folder.exists());
    let why = if Path::new(path).is_dir() {
        format!("open {path}: is a directory")
    } else if let Some(file) = above.filter(|folder| !folder.is_dir()) {
        format!("mkdir {}: not a directory", file.display())
    } else {
        return;
    };
    setup.fail_at(Step::AuditLog, format!("ensureLogFile: {why}"));
}

fn log(setup: &mut Setup<'_>) -> Option<AuditLogOptions> {
    let values = setup.values;
    let path = values.path("audit-log-path");
    let backend = backend(setup, &LOG, path.is_some());
    let format = match values.text("audit-log-format") {
        "json" => AuditFormat::Json,
        "legacy" => AuditFormat::Legacy,
        other => {
            if path.is_some() {
                setup.fail(format!(
                    "invalid audit log format {other}, allowed formats are \"legacy,json\""
                ));
            }
            AuditFormat::Json
        }
    };
    let mut number = |name: &'static str| {
        let number = values.int(name);
        if number < 0 && path.is_some() {
            setup.fail(format!("--{name} {number} can't be a negative number"));
        }
        u64::try_from(number).unwrap_or_default()
    };
    let days_max = number("audit-log-maxage");
    let backups_max = number("audit-log-maxbackup");
    let rotate_bytes = number("audit-log-maxsize").saturating_mul(MEGABYTE);
    let compresses = values.bool("audit-log-compress");
    let (mode, truncation) = backend?;
    let backups_max = usize::try_from(backups_max).unwrap_or(usize::MAX);
    let file = AuditLogFileOptions {
        path: path?,
        format,
        rotate_bytes,
        days_max,
        backups_max,
        compresses,
    };
    Some(AuditLogOptions { file, mode, truncation })
}

fn webhook(setup: &mut Setup<'_>) -> Option<AuditWebhookOptions> {
    let values = setup.values;
    let kubeconfig = values.path("audit-webhook-config-file");
    let older = "audit-webhook-batch-initial-backoff";
    let of_older = values.duration(older);
    let initial_backoff = match values.is_given(older) {
        true => of_older,
        false => values.duration("audit-webhook-initial-backoff"),
    };
    let (mode, truncation) = backend(setup, &WEBHOOK, kubeconfig.is_some())?;
    let kubeconfig = kubeconfig?;
    Some(AuditWebhookOptions { kubeconfig, initial_backoff, mode, truncation })
}

/// Returns mode and truncation of a backend. They are not checked unless it is used.
fn backend(
    setup: &mut Setup<'_>,
    names: &Names,
    is_used: bool,
) -> Option<(AuditMode, Option<AuditTruncation>)> {
    let version = version(setup.values.text(names.version));
    let mode = mode(setup, names);
    let truncation = truncation(setup, names);
    if !is_used {
        return None;
    }
    let mode = setup.take(mode);
    let truncation = setup.take(truncation);
    setup.take(version)?;
    Some((mode?, truncation?))
}

fn mode(setup: &Setup<'_>, names: &Names) -> Result<AuditMode> {
    let values = setup.values;
    let backend = names.backend;
    let positive = |name: &'static str, what: &str| {
        let number = values.int(name);
        usize::try_from(number).ok().filter(|number| *number > 0).ok_or_else(|| {
            anyhow!("invalid audit batch {backend} {what} {number}, must be a positive number")
        })
    };
    let buffer = positive(names.buffer, "buffer size");
    let batch = positive(names.batch, "max batch size");
    let wait = values.duration(names.wait);
    let rate = values.float(names.rate);
    let burst = positive(names.burst, "throttle burst");
    let throttles = values.bool(names.throttles);
    match values.text(names.mode) {
        "blocking" => return Ok(AuditMode::Blocking),
        "blocking-strict" => return Ok(AuditMode::BlockingStrict),
        "batch" => {}
        other => {
            return Err(anyhow!(
                "invalid audit {backend} mode {other}, allowed modes are \
                 \"batch,blocking,blocking-strict\""
            ));
        }
    }
    let buffer_events_max = buffer?;
    let batch_events_max = batch?;
    if throttles && rate <= 0.0 {
        return Err(anyhow!(
            "invalid audit batch {backend} throttle QPS {rate}, must be a positive number"
        ));
    }
    let throttle = if throttles { Some((rate as f32, burst?)) } else { None };
    Ok(AuditMode::Batch(AuditBatching { buffer_events_max, batch_events_max, wait, throttle }))
}

fn truncation(setup: &Setup<'_>, names: &Names) -> Result<Option<AuditTruncation>> {
    let values = setup.values;
    let backend = names.backend;
    let events = values.int(names.event_bytes);
    let batches = values.int(names.batch_bytes);
    let is_on = values.bool(names.truncates);
    if events <= 0 {
        return Err(anyhow!(
            "invalid audit truncate {backend} max event size {events}, must be a positive number"
        ));
    }
    if batches < events {
        return Err(anyhow!(
            "invalid audit truncate {backend} max batch size {batches}, must be greater than max \
             event size ({events})"
        ));
    }
    let size = |bytes: i64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let limits = AuditTruncation { event_bytes_max: size(events), batch_bytes_max: size(batches) };
    Ok(is_on.then_some(limits))
}

fn version(text: &str) -> Result<()> {
    if text == VERSION {
        return Ok(());
    }
    if GroupVersion::parse(text).is_none() {
        return Err(anyhow!("unexpected GroupVersion string: {text}"));
    }
    Err(anyhow!("invalid group version, allowed versions are [{VERSION:?}]"))
}
