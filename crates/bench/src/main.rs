//! `keelson-bench`: measures any Kubernetes API server from outside, over its own protocol.

mod accounts;
mod ask;
mod bodies;
mod budget;
mod client;
mod definitions;
mod drive;
mod etcd;
mod growth;
mod histogram;
mod http1;
mod lists;
mod mixed;
mod process;
mod report;
mod server;
mod soak;
mod start;
mod table;
mod target;
mod watches;
mod webhooks;
mod writes;

use anyhow::{Context, Result, bail, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use process::Processes;
use report::Report;
use server::{Program, Spawned};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use target::Target;

/// The longest a profile may last: a week.
const SECONDS_MAX: f64 = 7.0 * 86_400.0;
/// How long a server is left alone before its memory is looked at, in runs that are not shorter.
const SETTLE: Duration = Duration::from_secs(2);

/// A load generator for Kubernetes API servers.
#[derive(Debug, Parser)]
#[command(name = "keelson-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Measures.
    Run(Box<Run>),
    /// Shows a result that was written as JSON.
    Show(Show),
}

/// What is measured, and of what.
#[derive(Clone, Debug, clap::Args)]
pub struct Run {
    /// What is measured, in this order; all of it but soak when nothing is named.
    #[arg(value_enum)]
    profiles: Vec<Profile>,
    /// The server's URL.
    #[arg(long)]
    server: Option<String>,
    /// A bearer token.
    #[arg(long)]
    token: Option<String>,
    /// The server, its authority and the credentials, from a kubeconfig.
    #[arg(long, value_name = "FILE", conflicts_with = "server")]
    kubeconfig: Option<PathBuf>,
    /// Takes any certificate of the server.
    #[arg(long)]
    insecure_skip_tls_verify: bool,
    /// The authority of the server's certificate.
    #[arg(long, value_name = "FILE")]
    certificate_authority: Option<PathBuf>,
    /// A server program to start for this run, on an empty folder; `start` and `etcd` need one. `budget`,
    /// `growth` and `etcd` start one for each thing that they fill a store for.
    #[arg(long, value_name = "PROGRAM")]
    spawn: Option<PathBuf>,
    /// Its arguments; {dir}, {port} and {tokens} stand for a folder, a port and a token file.
    #[arg(
        long,
        value_name = "ARGS",
        allow_hyphen_values = true,
        default_value = "serve --data-dir {dir} --secure-port {port} --bind-address 127.0.0.1 \
                         --token-auth-file {tokens}"
    )]
    spawn_args: String,
    /// The etcd program that `etcd` starts; the server that it measures also gets `--etcd-servers URL`.
    #[arg(long, value_name = "PROGRAM", default_value = "etcd")]
    etcd: PathBuf,
    /// The server's processes, whose memory and time are looked at, where this program did not start it.
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    pid: Vec<u32>,
    /// All requests over one HTTP/2 connection, instead of one HTTP/1.1 connection for each worker.
    #[arg(long)]
    http2: bool,
    /// Workers: each has one request under way.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Threads of the load generator; as many as there are cores unless given.
    #[arg(long)]
    threads: Option<usize>,
    /// How long each profile lasts, and in `budget`, `growth` and `etcd` each load.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Bytes of data in each object that is written.
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// Objects that `list` lists (5,000), that `growth` grows to at most (1,000,000), and pods that `soak`
    /// has all the time (1,000).
    #[arg(long)]
    objects: Option<usize>,
    /// How large the stores of `budget`, `growth` and `etcd` are, as a part of what they ought to be: to try them.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Watchers of `watch`.
    #[arg(long, default_value_t = 100)]
    watchers: usize,
    /// Writes of `watch` a second [default: as many as it takes].
    #[arg(long, value_name = "WRITES")]
    pace: Option<u32>,
    /// Nodes of `mixed` and `soak`, each with a lease that is renewed each second.
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// Times that `start` starts the server.
    #[arg(long, default_value_t = 10)]
    starts: usize,
    /// What is known of this run: commit, date.
    #[arg(long, default_value = "")]
    note: String,
    /// Another result as JSON, for a second column.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// How the result is written.
    #[arg(short, long, value_enum, default_value = "table")]
    output: table::Form,
}

#[derive(Debug, clap::Args)]
struct Show {
    /// A result as JSON.
    file: PathBuf,
    /// Another one, for a second column.
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// How the result is written.
    #[arg(short, long, value_enum, default_value = "table")]
    output: table::Form,
}

impl Run {
    /// The server to start.
    fn program(&self) -> Option<Program> {
        let (args, http2) = (self.spawn_args.clone(), self.http2);
        self.spawn.clone().map(|path| Program { path, args, http2 })
    }

    /// A number of objects or watchers, made smaller by `--scale`.
    fn scaled(&self, count: usize) -> usize {
        ((count as f64 * self.scale) as usize).max(1)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Profile {
    /// Everything that a budget was agreed on, each line beside it. Takes about three minutes.
    Budget,
    /// What requests cost with 1,000 to 1,000,000 objects, and events with 10 to 1,000 watchers. Takes
    /// about five minutes.
    Growth,
    /// What was agreed on for a server whose data is in an etcd on the same machine. Takes about a minute.
    Etcd,
    /// From the start of the process to the first 200 of /readyz, and the memory of an idle server.
    Start,
    /// ConfigMaps are created.
    Create,
    /// ConfigMaps are read.
    Get,
    /// ConfigMaps are replaced.
    Update,
    /// ConfigMaps are changed by merge patch.
    Patch,
    /// ConfigMaps are changed by server-side apply.
    Apply,
    /// ConfigMaps are deleted.
    Delete,
    /// Leases are renewed.
    Lease,
    /// ConfigMaps are listed: whole, by page, by label; JSON and protobuf; from the cache and consistent.
    List,
    /// Writes are told to many watchers.
    Watch,
    /// A Pod is read by a service account that RBAC allows it, beside the administrator; an admission webhook is
    /// called.
    Access,
    /// Nodes renew leases, pods come and go, controllers list and watch.
    Mixed,
    /// The same for `--seconds` (20 minutes are 1200), with memory and latencies minute by minute, and a
    /// burst in the end. Fails when memory or latencies grow, a request fails, or the burst is felt
    /// for a second.
    Soak,
}

impl Profile {
    const ALL: [Profile; 15] = [
        Profile::Budget,
        Profile::Growth,
        Profile::Etcd,
        Profile::Start,
        Profile::Create,
        Profile::Get,
        Profile::Update,
        Profile::Patch,
        Profile::Apply,
        Profile::Delete,
        Profile::Lease,
        Profile::List,
        Profile::Watch,
        Profile::Access,
        Profile::Mixed,
    ];

    /// Whether it opens what it measures itself.
    fn is_apart(self) -> bool {
        matches!(self, Profile::Budget | Profile::Growth | Profile::Etcd | Profile::Start)
    }
}

/// A place to measure: a server, and a namespace on it.
pub struct Bench {
    target: Arc<Target>,
    run: Arc<Run>,
    /// The server's processes, where they are known.
    processes: Option<Processes>,
    namespace: String,
    /// The server, where it was started for this place.
    server: Option<Spawned>,
}

impl Bench {
    /// A place where nothing is yet: a server of its own where there is a program to start, else a
    /// namespace of its own on the server that the flags name.
    async fn open(run: &Arc<Run>) -> Result<Bench> {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let number = OPENED.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("bench-{}-{number}", std::process::id());
        let named = (!run.pid.is_empty()).then(|| Processes(run.pid.clone()));
        let (target, processes, server) = match run.program() {
            Some(program) => {
                let server = Spawned::start(&program).await?;
                (server.target.clone(), Some(server.processes()), Some(server))
            }
            None => (Arc::new(Target::of(run)?), named, None),
        };
        let bench = Bench { target, run: run.clone(), processes, namespace, server };
        drive::make_namespace(&bench).await?;
        Ok(bench)
    }

    /// Leaves nothing there.
    async fn close(self) -> Result<()> {
        if self.server.is_none() { drive::drop_namespace(&self).await } else { Ok(()) }
    }

    /// The same place over HTTP/1.1 or HTTP/2; it must not outlive this one.
    fn over(&self, http2: bool) -> Bench {
        self.with(self.target.over(http2))
    }

    /// The same place in another way, such as another user's; it must not outlive this one.
    fn with(&self, target: Target) -> Bench {
        let (run, namespace) = (self.run.clone(), self.namespace.clone());
        let processes = self.processes.clone();
        Bench { target: Arc::new(target), run, processes, namespace, server: None }
    }

    /// What is seen of the server's processes, where they are known.
    fn seen<T>(&self, look: impl Fn(&Processes) -> Result<T>) -> Result<Option<T>> {
        self.processes.as_ref().map(look).transpose()
    }

    fn span(&self) -> Duration {
        Duration::from_secs_f64(self.run.seconds)
    }

    /// How long a server is left alone before its memory is looked at.
    fn settle(&self) -> Duration {
        SETTLE.min(self.span())
    }

    /// The collection of a resource in the namespace of this run.
    fn path(&self, prefix: &str, resource: &str) -> String {
        format!("{prefix}/namespaces/{}/{resource}", self.namespace)
    }

    fn maps(&self) -> String {
        self.path("/api/v1", "configmaps")
    }

    fn pods(&self) -> String {
        self.path("/api/v1", "pods")
    }

    fn leases(&self) -> String {
        self.path("/apis/coordination.k8s.io/v1", "leases")
    }
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Run(run) => {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            run.threads.map(|threads| builder.worker_threads(threads.max(1)));
            let runtime = builder.enable_all().build().context("start the runtime")?;
            runtime.block_on(measure(*run))
        }
        Command::Show(show) => {
            let ours = Report::load(&show.file)?;
            let other = show.compare.as_deref().map(Report::load).transpose()?;
            write(&table::written(&ours, show.output, other.as_ref())?)
        }
    }
}

fn write(text: &str) -> Result<()> {
    std::io::stdout().write_all(text.as_bytes()).context("write to standard output")
}

async fn measure(mut run: Run) -> Result<()> {
    if run.profiles.is_empty() {
        run.profiles = Profile::ALL.to_vec();
    }
    ensure!((0.01..=SECONDS_MAX).contains(&run.seconds), "--seconds: {}", run.seconds);
    ensure!(run.scale > 0.0 && run.scale <= 1.0, "--scale: {}", run.scale);
    let other = run.compare.as_deref().map(Report::load).transpose()?;
    let (mut report, form) = (Report::new(&run.note), run.output);
    profiles(&Arc::new(run), &mut report).await?;
    write(&table::written(&report, form, other.as_ref())?)?;
    ensure!(report.broken.is_empty(), "promises that did not hold: {}", report.broken.join("; "));
    Ok(())
}

async fn profiles(run: &Arc<Run>, report: &mut Report) -> Result<()> {
    // Those that do not fill the store share a place.
    let mut shared = None;
    for profile in run.profiles.iter().copied() {
        // All of them take ten minutes, and somebody waits.
        let name = profile.to_possible_value().map(|value| value.get_name().to_owned());
        writeln!(std::io::stderr(), "measures {}", name.unwrap_or_default())?;
        if profile.is_apart() {
            apart(run, profile, report).await?;
            continue;
        }
        let bench = match shared.take() {
            Some(bench) => bench,
            None => Bench::open(run).await?,
        };
        match profile {
            Profile::Budget | Profile::Growth | Profile::Etcd | Profile::Start => {}
            Profile::Create
            | Profile::Get
            | Profile::Update
            | Profile::Patch
            | Profile::Apply
            | Profile::Delete => writes::run(&bench, profile, report).await?,
            Profile::Lease => writes::leases(&bench, report).await?,
            Profile::List => lists::run(&bench, report).await?,
            Profile::Watch => watches::run(&bench, report).await?,
            Profile::Access => {
                accounts::run(&bench, report).await?;
                webhooks::run(&bench, report).await?;
            }
            Profile::Mixed => mixed::run(&bench, report).await?,
            Profile::Soak => soak::run(&bench, report).await?,
        }
        shared = Some(bench);
    }
    match shared {
        Some(bench) => bench.close().await,
        None => Ok(()),
    }
}

async fn apart(run: &Arc<Run>, profile: Profile, report: &mut Report) -> Result<()> {
    match profile {
        Profile::Budget => budget::run(run, report).await,
        Profile::Growth => growth::run(run, report).await,
        Profile::Etcd => etcd::run(run, report).await,
        _ => {
            let Some(program) = run.program() else {
                bail!("start: --spawn names the program to start")
            };
            start::run(&program, run.starts, report).await
        }
    }
}
