//! The signers of certificates. kube-controller-manager has the same flags; here only `serve` has
//! them.

use crate::flags::setup::Setup;
use crate::flags::table::{Flag, Group, Kind};
use keelson::{AuthorityFiles, SigningOptions};

/// The group.
pub const GROUP: Group = Group {
    title: "Certificate signing",
    flags: &[
        Flag::new(
            "cluster-signing-cert-file",
            Kind::Text,
            "",
            "Authority that signs certificates of all signers; empty means the server's own.",
        ),
        Flag::new(
            "cluster-signing-duration",
            Kind::Duration,
            "8760h0m0s",
            "Maximum and default lifetime of signed certificates.",
        ),
        Flag::new("cluster-signing-key-file", Kind::Text, "", "Key of that authority."),
        Flag::new(
            "cluster-signing-kube-apiserver-client-cert-file",
            Kind::Text,
            "",
            "Authority that signs certificates of kubernetes.io/kube-apiserver-client.",
        ),
        Flag::new(
            "cluster-signing-kube-apiserver-client-key-file",
            Kind::Text,
            "",
            "Key of that authority.",
        ),
        Flag::new(
            "cluster-signing-kubelet-client-cert-file",
            Kind::Text,
            "",
            "Authority that signs certificates of kubernetes.io/kube-apiserver-client-kubelet.",
        ),
        Flag::new(
            "cluster-signing-kubelet-client-key-file",
            Kind::Text,
            "",
            "Key of that authority.",
        ),
        Flag::new(
            "cluster-signing-kubelet-serving-cert-file",
            Kind::Text,
            "",
            "Authority that signs certificates of kubernetes.io/kubelet-serving.",
        ),
        Flag::new(
            "cluster-signing-kubelet-serving-key-file",
            Kind::Text,
            "",
            "Key of that authority.",
        ),
        Flag::new(
            "cluster-signing-legacy-unknown-cert-file",
            Kind::Text,
            "",
            "Authority that signs certificates of kubernetes.io/legacy-unknown.",
        ),
        Flag::new(
            "cluster-signing-legacy-unknown-key-file",
            Kind::Text,
            "",
            "Key of that authority.",
        ),
    ],
};

/// Checks the flags and applies them.
pub fn apply(setup: &mut Setup<'_>) {
    let signing = SigningOptions {
        all: files(setup, "cluster-signing-cert-file", "cluster-signing-key-file"),
        api_server_client: files(
            setup,
            "cluster-signing-kube-apiserver-client-cert-file",
            "cluster-signing-kube-apiserver-client-key-file",
        ),
        kubelet_client: files(
            setup,
            "cluster-signing-kubelet-client-cert-file",
            "cluster-signing-kubelet-client-key-file",
        ),
        kubelet_serving: files(
            setup,
            "cluster-signing-kubelet-serving-cert-file",
            "cluster-signing-kubelet-serving-key-file",
        ),
        legacy_unknown: files(
            setup,
            "cluster-signing-legacy-unknown-cert-file",
            "cluster-signing-legacy-unknown-key-file",
        ),
        duration: setup.duration("cluster-signing-duration"),
    };
    setup.builder.controllers.signing = signing;
}

fn files(
    setup: &mut Setup<'_>,
    certificate: &'static str,
    key: &'static str,
) -> Option<AuthorityFiles> {
    let certificate_file = setup.values.path(certificate);
    let key_file = setup.values.path(key);
    if certificate_file.is_some() != key_file.is_some() {
        setup.fail(format!("--{certificate} and --{key} must be given together"));
    }
    certificate_file.zip(key_file)
}
