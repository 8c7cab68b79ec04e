//! Secure serving flags: addresses and TLS.

use crate::flags::go_files;
use crate::flags::setup::Setup;
use crate::flags::step::Step;
use crate::flags::table::{Face, Flag, Group, Kind};
use keelson::{NamedCertificate, TlsOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};

/// Cipher suites of which HTTP/2 needs one.
const HTTP2_SUITES: [&str; 2] =
    ["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"];

/// Groups of the key exchange that Go has.
const CURVES: [&str; 7] = ["23", "24", "25", "29", "4587", "4588", "4589"];

/// The group.
pub const GROUP: Group = Group {
    title: "Secure serving",
    flags: &[
        Flag::new(
            "bind-address",
            Kind::Ip,
            "0.0.0.0",
            "Address to listen on; 0.0.0.0 and :: mean all.",
        ),
        Flag::new(
            "cert-dir",
            Kind::Text,
            "/var/run/kubernetes",
            "Folder of certificates. Without --tls-cert-file, apiserver.crt and apiserver.key in \
             it are used, or generated; keelson serve keeps its authority in it, and its default \
             is pki in the data folder.",
        )
        .in_serve(""),
        Flag::new(
            "disable-http2-serving",
            Kind::Bool,
            "false",
            "Whether connections are served as HTTP/1.1 only.",
        ),
        Flag::new(
            "http2-max-streams-per-connection",
            Kind::Int,
            "0",
            "Maximum number of concurrent streams of an HTTP/2 connection; 0 means 100.",
        ),
        Flag::new(
            "permit-address-sharing",
            Kind::Bool,
            "false",
            "Whether the port may be bound while connections of an earlier process linger.",
        )
        .accepted("it always may, as with every listener of Go"),
        Flag::new(
            "permit-port-sharing",
            Kind::Bool,
            "false",
            "Whether several processes may listen on the same address and port.",
        ),
        Flag::new("secure-port", Kind::Int, "6443", "Port to listen on, with TLS."),
        Flag::new(
            "tls-cert-file",
            Kind::Text,
            "",
            "Serving certificate, followed by the certificates of its authorities.",
        ),
        Flag::new(
            "tls-cipher-suites",
            Kind::List,
            "",
            "Cipher suites of TLS 1.2, by their names in Go. Only those of forward secrecy and \
             authenticated encryption are offered; empty means all of these.",
        ),
        Flag::new(
            "tls-curve-preferences",
            Kind::Int32List,
            "",
            "Groups of the key exchange, by their numbers in Go: 23 (P-256), 24 (P-384), 29 \
             (X25519). Empty means all of these.",
        ),
        Flag::new(
            "tls-min-version",
            Kind::Text,
            "",
            "Lowest version of TLS: VersionTLS12 (also for VersionTLS10 and VersionTLS11) or \
             VersionTLS13.",
        ),
        Flag::new("tls-private-key-file", Kind::Text, "", "Key of the serving certificate."),
        Flag::new(
            "tls-sni-cert-key",
            Kind::CertificatesAndKeys,
            "",
            "Certificate and key for the host names after the colon, or those in the certificate: \
             FILE,FILE[:NAME,NAME]. May be repeated.",
        ),
    ],
};

/// Checks the flags and applies them.
pub fn apply(setup: &mut Setup<'_>) {
    let values = setup.values;
    let port = values.int("secure-port");
    let first = if setup.face == Face::KubeApiserver { 1 } else { 0 };
    if !(first..=i64::from(u16::MAX)).contains(&port) {
        setup.fail(format!(
            "--secure-port {port} must be between 1 and 65535, inclusive. It cannot be turned off \
             with 0"
        ));
    }
    let address = values.ip("bind-address").unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let builder = &mut *setup.builder;
    builder.serving.bind = SocketAddr::new(address, u16::try_from(port).unwrap_or(0));
    builder.serving.shares_port = values.bool("permit-port-sharing");
    let streams = values.int("http2-max-streams-per-connection");
    if let Some(streams) = u32::try_from(streams).ok().filter(|streams| *streams > 0) {
        builder.serving.limits.http2_streams_max = streams;
    }
    let certificate = values.path("tls-cert-file");
    let key = values.path("tls-private-key-file");
    if setup.face == Face::Serve && certificate.is_some() != key.is_some() {
        setup.fail("--tls-cert-file and --tls-private-key-file must be given together");
    }
    setup.builder.serving.tls_files = certificate.zip(key);
    certificate_folder(setup);
    tls_options(setup);
}

/// kube-apiserver keeps its generated certificate in `--cert-dir`; `serve` its whole authority.
fn certificate_folder(setup: &mut Setup<'_>) {
    let dir = PathBuf::from(setup.values.text("cert-dir"));
    match setup.face {
        Face::KubeApiserver => setup.builder.serving.serving_pair_dir = Some(dir),
        Face::Serve if setup.values.is_given("cert-dir") => {
            setup.builder.serving.cert_dir = Some(dir)
        }
        Face::Serve => {}
    }
}

/// Checks the address and the files of certificates, in the words of kube-apiserver.
pub fn check_files(setup: &mut Setup<'_>) {
    let values = setup.values;
    let [certificate, key] =
        ["tls-cert-file", "tls-private-key-file"].map(|name| values.text(name));
    let dir = values.text("cert-dir");
    if !certificate.is_empty() || !key.is_empty() {
        if let Err(why) = go_files::serving_pair("serving-cert", certificate, key) {
            setup.fail_at(Step::ServingCertificate, why);
        }
    } else if Path::new(dir).exists() && !Path::new(dir).is_dir() {
        let why = format!("error creating self-signed certificates: mkdir {dir}: not a directory");
        setup.fail_at(Step::CertificateFolder, why);
    }
    for pair in values.list("tls-sni-cert-key") {
        let files = pair.split(':').next().unwrap_or_default();
        let (certificate, key) = files.split_once(',').unwrap_or((files, ""));
        let checked = go_files::serving_pair("sni-serving-cert", certificate.trim(), key.trim());
        if let Err(why) = checked {
            let why = format!("failed to load SNI cert and key: {why}");
            setup.fail_at(Step::NamedCertificates, why);
        }
    }
    let address = setup.builder.serving.bind;
    // The server binds it again when it starts.
    let bound = (!setup.builder.serving.shares_port).then(|| TcpListener::bind(address));
    if let Some(Err(error)) = bound {
        let error = error.to_string();
        let why = error.split(" (os error").next().unwrap_or_default().to_lowercase();
        setup.fail_at(
            Step::Listener,
            format!(
                "failed to create listener: failed to listen on {address}: listen tcp {address}: \
                 bind: {why}"
            ),
        );
    }
    let suites = values.list("tls-cipher-suites");
    let has_required = suites.iter().any(|suite| HTTP2_SUITES.contains(&suite.as_str()));
    let is_tls13 = values.text("tls-min-version") == "VersionTLS13";
    if !suites.is_empty() && !has_required && !is_tls13 && !values.bool("disable-http2-serving") {
        setup.fail_at(
            Step::Http2,
            "error configuring http2: http2: TLSConfig.CipherSuites is missing an HTTP/2-required \
             AES_128_GCM_SHA256 cipher (need at least one of \
             TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256)",
        );
    }
}

/// Checks the number of a group of the key exchange, in the words of kube-apiserver.
fn check_curve(number: &str) -> Result<(), String> {
    match number.parse::<u16>() {
        Ok(1..) if CURVES.contains(&number) => Ok(()),
        Ok(1..) => {
            Err(format!("curve preference {number} is not supported by the current Go version"))
        }
        _ => Err(format!("curve preference {number} is out of range (must be 1-65535)")),
    }
}

fn tls_options(setup: &mut Setup<'_>) {
    let values = setup.values;
    let version = values.text("tls-min-version");
    let suites = values.list("tls-cipher-suites");
    let curves = values.list("tls-curve-preferences");
    // As upstream, suites go before the version.
    let checked = TlsOptions::new("", suites, &[]).map(drop);
    let checked = checked.and_then(|()| TlsOptions::new(version, suites, &[]).map(drop));
    let checked = checked.and_then(|()| curves.iter().try_for_each(|curve| check_curve(curve)));
    let options = checked.and_then(|()| TlsOptions::new(version, suites, curves));
    match options {
        Ok(options) => setup.builder.serving.tls_options = options,
        Err(why) => setup.fail_at(Step::Tls, why),
    }
    setup.builder.serving.tls_options.is_http1_only = values.bool("disable-http2-serving");
    let named = values.list("tls-sni-cert-key").iter().filter_map(|text| {
        let (files, names) = text.split_once(':').map_or((text.as_str(), ""), |both| both);
        let (certificate, key) = files.split_once(',')?;
        let names = names.split(',').map(|name| name.trim().to_owned());
        Some(NamedCertificate {
            certificate: PathBuf::from(certificate.trim()),
            key: PathBuf::from(key.trim()),
            names: names.filter(|name| !name.is_empty()).collect(),
        })
    });
    setup.builder.serving.named_certificates = named.collect();
}
