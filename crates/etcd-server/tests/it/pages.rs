//! Pages over HTTP, and folders that are refused.

use keelson_etcd_server::{EtcdOptions, EtcdServer, Listener};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Running;

/// Requests a page; returns the whole response.
async fn get(address: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    response
}

#[tokio::test]
async fn health_version_and_metrics_have_pages() {
    let pages = vec![("/own", "{}".to_owned())];
    let server = Running::start(EtcdOptions { pages, ..EtcdOptions::default() }).await;
    let address = server.url.trim_start_matches("http://");
    for (path, status, part) in [
        ("/health", "200 OK", r#"{"health":"true","reason":""}"#),
        ("/health?serializable=true", "200 OK", r#""health":"true""#),
        ("/readyz", "200 OK", "ok\n"),
        ("/version", "200 OK", r#""etcdserver":"3.6."#),
        ("/metrics", "200 OK", "\netcd_debugging_mvcc_current_revision 1\n"),
        ("/own", "200 OK", "{}"),
        ("/v3/kv/range", "404 Not Found", "404 page not found"),
    ] {
        let response = get(address, path, "").await;
        assert!(response.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{path}: {response}");
        assert!(response.contains(part), "{path}: {response}");
    }
}

#[tokio::test]
async fn a_listener_for_pages_answers_no_calls() {
    let listener = Listener::bind("127.0.0.1:0", None).await.unwrap().for_pages_only();
    let address = listener.address().unwrap().to_string();
    let server = EtcdServer::open(EtcdOptions::default()).await.unwrap();
    let running = tokio::spawn(server.run(vec![listener]));
    assert!(get(&address, "/health", "").await.starts_with("HTTP/1.1 200 OK"));
    let call = "/etcdserverpb.KV/Range";
    let response = get(&address, call, "Content-Type: application/grpc\r\n").await;
    assert!(response.starts_with("HTTP/1.1 404 "), "{response}");
    running.abort();
}

#[tokio::test]
async fn the_data_of_etcd_itself_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("member/snap")).unwrap();
    let options = EtcdOptions { data_dir: Some(dir.path().to_owned()), ..EtcdOptions::default() };
    let error = EtcdServer::open(options).await.err().expect("refused");
    assert!(error.to_string().contains("has the data of another etcd"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path().join("member")).unwrap().count(), 1);
}
