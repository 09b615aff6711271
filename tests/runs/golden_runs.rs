//! The expected bits of whole runs: the same on every machine and architecture, in the simulator as
//! over the network.
//!
//! Gradients here are sums in a fixed order and step sizes come from `libm`, so nothing depends on
//! the CPU; matrix products of models do, where one CPU fuses products with sums and another does
//! not, and are not part of this. A change of these figures is a change of what nodes of different
//! versions would compute: a commit of its own.

use common::{
    GIVEN, Run,
    sgd::{Sgd, Steps},
};

/// Topology, rule, compressor, and the digest of all models after the run.
const GOLDEN: &[(&str, &str, &str, u64)] = &[
    ("ring:8", "kind = 'd-psgd'", "kind = 'identity'", 0x697b_1611_b8a2_1f54),
    (GIVEN, "kind = 'd-psgd'\norder = 'cta'", "kind = 'identity'", 0xb4b6_8a16_f4b6_bbfc),
    ("ring:8", "kind = 'choco'\ngamma = 0.3", "kind = 'min-max'\nbits = 4", 0x312b_4a21_6845_3307),
    (
        GIVEN,
        "kind = 'choco'\ngamma = 0.1",
        "kind = 'random-k'\nk = 100\nscaled = false",
        0xa2f2_cea9_2e25_3106,
    ),
    (
        "torus:3x3",
        "kind = 'choco-edge'\ngamma = 0.05",
        "kind = 'top-k'\nk = 60",
        0xcc0d_b170_cd3c_4c73,
    ),
    ("star:5", "kind = 'dcd'", "kind = 'qsgd'\nlevels = 64\nbucket = 512", 0xdfc4_4df4_4e26_150c),
    ("ring:8", "kind = 'deep-squeeze'\neta = 0.1", "kind = 'sign'", 0x0d23_dae8_0043_6392),
    ("ring:8", "kind = 'deep-squeeze'\neta = 0.2", "kind = 'one-bit'", 0x415e_ac6a_a063_e656),
    ("ring:8", "kind = 'beer'\ngamma = 0.1", "kind = 'bf16'", 0x25fd_f0f8_55ff_5cb3),
    ("ring:8", "kind = 'naive'", "kind = 'f16'", 0x3c80_a3d8_7bba_ec8a),
    (
        "ring:8",
        "kind = 'choco'\ngamma = 0.2",
        "kind = 'ternary'\nbucket = 64",
        0x18e8_985f_fb73_e17f,
    ),
    ("ring:8", "kind = 'choco'\ngamma = 0.5", "kind = 'truncate'", 0x62b5_5db9_467a_4ee1),
    ("ring:8", "kind = 'choco'\ngamma = 0.2", "kind = 'low-rank'\nrank = 2", 0x9ebd_2318_6493_4aaf),
    ("ring:7", "kind = 'd2'", "kind = 'identity'", 0x1b95_9c14_ccbe_3b3c),
    ("ring:8", "kind = 'gradient-tracking'", "kind = 'identity'", 0xa27a_7bc5_2ae5_cede),
    ("ring:8", "kind = 'power-gossip'", "kind = 'identity'", 0x9de7_8a6a_0252_62bb),
    (
        "complete:5",
        "kind = 'c-sgd'\ncollective = 'ring'",
        "kind = 'identity'",
        0x044c_0283_340d_4780,
    ),
    ("star:6", "kind = 'double-squeeze'", "kind = 'min-max'\nbits = 4", 0x2d1f_303a_a47f_fdc5),
    ("star:6", "kind = 'dgc'\nk = 20\nclip = 2.0", "kind = 'identity'", 0x0f96_c66a_8da9_7225),
    ("complete:8", "kind = 'g-top-k'\nk = 20", "kind = 'identity'", 0x95f4_3d88_d390_99e5),
    (
        "star:6",
        "kind = 'sketched-sgd'\nk = 20",
        "kind = 'count-sketch'\nrows = 5\ncolumns = 200",
        0xf535_e994_5b09_d98d,
    ),
    ("ring:8", "kind = 'ad-psgd'", "kind = 'identity'", 0x2205_f5c5_4a6a_4d46),
];

/// FNV-1a of the bits of all models, nodes in order.
fn digest(models: &[Vec<f32>]) -> u64 {
    let bytes = models.iter().flatten().flat_map(|x| x.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

#[test]
fn runs_end_with_the_bits_that_are_written_down() {
    let sgd = Sgd { steps: Steps::Cosine, momentum: 0.5, weight_decay: 0.01, local_steps: 2 };
    let mut wrong = Vec::new();
    for &(topology, rule, compressor, golden) in GOLDEN {
        let mut run =
            Run { sgd, same_start: true, ..Run::new(topology, rule, compressor) }.wide(1_234);
        (run.rounds, run.allow_unstable) = (20, true);
        let models = run.models();
        assert!(
            models.iter().flatten().all(|x| x.abs() < 10.0),
            "{}: not a run that is worth its bits",
            run.words()
        );
        let found = digest(&models);
        if found != golden {
            wrong.push(format!("{:#018x} instead of {golden:#018x}: {}", found, run.words()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
