//! Secure serving flags: addresses and TLS.

use crate::flags::setup::Setup;
use crate::flags::table::{Face, Flag, Group, Kind};
use keelson::{NamedCertificate, TlsOptions};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

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
    if certificate.is_some() != key.is_some() {
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

fn tls_options(setup: &mut Setup<'_>) {
    let values = setup.values;
    let options = TlsOptions::new(
        values.text("tls-min-version"),
        values.list("tls-cipher-suites"),
        values.list("tls-curve-preferences"),
    );
    match options {
        Ok(options) => setup.builder.serving.tls_options = options,
        Err(why) => setup.fail(why),
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
