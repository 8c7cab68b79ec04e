//! [`Authorization`]: which authorizers are asked, as `--authorization-mode` or `--authorization-config` say, and
//! the loop that reads that file again when it changes.

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

/// Which authorizers are asked, in order.
#[derive(Clone, Debug)]
pub struct Authorization {
    config: AuthorizationConfiguration,
    /// `--authorization-config`, and what was read there last.
    file: Option<(PathBuf, String)>,
    /// The policies of the mode ABAC.
    abac: Option<Arc<Abac>>,
}

impl Default for Authorization {
    /// `Node,RBAC`.
    fn default() -> Self {
        let words = ["Node", "RBAC"].map(str::to_owned);
        Authorization { config: of_words(&words), file: None, abac: None }
    }
}

fn of_words(words: &[String]) -> AuthorizationConfiguration {
    let authorizer = |word: &String| AuthorizerConfig {
        kind: word.clone(),
        name: word.to_lowercase(),
        webhook: None,
    };
    AuthorizationConfiguration { authorizers: words.iter().map(authorizer).collect() }
}

impl Authorization {
    /// Takes the words of `--authorization-mode`.
    pub fn modes(words: &[String]) -> Result<Authorization, String> {
        let mut seen: Vec<&str> = vec![];
        for word in words {
            if !MODES.contains(&word.as_str()) {
                return Err(format!("authorization-mode {word:?} is not a valid mode"));
            }
            if seen.contains(&word.as_str()) {
                let words: Vec<String> = words.iter().map(|word| format!("{word:?}")).collect();
                let words = words.join(" ");
                return Err(format!(
                    "authorization-mode [{words}] has mode specified more than once"
                ));
            }
            seen.push(word);
        }
        if words.is_empty() {
            return Err("at least one authorization-mode must be passed".to_owned());
        }
        Ok(Authorization { config: of_words(words), ..Authorization::default() })
    }

    /// Takes the authorizers of a file of `--authorization-config`, which is read again when it changes.
    pub fn file(path: &Path) -> Result<Authorization, String> {
        let failed = |error| {
            let path = path.display();
            format!("failed to load AuthorizationConfiguration from file: open {path}: {error}")
        };
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let config = parse(&text)?;
        Ok(Authorization { config, file: Some((path.to_owned(), text)), abac: None })
    }

    /// Whether a type of authorizer is asked.
    pub fn has(&self, kind: &str) -> bool {
        self.config.authorizers.iter().any(|authorizer| authorizer.kind == kind)
    }

    /// Sets the policies of the mode ABAC.
    #[must_use]
    pub fn with_abac(mut self, abac: Abac) -> Self {
        self.abac = Some(Arc::new(abac));
        self
    }

    /// Sets the webhook of the mode Webhook.
    #[must_use]
    pub fn with_webhook(mut self, kubeconfig: String, options: &WebhookOptions) -> Self {
        for authorizer in &mut self.config.authorizers {
            if authorizer.kind == "Webhook" {
                let (kubeconfig, options) = (kubeconfig.clone(), options.clone());
                authorizer.webhook = Some(WebhookConfig { options, kubeconfig });
            }
        }
        self
    }

    /// The authorizer of these modes.
    pub(crate) fn authorizer(&self, egress: &Egress) -> Result<Authorizer, StartError> {
        let modes = self.made_modes(egress, None);
        modes.map(Authorizer::new).map_err(StartError::new)
    }

    fn made_modes(
        &self,
        egress: &Egress,
        node: Option<Arc<NodeAuthorizer>>,
    ) -> Result<Vec<Mode>, String> {
        let mut modes = vec![];
        for authorizer in &self.config.authorizers {
            modes.push(match authorizer.kind.as_str() {
                "AlwaysAllow" => Mode::AlwaysAllow,
                "AlwaysDeny" => Mode::AlwaysDeny,
                // Without policies it allows nothing.
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

    /// Reloads the file when it changes, if there is one.
    pub(crate) fn reload(
        &self,
        authorizer: &Arc<Authorizer>,
        egress: &Arc<Egress>,
        look: Duration,
    ) -> Option<Reload> {
        self.file.as_ref()?;
        let (authorizer, egress) = (authorizer.clone(), egress.clone());
        Some(Reload { authorization: self.clone(), authorizer, egress, look })
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
    AuthorizationConfiguration::read(&parsed)
}

fn yaml(text: &str) -> Result<Value, String> {
    let parsed = keelson_schema::yaml::parse(text).map_err(|error| error.to_string())?;
    match parsed.duplicates.first() {
        None => Ok(parsed.value),
        Some((line, key)) => {
            Err(format!("strict decoding error: yaml: line {line}: key {key:?} already set in map"))
        }
    }
}

/// Reloads `--authorization-config` when it changes.
#[derive(Clone)]
pub(crate) struct Reload {
    authorization: Authorization,
    authorizer: Arc<Authorizer>,
    egress: Arc<Egress>,
    look: Duration,
}

impl Reload {
    /// Follows the file until it is dropped. One that cannot be used is logged, and what was before goes on.
    pub async fn run(mut self) {
        loop {
            tokio::time::sleep(self.look).await;
            let Some((file, known)) = &mut self.authorization.file else { return };
            let path = file.display().to_string();
            match std::fs::read_to_string(file) {
                Ok(text) if text == *known => continue,
                // Also one that cannot be used is looked at once.
                Ok(text) => *known = text,
                Err(error) => {
                    tracing::debug!(%error, path, "authorization configuration not read");
                    continue;
                }
            }
            let text = known.clone();
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
        let modes = authorization.made_modes(&self.egress, node)?;
        self.authorization = authorization;
        Ok(modes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_named_once_and_known() {
        let check = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Authorization::modes(&words).map(|authorization| authorization.has("RBAC"))
        };
        assert_eq!(check(&["RBAC", "AlwaysDeny"]), Ok(true));
        let unknown = "authorization-mode \"Foo\" is not a valid mode";
        assert_eq!(check(&["Foo"]), Err(unknown.to_owned()));
        let twice = "authorization-mode [\"RBAC\" \"RBAC\"] has mode specified more than once";
        assert_eq!(check(&["RBAC", "RBAC"]), Err(twice.to_owned()));
        assert!(check(&[]).is_err());
    }
}
