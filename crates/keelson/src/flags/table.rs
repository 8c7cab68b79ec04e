//! What a flag is: its name, the kind of its value, its default, its group, and what it does here.

/// The command whose flags are read. The two differ in some defaults, and in what must be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Face {
    /// `keelson serve`: starts without any flag.
    Serve,
    /// `kube-apiserver`, or `keelson kube-apiserver`.
    KubeApiserver,
}

/// A flag.
#[derive(Debug)]
pub struct Flag {
    /// The name, without dashes.
    pub name: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// The value when the flag is not given, as it would be given; empty means the empty value.
    pub default: &'static str,
    /// The same in `keelson serve`, if it differs.
    pub serve_default: Option<&'static str>,
    /// What it does here.
    pub effect: Effect,
    /// What a user of a deprecated flag is told.
    pub deprecated: Option<&'static str>,
    /// Whether `--help` leaves it out.
    pub is_hidden: bool,
    /// One line for `--help`.
    pub help: &'static str,
}

/// What a flag does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// What it does in kube-apiserver.
    Served,
    /// Nothing, and here is why; said once in the log when it is given.
    Accepted(&'static str),
    /// The start is refused when the value is not the default: this is missing.
    Refused(&'static str),
}

/// The kind of a flag's value, and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A boolean; the bare flag means true.
    Bool,
    /// An integer of 64 bits.
    Int,
    /// An unsigned integer.
    Uint,
    /// A floating-point number; `float32` in the help.
    Float32,
    /// A floating-point number.
    Float,
    /// A duration such as `1m0s`.
    Duration,
    /// Text.
    Text,
    /// A list, split at commas; given again, it grows.
    List,
    /// A list that grows by one whole value each time.
    Array,
    /// A list of integers of 32 bits.
    Int32List,
    /// An IP address.
    Ip,
    /// A map from names to booleans, split at commas: `--runtime-config`.
    Config,
    /// A map that grows by one pair each time.
    Claims,
    /// Feature gates, split at commas, with or without the name of their component.
    Gates,
    /// A map from labels to values.
    Labels,
    /// A list that grows by `certificate,key[:names]` each time.
    CertificatesAndKeys,
    /// A range of ports.
    Ports,
    /// A log verbosity.
    Level,
    /// A list of `pattern=N`.
    Patterns,
    /// A quantity of bytes.
    Quantity,
    /// `--version`: a boolean, `raw` or a version.
    Version,
}

impl Kind {
    /// Returns the name of the type in the help; empty for booleans.
    pub fn type_name(self) -> &'static str {
        match self {
            Kind::Bool => "",
            Kind::Int => "int",
            Kind::Uint => "uint",
            Kind::Float32 => "float32",
            Kind::Float => "float",
            Kind::Duration => "duration",
            Kind::Text => "string",
            Kind::List => "strings",
            Kind::Array => "stringArray",
            Kind::Int32List => "int32Slice",
            Kind::Ip => "ip",
            Kind::Config | Kind::Claims => "mapStringString",
            Kind::Gates => "colonSeparatedMultimapStringString",
            Kind::Labels => "stringToString",
            Kind::CertificatesAndKeys => "namedCertKey",
            Kind::Ports => "portRange",
            Kind::Level => "Level",
            Kind::Patterns => "pattern=N,...",
            Kind::Quantity => "quantity",
            Kind::Version => "version[=true]",
        }
    }

    /// Returns the value of the bare flag, if it may be bare.
    pub fn bare_value(self) -> Option<&'static str> {
        matches!(self, Kind::Bool | Kind::Version).then_some("true")
    }
}

/// A group of flags, as the help shows them.
#[derive(Debug)]
pub struct Group {
    /// The title, without `flags:`.
    pub title: &'static str,
    /// The flags, in the order of their names.
    pub flags: &'static [Flag],
}

impl Flag {
    /// Returns a flag that does what it does in kube-apiserver.
    pub const fn new(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        help: &'static str,
    ) -> Flag {
        Flag {
            name,
            kind,
            default,
            serve_default: None,
            effect: Effect::Served,
            deprecated: None,
            is_hidden: false,
            help,
        }
    }

    /// Sets the default of `keelson serve`.
    pub const fn in_serve(mut self, default: &'static str) -> Flag {
        self.serve_default = Some(default);
        self
    }

    /// Returns the default of a command.
    pub fn default_in(&self, face: Face) -> &'static str {
        match (face, self.serve_default) {
            (Face::Serve, Some(default)) => default,
            _ => self.default,
        }
    }

    /// Marks a flag as one that is accepted and does nothing.
    pub const fn accepted(mut self, why: &'static str) -> Flag {
        self.effect = Effect::Accepted(why);
        self
    }

    /// Marks a flag as one whose feature is missing.
    pub const fn refused(mut self, what: &'static str) -> Flag {
        self.effect = Effect::Refused(what);
        self
    }

    /// Marks a flag as deprecated, with what its user is told.
    pub const fn deprecated(mut self, advice: &'static str) -> Flag {
        self.deprecated = Some(advice);
        self
    }

    /// Leaves a flag out of the help.
    pub const fn hidden(mut self) -> Flag {
        self.is_hidden = true;
        self
    }

    /// Returns the letter of a flag that has one.
    pub fn letter(&self) -> Option<char> {
        match self.name {
            "v" => Some('v'),
            "help" => Some('h'),
            _ => None,
        }
    }
}
