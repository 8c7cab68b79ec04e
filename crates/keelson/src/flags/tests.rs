//! Tests of all flags together: the list of them, their values, and command lines of programs that
//! start kube-apiserver.

use super::pflag::Values;
use super::table::{Effect, Face, Flag, Kind};
use super::{configure as configured, groups, help};
use keelson::{Builder, StorageMediaType};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;

/// What every start needs.
const REQUIRED: [&str; 4] = [
    "--etcd-servers=http://127.0.0.1:2379",
    "--service-account-issuer=https://issuer",
    "--service-account-key-file=/nowhere/sa.pub",
    "--service-account-signing-key-file=/nowhere/sa.key",
];
/// Set to write the files that are compared instead.
const WRITE: &str = "KEELSON_WRITE_FLAGS";

fn read(face: Face, arguments: &[&str]) -> Result<Values, String> {
    let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    configured::read(face, arguments).map_err(|error| error.to_string())
}

/// Returns the configuration of kube-apiserver with these flags beside [`REQUIRED`].
fn configure(arguments: &[&str]) -> Result<Builder, String> {
    let values = read(Face::KubeApiserver, &[&REQUIRED, arguments].concat())?;
    let configured = configured::configure(Face::KubeApiserver, &values);
    configured.map(|configured| configured.builder).map_err(|errors| errors.join("; "))
}

fn flags() -> impl Iterator<Item = &'static Flag> {
    groups::of(Face::KubeApiserver).into_iter().flat_map(|group| group.flags)
}

/// Compares a file of this crate with what it should be.
fn check_file(path: &str, expected: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, expected).expect("the file is written");
    }
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == expected, "{} is out of date; {WRITE}=1 writes it", path.display());
}

#[test]
fn the_list_of_flags_says_what_each_does() {
    let mut lists: [Vec<String>; 3] = Default::default();
    for flag in flags() {
        let type_name = flag.kind.type_name();
        let hidden = if flag.is_hidden { " (hidden)" } else { "" };
        let line = format!("{} {type_name} {:?}{hidden}", flag.name, flag.default);
        let (list, why) = match flag.effect {
            Effect::Served => (0, String::new()),
            Effect::Accepted(why) => (1, format!(": {why}")),
            Effect::Refused(what) => (2, format!(": {what}")),
        };
        lists[list].push(format!("{line}{why}"));
    }
    let mut text = String::new();
    for (title, mut lines) in ["served", "accepted", "refused"].into_iter().zip(lists) {
        lines.sort();
        let _ = writeln!(text, "[{title}] {}\n{}\n", lines.len(), lines.join("\n"));
    }
    check_file("src/flags/flags.txt", &text);
}

#[test]
fn the_page_of_flags_is_current() {
    check_file("../../docs/flags.md", &help::markdown());
}

#[test]
fn names_are_unique_and_in_order_and_defaults_are_valid() {
    for face in [Face::Serve, Face::KubeApiserver] {
        let mut seen = BTreeSet::new();
        for group in groups::of(face) {
            assert!(group.flags.is_sorted_by_key(|flag| flag.name), "{}", group.title);
            for flag in group.flags {
                assert!(seen.insert(flag.name), "{}", flag.name);
                // Panics when the default is invalid.
                flag.default_value(face);
            }
        }
    }
}

#[test]
fn every_served_flag_is_read() {
    let values = read(Face::KubeApiserver, &REQUIRED).expect("flags");
    configured::configure(Face::KubeApiserver, &values).map(drop).expect("a configuration");
    let values_of_serve = read(Face::Serve, &["--data-dir=/nowhere"]).expect("flags");
    configured::configure(Face::Serve, &values_of_serve).map(drop).expect("a configuration");
    let mut asked = values.asked();
    asked.extend(values_of_serve.asked());
    // These are read before or after the configuration is made.
    let elsewhere = ["help", "version", "v", "kubeconfig", "log-format"];
    // These belong to one that is empty.
    let dependent = |name: &str| name.starts_with("oidc-");
    let all = groups::of(Face::Serve).into_iter().flat_map(|group| group.flags);
    let unread: Vec<&str> = all
        .filter(|flag| flag.effect == Effect::Served && !asked.contains(flag.name))
        .map(|flag| flag.name)
        .filter(|name| !elsewhere.contains(name) && !dependent(name))
        .collect();
    assert!(unread.is_empty(), "{unread:?}");
}

#[test]
fn an_invalid_value_of_each_flag_is_refused_in_the_words_of_pflag() {
    for flag in flags() {
        let (value, why) = match flag.kind {
            Kind::Bool | Kind::Version => {
                ("x", "strconv.ParseBool: parsing \\\"x\\\": invalid syntax")
            }
            Kind::Int | Kind::Int32List => {
                ("x", "strconv.ParseInt: parsing \\\"x\\\": invalid syntax")
            }
            Kind::Uint | Kind::Level => {
                ("x", "strconv.ParseUint: parsing \\\"x\\\": invalid syntax")
            }
            Kind::Float | Kind::Float32 => {
                ("x", "strconv.ParseFloat: parsing \\\"x\\\": invalid syntax")
            }
            Kind::Duration => ("x", "time: invalid duration \\\"x\\\""),
            Kind::Ip => ("x", "failed to parse IP: \\\"x\\\""),
            Kind::CertificatesAndKeys => {
                ("x", "expected comma separated certificate and key file paths")
            }
            Kind::Claims => ("x", "malformed pair, expect string=string"),
            Kind::Labels => ("x", "x must be formatted as key=value"),
            Kind::Patterns => ("x", "\\\"x\\\" does not have the pattern=N format"),
            // Every text is valid here, or the words are those of other crates.
            Kind::Text | Kind::List | Kind::Array | Kind::Config | Kind::Gates => continue,
            Kind::Ports | Kind::Quantity => continue,
        };
        let name = flag
            .letter()
            .map_or(format!("--{}", flag.name), |letter| format!("-{letter}, --{}", flag.name));
        let expected = format!(
            "invalid argument \"{value}\" for \"{name}\" flag: {}",
            why.replace("\\\"", "\"")
        );
        let error = read(Face::KubeApiserver, &[&format!("--{}={value}", flag.name)]);
        assert_eq!(error.map(drop), Err(expected));
    }
}

#[test]
fn command_lines_are_read_as_pflag_reads_them() {
    let values = read(
        Face::KubeApiserver,
        &[
            "--allow-privileged",
            "--secure_port",
            "1",
            "--secure-port=2",
            "--authorization-mode=Node,RBAC",
            "--authorization-mode",
            "ABAC",
            "--service-account-issuer=a,b",
            "--service-account-issuer=c",
            "--profiling=false",
            "--runtime-config=a/v1=true,b/v1",
            "--runtime-config=a/v1=false",
            "-v3",
            "word",
            "--",
            "--not-a-flag",
        ],
    )
    .expect("flags");
    assert!(values.bool("allow-privileged") && !values.bool("profiling"));
    assert_eq!(values.int("secure-port"), 2);
    assert_eq!(values.list("authorization-mode"), ["Node", "RBAC", "ABAC"]);
    assert_eq!(values.list("service-account-issuer"), ["a,b", "c"]);
    assert_eq!(values.int("v"), 3);
    assert_eq!(values.words, ["word", "--not-a-flag"]);
    let config: Vec<_> = values.pairs("runtime-config").iter().collect();
    assert_eq!(format!("{config:?}"), r#"[("a/v1", "false"), ("b/v1", "")]"#);
    for (argument, verbosity) in [("-v=4", 4), ("--v=5", 5), ("-v", 6)] {
        let arguments: &[&str] = if argument == "-v" { &["-v", "6"] } else { &[argument] };
        let values = read(Face::KubeApiserver, arguments).expect("flags");
        assert_eq!(values.int("v"), verbosity);
    }
    let deprecated = read(Face::KubeApiserver, &["--kubelet-port=1"]).expect("flags");
    let warning =
        "Flag --kubelet-port has been deprecated, kubelet-port is deprecated and will be removed.";
    assert_eq!(deprecated.warnings, [warning]);
}

#[test]
fn wrong_command_lines_are_refused_in_the_words_of_pflag() {
    for (argument, expected) in [
        ("--nope", "unknown flag: --nope"),
        ("--no_pe=1", "unknown flag: --no_pe"),
        ("-x", "unknown shorthand flag: 'x' in -x"),
        ("--secure-port", "flag needs an argument: --secure-port"),
        ("-v", "flag needs an argument: 'v' in -v"),
        ("--=1", "bad flag syntax: --=1"),
        ("---x", "bad flag syntax: ---x"),
        ("--insecure-port=0", "unknown flag: --insecure-port"),
    ] {
        let error = read(Face::KubeApiserver, &[argument]).map(drop);
        assert_eq!(error, Err(expected.to_owned()), "{argument}");
    }
}

#[test]
fn flags_that_contradict_each_other_are_all_reported() {
    let values = read(
        Face::KubeApiserver,
        &["--secure-port=0", "--request-timeout=-1s", "--etcd-certfile=a"],
    );
    let errors = configured::configure(Face::KubeApiserver, &values.expect("flags"))
        .map(drop)
        .expect_err("they are wrong");
    assert_eq!(
        errors,
        [
            "--request-timeout can not be negative value",
            "--etcd-servers must be specified",
            "--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
            "service-account-issuer is a required flag",
            "either `--service-account-key-file` or `--service-account-signing-endpoint` must be set",
            "--service-account-signing-key-file and --service-account-issuer are required flags",
        ]
    );
}

#[test]
fn single_flags_are_refused_in_the_words_of_kube_apiserver() {
    for (arguments, expected) in [
        (
            &["--goaway-chance=0.5"][..],
            "--goaway-chance can not be less than 0 or greater than 0.02",
        ),
        (&["--livez-grace-period=-1s"], "--livez-grace-period can not be a negative value"),
        (&["--max-requests-inflight=-1"], "--max-requests-inflight can not be negative value"),
        (
            &["--storage-backend=etcd2"],
            "--storage-backend invalid, allowed values: etcd3. If not specified, it will default to \
             'etcd3'",
        ),
        (
            &["--admission-control=Priority", "--enable-admission-plugins=Priority"],
            "admission-control and enable-admission-plugins/disable-admission-plugins flags are \
             mutually exclusive",
        ),
        (&["--enable-admission-plugins=No"], "enable-admission-plugins plugin \"No\" is unknown"),
        (&["--authorization-mode=No"], "authorization-mode \"No\" is not a valid mode"),
        (&["--runtime-config=apps=true"], "runtime-config invalid key apps"),
        (&["--feature-gates=Nope=true", "--secure-port=0"], "unrecognized feature gate: Nope"),
        (&["--service-cluster-ip-range=x"], "service-cluster-ip-range[0] is not a valid cidr"),
        (
            &["--authorization-policy-file=f"],
            "cannot specify --authorization-policy-file without mode ABAC",
        ),
        (
            &["--runtime-config=api/all=false", "--enable-priority-and-fairness=false"],
            "invalid runtime-config with only api/all=false",
        ),
        (
            &["--runtime-config=api/all=false"],
            "--runtime-config=api/all=false conflicts with --enable-priority-and-fairness=true; \
             invalid runtime-config with only api/all=false",
        ),
        (&["--tls-min-version=1.2"], "unknown tls version \"1.2\""),
        (
            &["--coordinated-leadership-lease-duration=1s"],
            "--coordinated-leadership-lease-duration must be greater than \
             --coordinated-leadership-renew-deadline",
        ),
        (
            &["--oidc-client-id=x"],
            "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
        ),
        (
            &["--service-account-jwks-uri=http://x"],
            "service-account-jwks-uri requires https scheme, parsed as: http://x",
        ),
        (
            &["--apiserver-count=0"],
            "--apiserver-count should be a positive number, but value '0' provided",
        ),
        (
            &["--emulated-version=1.35"],
            "--emulated-version: \"1.35\" is not 1.36: older versions are not emulated",
        ),
        (&["--logging-format=xml"], "format: Invalid value: \"xml\": Unsupported log format"),
        (
            &["--encryption-provider-config=/absent"],
            "error while parsing file: error while loading file: error reading encryption provider \
             configuration file \"/absent\": open /absent: no such file or directory",
        ),
    ] {
        assert_eq!(configure(arguments).map(drop), Err(expected.to_owned()), "{arguments:?}");
    }
}

#[test]
fn the_node_port_of_the_service_kubernetes_is_in_the_range_of_node_ports() {
    let port = |arguments: &[&str]| {
        configure(arguments).map(|builder| builder.network.kubernetes_node_port).expect("flags")
    };
    assert_eq!(port(&[]), None);
    assert_eq!(port(&["--kubernetes-service-node-port=0"]), None);
    assert_eq!(port(&["--kubernetes-service-node-port=30443"]), Some(30443));
    let other = ["--service-node-port-range=443-1000", "--kubernetes-service-node-port=443"];
    assert_eq!(port(&other), Some(443));
    let outside = "kubernetes service node port range 30000-32767 doesn't contain";
    let refused = |port| configure(&[&format!("--kubernetes-service-node-port={port}")]).map(drop);
    assert_eq!(refused(443), Err(format!("{outside} 443")));
    let why = "--kubernetes-service-node-port 65536 must be between 0 and 65535, inclusive. If 0, the \
               Kubernetes master service will be of type ClusterIP";
    assert_eq!(refused(65536), Err(format!("{why}; {outside} 65536")));
}

#[test]
fn the_bytes_of_upgraded_connections_can_be_limited() {
    for (text, expected) in
        [("0", None), ("-1", None), ("1", Some(1)), ("1000000", Some(1_000_000))]
    {
        let flag = format!("--max-connection-bytes-per-sec={text}");
        let limits = configure(&[&flag]).expect("flags").serving.limits;
        let limit = limits.connection_bytes_per_second_max.map(std::num::NonZeroU64::get);
        assert_eq!(limit, expected, "{text}");
    }
}

#[test]
fn the_encoding_of_stored_objects_can_be_chosen() {
    let media_type = |text: &str| {
        let configured = configure(&[&format!("--storage-media-type={text}")]);
        configured.map(|builder| builder.storage.media_type)
    };
    assert_eq!(
        configure(&[]).map(|builder| builder.storage.media_type),
        Ok(StorageMediaType::Protobuf)
    );
    for (text, expected) in [
        ("application/vnd.kubernetes.protobuf", StorageMediaType::Protobuf),
        ("application/json", StorageMediaType::Json),
        ("", StorageMediaType::Json),
        ("application/yaml", StorageMediaType::Yaml),
    ] {
        assert_eq!(media_type(text), Ok(expected), "{text}");
    }
    let why = "--storage-media-type \"application/cbor\" invalid, allowed values: application/json, \
               application/vnd.kubernetes.protobuf, application/yaml";
    assert_eq!(media_type("application/cbor"), Err(why.to_owned()));
}

#[test]
fn single_resources_can_be_in_other_clusters() {
    let flag = "--etcd-servers-overrides=/events#http://a:1;http://b:2,apps/*#http://c:3";
    let etcd = configure(&[flag]).expect("flags").storage.etcd.expect("a cluster");
    let expected = ["/events#http://a:1;http://b:2", "apps/*#http://c:3"];
    assert_eq!(etcd.overrides, expected.map(|text| text.parse().expect("an override")));
    let why = "--etcd-servers-overrides invalid, must be of format: group/resource#servers, where \
               servers are URLs, semicolon separated";
    for text in ["x", "/events", "/events#", "/events#a;", "a/b/c#d", "/events#a#b"] {
        let refused = configure(&[&format!("--etcd-servers-overrides={text}")]).map(drop);
        assert_eq!(refused, Err(why.to_owned()), "{text}");
    }
    let many = |clusters: usize| {
        let overrides = (0..9).map(|n| format!("/r{n}#http://a:{}", n % clusters));
        let flag = overrides.collect::<Vec<_>>().join(",");
        configure(&[&format!("--etcd-servers-overrides={flag}")]).map(drop)
    };
    assert_eq!(many(8), Ok(()));
    assert_eq!(many(9), Err("--etcd-servers-overrides: more than 8 clusters".to_owned()));
    let values = read(Face::Serve, &[flag]).expect("flags");
    let refused = configured::configure(Face::Serve, &values).map(drop);
    let why = "--etcd-servers-overrides must be set with --etcd-servers".to_owned();
    assert_eq!(refused, Err(vec![why]));
}

#[test]
fn a_missing_file_of_proxies_is_refused() {
    let refused = configure(&["--egress-selector-config-file=/absent"]).map(drop);
    let why = "failed to read egress selector config: unable to read egress selector configuration \
               from \"/absent\" [open /absent: no such file or directory]";
    assert_eq!(refused, Err(why.to_owned()));
}

#[test]
fn a_period_of_0_leaves_the_numbers_of_objects_out_of_the_metrics() {
    use keelson_metrics::{Description, Exposition};
    static COUNT: Description = Description::gauge("apiserver_resource_objects", "Objects.", &[]);
    for (period, is_served) in [("1m", true), ("1h", true), ("0", false), ("-1s", false)] {
        let flag = format!("--etcd-count-metric-poll-period={period}");
        let builder = configure(&[&flag]).expect("a valid flag");
        let mut out = Exposition::new(&builder.recording.metrics);
        out.family(&COUNT).value(&[], 1.0);
        assert_eq!(out.finish().contains("apiserver_resource_objects 1"), is_served, "{period}");
    }
}

#[test]
fn the_reported_version_is_that_of_the_flag() {
    let reported = |arguments: &[&str]| {
        configure(arguments).map(|builder| builder.serving.reported_version).expect("flags")
    };
    assert_eq!(reported(&[]), keelson::KUBERNETES_VERSION);
    assert_eq!(reported(&["--version=v1.36.2-mine"]), "v1.36.2-mine");
    assert_eq!(reported(&["--version=v1.36.2-mine", "--version=false"]), "v1.36.2");
}

#[test]
fn garbage_collection_can_be_switched_off() {
    let is_on = |arguments: &[&str]| {
        configure(arguments).map(|builder| builder.apis.garbage_collection).expect("flags")
    };
    assert!(is_on(&[]) && is_on(&["--enable-garbage-collector"]));
    assert!(!is_on(&["--enable-garbage-collector=false"]));
}

#[test]
fn a_missing_file_for_traces_is_refused() {
    let why = "failed to read tracing config: unable to read tracing configuration from \
               \"/absent\": open /absent: no such file or directory";
    let refused = configure(&["--tracing-config-file=/absent"]).map(drop);
    assert_eq!(refused, Err(why.to_owned()));
}

#[test]
fn files_of_allowed_labels_are_refused_in_the_words_of_kube_apiserver() {
    let both = ["--allow-metric-labels=a,b=c", "--allow-metric-labels-manifest=/absent"];
    let why = "metrics: Invalid value: {\"allowListMapping\":{\"a,b\":\"c\"},\
               \"allowListMappingManifest\":\"/absent\"}: cannot specify both allowListMapping and \
               allowListMappingManifest";
    assert_eq!(configure(&both).map(drop), Err(why.to_owned()));
    let why = "metrics.allowListMappingManifest: Invalid value: \"/absent\": failed to read allow list \
               manifest: open /absent: no such file or directory";
    assert_eq!(configure(&both[1..]).map(drop), Err(why.to_owned()));
}

#[test]
fn flags_choose_the_metrics_that_are_served() {
    use keelson_metrics::{Description, Exposition};
    static HITS: Description = Description::counter("hits", "[ALPHA] Hits.", &["code"]);
    static OLD: Description = Description::counter("old", "[ALPHA] Old.", &[]);
    let dir = tempfile::tempdir().expect("a folder");
    let manifest = dir.path().join("labels.yaml");
    std::fs::write(&manifest, "hits,code: 200,201\n").expect("a file");
    let manifest = format!("--allow-metric-labels-manifest={}", manifest.display());
    let all = "hits{code=\"200\"} 1\nhits{code=\"404\"} 2\n";
    let some = "hits{code=\"200\"} 1\nhits{code=\"unexpected\"} 2\n";
    for (flag, expected) in [
        ("--v=0", all.to_owned()),
        ("--disabled-metrics=hits,absent", String::new()),
        ("--allow-metric-labels=hits,code=200,201", some.to_owned()),
        (&manifest, some.to_owned()),
        ("--show-hidden-metrics-for-version=1.35", format!("{all}old 3\n")),
    ] {
        let builder = configure(&[flag]).expect("a valid flag");
        let mut out = Exposition::new(&builder.recording.metrics);
        let mut hits = out.family(&HITS);
        hits.value(&["200"], 1.0);
        hits.value(&["404"], 2.0);
        drop(hits);
        out.hidden_family(&OLD).value(&[], 3.0);
        let text = out.finish();
        let samples: String = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(samples, expected, "{flag}");
    }
}

#[test]
fn flags_reach_the_server() {
    let builder = configure(&[
        "--request-timeout=5s",
        "--min-request-timeout=7",
        "--http2-max-streams-per-connection=9",
        "--shutdown-delay-duration=2s",
        "--shutdown-watch-termination-grace-period=3s",
        "--endpoint-reconciler-type=none",
        "--external-hostname=api.example.com",
        "--event-ttl=0",
        "--etcd-prefix=/other",
        "--lease-reuse-duration-seconds=10",
        "--storage-initialization-timeout=9s",
        "--permit-port-sharing",
        "--strict-transport-security-directives=max-age=1,preload",
        "--default-not-ready-toleration-seconds=11",
        "--tls-sni-cert-key=a.crt, a.key : *.example.com,b",
    ])
    .expect("a configuration");
    let seconds = |duration: std::time::Duration| duration.as_secs();
    assert_eq!(seconds(builder.serving.limits.request_timeout), 5);
    assert_eq!(seconds(builder.serving.limits.watch_life_min), 7);
    assert_eq!(builder.serving.limits.http2_streams_max, 9);
    assert_eq!(seconds(builder.serving.shutdown_delay), 2);
    assert_eq!(seconds(builder.serving.limits.watch_end_spread), 3);
    assert!(
        !builder.network.publishes_endpoint
            && builder.serving.shares_port
            && builder.storage.event_ttl.is_zero()
    );
    assert_eq!(builder.serving.external_host.as_deref(), Some("api.example.com"));
    let etcd = builder.storage.etcd.expect("etcd");
    assert_eq!((etcd.prefix.as_str(), seconds(etcd.lease_reuse)), ("/other", 10));
    assert_eq!(seconds(etcd.start_timeout), 9);
    assert_eq!(builder.serving.browsers.transport_security.as_deref(), Some("max-age=1; preload"));
    assert_eq!(builder.admission.chain.config().not_ready_seconds, 11);
    let named = builder.serving.named_certificates.first().expect("a certificate");
    assert_eq!(named.names, ["*.example.com", "b"]);
    assert_eq!((named.certificate.to_str(), named.key.to_str()), (Some("a.crt"), Some("a.key")));
}

#[test]
fn command_lines_of_other_programs_are_accepted() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("file");
    std::fs::write(&file, "text").expect("a file");
    for (name, list) in [
        ("envtest", include_str!("lists/envtest.txt")),
        ("fabric8", include_str!("lists/fabric8.txt")),
        ("kind", include_str!("lists/kind.txt")),
        ("kubeadm", include_str!("lists/kubeadm.txt")),
        ("kwokctl", include_str!("lists/kwokctl.txt")),
        ("minikube", include_str!("lists/minikube.txt")),
        ("vcluster", include_str!("lists/vcluster.txt")),
    ] {
        // These files must exist.
        let mut list = list.to_owned();
        for file_name in [
            "KUBELET_CLIENT_CERTIFICATE",
            "KUBELET_CLIENT_KEY",
            "PROXY_CLIENT_CERTIFICATE",
            "PROXY_CLIENT_KEY",
            "FRONT_PROXY_CA",
        ] {
            list = list.replace(file_name, file.to_str().expect("a path"));
        }
        let arguments: Vec<&str> = list.lines().collect();
        let values = read(Face::KubeApiserver, &arguments).expect(name);
        let configured = configured::configure(Face::KubeApiserver, &values).map(drop);
        assert_eq!(configured, Ok(()), "{name}");
    }
}

#[test]
fn the_help_has_a_flag_a_line_at_its_start() {
    let help = help::text(Face::KubeApiserver);
    for flag in flags() {
        let shown = help.lines().any(|line| {
            let name = line.trim_start().trim_start_matches("-v, ").trim_start_matches("-h, ");
            name.strip_prefix("--")
                .is_some_and(|name| name.split([' ', '[']).next() == Some(flag.name))
        });
        assert_eq!(shown, !flag.is_hidden, "{}", flag.name);
    }
    assert!(help.starts_with("Serves") && help.contains("\nGeneric flags:\n\n"), "{help}");
}

/// Returns what the audit flags lead to, with a policy of this content.
fn audit(policy: &str, arguments: &[&str]) -> Result<Option<keelson::AuditOptions>, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("policy.yaml");
    std::fs::write(&path, policy).expect("a policy");
    let shown = path.display().to_string();
    let policy = format!("--audit-policy-file={shown}");
    let configured = configure(&[&[policy.as_str()], arguments].concat());
    configured.map(|builder| builder.recording.audit).map_err(|why| why.replace(&shown, "POLICY"))
}

const AUDIT_POLICY: &str =
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n";

/// The messages are those of kube-apiserver 1.36.
#[test]
fn wrong_audit_flags_are_refused_if_they_are_used() {
    let check = |arguments: &str, expected: &str| {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let error = audit(AUDIT_POLICY, &arguments).map(drop);
        assert_eq!(error, Err(expected.to_owned()), "{arguments:?}");
    };
    let positive = "must be a positive number";
    let log = "--audit-log-path=-";
    for (arguments, expected) in [
        (
            "--audit-log-mode=foo",
            "invalid audit log mode foo, allowed modes are \"batch,blocking,blocking-strict\""
                .to_owned(),
        ),
        (
            "--audit-log-mode=batch --audit-log-batch-buffer-size=0",
            format!("invalid audit batch log buffer size 0, {positive}"),
        ),
        (
            "--audit-log-mode=batch --audit-log-batch-max-size=0",
            format!("invalid audit batch log max batch size 0, {positive}"),
        ),
        (
            "--audit-log-mode=batch --audit-log-batch-throttle-enable",
            format!("invalid audit batch log throttle QPS 0, {positive}"),
        ),
        (
            "--audit-log-mode=batch --audit-log-batch-throttle-enable --audit-log-batch-throttle-qps=1",
            format!("invalid audit batch log throttle burst 0, {positive}"),
        ),
        (
            "--audit-log-truncate-max-event-size=0",
            format!("invalid audit truncate log max event size 0, {positive}"),
        ),
        (
            "--audit-log-truncate-max-batch-size=5",
            "invalid audit truncate log max batch size 5, must be greater than max event size \
             (102400)"
                .to_owned(),
        ),
        (
            "--audit-log-version=audit.k8s.io/v1beta1",
            "invalid group version, allowed versions are [\"audit.k8s.io/v1\"]".to_owned(),
        ),
        ("--audit-log-version=a/b/c", "unexpected GroupVersion string: a/b/c".to_owned()),
        (
            "--audit-log-format=x",
            "invalid audit log format x, allowed formats are \"legacy,json\"".to_owned(),
        ),
        ("--audit-log-maxage=-1", "--audit-log-maxage -1 can't be a negative number".to_owned()),
        (
            "--audit-log-maxbackup=-1",
            "--audit-log-maxbackup -1 can't be a negative number".to_owned(),
        ),
        ("--audit-log-maxsize=-1", "--audit-log-maxsize -1 can't be a negative number".to_owned()),
    ] {
        check(&format!("{log} {arguments}"), &expected);
        // Without a log they do not matter.
        assert!(audit(AUDIT_POLICY, &arguments.split(' ').collect::<Vec<_>>()).is_ok());
    }
}

#[test]
fn wrong_audit_webhooks_and_policies_are_refused() {
    let webhook =
        ["--audit-webhook-config-file=x", "--audit-webhook-mode=x", "--audit-webhook-version=z/v1"];
    let refused = audit(AUDIT_POLICY, &webhook).map(drop);
    let why = "invalid audit webhook mode x, allowed modes are \"batch,blocking,blocking-strict\"; \
               invalid group version, allowed versions are [\"audit.k8s.io/v1\"]";
    assert_eq!(refused, Err(why.to_owned()));
    let refused = audit("rules: []", &["--audit-log-path=-"]).map(drop);
    let why = "loading audit policy file: unknown group version field audit.k8s.io/__internal, \
               Kind=Policy in policy: from file POLICY";
    assert_eq!(refused, Err(why.to_owned()));
}

#[test]
fn audit_flags_choose_backends_and_modes() {
    assert!(audit(AUDIT_POLICY, &[]).expect("flags").is_none());
    let unused = configure(&["--audit-log-path=/nowhere/audit.log"]).expect("flags");
    assert!(unused.recording.audit.is_none());
    let options = audit(AUDIT_POLICY, &["--audit-log-path=a.log"]).expect("flags");
    let log = options.expect("an audit").log.expect("a log");
    assert_eq!(log.mode, keelson::AuditMode::Blocking);
    assert_eq!((log.file.rotate_bytes, log.file.days_max), (100 << 20, 366));
    assert!(log.truncation.is_none());
    let webhook = [
        "--audit-webhook-config-file=kubeconfig",
        "--audit-webhook-truncate-enabled",
        "--audit-webhook-batch-initial-backoff=3s",
    ];
    let options = audit(AUDIT_POLICY, &webhook).expect("flags").expect("an audit");
    let webhook = options.webhook.expect("a webhook");
    let batching = keelson::AuditBatching {
        buffer_events_max: 10_000,
        batch_events_max: 400,
        wait: std::time::Duration::from_secs(30),
        throttle: Some((10.0, 15)),
    };
    assert_eq!(webhook.mode, keelson::AuditMode::Batch(batching));
    assert_eq!(webhook.initial_backoff, std::time::Duration::from_secs(3));
    let limits = webhook.truncation.expect("limits");
    assert_eq!((limits.event_bytes_max, limits.batch_bytes_max), (102_400, 10_485_760));
    assert!(options.log.is_none());
}
