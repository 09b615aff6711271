//! The control messages that a link receives.

use std::time::Instant;

use super::{
    goodbyes::Goodbyes,
    handshake::kind,
    hello::sentence,
    task::{End, Link},
    wire::{Message, Reason},
};
use crate::{
    cluster::{
        event::Event,
        message::{CheckpointReport, MOST_CHANGES, MOST_ROUNDS, Reports, StartMessage},
        statements::MOST_IN_MESSAGE,
    },
    drive::Change,
    gossip::Cause,
    status::Passed,
    units::NodeId,
};

/// The maximum number of start messages per connection, besides one in five seconds.
const MOST_START_MESSAGES: u32 = 10_000;

impl Link {
    /// Whether nodes of this run can report these checkpoints.
    fn is_possible(&self, reports: &Reports) -> bool {
        let Reports { nodes, histories } = reports;
        let one = |report: &CheckpointReport| {
            report.node.index() < self.nodes && report.kept.len() <= MOST_ROUNDS
        };
        nodes.len() <= self.nodes
            && nodes.iter().all(one)
            && histories.len() <= nodes.len()
            && histories.iter().all(|history| self.is_history(history))
    }

    /// Whether a run can have this history.
    fn is_history(&self, history: &[Change]) -> bool {
        let exists = |node: &NodeId| node.index() < self.card.nodes();
        history.len() <= MOST_CHANGES
            && history.iter().all(|change| {
                let ends = change.cut.iter().flat_map(|(a, b)| [a, b]);
                change.members.is_sorted_by(|a, b| a < b)
                    && change.members.iter().chain(&change.models).chain(ends).all(exists)
            })
    }

    /// Handles a control message; returns how the link ends if it ends by it.
    pub(crate) fn receive(&self, message: Message, goodbyes: &mut Goodbyes) -> Option<End> {
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
            Message::Start(message) => return self.receive_start(message, goodbyes).err(),
            Message::Statements(statements) if statements.len() > MOST_IN_MESSAGE => {
                let length = statements.len();
                return Some(End::Invalid(format!(
                    "it sent {length} statements in one message: at most {MOST_IN_MESSAGE} are \
                     accepted"
                )));
            }
            Message::Statements(statements) => {
                let _ = self.events.send(Event::Told { from: self.node, statements });
            }
            Message::Status(records) => self.hear(records, goodbyes),
            Message::Rival(text) => {
                if !std::mem::replace(&mut goodbyes.told, true) {
                    tracing::warn!("node {} says: {}", self.name, sentence(&text));
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
            Message::Start(_) => !self.status.has_started(),
            message => {
                let is_sign = matches!(
                    message,
                    Message::Heartbeat
                        | Message::Statements(_)
                        | Message::Rival(_)
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

    /// Passes a start message to the core, unless it is late.
    fn receive_start(&self, message: StartMessage, goodbyes: &mut Goodbyes) -> Result<(), End> {
        let opens = matches!(
            message,
            StartMessage::Ready(_) | StartMessage::Waiting(_) | StartMessage::Begin(_)
        );
        if opens && self.status.has_started() {
            return Ok(());
        }
        goodbyes.start_messages += 1;
        if goodbyes.start_messages > MOST_START_MESSAGES {
            return Err(End::Invalid(format!(
                "it sent more than {MOST_START_MESSAGES} messages about linking"
            )));
        }
        let message = self.checked(message)?;
        let _ = self.events.send(Event::Start { from: self.node, message });
        Ok(())
    }

    /// A start message that a node of this run can send.
    fn checked(&self, message: StartMessage) -> Result<StartMessage, End> {
        let wrong = match &message {
            StartMessage::Waiting(text) => return Ok(StartMessage::Waiting(sentence(text))),
            StartMessage::Ready(reports) | StartMessage::Begin(reports)
                if !self.is_possible(reports) =>
            {
                "it reports too many checkpoints of a node, nodes that do not exist, or a history \
                 that no run of these nodes can have"
            }
            StartMessage::Assembly(news)
                if !self.assembly.as_ref().is_some_and(|topology| news.is_valid(topology)) =>
            {
                "it sent what no node can know about the members"
            }
            _ => return Ok(message),
        };
        Err(End::Invalid(wrong.into()))
    }
}
