//! [`Selection`]: which control loops run, by `--controllers`.

use crate::{Controller, ReadyLoop, StandsFor};

/// The selected control loops.
#[derive(Clone, Default)]
pub struct Selection {
    /// Loops that run as long as the server does.
    pub always: Vec<ReadyLoop>,
    /// Loops that run while no kube-controller-manager runs them.
    pub without_manager: Vec<ReadyLoop>,
    /// Loops that run while no kube-scheduler runs.
    pub without_scheduler: Vec<ReadyLoop>,
    /// Loops that every server runs, also without leadership.
    pub on_every_server: Vec<ReadyLoop>,
}

impl Selection {
    /// Adds those of `all` that `words` select, in the syntax of kube-controller-manager: the last
    /// word with the name of a loop decides, else `*` or `-*`. If `words` are empty or only exclude
    /// loops, the other loops run while the program that they stand for does not.
    pub fn add<C: Clone + Send + Sync + 'static>(
        &mut self,
        all: &[Controller<C>],
        words: &[String],
        context: &C,
    ) {
        for controller in all {
            let Some(is_explicit) = selected(words, controller.name) else { continue };
            let list = match controller.stands_for {
                StandsFor::EveryServer => &mut self.on_every_server,
                StandsFor::ControllerManager if !is_explicit => &mut self.without_manager,
                StandsFor::Scheduler if !is_explicit => &mut self.without_scheduler,
                _ => &mut self.always,
            };
            list.push(controller.with(context));
        }
    }

    /// Removes a loop.
    pub fn remove(&mut self, name: &str) {
        for list in [&mut self.always, &mut self.without_manager, &mut self.without_scheduler] {
            list.retain(|one| one.name != name);
        }
    }

    /// Whether any loop of a single server may run.
    pub fn any(&self) -> bool {
        let all = [&self.always, &self.without_manager, &self.without_scheduler];
        all.iter().any(|loops| !loops.is_empty())
    }
}

/// Whether words select a loop, and if so, whether they name it or all loops.
fn selected(words: &[String], name: &str) -> Option<bool> {
    let has_all = words.iter().any(|word| word == "*");
    let only_excludes = words.iter().all(|word| word.starts_with('-') && word != "-*");
    let names = |word: &&String| word.strip_prefix('-').unwrap_or(word.as_str()) == name;
    let by_name = words.iter().rev().find(names);
    let is_on = by_name.map_or(only_excludes || has_all, |word| word == name);
    is_on.then_some(by_name.is_some() || has_all)
}

/// Returns the words that name none of the loops `known`.
pub fn unknown_words<'w>(words: &'w [String], known: &[&str]) -> Vec<&'w str> {
    let is_known = |word: &&str| {
        let name = word.strip_prefix('-').unwrap_or(word);
        name == "*" || known.contains(&name)
    };
    words.iter().map(String::as_str).filter(|word| !is_known(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &[Controller<()>] = &[
        Controller::new("namespace-controller", |()| Box::pin(async {})),
        Controller::new("resourcequota-controller", |()| Box::pin(async {})),
        Controller::new("scheduler", |()| Box::pin(async {})).stands_for(StandsFor::Scheduler),
    ];

    #[test]
    fn the_last_word_that_names_a_loop_counts() {
        let check =
            |words: &[&str], always: &str, without_manager: &str, without_scheduler: &str| {
                let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
                let mut selection = Selection::default();
                selection.add(ALL, &words, &());
                let names = |all: &[ReadyLoop]| {
                    let names: Vec<&str> = all.iter().map(|one| &one.name[..1]).collect();
                    names.concat()
                };
                assert_eq!(names(&selection.always), always, "{words:?}");
                assert_eq!(names(&selection.without_manager), without_manager, "{words:?}");
                assert_eq!(names(&selection.without_scheduler), without_scheduler, "{words:?}");
            };
        check(&[], "", "nr", "s");
        check(&["*"], "nrs", "", "");
        check(&["-*"], "", "", "");
        check(&["*", "-namespace-controller"], "rs", "", "");
        check(&["-namespace-controller"], "", "r", "s");
        check(&["resourcequota-controller"], "r", "", "");
        check(&["-resourcequota-controller", "resourcequota-controller"], "r", "", "");
        check(&["scheduler"], "s", "", "");
    }

    #[test]
    fn words_that_name_no_loop_are_found() {
        let words = ["*", "-*", "namespace-controller", "-namespace-controller", "namespaces"]
            .map(str::to_owned);
        assert_eq!(unknown_words(&words, &["namespace-controller"]), ["namespaces"]);
    }
}
