//! Command lines of kube-apiserver, valid and invalid: Keelson starts with those that
//! kube-apiserver 1.36.3 starts with, and ends with its exit status and its words otherwise.
//!
//! `files/command_lines.txt` has a line of flags, and below it, after a tab, what kube-apiserver
//! does: `starts`, or the exit status and the message. `own:` before it is what Keelson does
//! where it differs, which COMPAT.md explains. Each line is added to flags that suffice for a
//! start; `!name,name` at its beginning leaves out those, `!all` leaves out all. `DIR` is a folder
//! with the files of `files/command_lines` and with keys and certificates, `ETCD` the URL of an
//! etcd, `%20` a space.
//!
//! `KEELSON_RECORD=1` asks a kube-apiserver about the lines that have no answer yet:
//! `KEELSON_RECORD=1 cargo test -p keelson --test it command_lines`.

use crate::etcd::etcd;
use keelson_testkit::poll;
use keelson_testkit::prerequisites::{API_SERVER, kubernetes_program};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How long a start may take before it is said to hang.
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// Programs that run at the same time.
const AT_ONCE: usize = 3;
/// Parts of the file, each a test, so that none takes long.
const PARTS: usize = 4;

const FAILED: &str = "\"command failed\"";
/// What is said of a port that another program has, in words of Keelson or of Go.
const TAKEN: &str = "address already in use";
/// Starts until one finds its port free.
const STARTS_MAX: usize = 5;

fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/files")
}

/// A line of the file.
#[derive(Clone, Debug)]
enum Entry {
    /// A comment or nothing.
    Other(String),
    /// Flags, what kube-apiserver does, and what Keelson does where it differs.
    Case { flags: String, reference: Option<String>, own: Option<String> },
}

fn entries() -> Vec<Entry> {
    let text = std::fs::read_to_string(files().join("command_lines.txt")).expect("the file");
    let mut entries: Vec<Entry> = vec![];
    for line in text.lines() {
        match (line.strip_prefix('\t'), entries.last_mut()) {
            (Some(outcome), Some(Entry::Case { reference, own, .. })) => {
                let (outcome, of) = match outcome.strip_prefix("own: ") {
                    Some(outcome) => (outcome, own),
                    None => (outcome, reference),
                };
                match of {
                    Some(of) => write!(of, "\n{outcome}").expect("a text"),
                    None => *of = Some(outcome.to_owned()),
                }
            }
            (Some(_), _) => panic!("an outcome without flags: {line}"),
            (None, _) if line.is_empty() || line.starts_with('#') => {
                entries.push(Entry::Other(line.to_owned()));
            }
            (None, _) => {
                let flags = line.to_owned();
                entries.push(Entry::Case { flags, reference: None, own: None });
            }
        }
    }
    entries
}

fn write(entries: &[Entry]) {
    let mut text = String::new();
    for entry in entries {
        match entry {
            Entry::Other(line) => writeln!(text, "{line}").expect("a text"),
            Entry::Case { flags, reference, own } => {
                writeln!(text, "{flags}").expect("a text");
                for line in reference.iter().flat_map(|outcome| outcome.lines()) {
                    writeln!(text, "\t{line}").expect("a text");
                }
                for line in own.iter().flat_map(|outcome| outcome.lines()) {
                    writeln!(text, "\town: {line}").expect("a text");
                }
            }
        }
    }
    std::fs::write(files().join("command_lines.txt"), text).expect("the file is written");
}

/// Makes the folder that `DIR` stands for.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let put = |name: &str, text: String| {
        std::fs::write(dir.path().join(name), text).expect("a file");
    };
    for file in std::fs::read_dir(files().join("command_lines")).expect("a folder") {
        let file = file.expect("a file");
        let text = std::fs::read_to_string(file.path()).expect("a text");
        let name = file.file_name().into_string().expect("a name");
        put(&name, text.replace("DIR", &dir.path().display().to_string()));
    }
    let key = |name: &str| {
        let key = KeyPair::generate().expect("a key");
        put(&format!("{name}.key"), key.serialize_pem());
        key
    };
    put("sa.pub", key("sa").public_key_pem());
    key("other");
    let named = |name: &str| {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let mut params = CertificateParams::new(names).expect("names");
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let mut params = named("ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let authority = CertifiedIssuer::self_signed(params, key("ca")).expect("a certificate");
    put("ca.crt", authority.pem());
    for name in ["server", "client"] {
        let certificate = named(name).signed_by(&key(name), &authority).expect("a certificate");
        put(&format!("{name}.crt"), certificate.pem());
    }
    dir
}

/// A process that is killed when it is dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a program is started with.
struct World<'a> {
    program: &'a Path,
    arguments: &'a [&'a str],
    dir: &'a Path,
    etcd: &'a str,
}

impl World<'_> {
    /// Starts the program with flags. Returns what it does. If another program has taken the port
    /// that was free, it is started again.
    fn outcome(&self, flags: &str, number: usize) -> String {
        let mut outcomes = (0..STARTS_MAX).map(|_| self.once(flags, number));
        let free = |outcome: &String| !outcome.to_lowercase().contains(TAKEN);
        outcomes.find(free).unwrap_or_else(|| TAKEN.to_owned())
    }

    fn once(&self, flags: &str, number: usize) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port().to_string();
        drop(listener);
        let dir = self.dir.display().to_string();
        let etcd_port = self.etcd.rsplit(':').next().unwrap_or_default();
        let mut base = BTreeMap::from([
            ("advertise-address", "10.1.1.1".to_owned()),
            ("bind-address", "127.0.0.1".to_owned()),
            ("cert-dir", format!("{dir}/certificates-{number}")),
            ("etcd-servers", self.etcd.to_owned()),
            ("secure-port", port.clone()),
            ("service-account-issuer", "https://issuer".to_owned()),
            ("service-account-key-file", format!("{dir}/sa.pub")),
            ("service-account-signing-key-file", format!("{dir}/sa.key")),
            ("v", "1".to_owned()),
        ]);
        let mut words: Vec<&str> = flags.split(' ').collect();
        if let Some(without) = words[0].strip_prefix('!') {
            match without {
                "all" => base.clear(),
                names => names.split(',').for_each(|name| drop(base.remove(name))),
            }
            words.remove(0);
        }
        let words = words.into_iter().map(|word| {
            let word = word.replace("%20", " ").replace("DIR", &dir);
            word.replace("ETCDPORT", etcd_port).replace("ETCD", self.etcd)
        });
        let log = self.dir.join(format!("log-{number}"));
        let file = std::fs::File::create(&log).expect("a file");
        let child = Command::new(self.program)
            .args(self.arguments)
            .args(base.iter().map(|(name, value)| format!("--{name}={value}")))
            .args(words)
            .current_dir(self.dir)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a file"))
            .stderr(file)
            .spawn();
        let mut running = Running(child.expect("the program starts"));
        let said = || String::from_utf8_lossy(&std::fs::read(&log).expect("a log")).into_owned();
        let ended = poll(START_TIME_MAX, || {
            let ended = running.0.try_wait().expect("a status");
            let serves = ["Serving securely on", "serving url=", "\"msg\":\"serving\""];
            let text = said();
            let status = match ended {
                Some(status) => {
                    status.code().map_or("a signal".to_owned(), |code| code.to_string())
                }
                None if serves.iter().any(|line| text.contains(line)) => "starts".to_owned(),
                None => return None,
            };
            Some(status)
        });
        drop(running);
        let masked = said().replace(&dir, "DIR").replace(self.etcd, "ETCD");
        let masked = masked.replace(&port, "PORT").replace(etcd_port, "ETCDPORT");
        message(&ended.unwrap_or("hangs".to_owned()), &masked)
    }
}

/// Returns the message of a line of the log before a program ends itself: `F1129 ... a.go:1] why`.
fn fatal(line: &str) -> Option<&str> {
    let is_fatal = line.starts_with('F') && line[1..].starts_with(|c: char| c.is_ascii_digit());
    line.split_once("] ").map(|(_, why)| why).filter(|_| is_fatal)
}

/// Returns a status with what a log says beside the time and place of each line: the notes on
/// deprecated flags, and the message of the end.
fn message(status: &str, log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    let last: String;
    let mut said: Vec<&str> =
        lines.iter().copied().filter(|line| line.starts_with("Flag --")).collect();
    let first = lines.iter().position(|line| {
        line.starts_with("Error: ")
            || line.starts_with("panic: ")
            || line.contains("\"command failed\"")
    });
    if let Some(first) = first.filter(|_| status != "starts") {
        let line = lines[first];
        // Some go on with the help of the flag, which Keelson does not repeat.
        let (line, end) = match line.split_once(", help: ") {
            Some((line, _)) => (line, "\""),
            None => (line, ""),
        };
        let shown = line.find(FAILED).map_or(fatal(line).unwrap_or(line), |at| &line[at..]);
        last = format!("{shown}{end}");
        said.push(&last);
        if line.ends_with("err=<") {
            let more = &lines[first + 1..];
            said.extend(more.iter().take_while(|line| **line != " >"));
        }
    }
    match said.is_empty() {
        true => status.to_owned(),
        false => format!("{status} {}", said.join("\n")),
    }
}

/// Returns what the program does with each of some lines, with several at once.
fn outcomes(world: &World<'_>, lines: &[String]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for worker in 0..AT_ONCE {
            let next = &next;
            let done = &done;
            scope.spawn(move || {
                while let Some((number, line)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    lines.get(number).map(|line| (number, line))
                } {
                    let outcome = world.outcome(line, worker);
                    done.lock().expect("no panic").insert(number, outcome);
                }
            });
        }
    });
    done.into_inner().expect("no panic").into_values().collect()
}

fn check(part: usize) {
    let Some((_runtime, etcd)) = etcd() else { return };
    if std::env::var_os("KEELSON_RECORD").is_some() {
        if part == 0 {
            record(&etcd.url());
        }
        return;
    }
    let cases: Vec<(String, String)> = entries()
        .into_iter()
        .filter_map(|entry| match entry {
            Entry::Other(_) => None,
            Entry::Case { flags, reference, own } => {
                let reference = reference.unwrap_or_else(|| panic!("not recorded: {flags}"));
                assert_ne!(own.as_ref(), Some(&reference), "it differs no more: {flags}");
                Some((flags, own.unwrap_or(reference)))
            }
        })
        .skip(part)
        .step_by(PARTS)
        .collect();
    let dir = folder();
    let world = World {
        program: Path::new(env!("CARGO_BIN_EXE_keelson")),
        arguments: &["kube-apiserver"],
        dir: dir.path(),
        etcd: &etcd.url(),
    };
    let lines: Vec<String> = cases.iter().map(|(flags, _)| flags.clone()).collect();
    let mut wrong = String::new();
    for ((flags, expected), outcome) in cases.iter().zip(outcomes(&world, &lines)) {
        if *expected != outcome {
            writeln!(wrong, "{flags}\n  expected: {expected}\n  got:      {outcome}")
                .expect("a text");
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Asks a kube-apiserver about the lines that have no answer.
fn record(etcd: &str) {
    let Some(program) = kubernetes_program(API_SERVER, "kube-apiserver") else { return };
    let dir = folder();
    let world = World { program: &program, arguments: &[], dir: dir.path(), etcd };
    let mut entries = entries();
    let mut open: Vec<(&String, &mut Option<String>)> = vec![];
    for entry in &mut entries {
        if let Entry::Case { flags, reference, .. } = entry
            && reference.is_none()
        {
            open.push((flags, reference));
        }
    }
    let lines: Vec<String> = open.iter().map(|(flags, _)| (*flags).clone()).collect();
    for ((_, reference), outcome) in open.into_iter().zip(outcomes(&world, &lines)) {
        *reference = Some(outcome);
    }
    write(&entries);
}

#[test]
fn command_lines_have_the_outcome_of_kube_apiserver_1() {
    check(0);
}

#[test]
fn command_lines_have_the_outcome_of_kube_apiserver_2() {
    check(1);
}

#[test]
fn command_lines_have_the_outcome_of_kube_apiserver_3() {
    check(2);
}

#[test]
fn command_lines_have_the_outcome_of_kube_apiserver_4() {
    check(3);
}
