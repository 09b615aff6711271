//! Two programs in one process need not share registries.

use gradvine::{
    compress::COMPRESSORS,
    data::EMBEDDED,
    drive::NoopObserver,
    experiment::{Experiment, Registries},
    gossip::rule::RULES,
    mixing::{
        family::{self, Family},
        schedule::{self, Recipe},
    },
    run::Whole,
    sim,
};

const SETS: [&str; 7] = [
    "run.rounds=2",
    "topology.file=loop:4",
    "topology.schedule=constant",
    "data.source=numerals",
    "rule.kind=house-rule",
    "compressor.kind=house-code",
    "data.split=iid",
];

fn experiment() -> Experiment {
    Experiment::default_with(&SETS.map(String::from)).unwrap()
}

#[test]
fn entries_of_one_program_are_unknown_to_the_other() {
    let (one, other) = (Registries::separate(), Registries::separate());
    let rule = RULES.find("deep-squeeze").expect("a rule of the crate");
    let code = COMPRESSORS.find("sign").expect("a compressor of the crate");
    let ring = family::REGISTRY.find("ring").expect("a family of the crate");
    let fixed = schedule::REGISTRY.find("static").expect("a schedule of the crate");
    let digits = EMBEDDED.find("digits").expect("a set of the crate");
    one.rules.register(gradvine::gossip::rule::Entry { name: "house-rule", ..*rule }).unwrap();
    one.compressors.register(gradvine::compress::Entry { name: "house-code", ..*code }).unwrap();
    one.families.register(Family { name: "loop", ..*ring }).unwrap();
    one.schedules.register(Recipe { name: "constant", ..*fixed }).unwrap();
    one.datasets.0.register(gradvine::data::Embedded { name: "numerals", ..*digits }).unwrap();

    let whole = Whole::new(experiment().with_registries(one)).unwrap();
    let ended = sim::run(whole.specs(), &mut NoopObserver).unwrap();
    let known = ["topology.file=ring:4", "rule.kind=deep-squeeze", "compressor.kind=sign"];
    let sets = SETS[..1].iter().chain(&SETS[6..]).chain(&known).map(ToString::to_string);
    let same = Whole::new(Experiment::default_with(&sets.collect::<Vec<_>>()).unwrap()).unwrap();
    let expected = sim::run(same.specs(), &mut NoopObserver).unwrap();
    assert_eq!(ended[0].model, expected[0].model);

    // Neither the other program nor the process knows one of the names.
    let kinds = [
        ("topology.file=loop:4", "loop"),
        ("topology.schedule=constant", "constant"),
        ("data.source=numerals", "numerals"),
        ("rule.kind=house-rule", "house-rule"),
        ("compressor.kind=house-code", "house-code"),
    ];
    for registries in [other, Registries::default()] {
        for (set, name) in kinds {
            let experiment = Experiment::default_with(&[set.to_string()]).unwrap();
            let error = Whole::new(experiment.with_registries(registries)).err().expect(set);
            let text = error.to_string();
            assert!(text.contains(name) && text.contains("one of"), "{set}: {text}");
            assert!(text.matches(name).count() == 1, "the name is not accepted: {text}");
        }
    }
    assert!(family::REGISTRY.find("loop").is_none());
}
