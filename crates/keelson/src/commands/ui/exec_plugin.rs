//! [`ExecPlugin`]: a program that a kubeconfig names and that prints the credentials of a user, as
//! kubectl runs it (client.authentication.k8s.io `v1` and `v1beta1`).

use anyhow::{Context, Result, anyhow, bail, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use keelson_meta::{Map, Timestamp, Value, value};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const GROUP: &str = "client.authentication.k8s.io";
/// Environment variable that tells the program what is asked of it.
const INFO: &str = "KUBERNETES_EXEC_INFO";

/// A program that prints credentials.
#[derive(Clone, Debug)]
pub struct ExecPlugin {
    api_version: String,
    command: PathBuf,
    args: Vec<String>,
    env: Vec<(String, String)>,
    install_hint: String,
    interactive: Interactive,
    /// The cluster, if the program wants to know it.
    cluster: Option<Value>,
}

/// Whether the program may ask at the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interactive {
    Never,
    IfAvailable,
    Always,
}

/// What a program printed.
#[derive(Debug)]
pub struct PluginCredentials {
    /// The members of a kubeconfig user that they are.
    pub user: Value,
    /// When they end; `None` until the server refuses them.
    pub expires: Option<Timestamp>,
}

impl ExecPlugin {
    /// Reads the member `exec` of a user. `folder` is that of the kubeconfig: a command with a
    /// slash is relative to it, one without is looked for on the `PATH`.
    pub fn read(exec: &Value, cluster: &Value, folder: &Path) -> Result<ExecPlugin> {
        let text = |name: &str| exec.str_at(&[name]).unwrap_or_default();
        let api_version = text("apiVersion");
        let versions = [format!("{GROUP}/v1"), format!("{GROUP}/v1beta1")];
        ensure!(
            versions.iter().any(|one| one == api_version),
            "exec: invalid apiVersion {api_version:?}: it is {}",
            versions.join(" or ")
        );
        let interactive = match text("interactiveMode") {
            "" if api_version == versions[1] => Interactive::IfAvailable,
            "Never" => Interactive::Never,
            "IfAvailable" => Interactive::IfAvailable,
            "Always" => Interactive::Always,
            other => bail!("exec: interactiveMode {other:?}: it is Never, IfAvailable or Always"),
        };
        let command = text("command");
        ensure!(!command.is_empty(), "exec: command is missing");
        let has_folder = command.contains('/');
        let command = if has_folder { folder.join(command) } else { PathBuf::from(command) };
        let args = exec.array_at(&["args"]).iter().filter_map(Value::as_str);
        let env = exec.array_at(&["env"]).iter().map(|one| {
            let member = |name: &str| one.str_at(&[name]).unwrap_or_default().to_owned();
            (member("name"), member("value"))
        });
        let wants_cluster = exec.get("provideClusterInfo").and_then(Value::as_bool) == Some(true);
        Ok(ExecPlugin {
            api_version: api_version.to_owned(),
            command,
            args: args.map(str::to_owned).collect(),
            env: env.collect(),
            install_hint: text("installHint").to_owned(),
            interactive,
            cluster: wants_cluster.then(|| cluster_info(cluster, folder)).transpose()?,
        })
    }

    /// Runs the program, which may ask its user, and returns what it printed. Blocks.
    pub fn run(&self) -> Result<PluginCredentials> {
        let name = self.command.display();
        let at_terminal = std::io::stdin().is_terminal();
        let is_interactive = match self.interactive {
            Interactive::Never => false,
            Interactive::IfAvailable => at_terminal,
            Interactive::Always if at_terminal => true,
            Interactive::Always => bail!("exec: {name} wants a terminal, and there is none"),
        };
        let mut command = Command::new(&self.command);
        command.args(&self.args).envs(self.env.iter().map(|(name, value)| (name, value)));
        command.env(INFO, self.info(is_interactive)).stderr(Stdio::inherit());
        command.stdin(if is_interactive { Stdio::inherit() } else { Stdio::null() });
        let output = command.output().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => {
                let hint = self.install_hint.trim();
                let text = format!("exec: executable {name} not found\n\n{hint}");
                anyhow!("{}", text.trim_end())
            }
            _ => anyhow!("exec: {name}: {error}"),
        })?;
        ensure!(output.status.success(), "exec: {name} failed: {}", output.status);
        self.read_output(&output.stdout).with_context(|| format!("exec: the output of {name}"))
    }

    fn info(&self, is_interactive: bool) -> String {
        let api_version = self.api_version.as_str();
        let mut info = value!({
            "kind": "ExecCredential",
            "apiVersion": (api_version),
            "spec": {"interactive": (is_interactive)}
        });
        if let Some(cluster) = &self.cluster
            && let Value::Object(object) = &mut info
            && let Some(Value::Object(spec)) = object.get_mut("spec")
        {
            spec.insert("cluster", cluster.clone());
        }
        let mut text = vec![];
        keelson_schema::json::write_value(&info, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    }

    fn read_output(&self, output: &[u8]) -> Result<PluginCredentials> {
        let parsed = keelson_schema::json::parse(output).map_err(|error| anyhow!("{error}"))?;
        let printed = parsed.value;
        let text = |path: &[&str]| printed.str_at(path).unwrap_or_default();
        ensure!(text(&["kind"]) == "ExecCredential", "it is no ExecCredential");
        let api_version = text(&["apiVersion"]);
        let wanted = &self.api_version;
        ensure!(
            api_version == wanted,
            "apiVersion is {api_version:?}, the kubeconfig says {wanted:?}"
        );
        let token = text(&["status", "token"]);
        let certificate = text(&["status", "clientCertificateData"]);
        let key = text(&["status", "clientKeyData"]);
        ensure!(
            certificate.is_empty() == key.is_empty(),
            "a certificate needs a key, and a key a certificate"
        );
        ensure!(!token.is_empty() || !key.is_empty(), "there is neither a token nor a certificate");
        let expires = match text(&["status", "expirationTimestamp"]) {
            "" => None,
            time => Some(Timestamp::parse(time).map_err(|error| anyhow!("{error}"))?),
        };
        let mut user = Map::default();
        if !token.is_empty() {
            user.insert("token", token);
        }
        if !key.is_empty() {
            user.insert("client-certificate-data", STANDARD.encode(certificate));
            user.insert("client-key-data", STANDARD.encode(key));
        }
        Ok(PluginCredentials { user: Value::Object(user), expires })
    }
}

/// Returns the cluster in the form of `ExecCredential`: files are read into it.
fn cluster_info(cluster: &Value, folder: &Path) -> Result<Value> {
    let mut info = Map::default();
    let members = ["server", "tls-server-name", "insecure-skip-tls-verify", "proxy-url"];
    for name in members.into_iter().chain(["certificate-authority-data", "disable-compression"]) {
        if let Some(member) = cluster.get(name) {
            info.insert(name, member.clone());
        }
    }
    if let (None, Some(file)) =
        (info.get("certificate-authority-data"), cluster.str_at(&["certificate-authority"]))
    {
        let pem = std::fs::read(folder.join(file)).with_context(|| file.to_owned())?;
        info.insert("certificate-authority-data", STANDARD.encode(pem));
    }
    let extensions = cluster.array_at(&["extensions"]).iter();
    let mut named = extensions.filter(|one| one.str_at(&["name"]) == Some(EXTENSION));
    if let Some(config) = named.next_back().and_then(|one| one.get("extension")) {
        info.insert("config", config.clone());
    }
    Ok(Value::Object(info))
}

/// The extension of a cluster that is meant for the program.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, more: &[(&'static str, Value)]) -> Result<ExecPlugin> {
        let mut exec = Map::default();
        exec.insert("apiVersion", "client.authentication.k8s.io/v1");
        exec.insert("command", "sh");
        exec.insert("args", value!(["-c", (script)]));
        exec.insert("env", value!([{"name": "TOKEN", "value": "secret"}]));
        exec.insert("interactiveMode", "Never");
        for (name, value) in more {
            exec.insert(*name, value.clone());
        }
        let cluster = value!({
            "server": "https://a",
            "extensions": [{"name": (EXTENSION), "extension": {"audience": "b"}}]
        });
        ExecPlugin::read(&Value::Object(exec), &cluster, Path::new("/folder"))
    }

    fn printed(status: &str) -> String {
        format!(
            "echo '{{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\",\
             \"status\":{status}}}'"
        )
    }

    #[test]
    fn a_program_gets_its_environment_and_prints_credentials() {
        let status = r#"{"token":"'"$TOKEN"'","expirationTimestamp":"2030-01-02T03:04:05Z"}"#;
        let credentials = shell(&printed(status), &[]).unwrap().run().unwrap();
        assert_eq!(credentials.user, value!({"token": "secret"}));
        assert_eq!(credentials.expires, Some(Timestamp::parse("2030-01-02T03:04:05Z").unwrap()));
        let pair = printed(r#"{"clientCertificateData":"c","clientKeyData":"k"}"#);
        let credentials = shell(&pair, &[]).unwrap().run().unwrap();
        let user = value!({"client-certificate-data": "Yw==", "client-key-data": "aw=="});
        assert_eq!((credentials.user, credentials.expires), (user, None));
    }

    #[test]
    fn a_program_learns_the_cluster_if_it_wants() {
        let told = |more: &[(&'static str, Value)]| shell("", more).unwrap().info(false);
        let start = r#"{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","#;
        assert_eq!(told(&[]), format!("{start}\"spec\":{{\"interactive\":false}}}}"));
        let cluster = r#""cluster":{"server":"https://a","config":{"audience":"b"}}"#;
        let spec = format!("{start}\"spec\":{{\"interactive\":false,{cluster}}}}}");
        assert_eq!(told(&[("provideClusterInfo", value!(true))]), spec);
    }

    #[test]
    fn what_cannot_be_used_is_refused() {
        let error = |script: &str, more: &[(&'static str, Value)]| {
            let plugin = shell(script, more);
            let ran = plugin.and_then(|plugin| plugin.run());
            format!("{:#}", ran.expect_err("an error"))
        };
        assert_eq!(error("exit 3", &[]), "exec: sh failed: exit status: 3");
        let neither = "exec: the output of sh: there is neither a token nor a certificate";
        assert_eq!(error(&printed("{}"), &[]), neither);
        assert!(error("echo x", &[]).starts_with("exec: the output of sh: "));
        assert!(error(&printed(r#"{"clientKeyData":"k"}"#), &[]).ends_with("a key a certificate"));
        let version = [("apiVersion", value!("client.authentication.k8s.io/v1alpha1"))];
        assert!(error("", &version).starts_with("exec: invalid apiVersion "));
        let mode = [("interactiveMode", value!(""))];
        assert_eq!(
            error("", &mode),
            "exec: interactiveMode \"\": it is Never, IfAvailable or Always"
        );
        let none = [("command", value!("./none")), ("installHint", value!("Get it."))];
        assert_eq!(error("", &none), "exec: executable /folder/./none not found\n\nGet it.");
    }
}
