//! What a command would do: exit at once, after a while, or run until it is stopped. Only simple
//! commands are understood: `true`, `false`, `exit N`, `sleep N`, `echo` and tests, and sequences
//! of them by `;`, `&&`, `||` and line ends in `sh -c`. Anything else at the end of a script runs
//! for ever, as servers do; before the end it succeeds at once.

use std::time::Duration;

/// How a command ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ending {
    /// With an exit code, some time after its start.
    Exit(Duration, i64),
    /// Never by itself.
    Never,
}

const AT_ONCE: Ending = Ending::Exit(Duration::ZERO, 0);
const SHELLS: [&str; 5] = ["sh", "bash", "ash", "dash", "zsh"];
/// Commands that succeed at once.
const QUICK: [&str; 26] = [
    "true", ":", "echo", "printf", "date", "hostname", "id", "env", "printenv", "ls", "cat",
    "touch", "mkdir", "rm", "cp", "mv", "chmod", "chown", "export", "set", "cd", "pwd", "trap",
    "uname", "sync", "whoami",
];
/// Words that begin a command that is not understood.
const COMPOUND: [&str; 9] = ["while", "until", "for", "if", "case", "{", "(", "function", "select"];

/// Returns how a command ends. `env` returns the value of a variable.
pub fn ending(argv: &[String], env: &dyn Fn(&str) -> Option<String>) -> Ending {
    let Some(program) = argv.first() else { return Ending::Never };
    let program = program.rsplit('/').next().unwrap_or(program);
    if SHELLS.contains(&program) {
        let mut rest = argv[1..].iter();
        let is_script = |word: &&String| word.starts_with('-') && word.ends_with('c');
        return match rest.find(is_script).and_then(|_| rest.next()) {
            Some(text) => script(text, env),
            None => Ending::Never,
        };
    }
    simple(argv, env).unwrap_or(Ending::Never)
}

/// Returns how one command ends; `None` if it is not known.
fn simple(words: &[String], env: &dyn Fn(&str) -> Option<String>) -> Option<Ending> {
    let program = words.first()?;
    let name = program.rsplit('/').next().unwrap_or(program);
    let exit = |code: i64| Some(Ending::Exit(Duration::ZERO, code));
    match name {
        "exec" | "command" | "nohup" => Some(ending(&words[1..], env)),
        "false" => exit(1),
        "exit" | "return" => {
            exit(words.get(1).and_then(|code| code.parse::<i64>().ok()).unwrap_or(0) & 0xff)
        }
        "sleep" => sleep(&words[1..]),
        "[" | "test" => exit(i64::from(!holds(&words[1..]))),
        _ if QUICK.contains(&name) => Some(AT_ONCE),
        _ if SHELLS.contains(&name) => Some(ending(words, env)),
        _ => None,
    }
}

fn sleep(words: &[String]) -> Option<Ending> {
    let mut sum = Duration::ZERO;
    for word in words {
        if word == "infinity" || word == "inf" {
            return Some(Ending::Never);
        }
        let unit = word.chars().next_back().filter(char::is_ascii_alphabetic);
        let seconds = match unit {
            None | Some('s') => 1.0,
            Some('m') => 60.0,
            Some('h') => 3_600.0,
            Some('d') => 86_400.0,
            Some(_) => return Some(Ending::Exit(Duration::ZERO, 1)),
        };
        let number = word.trim_end_matches(|c: char| c.is_ascii_alphabetic()).parse::<f64>();
        let span = number.ok().map(|number| Duration::try_from_secs_f64(number * seconds));
        match span {
            Some(Ok(span)) => sum = sum.saturating_add(span),
            Some(Err(_)) => return Some(Ending::Never),
            None => return Some(Ending::Exit(Duration::ZERO, 1)),
        }
    }
    (!words.is_empty()).then_some(Ending::Exit(sum, 0))
}

/// Evaluates the words of `[`.
fn holds(words: &[String]) -> bool {
    let words: Vec<&str> = words.iter().map(String::as_str).filter(|word| *word != "]").collect();
    let number = |text: &str| text.parse::<i64>().ok();
    match words[..] {
        ["!", ref rest @ ..] => {
            let rest: Vec<String> = rest.iter().map(|word| (*word).to_owned()).collect();
            !holds(&rest)
        }
        ["-n", text] | [text] => !text.is_empty(),
        ["-z", text] => text.is_empty(),
        [left, "=" | "==", right] => left == right,
        [left, "!=", right] => left != right,
        [left, "-eq", right] => number(left) == number(right),
        [left, "-ne", right] => number(left) != number(right),
        [left, "-lt", right] => number(left) < number(right),
        [left, "-le", right] => number(left) <= number(right),
        [left, "-gt", right] => number(left) > number(right),
        [left, "-ge", right] => number(left) >= number(right),
        _ => false,
    }
}

/// How a command follows on the one before it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Joint {
    Always,
    IfSucceeded,
    IfFailed,
}

fn script(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Ending {
    let commands = split(text, env);
    let mut passed = Duration::ZERO;
    let mut code = 0;
    let last = commands.len().saturating_sub(1);
    for (place, (joint, words)) in commands.iter().enumerate() {
        let is_skipped = match joint {
            Joint::Always => false,
            Joint::IfSucceeded => code != 0,
            Joint::IfFailed => code == 0,
        };
        let first = words.first().map_or("", String::as_str);
        if COMPOUND.contains(&first) {
            return Ending::Never;
        }
        if is_skipped {
            continue;
        }
        let ending =
            simple(words, env).unwrap_or(if place == last { Ending::Never } else { AT_ONCE });
        let Ending::Exit(duration, status) = ending else { return Ending::Never };
        passed = passed.saturating_add(duration);
        code = status;
        if matches!(first, "exit" | "exec") {
            break;
        }
    }
    Ending::Exit(passed, code)
}

/// Splits a script into commands, and these into words, with variables replaced.
fn split(text: &str, env: &dyn Fn(&str) -> Option<String>) -> Vec<(Joint, Vec<String>)> {
    let mut splitter = Splitter::default();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (splitter.quote, c) {
            (Some(quote), c) if c == quote => splitter.quote = None,
            (Some('\''), c) => splitter.push(c),
            (None, '\'' | '"') => {
                splitter.quote = Some(c);
                splitter.word.get_or_insert_default();
            }
            (_, '\\') => chars.next().into_iter().for_each(|c| splitter.push(c)),
            (_, '$') => {
                let is_braced = chars.next_if_eq(&'{').is_some();
                let mut name = String::new();
                while let Some(c) = chars.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
                    name.push(c);
                }
                if is_braced {
                    chars.find(|c| *c == '}');
                }
                splitter.word.get_or_insert_default().push_str(&env(&name).unwrap_or_default());
            }
            (Some(_), c) => splitter.push(c),
            (None, '#') if splitter.word.is_none() => {
                while chars.next_if(|c| *c != '\n').is_some() {}
            }
            (None, ';' | '\n') => splitter.end_command(Joint::Always),
            (None, '&') if chars.next_if_eq(&'&').is_some() => {
                splitter.end_command(Joint::IfSucceeded);
            }
            (None, '|') if chars.next_if_eq(&'|').is_some() => {
                splitter.end_command(Joint::IfFailed)
            }
            (None, '|' | '&') => splitter.end_command(Joint::Always),
            (None, c) if c.is_whitespace() => splitter.end_word(),
            (None, c) => splitter.push(c),
        }
    }
    splitter.end_command(Joint::Always);
    splitter.commands
}

#[derive(Default)]
struct Splitter {
    commands: Vec<(Joint, Vec<String>)>,
    words: Vec<String>,
    word: Option<String>,
    quote: Option<char>,
    /// How the command that is being read follows; `None`: always.
    joint: Option<Joint>,
}

impl Splitter {
    fn push(&mut self, c: char) {
        self.word.get_or_insert_default().push(c);
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self, next: Joint) {
        self.end_word();
        // A redirection is no argument.
        let is_redirect = |word: &String| word.contains('>') && !word.contains(' ');
        if let Some(at) = self.words.iter().position(is_redirect) {
            self.words.truncate(at);
        }
        if !self.words.is_empty() {
            let joint = self.joint.take().unwrap_or(Joint::Always);
            self.commands.push((joint, std::mem::take(&mut self.words)));
        }
        self.joint = Some(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(argv: &[&str]) -> Ending {
        let argv: Vec<String> = argv.iter().map(|word| (*word).to_owned()).collect();
        let env = |name: &str| (name == "CODE").then(|| "7".to_owned());
        ending(&argv, &env)
    }

    #[test]
    fn a_command_ends_as_it_would() {
        let exit = |seconds: f64, code| Ending::Exit(Duration::from_secs_f64(seconds), code);
        let check = |argv: &[&str], want: Ending| assert_eq!(of(argv), want, "{argv:?}");
        check(&[], Ending::Never);
        check(&["/bin/true"], exit(0.0, 0));
        check(&["false"], exit(0.0, 1));
        check(&["sleep", "1.5"], exit(1.5, 0));
        check(&["sleep", "1m"], exit(60.0, 0));
        check(&["sleep", "infinity"], Ending::Never);
        check(&["nginx"], Ending::Never);
        check(&["sh"], Ending::Never);
        let check = |text: &str, want: Ending| assert_eq!(of(&["sh", "-c", text]), want, "{text}");
        check("exit 3", exit(0.0, 3));
        check("echo hello; sleep 2 && exit 42", exit(2.0, 42));
        check("false || sleep 3", exit(3.0, 0));
        check("false && sleep 3", exit(0.0, 1));
        check("wget x; sleep 1", exit(1.0, 0));
        check("echo 'a; exit 3' > /tmp/x\nexit \"$CODE\"", exit(0.0, 7));
        check("[ \"${CODE}\" = 7 ] && exit 2", exit(0.0, 2));
        check("[ \"$CODE\" -eq 8 ] && exit 2; exit 0", exit(0.0, 0));
        check("while true; do sleep 1; done", Ending::Never);
        check("exec nginx -g 'daemon off;'", Ending::Never);
        check("nginx", Ending::Never);
        check("", exit(0.0, 0));
        assert_eq!(of(&["/bin/bash", "-ec", "exit 300"]), exit(0.0, 44));
    }
}
