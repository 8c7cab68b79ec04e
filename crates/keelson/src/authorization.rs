//! [`Authorization`]: which authorizers are asked, as `--authorization-mode` names them.

use keelson_auth::node::NodeAuthorizer;
use keelson_auth::{Abac, Authorizer, Mode};

/// Which authorizers are asked, in order.
#[derive(Debug)]
pub struct Authorization {
    modes: Vec<AuthorizationMode>,
    /// The policies of the mode ABAC.
    pub abac: Option<Abac>,
}

/// One word of `--authorization-mode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AuthorizationMode {
    AlwaysAllow,
    AlwaysDeny,
    Abac,
    Rbac,
    Node,
}

impl Default for Authorization {
    /// `Node,RBAC`.
    fn default() -> Self {
        let modes = vec![AuthorizationMode::Node, AuthorizationMode::Rbac];
        Authorization { modes, abac: None }
    }
}

impl Authorization {
    /// Takes the words of `--authorization-mode`.
    pub fn modes(words: &[String]) -> Result<Authorization, String> {
        let mut modes = vec![];
        for word in words {
            let mode = match word.as_str() {
                "AlwaysAllow" => AuthorizationMode::AlwaysAllow,
                "AlwaysDeny" => AuthorizationMode::AlwaysDeny,
                "ABAC" => AuthorizationMode::Abac,
                "RBAC" => AuthorizationMode::Rbac,
                "Node" => AuthorizationMode::Node,
                "Webhook" => return Err("Webhook is not supported yet".to_owned()),
                other => return Err(format!("{other:?} is not a valid mode")),
            };
            if modes.contains(&mode) {
                return Err(format!("{words:?} has mode specified more than once"));
            }
            modes.push(mode);
        }
        if modes.is_empty() {
            return Err("at least one authorization-mode must be passed".to_owned());
        }
        Ok(Authorization { modes, abac: None })
    }

    /// Whether the mode ABAC is asked, which needs policies.
    pub fn is_abac(&self) -> bool {
        self.modes.contains(&AuthorizationMode::Abac)
    }

    /// The authorizer of these modes.
    pub(crate) fn authorizer(&mut self) -> Authorizer {
        let mut modes = vec![];
        for mode in &self.modes {
            modes.extend(match mode {
                AuthorizationMode::AlwaysAllow => Some(Mode::AlwaysAllow),
                AuthorizationMode::AlwaysDeny => Some(Mode::AlwaysDeny),
                AuthorizationMode::Abac => Some(Mode::Abac(self.abac.take().unwrap_or_default())),
                AuthorizationMode::Rbac => Some(Mode::Rbac),
                AuthorizationMode::Node => {
                    let rules = keelson_registry::default_rules("system:node");
                    Some(Mode::Node(Box::new(NodeAuthorizer::new(rules))))
                }
            });
        }
        Authorizer::new(modes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_named_once_and_known() {
        let check = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Authorization::modes(&words).map(|authorization| authorization.modes)
        };
        assert_eq!(
            check(&["RBAC", "AlwaysDeny"]),
            Ok(vec![AuthorizationMode::Rbac, AuthorizationMode::AlwaysDeny])
        );
        assert_eq!(check(&["Foo"]), Err("\"Foo\" is not a valid mode".to_owned()));
        let twice = "[\"RBAC\", \"RBAC\"] has mode specified more than once";
        assert_eq!(check(&["RBAC", "RBAC"]), Err(twice.to_owned()));
        assert!(check(&[]).is_err());
    }
}
