//! Etcd flags: where the data is, and what concerns all stored objects.

use crate::flags::go_files;
use crate::flags::pflag::Values;
use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Face, Flag, Group, Kind};
use anyhow::anyhow;
use keelson::{EncryptionFile, Etcd, EtcdOverride, OTHER_STORES_MAX};
use std::collections::BTreeSet;

/// The default of `--storage-media-type`.
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// The group.
pub const GROUP: Group = Group {
    title: "Etcd",
    flags: &[
        Flag::new("default-watch-cache-size", Kind::Int, "100", "Default size of watch caches.")
            .accepted("the cache is sized by itself")
            .deprecated(
                "watch caches are sized automatically and this flag will be removed in a future \
             version",
            )
            .hidden(),
        Flag::new(
            "delete-collection-workers",
            Kind::Int,
            "1",
            "Number of objects of a collection that are deleted at once.",
        )
        .accepted("concurrent writes share one sync to disk anyway"),
        Flag::new(
            "enable-garbage-collector",
            Kind::Bool,
            "true",
            "Whether dependents of deleted objects are deleted or orphaned. Without it, propagation \
             policies are ignored.",
        ),
        Flag::new(
            "encryption-provider-config",
            Kind::Text,
            "",
            "File that says how Secrets and other resources are encrypted in the store.",
        ),
        Flag::new(
            "encryption-provider-config-automatic-reload",
            Kind::Bool,
            "false",
            "Whether that file is reloaded when it changes.",
        ),
        Flag::new(
            "etcd-cafile",
            Kind::Text,
            "",
            "CA bundle for etcd's certificates; empty means that of this host.",
        ),
        Flag::new("etcd-certfile", Kind::Text, "", "Client certificate for etcd."),
        Flag::new(
            "etcd-compaction-interval",
            Kind::Duration,
            "5m0s",
            "Interval of etcd compaction, by one of the servers that share the cluster; 0 \
             disables it.",
        ),
        Flag::new(
            "etcd-count-metric-poll-period",
            Kind::Duration,
            "1m0s",
            "Objects are counted when /metrics is read, whatever the interval; 0 leaves their numbers \
             out of it.",
        ),
        Flag::new(
            "etcd-db-metric-poll-interval",
            Kind::Duration,
            "30s",
            "Interval at which the size of etcd's database is read for a metric.",
        )
        .accepted(
            "its metric is deprecated and hidden; apiserver_storage_size_bytes is read with /metrics, as \
             in kube-apiserver",
        ),
        Flag::new(
            "etcd-healthcheck-timeout",
            Kind::Duration,
            "2s",
            "Timeout of the health check of etcd.",
        )
        .accepted("the last requests say whether etcd is healthy; none is sent for it"),
        Flag::new("etcd-keyfile", Kind::Text, "", "Key of the client certificate for etcd."),
        Flag::new("etcd-prefix", Kind::Text, "/registry", "Prefix of all keys in etcd."),
        Flag::new(
            "etcd-readycheck-timeout",
            Kind::Duration,
            "2s",
            "Timeout of the readiness check of etcd.",
        )
        .accepted("the last requests say whether etcd is healthy; none is sent for it"),
        Flag::new(
            "etcd-servers",
            Kind::List,
            "",
            "URLs of the etcd cluster that stores the data: https://a:2379,https://b:2379. Any \
             number of servers may share a cluster.",
        ),
        Flag::new(
            "etcd-servers-overrides",
            Kind::List,
            "",
            "Other etcd clusters for single built-in resources: group/resource#URL;URL, for example \
             /events#https://c:2379. They have the certificates and the prefix of --etcd-servers.",
        ),
        Flag::new(
            "lease-reuse-duration-seconds",
            Kind::Int,
            "60",
            "Seconds during which objects that expire share a lease in etcd.",
        ),
        Flag::new(
            "storage-backend",
            Kind::Text,
            "",
            "Kind of the storage: etcd3, or empty for the same.",
        ),
        Flag::new(
            "storage-media-type",
            Kind::Text,
            PROTOBUF,
            "Encoding of objects in etcd: application/vnd.kubernetes.protobuf, application/json or \
             application/yaml; empty means JSON. Custom resources are JSON in any case.",
        ),
        Flag::new(
            "watch-cache",
            Kind::Bool,
            "true",
            "Whether lists and watches are served from memory.",
        )
        .accepted("they always are; their answers are as recent as without it"),
        Flag::new(
            "watch-cache-sizes",
            Kind::List,
            "",
            "Sizes of the watch caches of single resources: resource[.group]#size.",
        )
        .accepted("the cache is sized by itself"),
    ],
};

/// Checks the flags and applies them.
pub fn apply(setup: &mut Setup<'_>) {
    let values = setup.values;
    let servers = values.list("etcd-servers");
    if servers.is_empty() && setup.face == Face::KubeApiserver {
        setup.fail("--etcd-servers must be specified");
    }
    if !matches!(values.text("storage-backend"), "" | "etcd3") {
        setup.fail(
            "--storage-backend invalid, allowed values: etcd3. If not specified, it will default to \
             'etcd3'",
        );
    }
    if values.bool("encryption-provider-config-automatic-reload")
        && values.some_text("encryption-provider-config").is_none()
    {
        setup.fail(
            "--encryption-provider-config-automatic-reload must be set with \
             --encryption-provider-config",
        );
    }
    if let Some(path) = values.path("encryption-provider-config") {
        let reloads = values.bool("encryption-provider-config-automatic-reload");
        let file =
            EncryptionFile::read(&path, reloads, setup.builder.apis.features).map_err(|why| {
                match setup.face {
                    Face::KubeApiserver => anyhow!(why),
                    Face::Serve => anyhow!("--encryption-provider-config: {why}"),
                }
            });
        setup.builder.storage.encryption = setup.take_at(Step::Encryption, file);
    }
    setup.builder.apis.garbage_collection = values.bool("enable-garbage-collector");
    match values.text("storage-media-type").parse() {
        Ok(media_type) => setup.builder.storage.media_type = media_type,
        Err(()) => setup.fail(format!(
            "--storage-media-type {:?} invalid, allowed values: application/json, {PROTOBUF}, \
             application/yaml",
            values.text("storage-media-type")
        )),
    }
    check_cache_sizes(setup);
    let overrides = overrides(setup);
    let certificate = values.path("etcd-certfile");
    let key = values.path("etcd-keyfile");
    if setup.face == Face::Serve && certificate.is_some() != key.is_some() {
        setup.fail("--etcd-certfile and --etcd-keyfile must be given together");
    }
    let compaction_interval = setup.duration("etcd-compaction-interval");
    let reuse = u64::try_from(values.int("lease-reuse-duration-seconds")).unwrap_or(0);
    if servers.is_empty() {
        return;
    }
    setup.builder.storage.etcd = Some(Etcd {
        ca_file: values.path("etcd-cafile"),
        identity_files: certificate.zip(key),
        prefix: values.text("etcd-prefix").to_owned(),
        compaction_interval,
        overrides,
        start_timeout: values.duration("storage-initialization-timeout"),
        lease_reuse: std::time::Duration::from_secs(reuse),
        ..Etcd::new(servers.iter().map(|server| with_scheme(setup.face, server)).collect())
    });
}

fn check_cache_sizes(setup: &mut Setup<'_>) {
    for size in setup.values.list("watch-cache-sizes") {
        let parts: Vec<&str> = size.split('#').collect();
        let why = match parts[..] {
            [_, number] => match number.parse::<i64>() {
                Ok(number) if number < 0 => "watch cache size cannot be negative",
                Ok(_) => continue,
                Err(_) => "invalid size of watch cache size",
            },
            _ => "invalid value of watch cache size",
        };
        setup.fail_at(Step::WatchCaches, format!("{why}: {size}"));
    }
}

/// Returns the URL of a server: kube-apiserver also takes an address without a scheme.
fn with_scheme(face: Face, server: &str) -> String {
    match face {
        Face::KubeApiserver if !server.contains("://") => format!("http://{server}"),
        _ => server.to_owned(),
    }
}

/// Checks the files of the connection, in the words of kube-apiserver.
pub fn check_files(setup: &mut Setup<'_>) {
    if let Err(why) = check_connection(setup.values) {
        setup.fail_at(Step::Etcd, format!("error creating storage factory: {why}"));
    }
}

fn check_connection(values: &Values) -> Result<(), String> {
    let [certificate, key] = ["etcd-certfile", "etcd-keyfile"].map(|name| values.text(name));
    if certificate.is_empty() != key.is_empty() {
        return Err(format!(
            "KeyFile and CertFile must both be present[key: {key}, cert: {certificate}]"
        ));
    }
    if !certificate.is_empty() {
        go_files::key_pair(&go_files::read(certificate)?, &go_files::read(key)?)?;
    }
    match values.some_text("etcd-cafile") {
        Some(path) => go_files::read(path).map(drop),
        None => Ok(()),
    }
}

/// Returns the clusters of single resources.
fn overrides(setup: &mut Setup<'_>) -> Vec<EtcdOverride> {
    let values = setup.values;
    let servers = values.list("etcd-servers");
    let overrides: Result<Vec<EtcdOverride>, _> =
        values.list("etcd-servers-overrides").iter().map(|text| text.parse()).collect();
    if overrides.is_err() {
        setup.fail(
            "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where \
             servers are URLs, semicolon separated",
        );
    }
    let overrides = overrides.unwrap_or_default();
    let clusters: BTreeSet<Vec<&String>> =
        overrides.iter().map(EtcdOverride::sorted_servers).collect();
    if clusters.len() > OTHER_STORES_MAX {
        setup.fail(format!("--etcd-servers-overrides: more than {OTHER_STORES_MAX} clusters"));
    }
    if !overrides.is_empty() && servers.is_empty() && setup.face == Face::Serve {
        setup.fail("--etcd-servers-overrides must be set with --etcd-servers");
    }
    overrides
}
