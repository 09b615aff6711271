//! A node for a training loop of the program: one call per round.
//!
//! ```text
//! the node's threads                     the program
//! core -> learner -- x, buffer -------> Exchange::model, Exchange::update
//!         learner <- buffer, loss ----- Exchange::round
//! ```
//! The model and the buffer of the update are lent, not copied, in both directions.

use std::sync::Arc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{EndError, Node, NodeResult};
use crate::{
    config::ConfigError,
    gossip::plan,
    learn::Ready,
    run::{Design, Gradients, OwnLearner},
    units::Round,
};

/// A gradient that the node requests. There is at most one at a time.
struct Request {
    x: Arc<Vec<f32>>,
    update: Vec<f32>,
}

/// The program's reply.
struct Reply {
    update: Vec<f32>,
    step: Step,
    /// Whether the program asks that all nodes end.
    ends: bool,
}

/// The node's ends of the two channels.
pub(super) struct NodeEnds {
    requests: UnboundedSender<Request>,
    replies: UnboundedReceiver<Result<Reply, String>>,
}

pub(super) struct ProgramEnds {
    requests: UnboundedReceiver<Request>,
    replies: UnboundedSender<Result<Reply, String>>,
}

pub(super) fn ends() -> (NodeEnds, ProgramEnds) {
    let (request, requests) = unbounded_channel();
    let (reply, replies) = unbounded_channel();
    (NodeEnds { requests: request, replies }, ProgramEnds { requests, replies: reply })
}

/// The report of a program's local training in a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// The mean loss over the batches, for progress and metrics.
    pub loss: f64,
    /// The sum of the step sizes in the update. Rules that keep gradients (gradient tracking, BEER,
    /// DGC, sign-SGD and others) divide the update by it, so it must be the value that the
    /// optimizer used; if the optimizer has no such value, 1 treats the update itself as the
    /// gradient. Under `sign-sgd` and `double-squeeze` every node moves the common model by its own
    /// step size, so it must be the same on all nodes in each round.
    pub size: f32,
}

/// A node that takes its updates from a training loop.
///
/// ```no_run
/// use gradvine::{learn::Tensor, node::{Node, Step}};
///
/// let mut node = Node::builder("node.toml")?
///     .initial(vec![0.5; 10])
///     .connect_blocking(vec![Tensor::new("weights", &[10])], 100)?;
/// while node.is_open() {
///     // Local training from `x` on; here one step of 0.1 for f(x) = |x|^2 / 2.
///     let (x, update) = node.parts();
///     update.iter_mut().zip(x).for_each(|(u, x)| *u = 0.1 * x);
///     let loss = x.iter().map(|x| f64::from(x * x)).sum::<f64>() / 2.0;
///     node.round_blocking(Step { loss, size: 0.1 })?;
/// }
/// let result = node.finish_blocking()?;
/// # Ok::<(), gradvine::node::EndError>(())
/// ```
#[derive(Debug)]
pub struct Exchange {
    node: Option<Node>,
    program: ProgramEnds,
    /// `None` while the node mixes, and once the rounds are over.
    lent: Option<Request>,
    /// Whether an update was passed on whose mixed model has not been received.
    waiting: bool,
    /// The size of the last step.
    size: f32,
    rounds: u64,
    ends: bool,
    result: Option<NodeResult>,
}

impl std::fmt::Debug for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request({} numbers)", self.x.len())
    }
}

impl std::fmt::Debug for ProgramEnds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProgramEnds")
    }
}

impl Exchange {
    pub(super) async fn begin(node: Node, program: ProgramEnds) -> Result<Exchange, EndError> {
        let mut exchange = Exchange {
            node: Some(node),
            program,
            lent: None,
            waiting: true,
            size: 0.0,
            rounds: 0,
            ends: false,
            result: None,
        };
        exchange.receive().await?;
        Ok(exchange)
    }

    /// Whether the node takes one more update. If not, call [`Exchange::finish`].
    pub fn is_open(&self) -> bool {
        self.lent.is_some() || self.waiting
    }

    /// Rounds done.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The model that local training starts from, and the buffer for its change: d numbers each,
    /// empty once the rounds are over. The change is what training has subtracted, x before less x
    /// after (the outer gradient of DiLoCo; for one step of SGD, the step times the gradient). The
    /// buffer's initial contents are arbitrary.
    pub fn parts(&mut self) -> (&[f32], &mut [f32]) {
        match &mut self.lent {
            Some(Request { x, update }) => (x, update),
            None => (&[], &mut []),
        }
    }

    /// The model that local training starts from; empty once the rounds are over.
    pub fn model(&self) -> &[f32] {
        self.lent.as_ref().map_or(&[], |lent| &lent.x)
    }

    /// One round: passes on the written update, and waits for the mixed model. Returns whether
    /// there is a next round. If the future is dropped before it is ready, the round goes on: the
    /// next call passes on nothing and waits for the same mixed model; until then there is no model
    /// to read.
    ///
    /// # Errors
    /// If `step.size` is negative or not finite; then nothing is passed on. Otherwise why the run
    /// ended: every later call returns that it is over.
    pub async fn round(&mut self, step: Step) -> Result<bool, EndError> {
        if self.waiting {
            self.receive().await?;
            return Ok(self.is_open());
        }
        if !(step.size >= 0.0 && step.size.is_finite()) {
            let problem = "expected a finite number that is not negative";
            return Err(EndError::Setup(ConfigError::new("Step::size", step.size, problem)));
        }
        let Some(Request { x, update }) = self.lent.take() else {
            return Err(EndError::Failed("the rounds of this run are over".into()));
        };
        // The node takes its model back without a copy only if it is the only owner.
        drop(x);
        let reply = Reply { update, step, ends: self.ends };
        // A node that has ended does not receive it: its own error follows.
        let _ = self.program.replies.send(Ok(reply));
        (self.waiting, self.size) = (true, step.size);
        self.rounds += 1;
        self.receive().await?;
        Ok(self.is_open())
    }

    /// The same, blocking this thread.
    ///
    /// # Errors
    /// As [`Exchange::round`].
    pub fn round_blocking(&mut self, step: Step) -> Result<bool, EndError> {
        futures::executor::block_on(self.round(step))
    }

    /// Ends the rounds of all nodes: after the same round on each, as many rounds from now as it
    /// takes to inform the farthest node (under an asynchronous rule each node ends soon, and not
    /// all after the same round). In these this node's updates are 0, with the last step size.
    /// Waits for the end of the run, and for the mean of all models.
    ///
    /// # Errors
    /// Why the run did not end as it should.
    pub async fn finish(mut self) -> Result<NodeResult, EndError> {
        self.ends = true;
        while self.is_open() {
            self.parts().1.fill(0.0);
            self.round(Step { loss: f64::NAN, size: self.size }).await?;
        }
        self.result.take().ok_or_else(|| EndError::Failed("the run has ended before".into()))
    }

    /// The same, blocking this thread.
    ///
    /// # Errors
    /// As [`Exchange::finish`].
    pub fn finish_blocking(self) -> Result<NodeResult, EndError> {
        futures::executor::block_on(self.finish())
    }

    /// Ends the run because local training cannot go on; all nodes get the reason. Returns the
    /// error of the run.
    pub async fn fail(mut self, reason: impl Into<String>) -> EndError {
        self.lent = None;
        let _ = self.program.replies.send(Err(reason.into()));
        match self.node.take() {
            Some(node) => match node.join().await {
                Err(error) => error,
                Ok(_) => EndError::Failed("the run had ended before".into()),
            },
            None => EndError::Failed("the run is over".into()),
        }
    }

    /// Waits for the next request, or for the end of the rounds.
    async fn receive(&mut self) -> Result<(), EndError> {
        self.lent = self.program.requests.recv().await;
        self.waiting = false;
        if self.lent.is_some() {
            return Ok(());
        }
        // The node has dropped its learner: the run is over.
        let Some(node) = self.node.take() else { return Ok(()) };
        self.result = Some(node.join().await?);
        Ok(())
    }
}

/// The learner of an exchange.
pub(super) fn learner(
    design: &Design,
    ends: NodeEnds,
    rows: u64,
) -> Result<OwnLearner, ConfigError> {
    let gradients = design.rule.plan.steps().iter().filter(|step| **step == plan::Step::Gradient);
    let count = gradients.count();
    if count != 1 {
        let problem = format!(
            "a round of it has {count} gradients: a training loop can give only one a round"
        );
        return Err(ConfigError::new("rule.kind", format!("\"{}\"", design.rule_name()), problem));
    }
    OwnLearner::of_gradients(
        design,
        Box::new(RequestingLearner { ends, rows, size: 1.0, ended: false }),
    )
}

/// Requests updates from the program.
struct RequestingLearner {
    ends: NodeEnds,
    rows: u64,
    size: f32,
    ended: bool,
}

impl Gradients for RequestingLearner {
    fn rows(&self) -> u64 {
        self.rows
    }

    fn waits(&self) -> bool {
        true
    }

    fn compute_lent(
        &mut self,
        _round: Round,
        x: &Arc<Vec<f32>>,
        update: Vec<f32>,
        ready: &mut Ready<'_>,
    ) -> Result<(Vec<f32>, f64), String> {
        let gone = || "its training loop has ended".to_string();
        let request = Request { x: Arc::clone(x), update };
        self.ends.requests.send(request).map_err(|_| gone())?;
        let reply = futures::executor::block_on(self.ends.replies.recv()).ok_or_else(gone)??;
        let Reply { mut update, step, ends } = reply;
        self.ended = ends;
        self.size = step.size;
        ready(0..update.len(), &mut update);
        Ok((update, step.loss))
    }

    fn step(&self, _round: Round) -> f32 {
        self.size
    }

    fn ends(&self) -> bool {
        self.ended
    }

    fn loss(&mut self, _x: &[f32]) -> f64 {
        f64::NAN
    }
}
