//! [`StageBook`]: the Stages of a server, those of files and those that are stored as objects.

use crate::stages::{GROUP, STAGES_MAX, StageFiles, StageRules, read};
use keelson_loops::client::Client;
use keelson_loops::events::Recorder;
use keelson_meta::{Object, Str};
use keelson_registry::{InformerScope, Registry};
use std::collections::HashSet;
use std::sync::Arc;
use tokio::sync::watch;

const RESOURCE: &str = "stages";

/// Follows the Stages of a server.
pub struct StageBook {
    registry: Arc<Registry>,
    files: StageFiles,
    rules: watch::Sender<Arc<StageRules>>,
}

impl StageBook {
    /// Reads the Stages that there are.
    pub fn open(registry: &Arc<Registry>, files: &StageFiles) -> StageBook {
        let (rules, _) = watch::channel(Arc::default());
        let book = StageBook { registry: registry.clone(), files: files.clone(), rules };
        book.rules.send_replace(Arc::new(book.read(&mut |_, _| {})));
        book
    }

    /// Returns a receiver of the Stages. Each change of one is a change of all.
    pub fn subscribe(&self) -> watch::Receiver<Arc<StageRules>> {
        self.rules.subscribe()
    }

    /// Follows the objects until it is dropped. An event on a Stage says why it is not used.
    pub async fn follow(&self) {
        const SCOPE: InformerScope = InformerScope::Only(&[(GROUP, RESOURCE)]);
        let client = super::client(&self.registry);
        let recorder = Recorder::new(&client, super::COMPONENT);
        let mut reported: HashSet<(Str, Str)> = HashSet::new();
        loop {
            // A resource that is served later is followed by another informer.
            let mut informer = self.registry.informer(SCOPE);
            let was_served = self.registry.kind(GROUP, RESOURCE).is_some();
            loop {
                let mut events = vec![];
                informer.take(&mut events);
                if !events.is_empty() {
                    let rules = self.read(&mut |stage, why| {
                        let version = (stage.uid().into(), stage.resource_version().into());
                        if reported.len() < STAGES_MAX && reported.insert(version) {
                            report(&client, &recorder, stage, why);
                        }
                    });
                    self.rules.send_replace(Arc::new(rules));
                }
                if self.registry.kind(GROUP, RESOURCE).is_some() != was_served {
                    break;
                }
                informer.changed().await;
            }
        }
    }

    /// Reads the Stages of files and objects. `refuse` is told of those that cannot be understood.
    fn read(&self, refuse: &mut dyn FnMut(&Object, &str)) -> StageRules {
        let mut rules = self.files.rules();
        let Some(kind) = self.registry.kind(GROUP, RESOURCE) else { return StageRules::new(rules) };
        for entry in self.registry.cached_all(&kind).range("", "").take(STAGES_MAX) {
            let Ok(stage) = kind.decode(entry) else { continue };
            match read::rule(&stage.clone().into_value()) {
                Ok(rule) => rules.extend(rule.map(Arc::new)),
                Err(why) => refuse(&stage, &why),
            }
        }
        StageRules::new(rules)
    }
}

fn report(client: &Client, recorder: &Recorder, stage: &Object, why: &str) {
    let name = stage.name();
    tracing::warn!(stage = name, why, "this Stage is not used");
    let message = format!("This Stage is not used: {why}");
    recorder.about(client, stage, "Warning", ("InvalidStage", &message));
}
