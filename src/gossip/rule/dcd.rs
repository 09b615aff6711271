//! DCD-PSGD: difference compression.
//!
//! Tang, Gan, Zhang, Zhang, Liu: Communication Compression for Decentralized Training (2018),
//! Algorithm 1.
//!
//! The owner's own copy is its model: both start at x_0 and add the same bits, so xh_i = x_i
//! always, and it is stored once. DIFFERENCE to widely shown slides: they print x_{t+1} = xh_t +
//! C(xh_t - x_t), which diverges even with C = identity. State: x, one copy per neighbour. All
//! copies start equal to the owners' x_0, so all nodes must start from the same x_0.

use super::prelude::*;

pub(super) const ENTRY: Entry = Entry {
    name: "dcd",
    summary: "send the compressed change of the model; everyone who holds a copy adds the same \
              bits",
    paper: "Tang et al. 2018, Communication Compression for Decentralized Training, Algorithm 1 \
            (DCD-PSGD)",
    update: "h_i  = sum_j W_ij xh_j - lr g_i(x_i)   xh_j: the neighbours' copy of x_j\n\
             z_i  = C(h_i - x_i)\n\
             x_i += z_i;  xh_i += z_i at every holder",
    state: "one copy per neighbour",
    sends: "z_i",
    conditions: "alpha < sqrt(1 - rho^2) / |I - W| suffices for unbiased C; rings lose stability \
                 near alpha = 1.2",
    constants: &[],
    compresses: true,
    home: "path",
    prepare,
    ..Entry::BLANK
};

fn prepare(table: &toml::Table, setting: &Setting<'_>) -> Result<Prepared, ConfigError> {
    let params: NoParams = config::read("rule", table)?;
    let topology = Arc::clone(setting.topology);
    Ok(Prepared {
        plan: Arc::new(Gossip::after_gradient(Arc::clone(&topology), setting.compressed())),
        resolved: config::resolved("dcd", &params),
        warnings: warn_of_noise(setting),
        spawn: Arc::new(move |node, x| {
            let row = Row::of(&topology, node);
            Box::new(Dcd { copies: vec![x.to_vec(); row.neighbours.len()], row })
        }),
    })
}

/// Warns if the compressor's nominal error on Gaussian vectors exceeds the bound of `conditions`.
fn warn_of_noise(setting: &Setting<'_>) -> Vec<String> {
    let alpha = (1.0 - setting.nominal_delta).max(0.0).sqrt();
    if setting.topology.nodes() == 1 || alpha == 0.0 {
        return Vec::new();
    }
    let spectrum = setting.topology.spectrum();
    let bound = (1.0 - spectrum.rho * spectrum.rho).max(0.0).sqrt() / spectrum.mu;
    if alpha < bound {
        return Vec::new();
    }
    vec![format!(
        "dcd with `{}`: its error alpha = {alpha:.3} is past the bound sqrt(1 - rho^2) / |I - W| \
         = {bound:.3} of `{}`, so it may diverge (near 1.2 it does); \
         deep-squeeze or choco stand more, so do more bits and smaller buckets",
        setting.compressor.name(),
        setting.topology.name()
    )]
}

struct Dcd {
    row: Row,
    /// xh_j of the neighbours, ascending.
    copies: Vec<Vec<f32>>,
}

impl Party for Dcd {
    fn outgoing(&mut self, local: &mut Local, _: &At, out: &mut Writer<'_>) -> Encoded {
        out.vector(&local.update)
    }

    fn sent(&mut self, local: &mut Local, _: &At, _: Option<NodeId>, own: &Payload<'_>) {
        own.add_into(1.0, &mut local.x);
    }

    fn received(&mut self, _: &mut Local, _: &At, from: NodeId, payload: &Payload<'_>) -> Received {
        payload.add_into(1.0, &mut self.copies[self.row.place(from)]);
        Ok(())
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(self)
    }
}

impl Copies for Dcd {
    fn own<'a>(&'a self, local: &'a Local, _: Option<NodeId>) -> Option<&'a [f32]> {
        Some(&local.x)
    }

    fn of<'a>(&'a self, _: &'a Local, from: NodeId) -> Option<&'a [f32]> {
        Some(&self.copies[self.row.place(from)])
    }
}

impl Rule for Dcd {
    fn gradient(&mut self, local: &mut Local, _: Round, _: f32) {
        let off_diagonal = self.row.off_diagonal();
        sum_into(&mut local.update, &local.x, &self.row.weights, &self.copies, |update, x| {
            -off_diagonal * x - update
        });
    }

    fn state(&mut self, visitor: &mut dyn Visitor) {
        visit_all(visitor, "xh_j", &mut self.copies);
    }
}
