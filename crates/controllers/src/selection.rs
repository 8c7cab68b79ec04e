//! [`Controllers`]: the selection of control loops by `--controllers`.

use crate::{ALL, Controller};

/// The selected control loops.
#[derive(Clone, Debug)]
pub struct Controllers {
    /// Loops that always run.
    always: Vec<Controller>,
    /// Loops that run while no kube-controller-manager runs them.
    fallback: Vec<Controller>,
    /// Loops that every server runs.
    every_server: Vec<Controller>,
}

impl Controllers {
    /// Selects loops by `words`, in the syntax of kube-controller-manager: the last word with the name of
    /// a loop decides, else `*` or `-*`. If `words` are empty or only exclude loops, the other loops run
    /// while no kube-controller-manager does.
    pub fn select(words: &[String]) -> Controllers {
        let (mut always, mut fallback, mut every_server) = (vec![], vec![], vec![]);
        let has = |wanted: &str| words.iter().any(|word| word == wanted);
        let only_excludes = words.iter().all(|word| word.starts_with('-') && word != "-*");
        for controller in ALL {
            let (name, off) = (controller.name, format!("-{}", controller.name));
            let by_name = words.iter().rev().find(|word| **word == name || **word == off);
            let is_on = by_name.map_or(only_excludes || has("*"), |word| *word == name);
            let is_explicit = by_name.is_some() || has("*");
            match controller {
                _ if !is_on => {}
                Controller { on_every_server: true, .. } => every_server.push(*controller),
                Controller { in_kube_controller_manager: true, .. } if !is_explicit => {
                    fallback.push(*controller);
                }
                _ => always.push(*controller),
            }
        }
        Controllers { always, fallback, every_server }
    }

    /// Returns the names of the control loops that kube-controller-manager runs, too.
    pub fn names_of_manager() -> impl Iterator<Item = &'static str> {
        let of_manager = ALL.iter().filter(|controller| controller.in_kube_controller_manager);
        of_manager.map(|controller| controller.name)
    }

    /// Returns the words that name no control loop.
    pub fn unknown(words: &[String]) -> Vec<&str> {
        let is_known = |word: &&str| {
            let name = word.strip_prefix('-').unwrap_or(word);
            name == "*" || ALL.iter().any(|controller| controller.name == name)
        };
        words.iter().map(String::as_str).filter(|word| !is_known(word)).collect()
    }

    /// Whether any loop of a single server may run.
    pub fn any(&self) -> bool {
        !self.always.is_empty() || !self.fallback.is_empty()
    }

    /// Returns the loops that run while no kube-controller-manager runs them.
    pub fn fallback(&self) -> &[Controller] {
        &self.fallback
    }

    /// Returns the loops that every server always runs.
    pub fn on_every_server(&self) -> &[Controller] {
        &self.every_server
    }

    /// Returns the loops that always run.
    pub fn always(&self) -> &[Controller] {
        &self.always
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_that_names_a_loop_counts() {
        let check = |words: &[&str], always: &str, fallback: &str| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let selected = Controllers::select(&words);
            let names = |all: &[Controller]| {
                let namespace = all.iter().any(|one| one.name == "namespace-controller");
                let quota = all.iter().any(|one| one.name == "resourcequota-controller");
                format!("{} {namespace} {quota}", if all.len() > 5 { "many" } else { "few" })
            };
            assert_eq!(names(&selected.always), always, "{words:?}");
            assert_eq!(names(&selected.fallback), fallback, "{words:?}");
        };
        check(&[], "few false false", "many true true");
        check(&["*"], "many true true", "few false false");
        check(&["-*"], "few false false", "few false false");
        check(&["*", "-namespace-controller"], "many false true", "few false false");
        check(&["-namespace-controller"], "few false false", "many false true");
        check(&["resourcequota-controller"], "few false true", "few false false");
        let last = ["-resourcequota-controller", "resourcequota-controller"];
        check(&last, "few false true", "few false false");
    }

    #[test]
    fn words_that_name_no_loop_are_found() {
        let words = ["*", "-*", "namespace-controller", "-namespace-controller", "namespaces"];
        let words = words.map(str::to_owned);
        assert_eq!(Controllers::unknown(&words), ["namespaces"]);
    }
}
