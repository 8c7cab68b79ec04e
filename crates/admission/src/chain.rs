//! [`Chain`]: the plug-ins that are on, in the order in which they are asked.

use crate::attributes::Notes;
use crate::config::PlugInConfig;
use crate::metrics::{Metrics, Phase, Share, Step};
use crate::plug_in::PlugIn;
use crate::plug_ins::{self, Awaited, PLUG_INS, image_policy};
use crate::request::{Operation, Request};
use keelson_auth::User;
use keelson_meta::{Failure, GroupVersionResource, Object, Status};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The plug-ins that are on, in the order in which they are asked, with their configuration.
#[derive(Clone)]
pub struct Chain {
    /// Numbers in [`PLUG_INS`].
    on: Vec<usize>,
    /// How many of them take part in each phase of each operation, of those that wait for nobody.
    shares: [[u32; Operation::ALL.len()]; Phase::ALL.len()],
    config: Arc<PlugInConfig>,
    metrics: Arc<Metrics>,
}

impl Default for Chain {
    /// The plug-ins that kube-apiserver has on by default.
    fn default() -> Self {
        Chain::of(|plug_in| plug_in.default_on)
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.plug_ins().map(|(_, plug_in)| plug_in.name)).finish()
    }
}

/// Why plug-ins cannot be switched on or off as asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// There is no such plug-in.
    Unknown {
        /// The name.
        name: String,
    },
    /// Enabled and disabled.
    Both {
        /// The name.
        name: String,
    },
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NameError::Unknown { name } => {
                let known: Vec<&str> = PLUG_INS.iter().map(|plug_in| plug_in.name).collect();
                write!(f, "there is no plug-in {name:?}; known are {}", known.join(", "))
            }
            NameError::Both { name } => write!(f, "the plug-in {name} is enabled and disabled"),
        }
    }
}

impl std::error::Error for NameError {}

fn named(name: &str) -> Result<&'static PlugIn, NameError> {
    let found = PLUG_INS.iter().find(|plug_in| plug_in.name == name);
    found.ok_or_else(|| NameError::Unknown { name: name.to_owned() })
}

impl Chain {
    /// The default ones, without `off` and with `on`.
    pub fn new(on: &[String], off: &[String]) -> Result<Chain, NameError> {
        for name in off {
            named(name)?;
            if on.contains(name) {
                return Err(NameError::Both { name: name.clone() });
            }
        }
        for name in on {
            named(name)?;
        }
        let is = |names: &[String], plug_in: &PlugIn| names.iter().any(|name| name == plug_in.name);
        Ok(Chain::of(|plug_in| (plug_in.default_on && !is(off, plug_in)) || is(on, plug_in)))
    }

    fn of(is_on: impl Fn(&PlugIn) -> bool) -> Chain {
        let on = (0..PLUG_INS.len()).filter(|number| is_on(&PLUG_INS[*number])).collect();
        let share = |number: usize, phase, operation| {
            let plug_in = &PLUG_INS[number];
            is_on(plug_in).then(|| plug_in.share(phase, operation)).flatten()
        };
        let metrics = Metrics::new(PLUG_INS.iter().map(|plug_in| plug_in.name), share);
        let (phases, operations) = (Phase::ALL, Operation::ALL);
        let shares = phases.map(|phase| {
            operations.map(|operation| {
                let all = (0..PLUG_INS.len()).filter_map(|number| share(number, phase, operation));
                all.filter(|share| matches!(share, Share::OfPass)).count() as u32
            })
        });
        Chain { on, shares, config: Arc::default(), metrics: Arc::new(metrics) }
    }

    fn plug_ins(&self) -> impl Iterator<Item = (usize, &'static PlugIn)> {
        self.on.iter().map(|number| (*number, &PLUG_INS[*number]))
    }

    /// What is counted of admission.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Counts the dynamic plug-ins that had nothing to do in a phase.
    pub fn count_idle(&self, phase: Phase, operation: Operation) {
        self.metrics.idle(Step { phase, operation, rejected: false });
    }

    /// Counts a dynamic plug-in.
    pub fn count(&self, name: &str, step: Step, begun: Instant) {
        let Some((number, plug_in)) = self.plug_ins().find(|(_, plug_in)| plug_in.name == name)
        else {
            return;
        };
        if plug_in.is_counted(step.phase, step.operation) {
            self.metrics.plug_in(number, step, begun.elapsed());
        }
    }

    /// With what a configuration file says to plug-ins.
    pub fn with_config(self, config: PlugInConfig) -> Chain {
        Chain { config: Arc::new(config), ..self }
    }

    /// A plug-in that is on and cannot act without being configured.
    pub fn unconfigured(&self) -> Option<&'static str> {
        let is = self.has(image_policy::NAME) && self.config.image_policy().is_none();
        is.then_some(image_policy::NAME)
    }

    /// The configuration of the plug-ins.
    pub fn config(&self) -> &PlugInConfig {
        &self.config
    }

    /// Whether a plug-in is on.
    pub fn has(&self, name: &str) -> bool {
        self.plug_ins().any(|(_, plug_in)| plug_in.name == name)
    }

    /// Whether plug-ins look at more than the namespace when they are asked about this resource, so
    /// that they should see the newest state.
    pub fn looks_around(&self, gvr: &GroupVersionResource) -> bool {
        plug_ins::look_around(gvr)
    }

    /// Lets every plug-in change the object; the first that refuses ends it. None looks at connections.
    pub fn admit(
        &self,
        req: &Request<'_>,
        obj: &mut Object,
        notes: &mut Notes,
    ) -> Result<(), Failure> {
        if req.operation == Operation::Connect {
            return Ok(());
        }
        let begun = Instant::now();
        let refused = self.plug_ins().find_map(|(number, plug_in)| {
            let admit = plug_in.admit()?;
            admit(req, obj, notes).err().map(|failure| (number, failure))
        });
        self.count_pass(Phase::Admit, req.operation, refused, begun.elapsed())
    }

    /// Asks every plug-in about the object as it would be stored, or as it is when it is deleted.
    pub fn validate(
        &self,
        req: &Request<'_>,
        obj: &Object,
        notes: &mut Notes,
    ) -> Result<(), Failure> {
        if req.operation == Operation::Connect {
            return Ok(());
        }
        let begun = Instant::now();
        let refused = self.plug_ins().find_map(|(number, plug_in)| {
            let validate = plug_in.validate()?;
            validate(req, obj, notes).err().map(|failure| (number, failure))
        });
        self.count_pass(Phase::Validate, req.operation, refused, begun.elapsed())
    }

    /// Counts the plug-ins that were asked in a phase, of which the last may have refused.
    fn count_pass(
        &self,
        phase: Phase,
        operation: Operation,
        refused: Option<(usize, Failure)>,
        took: Duration,
    ) -> Result<(), Failure> {
        // Deletions have one phase here, where upstream has two.
        let phases: &[Phase] = match operation {
            Operation::Delete => &Phase::ALL,
            _ => &[phase],
        };
        for &phase in phases {
            let step = Step { phase, operation, rejected: false };
            let share = took / self.shares[phase as usize][operation as usize].max(1);
            let Some((last, _)) = refused else {
                self.metrics.pass(step, share);
                continue;
            };
            let asked = self.plug_ins().filter(|(number, _)| *number <= last);
            for (number, _) in asked.filter(|(_, plug_in)| {
                matches!(plug_in.share(phase, operation), Some(Share::OfPass))
            }) {
                self.metrics.plug_in(number, Step { rejected: number == last, ..step }, share);
            }
        }
        refused.map_or(Ok(()), |(_, failure)| Err(failure))
    }

    /// Asks the one plug-in that has something to say of reviews.
    pub fn admit_review(
        &self,
        user: &User,
        resource: &GroupVersionResource,
        review: &Object,
    ) -> Result<(), Failure> {
        match plug_ins::refuses_review(user).filter(|(name, _)| self.has(name)) {
            Some((_, why)) => {
                let names = [review.name(), review.generate_name(), "Unknown"];
                let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
                Err(Status::forbidden(resource, name, &why))
            }
            None => Ok(()),
        }
    }

    /// What the object of a request needs and a control loop is about to make: worth waiting for a moment when
    /// it is not there.
    pub fn awaited(&self, req: &Request<'_>, obj: &Object) -> Option<Awaited> {
        plug_ins::awaited(req, obj).filter(|awaited| self.has(awaited.plug_in))
    }
}
