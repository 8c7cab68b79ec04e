//! What the log of requests has, and what it must not have at any level (CVE-2019-11250,
//! CVE-2020-8564 to 8566).

use keelson_testkit::connection::{authorities, secure, tls_client};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::JoinHandle;
use tempfile::TempDir;

/// Part of all secrets of this test.
const PLANTED: &str = "planted";
/// The same in base64, as the data of Secrets is written.
const PLANTED_BASE64: &str = "cGxhbnRlZ";

/// A server whose log is checked; its administrator's token is `planted-token`.
struct Logged {
    child: Child,
    address: SocketAddr,
    tls: Arc<rustls::ClientConfig>,
    log: JoinHandle<Vec<u8>>,
    _dir: TempDir,
}

impl Logged {
    fn start(verbosity: &str) -> Logged {
        let dir = tempfile::tempdir().expect("a folder");
        let tokens = dir.path().join("tokens.csv");
        let admin = "planted-token,admin,u,\"system:masters\"\n";
        std::fs::write(&tokens, admin).expect("a token file");
        let mut child = Command::new(env!("CARGO_BIN_EXE_keelson"))
            .args(["serve", verbosity, "--secure-port=0", "--bind-address=127.0.0.1", "--data-dir"])
            .arg(dir.path())
            .arg("--token-auth-file")
            .arg(tokens)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut stderr = child.stderr.take().expect("a log");
        let log = std::thread::spawn(move || {
            let mut log = vec![];
            stderr.read_to_end(&mut log).expect("the log can be read");
            log
        });
        let banner = BufReader::new(child.stdout.take().expect("a banner")).lines();
        let address = banner
            .map_while(Result::ok)
            .find_map(|line| line.split_once("https://")?.1.split(' ').next()?.parse().ok())
            .expect("the banner says where");
        let kubeconfig = std::fs::read_to_string(dir.path().join("admin.kubeconfig"));
        let roots = authorities(&kubeconfig.expect("a kubeconfig"));
        let tls = Arc::new(tls_client(roots).with_no_client_auth());
        Logged { child, address, tls, log, _dir: dir }
    }

    /// Returns the response to a request that closes its connection.
    fn request(&self, request: &str) -> String {
        let mut stream = secure(self.address, &self.tls).expect("a connection");
        stream.write_all(request.as_bytes()).expect("the request goes out");
        let mut answer = vec![];
        // An end without close_notify is an error; the bytes before it are valid.
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Stops the server. Returns its log.
    fn end(mut self) -> String {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
        String::from_utf8_lossy(&self.log.join().expect("the thread ends")).into_owned()
    }
}

/// Returns the lines of a request that closes its connection.
fn request(line: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{line} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n{headers}Content-Type: \
         application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )
}

/// Returns requests with secrets in all parts in which clients send them.
fn requests() -> Vec<String> {
    let secrets = "/api/v1/namespaces/default/secrets";
    let admin = "Authorization: Bearer planted-token\r\n";
    let secret = r#"{"metadata":{"name":"s"},"stringData":{"password":"planted-password"}}"#;
    let broken = r#"{"metadata":{"name":"s"},"stringData":{"password":"planted-password"#;
    let wrong = r#"{"metadata":{"name":"s","labels":{"a":7}},"data":{"p":"planted?"}}"#;
    let protocol = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
                    Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.cGxhbnRlZA, x\r\n";
    vec![
        request(&format!("POST {secrets}"), admin, secret),
        request(&format!("GET {secrets}/s"), admin, ""),
        request(&format!("POST {secrets}"), admin, broken),
        request(&format!("POST {secrets}"), admin, wrong),
        request(&format!("PUT {secrets}/s"), admin, secret),
        request(&format!("GET {secrets}"), "Authorization: Bearer planted-wrong-token\r\n", ""),
        request(&format!("GET {secrets}"), "Authorization: Basic planted\r\n", ""),
        request(&format!("GET {secrets}"), "Authorization: Bearer planted-\u{fc}\r\n", ""),
        request(&format!("GET {secrets}"), protocol, ""),
        request(&format!("DELETE {secrets}/s"), admin, ""),
    ]
}

#[test]
fn no_secret_reaches_the_log_at_the_highest_verbosity() {
    let server = Logged::start("-v=6");
    let codes: Vec<String> = requests()
        .into_iter()
        .map(|request| server.request(&request).split(' ').nth(1).unwrap_or_default().to_owned())
        .collect();
    assert_eq!(codes, ["201", "200", "400", "400", "200", "401", "403", "401", "401", "200"]);
    let log = server.end();
    assert!(log.contains("TRACE") || log.contains("DEBUG"), "nothing was logged: {log}");
    for line in log.lines() {
        assert!(!line.contains(PLANTED) && !line.contains(PLANTED_BASE64), "{line}");
    }
}

/// Creates a policy that adds an audit annotation for each ConfigMap, and its binding.
const NOTING: [(&str, &str); 2] = [
    (
        "validatingadmissionpolicies",
        r#"{"metadata":{"name":"noting"},"spec":{"matchConstraints":{"resourceRules":[{
        "apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["configmaps"]}]},
        "auditAnnotations":[{"key":"seen","valueExpression":"'in ' + object.metadata.namespace"}]}}"#,
    ),
    (
        "validatingadmissionpolicybindings",
        r#"{"metadata":{"name":"noting"},"spec":{"policyName":"noting",
        "validationActions":["Audit"]}}"#,
    ),
];

#[test]
fn finished_requests_are_logged_with_audit_id_and_annotations() {
    let server = Logged::start("-v=4");
    let admin = "Authorization: Bearer planted-token\r\n";
    for (resource, body) in NOTING {
        let path = format!("POST /apis/admissionregistration.k8s.io/v1/{resource}");
        let answer = server.request(&request(&path, admin, body));
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
    let headers = format!("{admin}Audit-ID: my request\r\nUser-Agent: curious/1.0\r\n");
    let maps = "POST /api/v1/namespaces/default/configmaps?fieldManager=m";
    let answer = server.request(&request(maps, &headers, r#"{"metadata":{"name":"one"}}"#));
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    // The client's request ID.
    assert!(answer.contains("\r\naudit-id: my request\r\n"), "{answer}");
    let refused = server.request(&request("GET /api/v1/pods", "Audit-ID:\r\n", ""));
    assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    let id = refused
        .split_once("\r\naudit-id: ")
        .map(|(_, rest)| rest[..36].to_owned())
        .expect("a request without a name is given one");

    let log = server.end();
    let line = |id: &str| {
        let line = log.lines().find(|line| line.contains("HTTP") && line.contains(id));
        line.unwrap_or_else(|| panic!("no line of {id}: {log}"))
    };
    let made = line("my request");
    for part in [
        "verb=CREATE URI=/api/v1/namespaces/default/configmaps?fieldManager=m latency=",
        "userAgent=\"curious/1.0\" audit-ID=\"my request\" srcIP=127.0.0.1 user=admin",
        " latency_queue=",
        "apf_pl=\"exempt\" apf_fs=\"exempt\" apf_iseats=1 apf_fseats=",
        " resp=201 ",
        r#"("authorization.k8s.io/decision", "allow")"#,
        r#"("noting/seen", "in default")"#,
    ] {
        assert!(made.contains(part), "{part}: {made}");
    }
    let refused = line(&id);
    for part in [
        "verb=LIST URI=/api/v1/pods latency=",
        "user=system:anonymous ",
        " resp=403 ",
        r#"("authorization.k8s.io/decision", "forbid")"#,
    ] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}
