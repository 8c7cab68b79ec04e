//! [`Chain`]: the enabled plug-ins, in the order in which they run.

use crate::attributes::Recorder;
use crate::config::{ConfigError, PlugInConfig};
use crate::metrics::{AdmissionStep, Metrics, Phase, Share};
use crate::plug_in::PlugIn;
use crate::plug_ins::{self, AwaitedDependency, PLUG_INS, image_policy};
use crate::request::{Operation, Request};
use keelson_auth::User;
use keelson_meta::{Failure, GroupVersionResource, Object, Status};
use keelson_metrics::Exposition;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The enabled plug-ins in the order in which they run, with their configuration.
#[derive(Clone)]
pub struct Chain {
    /// Indexes in [`PLUG_INS`].
    enabled: Vec<usize>,
    /// The number of plug-ins that take part in each phase of each operation, without dynamic ones.
    shares: [[u32; Operation::ALL.len()]; Phase::ALL.len()],
    config: Arc<PlugInConfig>,
    metrics: Arc<Metrics>,
}

impl Default for Chain {
    /// Returns the plug-ins that kube-apiserver enables by default.
    fn default() -> Self {
        Chain::with_plug_ins(|plug_in| plug_in.default_on)
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.plug_ins().map(|(_, plug_in)| plug_in.name)).finish()
    }
}

/// An invalid list of plug-ins to enable or disable.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameError {
    /// There is no plug-in with this name.
    Unknown {
        /// The name.
        name: String,
    },
    /// The plug-in is both enabled and disabled.
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

fn find_plug_in(name: &str) -> Result<&'static PlugIn, NameError> {
    let found = PLUG_INS.iter().find(|plug_in| plug_in.name == name);
    found.ok_or_else(|| NameError::Unknown { name: name.to_owned() })
}

impl Chain {
    /// Returns the default plug-ins without `disabled` and with `enabled`.
    pub fn new(enabled: &[String], disabled: &[String]) -> Result<Chain, NameError> {
        for name in disabled {
            find_plug_in(name)?;
            if enabled.contains(name) {
                return Err(NameError::Both { name: name.clone() });
            }
        }
        for name in enabled {
            find_plug_in(name)?;
        }
        let is_in =
            |names: &[String], plug_in: &PlugIn| names.iter().any(|name| name == plug_in.name);
        Ok(Chain::with_plug_ins(|plug_in| {
            (plug_in.default_on && !is_in(disabled, plug_in)) || is_in(enabled, plug_in)
        }))
    }

    /// Returns the names of all plug-ins.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PLUG_INS.iter().map(|plug_in| plug_in.name)
    }

    fn with_plug_ins(is_on: impl Fn(&PlugIn) -> bool) -> Chain {
        let enabled = (0..PLUG_INS.len()).filter(|number| is_on(&PLUG_INS[*number])).collect();
        let share = |number: usize, phase, operation| {
            let plug_in = &PLUG_INS[number];
            is_on(plug_in).then(|| plug_in.share(phase, operation)).flatten()
        };
        let metrics = Metrics::new(PLUG_INS.iter().map(|plug_in| plug_in.name), share);
        let phases = Phase::ALL;
        let operations = Operation::ALL;
        let shares = phases.map(|phase| {
            operations.map(|operation| {
                let all = (0..PLUG_INS.len()).filter_map(|number| share(number, phase, operation));
                all.filter(|share| matches!(share, Share::OfPass)).count() as u32
            })
        });
        Chain { enabled, shares, config: Arc::default(), metrics: Arc::new(metrics) }
    }

    fn plug_ins(&self) -> impl Iterator<Item = (usize, &'static PlugIn)> {
        self.enabled.iter().map(|number| (*number, &PLUG_INS[*number]))
    }

    /// Returns the metrics of admission.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Writes all metrics of admission.
    pub fn write_metrics(&self, out: &mut Exposition) {
        self.metrics.write(out);
        self.config.pod_security_metrics.write(out);
    }

    /// Records a phase for the dynamic plug-ins that had nothing to do.
    pub fn count_idle(&self, phase: Phase, operation: Operation) {
        self.metrics.idle(AdmissionStep { phase, operation, rejected: false });
    }

    /// Records a call of a dynamic plug-in.
    pub fn count(&self, name: &str, step: AdmissionStep, begun: Instant) {
        let Some((number, plug_in)) = self.plug_ins().find(|(_, plug_in)| plug_in.name == name)
        else {
            return;
        };
        if plug_in.is_counted(step.phase, step.operation) {
            self.metrics.plug_in(number, step, begun.elapsed());
        }
    }

    /// Reads an AdmissionConfiguration and the files that it refers to.
    pub fn read_config(path: &Path) -> Result<PlugInConfig, ConfigError> {
        PlugInConfig::read(path, plug_ins::is_plug_in)
    }

    /// Returns the chain with the configuration of its plug-ins.
    pub fn with_config(self, config: PlugInConfig) -> Chain {
        Chain { config: Arc::new(config), ..self }
    }

    /// Returns the name of an enabled plug-in that lacks its required configuration.
    pub fn unconfigured(&self) -> Option<&'static str> {
        let lacks_config = self.has(image_policy::NAME) && self.config.image_policy().is_none();
        lacks_config.then_some(image_policy::NAME)
    }

    /// Returns the configuration of the plug-ins.
    pub fn config(&self) -> &PlugInConfig {
        &self.config
    }

    /// Returns whether a plug-in is enabled.
    pub fn has(&self, name: &str) -> bool {
        self.plug_ins().any(|(_, plug_in)| plug_in.name == name)
    }

    /// Returns whether plug-ins read objects other than the namespace for this resource. Then the
    /// caller should first wait until reads are as new as the store.
    pub fn reads_other_objects(&self, gvr: &GroupVersionResource) -> bool {
        plug_ins::reads_other_objects(gvr)
    }

    /// Runs the mutating phase; stops at the first rejection. No built-in plug-in handles
    /// connections.
    pub fn admit(
        &self,
        req: &Request<'_>,
        obj: &mut Object,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        if req.operation == Operation::Connect {
            return Ok(());
        }
        let begun = Instant::now();
        let rejected = self.plug_ins().find_map(|(number, plug_in)| {
            let admit = plug_in.admit()?;
            admit(req, obj, recorder).err().map(|failure| (number, failure))
        });
        self.count_pass(Phase::Admit, req.operation, rejected, begun.elapsed())
    }

    /// Runs the validating phase on the object as it would be stored, or as it is when it is
    /// deleted.
    pub fn validate(
        &self,
        req: &Request<'_>,
        obj: &Object,
        recorder: &mut Recorder,
    ) -> Result<(), Failure> {
        if req.operation == Operation::Connect {
            return Ok(());
        }
        let begun = Instant::now();
        let rejected = self.plug_ins().find_map(|(number, plug_in)| {
            let validate = plug_in.validate()?;
            validate(req, obj, recorder).err().map(|failure| (number, failure))
        });
        self.count_pass(Phase::Validate, req.operation, rejected, begun.elapsed())
    }

    /// Records the plug-ins that ran in a phase; the last may have rejected the request.
    fn count_pass(
        &self,
        phase: Phase,
        operation: Operation,
        rejected: Option<(usize, Failure)>,
        took: Duration,
    ) -> Result<(), Failure> {
        // Deletions have one phase here and two upstream.
        let phases: &[Phase] = match operation {
            Operation::Delete => &Phase::ALL,
            _ => &[phase],
        };
        for &phase in phases {
            let step = AdmissionStep { phase, operation, rejected: false };
            let share = took / self.shares[phase as usize][operation as usize].max(1);
            let Some((last, _)) = rejected else {
                self.metrics.pass(step, share);
                continue;
            };
            let called = self.plug_ins().filter(|(number, _)| *number <= last);
            for (number, _) in called.filter(|(_, plug_in)| {
                matches!(plug_in.share(phase, operation), Some(Share::OfPass))
            }) {
                self.metrics.plug_in(
                    number,
                    AdmissionStep { rejected: number == last, ..step },
                    share,
                );
            }
        }
        rejected.map_or(Ok(()), |(_, failure)| Err(failure))
    }

    /// Runs the plug-in that may reject reviews.
    pub fn admit_review(
        &self,
        user: &User,
        resource: &GroupVersionResource,
        review: &Object,
    ) -> Result<(), Failure> {
        match plug_ins::review_rejection(user).filter(|(name, _)| self.has(name)) {
            Some((_, why)) => {
                let names = [review.name(), review.generate_name(), "Unknown"];
                let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
                Err(Status::forbidden(resource, name, &why))
            }
            None => Ok(()),
        }
    }

    /// Returns an object that the request requires and a control loop is about to create. The
    /// caller waits a moment for it.
    pub fn awaited_dependency(&self, req: &Request<'_>, obj: &Object) -> Option<AwaitedDependency> {
        plug_ins::awaited_dependency(req, obj)
            .filter(|awaited_dependency| self.has(awaited_dependency.plug_in))
    }
}
