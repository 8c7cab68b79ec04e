//! Misc flags: services, kubelets, proxies, events.

use crate::flags::go_files;
use crate::flags::pflag::Values;
use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Face, Flag, Group, Kind};
use keelson::KubeletOptions;
use keelson_meta::Feature;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::path::Path;

const NODES_SAY_PORTS: &str = "each node says its port; without it, 10250 is taken";
const NO_TIMEOUT: &str = "kube-apiserver does not use it either: connecting takes 30 s at most";
const ALWAYS_REJECTED: &str = "they are always rejected";
const COORDINATED: &str = "no coordinated leaders are elected";
const PEERS: &str = "requests are not proxied to other kube-apiservers";

/// The group.
pub const GROUP: Group = Group {
    title: "Misc",
    flags: &[
        Flag::new(
            "aggregator-reject-forwarding-redirect",
            Kind::Bool,
            "true",
            "Whether redirects of extension API servers are rejected.",
        )
        .accepted(ALWAYS_REJECTED),
        Flag::new(
            "allow-privileged",
            Kind::Bool,
            "false",
            "Whether pods may have privileged containers.",
        )
        .in_serve("true"),
        Flag::new("apiserver-count", Kind::Int, "1", "Number of servers of the cluster.")
            .accepted("each server maintains its own endpoint")
            .deprecated("apiserver-count is deprecated and will be removed in a future version.")
            .hidden(),
        Flag::new(
            "coordinated-leadership-lease-duration",
            Kind::Duration,
            "15s",
            "Duration of the lease of a coordinated leader.",
        )
        .accepted(COORDINATED),
        Flag::new(
            "coordinated-leadership-renew-deadline",
            Kind::Duration,
            "10s",
            "Deadline for renewing that lease.",
        )
        .accepted(COORDINATED),
        Flag::new(
            "coordinated-leadership-retry-period",
            Kind::Duration,
            "2s",
            "Period of the attempts to renew that lease.",
        )
        .accepted(COORDINATED),
        Flag::new(
            "enable-aggregator-routing",
            Kind::Bool,
            "false",
            "Whether services of webhooks are reached at their endpoints instead of their \
             ClusterIP.",
        ),
        Flag::new(
            "enable-logs-handler",
            Kind::Bool,
            "false",
            "Whether /logs serves the files of /var/log.",
        )
        .accepted("files of the host are never served")
        .deprecated("Log handler functionality is deprecated"),
        Flag::new(
            "endpoint-reconciler-type",
            Kind::Text,
            "lease",
            "How the endpoints of the service kubernetes are maintained: lease or none (not at \
             all). master-count means lease.",
        ),
        Flag::new(
            "event-ttl",
            Kind::Duration,
            "1h0m0s",
            "Time to live of events after their last write; 0 keeps them forever.",
        ),
        Flag::new(
            "kubelet-certificate-authority",
            Kind::Text,
            "",
            "CA bundle for the certificates of kubelets; without it they are not verified.",
        ),
        Flag::new("kubelet-client-certificate", Kind::Text, "", "Client certificate for kubelets."),
        Flag::new(
            "kubelet-client-key",
            Kind::Text,
            "",
            "Key of the client certificate for kubelets.",
        ),
        Flag::new("kubelet-port", Kind::Uint, "10250", "Port of kubelets.")
            .accepted(NODES_SAY_PORTS)
            .deprecated("kubelet-port is deprecated and will be removed.")
            .hidden(),
        Flag::new(
            "kubelet-preferred-address-types",
            Kind::List,
            "Hostname,InternalDNS,InternalIP,ExternalDNS,ExternalIP",
            "Types of node addresses at which kubelets are reached, in this order.",
        ),
        Flag::new(
            "kubelet-read-only-port",
            Kind::Uint,
            "10255",
            "Port of kubelets without authentication.",
        )
        .accepted(NODES_SAY_PORTS)
        .deprecated("kubelet-read-only-port is deprecated and will be removed.")
        .hidden(),
        Flag::new("kubelet-timeout", Kind::Duration, "5s", "Timeout of requests to kubelets.")
            .accepted(NO_TIMEOUT),
        Flag::new(
            "kubernetes-service-node-port",
            Kind::Int,
            "0",
            "Node port of the service kubernetes, which is then of type NodePort; 0 means none. A \
             service that exists is not changed.",
        ),
        Flag::new(
            "max-connection-bytes-per-sec",
            Kind::Int,
            "0",
            "Most bytes a second of an upgraded connection (exec, attach, port-forward, proxy), in each \
             direction; 0 means no limit.",
        ),
        Flag::new(
            "peer-advertise-ip",
            Kind::Text,
            "",
            "Address of this server for other kube-apiservers.",
        )
        .accepted(PEERS),
        Flag::new(
            "peer-advertise-port",
            Kind::Text,
            "",
            "Port of this server for other kube-apiservers.",
        )
        .accepted(PEERS),
        Flag::new(
            "peer-ca-file",
            Kind::Text,
            "",
            "CA bundle for the certificates of other kube-apiservers.",
        )
        .accepted(PEERS),
        Flag::new(
            "proxy-client-cert-file",
            Kind::Text,
            "",
            "Client certificate for extension API servers.",
        ),
        Flag::new(
            "proxy-client-key-file",
            Kind::Text,
            "",
            "Key of the client certificate for extension API servers.",
        ),
        Flag::new(
            "service-account-signing-endpoint",
            Kind::Text,
            "",
            "Unix socket of an external signer, which signs service account tokens and publishes \
             the keys that verify them: a path, or @name in the abstract namespace.",
        ),
        Flag::new(
            "service-account-signing-key-file",
            Kind::Text,
            "",
            "Key that signs service account tokens.",
        ),
        Flag::new(
            "service-cluster-ip-range",
            Kind::Text,
            "",
            "Range of ClusterIPs: one range, or one of each IP family. Empty means 10.0.0.0/24.",
        ),
        Flag::new(
            "service-node-port-range",
            Kind::Ports,
            "30000-32767",
            "Range of node ports of services: 30000-32767, 30000+2767 or one port.",
        ),
    ],
};

const RANGE: &str = "service-cluster-ip-range";
const RANGE_DEFAULT: &str = "10.0.0.0/24";
/// Bits for hosts in a range: more would need too many objects for allocated addresses.
const HOST_BITS_MAX: [u8; 2] = [20, 64];
/// Bits for hosts in a range of kube-apiserver.
const HOST_BITS_MIN: u8 = 3;

/// Checks the flags and applies them.
pub fn apply(setup: &mut Setup<'_>) {
    let values = setup.values;
    setup.builder.storage.event_ttl = setup.duration("event-ttl");
    let builder = &mut *setup.builder;
    builder.far_side.aggregator_routing = values.bool("enable-aggregator-routing");
    builder.apis.allows_privileged = values.bool("allow-privileged");
    if let Ok(ports) = values.text("service-node-port-range").parse() {
        builder.network.node_ports = ports;
    }
    match values.text("endpoint-reconciler-type") {
        "none" => builder.network.publishes_endpoint = false,
        "lease" | "master-count" | "" => {}
        other => {
            setup.fail_at(Step::Endpoints, format!("Reconciler not implemented: {other}"));
        }
    }
    // As upstream, a negative number is no limit either.
    let bytes = u64::try_from(values.int("max-connection-bytes-per-sec")).unwrap_or(0);
    setup.builder.serving.limits.connection_bytes_per_second_max = NonZeroU64::new(bytes);
    check_leadership(setup);
    service_ranges(setup);
    service_node_port(setup);
    if values.is_given("apiserver-count") && values.int("apiserver-count") <= 0 {
        setup.fail(format!(
            "--apiserver-count should be a positive number, but value '{}' provided",
            values.int("apiserver-count")
        ));
    }
    let certificate = values.path("kubelet-client-certificate");
    setup.builder.far_side.kubelets = KubeletOptions {
        certificate_authority: values.path("kubelet-certificate-authority"),
        client_certificate: certificate.zip(values.path("kubelet-client-key")),
        address_types: values.list("kubelet-preferred-address-types").to_vec(),
    };
    let certificate = values.path("proxy-client-cert-file");
    setup.builder.far_side.proxy_client_certificate =
        certificate.zip(values.path("proxy-client-key-file"));
    if setup.face == Face::KubeApiserver {
        return;
    }
    for flag in [
        "kubelet-certificate-authority",
        "kubelet-client-certificate",
        "kubelet-client-key",
        "proxy-client-cert-file",
        "proxy-client-key-file",
    ] {
        let path = values.text(flag);
        if let Some(error) = std::fs::metadata(Path::new(path)).err().filter(|_| !path.is_empty()) {
            setup.fail(format!("--{flag}: {path}: {error}"));
        }
    }
}

/// Checks the files of keys and certificates in the words of kube-apiserver.
pub fn check_files(setup: &mut Setup<'_>) {
    let values = setup.values;
    let [certificate, key] =
        ["proxy-client-cert-file", "proxy-client-key-file"].map(|name| values.text(name));
    if !certificate.is_empty()
        && !key.is_empty()
        && let Err(why) = go_files::serving_pair("aggregator-proxy-cert", certificate, key)
    {
        setup.fail_at(Step::ProxyClient, why);
    }
    let peers = setup.builder.apis.features.is_on(Feature::UnknownVersionInteroperabilityProxy);
    if let Some(path) = values.some_text("peer-ca-file").filter(|_| peers) {
        if certificate.is_empty() {
            let why = "error building peer proxy handler, proxy-cert-file not specified";
            setup.fail_at(Step::Peers, why);
        } else if let Err(why) = go_files::read(path) {
            setup.fail_at(Step::Peers, format!("failed to create proxy transport: {why}"));
        }
    }
    if let Err(why) = check_kubelets(values) {
        setup.fail_at(Step::Kubelets, format!("problem initializing API group \"\": {why}"));
    }
    let Some(path) = values.some_text("service-account-signing-key-file") else { return };
    let checked = go_files::read(path).and_then(|pem| {
        let has_key = go_files::blocks(&pem).iter().any(|name| name.ends_with("PRIVATE KEY"));
        has_key.then_some(()).ok_or_else(|| {
            format!(
                "error reading private key file {path}: data does not contain a valid RSA or ECDSA \
                 private key"
            )
        })
    });
    if let Err(why) = checked {
        let why = format!("failed to parse service-account-issuer-key-file: {why}");
        setup.fail_at(Step::SigningKey, why);
    }
}

fn check_kubelets(values: &Values) -> Result<(), String> {
    if let Some(path) = values.some_text("kubelet-certificate-authority") {
        let pem = go_files::read(path)?;
        if !pem.is_empty() && !go_files::blocks(&pem).iter().any(|name| name == "CERTIFICATE") {
            return Err(
                "unable to load root certificates: unable to parse bytes as PEM block".to_owned()
            );
        }
    }
    for flag in ["kubelet-client-certificate", "kubelet-client-key"] {
        values.some_text(flag).map_or(Ok(()), |path| go_files::read(path).map(drop))?;
    }
    Ok(())
}

fn check_leadership(setup: &mut Setup<'_>) {
    let duration = |what: &str| match what {
        "lease-duration" => setup.values.signed_duration("coordinated-leadership-lease-duration"),
        "renew-deadline" => setup.values.signed_duration("coordinated-leadership-renew-deadline"),
        _ => setup.values.signed_duration("coordinated-leadership-retry-period"),
    };
    let pairs = [("lease-duration", "renew-deadline"), ("renew-deadline", "retry-period")];
    let wrong: Vec<_> =
        pairs.into_iter().filter(|(long, short)| duration(long).0 <= duration(short).0).collect();
    for (long, short) in wrong {
        setup.fail(format!(
            "--coordinated-leadership-{long} must be greater than --coordinated-leadership-{short}"
        ));
    }
}

fn service_node_port(setup: &mut Setup<'_>) {
    let number = setup.values.int("kubernetes-service-node-port");
    let port = u16::try_from(number).ok();
    if port.is_none() {
        setup.fail(format!(
            "--kubernetes-service-node-port {number} must be between 0 and 65535, inclusive. If 0, the \
             Kubernetes master service will be of type ClusterIP"
        ));
    }
    let range = setup.builder.network.node_ports;
    if number > 0 && port.is_none_or(|port| !range.contains(port)) {
        setup.fail(format!("kubernetes service node port range {range} doesn't contain {number}"));
    }
    setup.builder.network.kubernetes_node_port = port.filter(|port| *port > 0);
}

fn service_ranges(setup: &mut Setup<'_>) {
    let text = setup.values.text(RANGE);
    let text = if text.is_empty() { RANGE_DEFAULT } else { text };
    let ranges: Vec<&str> = text.split(',').map(str::trim).collect();
    if ranges.len() > 2 {
        setup.fail("--service-cluster-ip-range must not contain more than two entries");
    }
    let mut families = vec![];
    for (number, range) in ranges.iter().enumerate() {
        if setup.face == Face::KubeApiserver
            && let Err(why) = check_as_upstream(range, number)
        {
            setup.fail_at(Step::ServiceRanges, why);
            continue;
        }
        match check_range(range) {
            Ok(address) => families.push(address),
            Err(why) => {
                families
                    .extend(range.split('/').next().and_then(|base| base.parse::<IpAddr>().ok()));
                setup.fail_at(Step::Own, why);
            }
        }
    }
    if let [first, second] = families[..]
        && first.is_ipv4() == second.is_ipv4()
    {
        setup.fail(
            "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP \
             family",
        );
    }
    let advertised = setup.builder.network.advertise;
    let is_shown = setup.builder.network.publishes_endpoint && setup.face == Face::KubeApiserver;
    // The service `kubernetes` has endpoints of the family of its ClusterIP.
    if let (Some(first), Some(advertised)) = (families.first(), advertised.filter(|_| is_shown))
        && first.is_ipv4() != advertised.is_ipv4()
    {
        setup.fail(format!(
            "service IP family \"{}\" must match public address family \"{advertised}\"",
            ranges[0]
        ));
    }
    setup.builder.network.service_ranges = ranges.into_iter().map(str::to_owned).collect();
}

/// Checks a range as kube-apiserver does. It has one or two.
fn check_as_upstream(range: &str, number: usize) -> Result<(), String> {
    let parts = range.split_once('/').and_then(|(base, bits)| {
        let base: IpAddr = base.parse().ok()?;
        let size = if base.is_ipv4() { 32 } else { 128 };
        bits.parse::<u8>().ok().and_then(|bits| u8::checked_sub(size, bits))
    });
    let Some(host_bits) = parts else {
        let what = if number == 0 { "a valid cidr" } else { "an ip net" };
        return Err(format!("{RANGE}[{number}] is not {what}"));
    };
    if host_bits < HOST_BITS_MIN {
        let which = if number == 0 { "primary" } else { "secondary" };
        return Err(format!(
            "error determining service IP ranges for {which} service cidr: the service cluster IP \
             range must be at least 8 IP addresses"
        ));
    }
    Ok(())
}

/// Returns the first address of a range.
fn check_range(range: &str) -> Result<IpAddr, String> {
    let invalid = || format!("--{RANGE}: {range:?} is not a range like {RANGE_DEFAULT}");
    let (base, bits) = range.split_once('/').ok_or_else(invalid)?;
    let base: IpAddr = base.parse().map_err(|_| invalid())?;
    let bits: u8 = bits.parse().map_err(|_| invalid())?;
    let [v4, v6] = HOST_BITS_MAX;
    let (bits_max, host_bits_max) = if base.is_ipv4() { (32, v4) } else { (128, v6) };
    if bits > bits_max || bits_max - bits < 2 || bits_max - bits > host_bits_max {
        return Err(format!("--{RANGE}: {range:?} must leave 2 to {host_bits_max} bits for hosts"));
    }
    Ok(base)
}
