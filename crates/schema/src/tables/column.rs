//! Columns of tables, and short ways to write them down.

/// One column of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Heading.
    pub name: &'static str,
    /// `string`, `integer`, `boolean` or `date`.
    pub kind: &'static str,
    /// `name` for the column of the object's name, else empty.
    pub format: &'static str,
    /// 0: always shown; 1: shown in wide output.
    pub priority: u8,
    /// What the column shows.
    pub description: Description,
}

/// What a column shows, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Description {
    /// In these words.
    Words(&'static str),
    /// As the documentation of this field says.
    Field {
        /// Full name, as OpenAPI names it.
        type_name: &'static str,
        /// JSON name.
        field: &'static str,
    },
}

impl Column {
    /// The same column, shown in wide output only.
    pub(super) const fn wide(mut self) -> Self {
        self.priority = 1;
        self
    }

    /// The same column, as one that holds a name.
    pub(super) const fn names(mut self) -> Self {
        self.format = "name";
        self
    }
}

pub(super) const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

/// The object's name.
pub(super) const NAME: Column = string("Name", field(OBJECT_META, "name")).names();

/// Time since the object was created.
pub(super) const AGE: Column = string("Age", field(OBJECT_META, "creationTimestamp"));

/// Names of the containers of a template.
pub(super) const CONTAINERS: Column =
    string("Containers", words("The containers of the template.")).wide();

/// Images of the containers of a template.
pub(super) const IMAGES: Column =
    string("Images", words("The images of the template's containers.")).wide();

pub(super) const fn words(words: &'static str) -> Description {
    Description::Words(words)
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
