//! TLS with client certificates.

use std::path::PathBuf;

use keelson_etcd_server::{EtcdOptions, EtcdServer, Listener, TlsFiles};
use keelson_store::conformance::put;
use keelson_store_etcd::{EtcdStore, EtcdTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// A certificate and its key, in PEM.
struct Identity {
    certificate: String,
    key: String,
}

fn authority() -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
}

fn identity(authority: &CertifiedIssuer<'static, KeyPair>) -> Identity {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, authority).unwrap();
    Identity { certificate: certificate.pem(), key: key.serialize_pem() }
}

#[tokio::test]
async fn clients_need_a_certificate_of_the_given_authority() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| -> PathBuf {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let ours = authority();
    let other = authority();
    let server = identity(&ours);
    let files = TlsFiles {
        certificate: write("server.crt", &server.certificate),
        key: write("server.key", &server.key),
        authorities: Some(write("ca.crt", &ours.pem())),
    };
    let listener = Listener::bind("127.0.0.1:0", Some(files)).await.unwrap();
    let url = format!("https://{}", listener.address().unwrap());
    let server = EtcdServer::open(EtcdOptions::default()).await.unwrap();
    let running = tokio::spawn(server.run(vec![listener]));
    let open = async |client: Option<Identity>| {
        let identity = client.map(|client| (client.certificate.into(), client.key.into()));
        let tls = EtcdTls { authorities: Some(ours.pem().into()), identity };
        let options = keelson_store_etcd::EtcdOptions::new(vec![url.clone()]);
        EtcdStore::open(keelson_store_etcd::EtcdOptions { tls, ..options }).await
    };
    let store = open(Some(identity(&ours))).await.unwrap();
    put(&*store, "/registry/a", "1").await;
    assert!(open(None).await.is_err());
    assert!(open(Some(identity(&other))).await.is_err());
    running.abort();
}
