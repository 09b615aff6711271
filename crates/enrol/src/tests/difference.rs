//! What a proposal changes is shown by the difference itself.

use super::*;

#[test]
fn the_difference_names_all_that_changes_whatever_the_words_say() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let book = places[0].book();
    let ticket = key("ticket").public().to_peer_id().to_string();
    let mut next = book.run().next(now(), "sets optimizer.step=0.05".into(), None);
    let sets = [
        "optimizer.step=0.05".to_string(),
        "rule.kind=\"d-sgd\"".into(),
        "data.target=\"x\\ny\"".into(),
    ];
    let sets = Experiment::parse(&next.experiment, &sets).map(|one| one.to_toml());
    next.experiment = sets.unwrap_or_else(|_| {
        let sets = ["optimizer.step=0.05".to_string(), "data.target=\"x\\ny\"".into()];
        Experiment::parse(&next.experiment, &sets).unwrap().to_toml()
    });
    next.topology = "complete".into();
    next.consent = Consent::All;
    next.wire += 1;
    next.invitations.push(Invitation {
        site: "d".into(),
        ticket,
        version: next.number,
        expires: next.time + 7200,
        by: "b".into(),
    });
    let lines = next.difference(book.run()).join("\n");
    for words in [
        "who must agree to changes: more than half -> all",
        "wire format: ",
        "optimizer.step: ",
        " -> 0.05",
        "data.target: (not set) -> ",
        "b invites d, for 2 h",
        "  - ring",
        "  + complete",
    ] {
        assert!(lines.contains(words), "{words}: {lines}");
    }
    assert!(!next.difference(book.run()).iter().any(|line| line.contains('\n')), "{lines}");
    assert!(
        book.run()
            .next(now(), "sets optimizer.step=9".into(), None)
            .difference(book.run())
            .is_empty()
    );
}

#[test]
fn sites_are_shown_with_their_keys_and_addresses() {
    let places = started(&["a", "b", "c"], Consent::Majority);
    let run = places[0].book().run().clone();
    let d = site(key("d")).member("d", vec!["/ip4/9.9.9.9/tcp/9".into()]);
    let mut next = run.clone();
    next.admit(d.clone());
    assert_eq!(
        next.difference(&run),
        [format!("site d joins, with the key {}, at /ip4/9.9.9.9/tcp/9", d.peer)]
    );
    let mut next = run.clone();
    next.admit(Member { name: "c".into(), ..d.clone() });
    let old = &run.members[2].peer;
    assert_eq!(
        next.difference(&run),
        [format!("site c gets the key {} in place of {old}, at /ip4/9.9.9.9/tcp/9", d.peer)]
    );
    let mut next = run.clone();
    next.remove("b").unwrap();
    assert_eq!(next.difference(&run), ["site b is removed"]);
}
