//! [`Controllers`]: which control loops run.

use crate::{ALL, Controller};

/// Which control loops run.
#[derive(Clone, Debug)]
pub struct Controllers {
    /// Those that run always.
    always: Vec<Controller>,
    /// Those that run while no kube-controller-manager runs them.
    otherwise: Vec<Controller>,
    /// Those that each server runs.
    on_each: Vec<Controller>,
}

impl Controllers {
    /// Those that `words` choose, in kube-controller-manager's syntax: the last word that speaks of a loop by name
    /// counts, else `*` or `-*`. Without words all run, but leave their work to a kube-controller-manager
    /// while there is one. So do those that are not named where only `-name` is said of others.
    pub fn chosen(words: &[String]) -> Controllers {
        let (mut always, mut otherwise, mut on_each) = (vec![], vec![], vec![]);
        let has = |wanted: &str| words.iter().any(|word| word == wanted);
        let is_only_less = words.iter().all(|word| word.starts_with('-') && word != "-*");
        for controller in ALL {
            let (name, off) = (controller.name, format!("-{}", controller.name));
            let by_name = words.iter().rev().find(|word| **word == name || **word == off);
            let is_on = by_name.map_or(is_only_less || has("*"), |word| *word == name);
            let is_said = by_name.is_some() || has("*");
            match controller {
                _ if !is_on => {}
                Controller { is_each_servers: true, .. } => on_each.push(*controller),
                Controller { is_kube_controller_managers: true, .. } if !is_said => {
                    otherwise.push(*controller);
                }
                _ => always.push(*controller),
            }
        }
        Controllers { always, otherwise, on_each }
    }

    /// The words of these that name no control loop.
    pub fn unknown(words: &[String]) -> Vec<&str> {
        let is_known = |word: &&str| {
            let name = word.strip_prefix('-').unwrap_or(word);
            name == "*" || ALL.iter().any(|controller| controller.name == name)
        };
        words.iter().map(String::as_str).filter(|word| !is_known(word)).collect()
    }

    /// Whether any loop may run.
    pub fn any(&self) -> bool {
        !self.always.is_empty() || !self.otherwise.is_empty()
    }

    /// The loops that run while no kube-controller-manager does.
    pub fn otherwise(&self) -> &[Controller] {
        &self.otherwise
    }

    /// The loops that each of several servers runs for itself, always.
    pub fn on_each_server(&self) -> &[Controller] {
        &self.on_each
    }

    /// The loops that run always.
    pub fn always(&self) -> &[Controller] {
        &self.always
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_word_that_names_a_loop_counts() {
        let check = |words: &[&str], always: &str, otherwise: &str| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            let chosen = Controllers::chosen(&words);
            let names = |all: &[Controller]| {
                let namespace = all.iter().any(|one| one.name == "namespace-controller");
                let quota = all.iter().any(|one| one.name == "resourcequota-controller");
                format!("{} {namespace} {quota}", if all.len() > 5 { "many" } else { "few" })
            };
            assert_eq!(names(&chosen.always), always, "{words:?}");
            assert_eq!(names(&chosen.otherwise), otherwise, "{words:?}");
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
