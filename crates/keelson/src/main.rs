//! The `keelson` binary: commands, flags and logs.

mod commands;
mod flags;
mod stop_signals;

use anyhow::{Context, Result, bail};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use flags::{Cli, Command, LogFormat, ServeFlags};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Grace period for requests after a fatal error.
const FATAL_STOP_TIME_MAX: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let began = Instant::now();
    let mut command = Cli::command();
    let matches = command.get_matches_mut();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let result = match cli.command {
        Command::Serve(flags) => serve(*flags, flag_values(&command, &matches), began),
        Command::Kubeconfig(flags) => kubeconfig(&flags),
        Command::Backup(flags) => commands::backup::run(&flags),
        Command::Restore(flags) => commands::restore::run(&flags),
        Command::Check(flags) => commands::check::run(&flags),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut command, "keelson", &mut std::io::stdout());
            Ok(())
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "keelson: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// Returns the flags of `serve` and their values, sorted by name.
fn flag_values(command: &clap::Command, matches: &ArgMatches) -> Vec<(String, String)> {
    let Some(("serve", matches)) = matches.subcommand() else { return vec![] };
    let serve = command.find_subcommand("serve").map(clap::Command::get_arguments);
    let mut flags: Vec<(String, String)> = serve
        .into_iter()
        .flatten()
        .filter_map(|flag| {
            let given = matches.get_raw(flag.get_id().as_str()).into_iter().flatten();
            let values: Vec<_> = given.map(|value| value.to_string_lossy()).collect();
            Some((flag.get_long()?.to_owned(), values.join(",")))
        })
        .collect();
    flags.sort();
    flags
}

/// Runs `keelson serve`. `began` is the start of the process.
fn serve(flags: ServeFlags, flag_values: Vec<(String, String)>, began: Instant) -> Result<()> {
    // Files that a library creates are private, too.
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o077));
    start_logs(&flags);
    let files = keelson::raise_open_files();
    tracing::debug!(files, "RLIMIT_NOFILE raised to the hard limit");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(std::thread::available_parallelism().map_or(2, |n| n.get().min(16)))
        .build()
        .context("start the runtime")?;
    // Registered before the start, so that no signal is missed.
    let mut stop = stop_signals::listen(keelson::STOP_TIME_MAX)?;
    let result = runtime.block_on(async {
        let kubeconfig_path = flags.kubeconfig_path()?;
        let mut builder = flags.builder()?;
        builder.flags = flag_values;
        let data = match (&builder.etcd, &builder.data_dir) {
            (Some(etcd), _) => format!("etcd at {}", etcd.servers.join(",")),
            (None, Some(dir)) => dir.display().to_string(),
            (None, None) => "in memory only".to_owned(),
        };
        let keelson = tokio::select! {
            keelson = builder.start() => keelson?,
            () = stop.received() => return Ok(()),
        };
        keelson.kubeconfig().save(&kubeconfig_path).context("--kubeconfig")?;
        let mut out = std::io::stdout();
        let took = began.elapsed().as_millis();
        let _ = writeln!(
            out,
            "Keelson {} serves the Kubernetes API {} on {} ({took} ms)\n  data        {data}\n  \
             kubeconfig  {path}\n\n  export KUBECONFIG={path}\n  kubectl get namespaces\n",
            env!("CARGO_PKG_VERSION"),
            flags::KUBERNETES_VERSION,
            keelson.url(),
            path = kubeconfig_path.display(),
        );
        let _ = out.flush();
        let mut renewals = keelson.kubeconfig_renewals();
        let renewing = async {
            loop {
                let kubeconfig = renewals.next().await;
                if let Err(error) = kubeconfig.save(&kubeconfig_path) {
                    tracing::error!(%error, source = %error.source, "renewed kubeconfig not saved");
                }
            }
        };
        let fatal_error = tokio::select! {
            () = stop.received() => None,
            error = keelson.fatal_error() => Some(error),
            () = renewing => None,
        };
        tracing::info!("stopping: refusing new requests, waiting for those in flight");
        let Some(error) = fatal_error else {
            keelson.stop().await;
            return Ok(());
        };
        // Requests in flight may wait forever for the component that failed.
        let _ = tokio::time::timeout(FATAL_STOP_TIME_MAX, keelson.stop()).await;
        bail!("{error}")
    });
    // Tasks that still run do not hold up the end: the store is closed.
    runtime.shutdown_background();
    result
}

fn start_logs(flags: &ServeFlags) {
    let level = match flags.verbosity {
        0 => tracing::Level::WARN,
        1 | 2 => tracing::Level::INFO,
        3..=5 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let logs = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match flags.log_format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
}

/// Runs `keelson kubeconfig`.
fn kubeconfig(flags: &flags::KubeconfigFlags) -> Result<()> {
    let path = flags.path()?;
    let read = || {
        std::fs::read_to_string(&path).with_context(|| {
            format!("{} is not there; `keelson serve` writes it (see --data-dir)", path.display())
        })
    };
    let text = match flags.certificate()? {
        None => read()?,
        Some(certificate) => {
            let url = match &flags.server {
                Some(url) => url.clone(),
                None => server_of(&read()?).context("--server: the kubeconfig names none")?,
            };
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
            let now = i64::try_from(now.as_secs())?;
            let kubeconfig = certificate.kubeconfig(&flags.cert_dir()?, &url, now);
            kubeconfig.map_err(anyhow::Error::msg)?.text().to_owned()
        }
    };
    std::io::stdout().write_all(text.as_bytes()).context("write to standard output")
}

/// Returns the server URL of a kubeconfig that Keelson wrote.
fn server_of(kubeconfig: &str) -> Option<String> {
    let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: "));
    line.map(str::to_owned)
}
