//! Sites with unequal numbers of rows, and rehearsals of their runs on one machine.

use std::fs;

use predicates::prelude::*;
use serde_json::Value;

use crate::command::{Deployment, NAMES, Reach, folder, gradvine, json, metrics, rows, within};

/// Three sites, of which one has fewer rows than the others.
fn unequal(run: &str) -> Deployment {
    let deployment = Deployment::new(Reach::Tcp, &format!("{run}\nminimum_rows = 6"));
    let few: String = rows(2).lines().take(10).flat_map(|line| [line, "\n"]).collect();
    deployment.write("oslo.csv", &few);
    deployment
}

/// Gives a node an experiment file of its own, with this weighting.
fn states(deployment: &Deployment, name: &str, weighting: &str) {
    let text = fs::read_to_string(deployment.file("experiment.toml")).unwrap();
    let weighting = format!("[data]\nweighting = \"{weighting}\"\n");
    deployment.give(name, &text.replace("[data]\n", &weighting));
}

fn ends(deployment: &Deployment) -> Vec<Option<i32>> {
    let mut nodes = NAMES.map(|name| deployment.start(name));
    nodes.iter_mut().map(|node| node.end().0).collect()
}

#[test]
#[ignore = "slow"]
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

/// The sources of the three sites, as a setting.
const SOURCES: &str = "data.sources=[\"tokyo.csv\", \"london.csv\", \"oslo.csv\"]";

/// Runs a command on an experiment file of a folder, and returns its summary.
fn summary(deployment: &Deployment, arguments: &[&str], out: &str) -> Value {
    let run = deployment.file(out);
    let file = deployment.file("experiment.toml");
    let done = gradvine()
        .args(&arguments[..1])
        .arg(file)
        .args(&arguments[1..])
        .arg("--quiet")
        .arg("--out")
        .arg(&run)
        .assert();
    done.success();
    json(&run.join("summary.json"))
}

#[test]
#[ignore = "slow"]
fn a_rehearsal_ends_with_the_bits_of_the_deployment() {
    let deployment = unequal("rounds = 20\nevaluate_every = 5");
    let with_sources = |text: String| {
        let sources = SOURCES.replacen("data.sources", "sources", 1);
        text.replace(
            "[data]\n",
            &format!("[topology]\nfile = \"net.toml\"\n[data]\n{sources}\ntest_share = 0.3\n"),
        )
    };
    let text = fs::read_to_string(deployment.file("experiment.toml")).unwrap();
    // The nodes read the same file: sources are for the rehearsal alone.
    deployment.write("experiment.toml", &with_sources(text));
    assert_eq!(ends(&deployment), [Some(0); 3]);
    let real = json(&deployment.run("oslo").join("summary.json"));
    let simulated = summary(&deployment, &["simulate"], "simulated");
    let trained = summary(&deployment, &["train"], "trained");
    let processes = summary(&deployment, &["train", "--processes"], "processes");
    for rehearsed in [&simulated, &trained, &processes] {
        assert_eq!(rehearsed["digest"], real["digest"]);
        assert_eq!(rehearsed["weighting"], "rows", "as of nodes");
        assert_eq!(rehearsed["final"], real["final"], "test rows are each node's own");
        // A node does not see that another one trains on its test rows.
        let is_of_all =
            |one: &&Value| one.as_str().unwrap().contains("test rows have the features");
        let (of_all, rest): (Vec<&Value>, Vec<&Value>) =
            rehearsed["warnings"].as_array().unwrap().iter().partition(is_of_all);
        assert_eq!(of_all.len(), 1, "all have the same rows: {of_all:?}");
        let of_oslo = real["warnings"].as_array().into_iter().flatten();
        assert_eq!(rest, of_oslo.collect::<Vec<_>>());
        for name in NAMES {
            let of = |summary: &Value, key: &str| summary["participation"][name][key].clone();
            for key in ["rows", "classes", "test", "test_of_mean"] {
                assert_eq!(of(rehearsed, key), of(&real, key), "{name}: {key}");
            }
        }
    }
    assert_eq!(real["participation"]["oslo"]["rows"], 6, "of 9 rows 3 are for testing");
    // Each node's own model on its own test rows.
    for (node, name) in NAMES.iter().enumerate() {
        let is_own = |line: &Value| line["node"] == node;
        let of = |lines: Vec<Value>| {
            let own = lines.into_iter().filter(is_own);
            own.map(|line| (line["round"].clone(), line["test_loss"].clone())).collect::<Vec<_>>()
        };
        let own = of(metrics(&deployment.run(name)));
        assert_eq!(own.len(), 4);
        assert_eq!(of(metrics(&deployment.file("simulated"))), own, "{name}");
    }
    let counted = summary(&deployment, &["simulate", "--set", "data.weighting=nodes"], "nodes");
    assert_ne!(counted["digest"], real["digest"]);
}

#[test]
fn a_rehearsal_names_nodes_by_their_files() {
    let deployment = unequal("rounds = 20");
    let arguments = ["simulate", "--topology", "path:3", "--set", SOURCES];
    let first = summary(&deployment, &arguments, "first");
    let names: Vec<&String> = first["participation"].as_object().unwrap().keys().collect();
    assert_eq!(names, NAMES);
    assert!(deployment.file("first/model-oslo.safetensors").exists());
    // Its experiment is the same run again, from any folder.
    let elsewhere = folder();
    let again = gradvine()
        .current_dir(elsewhere.path())
        .args(["train", "--out", "again", "--no-baseline"])
        .arg(deployment.file("first/experiment.toml"))
        .assert()
        .success();
    let text = String::from_utf8(again.get_output().stdout.clone()).unwrap();
    let node = |name: &str| text.lines().any(|line| line.trim_start().starts_with(name));
    assert!(NAMES.into_iter().all(node), "{text}");
    assert_eq!(json(&elsewhere.path().join("again/summary.json"))["digest"], first["digest"]);
    // The rows that a site held out are known to be test rows.
    gradvine()
        .arg("evaluate")
        .arg(deployment.file("first/model-mean.safetensors"))
        .arg(deployment.file("london.csv"))
        .assert()
        .success()
        .stdout(predicate::str::contains("6 (held out of training, of 30)"));
}

#[test]
fn sites_of_a_rehearsal_have_the_same_columns_and_classes() {
    let deployment = unequal("rounds = 5");
    let text = format!(
        "[run]
rounds = 5
[topology]
file = \"path:3\"
[data]
{}
[model]
kind = \
         \"softmax\"
[rule]
kind = \"d-psgd\"
[compressor]
kind = \"identity\"
",
        SOURCES.trim_start_matches("data.")
    );
    deployment.write("experiment.toml", &text);
    let error = |problem: &str| {
        let text = String::from_utf8(
            within(deployment.folder.path(), &["simulate", "experiment.toml", "--out", "refused"])
                .code(2)
                .get_output()
                .stderr
                .clone(),
        )
        .unwrap();
        assert!(text.contains(problem), "{text}");
    };
    let oslo = fs::read_to_string(deployment.file("oslo.csv")).unwrap();
    deployment.write("oslo.csv", &oslo.replacen("x,y", "y,x", 1));
    error("data.sources[2] = \"oslo.csv\": a column \"y\" where the first source has \"x\"");
    deployment.write("oslo.csv", &oslo.replacen("x,y,label\n", "", 1));
    error("its columns have no names, those of the first have");
    // Names of classes are those of all sites.
    let named = |text: &str, names: [&str; 3]| -> String {
        let name = |line: &str| {
            let (rest, class) = line.rsplit_once(',').unwrap();
            match class.parse::<usize>() {
                Ok(class) => format!("{rest},{}\n", names[class]),
                Err(_) => format!("{line}\n"),
            }
        };
        text.lines().map(name).collect()
    };
    for site in NAMES {
        let file = format!("{site}.csv");
        let text = if site == "oslo" {
            oslo.clone()
        } else {
            fs::read_to_string(deployment.file(&file)).unwrap()
        };
        let names = if site == "oslo" { ["b", "b", "c"] } else { ["a", "b", "b"] };
        deployment.write(&file, &named(&text, names));
    }
    let done = summary(&deployment, &["simulate"], "named");
    let classes = |site: &str| done["participation"][site]["classes"].clone();
    assert_eq!(
        (classes("tokyo"), classes("oslo")),
        (serde_json::json!([8, 16, 0]), serde_json::json!([0, 5, 2]))
    );
    let written = fs::read_to_string(deployment.file("named/experiment.toml")).unwrap();
    assert!(written.contains("classes = [\"a\", \"b\", \"c\"]"), "{written}");
}

#[test]
fn one_source_is_divided_by_given_sizes() {
    let folder = folder();
    let run = |more: &[&str], out: &str| {
        let base = ["simulate", "--topology", "path:3", "--rounds", "5", "--quiet"];
        gradvine()
            .current_dir(folder.path())
            .args(base)
            .args(more)
            .args(["--out", out])
            .assert()
            .success();
        json(&folder.path().join(out).join("summary.json"))
    };
    let sized = run(&["--set", "data.sizes=[1, 2, 4]"], "sized");
    let rows: Vec<u64> = sized["participation"]
        .as_object()
        .unwrap()
        .values()
        .map(|part| part["rows"].as_u64().unwrap())
        .collect();
    assert_eq!((rows, &sized["weighting"]), (vec![205, 411, 822], &Value::from("rows")));
    let even = run(&["--set", "data.sizes=[2, 2, 2]", "--set", "data.weighting=nodes"], "even");
    assert_eq!(even["digest"], run(&[], "plain")["digest"]);
}

/// The values of categories are those of all sites, and missing numbers become the mean of all.
#[test]
fn sites_of_a_rehearsal_share_a_schema() {
    let deployment = unequal("rounds = 5");
    let sources = SOURCES.trim_start_matches("data.");
    let text = format!(
        "[run]\nrounds = 5\n[topology]\nfile = \"path:3\"\n[data]\n{sources}\ntarget = \
         \"sick\"\nstandardize = true\nschema = [\n  {{ name = \"age\", kind = \"number\", \
         missing = \"mean\" }},\n  {{ name = \"ward\", kind = \"category\" }},\n  {{ name = \
         \"patient\", kind = \"ignore\" }},\n]\n[model]\nkind = \"softmax\"\n[rule]\nkind = \
         \"d-psgd\"\n[compressor]\nkind = \"identity\"\n"
    );
    deployment.write("experiment.toml", &text);
    for (site, ward) in NAMES.into_iter().zip(["east", "west", "north"]) {
        let row = |i: usize| {
            let age = if i == 4 { String::new() } else { (i * 7 % 50).to_string() };
            format!("{site}-{i},{age},{ward},{}\n", ["no", "yes"][i % 2])
        };
        let rows: String = (0..20).map(row).collect();
        deployment.write(&format!("{site}.csv"), &format!("patient,age,ward,sick\n{rows}"));
    }
    let simulated = summary(&deployment, &["simulate"], "simulated");
    let processes = summary(&deployment, &["train", "--processes"], "processes");
    assert_eq!(simulated["digest"], processes["digest"]);
    // Four features: age, and one for each ward or more.
    assert!(simulated["parameters"].as_u64().unwrap() >= 2 * 4 + 2, "{simulated}");
    gradvine()
        .arg("predict")
        .arg(deployment.file("processes"))
        .arg(deployment.file("oslo.csv"))
        .args(["--id", "patient"])
        .assert()
        .success()
        .stdout(predicate::str::starts_with("patient,prediction,p(no),p(yes)\noslo-0,"));
}

/// A node knows of its own rows only; its summary is that of all nodes.
#[test]
fn a_remark_on_the_rows_of_one_site_is_in_no_summary_of_a_node() {
    let folder = folder();
    let codes = |first: u32| -> String {
        let row = |i| format!("{},{},{}\n", i % 7, first + i, ["no", "yes"][i as usize % 2]);
        "a,code,y\n".to_string() + &(0..20).map(row).collect::<String>()
    };
    // Above 2^24 not every whole number is an f32.
    for (name, first) in [("one.csv", 0), ("two.csv", 20_000_001)] {
        fs::write(folder.path().join(name), codes(first)).unwrap();
    }
    let text = "run.rounds = 2\ntopology.file = 'path:2'\ndata.sources = ['one.csv', 'two.csv']\n\
                data.classes = ['no', 'yes']\nmodel.kind = 'softmax'\nrule.kind = 'd-psgd'\n\
                optimizer = { step = 1e-9, batch = 'full' }\n";
    fs::write(folder.path().join("e.toml"), text).unwrap();
    let mut train = gradvine();
    train.current_dir(&folder).args(["train", "e.toml", "--processes", "--out", "run"]);
    train.assert().success();
    let nodes = ["one", "two"].map(|name| {
        fs::read(folder.path().join(format!("run/nodes/{name}/run/summary.json"))).unwrap()
    });
    assert_eq!(nodes[0], nodes[1]);
    let warnings = json(&folder.path().join("run/summary.json"))["warnings"].to_string();
    assert!(warnings.contains("two.csv"), "{warnings}");
    let own = String::from_utf8(nodes[0].clone()).unwrap();
    assert!(!own.contains("two.csv"), "{own}");
}
