//! Generic flags: addresses, timeouts, limits of requests, the shutdown.

use crate::flags::go_values;
use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Face, Flag, Group, Kind};
use keelson::CrossOrigins;
use std::time::Duration;

/// Largest `--goaway-chance`: one request in fifty.
const GOAWAY_CHANCE_MAX: f64 = 0.02;
/// The versions that kube-apiserver 1.36 emulates.
const EMULATED: [&str; 4] = ["1.33", "1.34", "1.35", "1.36"];
/// The only one that this server can be.
const OWN_VERSION: &str = "1.36";

/// The group.
pub const GROUP: Group = Group {
    title: "Generic",
    flags: &[
        Flag::new(
            "advertise-address",
            Kind::Ip,
            "",
            "Address of the server for clients in the cluster. If it is not set: --bind-address, \
             or the address of the first interface.",
        ),
        Flag::new(
            "cors-allowed-origins",
            Kind::List,
            "",
            "Origins that browsers may call from: regular expressions, each of which pins the \
             start (^ or //) and the end ($ or :) of the host. Empty: no CORS headers.",
        ),
        Flag::new(
            "emulated-version",
            Kind::List,
            "",
            "Version whose behavior is emulated: 1.36, or kube=1.36. Older ones are refused.",
        ),
        Flag::new(
            "emulation-forward-compatible",
            Kind::Bool,
            "false",
            "Only allowed when an older version is emulated, which is refused.",
        ),
        Flag::new(
            "external-hostname",
            Kind::Text,
            "",
            "Host name in URLs of this server: that of the token keys in the OpenID discovery \
             document.",
        ),
        Flag::new(
            "feature-gates",
            Kind::Gates,
            "",
            "Feature gates to switch: CBORServingAndStorage=true, or \
             kube:CBORServingAndStorage=true. May be repeated. Those that Keelson does not \
             implement can only be set to their default.",
        ),
        Flag::new(
            "goaway-chance",
            Kind::Float,
            "0",
            "Fraction of HTTP/2 requests that are answered with a GOAWAY, so that clients spread \
             over several servers behind a load balancer: 0 (off) to 0.02.",
        ),
        Flag::new(
            "livez-grace-period",
            Kind::Duration,
            "0s",
            "Time during which /livez ignores steps of the start that are not done.",
        )
        .accepted("the server listens when its start is done, and has no such steps"),
        Flag::new(
            "max-mutating-requests-inflight",
            Kind::Int,
            "200",
            "Maximum number of mutating requests in flight; 0 means no maximum. Long-running \
             requests and those of system:masters do not count.",
        ),
        Flag::new(
            "max-requests-inflight",
            Kind::Int,
            "400",
            "Maximum number of read requests in flight; 0 means no maximum.",
        ),
        Flag::new(
            "min-compatibility-version",
            Kind::List,
            "",
            "Oldest version of other components that the server works with: 1.33 to 1.36, with or \
             without kube= before it.",
        )
        .accepted("it changes nothing unless an older version is emulated"),
        Flag::new(
            "min-request-timeout",
            Kind::Int,
            "1800",
            "Shortest duration of a watch without a timeout of its own, in seconds; the longest \
             is twice that.",
        ),
        Flag::new(
            "request-timeout",
            Kind::Duration,
            "1m0s",
            "Timeout of requests other than watches.",
        ),
        Flag::new(
            "runtime-config-emulation-forward-compatible",
            Kind::Bool,
            "false",
            "Only allowed when an older version is emulated, which is refused.",
        ),
        Flag::new(
            "shutdown-delay-duration",
            Kind::Duration,
            "0s",
            "Time after the signal to stop during which requests are still served while /readyz \
             fails.",
        ),
        Flag::new(
            "shutdown-send-retry-after",
            Kind::Bool,
            "false",
            "Whether requests are answered with 429 and Retry-After while those in flight end at \
             a stop.",
        ),
        Flag::new(
            "shutdown-watch-termination-grace-period",
            Kind::Duration,
            "0s",
            "Time over which the ends of watches are spread at a stop; 0 ends all at once.",
        ),
        Flag::new(
            "storage-initialization-timeout",
            Kind::Duration,
            "1m0s",
            "How long the start waits for etcd.",
        ),
        Flag::new(
            "strict-transport-security-directives",
            Kind::List,
            "",
            "Directives of the Strict-Transport-Security header: max-age=SECONDS, \
             includeSubDomains, preload. Empty: no header.",
        ),
    ],
};

/// Checks the flags and applies them.
pub fn apply(setup: &mut Setup<'_>) {
    let values = setup.values;
    check_not_negative(setup);
    let builder = &mut *setup.builder;
    builder.network.advertise = values.ip("advertise-address");
    builder.serving.external_host = values.some_text("external-hostname").map(str::to_owned);
    builder.serving.shutdown_delay = values.duration("shutdown-delay-duration");
    builder.serving.limits.sends_retry_after = values.bool("shutdown-send-retry-after");
    builder.serving.limits.watch_end_spread =
        values.duration("shutdown-watch-termination-grace-period");
    let count = |name| usize::try_from(values.int(name)).unwrap_or(0);
    builder.serving.limits.requests_in_flight_max = count("max-requests-inflight");
    builder.serving.limits.mutating_requests_in_flight_max =
        count("max-mutating-requests-inflight");
    builder.serving.limits.goaway_chance = values.float("goaway-chance");
    builder.serving.limits.request_timeout = values.duration("request-timeout");
    let seconds = u64::try_from(values.int("min-request-timeout")).unwrap_or(0);
    builder.serving.limits.watch_life_min = Duration::from_secs(seconds);
    check_versions(setup);
    feature_gates(setup);
    browsers(setup);
}

fn check_not_negative(setup: &mut Setup<'_>) {
    let values = setup.values;
    let is_negative = |name| values.signed_duration(name).0 < 0;
    let checks = [
        (is_negative("livez-grace-period"), "--livez-grace-period can not be a negative value"),
        (
            values.int("max-requests-inflight") < 0,
            "--max-requests-inflight can not be negative value",
        ),
        (
            values.int("max-mutating-requests-inflight") < 0,
            "--max-mutating-requests-inflight can not be negative value",
        ),
        (is_negative("request-timeout"), "--request-timeout can not be negative value"),
        (
            values.float("goaway-chance") < 0.0
                || values.float("goaway-chance") > GOAWAY_CHANCE_MAX,
            "--goaway-chance can not be less than 0 or greater than 0.02",
        ),
        (values.int("min-request-timeout") < 0, "--min-request-timeout can not be negative value"),
        (
            is_negative("storage-initialization-timeout"),
            "--storage-initialization-timeout can not be negative value",
        ),
        (
            is_negative("shutdown-delay-duration"),
            "--shutdown-delay-duration can not be negative value",
        ),
        (
            is_negative("shutdown-watch-termination-grace-period"),
            "shutdown-watch-termination-grace-period, if provided, can not be a negative value",
        ),
    ];
    for (fails, why) in checks {
        if fails {
            setup.fail(why);
        }
    }
}

fn feature_gates(setup: &mut Setup<'_>) {
    let mut gates = setup.values.list("feature-gates").to_vec();
    gates.retain(|gate| gate != "kube:");
    // Values are read before names.
    for gate in &gates {
        let Some((name, value)) = gate.split_once('=') else { continue };
        if let Err(why) = go_values::boolean(value) {
            let name = name.strip_prefix("kube:").unwrap_or(name);
            let why = format!("invalid value of {name}={value}, err: {why}");
            return setup.fail_at(Step::Versions, why);
        }
    }
    let other = gates.iter().find_map(|gate| {
        let (component, _) = gate.split_once(':')?;
        (component != "kube").then_some(component)
    });
    if let Some(other) = other {
        return setup.fail_at(Step::Versions, format!("component not registered: {other}"));
    }
    match (keelson::feature_gates::parse(&gates), setup.face) {
        (Ok(features), _) => setup.builder.apis.features = features,
        (Err(why), Face::Serve) => setup.fail(format!("--feature-gates: {why}")),
        (Err(why), Face::KubeApiserver) => setup.fail_at(Step::Versions, why.to_string()),
    }
}

fn check_versions(setup: &mut Setup<'_>) {
    let values = setup.values;
    for (flag, known) in
        [("emulated-version", &[OWN_VERSION][..]), ("min-compatibility-version", &EMULATED[..])]
    {
        match version(values.list(flag)) {
            Err(why) => setup.fail_at(Step::Versions, why),
            Ok(Some(version)) if !EMULATED.contains(&version.as_str()) => {
                let why = match flag {
                    "emulated-version" => {
                        format!("emulation version {version} is not between [1.33, 1.36.0]")
                    }
                    _ => format!(
                        "minCompatibilityVersion version {version} is not between [1.33, 1.36]"
                    ),
                };
                setup.fail(why);
                // The oldest version that is taken is the default of the other flag.
                if flag == "emulated-version" && is_older(&version) {
                    setup.fail(format!(
                        "minCompatibilityVersion version 1.33 is not between [1.33, {version}]"
                    ));
                }
            }
            Ok(Some(version)) if !known.contains(&version.as_str()) => setup.fail(format!(
                "--{flag}: {version:?} is not 1.36: older versions are not emulated"
            )),
            Ok(_) => {}
        }
    }
    for (flag, option) in [
        ("emulation-forward-compatible", "EmulationForwardCompatible"),
        ("runtime-config-emulation-forward-compatible", "RuntimeConfigEmulationForwardCompatible"),
    ] {
        if values.bool(flag) {
            setup.fail(format!(
                "ServerRunOptions.{option} cannot be set to true if the emulation version is the \
                 same as the binary version"
            ));
        }
    }
}

/// Returns whether a version is older than those that kube-apiserver emulates.
fn is_older(version: &str) -> bool {
    let number = |text: &str| {
        let (major, minor) = text.split_once('.')?;
        Some((major.parse::<u32>().ok()?, minor.parse::<u32>().ok()?))
    };
    number(version) < number(EMULATED[0])
}

/// Returns the version in items such as `1.36` and `kube=1.36`, if there is one, without a letter
/// before it.
fn version(items: &[String]) -> Result<Option<String>, String> {
    let mut found: Option<&str> = None;
    for item in items {
        let (component, version) = item.split_once('=').unwrap_or(("kube", item));
        if let Some(other) = found {
            return Err(format!("duplicate version flag, kube={other} and {component}={version}"));
        }
        if component != "kube" {
            return Err(format!("component not registered: {component}"));
        }
        let plain = version.strip_prefix('v').unwrap_or(version);
        let numbers: Vec<_> = plain.split('.').map(str::parse::<u32>).collect();
        if numbers.len() < 2 || numbers.iter().any(Result::is_err) {
            return Err(format!("could not parse {version:?} as version"));
        }
        if numbers.len() > 2 {
            return Err(format!("patch version not allowed, got: kube={version}"));
        }
        found = Some(version);
    }
    Ok(found.map(|version| version.strip_prefix('v').unwrap_or(version).to_owned()))
}

/// The headers for browsers.
fn browsers(setup: &mut Setup<'_>) {
    let values = setup.values;
    match CrossOrigins::new(values.list("cors-allowed-origins")) {
        Ok(origins) => setup.builder.serving.browsers.origins = origins,
        Err(reasons) => {
            for why in reasons {
                // Go says where such an error comes from.
                let (what, reason) = why.split_once(": ").unwrap_or((&why, ""));
                let of_go =
                    if reason.contains("does not pin") { "" } else { "error parsing regexp: " };
                setup.fail(format!("--cors-allowed-origins {what}: {of_go}{reason}"));
            }
        }
    }
    let directives = values.list("strict-transport-security-directives");
    for directive in directives {
        let age = directive.split_once('=').filter(|(_, seconds)| !seconds.contains('='));
        if directive.trim().is_empty() {
            setup.fail("empty value in strict-transport-security-directives");
        } else if directive != "includeSubDomains"
            && directive != "preload"
            && age.is_none_or(|(name, _)| name != "max-age")
        {
            setup.fail(
                "--strict-transport-security-directives invalid, allowed values: \
                 max-age=expireTime, includeSubDomains, preload. see \
                 https://tools.ietf.org/html/rfc6797#section-6.1 for more information",
            );
        }
    }
    if !directives.is_empty() {
        setup.builder.serving.browsers.transport_security = Some(directives.join("; "));
    }
}
