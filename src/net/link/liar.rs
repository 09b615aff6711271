//! For tests: real nodes whose control messages are changed on their way out. What they compute and
//! sign stays as it is.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use libp2p::PeerId;

use super::wire::Message;

/// What a node sends in place of a message.
type Lie = Box<dyn FnMut(Message) -> Vec<Message> + Send>;

/// The nodes of this process that lie.
static LIARS: Mutex<BTreeMap<PeerId, Lie>> = Mutex::new(BTreeMap::new());

/// From now on this node lies.
pub(crate) fn lies(node: PeerId, lie: impl FnMut(Message) -> Vec<Message> + Send + 'static) {
    LIARS.lock().unwrap_or_else(PoisonError::into_inner).insert(node, Box::new(lie));
}

/// The messages that a node sends in place of this one.
pub(super) fn changed(node: &PeerId, message: Message) -> Vec<Message> {
    let mut liars = LIARS.lock().unwrap_or_else(PoisonError::into_inner);
    match liars.get_mut(node) {
        Some(lie) => lie(message),
        None => vec![message],
    }
}
