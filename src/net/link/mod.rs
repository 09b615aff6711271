//! A link to one neighbour: its session, and over each connection a handshake and streams.
//!
//! `task` is the life of one end. Over each connection it agrees on the run (`handshake`, `hello`),
//! then carries frames and control messages (`connection`, `streams`, `messages`) until `goodbyes`.
//! `session` has what outlives a connection, `wire` the bytes.

pub(crate) mod connection;
pub(crate) mod goodbyes;
pub(crate) mod handshake;
pub(crate) mod hello;
#[cfg(test)]
pub(crate) mod liar;
pub(crate) mod limits;
pub(crate) mod messages;
pub(crate) mod outcome;
pub(crate) mod programs;
pub(crate) mod session;
pub(crate) mod streams;
pub(crate) mod task;
pub(crate) mod wire;
