//! [`Authorization`]: the authorizers of `--authorization-mode` or `--authorization-config`, and
//! the loop that reloads that file when it changes.

use crate::files::{check_kind, go_words, text_changed};
use crate::start_error::StartError;
use keelson_auth::node::NodeAuthorizer;
use keelson_auth::webhook::{
    AuthorizationConfiguration, AuthorizerConfig, WebhookAuthorizer, WebhookConfig, WebhookOptions,
};
use keelson_auth::{Abac, Authorizer, Mode};
use keelson_egress::Egress;
use keelson_egress::kubeconfig::Server;
use keelson_meta::Value;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

const MODES: [&str; 6] = ["AlwaysAllow", "AlwaysDeny", "ABAC", "Webhook", "RBAC", "Node"];

/// The authorizers, in the order in which they are asked.
#[derive(Clone, Debug)]
pub struct Authorization {
    config: AuthorizationConfiguration,
    /// `--authorization-config`: its path, and the content that was read last.
    file: Option<(PathBuf, String)>,
    /// The policies of the ABAC mode.
    abac: Option<Arc<Abac>>,
}

impl Default for Authorization {
    /// `Node,RBAC`.
    fn default() -> Self {
        let modes = ["Node", "RBAC"].map(str::to_owned);
        Authorization { config: configuration_of(&modes), file: None, abac: None }
    }
}

fn configuration_of(modes: &[String]) -> AuthorizationConfiguration {
    let authorizer = |mode: &String| AuthorizerConfig {
        kind: mode.clone(),
        name: mode.to_lowercase(),
        webhook: None,
    };
    AuthorizationConfiguration { authorizers: modes.iter().map(authorizer).collect() }
}

impl Authorization {
    /// Parses the values of `--authorization-mode`.
    pub fn modes(modes: &[String]) -> Result<Authorization, String> {
        let mut seen: Vec<&str> = vec![];
        for mode in modes {
            if !MODES.contains(&mode.as_str()) {
                return Err(format!("authorization-mode {mode:?} is not a valid mode"));
            }
            if seen.contains(&mode.as_str()) {
                let modes: Vec<String> = modes.iter().map(|mode| format!("{mode:?}")).collect();
                let modes = modes.join(" ");
                return Err(format!(
                    "authorization-mode [{modes}] has mode specified more than once"
                ));
            }
            seen.push(mode);
        }
        if modes.is_empty() {
            return Err("at least one authorization-mode must be passed".to_owned());
        }
        Ok(Authorization { config: configuration_of(modes), ..Authorization::default() })
    }

    /// Reads a file of `--authorization-config`. The server reloads it when it changes.
    pub fn file(path: &Path) -> Result<Authorization, String> {
        let text = std::fs::read_to_string(path).map_err(|error| go_words(path, &error))?;
        let config = parse(&text)?;
        Ok(Authorization { config, file: Some((path.to_owned(), text)), abac: None })
    }

    /// Whether there is an authorizer of this type.
    pub fn has(&self, kind: &str) -> bool {
        self.config.authorizers.iter().any(|authorizer| authorizer.kind == kind)
    }

    /// Sets the policies of the ABAC mode.
    #[must_use]
    pub fn with_abac(mut self, abac: Abac) -> Self {
        self.abac = Some(Arc::new(abac));
        self
    }

    /// Sets the webhook of the Webhook mode.
    #[must_use]
    pub fn with_webhook(mut self, kubeconfig: String, options: &WebhookOptions) -> Self {
        for authorizer in &mut self.config.authorizers {
            if authorizer.kind == "Webhook" {
                let kubeconfig = kubeconfig.clone();
                let options = options.clone();
                authorizer.webhook = Some(WebhookConfig { options, kubeconfig });
            }
        }
        self
    }

    /// Builds the authorizer of these modes.
    pub(crate) fn authorizer(&self, egress: &Egress) -> Result<Authorizer, StartError> {
        let modes = self.build_modes(egress, None);
        modes.map(Authorizer::new).map_err(StartError::new)
    }

    /// Builds the modes. `node` is the Node authorizer of the running server, which keeps its graph
    /// over a reload.
    fn build_modes(
        &self,
        egress: &Egress,
        node: Option<Arc<NodeAuthorizer>>,
    ) -> Result<Vec<Mode>, String> {
        let mut modes = vec![];
        for authorizer in &self.config.authorizers {
            modes.push(match authorizer.kind.as_str() {
                "AlwaysAllow" => Mode::AlwaysAllow,
                "AlwaysDeny" => Mode::AlwaysDeny,
                // Without policies ABAC allows nothing.
                "ABAC" => Mode::Abac(self.abac.clone().unwrap_or_default()),
                "RBAC" => Mode::Rbac,
                "Node" => Mode::Node(node.clone().unwrap_or_else(|| {
                    let rules = keelson_builtin::default_rules("system:node");
                    Arc::new(NodeAuthorizer::new(rules))
                })),
                _ => Mode::Webhook(Box::new(webhook(authorizer, egress)?)),
            });
        }
        Ok(modes)
    }

    /// Returns the loop that reloads `--authorization-config`, if there is such a file.
    pub(crate) fn reload(
        &self,
        authorizer: &Arc<Authorizer>,
        egress: &Arc<Egress>,
        interval: Duration,
    ) -> Option<Reload> {
        self.file.as_ref()?;
        let authorizer = authorizer.clone();
        let egress = egress.clone();
        Some(Reload { authorization: self.clone(), authorizer, egress, interval })
    }
}

fn webhook(authorizer: &AuthorizerConfig, egress: &Egress) -> Result<WebhookAuthorizer, String> {
    let name = &authorizer.name;
    let Some(config) = &authorizer.webhook else {
        return Err("authorization-mode Webhook's authorization config file not passed".to_owned());
    };
    let kubeconfig = kubeconfig(Path::new(&config.kubeconfig))?;
    WebhookAuthorizer::new(&kubeconfig, config.options.clone(), egress)
        .map_err(|why| format!("authorizer {name:?}: {why}"))
}

/// Reads the kubeconfig of a webhook.
pub(crate) fn kubeconfig(path: &Path) -> Result<Server, String> {
    let failed = |why: String| format!("{}: {why}", path.display());
    let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    let parsed = yaml(&text).map_err(failed)?;
    Server::read(&parsed, path.parent().unwrap_or(Path::new("/"))).map_err(failed)
}

fn parse(text: &str) -> Result<AuthorizationConfiguration, String> {
    let parsed = yaml(text)
        .map_err(|why| format!("failed to load AuthorizationConfiguration from file: {why}"))?;
    if parsed.is_null() {
        return Err("authorizers: Required value: at least one authorization mode must be defined"
            .to_owned());
    }
    check_kind(&parsed, "AuthorizationConfiguration")
        .map_err(|why| format!("failed to load AuthorizationConfiguration from file: {why}"))?;
    AuthorizationConfiguration::read(&parsed)
}

fn yaml(text: &str) -> Result<Value, String> {
    let parsed = keelson_schema::yaml::parse(text).map_err(|error| error.to_string())?;
    match parsed.duplicates.first() {
        None => Ok(parsed.value),
        Some((line, key)) => {
            Err(format!("strict decoding error: yaml: line {line}: key {key} already set in map"))
        }
    }
}

/// Reloads `--authorization-config` when it changes.
#[derive(Clone)]
pub(crate) struct Reload {
    authorization: Authorization,
    authorizer: Arc<Authorizer>,
    egress: Arc<Egress>,
    interval: Duration,
}

impl Reload {
    /// Checks the file for changes until the future is dropped. An invalid file is logged, and the
    /// configuration before it stays.
    pub async fn run(mut self) {
        loop {
            let Some((file, last_read)) = &mut self.authorization.file else { return };
            text_changed(file, last_read, self.interval, "authorization configuration").await;
            let path = file.display().to_string();
            let text = last_read.clone();
            match self.modes(&text) {
                Ok(modes) => {
                    self.authorizer.set_modes(modes);
                    tracing::info!(path, "authorization configuration reloaded");
                }
                Err(error) => tracing::error!(
                    error,
                    path,
                    "authorization configuration not reloaded; keeping the one before"
                ),
            }
        }
    }

    fn modes(&mut self, text: &str) -> Result<Vec<Mode>, String> {
        let config = parse(text)?;
        let node = self.authorizer.node();
        let authorization = Authorization { config, ..self.authorization.clone() };
        if authorization.has("Node") && node.is_none() {
            return Err("the type Node can be added by a restart only".to_owned());
        }
        let modes = authorization.build_modes(&self.egress, node)?;
        self.authorization = authorization;
        Ok(modes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_and_repeated_modes_are_refused() {
        let check = |modes: &[&str]| {
            let modes: Vec<String> = modes.iter().map(|mode| (*mode).to_owned()).collect();
            Authorization::modes(&modes).map(|authorization| authorization.has("RBAC"))
        };
        assert_eq!(check(&["RBAC", "AlwaysDeny"]), Ok(true));
        let unknown = "authorization-mode \"Foo\" is not a valid mode";
        assert_eq!(check(&["Foo"]), Err(unknown.to_owned()));
        let twice = "authorization-mode [\"RBAC\" \"RBAC\"] has mode specified more than once";
        assert_eq!(check(&["RBAC", "RBAC"]), Err(twice.to_owned()));
        assert!(check(&[]).is_err());
    }
}
