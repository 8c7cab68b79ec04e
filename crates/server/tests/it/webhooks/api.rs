//! The API that cases run against: a server of the test, or a kube-apiserver whose responses are
//! recorded.

use crate::world::{Client, POLL_TIMEOUT, Server, without_accounts};
use keelson_auth::{MASTERS, TokenFile, User};
use serde_json::Value;
use std::io::Write;
use std::process::{Command, Stdio};

const TOKEN: &str = "admintoken";

/// A response.
#[derive(Clone, Debug)]
pub struct Response {
    pub status: u16,
    /// The Warning headers.
    pub warnings: Vec<String>,
    pub body: Value,
}

/// The server that cases run against.
pub enum Api {
    /// A Keelson in this process.
    Own(Box<Server>),
    /// The URL of a running kube-apiserver.
    Recorded(String),
}

impl Api {
    /// Starts a Keelson whose administrator has the user name of the recordings.
    pub fn start() -> Api {
        let mut tokens = TokenFile::default();
        let user = User { name: "admin".into(), uid: "admin-uid".into(), ..User::default() };
        tokens.insert(TOKEN, user.with_group(MASTERS));
        let mut options = without_accounts();
        options.tokens = tokens;
        Api::Own(Box::new(Server::start_plain(options)))
    }

    /// Sends a request.
    pub fn call(&self, method: &str, path: &str, media: &str, body: Option<&Value>) -> Response {
        match self {
            Api::Own(server) => own(&server.client(), method, path, media, body),
            Api::Recorded(url) => curl(url, method, path, media, body),
        }
    }

    /// Creates an object.
    pub fn create(&self, path: &str, body: &Value) -> Response {
        let answer = self.call("POST", path, "application/json", Some(body));
        assert_eq!(answer.status, 201, "{path} {body} {answer:?}");
        answer
    }

    pub fn stop(self) {
        if let Api::Own(server) = self {
            server.stop();
        }
    }
}

fn own(client: &Client, method: &str, path: &str, media: &str, body: Option<&Value>) -> Response {
    let headers = format!(
        "Authorization: Bearer {TOKEN}\r\nContent-Type: {media}\r\nUser-Agent: tester/1\r\n"
    );
    let answer = client.request(method, path, &headers, body);
    let warnings = answer
        .headers
        .iter()
        .filter(|(name, _)| name == "warning")
        .map(|(_, value)| value.clone())
        .collect();
    Response { status: answer.status, warnings, body: answer.body }
}

fn curl(url: &str, method: &str, path: &str, media: &str, body: Option<&Value>) -> Response {
    let patience = POLL_TIMEOUT.as_secs().to_string();
    let mut curl = Command::new("curl");
    curl.args(["-sk", "--http1.1", "-D", "-", "-A", "tester/1", "-m", &patience, "-X", method])
        .args(["-H", &format!("Authorization: Bearer {TOKEN}")])
        .args(["-H", &format!("Content-Type: {media}"), "-H", "Expect:"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if body.is_some() {
        curl.args(["--data-binary", "@-"]);
    }
    let mut curl = curl.arg(format!("{url}{path}")).spawn().expect("curl");
    let sent = body.map(Value::to_string).unwrap_or_default();
    curl.stdin.take().expect("a pipe").write_all(sent.as_bytes()).expect("a request");
    let output = curl.wait_with_output().expect("an answer").stdout;
    let text = String::from_utf8_lossy(&output);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("warning").then(|| value.trim().to_owned())
    };
    let warnings = head.lines().filter_map(header).collect();
    let plain = || Value::String(body.to_owned());
    Response { status, warnings, body: serde_json::from_str(body).unwrap_or_else(|_| plain()) }
}
