//! [`AuditOptions`]: the audit policy, where events are stored, and the loop that reloads the
//! policy when its file changes.

use crate::authorization;
use crate::files::{go_words, text_changed};
use crate::start_error::StartError;
use crate::supervisor::Loops;
use keelson_audit::{
    Audit, Backend, LogFile, LogFileOptions, Metrics, Mode, Policy, Truncation, Webhook,
    WebhookOptions,
};
use keelson_egress::Egress;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The audit policy, and where events are stored.
#[derive(Clone, Debug)]
pub struct AuditOptions {
    /// The policy.
    pub policy: AuditPolicyFile,
    /// The log, if there is one.
    pub log: Option<AuditLogOptions>,
    /// The webhook, if there is one.
    pub webhook: Option<AuditWebhookOptions>,
}

/// A file of `--audit-policy-file`.
#[derive(Clone, Debug)]
pub struct AuditPolicyFile {
    path: PathBuf,
    /// The content that was read last.
    text: String,
    policy: Policy,
}

/// The log (`--audit-log-*`).
#[derive(Clone, Debug)]
pub struct AuditLogOptions {
    /// The file.
    pub file: LogFileOptions,
    /// When requests go on.
    pub mode: Mode,
    /// How events are shortened; `None`: not at all.
    pub truncation: Option<Truncation>,
}

/// The webhook (`--audit-webhook-*`).
#[derive(Clone, Debug)]
pub struct AuditWebhookOptions {
    /// The kubeconfig with its address and credentials.
    pub kubeconfig: PathBuf,
    /// Time before the second try.
    pub initial_backoff: Duration,
    /// When requests go on.
    pub mode: Mode,
    /// How events are shortened; `None`: not at all.
    pub truncation: Option<Truncation>,
}

impl AuditPolicyFile {
    /// Reads a file. The server reloads it when it changes.
    pub fn read(path: &Path) -> Result<AuditPolicyFile, String> {
        let failed = |why: String| format!("loading audit policy file: {why}");
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            let why = go_words(path, &error);
            failed(format!("failed to read file path {shown:?}: {why}"))
        })?;
        let policy = parse(&text, path).map_err(failed)?;
        Ok(AuditPolicyFile { path: path.to_owned(), text, policy })
    }
}

fn parse(text: &str, path: &Path) -> Result<Policy, String> {
    let path = path.display();
    let policy = Policy::parse(text).map_err(|why| format!("{why}: from file {path}"))?;
    if let Some(ignored) = &policy.ignored {
        tracing::warn!(ignored, %path, "the audit policy has fields that are ignored");
    }
    Ok(policy)
}

impl AuditOptions {
    /// Opens the log, prepares the connections to the webhook, and starts the loop that reloads the
    /// policy.
    pub(crate) fn start(
        &self,
        egress: &Egress,
        interval: Duration,
        loops: &mut Loops,
    ) -> Result<Arc<Audit>, StartError> {
        let metrics: Arc<Metrics> = Arc::default();
        let mut backends = vec![];
        if let Some(AuditLogOptions { file, mode, truncation }) = &self.log {
            let path = file.path.display().to_string();
            let backend = LogFile::open(file.clone())
                .and_then(|log| Backend::log(log, mode.clone(), *truncation, metrics.clone()))
                .map_err(|error| StartError::new(format!("--audit-log-path: {path}: {error}")))?;
            backends.push(backend);
        }
        if let Some(options) = &self.webhook {
            let webhook = options.webhook(egress)?;
            let mode = options.mode.clone();
            let truncation = options.truncation;
            backends.push(Backend::webhook(webhook, mode, truncation, metrics.clone()));
        }
        let audit = Arc::new(Audit::new(self.policy.policy.clone(), backends, metrics));
        let file = self.policy.clone();
        let reloaded = audit.clone();
        loops.run("audit-policy", move || {
            reload_when_changed(file.clone(), reloaded.clone(), interval)
        });
        Ok(audit)
    }
}

impl AuditWebhookOptions {
    fn webhook(&self, egress: &Egress) -> Result<Webhook, StartError> {
        let failed = |why| StartError::new(format!("initializing audit webhook: {why}"));
        let server = authorization::kubeconfig(&self.kubeconfig).map_err(failed)?;
        let options = WebhookOptions { server, initial_backoff: self.initial_backoff };
        Webhook::new(&options, egress).map_err(failed)
    }
}

/// Checks the policy file for changes until the future is dropped. An invalid file is logged, and
/// the policy before it stays.
async fn reload_when_changed(mut file: AuditPolicyFile, audit: Arc<Audit>, interval: Duration) {
    loop {
        text_changed(&file.path, &mut file.text, interval, "audit policy").await;
        let path = file.path.display().to_string();
        match parse(&file.text, &file.path) {
            Ok(policy) => {
                audit.set_policy(policy);
                tracing::info!(path, "audit policy reloaded");
            }
            Err(error) => {
                tracing::error!(error, path, "audit policy not reloaded; keeping the one before");
            }
        }
    }
}
