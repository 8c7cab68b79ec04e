//! [`Path`]: the path of a field in error messages: `spec.containers[0].env[key]`.

use std::fmt;

/// A step and its parent, on the stack: a path costs an allocation only when it is printed.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'a> {
    Root,
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> Path<'a> {
    /// The object itself; prints as nothing.
    pub const ROOT: Path<'static> = Path { parent: None, step: Step::Root };

    /// Returns the path of a top-level member.
    pub const fn new(field: &'a str) -> Self {
        Path { parent: None, step: Step::Field(field) }
    }

    /// Returns whether this is [`Path::ROOT`].
    pub fn is_root(&self) -> bool {
        matches!(self.step, Step::Root)
    }

    /// Returns the path of the member `field`.
    pub fn field(&'a self, field: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Field(field) }
    }

    /// Returns the path of the item at `index`.
    pub fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    /// Returns the path of the map entry `key`.
    pub fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Iterative, because a path may be as deep as the deepest body.
        let mut steps = vec![];
        let mut at = Some(self);
        while let Some(path) = at {
            steps.push(path.step);
            at = path.parent;
        }
        let mut first = true;
        for step in steps.into_iter().rev() {
            match step {
                Step::Root => continue,
                Step::Field(name) if first => f.write_str(name)?,
                Step::Field(name) => write!(f, ".{name}")?,
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Key(key) => write!(f, "[{key}]")?,
            }
            first = false;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_fields_indexes_and_keys() {
        let spec = Path::new("spec");
        let list = spec.field("containers");
        let item = list.index(2);
        let limits = item.field("limits");
        assert_eq!(limits.key("cpu").to_string(), "spec.containers[2].limits[cpu]");
        assert_eq!(Path::ROOT.field("metadata").to_string(), "metadata");
    }
}
