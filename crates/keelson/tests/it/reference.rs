//! [`Reference`]: a stock kube-apiserver on an etcd.

use keelson_testkit::api::Api;
use keelson_testkit::poll;
use keelson_testkit::process::Process;
use rcgen::KeyPair;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const START_TIME_MAX: Duration = Duration::from_secs(40);

/// A running kube-apiserver.
pub struct Reference {
    pub address: SocketAddr,
    /// Requests as an administrator.
    pub api: Api,
    /// Ends when it is dropped.
    pub process: Process,
}

impl Reference {
    /// Starts the program on an etcd, with these further flags and with its files in `dir`, and
    /// waits until it is ready.
    pub fn start(program: &Path, etcd: &str, dir: &Path, flags: &[&str]) -> Reference {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let key = KeyPair::generate().expect("a key");
        for (name, pem) in [("sa.key", key.serialize_pem()), ("sa.pub", key.public_key_pem())] {
            std::fs::write(dir.join(name), pem).expect("a file");
        }
        std::fs::write(dir.join("tokens.csv"), "t,admin,1,system:masters\n").expect("a file");
        let file = |name: &str| dir.join(name).display().to_string();
        let mut command = Command::new(program);
        command.args(["--etcd-servers", etcd, "--cert-dir", &file("certs")]);
        command.args(["--secure-port", &address.port().to_string()]);
        command.args(["--bind-address=127.0.0.1", "--advertise-address=10.1.1.1"]);
        command.args(["--service-cluster-ip-range=10.0.0.0/24", "--authorization-mode=RBAC"]);
        command.args(["--service-account-issuer=https://kubernetes.default.svc"]);
        command.args(["--service-account-key-file", &file("sa.pub")]);
        command.args(["--service-account-signing-key-file", &file("sa.key")]);
        command.args(["--token-auth-file", &file("tokens.csv")]);
        command.args(flags);
        let process = Process::start(command, &dir.join("log")).expect("the program starts");
        let api = Api::unchecked(address, Some("t".to_owned())).expect("a client");
        let ready = poll(START_TIME_MAX, || api.get("/readyz").ok().filter(|got| got.code == 200));
        assert!(ready.is_some(), "not ready: {}", process.log());
        Reference { address, api, process }
    }
}
