//! Sketched-SGD: the sum of the nodes' count sketches selects the gradient entries to send.
//!
//! Ivkin, Rothchild, Ullah, Braverman, Stoica, Arora: Communication-efficient Distributed SGD with
//! Sketching (2019), Algorithms 1 to 3. S is a [count sketch](crate::compress::CountSketch),
//! linear, with hashes that all nodes share.
//!
//! In `theory` all nodes subtract the same gt from their memories, not what each has sent: sum a_i
//! keeps what was not applied, and a top-k of the mean has no error floor from data that differ (a
//! mean of top-k's has). Each a_i by itself grows with T lr |g_i - mean g|, and only their sum is
//! small: in plain `f32` each addition to it would lose digits for good, and the mean would drift.
//! So a_i is a sum of two `f32`, the second of which holds the rounding errors of the first (Knuth
//! 1969, The Art of Computer Programming 2, 4.2.2, theorem B); x + mean a_i then loses nothing. The
//! first one is sent; its rounding errors stay in the memories and are sent later.
//!
//! Two reductions a round: tables, then exact values at the indices that the tables select. With a
//! server: table up, indices down, values up, values down. With a tree or a ring all nodes get the
//! sum of the tables and draw the indices themselves, from a stream that they share: no indices are
//! sent. Every node ends with the same bits.
//!
//! DIFFERENCE: Algorithm 3 as printed sums the exact values although it sketches their mean; here
//! both are means. DIFFERENCE: memories hold lr g, because a rule receives lr g. Biases are treated
//! as other entries. The result is the last x, not a weighted mean over the rounds. State: x; a_i
//! with its rounding errors, or u_i and v_i; two tables; a few lists of P k entries.

use crate::{
    compress::CountSketch,
    compress::SketchShape,
    gossip::{collective::Series, rule::prelude::*},
    rng::Purpose,
    rng::Stream,
};

pub(crate) const ENTRY: Entry = Entry {
    name: "sketched-sgd",
    summary: "centralized SGD on the top-k of the mean gradient, found in a sum of count sketches",
    paper: "Ivkin et al. 2019, Communication-efficient Distributed SGD with Sketching, Algorithms \
            1 to 3",
    update: "theory (Algorithm 2):   gb_i = lr g_i + a_i;\n\
             S = mean_i S(gb_i);\n\
             T = HEAVYMIX(S, k);\n\
             gt = mean_i gb_i on T;\n\
             x' = x - gt;\n\
             a_i = gb_i - gt\n\
             practical (Algorithm 3): u_i = m u_i + g_i;\n\
             v_i = v_i + u_i;\n\
             S = mean_i S(v_i);\n\
             the P k greatest estimates of S;\n\
             T = the k greatest of mean_i v_i there;\n\
             x' = x - lr mean_i v_i on T;\n\
             u_i = v_i = 0 on T;\n\
             at first a_i = u_i = v_i = 0",
    state: "a_i as two vectors (practical: u_i and v_i), the update; two tables",
    sends: "server: table up, k places down, k values up and down (practical: P k up, k down); \
            tree and ring: tables and values, summed",
    conditions: "compressor count-sketch, whose columns should be 4 k or more: smaller tables are \
                 unstable; the links of the collective",
    constants: &[
        (
            "collective",
            "\"ring\", \"server\" (node 0) or \"tree\"; default the first of ring, server whose \
             links exist",
        ),
        ("k", "how many entries; instead of fraction"),
        (
            "fraction",
            "which part of the vector, above 0, at most 1; default 0.01, that of top-k, to \
             compare with; at least one entry",
        ),
        ("variant", "\"theory\" (default, Algorithm 2) or \"practical\" (Algorithm 3)"),
        (
            "momentum",
            "m of \"practical\", from 0 to below 1; default 0.9, as of dgc; optimizer.momentum \
             beside it is refused",
        ),
        (
            "candidates",
            "P of \"practical\", from 1: P k exact values are asked for; default 4, as many as \
             the columns that k wants",
        ),
    ],
    compresses: true,
    home: "ring",
    own_momentum: true,
    prepare,
    ..Entry::BLANK
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Variant {
    #[default]
    Theory,
    Practical,
}

params! {
    collective: Option<Kind> = None,
    k: Option<i64> = None,
    fraction: Option<f64> = None,
    variant: Variant = Variant::default(),
    momentum: Option<f64> = None,
    candidates: Option<i64> = None,
}

/// The constants that all nodes share.
#[derive(Clone, Copy)]
struct Shared {
    pattern: Pattern,
    nodes: usize,
    shape: SketchShape,
    seed: u64,
    k: usize,
    /// The number of exact values requested: k, or P k.
    asked: usize,
    /// m; `None` in the variant without u.
    momentum: Option<f32>,
}

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let mut params: Params = config::read("rule", table)?;
    let (nodes, len) = (setting.topology.nodes(), setting.parameters);
    let Some(shape) = setting.compressor.sketch() else {
        return Err(ConfigError::new(
            "compressor.kind",
            format!("\"{}\"", setting.compressor.name()),
            "sketched-sgd adds the tables of sketches: use kind = \"count-sketch\" with its rows \
             and columns",
        ));
    };
    let k = constants::entries(params.k, &mut params.fraction, 0.01, len)?;
    let (asked, momentum) = params.candidates_and_momentum(k, len)?;
    let allowed = &[Kind::Ring, Kind::Server, Kind::Tree];
    let (kind, pattern) =
        Pattern::choose(ENTRY.name, params.collective, None, allowed, setting.topology)?;
    params.collective = Some(kind);
    let mut warnings = Vec::new();
    if k < len && shape.columns < 4 * k.min(len / 4) {
        let columns = shape.columns;
        warnings.push(format!(
            "a sketch of {columns} columns for k = {k}: below 4 k it names \
                               wrong entries, and memories may grow without bound"
        ));
    }
    let parts = if pattern == Pattern::Server {
        let down = if momentum.is_some() {
            Format::Sparse { len: asked, most: k }
        } else {
            Format::Floats(k)
        };
        let places = Format::Indices { len, count: asked };
        [vec![Format::Floats(shape.cells()), places], vec![Format::Floats(asked), down]]
            .map(|formats| Collective::after_gradient(pattern, nodes, formats))
    } else {
        [shape.cells(), asked].map(|numbers| Collective::sum(pattern, nodes, numbers, 0, 1))
    };
    let shared = Shared { pattern, nodes, shape, seed: setting.seed, k, asked, momentum };
    Ok(Prepared {
        plan: Arc::new(Series::new(parts.into())),
        resolved: config::resolved(ENTRY.name, &params),
        warnings,
        relaxation: 1.0,
        least_neighbours: 0,
        spawn: Arc::new(move |node, x| Box::new(SketchedSgd::new(shared, node, x))),
    })
}

impl Params {
    /// The number of exact values requested, and m.
    fn candidates_and_momentum(
        &mut self,
        k: usize,
        len: usize,
    ) -> Result<(usize, Option<f32>), ConfigError> {
        if self.variant == Variant::Theory {
            let only = "only variant = \"practical\" has it: leave it out";
            return match (self.candidates, self.momentum) {
                (Some(p), _) => Err(ConfigError::new("rule.candidates", p, only)),
                (_, Some(m)) => Err(ConfigError::new("rule.momentum", m, only)),
                (None, None) => Ok((k, None)),
            };
        }
        let momentum = constants::momentum(*self.momentum.get_or_insert(0.9))?;
        let p = *self.candidates.get_or_insert(4);
        match usize::try_from(p) {
            Ok(p @ 1..) => Ok((p.saturating_mul(k).min(len), Some(momentum))),
            _ => Err(ConfigError::new("rule.candidates", p, "expected a whole number from 1")),
        }
    }
}

struct SketchedSgd {
    shared: Shared,
    id: NodeId,
    /// u_i; empty without momentum.
    u: Vec<f32>,
    /// v_i, or a_i and gb_i.
    v: Vec<f32>,
    /// The rounding errors of a_i; empty with momentum.
    lost: Vec<f32>,
    sketch: CountSketch,
    tables: Sum,
    /// The indices of the requested exact values, ascending.
    places: Vec<u32>,
    values: Sum,
    /// With momentum: the exact values that are applied, by position.
    picked: Entries,
    /// The error if v could not be sketched.
    wrong: Option<NonFinite>,
}

impl SketchedSgd {
    fn new(shared: Shared, id: NodeId, x: &[f32]) -> SketchedSgd {
        let Shared { pattern, nodes, shape, seed, asked, momentum, .. } = shared;
        let zeros = vec![0.0; x.len()];
        SketchedSgd {
            shared,
            id,
            u: if momentum.is_some() { zeros.clone() } else { Vec::new() },
            v: zeros.clone(),
            lost: if momentum.is_some() { Vec::new() } else { zeros.clone() },
            sketch: CountSketch::new(shape, x.len(), Stream::new(seed, Purpose::Rule).with(0)),
            tables: Sum::new(pattern, nodes, id, shape.cells()),
            places: Vec::new(),
            values: Sum::new(pattern, nodes, id, asked),
            picked: Entries::default(),
            wrong: None,
        }
    }

    /// The number of this exchange among those of the values, which follow those of the tables.
    fn of_values(&self, exchange: u16) -> Option<u16> {
        exchange.checked_sub(self.shared.pattern.exchanges(self.shared.nodes))
    }

    fn is_server(&self) -> bool {
        self.shared.pattern == Pattern::Server && self.id == NodeId(0)
    }

    /// The mean of the tables is complete: selects the indices of the exact values to request.
    fn ask(&mut self, round: Round) {
        let Shared { seed, asked, momentum, .. } = self.shared;
        self.sketch.table_mut().copy_from_slice(self.tables.mean());
        if momentum.is_some() {
            self.sketch.top(asked, &mut self.places);
        } else {
            self.sketch.heavy_mix(
                asked,
                Stream::new(seed, Purpose::Rule).with(1).round(round),
                &mut self.places,
            );
        }
    }

    /// The indices are known: collects this node's values there.
    fn answer(&mut self) {
        for (value, &place) in self.values.start().iter_mut().zip(&self.places) {
            *value = self.v[place as usize];
        }
    }

    /// The mean of the values is complete: selects which of them are applied. None if a mean is not
    /// finite: the node that sends it reports the error.
    fn pick(&mut self) {
        if self.shared.momentum.is_some() {
            let _ = self.picked.select(self.values.mean(), self.shared.k);
        }
    }
}

/// `sum + lost += value`, of which `sum` is the nearest `f32`.
#[inline]
fn add(value: f32, sum: &mut f32, lost: &mut f32) {
    let value_and_lost = value + *lost;
    let rest = two_sum_rest(value, *lost, value_and_lost);
    let total = *sum + value_and_lost;
    *lost = two_sum_rest(*sum, value_and_lost, total) + rest;
    *sum = total;
}

/// a + b - s exactly, for s = a + b as rounded.
#[inline]
fn two_sum_rest(a: f32, b: f32, s: f32) -> f32 {
    let b_seen = s - a;
    (a - (s - b_seen)) + (b - b_seen)
}

impl Party for SketchedSgd {
    fn outgoing(&mut self, _: &mut Local, at: &At, out: &mut Writer<'_>) -> Encoded {
        self.wrong.map_or(Ok(()), Err)?;
        match self.of_values(at.exchange) {
            None if self.is_server() && at.exchange == 1 => out.indices(&self.places),
            None => return self.tables.outgoing(at.exchange, out),
            Some(1) if self.is_server() && self.shared.momentum.is_some() => {
                return out.entries(&self.picked);
            }
            Some(exchange) => return self.values.outgoing(exchange, out),
        }
        Ok(())
    }

    fn received(&mut self, _: &mut Local, at: &At, from: NodeId, p: &Payload<'_>) -> Received {
        match self.of_values(at.exchange) {
            None if matches!(p, Payload::Indices { .. }) => p.indices(&mut self.places),
            None => self.tables.received(at.exchange, from, p),
            Some(_) if matches!(p, Payload::Sparse { .. }) => {
                let picked = &mut self.picked;
                picked.clear();
                p.entries(self.shared.asked, &mut |position, value| picked.push(position, value));
            }
            Some(exchange) => self.values.received(exchange, from, p),
        }
        Ok(())
    }

    fn close(&mut self, _: &mut Local, at: &At) {
        let exchanges = self.shared.pattern.exchanges(self.shared.nodes);
        let server = self.shared.pattern == Pattern::Server;
        match self.of_values(at.exchange) {
            None => {
                self.tables.close(at.exchange);
                let last = at.exchange + 1 == exchanges;
                if if server { self.is_server() && !last } else { last } {
                    self.ask(at.round);
                }
                if last {
                    self.answer();
                }
            }
            Some(exchange) => {
                self.values.close(exchange);
                if if server {
                    self.is_server() && exchange == 0
                } else {
                    exchange + 1 == exchanges
                } {
                    self.pick();
                }
            }
        }
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(&SameModel)
    }
}

impl Rule for SketchedSgd {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        match self.shared.momentum {
            None => {
                for ((a, lost), g) in self.v.iter_mut().zip(&mut self.lost).zip(&local.update) {
                    add(*g, a, lost);
                }
            }
            Some(m) => {
                for ((u, v), g) in self.u.iter_mut().zip(&mut self.v).zip(&local.update) {
                    *u = m * *u + g;
                    *v += *u;
                }
            }
        }
        self.sketch.clear();
        self.wrong = self.sketch.accumulate(&self.v).err();
        self.tables.start().copy_from_slice(self.sketch.table());
    }

    fn land(&mut self, local: &mut Local, at: &At) {
        if let Some(NonFinite { index, value }) = self.wrong {
            // A single node encodes nothing, so no error was reported yet: x gets the value.
            local.x[index] = value;
            return;
        }
        if self.shared.pattern.exchanges(self.shared.nodes) == 0 {
            self.ask(at.round);
            self.answer();
            self.pick();
        }
        if self.shared.momentum.is_some() {
            for (position, value) in self.picked.iter() {
                let place = self.places[position as usize] as usize;
                local.x[place] -= value;
                (self.u[place], self.v[place]) = (0.0, 0.0);
            }
        } else {
            for (&place, &value) in self.places.iter().zip(self.values.mean()) {
                let place = place as usize;
                local.x[place] -= value;
                add(-value, &mut self.v[place], &mut self.lost[place]);
            }
        }
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visitor.vector("u_i", &mut self.u);
        visitor.vector("v_i", &mut self.v);
        visitor.vector("lost", &mut self.lost);
        visitor.scratch(self.tables.scratch() + self.values.scratch());
    }
}
