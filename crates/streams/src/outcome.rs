//! How a command ended, as the error channel says it.
//!
//! The protocols v4 and v5 send a `Status` in JSON, always; those before send a text, and only if
//! the command failed.

use keelson_meta::json_text::compact;
use serde_json::Value;
use std::fmt;

/// Most bytes of a message on the error channel of a node.
pub const MESSAGE_BYTES_MAX: usize = 256 << 10;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// With the exit code 0.
    Success,
    /// With another exit code.
    ExitCode(u8),
    /// It did not run, or its end is unknown: the cause.
    Failed(String),
}

/// The form of messages on the error channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A text, if the command failed: v1 to v3.
    Text,
    /// A `Status`: v4 and v5.
    Status,
}

/// The program that writes a `Status`: what kube-apiserver and kubelets write differs slightly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// The API server, which writes empty metadata and repeats the cause of a failure.
    Server,
    /// A kubelet.
    Node,
}

impl Outcome {
    /// Returns the message for the error channel. `None`: none is sent.
    pub fn to_message(&self, form: Form, writer: Writer) -> Option<String> {
        match form {
            Form::Status => Some(self.to_status(writer)),
            Form::Text => match self {
                Outcome::Success => None,
                failure => Some(failure.to_string()),
            },
        }
    }

    /// Reads the message of a node: all that it sent on the error stream.
    pub fn from_message(message: &[u8], form: Form) -> Outcome {
        let text = || String::from_utf8_lossy(message).into_owned();
        match form {
            _ if message.is_empty() => Outcome::Success,
            Form::Text => Outcome::Failed(format!("error executing remote command: {}", text())),
            Form::Status => match serde_json::from_slice(message) {
                Ok(status) => from_status(&status),
                Err(error) => {
                    let quoted = keelson_meta::status::quote(&text());
                    Outcome::Failed(format!("error stream protocol error: {error} in {quoted}"))
                }
            },
        }
    }

    fn to_status(&self, writer: Writer) -> String {
        let metadata = match writer {
            Writer::Server => r#""metadata":{},"#,
            Writer::Node => "",
        };
        let rest = match self {
            Outcome::Success => return format!(r#"{{{metadata}"status":"Success"}}"#),
            Outcome::ExitCode(code) => format!(
                r#""reason":"NonZeroExitCode","details":{{"causes":[{{"reason":"ExitCode","message":"{code}"}}]}}"#
            ),
            Outcome::Failed(cause) if writer == Writer::Server => format!(
                r#""reason":"InternalError","details":{{"causes":[{{"message":{}}}]}},"code":500"#,
                quoted(cause)
            ),
            Outcome::Failed(_) => r#""reason":"InternalError","code":500"#.to_owned(),
        };
        let message = quoted(&self.to_string());
        format!(r#"{{{metadata}"status":"Failure","message":{message},{rest}}}"#)
    }
}

/// The message of the `Status`.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Success => Ok(()),
            Outcome::ExitCode(code) => write!(
                f,
                "command terminated with non-zero exit code: command terminated with exit code {code}"
            ),
            Outcome::Failed(cause) => write!(f, "Internal error occurred: {cause}"),
        }
    }
}

/// Returns a JSON string as Go writes it.
fn quoted(text: &str) -> String {
    compact(&Value::from(text).to_string()).into_owned()
}

fn from_status(status: &Value) -> Outcome {
    let failed = |why: &str| Outcome::Failed(format!("error stream protocol error: {why}"));
    let text = |value: &Value, name| value[name].as_str().unwrap_or_default().to_owned();
    match status["status"].as_str() {
        Some("Success") => Outcome::Success,
        Some("Failure") if status["reason"] == "NonZeroExitCode" => {
            let Some(details) = status["details"].as_object() else {
                return failed("details must be set");
            };
            let mut causes = details.get("causes").and_then(Value::as_array).into_iter().flatten();
            let Some(cause) = causes.find(|cause| cause["reason"] == "ExitCode") else {
                return failed("no ExitCode cause given");
            };
            let code = text(cause, "message");
            let is_number = code.bytes().all(|byte| byte.is_ascii_digit());
            match code.parse() {
                Ok(code) if is_number => Outcome::ExitCode(code),
                _ => failed(&format!(
                    "invalid exit code value {}",
                    keelson_meta::status::quote(&code)
                )),
            }
        }
        Some("Failure") => Outcome::Failed(text(status, "message")),
        _ => failed("unknown error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_are_written_as_upstream_writes_them() {
        let failed = Outcome::Failed("no <such> file".to_owned());
        let check = |outcome: &Outcome, form, writer, expected| {
            assert_eq!(outcome.to_message(form, writer).as_deref(), expected);
        };
        let server = Writer::Server;
        let node = Writer::Node;
        check(&Outcome::Success, Form::Text, node, None);
        check(&Outcome::Success, Form::Status, node, Some(r#"{"status":"Success"}"#));
        let success = r#"{"metadata":{},"status":"Success"}"#;
        check(&Outcome::Success, Form::Status, server, Some(success));
        let text = "Internal error occurred: no <such> file";
        check(&failed, Form::Text, node, Some(text));
        let status = r#"{"metadata":{},"status":"Failure","message":"Internal error occurred: no \u003csuch\u003e file","reason":"InternalError","details":{"causes":[{"message":"no \u003csuch\u003e file"}]},"code":500}"#;
        check(&failed, Form::Status, server, Some(status));
        let status = r#"{"status":"Failure","message":"Internal error occurred: no \u003csuch\u003e file","reason":"InternalError","code":500}"#;
        check(&failed, Form::Status, node, Some(status));
        let status = r#"{"metadata":{},"status":"Failure","message":"command terminated with non-zero exit code: command terminated with exit code 7","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode","message":"7"}]}}"#;
        check(&Outcome::ExitCode(7), Form::Status, server, Some(status));
    }

    #[test]
    fn messages_of_nodes_are_read() {
        let check = |message: &str, form, expected: Result<Outcome, &str>| {
            let expected = expected.unwrap_or_else(|cause| Outcome::Failed(cause.to_owned()));
            assert_eq!(Outcome::from_message(message.as_bytes(), form), expected, "{message}");
        };
        let text = Form::Text;
        let status = Form::Status;
        check("", text, Ok(Outcome::Success));
        check("", status, Ok(Outcome::Success));
        check("gone", text, Err("error executing remote command: gone"));
        check(r#"{"status":"Success"}"#, status, Ok(Outcome::Success));
        let exit = |details: &str| {
            format!(r#"{{"status":"Failure","reason":"NonZeroExitCode"{details}}}"#)
        };
        let cause = |code: &str| {
            let causes = r#"{"reason":"x"},{"reason":"ExitCode","message":""#;
            exit(&format!(r#","details":{{"causes":[{causes}{code}"}}]}}"#))
        };
        check(&cause("137"), status, Ok(Outcome::ExitCode(137)));
        let invalid = "error stream protocol error: invalid exit code value";
        check(&cause("256"), status, Err(&format!("{invalid} \"256\"")));
        check(&cause("+1"), status, Err(&format!("{invalid} \"+1\"")));
        check(&cause(""), status, Err(&format!("{invalid} \"\"")));
        check(&exit(""), status, Err("error stream protocol error: details must be set"));
        let none = exit(r#","details":{}"#);
        check(&none, status, Err("error stream protocol error: no ExitCode cause given"));
        let failure = r#"{"status":"Failure","message":"no such file"}"#;
        check(failure, status, Err("no such file"));
        check("{}", status, Err("error stream protocol error: unknown error"));
        check("[1]", status, Err("error stream protocol error: unknown error"));
        let found = Outcome::from_message(b"<x", status);
        assert!(matches!(found, Outcome::Failed(why) if why.ends_with(" in \"<x\"")));
    }
}
