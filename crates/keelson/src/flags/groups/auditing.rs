//! Auditing flags.

use crate::flags::table::{Flag, Group, Kind};

/// What every flag needs that only changes the log or the webhook.
const INERT: &str = "it has no effect without --audit-log-path or --audit-webhook-config-file";
const MISSING: &str = "auditing";

/// The group.
pub const GROUP: Group = Group {
    title: "Auditing",
    flags: &[
        Flag::new(
            "audit-log-batch-buffer-size",
            Kind::Int,
            "10000",
            "Number of events that wait to be written, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-batch-max-size",
            Kind::Int,
            "1",
            "Maximum number of events that are written together, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-batch-max-wait",
            Kind::Duration,
            "0s",
            "Maximum time that an event waits for others, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-batch-throttle-burst",
            Kind::Int,
            "0",
            "Number of batches that are written at once after a pause, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-batch-throttle-enable",
            Kind::Bool,
            "false",
            "Whether batches are throttled, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-batch-throttle-qps",
            Kind::Float32,
            "0",
            "Maximum number of batches a second, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-compress",
            Kind::Bool,
            "false",
            "Whether rotated files are compressed.",
        )
        .accepted(INERT),
        Flag::new("audit-log-format", Kind::Text, "json", "Format of events: json or legacy.")
            .accepted(INERT),
        Flag::new(
            "audit-log-maxage",
            Kind::Int,
            "366",
            "Days that rotated files are kept; 0 means no limit.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-maxbackup",
            Kind::Int,
            "100",
            "Number of rotated files that are kept; 0 means no limit.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-maxsize",
            Kind::Int,
            "100",
            "Size in MB at which a file is rotated; 0 means never.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-mode",
            Kind::Text,
            "blocking",
            "How events are written: batch, blocking or blocking-strict.",
        )
        .accepted(INERT),
        Flag::new("audit-log-path", Kind::Text, "", "File for audit events; - is standard output.")
            .refused(MISSING),
        Flag::new(
            "audit-log-truncate-enabled",
            Kind::Bool,
            "false",
            "Whether large events and batches are truncated.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-truncate-max-batch-size",
            Kind::Int,
            "10485760",
            "Maximum bytes of a batch.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-truncate-max-event-size",
            Kind::Int,
            "102400",
            "Maximum bytes of an event.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-log-version",
            Kind::Text,
            "audit.k8s.io/v1",
            "Version of events in the file.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-policy-file",
            Kind::Text,
            "",
            "File that says which requests are audited, and how much of them.",
        )
        .refused(MISSING),
        Flag::new(
            "audit-webhook-batch-buffer-size",
            Kind::Int,
            "10000",
            "Number of events that wait to be sent, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-webhook-batch-initial-backoff",
            Kind::Duration,
            "10s",
            "Time before the first retry.",
        )
        .accepted(INERT)
        .deprecated("Deprecated, use --audit-webhook-initial-backoff instead.")
        .hidden(),
        Flag::new(
            "audit-webhook-batch-max-size",
            Kind::Int,
            "400",
            "Maximum number of events that are sent together, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-webhook-batch-max-wait",
            Kind::Duration,
            "30s",
            "Maximum time that an event waits for others, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-webhook-batch-throttle-burst",
            Kind::Int,
            "15",
            "Number of batches that are sent at once after a pause, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-webhook-batch-throttle-enable",
            Kind::Bool,
            "true",
            "Whether batches are throttled, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-webhook-batch-throttle-qps",
            Kind::Float32,
            "10",
            "Maximum number of batches a second, in batch mode.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-webhook-config-file",
            Kind::Text,
            "",
            "Kubeconfig of the webhook that gets audit events.",
        )
        .refused(MISSING),
        Flag::new(
            "audit-webhook-initial-backoff",
            Kind::Duration,
            "10s",
            "Time before the first retry.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-webhook-mode",
            Kind::Text,
            "batch",
            "How events are sent: batch, blocking or blocking-strict.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-webhook-truncate-enabled",
            Kind::Bool,
            "false",
            "Whether large events and batches are truncated.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-webhook-truncate-max-batch-size",
            Kind::Int,
            "10485760",
            "Maximum bytes of a batch.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-webhook-truncate-max-event-size",
            Kind::Int,
            "102400",
            "Maximum bytes of an event.",
        )
        .accepted(INERT),
        Flag::new(
            "audit-webhook-version",
            Kind::Text,
            "audit.k8s.io/v1",
            "Version of events that are sent.",
        )
        .accepted(INERT),
    ],
};
