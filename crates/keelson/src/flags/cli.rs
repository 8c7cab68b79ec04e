//! The commands, and the flags of all but those that serve.

use super::manifests::{LintFlags, ValidateFlags};
use super::{data_dir, duration};
use crate::version;
use anyhow::Result;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use keelson::{Etcd, EtcdData};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long commands wait for an etcd cluster.
const ETCD_TIME_MAX: Duration = Duration::from_secs(10);

/// The Kubernetes API as one small, fast server.
#[derive(Debug, Parser)]
#[command(name = "keelson", version = version::LINE.as_str(), max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the Kubernetes API. Without flags the server listens on port 6443, and keeps its data,
    /// certificates and the administrator's kubeconfig in a folder in your home directory.
    #[command(disable_help_flag = true)]
    Serve(OtherFlags),
    /// Serve the Kubernetes API with exactly the flags of kube-apiserver. A link to this program
    /// with the name kube-apiserver does the same.
    #[command(disable_help_flag = true)]
    KubeApiserver(OtherFlags),
    /// Stand in the place of etcd beside `kube-apiserver`, for test environments that start both. A
    /// link to this program with the name etcd does the same.
    #[command(disable_help_flag = true)]
    Etcd(OtherFlags),
    /// Make a folder of programs for tests with envtest.
    ///
    /// The folder has this program under the names kube-apiserver and etcd, and the kubectl of this
    /// host if there is one. envtest uses them when KUBEBUILDER_ASSETS names the folder. With
    /// --archive, make an archive and an index that `setup-envtest --index` reads.
    #[command(after_help = ENVTEST_EXAMPLES)]
    Envtest(EnvtestFlags),
    /// Print the administrator's kubeconfig. To merge it with your own:
    /// `KUBECONFIG=~/.kube/config:<(keelson kubeconfig) kubectl config view --flatten`.
    ///
    /// With --user, print a kubeconfig for another user, with a client certificate that the
    /// server's own authority signs. Grant permissions to that user with roles and bindings. The
    /// certificate expires after its duration and cannot be revoked before.
    Kubeconfig(KubeconfigFlags),
    /// Save all data at one revision in a file. The server may be running.
    ///
    /// The backup holds every object with its resourceVersion, and ends with a checksum. A running
    /// server sends it through a socket in its data folder and accepts writes meanwhile. If no
    /// server runs, the data folder itself is read; it is not modified. Certificates (`pki` in the
    /// data folder) are not included. Anyone who can read the file can read every Secret in it.
    #[command(after_help = BACKUP_EXAMPLES)]
    Backup(BackupFlags),
    /// Create a new data folder from a backup.
    ///
    /// All resourceVersions are kept, and later ones are larger. Clients that watch from before the
    /// backup get 410 and list again. The data folder appears only after the checksum has been
    /// verified. The next start generates new certificates, unless you put `pki` back before.
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(RestoreFlags),
    /// Verify a data folder that no server uses, or a backup.
    ///
    /// Verifies the checksum of every page, reads every record, decodes every object with the
    /// schema of its kind, and prints the number of objects and bytes of each resource. If anything
    /// is damaged, prints a line for each damage and exits with 1. The folder is not modified:
    /// repairs after a crash are made in memory.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckFlags),
    /// See which keys stored values are encrypted with, or write those with an old key again.
    ///
    /// Asks the running server, by its path /keelson/encryption; a data folder that no server uses
    /// is read. The keys are those of --encryption-provider-config.
    #[command(subcommand, after_help = ENCRYPTION_EXAMPLES)]
    Encryption(EncryptionCommand),
    /// Print or change the time of a simulated cluster.
    ///
    /// Asks the running server, which was started with --simulate, by its path /keelson/simulation.
    #[command(subcommand, after_help = SIMULATION_EXAMPLES)]
    Simulation(SimulationCommand),
    /// Find what in CustomResourceDefinitions breaks the conventions of the Kubernetes API, and
    /// what the API server refuses of them.
    ///
    /// Needs no server. Objects of other kinds in the files are passed over. Exits with 0 if
    /// nothing of the given severity was found, with 1 if something was, with 2 if a file cannot be
    /// read.
    #[command(after_help = LINT_EXAMPLES)]
    Lint(LintFlags),
    /// Check manifests as the API server checks them when they are created, without a server.
    ///
    /// Built-in kinds, and custom resources whose definitions are among the files or named by
    /// --crds. Unknown and duplicate fields are errors. Policies, namespaces and other objects that
    /// matter for others count whatever the order of the files; namespaces that are only named are
    /// taken as existing. Webhooks are not called. Exits with 0 if all manifests are valid, with 1
    /// if one is not, with 2 if a file cannot be read.
    #[command(after_help = VALIDATE_EXAMPLES)]
    Validate(ValidateFlags),
    /// Look at the objects of a server in a browser.
    ///
    /// Serves a web page on this host, the explorer, and forwards its requests to the server of a
    /// kubeconfig with its user's credentials, to Keelson or any other. The printed address has a
    /// token that every request of the page carries; whoever knows the address can act as the user
    /// until this command ends (Ctrl-C).
    #[command(after_help = UI_EXAMPLES)]
    Ui(UiFlags),
    /// Print the versions of this program and of the server that runs, if there is one.
    ///
    /// The server is that of the administrator's kubeconfig in the data folder, or of --kubeconfig.
    Version(VersionFlags),
    /// Print a completion script: `source <(keelson completion bash)`.
    Completion {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

const BACKUP_EXAMPLES: &str = "\
Examples:
  keelson backup monday.backup           from the default data folder
  keelson backup - | zstd > all.zst      to another program
  keelson backup -o json --data-dir /var/lib/keelson monday.backup";
const RESTORE_EXAMPLES: &str = "\
Examples:
  keelson restore --data-dir /var/lib/keelson monday.backup
  keelson serve --data-dir /var/lib/keelson

  zstd -d < all.zst | keelson restore --data-dir /var/lib/keelson -";
const CHECK_EXAMPLES: &str = "\
Examples:
  keelson check                          the default data folder, at rest
  keelson check --repair                 the same, and removes what cannot be read
  keelson check monday.backup            a backup
  keelson backup - | keelson check -     what a running server holds
  keelson check -o json | jq .damages";

const ENCRYPTION_EXAMPLES: &str = "\
Examples:
  keelson encryption status
  keelson encryption rotate --kubeconfig ~/.kube/config
  keelson encryption status -o json | jq '.resources[] | select(.stale > 0)'";

const SIMULATION_EXAMPLES: &str = "\
Examples:
  keelson simulation status
  keelson simulation step 24h            tomorrow: what waits for a time before then happens now
  keelson simulation rate 60             from now on, a minute passes in each second
  keelson simulation port default/web 80 127.0.0.1:8080
                                         kubectl port-forward web 80 reaches what listens there";

const LINT_EXAMPLES: &str = "\
Examples:
  keelson lint crd.yaml
  keelson lint -R config/crd --severity advice --disable boolean,description
  kustomize build config/crd | keelson lint -
  keelson lint -R config/crd -o sarif > lint.sarif
  keelson lint --rules";

const VALIDATE_EXAMPLES: &str = "\
Examples:
  keelson validate deployment.yaml service.yaml
  keelson validate -R manifests --crds config/crd --policies policies
  helm template my-chart | keelson validate - --namespace web --strict
  keelson validate -R manifests -o json | jq '.results[] | select(.valid | not)'";

const UI_EXAMPLES: &str = "\
Examples:
  keelson ui                             the current context of your kubeconfig
  keelson ui --context staging --port 8080
  ssh -L 8080:127.0.0.1:8080 host keelson ui --no-open --port 8080";

const ENVTEST_EXAMPLES: &str = "\
Examples:
  eval \"$(keelson envtest ~/.local/share/keelson/envtest)\" && go test ./...

  keelson envtest --archive envtest-v1.36.2-linux-amd64.tar.gz --url https://files.example.com
  setup-envtest use --index https://files.example.com/envtest-releases.yaml 1.36.2";

/// The file name that stands for standard input or output.
pub const STDIO: &str = "-";

/// Output format of a command's summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SummaryFormat {
    /// A JSON object.
    Json,
}

/// Output format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ResultFormat {
    /// A JSON object.
    Json,
    /// YAML.
    Yaml,
}

/// Flags that this parser does not read: they are those of kube-apiserver, and are read as it reads
/// them.
#[derive(Debug, Args)]
pub struct OtherFlags {
    /// The flags; --help lists them.
    #[arg(value_name = "FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// Flags of `envtest`.
#[derive(Debug, Args)]
pub struct EnvtestFlags {
    /// The folder to make. Programs of the same names in it are replaced.
    #[arg(value_hint = ValueHint::DirPath, required_unless_present = "archive")]
    pub dir: Option<PathBuf>,
    /// The archive to make, with envtest-releases.yaml beside it. setup-envtest reads the version
    /// and the platform from the name: envtest-vX.Y.Z-OS-ARCH.tar.gz.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "dir")]
    pub archive: Option<PathBuf>,
    /// URL of the folder that the archive will be downloaded from, for the index.
    #[arg(long, value_name = "URL", requires = "archive")]
    pub url: Option<String>,
}

/// Flags that select the data folder.
#[derive(Debug, Args)]
pub struct DataFlags {
    /// Data folder of the server [default: $XDG_DATA_HOME/keelson, or ~/.local/share/keelson].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data_dir: Option<PathBuf>,
}

impl DataFlags {
    /// Returns the path of the data folder.
    pub fn dir(&self) -> Result<PathBuf> {
        data_dir(self.data_dir.as_ref())
    }
}

/// Flags that name an etcd cluster instead of a data folder; they are those of `serve`.
#[derive(Debug, Args)]
pub struct EtcdFlags {
    /// URLs of the etcd cluster that has the data: https://a:2379,https://b:2379.
    #[arg(long, value_name = "URLS", value_delimiter = ',', conflicts_with = "data_dir")]
    etcd_servers: Vec<String>,
    /// CA bundle for etcd's certificates [default: that of this host].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "etcd_servers")]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "etcd_keyfile")]
    etcd_certfile: Option<PathBuf>,
    /// Key of the client certificate for etcd.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "etcd_certfile")]
    etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd.
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    etcd_prefix: String,
    /// The server's file of this flag, if objects in etcd are encrypted. They are encrypted in the
    /// backup, too.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "etcd_servers")]
    encryption_provider_config: Option<PathBuf>,
}

impl EtcdFlags {
    /// Connects to the cluster; `None` if none is named.
    pub fn data(&self) -> Result<Option<EtcdData>> {
        if self.etcd_servers.is_empty() {
            return Ok(None);
        }
        let etcd = Etcd {
            ca_file: self.etcd_cafile.clone(),
            identity_files: self.etcd_certfile.clone().zip(self.etcd_keyfile.clone()),
            prefix: self.etcd_prefix.clone(),
            start_timeout: ETCD_TIME_MAX,
            ..Etcd::new(self.etcd_servers.clone())
        };
        let data = EtcdData::open(&etcd, self.encryption_provider_config.as_deref());
        data.map(Some).map_err(anyhow::Error::msg)
    }
}

/// Flags of `backup`.
#[derive(Debug, Args)]
pub struct BackupFlags {
    /// File to write; it appears under this name when it is complete. `-` is standard output.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: String,
    /// The data folder.
    #[command(flatten)]
    pub data: DataFlags,
    /// An etcd cluster in its place.
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// Output format of the summary [default: text].
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<SummaryFormat>,
}

/// Flags of `restore`.
#[derive(Debug, Args)]
pub struct RestoreFlags {
    /// Backup to restore. `-` is standard input.
    #[arg(value_hint = ValueHint::FilePath)]
    pub file: String,
    /// The data folder to create. It must not exist, or be empty.
    #[command(flatten)]
    pub data: DataFlags,
    /// An etcd cluster in its place. It must have no objects under the prefix.
    #[command(flatten)]
    pub etcd: EtcdFlags,
    /// Output format of the summary [default: text].
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<SummaryFormat>,
}

/// Flags of `check`.
#[derive(Debug, Args)]
pub struct CheckFlags {
    /// Backup to check instead of the data folder. `-` is standard input.
    #[arg(value_hint = ValueHint::FilePath, conflicts_with = "data_dir")]
    pub file: Option<String>,
    /// The data folder.
    #[command(flatten)]
    pub data: DataFlags,
    /// Remove records that cannot be read from the data folder. Records whose bytes match their
    /// checksum are saved in a file in that folder; the others are lost. An object whose newest
    /// record is removed goes back to its previous version if that is still in the history, else it
    /// is gone.
    #[arg(long, conflicts_with = "file")]
    pub repair: bool,
    /// The server's file of this flag: encrypted objects are checked too, not only their checksums.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub encryption_provider_config: Option<PathBuf>,
    /// Output format [default: a table].
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<ResultFormat>,
}

/// Flags that name a running server.
#[derive(Debug, Args)]
pub struct ServerFlags {
    /// Kubeconfig of a server [default: admin.kubeconfig in the data folder].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,
    /// The data folder.
    #[command(flatten)]
    pub data: DataFlags,
}

impl ServerFlags {
    /// Returns the kubeconfig: the given one, or that of the data folder.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        match &self.kubeconfig {
            Some(kubeconfig) => Ok(kubeconfig.clone()),
            None => Ok(self.data.dir()?.join("admin.kubeconfig")),
        }
    }
}

/// The commands of `encryption`.
#[derive(Debug, Subcommand)]
pub enum EncryptionCommand {
    /// Print how many objects of which resource are encrypted with which key.
    Status(EncryptionFlags),
    /// Write all values that have another key than new ones, while the server serves, and print the
    /// status after it.
    Rotate(EncryptionFlags),
}

/// Flags of `encryption status` and `encryption rotate`.
#[derive(Debug, Args)]
pub struct EncryptionFlags {
    /// The server.
    #[command(flatten)]
    pub server: ServerFlags,
    /// Output format [default: a table].
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<ResultFormat>,
}

/// The commands of `simulation`.
#[derive(Debug, Subcommand)]
pub enum SimulationCommand {
    /// Print the time in the cluster, and how fast it runs.
    Status(SimulationFlags),
    /// Move the time forward.
    Step {
        /// How far: 90s, 15m, 36h.
        duration: String,
        /// Which server, and the form of the output.
        #[command(flatten)]
        flags: SimulationFlags,
    },
    /// Set how fast the time runs.
    Rate {
        /// Seconds of the cluster in one second, from 0.001 to 10000.
        rate: f64,
        /// Which server, and the form of the output.
        #[command(flatten)]
        flags: SimulationFlags,
    },
    /// Let port-forward to a port of a simulated pod lead to an address of the server's machine.
    Port {
        /// The pod, which need not exist yet: NAMESPACE/NAME.
        pod: String,
        /// The port of the pod.
        port: u16,
        /// Where it leads, such as 127.0.0.1:8080 [default: nowhere any more].
        to: Option<std::net::SocketAddr>,
        /// Which server, and the form of the output.
        #[command(flatten)]
        flags: SimulationFlags,
    },
}

/// Flags of the commands of `simulation`.
#[derive(Debug, Args)]
pub struct SimulationFlags {
    /// The server.
    #[command(flatten)]
    pub server: ServerFlags,
    /// Output format [default: text].
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<ResultFormat>,
}

/// Flags of `ui`.
#[derive(Debug, Args)]
pub struct UiFlags {
    /// The kubeconfig [default: the first file of $KUBECONFIG, ~/.kube/config, or admin.kubeconfig
    /// in the default data folder].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,
    /// The context [default: the current one].
    #[arg(long, value_name = "NAME")]
    pub context: Option<String>,
    /// The address to listen on.
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    pub address: IpAddr,
    /// The port to listen on; 0 is a free one.
    #[arg(long, value_name = "PORT", default_value = "0")]
    pub port: u16,
    /// Listen also on an address that other hosts reach. The page is served without TLS.
    #[arg(long)]
    pub allow_remote: bool,
    /// Open no browser. None is opened either when standard output is no terminal.
    #[arg(long)]
    pub no_open: bool,
}

/// Flags of `version`.
#[derive(Debug, Args)]
pub struct VersionFlags {
    /// Data folder of the server.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Kubeconfig of the server to ask [default: admin.kubeconfig in the data folder].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub kubeconfig: Option<PathBuf>,
    /// Ask no server.
    #[arg(long, conflicts_with = "kubeconfig")]
    pub client: bool,
    /// Output format [default: text].
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<ResultFormat>,
}

/// Flags of `kubeconfig`.
#[derive(Debug, Args)]
pub struct KubeconfigFlags {
    /// Data folder of the server.
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// User name in the new client certificate.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Group of that user; may be repeated.
    #[arg(long, value_name = "GROUP", requires = "user")]
    pub group: Vec<String>,
    /// Lifetime of the certificate: `24h0m0s`, at most a year.
    #[arg(long, value_name = "DURATION", default_value = "24h0m0s", requires = "user")]
    pub duration: String,
    /// Folder of the server's certificates [default: pki in the data folder].
    #[arg(long, value_name = "DIR", requires = "user")]
    pub cert_dir: Option<PathBuf>,
    /// URL of the server [default: that of the administrator's kubeconfig].
    #[arg(long, value_name = "URL", requires = "user")]
    pub server: Option<String>,
}

impl KubeconfigFlags {
    /// Returns the path of the administrator's kubeconfig.
    pub fn path(&self) -> Result<PathBuf> {
        Ok(data_dir(self.data_dir.as_ref())?.join("admin.kubeconfig"))
    }

    /// Returns the folder of certificates.
    pub fn cert_dir(&self) -> Result<PathBuf> {
        match &self.cert_dir {
            Some(dir) => Ok(dir.clone()),
            None => Ok(data_dir(self.data_dir.as_ref())?.join("pki")),
        }
    }

    /// Returns the certificate to make, if `--user` is set.
    pub fn certificate(&self) -> Result<Option<keelson::UserCertificate>> {
        let Some(user) = self.user.clone() else { return Ok(None) };
        let duration = duration("--duration", &self.duration, "24h0m0s")?;
        Ok(Some(keelson::UserCertificate { user, groups: self.group.clone(), duration }))
    }
}
