//! A node for a training loop of the program: one call per round.
//!
//! ```text
//! the node's threads                     the program
//! core -> learner -- x, buffer -------> Exchange::model, Exchange::update
//!         learner <- buffer, loss ----- Exchange::round
//! ```
//! The model and the buffer of the update are lent, not copied, in both directions.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    sync::Arc,
};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{EndError, Event, Measures, Node, NodeResult, handle::Linked};
use crate::{
    config::ConfigError,
    drive::{Computed, Wanted},
    gossip::plan,
    learn::Ready,
    run::{Design, Gradients, OwnLearner},
    state::Visitor,
    units::{NodeId, Round},
};

/// What the node requests. There is at most one request at a time.
enum Request {
    /// The update of a round.
    Update(Lent),
    /// Measures of a model after the rounds.
    Measures(Vec<f32>),
}

/// The model and the buffer of the update.
struct Lent {
    /// The rounds done so far.
    rounds: u64,
    x: Arc<Vec<f32>>,
    update: Vec<f32>,
}

enum Reply {
    Update {
        update: Vec<f32>,
        step: Step,
        /// Whether the program asks that all nodes end.
        ends: bool,
    },
    Measures(Option<Measures>),
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
///
/// Two nodes in one process, each with a loop on a thread of its own:
///
/// ```
/// use gradvine::{experiment::Transport, mixing::NodeInfo, net::free_ports, prelude::*};
///
/// # /// Keys, addresses and a topology of two nodes on loopback.
/// # fn network() -> Result<(Vec<Keypair>, Vec<String>, Topology), Box<dyn std::error::Error>> {
/// #     let keys = [Keypair::generate_ed25519(), Keypair::generate_ed25519()];
/// #     let ports = free_ports(Transport::Tcp, 2)?;
/// #     let addresses: Vec<_> = ports.iter().map(|p| format!("/ip4/127.0.0.1/tcp/{p}")).collect();
/// #     let nodes = keys.iter().zip(&addresses).enumerate().map(|(i, (key, address))| NodeInfo {
/// #         peer: Some(key.public().to_peer_id().to_string()),
/// #         addresses: vec![address.clone()],
/// #         ..NodeInfo::named(format!("site-{i}"))
/// #     });
/// #     let topology = Topology::parse("path:2", 1)?.with_nodes(nodes.collect())?;
/// #     Ok((keys.into(), addresses, topology))
/// # }
/// let (keys, addresses, topology) = network()?;
/// let experiment = Experiment::parse("run.rounds = 30\nrule.kind = 'd-psgd'", &[])?;
/// let train = |(i, (key, address))| -> Result<NodeResult, EndError> {
///     let mut node = NodeBuilder::new(key, topology.clone(), experiment.clone())
///         .listen(address)
///         .initial(vec![0.0])
///         .connect_blocking(vec![Tensor::new("x", &[1])], 1)?;
///     assert_eq!((node.id().index(), node.rounds(), node.model()), (i, 0, &[0.0][..]));
///     let centre = [1.0, 3.0][i];
///     while node.is_open() {
///         let (x, update) = node.parts();
///         update[0] = 0.2 * (x[0] - centre);
///         let loss = 0.5 * f64::from(x[0] - centre).powi(2);
///         node.round_blocking(Step { loss, size: 0.2 })?;
///     }
///     while let Some(event) = node.next_event() {
///         assert!(!matches!(event, Event::LinkLost { .. }));
///     }
///     node.finish_blocking()
/// };
/// let results = std::thread::scope(|scope| {
///     let nodes: Vec<_> = keys.into_iter().zip(addresses).enumerate().collect();
///     let threads: Vec<_> =
///         nodes.into_iter().map(|node| scope.spawn(|| train(node))).collect();
///     threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Vec<_>>()
/// });
/// let results = results.into_iter().collect::<Result<Vec<_>, _>>()?;
/// assert!((results[0].mean[0] - 2.0).abs() < 0.01);
/// assert_eq!(results[0].summary, results[1].summary);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Within an async runtime, with a loop that may fail:
///
/// ```no_run
/// use gradvine::prelude::*;
///
/// # fn train(_: &[f32], _: &mut [f32]) -> Result<f64, String> { Ok(0.0) }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let mut node =
///     Node::builder("node.toml")?.connect(vec![Tensor::new("weights", &[10])], 100).await?;
/// while node.is_open() {
///     let (x, update) = node.parts();
///     match train(x, update) {
///         Ok(loss) => node.round(Step { loss, size: 1.0 }).await?,
///         // All nodes get the reason.
///         Err(reason) => return Err(node.fail(reason).await.into()),
///     };
/// }
/// let result = node.finish().await?;
/// println!("{}", result.summary.mean_digest);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Exchange {
    design: Arc<Design>,
    id: NodeId,
    directory: Option<PathBuf>,
    /// `None` once the run is over.
    node: Option<Node>,
    program: ProgramEnds,
    /// `None` while the node mixes, and once the rounds are over.
    lent: Option<Lent>,
    /// Whether an update was passed on whose mixed model has not been received.
    waiting: bool,
    /// A model to measure, once the rounds are over.
    to_measure: Option<Vec<f32>>,
    /// The size of the last step.
    size: f32,
    rounds: u64,
    ends: bool,
    result: Option<NodeResult>,
    /// The unread events of a run that is over.
    last: VecDeque<Event>,
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lent({} numbers)", self.x.len())
    }
}

impl std::fmt::Debug for ProgramEnds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ProgramEnds")
    }
}

impl Exchange {
    pub(super) async fn begin(linked: Linked, program: ProgramEnds) -> Result<Exchange, EndError> {
        let (node, result) = match linked {
            Linked::Runs(node) => (node, None),
            Linked::Over(node, result) => (node, Some(*result)),
        };
        let (design, id) = node.design().expect("a node that is linked has read its files");
        let is_over = result.is_some();
        let mut exchange = Exchange {
            design: Arc::clone(design),
            id,
            directory: node.directory().map(Path::to_path_buf),
            node: Some(node).filter(|_| !is_over),
            program,
            lent: None,
            waiting: !is_over,
            to_measure: None,
            size: 0.0,
            rounds: result.as_ref().map_or(0, |result| result.summary.rounds),
            ends: false,
            result,
            last: VecDeque::new(),
        };
        if !is_over {
            exchange.receive().await?;
        }
        Ok(exchange)
    }

    /// The design that all nodes of the run share.
    pub fn design(&self) -> &Arc<Design> {
        &self.design
    }

    /// The node's number in the topology.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// The run directory, if one is written.
    pub fn directory(&self) -> Option<&Path> {
        self.directory.as_deref()
    }

    /// Whether the node takes one more update. If not, call [`Exchange::finish`].
    pub fn is_open(&self) -> bool {
        self.lent.is_some() || self.waiting
    }

    /// Rounds done. It falls when the run goes back to a checkpoint, because a node was started
    /// again: then the model is that of the checkpoint. After a restart of this program it does not
    /// begin at 0. What the training loop keeps besides the model (moments, its place in the data)
    /// is not put back by the node; a program that puts it back ends with the same bits.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// The model that local training starts from, and the buffer for its change: d numbers each,
    /// empty once the rounds are over. The change is what training has subtracted, x before less x
    /// after (the outer gradient of DiLoCo; for one step of SGD, the step times the gradient). The
    /// buffer's initial contents are arbitrary.
    pub fn parts(&mut self) -> (&[f32], &mut [f32]) {
        match &mut self.lent {
            Some(Lent { x, update, .. }) => (x, update),
            None => (&[], &mut []),
        }
    }

    /// The model that local training starts from; empty once the rounds are over.
    pub fn model(&self) -> &[f32] {
        self.lent.as_ref().map_or(&[], |lent| &lent.x)
    }

    /// The same parts as vectors, for a program that lends them to another language: it may take
    /// the update, and puts a vector of d numbers back before the round. `None` while the node
    /// mixes, and once the rounds are over. Another owner of the model costs a copy in the round.
    pub fn buffers(&mut self) -> Option<(&Arc<Vec<f32>>, &mut Vec<f32>)> {
        self.lent.as_mut().map(|Lent { x, update, .. }| (&*x, update))
    }

    /// The next event of the node, if there is one now.
    pub fn next_event(&mut self) -> Option<Event> {
        self.node.as_mut().and_then(Node::try_next).or_else(|| self.last.pop_front())
    }

    /// One round: passes on the written update, and waits for the mixed model. Returns whether
    /// there is a next round. If the future is dropped before it is ready, the round continues: the
    /// next call passes on nothing and waits for the same mixed model; until then there is no model
    /// to read.
    ///
    /// # Errors
    /// If `step.size` is negative or not finite, or the update is not d numbers long; then nothing
    /// is passed on. Otherwise why the run ended: every later call returns that it is over.
    pub async fn round(&mut self, step: Step) -> Result<bool, EndError> {
        if self.waiting {
            self.receive().await?;
            return Ok(self.is_open());
        }
        if !(step.size >= 0.0 && step.size.is_finite()) {
            let problem = "expected a finite number that is not negative";
            return Err(EndError::Setup(ConfigError::new("Step::size", step.size, problem)));
        }
        let Some(Lent { rounds, x, update }) =
            self.lent.take_if(|lent| lent.update.len() == lent.x.len())
        else {
            return Err(match &self.lent {
                Some(Lent { x, update, .. }) => {
                    let problem = format!("expected {}, the parameters of the model", x.len());
                    ConfigError::new("update.length", update.len(), problem).into()
                }
                None => EndError::failed("the rounds of this run are over"),
            });
        };
        // The node takes its model back without a copy only if it is the only owner.
        drop(x);
        let reply = Reply::Update { update, step, ends: self.ends };
        // A node that has ended does not receive it: its own error follows.
        let _ = self.program.replies.send(Ok(reply));
        (self.waiting, self.size) = (true, step.size);
        self.rounds = rounds + 1;
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
    /// Waits for the end of the run, and for the mean of all models. If the future is dropped
    /// before it is ready, the next call waits for the same end.
    ///
    /// # Errors
    /// Why the run did not end as it should.
    pub async fn finish(&mut self) -> Result<NodeResult, EndError> {
        self.end(|_| None).await
    }

    /// The same, with measures of the program: `evaluate` is called on this task with the node's
    /// own model, and then with the mean. The other nodes wait for it.
    ///
    /// # Errors
    /// As [`Exchange::finish`].
    pub async fn finish_with(
        &mut self,
        mut evaluate: impl FnMut(&[f32]) -> Measures + Send,
    ) -> Result<NodeResult, EndError> {
        self.end(|x| Some(evaluate(x))).await
    }

    async fn end(
        &mut self,
        mut evaluate: impl FnMut(&[f32]) -> Option<Measures> + Send,
    ) -> Result<NodeResult, EndError> {
        self.ends = true;
        loop {
            if self.is_open() {
                self.parts().1.fill(0.0);
                self.round(Step { loss: f64::NAN, size: self.size }).await?;
            } else if let Some(x) = self.to_measure.take() {
                // A node that has ended does not receive it: its own error follows.
                let _ = self.program.replies.send(Ok(Reply::Measures(evaluate(&x))));
                self.waiting = true;
                self.receive().await?;
            } else {
                break;
            }
        }
        self.result.take().ok_or_else(|| EndError::failed("the run has ended before"))
    }

    /// The same, blocking this thread.
    ///
    /// # Errors
    /// As [`Exchange::finish`].
    pub fn finish_blocking(&mut self) -> Result<NodeResult, EndError> {
        futures::executor::block_on(self.finish())
    }

    /// Ends the run because local training cannot continue; all nodes get the reason. Returns the
    /// error of the run.
    pub async fn fail(&mut self, reason: impl Into<String>) -> EndError {
        self.lent = None;
        let _ = self.program.replies.send(Err(reason.into()));
        match self.node.take() {
            Some(node) => match node.join().await {
                Err(error) => error,
                Ok(_) => EndError::failed("the run had ended before"),
            },
            None => EndError::failed("the run is over"),
        }
    }

    /// Leaves the run now, if it is not over, and waits until the node has ended.
    pub async fn close(mut self) {
        if let Some(node) = self.node.take() {
            node.stop();
            // A learner that waits for an update ends without its program.
            drop(self.program);
            // Why it ended is what was asked for.
            let _ = node.join().await;
        }
    }

    /// Waits for the next request, or for the end of the rounds.
    async fn receive(&mut self) -> Result<(), EndError> {
        match self.program.requests.recv().await {
            Some(Request::Update(lent)) => {
                self.rounds = lent.rounds;
                self.lent = Some(lent);
            }
            Some(Request::Measures(x)) => self.to_measure = Some(x),
            None => {
                // The node has dropped its learner: the run is over.
                if let Some(node) = &mut self.node {
                    let result = node.result().await;
                    self.last.extend(std::iter::from_fn(|| node.try_next()));
                    (self.node, self.waiting) = (None, false);
                    self.result = Some(result?);
                }
            }
        }
        self.waiting = false;
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

    fn compute_lent(&mut self, wanted: Wanted<'_>, ready: &mut Ready<'_>) -> Computed {
        let Wanted { round, x, update } = wanted;
        let gone = || "its training loop has ended".to_string();
        let lent = Lent { rounds: round.0, x: Arc::clone(x), update };
        self.ends.requests.send(Request::Update(lent)).map_err(|_| gone())?;
        let reply = futures::executor::block_on(self.ends.replies.recv()).ok_or_else(gone)??;
        let Reply::Update { mut update, step, ends } = reply else {
            return Err("its training loop sent measures instead of an update".into());
        };
        self.ended = ends;
        self.size = step.size;
        ready(0..update.len(), &mut update);
        Ok((update, step.loss))
    }

    /// The state of the training loop stays with the program: the node can be put back without it.
    fn state(&mut self, _visitor: &mut dyn Visitor) -> bool {
        true
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

    fn measures(&mut self, x: &[f32]) -> Option<Measures> {
        // A program that is gone measures nothing.
        self.ends.requests.send(Request::Measures(x.to_vec())).ok()?;
        match futures::executor::block_on(self.ends.replies.recv())? {
            Ok(Reply::Measures(measures)) => measures,
            _ => None,
        }
    }
}
