//! Files: their bytes as a stream, compressed or not, and files that survive a crash.

pub(super) mod disk;
pub(super) mod folder;
pub(super) mod inflate;
pub(super) mod input;
