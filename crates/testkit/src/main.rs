//! `keelson-testkit record` and `replay`: records what a server answers to the requests of transcripts, and compares.

use keelson_testkit::api::Api;
use keelson_testkit::transcript::{Answers, Reply, Request, Transcript, record, replay};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const HELP: &str = "\
record --server URL --token TOKEN [FILE|all]...
replay --server URL --token TOKEN [FILE|all]... [--show N]

Transcripts are files of requests and of what a kube-apiserver 1.36 answered to them; `all`, or no file, means those of
this repository (crates/*/tests/**/*.transcript). The head of crates/testkit/src/transcript.rs tells their form, and
normal.rs beside it what of an answer is kept.

`record` sends the requests of the files to a server and writes its answers into the files, in place of those that stand
there. A new file needs only requests. `replay` sends the same requests and compares: each answer that differs is shown
with its request, of each file the first N (default 10), and in the end comes the count. Both end with 1 when something
is amiss.

TOKEN is one of an administrator (system:masters). Control loops would change what requests meet: start kube-apiserver
without kube-controller-manager, Keelson with --controllers=-*. The certificate of the server is not checked. For example:

  keelson serve --controllers=-* --data-dir /tmp/k --secure-port 7443 --token-auth-file tokens.csv &
  cargo xtask replay --server https://127.0.0.1:7443 --token admintoken
";

/// A server that is reached over HTTPS.
struct Remote(Api);

impl Answers for Remote {
    fn ask(&mut self, request: &Request<'_>) -> Result<Reply, String> {
        let Request { method, path, media_type, body } = *request;
        let answer = self.0.send_text(method, path, media_type, body);
        let answer = answer.map_err(|why| format!("no answer: {why}"))?;
        Ok(Reply { code: answer.code, warnings: answer.warnings, body: answer.body })
    }
}

/// What the command line says.
struct Asked {
    is_recording: bool,
    server: Remote,
    files: Vec<PathBuf>,
    shown: usize,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.is_empty() || words.iter().any(|word| word == "--help" || word == "-h") {
        return say(HELP, ExitCode::SUCCESS);
    }
    match Asked::read(&words).and_then(run) {
        Ok((text, 0)) => say(&text, ExitCode::SUCCESS),
        Ok((text, _)) => say(&text, ExitCode::FAILURE),
        Err(why) => say(&format!("{why}\n"), ExitCode::FAILURE),
    }
}

fn say(text: &str, code: ExitCode) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

impl Asked {
    fn read(words: &[String]) -> Result<Asked, String> {
        let mut words = words.iter();
        let is_recording = match words.next().map(String::as_str) {
            Some("record") => true,
            Some("replay") => false,
            _ => return Err("say `record` or `replay`; --help tells more".to_owned()),
        };
        let (mut url, mut token, mut files, mut shown) = (None, None, vec![], 10);
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--server" => url = Some(value()?),
                "--token" => token = Some(value()?),
                "--show" => shown = value()?.parse().map_err(|_| "--show needs a number")?,
                "all" => files.extend(all()?),
                option if option.starts_with('-') => {
                    return Err(format!("unknown option {option}"));
                }
                file => files.push(PathBuf::from(file)),
            }
        }
        if files.is_empty() {
            files = all()?;
        }
        let url = url.ok_or("--server URL is missing")?;
        let address = url.trim_end_matches('/').strip_prefix("https://");
        let address = address.and_then(|address| address.parse().ok());
        let address = address.ok_or(format!("{url} is not https://ADDRESS:PORT"))?;
        let api = Api::unchecked(address, token).map_err(|why| why.to_string())?;
        Ok(Asked { is_recording, server: Remote(api), files, shown })
    }
}

/// The transcripts of the repository.
fn all() -> Result<Vec<PathBuf>, String> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = vec![];
    let fault = |why: std::io::Error| format!("{}: {why}", crates.display());
    for entry in std::fs::read_dir(&crates).map_err(fault)? {
        collect(&entry.map_err(fault)?.path().join("tests"), &mut found);
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

/// What is to be told, and how many faults there are.
fn run(mut asked: Asked) -> Result<(String, usize), String> {
    let (mut text, mut answers, mut faults) = (String::new(), 0, 0);
    for file in &asked.files {
        let fault = |why: String| format!("{}: {why}", file.display());
        let read = std::fs::read_to_string(file).map_err(|why| fault(why.to_string()))?;
        let mut transcript = Transcript::parse(&read).map_err(fault)?;
        let outcome = match asked.is_recording {
            true => record(&mut transcript, &mut asked.server),
            false => replay(&transcript, &mut asked.server),
        };
        answers += outcome.answers;
        faults += outcome.faults.len();
        for one in outcome.faults.iter().take(asked.shown) {
            text.push_str(&format!("{}:{}: {}\n", file.display(), one.line, one.text));
        }
        if asked.is_recording && outcome.faults.is_empty() {
            std::fs::write(file, transcript.to_text()).map_err(|why| fault(why.to_string()))?;
        }
    }
    let files = asked.files.len();
    text.push_str(&match asked.is_recording {
        true => format!("{answers} answers in {files} files recorded, {faults} faults\n"),
        false => format!("{answers} answers in {files} files compared, {faults} differ\n"),
    });
    Ok((text, faults))
}
