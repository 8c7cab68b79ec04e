//! kubectl, Keelson, and behind it the stock `sample-apiserver` of Kubernetes with an etcd of its
//! own.

use super::{Kubectl, Row};
use crate::certificates::{authority, client_files};
use crate::etcd::etcd;
use crate::front_proxy;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson::Keelson;
use keelson_testkit::prerequisites::{SAMPLE_APISERVER, kubernetes_program};
use keelson_testkit::process::Process;
use rcgen::{CertificateParams, KeyPair};
use serde_json::json;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// The objects that register the server, as one List.
const REGISTRATION: &str = "registration.json";

/// Starts the server. Writes its registration.
fn start_sample(program: &Path, kubectl: &Kubectl, etcd_url: &str) -> Process {
    let home = kubectl.dir.path();
    let (bundle, issuer) = authority("sample");
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["sample.wardle.svc".to_owned()]).expect("a name");
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    std::fs::write(home.join("sample.crt"), certificate.pem()).expect("a file");
    std::fs::write(home.join("sample.key"), key.serialize_pem()).expect("a file");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let mut items = vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "wardle"}}),
        json!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "sample", "namespace": "wardle"},
            "spec": {"type": "ExternalName", "externalName": "localhost"}}),
    ];
    items.extend([("v1alpha1", 20), ("v1beta1", 10)].map(|(version, priority)| {
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("{version}.wardle.example.com")},
            "spec": {"group": "wardle.example.com", "version": version,
                "groupPriorityMinimum": 1000, "versionPriority": priority,
                "caBundle": STANDARD.encode(&bundle),
                "service": {"name": "sample", "namespace": "wardle", "port": port}}})
    }));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    std::fs::write(home.join(REGISTRATION), list.to_string()).expect("a file");
    std::fs::write(home.join("port"), port.to_string()).expect("a file");
    let mut command = Command::new(program);
    let kubeconfig = home.join("admin.kubeconfig");
    for flag in ["--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(flag).arg(&kubeconfig);
    }
    command.arg("--tls-cert-file").arg(home.join("sample.crt"));
    command.arg("--tls-private-key-file").arg(home.join("sample.key"));
    command.args(["--bind-address=127.0.0.1", "--etcd-servers", etcd_url]);
    command.args(["--secure-port", &port.to_string()]);
    command.args(["--authorization-webhook-cache-unauthorized-ttl=1ms"]);
    Process::start(command, &home.join("sample.log")).expect("the program starts")
}

/// Runs rows; a failure shows the log of the server.
fn run(kubectl: &Kubectl, sample: &Process, rows: &[Row<'_>]) {
    for (line, code, says) in rows {
        let script = format!("{COMMANDS}{line}");
        let row = (script.as_str(), *code, *says);
        let ran = std::panic::AssertUnwindSafe(|| kubectl.run(&[row]));
        if let Err(panic) = std::panic::catch_unwind(ran) {
            println!("{}", sample.log());
            std::panic::resume_unwind(panic);
        }
    }
}

const FLUNDER: &str = r#"apiVersion: wardle.example.com/v1alpha1
kind: Flunder
metadata: {name: one, namespace: team}
spec: {reference: other, referenceType: Flunder}
"#;
/// `direct` asks the server itself, with the token of a service account; `again` repeats a command
/// until it succeeds.
const COMMANDS: &str = r#"
direct() {
  "$KUBECTL" --kubeconfig=/dev/null --insecure-skip-tls-verify \
    --server="https://127.0.0.1:$(cat port)" --token="$(k -n team create token robot)" "$@"
}
again() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 200 ] || return 9; done; }
listed() { k api-resources --api-group=wardle.example.com | grep flunders; }
"#;

const LIFE: &[Row] = &[
    ("k apply -f registration.json", 0, "v1beta1.wardle.example.com created"),
    (
        "k wait --for=condition=Available --timeout=60s apiservice/v1alpha1.wardle.example.com \
         apiservice/v1beta1.wardle.example.com",
        0,
        "condition met",
    ),
    ("again listed", 0, "wardle.example.com/v1alpha1"),
    ("k create namespace team", 0, "created"),
    ("k create -f flunder.yaml", 0, "flunder.wardle.example.com/one created"),
    ("k -n team get flunders", 0, "one"),
    ("k -n team get flunder one -o yaml", 0, "referenceType: Flunder"),
    ("k -n team get flunders.v1beta1.wardle.example.com one -o yaml", 0, "flunderReference: other"),
    ("k -n team label flunder one a=b", 0, "labeled"),
    ("k -n team get flunders -l a=b -o name", 0, "flunder.wardle.example.com/one"),
    (
        "k get --raw /apis/wardle.example.com/v1alpha1/namespaces/team/flunders",
        0,
        r#""kind":"FlunderList""#,
    ),
    (
        "k get --raw /apis/wardle.example.com",
        0,
        r#""preferredVersion":{"groupVersion":"wardle.example.com/v1alpha1""#,
    ),
    ("again k explain flunders", 0, "GROUP:      wardle.example.com"),
    ("k explain flunders.spec", 0, "referenceType"),
    ("k explain --api-version=wardle.example.com/v1beta1 flunders.spec", 0, "flunderReference"),
    ("k --as=bob -n team get flunders", 1, "User \"bob\" cannot list resource \"flunders\""),
];

const RIGHTS: &[Row] = &[
    ("k -n team create serviceaccount robot", 0, "created"),
    (
        "direct get --raw /apis/wardle.example.com/v1alpha1/namespaces/team/flunders",
        1,
        "User \"system:serviceaccount:team:robot\" cannot list resource \"flunders\"",
    ),
    ("k -n team create role reader --verb=list --resource=flunders.wardle.example.com", 0, ""),
    ("k -n team create rolebinding reader --role=reader --serviceaccount=team:robot", 0, ""),
    (
        "again direct get --raw /apis/wardle.example.com/v1alpha1/namespaces/team/flunders",
        0,
        "FlunderList",
    ),
];

const DELETION: &[Row] = &[
    ("k -n team delete flunder one", 0, "deleted"),
    ("k -n team get flunder one", 1, "NotFound"),
    ("k create -f flunder.yaml", 0, "created"),
    ("k delete namespace team --timeout=60s", 0, "deleted"),
    ("k get flunders -A", 0, "No resources found"),
    ("k create namespace other", 0, "created"),
];

const DEAD: &[Row] = &[
    (
        "k wait --for=condition=Available=false --timeout=60s \
         apiservice/v1alpha1.wardle.example.com",
        0,
        "condition met",
    ),
    ("k get apiservice v1alpha1.wardle.example.com", 0, "False (FailedDiscoveryCheck)"),
    ("k get --raw /apis/wardle.example.com/v1alpha1", 1, "unable to handle the request"),
    ("k get flunders -A", 1, "unable to handle the request (get flunders.wardle.example.com)"),
    ("k delete namespace other --wait=false", 0, "deleted"),
    (
        "k wait ns/other --timeout=60s --for=jsonpath='{.status.conditions[?\
         (@.type==\"NamespaceDeletionDiscoveryFailure\")].status}'=True",
        0,
        "condition met",
    ),
    (
        "k get ns other -o jsonpath='{.status.conditions[0].message}'",
        0,
        "wardle.example.com/v1alpha1: stale GroupVersion discovery: wardle.example.com/v1alpha1",
    ),
    ("k delete apiservice v1alpha1.wardle.example.com v1beta1.wardle.example.com", 0, "deleted"),
    ("k wait --for=delete ns/other --timeout=60s", 0, ""),
];

#[test]
fn a_stock_server_behind_this_one() {
    let Some(program) = kubernetes_program(SAMPLE_APISERVER, "sample-apiserver") else { return };
    let Some((_runtime, etcd)) = etcd() else { return };
    let files = TempDir::new().expect("a folder");
    let (proxies, certificate) = client_files(files.path(), "aggregator");
    let proxies_file = files.path().join("proxies.crt");
    std::fs::write(&proxies_file, proxies).expect("a file");
    let builder = Keelson::builder().in_memory().with(|builder| {
        let options = front_proxy::options(&proxies_file, &["aggregator"]);
        builder.authentication.front_proxy = Some(options);
        builder.far_side.proxy_client_certificate = Some(certificate);
    });
    let Some(kubectl) = Kubectl::start(builder) else { return };
    std::fs::write(kubectl.dir.path().join("flunder.yaml"), FLUNDER).expect("a file");
    let sample = start_sample(&program, &kubectl, &etcd.url());
    run(&kubectl, &sample, LIFE);
    let mut watch = kubectl
        .spawn("\"$KUBECTL\" --kubeconfig=admin.kubeconfig -n team get flunders --watch -o name");
    assert_eq!(watch.line(), "flunder.wardle.example.com/one");
    run(&kubectl, &sample, RIGHTS);
    run(&kubectl, &sample, DELETION);
    assert_eq!(watch.line(), "flunder.wardle.example.com/one", "deleted");
    sample.terminate();
    kubectl.run(DEAD);
    kubectl.server.stop();
}
