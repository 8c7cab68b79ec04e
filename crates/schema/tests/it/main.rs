//! Tests of the schema crate against facts of a running server.

mod openapi;
