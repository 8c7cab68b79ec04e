//! The files that kubeadm makes: the folder `pki`, and the kubeconfigs of its components.
//!
//! The keys are ECDSA P-256 (`encryptionAlgorithm: ECDSA-P256` of kubeadm), in the form in which
//! kubeadm writes them (SEC 1): ring makes no RSA keys.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use std::path::{Path, PathBuf};
use std::time::Duration;
use time::OffsetDateTime;

/// The name of the node with the control plane.
pub const NODE: &str = "control-plane";
/// The address that the API server advertises.
pub const ADVERTISED: &str = "10.1.0.2";
const YEAR: Duration = Duration::from_secs(365 * 86_400);
/// Time before the creation since when certificates are valid.
const CLOCK_SKEW: Duration = Duration::from_secs(300);
/// What comes before the secret and after it in an `ECPrivateKey` of P-256.
const SEC1_HEAD: [u8; 7] = [0x30, 0x77, 2, 1, 1, 4, 32];
const SEC1_CURVE: [u8; 12] = [0xa0, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7];
const SEC1_PUBLIC: [u8; 5] = [0xa1, 0x44, 3, 0x42, 0];

/// A folder like `/etc/kubernetes`.
pub struct Folder {
    dir: PathBuf,
    url: String,
    clients: Issuer<'static, KeyPair>,
}

impl Folder {
    /// Writes all files. `url` is that of the API server, for the kubeconfigs.
    pub fn make(dir: &Path, url: &str) -> Folder {
        std::fs::create_dir_all(dir.join("pki/etcd")).expect("a folder");
        let pki = dir.join("pki");
        let clients = authority(&pki, "ca", "kubernetes");
        let front_proxies = authority(&pki, "front-proxy-ca", "front-proxy-ca");
        let etcd = authority(&pki, "etcd/ca", "etcd-ca");
        let names = [NODE, "kubernetes", "kubernetes.default", "kubernetes.default.svc"];
        let more = ["kubernetes.default.svc.cluster.local", "10.96.0.1", ADVERTISED, "127.0.0.1"];
        let serving =
            Subject { hosts: &[&names[..], &more[..]].concat(), ..client("kube-apiserver", &[]) };
        serving.only_serves().write(&pki, "apiserver", &clients);
        let kubelets = client("kube-apiserver-kubelet-client", &["kubeadm:cluster-admins"]);
        kubelets.write(&pki, "apiserver-kubelet-client", &clients);
        client("front-proxy-client", &[]).write(&pki, "front-proxy-client", &front_proxies);
        client("kube-apiserver-etcd-client", &[]).write(&pki, "apiserver-etcd-client", &etcd);
        let hosts = [NODE, "localhost", ADVERTISED, "127.0.0.1", "::1"];
        let member = Subject { hosts: &hosts, ..client(NODE, &[]) }.serves_too();
        member.write(&pki, "etcd/server", &etcd);
        member.write(&pki, "etcd/peer", &etcd);
        client("kube-etcd-healthcheck-client", &[]).write(&pki, "etcd/healthcheck-client", &etcd);
        let key = KeyPair::generate().expect("a key");
        write(&pki.join("sa.key"), &private_pem(&key));
        write(&pki.join("sa.pub"), &key.public_key_pem());
        let folder = Folder { dir: dir.to_owned(), url: url.to_owned(), clients };
        for (file, user, groups) in [
            ("admin", "kubernetes-admin", &["kubeadm:cluster-admins"][..]),
            ("super-admin", "kubernetes-super-admin", &["system:masters"]),
            ("controller-manager", "system:kube-controller-manager", &[]),
            ("scheduler", "system:kube-scheduler", &[]),
        ] {
            let key = KeyPair::generate().expect("a key");
            let certificate = client(user, groups).sign(&key, &folder.clients).pem();
            folder.kubeconfig(file, &certificate, &private_pem(&key));
        }
        folder
    }

    /// Returns a path in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Returns the path of a file in `pki`, as an argument.
    pub fn pki(&self, name: &str) -> String {
        self.dir.join("pki").join(name).display().to_string()
    }

    /// Returns the content of a file in `pki`.
    pub fn read_pki(&self, name: &str) -> String {
        std::fs::read_to_string(self.pki(name)).expect("a file")
    }

    /// Writes `FILE.conf`, the kubeconfig of a user with a client certificate. Returns its path.
    pub fn kubeconfig(&self, file: &str, certificate: &str, key: &str) -> PathBuf {
        let user = format!(
            "    client-certificate-data: {}\n    client-key-data: {}\n",
            STANDARD.encode(certificate),
            STANDARD.encode(key)
        );
        self.kubeconfig_of(file, &user)
    }

    /// Writes `FILE.conf`, the kubeconfig of a user with a token. Returns its path.
    pub fn kubeconfig_with_token(&self, file: &str, token: &str) -> PathBuf {
        self.kubeconfig_of(file, &format!("    token: {token}\n"))
    }

    fn kubeconfig_of(&self, file: &str, user: &str) -> PathBuf {
        let text = format!(
            "{}contexts:\n- context:\n    cluster: kubernetes\n    user: {file}\n  name: \
             c\ncurrent-context: c\nusers:\n- name: {file}\n  user:\n{user}",
            self.cluster()
        );
        let path = self.path(&format!("{file}.conf"));
        write(&path, &text);
        path
    }

    /// Returns a kubeconfig without a user, which kubeadm publishes in `cluster-info`.
    pub fn cluster_info(&self) -> String {
        format!("{}contexts: null\ncurrent-context: \"\"\nusers: null\n", self.cluster())
    }

    fn cluster(&self) -> String {
        let authority = STANDARD.encode(self.read_pki("ca.crt"));
        format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    \
             certificate-authority-data: {authority}\n    server: {}\n  name: kubernetes\n",
            self.url
        )
    }
}

/// What a certificate says.
struct Subject<'a> {
    name: &'a str,
    groups: &'a [&'a str],
    hosts: &'a [&'a str],
    usages: Vec<ExtendedKeyUsagePurpose>,
}

fn client<'a>(name: &'a str, groups: &'a [&'a str]) -> Subject<'a> {
    Subject { name, groups, hosts: &[], usages: vec![ExtendedKeyUsagePurpose::ClientAuth] }
}

impl Subject<'_> {
    fn only_serves(mut self) -> Self {
        self.usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self
    }

    fn serves_too(mut self) -> Self {
        self.usages.push(ExtendedKeyUsagePurpose::ServerAuth);
        self
    }

    fn sign(&self, key: &KeyPair, issuer: &Issuer<'_, KeyPair>) -> Certificate {
        let hosts: Vec<String> = self.hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names");
        params.distinguished_name = distinguished_name(self.name, self.groups);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = self.usages.clone();
        params.use_authority_key_identifier_extension = true;
        valid_for(&mut params, YEAR);
        params.signed_by(key, issuer).expect("a certificate")
    }

    /// Writes `FILE.crt` and `FILE.key`.
    fn write(&self, pki: &Path, file: &str, issuer: &Issuer<'_, KeyPair>) {
        let key = KeyPair::generate().expect("a key");
        write(&pki.join(format!("{file}.crt")), &self.sign(&key, issuer).pem());
        write(&pki.join(format!("{file}.key")), &private_pem(&key));
    }
}

/// Writes an authority.
fn authority(pki: &Path, file: &str, name: &str) -> Issuer<'static, KeyPair> {
    let mut params = CertificateParams::new([name.to_owned()]).expect("a name");
    params.distinguished_name = distinguished_name(name, &[]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign];
    valid_for(&mut params, 10 * YEAR);
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("a certificate");
    write(&pki.join(format!("{file}.crt")), &certificate.pem());
    write(&pki.join(format!("{file}.key")), &private_pem(&key));
    Issuer::new(params, key)
}

fn distinguished_name(name: &str, groups: &[&str]) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    groups.iter().for_each(|group| subject.push(DnType::OrganizationName, *group));
    subject.push(DnType::CommonName, name);
    subject
}

fn valid_for(params: &mut CertificateParams, time: Duration) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - CLOCK_SKEW;
    params.not_after = now + time;
}

/// Returns a P-256 key as `EC PRIVATE KEY` in PEM.
pub fn private_pem(key: &KeyPair) -> String {
    let wrapped = key.serialize_der();
    let head = &SEC1_HEAD[2..];
    let begin = wrapped.windows(head.len()).position(|part| part == head).expect("a secret");
    let secret = &wrapped[begin + head.len()..][..32];
    let parts = [&SEC1_HEAD, secret, &SEC1_CURVE, &SEC1_PUBLIC, key.public_key_raw()];
    let text = STANDARD.encode(parts.concat());
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN EC PRIVATE KEY-----\n{}\n-----END EC PRIVATE KEY-----\n", lines.join("\n"))
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).expect("a file can be written");
}
