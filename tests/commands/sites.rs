//! Sites with unequal numbers of rows, and rehearsals of their runs on one machine.

use std::fs;

use crate::command::{Deployment, NAMES, Reach, json, rows};

/// Three sites, of which one has fewer rows than the others.
fn unequal(run: &str) -> Deployment {
    let deployment = Deployment::new(Reach::Tcp, run);
    let few: String = rows(2).lines().take(10).flat_map(|line| [line, "\n"]).collect();
    deployment.write("oslo.csv", &few);
    deployment
}

/// Gives a node an experiment file of its own, with this weighting.
fn states(deployment: &Deployment, name: &str, weighting: &str) {
    let file = format!("{name}.toml");
    let node = fs::read_to_string(deployment.file(&file)).unwrap();
    deployment.write(&file, &node.replace("experiment.toml", &format!("{name}-experiment.toml")));
    let text = fs::read_to_string(deployment.file("experiment.toml")).unwrap();
    let text = text.replace("[data]\n", &format!("[data]\nweighting = \"{weighting}\"\n"));
    deployment.write(&format!("{name}-experiment.toml"), &text);
}

fn ends(deployment: &Deployment) -> Vec<Option<i32>> {
    let mut nodes = NAMES.map(|name| deployment.start(name));
    nodes.iter_mut().map(|node| node.end().0).collect()
}

#[test]
fn nodes_with_files_of_their_own_count_by_their_rows() {
    let deployment = unequal("rounds = 20");
    states(&deployment, "london", "rows");
    assert_eq!(ends(&deployment), [Some(0); 3], "the default is to count rows");
    let summary = json(&deployment.run("oslo").join("summary.json"));
    assert_eq!(summary["weighting"], "rows");
    let other = unequal("rounds = 20\nconnect_s = 30");
    states(&other, "london", "nodes");
    let mut nodes = NAMES.map(|name| other.start(name));
    let (code, errors) = (nodes[1].end().0, nodes[1].errors());
    assert_eq!(code, Some(2), "{errors}");
    let differ = "data.weighting = \"nodes\" here, \"rows\" there";
    assert!(errors.contains(differ), "{errors}");
}
