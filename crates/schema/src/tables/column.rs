//! Table columns, and constructors for them.

/// One column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    /// `name` for the column with the object's name, otherwise empty.
    pub format: &'static str,
    /// 0: always shown; 1: only in wide output.
    pub priority: u8,
    /// The description.
    pub description: Description,
}

/// The description of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Description {
    /// A literal text.
    Literal(&'static str),
    /// The description of a field.
    Field {
        /// Full name of the type, as in OpenAPI.
        type_name: &'static str,
        /// JSON name of the field.
        field: &'static str,
    },
}

impl Column {
    /// Returns the column for wide output only.
    pub(super) const fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    /// Returns the column with format `name`.
    pub(super) const fn as_name(mut self) -> Self {
        self.format = "name";
        self
    }
}

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The name of the object.
pub(super) const NAME: Column = string("Name", field(OBJECT_META, "name")).as_name();

/// The time since the object was created.
pub(super) const AGE: Column = string("Age", field(OBJECT_META, "creationTimestamp"));

/// The names of the containers of a template.
pub(super) const CONTAINERS: Column =
    string("Containers", literal("The containers of the template.")).wide();

/// The images of the containers of a template.
pub(super) const IMAGES: Column =
    string("Images", literal("The images of the template's containers.")).wide();

pub(super) const fn literal(text: &'static str) -> Description {
    Description::Literal(text)
}

pub(super) const fn field(type_name: &'static str, field: &'static str) -> Description {
    Description::Field { type_name, field }
}

const fn column(name: &'static str, kind: &'static str, description: Description) -> Column {
    Column { name, kind, format: "", priority: 0, description }
}

pub(super) const fn string(name: &'static str, description: Description) -> Column {
    column(name, "string", description)
}

pub(super) const fn integer(name: &'static str, description: Description) -> Column {
    column(name, "integer", description)
}

pub(super) const fn boolean(name: &'static str, description: Description) -> Column {
    column(name, "boolean", description)
}

pub(super) const fn date(name: &'static str, description: Description) -> Column {
    column(name, "date", description)
}
