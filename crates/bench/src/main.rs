//! `keelson-bench`: measures any Kubernetes API server from outside, over its own protocol.

mod client;
mod drive;
mod histogram;
mod lists;
mod mixed;
mod report;
mod server;
mod start;
mod target;
mod watches;
mod writes;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand, ValueEnum};
use report::Report;
use server::Spawned;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use target::Target;

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
#[derive(Debug, clap::Args)]
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
    /// A server program to start for this run, on an empty folder; `start` needs one.
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
    /// The process whose memory `soak` looks at, where the server was not started by this program.
    #[arg(long)]
    pid: Option<u32>,
    /// All requests over one HTTP/2 connection, instead of one HTTP/1.1 connection for each worker.
    #[arg(long)]
    http2: bool,
    /// Workers: each has one request under way.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// How long each profile lasts.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// Bytes of data in each object that is written.
    #[arg(long, default_value_t = 1024)]
    size: usize,
    /// Objects that are listed.
    #[arg(long, default_value_t = 5000)]
    objects: usize,
    /// Watchers of `watch`.
    #[arg(long, default_value_t = 100)]
    watchers: usize,
    /// Nodes of `mixed` and `soak`, each with a lease that is renewed each second.
    #[arg(long, default_value_t = 100)]
    nodes: usize,
    /// Times that `start` starts the server.
    #[arg(long, default_value_t = 10)]
    starts: usize,
    /// What is known of this run: commit, date.
    #[arg(long, default_value = "")]
    note: String,
    /// How the result is written.
    #[arg(short, long, value_enum, default_value = "table")]
    output: report::Form,
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
    output: report::Form,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Profile {
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
    /// Nodes renew leases, pods come and go, controllers list and watch.
    Mixed,
    /// The same for long, with memory and latencies minute by minute.
    Soak,
}

impl Profile {
    const ALL: [Profile; 11] = [
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
        Profile::Mixed,
    ];
}

/// What every profile needs to know.
pub struct Bench {
    target: Arc<Target>,
    run: Run,
    /// The server's process, where it is known.
    pid: Option<u32>,
    /// What the names of all objects begin with.
    namespace: String,
}

impl Bench {
    fn span(&self) -> Duration {
        Duration::from_secs(self.run.seconds)
    }

    /// The collection of a resource in the namespace of this run.
    fn path(&self, prefix: &str, resource: &str) -> String {
        format!("{prefix}/namespaces/{}/{resource}", self.namespace)
    }

    fn maps(&self) -> String {
        self.path("/api/v1", "configmaps")
    }
}

fn main() -> Result<()> {
    match Cli::parse().command {
        Command::Run(run) => {
            let runtime = tokio::runtime::Runtime::new().context("start the runtime")?;
            runtime.block_on(measure(*run))
        }
        Command::Show(show) => {
            let ours = Report::load(&show.file)?;
            let other = show.compare.as_deref().map(Report::load).transpose()?;
            write(&ours.written(show.output, other.as_ref())?)
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
    let (mut report, form) = (Report::new(&run.note), run.output);
    if run.profiles.contains(&Profile::Start) {
        let Some(program) = &run.spawn else { bail!("start: --spawn names the program to start") };
        start::run(program, &run.spawn_args, run.starts, &mut report).await?;
        run.profiles.retain(|profile| *profile != Profile::Start);
    }
    if !run.profiles.is_empty() {
        let spawned = match &run.spawn {
            Some(program) => Some(Spawned::start(program, &run.spawn_args, run.http2).await?.0),
            None => None,
        };
        let target = match &spawned {
            Some(spawned) => spawned.target.clone(),
            None => Arc::new(Target::of(&run)?),
        };
        let namespace = format!("bench-{}", std::process::id());
        let pid = spawned.as_ref().map(Spawned::pid).or(run.pid);
        let bench = Bench { target, run, pid, namespace };
        profiles(&bench, &mut report).await?;
    }
    write(&report.written(form, None)?)
}

async fn profiles(bench: &Bench, report: &mut Report) -> Result<()> {
    drive::make_namespace(bench).await?;
    for profile in &bench.run.profiles {
        match profile {
            Profile::Start => {}
            Profile::Create
            | Profile::Get
            | Profile::Update
            | Profile::Patch
            | Profile::Apply
            | Profile::Delete => writes::run(bench, *profile, report).await?,
            Profile::Lease => writes::leases(bench, report).await?,
            Profile::List => lists::run(bench, report).await?,
            Profile::Watch => watches::run(bench, report).await?,
            Profile::Mixed => mixed::run(bench, report).await?,
            Profile::Soak => mixed::soak(bench, report).await?,
        }
    }
    drive::drop_namespace(bench).await
}
