//! Streams to nodes: the protocols of exec, attach and port-forward as state machines.
//!
//! Nothing here does IO or reads a clock: bytes go in, events and bytes come out, and deadlines are
//! arguments. All that comes from a peer is hostile input with a named maximum.
//!
//! | module | contents |
//! |---|---|
//! | [`spdy`] | SPDY/3.1: frames, compressed headers, a session with its streams, in both roles |
//! | [`channels`] | several channels in the messages of one WebSocket: `channel.k8s.io`, `v4.`, `v5.` |
//! | [`outcome`] | how a command ended, as the error channel says it in each version |
//! | [`resize`] | sizes of terminals |
//! | [`translate`] | a WebSocket client that speaks v5 towards a node that speaks SPDY |
//! | [`portforward`] | forwarded ports: pairs of streams, pairs of channels, the tunnel |
//! | [`handshake`] | the choice of a protocol when a connection is upgraded |

pub mod channels;
pub mod handshake;
pub mod outcome;
pub mod portforward;
pub mod resize;
pub mod spdy;
pub mod translate;
