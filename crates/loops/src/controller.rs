//! [`Controller`]: a control loop by its name, and how it is started.

use std::pin::Pin;
use std::sync::Arc;

/// A running control loop. Dropping it ends the loop.
pub type Running = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A control loop that is started with a context `C`: what its crate needs besides its own state.
#[derive(Clone, Copy)]
pub struct Controller<C> {
    /// The name in `--controllers`.
    pub name: &'static str,
    /// Whose work the loop does, and to whom it leaves it.
    pub stands_for: StandsFor,
    start: fn(C) -> Running,
}

/// The program whose work a loop does. While that program holds its Lease, the loop does not run,
/// unless `--controllers` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StandsFor {
    /// kube-controller-manager runs the loop by default.
    ControllerManager,
    /// The loop is that of kube-scheduler.
    Scheduler,
    /// No program that comes and goes: one server of those that share a store runs the loop.
    Nobody,
    /// kube-apiserver runs the loop: each server does.
    EveryServer,
}

impl<C: Clone + Send + Sync + 'static> Controller<C> {
    /// Returns a loop of kube-controller-manager.
    pub const fn new(name: &'static str, start: fn(C) -> Running) -> Controller<C> {
        Controller { name, stands_for: StandsFor::ControllerManager, start }
    }

    /// Returns the loop as one that does the work of somebody else.
    #[must_use]
    pub const fn stands_for(self, stands_for: StandsFor) -> Controller<C> {
        Controller { stands_for, ..self }
    }

    /// Returns the loop with its context.
    pub fn with(&self, context: &C) -> ReadyLoop {
        let start = self.start;
        let context = context.clone();
        let start = Arc::new(move || start(context.clone()));
        ReadyLoop { name: self.name, stands_for: self.stands_for, start }
    }
}

impl<C> std::fmt::Debug for Controller<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// A control loop that needs nothing more to start.
#[derive(Clone)]
pub struct ReadyLoop {
    /// The name in `--controllers`.
    pub name: &'static str,
    /// Whose work the loop does.
    pub stands_for: StandsFor,
    start: Arc<dyn Fn() -> Running + Send + Sync>,
}

impl ReadyLoop {
    /// Starts the loop.
    pub fn run(&self) -> Running {
        (self.start)()
    }
}
