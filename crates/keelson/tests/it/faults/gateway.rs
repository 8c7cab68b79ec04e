//! What the members of an etcd cluster are asked beside reads and writes, through etcd's JSON
//! gateway: moving the leader, compacting, the alarm NOSPACE.

use keelson_testkit::connection::{Connection, plain};
use serde_json::{Value, json};
use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{JoinHandle, spawn};
use std::time::Duration;

/// Longest wait for a member, which may stand still.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// The addresses of all members.
#[derive(Clone)]
pub struct Gateway {
    urls: Vec<String>,
}

/// A member's view.
struct View {
    id: String,
    leader: String,
    revision: u64,
}

impl Gateway {
    pub fn new(urls: Vec<String>) -> Gateway {
        Gateway { urls }
    }

    /// Moves the leader to another member.
    ///
    /// # Errors
    ///
    /// If there is no leader, or either of both does not answer.
    pub fn move_leader(&self) -> io::Result<()> {
        let views: Vec<(&String, View)> =
            self.urls.iter().filter_map(|url| Some((url, view(url).ok()?))).collect();
        let leads = |(_, view): &&(&String, View)| view.id == view.leader;
        let Some((url, leader)) = views.iter().find(leads) else {
            return Err(io::Error::other("no leader"));
        };
        let Some((_, next)) = views.iter().find(|(_, view)| view.id != leader.id) else {
            return Err(io::Error::other("no other member"));
        };
        let path = "/v3/maintenance/transfer-leadership";
        ask(url, path, &json!({"targetID": next.id})).map(drop)
    }

    /// Returns the newest revision of a member that answers.
    ///
    /// # Errors
    ///
    /// If none answers.
    pub fn revision(&self) -> io::Result<u64> {
        self.any(|url| view(url).map(|view| view.revision))
    }

    /// Removes the revisions before this one.
    ///
    /// # Errors
    ///
    /// If no member does it.
    pub fn compact(&self, revision: u64) -> io::Result<()> {
        let body = json!({"revision": revision.to_string()});
        self.any(|url| ask(url, "/v3/kv/compaction", &body).map(drop))
    }

    /// Raises or removes the alarm NOSPACE, as a member whose quota is used up does: `ACTIVATE` or
    /// `DEACTIVATE`.
    ///
    /// # Errors
    ///
    /// If no member does it.
    pub fn alarm(&self, action: &str) -> io::Result<()> {
        let body =
            json!({"action": action, "memberID": view(&self.urls[0])?.id, "alarm": "NOSPACE"});
        self.any(|url| ask(url, "/v3/maintenance/alarm", &body).map(drop))
    }

    fn any<T>(&self, ask: impl Fn(&str) -> io::Result<T>) -> io::Result<T> {
        let mut last = Err(io::Error::other("no members"));
        for url in &self.urls {
            last = ask(url);
            if last.is_ok() {
                break;
            }
        }
        last
    }
}

fn view(url: &str) -> io::Result<View> {
    let answer = ask(url, "/v3/maintenance/status", &json!({}))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let header = &answer["header"];
    let revision = text(&header["revision"]).parse().map_err(io::Error::other)?;
    Ok(View { id: text(&header["member_id"]), leader: text(&answer["leader"]), revision })
}

fn ask(url: &str, path: &str, body: &Value) -> io::Result<Value> {
    let address = url.trim_start_matches("http://").parse().map_err(io::Error::other)?;
    let stream = plain(address)?;
    stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    let (code, answer) =
        Connection::over(stream).call("POST", path, "application/json", Some(body))?;
    if code != 200 {
        return Err(io::Error::other(format!("{path}: {code} {answer}")));
    }
    Ok(answer)
}

/// Something that is done at an interval, in a thread that ends when this is dropped.
pub struct Every {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Every {
    /// Waits for `interval` before each time.
    pub fn start(interval: Duration, mut act: impl FnMut() + Send + 'static) -> Every {
        let (stop, stopped) = channel();
        let thread = spawn(move || {
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                act();
            }
        });
        Every { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Every {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
