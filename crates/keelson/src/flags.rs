//! Command line flags. They have the names and meanings of kube-apiserver's flags wherever it has
//! them.

mod authorization;
mod cluster_signing;
mod kubelet;
mod oidc;
mod request_header;

use anyhow::{Context, Result, bail};
use authorization::AuthorizationFlags;
use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use cluster_signing::ClusterSigningFlags;
use keelson::{AdmissionChain, ServiceAccountTokenOptions};
use keelson_auth::TokenFile;
use keelson_auth::oidc::AnonymousConfig;
use keelson_meta::time::GoDuration;
use keelson_registry::PortRange;
use kubelet::KubeletFlags;
use oidc::OidcFlags;
use request_header::RequestHeaderFlags;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// The Kubernetes version that the server implements.
pub const KUBERNETES_VERSION: &str = "1.36";

/// Bounds of `--service-account-max-token-expiration`.
const TOKEN_EXPIRATION_MIN: Duration = Duration::from_secs(60 * 60);
const TOKEN_EXPIRATION_MAX: Duration = Duration::from_secs(1 << 32);

/// The Kubernetes API as one small, fast server.
#[derive(Debug, Parser)]
#[command(name = "keelson", version, max_term_width = 100, arg_required_else_help = true)]
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
    Serve(Box<ServeFlags>),
    /// Print the administrator's kubeconfig. To merge it with your own:
    /// `KUBECONFIG=~/.kube/config:<(keelson kubeconfig) kubectl config view --flatten`.
    ///
    /// With --user, print a kubeconfig for another user, with a client certificate that the server's
    /// own authority signs. Grant permissions to that user with roles and bindings. The certificate
    /// expires after its duration and cannot be revoked before.
    Kubeconfig(KubeconfigFlags),
    /// Save all data at one revision in a file. The server may be running.
    ///
    /// The backup holds every object with its resourceVersion, and ends with a checksum. A running
    /// server sends it through a socket in its data folder and accepts writes meanwhile. If no server
    /// runs, the data folder itself is read; it is not modified. Certificates (`pki` in the data
    /// folder) are not included. Anyone who can read the file can read every Secret in it.
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
    /// Verifies the checksum of every page, reads every record, decodes every object with the schema
    /// of its kind, and prints the number of objects and bytes of each resource. If anything is
    /// damaged, prints a line for each damage and exits with 1. The folder is not modified: repairs
    /// after a crash are made in memory.
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckFlags),
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

/// Largest `--goaway-chance`: one request in fifty.
const GOAWAY_CHANCE_MAX: f64 = 0.02;

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

/// Flags that select the data folder.
#[derive(Debug, Args)]
pub struct DataFlags {
    /// Data folder of the server [default: $XDG_DATA_HOME/keelson, or ~/.local/share/keelson].
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    data_dir: Option<PathBuf>,
    /// Accepted only for an error that names etcd's own tools.
    #[arg(long, value_name = "URL", hide = true)]
    etcd_servers: Option<String>,
}

impl DataFlags {
    /// Returns the path of the data folder.
    pub fn dir(&self) -> Result<PathBuf> {
        if self.etcd_servers.is_some() {
            bail!(
                "--etcd-servers: data in etcd is backed up, restored and checked by etcd's own \
                 tools (etcdctl snapshot save, etcdutl snapshot restore)"
            );
        }
        data_dir(self.data_dir.as_ref())
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
    /// Output format [default: a table].
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<ResultFormat>,
}

/// Durability of acknowledged writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Survive crashes and power loss.
    Sync,
    /// Keep data in memory only; it is lost when the process ends. For tests.
    Memory,
}

/// Log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Text for people.
    Text,
    /// One JSON object per line.
    Json,
}

/// Flags of `serve`.
#[derive(Debug, Args)]
pub struct ServeFlags {
    /// Folder for data, certificates and the kubeconfig [default: $XDG_DATA_HOME/keelson, or
    /// ~/.local/share/keelson].
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// URLs of the etcd cluster that stores the data instead of the data folder:
    /// `https://a:2379,https://b:2379`. Any number of servers may share a cluster.
    #[arg(long, value_delimiter = ',', value_name = "URL")]
    #[arg(conflicts_with_all = ["durability", "history_seconds"])]
    pub etcd_servers: Vec<String>,
    /// CA bundle for etcd's certificates [default: that of this host].
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    pub etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd.
    #[arg(long, value_name = "FILE", requires_all = ["etcd_servers", "etcd_keyfile"])]
    pub etcd_certfile: Option<PathBuf>,
    /// Key of the client certificate for etcd.
    #[arg(long, value_name = "FILE", requires_all = ["etcd_servers", "etcd_certfile"])]
    pub etcd_keyfile: Option<PathBuf>,
    /// Prefix of all keys in etcd.
    #[arg(long, value_name = "PREFIX", default_value = "/registry")]
    pub etcd_prefix: String,
    /// Interval of etcd compaction, by one of the servers that share the cluster: `5m0s`; 0 disables
    /// it.
    #[arg(long, value_name = "DURATION", default_value = "5m0s")]
    pub etcd_compaction_interval: String,
    /// Durability of acknowledged writes.
    #[arg(long, value_enum, default_value = "sync")]
    pub durability: Durability,
    /// Path of the administrator's kubeconfig [default: admin.kubeconfig in the data folder].
    #[arg(long, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// Control loops to run: `*` all, `name` this one, `-name` not this one [default: all; those that
    /// a kube-controller-manager also runs stop while one holds its lease].
    #[arg(long, value_delimiter = ',', value_name = "NAMES", allow_hyphen_values = true)]
    pub controllers: Vec<String>,
    /// The connections to kubelets.
    #[command(flatten)]
    pub kubelets: KubeletFlags,
    /// Signers of CertificateSigningRequests.
    #[command(flatten)]
    pub signing: ClusterSigningFlags,
    /// Address to listen on.
    #[arg(long, default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port to listen on, with TLS; 0 selects a free port.
    #[arg(long, default_value_t = 6443)]
    pub secure_port: u16,
    /// Address of the server for clients in the cluster [default: that of the first interface].
    #[arg(long)]
    pub advertise_address: Option<IpAddr>,
    /// Folder for generated certificates [default: pki in the data folder].
    #[arg(long, value_name = "DIR")]
    pub cert_dir: Option<PathBuf>,
    /// Serving certificate to use instead of a generated one.
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of the serving certificate.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_private_key_file: Option<PathBuf>,
    /// CA bundle for client certificates.
    #[arg(long, value_name = "FILE")]
    pub client_ca_file: Option<PathBuf>,
    /// The front proxy.
    #[command(flatten)]
    pub request_header: RequestHeaderFlags,
    /// Authorization and its webhooks.
    #[command(flatten)]
    pub authorization: AuthorizationFlags,
    /// Issuers of service account tokens: new tokens have the first; all are accepted.
    #[arg(long, value_name = "URL", default_value = "https://kubernetes.default.svc")]
    pub service_account_issuer: Vec<String>,
    /// Key that signs service account tokens [default: a generated one, `sa.key` beside the
    /// certificates].
    #[arg(long, value_name = "FILE")]
    pub service_account_signing_key_file: Option<PathBuf>,
    /// Unix socket of an external signer, which signs service account tokens and publishes the keys
    /// that verify them: a path, or `@name` in the abstract namespace.
    #[arg(long, value_name = "PATH")]
    pub service_account_signing_endpoint: Option<String>,
    /// Further keys that verify service account tokens, public or private; may be repeated.
    #[arg(long, value_name = "FILE")]
    pub service_account_key_file: Vec<PathBuf>,
    /// Maximum lifetime of a service account token: `24h0m0s`; 0 means no maximum.
    #[arg(long, value_name = "DURATION", default_value = "0s")]
    pub service_account_max_token_expiration: String,
    /// Whether tokens of Pods are valid for a year, for clients that do not reload them.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub service_account_extend_token_expiration: bool,
    /// Whether the Secrets of legacy service account tokens must exist.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub service_account_lookup: bool,
    /// URL of the keys that verify service account tokens, for the discovery document [default:
    /// /openid/v1/jwks of this server].
    #[arg(long, value_name = "URL")]
    pub service_account_jwks_uri: Option<String>,
    /// Audiences of the API [default: the issuers].
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub api_audiences: Vec<String>,
    /// Whether bootstrap tokens (Secrets in kube-system) are accepted.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_bootstrap_token_auth: bool,
    /// Whether requests without credentials are served as system:anonymous [default: true].
    #[arg(long, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub anonymous_auth: Option<bool>,
    /// OpenID Connect issuers.
    #[command(flatten)]
    pub oidc: OidcFlags,
    /// File of static tokens: lines of `token,user,uid,"group,group"`.
    #[arg(long, value_name = "FILE")]
    pub token_auth_file: Option<PathBuf>,
    /// Range of ClusterIPs: one range, or one of each IP family.
    #[arg(long, value_delimiter = ',', default_value = "10.0.0.0/24", value_name = "CIDR")]
    pub service_cluster_ip_range: Vec<String>,
    /// Whether services of webhooks are reached at their endpoints instead of their ClusterIP.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub enable_aggregator_routing: bool,
    /// Range of node ports of services: `30000-32767`, `30000+2767` or one port.
    #[arg(long, default_value = "30000-32767", value_name = "FIRST-LAST")]
    pub service_node_port_range: PortRange,
    /// Group versions to enable or disable: `api/all=true`, `apps/v1=false`.
    #[arg(long, value_delimiter = ',', value_name = "NAME=BOOL")]
    pub runtime_config: Vec<String>,
    /// Feature gates to enable or disable: `CBORServingAndStorage=true`. Gates that Keelson does not
    /// implement can only be set to their default.
    #[arg(long, value_delimiter = ',', value_name = "NAME=BOOL")]
    pub feature_gates: Vec<String>,
    /// Admission plug-ins to enable in addition to the default ones.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub enable_admission_plugins: Vec<String>,
    /// Admission plug-ins to disable.
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub disable_admission_plugins: Vec<String>,
    /// AdmissionConfiguration file: the configuration of plug-ins, inline or in files that it names.
    #[arg(long, value_name = "FILE")]
    pub admission_control_config_file: Option<PathBuf>,
    /// Maximum number of read requests in flight; 0 means no maximum. Watches, other long-running
    /// requests, and requests of system:masters do not count.
    #[arg(long, default_value_t = 400, value_name = "COUNT", allow_hyphen_values = true)]
    pub max_requests_inflight: i64,
    /// Maximum number of mutating requests in flight; 0 means no maximum.
    #[arg(long, default_value_t = 200, value_name = "COUNT", allow_hyphen_values = true)]
    pub max_mutating_requests_inflight: i64,
    /// Fraction of HTTP/2 requests that are answered with a GOAWAY, so that clients spread over
    /// several servers behind a load balancer: 0 (off) to 0.02.
    #[arg(long, default_value_t = 0.0, value_name = "FRACTION", allow_hyphen_values = true)]
    pub goaway_chance: f64,
    /// Measure how long tasks hold a worker thread: `keelson_longest_poll_seconds` in `/metrics` and a
    /// warning in the log.
    #[arg(long, default_value_t = false, action = clap::ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub contention_profiling: bool,
    /// How long old revisions can be listed and watched, in seconds.
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub history_seconds: u64,
    /// Time to live of events after their last write: `1h0m0s`; 0 keeps them forever.
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s")]
    pub event_ttl: String,
    /// Log format.
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
    /// Log verbosity: 0 warnings, 2 info, 4 debug, 6 trace.
    #[arg(short = 'v', long = "v", default_value_t = 1, value_name = "LEVEL")]
    pub verbosity: u8,
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

/// Returns the data folder: the given one or the default.
fn data_dir(given: Option<&PathBuf>) -> Result<PathBuf> {
    if let Some(dir) = given {
        return Ok(dir.clone());
    }
    let from = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    from("XDG_DATA_HOME")
        .or_else(|| from("HOME").map(|home| home.join(".local/share")))
        .map(|base| base.join("keelson"))
        .context("--data-dir: neither XDG_DATA_HOME nor HOME is set; name a folder")
}

impl ServeFlags {
    /// Returns the path of the administrator's kubeconfig.
    pub fn kubeconfig_path(&self) -> Result<PathBuf> {
        match &self.kubeconfig {
            Some(path) => Ok(path.clone()),
            None => Ok(data_dir(self.data_dir.as_ref())?.join("admin.kubeconfig")),
        }
    }

    /// Returns the server configuration that the flags describe.
    pub fn builder(&self) -> Result<keelson::Builder> {
        let dir = data_dir(self.data_dir.as_ref())?;
        let mut builder = keelson::Keelson::builder();
        builder.cert_dir = Some(self.cert_dir.clone().unwrap_or_else(|| dir.join("pki")));
        builder.etcd = self.etcd()?;
        builder.data_dir = (self.durability == Durability::Sync).then_some(dir);
        builder.bind = SocketAddr::new(self.bind_address, self.secure_port);
        builder.advertise = self.advertise_address;
        builder.tls_files = self.tls_cert_file.clone().zip(self.tls_private_key_file.clone());
        builder.client_ca_file = self.client_ca_file.clone();
        builder.front_proxy = self.request_header.options()?;
        builder.history = Duration::from_secs(self.history_seconds.max(1));
        builder.controllers = self.controllers.clone();
        builder.kubelets = self.kubelets.options();
        builder.signing = self.signing.options()?;
        builder.event_ttl = duration("--event-ttl", &self.event_ttl, "1h0m0s")?;
        builder.service_ranges = self.service_cluster_ip_range.clone();
        builder.node_ports = self.service_node_port_range;
        for range in &self.service_cluster_ip_range {
            check_range(range)?;
        }
        if let Some(path) = &self.token_auth_file {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("--token-auth-file: {}", path.display()))?;
            builder.tokens = TokenFile::parse(&text)
                .with_context(|| format!("--token-auth-file: {}", path.display()))?;
        }
        builder.authorization = self.authorization.authorization()?;
        builder.token_webhook = self.authorization.token_webhook()?;
        builder.service_account_tokens = self.service_account_tokens()?;
        let (jwt, anonymous) = self.oidc.options()?;
        if anonymous.is_some() && self.anonymous_auth.is_some() {
            bail!(
                "anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is \
                 configured in authentication configuration file"
            );
        }
        builder.jwt = jwt;
        builder.anonymous = anonymous.unwrap_or(AnonymousConfig {
            enabled: self.anonymous_auth.unwrap_or(true),
            paths: vec![],
        });
        if builder.anonymous.enabled && self.authorization.allows_all() {
            tracing::warn!(
                "--authorization-mode has AlwaysAllow; anonymous requests are rejected, because they \
                 would be allowed everything"
            );
            builder.anonymous.enabled = false;
        }
        builder.bootstrap_token_auth = self.enable_bootstrap_token_auth;
        builder.aggregator_routing = self.enable_aggregator_routing;
        for entry in &self.runtime_config {
            let (name, value) = entry.split_once('=').unwrap_or((entry, "true"));
            let Ok(is_on) = value.parse::<bool>() else {
                bail!("--runtime-config: {entry:?} must end in =true or =false");
            };
            builder.runtime_config.push((name.to_owned(), is_on));
        }
        builder.admission = self.admission()?;
        self.limit_requests(&mut builder.limits)?;
        builder.features = keelson::feature_gates::parse(&self.feature_gates)
            .map_err(|why| anyhow::anyhow!("--feature-gates: {why}"))?;
        Ok(builder)
    }
}

impl ServeFlags {
    fn limit_requests(&self, limits: &mut keelson::Limits) -> Result<()> {
        if !(0.0..=GOAWAY_CHANCE_MAX).contains(&self.goaway_chance) {
            bail!("--goaway-chance can not be less than 0 or greater than 0.02");
        }
        let count = |flag: &str, given: i64| {
            usize::try_from(given).ok().with_context(|| format!("{flag} can not be negative value"))
        };
        limits.goaway_chance = self.goaway_chance;
        limits.contention_profiling = self.contention_profiling;
        limits.requests_in_flight_max =
            count("--max-requests-inflight", self.max_requests_inflight)?;
        limits.mutating_requests_in_flight_max =
            count("--max-mutating-requests-inflight", self.max_mutating_requests_inflight)?;
        Ok(())
    }

    fn service_account_tokens(&self) -> Result<ServiceAccountTokenOptions> {
        let flag = "--service-account-max-token-expiration";
        let max = duration(flag, &self.service_account_max_token_expiration, "24h0m0s")?;
        if !max.is_zero() && !(TOKEN_EXPIRATION_MIN..=TOKEN_EXPIRATION_MAX).contains(&max) {
            bail!("{flag}: the duration must be from 1 hour to 2^32 seconds");
        }
        let has_keys = self.service_account_signing_key_file.is_some()
            || !self.service_account_key_file.is_empty();
        if has_keys && self.service_account_signing_endpoint.is_some() {
            bail!(
                "can't set `--service-account-signing-key-file` and/or `--service-account-key-file` \
                 with `--service-account-signing-endpoint` (They are mutually exclusive)"
            );
        }
        Ok(ServiceAccountTokenOptions {
            issuers: self.service_account_issuer.clone(),
            audiences: self.api_audiences.clone(),
            signing_key_file: self.service_account_signing_key_file.clone(),
            signing_endpoint: self.service_account_signing_endpoint.clone(),
            key_files: self.service_account_key_file.clone(),
            expiration_seconds_max: i64::try_from(max.as_secs()).ok().filter(|max| *max > 0),
            extends_expiration: self.service_account_extend_token_expiration,
            lookup: self.service_account_lookup,
            jwks_uri: self.service_account_jwks_uri.clone(),
        })
    }

    fn admission(&self) -> Result<AdmissionChain> {
        let (on, off) = (&self.enable_admission_plugins, &self.disable_admission_plugins);
        AdmissionChain::new(on, &[]).context("--enable-admission-plugins")?;
        let chain = AdmissionChain::new(on, off).context("--disable-admission-plugins")?;
        let file = self.admission_control_config_file.as_deref().map(AdmissionChain::read_config);
        let config = file.transpose().context("--admission-control-config-file")?;
        let chain = chain.with_config(config.unwrap_or_default());
        if let Some(name) = chain.unconfigured() {
            bail!(
                "--enable-admission-plugins: {name} needs an entry in --admission-control-config-file"
            );
        }
        Ok(chain)
    }

    fn etcd(&self) -> Result<Option<keelson::Etcd>> {
        if self.etcd_servers.is_empty() {
            return Ok(None);
        }
        let text = &self.etcd_compaction_interval;
        let interval = duration("--etcd-compaction-interval", text, "5m0s")?;
        Ok(Some(keelson::Etcd {
            ca_file: self.etcd_cafile.clone(),
            identity_files: self.etcd_certfile.clone().zip(self.etcd_keyfile.clone()),
            prefix: self.etcd_prefix.clone(),
            compaction_interval: interval,
            ..keelson::Etcd::new(self.etcd_servers.clone())
        }))
    }
}

/// Parses a duration in Go's notation.
fn duration(flag: &str, text: &str, example: &str) -> Result<Duration> {
    let nanos = GoDuration::parse(text).ok().and_then(|parsed| u64::try_from(parsed.0).ok());
    let nanos = nanos.with_context(|| format!("{flag}: {text:?} is not like {example}"))?;
    Ok(Duration::from_nanos(nanos))
}

fn check_range(range: &str) -> Result<()> {
    let fail = || format!("--service-cluster-ip-range: {range:?} is not a range like 10.0.0.0/24");
    let (base, bits) = range.split_once('/').with_context(fail)?;
    let base: IpAddr = base.parse().ok().with_context(fail)?;
    let bits: u8 = bits.parse().ok().with_context(fail)?;
    let (bits_max, host_bits_max) = if base.is_ipv4() { (32, 20) } else { (128, 64) };
    if bits > bits_max || bits_max - bits < 2 || bits_max - bits > host_bits_max {
        bail!(
            "--service-cluster-ip-range: {range:?} must leave 2 to {host_bits_max} bits for hosts"
        );
    }
    Ok(())
}
