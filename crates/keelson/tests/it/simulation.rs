//! `--simulate`: a cluster in the server.

mod clock;
