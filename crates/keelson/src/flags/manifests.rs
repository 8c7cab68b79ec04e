//! Flags of the commands that read manifests: `lint` and `validate`.

use clap::{Args, ValueEnum, ValueHint};
use keelson_lint::Severity;

/// Output format of what was found in files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum FindingsFormat {
    /// A line for each, as compilers print them.
    #[default]
    Text,
    /// A JSON object.
    Json,
    /// YAML.
    Yaml,
    /// SARIF 2.1.0, which code scanners and editors read.
    Sarif,
    /// Annotations in the log of a GitHub workflow.
    Github,
}

/// The least severity that counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SeverityName {
    /// What a document says with MUST.
    Error,
    /// What a document says with SHOULD, too.
    Warning,
    /// Everything.
    Advice,
}

impl From<SeverityName> for Severity {
    fn from(name: SeverityName) -> Severity {
        match name {
            SeverityName::Error => Severity::Error,
            SeverityName::Warning => Severity::Warning,
            SeverityName::Advice => Severity::Advice,
        }
    }
}

/// The files to read.
#[derive(Debug, Args)]
pub struct InputFlags {
    /// Files in YAML (with any number of documents) or JSON, and folders with such files. `-` is
    /// standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath, required_unless_present = "rules")]
    pub files: Vec<String>,
    /// Read folders with all folders in them.
    #[arg(short = 'R', long)]
    pub recursive: bool,
}

/// Flags of `lint`.
#[derive(Debug, Args)]
pub struct LintFlags {
    /// The files.
    #[command(flatten)]
    pub input: InputFlags,
    /// Output format.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub output: FindingsFormat,
    /// Rule to leave out; may be repeated, or a list with commas.
    #[arg(long, value_name = "RULE", value_delimiter = ',')]
    pub disable: Vec<String>,
    /// Least severity that is reported, and that makes the exit code 1.
    #[arg(long, value_enum, value_name = "SEVERITY", default_value = "warning")]
    pub severity: SeverityName,
    /// Print all rules with their explanation, as a page of Markdown.
    #[arg(long, conflicts_with = "files")]
    pub rules: bool,
}

/// Flags of `validate`.
#[derive(Debug, Args)]
pub struct ValidateFlags {
    /// Files in YAML (with any number of documents) or JSON, and folders with such files. `-` is
    /// standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::AnyPath, required = true)]
    pub files: Vec<String>,
    /// Read folders with all folders in them.
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// File or folder with definitions of the kinds that the manifests use; may be repeated.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub crds: Vec<String>,
    /// File or folder with policies, their bindings and parameters, and namespaces; may be
    /// repeated.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub policies: Vec<String>,
    /// Namespace of manifests that name none [default: default].
    #[arg(short, long, value_name = "NAME")]
    pub namespace: Option<String>,
    /// Warnings of the server are errors.
    #[arg(long)]
    pub strict: bool,
    /// Print errors only.
    #[arg(short, long)]
    pub quiet: bool,
    /// Output format.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub output: FindingsFormat,
}
