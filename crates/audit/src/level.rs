//! [`Level`]: how much of a request is audited. [`Stage`]: when an event is made.

/// How much of a request is audited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Nothing.
    None,
    /// Who, what and when.
    Metadata,
    /// Also the object of the request.
    Request,
    /// Also the object of the response.
    RequestResponse,
}

impl Level {
    /// All levels, in the order in which upstream lists them.
    pub const ALL: [Level; 4] =
        [Level::None, Level::Metadata, Level::Request, Level::RequestResponse];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Level::None => "None",
            Level::Metadata => "Metadata",
            Level::Request => "Request",
            Level::RequestResponse => "RequestResponse",
        }
    }

    /// Returns the level of a name.
    pub fn parse(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }
}

/// The stage of a request at which an event is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The request has arrived, and its user is known.
    RequestReceived,
    /// The headers of the response are about to be sent; only of requests that may last.
    ResponseStarted,
    /// The response is complete.
    ResponseComplete,
    /// The request has panicked.
    Panic,
}

impl Stage {
    /// All stages, in the order in which upstream lists them.
    pub const ALL: [Stage; 4] =
        [Stage::RequestReceived, Stage::ResponseStarted, Stage::ResponseComplete, Stage::Panic];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Stage::RequestReceived => "RequestReceived",
            Stage::ResponseStarted => "ResponseStarted",
            Stage::ResponseComplete => "ResponseComplete",
            Stage::Panic => "Panic",
        }
    }

    /// Returns the stage of a name.
    pub fn parse(name: &str) -> Option<Stage> {
        Stage::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

/// A set of stages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stages(u8);

impl Stages {
    /// Adds a stage.
    pub fn insert(&mut self, stage: Stage) {
        self.0 |= 1 << stage as u8;
    }

    /// Returns whether a stage is in the set.
    pub fn contains(self, stage: Stage) -> bool {
        self.0 & 1 << stage as u8 != 0
    }

    /// Returns the stages of both sets.
    #[must_use]
    pub fn union(self, other: Stages) -> Stages {
        Stages(self.0 | other.0)
    }
}
