//! Texts that describe types and members.

/// The texts of all built-in types.
pub(super) struct Descriptions;

impl Descriptions {
    /// Unpacks the texts.
    pub fn read() -> Descriptions {
        Descriptions
    }

    /// What a type is.
    pub fn of_type(&self, _type_name: &str) -> Option<&str> {
        None
    }

    /// What a member is.
    pub fn of_member(&self, _type_name: &str, _member: &str) -> Option<&str> {
        None
    }
}
