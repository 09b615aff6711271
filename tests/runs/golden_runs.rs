//! The expected bits of whole runs: the same on every machine and architecture, in the simulator as
//! over the network.
//!
//! Gradients here are sums in a fixed order and step sizes come from `libm`, so nothing depends on
//! the CPU; matrix products of models do, where one CPU fuses products with sums and another does
//! not, and are not part of this. A change of these figures is a change of what nodes of different
//! versions would compute: a commit of its own.

use common::{
    GIVEN, Run, section,
    sgd::{Sgd, Steps},
};

/// Topology, rule, compressor, and the digest of all models after the run.
const GOLDEN: &[(&str, &str, &str, u64)] = &[
    ("ring:8", "d-psgd", "identity", 0x697b_1611_b8a2_1f54),
    (GIVEN, "d-psgd order='cta'", "identity", 0xb4b6_8a16_f4b6_bbfc),
    ("ring:8", "choco gamma=0.3", "min-max bits=4", 0x312b_4a21_6845_3307),
    (GIVEN, "choco gamma=0.1", "random-k k=100 scaled=false", 0xa2f2_cea9_2e25_3106),
    ("torus:3x3", "choco-edge gamma=0.05", "top-k k=60", 0xcc0d_b170_cd3c_4c73),
    ("star:5", "dcd", "qsgd levels=64 bucket=512", 0xdfc4_4df4_4e26_150c),
    ("ring:8", "deep-squeeze eta=0.1", "sign", 0x0d23_dae8_0043_6392),
    ("ring:8", "deep-squeeze eta=0.2", "one-bit", 0x415e_ac6a_a063_e656),
    ("ring:8", "beer gamma=0.1", "bf16", 0x25fd_f0f8_55ff_5cb3),
    ("ring:8", "naive", "f16", 0x3c80_a3d8_7bba_ec8a),
    ("ring:8", "choco gamma=0.2", "ternary bucket=64", 0x18e8_985f_fb73_e17f),
    ("ring:8", "choco gamma=0.5", "truncate", 0x62b5_5db9_467a_4ee1),
    ("ring:8", "choco gamma=0.2", "low-rank rank=2", 0x9ebd_2318_6493_4aaf),
    ("ring:7", "d2", "identity", 0x1b95_9c14_ccbe_3b3c),
    ("ring:8", "gradient-tracking", "identity", 0xa27a_7bc5_2ae5_cede),
    ("ring:8", "power-gossip", "identity", 0x9de7_8a6a_0252_62bb),
    ("complete:5", "c-sgd collective='ring'", "identity", 0x044c_0283_340d_4780),
    ("star:6", "double-squeeze", "min-max bits=4", 0x2d1f_303a_a47f_fdc5),
    ("star:6", "dgc k=20 clip=2.0", "identity", 0x0f96_c66a_8da9_7225),
    ("complete:8", "g-top-k k=20", "identity", 0x95f4_3d88_d390_99e5),
    ("star:6", "sketched-sgd k=20", "count-sketch rows=5 columns=200", 0xf535_e994_5b09_d98d),
    ("ring:8", "ad-psgd", "identity", 0x2205_f5c5_4a6a_4d46),
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
        let mut run = Run {
            sgd,
            same_start: true,
            ..Run::new(topology, &section(rule), &section(compressor))
        }
        .wide(1_234);
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
