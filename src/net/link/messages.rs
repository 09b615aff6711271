//! The control messages that a link receives.

use std::time::Instant;

use super::{
    connection::Open,
    goodbyes::Goodbyes,
    handshake::kind,
    hello::sentence,
    task::{End, Link},
    wire::{Message, Reason},
};
use crate::{
    cluster::{event::Event, members::assembly::News, statements::MOST_IN_MESSAGE},
    gossip::Cause,
    status::Passed,
    units::NodeId,
};

/// The maximum number of messages about the members per connection, besides one in five seconds.
const MOST_NEWS: u32 = 10_000;

impl Link {
    /// Handles a control message; returns how the link ends if it ends by it.
    pub(super) fn receive(&self, message: Message, open: &mut Open) -> Option<End> {
        let goodbyes = &mut open.goodbyes;
        if !self.has_content(&message, goodbyes)
            && let Err(reason) = goodbyes.budget.take(Instant::now())
        {
            return Some(End::Invalid(reason));
        }
        match message {
            Message::Heartbeat => {}
            Message::Ack(received) => return self.acknowledge(received).err(),
            // The neighbour has nothing to finish yet: a run that begins would await it in vain.
            Message::Goodbye(None) if goodbyes.reason.is_none() && !self.status.has_started() => {
                return Some(End::broken("it said goodbye before the run began"));
            }
            Message::Goodbye(None) => {
                if !std::mem::replace(&mut goodbyes.received, true) {
                    let _ = self.events.send(Event::Goodbye(self.node));
                }
            }
            Message::Goodbye(Some(reason)) => return Some(self.left(&reason)),
            Message::Chooses(news) => return self.receive_news(news, goodbyes).err(),
            Message::Statements(batch) if batch.statements.len() > MOST_IN_MESSAGE => {
                let length = batch.statements.len();
                return Some(End::Invalid(format!(
                    "it sent {length} statements in one message: at most {MOST_IN_MESSAGE} are \
                     accepted"
                )));
            }
            Message::Statements(batch) => {
                let _ = self.events.send(Event::Told { from: self.node, batch });
            }
            Message::Status(records) => self.hear(records, goodbyes),
            Message::Rival(rival) => {
                if !std::mem::replace(&mut goodbyes.told, true) {
                    tracing::warn!("node {} says: {}", self.name, sentence(&rival.text));
                }
                open.answer = self.runs(&rival);
            }
            Message::Runs(runs) => {
                if !self.take_proof(open.program, runs) {
                    return Some(End::Invalid("it has not signed that it runs".into()));
                }
            }
            other @ (Message::Hello(_) | Message::Text(..) | Message::Probe) => {
                return Some(End::Invalid(format!(
                    "it sent {} in the middle of a run",
                    kind(&other)
                )));
            }
        }
        None
    }

    /// Takes what nodes say about themselves. Nothing more is heard from a neighbour that has
    /// passed on what no node has said.
    fn hear(&self, records: Vec<Passed>, goodbyes: &mut Goodbyes) {
        if goodbyes.forges {
            return;
        }
        if let Err(forged) = self.status.board().hear(Instant::now(), records) {
            goodbyes.forges = true;
            tracing::warn!(
                "node {} passes on a record of node number {} that is refused: {}; its records \
                 are ignored on this connection",
                self.name,
                forged.node,
                forged.problem
            );
        }
    }

    /// Whether a message says something new at this point of the run. Of others a neighbour may
    /// send a few.
    fn has_content(&self, message: &Message, goodbyes: &Goodbyes) -> bool {
        match message {
            Message::Ack(received) => *received >= self.outbox.lock().first(),
            Message::Chooses(_) => !self.status.has_started(),
            message => {
                let is_sign = matches!(
                    message,
                    Message::Heartbeat
                        | Message::Statements(_)
                        | Message::Rival(_)
                        | Message::Runs(_)
                        | Message::Status(_)
                );
                !is_sign && !goodbyes.received
            }
        }
    }

    /// Frees the frames that the neighbour has received.
    fn acknowledge(&self, received: u64) -> Result<(), End> {
        let mut outbox = self.outbox.lock();
        outbox.acknowledge(received).map_err(End::Invalid)?;
        for _ in 0..outbox.newly_free() {
            let _ = self.events.send(Event::Taken(self.node));
        }
        Ok(())
    }

    /// How the link ends when the neighbour leaves early.
    fn left(&self, Reason { node, text, leaves }: &Reason) -> End {
        if *node as usize >= self.nodes {
            return End::Invalid(format!(
                "it left the run because of a node {node} that does not exist"
            ));
        }
        End::Left(Cause { node: NodeId(*node), text: sentence(text), leaves: *leaves })
    }

    /// Passes what a neighbour knows about the members to the core.
    fn receive_news(&self, news: News, goodbyes: &mut Goodbyes) -> Result<(), End> {
        goodbyes.news += 1;
        if goodbyes.news > MOST_NEWS {
            let text = format!("it sent more than {MOST_NEWS} messages about the members");
            return Err(End::Invalid(text));
        }
        if !self.assembly.as_ref().is_some_and(|topology| news.is_valid(topology)) {
            return Err(End::Invalid("it sent what no node can know about the members".into()));
        }
        let _ = self.events.send(Event::Chooses { from: self.node, news });
        Ok(())
    }
}
