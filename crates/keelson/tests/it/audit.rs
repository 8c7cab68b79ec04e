//! Audit events of a server: compared with those of kube-apiserver, reloads, webhooks, and what a
//! failing log does to requests.

mod backends;
mod recorded;
mod requests;
