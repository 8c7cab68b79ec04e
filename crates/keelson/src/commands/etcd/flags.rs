//! The flags of etcd that are known: those that one member has, and those that test environments
//! and kubeadm give it, and those that change nothing here.

use crate::flags::table::{Flag, Group, Kind};

const ONE_MEMBER: &str = "there is one member";
const NO_RAFT: &str = "there is no log of raft";
const OWN_LOG: &str = "it logs warnings to standard error";
const OTHER_STORE: &str = "the store has no such setting";
const OWN_LIMITS: &str = "the limit is its own";

pub static GROUP: Group = Group {
    title: "Etcd",
    flags: &[
        Flag::new("advertise-client-urls", Kind::Text, "", "URLs that clients are told."),
        Flag::new(
            "auto-compaction-mode",
            Kind::Text,
            "periodic",
            "How compaction is decided: 'periodic' or 'revision'.",
        ),
        Flag::new(
            "auto-compaction-retention",
            Kind::Text,
            "0",
            "History to keep: a duration, a number of hours, or of revisions; 0 keeps all.",
        ),
        Flag::new("auto-tls", Kind::Bool, "false", "Whether to make a serving certificate.")
            .refused("a generated certificate"),
        Flag::new("backend-batch-interval", Kind::Duration, "0s", "Longest time between commits.")
            .accepted(OTHER_STORE),
        Flag::new("backend-batch-limit", Kind::Int, "0", "Most operations of a commit.")
            .accepted(OTHER_STORE),
        Flag::new(
            "backend-bbolt-freelist-type",
            Kind::Text,
            "map",
            "Form of the list of free pages.",
        )
        .accepted(OTHER_STORE),
        Flag::new("cert-file", Kind::Text, "", "Serving certificate."),
        Flag::new("client-cert-auth", Kind::Bool, "false", "Whether clients need certificates."),
        Flag::new("client-crl-file", Kind::Text, "", "Revoked certificates of clients.")
            .refused("a list of revoked certificates"),
        Flag::new(
            "compaction-batch-limit",
            Kind::Int,
            "1000",
            "Most revisions that are deleted at once.",
        )
        .accepted(OTHER_STORE),
        Flag::new("compaction-sleep-interval", Kind::Duration, "10ms", "Pause between them.")
            .accepted(OTHER_STORE),
        Flag::new("config-file", Kind::Text, "", "File with all settings.")
            .refused("a file of settings"),
        Flag::new(
            "corrupt-check-time",
            Kind::Duration,
            "0s",
            "Interval at which members compare their data.",
        )
        .accepted(ONE_MEMBER),
        Flag::new("data-dir", Kind::Text, "default.etcd", "Folder of the data."),
        Flag::new(
            "election-timeout",
            Kind::Int,
            "1000",
            "Milliseconds. The shortest lease has one and a half times this, in whole seconds.",
        ),
        Flag::new(
            "experimental-initial-corrupt-check",
            Kind::Bool,
            "false",
            "Whether members compare their data at the start.",
        )
        .accepted(ONE_MEMBER),
        Flag::new(
            "experimental-watch-progress-notify-interval",
            Kind::Duration,
            "10m0s",
            "As --watch-progress-notify-interval.",
        ),
        Flag::new("feature-gates", Kind::Text, "", "Features to switch.").accepted(ONE_MEMBER),
        Flag::new("heartbeat-interval", Kind::Int, "100", "Interval of heartbeats.")
            .accepted(ONE_MEMBER),
        Flag::new("help", Kind::Bool, "false", "Print this help."),
        Flag::new(
            "initial-advertise-peer-urls",
            Kind::Text,
            "",
            "URLs that are shown for members.",
        ),
        Flag::new("initial-cluster", Kind::Text, "", "Members of a new cluster: one."),
        Flag::new("initial-cluster-state", Kind::Text, "new", "Whether the cluster is new."),
        Flag::new("initial-cluster-token", Kind::Text, "", "Name of the cluster.")
            .accepted(ONE_MEMBER),
        Flag::new(
            "initial-election-tick-advance",
            Kind::Bool,
            "true",
            "Whether the first election comes soon.",
        )
        .accepted(ONE_MEMBER),
        Flag::new("key-file", Kind::Text, "", "Key of the serving certificate."),
        Flag::new(
            "listen-client-urls",
            Kind::Text,
            "http://localhost:2379",
            "URLs to listen on for clients.",
        ),
        Flag::new(
            "listen-metrics-urls",
            Kind::Text,
            "",
            "URLs to listen on for health and metrics alone.",
        ),
        Flag::new("listen-peer-urls", Kind::Text, "", "URLs to listen on for other members.")
            .accepted(ONE_MEMBER),
        Flag::new("log-format", Kind::Text, "json", "Format of the log.").accepted(OWN_LOG),
        Flag::new("log-level", Kind::Text, "info", "Log level.").accepted(OWN_LOG),
        Flag::new("log-outputs", Kind::Text, "default", "Where logs are written.")
            .accepted(OWN_LOG),
        Flag::new("logger", Kind::Text, "zap", "Logger.").accepted(OWN_LOG),
        Flag::new(
            "max-concurrent-streams",
            Kind::Int,
            "4294967295",
            "Most streams of a connection.",
        )
        .accepted(OWN_LIMITS),
        Flag::new("max-learners", Kind::Int, "1", "Most members that learn.").accepted(ONE_MEMBER),
        Flag::new("max-request-bytes", Kind::Int, "1572864", "Most bytes of a request."),
        Flag::new("max-snapshots", Kind::Int, "5", "Snapshot files that are kept.")
            .accepted(NO_RAFT),
        Flag::new("max-txn-ops", Kind::Int, "128", "Most operations of a transaction."),
        Flag::new("max-wals", Kind::Int, "5", "Log files that are kept.").accepted(NO_RAFT),
        Flag::new("metrics", Kind::Text, "basic", "Which metrics there are.")
            .accepted("there are a few"),
        Flag::new("name", Kind::Text, "default", "Name of this member."),
        Flag::new("peer-cert-file", Kind::Text, "", "Certificate for members.")
            .accepted(ONE_MEMBER),
        Flag::new(
            "peer-client-cert-auth",
            Kind::Bool,
            "false",
            "Whether members need certificates.",
        )
        .accepted(ONE_MEMBER),
        Flag::new("peer-key-file", Kind::Text, "", "Its key.").accepted(ONE_MEMBER),
        Flag::new("peer-trusted-ca-file", Kind::Text, "", "CA bundle for members.")
            .accepted(ONE_MEMBER),
        Flag::new("pre-vote", Kind::Bool, "true", "Whether elections have a round before.")
            .accepted(ONE_MEMBER),
        Flag::new(
            "quota-backend-bytes",
            Kind::Int,
            "0",
            "Most bytes of the data; 0 is 2 GiB, a negative number is no limit.",
        ),
        Flag::new("raft-read-timeout", Kind::Duration, "5s", "Timeout of reads from members.")
            .accepted(ONE_MEMBER),
        Flag::new("raft-write-timeout", Kind::Duration, "5s", "Timeout of writes to members.")
            .accepted(ONE_MEMBER),
        Flag::new(
            "snapshot-catchup-entries",
            Kind::Int,
            "5000",
            "Entries that are kept for slow members.",
        )
        .accepted(NO_RAFT),
        Flag::new("snapshot-count", Kind::Int, "10000", "Number of writes between snapshots.")
            .accepted(NO_RAFT),
        Flag::new(
            "strict-reconfig-check",
            Kind::Bool,
            "true",
            "Whether changes of members are checked.",
        )
        .accepted(ONE_MEMBER),
        Flag::new("trusted-ca-file", Kind::Text, "", "CA bundle for client certificates."),
        Flag::new(
            "unsafe-no-fsync",
            Kind::Bool,
            "false",
            "Do not sync writes: they survive a kill, but not a power cut. Holds for a Keelson beside it, too.",
        ),
        Flag::new("version", Kind::Version, "", "Print the version."),
        Flag::new("wal-dir", Kind::Text, "", "Folder of the log of raft.").accepted(NO_RAFT),
        Flag::new(
            "warning-apply-duration",
            Kind::Duration,
            "100ms",
            "From when on a slow write is logged.",
        )
        .accepted(OWN_LOG),
        Flag::new(
            "warning-unary-request-duration",
            Kind::Duration,
            "300ms",
            "From when on a slow request is logged.",
        )
        .accepted(OWN_LOG),
        Flag::new(
            "watch-progress-notify-interval",
            Kind::Duration,
            "10m0s",
            "How long a watch that asks for progress is without a response at most.",
        ),
    ],
};
