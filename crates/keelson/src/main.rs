//! The binary: flags, files, wiring, signals.

mod commands;
mod flags;

use anyhow::{Context, Result, bail};
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use flags::{Cli, Command, LogFormat, Serve};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Grace period for requests when the server has failed.
const BROKEN_STOP_MAX: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let began = Instant::now();
    let matches = Cli::command().get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let done = match cli.command {
        Command::Serve(serve) => run(*serve, flag_values(&matches), began),
        Command::Kubeconfig(ask) => kubeconfig(&ask),
        Command::Backup(ask) => commands::backup::run(&ask),
        Command::Restore(ask) => commands::restore::run(&ask),
        Command::Check(ask) => commands::check::run(&ask),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "keelson", &mut std::io::stdout());
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "keelson: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// The flags of `serve` and their values, by name.
fn flag_values(matches: &ArgMatches) -> Vec<(String, String)> {
    let (command, Some(("serve", matches))) = (Cli::command(), matches.subcommand()) else {
        return vec![];
    };
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

fn run(serve: Serve, flags: Vec<(String, String)>, began: Instant) -> Result<()> {
    // Whatever the server or a library makes is for its owner alone.
    rustix::process::umask(rustix::fs::Mode::from_bits_truncate(0o077));
    start_logs(&serve);
    let files = keelson::raise_open_files();
    tracing::debug!(files, "RLIMIT_NOFILE raised to the hard limit");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .worker_threads(std::thread::available_parallelism().map_or(2, |n| n.get().min(16)))
        .build()
        .context("start the runtime")?;
    runtime.block_on(async {
        let kubeconfig_path = serve.kubeconfig_path()?;
        let mut builder = serve.builder()?;
        builder.flags = flags;
        let data = match (&builder.etcd, &builder.data_dir) {
            (Some(etcd), _) => format!("etcd at {}", etcd.servers.join(",")),
            (None, Some(dir)) => dir.display().to_string(),
            (None, None) => "in memory only".to_owned(),
        };
        // Asked for before the start, so that no signal is missed.
        let mut stop = std::pin::pin!(stop_asked()?);
        let keelson = tokio::select! {
            keelson = builder.start() => keelson?,
            () = &mut stop => return Ok(()),
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
        let broken = tokio::select! {
            () = stop => None,
            why = keelson.broken() => Some(why),
            () = renewing => None,
        };
        tracing::info!("stopping: no new requests, waiting for those under way");
        let Some(why) = broken else {
            keelson.stop().await;
            return Ok(());
        };
        // What is under way may wait for what is broken.
        let _ = tokio::time::timeout(BROKEN_STOP_MAX, keelson.stop()).await;
        bail!("{why}")
    })
}

/// Ends when Ctrl-C or SIGTERM comes.
fn stop_asked() -> Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for signals")?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

fn start_logs(serve: &Serve) {
    let level = match serve.verbosity {
        0 => tracing::Level::WARN,
        1 | 2 => tracing::Level::INFO,
        3..=5 => tracing::Level::DEBUG,
        _ => tracing::Level::TRACE,
    };
    let logs = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match serve.log_format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
}

fn kubeconfig(ask: &flags::KubeconfigAsk) -> Result<()> {
    let path = ask.path()?;
    let read = || {
        std::fs::read_to_string(&path).with_context(|| {
            format!("{} is not there; `keelson serve` writes it (see --data-dir)", path.display())
        })
    };
    let text = match ask.certificate()? {
        None => read()?,
        Some(certificate) => {
            let url = match &ask.server {
                Some(url) => url.clone(),
                None => server_of(&read()?).context("--server: the kubeconfig names none")?,
            };
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
            let now = i64::try_from(now.as_secs())?;
            let made = certificate.kubeconfig(&ask.cert_dir()?, &url, now);
            made.map_err(anyhow::Error::msg)?.text().to_owned()
        }
    };
    std::io::stdout().write_all(text.as_bytes()).context("write to standard output")
}

/// The server that a kubeconfig of ours names.
fn server_of(kubeconfig: &str) -> Option<String> {
    let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: "));
    line.map(str::to_owned)
}
