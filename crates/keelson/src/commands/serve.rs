//! `keelson serve` and `kube-apiserver`: reads the flags, runs the server until a signal, and stops
//! it.

mod ephemeral;
mod idle_memory;
mod json_log;

use crate::flags::configure::{self, Configured};
use crate::flags::pflag::Values;
use crate::flags::table::Face;
use crate::flags::{data_dir, help};
use crate::stop_signals;
use crate::version;
use anyhow::{Context, Result, anyhow, bail};
use ephemeral::Ephemeral;
use json_log::JsonLog;
use keelson::{Builder, Keelson};
use keelson_meta::status::quote;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Grace period for requests after a fatal error.
const FATAL_STOP_TIME_MAX: Duration = Duration::from_secs(5);
/// kube-apiserver has no flag for control loops: this names those to run, as `--controllers` of
/// `serve`.
const CONTROLLERS_VARIABLE: &str = "KEELSON_CONTROLLERS";
/// How many tasks a thread runs until it looks at its sockets while it is never idle. Tokio's 61
/// let requests wait through 61 turns of lists.
const EVENT_INTERVAL: u32 = 16;
/// The Kubernetes version that the server implements.
const KUBERNETES_VERSION: &str = "1.36";

/// Runs a command with its arguments. `began` is the start of the process.
pub fn run(face: Face, arguments: Vec<String>, began: Instant) -> ExitCode {
    match command(face, arguments, began) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut err = std::io::stderr();
            // What kube-apiserver writes before it logs, and after.
            let _ = match (face, error) {
                (Face::Serve, Failed::Usage(why) | Failed::Run(why)) => {
                    writeln!(err, "keelson: {why}")
                }
                (Face::KubeApiserver, Failed::Usage(why)) => writeln!(err, "Error: {why}"),
                (Face::KubeApiserver, Failed::Run(why)) => {
                    writeln!(err, "\"command failed\" err={}", logged(&why))
                }
            };
            ExitCode::from(1)
        }
    }
}

/// Returns a value in a line of the log: several lines are indented below it.
fn logged(text: &str) -> String {
    match text.contains('\n') {
        true => format!("<\n\t{}\n >", text.replace('\n', "\n\t")),
        false => quote(text),
    }
}

/// Why a command ended.
enum Failed {
    /// The command line cannot be read.
    Usage(String),
    /// Flags are wrong together, or the server failed.
    Run(String),
}

fn command(face: Face, arguments: Vec<String>, began: Instant) -> Result<(), Failed> {
    let values =
        configure::read(face, arguments).map_err(|error| Failed::Usage(error.to_string()))?;
    for warning in &values.warnings {
        let _ = writeln!(std::io::stderr(), "{warning}");
    }
    if values.bool("help") {
        return print(&help::text(face));
    }
    let words: Vec<String> =
        values.words.iter().filter(|word| !word.is_empty()).map(|word| quote(word)).collect();
    if !words.is_empty() {
        let name = match face {
            Face::Serve => "keelson serve",
            Face::KubeApiserver => "kube-apiserver",
        };
        let words = words.join(" ");
        return Err(Failed::Usage(format!("{name:?} does not take any arguments, got [{words}]")));
    }
    match values.text("version") {
        "true" => return print(&format!("Kubernetes {}\n", keelson::KUBERNETES_VERSION)),
        "raw" => return print(&raw_version()),
        // The version to report, or `false`.
        _ => {}
    }
    serve(face, &values, began).map_err(|error| Failed::Run(format!("{error:#}")))
}

fn print(text: &str) -> Result<(), Failed> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|error| Failed::Run(format!("write to standard output: {error}")))
}

/// Returns the version as Go prints the struct that holds it.
fn raw_version() -> String {
    let (major, minor) = KUBERNETES_VERSION.split_once('.').unwrap_or((KUBERNETES_VERSION, ""));
    format!(
        "version.Info{{Major:{major:?}, Minor:{minor:?}, GitVersion:{:?}, GitCommit:{:?}, \
         Platform:\"{}/{}\"}}\n",
        keelson::KUBERNETES_VERSION,
        format!("keelson-{}", version::VERSION),
        std::env::consts::OS,
        std::env::consts::ARCH,
    )
}

/// Serves until a signal or a fatal error.
fn serve(face: Face, values: &Values, began: Instant) -> Result<()> {
    // Files that a library creates are private, too.
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o077));
    start_logs(values);
    let Configured { mut builder, notes } =
        configure::configure_from_files(face, values).map_err(|errors| {
            anyhow!(match &errors[..] {
                [one] => one.clone(),
                all => format!("[{}]", all.join(", ")),
            })
        })?;
    if face == Face::KubeApiserver
        && let Ok(controllers) = std::env::var(CONTROLLERS_VARIABLE)
    {
        builder.controllers.selected =
            controllers.split(',').map(|name| name.trim().to_owned()).collect();
    }
    for note in notes {
        tracing::warn!("{note}");
    }
    let files = keelson::raise_open_files();
    tracing::debug!(files, "RLIMIT_NOFILE raised to the hard limit");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(std::thread::available_parallelism().map_or(2, |n| n.get().min(16)))
        .event_interval(EVENT_INTERVAL)
        .on_thread_park(idle_memory::before_waiting)
        .build()
        .context("start the runtime")?;
    // Registered before the start, so that no signal is missed.
    let stop = stop_signals::listen(builder.stop_time_max())?;
    let ready = match face {
        Face::Serve if values.bool("ephemeral") => {
            let ephemeral = Ephemeral::new(values.path("kubeconfig"))?;
            builder = ephemeral.configure(builder);
            ephemeral::stop_with_input()?;
            Ready::Ephemeral(ephemeral)
        }
        Face::Serve => Ready::Banner { kubeconfig: kubeconfig_path(values)? },
        Face::KubeApiserver => Ready::Silent,
    };
    let result = runtime.block_on(until_stopped(builder, ready, stop, began));
    // Tasks that still run do not hold up the end: the store is closed.
    runtime.shutdown_background();
    result
}

fn kubeconfig_path(values: &Values) -> Result<PathBuf> {
    match values.path("kubeconfig") {
        Some(path) => Ok(path),
        None => Ok(data_dir(values.path("data-dir").as_ref())?.join("admin.kubeconfig")),
    }
}

/// What a server that is ready writes.
enum Ready {
    /// Nothing.
    Silent,
    /// The administrator's kubeconfig, and a banner for people.
    Banner { kubeconfig: PathBuf },
    /// A line for programs.
    Ephemeral(Ephemeral),
}

impl Ready {
    fn kubeconfig(&self) -> Option<&Path> {
        match self {
            Ready::Silent => None,
            Ready::Banner { kubeconfig } => Some(kubeconfig),
            Ready::Ephemeral(ephemeral) => ephemeral.kubeconfig(),
        }
    }

    /// Says that a server is ready. `data` is where its data is, `took` what its start took.
    fn announce(&mut self, keelson: &Keelson, data: &str, took: Duration) -> Result<()> {
        let kubeconfig = keelson.kubeconfig();
        let text = match self {
            Ready::Silent => return Ok(()),
            Ready::Banner { kubeconfig: path } => {
                kubeconfig.save(path).context("--kubeconfig")?;
                format!(
                    "Keelson {} serves the Kubernetes API {KUBERNETES_VERSION} on {} ({took} ms)\n  \
                     data        {data}\n  kubeconfig  {path}\n\n  export KUBECONFIG={path}\n  \
                     kubectl get namespaces\n\n",
                    version::VERSION,
                    keelson.url(),
                    took = took.as_millis(),
                    path = path.display(),
                )
            }
            Ready::Ephemeral(ephemeral) => {
                ephemeral.save(kubeconfig.text())?;
                ephemeral.line(keelson, kubeconfig.text())
            }
        };
        let mut out = std::io::stdout();
        let _ = out.write_all(text.as_bytes());
        let _ = out.flush();
        Ok(())
    }
}

/// Starts the server, waits for the signal, and stops it.
async fn until_stopped(
    builder: Builder,
    mut ready: Ready,
    mut stop: stop_signals::StopSignal,
    began: Instant,
) -> Result<()> {
    let data = match (&builder.storage.etcd, &builder.storage.data_dir) {
        (Some(etcd), _) => format!("etcd at {}", etcd.servers.join(",")),
        (None, Some(dir)) => dir.display().to_string(),
        (None, None) => "in memory only".to_owned(),
    };
    let keelson = tokio::select! {
        keelson = builder.start() => keelson?,
        () = stop.received() => return Ok(()),
    };
    let took = began.elapsed();
    keelson_platform::allocator::give_back_soon();
    tracing::info!(url = keelson.url(), milliseconds = took.as_millis(), "serving");
    ready.announce(&keelson, &data, took)?;
    let mut renewals = keelson.kubeconfig_renewals();
    let renewing = async {
        loop {
            let renewed = renewals.next().await;
            let Some(path) = ready.kubeconfig() else { continue };
            if let Err(error) = renewed.save(path) {
                tracing::error!(%error, source = %error.source, "renewed kubeconfig not saved");
            }
        }
    };
    let fatal_error = tokio::select! {
        () = stop.received() => None,
        error = keelson.fatal_error() => Some(error),
        () = renewing => None,
        () = idle_memory::run() => None,
    };
    tracing::info!("stopping: refusing new requests, waiting for those in flight");
    let Some(error) = fatal_error else {
        keelson.stop().await;
        return Ok(());
    };
    // Requests in flight may wait forever for the component that failed.
    let _ = tokio::time::timeout(FATAL_STOP_TIME_MAX, keelson.stop()).await;
    bail!("{error}")
}

fn start_logs(values: &Values) {
    let level = match values.int("v") {
        0 => tracing::Level::WARN,
        1 | 2 => tracing::Level::INFO,
        3..=5 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let logs = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        // They would be written to standard error too, which may be what cannot be written.
        .log_internal_errors(false)
        .with_ansi(std::io::stderr().is_terminal());
    match configure::log_format(values) {
        "json" => logs.event_format(JsonLog).init(),
        _ => logs.init(),
    }
}
