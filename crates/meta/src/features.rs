//! Feature gates of Kubernetes 1.36, set by `--feature-gates`.
//!
//! [`Feature`] has every gate of kube-apiserver 1.36, with its stage and default (`table`);
//! [`Features`] is the set of enabled ones, which is small and passed by value.

mod table;

pub use table::Feature;
use table::{DEPENDENCIES, ROWS};

/// The stage of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Alpha: disabled by default; `AllAlpha` sets it.
    Alpha,
    /// Beta; `AllBeta` sets it.
    Beta,
    /// Generally available.
    Ga,
    /// Deprecated.
    Deprecated,
}

/// A row of the table.
struct Row {
    feature: Feature,
    name: &'static str,
    stage: Stage,
    default_on: bool,
    /// The default cannot be changed.
    locked: bool,
}

/// The enabled features.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Features {
    bits: [u64; 4],
}

/// An invalid `--feature-gates`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureGateError {
    /// Not of the form `NAME=BOOL`.
    NoValue {
        /// The word.
        word: String,
    },
    /// The value is neither true nor false.
    Value {
        /// The name of the gate.
        name: String,
        /// The value.
        value: String,
    },
    /// For another component than kube.
    Component {
        /// The name of the component.
        name: String,
    },
    /// An unknown gate.
    Unknown {
        /// The name.
        name: String,
    },
    /// The gate is locked to its default.
    Locked {
        /// The name of the gate.
        name: &'static str,
        /// Its value.
        is_on: bool,
    },
    /// Enabled features require disabled ones.
    Dependencies {
        /// Each feature with the features that it requires.
        lacking: Vec<(&'static str, Vec<&'static str>)>,
    },
}

impl std::fmt::Display for FeatureGateError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            FeatureGateError::NoValue { word } => write!(f, "missing bool value for {word}"),
            FeatureGateError::Value { name, value } => write!(
                f,
                "invalid value of {name}={value}, err: strconv.ParseBool: parsing {value:?}: \
                 invalid syntax"
            ),
            FeatureGateError::Component { name } => write!(f, "component not registered: {name}"),
            FeatureGateError::Unknown { name } => write!(f, "unrecognized feature gate: {name}"),
            FeatureGateError::Locked { name, is_on } => {
                let wanted = !is_on;
                write!(
                    f,
                    "cannot set feature gate {name} to {wanted}, feature is locked to {is_on}"
                )
            }
            FeatureGateError::Dependencies { lacking } => {
                let one = |(name, lacks): &(&str, Vec<&str>)| {
                    let lacks = lacks.join(", ");
                    format!(
                        "{name} is enabled, but depends on features that are disabled: [{lacks}]"
                    )
                };
                let all: Vec<String> = lacking.iter().map(one).collect();
                if let [only] = all.as_slice() {
                    return f.write_str(only);
                }
                write!(f, "[{}]", all.join(", "))
            }
        }
    }
}

impl std::error::Error for FeatureGateError {}

impl Default for Features {
    /// Returns the defaults of Kubernetes 1.36.
    fn default() -> Features {
        Features::DEFAULT
    }
}

impl std::fmt::Debug for Features {
    /// Prints only gates that are not at their default.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let changed = ROWS.iter().filter(|row| self.is_on(row.feature) != row.default_on);
        f.debug_map().entries(changed.map(|row| (row.name, !row.default_on))).finish()
    }
}

impl Features {
    /// Returns the defaults of Kubernetes 1.36.
    pub const DEFAULT: Features = {
        let mut out = Features { bits: [0; 4] };
        let mut at = 0;
        while at < ROWS.len() {
            if ROWS[at].default_on {
                out = out.with(ROWS[at].feature, true);
            }
            at += 1;
        }
        out
    };

    /// Returns all features, even those that exclude each other.
    pub const ALL: Features = Features { bits: [u64::MAX; 4] };

    /// Returns whether a feature is enabled.
    #[inline]
    #[must_use]
    pub const fn is_on(self, feature: Feature) -> bool {
        let number = feature as usize;
        self.bits[number / 64] >> (number % 64) & 1 == 1
    }

    /// Returns the set with one feature changed.
    #[must_use]
    pub const fn with(mut self, feature: Feature, is_on: bool) -> Features {
        let number = feature as usize;
        let bit = 1 << (number % 64);
        if is_on {
            self.bits[number / 64] |= bit;
        } else {
            self.bits[number / 64] &= !bit;
        }
        self
    }

    /// Parses `--feature-gates`: `NAME=BOOL` or `kube:NAME=BOOL`. The last value of a gate counts.
    /// A gate's own value takes precedence over `AllAlpha` and `AllBeta`, in any order.
    pub fn parse<'a>(
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<Features, FeatureGateError> {
        let mut stages = vec![];
        let mut named: Vec<(&Row, bool)> = vec![];
        for word in words.into_iter().map(str::trim).filter(|word| !word.is_empty()) {
            let (name, is_on) = name_and_value(word)?;
            let row = match name {
                "AllAlpha" => {
                    stages.push((Stage::Alpha, is_on));
                    continue;
                }
                "AllBeta" => {
                    stages.push((Stage::Beta, is_on));
                    continue;
                }
                name => ROWS.iter().find(|row| row.name == name),
            };
            let row = row.ok_or_else(|| FeatureGateError::Unknown { name: name.to_owned() })?;
            if row.locked && is_on != row.default_on {
                return Err(FeatureGateError::Locked { name: row.name, is_on: row.default_on });
            }
            named.push((row, is_on));
        }
        let mut out = Features::default();
        for (stage, is_on) in stages {
            for row in ROWS.iter().filter(|row| row.stage == stage && !row.locked) {
                out = out.with(row.feature, is_on);
            }
        }
        for (row, is_on) in named {
            out = out.with(row.feature, is_on);
        }
        out.checked()
    }

    /// Rejects features whose requirements are disabled.
    fn checked(self) -> Result<Features, FeatureGateError> {
        let mut lacking = vec![];
        for (feature, needs) in DEPENDENCIES {
            let off: Vec<&str> =
                needs.iter().filter(|need| !self.is_on(**need)).map(|need| need.name()).collect();
            if self.is_on(*feature) && !off.is_empty() {
                lacking.push((feature.name(), off));
            }
        }
        if lacking.is_empty() {
            return Ok(self);
        }
        Err(FeatureGateError::Dependencies { lacking })
    }
}

impl Feature {
    /// Returns the name in `--feature-gates`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        ROWS[self as usize].name
    }

    /// Returns the stage.
    #[must_use]
    pub const fn stage(self) -> Stage {
        ROWS[self as usize].stage
    }

    /// Returns all features, sorted by name.
    pub fn all() -> impl Iterator<Item = Feature> {
        ROWS.iter().map(|row| row.feature)
    }

    /// Returns the feature with this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Feature> {
        ROWS.iter().find(|row| row.name == name).map(|row| row.feature)
    }
}

/// Parses `NAME=BOOL`; booleans are those of Go's `strconv.ParseBool`.
fn name_and_value(word: &str) -> Result<(&str, bool), FeatureGateError> {
    let (name, value) =
        word.split_once('=').ok_or_else(|| FeatureGateError::NoValue { word: word.to_owned() })?;
    let name = name.trim();
    let value = value.trim();
    let name = match name.split_once(':') {
        Some(("kube", name)) => name,
        Some((other, _)) => {
            return Err(FeatureGateError::Component { name: other.to_owned() });
        }
        None => name,
    };
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok((name, true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok((name, false)),
        _ => Err(FeatureGateError::Value { name: name.to_owned(), value: value.to_owned() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(words: &str, feature: Feature, want: Result<bool, &str>) {
        let got = Features::parse(words.split(',')).map(|features| features.is_on(feature));
        assert_eq!(got.map_err(|why| why.to_string()), want.map_err(str::to_owned), "{words}");
    }

    #[test]
    fn gates_are_parsed_as_by_kube_apiserver() {
        use Feature::{APIServerIdentity, EnvFiles, GangScheduling, WatchList};
        check("", WatchList, Ok(true));
        check("WatchList=false", WatchList, Ok(false));
        check("WatchList=true,WatchList=F", WatchList, Ok(false));
        check("kube:WatchList=0", WatchList, Ok(false));
        check("AllAlpha=true", GangScheduling, Ok(true));
        check("AllAlpha=true", WatchList, Ok(true));
        check("EnvFiles=true,AllBeta=false", EnvFiles, Ok(true));
        check("AllBeta=false", EnvFiles, Ok(false));
        check("AllAlpha=true,AllBeta=true,EnvFiles=false", EnvFiles, Ok(false));
        check("NoSuch=true", WatchList, Err("unrecognized feature gate: NoSuch"));
        check("WatchList", WatchList, Err("missing bool value for WatchList"));
        check("wardle:a=true", WatchList, Err("component not registered: wardle"));
        check(
            "WatchList=yes",
            WatchList,
            Err("invalid value of WatchList=yes, err: strconv.ParseBool: parsing \"yes\": \
                 invalid syntax"),
        );
        check(
            "SidecarContainers=false",
            WatchList,
            Err("cannot set feature gate SidecarContainers to false, feature is locked to true"),
        );
        check(
            "GangScheduling=true",
            WatchList,
            Err("GangScheduling is enabled, but depends on features that are disabled: \
                 [GenericWorkload]"),
        );
        check(
            "GangScheduling=true,APIServerIdentity=false",
            APIServerIdentity,
            Err("[GangScheduling is enabled, but depends on features that are disabled: \
                 [GenericWorkload], UnknownVersionInteroperabilityProxy is enabled, but depends \
                 on features that are disabled: [APIServerIdentity]]"),
        );
    }

    #[test]
    fn a_feature_is_found_by_its_name_and_number() {
        for (number, row) in ROWS.iter().enumerate() {
            assert_eq!(row.feature as usize, number, "{}", row.name);
            assert_eq!(Feature::by_name(row.name), Some(row.feature));
        }
        assert!(ROWS.is_sorted_by_key(|row| row.name));
        assert_eq!(format!("{:?}", Features::default()), "{}");
        let changed = Features::default().with(Feature::WatchList, false);
        assert_eq!(format!("{changed:?}"), "{\"WatchList\": false}");
    }
}
