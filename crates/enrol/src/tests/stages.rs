//! From which model the next stage begins.

use super::*;
use crate::{
    difference::differences,
    ends::{StageEnd, chosen},
};

/// The end of a stage as a site states it.
fn end(rounds: u64, model: Option<u64>, mean: bool, of: &str) -> StageEnd {
    StageEnd {
        run: "r".into(),
        site: of.into(),
        stage: 9,
        begins: String::new(),
        rounds,
        model,
        mean,
        digest: of.into(),
        constants: String::new(),
        signature: String::new(),
    }
}

#[test]
fn the_model_is_the_mean_of_more_than_half_or_one_that_half_have_reached() {
    let mean = |of: &str| end(10, Some(9), true, of);
    let own = |rounds, of: &str| end(rounds, Some(9), false, of);
    let like = |of: &str, digest: &str| StageEnd { digest: digest.into(), ..mean(of) };
    let old = |of: &str| StageEnd { digest: "o".into(), ..end(4, Some(7), true, of) };
    let none = |of: &str| end(0, None, false, of);
    let odd = |of: &str| StageEnd { constants: "fills = { a = 1.0 }".into(), ..own(11, of) };
    for (ends, site, agreed) in [
        (vec![like("a", "lie"), like("b", "x"), like("c", "x"), own(11, "d")], "b", false),
        (vec![like("a", "lie"), like("b", "x"), like("c", "x")], "b", true),
        (vec![like("a", "x"), like("b", "x"), like("c", "x"), own(99, "d")], "a", true),
        // One claims all rounds of the run.
        (vec![own(u64::MAX, "a"), own(7, "b"), own(8, "c")], "c", false),
        (
            vec![own(u64::MAX, "a"), own(u64::MAX, "b"), own(6, "c"), own(7, "d"), own(8, "e")],
            "e",
            false,
        ),
        // One claims that there was none, or another scale.
        (vec![none("a"), own(7, "b"), own(8, "c")], "c", false),
        (vec![odd("a"), own(7, "b"), own(8, "c")], "c", false),
        // Most never began the stage that a few have trained, or the other way round.
        (vec![old("a"), old("b"), own(11, "c")], "a", true),
        (vec![old("a"), own(7, "b"), own(8, "c")], "c", false),
    ] {
        let all: Vec<&StageEnd> = ends.iter().collect();
        let one = chosen(&all).unwrap();
        assert_eq!((one.end.site.as_str(), one.agreed), (site, agreed), "{ends:?}");
    }
    assert!(chosen(&[&none("a"), &none("b")]).is_none());
}

/// Five sites train, and one proposes a setting.
fn five_train() -> Vec<Place> {
    let places = started(&["lyon", "nice", "rome", "oslo", "bern"], Consent::Majority);
    places.iter().for_each(|place| drop(begins(place)));
    proposes(&places[0], "optimizer.step=0.05").unwrap();
    gossip(&places);
    places
}

/// All nodes have ended the stage that they were in, and none has begun another one.
fn all_end(places: &[Place], rounds: u64) {
    for place in places.iter().filter(|place| place.book().me().is_some()) {
        ends(place, newest(rounds, true, "mean"));
    }
    let left: Vec<usize> =
        (0..places.len()).filter(|at| places[*at].book().me().is_some()).collect();
    for _ in 0..2 {
        for a in &left {
            for b in left.iter().filter(|b| *b != a) {
                places[*a].sync(&places[*b]).unwrap();
            }
        }
    }
}

/// What all members begin with.
fn all_begin(places: &[Place]) -> Stage {
    let members = || places.iter().filter(|place| place.book().me().is_some());
    let stages: Vec<Stage> = members().map(|place| place.stage().unwrap()).collect();
    assert!(stages.iter().all(|stage| *stage == stages[0]), "{stages:?}");
    members().for_each(|place| drop(begins(place)));
    stages[0].clone()
}

#[test]
fn a_change_that_one_site_declines_stops_nothing() {
    let places = five_train();
    let first = places[0].book().stage().unwrap().number;
    declines(&places[1], "lyon");
    answers(&places[2], "lyon", None).unwrap();
    answers(&places[3], "lyon", None).unwrap();
    (0..4).for_each(|_| gossip(&places));
    // The change, and at once the leave of nice: nobody has begun the stage between the two.
    let book = places[0].book();
    assert_eq!(book.stage().unwrap().number, first + 2);
    assert!(book.run().member("nice").is_none() && book.run().experiment.contains("0.05"));
    all_end(&places, 10);
    let stage = all_begin(&places);
    let model = FirstModel { site: "lyon".into(), stage: first, mean: true };
    assert_eq!((stage.number, stage.rounds_before, stage.first), (first + 2, 10, Some(model)));
}

#[test]
fn a_change_that_a_node_file_forbids_stops_nothing() {
    let mut places = five_train();
    places[1].forbid(&["optimizer"]);
    gossip(&places);
    let first = places[0].book().stage().unwrap().number;
    answers(&places[2], "lyon", None).unwrap();
    answers(&places[3], "lyon", None).unwrap();
    (0..4).for_each(|_| gossip(&places));
    assert!(places[0].book().run().member("nice").is_none());
    all_end(&places, 10);
    assert_eq!(all_begin(&places).first.unwrap().stage, first);
}

#[test]
fn three_versions_before_anybody_begins_stop_nothing() {
    let places = five_train();
    let first = places[0].book().stage().unwrap().number;
    for (by, set) in [(1, "optimizer.step=0.06"), (2, "optimizer.step=0.07")] {
        for place in &places[3..5] {
            let open = place.book().notes.proposals[0].by.clone();
            answers(place, &open, None).unwrap();
        }
        gossip(&places);
        proposes(&places[by], set).unwrap();
        gossip(&places);
    }
    answers(&places[3], "rome", None).unwrap();
    answers(&places[4], "rome", None).unwrap();
    gossip(&places);
    let book = places[4].book();
    assert_eq!(book.stage().unwrap().number, first + 3);
    assert!(book.run().experiment.contains("0.07"));
    // One of them has begun the stage in the middle, where nobody else came.
    all_end(&places, 10);
    let stage = all_begin(&places);
    assert_eq!((stage.number, stage.first.unwrap().stage), (first + 3, first));
}

/// The program of a site stops while its stage is replaced twice, and says nothing meanwhile.
#[test]
fn a_site_that_comes_back_late_says_how_its_stage_ended() {
    let places = five_train();
    let first = places[0].book().stage().unwrap().number;
    for at in [2, 3] {
        answers(&places[at], "lyon", None).unwrap();
    }
    gossip(&places[..4]);
    for place in &places[..4] {
        ends(place, newest(10, true, "mean"));
    }
    gossip(&places[..4]);
    let Err(NotYet::Waits(why)) = places[0].stage() else { panic!("it waits") };
    assert_eq!(why, format!("bern has not said how stage {first} ended"));
    proposes(&places[0], "optimizer.step=0.09").unwrap();
    gossip(&places[..4]);
    answers(&places[1], "lyon", None).unwrap();
    answers(&places[2], "lyon", None).unwrap();
    gossip(&places[..4]);
    // It hears of both at once. Its own stage comes first, then the one that it never began.
    places[4].sync(&places[0]).unwrap();
    assert!(places[4].book().notes.ends.iter().all(|end| end.site != "bern"));
    ends(&places[4], newest(10, true, "mean"));
    places[4].tend();
    gossip(&places);
    let stage = all_begin(&places);
    assert_eq!((stage.number, stage.first.unwrap().stage), (first + 2, first));
}

#[test]
fn what_was_said_once_stays() {
    let places = five_train();
    for at in [2, 3] {
        answers(&places[at], "lyon", None).unwrap();
    }
    gossip(&places);
    ends(&places[0], newest(10, true, "mean"));
    let book = places[0].book();
    let stage = book.stage_before(book.run().number).unwrap();
    let said = book.notes.end_of(stage, "lyon").cloned();
    places[0].change(|book| {
        let stage = book.stage_before(book.run().number).unwrap().clone();
        let mut later = said.clone().unwrap();
        later.digest = digest(b"later");
        // Unless it is what all retain of two that a site has signed.
        let later = later.signed(&places[0].site.key);
        let is_first = later.id() < said.as_ref().unwrap().id();
        book.learn(News { ends: vec![later.clone()], ..News::default() });
        let now = book.notes.end_of(&stage, "lyon").cloned();
        assert_eq!(now, if is_first { Some(later) } else { said.clone() });
        Ok(())
    });
}

/// After a stage that was cut off a site states rounds, a model and constants of its choice.
#[test]
fn the_end_of_a_stage_sets_scales_and_fills_alone_and_no_rounds_beyond_the_run() {
    let places = five_train();
    for at in [2, 3] {
        answers(&places[at], "lyon", None).unwrap();
    }
    gossip(&places);
    let book = places[0].book();
    let before = book.stage_before(book.run().number).unwrap().clone();
    let all = Experiment::parse(&before.experiment, &[]).unwrap().run.rounds;
    let good = StageEnd {
        run: book.run().id.clone(),
        site: "nice".into(),
        stage: before.number,
        begins: before.digest(),
        rounds: all,
        model: Some(before.number),
        mean: false,
        digest: digest(b"m"),
        constants: "fills = { age = 4.5 }\n[scale]\nmean = [1.0]\ndeviation = [2.0]\n".into(),
        signature: String::new(),
    };
    let counts = |end: StageEnd| {
        let mut notes = Notes::default();
        let news = News { ends: vec![end.signed(&places[1].site.key)], ..News::default() };
        notes.merge(news, &book.history, now());
        !notes.ends.is_empty()
    };
    assert!(counts(good.clone()));
    let constants = |text: &str| StageEnd { constants: text.into(), ..good.clone() };
    for wrong in [
        StageEnd { rounds: all + 1, ..good.clone() },
        StageEnd { rounds: u64::MAX, ..good.clone() },
        StageEnd { rounds: 0, ..good.clone() },
        StageEnd { model: Some(before.number + 1), ..good.clone() },
        StageEnd { model: None, ..good.clone() },
        StageEnd { digest: "\"\noptimizer.step=9".into(), ..good.clone() },
        StageEnd { begins: digest(b"another version"), ..good.clone() },
        StageEnd { site: "rome".into(), ..good.clone() },
        constants("step = 9.0"),
        constants("[scale]\nmean = [1.0]\ndeviation = [0.0]\n"),
        constants("fills = { age = inf }"),
        constants("[scale]\nmean = [1.0]\ndeviation = [1.0, 1.0]\n"),
        constants(&format!("# {}", "x".repeat(2 << 20))),
    ] {
        assert!(!counts(wrong.clone()), "{:?}", wrong.constants.get(..80));
    }
    let text = &book.run().experiment;
    let agreed = Experiment::parse(text, &[]).unwrap();
    let made = good.experiment(text, 5).unwrap();
    let [agreed, made] = [agreed, made].map(|one| toml::from_str(&one.to_toml()).unwrap());
    let changed: Vec<String> =
        differences(&agreed, &made).into_iter().map(|(path, ..)| path).collect();
    assert_eq!(changed, ["data.scale", "model.init", "model.init_digest", "run.rounds"]);
}

/// A fill counts where the schema leaves it to the rows, and for no other column.
#[test]
fn fills_are_those_of_the_agreed_schema() {
    let places = started(&["a", "b"], Consent::Majority);
    let set = "data.schema=[{ name = \"age\", kind = \"number\", missing = \"mean\" }, \
               { name = \"dose\", kind = \"number\", missing = 7.0 }]";
    let sets = [set.to_string(), "data.target=\"sick\"".into()];
    let text = Experiment::parse(&places[0].book().run().experiment, &sets).unwrap().to_toml();
    let fills = [("age".to_string(), 4.5), ("dose".to_string(), 1.0), ("other".to_string(), 1.0)];
    let constants = Constants { fills: fills.into(), ..Constants::default() };
    let end = StageEnd { constants: constants.to_text().unwrap(), ..end(3, Some(1), true, "a") };
    let end = StageEnd { digest: digest(b"m"), ..end };
    let made = end.experiment(&text, 9).unwrap();
    let missing: Vec<String> = made
        .data
        .schema
        .unwrap()
        .columns
        .iter()
        .map(|column| format!("{:?}", column.missing))
        .collect();
    assert_eq!(missing, ["Value(4.5)", "Value(7.0)"]);
}

/// An end that no site takes over would be waited for, for ever.
#[test]
fn an_end_that_others_would_refuse_is_an_error_at_its_site() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let stage = begins(&places[0]);
    let run = places[0].book().stage().unwrap().clone();
    let fills = (0..60_000).map(|at| (format!("column-{at:09}"), 0.1)).collect();
    let constants = Constants { fills, ..Constants::default() };
    let long = newest(3, true, "m").map(|newest| Newest { constants, ..newest });
    let most = Experiment::parse(&run.experiment, &[]).unwrap().run.rounds;
    for (newest, word) in [(long, "bytes of scales"), (newest(most + 1, true, "m"), "rounds")] {
        let ended = places[0].tried(|book| places[0].site.ended(book, &run, newest));
        let why = ended.unwrap_err().to_string();
        assert!(why.contains(word) && why.contains(&format!("stage {}", stage.number)), "{why}");
    }
    assert!(places[0].book().notes.ends.is_empty());
    places[0].change(|book| places[0].site.ended(book, &run, newest(most, true, "m")));
    // Nobody waits for one that has left.
    removes(&places[0], "c").unwrap();
    places[1].sync(&places[0]).unwrap();
    answers(&places[1], "a", None).unwrap();
    let _ = places[2].sync(&places[1]);
    assert!(places[2].book().me().is_none());
    places[2].change(|book| places[2].site.ended(book, &run, newest(3, true, "m")));
    assert!(places[2].book().notes.ends.is_empty());
}
