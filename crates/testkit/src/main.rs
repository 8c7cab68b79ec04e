//! `keelson-testkit record` and `replay`: records the responses of a server to the requests of
//! transcripts, or compares them with the recorded ones. `keelson-testkit node` runs a fake node.

use keelson_testkit::api::{Api, Response};
use keelson_testkit::handshakes;
use keelson_testkit::handshakes::generated::{self, generate};
use keelson_testkit::node::faults::FAULTS;
use keelson_testkit::node::{NodeServer, ServerOptions, machine_address};
use keelson_testkit::transcript::{Request, Responder, Transcript, record, replay};
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
record --server URL --token TOKEN [FILE|all]...
replay --server URL --token TOKEN [FILE|all]... [--show N]
handshakes record|replay FILE --server URL --token TOKEN --node ADDRESS
handshakes generate FILE
node [--address ADDRESS|machine] [--port PORT] [--client-ca FILE] [--open] [--write-ca FILE]
    [--folder FOLDER] [--v5]

Transcripts are files with requests and the responses of a kube-apiserver 1.36. `all`, or no file, means those of this
repository (crates/*/tests/**/*.transcript). Their format is documented in crates/testkit/src/transcript.rs, the normal
form of responses in normal.rs beside it.

`record` sends the requests of the files to a server and replaces the responses in the files. A new file needs only
requests. `replay` sends the requests and compares the responses: it prints the first N (default 10) responses of each
file that differ, with their requests, and the total count. The exit status is 1 if a response differs or a request
fails.

TOKEN is that of an administrator (system:masters). Control loops would change the objects: start kube-apiserver without
kube-controller-manager, Keelson with --controllers=-*. The certificate of the server is not verified. For example:

  keelson serve --controllers=-* --data-dir /tmp/k --secure-port 7443 --token-auth-file tokens.csv &
  cargo xtask replay --server https://127.0.0.1:7443 --token admintoken

`handshakes` does the same with FILE, requests that upgrade connections or go to nodes: see the head of
crates/testkit/src/handshakes.rs. The objects that they name are created first; the node is the one below at ADDRESS,
and the server has a certificate for it (--kubelet-client-certificate). `generate` writes FILE with generated cases that
have no answers yet.

`node` serves what an API server asks a kubelet for until it is killed: commands run on this machine, in FOLDER. API
servers proxy to no loopback address; `--address machine` chooses another. Clients need a certificate of --client-ca (unless --open); the authority of its own certificate is written to --write-ca.
--v5 offers v5.channel.k8s.io, as nodes with the feature ExtendWebSocketsToKubelet do. Containers, pods and paths with
these names misbehave:

";

/// A server that is reached over HTTPS.
struct Remote(Api);

impl Responder for Remote {
    fn send(&mut self, request: &Request<'_>) -> Result<Response, String> {
        let Request { method, path, media_type, body } = *request;
        let response = self.0.send_text(method, path, media_type, body);
        response.map_err(|why| format!("no response: {why}"))
    }
}

/// The command line.
struct Options {
    is_recording: bool,
    server: Remote,
    files: Vec<PathBuf>,
    /// Maximum failures that are printed for each file.
    shown: usize,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() || words.iter().any(|word| word == "--help" || word == "-h") {
        let faults = FAULTS.map(|(name, what)| format!("  fault-{name}: {what}\n"));
        return print(&format!("{HELP}{}", faults.concat()), ExitCode::SUCCESS);
    }
    let command = match words[0].as_str() {
        "node" => Some(run_node(&words[1..])),
        "handshakes" => Some(run_handshakes(&words[1..])),
        _ => None,
    };
    match command {
        Some(Ok(())) => return ExitCode::SUCCESS,
        Some(Err(why)) => return print(&format!("{why}\n"), ExitCode::FAILURE),
        None => {}
    }
    match Options::parse(&words).and_then(run) {
        Ok((text, 0)) => print(&text, ExitCode::SUCCESS),
        Ok((text, _)) => print(&text, ExitCode::FAILURE),
        Err(why) => print(&format!("{why}\n"), ExitCode::FAILURE),
    }
}

/// Records or replays handshakes.
fn run_handshakes(words: &[String]) -> Result<(), String> {
    let mut url = None;
    let mut token = None;
    let mut node = None;
    let mut names = vec![];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--server" => url = Some(value()?),
            "--token" => token = Some(value()?),
            "--node" => node = Some(value()?),
            name => names.push(name.to_owned()),
        }
    }
    let [action, file] = names.as_slice() else {
        return Err("`record`, `replay` or `generate`, and a file; see --help".to_owned());
    };
    if action == "generate" {
        let cases = generate(generated::SEED, generated::COUNT);
        return std::fs::write(file, cases).map_err(|why| format!("{file}: {why}"));
    }
    let api = server_address(&url.ok_or("--server URL is missing")?)?;
    let token = token.ok_or("--token TOKEN is missing")?;
    let node = node.ok_or("--node ADDRESS is missing")?;
    let node = node.parse().map_err(|_| format!("{node} is not ADDRESS:PORT"))?;
    let client = Api::unchecked(api, Some(token.clone())).map_err(|why| why.to_string())?;
    handshakes::prepare(&client, node).map_err(|why| why.to_string())?;
    let recorded = std::fs::read_to_string(file).map_err(|why| format!("{file}: {why}"))?;
    let answers = handshakes::perform(&recorded, &handshakes::Servers { api, token, node })?;
    if action == "record" {
        return std::fs::write(file, answers).map_err(|why| format!("{file}: {why}"));
    }
    let pairs = recorded.lines().zip(answers.lines());
    let different: Vec<_> = pairs.filter(|(recorded, now)| recorded != now).collect();
    for (recorded, now) in &different {
        print(&format!("- {recorded}\n+ {now}\n"), ExitCode::FAILURE);
    }
    match different.len() {
        0 => Ok(()),
        count => Err(format!("{count} answers differ")),
    }
}

/// Returns the address in a word; `machine` is an address to which API servers proxy.
fn node_address(word: &str) -> Result<Option<IpAddr>, String> {
    match word {
        "machine" => machine_address().map(Some).ok_or("the machine has no address".to_owned()),
        word => word.parse().map(Some).map_err(|_| format!("{word} is no address")),
    }
}

/// Runs a node until the process is killed.
fn run_node(words: &[String]) -> Result<(), String> {
    let mut options = ServerOptions::default();
    let mut authority_file = None;
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--address" => options.address = node_address(&value()?)?,
            "--port" => options.port = value()?.parse().map_err(|_| "--port needs a number")?,
            "--client-ca" => {
                let path = value()?;
                let pem = std::fs::read(&path).map_err(|why| format!("{path}: {why}"))?;
                options.client_authority = Some(pem);
            }
            "--write-ca" => authority_file = Some(value()?),
            "--folder" => options.folder = Some(value()?.into()),
            "--open" => options.is_open = true,
            "--v5" => options.has_v5 = true,
            unknown => return Err(format!("unknown option {unknown}")),
        }
    }
    let node = NodeServer::start(options).map_err(|why| format!("the node: {why}"))?;
    if let Some(path) = authority_file {
        std::fs::write(&path, node.authority()).map_err(|why| format!("{path}: {why}"))?;
    }
    print(&format!("https://{}\n", node.address()), ExitCode::SUCCESS);
    loop {
        std::thread::park();
    }
}

fn print(text: &str, code: ExitCode) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

impl Options {
    fn parse(words: &[String]) -> Result<Options, String> {
        let mut words = words.iter();
        let is_recording = match words.next().map(String::as_str) {
            Some("record") => true,
            Some("replay") => false,
            _ => return Err("the first word must be `record` or `replay`; see --help".to_owned()),
        };
        let mut url = None;
        let mut token = None;
        let mut files = vec![];
        let mut shown = 10;
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--server" => url = Some(value()?),
                "--token" => token = Some(value()?),
                "--show" => shown = value()?.parse().map_err(|_| "--show needs a number")?,
                "all" => files.extend(repository_transcripts()?),
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}"));
                }
                file => files.push(PathBuf::from(file)),
            }
        }
        if files.is_empty() {
            files = repository_transcripts()?;
        }
        let url = url.ok_or("--server URL is missing")?;
        let address = server_address(&url)?;
        let api = Api::unchecked(address, token).map_err(|why| why.to_string())?;
        Ok(Options { is_recording, server: Remote(api), files, shown })
    }
}

/// Returns the address in a URL.
fn server_address(url: &str) -> Result<SocketAddr, String> {
    let address = url.trim_end_matches('/').strip_prefix("https://");
    let address = address.and_then(|address| address.parse().ok());
    address.ok_or(format!("{url} is not https://ADDRESS:PORT"))
}

/// Returns the paths of the repository's transcripts.
fn repository_transcripts() -> Result<Vec<PathBuf>, String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = vec![];
    let error = |why: std::io::Error| format!("{}: {why}", crates.display());
    for entry in std::fs::read_dir(&crates).map_err(error)? {
        collect(&entry.map_err(error)?.path().join("tests"), &mut found);
    }
    found.sort();
    Ok(found)
}

fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|ending| ending == "transcript") {
            found.push(path);
        }
    }
}

/// Records or replays the files; returns the output and the number of failures.
fn run(mut options: Options) -> Result<(String, usize), String> {
    let mut output = String::new();
    let mut responses = 0;
    let mut failures = 0;
    for file in &options.files {
        let error = |why: String| format!("{}: {why}", file.display());
        let text = std::fs::read_to_string(file).map_err(|why| error(why.to_string()))?;
        let mut transcript = Transcript::parse(&text).map_err(error)?;
        let outcome = match options.is_recording {
            true => record(&mut transcript, &mut options.server),
            false => replay(&transcript, &mut options.server),
        };
        responses += outcome.responses;
        failures += outcome.failures.len();
        for failure in outcome.failures.iter().take(options.shown) {
            let line = format!("{}:{}: {}\n", file.display(), failure.line, failure.text);
            output.push_str(&line);
        }
        if options.is_recording && outcome.failures.is_empty() {
            std::fs::write(file, transcript.to_text()).map_err(|why| error(why.to_string()))?;
        }
    }
    let files = options.files.len();
    output.push_str(&match options.is_recording {
        true => format!("{responses} responses in {files} files recorded, {failures} failures\n"),
        false => format!("{responses} responses in {files} files compared, {failures} differ\n"),
    });
    Ok((output, failures))
}
