//! Flags to settings of the server.

use crate::flags::go_values;
use crate::flags::pflag::Values;
use anyhow::{Context, Result, bail};
use keelson::EtcdAddress;
use keelson_etcd_server::{AutoCompaction, EtcdOptions, TlsFiles};
use keelson_store::Durability;
use std::path::PathBuf;
use std::time::Duration;

/// The quota of `--quota-backend-bytes=0`.
const QUOTA_DEFAULT: u64 = 2 << 30;
const MINUTES_PER_HOUR: u64 = 60;

/// What the flags say.
pub struct Settings {
    pub folder: PathBuf,
    pub options: EtcdOptions,
    pub clients: Vec<EtcdAddress>,
    /// Addresses for health and metrics.
    pub pages: Vec<EtcdAddress>,
    pub tls: Option<TlsFiles>,
}

impl Settings {
    pub fn of(values: &Values) -> Result<Settings> {
        if values.text("initial-cluster").contains(',') {
            bail!("--initial-cluster: this is a cluster of one member");
        }
        if values.text("initial-cluster-state") != "new" {
            bail!("--initial-cluster-state: it cannot join a cluster");
        }
        let clients = addresses("--listen-client-urls", values.text("listen-client-urls"))?;
        Ok(Settings {
            folder: PathBuf::from(values.text("data-dir")),
            options: options(values)?,
            clients,
            pages: addresses("--listen-metrics-urls", values.text("listen-metrics-urls"))?,
            tls: tls(values)?,
        })
    }
}

fn options(values: &Values) -> Result<EtcdOptions> {
    let advertised = values.some_text("advertise-client-urls");
    let intervals =
        ["watch-progress-notify-interval", "experimental-watch-progress-notify-interval"];
    let given = intervals.into_iter().find(|name| values.is_given(name)).unwrap_or(intervals[0]);
    let progress_interval = values.duration(given);
    if progress_interval < Duration::from_millis(100) {
        bail!("--{given}: it must be at least 100ms");
    }
    Ok(EtcdOptions {
        name: values.text("name").to_owned(),
        client_urls: urls(advertised.unwrap_or_else(|| values.text("listen-client-urls"))),
        peer_urls: urls(values.text("initial-advertise-peer-urls")),
        request_bytes_max: positive(values, "max-request-bytes", 10 << 20)?,
        txn_ops_max: positive(values, "max-txn-ops", 10_000)?,
        quota_bytes: match values.int("quota-backend-bytes") {
            ..0 => None,
            0 => Some(QUOTA_DEFAULT),
            bytes => Some(bytes.unsigned_abs()),
        },
        lease_seconds_min: shortest_lease(values.int("election-timeout")),
        auto_compaction: auto_compaction(
            values.text("auto-compaction-mode"),
            values.text("auto-compaction-retention"),
        )?,
        progress_interval,
        durability: match values.bool("unsafe-no-fsync") {
            true => Durability::Unsynced,
            false => Durability::Sync,
        },
        ..EtcdOptions::default()
    })
}

/// Returns the seconds of the shortest lease: etcd's is one and a half election timeouts.
fn shortest_lease(election_timeout_ms: i64) -> i64 {
    let seconds = election_timeout_ms.clamp(1, 50_000) * 3 / 2;
    (seconds + 999) / 1000
}

fn positive(values: &Values, name: &'static str, max: usize) -> Result<usize> {
    let value = usize::try_from(values.int(name)).ok().filter(|value| (1..=max).contains(value));
    value.with_context(|| format!("--{name}: it must be from 1 to {max}"))
}

/// Reads the retention: of `periodic` a duration or a number of hours, of `revision` a number.
fn auto_compaction(mode: &str, retention: &str) -> Result<AutoCompaction> {
    let number = retention.parse::<u64>().ok();
    if number == Some(0) || retention.is_empty() {
        return Ok(AutoCompaction::Off);
    }
    let wrong = || format!("--auto-compaction-retention: {retention} is not of mode {mode}");
    match (mode, number) {
        ("periodic" | "", Some(hours)) => {
            let minutes = hours.checked_mul(MINUTES_PER_HOUR).with_context(wrong)?;
            let seconds = minutes.checked_mul(60).with_context(wrong)?;
            Ok(AutoCompaction::Periodic(Duration::from_secs(seconds)))
        }
        ("periodic" | "", None) => {
            let nanos = go_values::duration(retention)
                .ok()
                .map(|duration| duration.0)
                .and_then(|nanos| u64::try_from(nanos).ok())
                .with_context(wrong)?;
            Ok(AutoCompaction::Periodic(Duration::from_nanos(nanos)))
        }
        ("revision", Some(revisions)) => Ok(AutoCompaction::Revisions(revisions)),
        ("revision", None) => bail!(wrong()),
        _ => bail!("--auto-compaction-mode: {mode} is neither 'periodic' nor 'revision'"),
    }
}

fn tls(values: &Values) -> Result<Option<TlsFiles>> {
    let authorities = values.some_text("trusted-ca-file").map(PathBuf::from);
    if values.bool("client-cert-auth") && authorities.is_none() {
        bail!("--client-cert-auth: it needs --trusted-ca-file");
    }
    match (values.some_text("cert-file"), values.some_text("key-file")) {
        (Some(certificate), Some(key)) => {
            Ok(Some(TlsFiles { certificate: certificate.into(), key: key.into(), authorities }))
        }
        (None, None) => Ok(None),
        _ => bail!("--cert-file and --key-file: one needs the other"),
    }
}

fn urls(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|url| !url.is_empty()).map(str::to_owned).collect()
}

/// Returns the addresses of a list of URLs.
fn addresses(flag: &str, list: &str) -> Result<Vec<EtcdAddress>> {
    let address = |url: String| {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", &url));
        let is_secure = match scheme {
            "http" => false,
            "https" => true,
            _ => bail!("{flag}: {url}: http and https are there"),
        };
        Ok(EtcdAddress { address: rest.trim_end_matches('/').to_owned(), is_secure })
    };
    urls(list).into_iter().map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_addresses() {
        let all = addresses("--u", "http://127.0.0.1:1234,https://localhost:5/").expect("all");
        let expected = [("127.0.0.1:1234", false), ("localhost:5", true)];
        let found = all.iter().map(|address| (&address.address[..], address.is_secure));
        assert!(found.eq(expected));
        for wrong in ["unix://a:1", "127.0.0.1:1"] {
            assert!(addresses("--u", wrong).is_err(), "{wrong}");
        }
        assert!(addresses("--u", "").expect("none").is_empty());
    }

    #[test]
    fn the_retention_is_read_by_its_mode() {
        let hour = Duration::from_secs(3600);
        let check = |mode, retention, expected: Option<AutoCompaction>| {
            assert_eq!(auto_compaction(mode, retention).ok(), expected, "{mode} {retention}");
        };
        check("periodic", "0", Some(AutoCompaction::Off));
        check("periodic", "2", Some(AutoCompaction::Periodic(2 * hour)));
        check("periodic", "60m", Some(AutoCompaction::Periodic(hour)));
        check("periodic", "soon", None);
        check("revision", "1000", Some(AutoCompaction::Revisions(1000)));
        check("revision", "5m", None);
        check("always", "1", None);
    }

    #[test]
    fn the_shortest_lease_is_that_of_etcd() {
        for (timeout, seconds) in [(1000, 2), (100, 1), (5000, 8), (2000, 3)] {
            assert_eq!(shortest_lease(timeout), seconds, "{timeout}");
        }
    }
}
